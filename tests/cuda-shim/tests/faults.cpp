/* SPDX-License-Identifier: MIT
 * Planted faults: each must be reported, and the same kernel without its fault must pass.
 *
 * A case runs in a process of its own.  Which faults are seen depends on how this program is built: by itself, with
 * ASan and UBSan, or with TSan.
 */
#include "case.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
enum { BUILD = 1 };
#elif defined(__SANITIZE_THREAD__)
enum { BUILD = 2 };
#else
enum { BUILD = 0 };
#endif

enum { N = 64 };

/* Runs launch(x, y), each N ints on the device, under every schedule: y[i] must become want(i). */
static bool
gives(void (*launch)(int *x, int *y), int (*want)(int i))
{
	for (int s = 0; s < N_SCHEDULES; s++) {
		int zero[N] = {}, host[N];
		int *x = put(zero, N), *y = put<int>(NULL, N);

		setenv("KV_SHIM_SCHEDULE", schedules[s], 1);
		launch(x, y);
		OK(cudaFree(x));
		take(host, y, N);
		for (int i = 0; i < N; i++)
			if (host[i] != want(i)) {
				fprintf(stderr, "wrong result with %s\n", schedules[s]);
				return false;
			}
	}
	return true;
}

static int
backwards(int i)
{
	return N - 1 - i;
}

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

#define TWO(kernel, bad, blocks, threads, ...)                                                                         \
	OK((bad) ? KV_LAUNCH((kernel<true>), blocks, threads, 0, NULL, __VA_ARGS__)                                    \
	         : KV_LAUNCH((kernel<false>), blocks, threads, 0, NULL, __VA_ARGS__))

static bool bad_one;

static bool
run_barrier(bool bad)
{
	bad_one = bad;
	return gives([](int *, int *y) { TWO(missing_barrier, bad_one, 1, N, y); }, backwards);
}

static bool
run_second_barrier(bool bad)
{
	bad_one = bad;
	return gives([](int *, int *y) { TWO(missing_second_barrier, bad_one, 1, N, y); }, backwards);
}

static bool
run_syncwarp(bool bad)
{
	bad_one = bad;
	return gives([](int *, int *y) { TWO(missing_syncwarp, bad_one, 1, 32, y); }, backwards);
}

static bool
run_lost_update(bool bad)
{
	bad_one = bad;
	return gives([](int *x, int *y) { TWO(lost_update, bad_one, 1, N, x, y); }, backwards);
}

static bool
run_block_order(bool bad)
{
	bad_one = bad;
	return gives([](int *, int *y) { TWO(block_order, bad_one, N / 32, 32, y); }, backwards);
}

