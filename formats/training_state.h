/* SPDX-License-Identifier: MIT
 * A training between two steps: saved, taken up again, and what its module says about it.
 */
#ifndef KV_TRAINING_STATE_H
#define KV_TRAINING_STATE_H

#include <jansson.h>

#include "lib/train/training.h"

/* recipe: an object of everything that decides the result; a run with another one does not go on from this state.
 * The file appears under its name when it is complete.  Fails: KV_EIO, KV_EMEM. */
int kv_training_save(const struct kv_training *t, const char *path, const json_t *recipe, struct kv_err *e);
/* Fails: KV_EIO, KV_EFORMAT, and KV_EARG (another recipe, naming the first difference). */
int kv_training_load(struct kv_training *t, const char *path, const json_t *recipe, struct kv_err *e);

/* The module's `training` object: the recipe, how far it came, its held-out loss.  Fails: KV_EMEM. */
int kv_training_describe(const struct kv_training *t, const json_t *recipe, json_t *to, struct kv_err *e);

#endif
