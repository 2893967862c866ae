/* SPDX-License-Identifier: MIT
 * LookaheadKV modules in memory and in the forward pass: how many numbers they have, their start values, their rows
 * against a naive pass in double precision, and a prompt that they do not change by a bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/hash.h"
#include "tests/lib/naive.h"
#include "tests/lib/rig.h"

#define CLOSE 2e-5 /* of logits, q and k, all of which are about 1 */

static const struct tiny_spec specs[] = {
	{ .arch = "qwen2",
	    .L = 3,
	    .Hq = 4,
	    .Hkv = 2,
	    .D = 16,
	    .d = 48,
	    .ff = 80,
	    .vocab = 97,
	    .tied = true,
	    .seed = 1 },
	{ .arch = "qwen3", .L = 2, .Hq = 4, .Hkv = 1, .D = 24, .d = 40, .ff = 72, .vocab = 50, .seed = 2 },
	{ .arch = "llama",
	    .L = 2,
	    .Hq = 6,
	    .Hkv = 2,
	    .D = 16,
	    .d = 64,
	    .ff = 96,
	    .vocab = 64,
	    .tied = true,
	    .interleaved = true,
	    .seed = 4 },
	{ .arch = "llama", .L = 1, .Hq = 2, .Hkv = 2, .D = 8, .d = 16, .ff = 24, .vocab = 40, .seed = 5 },
};
#define N_SPECS (sizeof specs / sizeof *specs)

static const struct tiny_spec narrow = {
	.arch = "llama", .L = 2, .Hq = 2, .Hkv = 1, .D = 8, .d = 16, .ff = 24, .vocab = 40, .context = 1100, .seed = 6
};

/* A module whose numbers are all about as large as a trained one's. */
static struct kv_lookahead *
make(const struct kv_config *c, size_t n, size_t rank, double alpha, enum kv_lookahead_targets targets)
{
	const struct kv_lookahead_shape shape = { n, rank, alpha, targets };
	struct kv_lookahead *m;
	struct kv_err e = { 0 };

	if (kv_lookahead_new(&m, c, &shape, &e) < 0)
		fail_msg("%s", e.text);
	kv_lookahead_init(m, 7, 1);
	for (size_t i = 0; i < m->L * KV_N_ROLES; i++)
		for (size_t j = 0; m->adapter[i].a != NULL && j < m->adapter[i].out * m->shape.rank; j++)
			m->adapter[i].b[j] = (float)(kv_hash_slot(3, i, 0, j) >> 40) * 0x1p-25f - 0.25f;
	return m;
}

static struct kv_adapters *
open_module(struct rig *r, const struct kv_lookahead *m)
{
	struct kv_adapters *a;
	struct kv_err e = { 0 };

	if (kv_adapters_new(&a, r->x, m, &e) < 0)
		fail_msg("%s", e.text);
	return a;
}

/* ---- numbers */

static struct kv_config
config(size_t L, size_t d, size_t Hq, size_t Hkv, size_t D, size_t ff, size_t vocab, bool tied)
{
	return (struct kv_config){ .arch = kv_arch_find("llama"),
		.L = L,
		.d = d,
		.Hq = Hq,
		.Hkv = Hkv,
		.D = D,
		.ff = ff,
		.vocab = vocab,
		.tied = tied };
}

/* The paper's 20.6 M (0.26 %), 5.4 M and 21.5 M, by the formula of METHODS 5.1 on paper. */
static void
as_many_numbers_as_the_paper_has(void **state)
{
	const struct kv_lookahead_shape all = { 32, 8, 32, KV_LOOKAHEAD_ALL }, qkv = { 32, 8, 32, KV_LOOKAHEAD_QKV },
					none = { 32, 8, 32, KV_LOOKAHEAD_NONE }, zero = { 32, 0, 32, KV_LOOKAHEAD_ALL };
	const struct kv_config llama8 = config(32, 4096, 32, 8, 128, 14336, 128256, false),
			       llama1 = config(16, 2048, 32, 8, 64, 8192, 128256, true),
			       qwen8 = config(36, 4096, 32, 8, 128, 12288, 151936, false);

	(void)state;
	assert_int_equal(kv_lookahead_parameters(&llama8, &all), 20553728);
	assert_int_equal(kv_lookahead_parameters(&llama1, &all), 5402624);
	assert_int_equal(kv_lookahead_parameters(&qwen8, &all), 21454848);
	/* 32 * 4096 + 8 * (32 * (8192 + 5120) + 31 * 5120) */
	assert_int_equal(kv_lookahead_parameters(&llama8, &qkv), 131072 + 8 * (32 * 13312 + 31 * 5120));
	assert_int_equal(kv_lookahead_parameters(&llama8, &none), 131072);
	assert_int_equal(kv_lookahead_parameters(&llama8, &zero), 131072);
	assert_int_equal(kv_config_parameters(&llama8), 8030261248);
	assert_int_equal(kv_config_parameters(&llama1), 1235814400);
}

