/* SPDX-License-Identifier: MIT
 * Every warp function and barrier against its definition, under every schedule.
 */
#include "case.h"

enum { WARPS = 3, THREADS = 32 * WARPS, WIDTHS = 5, STEPS = 33 };

/* out [WIDTHS][STEPS][4][THREADS]: shfl, up, down, xor */
KV_KERNEL(THREADS)
shuffles(int *out)
{
	const unsigned t = threadIdx.x;
	const int value = (int)t * 7 + 1;

	for (int w = 0; w < WIDTHS; w++)
		for (int s = 0; s < STEPS; s++) {
			int *at = out + (size_t)(w * STEPS + s) * 4 * THREADS + t;

			at[0 * THREADS] = __shfl_sync(KV_FULL, value, s, 2 << w);
			at[1 * THREADS] = __shfl_up_sync(KV_FULL, value, (unsigned)s, 2 << w);
			at[2 * THREADS] = __shfl_down_sync(KV_FULL, value, (unsigned)s, 2 << w);
			at[3 * THREADS] = __shfl_xor_sync(KV_FULL, value, s % 32, 2 << w);
		}
}

/* The lane that lane l reads; a group is `width` lanes. */
static int
source(int what, int l, int s, int width)
{
	const int group = l / width, in = l % width;

	switch (what) {
	case 0:
		return group * width + s % width;
	case 1:
		return in >= s ? l - s : l;
	case 2:
		return in + s < width ? l + s : l;
	}
	return (l ^ s % 32) / width > group ? l : l ^ s % 32;
}

static void
test_shuffles(void **state)
{
	const size_t n = (size_t)WIDTHS * STEPS * 4 * THREADS;
	int *out = put<int>(NULL, n), *host = (int *)malloc(n * sizeof(int));

	(void)state;
	OK(KV_LAUNCH(shuffles, 1, THREADS, 0, NULL, out));
	take(host, out, n);
	for (int w = 0, i = 0; w < WIDTHS; w++)
		for (int s = 0; s < STEPS; s++)
			for (int what = 0; what < 4; what++)
				for (int t = 0; t < THREADS; t++, i++)
					assert_int_equal(
					    host[i], (t / 32 * 32 + source(what, t % 32, s, 2 << w)) * 7 + 1);
	free(host);
}

struct wide {
	double d;
	unsigned long long u;
	float f;
	int h, b;
};

KV_KERNEL(32)
shuffle_types(struct wide *out)
{
	const int l = (int)threadIdx.x;

	out[l].d = __shfl_xor_sync(KV_FULL, l * 0.1, 3);
	out[l].u = __shfl_xor_sync(KV_FULL, (unsigned long long)l << 40, 3);
	out[l].f = __shfl_xor_sync(KV_FULL, (float)l, 3);
	out[l].h = (int)__half2float(__shfl_xor_sync(KV_FULL, __float2half((float)l), 3));
	out[l].b = (int)__bfloat162float(__shfl_xor_sync(KV_FULL, __float2bfloat16((float)l), 3));
}

static void
test_shuffle_types(void **state)
{
	struct wide *out = put<struct wide>(NULL, 32), host[32];

	(void)state;
	OK(KV_LAUNCH(shuffle_types, 1, 32, 0, NULL, out));
	take(host, out, 32);
	for (int l = 0; l < 32; l++) {
		const int o = l ^ 3;

		assert_true(host[l].d == o * 0.1 && host[l].u == (unsigned long long)o << 40 && host[l].f == (float)o);
		assert_true(host[l].h == o && host[l].b == o);
	}
}

/* Votes of two halves that go separate ways, then of all; out [8][32] */
KV_KERNEL(32)
votes(unsigned *out)
{
	const unsigned l = threadIdx.x, group = l < 16 ? 0xffffu : 0xffff0000u;

	if (l < 16)
		out[l] = __ballot_sync(group, l % 3 == 0);
	else
		out[l] = __ballot_sync(group, l % 5 == 0);
	out[32 + l] = __ballot_sync(KV_FULL, l & 1);
	out[64 + l] = (unsigned)__any_sync(KV_FULL, l == 31) | (unsigned)__any_sync(KV_FULL, 0) << 1;
	out[96 + l] = (unsigned)__all_sync(KV_FULL, l < 32) | (unsigned)__all_sync(KV_FULL, l != 7) << 1;
	out[128 + l] = __match_any_sync(KV_FULL, l % 4);
	out[160 + l] = (unsigned)__reduce_add_sync(KV_FULL, -(int)l) + __reduce_xor_sync(KV_FULL, l * l);
	out[192 + l] = (unsigned)__reduce_min_sync(KV_FULL, 5 - (int)l) + __reduce_max_sync(KV_FULL, l * 3);
	out[224 + l] = __reduce_or_sync(group, 1u << l) ^ __reduce_and_sync(group, ~(1u << l));
}

