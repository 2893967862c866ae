/* SPDX-License-Identifier: MIT
 * Attention on tensor cores with bf16 factors: kernels/cuda/attention_mma.h.  attention_f16.cu is apart because ptxas
 * is long at these kernels: two files compile side by side. */
#include "kernels/cuda/attention_mma.h"

int
cuda_attend_bf16(struct kvk_dev *dev, const struct attend *a, int height)
{
	return mma_attend<__nv_bfloat16>(dev, a, height);
}
