/* SPDX-License-Identifier: MIT */
#include "formats/messagepack.h"

#include <msgpack.h>
#include <string.h>

/* ---- walking */

/* First bytes 0xc0 .. 0xdf: a length field of `length` bytes, then `body` fixed bytes.  The length counts bytes
 * when `per` is 0, objects (times per) otherwise. */
static const struct {
	unsigned char length, body, per;
} tokens[32] = {
	[0x04] = { 1, 0, 0 }, [0x05] = { 2, 0, 0 }, [0x06] = { 4, 0, 0 },                        /* bin */
	[0x07] = { 1, 1, 0 }, [0x08] = { 2, 1, 0 }, [0x09] = { 4, 1, 0 },                        /* ext */
	[0x0a] = { 0, 4, 0 }, [0x0b] = { 0, 8, 0 },                                              /* float */
	[0x0c] = { 0, 1, 0 }, [0x0d] = { 0, 2, 0 }, [0x0e] = { 0, 4, 0 }, [0x0f] = { 0, 8, 0 }, /* uint */
	[0x10] = { 0, 1, 0 }, [0x11] = { 0, 2, 0 }, [0x12] = { 0, 4, 0 }, [0x13] = { 0, 8, 0 }, /* int */
	[0x14] = { 0, 2, 0 }, [0x15] = { 0, 3, 0 }, [0x16] = { 0, 5, 0 }, [0x17] = { 0, 9, 0 }, /* fixext */
	[0x18] = { 0, 17, 0 },
	[0x19] = { 1, 0, 0 }, [0x1a] = { 2, 0, 0 }, [0x1b] = { 4, 0, 0 }, /* str */
	[0x1c] = { 2, 0, 1 }, [0x1d] = { 4, 0, 1 },                       /* array */
	[0x1e] = { 2, 0, 2 }, [0x1f] = { 4, 0, 2 },                       /* map */
};

struct token {
	size_t head;       /* first byte and length field */
	unsigned cost;     /* what it adds to the elements, beside its children */
	uint64_t body;     /* bytes behind the head that belong to it */
	uint64_t children; /* objects behind it that belong to it */
};

static uint64_t
big_endian(const unsigned char *p, size_t n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | *p++;
	return v;
}

/* The token at p [n], n >= 1; head alone is set when the length field has not arrived. */
static struct token
token_read(const unsigned char *p, size_t n)
{
	struct token t = { .head = 1 };
	unsigned char b = p[0];
	uint64_t length;

	if ((b >= 0x80 && b <= 0x9f) || (b >= 0xdc && b <= 0xdf))
		t.cost = KV_COST_NEST;
	else if ((b >= 0xa0 && b <= 0xbf) || (b >= 0xd9 && b <= 0xdb))
		t.cost = KV_COST_STRING - 1; /* the one it counts as somebody's child apart */
	if (b >= 0x80 && b <= 0x8f) {
		t.children = 2 * (b & 15u);
	} else if (b >= 0x90 && b <= 0x9f) {
		t.children = b & 15u;
	} else if (b >= 0xa0 && b <= 0xbf) {
		t.body = b & 31u;
	} else if (b >= 0xc0 && b <= 0xdf) {
		t.head += tokens[b - 0xc0].length;
		t.body = tokens[b - 0xc0].body;
		if (n < t.head)
			return t;
		length = big_endian(p + 1, t.head - 1);
		t.children = length * tokens[b - 0xc0].per;
		t.body += tokens[b - 0xc0].per ? 0 : length;
	}
	return t;
}

/* Levels whose objects have all been walked are left. */
static bool
skim_is_complete(struct kv_skim *s)
{
	while (s->depth > 0 && s->left[s->depth] == 0)
		s->depth--;
	return s->depth == 0 && s->left[0] == 0;
}

static int
skim_check(const struct kv_skim *s, const struct token *t, unsigned char first, struct kv_err *e)
{
	if (first == 0xc1)
		return kv_fail(e, KV_EFORMAT, "byte 0xc1, which MessagePack does not use");
	if (t->body > KV_RECORD_MAX || s->at + t->head + t->body > KV_RECORD_MAX)
		return kv_fail(e, KV_EFORMAT, "a record of more than %u bytes", KV_RECORD_MAX);
	if (t->children > KV_ELEMENTS_MAX || s->elements + t->children + t->cost > KV_ELEMENTS_MAX)
		return kv_fail(e, KV_EFORMAT,
		    "a record of more than %u elements (a string counts as %d, a map or an array as %d)",
		    KV_ELEMENTS_MAX, KV_COST_STRING, KV_COST_NEST);
	if (t->children > 0 && s->depth == KV_DEPTH_MAX)
		return kv_fail(e, KV_EFORMAT, "maps and arrays nested more than %d deep", KV_DEPTH_MAX);
	return KV_OK;
}

