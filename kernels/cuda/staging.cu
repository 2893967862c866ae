/* SPDX-License-Identifier: MIT
 * Copies between host and device, by way of pinned memory: only that is copied while the host goes on.
 *
 * Large arrays go in pieces, the host filling or emptying some while the card copies another.  Small ones share a piece
 * until that is full. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define FEW   4 /* pieces, as long as no more is copied at once than they hold */
#define MOST  (FEW + CUDA_COPIERS)
#define SMALL ((size_t)64 << 10) /* bytes that may share a piece */

struct cuda_staging {
	struct cuda_piece piece[MOST];
	size_t n, next; /* those that are taken in turn; the next one */
	struct cuda_piece small; /* uploads; queued each time */
	size_t used;             /* bytes of small */
};

static int
open_piece(struct kvk_dev *dev, struct cuda_piece *p)
{
	cudaError_t status;
	int rc;

	if (p->host != NULL)
		return 0;
	if ((rc = cuda_check(dev, cudaEventCreateWithFlags(&p->done, cudaEventDisableTiming), "an event")) != 0)
		return rc;
	if ((status = cudaHostAlloc((void **)&p->host, CUDA_PIECE, cudaHostAllocDefault)) == cudaSuccess)
		return 0;
	cudaEventDestroy(p->done);
	p->host = NULL;
	rc = cuda_check(dev, status, "pinned host memory");
	return rc == KVK_EMEM ? cuda_fail(dev, rc, "out of pinned host memory (%zu bytes wanted)", CUDA_PIECE) : rc;
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
	if (dev->staging != NULL)
		return dev->staging;
	if ((dev->staging = (struct cuda_staging *)calloc(1, sizeof *dev->staging)) != NULL)
		dev->staging->n = FEW;
	else
		cuda_fail(dev, KVK_EMEM, "out of memory");
	return dev->staging;
}

void
cuda_staging_close(struct kvk_dev *dev)
{
	if (dev->staging == NULL)
		return;
	for (size_t i = 0; i < MOST; i++)
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
	p = &s->piece[s->next++ % s->n];
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
		return KVK_EMEM;
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

/* ---- many pieces, filled by several threads */

/* A piece that is being filled. */
struct filling {
	struct cuda_piece *piece;
	struct cuda_copy copy;
	size_t at;
};

/* How many pieces are filled at a time: fewer than there are, so that the one that is filled next is none of them. */
static size_t
open_stage(struct kvk_dev *dev, struct cuda_staging *s, size_t n_pieces)
{
	size_t width;

	if (n_pieces < 2)
		return 1;
	if (dev->crew == NULL)
		dev->crew = cuda_crew_open(dev->threads);
	width = cuda_crew_size(dev->crew);
	if (n_pieces > s->n)
		s->n = FEW + width;
	return width < s->n ? width : s->n - 1;
}

static int
begin_filling(struct kvk_dev *dev, struct filling *f, const char *host, size_t at, size_t bytes)
{
	if ((f->piece = cuda_piece_next(dev)) == NULL)
		return KVK_EMEM;
	f->at = at;
	f->copy.to = f->piece->host;
	f->copy.from = host + at;
	f->copy.bytes = bytes;
	cuda_copy_begin(dev->crew, &f->copy);
	return 0;
}

int
cuda_stage(struct kvk_dev *dev, const void *host, size_t bytes, size_t most, cuda_send_fn *send, void *ctx)
{
	struct cuda_staging *s = staging(dev);
	const size_t width = s != NULL ? open_stage(dev, s, (bytes + most - 1) / most) : 0;
	struct filling ring[MOST];
	size_t at = 0, begun = 0, sent = 0;
	int rc = s != NULL ? 0 : KVK_EMEM;

	while ((rc == 0 && at < bytes) || sent < begun) { /* after a fault: until nobody reads the host's bytes */
		struct filling *f = &ring[begun % MOST];

		if (rc == 0 && at < bytes && begun - sent < width) {
			rc = begin_filling(dev, f, (const char *)host, at, bytes - at < most ? bytes - at : most);
			if (rc == 0) {
				at += f->copy.bytes;
				begun++;
			}
			continue;
		}
		f = &ring[sent++ % MOST];
		cuda_copy_end(dev->crew, &f->copy);
		if (rc == 0)
			rc = send(dev, ctx, f->piece, f->at, f->copy.bytes);
	}
	return rc;
}

static int
put_piece(struct kvk_dev *dev, void *ctx, struct cuda_piece *piece, size_t at, size_t bytes)
{
	const int rc = to_device(dev, (char *)ctx + at, piece->host, bytes);

	return rc == 0 ? cuda_piece_queued(dev, piece, dev->stream) : rc;
}

int
cuda_put(struct kvk_dev *dev, void *dst, const void *host, size_t bytes)
{
	if (bytes == 0)
		return 0;
	if (bytes <= SMALL)
		return put_small(dev, dst, host, bytes);
	return cuda_stage(dev, host, bytes, CUDA_PIECE, put_piece, dst);
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

/* While the host empties a piece the card fills the next.  Conversion happens on the card, in scratch memory of one
 * piece: what overwrites it is queued behind the copy that reads it. */
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
		return KVK_EMEM;
	for (size_t m; n > 0 && rc == 0; n -= m, from += m * in, to += m * out) {
		struct arrival now = { cuda_piece_next(dev), to, 0 };

		m = n < step ? n : step;
		now.bytes = m * out;
		if (now.p == NULL)
			return KVK_EMEM;
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
		return cuda_fail(dev, KVK_ETYPE, "get_as: types are f32, f16 and bf16");
	return get(dev, host, host_type, src, type, n);
}
