/* SPDX-License-Identifier: MIT
 * Attention in fixed point with AVX2 and FMA: vpmaddwd multiplies sixteen pairs and adds the two products of each. */
#ifdef __x86_64__
#include "kernels/cpu/attention_i16.h"

#include <immintrin.h>
#include <string.h>

#define BAND   I16_BAND
#define BLOCK  I16_BLOCK
#define AVX2   __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) AVX2

INLINE float
lanes_sum(__m256 x)
{
	__m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

	a = _mm_add_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

INLINE float
lanes_max(__m256 x)
{
	__m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

	a = _mm_max_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

/* Eight rows of eight pairs become columns: y[p] the pairs p of all. */
INLINE void
turn(const int32_t *x, size_t ldx, int32_t *y, size_t ldy)
{
	__m256i a[8], b[8];

	for (size_t i = 0; i < 8; i++)
		a[i] = _mm256_loadu_si256((const __m256i *)(const void *)(x + i * ldx));
	for (int i = 0; i < 8; i += 2) {
		b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
		b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
	}
	for (int i = 0; i < 8; i += 4)
		for (int j = 0; j < 2; j++) {
			a[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + 2 + j]);
			a[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + 2 + j]);
		}
	for (size_t i = 0; i < 4; i++) {
		_mm256_storeu_si256((__m256i *)(void *)(y + i * ldy), _mm256_permute2x128_si256(a[i], a[i + 4], 0x20));
		_mm256_storeu_si256(
		    (__m256i *)(void *)(y + (i + 4) * ldy), _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
	}
}

/* to[d] = a[d], b[d] */
INLINE void
interleave(const int16_t *a, const int16_t *b, size_t Dv, int16_t *to)
{
	for (size_t d = 0; d < Dv; d += 8, to += 16) {
		const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a + d));
		const __m128i y = _mm_loadu_si128((const __m128i *)(const void *)(b + d));

		_mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi16(x, y));
		_mm_storeu_si128((__m128i *)(void *)(to + 8), _mm_unpackhi_epi16(x, y));
	}
}

/* Eight rows of x from row j on to work [8][Dv]; rows that are not there are zero. */
INLINE void
pack_eight(const float *x, size_t j, size_t n, size_t D, size_t Dv, int16_t *work, float *scale, size_t *bad,
    bool (*row)(const float *, size_t, size_t, int16_t *, float *))
{
	for (size_t i = j; i < j + 8; i++, work += Dv) {
		scale[i] = 0;
		if (i >= n)
			memset(work, 0, Dv * sizeof *work);
		else if (!row(x + i * D, D, Dv, work, scale + i) && *bad > i)
			*bad = i;
	}
}

AVX2 static void
pack(const float *k, const float *v, size_t n, size_t D, int16_t *work, const struct i16_block *to)
{
	const size_t Dv = I16_WIDTH(D);

	*to->bad = BLOCK;
	for (size_t j = 0; j < BLOCK; j += 8) {
		pack_eight(k, j, n, D, Dv, work, to->k_scale, to->bad, cpu_i16_row);
		for (size_t d = 0; d < Dv / 2; d += 8)
			turn((const int32_t *)(const void *)work + d, Dv / 2, (int32_t *)(void *)to->k + d * BLOCK + j,
			    BLOCK);
		pack_eight(v, j, n, D, Dv, work, to->v_scale, to->bad, cpu_i16_value);
		for (size_t i = 0; i < 8; i += 2)
			interleave(work + i * Dv, work + (i + 1) * Dv, Dv, to->v + (j + i) * Dv);
	}
}

/* Sums of six rows and sixteen columns. */
struct sums {
	int32_t at[BAND][2][8];
} __attribute__((aligned(32)));

/* ymm s and t += the pair at `address` times the columns in ymm12 and ymm13: two products, then two sums. */
#define PAIR(address, s, t) \
	"vpbroadcastd " address ", %%ymm14\n\t" \
	"vpmaddwd %%ymm14, %%ymm12, %%ymm15\n\t" \
	"vpmaddwd %%ymm14, %%ymm13, %%ymm14\n\t" \
	"vpaddd %%ymm15, %%ymm" #s ", %%ymm" #s "\n\t" \
	"vpaddd %%ymm14, %%ymm" #t ", %%ymm" #t "\n\t"

/* sum = the first steps > 0 pairs of six rows times as many rows of sixteen columns; a's rows, its pairs and w's rows
 * are row, step and ldw bytes apart.  Spelled out because the sums fill the registers: compilers move them about. */
