/* SPDX-License-Identifier: MIT
 * cuBLAS: opened for whoever multiplies (products()), so that programs without one neither need nor load it. */
#include "kernels/cuda/cuda.h"

#include <cublas_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* The header has an overload of it beside. */
typedef cublasStatus_t gemm_fn(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
    const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *, cudaDataType, int,
    cublasComputeType_t, cublasGemmAlgo_t);

struct cuda_products {
	void *library;
	cublasHandle_t handle;
	decltype(&cublasCreate_v2) create;
	decltype(&cublasDestroy_v2) destroy;
	decltype(&cublasSetStream_v2) set_stream;
	gemm_fn *gemm;
	decltype(&cublasGetStatusString) text;
};

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{ "cublasCreate_v2", offsetof(struct cuda_products, create) },
	{ "cublasDestroy_v2", offsetof(struct cuda_products, destroy) },
	{ "cublasSetStream_v2", offsetof(struct cuda_products, set_stream) },
	{ "cublasGemmEx", offsetof(struct cuda_products, gemm) },
	{ "cublasGetStatusString", offsetof(struct cuda_products, text) },
};

/* It stays in memory once it is there: what it registers with the driver must not go.  KV_CUBLAS_LIBRARY, or what this
 * version of CUDA, the one before, and a machine to build on have; why: of the first of these. */
static void *
find_library(char *why, size_t why_bytes)
{
	static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so",
		"/usr/local/cuda/lib64/libcublas.so" };
	const char *own = getenv("KV_CUBLAS_LIBRARY");
	const bool named = own != NULL && *own != '\0';
	void *library = NULL;

	for (size_t i = 0; library == NULL && i < (named ? 1 : sizeof names / sizeof *names); i++) {
		library = dlopen(named ? own : names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		if (library == NULL && i == 0)
			snprintf(why, why_bytes, "%s", dlerror());
	}
	return library;
}

static int
find_symbols(struct kvk_dev *dev, struct cuda_products *p)
{
	char why[256] = "";

	if ((p->library = find_library(why, sizeof why)) == NULL)
		return cuda_fail(dev, KVK_EMATH,
		    "cuBLAS: %.140s; install it, or set KV_CUBLAS_LIBRARY to its path, or use --device cpu", why);
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(p->library, symbols[i].name);

		if (f == NULL)
			return cuda_fail(dev, KVK_EMATH, "cuBLAS lacks %s: a newer one is needed", symbols[i].name);
		*(void **)((char *)p + symbols[i].offset) = f;
	}
	return 0;
}

static int
check(struct kvk_dev *dev, const struct cuda_products *p, cublasStatus_t status, const char *what)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	return cuda_fail(dev, status == CUBLAS_STATUS_ALLOC_FAILED ? KVK_EMEM : KVK_EMATH, "cuBLAS: %s: %s", what,
	    p->text(status));
}

int
cuda_products_open(struct kvk_dev *dev)
{
	struct cuda_products *p;
	int rc;

	if (dev->products != NULL)
		return 0;
	if ((p = (struct cuda_products *)calloc(1, sizeof *p)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "out of memory");
	dev->products = p;
	if ((rc = find_symbols(dev, p)) == 0 && (rc = check(dev, p, p->create(&p->handle), "opening")) == 0)
		rc = check(dev, p, p->set_stream(p->handle, dev->stream), "queue");
	if (rc != 0)
		cuda_products_close(dev);
	return rc;
}

void
cuda_products_close(struct kvk_dev *dev)
{
	struct cuda_products *p = dev->products;

	if (p == NULL)
		return;
	if (p->handle != NULL)
		p->destroy(p->handle);
	if (p->library != NULL)
		dlclose(p->library);
	free(p);
	dev->products = NULL;
}

/* One stride is 1 and the other holds a whole row of the n elements that lie side by side. */
static bool
dense(size_t row, size_t col, size_t rows, size_t cols)
{
	return (col == 1 && row >= cols && row <= INT_MAX) || (row == 1 && col >= rows && col <= INT_MAX);
}

bool
cuda_gemm_takes(const struct cuda_gemm_job *g)
{
	return g->m > 0 && g->n > 0 && g->k > 0 && g->m <= INT_MAX && g->n <= INT_MAX && g->k <= INT_MAX &&
	    g->c_row >= g->n && g->c_row <= INT_MAX && dense(g->a_row, g->a_col, g->m, g->k) &&
	    dense(g->b_row, g->b_col, g->k, g->n);
}

/* cuBLAS counts by columns, so that our rows are its columns: it computes c^T = b^T a^T, where a matrix with rows side
 * by side (col 1) is already turned. */
int
cuda_gemm(struct kvk_dev *dev, const struct cuda_gemm_job *g)
{
	const cudaDataType_t type = g->type == KVK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
	const bool a_plain = g->a_col == 1 && g->a_row >= g->k, b_plain = g->b_col == 1 && g->b_row >= g->n;
	const float factor = g->factor, before = g->add ? 1 : 0;
	int rc;

	if (!cuda_gemm_takes(g))
		return cuda_fail(
		    dev, KVK_ESHAPE, "cuBLAS: a product of %zu x %zu x %zu is too large", g->m, g->n, g->k);
	if ((rc = cuda_products_open(dev)) != 0)
		return rc;
	return check(dev, dev->products,
	    dev->products->gemm(dev->products->handle, b_plain ? CUBLAS_OP_N : CUBLAS_OP_T,
	        a_plain ? CUBLAS_OP_N : CUBLAS_OP_T, (int)g->n, (int)g->m, (int)g->k, &factor, g->b, type,
	        (int)(b_plain ? g->b_row : g->b_col), g->a, type, (int)(a_plain ? g->a_row : g->a_col), &before,
	        g->c, CUDA_R_32F, (int)g->c_row, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
	    "product");
}
