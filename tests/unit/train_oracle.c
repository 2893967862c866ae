/* SPDX-License-Identifier: MIT
 * Loss, its gradients and adapters against the reference's numbers (tests/golden/oracle/training.*). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/loss.h"
#include "tests/lib/kernels.h"
#include "tests/lib/oracle.h"

static const json_t *
record(const struct oracle *o, size_t i)
{
	const json_t *r = json_array_get(oracle_results(o), i);

	assert_non_null(r);
	return r;
}

static void
checked(const struct oracle *o, const json_t *r, const char *const *keys)
{
	for (; *keys != NULL; keys++)
		oracle_checked(o, r, *keys);
}

/* |x - y| within the fixture's tolerance, widened to what single precision inputs and outputs allow. */
static void
assert_close(const float *x, const float *y, size_t n, double abs)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)x[i] - (double)y[i]) <= abs + 2e-6 * fabs((double)y[i])))
			fail_msg("element %zu: %.9g, expected %.9g", i, (double)x[i], (double)y[i]);
}

static void
loss_and_its_gradient(void **state)
{
	static const char *const keys[] = { "loss", "per_head", "grad", "grad_note", NULL };
	const struct oracle_array *gt, *pred, *want;
	struct oracle o;
	const json_t *r, *row, *v;
	size_t n, l, h, head = 0;
	float *gradient;
	double loss;

	(void)state;
	oracle_open(&o, "training");
	r = record(&o, 0);
	gt = oracle_array(&o, "gt");
	pred = oracle_array(&o, "pred");
	want = oracle_array(&o, oracle_text(r, "grad"));
	n = gt->shape[2];
	gradient = test_alloc(gt->shape[0] * gt->shape[1] * n, sizeof *gradient);
	json_array_foreach (json_object_get(r, "per_head"), l, row)
		json_array_foreach (row, h, v) {
			loss = kv_loss_head(gt->data + head * n, pred->data + head * n, n, 1, gradient + head * n);
			assert_true(fabs(loss - json_number_value(v)) < 1e-9 + 1e-6 * loss);
			head++;
		}
	assert_int_equal(head, gt->shape[0] * gt->shape[1]);
	assert_close(gradient, want->data, head * n, 1e-6);
	loss = kv_loss(gt->data, pred->data, head, n, 1, NULL);
	assert_true(fabs(loss - json_number_value(json_object_get(r, "loss"))) < 1e-9 + 1e-6 * loss);
	free(gradient);
	checked(&o, r, keys);
	oracle_fini(&o);
}

/* Queries and keys whose products are the reference's logits: key j is the j-th unit vector.  The gradient of a query
 * is then that of its logits. */
static void
softmax_and_its_gradient(void **state)
{
	static const char *const keys[] = { "logits", "causal", "T", "probs", "gt", "grad", "loss", NULL };
	const struct oracle_array *logits, *probs, *want, *gt;
	struct kvk_dev *dev = test_dev(2);
	struct kvk_behind job;
	struct oracle o;
	const json_t *r;
	size_t S, n, all;
	float *k, *zeros, *s, *ds, *dq, *mean;
	double loss;

	(void)state;
	oracle_open(&o, "training");
	r = record(&o, 1);
	S = oracle_size(r, "S");
	n = oracle_size(r, "T");
	all = S + n;
	logits = oracle_array(&o, oracle_text(r, "logits"));
	probs = oracle_array(&o, oracle_text(r, "probs"));
	want = oracle_array(&o, oracle_text(r, "grad"));
	gt = oracle_array(&o, "gt"); /* gt[0,0]: its first row */
	k = test_floats(all * all, 0, 0);
	for (size_t j = 0; j < all; j++)
		k[j * all + j] = 1;
	zeros = test_floats(all * all, 0, 0);
	s = test_floats(S, 0, 0);
	ds = test_floats(S, 0, 0);
	mean = test_floats(S, 0, 0);
	dq = test_floats(n * all, 0, 0);
	job = (struct kvk_behind){ .q = logits->data,
		.k = k,
		.v = zeros,
		.type = KVK_F32,
		.k_behind = k + S * all,
		.v_behind = zeros,
		.n = n,
		.T = S,
		.Hq = 1,
		.Hkv = 1,
		.D = all,
		.scale = 1 };
	assert_int_equal(kvk_cpu.behind(dev, &job, NULL, s), 0);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < S; j++)
			mean[j] += probs->data[i * all + j] / (float)n;
	assert_close(s, mean, S, 1e-7);
	loss = kv_loss_head(gt->data, s, S, 1, ds);
	assert_true(fabs(loss - json_number_value(json_object_get(r, "loss"))) < 1e-6 * loss);
	assert_int_equal(kvk_cpu.behind_back(dev, &job, NULL, ds, dq, zeros, zeros), 0);
	assert_close(dq, want->data, n * all, 1e-6);
	free(dq);
	free(mean);
	free(ds);
	free(s);
	free(zeros);
	free(k);
	kvk_cpu.close(dev);
	checked(&o, r, keys);
	oracle_fini(&o);
}