static void
every_number_has_one_place(void **state)
{
	struct kv_lookahead *m;
	struct rig r;

	(void)state;
	rig_open(&r, &specs[0], 1);
	m = make(&r.m.cfg, 5, 3, 6, KV_LOOKAHEAD_ALL);
	assert_int_equal(m->n_parameters, kv_lookahead_parameters(&r.m.cfg, &m->shape));
	assert_true(fabs(kv_lookahead_scale(m) - 2) < 1e-12);
	for (size_t i = 0; i < m->n_parameters; i++) /* all of them were drawn, once */
		assert_true(m->parameters[i] != 0);
	for (size_t i = 0; i < 5 * m->d; i++)
		m->p[i] = 0;
	for (size_t i = 0; i < m->L * KV_N_ROLES; i++) {
		const struct kv_adapter *a = kv_lookahead_adapter(m, i / KV_N_ROLES, i % KV_N_ROLES);

		assert_true((a != NULL) == kv_lookahead_has(&m->shape, &r.m.cfg, i / KV_N_ROLES, i % KV_N_ROLES));
		for (size_t j = 0; a != NULL && j < 3 * a->in; j++)
			a->a[j] = 0;
		for (size_t j = 0; a != NULL && j < 3 * a->out; j++)
			a->b[j] = 0;
	}
	for (size_t i = 0; i < m->n_parameters; i++) /* and belong to something */
		assert_true(m->parameters[i] == 0);
	assert_null(kv_lookahead_adapter(m, 2, KV_V));
	assert_null(kv_lookahead_adapter(m, 2, KV_DOWN));
	assert_non_null(kv_lookahead_adapter(m, 2, KV_K));
	assert_non_null(kv_lookahead_adapter(m, 1, KV_DOWN));
	kv_lookahead_free(m);
	rig_close(&r);
}

/* Mean and standard deviation of x [n]. */
static void
moments(const float *x, size_t n, double *mean, double *deviation)
{
	double square = 0;

	*mean = 0;
	for (size_t i = 0; i < n; i++) {
		*mean += (double)x[i] / (double)n;
		square += (double)x[i] * (double)x[i] / (double)n;
	}
	*deviation = sqrt(square - *mean * *mean);
}

static void
start_values(void **state)
{
	const struct kv_lookahead_shape shape = { 200, 40, 1, KV_LOOKAHEAD_ALL };
	struct kv_lookahead *a, *b;
	const struct kv_adapter *down;
	struct kv_err e = { 0 };
	double mean, deviation;
	struct rig r;

	(void)state;
	rig_open(&r, &specs[0], 1);
	assert_int_equal(kv_lookahead_new(&a, &r.m.cfg, &shape, &e), KV_OK);
	assert_int_equal(kv_lookahead_new(&b, &r.m.cfg, &shape, &e), KV_OK);
	kv_lookahead_init(a, 1, 0.25);
	moments(a->p, 200 * a->d, &mean, &deviation);
	assert_true(fabs(mean) < 0.01 && fabs(deviation / 0.25 - 1) < 0.03);
	down = kv_lookahead_adapter(a, 0, KV_DOWN);
	moments(down->a, 40 * down->in, &mean, &deviation);
	assert_true(fabs(mean) < 0.01 && fabs(deviation * sqrt(80) - 1) < 0.05); /* in is ff, 80 */
	for (size_t j = 0; j < 40 * down->out; j++)
		assert_true(down->b[j] == 0);
	kv_lookahead_init(b, 1, 0.25);
	assert_memory_equal(a->parameters, b->parameters, a->n_parameters * sizeof(float));
	kv_lookahead_init(b, 2, 0.25);
	assert_memory_not_equal(a->p, b->p, 200 * a->d * sizeof(float));
	assert_memory_not_equal(kv_lookahead_adapter(a, 0, KV_Q)->a, kv_lookahead_adapter(a, 1, KV_Q)->a, 16);
	kv_lookahead_free(a);
	kv_lookahead_free(b);
	rig_close(&r);
}

