/* SPDX-License-Identifier: MIT
 * Decoding over ragged caches against a naive forward pass in double precision: appending, evicting, positions,
 * limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/naive.h"
#include "tests/lib/rig.h"

#define CLOSE 1e-5 /* of logits, which are about 1 */

static const struct tiny_spec specs[] = {
	{ .arch = "qwen2", .L = 3, .Hq = 4, .Hkv = 2, .D = 16, .d = 48, .ff = 80,
	    .vocab = 97, .tied = true, .seed = 1 },
	{ .arch = "qwen3", .L = 2, .Hq = 4, .Hkv = 1, .D = 24, .d = 40, .ff = 72,
	    .vocab = 50, .seed = 2 },
	{ .arch = "llama", .L = 2, .Hq = 3, .Hkv = 3, .D = 8, .d = 24, .ff = 40,
	    .vocab = 33, .seed = 3 },
	{ .arch = "llama", .L = 2, .Hq = 6, .Hkv = 2, .D = 16, .d = 64, .ff = 96,
	    .vocab = 64, .interleaved = true, .seed = 4 },
};
#define N_SPECS (sizeof specs / sizeof *specs)

static const struct tiny_spec narrow = { .arch = "llama", .L = 2, .Hq = 4, .Hkv = 2, .D = 8, .d = 16, .ff = 24,
	.vocab = 40, .context = 900, .seed = 6 };

/* A prompt of T tokens and n more behind it, with the naive pass over all of them. */
struct turn {
	struct rig r;
	struct rig_prompt p;
	size_t n;
	int32_t *tokens; /* [T + n] */
	float *logits;   /* [n][vocab], for the test to fill */
	struct naive want;
};

static void
turn_open(struct turn *t, const struct tiny_spec *s, size_t T, size_t n, const size_t *position,
    const struct naive_mask *mask)
{
	*t = (struct turn){ .n = n };
	rig_open(&t->r, s, 0);
	rig_prefill(&t->r, &t->p, T, 7);
	t->tokens = calloc(T + n, sizeof *t->tokens);
	t->logits = calloc(n * s->vocab, sizeof *t->logits);
	assert_non_null(t->tokens);
	assert_non_null(t->logits);
	rig_tokens(&t->r, t->tokens, T + n, 7);
	naive_run(&t->want, &t->r.m, t->tokens, T + n, position, mask);
}

static void
turn_close(struct turn *t)
{
	naive_fini(&t->want);
	free(t->logits);
	free(t->tokens);
	rig_prompt_fini(&t->p);
	rig_close(&t->r);
}

/* Appends tokens from .. from+n-1 of the turn, all their logits to their place in t->logits. */
static void
append(struct turn *t, struct kv_cache *c, size_t from, size_t n)
{
	struct kv_err e = { 0 };

	if (kv_extend(c, t->tokens + t->p.T + from, n, t->logits + from * t->r.m.cfg.vocab, n, NULL, &e) < 0)
		fail_msg("%s", e.text);
}

static double
distance(const struct turn *t)
{
	size_t vocab = t->r.m.cfg.vocab;

	return rig_distance(t->logits, t->want.logits + t->p.T * vocab, t->n * vocab);
}

static void
expect_close(const struct turn *t, double bound, const char *what)
{
	print_message("%s, %zu + %zu tokens: %.1e\n", what, t->p.T, t->n, distance(t));
	assert_true(distance(t) <= bound);
}

static void
appending_matches_the_naive_pass(void **state)
{
	struct turn t;
	struct kv_cache *c;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		turn_open(&t, &specs[i], 40, 9, NULL, NULL);
		c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 9);
		for (size_t j = 0; j < 9; j++)
			append(&t, c, j, 1);
		expect_close(&t, CLOSE, "one by one");
		assert_int_equal(kv_cache_position(c), 49);
		kv_cache_free(c);

		c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 9);
		append(&t, c, 0, 9);
		expect_close(&t, CLOSE, "at once");
		kv_cache_free(c);
		turn_close(&t);
	}
}

