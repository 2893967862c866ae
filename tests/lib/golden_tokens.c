/* SPDX-License-Identifier: MIT */
#include "tests/lib/golden_tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int
hex(const char *s, char *out)
{
	unsigned b;

	if (sscanf(s, "%2x", &b) != 1)
		return -1;
	*out = (char)b;
	return 0;
}

size_t
golden_unescape(char *line)
{
	static const char codes[] = "n\nr\rt\t\\\\";
	char *w = line;

	for (const char *p = line; *p != '\0'; p++) {
		const char *c;

		if (*p != '\\') {
			*w++ = *p;
		} else if (p[1] == 'x' && hex(p + 2, w) == 0) {
			w++;
			p += 3;
		} else {
			for (c = codes; *c != '\0' && *c != p[1]; c += 2)
				;
			*w++ = c[*c != '\0'];
			p++;
		}
	}
	*w = '\0';
	return (size_t)(w - line);
}

/* Lines of a file, one at a time. */
struct lines {
	FILE *f;
	char *line;
	size_t cap;
};

static int
lines_open(struct lines *l, const char *path, struct kv_err *e)
{
	if ((l->f = fopen(path, "rb")) == NULL)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	return KV_OK;
}

static bool
lines_next(struct lines *l)
{
	ssize_t n = getline(&l->line, &l->cap, l->f);

	if (n > 0 && l->line[n - 1] == '\n')
		l->line[n - 1] = '\0';
	return n > 0;
}

static void
lines_close(struct lines *l)
{
	if (l->f != NULL)
		fclose(l->f);
	free(l->line);
}

