/* SPDX-License-Identifier: MIT
 * One layer of one prompt as methods see it, and what they ask of its tensors.
 */
#ifndef KV_LAYER_H
#define KV_LAYER_H

#include "lib/config.h"
#include "lib/device.h"
#include "lib/queries.h"
#include "lib/step.h"

struct kv_layer {
	struct kv_device *device; /* may not be open yet: kv_device_ready() */
	const struct kv_config *cfg;
	struct kv_step *step; /* all tensors of the layer: kv_step_find() */
	int layer;
	size_t T; /* tokens of the prompt */
};

/* A tensor that `who` (a method or program) cannot do without.  A name that is known here (k, v, q, k.response, ...) is
 * checked against the model's shape.  Missing: KV_ESHAPE, naming what brings it; queries (NULL: none) says which ones
 * for q.  A wrong shape: KV_ESHAPE. */
int kv_layer_need(const struct kv_layer *l, const char *who, const char *name, const struct kv_queries *queries,
    const struct kv_tensor **t, struct kv_err *e);
/* The same for a list "k,q"; their values can then be had by kv_step_find(). */
int kv_layer_needs(const struct kv_layer *l, const char *who, const char *names, const struct kv_queries *queries,
    struct kv_err *e);

/* Layers first .. last, both included. */
struct kv_layers {
	size_t first, last;
};
#define KV_LAYERS_ALL ((struct kv_layers){ 0, SIZE_MAX })

/* "4-7", "4-" (to the end), "-7", "4".  Fails: KV_EARG. */
int kv_layers_parse(struct kv_layers *r, const char *text, struct kv_err *e);

/* Rows x[from .. from + n - 1] of every head of a tensor [H][rows][dim], wherever it lies, to y + at of [H][room][dim]
 * on the device; values as they are.  Fails: KV_EDEV. */
int kv_copy_rows(const struct kv_device *d, const struct kv_tensor *x, size_t from, size_t n, void *y, size_t at,
    size_t room, struct kv_err *e);
/* Row i of `to` [n][dim] on the host is row rows[i] of all rows of `from` [H][rows][dim], wherever that lies. */
struct kv_pick {
	const struct kv_tensor *from;
	void *to;
};
/* The same rows of several tensors.  The device is asked only for what lies there: it need not be open otherwise, and
 * no card is sent what the host can pick.  It is waited for once where `to` is memory of kv_device_arrivals().
 * Fails: KV_EMEM, KV_EDEV. */
int kv_pick_rows(const struct kv_device *d, const struct kv_pick *picks, size_t n_picks, const size_t *rows, size_t n,
    struct kv_err *e);

#endif