static void
sigma_is_the_embeddings_spread(void **state)
{
	const struct kv_matrix *w;
	struct kv_err e = { 0 };
	double mean, want, got;
	struct rig r;

	(void)state;
	rig_open(&r, &specs[0], 1);
	w = kv_model_weight(&r.m, 0, KV_EMBED);
	moments(w->data, w->rows * w->cols, &mean, &want);
	assert_int_equal(kv_embedding_sigma(r.x, &got, &e), KV_OK);
	assert_true(fabs(got / want - 1) < 1e-9);
	rig_close(&r);
}

/* ---- the forward pass */

static void
expect_naive(struct rig *r, size_t T, const struct kv_lookahead *m, double close)
{
	const struct kv_config *c = &r->m.cfg;
	const size_t n = m->shape.n;
	struct kv_adapters *a = open_module(r, m);
	struct rig_prompt p;
	struct naive want;
	double far[3];

	rig_prefill_lookahead(r, &p, T, a, n, 4);
	naive_run_lookahead(&want, &r->m, p.tokens, T, m);
	far[0] = rig_distance_behind(p.q_behind, want.q, c->L * c->Hq, n, T + n, c->D);
	far[1] = rig_distance_behind(p.k_behind, want.k, c->L * c->Hkv, n, T + n, c->D);
	far[2] = rig_distance(p.logits, want.logits + (T - 1) * c->vocab, c->vocab);
	print_message("%s, %zu + %zu tokens, rank %zu, %s: q %.1e k %.1e logits %.1e\n", c->name, T, n, m->shape.rank,
	    kv_lookahead_targets[m->shape.targets], far[0], far[1], far[2]);
	for (size_t i = 0; i < 3; i++)
		assert_true(far[i] <= close);
	naive_fini(&want);
	rig_prompt_fini(&p);
	kv_adapters_free(a);
}

static void
rows_match_the_naive_pass(void **state)
{
	static const size_t lengths[][2] = { { 1, 1 }, { 64, 32 }, { 100, 7 }, { 33, 65 } };
	static const enum kv_lookahead_targets targets[] = { KV_LOOKAHEAD_ALL, KV_LOOKAHEAD_QKV, KV_LOOKAHEAD_ALL,
		KV_LOOKAHEAD_NONE };
	static const size_t ranks[] = { 8, 3, 1, 0 };

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		struct rig r;

		rig_open(&r, &specs[i], 0);
		for (size_t j = 0; j < 4; j++) {
			struct kv_lookahead *m = make(&r.m.cfg, lengths[j][1], ranks[j], 2, targets[j]);

			expect_naive(&r, lengths[j][0], m, CLOSE);
			kv_lookahead_free(m);
		}
		rig_close(&r);
	}
}

static void
expect_same_prompt(const struct rig *r, const struct rig_prompt *a, const struct rig_prompt *b)
{
	const struct kv_config *c = &r->m.cfg;
	size_t row = c->L * a->T * c->D * sizeof(float);

	assert_memory_equal(a->logits, b->logits, c->vocab * sizeof(float));
	assert_memory_equal(a->q, b->q, c->Hq * row);
	assert_memory_equal(a->k, b->k, c->Hkv * row);
	assert_memory_equal(a->v, b->v, c->Hkv * row);
}

/* A prompt's rows are the same bits with and without a module, at every precision, and with one thread or two. */
static void
prompts_do_not_change(enum kvk_precision precision)
{
	static const size_t lengths[] = { 1, 63, 64, 100, 513, 600 };
	struct rig_prompt alone, with, after;
	struct kv_lookahead *m;
	struct kv_adapters *a;
	struct kv_err e = { 0 };
	struct rig r;

	rig_open(&r, &narrow, 1);
	kv_engine_free(r.x);
	kv_device_close(&r.d);
	kv_device_plan(&r.d, "cpu", 2);
	r.d.precision = precision;
	if (kv_engine_new(&r.x, &r.m, &r.d, &e) < 0)
		fail_msg("%s", e.text);
	m = make(&r.m.cfg, 32, 8, 32, KV_LOOKAHEAD_ALL);
	a = open_module(&r, m);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		rig_prefill(&r, &alone, lengths[i], 9);
		rig_prefill_lookahead(&r, &with, lengths[i], a, 32, 9);
		rig_prefill(&r, &after, lengths[i], 9);
		expect_same_prompt(&r, &alone, &with);
		expect_same_prompt(&r, &alone, &after);
		rig_prompt_fini(&after);
		rig_prompt_fini(&with);
		rig_prompt_fini(&alone);
	}
	kv_adapters_free(a);
	kv_lookahead_free(m);
	rig_close(&r);
}

