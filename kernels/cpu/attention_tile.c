/* SPDX-License-Identifier: MIT
 * Attention in single precision: a tile of query rows meets its keys and values block by block. */
#include "kernels/cpu/ragged.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define BLOCK ATTENTION_BLOCK
#define BAND  8  /* rows that meet a block together: their scores stay in the first-level cache */
#define MANY  6  /* the same where there are many: what cpu_product() does best */
#define STRIP 32 /* keys */

size_t
cpu_tile_bytes(const struct attention *a, size_t R)
{
	return cpu_taken(R * a->D, 4) + cpu_taken(BAND * BLOCK, 4) + cpu_taken(a->D * BLOCK, 4) +
	       cpu_taken(BLOCK * a->Dv, 4);
}

struct attention_tile
cpu_tile_at(const struct attention *a, size_t R, char **at)
{
	struct attention_tile t;

	t.q = cpu_take_f32(at, R * a->D);
	t.s = cpu_take_f32(at, BAND * BLOCK);
	t.kt = cpu_take_f32(at, a->D * BLOCK);
	t.v = cpu_take_f32(at, BLOCK * a->Dv);
	return t;
}

/* Floats to the nearest bf16, in place. */
static void
round_bf16(float *x, size_t n)
{
	uint8_t narrow[2 * 64];

	for (size_t m; n > 0; n -= m, x += m) {
		m = n < 64 ? n : 64;
		cpu_pack[KVK_BF16](x, narrow, m);
		cpu_expand[KVK_BF16](narrow, x, m);
	}
}

void
cpu_tile_queries(const struct attention *a, size_t g, size_t i0, size_t rows, const struct attention_tile *t)
{
	const size_t D = a->D, R = rows * a->G;

	for (size_t r = 0; r < R; r++)
		memcpy(t->q + r * D, a->q + (a->q_at[g * a->G + r % a->G] + i0 + r / a->G) * D, D * sizeof(float));
	if (a->round)
		round_bf16(t->q, R * D);
}

/* n entries of a block. */
struct entries {
	const uint8_t *k, *v; /* [n][D] of the cache's type */
	size_t n;
};

static struct entries
entries_at(const struct attention *a, size_t g, size_t b, size_t n)
{
	const struct kvk_ragged *c = a->cache;
	const size_t first = (c->start[g] + b) * a->D * kvk_types[c->type].bytes;

	return (struct entries){ (const uint8_t *)c->k + first, (const uint8_t *)c->v + first, n };
}

/* The first n keys to t->kt. */
static void
load_keys(const struct attention *a, const struct entries *e, size_t n, const struct attention_tile *t)
{
	cpu_turn_keys(e->k, a->cache->type, n, a->D, t->kt);
	if (a->round)
		round_bf16(t->kt, a->D * BLOCK);
}

/* Values of a type, rows of Dv elements. */
struct values {
	const void *v;
	enum kvk_type type;
};

/* In place where that can be. */
static struct values
load_values(const struct attention *a, const struct entries *e, bool few, const struct attention_tile *t)
{
	const enum kvk_type type = a->cache->type;
	const size_t D = a->D, size = kvk_types[type].bytes;

	if (a->Dv == D && !a->round && (type == KVK_F32 || few))
		return (struct values){ e->v, type };
	if (a->Dv == D)
		cpu_expand[type](e->v, t->v, e->n * D);
	for (size_t i = 0; i < e->n && a->Dv > D; i++) {
		cpu_expand[type](e->v + i * D * size, t->v + i * a->Dv, D);
		memset(t->v + i * a->Dv + D, 0, (a->Dv - D) * sizeof(float));
	}
	if (a->round)
		round_bf16(t->v, e->n * a->Dv);
	return (struct values){ t->v, KVK_F32 };
}

/* Scores s[0 .. n-1] of a row, of which the first sees > 0 are visible, become weights e^(s - m); m, l and the output
 * so far are brought to the new maximum.  n is a multiple of eight. */
