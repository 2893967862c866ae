/* SPDX-License-Identifier: MIT */
#include "lib/evict/renumber.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

int
kv_renumber_check(const size_t *offset, size_t H, size_t *n, struct kv_err *e)
{
	*n = offset[1] - offset[0];
	for (size_t h = 1; h < H; h++)
		if (offset[h + 1] - offset[h] != *n)
			return kv_fail(e, KV_ESHAPE,
			    "head %zu keeps %zu entries, head 0 keeps %zu: renumbered heads must keep equally many, or "
			    "the "
			    "next token has no position; kv-budget uniform gives equal budgets, --uniform-heads makes "
			    "them so",
			    h, offset[h + 1] - offset[h], *n);
	return KV_OK;
}

/* x [dim], halves of pairs dim/2 apart, from position p to q. */
static void
turn(const struct kv_config *cfg, double by, float *x)
{
	const size_t half = cfg->rope_dim / 2;

	for (size_t i = 0; i < half; i++) {
		const double angle = by * (double)cfg->inv_freq[i];
		const float c = (float)cos(angle), s = (float)sin(angle), a = x[i], b = x[i + half];

		x[i] = a * c - b * s;
		x[i + half] = a * s + b * c;
	}
}

/* n elements from one type to another, host memory on both sides. */
static int
convert(const struct kv_device *d, void *to, enum kvk_type to_type, const void *from, enum kvk_type type, size_t n,
    struct kv_err *e)
{
	const void *view = kv_device_view(d, from, n * kvk_types[type].bytes, e);
	int rc;

	if (view == NULL)
		return KV_EMEM;
	rc = kv_device_check(d, d->op->get_as(d->dev, to, to_type, view, type, n), "keys", e);
	kv_device_unview(d, view);
	return rc;
}

/* n entries, which stand at index and go to at, at + 1, ...; x: room for n of them. */
static int
move_entries(const struct kv_layer *l, const struct kv_tensor *k, void *rows, const int32_t *index, size_t at, size_t n,
    float *x, struct kv_err *e)
{
	const size_t D = k->shape[1];
	int rc = convert(l->device, x, KVK_F32, rows, k->type, n * D, e);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++)
		turn(l->cfg, (double)(at + i) - (double)index[i], x + i * D);
	return convert(l->device, rows, k->type, x, KVK_F32, n * D, e);
}

int
kv_renumber(const struct kv_layer *l, const struct kv_tensor *k, void *rows, const int32_t *index,
    const size_t *offset, size_t H, struct kv_err *e)
{
	const size_t row = k->shape[1] * kvk_types[k->type].bytes;
	float *x;
	int rc;

	if (l->cfg->inv_freq == NULL || l->cfg->rope_dim == 0)
		return kv_fail(e, KV_EMODEL,
		    "the stream's model says nothing about its rotary embedding, which --renumber must undo");
	if ((rc = kv_device_ready(l->device, "get_as", e)) < 0)
		return rc;
	if ((x = kv_alloc(l->T * k->shape[1], sizeof *x, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < H && rc == KV_OK; h++) {
		size_t n = offset[h + 1] - offset[h], stay = 0, from;

		/* ascending positions: once one is beyond its number, all that follow are */
		while (stay < n && (size_t)index[offset[h] + stay] == stay)
			stay++;
		from = offset[h] + stay;
		if (stay < n)
			rc = move_entries(l, k, (char *)rows + from * row, index + from, stay, n - stay, x, e);
	}
	free(x);
	return rc;
}
