/* SPDX-License-Identifier: MIT
 * Faults inside a kernel: the order of threads and blocks, memory, meetings that not all come to.
 */
#include "faults.h"

enum { N = 64 };

/* ---- order of threads and blocks */
template <bool BAD>
KV_KERNEL(N)
missing_barrier(int *y)
{
	KV_SHARED(int, s, [N]);
	const int t = (int)threadIdx.x;

	s[t] = t;
	if (!BAD)
		__syncthreads();
	y[t] = s[N - 1 - t];
}

template <bool BAD>
KV_KERNEL(N)
missing_second_barrier(int *y)
{
	KV_SHARED(int, s, [N]);
	const int t = (int)threadIdx.x;

	s[t] = t + 1;
	__syncthreads();

	const int x = s[N - 1 - t];

	if (!BAD)
		__syncthreads();
	s[t] = x; /* while others still read */
	__syncthreads();
	y[t] = s[t] - 1;
}

template <bool BAD>
KV_KERNEL(32)
missing_syncwarp(int *y)
{
	KV_SHARED(int, s, [32]);
	const int t = (int)threadIdx.x;

	s[t] = __shfl_sync(KV_FULL, t, 0) + t;
	if (BAD)
		(void)__any_sync(KV_FULL, 1); /* all lanes meet, but that orders no memory */
	else
		__syncwarp();
	y[t] = s[31 - t] + 32;
	y[32 + t] = 31 - t;
}

template <bool BAD>
KV_KERNEL(N)
lost_update(int *x, int *y)
{
	if (BAD)
		x[0] = x[0] + 1;
	else
		atomicAdd(&x[0], 1);
	__syncthreads();
	y[threadIdx.x] = x[0] - 1 - (int)threadIdx.x;
}

template <bool BAD>
KV_KERNEL(32)
block_order(int *y)
{
	const int b = (int)blockIdx.x, t = (int)threadIdx.x;

	if (BAD && b > 0)
		y[b * 32 + t] = y[(b - 1) * 32 + t] - 32;
	else
		y[b * 32 + t] = N - 1 - b * 32 - t;
}

template <bool BAD>
KV_KERNEL(32)
early_copy(int *y, const int *x)
{
	KV_SHARED(int4, s, [32]);
	const int *words = (const int *)s;
	const int t = (int)threadIdx.x;

	ptx_copy_async(&s[t], x, t < 16 ? 16 : 0);
	ptx_copy_commit();
	if (!BAD)
		ptx_copy_wait<0>();
	__syncthreads();
	y[t] = N - 1 - t + words[(t ^ 1) * 2];
	y[32 + t] = 31 - t + words[64 + t];
}

/* Each writes N - 1 - i to y[i], whatever the schedule. */
#define ONE_OF(kernel, bad, blocks, threads, ...)                                                                      \
	OK((bad) ? KV_LAUNCH((kernel<true>), blocks, threads, 0, NULL, __VA_ARGS__)                                    \
	         : KV_LAUNCH((kernel<false>), blocks, threads, 0, NULL, __VA_ARGS__))

static void
barrier(bool bad, int *, int *y)
{
	ONE_OF(missing_barrier, bad, 1, N, y);
}

static void
second_barrier(bool bad, int *, int *y)
{
	ONE_OF(missing_second_barrier, bad, 1, N, y);
}

static void
syncwarp(bool bad, int *, int *y)
{
	ONE_OF(missing_syncwarp, bad, 1, 32, y);
}

static void
update(bool bad, int *x, int *y)
{
	ONE_OF(lost_update, bad, 1, N, x, y);
}

static void
blocks(bool bad, int *, int *y)
{
	ONE_OF(block_order, bad, N / 32, 32, y);
}

static void
copy(bool bad, int *x, int *y)
{
	ONE_OF(early_copy, bad, 1, 32, y, x);
}

/* Under every schedule; x and y, each N ints on the device, begin as zeros and unset. */
template <void (*LAUNCH)(bool bad, int *x, int *y)>
static bool
scheduled(int bad)
{
	for (int s = 0; s < N_SCHEDULES; s++) {
		int zero[N] = {}, host[N];
		int *x = put(zero, N), *y = put<int>(NULL, N);

		setenv("KV_SHIM_SCHEDULE", schedules[s], 1);
		LAUNCH(bad, x, y);
		OK(cudaFree(x));
		take(host, y, N);
		for (int i = 0; i < N; i++)
			if (host[i] != N - 1 - i) {
				fprintf(stderr, "wrong result with %s\n", schedules[s]);
				return false;
			}
	}
	return true;
}

