/* SPDX-License-Identifier: MIT
 * The loop from logits to tokens, and along given tokens, on a tiny model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "lib/model/respond.h"
#include "tests/lib/rig.h"

enum { L = 2, CONTEXT = 48, VOCAB = 300, ROOM = 64 };

static struct kv_model model;
static struct kv_device device;
static struct kv_engine *engine;
static struct kv_err err;

static int
open_all(void **state)
{
	const struct tiny_spec spec = { .arch = "llama",
		.L = L,
		.Hq = 4,
		.Hkv = 2,
		.D = 8,
		.d = 32,
		.ff = 48,
		.vocab = VOCAB,
		.context = CONTEXT,
		.seed = 5 };

	(void)state;
	assert_int_equal(tiny_model(&model, &spec, &err), KV_OK);
	assert_int_equal(kv_device_open(&device, "cpu", 1, &err), KV_OK);
	assert_int_equal(kv_engine_new(&engine, &model, &device, &err), KV_OK);
	return 0;
}

static int
close_all(void **state)
{
	(void)state;
	kv_engine_free(engine);
	kv_device_close(&device);
	kv_model_fini(&model);
	return 0;
}

/* What the token function was told. */
struct told {
	int32_t ids[ROOM];
	float top[ROOM]; /* the logit of each token that was told */
	bool end;
	size_t n, rows; /* tokens; rows the tap saw in layer 1 */
};

static int
listen(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e)
{
	struct told *t = ctx;

	(void)e;
	assert_true(t->n < ROOM && !t->end);
	t->ids[t->n] = id;
	t->top[t->n++] = logits[id];
	t->end = end;
	return KV_OK;
}

static int
count_rows(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct told *t = ctx;

	(void)e;
	if (view->layer == 1)
		t->rows += view->n;
	return KV_OK;
}

/* A cache of the tokens 3, 4, ... 3+n-1, and the logits behind them. */
static struct kv_cache *
start(size_t n, float *logits)
{
	struct kv_cache *c;
	int32_t ids[CONTEXT];

	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)(3 + i);
	assert_int_equal(kv_cache_new(&c, engine, KVK_F32, ROOM, &err), KV_OK);
	assert_int_equal(kv_extend(c, ids, n, logits, 1, NULL, &err), KV_OK);
	return c;
}

static struct kv_generation
how(struct told *t, size_t max)
{
	*t = (struct told){ 0 };
	return (struct kv_generation){
		.sampler = { .top_p = 1 }, .cfg = &model.cfg, .max_tokens = max, .token = listen, .ctx = t
	};
}

static void
greedy_takes_the_largest(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(5, logits);
	struct told t;
	struct kv_generation g = how(&t, 6);
	enum kv_stop why;

	(void)state;
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	assert_int_equal(why, KV_STOP_LENGTH);
	assert_int_equal(t.n, 6);
	assert_int_equal(kv_cache_position(c), 5 + 5); /* the last token was chosen, not appended */
	kv_cache_free(c);

	/* by hand: extend and look for the largest */
	c = start(5, logits);
	for (size_t i = 0; i < 6; i++) {
		int32_t best = 0;

		for (int32_t j = 1; j < VOCAB; j++)
			if (logits[j] > logits[best])
				best = j;
		assert_int_equal(t.ids[i], best);
		assert_true(t.top[i] == logits[best]);
		assert_int_equal(kv_extend(c, &best, 1, logits, 1, NULL, &err), KV_OK);
	}
	kv_cache_free(c);
}

static void
end_token_counts_and_ends(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(5, logits);
	struct told t, u;
	struct kv_generation g = how(&t, 8);
	enum kv_stop why;
	size_t n;

	(void)state;
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	kv_cache_free(c);
	for (n = 1; n < t.n && t.ids[n] == t.ids[0]; n++)
		;
	c = start(5, logits);
	g = how(&u, 8);
	g.stops = &t.ids[n];
	g.n_stops = 1;
	g.feed_last = true;
	g.tap = &(struct kv_extend_tap){ count_rows, &u };
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	assert_int_equal(why, KV_STOP_END);
	assert_true(u.end);
	assert_int_equal(u.n, n + 1);
	assert_int_equal(u.rows, n); /* end tokens are never appended */
	kv_cache_free(c);
}

