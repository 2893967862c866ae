/* SPDX-License-Identifier: MIT
 * Products with few rows: a warp takes two rows of the weight at a time, expands them in registers and multiplies them
 * by up to four rows of x.
 *
 * A lane sums the groups of sixteen columns lane, lane + 32, ... in ascending order, then what is left over; lanes are
 * added up in a fixed order.  So a result depends on its row of x and of w alone. */
#include "kernels/cuda/dequant.h"

#include "kernels/cuda/weight.h"

#define WARPS 4
#define EACH  2 /* rows of the weight per warp */
#define MOST  4 /* rows of x that share a pass over the weight */

struct few {
	const uint8_t *w;
	size_t row_bytes, rows, cols;
	const float *x, *bias;
	int add;
	float *y;
};

template <enum kvk_type TYPE, int N>
KV_KERNEL(32 * WARPS) few_rows(struct few f)
{
	const unsigned lane = threadIdx.x % 32;
	const size_t r0 = ((size_t)blockIdx.x * WARPS + threadIdx.x / 32) * EACH, whole = f.cols / GROUP;
	const uint8_t *w[EACH];
	float sum[EACH][N] = {};

	for (int r = 0; r < EACH; r++) /* behind the end: the last row once more */
		w[r] = f.w + (r0 + r < f.rows ? r0 + r : f.rows - 1) * f.row_bytes;
#pragma unroll 2
	for (size_t g = lane; g < whole; g += 32) {
		float b[EACH][GROUP];

		for (int r = 0; r < EACH; r++)
			dequant_row_group<TYPE>(w[r], g, b[r]);
		for (int i = 0; i < N; i++) {
			float a[GROUP];

			dequant_block_group<KVK_F32>((const uint8_t *)(f.x + i * f.cols + g * GROUP), 0, a);
			for (int r = 0; r < EACH; r++)
				for (int j = 0; j < GROUP; j++)
					sum[r][i] = fmaf(a[j], b[r][j], sum[r][i]);
		}
	}
	if (lane < f.cols % GROUP)
		for (int r = 0; r < EACH; r++)
			for (int i = 0; i < N; i++)
				sum[r][i] = fmaf(f.x[i * f.cols + whole * GROUP + lane],
				    dequant_element<TYPE>(w[r], whole * GROUP + lane), sum[r][i]);
	for (int r = 0; r < EACH; r++)
		for (int i = 0; i < N; i++) {
			const float s = cuda_warp_sum(sum[r][i]);
			float *y = f.y + i * f.rows + r0 + r;

			if (lane == 0 && r0 + r < f.rows) {
				const float v = f.add ? *y + s : s;

				*y = f.bias != NULL ? v + f.bias[r0 + r] : v;
			}
		}
}

template <enum kvk_type TYPE>
static cudaError_t
launch(struct kvk_dev *dev, const struct few *f, size_t n)
{
	const unsigned grid = cuda_blocks(f->rows, WARPS * EACH);

	if (n == MOST)
		return KV_LAUNCH((few_rows<TYPE, MOST>), grid, 32 * WARPS, 0, dev->stream, *f);
	return KV_LAUNCH((few_rows<TYPE, 1>), grid, 32 * WARPS, 0, dev->stream, *f);
}

static cudaError_t
launch_any(enum kvk_type type, struct kvk_dev *dev, const struct few *f, size_t n)
{
	DEQUANT_TYPED(type, launch, dev, f, n);
}

int
cuda_linear_few(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add,
    float *y)
{
	struct few f = { (const uint8_t *)w->p, w->row_bytes, w->rows, w->cols, x, bias, add, y };
	int rc = cuda_weight_ready(dev, w);

	for (size_t m; n > 0 && rc == 0; n -= m, f.x += m * w->cols, f.y += m * w->rows) {
		m = n >= MOST ? MOST : 1;
		rc = cuda_check(dev, launch_any(w->held, dev, &f, m), "linear");
	}
	return rc;
}