static void
test_votes(void **state)
{
	unsigned *out = put<unsigned>(NULL, 256), host[256], low = 0, high = 0, squares = 0;

	(void)state;
	OK(KV_LAUNCH(votes, 1, 32, 0, NULL, out));
	take(host, out, 256);
	for (unsigned l = 0; l < 32; l++) {
		low |= l < 16 && l % 3 == 0 ? 1u << l : 0;
		high |= l >= 16 && l % 5 == 0 ? 1u << l : 0;
		squares ^= l * l;
	}
	for (unsigned l = 0; l < 32; l++) {
		const unsigned group = l < 16 ? 0xffffu : 0xffff0000u;

		assert_int_equal(host[l], l < 16 ? low : high);
		assert_int_equal(host[32 + l], 0xaaaaaaaau);
		assert_int_equal(host[64 + l], 1);
		assert_int_equal(host[96 + l], 1);
		assert_int_equal(host[128 + l], 0x11111111u << l % 4);
		assert_int_equal(host[160 + l], (unsigned)-496 + squares);
		assert_int_equal(host[192 + l], (unsigned)(5 - 31) + 93u);
		assert_int_equal(host[224 + l], group ^ ~group);
	}
}

/* Through shared memory backwards, several times; and the barriers that count. */
KV_KERNEL(THREADS)
barriers(int *out, int *counts)
{
	KV_SHARED(int, tile, [2][THREADS]);
	const int t = (int)threadIdx.x;
	int x = t + (int)blockIdx.x;

	for (int round = 0; round < 5; round++) {
		tile[round % 2][t] = x;
		__syncthreads();
		x = tile[round % 2][(t + 40) % THREADS] + 1;
	}
	out[blockIdx.x * THREADS + t] = x;
	x = __syncthreads_count(t % 3 == 0) + 1000 * __syncthreads_and(t >= 0) + 2000 * __syncthreads_and(t > 0);
	counts[blockIdx.x * THREADS + t] = x + 4000 * __syncthreads_or(t == 5) + 8000 * __syncthreads_or(t < 0);
}

static void
test_barriers(void **state)
{
	enum { BLOCKS = 7 };
	int *out = put<int>(NULL, BLOCKS * THREADS), *counts = put<int>(NULL, BLOCKS * THREADS);
	int host[BLOCKS * THREADS];

	(void)state;
	OK(KV_LAUNCH(barriers, BLOCKS, THREADS, 0, NULL, out, counts));
	take(host, out, BLOCKS * THREADS);
	for (int i = 0; i < BLOCKS * THREADS; i++)
		assert_int_equal(host[i], (i % THREADS + 200) % THREADS + i / THREADS + 5);
	take(host, counts, BLOCKS * THREADS);
	for (int i = 0; i < BLOCKS * THREADS; i++)
		assert_int_equal(host[i], THREADS / 3 + 1000 + 4000);
}

/* ---- matrices */
static float
value(int i)
{
	return (float)(i * 37 % 64 - 32) / 8; /* exact in bf16 and f16 */
}

KV_KERNEL(32)
products(float *c, const uint32_t *a, const uint32_t *b, bool is_bf16)
{
	const unsigned l = threadIdx.x;
	uint32_t ra[4], rb[2];
	float rc[4];

	for (int i = 0; i < 4; i++) {
		ra[i] = a[l * 4 + i];
		rc[i] = c[l * 4 + i];
	}
	for (int i = 0; i < 2; i++)
		rb[i] = b[l * 2 + i];
	if (is_bf16)
		ptx_mma_bf16(rc, ra, rb);
	else
		ptx_mma_f16(rc, ra, rb);
	for (int i = 0; i < 4; i++)
		c[l * 4 + i] = rc[i];
}

static uint32_t
pack(bool is_bf16, float low, float high)
{
	uint16_t x[2];

	if (is_bf16) {
		const __nv_bfloat16 y[2] = { __float2bfloat16(low), __float2bfloat16(high) };

		memcpy(x, (const void *)y, sizeof(x));
	} else {
		const __half y[2] = { __float2half(low), __float2half(high) };

		memcpy(x, (const void *)y, sizeof(x));
	}
	return x[0] | (uint32_t)x[1] << 16;
}

