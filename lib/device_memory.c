/* SPDX-License-Identifier: MIT */
#include "lib/device_memory.h"

#include <stdint.h>

#include "kernels/lack.h"
#include "lib/buf.h"

/* Of `bytes` that could not be had. */
static void
no_memory(const struct kv_device *d, size_t bytes, struct kv_err *e)
{
	const char *name = d->op->name;
	char text[KVK_LACK_TEXT];

	if (d->library == NULL) {
		kv_fail(e, KV_EMEM, "%s: out of memory (%zu bytes wanted)", name, bytes);
		return;
	}
	/* what was queued may have gone wrong, which is told by whatever is called next */
	if (d->op->wait(d->dev) != 0)
		kv_fail(e, KV_EMEM, "%s: %s", name, d->op->error(d->dev));
	else
		kv_fail(e, KV_EMEM, "%s: %s", name, kvk_lack(text, bytes, d->op->room(d->dev)));
	kv_device_blame(d, KV_EMEM, e);
}

int
kv_device_copy_rows(const struct kv_device *d, void *y, enum kvk_type type, const float *src, size_t H, size_t stride,
    size_t n, size_t D, struct kv_err *e)
{
	const struct kvk_copy job = { .x = src,
		.x_type = KVK_F32,
		.x_stride = stride,
		.y = y,
		.y_type = type,
		.y_stride = n,
		.H = H,
		.n = n,
		.D = D };

	return kv_device_check(d, d->op->copy_rows(d->dev, &job), "copy_rows", e);
}

int
kv_device_get_rows(const struct kv_device *d, void *host, enum kvk_type type, const float *src, size_t H, size_t stride,
    size_t n, size_t D, struct kv_err *e)
{
	const size_t bytes = kvk_types[type].bytes;
	void *y;
	int rc;

	if (n == stride || H < 2 || n * D == 0)
		return kv_device_check(
		    d, d->op->get_as(d->dev, host, type, src, KVK_F32, H * n * D), "copy to the host", e);
	if ((y = kv_device_alloc(d, H * n * D, bytes, e)) == NULL)
		return KV_EMEM;
	if ((rc = kv_device_copy_rows(d, y, type, src, H, stride, n, D, e)) == KV_OK)
		rc = kv_device_get(d, host, y, H * n * D * bytes, "copy to the host", e);
	kv_device_free(d, y);
	return rc;
}

void *
kv_device_alloc(const struct kv_device *d, size_t n, size_t size, struct kv_err *e)
{
	size_t bytes;
	void *p;

	if (!kv_mul(n, size, &bytes)) {
		kv_no_memory(e, SIZE_MAX);
		return NULL;
	}
	if ((p = d->op->alloc(d->dev, bytes > 0 ? bytes : 1)) == NULL)
		no_memory(d, bytes, e);
	return p;
}

void
kv_device_free(const struct kv_device *d, void *p)
{
	if (p != NULL)
		d->op->free(d->dev, p);
}

const void *
kv_device_view(const struct kv_device *d, const void *host, size_t bytes, struct kv_err *e)
{
	const void *p = d->op->view(d->dev, host, bytes);

	if (p == NULL)
		no_memory(d, bytes, e);
	return p;
}

void
kv_device_unview(const struct kv_device *d, const void *p)
{
	if (p != NULL)
		d->op->unview(d->dev, p);
}

const void *
kv_device_view_tensor(const struct kv_device *d, const struct kv_tensor *t, struct kv_err *e)
{
	return t->device != NULL ? t->device : kv_device_view(d, t->data, t->bytes, e);
}

void
kv_device_unview_tensor(const struct kv_device *d, const struct kv_tensor *t, const void *p)
{
	if (p != t->device)
		kv_device_unview(d, p);
}

int
kv_device_get(const struct kv_device *d, void *host, const void *src, size_t bytes, const char *what, struct kv_err *e)
{
	return kv_device_check(d, d->op->get(d->dev, host, src, bytes), what, e);
}

void *
kv_device_arrivals(struct kv_device *d, size_t bytes)
{
	if (d->op == NULL || d->op->fetch == NULL)
		return NULL;
	if (d->arrivals != NULL && d->arrivals_bytes >= bytes)
		return d->arrivals;
	if (d->arrivals != NULL)
		d->op->host_free(d->dev, d->arrivals);
	bytes += bytes / 4; /* the next layer's may be somewhat larger */
	d->arrivals = d->op->host_alloc(d->dev, bytes);
	d->arrivals_bytes = d->arrivals != NULL ? bytes : 0;
	return d->arrivals;
}

int
kv_device_fetch(
    const struct kv_device *d, void *host, const void *src, size_t bytes, const char *what, struct kv_err *e)
{
	return kv_device_check(d, d->op->fetch(d->dev, host, src, bytes), what, e);
}

int
kv_device_arrive(const struct kv_device *d, const char *what, struct kv_err *e)
{
	return kv_device_check(d, d->op->arrive(d->dev), what, e);
}
