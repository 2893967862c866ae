/* SPDX-License-Identifier: MIT
 * One launch over more than 2^31 elements: the places behind 2^31 are computed, from their own inputs.  For cards with
 * 40 GB to spare; skipped elsewhere.
 *
 * Of huge arrays only a few rows are written and looked at; what else is in them does not matter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

#define OVER ((size_t)1 << 31)
#define ROOM ((size_t)40 << 30) /* bytes */

static bool
open_large(struct pair *p)
{
	pair_open(p, KVK_PRECISION_F32);
	if (p->op->room(p->dev) >= ROOM)
		return true;
	pair_close(p);
	skip();
	return false;
}

static void *
room_for(struct pair *p, size_t n, size_t size)
{
	void *x = p->op->alloc(p->dev, n * size);

	assert_non_null(x);
	return x;
}

/* n floats at x + at, as test_floats() has them; returned as well. */
static float *
put_floats(struct pair *p, float *x, size_t at, size_t n, uint64_t seed)
{
	float *host = test_floats(n, 2, seed);

	pair_ok(p, p->op->put(p->dev, x + at, host, n * sizeof *host));
	return host;
}

static void
gates(void **state)
{
	static const size_t places[] = { 0, OVER - 4, OVER, OVER + 5 };
	const size_t n = OVER + 9;
	float *gate, *up;
	struct pair p;

	(void)state;
	if (!open_large(&p))
		return;
	gate = room_for(&p, n, sizeof *gate);
	up = room_for(&p, n, sizeof *up);
	for (size_t i = 0; i < 4; i++) {
		free(put_floats(&p, gate, places[i], 4, i));
		free(put_floats(&p, up, places[i], 4, 10 + i));
	}
	pair_ok(&p, p.op->silu_mul(p.dev, gate, up, n, up));
	for (size_t i = 0; i < 4; i++) {
		float *g = test_floats(4, 2, i), *u = test_floats(4, 2, 10 + i);
		double want[4];

		for (size_t k = 0; k < 4; k++)
			want[k] = (double)g[k] / (1 + exp(-(double)g[k])) * (double)u[k];
		pair_near(&p, "silu_mul", up + places[i], want, 4, 1e-30, 6e-7);
		free(g);
		free(u);
	}
	pair_free(&p, gate);
	pair_free(&p, up);
	pair_close(&p);
}

static void
norms(void **state)
{
	const size_t d = 4096, n = OVER / d + 3, last = n - 1;
	struct pair p;
	float *x, *w, *host_x, *host_w;
	double *want, sum = 0;

	(void)state;
	if (!open_large(&p))
		return;
	x = room_for(&p, n * d, sizeof *x);
	w = room_for(&p, d, sizeof *w);
	host_x = put_floats(&p, x, last * d, d, 1);
	host_w = put_floats(&p, w, 0, d, 2);
	want = test_alloc(d, sizeof *want);
	for (size_t i = 0; i < d; i++)
		sum += (double)host_x[i] * (double)host_x[i];
	for (size_t i = 0; i < d; i++)
		want[i] = (double)host_x[i] / sqrt(sum / (double)d + (double)1e-5f) * (double)host_w[i];
	pair_ok(&p, p.op->rms_norm(p.dev, x, w, 1e-5f, n, d, x));
	pair_near(&p, "rms_norm", x + last * d, want, d, 1e-30, 4e-7);
	free(want);
	free(host_x);
	free(host_w);
	pair_free(&p, x);
	pair_free(&p, w);
	pair_close(&p);
}

/* The last row of the last head, and its neighbours' places in the output. */
static void
heads(void **state)
{
	enum { H = 32, D = 256 };
	const size_t n = OVER / (H * D) + 2, last = (n * H - 1) * D;
	size_t at[H];
	float *x, *y, *host;
	double want[D];
	struct pair p;

	(void)state;
	if (!open_large(&p))
		return;
	x = room_for(&p, n * H * D, sizeof *x);
	y = room_for(&p, n * H * D, sizeof *y);
	host = put_floats(&p, x, last, D, 1);
	for (size_t h = 0; h < H; h++)
		at[h] = h * n;
	for (size_t d = 0; d < D; d++)
		want[d] = (double)host[d];
	pair_ok(&p, p.op->heads(p.dev, x, n, H, D, NULL, 0, NULL, 0, y, KVK_F32, at));
	pair_near(&p, "heads", y + last, want, D, 0, 0);
	free(host);
	pair_free(&p, x);
	pair_free(&p, y);
	pair_close(&p);
}

static void
pools(void **state)
{
	const size_t H = 8, n = OVER / H + 5, last = H * n - 16;
	float *x, *y, *host;
	double want[16];
	struct pair p;

	(void)state;
	if (!open_large(&p))
		return;
	x = room_for(&p, H * n, sizeof *x);
	y = room_for(&p, H * n, sizeof *y);
	host = put_floats(&p, x, last, 16, 1);
	for (size_t i = 0; i < 16; i++) {
		want[i] = (double)host[i];
		for (size_t k = i > 3 ? i - 3 : 0; k < 16 && k <= i + 3; k++)
			want[i] = fmax(want[i], (double)host[k]);
	}
	pair_ok(&p, p.op->pool(p.dev, x, H, n, KVK_POOL_MAX, 7, y));
	pair_near(&p, "pool", y + last + 3, want + 3, 13, 0, 0);
	free(host);
	pair_free(&p, x);
	pair_free(&p, y);
	pair_close(&p);
}