/* a [16][16], b [16][8], c [16][8] into registers and back, by the table in kernels/cuda/ptx.h. */
static void
check_mma(bool is_bf16)
{
	uint32_t a[128], b[64];
	float c[128];

	for (int l = 0; l < 32; l++) {
		const int g = l / 4, t = l % 4;
		const int rows[4] = { g, g + 8, g, g + 8 }, cols[4] = { 2 * t, 2 * t, 2 * t + 8, 2 * t + 8 };

		for (int i = 0; i < 4; i++) {
			const int at = rows[i] * 16 + cols[i];

			a[l * 4 + i] = pack(is_bf16, value(at), value(at + 1));
			c[l * 4 + i] = (float)((g + 8 * (i / 2)) * 8 + 2 * t + i % 2);
		}
		for (int i = 0; i < 2; i++)
			b[l * 2 + i] =
			    pack(is_bf16, value((2 * t + 8 * i) * 8 + g + 5), value((2 * t + 8 * i + 1) * 8 + g + 5));
	}

	float *dc = put(c, 128);
	uint32_t *da = put(a, 128), *db = put(b, 64);

	OK(KV_LAUNCH(products, 1, 32, 0, NULL, dc, da, db, is_bf16));
	OK(cudaFree(da));
	OK(cudaFree(db));
	take(c, dc, 128);
	for (int l = 0; l < 32; l++)
		for (int i = 0; i < 4; i++) {
			const int row = l / 4 + 8 * (i / 2), col = 2 * (l % 4) + i % 2;
			double want = row * 8 + col;

			for (int k = 0; k < 16; k++)
				want += (double)value(row * 16 + k) * value(k * 8 + col + 5);
			assert_true(c[l * 4 + i] == (float)want);
		}
}

static void
test_mma(void **state)
{
	(void)state;
	check_mma(true);
	check_mma(false);
}

KV_KERNEL(32)
loads(uint32_t *out)
{
	KV_SHARED(uint16_t, tile, [4][8][8]);
	const unsigned l = threadIdx.x;
	uint32_t r[4], turned[4];

	for (unsigned i = l; i < 256; i += 32)
		tile[i / 64][i / 8 % 8][i % 8] = (uint16_t)i;
	__syncwarp();
	ptx_ldmatrix(r, tile[l / 8][l % 8]);
	ptx_ldmatrix_t(turned, tile[l / 8][l % 8]);
	for (unsigned i = 0; i < 4; i++) {
		out[l * 8 + i] = r[i];
		out[l * 8 + 4 + i] = turned[i];
	}
}

static void
test_ldmatrix(void **state)
{
	uint32_t *out = put<uint32_t>(NULL, 256), host[256];

	(void)state;
	OK(KV_LAUNCH(loads, 1, 32, 0, NULL, out));
	take(host, out, 256);
	for (unsigned l = 0; l < 32; l++)
		for (unsigned i = 0; i < 4; i++) {
			const unsigned first = i * 64 + l / 4 * 8 + 2 * (l % 4);
			const unsigned turned = i * 64 + 2 * (l % 4) * 8 + l / 4;

			assert_int_equal(host[l * 8 + i], first | (first + 1) << 16);
			assert_int_equal(host[l * 8 + 4 + i], turned | (turned + 8) << 16);
		}
}

/* Two groups on their way; out [2][128]: after the first and after both.  The last copy is cut to 4 bytes. */
KV_KERNEL(32)
copies(uint32_t *out, const uint32_t *in)
{
	KV_SHARED(uint4, tile, [2][32]);
	const unsigned t = threadIdx.x;
	const uint32_t *words = (const uint32_t *)&tile[0][0];

	ptx_copy_async(&tile[0][t], in + t * 4, 16);
	ptx_copy_commit();
	ptx_copy_async(&tile[1][t], in + 128 + t * 4, t == 31 ? 4 : 16);
	ptx_copy_commit();
	ptx_copy_wait<1>();
	__syncthreads();
	for (unsigned i = 0; i < 4; i++)
		out[t * 4 + i] = words[(t ^ 1) * 4 + i] + words[128 + t * 4 + i];
	ptx_copy_wait<0>();
	__syncthreads();
	for (unsigned i = 0; i < 4; i++)
		out[128 + t * 4 + i] = words[128 + (t ^ 1) * 4 + i];
}

static void
test_copies(void **state)
{
	uint32_t in[256], host[256];

	(void)state;
	for (unsigned i = 0; i < 256; i++)
		in[i] = i * i;

	uint32_t *din = put(in, 256), *out = put<uint32_t>(NULL, 256);

	OK(KV_LAUNCH(copies, 1, 32, 0, NULL, out, din));
	OK(cudaFree(din));
	take(host, out, 256);
	for (unsigned i = 0; i < 128; i++) {
		assert_int_equal(host[i], (i ^ 4) * (i ^ 4) + 0xffffffffu); /* the second group: not there yet */
		assert_int_equal(host[128 + i], i >= 121 && i < 124 ? 0 : (128 + (i ^ 4)) * (128 + (i ^ 4)));
	}
}

