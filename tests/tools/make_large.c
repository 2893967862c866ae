/* SPDX-License-Identifier: MIT
 * make_large SEQUENCES LAYERS TOKENS FILE - a stream as kv-prefill makes it, for tests of memory: per layer k and v
 * (256 bytes a token each) and 8 queries.  Numbers without meaning.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/stream.h"

enum { Hkv = 2, Hq = 2, D = 64, W = 8, VOCAB = 16 };

static struct kv_err err;

static void
must(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "make_large: %s\n", err.text);
	exit(1);
}

/* attrs: stolen. */
static struct kv_tensor
new_tensor(const char *name, int layer, enum kvk_type type, const char *axes, const size_t *shape, json_t *attrs)
{
	struct kv_tensor t;

	must(kv_tensor_new(&t, name, layer, type, axes, shape, &err));
	t.attrs = attrs;
	return t;
}

static void
put(struct kv_writer *w, struct kv_tensor *t)
{
	must(kv_writer_tensor(w, t, &err));
	kv_tensor_fini(t);
}

static void
put_layer(struct kv_writer *w, int layer, size_t T)
{
	const size_t kv[] = { Hkv, T, D }, q[] = { Hq, W, D };
	static const char *const names[] = { "k", "v" };
	struct kv_tensor t;

	for (size_t i = 0; i < 2; i++) {
		t = new_tensor(names[i], layer, KVK_F16, "kv_head token dim", kv, NULL);
		for (size_t j = 0; j < Hkv * T * D; j++) /* between 1 and 2 */
			((uint16_t *)t.owned)[j] = (uint16_t)(0x3c00 + (j * 7 + (size_t)layer) % 0x400);
		put(w, &t);
	}
	t = new_tensor("q", layer, KVK_F32, "head query dim", q,
	    json_pack("{s:s, s:I}", "region", "window", "first_position", (json_int_t)(T - W)));
	for (size_t j = 0; j < Hq * W * D; j++)
		((float *)t.owned)[j] = (float)(j % 13);
	put(w, &t);
}

static void
put_sequence(struct kv_writer *w, int layers, size_t T)
{
	json_t *tokens = json_array(), *map = json_pack("{s:o}", "tokens", tokens);
	const size_t vocab = VOCAB;
	struct kv_tensor t;

	for (size_t i = 0; i < T; i++)
		json_array_append_new(tokens, json_integer((json_int_t)(i % VOCAB)));
	must(kv_writer_sequence(w, map, &err));
	json_decref(map);
	for (int l = 0; l < layers; l++) {
		put_layer(w, l, T);
		must(kv_writer_layer_end(w, l, &err));
	}
	t = new_tensor("logits", KV_NO_LAYER, KVK_F32, "vocab", &vocab, NULL);
	put(w, &t);
	must(kv_writer_close(w, &err));
}

int
main(int argc, char **argv)
{
	struct kv_writer *w;
	json_t *model;
	int layers;

	if (argc != 5)
		return 2;
	layers = atoi(argv[2]);
	model = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s}", "name", "large", "architecture",
	    "llama", "layers", layers, "heads", Hq, "kv_heads", Hkv, "head_dim", D, "embedding", Hq * D, "feed_forward",
	    32, "vocabulary", VOCAB, "scale", 0.125, "fingerprint", "00112233445566778899aabbccddeeff");
	must(kv_writer_open(&w, argv[4], NULL, NULL, &err));
	must(kv_writer_header(w, model, NULL, NULL, &err));
	for (int i = 0; i < atoi(argv[1]); i++)
		put_sequence(w, layers, (size_t)atoi(argv[3]));
	must(kv_writer_finish(w, &err));
	json_decref(model);
	return 0;
}
