/* SPDX-License-Identifier: MIT
 * Copies between host and device, by way of pinned memory: only that is copied while the host goes on.
 *
 * Large arrays go in pieces, the host filling or emptying one while the card copies another.  Small ones share a piece
 * until that is full. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define PIECES 4
#define SMALL  ((size_t)64 << 10) /* bytes that may share a piece */

struct cuda_staging {
	struct cuda_piece piece[PIECES];
	size_t next;
	struct cuda_piece small; /* uploads; queued each time */
	size_t used;             /* bytes of small */
};

static int
open_piece(struct kvk_dev *dev, struct cuda_piece *p)
{
	int rc;

	if (p->host != NULL)
		return 0;
	if ((rc = cuda_check(dev, cudaEventCreateWithFlags(&p->done, cudaEventDisableTiming), "an event")) != 0)
		return rc;
	if (cudaHostAlloc((void **)&p->host, CUDA_PIECE, cudaHostAllocDefault) == cudaSuccess)
		return 0;
	cudaGetLastError();
	cudaEventDestroy(p->done);
	p->host = NULL;
	return cuda_fail(dev, CUDA_EMEM, "out of pinned host memory (%zu bytes wanted)", CUDA_PIECE);
}

void *
cuda_piece_device(struct kvk_dev *dev, struct cuda_piece *p)
{
	if (p->device == NULL && cudaMalloc(&p->device, CUDA_PIECE) != cudaSuccess) {
		cudaGetLastError();
		p->device = NULL;
		cuda_no_memory(dev, CUDA_PIECE);
	}
	return p->device;
}

static void
close_piece(struct cuda_piece *p)
{
	if (p->host == NULL)
		return;
	cudaFreeHost(p->host);
	cudaFree(p->device);
	cudaEventDestroy(p->done);
}

static struct cuda_staging *
staging(struct kvk_dev *dev)
{
	if (dev->staging == NULL)
		dev->staging = (struct cuda_staging *)calloc(1, sizeof *dev->staging);
	if (dev->staging == NULL)
		cuda_fail(dev, CUDA_EMEM, "out of memory");
	return dev->staging;
}

void
cuda_staging_close(struct kvk_dev *dev)
{
	if (dev->staging == NULL)
		return;
	for (size_t i = 0; i < PIECES; i++)
		close_piece(&dev->staging->piece[i]);
	close_piece(&dev->staging->small);
	free(dev->staging);
}

int
cuda_piece_wait(struct kvk_dev *dev, struct cuda_piece *p)
{
	if (!p->queued)
		return 0;
	p->queued = false;
	return cuda_check(dev, cudaEventSynchronize(p->done), "a copy");
}

int
cuda_piece_queued(struct kvk_dev *dev, struct cuda_piece *p, cudaStream_t stream)
{
	p->queued = true;
	return cuda_check(dev, cudaEventRecord(p->done, stream), "a copy");
}

struct cuda_piece *
cuda_piece_next(struct kvk_dev *dev)
{
	struct cuda_staging *s = staging(dev);
	struct cuda_piece *p;

	if (s == NULL)
		return NULL;
	p = &s->piece[s->next++ % PIECES];
	return open_piece(dev, p) == 0 && cuda_piece_wait(dev, p) == 0 ? p : NULL;
}

static int
to_device(struct kvk_dev *dev, void *dst, const char *pinned, size_t bytes)
{
	return cuda_check(
	    dev, cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, dev->stream), "copy to the device");
}

static int
put_small(struct kvk_dev *dev, void *dst, const void *host, size_t bytes)
{
	struct cuda_staging *s = staging(dev);
	int rc;

	if (s == NULL || open_piece(dev, &s->small) != 0)
		return CUDA_EMEM;
	if (bytes > CUDA_PIECE - s->used) {
		if ((rc = cuda_piece_wait(dev, &s->small)) != 0)
			return rc;
		s->used = 0;
	}
	memcpy(s->small.host + s->used, host, bytes);
	if ((rc = to_device(dev, dst, s->small.host + s->used, bytes)) != 0)
		return rc;
	s->used += (bytes + 63) / 64 * 64;
	return cuda_piece_queued(dev, &s->small, dev->stream);
}

int
cuda_put(struct kvk_dev *dev, void *dst, const void *host, size_t bytes)
{
	const char *from = (const char *)host;
	char *to = (char *)dst;
	int rc = 0;

	if (bytes == 0)
		return 0;
	if (bytes <= SMALL)
		return put_small(dev, dst, host, bytes);
	for (size_t n; bytes > 0 && rc == 0; bytes -= n, from += n, to += n) {
		struct cuda_piece *p = cuda_piece_next(dev);

		if (p == NULL)
			return CUDA_EMEM;
		n = bytes < CUDA_PIECE ? bytes : CUDA_PIECE;
		memcpy(p->host, from, n);
		if ((rc = to_device(dev, to, p->host, n)) == 0)
			rc = cuda_piece_queued(dev, p, dev->stream);
	}
	return rc;
}

int
cuda_upload(struct kvk_dev *dev, void *dst, const void *host, size_t bytes)
{
	return cuda_put(dev, dst, host, bytes);
}

/* A piece on its way to the host, and where it goes then. */
struct arrival {
	struct cuda_piece *p;
	char *to;
	size_t bytes;
};

static int
land(struct kvk_dev *dev, struct arrival *a)
{
	const int rc = a->p != NULL ? cuda_piece_wait(dev, a->p) : 0;

	if (rc == 0 && a->p != NULL)
		memcpy(a->to, a->p->host, a->bytes);
	a->p = NULL;
	return rc;
}

/* While the host empties a piece the card fills the next.  Conversion happens on the card, in scratch memory of two
 * pieces: the second's copy is queued before the first's kernel is overwritten, in queue order. */
static int
get(struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n)
{
	const size_t in = kvk_types[type].bytes, out = kvk_types[host_type].bytes, step = CUDA_PIECE / out;
	const char *from = (const char *)src;
	struct arrival before = {};
	char *to = (char *)host, *room = NULL;
	int rc = 0;

	if (n == 0)
		return cuda_check(dev, cudaStreamSynchronize(dev->stream), "the card");
	if (type != host_type && (room = (char *)cuda_scratch(dev, (n < step ? n : step) * out)) == NULL)
		return CUDA_EMEM;
	for (size_t m; n > 0 && rc == 0; n -= m, from += m * in, to += m * out) {
		struct arrival now = { cuda_piece_next(dev), to, 0 };

		m = n < step ? n : step;
		now.bytes = m * out;
		if (now.p == NULL)
			return CUDA_EMEM;
		if (room != NULL)
			rc = cuda_convert(dev, room, host_type, from, type, m);
		if (rc == 0)
			rc = cuda_check(dev,
			    cudaMemcpyAsync(now.p->host, room != NULL ? room : from, now.bytes,
			        cudaMemcpyDeviceToHost, dev->stream),
			    "copy to the host");
		if (rc == 0 && (rc = cuda_piece_queued(dev, now.p, dev->stream)) == 0)
			rc = land(dev, &before);
		before = now;
	}
	return rc == 0 ? land(dev, &before) : rc;
}

int
cuda_get(struct kvk_dev *dev, void *host, const void *src, size_t bytes)
{
	return get(dev, host, KVK_U8, src, KVK_U8, bytes);
}

int
cuda_get_as(struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n)
{
	if (!cuda_is_float(type) || !cuda_is_float(host_type))
		return cuda_fail(dev, CUDA_ETYPE, "get_as: types are f32, f16 and bf16");
	return get(dev, host, host_type, src, type, n);
}