/* ---- arithmetic */
KV_KERNEL(64)
sums(int *i, unsigned *u, unsigned long long *w, float *f, double *d)
{
	const unsigned t = threadIdx.x + blockIdx.x * 64;

	atomicAdd(&i[0], -(int)t);
	atomicMin(&i[1], (int)t - 5);
	atomicMax(&i[2], (int)t - 5);
	atomicAdd(&u[0], t);
	atomicOr(&u[1], 1u << t % 32);
	atomicAnd(&u[2], ~(1u << t % 16));
	atomicCAS(&u[3], t, t + 1);
	atomicAdd(&w[0], (unsigned long long)t << 32);
	atomicMax(&w[1], (unsigned long long)t << 32);
	atomicAdd(f, 0.5f);
	atomicAdd(d, 0.25);
}

static void
test_atomics(void **state)
{
	int i[3] = {};
	unsigned u[4] = { 0, 0, ~0u, 0 };
	unsigned long long w[2] = {};
	float f = 0;
	double d = 0;

	(void)state;

	int *di = put(i, 3);
	unsigned *du = put(u, 4);
	unsigned long long *dw = put(w, 2);
	float *df = put(&f, 1);
	double *dd = put(&d, 1);

	OK(KV_LAUNCH(sums, 2, 64, 0, NULL, di, du, dw, df, dd));
	take(i, di, 3);
	take(u, du, 4);
	take(w, dw, 2);
	take(&f, df, 1);
	take(&d, dd, 1);
	assert_true(i[0] == -8128 && i[1] == -5 && i[2] == 122);
	assert_true(u[0] == 8128 && u[1] == ~0u && u[2] == 0xffff0000u && u[3] >= 1);
	assert_true(w[0] == 8128ull << 32 && w[1] == 127ull << 32 && f == 64.0f && d == 32.0);
}

static void
test_arithmetic(void **state)
{
	(void)state;
	assert_true(__popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __ffs(0) == 0);
	assert_true(__brev(1) == 0x80000000u && __brevll(2) == 1ull << 62 && __clzll(1) == 63 && __popcll(~0ull) == 64);
	assert_true(__float_as_uint(1.0f) == 0x3f800000u && __int_as_float(0x40000000) == 2.0f);
	assert_true(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.5f) == -2 && __float2int_rd(-2.5f) == -3);
	assert_true(__float2int_rn(1e20f) == 2147483647 && __float2uint_rz(-1.0f) == 0 && __float2int_rz(NAN) == 0);
	assert_true(__byte_perm(0x33221100u, 0x77665544u, 0x7401u) == 0x77440011u && __umulhi(1u << 31, 6) == 3);
	assert_true(__funnelshift_l(0x80000000u, 1, 1) == 3 && __dp4a(0x01ff0203, 0x01010101, 10) == 15);
	assert_true(min(-1, 2) == -1 && max(3u, 2u) == 3 && max(1.0f, NAN) == 1.0f && __saturatef(2.0f) == 1.0f);
	assert_true(rsqrtf(4.0f) == 0.5f && __expf(0.0f) == 1.0f && __fdividef(1.0f, 4.0f) == 0.25f);
}

static int
with_schedule(void **state)
{
	return setenv("KV_SHIM_SCHEDULE", (const char *)*state, 1);
}

int
main(void)
{
	static void (*const tests[])(void **) = { test_shuffles, test_shuffle_types, test_votes, test_barriers,
		test_mma, test_ldmatrix, test_copies, test_atomics, test_arithmetic };
	static const char *const names[] = { "shuffles", "shuffle types", "votes", "barriers", "mma", "ldmatrix",
		"copies", "atomics", "arithmetic" };
	enum { N = sizeof(tests) / sizeof(tests[0]) };
	static char text[N * N_SCHEDULES][64];
	struct CMUnitTest all[N * N_SCHEDULES] = {};

	for (size_t i = 0; i < N * N_SCHEDULES; i++) {
		snprintf(text[i], sizeof(text[i]), "%s, %s", names[i % N], schedules[i / N]);
		all[i].name = text[i];
		all[i].test_func = tests[i % N];
		all[i].setup_func = with_schedule;
		all[i].initial_state = (void *)schedules[i / N];
	}
	return cmocka_run_group_tests(all, NULL, NULL);
}
