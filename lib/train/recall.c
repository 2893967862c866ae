/* SPDX-License-Identifier: MIT */
#include "lib/train/recall.h"

#include <stdlib.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

/* The k first of every head, ascending, to index [H][k] on the host. */
static int
top(const struct kv_device *d, const float *rank, size_t H, size_t n, const size_t *offset, int32_t *device,
    int32_t *index, struct kv_err *e)
{
	const struct kvk_select job = { .rank = rank, .H = H, .n = n, .T = n, .offset = offset };
	int rc = kv_device_check(d, d->op->select(d->dev, &job, device), "select", e);

	return rc == KV_OK ? kv_device_get(d, index, device, offset[H] * sizeof *index, "select", e) : rc;
}

static size_t
common(const int32_t *a, const int32_t *b, size_t k)
{
	size_t i = 0, j = 0, n = 0;

	while (i < k && j < k) {
		if (a[i] == b[j])
			n++, i++, j++;
		else if (a[i] < b[j])
			i++;
		else
			j++;
	}
	return n;
}

struct memory {
	float *rank[2];
	int32_t *device, *index[2];
	size_t *offset;
};

static int
take(struct memory *m, const struct kv_device *d, size_t H, size_t n, struct kv_err *e)
{
	for (int i = 0; i < 2; i++)
		if ((m->rank[i] = kv_device_alloc(d, H * n, sizeof(float), e)) == NULL ||
		    (m->index[i] = kv_alloc(H * n, sizeof(int32_t), e)) == NULL)
			return KV_EMEM;
	m->device = kv_device_alloc(d, H * n, sizeof(int32_t), e);
	m->offset = kv_alloc(H + 1, sizeof *m->offset, e);
	return m->device != NULL && m->offset != NULL ? KV_OK : KV_EMEM;
}

static void
drop(struct memory *m, const struct kv_device *d)
{
	for (int i = 0; i < 2; i++) {
		kv_device_free(d, m->rank[i]);
		free(m->index[i]);
	}
	kv_device_free(d, m->device);
	free(m->offset);
}

static int
recall_at(
    const struct memory *m, const struct kv_device *d, size_t H, size_t n, size_t k, double *recall, struct kv_err *e)
{
	size_t hits = 0;
	int rc = KV_OK;

	if (k == 0) {
		*recall += 1;
		return KV_OK;
	}
	for (size_t h = 0; h <= H; h++)
		m->offset[h] = h * k;
	for (int i = 0; i < 2 && rc == KV_OK; i++)
		rc = top(d, m->rank[i], H, n, m->offset, m->device, m->index[i], e);
	for (size_t h = 0; h < H && rc == KV_OK; h++)
		hits += common(m->index[0] + h * k, m->index[1] + h * k, k);
	*recall += (double)hits / (double)(H * k);
	return rc;
}

int
kv_recall(const struct kv_device *d, const float *truth, const float *score, size_t H, size_t n, const size_t *ks,
    size_t n_k, double *recall, struct kv_err *e)
{
	struct memory m = { 0 };
	int rc = take(&m, d, H, n, e);

	if (rc == KV_OK)
		rc = kv_device_check(d,
		    d->op->put(d->dev, m.rank[0], truth, H * n * sizeof *truth) ||
			d->op->put(d->dev, m.rank[1], score, H * n * sizeof *score),
		    "select", e);
	for (size_t i = 0; i < n_k && rc == KV_OK; i++)
		rc = recall_at(&m, d, H, n, ks[i] < n ? ks[i] : n, &recall[i], e);
	drop(&m, d);
	return rc;
}
