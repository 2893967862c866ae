/* SPDX-License-Identifier: MIT
 * A LookaheadKV module on its way through a model.
 */
#ifndef KV_ADAPTERS_H
#define KV_ADAPTERS_H

#include "lib/model/engine.h"
#include "lib/model/module.h"

/* A LookaheadKV module on an engine's device: its adapters opened, once for any number of prompts.  Keeps engine and
 * module borrowed; a module that changes has to be opened anew.
 * Fails: KV_EMODEL (made for another model, not finite), KV_EDEV, KV_EMEM. */
struct kv_adapters;
int kv_adapters_new(struct kv_adapters **out, struct kv_engine *x, const struct kv_lookahead *m, struct kv_err *e);
void kv_adapters_free(struct kv_adapters *a);

/* The standard deviation of the model's embedding table, for kv_lookahead_init(). */
int kv_embedding_sigma(struct kv_engine *x, double *sigma, struct kv_err *e);

#endif
