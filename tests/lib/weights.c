/* SPDX-License-Identifier: MIT */
#include "tests/lib/weights.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "tests/lib/quantise.h"

static bool
is_rotated(enum kv_role role)
{
	return role == KV_Q || role == KV_K || role == KV_Q_BIAS || role == KV_K_BIAS || role == KV_Q_NORM ||
	       role == KV_K_NORM;
}

/* Row of the stored matrix that becomes row r; the rotated part of each head is reordered. */
static size_t
source_row(const struct kv_config *c, size_t r, bool interleaved)
{
	size_t head = r / c->D * c->D, j = r % c->D, half = c->rope_dim / 2;

	if (j >= c->rope_dim || c->rope_interleaved == interleaved)
		return r;
	if (interleaved)
		return head + j / 2 + (j % 2 ? half : 0);
	return head + (j < half ? 2 * j : 2 * (j - half) + 1);
}

float *
weight_f32(const struct kv_model *m, size_t layer, enum kv_role role, bool interleaved, struct kv_err *e)
{
	const struct kv_matrix *w = kv_model_weight(m, layer, role);
	size_t n = w->rows * w->cols, rows = w->rows, cols = w->cols;
	float *x = kv_alloc(n, sizeof *x, e), *y = kv_alloc(n, sizeof *y, e);

	if (x == NULL || y == NULL) {
		free(x);
		free(y);
		return NULL;
	}
	dequantise(w->type, w->data, n, x);
	if (kv_roles[role].vector) { /* one value per row */
		rows = n;
		cols = 1;
	}
	for (size_t r = 0; r < rows; r++)
		memcpy(y + r * cols, x + (is_rotated(role) ? source_row(&m->cfg, r, interleaved) : r) * cols,
		    cols * sizeof *y);
	free(x);
	return y;
}
