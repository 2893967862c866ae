/* SPDX-License-Identifier: MIT
 * What the files of the CUDA backend share.  Contracts of the operations themselves: kernels/backend.h; how kernels are
 * written: kernels/cuda/launch.h.
 *
 * Every operation queues its work on dev->stream and returns; get(), get_as() and wait() are where the host waits.
 * Host arrays of a call (offsets, positions) are copied before it returns.
 */
#ifndef KVK_CUDA_H
#define KVK_CUDA_H

#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "kernels/backend.h"
}

#include "kernels/cuda/launch.h"

struct cuda_products; /* cuBLAS, opened for whoever multiplies: kernels/cuda/cublas.cu */
struct cuda_memory;     /* device memory: kernels/cuda/memory.cu */
struct cuda_staging;  /* pinned host memory: kernels/cuda/staging.cu */
struct cuda_crew;     /* threads that fill it: kernels/cuda/crew.cu */
struct cuda_spares;   /* memory of weights that were closed: kernels/cuda/weight.cu */

/* One thread at a time; where a process has several cards open, cuda_use() says which one its calls are for. */
struct kvk_dev {
	int ordinal;
	cudaDeviceProp prop;
	enum kvk_precision precision; /* F32 or BF16 */
	size_t threads;               /* that may copy host memory, this one counted */
	cudaStream_t stream;          /* everything but copies of weights to come */
	cudaStream_t fetches;         /* to the host: kernels/cuda/fetch.cu; NULL: nothing was fetched yet */
	cudaEvent_t computed;         /* what is fetched */
	cudaStream_t copies;          /* weights on their way; an event per weight orders them */
	struct cuda_products *products;
	struct cuda_memory *memory;
	struct cuda_staging *staging;
	struct cuda_crew *crew; /* NULL: nothing was so large yet that it needs one */
	struct cuda_spares *spares;
	void *scratch; /* see cuda_scratch() */
	size_t scratch_bytes;
	char text[256]; /* the last error */
};

