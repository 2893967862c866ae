/* SPDX-License-Identifier: MIT
 * The entry points of cuBLAS that the backend uses, in the same library as the rest: KV_CUBLAS_LIBRARY names it.
 * A product is work of the handle's stream, like a kernel.
 */
#pragma GCC visibility push(default)
#include <cublas_v2.h>
#pragma GCC visibility pop

#include <stdint.h>

#include "block.h"
#include "gemm.h"
#include "runtime.h"

struct cublasContext {
	cudaStream_t stream;
	cublasPointerMode_t mode;
};

/* One call: `count` products, their matrices `step` elements apart. */
struct product {
	size_t m, n, k, count;
	struct matrix a, b, c;
	long long a_step, b_step, c_step;
	double alpha, beta;
};

static size_t
size_of(cudaDataType type)
{
	return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

static const void *
step_to(const struct matrix *x, size_t i, long long step)
{
	return (const char *)x->p + (long long)i * step * (long long)size_of(x->type);
}

/* All of a rows x cols matrix is on the device. */
static void
check(const struct matrix *x, size_t rows, size_t cols, const char *name)
{
	const size_t high = x->turned ? cols : rows, wide = x->turned ? rows : cols;

	if (high > 0 && wide > 0)
		memory_check(x->p, ((wide - 1) * x->ld + high) * size_of(x->type), "cuBLAS product", name);
}

static void
run(const struct product *p)
{
	memory_open();
	for (size_t i = 0; i < p->count; i++) {
		struct matrix a = p->a, b = p->b, c = p->c;

		a.p = step_to(&p->a, i, p->a_step);
		b.p = step_to(&p->b, i, p->b_step);
		c.p = step_to(&p->c, i, p->c_step);
		check(&a, p->m, p->k, "a");
		check(&b, p->k, p->n, "b");
		check(&c, p->m, p->n, "c");
		if (c.type == CUDA_R_64F)
			gemm_f64(p->m, p->n, p->k, p->alpha, &a, &b, p->beta, (double *)c.p, c.ld);
		else
			gemm_f32(p->m, p->n, p->k, (float)p->alpha, &a, &b, (float)p->beta, (float *)c.p, c.ld);
	}
	memory_close();
}

static bool
is_wide_enough(const struct matrix *x, size_t rows, size_t cols)
{
	const size_t high = x->turned ? cols : rows;

	return x->ld >= (high > 1 ? high : 1);
}

static bool
are_types_known(const struct product *p)
{
	if (p->c.type == CUDA_R_64F)
		return p->a.type == CUDA_R_64F && p->b.type == CUDA_R_64F;
	return p->c.type == CUDA_R_32F && p->a.type == p->b.type && p->a.type != CUDA_R_64F && size_of(p->a.type) != 0;
}

/* alpha and beta are of the type of c. */
static cublasStatus_t
queue(cublasHandle_t handle, struct product p, const void *alpha, const void *beta)
{
	if (handle == NULL)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (!are_types_known(&p) || handle->mode != CUBLAS_POINTER_MODE_HOST)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (!is_wide_enough(&p.a, p.m, p.k) || !is_wide_enough(&p.b, p.k, p.n) || !is_wide_enough(&p.c, p.m, p.n))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (p.m == 0 || p.n == 0 || p.count == 0)
		return CUBLAS_STATUS_SUCCESS;
	p.alpha = p.c.type == CUDA_R_64F ? *(const double *)alpha : (double)*(const float *)alpha;
	p.beta = p.c.type == CUDA_R_64F ? *(const double *)beta : (double)*(const float *)beta;
	for (const struct matrix *x : { &p.a, &p.b, &p.c })
		if ((uintptr_t)x->p % size_of(x->type) != 0)
			return CUBLAS_STATUS_INVALID_VALUE;
	return stream_add(handle->stream, [p] { run(&p); }) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
	                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

static struct product
shape(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k)
{
	struct product p = {};

	p.m = (size_t)m;
	p.n = (size_t)n;
	p.k = (size_t)k;
	p.count = 1;
	p.a.turned = ta != CUBLAS_OP_N;
	p.b.turned = tb != CUBLAS_OP_N;
	return p;
}

static void
describe(struct matrix *x, const void *data, cudaDataType type, int ld)
{
	x->p = data;
	x->type = type;
	x->ld = (size_t)ld;
}

cublasStatus_t
cublasCreate_v2(cublasHandle_t *handle)
{
	if (device_ready() != cudaSuccess)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	*handle = new cublasContext();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy_v2(cublasHandle_t handle)
{
	delete handle;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
	handle->mode = mode;
	return CUBLAS_STATUS_SUCCESS;
}

/* Sums are f32 whatever the mode. */
cublasStatus_t
cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
	(void)handle;
	(void)mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
	(void)handle;
	(void)mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
	(void)handle;
	memory_check(workspace, bytes, "cublasSetWorkspace", "workspace");
	return CUBLAS_STATUS_SUCCESS;
}

const char *
cublasGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS ? "success" : "the test shim refused";
}

cublasStatus_t
cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
	(void)handle;
	*version = CUBLAS_VERSION;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType a_type, int lda, long long a_step, const void *b,
    cudaDataType b_type, int ldb, long long b_step, const void *beta, void *c, cudaDataType c_type, int ldc,
    long long c_step, int count, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	struct product p = shape(ta, tb, m, n, k);

	(void)algo;
	if (m < 0 || n < 0 || k < 0 || count < 0 || lda < 0 || ldb < 0 || ldc < 0)
		return CUBLAS_STATUS_INVALID_VALUE;
	if ((c_type == CUDA_R_64F) != (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (c_type == CUDA_R_32F && (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_32I))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	describe(&p.a, a, a_type, lda);
	describe(&p.b, b, b_type, ldb);
	describe(&p.c, c, c_type, ldc);
	p.a_step = a_step;
	p.b_step = b_step;
	p.c_step = c_step;
	p.count = (size_t)count;
	return queue(handle, p, alpha, beta);
}

cublasStatus_t
cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
    const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb, const void *beta, void *c,
    cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
	    c_type, ldc, 0, 1, compute, algo);
}

cublasStatus_t
cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
	return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F,
	    ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t
cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const double *alpha, const double *a, int lda, const double *b, int ldb, const double *beta, double *c, int ldc)
{
	return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_64F, lda, b, CUDA_R_64F, ldb, beta, c, CUDA_R_64F,
	    ldc, CUBLAS_COMPUTE_64F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t
cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float *alpha, const float *a, int lda, long long a_step, const float *b, int ldb, long long b_step,
    const float *beta, float *c, int ldc, long long c_step, int count)
{
	return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, a_step, b, CUDA_R_32F,
	    ldb, b_step, beta, c, CUDA_R_32F, ldc, c_step, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
