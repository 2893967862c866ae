/* SPDX-License-Identifier: MIT
 * A linear and a quadratic form of every key. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#define KEYS 128 /* of one piece of work */

struct scratch {
	float *key;      /* [D] */
	double *keys;    /* [KEYS][N] */
	double *form;    /* [D][N]: upper triangle, what is beside the diagonal twice; zeros below */
	double *product; /* [KEYS][N] */
};

static size_t
padded(size_t D)
{
	return (D + CPU_PRODUCT_STEP - 1) / CPU_PRODUCT_STEP * CPU_PRODUCT_STEP;
}

static void
load(const struct kvk_forms *job, size_t h, size_t first, size_t n, const struct scratch *s)
{
	const size_t D = job->D, N = padded(D), row = D * kvk_types[job->k_type].bytes;
	const uint8_t *k = (const uint8_t *)job->k + (h / (job->Hq / job->Hkv) * job->T + first) * row;
	const double *a = job->a + h * D * D;

	memset(s->keys, 0, n * N * sizeof *s->keys);
	for (size_t i = 0; i < n; i++) {
		cpu_expand[job->k_type](k + i * row, s->key, D);
		for (size_t d = 0; d < D; d++)
			s->keys[i * N + d] = (double)s->key[d];
	}
	memset(s->form, 0, D * N * sizeof *s->form);
	for (size_t i = 0; i < D; i++)
		for (size_t j = i; j < D; j++)
			s->form[i * N + j] = a[i * D + j] * (i == j ? 1 : 2);
}

/* z [n] of keys first .. first + n - 1. */
static void
piece(const struct kvk_forms *job, size_t h, size_t first, size_t n, const struct scratch *s, double *z)
{
	const size_t D = job->D, N = padded(D);
	const double *b = job->b + h * D;

	load(job, h, first, n, s);
	for (size_t j = 0; j < N; j += CPU_PRODUCT_STEP) {
		const size_t rows = j + CPU_PRODUCT_STEP < D ? j + CPU_PRODUCT_STEP : D;

		cpu_product_f64(s->keys, N, s->form + j, N, n, rows, CPU_PRODUCT_STEP, s->product + j, N);
	}
	for (size_t i = 0; i < n; i++) {
		double sum = 0;

		for (size_t d = 0; d < D; d++)
			sum += (b[d] + s->product[i * N + d]) * s->keys[i * N + d];
		z[i] = sum;
	}
}

struct work {
	const struct kvk_forms *job;
	double *z;
	char *scratch;
	size_t stride;
};

/* Items: the pieces of KEYS keys, head after head. */
static void
pieces_of(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct work *w = ctx;
	const size_t T = w->job->T, D = w->job->D, N = padded(D), pieces = (T + KEYS - 1) / KEYS;
	char *at = w->scratch + worker * w->stride;
	struct scratch s;

	s.key = cpu_take_f32(&at, D);
	s.keys = cpu_take_f64(&at, KEYS * N);
	s.product = cpu_take_f64(&at, KEYS * N);
	s.form = cpu_take_f64(&at, D * N);
	for (size_t i = from; i < to; i++) {
		const size_t h = i / pieces, first = i % pieces * KEYS;

		piece(w->job, h, first, T - first < KEYS ? T - first : KEYS, &s, w->z + h * T + first);
	}
}

int
cpu_forms(struct kvk_dev *dev, const struct kvk_forms *job, double *z)
{
	const size_t D = job->D, N = padded(D), pieces = (job->T + KEYS - 1) / KEYS;
	const size_t bytes = cpu_taken(D, sizeof(float)) + 2 * cpu_taken(KEYS * N, sizeof(double)) +
	    cpu_taken(D * N, sizeof(double));
	struct work w = { job, z, NULL, 0 };

	if (!cpu_is_float(job->k_type))
		return cpu_fail(dev, KVK_ETYPE, "forms: types are f32, f16 and bf16");
	if (job->Hkv == 0 || job->Hq % job->Hkv != 0)
		return cpu_fail(
		    dev, KVK_ESHAPE, "forms: %zu query heads cannot share %zu KV heads", job->Hq, job->Hkv);
	if ((w.scratch = cpu_scratch(dev, (size_t)dev->threads, bytes, &w.stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, job->Hq * pieces, 1, pieces_of, &w);
	return 0;
}
