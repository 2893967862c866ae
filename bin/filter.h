/* SPDX-License-Identifier: MIT
 * The loop of the programs that add to a stream: kv-score, kv-budget, kv-evict.
 */
#ifndef KV_FILTER_H
#define KV_FILTER_H

#include "bin/common.h"
#include "lib/layer.h"

struct kv_filter {
	const char *uses;   /* tensors that run() reads, replaces or removes (lib/names.h); NULL: all */
	const char *keeps;  /* those that it only reads, never replaces or removes; NULL: none */
	const char *partly; /* those of which it reads a part; NULL: none */
	const char *on_device; /* those that it takes where they lie on the device, data being NULL; NULL: none */
	const char *layers; /* "A-B": only these, the others pass; NULL: all */
	bool hold;          /* all layers of a sequence at once, instead of one by one */
	/* Looks at the tensors of l[0 .. n-1] and puts others into their steps; n is 1 unless hold.  Caches that have
	 * been evicted and steps without a layer do not come here.  Faults need not say where; after one of the
	 * device's the step is as it was, since it may come again. */
	int (*run)(void *ctx, struct kv_layer *l, size_t n, struct kv_err *e);
	void *ctx;
};

/* Everything from opening the files (and what the method's parameters name) to the End record; returns the exit
 * status. */
int kv_filter(char *const *files, const struct kv_filter *f);

#endif
