/* SPDX-License-Identifier: MIT
 * Faults of the host's side: limits of a launch, copies, pointers, streams.
 */
#include "faults.h"

/* ---- limits of a launch */
KV_KERNEL(64)
nothing(int *y)
{
	(void)y;
}

static bool
launch_shape(dim3 grid, dim3 block, size_t bytes)
{
	int *y = put<int>(NULL, 1);

	OK(KV_LAUNCH(nothing, grid, block, bytes, NULL, y));
	OK(cudaFree(y));
	return true;
}

static bool
threads(int n)
{
	return launch_shape(1, n, 0);
}

static bool
rows_of_threads(int n)
{
	return launch_shape(1, dim3(32, n), 0);
}

static bool
blocks(int n)
{
	return launch_shape(n, 32, 0);
}

static bool
rows_of_blocks(int n)
{
	return launch_shape(dim3(1, n), 32, 0);
}

/* More dynamic shared memory than a kernel has without asking; limit 0: none is set. */
static bool
shared_limit(int limit)
{
	if (limit > 0)
		OK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, limit));
	return launch_shape(1, 32, 50000);
}

/* ---- copies */
static bool
direction(int kind)
{
	int host[4] = {}, *y = put<int>(NULL, 4);

	OK(cudaMemcpy(y, host, sizeof(host), (enum cudaMemcpyKind)kind));
	OK(cudaFree(y));
	return true;
}

static bool
copied_to_16(int bytes)
{
	int host[5] = {}, *y = put<int>(NULL, 4);

	OK(cudaMemcpy(y, host, bytes, cudaMemcpyHostToDevice));
	OK(cudaFree(y));
	return true;
}

/* ---- pointers */
enum { N = 64 };

KV_KERNEL(32)
add_one(int *x)
{
	x[threadIdx.x]++;
}

static bool
pointer(int bad)
{
	int host[N] = {}, *y = put<int>(NULL, N);

	OK(KV_LAUNCH(add_one, 1, 32, 0, NULL, bad ? host : y));
	OK(cudaFree(y));
	return true;
}

struct two {
	int n; /* padding behind it, which may hold anything */
	int *p;
};

KV_KERNEL(32)
write_two(struct two x)
{
	x.p[threadIdx.x] = x.n;
}

static bool
pointer_inside(int bad)
{
	int *host = (int *)malloc(N * sizeof(int)), *y = put<int>(NULL, N);
	struct two x;

	memcpy((void *)&x, &host, sizeof(host));
	x.n = (int)(uintptr_t)host; /* with the padding the address itself: no fault */
	x.p = bad ? host : y;
	OK(KV_LAUNCH(write_two, 1, 32, 0, NULL, x));
	OK(cudaFree(y));
	free(host);
	return true;
}

static bool
access_by_host(int bad)
{
	int *y = put<int>(NULL, N), host[N];

	OK(cudaMemset(y, 0, N * sizeof(int)));
	if (bad)
		memcpy(host, y, sizeof(host));
	else
		OK(cudaMemcpy(host, y, sizeof(host), cudaMemcpyDeviceToHost));
	OK(cudaFree(y));
	return host[0] == 0;
}

/* ---- streams */
static bool
is_two(int x)
{
	if (x != 2)
		fprintf(stderr, "wrong result %d\n", x);
	return x == 2;
}

static bool
no_wait(int bad)
{
	int *x = put<int>(NULL, 32), host[32] = {};
	cudaStream_t s;
	bool right;

	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(cudaMemsetAsync(x, 0, 128, s));
	OK(KV_LAUNCH(add_one, 1, 32, 0, s, x));
	OK(KV_LAUNCH(add_one, 1, 32, 0, s, x));
	OK(cudaMemcpyAsync(host, x, sizeof(host), cudaMemcpyDeviceToHost, s));
	if (!bad)
		OK(cudaStreamSynchronize(s));
	right = is_two(host[5]);
	OK(cudaStreamDestroy(s));
	OK(cudaFree(x));
	return right;
}

static bool
no_event(int bad)
{
	int *x = put<int>(NULL, 32), host[32] = {};
	cudaStream_t a, b;
	cudaEvent_t e;

	OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaEventCreate(&e));
	OK(cudaMemset(x, 0, 128));
	OK(cudaDeviceSynchronize());
	OK(KV_LAUNCH(add_one, 1, 32, 0, a, x));
	OK(cudaEventRecord(e, a));
	if (!bad)
		OK(cudaStreamWaitEvent(b, e, 0));
	OK(KV_LAUNCH(add_one, 1, 32, 0, b, x));
	OK(cudaMemcpyAsync(host, x, sizeof(host), cudaMemcpyDeviceToHost, b));
	OK(cudaStreamSynchronize(b));
	return is_two(host[5]);
}

static bool
freed_twice(int bad)
{
	int *x = put<int>(NULL, 32);

	OK(cudaFree(x));
	OK(cudaFree(bad ? x : NULL));
	return true;
}

/* Padding and launch bounds are not to be had from clang. */
#if defined(__clang__)
#define GCC_TELLS(text) ""
#else
#define GCC_TELLS(text) text
#endif

static const struct fault faults[] = {
	{ "block above its launch bounds", threads, 64, 96, { GCC_TELLS("its launch bounds say 64"), "", "" }, NULL,
	    NULL },
	{ "part of a warp", threads, 32, 33, { "no multiple of 32", "", "" }, NULL, NULL },
	{ "block of more than 1024", rows_of_threads, 2, 33, { "a block of 32 x 33", "", "" }, NULL, NULL },
	{ "empty grid", blocks, 1, 0, { "a grid of 0", "", "" }, NULL, NULL },
	{ "grid of more than 65535", rows_of_blocks, 65535, 65536, { "a grid of 1 x 65536", "", "" }, NULL, NULL },
	{ "too much dynamic shared memory", shared_limit, 50000, 0, { "its limit is 49152", "", "" }, NULL, NULL },

	{ "wrong copy direction", direction, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
	    { "is device memory; the direction says host", "", "" }, NULL, NULL },
	{ "copy past the end", copied_to_16, 16, 20, { "has 16 bytes of device memory left, not 20", "", "" }, NULL,
	    NULL },

	{ "host pointer for a kernel", pointer, 0, 1, { "argument 1 is", "argument 1 is", "" }, NULL, NULL },
	{ "host pointer in a struct", pointer_inside, 0, 1, { GCC_TELLS("argument 1 contains"), "", "" }, NULL, NULL },
	{ "host reads device memory", access_by_host, 0, 1, { "host code at device memory", "", "" }, "KV_SHIM_GUARD",
	    "1" },
	{ "freed twice", freed_twice, 0, 1, { "or no longer", "", "" }, NULL, NULL },

	{ "missing stream synchronisation", no_wait, 0, 1, { "wrong result 0", "", "" }, "KV_SHIM_STREAMS", "lazy" },
	{ "missing event", no_event, 0, 1, { "wrong result 1", "", "" }, "KV_SHIM_STREAMS", "lazy" },
};

int
main(int argc, char **argv)
{
	return run_faults("host_faults", faults, argc, argv);
}
