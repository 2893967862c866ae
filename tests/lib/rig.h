/* SPDX-License-Identifier: MIT
 * A tiny model on the CPU with an engine, and what a prefill produced as host arrays: for tests of the forward pass
 * and of what stands on it.  Everything here fails the running cmocka test when it cannot do its work.
 */
#ifndef RIG_H
#define RIG_H

#include "lib/model/cache.h"
#include "lib/model/prefill.h"
#include "tests/lib/tiny.h"

struct rig {
	struct kv_model m;
	struct kv_device d;
	struct kv_engine *x;
};

/* threads 0: all. */
void rig_open(struct rig *r, const struct tiny_spec *s, unsigned threads);
void rig_close(struct rig *r);

/* What kv_prefill gave, as in struct naive but f32. */
struct rig_prompt {
	size_t T, n;                /* prompt, and behind it */
	int32_t *tokens;            /* [T + n] */
	float *logits;              /* [vocab] */
	float *q, *k, *v;           /* [L][Hq][T][D], [L][Hkv][T][D] twice */
	float *q_behind, *k_behind; /* [L][Hq][n][D], [L][Hkv][n][D] */
};

/* T token ids that look random, the same for the same seed. */
void rig_tokens(const struct rig *r, int32_t *tokens, size_t T, uint64_t seed);

/* Prefill T tokens of rig_tokens(). */
void rig_prefill(struct rig *r, struct rig_prompt *p, size_t T, uint64_t seed);
/* The same with n more of these tokens behind the prompt. */
void rig_prefill_behind(struct rig *r, struct rig_prompt *p, size_t T, size_t n, uint64_t seed);
/* The same with a module's rows behind the prompt. */
void rig_prefill_lookahead(
    struct rig *r, struct rig_prompt *p, size_t T, const struct kv_adapters *a, size_t n, uint64_t seed);
void rig_prompt_fini(struct rig_prompt *p);

/* A cache of H heads that holds the entries of p for which keep is true ([L][H][T], NULL: all), in the given type, next
 * position p->T.  Heads that share a KV head hold copies of its entries. */
struct kv_cache *rig_cache_heads(
    struct rig *r, const struct rig_prompt *p, size_t H, const bool *keep, enum kvk_type type, size_t room);
/* The same with one head per KV head. */
struct kv_cache *rig_cache(
    struct rig *r, const struct rig_prompt *p, const bool *keep, enum kvk_type type, size_t room);

/* max |a[i] - b[i]|; NaN counts as infinite. */
double rig_distance(const float *a, const double *b, size_t n);
/* The same of x [heads][n][D] and the last n of `all` rows per head of want [heads][all][D]. */
double rig_distance_behind(const float *x, const double *want, size_t heads, size_t n, size_t all, size_t D);

#endif
