/* SPDX-License-Identifier: MIT
 * Causal attention over a ragged cache, blocked: a tile of query rows of all heads of one group meets its keys BLOCK at
 * a time, with a running maximum m and denominator l per row (online softmax).  Blocks start at multiples of BLOCK from
 * the head's first entry, whatever the tile, and masked entries contribute exact zeros, so that a row's result depends
 * on its query and its visible entries alone. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define BLOCK 128 /* entries; scores, keys and values of a block fit in a core's second-level cache */
#define ROWS  128 /* query rows of a tile, over all heads of the group */

struct job {
	const float *q;
	const size_t *q_at;
	size_t n, G, D, Dv; /* G query heads per head of the cache; Dv: D rounded up to whole vectors */
	const struct kvk_ragged *cache;
	float scale;
	float *y;
	size_t rows_per_head, tiles; /* rows of a tile, and how many tiles there are per head */
	char *scratch;
	size_t stride;
};

/* One thread's memory; R = G * rows_per_head. */
struct tile {
	float *q;     /* [R][D] */
	float *s;     /* [R][BLOCK] scores, then weights */
	float *o;     /* [R][Dv] output so far, times l */
	float *m, *l; /* [R] */
	float *raw;   /* [BLOCK][D] keys as floats, before they are transposed */
	float *kt;    /* [D][BLOCK] keys */
	float *v;     /* [BLOCK][Dv] */
};

static size_t
tile_bytes(const struct job *j)
{
	const size_t R = j->G * j->rows_per_head;

	return cpu_room(R * j->D, 4) + cpu_room(R * BLOCK, 4) + cpu_room(R * j->Dv, 4) + 2 * cpu_room(R, 4) +
	       2 * cpu_room(BLOCK * j->D, 4) + cpu_room(BLOCK * j->Dv, 4);
}

static struct tile
tile_at(const struct job *j, char *at)
{
	const size_t R = j->G * j->rows_per_head;
	struct tile t;

	t.q = cpu_take_f32(&at, R * j->D);
	t.s = cpu_take_f32(&at, R * BLOCK);
	t.o = cpu_take_f32(&at, R * j->Dv);
	t.m = cpu_take_f32(&at, R);
	t.l = cpu_take_f32(&at, R);
	t.raw = cpu_take_f32(&at, BLOCK * j->D);
	t.kt = cpu_take_f32(&at, BLOCK * j->D);
	t.v = cpu_take_f32(&at, BLOCK * j->Dv);
	return t;
}

/* Entries b .. b + kb - 1 of head g: keys transposed (zeros up to a whole vector), values with rows of Dv.
 * Returns the values, which are used in place where they can be. */
static const float *
load_block(const struct job *j, size_t g, size_t b, size_t kb, const struct tile *t)
{
	const struct kvk_ragged *c = j->cache;
	const size_t D = j->D, first = (c->start[g] + b) * D, size = kvk_types[c->type].bytes;
	const float *k = (const float *)c->k + first;

	if (c->type != KVK_F32) {
		cpu_expand[c->type]((const uint8_t *)c->k + first * size, t->raw, kb * D);
		k = t->raw;
	}
	for (size_t d0 = 0; d0 < D; d0 += 8) /* eight columns at a time: whole cache lines are read and written */
		for (size_t i = 0; i < kb; i++)
			for (size_t d = d0; d < d0 + 8 && d < D; d++)
				t->kt[d * BLOCK + i] = k[i * D + d];
	for (size_t d = 0; d < D && kb % 8 != 0; d++)
		memset(t->kt + d * BLOCK + kb, 0, (8 - kb % 8) * sizeof(float));
	if (c->type == KVK_F32 && j->Dv == D)
		return (const float *)c->v + first;
	for (size_t i = 0; i < kb; i++) {
		cpu_expand[c->type]((const uint8_t *)c->v + (first + i * D) * size, t->v + i * j->Dv, D);
		memset(t->v + i * j->Dv + D, 0, (j->Dv - D) * sizeof(float));
	}
	return t->v;
}

/* Scores s[0 .. n-1] of a row, of which the first vis > 0 are visible, become weights e^(s - m); m, l and the output so
 * far are brought to the new maximum.  n is a multiple of eight. */
