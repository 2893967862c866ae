/* SPDX-License-Identifier: MIT
 * Memory that passes from process to process without leaving the card. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(struct kvk_handle), "a handle is the library's");

/* By the card's own number, which CUDA_VISIBLE_DEVICES does not change. */
int
cuda_card(int ordinal, char *text, size_t bytes)
{
	cudaDeviceProp prop;
	const unsigned char *u = (const unsigned char *)prop.uuid.bytes;
	const int rc = cuda_find_device(ordinal, &prop, text, bytes);

	if (rc == 0)
		snprintf(text, bytes, "cuda:GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		    u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
		    u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	return rc;
}

int
cuda_use(struct kvk_dev *dev)
{
	return cuda_check(dev, cudaSetDevice(dev->ordinal), "the card");
}

int
cuda_lend(struct kvk_dev *dev, const void *p, struct kvk_handle *handle)
{
	cudaIpcMemHandle_t h;
	const int rc = cuda_check(dev, cudaIpcGetMemHandle(&h, (void *)(uintptr_t)p), "lend");

	if (rc == 0)
		memcpy(handle->bytes, &h, sizeof h);
	return rc;
}

const void *
cuda_borrow(struct kvk_dev *dev, const struct kvk_handle *handle)
{
	cudaIpcMemHandle_t h;
	void *p = NULL;

	memcpy(&h, handle->bytes, sizeof h);
	if (cuda_check(dev, cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess), "borrow") != 0)
		return NULL;
	return p;
}

void
cuda_unborrow(struct kvk_dev *dev, const void *p)
{
	cudaStreamSynchronize(dev->stream);
	if (cudaIpcCloseMemHandle((void *)(uintptr_t)p) != cudaSuccess)
		cudaGetLastError(); /* its process is gone, and the memory with it */
}
