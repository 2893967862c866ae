/* SPDX-License-Identifier: MIT
 * The run-time library: memory, copies, streams, events, limits, processes.
 */
#include "case.h"

#include <cublas_v2.h>
#include <sys/wait.h>
#include <unistd.h>

KV_KERNEL(64)
add_one(int *x, size_t n)
{
	const size_t i = blockIdx.x * (size_t)64 + threadIdx.x;

	if (i < n)
		x[i]++;
}

static void
launch_add(int *x, size_t n, cudaStream_t stream)
{
	OK(KV_LAUNCH(add_one, (unsigned)((n + 63) / 64), 64, 0, stream, x, n));
}

static void
test_memory(void **state)
{
	size_t before, between, after, total;
	unsigned char host[1000];
	char *p, *q;

	(void)state;
	OK(cudaMemGetInfo(&before, &total));
	OK(cudaMalloc(&p, sizeof(host)));
	OK(cudaMalloc(&q, 0));
	assert_null(q);
	assert_int_equal((uintptr_t)p % 256, 0);
	OK(cudaMemGetInfo(&between, &total));
	assert_true(between < before && before <= total);
	OK(cudaMemcpy(host, p, sizeof(host), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < sizeof(host); i++)
		assert_int_equal(host[i], 0xff);
	OK(cudaMemset(p, 7, 500));
	OK(cudaMemset2D(p + 500, 100, 9, 10, 5));
	OK(cudaMemcpy2D(host, 2, p + 499, 100, 2, 5, cudaMemcpyDefault));
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(host[2 * i], i == 0 ? 7 : 0xff);
		assert_int_equal(host[2 * i + 1], 9);
	}
	OK(cudaFree(p));
	OK(cudaFree(NULL));
	OK(cudaMemGetInfo(&after, &total));
	assert_int_equal(before, after);
	assert_int_equal(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
	assert_null(p);
	assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
	assert_string_equal(cudaGetErrorString(cudaGetLastError()), "out of memory");
	OK(cudaGetLastError());
}

static void
test_pinned(void **state)
{
	struct cudaPointerAttributes a;
	int *p, mine[100] = {};

	(void)state;
	OK(cudaMallocHost((void **)&p, 100 * sizeof(int)));
	memset(p, 0, 100 * sizeof(int));
	launch_add(p, 100, NULL); /* the device sees it */
	OK(cudaDeviceSynchronize());
	assert_int_equal(p[99], 1);
	OK(cudaPointerGetAttributes(&a, p + 5));
	assert_int_equal(a.type, cudaMemoryTypeHost);
	OK(cudaFreeHost(p));
	OK(cudaHostRegister(mine, sizeof(mine), cudaHostRegisterDefault));
	assert_int_equal(cudaHostRegister(mine + 1, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
	launch_add(mine, 100, NULL);
	OK(cudaDeviceSynchronize());
	assert_int_equal(mine[0], 1);
	OK(cudaHostUnregister(mine));
	OK(cudaPointerGetAttributes(&a, mine));
	assert_int_equal(a.type, cudaMemoryTypeUnregistered);
	(void)cudaGetLastError();
}

static void
count_up(void *n)
{
	(*(int *)n)++;
}

static void
test_streams(void **state)
{
	enum { N = 1000 };
	cudaStream_t a, b;
	cudaEvent_t ready, end;
	int *x = put<int>(NULL, N), host[N], called = 0;
	float ms;

	(void)state;
	OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaEventCreate(&ready));
	OK(cudaEventCreate(&end));
	OK(cudaMemsetAsync(x, 0, N * sizeof(int), a));
	launch_add(x, N, a);
	OK(cudaLaunchHostFunc(a, count_up, &called));
	OK(cudaEventRecord(ready, a));
	OK(cudaStreamWaitEvent(b, ready, 0));
	launch_add(x, N, b);
	OK(cudaMemcpyAsync(host, x, sizeof(host), cudaMemcpyDeviceToHost, b));
	OK(cudaEventRecord(end, b));
	OK(cudaEventSynchronize(end));
	for (int i = 0; i < N; i++)
		assert_int_equal(host[i], 2);
	assert_int_equal(called, 1);
	OK(cudaEventElapsedTime(&ms, ready, end));
	assert_true(ms >= 0);
	launch_add(x, N, a);
	OK(cudaEventRecord(end, a));
	while (cudaEventQuery(end) == cudaErrorNotReady)
		;
	OK(cudaStreamQuery(a));
	take(host, x, N);
	assert_int_equal(host[N - 1], 3);
	OK(cudaEventDestroy(ready));
	OK(cudaEventDestroy(end));
	OK(cudaStreamDestroy(a));
	OK(cudaStreamDestroy(b));
}

/* An event waited for is the recording before the wait, not a later one. */
static void
test_events(void **state)
{
	cudaStream_t a, b;
	cudaEvent_t e;
	int *x = put<int>(NULL, 64), host[64];

	(void)state;
	OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	OK(cudaStreamWaitEvent(b, e, 0)); /* never recorded: no wait */
	OK(cudaMemsetAsync(x, 0, 64 * sizeof(int), a));
	OK(cudaEventRecord(e, a));
	OK(cudaStreamWaitEvent(b, e, 0));
	launch_add(x, 64, a);
	OK(cudaEventRecord(e, a));
	OK(cudaMemcpyAsync(host, x, sizeof(host), cudaMemcpyDeviceToHost, b));
	OK(cudaStreamSynchronize(b));
	assert_true(host[0] == 0 || host[0] == 1);
	OK(cudaStreamDestroy(a));
	OK(cudaEventSynchronize(e));
	OK(cudaEventDestroy(e));
	OK(cudaStreamDestroy(b));
	take(host, x, 64);
	assert_int_equal(host[0], 1);
}

KV_KERNEL(32)
fill_dynamic(float *out, int n)
{
	KV_DYN_SHARED(float, x);

	for (int i = (int)threadIdx.x; i < n; i += 32)
		x[i] = (float)i;
	__syncthreads();
	for (int i = (int)threadIdx.x; i < n; i += 32)
		out[i] = x[n - 1 - i];
}

template <int N>
KV_KERNEL(N)
bounded(int *x)
{
	x[threadIdx.x] = N;
}

static void
test_limits(void **state)
{
	enum { N = 50000 };
	struct cudaFuncAttributes a;
	struct cudaDeviceProp p;
	float *x = put<float>(NULL, N), *host = (float *)malloc(N * sizeof(float));
	int n;

	(void)state;
	OK(cudaGetDeviceCount(&n));
	assert_int_equal(n, 1);
	assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
	OK(cudaSetDevice(0));
	OK(cudaGetDeviceProperties(&p, 0));
	assert_int_equal(p.major, 9);
	OK(cudaDeviceGetAttribute(&n, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
	assert_int_equal(n, p.sharedMemPerBlockOptin);
	OK(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, N * (int)sizeof(float)));
	OK(KV_LAUNCH(fill_dynamic, 1, 32, N * sizeof(float), NULL, x, N));
	take(host, x, N);
	for (int i = 0; i < N; i++)
		assert_true(host[i] == (float)(N - 1 - i));
	free(host);
	assert_int_equal(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000),
	    cudaErrorInvalidValue);
	(void)cudaGetLastError();
	setenv("KV_SHIM_SHARED", "99K", 1);
	OK(cudaGetDeviceProperties(&p, 0));
	assert_int_equal(p.sharedMemPerBlockOptin, 99 << 10);
	assert_int_equal(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10),
	    cudaErrorInvalidValue);
	(void)cudaGetLastError();
	unsetenv("KV_SHIM_SHARED");
	OK(cudaFuncGetAttributes(&a, bounded<96>));
#if !defined(__clang__)
	assert_int_equal(a.maxThreadsPerBlock, 96);
#endif
	OK(cudaFuncGetAttributes(&a, bounded<1024>));
	assert_int_equal(a.maxThreadsPerBlock, 1024);
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, bounded<96>, 96, 100 << 10));
	assert_int_equal(n, 2);
}

