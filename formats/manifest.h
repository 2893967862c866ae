/* SPDX-License-Identifier: MIT
 * What an archive of kv-pack says about the files in it: manifest.json, its first member.
 *
 *   { "kvpack": 1, "kvtools": version, "kvstream": version, "files": [ file, .. ] }
 *   file: name, bytes, xxh3_128 (32 hexadecimal digits), kind: "stream" or "other"; of a stream also
 *     sequences, complete, model (name), fingerprint, history
 */
#ifndef KV_MANIFEST_H
#define KV_MANIFEST_H

#include <jansson.h>

#include "formats/source.h"
#include "lib/buf.h"

#define KV_MANIFEST_NAME "manifest.json"
#define KV_MANIFEST_MAX  ((size_t)64 << 20) /* bytes */

/* XXH3-128 and number of the bytes that go through kv_hash_pull(). */
struct kv_hash {
	kv_pull *pull;
	void *ctx;
	uint64_t bytes;
	struct XXH3_state_s *state;
};
/* Fails: KV_EMEM. */
int kv_hash_init(struct kv_hash *h, kv_pull *pull, void *ctx, struct kv_err *e);
int kv_hash_pull(void *hash, void *dst, size_t n, size_t *got, struct kv_err *e);
/* What is left of the bytes. */
int kv_hash_rest(struct kv_hash *h, struct kv_err *e);
void kv_hash_text(const struct kv_hash *h, char text[33]);
void kv_hash_fini(struct kv_hash *h);

/* Reads all that pull gives and describes it: *file is a new reference.  A stream (compressed or not, and whatever is
 * called .kv) is read through its End record, checksums included; it must be whole.
 * Fails: KV_EFORMAT, KV_EFAIL, ..: the stream's faults, as kv_reader_next(); as pull. */
int kv_manifest_look(const char *name, kv_pull *pull, void *ctx, json_t **file, struct kv_err *e);

/* A manifest without files, NULL: no memory. */
json_t *kv_manifest_new(void);
int kv_manifest_add(json_t *manifest, json_t *file, struct kv_err *e); /* takes the reference */
/* The file of that name, borrowed; NULL if there is none. */
const json_t *kv_manifest_find(const json_t *manifest, const char *name);
/* As text, a line per file; whatever strings it has, it is JSON. */
int kv_manifest_text(const json_t *manifest, struct kv_buf *out, struct kv_err *e);
/* Fails: KV_EFORMAT (not a manifest, of another version, a name that is missing, unsafe or there twice). */
int kv_manifest_parse(json_t **out, const char *text, size_t n, struct kv_err *e);

/* Is a file, `found` by kv_manifest_look(), the one that the manifest describes?  Fails: KV_EFORMAT, naming the first
 * difference. */
int kv_manifest_compare(const json_t *file, const json_t *found, struct kv_err *e);
/* The same for its bytes alone. */
int kv_manifest_compare_hash(const json_t *file, const struct kv_hash *h, struct kv_err *e);

#endif