INLINE void
multiply(const int16_t *a, size_t row, size_t step, const int16_t *w, size_t ldw, size_t steps, struct sums *sum)
{
	const char *upper = (const char *)a, *lower = upper + 3 * row;

	__asm__ volatile(
	    "vpxor %%ymm0, %%ymm0, %%ymm0\n\tvpxor %%ymm1, %%ymm1, %%ymm1\n\tvpxor %%ymm2, %%ymm2, %%ymm2\n\t"
	    "vpxor %%ymm3, %%ymm3, %%ymm3\n\tvpxor %%ymm4, %%ymm4, %%ymm4\n\tvpxor %%ymm5, %%ymm5, %%ymm5\n\t"
	    "vpxor %%ymm6, %%ymm6, %%ymm6\n\tvpxor %%ymm7, %%ymm7, %%ymm7\n\tvpxor %%ymm8, %%ymm8, %%ymm8\n\t"
	    "vpxor %%ymm9, %%ymm9, %%ymm9\n\tvpxor %%ymm10, %%ymm10, %%ymm10\n\tvpxor %%ymm11, %%ymm11, %%ymm11\n"
	    "1:\tvmovdqu (%[w]), %%ymm12\n\t"
	    "vmovdqu 32(%[w]), %%ymm13\n\t"
	    PAIR("(%[upper])", 0, 1)
	    PAIR("(%[upper],%[row])", 2, 3)
	    PAIR("(%[upper],%[row],2)", 4, 5)
	    PAIR("(%[lower])", 6, 7)
	    PAIR("(%[lower],%[row])", 8, 9)
	    PAIR("(%[lower],%[row],2)", 10, 11)
	    "add %[ldw], %[w]\n\tadd %[step], %[upper]\n\tadd %[step], %[lower]\n\tdec %[steps]\n\tjnz 1b\n\t"
	    "vmovdqa %%ymm0, (%[sum])\n\tvmovdqa %%ymm1, 32(%[sum])\n\tvmovdqa %%ymm2, 64(%[sum])\n\t"
	    "vmovdqa %%ymm3, 96(%[sum])\n\tvmovdqa %%ymm4, 128(%[sum])\n\tvmovdqa %%ymm5, 160(%[sum])\n\t"
	    "vmovdqa %%ymm6, 192(%[sum])\n\tvmovdqa %%ymm7, 224(%[sum])\n\tvmovdqa %%ymm8, 256(%[sum])\n\t"
	    "vmovdqa %%ymm9, 288(%[sum])\n\tvmovdqa %%ymm10, 320(%[sum])\n\tvmovdqa %%ymm11, 352(%[sum])"
	    : [upper] "+r"(upper), [lower] "+r"(lower), [w] "+r"(w), [steps] "+r"(steps)
	    : [row] "r"(row), [step] "r"(step), [ldw] "r"(ldw), [sum] "r"(sum)
	    : "cc", "memory", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10",
	    "ymm11", "ymm12", "ymm13", "ymm14", "ymm15");
}

/* Eight of the sums. */
INLINE __m256
sum_at(const struct sums *sum, size_t i, size_t half)
{
	return _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)sum->at[i][half]));
}

/* Scores of the first `wide` entries, and the largest of each row in lanes. */
INLINE void
meet_keys(const struct i16_band *b, const struct i16_block *block, size_t wide, __m256 top[BAND])
{
	for (int i = 0; i < BAND; i++)
		top[i] = _mm256_set1_ps(-INFINITY);
	for (size_t j = 0; j < wide; j += 16) {
		const __m256 k0 = _mm256_load_ps(block->k_scale + j), k1 = _mm256_load_ps(block->k_scale + j + 8);
		struct sums sum;

		multiply(b->q, 4, 4 * BAND, block->k + 2 * j, 4 * BLOCK, b->Dv / 2, &sum);
		for (size_t i = 0; i < BAND; i++) {
			const __m256 x = _mm256_mul_ps(sum_at(&sum, i, 0), k0);
			const __m256 y = _mm256_mul_ps(sum_at(&sum, i, 1), k1);

			_mm256_store_ps(b->s + i * BLOCK + j, x);
			_mm256_store_ps(b->s + i * BLOCK + j + 8, y);
			top[i] = _mm256_max_ps(top[i], _mm256_max_ps(x, y));
		}
	}
}

/* 2^t, t <= 0 or little above; not below 2^-120. */
INLINE __m256
power(__m256 t)
{
	static const float term[] = I16_POWER_TERMS;
	const __m256 to_int = _mm256_set1_ps(12582912.0f);
	__m256 whole, f, p = _mm256_set1_ps(term[0]);

	t = _mm256_max_ps(_mm256_set1_ps(-120), t);
	whole = _mm256_add_ps(t, to_int);
	f = _mm256_sub_ps(t, _mm256_sub_ps(whole, to_int));
	for (int i = 1; i < 6; i++)
		p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(term[i]));
	return _mm256_castsi256_ps(
	    _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(whole), 23)));
}

