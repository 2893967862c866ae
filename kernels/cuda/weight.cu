/* SPDX-License-Identifier: MIT
 * Matrices of the model: from the mapped file through pinned memory to the card, in a queue of their own, so that the
 * next layer arrives while this one is computed. */
#include "kernels/cuda/weight.h"

#include <stdlib.h>
#include <string.h>

#define SPARES 16 /* the matrices of two layers */

/* What weights leave behind when they are closed: the next layer's take its place, once the work that read it is
 * done. */
struct cuda_spares {
	struct {
		void *p;
		size_t bytes;
		cudaEvent_t freed; /* in dev->stream */
	} at[SPARES];
	size_t next; /* the oldest, when all are taken */
};

void
cuda_spares_release(struct kvk_dev *dev)
{
	for (size_t i = 0; dev->spares != NULL && i < SPARES; i++)
		if (dev->spares->at[i].p != NULL) {
			cudaEventDestroy(dev->spares->at[i].freed);
			cuda_free(dev, dev->spares->at[i].p);
			dev->spares->at[i].p = NULL;
		}
}

void
cuda_spares_close(struct kvk_dev *dev)
{
	cuda_spares_release(dev);
	free(dev->spares);
	dev->spares = NULL;
}

static void
keep_spare(struct kvk_dev *dev, void *p, size_t bytes, cudaEvent_t freed)
{
	struct cuda_spares *s = dev->spares;
	size_t i = 0;

	while (i < SPARES && s->at[i].p != NULL)
		i++;
	if (i == SPARES) {
		i = s->next++ % SPARES;
		cudaEventDestroy(s->at[i].freed);
		cuda_free(dev, s->at[i].p);
	}
	s->at[i].p = p;
	s->at[i].bytes = bytes;
	s->at[i].freed = freed;
}

/* Moves the spare memory that `bytes` fill best, at least by half, into w; false if there is none. */
static bool
take_spare(struct kvk_dev *dev, struct kvk_weight *w, size_t bytes)
{
	struct cuda_spares *s = dev->spares;
	size_t best = SPARES;

	for (size_t i = 0; i < SPARES; i++)
		if (s->at[i].p != NULL && s->at[i].bytes >= bytes && s->at[i].bytes / 2 <= bytes &&
		    (best == SPARES || s->at[i].bytes < s->at[best].bytes))
			best = i;
	if (best == SPARES)
		return false;
	w->p = s->at[best].p;
	w->bytes = s->at[best].bytes;
	w->event = s->at[best].freed;
	s->at[best].p = NULL;
	return true;
}

/* Memory for w, which dev->copies may write as soon as those who used it before are done. */
static int
take_memory(struct kvk_dev *dev, struct kvk_weight *w)
{
	const size_t bytes = w->rows * w->row_bytes;
	bool used = true;
	int rc;

	if (dev->spares == NULL && (dev->spares = (struct cuda_spares *)calloc(1, sizeof *dev->spares)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "out of memory");
	if (!take_spare(dev, w, bytes)) {
		rc = cuda_check(dev, cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming), "an event");
		if (rc != 0)
			return rc;
		if ((w->p = cuda_alloc_known(dev, bytes, &used)) == NULL)
			return cuda_no_memory(dev, bytes);
		w->bytes = bytes;
		if (used && (rc = cuda_check(dev, cudaEventRecord(w->event, dev->stream), "an event")) != 0)
			return rc;
	}
	return used ? cuda_check(dev, cudaStreamWaitEvent(dev->copies, w->event, 0), "an event") : 0;
}

/* Bytes of the file in pinned memory -> elements in w from `to` on. */
static int
copy_piece(struct kvk_dev *dev, const struct kvk_weight *w, struct cuda_piece *piece, size_t bytes, size_t n, char *to)
{
	void *at = to;
	int rc;

	if (w->held != w->type && (at = cuda_piece_device(dev, piece)) == NULL)
		return KVK_EMEM;
	rc = cuda_check(
	    dev, cudaMemcpyAsync(at, piece->host, bytes, cudaMemcpyHostToDevice, dev->copies), "copy of a matrix");
	if (rc == 0 && w->held != w->type)
		rc = cuda_expand(dev, to, w->held, at, w->type, n, dev->copies);
	return rc == 0 ? cuda_piece_queued(dev, piece, dev->copies) : rc;
}

