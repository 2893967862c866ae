/* SPDX-License-Identifier: MIT
 * What the lanes of a warp compute together, from the definitions: CUDA's programming guide for shuffles, votes and
 * reductions; the PTX ISA's tables of registers over lanes for mma.m16n8k16 and ldmatrix.
 */
#include "block.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

int
kv_shim_do_shuffle(void *const *lanes, unsigned mask)
{
	for (unsigned l = 0; l < LANES; l++) {
		struct kv_shim_shuffle *s = (struct kv_shim_shuffle *)lanes[l];

		if (!(mask >> l & 1u))
			continue;
		if (s->from < 0 || s->from >= LANES || !(mask >> s->from & 1u))
			return (int)l;
		s->result = ((const struct kv_shim_shuffle *)lanes[s->from])->value;
	}
	return -1;
}

int
kv_shim_do_ballot(void *const *lanes, unsigned mask)
{
	unsigned result = 0;

	for (unsigned l = 0; l < LANES; l++)
		if ((mask >> l & 1u) && ((const struct kv_shim_ballot *)lanes[l])->predicate)
			result |= 1u << l;
	for (unsigned l = 0; l < LANES; l++)
		if (mask >> l & 1u)
			((struct kv_shim_ballot *)lanes[l])->result = result;
	return -1;
}

int
kv_shim_do_match(void *const *lanes, unsigned mask)
{
	for (unsigned l = 0; l < LANES; l++) {
		struct kv_shim_match *m = (struct kv_shim_match *)lanes[l];

		if (!(mask >> l & 1u))
			continue;
		m->result = 0;
		for (unsigned o = 0; o < LANES; o++)
			if ((mask >> o & 1u) && ((const struct kv_shim_match *)lanes[o])->value == m->value)
				m->result |= 1u << o;
	}
	return -1;
}

static unsigned
reduce(enum kv_shim_reduce_how how, unsigned a, unsigned b)
{
	switch (how) {
	case KV_SHIM_ADD:
		return a + b;
	case KV_SHIM_MIN:
		return (int)b < (int)a ? b : a;
	case KV_SHIM_MAX:
		return (int)b > (int)a ? b : a;
	case KV_SHIM_UMIN:
		return b < a ? b : a;
	case KV_SHIM_UMAX:
		return b > a ? b : a;
	case KV_SHIM_AND_BITS:
		return a & b;
	case KV_SHIM_OR_BITS:
		return a | b;
	case KV_SHIM_XOR_BITS:
		break;
	}
	return a ^ b;
}

int
kv_shim_do_reduce(void *const *lanes, unsigned mask)
{
	const unsigned first = (unsigned)__builtin_ctz(mask);
	unsigned result = ((const struct kv_shim_reduce *)lanes[first])->value;

	for (unsigned l = first + 1; l < LANES; l++) {
		const struct kv_shim_reduce *r = (const struct kv_shim_reduce *)lanes[l];

		if (mask >> l & 1u)
			result = reduce(r->how, result, r->value);
	}
	for (unsigned l = 0; l < LANES; l++)
		if (mask >> l & 1u)
			((struct kv_shim_reduce *)lanes[l])->result = result;
	return -1;
}

static float
from_bf16(uint32_t x)
{
	const uint32_t bits = x << 16;
	float y;

	memcpy(&y, &bits, sizeof(y));
	return y;
}

static float
from_f16(uint32_t x)
{
	__half_raw h;

	h.x = (unsigned short)x;
	return __half2float(__half(h));
}

/* c [16][8] += a [16][16] b [16][8]; a register has two neighbours, the lower column of a or
 * row of b in its low half */
template <float (*widen)(uint32_t)>
static int
mma(void *const *lanes)
{
	float a[16][16], b[16][8], c[16][8];

	for (unsigned l = 0; l < LANES; l++) {
		const struct kv_shim_mma *m = (const struct kv_shim_mma *)lanes[l];
		const unsigned g = l / 4, t = l % 4;

		for (unsigned i = 0; i < 4; i++) {
			const unsigned row = g + 8 * (i % 2), col = 2 * t + 8 * (i / 2);

			a[row][col] = widen(m->a[i] & 0xffffu);
			a[row][col + 1] = widen(m->a[i] >> 16);
		}
		for (unsigned i = 0; i < 2; i++) {
			b[2 * t + 8 * i][g] = widen(m->b[i] & 0xffffu);
			b[2 * t + 8 * i + 1][g] = widen(m->b[i] >> 16);
		}
		for (unsigned i = 0; i < 4; i++)
			c[g + 8 * (i / 2)][2 * t + i % 2] = m->c[i];
	}
	for (unsigned i = 0; i < 16; i++)
		for (unsigned k = 0; k < 16; k++)
			for (unsigned j = 0; j < 8; j++)
				c[i][j] += a[i][k] * b[k][j];
	for (unsigned l = 0; l < LANES; l++)
		for (unsigned i = 0; i < 4; i++)
			((const struct kv_shim_mma *)lanes[l])->c[i] = c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
	return -1;
}

int
kv_shim_do_mma_bf16(void *const *lanes, unsigned mask)
{
	(void)mask;
	return mma<from_bf16>(lanes);
}

int
kv_shim_do_mma_f16(void *const *lanes, unsigned mask)
{
	(void)mask;
	return mma<from_f16>(lanes);
}

/* Lane l's row is row l % 8 of matrix l / 8. */
int
kv_shim_do_ldmatrix(void *const *lanes, unsigned mask)
{
	(void)mask;
	for (unsigned l = 0; l < LANES; l++)
		for (unsigned i = 0; i < 4; i++) {
			const uint16_t *row = ((const struct kv_shim_rows *)lanes[8 * i + l / 4])->row;

			((const struct kv_shim_rows *)lanes[l])->r[i] =
			    row[2 * (l % 4)] | (uint32_t)row[2 * (l % 4) + 1] << 16;
		}
	return -1;
}

int
kv_shim_do_ldmatrix_t(void *const *lanes, unsigned mask)
{
	(void)mask;
	for (unsigned l = 0; l < LANES; l++)
		for (unsigned i = 0; i < 4; i++) {
			const unsigned r = 8 * i + 2 * (l % 4);
			const uint16_t *low = ((const struct kv_shim_rows *)lanes[r])->row;
			const uint16_t *high = ((const struct kv_shim_rows *)lanes[r + 1])->row;

			((const struct kv_shim_rows *)lanes[l])->r[i] = low[l / 4] | (uint32_t)high[l / 4] << 16;
		}
	return -1;
}
