/* SPDX-License-Identifier: MIT
 * Attention in fixed point: entries are packed once per call, then tiles of query rows meet them block by block. */
#include "kernels/cpu/attention_i16.h"

#include <string.h>

#define BAND  I16_BAND
#define BLOCK I16_BLOCK

/* The job of a call beside struct attention. */
struct job {
	struct attention *a;
	const struct i16_ops *ops;
	size_t R;              /* rows of a tile, rounded up to whole bands */
	size_t *first;         /* [H + 1] number of a head's first block */
	char *blocks;          /* [first[H]] */
	size_t block_bytes;
};

static struct i16_block
block_at(const struct job *j, size_t u)
{
	char *at = j->blocks + u * j->block_bytes;
	const size_t Dv = j->a->Dv;
	struct i16_block b;

	b.k = (int16_t *)cpu_take_f32(&at, Dv / 2 * BLOCK);
	b.v = (int16_t *)cpu_take_f32(&at, Dv / 2 * BLOCK);
	b.k_scale = cpu_take_f32(&at, BLOCK);
	b.v_scale = cpu_take_f32(&at, BLOCK);
	b.bad = (size_t *)(void *)at;
	return b;
}

static size_t
head_of(const struct job *j, size_t u, size_t g)
{
	while (j->first[g + 1] <= u)
		g++;
	return g;
}

/* Items: blocks of all heads. */
static void
pack(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct kvk_ragged *c = j->a->cache;

	for (size_t u = from, g = 0; u < to; u++) {
		const struct i16_block b = block_at(j, u);
		size_t at, n;

		g = head_of(j, u, g);
		at = (u - j->first[g]) * BLOCK;
		n = c->len[g] - at < BLOCK ? c->len[g] - at : BLOCK;
		at = (c->start[g] + at) * c->D;
		j->ops->pack((const float *)c->k + at, (const float *)c->v + at, n, c->D,
		    (int16_t *)(void *)(j->a->scratch + worker * j->a->stride), &b);
	}
}

/* One thread's memory. */
struct tile {
	int16_t *q; /* [R / BAND][Dv/2][BAND][2] */
	int16_t *row; /* [Dv] */
	float *c;   /* [R] */
	struct attention_sums sums;
	float *s;
	int16_t *p;
	float *unit;
};

static size_t
tile_bytes(const struct job *j)
{
	const size_t R = j->R, Dv = j->a->Dv, work = cpu_taken(8 * Dv, 2);
	const size_t tile = cpu_taken(R * Dv, 2) + cpu_taken(Dv, 2) + cpu_taken(R, 4) + cpu_sums_bytes(R, Dv) +
	    cpu_taken(BAND * BLOCK, 4) + cpu_taken(BAND * BLOCK, 2) + cpu_taken(BAND, 4);

	return tile > work ? tile : work;
}

static struct tile
tile_at(const struct job *j, char *at)
{
	const size_t R = j->R, Dv = j->a->Dv;
	struct tile t;

	t.q = (int16_t *)cpu_take_f32(&at, R * Dv / 2);
	t.row = (int16_t *)cpu_take_f32(&at, Dv / 2);
	t.c = cpu_take_f32(&at, R);
	t.sums = cpu_sums_at(&at, R, Dv);
	t.s = cpu_take_f32(&at, BAND * BLOCK);
	t.p = (int16_t *)cpu_take_f32(&at, BAND * BLOCK / 2);
	t.unit = cpu_take_f32(&at, BAND);
	return t;
}

/* Rows that have a NaN or an infinity begin, and end, with l = NaN. */
static void
load_queries(const struct job *j, size_t g, size_t i0, size_t R, const struct tile *t)
{
	const struct attention *a = j->a;
	const float log2_e = 1.44269504f;

	cpu_sums_clear(&t->sums, j->R, a->Dv);
	if (R % BAND != 0)
		memset(t->q + R / BAND * BAND * a->Dv, 0, BAND * a->Dv * sizeof *t->q);
	for (size_t r = 0; r < R; r++) {
		const float *q = a->q + (a->q_at[g * a->G + r % a->G] + i0 + r / a->G) * a->D;
		int16_t *to = t->q + r / BAND * BAND * a->Dv + r % BAND * 2;
		float scale;

		if (!cpu_i16_row(q, a->D, a->Dv, t->row, &scale))
			t->sums.l[r] = NAN;
		for (size_t d = 0; d < a->Dv; d += 2)
			memcpy(to + d * BAND, t->row + d, 2 * sizeof *to);
		t->c[r] = scale * (a->scale * log2_e);
	}
}