/* Bytes of the file from `at` on. */
static int
fill_piece(struct kvk_dev *dev, void *ctx, struct cuda_piece *piece, size_t at, size_t bytes)
{
	const struct kvk_weight *w = (const struct kvk_weight *)ctx;
	const struct kvk_type_info *t = &kvk_types[w->type];
	const size_t to = w->held == w->type ? at : at / t->bytes * t->block * kvk_types[w->held].bytes;

	return copy_piece(dev, w, piece, bytes, bytes / t->bytes * t->block, (char *)w->p + to);
}

static int
fill(struct kvk_dev *dev, struct kvk_weight *w, const void *host)
{
	const struct kvk_type_info *t = &kvk_types[w->type];
	const size_t bytes = w->rows * (w->cols / t->block) * t->bytes, most = CUDA_PIECE / t->bytes * t->bytes;
	int rc = cuda_stage(dev, host, bytes, most, fill_piece, w);

	if (rc == 0)
		rc = cuda_check(dev, cudaEventRecord(w->event, dev->copies), "an event");
	w->pending = rc == 0;
	return rc;
}

/* The type that products of many rows want. */
static enum kvk_type
held_type(const struct kvk_dev *dev, enum kvk_type type, enum kvk_use use)
{
	if (use == KVK_FEW_ROWS)
		return type;
	return dev->precision == KVK_PRECISION_BF16 ? KVK_BF16 : KVK_F32;
}

static int
check_matrix(struct kvk_dev *dev, enum kvk_type type, size_t rows, size_t cols)
{
	size_t elements;

	if (type >= KVK_N_TYPES || kvk_types[type].integer)
		return cuda_fail(dev, KVK_ETYPE, "weight_open: a matrix cannot be of type %s",
		    type < KVK_N_TYPES ? kvk_types[type].name : "unknown");
	if (cols % kvk_types[type].block != 0)
		return cuda_fail(dev, KVK_ESHAPE,
		    "weight_open: rows of %zu elements are no whole blocks of %s (%zu elements)", cols,
		    kvk_types[type].name, kvk_types[type].block);
	if (__builtin_mul_overflow(rows, cols, &elements) || elements > SIZE_MAX / 8)
		return cuda_fail(dev, KVK_ESHAPE, "weight_open: a matrix of %zu x %zu is too large", rows, cols);
	return 0;
}

int
cuda_weight_open(struct kvk_dev *dev, struct kvk_weight **out, const void *host, enum kvk_type type, size_t rows,
    size_t cols, enum kvk_use use)
{
	struct kvk_weight *w;
	int rc;

	*out = NULL;
	if ((rc = check_matrix(dev, type, rows, cols)) != 0)
		return rc;
	if ((w = (struct kvk_weight *)calloc(1, sizeof *w)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "out of memory");
	w->type = type;
	w->held = held_type(dev, type, use);
	w->use = use;
	w->rows = rows;
	w->cols = cols;
	w->row_bytes = cols / kvk_types[w->held].block * kvk_types[w->held].bytes;
	if ((rc = take_memory(dev, w)) == 0 && (rc = fill(dev, w, host)) == 0) {
		*out = w;
		return 0;
	}
	cudaStreamSynchronize(dev->copies); /* whatever of it is on its way */
	cuda_weight_close(dev, w);
	return rc;
}

int
cuda_weight_ready(struct kvk_dev *dev, const struct kvk_weight *w)
{
	if (!w->pending)
		return 0;
	w->pending = false;
	return cuda_check(dev, cudaStreamWaitEvent(dev->stream, w->event, 0), "a matrix");
}

void
cuda_weight_close(struct kvk_dev *dev, struct kvk_weight *w)
{
	if (w == NULL)
		return;
	cuda_weight_ready(dev, w); /* never used: its memory must not be handed on before the copy is done */
	if (w->p != NULL && cudaEventRecord(w->event, dev->stream) == cudaSuccess) {
		keep_spare(dev, w->p, w->bytes, w->event);
	} else {
		cuda_free(dev, w->p);
		if (w->event != NULL)
			cudaEventDestroy(w->event);
	}
	free(w);
}
