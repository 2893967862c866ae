/* SPDX-License-Identifier: MIT
 * Matrix products on the host, in one thread.
 */
#ifndef SHIM_GEMM_H
#define SHIM_GEMM_H

#include <stddef.h>

#include <library_types.h>

/* A matrix as cuBLAS has it: column-major, element (i, j) at i + j * ld, or of its transpose. */
struct matrix {
	const void *p;
	cudaDataType type; /* CUDA_R_32F, CUDA_R_16F or CUDA_R_16BF; CUDA_R_64F with gemm_f64 */
	size_t ld;
	bool turned;
};

/* c [m][n] column-major = alpha a b + beta c; with beta 0 c is not read.  The sum over k runs upwards. */
void gemm_f32(size_t m, size_t n, size_t k, float alpha, const struct matrix *a, const struct matrix *b, float beta,
    float *c, size_t ldc);
void gemm_f64(size_t m, size_t n, size_t k, double alpha, const struct matrix *a, const struct matrix *b, double beta,
    double *c, size_t ldc);

#endif
