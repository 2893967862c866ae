/* SPDX-License-Identifier: MIT
 * The prefill against a naive forward pass in double precision, on small models of every architecture. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/naive.h"
#include "tests/lib/rig.h"

#define CLOSE 1e-5 /* of logits, q, k and v, all of which are about 1 */

static const struct tiny_spec specs[] = {
	{ .arch = "qwen2", .L = 3, .Hq = 4, .Hkv = 2, .D = 16, .d = 48, .ff = 80,
	    .vocab = 97, .tied = true, .seed = 1 },
	{ .arch = "qwen3", .L = 2, .Hq = 4, .Hkv = 1, .D = 24, .d = 40, .ff = 72,
	    .vocab = 50, .seed = 2 },
	{ .arch = "llama", .L = 2, .Hq = 3, .Hkv = 3, .D = 8, .d = 24, .ff = 40,
	    .vocab = 33, .seed = 3 },
	{ .arch = "llama", .L = 2, .Hq = 6, .Hkv = 2, .D = 16, .d = 64, .ff = 96,
	    .vocab = 64, .tied = true, .interleaved = true, .seed = 4 },
	{ .arch = "llama", .L = 2, .Hq = 8, .Hkv = 2, .D = 32, .d = 64, .ff = 100,
	    .vocab = 71, .llama3_scaling = true, .interleaved = true, .seed = 5 },
};
#define N_SPECS (sizeof specs / sizeof *specs)

/* Small enough for the naive pass over several chunks. */
static const struct tiny_spec narrow = { .arch = "llama", .L = 2, .Hq = 2, .Hkv = 1, .D = 8, .d = 16, .ff = 24,
	.vocab = 40, .context = 1100, .seed = 6 };

static void
expect_naive(struct rig *r, size_t T, const char *what)
{
	const struct kv_config *c = &r->m.cfg;
	size_t q = c->L * c->Hq * T * c->D, k = c->L * c->Hkv * T * c->D;
	struct rig_prompt p;
	struct naive n;
	double far[4];

	rig_prefill(r, &p, T, T);
	naive_run(&n, &r->m, p.tokens, T, NULL, NULL);
	far[0] = rig_distance(p.logits, n.logits + (T - 1) * c->vocab, c->vocab);
	far[1] = rig_distance(p.q, n.q, q);
	far[2] = rig_distance(p.k, n.k, k);
	far[3] = rig_distance(p.v, n.v, k);
	print_message("%s, %zu tokens: logits %.1e q %.1e k %.1e v %.1e\n", what, T, far[0], far[1], far[2], far[3]);
	for (int i = 0; i < 4; i++)
		assert_true(far[i] <= CLOSE);
	naive_fini(&n);
	rig_prompt_fini(&p);
}

static void
every_architecture_matches_the_naive_pass(void **state)
{
	static const size_t lengths[] = { 1, 63, 64, 65, 130 };
	struct rig r;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		rig_open(&r, &specs[i], 0);
		for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
			expect_naive(&r, lengths[j], r.m.cfg.name);
		rig_close(&r);
	}
}

static void
chunks_do_not_show(void **state)
{
	static const size_t lengths[] = { 513, 1030 };
	struct rig r;

	(void)state;
	rig_open(&r, &narrow, 0);
	for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
		expect_naive(&r, lengths[j], r.m.cfg.name);
	rig_close(&r);
}

/* Every matrix and vector of the model as f16 or bf16, by turns; the copies go to `owned`, as many as there are
 * weights. */
static void
shrink_weights(struct rig *r, void **owned)
{
	for (size_t i = 0; i < r->m.cfg.L * KV_N_ROLES; i++) {
		struct kv_matrix *w = &r->m.weights[i];
		enum kvk_type type = i % 2 ? KVK_F16 : KVK_BF16;

		if (w->data == NULL)
			continue;
		owned[i] = calloc(w->rows * w->cols, 2);
		assert_non_null(owned[i]);
		assert_int_equal(r->d.op->get_as(r->d.dev, owned[i], type, w->data, KVK_F32, w->rows * w->cols), 0);
		w->type = type;
		w->data = owned[i];
	}
}

static void
half_precision_weights_match_the_naive_pass(void **state)
{
	size_t n = specs[0].L * KV_N_ROLES;
	void **owned = calloc(n, sizeof *owned);
	struct kv_err e = { 0 };
	struct rig r;

	(void)state;
	assert_non_null(owned);
	rig_open(&r, &specs[0], 0);
	kv_engine_free(r.x);
	shrink_weights(&r, owned);
	assert_int_equal(kv_engine_new(&r.x, &r.m, &r.d, &e), KV_OK);
	expect_naive(&r, 66, "half precision");
	rig_close(&r);
	for (size_t i = 0; i < n; i++)
		free(owned[i]);
	free(owned);
}