/* A struct by value, and a grid of three axes. */
struct job {
	int *x;
	int step;
};

KV_KERNEL(64)
places(struct job job)
{
	const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;

	job.x[b * 64 + t] = (int)(b * 64 + t) * job.step;
}

static void
test_grid(void **state)
{
	struct job job = { put<int>(NULL, 64 * 105), 3 };
	static int host[64 * 105];

	(void)state;
	for (int s = 0; s < N_SCHEDULES; s++) {
		setenv("KV_SHIM_SCHEDULE", schedules[s], 1);
		OK(cudaMemset(job.x, 0xff, sizeof(host)));
		OK(KV_LAUNCH(places, dim3(3, 5, 7), dim3(8, 4, 2), 0, NULL, job));
		OK(cudaMemcpy(host, job.x, sizeof(host), cudaMemcpyDeviceToHost));
		for (int i = 0; i < 64 * 105; i++)
			assert_int_equal(host[i], i * 3);
	}
	unsetenv("KV_SHIM_SCHEDULE");
	OK(cudaFree(job.x));
}

/* ---- cuBLAS */
static float
element(int i)
{
	return (float)(i * 29 % 17 - 8) / 4;
}

static float
read_element(const void *p, cudaDataType type, int i)
{
	return type == CUDA_R_16F    ? __half2float(((const __half *)p)[i])
	       : type == CUDA_R_16BF ? __bfloat162float(((const __nv_bfloat16 *)p)[i])
	                             : ((const float *)p)[i];
}

/* n elements of a type on the device; the same on the host in *copy. */
static void *
operand(cudaDataType type, int n, void **copy)
{
	*copy = malloc((size_t)n * 4);
	for (int i = 0; i < n; i++)
		if (type == CUDA_R_16F)
			((__half *)*copy)[i] = __float2half(element(i));
		else if (type == CUDA_R_16BF)
			((__nv_bfloat16 *)*copy)[i] = __float2bfloat16(element(i));
		else
			((float *)*copy)[i] = element(i);
	return put((const float *)*copy, (size_t)n);
}

