/* SPDX-License-Identifier: MIT
 * make_stream full|evicted|evil|logits FILE - a small stream with known values, for tests of what reads streams.
 *
 * Two sequences of 6 and 3 tokens (ids 10, 11, ...), two layers, 2 KV heads of 4 elements, 4 query heads.  Element d of
 * head h, token t, layer l of k is l + h / 2 + t / 10 + d / 100 (f32), of v the same with the sign turned.
 *
 * full:    k, v, q of the last two tokens, score with a NaN and an infinity, logits
 *
 * evicted: head h of a layer keeps the last 2 - h tokens and token 0
 *
 * logits:  nothing but logits
 *
 * evil:    full, and control characters in every string, and a tensor and a record that nobody knows */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/stream.h"

enum { L = 2, Hkv = 2, Hq = 4, D = 4, W = 2, VOCAB = 8 };

static const char evil[] = "a\x1b[31m\x07 \x7f\xc2\x9b\n\xe2\x80\xae";
static struct kv_err err;

static void
must(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "make_stream: %s\n", err.text);
	exit(1);
}

static json_t *
model(const char *name)
{
	return json_pack(
	    "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:{s:f, s:i, s:s, s:s, s:[f,f]}, s:s}", "name",
	    name, "architecture", "llama", "layers", L, "heads", Hq, "kv_heads", Hkv, "head_dim", D, "embedding", 16,
	    "feed_forward", 32, "vocabulary", VOCAB, "context", 64, "scale", 0.5, "rope", "theta", 10000.0, "dim", D,
	    "layout", "half", "scaling", "none", "inv_freq", 1.0, 0.01, "fingerprint",
	    "00112233445566778899aabbccddeeff");
}

static float
element(size_t l, size_t h, size_t t, size_t d)
{
	return (float)l + (float)h / 2 + (float)t / 10 + (float)d / 100;
}

/* attrs: stolen. */
static void
put(struct kv_writer *w, const char *name, int layer, enum kvk_type type, const char *axes, const size_t *shape,
    const void *data, json_t *attrs)
{
	struct kv_tensor t;

	must(kv_tensor_init(&t, name, layer, type, axes, shape, &err));
	t.data = data;
	t.attrs = attrs;
	must(kv_writer_tensor(w, &t, &err));
	kv_tensor_fini(&t);
}

static void
put_full(struct kv_writer *w, size_t l, size_t T, const char *text)
{
	const size_t kv[] = { Hkv, T, D }, q[] = { Hq, W, D }, st[] = { Hkv, T };
	float k[Hkv * 6 * D], v[Hkv * 6 * D], queries[Hq * W * D], score[Hkv * 6];

	for (size_t i = 0; i < Hkv * T * D; i++) {
		k[i] = element(l, i / D / T, i / D % T, i % D);
		v[i] = -k[i];
	}
	for (size_t i = 0; i < Hq * W * D; i++)
		queries[i] = (float)i;
	for (size_t i = 0; i < Hkv * T; i++)
		score[i] = (float)i / 8;
	score[1] = NAN;
	score[2] = INFINITY;
	put(w, "q", (int)l, KVK_F32, "head query dim", q, queries,
	    json_pack("{s:s, s:[I,I]}", "region", text, "positions", (json_int_t)T - 2, (json_int_t)T - 1));
	put(w, "k", (int)l, KVK_F32, "kv_head token dim", kv, k, NULL);
	put(w, "v", (int)l, KVK_F32, "kv_head token dim", kv, v, NULL);
	put(w, "score", (int)l, KVK_F32, "kv_head token", st, score, json_pack("{s:s}", "method", text));
}

static void
put_evicted(struct kv_writer *w, size_t l, size_t T)
{
	int32_t index[] = { 0, (int32_t)T - 2, (int32_t)T - 1, 0, (int32_t)T - 1 }, offset[] = { 0, 3, 5 };
	const size_t n = 5, bounds = 3, shape[] = { 5, D };
	float k[5 * D], v[5 * D];

	for (size_t i = 0; i < 5 * D; i++) {
		k[i] = element(l, i / D >= 3, (size_t)index[i / D], i % D);
		v[i] = -k[i];
	}
	put(w, "index", (int)l, KVK_I32, "entry", &n, index, json_pack("{s:I}", "next_position", (json_int_t)T));
	put(w, "offset", (int)l, KVK_I32, "bound", &bounds, offset, NULL);
	put(w, "k", (int)l, KVK_F32, "entry dim", shape, k, NULL);
	put(w, "v", (int)l, KVK_F32, "entry dim", shape, v, NULL);
}

static void
put_sequence(struct kv_writer *w, size_t T, const char *kind, const char *text, bool is_evil)
{
	static const float logits[VOCAB] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	const size_t vocab = VOCAB;
	json_t *tokens = json_array(), *map;

	map = json_pack("{s:s, s:o, s:I}", "id", text, "tokens", tokens, "prompt_length", (json_int_t)T);
	for (size_t t = 0; t < T; t++)
		json_array_append_new(tokens, json_integer((json_int_t)(10 + t)));
	must(kv_writer_sequence(w, map, &err));
	json_decref(map);
	for (size_t l = 0; l < L; l++) {
		if (strcmp(kind, "evicted") == 0)
			put_evicted(w, l, T);
		else if (strcmp(kind, "logits") != 0)
			put_full(w, l, T, text);
		if (is_evil && l == 0)
			put(w, "nobody.knows", 0, KVK_F32, "odd", &vocab, logits, NULL);
	}
	put(w, "logits", KV_NO_LAYER, KVK_F32, "vocab", &vocab, logits, NULL);
	must(kv_writer_close(w, &err));
}

int
main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	bool is_evil = strcmp(kind, "evil") == 0;
	const char *text = is_evil ? evil : "plain";
	const char *arguments[] = { "-p", is_evil ? "no UTF-8: \x9b\x1b" : "six words" };
	json_t *m = model(text), *entry = kv_history_entry("kv-prefill", KV_VERSION, 2, (char *const *)arguments);
	struct kv_writer *w;

	if (argc != 3)
		return 2;
	must(kv_writer_open(&w, argv[2], NULL, NULL, &err));
	must(kv_writer_header(w, m, NULL, entry, &err));
	put_sequence(w, 6, kind, text, is_evil);
	if (is_evil) /* a map of one key that means nothing to anyone */
		must(kv_writer_raw(w, "\x81\xa7nothing\xa3\x1b[m", 13, &err));
	put_sequence(w, 3, kind, text, false);
	must(kv_writer_finish(w, &err));
	json_decref(m);
	json_decref(entry);
	return 0;
}