static bool
run_early_copy(bool bad)
{
	bad_one = bad;
	return gives([](int *x, int *y) { TWO(early_copy, bad_one, 1, 32, y, x); }, backwards);
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
run_static(bool bad)
{
	int *y = put<int>(NULL, 32);

	OK(KV_LAUNCH(write_static, 1, 32, 0, NULL, y, bad ? 40 : 39));
	OK(cudaFree(y));
	return true;
}

static bool
run_dynamic(bool bad)
{
	int *y = put<int>(NULL, 32);

	OK(KV_LAUNCH(write_dynamic, 1, 32, 33 * 4, NULL, y, bad ? 33 : 32));
	OK(cudaFree(y));
	return true;
}

static bool
run_dynamic_far(bool bad)
{
	int *y = put<int>(NULL, 32);

	OK(KV_LAUNCH(write_dynamic, 1, 32, 32 * 4, NULL, y, bad ? 32 : 31));
	OK(cudaFree(y));
	return true;
}

static bool
write_at(int at)
{
	int *y = put<int>(NULL, 33);

	OK(KV_LAUNCH(write_global, 1, 32, 0, NULL, y, at));
	OK(cudaDeviceSynchronize());
	OK(cudaFree(y));
	return true;
}

static bool
run_global(bool bad)
{
	return write_at(bad ? 33 : 32);
}

static bool
run_global_before(bool bad)
{
	return write_at(bad ? -1 : 0);
}

static bool
run_global_far(bool bad)
{
	return write_at(bad ? 64 : 0);
}

static bool
run_after_free(bool bad)
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
run_uninitialised(bool bad)
{
	float *x = put<float>(NULL, 32), *y = put<float>(NULL, 32), host[32];

	OK(cudaMemset(x, 0, bad ? 31 * 4 : 32 * 4));
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
run_misaligned(bool bad)
{
	float *x = put<float>(NULL, 256);
	float4 *y = put<float4>(NULL, 32);

	OK(KV_LAUNCH(wide_load, 1, 32, 0, NULL, y, x + (bad ? 1 : 4)));
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
run_misaligned_row(bool bad)
{
	uint32_t *y = put<uint32_t>(NULL, 32);

	OK(KV_LAUNCH(misaligned_row, 1, 32, 0, NULL, y, bad ? 8 : 16));
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
run_meeting(enum meeting how)
{
	int *y = put<int>(NULL, N);

	OK(KV_LAUNCH(meet, 1, N, 0, NULL, y, how));
	OK(cudaFree(y));
	return true;
}

static bool
run_divergent(bool bad)
{
	return run_meeting(bad ? DIVERGENT : FINE);
}

static bool
run_returned(bool bad)
{
	return run_meeting(bad ? RETURNED : FINE);
}

static bool
run_returned_late(bool bad)
{
	return run_meeting(bad ? RETURNED_LATE : FINE);
}

static bool
run_mixed(bool bad)
{
	return run_meeting(bad ? MIXED : FINE);
}

static bool
run_absent(bool bad)
{
	return run_meeting(bad ? ABSENT : FINE);
}

static bool
run_bad_mask(bool bad)
{
	return run_meeting(bad ? BAD_MASK : FINE);
}

static bool
run_other_masks(bool bad)
{
	return run_meeting(bad ? OTHER_MASKS : FINE);
}

static bool
run_dead_source(bool bad)
{
	return run_meeting(bad ? DEAD_SOURCE : FINE);
}

static bool
run_dead_lane(bool bad)
{
	return run_meeting(bad ? DEAD_LANE : FINE);
}

/* ---- the host's side */
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
run_bound(bool bad)
{
	return launch_shape(1, bad ? 96 : 64, 0);
}

static bool
run_block(bool bad)
{
	return launch_shape(1, dim3(32, bad ? 33 : 2), 0);
}

static bool
run_part_of_warp(bool bad)
{
	return launch_shape(1, bad ? 33 : 32, 0);
}

static bool
run_grid(bool bad)
{
	return launch_shape(dim3(1, bad ? 65536 : 65535), 32, 0);
}

static bool
run_empty_grid(bool bad)
{
	return launch_shape(bad ? 0 : 1, 32, 0);
}

static bool
run_shared_limit(bool bad)
{
	if (!bad)
		OK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000));
	return launch_shape(1, 32, 50000);
}

static bool
run_direction(bool bad)
{
	int host[4] = {}, *y = put<int>(NULL, 4);

	OK(cudaMemcpy(y, host, sizeof(host), bad ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice));
	OK(cudaFree(y));
	return true;
}

static bool
run_copy_past_end(bool bad)
{
	int host[5] = {}, *y = put<int>(NULL, 4);

	OK(cudaMemcpy(y, host, bad ? 20 : 16, cudaMemcpyHostToDevice));
	OK(cudaFree(y));
	return true;
}

static bool
run_host_pointer(bool bad)
{
	int host[N] = {}, *y = put<int>(NULL, N);

	OK(KV_LAUNCH(write_global, 1, 32, 0, NULL, bad ? host : y, 0));
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
run_host_pointer_inside(bool bad)
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
run_host_access(bool bad)
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

KV_KERNEL(32)
add_one(int *x)
{
	x[threadIdx.x]++;
}

static bool
is_two(int x)
{
	if (x != 2)
		fprintf(stderr, "wrong result %d\n", x);
	return x == 2;
}

static bool
run_no_wait(bool bad)
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
run_no_event(bool bad)
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
run_double_free(bool bad)
{
	int *x = put<int>(NULL, 32);

	OK(cudaFree(x));
	OK(cudaFree(bad ? x : NULL));
	return true;
}

/* What stderr must contain, built plainly, with ASan and with TSan; NULL: known not to be seen.  Empty: not run. */
static const struct fault {
	const char *name;
	bool (*run)(bool bad);
	const char *seen[3];
	const char *variable, *value;
} faults[] = {
	{ "missing __syncthreads", run_barrier, { "wrong result", "wrong result", "race" }, NULL, NULL },
	{ "missing __syncthreads before a write", run_second_barrier, { "wrong result", "", "race" }, NULL, NULL },
	{ "missing __syncwarp", run_syncwarp, { NULL, NULL, "race" }, NULL, NULL },
	{ "update without atomics", run_lost_update, { NULL, NULL, "race" }, NULL, NULL },
	{ "order of blocks", run_block_order, { "wrong result", "", "" }, NULL, NULL },
	{ "cp.async without wait", run_early_copy, { "wrong result", "", "" }, NULL, NULL },
	{ "write behind shared memory", run_static, { "kernel write_static, block (0, 0, 0)", "use-after-poison", "" },
	    NULL, NULL },
	{ "write behind dynamic shared memory", run_dynamic, { "kernel write_dynamic, block (0, 0, 0)",
	    "use-after-poison", "" }, NULL, NULL },
	{ "write far behind dynamic shared memory", run_dynamic_far, { "thread (5, 0, 0): bad access", "SEGV", "" },
	    NULL, NULL },
	{ "write behind device memory", run_global, { "a write behind the end of 132 bytes", "use-after-poison", "" },
	    NULL, NULL },
	{ "write before device memory", run_global_before, { "a write before the beginning of 132 bytes",
	    "use-after-poison", "" }, NULL, NULL },
	{ "write far behind device memory", run_global_far,
	    { "thread (7, 0, 0): access at", "thread (7, 0, 0): access at", "" }, NULL, NULL },
	{ "use after free", run_after_free, { "no longer allocated", "no longer allocated", "" }, NULL, NULL },
	{ "device memory nobody wrote", run_uninitialised, { "wrong result -nan", "", "" }, NULL, NULL },
	{ "misaligned vector", run_misaligned, { "", "misaligned address", "" }, NULL, NULL },
	{ "misaligned row for ldmatrix", run_misaligned_row, { "not 16-byte aligned", "not 16-byte aligned", "" }, NULL,
	    NULL },
	{ "divergent barrier", run_divergent, { "divergent barrier: thread", "divergent barrier: thread", "" }, NULL,
	    NULL },
	{ "return before a barrier", run_returned, { "thread (40, 0, 0) has returned before", "", "" }, NULL, NULL },
	{ "late return before a barrier", run_returned_late, { "thread (40, 0, 0) has returned before", "", "" }, NULL,
	    NULL },
	{ "barrier against shuffle", run_mixed, { "divergent barrier: thread", "", "" }, NULL, NULL },
	{ "lane absent from a shuffle", run_absent, { "divergence: waits in", "divergence: waits in", "" }, NULL, NULL },
	{ "mask without the caller", run_bad_mask, { "lacks the calling lane 31", "", "" }, NULL, NULL },
	{ "masks that differ", run_other_masks, { "while lane", "", "" }, NULL, NULL },
	{ "source lane outside the mask", run_dead_source, { "from a lane that is not in mask", "", "" }, NULL, NULL },
	{ "lane that has returned", run_dead_lane, { "returned", "returned", "" }, NULL, NULL },
#if !defined(__clang__)
	{ "host pointer in a struct", run_host_pointer_inside, { "argument 1 contains", "", "" }, NULL, NULL },
	{ "block above its launch bounds", run_bound, { "its launch bounds say 64", "", "" }, NULL, NULL },
#endif
	{ "block of more than 1024", run_block, { "a block of 32 x 33", "", "" }, NULL, NULL },
	{ "part of a warp", run_part_of_warp, { "no multiple of 32", "", "" }, NULL, NULL },
	{ "grid of more than 65535", run_grid, { "a grid of 1 x 65536", "", "" }, NULL, NULL },
	{ "empty grid", run_empty_grid, { "a grid of 0", "", "" }, NULL, NULL },
	{ "too much dynamic shared memory", run_shared_limit, { "its limit is 49152", "", "" }, NULL, NULL },
	{ "wrong copy direction", run_direction, { "is device memory; the direction says host", "", "" }, NULL, NULL },
	{ "copy past the end", run_copy_past_end, { "has 16 bytes of device memory left, not 20", "", "" }, NULL, NULL },
	{ "host pointer for a kernel", run_host_pointer, { "argument 1 is", "argument 1 is", "" }, NULL, NULL },
	{ "host reads device memory", run_host_access, { "host code at device memory", "", "" }, "KV_SHIM_GUARD", "1" },
	{ "missing stream synchronisation", run_no_wait, { "wrong result 0", "", "" }, "KV_SHIM_STREAMS", "lazy" },
	{ "missing event", run_no_event, { "wrong result 1", "", "" }, "KV_SHIM_STREAMS", "lazy" },
	{ "freed twice", run_double_free, { "or no longer", "", "" }, NULL, NULL },
};
enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* This program again with the case's name; its stderr in text.  Returns the status of waitpid(). */
static int
run_apart(const struct fault *f, bool bad, char *text, size_t room)
{
	int pipes[2], status;
	size_t n = 0;
	pid_t child;
	ssize_t got;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		const struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (f->variable != NULL)
			setenv(f->variable, f->value, 1);
		setenv("TSAN_OPTIONS", "halt_on_error=1", 1);
		execl("/proc/self/exe", "faults", f->name, bad ? "bad" : "good", (char *)NULL);
		_exit(126);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], text + n, room - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void
test_fault(void **state)
{
	const struct fault *f = (const struct fault *)*state;
	const char *seen = f->seen[BUILD];
	static char text[1 << 16];
	int status;

	status = run_apart(f, false, text, sizeof(text));
	if (status != 0)
		fail_msg("without the fault: status %x, %s", (unsigned)status, text);
	status = run_apart(f, true, text, sizeof(text));
	if (seen == NULL) /* known not to be seen: tell when that changes */
		assert_int_equal(status, 0);
	else if (status == 0 || strstr(text, seen) == NULL)
		fail_msg("status %x, expected \"%s\" in: %s", (unsigned)status, seen, text);
}

int
main(int argc, char **argv)
{
	struct CMUnitTest all[N_FAULTS] = {};
	size_t n = 0;

	for (const struct fault &f : faults) {
		if (argc > 2 && strcmp(argv[1], f.name) == 0)
			return f.run(strcmp(argv[2], "bad") == 0) ? 0 : 1;
		if (f.seen[BUILD] != NULL && f.seen[BUILD][0] == '\0')
			continue;
		all[n].name = f.name;
		all[n].test_func = test_fault;
		all[n++].initial_state = (void *)&f;
	}
	return _cmocka_run_group_tests("faults", all, n, NULL, NULL);
}