/* ---- memory */
KV_KERNEL(32)
write_static(int *y, int at)
{
	KV_SHARED(int, s, [40]);
	int *p = s;

	s[threadIdx.x] = 1;
	if (threadIdx.x == 5)
		p[at] = 2;
	__syncthreads();
	y[threadIdx.x] = s[threadIdx.x];
}

KV_KERNEL(32)
write_dynamic(int *y, int at)
{
	KV_DYN_SHARED(int, s);

	s[threadIdx.x] = 1;
	if (threadIdx.x == 5)
		s[at] = 2;
	__syncthreads();
	y[threadIdx.x] = s[threadIdx.x];
}

KV_KERNEL(32)
write_global(int *y, int at)
{
	if (threadIdx.x == 7)
		y[at] = 1;
}

static bool
static_at(int at)
{
	int *y = put<int>(NULL, 32);

	OK(KV_LAUNCH(write_static, 1, 32, 0, NULL, y, at));
	OK(cudaFree(y));
	return true;
}

/* Memory of WORDS, 32 of which are used. */
template <int WORDS>
static bool
dynamic_at(int at)
{
	int *y = put<int>(NULL, 32);

	OK(KV_LAUNCH(write_dynamic, 1, 32, WORDS * 4, NULL, y, at));
	OK(cudaFree(y));
	return true;
}

static bool
global_at(int at)
{
	int *y = put<int>(NULL, 33);

	OK(KV_LAUNCH(write_global, 1, 32, 0, NULL, y, at));
	OK(cudaDeviceSynchronize());
	OK(cudaFree(y));
	return true;
}

static bool
freed_before(int bad)
{
	int *y = put<int>(NULL, 33);

	if (bad)
		OK(cudaFree(y));
	OK(KV_LAUNCH(write_global, 1, 32, 0, NULL, y, 3));
	if (!bad)
		OK(cudaFree(y));
	return true;
}

KV_KERNEL(32)
half_sum(float *y, const float *x)
{
	y[threadIdx.x] = x[threadIdx.x] + 1.0f;
}

static bool
written(int floats)
{
	float *x = put<float>(NULL, 32), *y = put<float>(NULL, 32), host[32];

	OK(cudaMemset(x, 0, floats * 4));
	OK(KV_LAUNCH(half_sum, 1, 32, 0, NULL, y, x));
	OK(cudaFree(x));
	take(host, y, 32);
	for (int i = 0; i < 32; i++)
		if (!(host[i] == 1.0f)) {
			fprintf(stderr, "wrong result %g\n", (double)host[i]);
			return false;
		}
	return true;
}

KV_KERNEL(32)
wide_load(float4 *y, const float *x)
{
	y[threadIdx.x] = *(const float4 *)(x + 4 * threadIdx.x);
}

static bool
wide_at(int at)
{
	float *x = put<float>(NULL, 256);
	float4 *y = put<float4>(NULL, 32);

	OK(KV_LAUNCH(wide_load, 1, 32, 0, NULL, y, x + at));
	OK(cudaFree(x));
	OK(cudaFree(y));
	return true;
}

KV_KERNEL(32)
misaligned_row(uint32_t *y, int by)
{
	KV_SHARED(uint4, s, [64]);
	uint32_t r[4];

	for (unsigned i = threadIdx.x; i < 64; i += 32)
		s[i] = make_uint4(0, 0, 0, 0);
	__syncthreads();
	ptx_ldmatrix(r, (const char *)&s[threadIdx.x] + by);
	y[threadIdx.x] = r[0];
}

static bool
row_at(int at)
{
	uint32_t *y = put<uint32_t>(NULL, 32);

	OK(KV_LAUNCH(misaligned_row, 1, 32, 0, NULL, y, at));
	OK(cudaFree(y));
	return true;
}

/* ---- meetings that not all come to */
enum meeting { FINE, DIVERGENT, RETURNED, RETURNED_LATE, MIXED, BAD_MASK, OTHER_MASKS, DEAD_SOURCE, DEAD_LANE, ABSENT };