static void
queries_of_every_token(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(5, logits);
	struct told t;
	struct kv_generation g = how(&t, 4);
	enum kv_stop why;

	(void)state;
	g.feed_last = true;
	g.tap = &(struct kv_extend_tap){ count_rows, &t };
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	assert_int_equal(t.rows, 4);
	assert_int_equal(kv_cache_position(c), 9);
	kv_cache_free(c);
}

static void
context_is_the_end(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(CONTEXT - 3, logits);
	struct told t;
	struct kv_generation g = how(&t, 20);
	enum kv_stop why;

	(void)state;
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	assert_int_equal(why, KV_STOP_CONTEXT);
	assert_int_equal(t.n, 4); /* three have a place, the fourth was chosen from the logits of the third */
	assert_int_equal(kv_cache_position(c), CONTEXT);
	kv_cache_free(c);
}

static void
nothing_wanted_nothing_done(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(5, logits);
	struct told t;
	struct kv_generation g = how(&t, 0);
	enum kv_stop why;
	double nll = 1;

	(void)state;
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_OK);
	assert_int_equal(kv_follow(c, &g, NULL, 0, logits, &nll, &err), KV_OK);
	assert_true(nll == 0);
	assert_int_equal(t.n, 0);
	kv_cache_free(c);
}

static void
not_a_number_is_no_token(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(5, logits);
	struct told t;
	struct kv_generation g = how(&t, 3);
	const int32_t given[] = { 1 };
	enum kv_stop why;
	double nll;

	(void)state;
	logits[7] = NAN;
	assert_int_equal(kv_generate(c, &g, logits, &why, &err), KV_EFAIL);
	assert_non_null(strstr(err.text, "position 5"));
	assert_int_equal(kv_follow(c, &g, given, 1, logits, &nll, &err), KV_EFAIL);
	assert_non_null(strstr(err.text, "position 5"));
	kv_cache_free(c);
}

/* ln softmax in long double, from its definition. */
static double
log_prob(const float *logits, int32_t id)
{
	long double sum = 0;

	for (size_t i = 0; i < VOCAB; i++)
		sum += expl((long double)logits[i]);
	return (double)((long double)logits[id] - logl(sum));
}

static void
nll_is_the_sum_over_single_steps(void **state)
{
	static const size_t lengths[] = { 1, 2, 16, 17, 33 };
	float logits[VOCAB];
	int32_t ids[40];

	(void)state;
	for (size_t i = 0; i < 40; i++)
		ids[i] = (int32_t)(i * 7 % 250);
	for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
		struct told t;
		struct kv_generation g = how(&t, 0);
		struct kv_cache *c = start(6, logits);
		double nll, want = 0;

		for (size_t i = 0; i < lengths[k]; i++) {
			want -= log_prob(logits, ids[i]);
			assert_int_equal(kv_extend(c, &ids[i], 1, logits, 1, NULL, &err), KV_OK);
		}
		kv_cache_free(c);
		for (int feed = 0; feed < 2; feed++) {
			c = start(6, logits);
			g = how(&t, 0);
			g.feed_last = feed;
			g.tap = &(struct kv_extend_tap){ count_rows, &t };
			assert_int_equal(kv_follow(c, &g, ids, lengths[k], logits, &nll, &err), KV_OK);
			assert_true(fabs(nll - want) < 1e-4 * want);
			assert_int_equal(t.n, lengths[k]);
			assert_memory_equal(t.ids, ids, lengths[k] * sizeof *ids);
			assert_int_equal(t.rows, lengths[k] - 1 + (size_t)feed);
			kv_cache_free(c);
		}
	}
}

