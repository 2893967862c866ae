/* SPDX-License-Identifier: MIT
 * A prompt of a few layers for tests of allocators: scores and earlier budgets go in, budgets come out.
 * A fault ends the test, except in allot_try().
 */
#ifndef ALLOT_RIG_H
#define ALLOT_RIG_H

#include "lib/budget/budget.h"

#define ALLOT_LAYERS_MAX 32

struct allot_rig {
	struct kv_device device;
	struct kv_config cfg;
	struct kv_sequence seq;
	struct kv_step step[ALLOT_LAYERS_MAX];
	struct kv_layer layer[ALLOT_LAYERS_MAX]; /* point to these: a rig stays where it was made */
};

/* L layers of H heads, T tokens; Hq = Hkv = H until the test says otherwise in cfg. */
void allot_init(struct allot_rig *x, size_t L, size_t H, size_t T);
void allot_fini(struct allot_rig *x);

/* A tensor over the caller's numbers; attrs is taken. */
void allot_put(struct allot_rig *x, size_t l, const char *name, enum kvk_type type, const char *axes,
    const size_t *shape, const void *data, json_t *attrs);
/* score [Hkv][n], pooled as said (NULL: not at all). */
void allot_put_score(struct allot_rig *x, size_t l, const float *score, size_t n, struct kv_protection protect,
    const struct kv_score_attrs *pool);
void allot_put_budget(struct allot_rig *x, size_t l, const int32_t *B, size_t n_sink, size_t n_recent);

/* Parameters of a method from pairs of name and text, ended by NULL; its files are read.  kv_params_close() when
 * done. */
void allot_params(struct kv_params *p, const struct kv_budget_method *m, ...);
/* All layers, at once or one by one as the method wants; C: entries granted, 0: none. */
int allot_try(struct kv_params *p, struct allot_rig *x, size_t C, struct kv_err *e);
void allot_run(struct kv_params *p, struct allot_rig *x, size_t C);

/* What came out. */
const int32_t *allot_budget(const struct allot_rig *x, size_t l);
const uint8_t *allot_protect(const struct allot_rig *x, size_t l); /* NULL: none */
const json_t *allot_attr(const struct allot_rig *x, size_t l, const char *key);
json_int_t allot_count(const struct allot_rig *x, size_t l, const char *key);

/* Does the JSON list hold what the layer's heads have beyond `fixed`? */
void assert_allotted(const json_t *list, const struct allot_rig *x, size_t l, size_t fixed, const char *where);

/* A file of that text in $TMPDIR; its name, in static memory.  It goes when the program ends. */
const char *allot_file(const char *text);

#endif