static void
soften(float *s, size_t n, size_t vis, float scale, float *m, float *l, float *o, size_t Dv)
{
	f32x8 top = VEC_ALL(-INFINITY), sum = { 0 };
	f32x8_mem *p = (f32x8_mem *)s, *out = (f32x8_mem *)o;
	float max, keep;

	for (size_t i = vis; i < n; i++)
		s[i] = -INFINITY;
	for (size_t i = 0; i < n / 8; i++) {
		const f32x8 x = p[i] * scale;

		p[i] = x;
		vec_max(&top, &x);
	}
	max = vec_top(&top);
	max = max > *m ? max : *m;
	for (size_t i = 0; i < n / 8; i++) {
		f32x8 x = p[i] - max;

		vec_exp(&x);
		p[i] = x;
		sum += x;
	}
	keep = expf(*m - max);
	*l = *l * keep + vec_sum(&sum);
	*m = max;
	for (size_t i = 0; i < Dv / 8; i++)
		out[i] *= keep;
}

/* Query rows i0 .. i0 + rows - 1 of all heads of group g. */
static void
attend(const struct job *j, size_t g, size_t i0, size_t rows, const struct tile *t)
{
	const size_t D = j->D, Dv = j->Dv, R = j->G * rows, past = j->cache->len[g] - j->n, end = past + i0 + rows;

	for (size_t r = 0; r < R; r++) {
		memcpy(t->q + r * D, j->q + (j->q_at[g * j->G + r / rows] + i0 + r % rows) * D, D * sizeof(float));
		t->m[r] = -INFINITY;
		t->l[r] = 0;
	}
	memset(t->o, 0, R * Dv * sizeof(float));
	for (size_t b = 0; b < end; b += BLOCK) {
		const size_t kb = end - b < BLOCK ? end - b : BLOCK, wide = (kb + 7) / 8 * 8;
		const float *v = load_block(j, g, b, kb, t);

		cpu_product(t->q, D, t->kt, BLOCK, R, D, wide, t->s, BLOCK, false);
		for (size_t r = 0; r < R; r++) {
			const size_t sees = past + i0 + r % rows + 1;
			float *s = t->s + r * BLOCK;

			if (sees > b)
				soften(s, wide, sees - b < kb ? sees - b : kb, j->scale, t->m + r, t->l + r,
				    t->o + r * Dv, Dv);
			else
				memset(s, 0, wide * sizeof *s);
		}
		cpu_product(t->s, BLOCK, v, Dv, R, kb, Dv, t->o, Dv, true);
	}
	for (size_t r = 0; r < R; r++) {
		float *y = j->y + ((i0 + r % rows) * j->G * j->cache->H + g * j->G + r / rows) * D;

		for (size_t d = 0; d < D; d++)
			y[d] = t->o[r * Dv + d] / t->l[r] + 0.0f; /* + 0: a masked block may turn -0 to +0 */
	}
}

/* Items: the tiles of all heads; the last rows see most: they begin. */
static void
tiles(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct tile t = tile_at(j, j->scratch + worker * j->stride);
	const size_t H = j->cache->H, rows = j->rows_per_head;

	for (size_t u = from; u < to; u++) {
		const size_t i0 = (j->tiles - 1 - u / H) * rows;

		attend(j, u % H, i0, j->n - i0 < rows ? j->n - i0 : rows, &t);
	}
}

static int
check(struct kvk_dev *dev, const struct kvk_ragged *c, size_t n, size_t Hq)
{
	if (!cpu_is_float(c->type))
		return cpu_fail(dev, CPU_ETYPE, "attention: a cache is of type f32, f16 or bf16");
	if (c->H == 0 || Hq % c->H != 0)
		return cpu_fail(dev, CPU_ESHAPE, "attention: %zu query heads cannot share a cache of %zu heads", Hq, c->H);
	for (size_t g = 0; g < c->H; g++)
		if (c->len[g] < n)
			return cpu_fail(dev, CPU_ESHAPE,
			    "attention: head %zu has %zu entries, fewer than the %zu new rows", g, c->len[g], n);
	return 0;
}

int
cpu_attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
    const struct kvk_ragged *cache, float scale, float *y)
{
	struct job j = { .q = q, .q_at = q_at, .n = n, .D = cache->D, .cache = cache, .scale = scale, .y = y };
	int rc;

	if ((rc = check(dev, cache, n, Hq)) != 0 || n == 0 || Hq == 0)
		return rc;
	j.G = Hq / cache->H;
	j.Dv = (j.D + 7) / 8 * 8;
	j.rows_per_head = j.G < ROWS ? ROWS / j.G : 1;
	if (j.rows_per_head > n)
		j.rows_per_head = n;
	j.tiles = (n + j.rows_per_head - 1) / j.rows_per_head;
	if ((j.scratch = cpu_scratch(dev, (size_t)dev->threads, tile_bytes(&j), &j.stride)) == NULL)
		return CPU_EMEM;
	cpu_run(dev, j.tiles * cache->H, 1, tiles, &j);
	return 0;
}
