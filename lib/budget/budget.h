/* SPDX-License-Identifier: MIT
 * Allocators: how many entries each head may keep.  One file, lib/budget/NAME.c, and one row of kv_budget_list
 * (budgets.c) per method.
 *
 * Terms as in METHODS 1.1 and 3: C entries per head and layer on average, protected ones included; base: history
 * entries per head on average, without the protected; b history entries of one head, 0 <= b <= room; B = b + protected.
 * Exact: no entry is lost to rounding.  This folder is compiled without contraction of floating-point expressions.
 *
 * An allocator fills in what it decides: the layers' averages, one layer's heads, all heads at once, or explicit sets.
 * What a layer may spend comes from the user's grant or, when he gave none, from the budgets that are in the stream, so
 * that allocators compose; none of them asks where it came from.  Edges (enough for the whole prompt, less than the
 * protected, entries that do not divide evenly) are dealt with in allot.c, once.
 */
#ifndef KV_BUDGET_H
#define KV_BUDGET_H

#include "lib/layer.h"
#include "lib/method.h"
#include "lib/score/score.h"

/* How much the user grants; both 0: nothing, spend what is in the stream. */
struct kv_grant {
	size_t entries; /* -b N; 0: not given */
	double ratio;   /* -r R of the prompt, 0 < R <= 1; 0: not given */
};
/* C for a prompt of T tokens: entries, or max(1, round-half-even(T * ratio)).  Fails: KV_EARG (neither, both, out of
 * range). */
int kv_grant_capacity(const struct kv_grant *g, size_t T, size_t *C, struct kv_err *e);

/* One layer as an allocator sees it. */
struct kv_budget_layer {
	const struct kv_layer *at; /* device, config, the step's tensors, T */
	size_t i, L;               /* this is the i-th of L layers */
	size_t H;                  /* heads with budgets of their own: KV heads, or query heads if these have scores */
	size_t n_sink, n_recent;   /* protected, may exceed T */
	size_t room;               /* candidates of one head: positions n_sink .. n_sink + room - 1 */
	size_t base;               /* history entries per head to spend */
	const int32_t *given;      /* [H] earlier budgets that are being spent, may exceed T; NULL: the user granted */
	/* Scores of the candidates alone [H][room], -inf where there is none; NULL when the stream has no scores. */
	const float *raw;
	const struct kv_score_attrs *score; /* NULL with raw */
	json_t *attrs;                      /* of the budget: what the method adds; kv-budget --verbose prints it */
	const struct kv_tensor *scores;     /* the whole tensor, as it is in the stream; NULL with raw */
};
/* The same as raw, pooled for ranking [H][room]: pooled over all scored columns, then the candidates. */
int kv_budget_pooled(const struct kv_budget_layer *l, float *pooled, struct kv_err *e);

/* All layers of a prompt. */
struct kv_budget_prompt {
	const struct kv_config *cfg;
	size_t L, H, T;
	size_t room; /* the largest of any layer */
	size_t base; /* history entries per head to spend, on average over layers */
	const struct kv_budget_layer *layer; /* [L]; NULL if only one is at hand, see all_layers */
};

struct kv_budget_method {
	struct kv_method about;
	const char *needs; /* tensors that must be there: "score"; NULL: none */
	const char *looks; /* others that it may look for (lib/names.h), score, budget and protect aside; NULL: none */
	bool all_layers;   /* needs layer[] of kv_budget_prompt: all layers are held in memory (K and V on disk) */
	bool free_total;   /* sets() says how much is kept: the user grants nothing */

	const char *tally; /* attribute that lists heads: kv-budget --verbose tells their share of all; NULL: none */
	/* Optional: true where sums may exceed what was granted, as public code does; nothing is checked or mended
	 * then. */
	bool (*inexact)(const struct kv_params *p);

	/* The first two may be combined; each NULL means even shares. */

	/* base_l [L], each 0 .. room (what exceeds a layer's own room is handed on), of sum L * base.  Called only when
	 * 0 < base < room. */
	int (*layers)(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *base_l, struct kv_err *e);
	/* b [H], each 0 .. room, of sum H * base.  Called only when 0 < base < room.  A smaller sum is taken as meant:
	 * METHODS has allocators that leave entries unspent; a larger one is refused. */
	int (*heads)(const struct kv_budget_layer *l, const struct kv_params *p, size_t *b, struct kv_err *e);