static void
prompts_do_not_change_at_any_precision(void **state)
{
	(void)state;
	for (enum kvk_precision p = 0; p < KVK_PRECISION_AUTO; p++)
		prompts_do_not_change(p);
}

/* The queries and keys behind a prompt of 70 tokens; free() it. */
static float *
behind(struct rig *r, const struct kv_lookahead *m, size_t *n)
{
	struct kv_adapters *a = open_module(r, m);
	const struct kv_config *c = &r->m.cfg;
	size_t q = c->L * c->Hq * m->shape.n * c->D, k = c->L * c->Hkv * m->shape.n * c->D;
	float *x = malloc((q + k) * sizeof *x);
	struct rig_prompt p;

	assert_non_null(x);
	rig_prefill_lookahead(r, &p, 70, a, m->shape.n, 1);
	memcpy(x, p.q_behind, q * sizeof *x);
	memcpy(x + q, p.k_behind, k * sizeof *x);
	*n = q + k;
	rig_prompt_fini(&p);
	kv_adapters_free(a);
	return x;
}

/* alpha 0, rank 0, targets none and B = 0 are all the same: no adapters. */
static void
nothing_is_nothing(void **state)
{
	const struct kv_config *c;
	struct kv_lookahead *m[5];
	float *x[5];
	struct rig r;
	size_t n;

	(void)state;
	rig_open(&r, &specs[0], 1);
	c = &r.m.cfg;
	m[0] = make(c, 9, 0, 4, KV_LOOKAHEAD_ALL);
	m[1] = make(c, 9, 4, 4, KV_LOOKAHEAD_NONE);
	m[2] = make(c, 9, 4, 0, KV_LOOKAHEAD_ALL);
	m[3] = make(c, 9, 4, 4, KV_LOOKAHEAD_ALL);
	m[4] = make(c, 9, 4, 4, KV_LOOKAHEAD_ALL);
	kv_lookahead_init(m[3], 7, 1); /* B = 0 again */
	for (size_t i = 0; i < 5; i++)
		x[i] = behind(&r, m[i], &n);
	for (size_t i = 1; i < 4; i++)
		assert_memory_equal(x[0], x[i], n * sizeof(float));
	assert_memory_not_equal(x[0], x[4], n * sizeof(float));
	for (size_t i = 0; i < 5; i++) {
		free(x[i]);
		kv_lookahead_free(m[i]);
	}
	rig_close(&r);
}

static void
refusals(void **state)
{
	static const struct kv_lookahead_shape bad[] = { { 0, 8, 1, KV_LOOKAHEAD_ALL },
		{ KV_LOOKAHEAD_MAX + 1, 8, 1, KV_LOOKAHEAD_ALL }, { 1, KV_LOOKAHEAD_MAX + 1, 1, KV_LOOKAHEAD_ALL },
		{ 1, 8, NAN, KV_LOOKAHEAD_ALL }, { 1, 8, 1, KV_N_LOOKAHEAD_TARGETS } };
	static const int32_t tokens[] = { 1, 2, 3 };
	struct kv_prefill_input in = { .tokens = tokens, .T = 3, .behind = tokens, .n_behind = 1 };
	struct kv_lookahead *m;
	struct kv_adapters *a;
	struct kv_err e = { 0 };
	struct rig r, other;

	(void)state;
	rig_open(&r, &narrow, 1);
	rig_open(&other, &specs[0], 1);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(kv_lookahead_new(&m, &r.m.cfg, &bad[i], &e), KV_EARG);
		assert_null(m);
	}
	m = make(&r.m.cfg, 4, 2, 1, KV_LOOKAHEAD_ALL);
	assert_int_equal(kv_adapters_new(&a, other.x, m, &e), KV_EMODEL);
	m->parameters[11] = NAN;
	assert_int_equal(kv_adapters_new(&a, r.x, m, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "number 11"));
	m->parameters[11] = 1;
	in.lookahead = a = open_module(&r, m);
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_EARG);
	in.n_behind = 0;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_OK);
	r.m.cfg.context = 6;
	assert_int_equal(kv_prefill(r.x, &in, NULL, NULL, NULL, &e), KV_ESHAPE);
	kv_adapters_free(a);
	kv_lookahead_free(m);
	rig_close(&other);
	rig_close(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_many_numbers_as_the_paper_has),
		cmocka_unit_test(every_number_has_one_place),
		cmocka_unit_test(start_values),
		cmocka_unit_test(sigma_is_the_embeddings_spread),
		cmocka_unit_test(rows_match_the_naive_pass),
		cmocka_unit_test(prompts_do_not_change_at_any_precision),
		cmocka_unit_test(nothing_is_nothing),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
