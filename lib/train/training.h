/* SPDX-License-Identifier: MIT
 * The run of a training: samples in order, gradients gathered over batches, steps of Adam, held-out measurements, the
 * best module kept.  What it reads and writes is its caller's business.
 *
 * Every step is a function of the plan, the samples and the state in struct kv_training: a run that is taken up from a
 * saved state goes on bit for bit.
 */
#ifndef KV_TRAINING_H
#define KV_TRAINING_H

#include "lib/train/adam.h"
#include "lib/train/recall.h"
#include "lib/train/student.h"

struct kv_training_plan {
	size_t batch; /* samples per step */
	struct kv_schedule schedule;
	double clip;          /* largest norm of a step's gradient; 0: any */
	uint64_t seed;        /* of the order */
	size_t measure_every; /* steps; 0: at the end only */
	size_t save_every;    /* steps; 0: never */
	size_t patience;      /* measurements without a better one that end the run; 0: none do */
	size_t ks[KV_RECALL_MAX], n_k;
};

/* A sample at hand. */
struct kv_sample_view {
	struct kv_seen seen;
	const float *truth; /* [L][Hq][T] */
};

struct kv_training_figures {
	size_t n; /* samples */
	double loss, recall[KV_RECALL_MAX];
};

struct kv_training_step {
	size_t step; /* that was made; from 1 on */
	double epoch, rate, loss, gradient_norm;
	size_t samples, tokens;
};

struct kv_training;
struct kv_training_calls {
	void *ctx;
	size_t n, n_held_out;
	/* Sample i, good until the next call. */
	int (*get)(void *ctx, bool held_out, size_t i, struct kv_sample_view *v, struct kv_err *e);
	int (*stepped)(void *ctx, const struct kv_training_step *s, struct kv_err *e);
	int (*measured)(void *ctx, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e);
	int (*save)(void *ctx, const struct kv_training *t, struct kv_err *e);
	bool (*stop)(void *ctx); /* asked after every step: save, and leave */
};

struct kv_training {
	const struct kv_training_plan *plan;
	const struct kv_training_calls *calls;
	struct kv_student *student;
	const struct kv_device *device; /* the student's */
	struct kv_lookahead *module;    /* borrowed; its numbers are the state */
	struct kv_adam adam;
	size_t step; /* steps made */
	float *best; /* [n_parameters]; meaningless while best_step is 0 and best_loss infinite */
	double best_loss;
	size_t best_step, worse; /* measurements since */
	bool ended;              /* all steps were made, or patience is at its end */
	/* Working memory. */
	float *gradient, *score, *dscore;
	size_t floats;
	size_t *order, epoch;
};

/* calls, plan, student, device and module are set; the rest zero.  Fails: KV_EMEM. */
int kv_training_init(struct kv_training *t, struct kv_err *e);
void kv_training_fini(struct kv_training *t);

/* From t->step to the end, or until calls->stop says so.  The last state has been measured and saved then.
 * Fails: KV_EFAIL (a loss or a gradient that is not finite), and what the calls fail with. */
int kv_training_run(struct kv_training *t, struct kv_err *e);

/* The held-out samples with the module as it is. */
int kv_training_measure(struct kv_training *t, struct kv_training_figures *f, struct kv_err *e);

#endif
