/* SPDX-License-Identifier: MIT
 * Inside of the student, shared by student.c (memory, numbers) and student_pass.c (the rows' way through the layers).
 */
#ifndef KV_STUDENT_INSIDE_H
#define KV_STUDENT_INSIDE_H

#include "lib/model/engine_inside.h"
#include "lib/train/student.h"

/* What a layer's rows were on their way forth; device memory. */
struct trace {
	float *x, *norm;        /* [n][d] input; normalised */
	float *q_rows, *k_rows; /* [n][H D] before norm and rotation */
	float *q, *k, *v;       /* [H][n][D] */
	float *seen;            /* [n][Hq D] attention's output */
	float *mid, *mid_norm;  /* [n][d] behind attention; normalised */
	float *gate, *up, *act; /* [n][ff] */
	float *t;               /* [KV_N_ROLES][n][rank] */
};

struct traces {
	size_t n, layers; /* rows; 1 layer: all layers use the same memory, there is no way back */
	float *block;
	struct trace *of; /* [layers] */
	float *out;       /* [n][d] of the last layer */
};

struct kv_student {
	struct kv_engine *x;
	struct kv_lookahead *shape;   /* the layout of parameters; its numbers are not used */
	struct kv_layer_weights *w;   /* [L] */
	float *parameters, *gradient; /* device */
	bool on;                      /* adapters do something */
	float factor;
	float *one; /* device: 1.0 */
	struct traces train, truth;
	float *dx, *dmid, *d1, *d2, *d3, *dq, *dk, *dv; /* device, the way back of one layer */
	float *u;                                       /* [n][rank] */
	float *s;                                       /* [Hq][T] device */
	size_t s_floats;
	size_t *at;   /* host [Hq] */
	float *zeros; /* host [n_parameters] */
};

/* Room for the traces of n rows in so many layers, and for a layer's scores of a prompt of T tokens; kept while they
 * fit.  Fails: KV_EMEM. */
int kv_student_traces(struct kv_student *s, struct traces *t, size_t n, size_t layers, struct kv_err *e);
int kv_student_scores(struct kv_student *s, size_t T, struct kv_err *e);

#endif
