/* SPDX-License-Identifier: MIT
 * Element types and the sizes of their blocks (GGUF's names; see formats/GGUF.md for what is inside a block). */
#include "kernels/backend.h"

const struct kvk_type_info kvk_types[KVK_N_TYPES] = {
	[KVK_F32] = { "f32", 1, 4 },
	[KVK_F16] = { "f16", 1, 2 },
	[KVK_BF16] = { "bf16", 1, 2 },
	[KVK_I32] = { "i32", 1, 4 },
	[KVK_U8] = { "u8", 1, 1 },
	[KVK_Q4_0] = { "q4_0", 32, 18 },
	[KVK_Q4_1] = { "q4_1", 32, 20 },
	[KVK_Q5_0] = { "q5_0", 32, 22 },
	[KVK_Q5_1] = { "q5_1", 32, 24 },
	[KVK_Q8_0] = { "q8_0", 32, 34 },
	[KVK_Q2_K] = { "q2_k", 256, 84 },
	[KVK_Q3_K] = { "q3_k", 256, 110 },
	[KVK_Q4_K] = { "q4_k", 256, 144 },
	[KVK_Q5_K] = { "q5_k", 256, 176 },
	[KVK_Q6_K] = { "q6_k", 256, 210 },
};
