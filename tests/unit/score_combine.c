/* SPDX-License-Identifier: MIT
 * combine: sums, maxima, ranks, scales, protection, and what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/rescale.h"
#include "tests/lib/score_input.h"

static const float keys[8] = { 0 };

/* Two KV heads; attrs as kv-score writes them. */
static void
put(struct score_layer *x, const char *name, const float *s, size_t n, const char *pool, size_t width, size_t n_sink,
    size_t n_recent)
{
	const size_t shape[] = { 2, n };

	score_layer_put(x, name, KVK_F32, "kv_head token", shape, s,
	    json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "method", name, "pool", pool, "pool_width", (json_int_t)width,
	        "n_sink", (json_int_t)n_sink, "n_recent", (json_int_t)n_recent, "n_tokens", (json_int_t)x->in.T));
}

static const float a[2 * 4] = { 1, 2, 3, 4, 0, 0, 0, 8 }, b[2 * 3] = { 10, 0, 10, -1, -2, -3 };

static void
layer(struct score_layer *x)
{
	score_layer_init(x, &score_device, 2, 2, 4, 1, 1.0f, NULL, 0, keys);
	put(x, "score", a, 4, "none", 1, 0, 2);
	put(x, "score.b", b, 3, "none", 1, 4, 1);
}

static void
expect(const float *want, const char *how, const char *weights, const char *normalize)
{
	const struct kv_tensor *s;
	struct kv_score_attrs at;
	struct kv_params p;
	struct score_layer x;
	struct kv_err e = { 0 };

	layer(&x);
	if (weights != NULL)
		score_params(&p, "combine", "how", how, "normalize", normalize, "weights", weights, NULL);
	else
		score_params(&p, "combine", "how", how, "normalize", normalize, NULL);
	s = score_run(&x, &p);
	assert_true(s->shape[0] == 2 && s->shape[1] == 3); /* the columns that both have */
	assert_scores_near(s->data, want, 6, how);
	assert_int_equal(kv_score_attrs_from_json(&at, s->attrs, &e), KV_OK);
	assert_true(at.protect.n_sink == 4 && at.protect.n_recent == 2 && at.pool == KVK_POOL_NONE && at.n_tokens == 4);
	assert_string_equal(at.method, "combine");
	assert_int_equal(json_array_size(json_object_get(s->attrs, "of")), 2);
	assert_null(kv_step_find(&x.step, "score.b"));
	assert_non_null(kv_step_find(&x.step, "k"));
	score_layer_fini(&x);
}

static void
mixtures(void **state)
{
	(void)state;
	expect((const float[]){ 11, 2, 13, -1, -2, -3 }, "sum", NULL, "none");
	expect((const float[]){ 7, 4, 11, -0.5f, -1, -1.5f }, "sum", "2,0.5", "none");
	expect((const float[]){ 1, 2, 3, 0, 0, 0 }, "sum", "1,0", "none");
	expect((const float[]){ 10, 2, 10, 0, 0, 0 }, "max", NULL, "none");
	expect((const float[]){ 10, 20, 30, 0, 0, 0 }, "max", "10,1", "none");
	/* of the columns that count: ranks 1 2 3 and 2.5 1 2.5; 2 2 2 and 3 2 1, all by 3 */
	expect((const float[]){ 3.5f / 6, 3 / 6.f, 5.5f / 6, 5 / 6.f, 4 / 6.f, 3 / 6.f }, "rank", NULL, "none");
	expect((const float[]){ 4.5f / 9, 5 / 9.f, 8.5f / 9, 7 / 9.f, 6 / 9.f, 5 / 9.f }, "rank", "2,1", "none");
	/* 0 .5 1 and 1 0 1; 0 0 0 and 1 .5 0 */
	expect((const float[]){ 1, 0.5f, 2, 1, 0.5f, 0 }, "sum", NULL, "range");
}

/* Each as it ranks: pooled by 3 over all its columns, the fourth among them. */
static void
pooled(void **state)
{
	static const float second[2 * 3] = { 0 }, want[] = { 2, 3, 4, 0, 0, 8 };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	layer(&x);
	put(&x, "score", a, 4, "max", 3, 0, 0);
	put(&x, "score.b", second, 3, "none", 1, 0, 0);
	score_params(&p, "combine", NULL);
	assert_memory_equal(score_run(&x, &p)->data, want, sizeof want);
	score_layer_fini(&x);
}

static void
refused(struct score_layer *x, const struct kv_params *p, const char *words)
{
	struct kv_err e = { 0 };
	const size_t before = kv_step_find(&x->step, "score") != NULL;

	assert_true(kv_score_layer(&x->in, p, &e) < 0);
	if (strstr(e.text, words) == NULL)
		fail_msg("no '%s' in '%s'", words, e.text);
	assert_int_equal(kv_step_find(&x->step, "score") != NULL, before);
	score_layer_fini(x);
}

static void
refusals(void **state)
{
	const size_t heads[] = { 4, 4 };
	static const float four[16] = { 0 };
	struct score_layer x;
	struct kv_params p;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "combine", NULL);
	score_layer_init(&x, &score_device, 2, 2, 4, 1, 1.0f, NULL, 0, keys);
	refused(&x, &p, "combine needs scores");
	layer(&x);
	score_layer_put(&x, "score.c", KVK_F32, "head token", heads, four,
	    json_incref(score_layer_tensor(&x, "score")->attrs));
	refused(&x, &p, "score.c has 4 heads, but score has 2");
	layer(&x);
	json_object_set_new(score_layer_tensor(&x, "score.b")->attrs, "recent_share", json_real(0.5));
	refused(&x, &p, "give --recent TOKENS");
	score_params(&p, "combine", "normalize", "sum", NULL);
	layer(&x);
	refused(&x, &p, "score.b: a negative score (-1)");
	score_params(&p, "combine", "weights", "1,2,3", NULL);
	layer(&x);
	refused(&x, &p, "3 weights for 2 scores");
	kv_params_init(&p, &kv_score_find("combine")->about);
	assert_int_equal(kv_params_set(&p, "weights", "1,x", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	assert_int_equal(kv_params_set(&p, "weights", "1,", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
}

static void
scales(void **state)
{
	float x[] = { 1, NAN, 3, 0 }, y[] = { 2, NAN, 8, 0 }, zeros[] = { 0, 0 }, r[] = { NAN, 5, -INFINITY, 5 };
	float range[] = { INFINITY, -1, 3, NAN };
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_rescale_sum(x, 4, &e), KV_OK);
	assert_true(x[0] == 0.25f && isnan(x[1]) && x[2] == 0.75f && x[3] == 0);
	assert_int_equal(kv_rescale_max(y, 4, &e), KV_OK);
	assert_true(y[0] == 0.25f && isnan(y[1]) && y[2] == 1 && y[3] == 0);
	assert_int_equal(kv_rescale_sum(zeros, 2, &e), KV_OK);
	assert_true(zeros[0] == 0 && zeros[1] == 0);
	assert_int_equal(kv_rescale_rank(r, 4, &e), KV_OK);
	assert_true(r[0] == 1.5f / 4 && r[1] == 3.5f / 4 && r[2] == 1.5f / 4 && r[3] == 3.5f / 4);
	assert_int_equal(kv_rescale_range(range, 4, &e), KV_OK);
	assert_true(range[0] == INFINITY && range[1] == 0 && range[2] == 1 && isnan(range[3]));
	assert_int_equal(kv_rescale_rank(r, 0, &e), KV_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mixtures),
		cmocka_unit_test(pooled),
		cmocka_unit_test(refusals),
		cmocka_unit_test(scales),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