/* The last rows' logits alone are the same numbers, and none at all is fine. */
static void
any_number_of_logits_can_be_had(void **state)
{
	size_t vocab = narrow.vocab;
	struct turn t;
	struct kv_cache *c;
	float *all;
	struct kv_err e = { 0 };

	(void)state;
	turn_open(&t, &narrow, 30, 40, NULL, NULL);
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 40);
	append(&t, c, 0, 40);
	expect_close(&t, CLOSE, "all logits");
	kv_cache_free(c);
	all = t.logits;
	t.logits = calloc(40 * vocab, sizeof *t.logits);
	assert_non_null(t.logits);

	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 40);
	assert_int_equal(kv_extend(c, t.tokens + 30, 37, NULL, 0, NULL, &e), KV_OK);
	assert_int_equal(kv_extend(c, t.tokens + 67, 3, t.logits, 2, NULL, &e), KV_OK);
	for (size_t i = 0; i < 2 * vocab; i++)
		assert_true(fabsf(t.logits[i] - all[38 * vocab + i]) <= (float)CLOSE);
	assert_int_equal(kv_extend(c, t.tokens, 1, t.logits, 2, NULL, &e), KV_ESHAPE);
	kv_cache_free(c);
	free(all);
	turn_close(&t);
}

static void
long_turns_go_in_chunks(void **state)
{
	struct turn t;
	struct kv_cache *c;

	(void)state;
	turn_open(&t, &narrow, 70, 600, NULL, NULL);
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 600);
	append(&t, c, 0, 600);
	expect_close(&t, CLOSE, "long turn");
	kv_cache_free(c);
	turn_close(&t);
}

/* Which of the prompt's entries each of H heads keeps: shares from none to all, differing by layer and head. */
static void
choose(const struct tiny_spec *s, size_t H, size_t T, size_t n, bool *keep, bool *hidden)
{
	uint64_t x = s->seed;

	for (size_t h = 0; h < s->L * H; h++) {
		for (size_t j = 0; j < T; j++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			keep[h * T + j] = (x >> 33) % 3 < h % 4;
			hidden[h * (T + n) + j] = !keep[h * T + j];
		}
	}
}

static void
evicting_equals_masking(void **state)
{
	enum { T = 70, N = 5, MOST = 6 };
	struct turn t;
	struct kv_cache *c;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		bool keep[MOST * T] = { false }, hidden[MOST * (T + N)] = { false };
		struct naive_mask mask = { hidden, T, 0 };

		assert_true(specs[i].L * specs[i].Hkv <= MOST);
		choose(&specs[i], specs[i].Hkv, T, N, keep, hidden);
		turn_open(&t, &specs[i], T, N, NULL, &mask);
		c = rig_cache(&t.r, &t.p, keep, KVK_F32, N);
		append(&t, c, 0, N);
		expect_close(&t, CLOSE, "evicted, a turn of 5");
		kv_cache_free(c);

		c = rig_cache(&t.r, &t.p, keep, KVK_F32, N);
		for (size_t j = 0; j < N; j++)
			append(&t, c, j, 1);
		expect_close(&t, CLOSE, "evicted, one by one");
		kv_cache_free(c);

		/* The mask matters: with everything kept the logits are others. */
		c = rig_cache(&t.r, &t.p, NULL, KVK_F32, N);
		append(&t, c, 0, N);
		assert_true(distance(&t) > 1e-3);
		kv_cache_free(c);
		turn_close(&t);
	}
}

/* Heads that share a KV head with entries of their own; tokens that are appended go to each of them. */
static void
evicting_per_query_head_equals_masking(void **state)
{
	enum { T = 70, N = 5, MOST = 16 };
	static const struct {
		const struct tiny_spec *spec;
		size_t H;
	} cases[] = { { &specs[0], 4 }, { &specs[1], 2 }, { &specs[1], 4 }, { &specs[3], 6 } };
	struct turn t;
	struct kv_cache *c;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool keep[MOST * T] = { false }, hidden[MOST * (T + N)] = { false };
		struct naive_mask mask = { hidden, T, cases[i].H };

		assert_true(cases[i].spec->L * cases[i].H <= MOST);
		choose(cases[i].spec, cases[i].H, T, N, keep, hidden);
		turn_open(&t, cases[i].spec, T, N, NULL, &mask);
		c = rig_cache_heads(&t.r, &t.p, cases[i].H, keep, KVK_F32, N);
		append(&t, c, 0, 3);
		append(&t, c, 3, 1);
		append(&t, c, 4, 1);
		expect_close(&t, CLOSE, "evicted per query head");
		kv_cache_free(c);
		turn_close(&t);
	}
}

