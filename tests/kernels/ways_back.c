/* SPDX-License-Identifier: MIT
 * The operations of training: products of any layout, ways back, attention behind a prompt; against naive loops in
 * double precision at odd sizes, and for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

static double *
doubles(size_t n)
{
	return test_alloc(n, sizeof(double));
}

/* ---- product */

static void
try_product(struct kvk_dev *dev, size_t m, size_t n, size_t k, unsigned layout)
{
	float *a = test_floats(m * k, 1, 1), *b = test_floats(k * n, 1, 2), *c = test_floats(m * (n + 3), 1, 3);
	double *want = doubles(m * (n + 3));
	const struct kvk_product p = { .a = a,
		.a_row = layout & 1 ? 1 : k,
		.a_col = layout & 1 ? m : 1,
		.b = b,
		.b_row = layout & 2 ? 1 : n,
		.b_col = layout & 2 ? k : 1,
		.c = c,
		.c_row = n + 3,
		.m = m,
		.n = n,
		.k = k,
		.factor = 0.5f,
		.add = (layout & 4) != 0 };

	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n + 3; j++) {
			double sum = 0;

			for (size_t x = 0; x < k && j < n; x++)
				sum += (double)a[i * p.a_row + x * p.a_col] * (double)b[x * p.b_row + j * p.b_col];
			want[i * (n + 3) + j] = 0.5 * sum + (p.add || j >= n ? (double)c[i * (n + 3) + j] : 0);
		}
	assert_int_equal(kvk_cpu.product(dev, &p), 0);
	test_near("product", c, want, m * (n + 3), 1e-6 * (double)(k + 1), 1e-6);
	free(want);
	free(c);
	free(b);
	free(a);
}

static void
products_of_any_layout(void **state)
{
	static const size_t sizes[][3] = { { 0, 3, 3 }, { 3, 0, 3 }, { 3, 3, 0 }, { 1, 1, 1 }, { 5, 8, 7 },
		{ 6, 16, 31 }, { 12, 7, 33 }, { 13, 17, 257 }, { 32, 65, 300 }, { 193, 8, 32 }, { 400, 130, 3 },
		{ 1, 1000, 1 } };
	struct kvk_dev *dev = test_dev(2);

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned layout = 0; layout < 8; layout++)
			try_product(dev, sizes[i][0], sizes[i][1], sizes[i][2], layout);
	kvk_cpu.close(dev);
}

static void
through_a_weight(void **state)
{
	static const size_t sizes[][3] = { { 37, 70, 9 }, { 16, 8, 32 }, { 70, 300, 33 }, { 5, 3, 1 } };
	struct kvk_dev *dev = test_dev(2);

	(void)state;
	for (size_t i = 0; i < 4; i++)
		for (int form = 0; form < 4; form++) {
			const size_t rows = sizes[i][0], cols = sizes[i][1], n = sizes[i][2];
			float *w = test_floats(rows * cols, 1, 4), *x = test_floats(n * cols, 1, 5),
			      *y = test_floats(n * rows, 1, 6);
			float *bias = test_floats(rows, 1, 7);
			double *want = doubles(n * rows);
			struct kvk_weight *weight;

			for (size_t r = 0; r < n * rows; r++) {
				want[r] = (form & 1 ? (double)y[r] : 0) + (form & 2 ? (double)bias[r % rows] : 0);
				for (size_t k = 0; k < cols; k++)
					want[r] += (double)x[r / rows * cols + k] * (double)w[r % rows * cols + k];
			}
			assert_int_equal(kvk_cpu.weight_open(dev, &weight, w, KVK_F32, rows, cols, KVK_MANY_ROWS), 0);
			assert_int_equal(
			    kvk_cpu.linear_rows(dev, weight, x, n, form & 2 ? bias : NULL, form & 1, y), 0);
			test_near("linear_rows", y, want, n * rows, 5e-5, 1e-6);
			kvk_cpu.weight_close(dev, weight);
			free(want);
			free(bias);
			free(y);
			free(x);
			free(w);
		}
	kvk_cpu.close(dev);
}