static int
read_token(struct kv_vocab *v, struct kv_token *k, const char *arg, struct kv_err *e)
{
	static const char kinds[] = { [KV_TOKEN_NORMAL] = 'n', [KV_TOKEN_SPECIAL] = 's', [KV_TOKEN_ADDED] = 'a',
		[KV_TOKEN_BYTE] = 'b', [KV_TOKEN_UNUSED] = 'u' };
	int at = 0;
	char kind, *text;
	size_t n;

	if (sscanf(arg, "%c %f %n", &kind, &k->score, &at) != 2 || memchr(kinds, kind, sizeof kinds) == NULL)
		return kv_fail(e, KV_EFORMAT, "token %zu: expected KIND SCORE HEX, found '%s'", v->n, arg);
	k->kind = (uint8_t)((char *)memchr(kinds, kind, sizeof kinds) - kinds);
	n = strlen(arg + at) / 2;
	if ((text = kv_vocab_alloc(v, n + 1, 1, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		if (hex(arg + at + 2 * i, text + i) < 0)
			return kv_fail(e, KV_EFORMAT, "token %zu: '%s' is not hexadecimal", v->n, arg + at);
	k->text = text;
	k->n = (uint32_t)n;
	v->n++;
	return KV_OK;
}

static int
read_line(struct kv_vocab *v, const char *line, struct kv_err *e)
{
	struct { const char *key; bool *flag; int32_t *id; } const rows[] = {
		{ "add_bos", &v->add_bos, NULL }, { "space_prefix", &v->add_space_prefix, NULL },
		{ "bos", NULL, &v->bos }, { "eos", NULL, &v->eos }, { "unk", NULL, &v->unk },
	};
	const char *arg = strchr(line, ' ');
	size_t n = arg ? (size_t)(arg++ - line) : 0;

	if (n == 5 && memcmp(line, "token", n) == 0)
		return read_token(v, &v->tokens[v->n], arg, e);
	if (n == 5 && memcmp(line, "merge", n) == 0)
		return (v->merges[v->n_merges++] = kv_vocab_strdup(v, arg, strlen(arg), e)) ? KV_OK : KV_EMEM;
	if (n == 8 && memcmp(line, "template", n) == 0) {
		char *text = kv_vocab_strdup(v, arg, strlen(arg), e);

		if (text == NULL)
			return KV_EMEM;
		golden_unescape(text);
		v->chat_template = text;
		return KV_OK;
	}
	if (n == 3 && memcmp(line, "pre", n) == 0)
		return kv_vocab_set_pre(v, arg, e);
	if (n == 4 && memcmp(line, "kind", n) == 0) {
		v->kind = strcmp(arg, "spm") == 0 ? KV_VOCAB_SPM : KV_VOCAB_BPE;
		return KV_OK;
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (n != strlen(rows[i].key) || memcmp(line, rows[i].key, n) != 0)
			continue;
		if (rows[i].flag != NULL)
			*rows[i].flag = arg[0] == '1';
		else
			*rows[i].id = atoi(arg);
		return KV_OK;
	}
	return kv_fail(e, KV_EFORMAT, "not a line of a vocabulary: '%.60s'", line);
}

int
golden_read_vocab(struct kv_vocab *v, const char *path, struct kv_err *e)
{
	struct lines l = { 0 };
	size_t n = 0;
	int rc = lines_open(&l, path, e);

	v->bos = v->eos = v->unk = v->pad = -1;
	while (rc == KV_OK && lines_next(&l))
		n++;
	if (rc == KV_OK && ((v->tokens = kv_vocab_alloc(v, n, sizeof *v->tokens, e)) == NULL ||
	    (v->merges = kv_vocab_alloc(v, n, sizeof *v->merges, e)) == NULL))
		rc = KV_EMEM;
	if (rc == KV_OK)
		rewind(l.f);
	while (rc == KV_OK && lines_next(&l))
		rc = read_line(v, l.line, e);
	lines_close(&l);
	return rc < 0 ? kv_where(e, "%s", path) : KV_OK;
}

/* Does the text come back, composed if the vocabulary composes? */
static bool
comes_back(const struct kv_tokenizer *t, const struct kv_ids *ids, const char *text, size_t n, struct kv_err *e)
{
	struct kv_buf back = { 0 };
	utf8proc_uint8_t *nfc = NULL;
	utf8proc_ssize_t m = (utf8proc_ssize_t)n;
	bool same;

	if (kv_tokenizer_vocab(t)->nfc)
		m = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &nfc,
		    UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	same = kv_decode(t, ids->v, ids->n, true, &back, e) == KV_OK && m >= 0 && back.n == (size_t)m &&
	    (m == 0 || memcmp(back.data, nfc ? (char *)nfc : text, (size_t)m) == 0);
	free(nfc);
	kv_buf_fini(&back);
	return same;
}

static bool
equal_ids(const struct kv_ids *ids, const char *line)
{
	char *end;

	for (size_t i = 0; i < ids->n; i++, line = end)
		if (strtol(line, &end, 10) != ids->v[i] || end == line)
			return false;
	return *line == '\0';
}

static void
say_difference(FILE *say, const char *text, const char *expected, const struct kv_ids *ids)
{
	fprintf(say, "'%s'\n  expected %s\n  found   ", text, expected);
	for (size_t i = 0; i < ids->n; i++)
		fprintf(say, " %d", (int)ids->v[i]);
	fputc('\n', say);
}

int
golden_strings(const struct kv_tokenizer *t, const char *strings, const char *golden, unsigned flags, FILE *say,
    struct golden_result *r, struct kv_err *e)
{
	struct lines s = { 0 }, g = { 0 };
	struct kv_ids ids = { 0 };
	int rc;

	*r = (struct golden_result){ 0 };
	if ((rc = lines_open(&s, strings, e)) == KV_OK)
		rc = lines_open(&g, golden, e);
	while (rc == KV_OK && lines_next(&s)) {
		size_t n = golden_unescape(s.line);

		if (!lines_next(&g))
			rc = kv_fail(e, KV_EFORMAT, "%s ends after %zu lines", golden, r->n);
		ids.n = 0;
		if (rc < 0 || (rc = kv_encode(t, s.line, n, flags, &ids, e)) < 0)
			break;
		r->n++;
		if (!equal_ids(&ids, g.line) && r->wrong++ < 5)
			say_difference(say, s.line, g.line, &ids);
		if (!comes_back(t, &ids, s.line, n, e) && r->lost++ < 5)
			fprintf(say, "'%s' does not come back\n", s.line);
	}
	kv_ids_fini(&ids);
	lines_close(&g);
	lines_close(&s);
	return rc;
}

static uint64_t
fnv(uint64_t h, const int32_t *ids, size_t n)
{
	for (size_t i = 0; i <= n; i++) {
		uint32_t id = i < n ? (uint32_t)ids[i] : UINT32_MAX;

		for (int b = 0; b < 32; b += 8)
			h = (h ^ (id >> b & 0xff)) * 0x100000001b3u;
	}
	return h;
}

static int
check_hundred(const char *hashes, struct lines *g, uint64_t h, FILE *say, const char *last, struct golden_result *r,
    struct kv_err *e)
{
	if (!lines_next(g))
		return kv_fail(e, KV_EFORMAT, "%s is too short", hashes);
	if (strtoull(g->line, NULL, 16) != h && r->wrong++ < 5)
		fprintf(say, "one of the hundred words that end with '%s' has other ids\n", last);
	return KV_OK;
}

/* All words once, with `space` before them. */
static int
pass(const struct kv_tokenizer *t, const char *words, const char *space, const char *hashes, struct lines *g, FILE *say,
    struct golden_result *r, struct kv_err *e)
{
	struct lines w = { 0 };
	struct kv_ids ids = { 0 };
	struct kv_buf text = { 0 };
	uint64_t h = 0xcbf29ce484222325u;
	int rc = lines_open(&w, words, e);

	while (rc == KV_OK && lines_next(&w)) {
		ids.n = text.n = 0;
		if ((rc = kv_buf_printf(&text, e, "%s%s", space, w.line)) < 0 ||
		    (rc = kv_encode(t, text.data, text.n, 0, &ids, e)) < 0)
			break;
		r->lost += !comes_back(t, &ids, text.data, text.n, e);
		h = fnv(h, ids.v, ids.n);
		if (++r->n % 100 == 0) {
			rc = check_hundred(hashes, g, h, say, w.line, r, e);
			h = 0xcbf29ce484222325u;
		}
	}
	kv_buf_fini(&text);
	kv_ids_fini(&ids);
	lines_close(&w);
	return rc;
}

int
golden_words(const struct kv_tokenizer *t, const char *words, const char *hashes, FILE *say, struct golden_result *r,
    struct kv_err *e)
{
	struct lines g = { 0 };
	int rc;

	*r = (struct golden_result){ 0 };
	if ((rc = lines_open(&g, hashes, e)) == KV_OK && (rc = pass(t, words, "", hashes, &g, say, r, e)) == KV_OK)
		rc = pass(t, words, " ", hashes, &g, say, r, e);
	lines_close(&g);
	return rc;
}

/* Both turns of a conversation. */
static int
encode_chat(const struct kv_tokenizer *t, char *const cell[5], const size_t bytes[5], struct kv_ids *ids,
    struct kv_err *e)
{
	const struct kv_chat *c = kv_chat_find(cell[0]);
	int rc;

	if (c == NULL)
		return kv_fail(e, KV_EFORMAT, "no chat family '%s'", cell[0]);
	rc = kv_chat_encode(c, t, strcmp(cell[1], "-") == 0 ? NULL : cell[1], cell[2], bytes[2], true, false, 0, ids,
	    e);
	if (rc < 0 || bytes[3] == 0)
		return rc;
	if ((rc = kv_encode(t, cell[3], bytes[3], 0, ids, e)) < 0)
		return rc;
	return kv_chat_encode(c, t, NULL, cell[4], bytes[4], false, true, 0, ids, e);
}

int
golden_chats(const struct kv_tokenizer *t, const char *chats, FILE *say, struct golden_result *r, struct kv_err *e)
{
	struct lines l = { 0 };
	struct kv_ids ids = { 0 };
	int rc = lines_open(&l, chats, e);

	*r = (struct golden_result){ 0 };
	while (rc == KV_OK && lines_next(&l)) {
		char *rest = l.line, *cell[5];
		size_t bytes[5];

		ids.n = 0;
		for (int i = 0; i < 5; i++) {
			cell[i] = strsep(&rest, "\t");
			bytes[i] = cell[i] != NULL ? golden_unescape(cell[i]) : 0;
		}
		if (rest == NULL)
			rc = kv_fail(e, KV_EFORMAT, "%s: line %zu has not six columns", chats, r->n + 1);
		if (rc < 0 || (rc = encode_chat(t, cell, bytes, &ids, e)) < 0)
			break;
		r->n++;
		if (!equal_ids(&ids, rest) && r->wrong++ < 5)
			say_difference(say, cell[2], rest, &ids);
	}
	kv_ids_fini(&ids);
	lines_close(&l);
	return rc;
}