KV_KERNEL(N)
meet(int *y, enum meeting how)
{
	const unsigned t = threadIdx.x;
	int x = (int)t;

	if (how == RETURNED && t == 40)
		return;
	if (how == DIVERGENT && t == 3)
		__syncthreads();
	else
		__syncthreads();
	if (how == MIXED && t == 33)
		__syncthreads();
	if (how == DEAD_LANE && t == 9)
		return;
	if (how == BAD_MASK && t == 31)
		x = __shfl_sync(0x7fffffffu, x, 0);
	else if (how == OTHER_MASKS && t == 31)
		x = __shfl_sync(0x80000001u, x, 0);
	else if (how == DEAD_SOURCE && t < 16)
		x = __shfl_sync(0xffffu, x, 20);
	else if ((how != DEAD_SOURCE || t >= 32) && (how != ABSENT || t != 33))
		x = __shfl_sync(KV_FULL, x, 0);
	if (how == RETURNED_LATE && t == 40)
		return;
	__syncthreads();
	y[t] = x;
}

static bool
meeting(int how)
{
	int *y = put<int>(NULL, N);

	OK(KV_LAUNCH(meet, 1, N, 0, NULL, y, (enum meeting)how));
	OK(cudaFree(y));
	return true;
}

static const struct fault faults[] = {
	{ "missing __syncthreads", scheduled<barrier>, 0, 1, { "wrong result", "wrong result", "race" }, NULL, NULL },
	{ "missing __syncthreads before a write", scheduled<second_barrier>, 0, 1, { "wrong result", "", "race" }, NULL,
	    NULL },
	{ "missing __syncwarp", scheduled<syncwarp>, 0, 1, { NULL, NULL, "race" }, NULL, NULL },
	{ "update without atomics", scheduled<update>, 0, 1, { NULL, NULL, "race" }, NULL, NULL },
	{ "order of blocks", scheduled<blocks>, 0, 1, { "wrong result", "", "" }, NULL, NULL },
	{ "cp.async without wait", scheduled<copy>, 0, 1, { "wrong result", "", "" }, NULL, NULL },

	{ "write behind shared memory", static_at, 39, 40,
	    { "kernel write_static, block (0, 0, 0)", "use-after-poison", "" }, NULL, NULL },
	{ "write behind dynamic shared memory", dynamic_at<33>, 32, 33,
	    { "kernel write_dynamic, block (0, 0, 0)", "use-after-poison", "" }, NULL, NULL },
	{ "write far behind dynamic shared memory", dynamic_at<32>, 31, 32,
	    { "thread (5, 0, 0): bad access", "SEGV", "" }, NULL, NULL },
	{ "write behind device memory", global_at, 32, 33,
	    { "a write behind the end of 132 bytes", "use-after-poison", "" }, NULL, NULL },
	{ "write before device memory", global_at, 0, -1,
	    { "a write before the beginning of 132 bytes", "use-after-poison", "" }, NULL, NULL },
	{ "write far behind device memory", global_at, 0, 64,
	    { "thread (7, 0, 0): access at", "thread (7, 0, 0): access at", "" }, NULL, NULL },
	{ "use after free", freed_before, 0, 1, { "no longer allocated", "no longer allocated", "" }, NULL, NULL },
	{ "device memory nobody wrote", written, 32, 31, { "wrong result -nan", "", "" }, NULL, NULL },
	{ "misaligned vector", wide_at, 4, 1, { "", "misaligned address", "" }, NULL, NULL },
	{ "misaligned row for ldmatrix", row_at, 16, 8, { "not 16-byte aligned", "not 16-byte aligned", "" }, NULL,
	    NULL },

	{ "divergent barrier", meeting, FINE, DIVERGENT,
	    { "divergent barrier: thread", "divergent barrier: thread", "" }, NULL, NULL },
	{ "return before a barrier", meeting, FINE, RETURNED, { "thread (40, 0, 0) has returned before", "", "" }, NULL,
	    NULL },
	{ "late return before a barrier", meeting, FINE, RETURNED_LATE,
	    { "thread (40, 0, 0) has returned before", "", "" }, NULL, NULL },
	{ "barrier against shuffle", meeting, FINE, MIXED, { "divergent barrier: thread", "", "" }, NULL, NULL },
	{ "lane absent from a shuffle", meeting, FINE, ABSENT,
	    { "divergence: waits in", "divergence: waits in", "" }, NULL, NULL },
	{ "mask without the caller", meeting, FINE, BAD_MASK, { "lacks the calling lane 31", "", "" }, NULL, NULL },
	{ "masks that differ", meeting, FINE, OTHER_MASKS, { "while lane", "", "" }, NULL, NULL },
	{ "source lane outside the mask", meeting, FINE, DEAD_SOURCE, { "from a lane that is not in mask", "", "" },
	    NULL, NULL },
	{ "lane that has returned", meeting, FINE, DEAD_LANE, { "returned", "returned", "" }, NULL, NULL },
};

int
main(int argc, char **argv)
{
	return run_faults("device_faults", faults, argc, argv);
}
