/* SPDX-License-Identifier: MIT
 * The rows that were kept, close together. */
#include "kernels/cpu/cpu.h"

#include <string.h>

int
cpu_gather(struct kvk_dev *dev, const void *x, size_t H, size_t T, size_t row_bytes, const int32_t *index,
    const size_t *offset, void *y)
{
	for (size_t h = 0; h < H; h++) {
		const uint8_t *from = (const uint8_t *)x + h * T * row_bytes;

		for (size_t e = offset[h]; e < offset[h + 1]; e++)
			if (index[e] < 0 || (size_t)index[e] >= T)
				return cpu_fail(
				    dev, CPU_ESHAPE, "gather: head %zu has no row %d of %zu", h, (int)index[e], T);
#pragma omp parallel for num_threads(dev->threads) schedule(static) if ((offset[h + 1] - offset[h]) * row_bytes > 65536)
		for (size_t e = offset[h]; e < offset[h + 1]; e++)
			memcpy((uint8_t *)y + e * row_bytes, from + (size_t)index[e] * row_bytes, row_bytes);
	}
	return 0;
}
