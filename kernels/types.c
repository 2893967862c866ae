/* SPDX-License-Identifier: MIT
 * Element types and the sizes of their blocks (GGUF's names; see formats/GGUF.md for what is inside a block). */
#include "kernels/backend.h"

const struct kvk_type_info kvk_types[KVK_N_TYPES] = {
	[KVK_F32] = { "f32", 1, 4, 0 },
	[KVK_F16] = { "f16", 1, 2, 0 },
	[KVK_BF16] = { "bf16", 1, 2, 0 },
	[KVK_I32] = { "i32", 1, 4, 1 },
	[KVK_U8] = { "u8", 1, 1, 1 },
	[KVK_Q4_0] = { "q4_0", 32, 18, 0 },
	[KVK_Q4_1] = { "q4_1", 32, 20, 0 },
	[KVK_Q5_0] = { "q5_0", 32, 22, 0 },
	[KVK_Q5_1] = { "q5_1", 32, 24, 0 },
	[KVK_Q8_0] = { "q8_0", 32, 34, 0 },
	[KVK_Q2_K] = { "q2_k", 256, 84, 0 },
	[KVK_Q3_K] = { "q3_k", 256, 110, 0 },
	[KVK_Q4_K] = { "q4_k", 256, 144, 0 },
	[KVK_Q5_K] = { "q5_k", 256, 176, 0 },
	[KVK_Q6_K] = { "q6_k", 256, 210, 0 },
};

const char *const kvk_precisions[KVK_N_PRECISIONS] = {
	[KVK_PRECISION_F32] = "f32",
	[KVK_PRECISION_BF16] = "bf16",
	[KVK_PRECISION_I16] = "i16",
	[KVK_PRECISION_AUTO] = "auto",
};
