/* SPDX-License-Identifier: MIT
 * A folder of samples that were prepared for training: one kvtools stream per sample, named after what is in it, so
 * that later epochs and runs find it again, and several programs can fill one folder.
 *
 * A stream holds `score` [head, token] (method truth, not reduced over heads, not pooled) and, unless it was left out,
 * `k` and `v` as f16.  Per prompt token and layer that is 4 Hq + 4 Hkv D bytes.
 */
#ifndef KV_LESSON_FILE_H
#define KV_LESSON_FILE_H

#include "formats/stream.h"
#include "lib/config.h"
#include "lib/train/teacher.h"

/* What a sample is made of. */
struct kv_lesson_key {
	const struct kv_config *cfg;
	const char *precision; /* of the prefill */
	const char *id;        /* for people */
	const struct kv_ids *prompt;
	size_t generate;               /* tokens of the model's own; 0: the response is given */
	const struct kv_ids *response; /* given; NULL otherwise */
};

/* Write one (it appears when it is complete); x->truth must be there, x->k and v only `with_kv`.  entry: for the
 * history. Makes the folder when it is not there.  bytes: what it takes.  Fails: KV_EIO, KV_EMEM. */
int kv_lesson_write(const char *dir, const struct kv_lesson_key *key, const struct kv_lesson *x, bool with_kv,
    const json_t *entry, uint64_t *bytes, struct kv_err *e);

/* An open one, mapped. */
struct kv_lesson_file {
	struct kv_reader *reader;
	struct kv_ids response;
	uint64_t bytes;
	size_t T;
	/* After kv_lesson_read(): */
	const void **k, **v; /* [L] of f16 [Hkv][T][D]; NULL: not kept */
	float *truth;        /* [L][Hq][T] */
	void **owned;        /* [2 L] */
	size_t L;
};

/* KV_END: there is none.  Fails: KV_EFORMAT, KV_EIO: the file is damaged or about something else, and has to be made
 * anew.  Only the file's beginning is looked at.  Whatever comes out, kv_lesson_close() frees it. */
int kv_lesson_open(struct kv_lesson_file *f, const char *dir, const struct kv_lesson_key *key, struct kv_err *e);
/* All of it, checksums compared.  Fails: KV_EFORMAT as above, KV_EMEM. */
int kv_lesson_read(struct kv_lesson_file *f, const struct kv_lesson_key *key, struct kv_err *e);
void kv_lesson_close(struct kv_lesson_file *f);

#endif