static void
equal_copies_change_nothing(void **state)
{
	enum { T = 50, N = 6 };
	struct turn t;
	struct kv_cache *c;
	float *once;
	size_t bytes, vocab = specs[1].vocab;

	(void)state;
	turn_open(&t, &specs[1], T, N, NULL, NULL); /* one KV head, four query heads */
	c = rig_cache(&t.r, &t.p, NULL, KVK_F16, N);
	append(&t, c, 0, 5);
	append(&t, c, 5, 1);
	bytes = kv_cache_bytes(c);
	kv_cache_free(c);
	once = t.logits;
	for (size_t H = 2; H <= 4; H += 2) {
		t.logits = calloc(N * vocab, sizeof *t.logits);
		assert_non_null(t.logits);
		c = rig_cache_heads(&t.r, &t.p, H, NULL, KVK_F16, N);
		append(&t, c, 0, 5);
		append(&t, c, 5, 1);
		assert_memory_equal(t.logits, once, N * vocab * sizeof *once);
		assert_int_equal(kv_cache_bytes(c), H * bytes);
		kv_cache_free(c);
		free(t.logits);
	}
	t.logits = once;
	turn_close(&t);
}

static void
smaller_types_are_close(void **state)
{
	static const struct {
		enum kvk_type type;
		double bound; /* rounding of k and v: 2^-11 and 2^-8 relative, through a few layers */
	} types[] = { { KVK_F16, 3e-3 }, { KVK_BF16, 3e-2 } };
	struct turn t;
	struct kv_cache *c;

	(void)state;
	turn_open(&t, &specs[0], 50, 6, NULL, NULL);
	for (size_t i = 0; i < 2; i++) {
		c = rig_cache(&t.r, &t.p, NULL, types[i].type, 6);
		append(&t, c, 0, 2);
		append(&t, c, 2, 4);
		expect_close(&t, types[i].bound, kvk_types[types[i].type].name);
		assert_true(distance(&t) > CLOSE);
		assert_int_equal(kv_cache_bytes(c), 2 * 3 * 2 * 56 * 16 * 2); /* k, v; L, Hkv, entries, D, bytes */
		kv_cache_free(c);
	}
	turn_close(&t);
}

static void
positions_are_what_they_are_said_to_be(void **state)
{
	enum { T = 20, N = 4, GAP = 300 };
	size_t position[T + N];
	struct turn t;
	struct kv_cache *c;

	(void)state;
	for (size_t i = 0; i < T + N; i++)
		position[i] = i < T ? i : i + GAP;
	turn_open(&t, &narrow, T, N, position, NULL);
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, N);
	kv_cache_seek(c, T + GAP);
	append(&t, c, 0, 1);
	append(&t, c, 1, 3);
	expect_close(&t, CLOSE, "gap");
	assert_int_equal(kv_cache_position(c), T + GAP + N);
	kv_cache_free(c);
	turn_close(&t);
}

/* The entries of layers that nobody loaded are those that were appended. */
static void
an_empty_cache_can_be_extended(void **state)
{
	struct rig r;
	struct rig_prompt p;
	struct naive want;
	struct kv_cache *c;
	float logits[40];
	struct kv_err e = { 0 };

	(void)state;
	rig_open(&r, &narrow, 0);
	rig_prefill(&r, &p, 20, 3);
	naive_run(&want, &r.m, p.tokens, 20, NULL, NULL);
	assert_int_equal(kv_cache_new(&c, r.x, KVK_F32, 20, &e), KV_OK);
	assert_int_equal(kv_cache_bytes(c), 0);
	assert_int_equal(kv_extend(c, p.tokens, 19, NULL, 0, NULL, &e), KV_OK);
	assert_int_equal(kv_extend(c, p.tokens + 19, 1, logits, 1, NULL, &e), KV_OK);
	assert_true(rig_distance(logits, want.logits + 19 * 40, 40) <= CLOSE);
	kv_cache_free(c);
	naive_fini(&want);
	rig_prompt_fini(&p);
	rig_close(&r);
}

struct queries {
	struct turn *t;
	size_t layers;
	double far;
};