static void
back_through_a_weight(void **state)
{
	const size_t rows = 37, cols = 70, n = 9;
	struct kvk_dev *dev = test_dev(2);
	double *w_values, *want = doubles(n * cols);
	void *w = test_typed(rows * cols, 1, 4, KVK_F16, &w_values);
	float *dy = test_floats(n * rows, 1, 5), *dx = test_floats(n * cols, 1, 6);
	struct kvk_weight *weight;

	(void)state;
	for (int add = 0; add < 2; add++) {
		for (size_t i = 0; i < n; i++)
			for (size_t j = 0; j < cols; j++) {
				double sum = add ? (double)dx[i * cols + j] : 0;

				for (size_t r = 0; r < rows; r++)
					sum += (double)dy[i * rows + r] * w_values[r * cols + j];
				want[i * cols + j] = sum;
			}
		assert_int_equal(kvk_cpu.weight_open(dev, &weight, w, KVK_F16, rows, cols, KVK_MANY_ROWS), 0);
		assert_int_equal(kvk_cpu.linear_back(dev, weight, dy, n, add, dx), 0);
		test_near("linear_back", dx, want, n * cols, 2e-5, 1e-6);
		kvk_cpu.weight_close(dev, weight);
	}
	assert_int_equal(kvk_cpu.weight_open(dev, &weight, w, KVK_F16, rows, cols, KVK_FEW_ROWS), 0);
	assert_int_not_equal(kvk_cpu.linear_back(dev, weight, dy, n, 0, dx), 0);
	assert_non_null(strstr(kvk_cpu.error(dev), "many rows"));
	kvk_cpu.weight_close(dev, weight);
	free(dx);
	free(dy);
	free(want);
	free(w);
	free(w_values);
	kvk_cpu.close(dev);
}

/* ---- element by element: f = sum of dy y as a function of x, by central differences in double precision */

typedef double scalar_fn(const double *x, size_t n, const void *ctx);

static void
expect_differences(const char *what, scalar_fn *f, const void *ctx, const float *x, size_t n, const float *dx)
{
	double *at = doubles(n), *want = doubles(n);

	for (size_t i = 0; i < n; i++)
		at[i] = (double)x[i];
	for (size_t i = 0; i < n; i++) {
		const double was = at[i];
		double up, down;

		at[i] = was + 1e-5;
		up = f(at, n, ctx);
		at[i] = was - 1e-5;
		down = f(at, n, ctx);
		at[i] = was;
		want[i] = (up - down) / 2e-5;
	}
	test_near(what, dx, want, n, 2e-6, 2e-5);
	free(want);
	free(at);
}

struct norm_case {
	const float *w, *dy;
	size_t d;
};

static double
norm_sum(const double *x, size_t n, const void *ctx)
{
	const struct norm_case *c = ctx;
	double sum = 0;

	for (size_t i = 0; i < n; i += c->d) {
		double square = 0;

		for (size_t j = 0; j < c->d; j++)
			square += x[i + j] * x[i + j];
		for (size_t j = 0; j < c->d; j++)
			sum += (double)c->dy[i + j] * x[i + j] / sqrt(square / (double)c->d + 0.01) * (double)c->w[j];
	}
	return sum;
}

static void
back_through_norms(void **state)
{
	static const size_t sizes[][2] = { { 1, 1 }, { 3, 7 }, { 5, 40 }, { 33, 9 } };
	struct kvk_dev *dev = test_dev(2);

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		const size_t n = sizes[i][0], d = sizes[i][1];
		float *x = test_floats(n * d, 1, 1), *w = test_floats(d, 1, 2), *dy = test_floats(n * d, 1, 3);
		float *dx = test_floats(n * d, 0, 0);
		const struct norm_case c = { w, dy, d };

		assert_int_equal(kvk_cpu.rms_norm_back(dev, x, w, 0.01f, dy, n, d, 0, dx), 0);
		expect_differences("rms_norm_back", norm_sum, &c, x, n * d, dx);
		assert_int_equal(kvk_cpu.rms_norm_back(dev, x, w, 0.01f, dy, n, d, 1, dx), 0);
		for (size_t j = 0; j < n * d; j++)
			dx[j] /= 2;
		expect_differences("rms_norm_back, added", norm_sum, &c, x, n * d, dx);
		free(dx);
		free(dy);
		free(w);
		free(x);
	}
	kvk_cpu.close(dev);
}

/* x: gate, then up. */
static double
silu_sum(const double *x, size_t n, const void *ctx)
{
	const float *dy = ctx;
	double sum = 0;

	for (size_t i = 0; i < n / 2; i++)
		sum += (double)dy[i] * x[i] / (1 + exp(-x[i])) * x[n / 2 + i];
	return sum;
}