/* The rule of Llama 3.1 (factor 8, low 1, high 4, original context 32) in double precision. */
static void
llama3_scaling_has_its_frequencies(void **state)
{
	struct rig r;
	int kept = 0, stretched = 0, blended = 0;

	(void)state;
	rig_open(&r, &specs[4], 1);
	for (size_t i = 0; i < 16; i++) {
		double f = pow(10000, -2.0 * (double)i / 32), turns = 32 * f / (2 * acos(-1)), want;

		if (turns > 4)
			kept++, want = f;
		else if (turns < 1)
			stretched++, want = f / 8;
		else
			blended++, want = f / 8 + (f - f / 8) * (turns - 1) / 3;
		assert_true(fabs((double)r.m.cfg.inv_freq[i] / want - 1) < 1e-6);
	}
	assert_true(kept > 0 && stretched > 0 && blended > 0);
	rig_close(&r);
}

static void
expect_same(const struct rig *r, const struct rig_prompt *a, const struct rig_prompt *b)
{
	const struct kv_config *c = &r->m.cfg;
	size_t head = a->T * c->D * sizeof(float);

	assert_int_equal(a->T, b->T);
	assert_memory_equal(a->logits, b->logits, c->vocab * sizeof(float));
	assert_memory_equal(a->q, b->q, c->L * c->Hq * head);
	assert_memory_equal(a->k, b->k, c->L * c->Hkv * head);
	assert_memory_equal(a->v, b->v, c->L * c->Hkv * head);
}

static void
bytes_depend_on_the_prompt_alone(void **state)
{
	struct rig one, two;
	struct rig_prompt a, b, again, threads;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		rig_open(&one, &specs[i], 1);
		rig_open(&two, &specs[i], 2);
		rig_prefill(&one, &a, 100, 1);
		rig_prefill(&one, &b, 131, 2);
		rig_prefill(&one, &again, 100, 1);
		rig_prefill(&two, &threads, 100, 1);
		expect_same(&one, &a, &again);
		expect_same(&one, &a, &threads);
		rig_prompt_fini(&a);
		rig_prompt_fini(&b);
		rig_prompt_fini(&again);
		rig_prompt_fini(&threads);
		rig_close(&one);
		rig_close(&two);
	}
}

/* A prompt's rows come out the same, bit by bit, with and without rows behind them, and as part of a longer prompt. */
static void
rows_behind_change_nothing(void **state)
{
	static const size_t lengths[][2] = { { 1, 1 }, { 64, 32 }, { 100, 7 }, { 100, 64 }, { 513, 33 }, { 70, 530 } };
	const size_t whole_T = 600;
	struct rig_prompt whole, alone, with;
	struct rig r;

	(void)state;
	rig_open(&r, &narrow, 0);
	rig_prefill(&r, &whole, whole_T, 9);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		size_t T = lengths[i][0], D = r.m.cfg.D;

		rig_prefill(&r, &alone, T, 9);
		rig_prefill_behind(&r, &with, T, lengths[i][1], 9);
		expect_same(&r, &alone, &with);
		for (size_t h = 0; h < r.m.cfg.L * r.m.cfg.Hq; h++)
			assert_memory_equal(alone.q + h * T * D, whole.q + h * whole_T * D, T * D * sizeof(float));
		for (size_t h = 0; h < r.m.cfg.L * r.m.cfg.Hkv; h++) {
			assert_memory_equal(alone.k + h * T * D, whole.k + h * whole_T * D, T * D * sizeof(float));
			assert_memory_equal(alone.v + h * T * D, whole.v + h * whole_T * D, T * D * sizeof(float));
		}
		rig_prompt_fini(&with);
		rig_prompt_fini(&alone);
	}
	rig_prompt_fini(&whole);
	rig_close(&r);
}

