/* SPDX-License-Identifier: MIT
 * roof [THREADS] - how fast this machine multiplies: the best rate of several tries, TSV of name and GFLOP/s.
 *
 *	f32-fma       multiply-adds between registers, AVX2: no library can be faster without wider vectors
 *	i16-madd      16-bit integer products with 32-bit sums between registers, AVX2; an operation counts as a FLOP
 *	f32-onednn    oneDNN's sgemm of 2048 x 2048 x 2048
 *	bf16-onednn   the same with bf16 factors and f32 sums, on processors that have such an instruction
 *
 * What the machine lacks is printed as -.
 */
#include <dnnl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "lib/clock.h"

#define SIZE  2048
#define TRIES 7
#define LOOPS 20000000 /* of a register kernel: a tenth of a second or so */

/* ---- between registers */

#ifdef __x86_64__
/* 12 independent sums: more than the latency of two units needs. */
#define SUMS 12

__attribute__((target("avx2,fma"))) static double
f32_loop(void)
{
	__m256 sum[SUMS], a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(1e-9f);
	float out[8];

	for (int s = 0; s < SUMS; s++)
		sum[s] = _mm256_set1_ps((float)s);
	for (long i = 0; i < LOOPS; i++) {
		__asm__ volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 12
		for (int s = 0; s < SUMS; s++)
			sum[s] = _mm256_fmadd_ps(a, b, sum[s]);
	}
	for (int s = 1; s < SUMS; s++)
		sum[0] = _mm256_add_ps(sum[0], sum[s]);
	_mm256_storeu_ps(out, sum[0]);
	return (double)out[0];
}

__attribute__((target("avx2"))) static double
i16_loop(void)
{
	__m256i sum[SUMS], a = _mm256_set1_epi16(1), b = _mm256_set1_epi16(3);
	int32_t out[8];

	for (int s = 0; s < SUMS; s++)
		sum[s] = _mm256_set1_epi32(s);
	for (long i = 0; i < LOOPS; i++) {
#pragma GCC unroll 12
		for (int s = 0; s < SUMS; s++) {
			__asm__ volatile("" : "+x"(a), "+x"(b));
			sum[s] = _mm256_add_epi32(sum[s], _mm256_madd_epi16(a, b));
		}
	}
	for (int s = 1; s < SUMS; s++)
		sum[0] = _mm256_add_epi32(sum[0], sum[s]);
	_mm256_storeu_si256((__m256i *)out, sum[0]);
	return (double)out[0];
}

static const struct {
	const char *name;
	double (*loop)(void);
	double flop; /* of one call */
} loops[] = {
	{ "f32-fma", f32_loop, 2.0 * 8 * SUMS * LOOPS },
	{ "i16-madd", i16_loop, 2.0 * 16 * SUMS * LOOPS },
};
#define N_LOOPS (sizeof loops / sizeof loops[0])

static void *
run_loop(void *which)
{
	static volatile double sink;

	sink = loops[*(size_t *)which].loop();
	return (void *)&sink;
}

static double
loop_rate(size_t which, int threads)
{
	pthread_t *t = calloc((size_t)threads, sizeof *t);
	double best = 0;

	for (int i = 0; i < TRIES && t != NULL; i++) {
		const double from = kv_seconds();
		double rate;
		int started = 0;

		while (started < threads && pthread_create(&t[started], NULL, run_loop, &which) == 0)
			started++;
		for (int k = 0; k < started; k++)
			pthread_join(t[k], NULL);
		rate = started * loops[which].flop / (kv_seconds() - from) / 1e9;
		best = rate > best ? rate : best;
	}
	free(t);
	return best;
}

static void
print_loops(int threads)
{
	const int has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");

	for (size_t i = 0; i < N_LOOPS; i++)
		if (has)
			printf("%s\t%.1f\n", loops[i].name, loop_rate(i, threads));
		else
			printf("%s\t-\n", loops[i].name);
}

static int
has_bf16(void)
{
	return __builtin_cpu_supports("avx512bf16");
}
#else
static void
print_loops(int threads)
{
	(void)threads;
	printf("f32-fma\t-\ni16-madd\t-\n");
}

static int
has_bf16(void)
{
	return 0;
}
#endif

/* ---- oneDNN */

