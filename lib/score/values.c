/* SPDX-License-Identifier: MIT
 * Tensors' values for methods that compute on the host. */
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/score/score.h"

int
kv_score_floats(const struct kv_layer *l, const struct kv_tensor *t, float **y, struct kv_err *e)
{
	struct kv_device *d = l->device;
	const size_t n = kv_tensor_n(t);
	const void *x;
	int rc;

	*y = NULL;
	if ((rc = kv_device_ready(d, "get_as", e)) < 0)
		return rc;
	if ((*y = kv_alloc_unset(n, sizeof **y, e)) == NULL)
		return KV_EMEM;
	if ((x = kv_device_view_tensor(d, t, e)) == NULL) {
		rc = KV_EMEM;
		goto failed;
	}
	rc = kv_device_check(d, d->op->get_as(d->dev, *y, KVK_F32, x, t->type, n), "get_as", e);
	kv_device_unview_tensor(d, t, x);
	if (rc == KV_OK)
		return KV_OK;
failed:
	free(*y);
	*y = NULL;
	return rc;
}

double
kv_dot(const float *x, const float *y, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)y[i];
	return sum;
}