static void
back_through_silu(void **state)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 9, 67 };
	struct kvk_dev *dev = test_dev(2);

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const size_t n = sizes[i];
		float *x = test_floats(2 * n, 3, 1), *dy = test_floats(n, 1, 2), *dx = test_floats(2 * n, 0, 0);

		assert_int_equal(kvk_cpu.silu_mul_back(dev, x, x + n, dy, n, dx, dx + n), 0);
		expect_differences("silu_mul_back", silu_sum, dy, x, 2 * n, dx);
		memcpy(dx, x, 2 * n * sizeof *x); /* in place */
		assert_int_equal(kvk_cpu.silu_mul_back(dev, dx, dx + n, dy, n, dx, dx + n), 0);
		expect_differences("silu_mul_back in place", silu_sum, dy, x, 2 * n, dx);
		free(dx);
		free(dy);
		free(x);
	}
	kvk_cpu.close(dev);
}

/* heads() itself is tested elsewhere; it is linear but for the norm, so its own differences show the way back. */
static void
back_through_heads(void **state)
{
	static const float inv_freq[] = { 1, 0.3f, 0.01f };
	enum { n = 5, H = 3, D = 8 };
	struct kvk_dev *dev = test_dev(2);
	float *x = test_floats(n * H * D, 1, 1), *dy = test_floats(n * H * D, 1, 2), *norm = test_floats(D, 1, 3);
	float dx[n * H * D], up[n * H * D], down[n * H * D];
	size_t at[H] = { 0, n, 2 * n };

	(void)state;
	for (unsigned form = 0; form < 8; form++) {
		const struct kvk_rope rope = { inv_freq, 6, form & 1 };
		const struct kvk_rope *turn = form & 2 ? &rope : NULL;
		const float *w = form & 4 ? norm : NULL;
		const struct kvk_heads_back job = { x, dy, n, H, D, w, 0.01f, turn, 11 };

		assert_int_equal(kvk_cpu.heads_back(dev, &job, dx), 0);
		for (size_t i = 0; i < n * H * D; i++) {
			const float was = x[i];
			double want = 0;

			x[i] = was + 0.01f;
			kvk_cpu.heads(dev, x, n, H, D, w, 0.01f, turn, 11, up, KVK_F32, at);
			x[i] = was - 0.01f;
			kvk_cpu.heads(dev, x, n, H, D, w, 0.01f, turn, 11, down, KVK_F32, at);
			x[i] = was;
			for (size_t j = 0; j < n * H * D; j++)
				want += (double)dy[j] * ((double)up[j] - (double)down[j]) / 0.02;
			assert_true(fabs((double)dx[i] - want) < 2e-3 * (1 + fabs(want)));
		}
	}
	free(norm);
	free(dy);
	free(x);
	kvk_cpu.close(dev);
}

/* ---- attention behind a prompt */

struct behind_case {
	size_t n, T, Hq, Hkv, D;
	enum kvk_type type;
};

struct behind_data {
	struct behind_case z;
	double *k, *v; /* what the prompt's elements are */
	void *k_as, *v_as;
	float *x;     /* q, k_behind, v_behind, one behind the other */
	size_t q, kv; /* floats of each */
	float *dy, *ds;
};

/* sum of dy y + ds s as a function of q, k_behind and v_behind; y and s may be NULL. */
static double
attend(const double *x, const struct behind_data *b, double *y, double *s)
{
	const struct behind_case *z = &b->z;
	const size_t all = z->T + z->n, D = z->D;
	const double *kb = x + b->q, *vb = kb + b->kv;
	double *p = doubles(all), sum = 0;

	for (size_t h = 0; h < z->Hq; h++)
		for (size_t i = 0; i < z->n; i++) {
			const size_t g = h / (z->Hq / z->Hkv);
			double total = 0;

			for (size_t j = 0; j <= z->T + i; j++) {
				const double *k = j < z->T ? b->k + (g * z->T + j) * D : kb + (g * z->n + j - z->T) * D;
				double dot = 0;

				for (size_t d = 0; d < D; d++)
					dot += x[(h * z->n + i) * D + d] * k[d];
				total += p[j] = exp(0.3 * dot);
			}
			for (size_t j = 0; j <= z->T + i; j++) {
				const double *v = j < z->T ? b->v + (g * z->T + j) * D : vb + (g * z->n + j - z->T) * D;

				if (j < z->T) {
					sum += p[j] / total / (double)z->n * (double)b->ds[h * z->T + j];
					if (s != NULL)
						s[h * z->T + j] += p[j] / total / (double)z->n;
				}
				for (size_t d = 0; d < D; d++) {
					const size_t at = (i * z->Hq + h) * D + d;

					if (b->dy != NULL)
						sum += p[j] / total * v[d] * (double)b->dy[at];
					if (y != NULL)
						y[at] += p[j] / total * v[d];
				}
			}
		}
	free(p);
	return sum;
}