/* Rows r .. r + n - 1 of a tile of group g and new row i0 meet block number u of the head. */
static void
meet(const struct job *j, size_t g, size_t i0, size_t u, size_t r, size_t n, const struct tile *t)
{
	const struct attention *a = j->a;
	const struct i16_block block = block_at(j, j->first[g] + u);
	size_t sees[BAND];
	struct i16_band band = { .n = n, .Dv = a->Dv, .sees = sees, .s = t->s, .p = t->p, .unit = t->unit };

	for (size_t i = 0; i < n; i++) {
		const size_t all = attention_sees(a, g, i0 + (r + i) / a->G);

		sees[i] = all <= u * BLOCK ? 0 : all - u * BLOCK < BLOCK ? all - u * BLOCK : BLOCK;
	}
	if (sees[n - 1] == 0)
		return;
	band.q = t->q + r * a->Dv;
	band.c = t->c + r;
	band.m = t->sums.m + r;
	band.l = t->sums.l + r;
	band.o = t->sums.o + r * a->Dv;
	j->ops->meet(&band, &block);
	for (size_t i = 0; i < n; i++)
		if (sees[i] > *block.bad)
			band.l[i] = NAN;
}

/* Items: the tiles of all heads; the last rows see most: they begin. */
static void
tiles(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct attention *a = j->a;
	const struct tile t = tile_at(j, a->scratch + worker * a->stride);

	for (size_t w = from; w < to; w++) {
		const size_t g = w % a->cache->H, i0 = (a->tiles - 1 - w / a->cache->H) * a->tile_rows;
		const size_t rows = a->n - i0 < a->tile_rows ? a->n - i0 : a->tile_rows, R = rows * a->G;
		const size_t end = attention_sees(a, g, i0 + rows - 1);

		load_queries(j, g, i0, R, &t);
		for (size_t u = 0; u * BLOCK < end; u++)
			for (size_t r = 0; r < R; r += BAND)
				meet(j, g, i0, u, r, R - r < BAND ? R - r : BAND, &t);
		cpu_attention_finish(a, g, i0, R, &t.sums);
	}
}

bool
cpu_attention_i16_fits(const struct attention *a)
{
	return a->cache->type == KVK_F32 && a->scale > 0 && a->D <= I16_MOST_DIMS;
}

int
cpu_attention_i16(struct kvk_dev *dev, struct attention *a)
{
	const size_t H = a->cache->H, threads = (size_t)dev->threads, R = a->tile_rows * a->G;
	struct job j = { .a = a, .R = (R + BAND - 1) / BAND * BAND };
	size_t blocks = 0, all;

	a->Dv = I16_WIDTH(a->D);
	j.ops = cpu_attention_avx2.works() ? &cpu_attention_avx2 : &cpu_attention_portable;
	j.block_bytes = 2 * cpu_taken(a->Dv / 2 * BLOCK, 4) + 2 * cpu_taken(BLOCK, 4) + 64;
	for (size_t g = 0; g < H; g++)
		blocks += (a->cache->len[g] + BLOCK - 1) / BLOCK;
	a->stride = tile_bytes(&j);
	a->scratch = cpu_scratch(
	    dev, 1, threads * a->stride + blocks * j.block_bytes + cpu_taken(H + 1, sizeof *j.first), &all);
	if (a->scratch == NULL)
		return KVK_EMEM;
	j.blocks = a->scratch + threads * a->stride;
	j.first = (size_t *)(void *)(j.blocks + blocks * j.block_bytes);
	j.first[0] = 0;
	for (size_t g = 0; g < H; g++)
		j.first[g + 1] = j.first[g] + (a->cache->len[g] + BLOCK - 1) / BLOCK;
	cpu_run(dev, blocks, 1, pack, &j);
	cpu_run(dev, a->tiles * H, 1, tiles, &j);
	return 0;
}
