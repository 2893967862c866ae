/* SPDX-License-Identifier: MIT
 * One block of keys against the query rows of a KV head: what the attention-score family does most.
 */
#ifndef KVK_SCORE_BLOCK_H
#define KVK_SCORE_BLOCK_H

#include "kernels/cpu/cpu.h"

#define CPU_BLOCK_KEYS 64

#define CPU_STRIP_ROWS 6

/* Query rows of all the heads that share a KV head: `rows` of each, head after head, in strips of STRIP_ROWS; rows that
 * fill the last strip are zeros. */
struct cpu_block_queries {
	const float *q;     /* [strips][D][STRIP_ROWS] */
	const float *norm;  /* [heads * rows], of q */
	const size_t *sees; /* [heads * rows], keys from 0 on */
	size_t n, D;        /* n: heads * rows */
	float scale;
};

static inline size_t
cpu_strips(size_t rows)
{
	return (rows + CPU_STRIP_ROWS - 1) / CPU_STRIP_ROWS;
}

/* n rows x [n][D] from row `at` of the strips on. */
void cpu_strips_fill(const float *x, size_t n, size_t D, size_t at, float *strips);

/* One thread's memory. */
struct cpu_block_work {
	float *raw;    /* [KEYS][D] */
	float *kt;     /* [D][KEYS] */
	float *y;      /* [STRIP_ROWS][KEYS] */
	double *wide;  /* [D][KEYS]; made when it is needed */
	double *q;     /* [D][STRIP_ROWS] */
	double *logit; /* [STRIP_ROWS][KEYS] */
};
size_t cpu_block_bytes(size_t D);
struct cpu_block_work cpu_block_work_at(char *at, size_t D);

/* Softmax of the block alone, in powers of two: with logits l (times log2 e) of keys first .. first + KEYS - 1, which
 * are w->raw (zeros where there are none):  ref ~ max l, p[j] = 2^(l_j - ref), zero where a row does not see the key,
 * sum = sum of p.  A row that sees nothing of it has the lowest of all refs and sum 0.
 * p [n][KEYS]; row i's ref and sum go to ref[place[i]] and sum[place[i]]. */
void cpu_block_soften(const struct cpu_block_queries *x, size_t first, const struct cpu_block_work *w, float *p,
    const size_t *place, float *ref, float *sum);

#endif