static int
compare_queries(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct queries *x = ctx;
	const struct turn *t = x->t;
	size_t T = t->p.T, D = t->r.m.cfg.D, Hq = t->r.m.cfg.Hq;
	float *q = calloc(Hq * view->n * D, sizeof *q);

	(void)e;
	assert_non_null(q);
	assert_int_equal(view->n, t->n);
	assert_int_equal(view->layer, x->layers++);
	assert_null(view->k);
	assert_null(view->v);
	assert_int_equal(t->r.d.op->get(t->r.d.dev, q, view->q, Hq * view->n * D * sizeof *q), 0);
	for (size_t h = 0; h < Hq; h++) {
		const double *want = t->want.q + ((view->layer * Hq + h) * (T + t->n) + T) * D;

		x->far = fmax(x->far, rig_distance(q + h * t->n * D, want, t->n * D));
	}
	free(q);
	return KV_OK;
}

static void
the_tap_sees_the_queries(void **state)
{
	struct turn t;
	struct queries seen = { .t = &t };
	struct kv_extend_tap tap = { compare_queries, &seen };
	struct kv_cache *c;
	struct kv_err e = { 0 };

	(void)state;
	turn_open(&t, &specs[1], 33, 7, NULL, NULL);
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 7);
	assert_int_equal(kv_extend(c, t.tokens + 33, 7, t.logits, 1, &tap, &e), KV_OK);
	assert_int_equal(seen.layers, 2);
	assert_true(seen.far <= CLOSE);
	kv_cache_free(c);
	turn_close(&t);
}

/* The logits of 6 tokens behind a prompt of T, in bytes that must not depend on what ran before. */
static void
decode(struct rig *r, size_t T, float *logits)
{
	struct rig_prompt p;
	struct kv_cache *c;
	int32_t tokens[6];
	struct kv_err e = { 0 };

	rig_prefill(r, &p, T, T);
	rig_tokens(r, tokens, 6, T + 1);
	c = rig_cache(r, &p, NULL, KVK_F16, 6);
	assert_int_equal(kv_extend(c, tokens, 4, logits, 4, NULL, &e), KV_OK);
	assert_int_equal(kv_extend(c, tokens + 4, 1, logits + 4 * 40, 1, NULL, &e), KV_OK);
	assert_int_equal(kv_extend(c, tokens + 5, 1, logits + 5 * 40, 1, NULL, &e), KV_OK);
	kv_cache_free(c);
	rig_prompt_fini(&p);
}

static void
bytes_depend_on_the_sequence_alone(void **state)
{
	float a[6 * 40], b[6 * 40], again[6 * 40], threads[6 * 40];
	struct rig one, two;

	(void)state;
	rig_open(&one, &narrow, 1);
	rig_open(&two, &narrow, 2);
	decode(&one, 200, a);
	decode(&one, 333, b);
	decode(&one, 200, again);
	decode(&two, 200, threads);
	assert_memory_equal(a, again, sizeof a);
	assert_memory_equal(a, threads, sizeof a);
	assert_memory_not_equal(a, b, sizeof a);
	rig_close(&one);
	rig_close(&two);
}

/* Loading over what a longer sequence left gives what a new cache gives. */
static void
a_cache_can_be_loaded_again(void **state)
{
	size_t offset[3] = { 0, 0, 0 };
	float none[1], first[40], again[40];
	struct rig r;
	struct kv_cache *c;
	int32_t tokens[8];
	struct kv_err e = { 0 };

	(void)state;
	rig_open(&r, &narrow, 0);
	rig_tokens(&r, tokens, 8, 1);
	assert_int_equal(kv_cache_new(&c, r.x, KVK_F32, 8, &e), KV_OK);
	for (int i = 0; i < 2; i++) {
		for (size_t l = 0; l < 2; l++)
			assert_int_equal(kv_cache_set(c, l, 2, KVK_F32, none, none, offset, &e), KV_OK);
		kv_cache_seek(c, 0);
		assert_int_equal(kv_extend(c, tokens, 8, i == 0 ? first : again, 1, NULL, &e), KV_OK);
	}
	assert_memory_equal(first, again, sizeof first);
	kv_cache_free(c);
	rig_close(&r);
}

