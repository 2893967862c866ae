/* SPDX-License-Identifier: MIT
 * Half floats, as the machine that the file is compiled for can. */
#ifndef KVK_CPU_HALF_H
#define KVK_CPU_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

/* IEEE 754 binary16 at any address: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static inline float
half_at(const uint8_t *x)
{
	uint16_t h;

	memcpy(&h, x, sizeof h);
#ifdef __F16C__
	return _cvtsh_ss(h);
#else
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
	uint32_t u;
	float f;

	if (e == 0)
		return sign ? (float)m * -0x1p-24f : (float)m * 0x1p-24f;
	u = sign | (e < 31 ? (e + 112) << 23 | m << 13 : 0x7f800000 | m << 13 | (m ? 0x400000 : 0));
	memcpy(&f, &u, sizeof f);
	return f;
#endif
}

#endif