/* Rows behind a prompt are what they would be at these positions of a longer prompt. */
static void
rows_behind_match_the_naive_pass(void **state)
{
	static const size_t lengths[][2] = { { 1, 1 }, { 64, 32 }, { 100, 7 }, { 33, 65 } };
	struct rig_prompt p;
	struct naive want;
	struct rig r;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		const struct tiny_spec *s = &specs[i];

		rig_open(&r, s, 0);
		for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
			size_t T = lengths[j][0], n = lengths[j][1];

			rig_prefill_behind(&r, &p, T, n, 4);
			naive_run(&want, &r.m, p.tokens, T + n, NULL, NULL);
			assert_true(rig_distance_behind(p.q_behind, want.q, s->L * s->Hq, n, T + n, s->D) <= CLOSE);
			assert_true(rig_distance_behind(p.k_behind, want.k, s->L * s->Hkv, n, T + n, s->D) <= CLOSE);
			assert_true(rig_distance(p.logits, want.logits + (T - 1) * s->vocab, s->vocab) <= CLOSE);
			naive_fini(&want);
			rig_prompt_fini(&p);
		}
		rig_close(&r);
	}
}

static int
refuse_layer_1(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	++*(int *)ctx;
	return view->layer == 1 ? kv_fail(e, KV_EIO, "no more") : KV_OK;
}

static void
bad_prompts_are_refused(void **state)
{
	struct tiny_spec s = narrow;
	int32_t tokens[33] = { 0 };
	struct kv_prefill_input in = { .tokens = tokens };
	struct kv_err e = { 0 };
	struct rig r;
	int calls = 0;

	(void)state;
	s.context = 32;
	rig_open(&r, &s, 0);
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_ESHAPE);
	in.T = 33;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "33"));
	assert_non_null(strstr(e.text, "32"));
	in = (struct kv_prefill_input){ tokens, 30, tokens, 3, NULL };
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_ESHAPE);
	assert_string_equal(e.text, "3 tokens behind a prompt of 30 reach beyond the model's context of 32");
	in.n_behind = 2;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_OK);
	in = (struct kv_prefill_input){ tokens, 27, tokens + 27, 5, NULL };
	tokens[29] = 40;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_EARG);
	assert_non_null(strstr(e.text, "position 29: token 40"));
	in = (struct kv_prefill_input){ .tokens = tokens, .T = 32 };
	tokens[29] = -1;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_EARG);
	tokens[29] = 39;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_OK);
	assert_int_equal(kv_prefill(r.x, &in, refuse_layer_1, &calls, NULL, &e), KV_EIO);
	assert_string_equal(e.text, "no more");
	assert_int_equal(calls, 2);
	rig_close(&r);
}

/* With this weight spoilt, the prefill names the place; without, it works. */
static void
expect_failure(struct rig *r, float *weight, float value, const char *text)
{
	static const int32_t tokens[] = { 3, 1, 4, 1, 5, 9, 2 };
	const struct kv_prefill_input in = { tokens, 5, tokens + 5, 2, NULL };
	float logits[40], good = *weight;
	struct kv_err e = { 0 };
	struct kv_engine *x;

	*weight = value;
	assert_int_equal(kv_engine_new(&x, &r->m, &r->d, &e), KV_OK);
	assert_int_equal(kv_prefill(x, &in, NULL, NULL, logits, &e), KV_EFAIL);
	if (strstr(e.text, text) == NULL)
		fail_msg("expected \"%s\" in \"%s\"", text, e.text);
	kv_engine_free(x);
	*weight = good;
	assert_int_equal(kv_prefill(r->x, &in, NULL, NULL, logits, &e), KV_OK);
}

static float *
weight(struct rig *r, size_t layer, enum kv_role role, size_t i)
{
	return (float *)kv_model_weight(&r->m, layer, role)->data + i;
}

static void
non_finite_values_are_named(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, &narrow, 0);
	expect_failure(&r, weight(&r, 1, KV_DOWN, 7), NAN, "layer 1, position 0: ");
	expect_failure(&r, weight(&r, 0, KV_V, 3), INFINITY, "layer 0, position 0: ");
	expect_failure(&r, weight(&r, 0, KV_EMBED, 4 * 16 + 2), NAN, "embedding, position 2: "); /* token 4 */
	expect_failure(&r, weight(&r, 0, KV_EMBED, 9 * 16 + 2), NAN, "embedding, position 5: "); /* token 9, behind */
	expect_failure(&r, weight(&r, 0, KV_OUT, 11 * 16), NAN, "output layer, position 4: the logit of token 11 is ");
	rig_close(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_architecture_matches_the_naive_pass),
		cmocka_unit_test(chunks_do_not_show),
		cmocka_unit_test(half_precision_weights_match_the_naive_pass),
		cmocka_unit_test(llama3_scaling_has_its_frequencies),
		cmocka_unit_test(bytes_depend_on_the_prompt_alone),
		cmocka_unit_test(rows_behind_change_nothing),
		cmocka_unit_test(rows_behind_match_the_naive_pass),
		cmocka_unit_test(bad_prompts_are_refused),
		cmocka_unit_test(non_finite_values_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
