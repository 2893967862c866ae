/* SPDX-License-Identifier: MIT
 * Attention on tensor cores with f16 factors: kernels/cuda/attention_mma.h.  attention_bf16.cu is apart because ptxas
 * is long at these kernels: two files compile side by side. */
#include "kernels/cuda/attention_mma.h"

int
cuda_attend_f16(struct kvk_dev *dev, const struct attend *a, int height)
{
	return mma_attend<__half>(dev, a, height);
}
