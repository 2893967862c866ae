/* SPDX-License-Identifier: MIT
 * One number per layer and head, from a file: importances of heads, gates.
 *
 * Three forms, told apart by their first character:
 *	{"0-0": 0.3, "0-1": [0.2, 0.4], ...}   JSON, "LAYER-HEAD": a number or a list whose mean counts (HeadKV's and
 *	                                       retrieval-head score files); what follows the object is ignored
 *	[[0.3, 0.3], ...]                      JSON, a list of numbers per layer
 *	0.3 0.3                                text, a line per layer, numbers apart by blanks, tabs or commas
 *	                                       (DuoAttention's full_attention_heads.tsv); empty lines and # comments
 *	                                       are skipped
 */
#ifndef KV_HEAD_TABLE_H
#define KV_HEAD_TABLE_H

#include <stddef.h>

#include "lib/err.h"

struct kv_head_table {
	size_t L, H;
	double *x; /* [L][H], finite */
};

/* Fails: KV_EIO, KV_EFORMAT (no such form, rows of different length, a missing head, a number that is not finite or
 * below min), KV_EMEM; the message names the file and the place. */
int kv_head_table_read(struct kv_head_table *t, const char *path, double min, struct kv_err *e);
void kv_head_table_fini(struct kv_head_table *t);

#endif
