/* SPDX-License-Identifier: MIT
 * Floats to the narrow types, rounded to nearest even. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static uint16_t
to_f16(float x)
{
#ifdef __F16C__
	return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
	uint32_t u, sign;
	float f;

	memcpy(&u, &x, sizeof u);
	sign = u >> 16 & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
	if (u >= 0x477ff000) /* 65520 rounds to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (u < 0x38800000) { /* subnormal: 0.5 has the same last place, 2^-24, so the sum is rounded there */
		memcpy(&f, &u, sizeof f);
		f += 0.5f;
		memcpy(&u, &f, sizeof u);
		return (uint16_t)(sign | (u - 0x3f000000));
	}
	return (uint16_t)(sign | (((u + 0xfff + (u >> 13 & 1)) >> 13) - (112 << 10)));
#endif
}

static void
pack_f32(const float *x, uint8_t *y, size_t n)
{
	if (n > 0)
		memmove(y, x, n * sizeof *x);
}

static void
pack_f16(const float *x, uint8_t *y, size_t n)
{
	size_t i = 0;
	uint16_t h;

#ifdef __F16C__
	for (; i + 8 <= n; i += 8)
		_mm_storeu_si128(
		    (__m128i *)(y + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
	for (; i < n; i++) {
		h = to_f16(x[i]);
		memcpy(y + 2 * i, &h, sizeof h);
	}
}

static void
pack_bf16(const float *x, uint8_t *y, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t u;
		uint16_t h;

		memcpy(&u, x + i, sizeof u);
		if ((u & 0x7fffffff) > 0x7f800000) /* a NaN must not round to infinity */
			h = (uint16_t)(u >> 16 | 0x40);
		else
			h = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
		memcpy(y + 2 * i, &h, sizeof h);
	}
}

cpu_pack_fn *const cpu_pack[KVK_N_TYPES] = {
	[KVK_F32] = pack_f32,
	[KVK_F16] = pack_f16,
	[KVK_BF16] = pack_bf16,
};