static double
sgemm_rate(const float *a, const float *b, float *c)
{
	double best = 0;

	for (int i = 0; i < TRIES; i++) {
		const double from = kv_seconds();
		double rate;

		if (dnnl_sgemm('N', 'T', SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE) != dnnl_success)
			return 0;
		rate = 2.0 * SIZE * SIZE * SIZE / (kv_seconds() - from) / 1e9;
		best = rate > best ? rate : best;
	}
	return best;
}

#if DNNL_VERSION_MAJOR == 2
struct matmul {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t run;
	dnnl_memory_t memory[3];
};

static int
open_matmul(struct matmul *m, void *const data[3])
{
	static const dnnl_dims_t dims = { SIZE, SIZE };
	static const dnnl_data_type_t types[3] = { dnnl_bf16, dnnl_bf16, dnnl_f32 };
	static const dnnl_format_tag_t tags[3] = { dnnl_ab, dnnl_ba, dnnl_ab };
	dnnl_memory_desc_t md[3];
	dnnl_matmul_desc_t d;

	if (dnnl_engine_create(&m->engine, dnnl_cpu, 0) != dnnl_success ||
	    dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags) != dnnl_success)
		return -1;
	for (int i = 0; i < 3; i++)
		if (dnnl_memory_desc_init_by_tag(&md[i], 2, dims, types[i], tags[i]) != dnnl_success ||
		    dnnl_memory_create(&m->memory[i], &md[i], m->engine, data[i]) != dnnl_success)
			return -1;
	if (dnnl_matmul_desc_init(&d, &md[0], &md[1], NULL, &md[2]) != dnnl_success ||
	    dnnl_primitive_desc_create(&m->desc, &d, NULL, m->engine, NULL) != dnnl_success ||
	    dnnl_primitive_create(&m->run, m->desc) != dnnl_success)
		return -1;
	return 0;
}

static void
close_matmul(struct matmul *m)
{
	dnnl_primitive_destroy(m->run);
	dnnl_primitive_desc_destroy(m->desc);
	for (int i = 0; i < 3; i++)
		dnnl_memory_destroy(m->memory[i]);
	dnnl_stream_destroy(m->stream);
	dnnl_engine_destroy(m->engine);
}

/* a, b: any bytes that are bf16 numbers. */
static double
bf16_rate(void *a, void *b, void *c)
{
	struct matmul m = { 0 };
	double best = 0;

	if (open_matmul(&m, (void *const[]){ a, b, c }) == 0)
		for (int i = 0; i < TRIES; i++) {
			const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, m.memory[0] },
				{ DNNL_ARG_WEIGHTS, m.memory[1] }, { DNNL_ARG_DST, m.memory[2] } };
			const double from = kv_seconds();
			double rate;

			if (dnnl_primitive_execute(m.run, m.stream, 3, args) != dnnl_success ||
			    dnnl_stream_wait(m.stream) != dnnl_success)
				break;
			rate = 2.0 * SIZE * SIZE * SIZE / (kv_seconds() - from) / 1e9;
			best = rate > best ? rate : best;
		}
	close_matmul(&m);
	return best;
}
#else
static double
bf16_rate(void *a, void *b, void *c)
{
	(void)a, (void)b, (void)c;
	return 0;
}
#endif

static void
print_rate(const char *name, double rate)
{
	if (rate > 0)
		printf("%s\t%.1f\n", name, rate);
	else
		printf("%s\t-\n", name);
}

int
main(int argc, char **argv)
{
	const long threads = argc > 1 ? strtol(argv[1], NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
	const size_t n = (size_t)SIZE * SIZE;
	float *a, *b, *c;
	char text[32];

	if (threads < 1 || threads > 4096) {
		fprintf(stderr, "usage: roof [THREADS]\n");
		return 2;
	}
	snprintf(text, sizeof text, "%ld", threads);
	setenv("OMP_NUM_THREADS", text, 1); /* read when oneDNN makes its first team */
	a = calloc(3 * n, sizeof *a);
	if (a == NULL)
		return 1;
	b = a + n;
	c = b + n;
	for (size_t i = 0; i < 2 * n; i++)
		a[i] = (float)(i % 7) - 3;
	print_loops((int)threads);
	print_rate("f32-onednn", sgemm_rate(a, b, c));
	memset(a, 0x3c, 2 * n * sizeof *a); /* bf16 0x3c3c, which is 0.0115 */
	print_rate("bf16-onednn", has_bf16() ? bf16_rate(a, b, c) : 0);
	free(a);
	return fflush(stdout) == 0 ? 0 : 1;
}
