/* SPDX-License-Identifier: MIT
 * Causal attention over a ragged cache: how the work is cut, and the sums of its pieces put together.
 *
 * A head's entries are cut into pieces of PIECE, from its first entry on; each piece has a softmax of its own, and the
 * pieces of a row are merged in ascending order.  With many rows a tile does its pieces one after the other; with few,
 * as in decoding, the pieces are shared by the threads.  Both make the same bits. */
#include "kernels/cpu/ragged.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define PIECE ((size_t)4 * ATTENTION_BLOCK)

size_t
cpu_sums_bytes(size_t R, size_t Dv)
{
	return cpu_taken(R * Dv, 4) + 2 * cpu_taken(R, 4);
}

struct attention_sums
cpu_sums_at(char **at, size_t R, size_t Dv)
{
	struct attention_sums s;

	s.o = cpu_take_f32(at, R * Dv);
	s.m = cpu_take_f32(at, R);
	s.l = cpu_take_f32(at, R);
	return s;
}

void
cpu_sums_clear(const struct attention_sums *s, size_t R, size_t Dv)
{
	memset(s->o, 0, R * Dv * sizeof(float));
	for (size_t r = 0; r < R; r++) {
		s->m[r] = -INFINITY;
		s->l[r] = 0;
	}
}

void
cpu_sums_merge(const struct attention_sums *into, const struct attention_sums *from, size_t R, size_t Dv)
{
	for (size_t r = 0; r < R; r++) {
		const float m = into->m[r] > from->m[r] ? into->m[r] : from->m[r];
		const float a = expf(into->m[r] - m), b = expf(from->m[r] - m);
		f32x8_mem *o = (f32x8_mem *)(into->o + r * Dv), *x = (f32x8_mem *)(from->o + r * Dv);

		for (size_t i = 0; i < Dv / 8; i++)
			o[i] = o[i] * a + x[i] * b;
		into->l[r] = into->l[r] * a + from->l[r] * b;
		into->m[r] = m;
	}
}

void
cpu_attention_finish(const struct attention *a, size_t g, size_t i0, size_t R, const struct attention_sums *s)
{
	const size_t G = a->G, D = a->D;

	for (size_t r = 0; r < R; r++) {
		float *y = a->y + ((i0 + r / G) * G * a->cache->H + g * G + r % G) * D;

		for (size_t d = 0; d < D; d++)
			y[d] = s->o[r * a->Dv + d] / s->l[r] + 0.0f; /* + 0: a masked block may turn -0 to +0 */
	}
}

/* A tile and all its pieces. */
static void
attend(const struct attention *a, size_t g, size_t i0, size_t rows, char *at)
{
	const size_t R = rows * a->G, end = attention_sees(a, g, i0 + rows - 1);
	const struct attention_sums all = cpu_sums_at(&at, R, a->Dv), piece = cpu_sums_at(&at, R, a->Dv);
	const struct attention_tile t = cpu_tile_at(a, R, &at);

	cpu_tile_queries(a, g, i0, rows, &t);
	cpu_sums_clear(&all, R, a->Dv);
	for (size_t from = 0; from < end; from += PIECE) {
		cpu_sums_clear(&piece, R, a->Dv);
		cpu_tile_meet(a, g, i0, R, from, end - from < PIECE ? end : from + PIECE, &t, &piece);
		cpu_sums_merge(&all, &piece, R, a->Dv);
	}
	cpu_attention_finish(a, g, i0, R, &all);
}

/* Items: the tiles of all heads; the last rows see most: they begin. */
static void
tiles(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct attention *a = ctx;
	const size_t H = a->cache->H, rows = a->tile_rows;

	for (size_t u = from; u < to; u++) {
		const size_t i0 = (a->tiles - 1 - u / H) * rows;

		attend(a, u % H, i0, a->n - i0 < rows ? a->n - i0 : rows, a->scratch + worker * a->stride);
	}
}