static void
adapters_act_on_lookahead_rows_alone(void **state)
{
	static const char *const keys[] = { "lora", NULL };
	const struct oracle_array *x, *w, *a, *b, *y;
	struct kvk_dev *dev = test_dev(1);
	struct kvk_weight *weight;
	struct oracle o;
	const json_t *r, *lora, *flag;
	size_t i, rank;
	float *got, low[8];

	(void)state;
	oracle_open(&o, "training");
	r = record(&o, 2);
	lora = json_object_get(r, "lora");
	x = oracle_array(&o, oracle_text(lora, "x"));
	w = oracle_array(&o, oracle_text(lora, "w"));
	a = oracle_array(&o, oracle_text(lora, "a"));
	b = oracle_array(&o, oracle_text(lora, "b"));
	y = oracle_array(&o, oracle_text(lora, "y"));
	rank = oracle_size(lora, "r");
	got = test_floats(x->shape[0] * w->shape[0], 0, 0);
	assert_int_equal(
	    kvk_cpu.weight_open(dev, &weight, w->data, KVK_F32, w->shape[0], w->shape[1], KVK_MANY_ROWS), 0);
	assert_int_equal(kvk_cpu.linear(dev, weight, x->data, x->shape[0], NULL, 0, got), 0);
	json_array_foreach (json_object_get(lora, "flag"), i, flag) {
		const struct kvk_product down = { .a = x->data + i * w->shape[1],
			.a_row = 1,
			.a_col = 1,
			.b = a->data,
			.b_row = 1,
			.b_col = w->shape[1],
			.c = low,
			.c_row = rank,
			.m = 1,
			.n = rank,
			.k = w->shape[1],
			.factor = 1 };
		const struct kvk_product up = { .a = low,
			.a_row = 1,
			.a_col = 1,
			.b = b->data,
			.b_row = 1,
			.b_col = rank,
			.c = got + i * w->shape[0],
			.c_row = w->shape[0],
			.m = 1,
			.n = w->shape[0],
			.k = rank,
			.add = 1,
			.factor = oracle_float(json_object_get(lora, "alpha")) / (float)rank };

		if (json_integer_value(flag) == 0)
			continue;
		assert_int_equal(kvk_cpu.product(dev, &down), 0);
		assert_int_equal(kvk_cpu.product(dev, &up), 0);
	}
	assert_close(got, y->data, x->shape[0] * w->shape[0], 1e-5);
	kvk_cpu.weight_close(dev, weight);
	free(got);
	kvk_cpu.close(dev);
	checked(&o, r, keys);
	oracle_fini(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loss_and_its_gradient),
		cmocka_unit_test(softmax_and_its_gradient),
		cmocka_unit_test(adapters_act_on_lookahead_rows_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
