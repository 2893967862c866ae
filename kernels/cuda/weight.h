/* SPDX-License-Identifier: MIT
 * Matrices of the model on the card.
 */
#ifndef KVK_CUDA_WEIGHT_H
#define KVK_CUDA_WEIGHT_H

#include "kernels/cuda/cuda.h"

struct kvk_weight {
	enum kvk_type type; /* of the file */
	enum kvk_type held; /* of p: for many rows F32 or BF16, by the precision; for few rows that of the file */
	enum kvk_use use;
	size_t rows, cols;
	size_t row_bytes;     /* of p */
	void *p;              /* device [rows][row_bytes] */
	size_t bytes;         /* of its memory */
	cudaEvent_t event;    /* in dev->copies: p is complete; once closed, in dev->stream: p is free */
	mutable bool pending; /* dev->stream has not been told to wait for that yet */
};

/* Called by whoever queues work that reads w->p. */
int cuda_weight_ready(struct kvk_dev *dev, const struct kvk_weight *w);

/* Memory of closed weights back to the others; at the end, all that is kept of weights. */
void cuda_spares_release(struct kvk_dev *dev);
void cuda_spares_close(struct kvk_dev *dev);

/* n elements of a weight type (whole blocks, if it has any) as F32 or BF16, in this stream. */
int cuda_expand(struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, enum kvk_type type, size_t n,
    cudaStream_t stream);

/* linear() through a matrix as it stands, quantised or not, for few rows: it is read once for every four of them. */
int cuda_linear_few(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias,
    int add, float *y);

#endif