static int
many_rows(struct kvk_dev *dev, struct attention *a)
{
	const size_t R = a->tile_rows * a->G;
	const size_t bytes = 2 * cpu_sums_bytes(R, a->Dv) + cpu_tile_bytes(a, R);

	if ((a->scratch = cpu_scratch(dev, (size_t)dev->threads, bytes, &a->stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, a->tiles * a->cache->H, 1, tiles, a);
	return 0;
}

/* One tile per head, its pieces shared by the threads. */
struct few {
	const struct attention *a;
	size_t R;
	size_t *first; /* [H + 1] number of a head's first piece */
	char *sums;    /* of all pieces */
	size_t sums_bytes;
};

static struct attention_sums
piece_sums(const struct few *f, size_t u)
{
	char *at = f->sums + u * f->sums_bytes;

	return cpu_sums_at(&at, f->R, f->a->Dv);
}

static void
pieces(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct few *f = ctx;
	const struct attention *a = f->a;
	char *at = a->scratch + worker * a->stride;
	const struct attention_tile t = cpu_tile_at(a, f->R, &at);

	for (size_t u = from, g = 0; u < to; u++) {
		const struct attention_sums s = piece_sums(f, u);
		size_t begin, len;

		while (f->first[g + 1] <= u)
			g++;
		begin = (u - f->first[g]) * PIECE;
		len = a->cache->len[g];
		cpu_tile_queries(a, g, 0, a->n, &t);
		cpu_sums_clear(&s, f->R, a->Dv);
		cpu_tile_meet(a, g, 0, f->R, begin, len - begin < PIECE ? len : begin + PIECE, &t, &s);
	}
}

/* Items: heads. */
static void
merge(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct few *f = ctx;
	const struct attention *a = f->a;
	char *at = a->scratch + worker * a->stride;
	const struct attention_sums all = cpu_sums_at(&at, f->R, a->Dv);

	for (size_t g = from; g < to; g++) {
		cpu_sums_clear(&all, f->R, a->Dv);
		for (size_t u = f->first[g]; u < f->first[g + 1]; u++) {
			const struct attention_sums s = piece_sums(f, u);

			cpu_sums_merge(&all, &s, f->R, a->Dv);
		}
		cpu_attention_finish(a, g, 0, f->R, &all);
	}
}

static int
few_rows(struct kvk_dev *dev, struct attention *a)
{
	const size_t H = a->cache->H, threads = (size_t)dev->threads, R = a->n * a->G;
	const size_t own = cpu_tile_bytes(a, R) + cpu_sums_bytes(R, a->Dv);
	struct few f = { .a = a, .R = R, .sums_bytes = cpu_sums_bytes(R, a->Dv) };
	size_t units = 0, all;

	for (size_t g = 0; g < H; g++)
		units += (a->cache->len[g] + PIECE - 1) / PIECE;
	if ((a->scratch = cpu_scratch(dev, 1, threads * own + units * f.sums_bytes + cpu_taken(H + 1, sizeof *f.first),
		 &all)) == NULL)
		return KVK_EMEM;
	a->stride = own;
	f.sums = a->scratch + threads * own;
	f.first = (size_t *)(f.sums + units * f.sums_bytes);
	f.first[0] = 0;
	for (size_t g = 0; g < H; g++)
		f.first[g + 1] = f.first[g] + (a->cache->len[g] + PIECE - 1) / PIECE;
	cpu_run(dev, units, 1, pieces, &f);
	cpu_run(dev, H, units * R < 1024 ? H : 1, merge, &f);
	return 0;
}

static int
check(struct kvk_dev *dev, const struct kvk_ragged *c, size_t n, size_t Hq)
{
	if (!cpu_is_float(c->type))
		return cpu_fail(dev, KVK_ETYPE, "attention: a cache is of type f32, f16 or bf16");
	if (c->H == 0 || Hq % c->H != 0)
		return cpu_fail(
		    dev, KVK_ESHAPE, "attention: %zu query heads cannot share a cache of %zu heads", Hq, c->H);
	for (size_t g = 0; g < c->H; g++)
		if (c->len[g] < n)
			return cpu_fail(dev, KVK_ESHAPE,
			    "attention: head %zu has %zu entries, fewer than the %zu new rows", g, c->len[g], n);
	return 0;
}

int
cpu_attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
    const struct kvk_ragged *cache, float scale, float *y)
{
	struct attention a = { .q = q, .q_at = q_at, .n = n, .D = cache->D, .cache = cache, .scale = scale, .y = y };
	int rc;

	if ((rc = check(dev, cache, n, Hq)) != 0 || n == 0 || Hq == 0)
		return rc;
	a.G = Hq / cache->H;
	a.Dv = (a.D + 7) / 8 * 8;
	a.round = dev->precision == KVK_PRECISION_BF16 && cache->type == KVK_F32;
	a.tile_rows = a.G < ATTENTION_ROWS ? ATTENTION_ROWS / a.G : 1;
	if (a.tile_rows > n)
		a.tile_rows = n;
	a.tiles = (n + a.tile_rows - 1) / a.tile_rows;
	if (dev->precision == KVK_PRECISION_I16 && cpu_attention_i16_fits(&a))
		return cpu_attention_i16(dev, &a);
	return a.tiles == 1 ? few_rows(dev, &a) : many_rows(dev, &a);
}
