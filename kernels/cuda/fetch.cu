/* SPDX-License-Identifier: MIT
 * Copies to the host while the card computes, in a queue of their own. */
#include "kernels/cuda/cuda.h"

void *
cuda_host_alloc(struct kvk_dev *dev, size_t bytes)
{
	void *p = NULL;

	if (cuda_check(dev, cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocDefault), "pinned memory") != 0)
		return NULL;
	return p;
}

void
cuda_host_free(struct kvk_dev *dev, void *p)
{
	(void)dev;
	if (p != NULL)
		cudaFreeHost(p);
}

static int
open_fetches(struct kvk_dev *dev)
{
	int rc;

	if (dev->fetches != NULL)
		return 0;
	rc = cuda_check(dev, cudaEventCreateWithFlags(&dev->computed, cudaEventDisableTiming), "an event");
	if (rc != 0)
		return rc;
	rc = cuda_check(dev, cudaStreamCreateWithFlags(&dev->fetches, cudaStreamNonBlocking), "a queue");
	if (rc != 0) {
		cudaEventDestroy(dev->computed);
		dev->fetches = NULL;
	}
	return rc;
}

int
cuda_fetch(struct kvk_dev *dev, void *host, const void *src, size_t bytes)
{
	int rc;

	if (bytes == 0)
		return 0;
	if ((rc = open_fetches(dev)) != 0 ||
	    (rc = cuda_check(dev, cudaEventRecord(dev->computed, dev->stream), "an event")) != 0 ||
	    (rc = cuda_check(dev, cudaStreamWaitEvent(dev->fetches, dev->computed, 0), "an event")) != 0)
		return rc;
	return cuda_check(
	    dev, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, dev->fetches), "copy to the host");
}

int
cuda_arrive(struct kvk_dev *dev)
{
	return dev->fetches != NULL ? cuda_check(dev, cudaStreamSynchronize(dev->fetches), "copy to the host") : 0;
}

void
cuda_fetches_close(struct kvk_dev *dev)
{
	if (dev->fetches == NULL)
		return;
	cudaStreamSynchronize(dev->fetches);
	cudaStreamDestroy(dev->fetches);
	cudaEventDestroy(dev->computed);
}