static void
too_long_to_follow(void **state)
{
	float logits[VOCAB];
	struct kv_cache *c = start(CONTEXT - 2, logits);
	const int32_t ids[3] = { 1, 2, 3 };
	struct told t;
	struct kv_generation g = how(&t, 0);
	double nll;

	(void)state;
	assert_int_equal(kv_follow(c, &g, ids, 3, logits, &nll, &err), KV_ESHAPE);
	kv_cache_free(c);
}

/* A response to T tokens, and the same by hand: prefill, a cache of this type, the loop. */
static void
expect_response(struct rig *r, size_t T, size_t most, const int32_t *stops, size_t n_stops, struct kv_ids *ids)
{
	struct rig_prompt p;
	struct kv_respond o = { .T = T, .type = KVK_F16, .most = most, .stops = stops, .n_stops = n_stops };
	struct told t;
	struct kv_generation g = how(&t, most);
	struct kv_cache *c;
	enum kv_stop why, want;
	size_t n;

	rig_prefill(r, &p, T, 3);
	o.tokens = p.tokens;
	ids->n = 0;
	assert_int_equal(kv_respond(r->x, &o, ids, &why, &err), KV_OK);
	c = rig_cache(r, &p, NULL, KVK_F16, most + 1);
	g.cfg = &r->m.cfg;
	g.stops = stops;
	g.n_stops = n_stops;
	assert_int_equal(kv_generate(c, &g, p.logits, &want, &err), KV_OK);
	assert_int_equal(why, want);
	n = t.n - (why == KV_STOP_END || why == KV_STOP_CONTEXT);
	assert_int_equal(ids->n, n);
	assert_memory_equal(ids->v, t.ids, n * sizeof *ids->v);
	kv_cache_free(c);
	rig_prompt_fini(&p);
}

/* Without its end token, and without the token that has no place. */
static void
a_response_is_what_the_whole_cache_says(void **state)
{
	const struct tiny_spec spec = { .arch = "llama", .L = L, .Hq = 4, .Hkv = 2, .D = 8, .d = 32, .ff = 48,
		.vocab = VOCAB, .context = CONTEXT, .seed = 5 };
	struct kv_ids ids = { 0 };
	struct kv_respond o = { .T = CONTEXT - 1, .type = KVK_F32, .most = 2 };
	enum kv_stop why;
	struct rig r;
	int32_t stop, *tokens;

	(void)state;
	rig_open(&r, &spec, 1);
	expect_response(&r, 20, 9, NULL, 0, &ids);
	assert_int_equal(ids.n, 9);
	stop = ids.v[8];
	expect_response(&r, 20, 9, &stop, 1, &ids);
	assert_true(ids.n < 9);
	expect_response(&r, CONTEXT - 5, 20, NULL, 0, &ids);
	assert_int_equal(ids.n, 5);
	expect_response(&r, CONTEXT, 20, NULL, 0, &ids);
	assert_int_equal(ids.n, 0);
	tokens = calloc(CONTEXT, sizeof *tokens); /* the second of two has no place */
	assert_non_null(tokens);
	o.tokens = tokens;
	assert_int_equal(kv_respond(r.x, &o, &ids, &why, &err), KV_OK);
	assert_int_equal(ids.n, 1);
	assert_int_equal(why, KV_STOP_CONTEXT);
	free(tokens);
	kv_ids_fini(&ids);
	rig_close(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_largest),
		cmocka_unit_test(end_token_counts_and_ends),
		cmocka_unit_test(queries_of_every_token),
		cmocka_unit_test(context_is_the_end),
		cmocka_unit_test(nothing_wanted_nothing_done),
		cmocka_unit_test(not_a_number_is_no_token),
		cmocka_unit_test(nll_is_the_sum_over_single_steps),
		cmocka_unit_test(too_long_to_follow),
		cmocka_unit_test(a_response_is_what_the_whole_cache_says),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