int
kv_skim(struct kv_skim *s, const unsigned char *p, size_t n, struct kv_err *e)
{
	struct token t;
	int rc;

	if (!s->started)
		s->left[0] = 1;
	s->started = true;
	while (!skim_is_complete(s)) {
		s->need = s->at + 1;
		if (s->at >= n)
			return KV_END;
		t = token_read(p + s->at, n - s->at);
		if ((rc = skim_check(s, &t, p[s->at], e)) < 0)
			return rc;
		s->need = s->at + t.head + (size_t)t.body;
		if (s->need > n)
			return KV_END;
		s->at = s->need;
		s->left[s->depth]--;
		s->elements += t.children + t.cost;
		if (t.children > 0)
			s->left[++s->depth] = t.children;
	}
	return KV_OK;
}

size_t
kv_pack_find(const unsigned char *p, size_t n, const char *const *keys, size_t *which)
{
	struct token map = token_read(p, n), key;
	size_t at = map.head, found = 0;

	if ((p[0] & 0xf0) != 0x80 && p[0] != 0xde && p[0] != 0xdf)
		return 0;
	for (uint64_t i = 0; i < map.children; i += 2) {
		struct kv_skim s = { 0 }, v = { 0 };

		if (kv_skim(&s, p + at, n - at, NULL) != KV_OK)
			return 0;
		key = token_read(p + at, n - at);
		for (size_t k = 0; keys[k] != NULL; k++) {
			bool is_str = (p[at] & 0xe0) == 0xa0 || (p[at] >= 0xd9 && p[at] <= 0xdb);

			if (is_str && key.body == strlen(keys[k]) &&
			    memcmp(p + at + key.head, keys[k], key.body) == 0) {
				*which = k;
				found++;
			}
		}
		at += s.at;
		if (kv_skim(&v, p + at, n - at, NULL) != KV_OK)
			return 0;
		at += v.at;
	}
	return found;
}

/* ---- decoding */

static int to_json(const msgpack_object *o, json_t **out, struct kv_err *e);

static int
made(json_t *v, json_t **out, struct kv_err *e)
{
	*out = v;
	return v ? KV_OK : kv_no_memory(e, sizeof(json_t *));
}

static int
array_to_json(const msgpack_object_array *a, json_t **out, struct kv_err *e)
{
	json_t *array = json_array(), *v = NULL;
	int rc;

	if ((rc = made(array, out, e)) < 0)
		return rc;
	for (uint32_t i = 0; i < a->size; i++) {
		if ((rc = to_json(&a->ptr[i], &v, e)) < 0)
			break;
		if (json_array_append_new(array, v) < 0) {
			rc = kv_no_memory(e, a->size * sizeof(json_t *));
			break;
		}
	}
	if (rc < 0)
		json_decref(array);
	return rc;
}

static int
pair_to_json(const msgpack_object_kv *kv, json_t *map, struct kv_err *e)
{
	const msgpack_object_str *key = &kv->key.via.str;
	json_t *v = NULL;
	int rc;

	if (kv->key.type != MSGPACK_OBJECT_STR)
		return kv_fail(e, KV_EFORMAT, "a map with a key that is not a string");
	if (json_object_getn(map, key->ptr, key->size) != NULL)
		return kv_fail(
		    e, KV_EFORMAT, "key '%.*s' stands twice", key->size > 64 ? 64 : (int)key->size, key->ptr);
	if ((rc = to_json(&kv->val, &v, e)) < 0)
		return rc;
	if (json_object_setn_new_nocheck(map, key->ptr, key->size, v) < 0)
		return kv_no_memory(e, key->size);
	return KV_OK;
}

static int
map_to_json(const msgpack_object_map *m, json_t **out, struct kv_err *e)
{
	json_t *map = json_object();
	int rc;

	if ((rc = made(map, out, e)) < 0)
		return rc;
	for (uint32_t i = 0; i < m->size && rc == KV_OK; i++)
		rc = pair_to_json(&m->ptr[i], map, e);
	if (rc < 0)
		json_decref(map);
	return rc;
}

static int
real_to_json(double v, json_t **out, struct kv_err *e)
{
	if (!__builtin_isfinite(v))
		return kv_fail(e, KV_EFORMAT, "a number that is not finite");
	return made(json_real(v), out, e);
}

/* The skim has bounded the depth. */
static int
to_json(const msgpack_object *o, json_t **out, struct kv_err *e)
{
	switch (o->type) {
	case MSGPACK_OBJECT_NIL: return made(json_null(), out, e);
	case MSGPACK_OBJECT_BOOLEAN: return made(json_boolean(o->via.boolean), out, e);
	case MSGPACK_OBJECT_NEGATIVE_INTEGER: return made(json_integer(o->via.i64), out, e);
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		if (o->via.u64 > INT64_MAX)
			return kv_fail(e, KV_EFORMAT, "an integer beyond 2^63-1");
		return made(json_integer((json_int_t)o->via.u64), out, e);
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64: return real_to_json(o->via.f64, out, e);
	case MSGPACK_OBJECT_STR: return made(json_stringn_nocheck(o->via.str.ptr, o->via.str.size), out, e);
	case MSGPACK_OBJECT_ARRAY: return array_to_json(&o->via.array, out, e);
	case MSGPACK_OBJECT_MAP: return map_to_json(&o->via.map, out, e);
	default: return kv_fail(e, KV_EFORMAT, "a bin or ext object inside a record's map");
	}
}

