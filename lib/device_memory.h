/* SPDX-License-Identifier: MIT
 * Memory of an open device, and copies from it and to it.
 */
#ifndef KV_DEVICE_MEMORY_H
#define KV_DEVICE_MEMORY_H

#include "lib/device.h"
#include "lib/tensor.h"

/* Device memory, or NULL with KV_EMEM recorded, a fault of the device's; released by kv_device_free (NULL is fine). */
void *kv_device_alloc(const struct kv_device *d, size_t n, size_t size, struct kv_err *e);
void kv_device_free(const struct kv_device *d, void *p);

/* Host bytes as device memory, see kvk_backend.view; NULL with KV_EMEM recorded.  kv_device_unview takes NULL. */
const void *kv_device_view(const struct kv_device *d, const void *host, size_t bytes, struct kv_err *e);
void kv_device_unview(const struct kv_device *d, const void *p);

/* A tensor's payload: where it is, if that is on this device already. */
const void *kv_device_view_tensor(const struct kv_device *d, const struct kv_tensor *t, struct kv_err *e);
void kv_device_unview_tensor(const struct kv_device *d, const struct kv_tensor *t, const void *p);

/* Memory on the host for `bytes` that kv_device_fetch() brings there; it stays as it is until the next call, or until
 * the device closes.  NULL: there is none, or what is on the device is the host's anyway. */
void *kv_device_arrivals(struct kv_device *d, size_t bytes);
/* As kv_device_get() to such memory, but kv_device_arrive() waits, once for all that was fetched. */
int kv_device_fetch(
    const struct kv_device *d, void *host, const void *src, size_t bytes, const char *what, struct kv_err *e);
int kv_device_arrive(const struct kv_device *d, const char *what, struct kv_err *e);

/* Waits, and copies to the host; what: for the message. */
int kv_device_get(
    const struct kv_device *d, void *host, const void *src, size_t bytes, const char *what, struct kv_err *e);

/* The first n of the `stride` rows of each head, device memory on both sides: y [H][n][D] of `type` from src
 * [H][stride][D] f32, n <= stride (src may point at a later row of its array). */
int kv_device_copy_rows(const struct kv_device *d, void *y, enum kvk_type type, const float *src, size_t H,
    size_t stride, size_t n, size_t D, struct kv_err *e);

/* The same to the host, which waits once; where not all rows of a head are wanted, there is room for them on the device
 * meanwhile. */
int kv_device_get_rows(const struct kv_device *d, void *host, enum kvk_type type, const float *src, size_t H,
    size_t stride, size_t n, size_t D, struct kv_err *e);

#endif