/* Record the text and return code. */
int cuda_fail(struct kvk_dev *dev, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What card number `ordinal` is; not 0: none that can be used, and why says why. */
int cuda_find_device(int ordinal, cudaDeviceProp *prop, char *why, size_t why_bytes);

/* 0 for cudaSuccess, else KVK_EMEM or KVK_ERUN with "WHAT: the library's text".  Also for launches:
 * return cuda_check(dev, KV_LAUNCH(...), "pool"). */
int cuda_check(struct kvk_dev *dev, cudaError_t status, const char *what);

/* `bytes` of device memory could not be had: KVK_EMEM, or KVK_ERUN where the card has failed, which any call may
 * tell. */
int cuda_no_memory(struct kvk_dev *dev, size_t bytes);

/* Device memory of one operation, 256-byte aligned, its contents undefined, valid until the next call of
 * cuda_scratch(); NULL with the error recorded.  Operations that need several pieces cut them with cuda_take(). */
void *cuda_scratch(struct kvk_dev *dev, size_t bytes);
/* The next n elements of `size` bytes of a piece: *at advances to the next multiple of 256 bytes. */
void *cuda_take(char **at, size_t n, size_t size);
/* The bytes of it that cuda_take() uses. */
size_t cuda_taken(size_t n, size_t size);

/* Device memory in the order of dev->stream: freed memory may be handed out again at once, since whoever gets it queues
 * behind its last user.  256-byte aligned; NULL when there is no more. */
void *cuda_alloc(struct kvk_dev *dev, size_t bytes);
void cuda_free(struct kvk_dev *dev, void *p); /* NULL is fine */
int cuda_memory_open(struct kvk_dev *dev);
void cuda_memory_close(struct kvk_dev *dev);
size_t cuda_room(struct kvk_dev *dev);
const void *cuda_view(struct kvk_dev *dev, const void *host, size_t bytes);
void cuda_unview(struct kvk_dev *dev, const void *p);

/* As cuda_alloc(); *used: whether work in dev->stream may still use it, which other streams must wait for. */
void *cuda_alloc_known(struct kvk_dev *dev, size_t bytes, bool *used);

/* A piece of pinned memory, CUDA_PIECE bytes, that no copy uses any more.  Whoever queued copies from or into it says
 * so with cuda_piece_queued().  There are several, taken in turn: four at least. */
#define CUDA_PIECE ((size_t)4 << 20)
struct cuda_piece {
	char *host;
	void *device; /* as much device memory, once cuda_piece_device() was asked for it */
	cudaEvent_t done;
	bool queued;
};
struct cuda_piece *cuda_piece_next(struct kvk_dev *dev);
int cuda_piece_queued(struct kvk_dev *dev, struct cuda_piece *piece, cudaStream_t stream);
void *cuda_piece_device(struct kvk_dev *dev, struct cuda_piece *piece);
int cuda_piece_wait(struct kvk_dev *dev, struct cuda_piece *piece);
/* Host bytes through pieces, `most` of them (<= CUDA_PIECE) in each and in the last what is left; several are filled at
 * a time.  send() gets them in order, with the bytes from `at` on, queues the copy and calls cuda_piece_queued(). */
typedef int cuda_send_fn(struct kvk_dev *dev, void *ctx, struct cuda_piece *piece, size_t at, size_t bytes);
int cuda_stage(struct kvk_dev *dev, const void *host, size_t bytes, size_t most, cuda_send_fn *send, void *ctx);
/* Host bytes to the device in queue order: operations use it for their offsets, positions, lengths. */
int cuda_put(struct kvk_dev *dev, void *dst, const void *host, size_t bytes);
int cuda_get(struct kvk_dev *dev, void *host, const void *src, size_t bytes);
int cuda_get_as(
    struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n);
void cuda_staging_close(struct kvk_dev *dev);

/* A copy from host memory to host memory.  It belongs to the caller, and is a crew's from begin() to end(), which waits
 * for it and does others meanwhile.  c NULL: begin() does it. */
struct cuda_copy {
	void *to;
	const void *from;
	size_t bytes;
	bool done;
	struct cuda_copy *next;
};
#define CUDA_COPIERS 8 /* threads at most: more are no faster than a card takes it */
struct cuda_crew *cuda_crew_open(size_t threads); /* the caller counted, >= 1; NULL: out of memory */
void cuda_crew_close(struct cuda_crew *c);
size_t cuda_crew_size(const struct cuda_crew *c); /* the caller counted; 1 for NULL */
void cuda_copy_begin(struct cuda_crew *c, struct cuda_copy *copy);
void cuda_copy_end(struct cuda_crew *c, struct cuda_copy *copy);

/* y = n elements of x converted, round to nearest even; both are F32, F16 or BF16 device memory. */
int cuda_convert(
    struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, enum kvk_type x_type, size_t n);

/* c [m][n] f32 = factor * a [m][k] b [k][n] (+ c, when add).  Element (i, j) of a stands at a[i * a_row + j * a_col],
 * of which one is 1 and the other the distance of two rows; so b.  m, n, k > 0. */
struct cuda_gemm_job {
	const void *a, *b;
	size_t a_row, a_col, b_row, b_col;
	enum kvk_type type; /* of a and b: F32 (sums and factors are f32, no tf32) or BF16 */
	float *c;
	size_t c_row, m, n, k;
	float factor;
	bool add;
};
/* Loads cuBLAS when it is first called. */
int cuda_gemm(struct kvk_dev *dev, const struct cuda_gemm_job *g);
/* Can cuBLAS do it: are strides and sizes such as it takes? */
bool cuda_gemm_takes(const struct cuda_gemm_job *g);
int cuda_products_open(struct kvk_dev *dev); /* once; contract: products() */
void cuda_products_close(struct kvk_dev *dev);

/* A grid of n items in blocks of `step`; more than the x axis can hold is the caller's loop: at most 2^31 - 1. */
static inline unsigned
cuda_blocks(size_t n, size_t step)
{
	return (unsigned)((n + step - 1) / step);
}

static inline bool
cuda_is_float(enum kvk_type type)
{
	return type == KVK_F32 || type == KVK_F16 || type == KVK_BF16;
}

/* Element i of x as f32, in kernels: T is float, __half or __nv_bfloat16. */
template <typename T>
static __device__ inline float
cuda_load(const T *x, size_t i)
{
	return (float)x[i];
}

template <typename T>
static __device__ inline void
cuda_store(T *y, size_t i, float value)
{
	y[i] = (T)value;
}

/* Call WHAT<T>(...) with the C++ type of a float element type; a kernel launcher written as a function template. */
#define CUDA_TYPED(type, what, ...)                                                                                    \
	((type) == KVK_F32 ? what<float>(__VA_ARGS__)                                                                  \
	 : (type) == KVK_F16 ? what<__half>(__VA_ARGS__)                                                               \
	                     : what<__nv_bfloat16>(__VA_ARGS__))

/* Sum and maximum over a warp: every lane gets the same result, in the same order every time. */
static __device__ inline float
cuda_warp_sum(float x)
{
	for (int step = 16; step > 0; step /= 2)
		x += __shfl_xor_sync(KV_FULL, x, step);
	return x;
}

static __device__ inline float
cuda_warp_max(float x)
{
	for (int step = 16; step > 0; step /= 2)
		x = fmaxf(x, __shfl_xor_sync(KV_FULL, x, step));
	return x;
}

/* ---- the operations, one file each or one file per kind; the table is in kernels/cuda/cuda.cu */
int cuda_weight_open(struct kvk_dev *dev, struct kvk_weight **w, const void *host, enum kvk_type type, size_t rows,
    size_t cols, enum kvk_use use);
void cuda_weight_close(struct kvk_dev *dev, struct kvk_weight *w);
int cuda_rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y);
int cuda_linear(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add,
    float *y);