static double
attention_sum(const double *x, size_t n, const void *ctx)
{
	(void)n;
	return attend(x, ctx, NULL, NULL);
}

static void
try_behind(struct kvk_dev *dev, const struct behind_case *z, bool with_y)
{
	const size_t q = z->Hq * z->n * z->D, kv = z->Hkv * z->n * z->D, T = z->Hkv * z->T * z->D;
	struct behind_data b = { .z = *z, .q = q, .kv = kv };
	float *y = test_floats(q, 0, 0), *s = test_floats(z->Hq * z->T, 0, 0), *dx = test_floats(q + 2 * kv, 0, 0);
	double *at = doubles(q + 2 * kv), *want_y = doubles(q), *want_s = doubles(z->Hq * z->T);
	struct kvk_behind job;

	b.k_as = test_typed(T, 1, 1, z->type, &b.k);
	b.v_as = test_typed(T, 1, 2, z->type, &b.v);
	b.x = test_floats(q + 2 * kv, 1, 3);
	b.dy = with_y ? test_floats(q, 1, 4) : NULL;
	b.ds = test_floats(z->Hq * z->T, 1, 5);
	for (size_t i = 0; i < q + 2 * kv; i++)
		at[i] = (double)b.x[i];
	attend(at, &b, want_y, want_s);
	job = (struct kvk_behind){ b.x, b.k_as, b.v_as, z->type, b.x + q, b.x + q + kv, z->n, z->T, z->Hq, z->Hkv, z->D,
		0.3f };
	assert_int_equal(kvk_cpu.behind(dev, &job, y, s), 0);
	test_near("behind y", y, want_y, q, 2e-6, 1e-5);
	test_near("behind s", s, want_s, z->Hq * z->T, 1e-7, 1e-5);
	assert_int_equal(kvk_cpu.behind_back(dev, &job, b.dy, b.ds, dx, dx + q, dx + q + kv), 0);
	expect_differences("behind_back", attention_sum, &b, b.x, q + (with_y ? 2 : 1) * kv, dx);
	free(b.ds);
	free(b.dy);
	free(b.x);
	free(b.v_as);
	free(b.v);
	free(b.k_as);
	free(b.k);
	free(want_s);
	free(want_y);
	free(at);
	free(dx);
	free(s);
	free(y);
}

static void
attention_behind_a_prompt(void **state)
{
	static const struct behind_case cases[] = {
		{ 1, 1, 1, 1, 1, KVK_F32 },
		{ 3, 5, 2, 1, 7, KVK_F16 },
		{ 8, 96, 1, 1, 4, KVK_F32 },
		{ 9, 97, 2, 2, 3, KVK_BF16 },
		{ 2, 200, 3, 1, 16, KVK_F16 },
	};
	struct kvk_dev *dev = test_dev(2);
	struct kvk_behind bad = { .type = KVK_I32, .n = 1, .T = 1, .Hq = 1, .Hkv = 1, .D = 1 };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		try_behind(dev, &cases[i], true);
		try_behind(dev, &cases[i], false);
	}
	assert_int_not_equal(kvk_cpu.behind(dev, &bad, NULL, NULL), 0);
	bad.type = KVK_F32;
	bad.Hq = 3;
	bad.Hkv = 2;
	assert_int_not_equal(kvk_cpu.behind(dev, &bad, NULL, NULL), 0);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_of_any_layout),
		cmocka_unit_test(through_a_weight),
		cmocka_unit_test(back_through_a_weight),
		cmocka_unit_test(back_through_norms),
		cmocka_unit_test(back_through_silu),
		cmocka_unit_test(back_through_heads),
		cmocka_unit_test(attention_behind_a_prompt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
