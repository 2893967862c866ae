/* SPDX-License-Identifier: MIT
 * What the files of attention over a ragged cache share.
 *
 * The rows of a tile are query rows of all heads of one group, row r being new row r / G of the group's head r % G.
 * They meet the entries BLOCK at a time and in ascending order, with a running maximum m and denominator l per row
 * (online softmax).  Blocks start at multiples of BLOCK from the head's first entry, whatever the tile, and entries
 * that a row does not see contribute exact zeros, so that a row's result depends on its query and its visible entries
 * alone. */
#ifndef KVK_CPU_RAGGED_H
#define KVK_CPU_RAGGED_H

#include "kernels/cpu/cpu.h"

#define ATTENTION_BLOCK 128 /* entries; keys and values of a block fit in a core's second-level cache */
#define ATTENTION_ROWS  128 /* rows of a tile */

struct attention {
	const float *q;
	const size_t *q_at;
	size_t n, G, D, Dv; /* G query heads per head of the cache; Dv: D rounded up to whole vectors */
	const struct kvk_ragged *cache;
	float scale;
	float *y;
	size_t tile_rows, tiles; /* new rows of a tile, and how many tiles there are per head */
	bool round;              /* factors to bf16 */
	char *scratch;
	size_t stride;
};

/* Entries of head g that new row i sees. */
static inline size_t
attention_sees(const struct attention *a, size_t g, size_t i)
{
	return a->cache->len[g] - a->n + i + 1;
}

/* Rows so far: of R rows o [R][Dv] is the output times l, in units of e^m. */
struct attention_sums {
	float *o, *m, *l;
};
/* What R rows use of a piece of scratch memory. */
size_t cpu_sums_bytes(size_t R, size_t Dv);
struct attention_sums cpu_sums_at(char **at, size_t R, size_t Dv);
void cpu_sums_clear(const struct attention_sums *s, size_t R, size_t Dv);
/* into, of earlier entries, gets the entries of `from` as well. */
void cpu_sums_merge(const struct attention_sums *into, const struct attention_sums *from, size_t R, size_t Dv);
/* y of the tile that begins with new row i0 of group g. */
void cpu_attention_finish(const struct attention *a, size_t g, size_t i0, size_t R, const struct attention_sums *s);

/* In single precision, one thread's memory for tiles of R rows. */
size_t cpu_tile_bytes(const struct attention *a, size_t R);
struct attention_tile {
	float *q;  /* [R][D] */
	float *s;  /* [8][BLOCK] scores, then weights */
	float *kt; /* [D][BLOCK] keys */
	float *v;  /* [BLOCK][Dv] */
};
struct attention_tile cpu_tile_at(const struct attention *a, size_t R, char **at);
/* The queries of `rows` new rows from i0 on, of all heads of group g. */
void cpu_tile_queries(
    const struct attention *a, size_t g, size_t i0, size_t rows, const struct attention_tile *t);
/* These rows meet entries from .. to - 1, from being a multiple of BLOCK; s adds up. */
void cpu_tile_meet(const struct attention *a, size_t g, size_t i0, size_t R, size_t from, size_t to,
    const struct attention_tile *t, const struct attention_sums *s);

/* k [n][D] of a type, n <= BLOCK, to kt [D][BLOCK] as floats; columns up to the next multiple of 16 are written with
 * finite values if k is finite. */
void cpu_turn_keys(const void *k, enum kvk_type type, size_t n, size_t D, float *kt);

/* In fixed point, precision i16: see attention_i16.h.  fits: can it be? */
bool cpu_attention_i16_fits(const struct attention *a);
int cpu_attention_i16(struct kvk_dev *dev, struct attention *a);

#endif