int cuda_rms_norm(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y);
int cuda_silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y);
int cuda_heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at);
int cuda_attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
    const struct kvk_ragged *cache, float scale, float *y);
int cuda_scores(struct kvk_dev *dev, const struct kvk_scores *job, float *s);
int cuda_reduce_heads(struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how,
    float *y);
int cuda_row_moments(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *mean, double *cov);
int cuda_forms(struct kvk_dev *dev, const struct kvk_forms *job, double *z);
int cuda_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y);
int cuda_select(struct kvk_dev *dev, const struct kvk_select *job, int32_t *index);
int cuda_copy_rows(struct kvk_dev *dev, const struct kvk_copy *job);
int cuda_finite(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first);
void *cuda_host_alloc(struct kvk_dev *dev, size_t bytes);
void cuda_host_free(struct kvk_dev *dev, void *p);
int cuda_fetch(struct kvk_dev *dev, void *host, const void *src, size_t bytes);
int cuda_arrive(struct kvk_dev *dev);
void cuda_fetches_close(struct kvk_dev *dev);
int cuda_card(int ordinal, char *text, size_t bytes);
int cuda_use(struct kvk_dev *dev);
int cuda_lend(struct kvk_dev *dev, const void *p, struct kvk_handle *handle);
const void *cuda_borrow(struct kvk_dev *dev, const struct kvk_handle *handle);
void cuda_unborrow(struct kvk_dev *dev, const void *p);
int cuda_product(struct kvk_dev *dev, const struct kvk_product *job);
int cuda_linear_rows(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias,
    int add, float *y);
int cuda_linear_back(struct kvk_dev *dev, const struct kvk_weight *w, const float *dy, size_t n, int add, float *dx);
int cuda_rms_norm_back(struct kvk_dev *dev, const float *x, const float *w, float eps, const float *dy, size_t n,
    size_t d, int add, float *dx);
int cuda_silu_mul_back(struct kvk_dev *dev, const float *gate, const float *up, const float *dy, size_t n,
    float *dgate, float *dup);
int cuda_heads_back(struct kvk_dev *dev, const struct kvk_heads_back *job, float *dx);
int cuda_behind(struct kvk_dev *dev, const struct kvk_behind *job, float *y, float *s);
int cuda_behind_back(struct kvk_dev *dev, const struct kvk_behind *job, const float *dy, const float *ds, float *dq,
    float *dk, float *dv);

#endif
