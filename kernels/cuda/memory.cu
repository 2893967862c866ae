/* SPDX-License-Identifier: MIT
 * Device memory: what was freed is kept and handed out again, because cudaMalloc takes as long as a kernel and cudaFree
 * waits for the card. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weight.h"
#include "kernels/lack.h"

#include <stdlib.h>

#define BUCKETS 1024
#define ALIGN   256
#define KEEP    ((size_t)256 << 20) /* bytes that may lie idle however little is in use */

struct block {
	void *p;
	size_t bytes;
	struct block *next; /* of its bucket, or of the idle ones */
};

struct cuda_memory {
	struct block *used[BUCKETS]; /* by address */
	struct block *idle;          /* the last freed first */
	size_t used_bytes, idle_bytes;
};

static struct block **
bucket(struct cuda_memory *m, const void *p)
{
	return &m->used[((uintptr_t)p / ALIGN * 0x9e3779b97f4a7c15u) >> 54];
}

/* Sizes that many requests share: an eighth of a power of two apart. */
static size_t
round_up(size_t bytes)
{
	size_t step = ALIGN;

	while (step < bytes / 16)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

static void
drop(struct cuda_memory *m, struct block **at)
{
	struct block *b = *at;

	*at = b->next;
	m->idle_bytes -= b->bytes;
	cudaFree(b->p);
	free(b);
}

/* The oldest ones go first, until `most` bytes lie idle. */
static void
trim(struct cuda_memory *m, size_t most)
{
	size_t bytes = 0;

	for (struct block **at = &m->idle; *at != NULL;) {
		bytes += (*at)->bytes;
		if (bytes > most)
			drop(m, at);
		else
			at = &(*at)->next;
	}
}

/* The idle block that `bytes` fill best, at least by three quarters, or NULL. */
static struct block *
take_idle(struct cuda_memory *m, size_t bytes)
{
	struct block **best = NULL, *b;

	for (struct block **at = &m->idle; *at != NULL; at = &(*at)->next)
		if ((*at)->bytes >= bytes && (*at)->bytes - bytes <= bytes / 3 &&
		    (best == NULL || (*at)->bytes < (*best)->bytes))
			best = at;
	if (best == NULL)
		return NULL;
	b = *best;
	*best = b->next;
	m->idle_bytes -= b->bytes;
	return b;
}

static struct block *
fresh(struct kvk_dev *dev, size_t bytes)
{
	struct block *b = (struct block *)malloc(sizeof *b);

	if (b == NULL)
		return NULL;
	b->bytes = bytes;
	if (cudaMalloc(&b->p, bytes) == cudaSuccess)
		return b;
	cudaGetLastError();
	cuda_spares_release(dev);
	trim(dev->memory, 0);
	if (cudaMalloc(&b->p, bytes) == cudaSuccess)
		return b;
	cudaGetLastError();
	free(b);
	return NULL;
}

void *
cuda_alloc_known(struct kvk_dev *dev, size_t bytes, bool *used)
{
	struct cuda_memory *m = dev->memory;
	struct block *b, **list;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = round_up(bytes > 0 ? bytes : 1);
	b = take_idle(m, bytes);
	*used = b != NULL;
	if (b == NULL && (b = fresh(dev, bytes)) == NULL)
		return NULL;
	list = bucket(m, b->p);
	b->next = *list;
	*list = b;
	m->used_bytes += b->bytes;
	return b->p;
}

void *
cuda_alloc(struct kvk_dev *dev, size_t bytes)
{
	bool used;

	return cuda_alloc_known(dev, bytes, &used);
}

void
cuda_free(struct kvk_dev *dev, void *p)
{
	struct cuda_memory *m = dev->memory;
	struct block **at, *b;

	if (p == NULL)
		return;
	for (at = bucket(m, p); *at != NULL && (*at)->p != p; at = &(*at)->next)
		;
	if ((b = *at) == NULL)
		return;
	*at = b->next;
	b->next = m->idle;
	m->idle = b;
	m->used_bytes -= b->bytes;
	m->idle_bytes += b->bytes;
	if (m->idle_bytes > KEEP && m->idle_bytes > m->used_bytes)
		trim(m, m->used_bytes > KEEP ? m->used_bytes : KEEP);
}

int
cuda_memory_open(struct kvk_dev *dev)
{
	if ((dev->memory = (struct cuda_memory *)calloc(1, sizeof *dev->memory)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "out of memory");
	return 0;
}

void
cuda_memory_close(struct kvk_dev *dev)
{
	struct cuda_memory *m = dev->memory;

	if (m == NULL)
		return;
	trim(m, 0);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct block *b = m->used[i], *next; b != NULL; b = next) {
			next = b->next;
			cudaFree(b->p);
			free(b);
		}
	free(m);
}

size_t
cuda_room(struct kvk_dev *dev)
{
	size_t free_bytes = 0, total = 0;

	if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
		cudaGetLastError();
	return free_bytes + dev->memory->idle_bytes;
}

int
cuda_no_memory(struct kvk_dev *dev, size_t bytes)
{
	const cudaError_t status = cudaStreamSynchronize(dev->stream);
	char text[KVK_LACK_TEXT];

	if (status != cudaSuccess)
		return cuda_check(dev, status, "the card");
	return cuda_fail(dev, KVK_EMEM, "%s", kvk_lack(text, bytes, cuda_room(dev)));
}

void *
cuda_scratch(struct kvk_dev *dev, size_t bytes)
{
	if (dev->scratch != NULL && bytes <= dev->scratch_bytes)
		return dev->scratch;
	cuda_free(dev, dev->scratch);
	dev->scratch = cuda_alloc(dev, bytes);
	dev->scratch_bytes = dev->scratch != NULL ? bytes : 0;
	if (dev->scratch == NULL)
		cuda_no_memory(dev, bytes);
	return dev->scratch;
}

size_t
cuda_taken(size_t n, size_t size)
{
	return (n * size + ALIGN - 1) / ALIGN * ALIGN;
}

void *
cuda_take(char **at, size_t n, size_t size)
{
	void *p = *at;

	*at += cuda_taken(n, size);
	return p;
}

const void *
cuda_view(struct kvk_dev *dev, const void *host, size_t bytes)
{
	void *p = cuda_alloc(dev, bytes);

	if (p == NULL || cuda_put(dev, p, host, bytes) == 0)
		return p;
	cuda_free(dev, p);
	return NULL;
}

void
cuda_unview(struct kvk_dev *dev, const void *p)
{
	cuda_free(dev, (void *)(uintptr_t)p);
}
