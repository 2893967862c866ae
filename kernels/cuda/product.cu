/* SPDX-License-Identifier: MIT
 * Dense products of matrices laid out in any way: cuBLAS where rows or columns lie side by side and the sums are long
 * enough to be worth its call, else a plain kernel of tiles. */
#include "kernels/cuda/cuda.h"

#define TILE  32
#define DEEP  16 /* of a tile of a and b in shared memory */
#define SHORT 16 /* sums up to which the plain kernel is taken: they cost no more than writing c */

/* A block computes TILE x TILE elements of c, each thread four in a column, over ascending k. */
KV_KERNEL(256) product(struct kvk_product p, size_t across)
{
	KV_SHARED(float, a, [DEEP][TILE + 1]);
	KV_SHARED(float, b, [DEEP][TILE + 1]);
	const size_t i0 = blockIdx.x / across * TILE, j0 = blockIdx.x % across * TILE;
	const unsigned tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
	float sum[4] = {};

	for (size_t k0 = 0; k0 < p.k; k0 += DEEP) {
		for (unsigned u = threadIdx.x; u < DEEP * TILE; u += 256) {
			/* threads side by side read what lies side by side */
			const unsigned ak = p.a_col <= p.a_row ? u % DEEP : u / TILE,
				       bk = p.b_row < p.b_col ? u % DEEP : u / TILE;
			const unsigned ai = p.a_col <= p.a_row ? u / DEEP : u % TILE,
				       bj = p.b_row < p.b_col ? u / DEEP : u % TILE;

			a[ak][ai] = i0 + ai < p.m && k0 + ak < p.k ? p.a[(i0 + ai) * p.a_row + (k0 + ak) * p.a_col] : 0;
			b[bk][bj] = j0 + bj < p.n && k0 + bk < p.k ? p.b[(k0 + bk) * p.b_row + (j0 + bj) * p.b_col] : 0;
		}
		__syncthreads();
		for (int k = 0; k < DEEP; k++)
			for (int i = 0; i < 4; i++)
				sum[i] = fmaf(a[k][ty * 4 + i], b[k][tx], sum[i]);
		__syncthreads();
	}
	for (int i = 0; i < 4; i++) {
		const size_t row = i0 + ty * 4 + i, col = j0 + tx;

		if (row < p.m && col < p.n) {
			float *c = p.c + row * p.c_row + col;

			*c = p.add ? fmaf(p.factor, sum[i], *c) : p.factor * sum[i];
		}
	}
}

int
cuda_product(struct kvk_dev *dev, const struct kvk_product *p)
{
	const struct cuda_gemm_job g = { p->a, p->b, p->a_row, p->a_col, p->b_row, p->b_col, KVK_F32, p->c, p->c_row,
		p->m, p->n, p->k, p->factor, p->add != 0 };
	const size_t across = (p->n + TILE - 1) / TILE, down = (p->m + TILE - 1) / TILE;

	if (p->m == 0 || p->n == 0)
		return 0;
	if (p->k > SHORT && cuda_gemm_takes(&g))
		return cuda_gemm(dev, &g);
	if (across > INT32_MAX || down > INT32_MAX / across)
		return cuda_fail(dev, KVK_ESHAPE, "product: %zu x %zu is too large", p->m, p->n);
	return cuda_check(
	    dev, KV_LAUNCH(product, (unsigned)(across * down), 256, 0, dev->stream, *p, across), "product");
}