/* Keys of zeros, but for one of the last head that its query sees among the first 2^21 positions; f16. */
struct long_cache {
	size_t T, at; /* entries of each of 8 heads; the row of that key */
	uint16_t *k, *v;
	float *q; /* [8][128] */
};
enum { LONG_H = 8, LONG_D = 128 };

static void
make_long(struct pair *p, struct long_cache *c)
{
	const size_t T = OVER / (LONG_H * LONG_D) + 40, rows = LONG_H * T, piece = (size_t)1 << 20;
	uint16_t *zeros = test_alloc(piece * LONG_D, sizeof *zeros), one[LONG_D];
	float q[LONG_H * LONG_D];

	*c = (struct long_cache){ T, rows - 7, room_for(p, rows * LONG_D, 2), room_for(p, rows * LONG_D, 2),
		room_for(p, LONG_H * LONG_D, sizeof(float)) };
	for (size_t i = 0, n; i < rows; i += n) {
		n = rows - i < piece ? rows - i : piece;
		pair_ok(p, p->op->put(p->dev, c->k + i * LONG_D, zeros, n * LONG_D * 2));
		pair_ok(p, p->op->put(p->dev, c->v + i * LONG_D, zeros, n * LONG_D * 2));
	}
	for (size_t d = 0; d < LONG_D; d++)
		one[d] = 0x3c00; /* 1 */
	for (size_t i = 0; i < LONG_H * LONG_D; i++)
		q[i] = 0.25f; /* the key's product: 32, of which e^32 is 10^7 times all others together */
	pair_ok(p, p->op->put(p->dev, c->k + c->at * LONG_D, one, sizeof one));
	pair_ok(p, p->op->put(p->dev, c->v + c->at * LONG_D, one, sizeof one));
	pair_ok(p, p->op->put(p->dev, c->q, q, sizeof q));
	free(zeros);
}

static void
scores(void **state)
{
	struct long_cache c;
	struct pair p;
	float *s;

	(void)state;
	if (!open_large(&p))
		return;
	make_long(&p, &c);
	s = room_for(&p, LONG_H * c.T, sizeof *s);
	{
		const int32_t pos = (int32_t)c.T - 1;
		const struct kvk_scores j = { .q = c.q, .q_type = KVK_F32, .q_pos = &pos, .n_q = 1, .Hq = LONG_H,
			.Hkv = LONG_H, .D = LONG_D, .k = c.k, .k_type = KVK_F16, .T = c.T, .scale = 1, .rows = KVK_MEAN,
			.n = c.T };
		const double rest = (double)(c.T - 1), e = exp(32), even = 1 / (rest + 1);

		pair_ok(&p, p.op->scores(p.dev, &j, s));
		pair_near(&p, "the key", s + c.at, (const double[]){ e / (e + rest) }, 1, 1e-7, 2e-5);
		pair_near(&p, "another head's", s + c.at - c.T, &even, 1, 1e-7, 2e-5);
	}
	pair_free(&p, s);
	pair_free(&p, c.q);
	pair_free(&p, c.v);
	pair_free(&p, c.k);
	pair_close(&p);
}

static void
attention(void **state)
{
	struct long_cache c;
	struct pair p;
	float *y;

	(void)state;
	if (!open_large(&p))
		return;
	make_long(&p, &c);
	y = room_for(&p, LONG_H * LONG_D, sizeof *y);
	{
		size_t start[LONG_H], len[LONG_H], q_at[LONG_H];
		const struct kvk_ragged cache = { c.k, c.v, KVK_F16, LONG_H, LONG_D, start, len };
		const double e = exp(32), want[] = { 0, e / (e + (double)(c.T - 1)) };

		for (size_t h = 0; h < LONG_H; h++) {
			start[h] = h * c.T;
			len[h] = c.T;
			q_at[h] = h;
		}
		pair_ok(&p, p.op->attention(p.dev, c.q, q_at, 1, LONG_H, &cache, 1, y));
		pair_near(&p, "the value", y + (LONG_H - 1) * LONG_D + 5, want + 1, 1, 1e-6, 2e-5);
		pair_near(&p, "another head's", y + (LONG_H - 2) * LONG_D + 5, want, 1, 1e-6, 0);
	}
	pair_free(&p, y);
	pair_free(&p, c.q);
	pair_free(&p, c.v);
	pair_free(&p, c.k);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gates),
		cmocka_unit_test(norms),
		cmocka_unit_test(heads),
		cmocka_unit_test(pools),
		cmocka_unit_test(scores),
		cmocka_unit_test(attention),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