static void
limits_are_kept(void **state)
{
	static const int32_t outside[] = { 3, 40 }, negative[] = { -1 };
	size_t descending[] = { 0, 2, 1 }, whole[] = { 0, 1, 2 };
	float kv[16] = { 0 };
	struct turn t;
	struct kv_cache *c;
	struct kv_err e = { 0 };

	(void)state;
	turn_open(&t, &narrow, 10, 6, NULL, NULL);
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 6);
	append(&t, c, 0, 2);
	assert_int_equal(kv_extend(c, t.tokens, 5, t.logits, 0, NULL, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "made for 4 more"));
	assert_int_equal(kv_extend(c, outside, 2, t.logits, 0, NULL, &e), KV_EARG);
	assert_non_null(strstr(e.text, "position 13: token 40"));
	assert_int_equal(kv_extend(c, negative, 1, t.logits, 0, NULL, &e), KV_EARG);
	assert_int_equal(kv_extend(c, t.tokens, 0, t.logits, 0, NULL, &e), KV_ESHAPE);
	kv_cache_seek(c, 897);
	assert_int_equal(kv_extend(c, t.tokens, 4, t.logits, 0, NULL, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "context of 900"));
	kv_cache_seek(c, SIZE_MAX);
	assert_int_equal(kv_extend(c, t.tokens, 1, t.logits, 0, NULL, &e), KV_ESHAPE);
	kv_cache_seek(c, 12);
	append(&t, c, 2, 4); /* nothing that was refused left a trace */
	expect_close(&t, CLOSE, "after refusals");
	assert_int_equal(kv_extend(c, t.tokens, 1, t.logits, 0, NULL, &e), KV_ESHAPE);

	assert_int_equal(kv_cache_set(c, 2, 2, KVK_F32, kv, kv, whole, &e), KV_EARG);
	assert_int_equal(kv_cache_set(c, 0, 2, KVK_F32, kv, kv, descending, &e), KV_ESHAPE);
	for (size_t H = 0; H <= 8; H++)
		if (H != 2 && H != 4)
			assert_int_equal(kv_cache_set(c, 0, H, KVK_F32, kv, kv, whole, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "8 heads of entries do not fit 2 KV heads and 4 query heads"));
	kv_cache_free(c);
	assert_int_equal(kv_cache_new(&c, t.r.x, KVK_Q4_0, 1, &e), KV_EARG);
	assert_null(c);
	assert_int_equal(kv_cache_new(&c, t.r.x, KVK_F32, SIZE_MAX / 2, &e), KV_OK);
	assert_int_equal(kv_cache_set(c, 0, 2, KVK_F32, kv, kv, whole, &e), KV_EMEM);
	kv_cache_free(c);
	turn_close(&t);
}

static void
non_finite_values_are_named(void **state)
{
	struct turn t;
	struct kv_cache *c;
	struct kv_err e = { 0 };

	(void)state;
	turn_open(&t, &narrow, 10, 3, NULL, NULL);
	t.p.v[(1 * 2 + 1) * 10 * 8 + 5] = INFINITY; /* layer 1, KV head 1, entry 0 */
	c = rig_cache(&t.r, &t.p, NULL, KVK_F32, 3);
	assert_int_equal(kv_extend(c, t.tokens + 10, 3, t.logits, 1, NULL, &e), KV_EFAIL);
	assert_non_null(strstr(e.text, "layer 1, position 10: "));
	kv_cache_free(c);
	turn_close(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appending_matches_the_naive_pass),
		cmocka_unit_test(any_number_of_logits_can_be_had),
		cmocka_unit_test(long_turns_go_in_chunks),
		cmocka_unit_test(evicting_equals_masking),
		cmocka_unit_test(evicting_per_query_head_equals_masking),
		cmocka_unit_test(equal_copies_change_nothing),
		cmocka_unit_test(smaller_types_are_close),
		cmocka_unit_test(positions_are_what_they_are_said_to_be),
		cmocka_unit_test(an_empty_cache_can_be_extended),
		cmocka_unit_test(the_tap_sees_the_queries),
		cmocka_unit_test(bytes_depend_on_the_sequence_alone),
		cmocka_unit_test(a_cache_can_be_loaded_again),
		cmocka_unit_test(limits_are_kept),
		cmocka_unit_test(non_finite_values_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