/* All ones in the lanes of entries j .. j + 7 that are seen. */
INLINE __m256
seen(size_t sees, size_t j)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)sees - (int)j), lane));
}

/* Scores s of a row become weights times the scales of their values.  edge: not all `wide` entries are seen. */
INLINE void
weigh_scores(const struct i16_band *b, size_t i, const float *scale, size_t wide, const bool edge, __m256 *heaviest,
    __m256 *sum)
{
	const __m256 c = _mm256_set1_ps(b->c[i]), m = _mm256_set1_ps(b->m[i]);
	float *s = b->s + i * BLOCK;
	__m256 l = _mm256_setzero_ps();

	*sum = *heaviest = l;
	for (size_t j = 0; j < wide; j += 8) {
		__m256 p = power(_mm256_fmsub_ps(_mm256_load_ps(s + j), c, m));

		if (edge)
			p = _mm256_and_ps(p, seen(b->sees[i], j));
		l = _mm256_add_ps(l, p);
		p = _mm256_mul_ps(p, _mm256_load_ps(scale + j));
		_mm256_store_ps(s + j, p);
		*sum = _mm256_add_ps(*sum, p);
		*heaviest = _mm256_max_ps(*heaviest, p);
	}
	b->l[i] += lanes_sum(l);
}

INLINE void
round_weights(const float *s, size_t wide, float f, int16_t *p)
{
	const __m256 all = _mm256_set1_ps(f);

	for (size_t j = 0; j < wide; j += 16) {
		const __m256i x = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(s + j), all));
		const __m256i y = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(s + j + 8), all));

		_mm256_store_si256(
		    (__m256i *)(void *)(p + j), _mm256_permute4x64_epi64(_mm256_packs_epi32(x, y), 0xd8));
	}
}

INLINE float
top_seen(const float *s, size_t sees)
{
	__m256 top = _mm256_set1_ps(-INFINITY);

	for (size_t j = 0; j < sees; j += 8)
		top = _mm256_max_ps(top, _mm256_blendv_ps(top, _mm256_load_ps(s + j), seen(sees, j)));
	return lanes_max(top);
}

INLINE void
weigh(const struct i16_band *b, size_t i, const struct i16_block *block, size_t wide, __m256 row_top)
{
	const size_t sees = b->sees[i];
	const float top = b->c[i] * (sees < wide ? top_seen(b->s + i * BLOCK, sees) : lanes_max(row_top));
	__m256 heaviest, sum;
	float most;

	if (!(top <= b->m[i]))
		i16_raise(b, i, top);
	if (sees < wide)
		weigh_scores(b, i, block->v_scale, wide, true, &heaviest, &sum);
	else
		weigh_scores(b, i, block->v_scale, wide, false, &heaviest, &sum);
	most = fmaxf(lanes_max(heaviest), lanes_sum(sum) / I16_SUM_TOPS);
	b->unit[i] = most >= I16_LEAST ? most / I16_WEIGHT_TOP : 0;
	round_weights(b->s + i * BLOCK, wide, most >= I16_LEAST ? I16_WEIGHT_TOP / most : 0, b->p + i * BLOCK);
}

INLINE void
meet_values(const struct i16_band *b, const struct i16_block *block, size_t wide)
{
	for (size_t d = 0; d < b->Dv; d += 16) {
		struct sums sum;

		multiply(b->p, 2 * BLOCK, 4, block->v + 2 * d, 4 * b->Dv, wide / 2, &sum);
		for (size_t i = 0; i < b->n; i++)
			for (size_t half = 0; half < 2; half++) {
				float *o = b->o + i * b->Dv + d + 8 * half;

				_mm256_storeu_ps(o, _mm256_fmadd_ps(sum_at(&sum, i, half),
				    _mm256_set1_ps(b->unit[i]), _mm256_loadu_ps(o)));
			}
	}
}

AVX2 static void
meet(const struct i16_band *b, const struct i16_block *block)
{
	const size_t wide = (b->sees[b->n - 1] + 15) / 16 * 16;
	__m256 top[BAND];

	meet_keys(b, block, wide, top);
	for (size_t i = 0; i < BAND; i++) {
		if (i < b->n && b->sees[i] > 0) {
			weigh(b, i, block, wide, top[i]);
			continue;
		}
		memset(b->p + i * BLOCK, 0, wide * sizeof *b->p);
		b->unit[i] = 0;
	}
	meet_values(b, block, wide);
}

static bool
works(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct i16_ops cpu_attention_avx2 = {
	.name = "avx2",
	.works = works,
	.pack = pack,
	.meet = meet,
};
#else
typedef int nothing; /* ISO C wants a declaration */
#endif