static void
check_product(cublasHandle_t handle, cudaDataType type, bool ta, bool tb, int m, int n, int k)
{
	const int lda = (ta ? k : m) + 3, ldb = (tb ? n : k) + 1, ldc = m + 2, count = 2;
	const int na = lda * (ta ? m : k) + 5, nb = ldb * (tb ? k : n) + 2, nc = ldc * n + 7;
	const float alpha = 0.5f, beta = 2.0f;
	void *a, *b, *c;
	void *da = operand(type, na * count, &a), *db = operand(type, nb * count, &b);
	float *dc = (float *)operand(CUDA_R_32F, nc * count, &c);

	assert_int_equal(cublasGemmStridedBatchedEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
			     tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, da, type, lda, na, db, type, ldb, nb,
			     &beta, dc, CUDA_R_32F, ldc, nc, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
	    CUBLAS_STATUS_SUCCESS);
	OK(cudaDeviceSynchronize());
	take((float *)c, dc, (size_t)(nc * count));
	OK(cudaFree(da));
	OK(cudaFree(db));
	for (int i = 0; i < nc * count; i++) {
		const int which = i / nc, row = i % nc % ldc, col = i % nc / ldc;
		double want = element(i);

		if (row < m && col < n) {
			want *= beta;
			for (int x = 0; x < k; x++) {
				const int ia = ta ? x + row * lda : row + x * lda,
					  ib = tb ? col + x * ldb : x + col * ldb;

				want += alpha * (double)read_element(a, type, which * na + ia) *
				        read_element(b, type, which * nb + ib);
			}
		}
		assert_true(((float *)c)[i] == (float)want); /* all exact in f32 */
	}
	free(a);
	free(b);
	free(c);
}

static void
test_products(void **state)
{
	static const cudaDataType types[] = { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };
	static const int shapes[][3] = { { 1, 1, 1 }, { 17, 7, 3 }, { 150, 13, 20 }, { 5, 30, 300 } };
	cublasHandle_t handle;

	(void)state;
	assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
	for (const cudaDataType type : types)
		for (const auto &s : shapes)
			for (int t = 0; t < 4; t++)
				check_product(handle, type, t & 1, t & 2, s[0], s[1], s[2]);
	assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

static void
test_double_product(void **state)
{
	const double a[4] = { 1, 2, 3, 4 }, b[4] = { 5, 6, 7, 8 }, one = 1, zero = 0;
	double *da = put(a, 4), *db = put(b, 4), *dc = put<double>(NULL, 4), c[4];
	cublasHandle_t handle;

	(void)state;
	cublasCreate(&handle);
	assert_int_equal(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, da, 2, db, 2, &zero, dc, 2), 0);
	cublasDestroy(handle);
	OK(cudaFree(da));
	OK(cudaFree(db));
	take(c, dc, 4);
	assert_true(c[0] == 26 && c[1] == 38 && c[2] == 30 && c[3] == 44);
}

/* ---- another process: argv[1] is "import", the handle comes on stdin */
static int
import(void)
{
	cudaIpcMemHandle_t handle;
	int *p, *again, x[100];

	if (fread(&handle, sizeof(handle), 1, stdin) != 1)
		return 2;
	if (cudaIpcOpenMemHandle((void **)&p, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess ||
	    cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess || p != again)
		return 3;
	if (KV_LAUNCH(add_one, 2, 64, 0, NULL, p, (size_t)100) != cudaSuccess ||
	    cudaMemcpy(x, p, sizeof(x), cudaMemcpyDeviceToHost) != cudaSuccess || x[99] != 100)
		return 4;
	return cudaIpcCloseMemHandle(again) == cudaSuccess && cudaIpcCloseMemHandle(p) == cudaSuccess ? 0 : 5;
}

static void
test_processes(void **state)
{
	cudaIpcMemHandle_t handle;
	int x[100];
	FILE *other;
	void *q;

	(void)state;
	for (int i = 0; i < 100; i++)
		x[i] = i;

	int *p = put(x, 100);

	OK(cudaIpcGetMemHandle(&handle, p));
	assert_int_equal(
	    cudaIpcOpenMemHandle(&q, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
	(void)cudaGetLastError();
	other = popen("/proc/$PPID/exe import", "w");
	assert_non_null(other);
	assert_int_equal(fwrite(&handle, sizeof(handle), 1, other), 1);
	assert_int_equal(pclose(other), 0);
	take(x, p, 100);
	for (int i = 0; i < 100; i++)
		assert_int_equal(x[i], i + 1);
}

static void
test_no_driver(void **state)
{
	cudaStream_t stream = NULL;
	int n = -7;
	void *p = &n;

	(void)state;
	setenv("KV_SHIM_DEVICES", "0", 1);
	assert_int_equal(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
	assert_int_equal(n, -7);
	assert_int_equal(cudaMalloc(&p, 10), cudaErrorInsufficientDriver);
	assert_ptr_equal(p, &n);
	assert_int_equal(cudaStreamCreate(&stream), cudaErrorInsufficientDriver);
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorInsufficientDriver);
	unsetenv("KV_SHIM_DEVICES");
	(void)cudaGetLastError();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_grid),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_double_product),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_no_driver),
	};

	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return import();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