int
kv_pack_decode(const char *p, size_t n, json_t **out, struct kv_err *e)
{
	msgpack_unpacked u;
	msgpack_unpack_return got;
	size_t at = 0;
	int rc;

	*out = NULL;
	msgpack_unpacked_init(&u);
	got = msgpack_unpack_next(&u, p, n, &at);
	if (got == MSGPACK_UNPACK_NOMEM_ERROR)
		rc = kv_no_memory(e, n);
	else if (got != MSGPACK_UNPACK_SUCCESS || at != n)
		rc = kv_fail(e, KV_EFORMAT, "not one MessagePack object");
	else if ((rc = to_json(&u.data, out, e)) < 0)
		*out = NULL;
	msgpack_unpacked_destroy(&u);
	return rc;
}

/* ---- encoding */

struct sink {
	struct kv_buf *buf;
	struct kv_err *err;
};

/* msgpack_packer_write: what msgpack-c calls for every piece. */
static int
sink_write(void *ctx, const char *p, size_t n)
{
	struct sink *s = ctx;

	return kv_buf_add(s->buf, p, n, s->err) < 0 ? -1 : 0;
}

static int
encode_str(msgpack_packer *pk, const char *s, size_t n)
{
	return msgpack_pack_str(pk, n) < 0 ? -1 : msgpack_pack_str_body(pk, s, n);
}

static int encode(msgpack_packer *pk, const json_t *v, unsigned depth);

static int
encode_array(msgpack_packer *pk, const json_t *v, unsigned depth)
{
	int rc = msgpack_pack_array(pk, json_array_size(v));

	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++)
		rc = encode(pk, json_array_get(v, i), depth + 1);
	return rc;
}

static int
encode_map(msgpack_packer *pk, const json_t *v, unsigned depth)
{
	json_t *map = (json_t *)v; /* jansson's iterators want it so; nothing is changed */
	int rc = msgpack_pack_map(pk, json_object_size(v));

	for (void *i = json_object_iter(map); i != NULL && rc == 0; i = json_object_iter_next(map, i)) {
		rc = encode_str(pk, json_object_iter_key(i), json_object_iter_key_len(i));
		if (rc == 0)
			rc = encode(pk, json_object_iter_value(i), depth + 1);
	}
	return rc;
}

/* 0, or -1 with the fault recorded in the sink. */
static int
encode(msgpack_packer *pk, const json_t *v, unsigned depth)
{
	struct sink *s = pk->data;

	switch (json_typeof(v)) {
	case JSON_INTEGER: return msgpack_pack_int64(pk, json_integer_value(v));
	case JSON_REAL: return msgpack_pack_double(pk, json_real_value(v));
	case JSON_STRING: return encode_str(pk, json_string_value(v), json_string_length(v));
	case JSON_TRUE: return msgpack_pack_true(pk);
	case JSON_FALSE: return msgpack_pack_false(pk);
	case JSON_NULL: return msgpack_pack_nil(pk);
	default: break;
	}
	if (depth >= KV_DEPTH_MAX) {
		kv_fail(s->err, KV_EFORMAT, "maps and arrays nested more than %d deep", KV_DEPTH_MAX);
		return -1;
	}
	return json_is_array(v) ? encode_array(pk, v, depth) : encode_map(pk, v, depth);
}

int
kv_pack_encode(struct kv_buf *b, const json_t *v, struct kv_err *e)
{
	struct kv_err mine = { 0 };
	struct sink s = { b, e ? e : &mine };
	msgpack_packer pk;

	msgpack_packer_init(&pk, &s, sink_write);
	return encode(&pk, v, 0) < 0 ? s.err->code : KV_OK;
}

int
kv_pack_bin_head(struct kv_buf *b, uint32_t n, struct kv_err *e)
{
	struct kv_err mine = { 0 };
	struct sink s = { b, e ? e : &mine };
	msgpack_packer pk;

	msgpack_packer_init(&pk, &s, sink_write);
	return msgpack_pack_bin(&pk, n) < 0 ? s.err->code : KV_OK;
}

size_t
kv_pack_bin_head_bytes(uint32_t n)
{
	return n < 256 ? 2 : n < 65536 ? 3 : 5;
}

size_t
kv_pack_bin_head_read(const unsigned char *p, size_t have, uint32_t *n)
{
	size_t head;

	if (have == 0 || p[0] < 0xc4 || p[0] > 0xc6)
		return 0;
	head = 1 + ((size_t)1 << (p[0] - 0xc4));
	if (have < head)
		return 0;
	*n = (uint32_t)big_endian(p + 1, head - 1);
	return head;
}
