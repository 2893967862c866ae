/* SPDX-License-Identifier: MIT
 * What has a name: element types with the sizes of their blocks (GGUF's names; see formats/GGUF.md for what is inside
 * a block), precisions, and the functions of a backend's table. */
#include "kernels/backend.h"

#include <assert.h>

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

#define OP(op) .name = #op, .offset = offsetof(struct kvk_backend, op)

const struct kvk_op kvk_ops[] = {
	{ OP(products) },
	{ OP(describe), .basic = 1 },
	{ OP(open), .basic = 1 },
	{ OP(close), .basic = 1 },
	{ OP(error), .basic = 1 },
	{ OP(precision), .basic = 1 },
	{ OP(alloc), .basic = 1 },
	{ OP(free), .basic = 1 },
	{ OP(view), .basic = 1 },
	{ OP(unview), .basic = 1 },
	{ OP(put), .basic = 1 },
	{ OP(get), .basic = 1 },
	{ OP(get_as), .basic = 1 },
	{ OP(wait), .basic = 1 },
	{ OP(copy_rows), .basic = 1 },
	{ OP(room), .basic = 1 },
	{ OP(weight_open) },
	{ OP(weight_close) },
	{ OP(rows) },
	{ OP(linear), .product = 1 },
	{ OP(rms_norm) },
	{ OP(silu_mul) },
	{ OP(heads) },
	{ OP(attention) },
	{ OP(scores) },
	{ OP(reduce_heads) },
	{ OP(row_moments) },
	{ OP(forms) },
	{ OP(pool) },
	{ OP(select) },
	{ OP(finite) },
	{ OP(host_alloc) },
	{ OP(host_free) },
	{ OP(fetch) },
	{ OP(arrive) },
	{ OP(card) },
	{ OP(use) },
	{ OP(lend) },
	{ OP(borrow) },
	{ OP(unborrow) },
	{ OP(product), .product = 1 },
	{ OP(linear_rows), .product = 1 },
	{ OP(linear_back), .product = 1 },
	{ OP(rms_norm_back) },
	{ OP(silu_mul_back) },
	{ OP(heads_back) },
	{ OP(behind) },
	{ OP(behind_back) },
};
static_assert(sizeof kvk_ops / sizeof *kvk_ops == KVK_N_OPS, "a row for every function of the table");