	/* Instead of these: b [L][H] of sum L * H * base, or less. */
	int (*global)(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *b, struct kv_err *e);

	/* Instead of these: keep [H][T] (zeros before), non-zero bytes where an entry stays whatever its score, and B
	 * [H], entries in all, at least as many.  What B has beyond keep goes to the protected and the best scores;
	 * with nothing beyond, keep is exactly what stays.  Sum of B: H * (base + protected) at most, or that of what
	 * is given, unless free_total.  Called only when 0 < base < room, or with something given. */
	int (*sets)(
	    const struct kv_budget_layer *l, const struct kv_params *p, uint8_t *keep, size_t *B, struct kv_err *e);
};
extern const struct kv_budget_method *const kv_budget_list[]; /* ends with NULL */
const struct kv_budget_method *kv_budget_find(const char *name);

/* All that the method looks at: text for kv_pipe_options.uses.  Returns text. */
const char *kv_budget_uses(const struct kv_budget_method *m, char text[KV_USES_MAX]);

/* How a run allots.  Zeros, then p and grant. */
struct kv_budgeting {
	const struct kv_params *p; /* a budget method's */
	struct kv_grant grant;
	/* private: the layers of one prompt that were seen already must agree with the later ones */
	bool started;
	size_t sequence, H, fixed;
};

/* Does a whole prompt have to be at hand? */
bool kv_budget_needs_all(const struct kv_budgeting *x);

/* Layers l[0 .. n-1] of one prompt: all of them if kv_budget_needs_all(), else one.  Puts `budget` [kv_head] (or
 * [head]) i32 into each step, and `protect` [kv_head][token] u8 if the method makes sets; an earlier `protect` goes
 * otherwise.
 * Attributes of budget: method, its parameters, capacity, base, n_sink, n_recent, total, and the method's own.
 * Fails: KV_EARG (no grant, no earlier budgets), KV_ESHAPE, KV_EFORMAT, KV_EMEM and the method's. */
int kv_budget_layers(struct kv_budgeting *x, const struct kv_layer *l, size_t n, struct kv_err *e);

/* ---- what consumers need to know about a `budget` tensor */

struct kv_budget_view {
	size_t H;
	const int32_t *B;        /* [H], each 0 or more; may exceed the prompt */
	size_t n_sink, n_recent; /* protected */
	bool per_query;          /* heads are query heads */
};
/* Fails: KV_ESHAPE (axes, sizes, a negative entry, a sum that is not its attribute `total`), KV_EFORMAT
 * (attributes). */
int kv_budget_read(const struct kv_tensor *budget, size_t Hkv, struct kv_budget_view *v, struct kv_err *e);

/* ---- for allocators */

/* b [n]: total in equal shares, what is left over going to the lower ones (METHODS 3.1 for equal targets). */
void kv_spread(size_t total, size_t n, size_t *b);

/* METHODS 3.1: q [n] = floor(num[i] / den), then one more for the largest remainders, lower index first, until the sum
 * is total.  num / den must not sum to more than total, nor to n or more below it.  Fails: KV_EMEM. */
int kv_apportion(const uint64_t *num, uint64_t den, size_t n, size_t total, size_t *q, struct kv_err *e);

/* The best of s [n] by METHODS 1.4: falling s, then falling tie [n] if there is one, then rising index; NaN ranks as
 * -inf.
 * taken [n]: non-zero does not compete; becomes 1 for the k best of the others (all of them if there are fewer).
 * Time: linear in n.  Fails: KV_EMEM. */
int kv_best(const double *s, const float *tie, size_t n, size_t k, uint8_t *taken, struct kv_err *e);
/* The same of s [H][n], all heads together (tie [H][n]), where only cnt [H] is wanted: how many each head has of the k
 * best.  Two passes and hardly any memory. */
int kv_best_by_head(const float *s, const float *tie, size_t H, size_t n, size_t k, size_t *cnt, struct kv_err *e);

/* The methods: each the only symbol of its file. */
extern const struct kv_budget_method kv_budget_adakv;
extern const struct kv_budget_method kv_budget_cake;
extern const struct kv_budget_method kv_budget_champion;
extern const struct kv_budget_method kv_budget_duo;
extern const struct kv_budget_method kv_budget_fastgen;
extern const struct kv_budget_method kv_budget_headkv;
extern const struct kv_budget_method kv_budget_nacl;
extern const struct kv_budget_method kv_budget_pyramid;
extern const struct kv_budget_method kv_budget_uniform;

#endif