static void
soften(float *s, size_t n, size_t sees, float scale, float *m, float *l, float *o, size_t Dv)
{
	f32x8 top = VEC_ALL(-INFINITY), sum = { 0 };
	f32x8_mem *p = (f32x8_mem *)s, *out = (f32x8_mem *)o;
	float max, keep;

	for (size_t i = sees; i < n; i++)
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
	keep = *m == max ? 1 : expf(*m - max);
	*l = *l * keep + vec_sum(&sum);
	*m = max;
	for (size_t i = 0; i < Dv / 8 && keep != 1; i++)
		out[i] *= keep;
}

/* Weights and what they add up to, of n rows that have met the keys.  sees [n]: of the block's entries. */
static void
meet_values(const struct attention *a, size_t r, size_t n, const size_t *sees, const struct attention_tile *t,
    struct values v, const struct attention_sums *sums)
{
	const size_t Dv = a->Dv, most = sees[n - 1], wide = (most + 7) / 8 * 8;

	for (size_t i = 0; i < n; i++) {
		const size_t at = r + i;

		if (sees[i] > 0)
			soften(t->s + i * BLOCK, wide, sees[i], a->scale, sums->m + at, sums->l + at,
			    sums->o + at * Dv, Dv);
		else
			memset(t->s + i * BLOCK, 0, wide * sizeof(float));
	}
	cpu_product_typed(t->s, BLOCK, v.v, v.type, Dv, n, most, Dv, sums->o + r * Dv, Dv, true);
}

/* How many of the entries b .. b + most - 1 rows r .. r + n - 1 see.  The last row sees most. */
static void
count_seen(const struct attention *a, size_t g, size_t i0, size_t r, size_t n, size_t b, size_t most, size_t *sees)
{
	for (size_t i = 0; i < n; i++) {
		const size_t all = attention_sees(a, g, i0 + (r + i) / a->G);

		sees[i] = all <= b ? 0 : all - b < most ? all - b : most;
	}
}

/* Few rows, one band: keys are used strip by strip as they come from memory. */
static void
meet_few(const struct attention *a, size_t g, size_t i0, size_t R, size_t b, const struct entries *e,
    const struct attention_tile *t, const struct attention_sums *s)
{
	struct entries strip = *e;
	size_t sees[BAND];

	count_seen(a, g, i0, 0, R, b, e->n, sees);
	for (size_t at = 0; at < e->n; at += STRIP) {
		const size_t n = e->n - at < STRIP ? e->n - at : STRIP;

		strip.k = e->k + at * a->D * kvk_types[a->cache->type].bytes;
		load_keys(a, &strip, n, t);
		cpu_product(t->q, a->D, t->kt, BLOCK, R, a->D, (n + 7) / 8 * 8, t->s + at, BLOCK, false);
	}
	meet_values(a, 0, R, sees, t, load_values(a, e, true, t), s);
}

static void
meet_many(const struct attention *a, size_t g, size_t i0, size_t R, size_t b, const struct entries *e,
    const struct attention_tile *t, const struct attention_sums *s)
{
	const struct values v = load_values(a, e, false, t);

	load_keys(a, e, e->n, t);
	for (size_t r = 0; r < R; r += MANY) {
		const size_t n = R - r < MANY ? R - r : MANY;
		size_t sees[BAND];

		count_seen(a, g, i0, r, n, b, e->n, sees);
		if (sees[n - 1] == 0)
			continue;
		cpu_product(t->q + r * a->D, a->D, t->kt, BLOCK, n, a->D, (sees[n - 1] + 7) / 8 * 8, t->s,
		    BLOCK, false);
		meet_values(a, r, n, sees, t, v, s);
	}
}

void
cpu_tile_meet(const struct attention *a, size_t g, size_t i0, size_t R, size_t from, size_t to,
    const struct attention_tile *t, const struct attention_sums *s)
{
	for (size_t b = from; b < to; b += BLOCK) {
		const struct entries e = entries_at(a, g, b, to - b < BLOCK ? to - b : BLOCK);

		if (R <= BAND)
			meet_few(a, g, i0, R, b, &e, t, s);
		else
			meet_many(a, g, i0, R, b, &e, t, s);
	}
}
