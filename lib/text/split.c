/* SPDX-License-Identifier: MIT */
#include "lib/text/split.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lib/buf.h"
#include "lib/text/utf8.h"

#define JIT_STACK_MAX ((size_t)8 << 20) /* bytes; nested repeats over very long words need it */

struct kv_split {
	pcre2_code **codes; /* [n] */
	size_t n;
};

/* PCRE2's own \s is nearly White_Space, but counts U+180E. */
static int
translate(const char *pattern, struct kv_buf *out, struct kv_err *e)
{
	int rc = KV_OK;

	for (const char *p = pattern; *p != '\0' && rc == KV_OK; p++) {
		if (*p != '\\' || p[1] == '\0')
			rc = kv_buf_add(out, p, 1, e);
		else if (p++, *p == 's')
			rc = kv_buf_add(out, "\\p{White_Space}", 15, e);
		else if (*p == 'S')
			rc = kv_buf_add(out, "\\P{White_Space}", 15, e);
		else
			rc = kv_buf_add(out, p - 1, 2, e);
	}
	return rc;
}

static int
compile(pcre2_code **out, const char *pattern, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	PCRE2_UCHAR why[128];
	PCRE2_SIZE where;
	int number, rc = translate(pattern, &b, e);

	if (rc == KV_OK) {
		*out = pcre2_compile((PCRE2_SPTR)b.data, b.n, PCRE2_UTF | PCRE2_UCP, &number, &where, NULL);
		if (*out == NULL) {
			pcre2_get_error_message(number, why, sizeof why);
			rc = kv_fail(e, KV_EMODEL, "pre-tokenizer pattern '%.200s': %s at byte %zu", b.data,
			    (char *)why, where);
		} else {
			pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
		}
	}
	kv_buf_fini(&b);
	return rc;
}

int
kv_split_new(struct kv_split **out, const char *const *patterns, size_t n, struct kv_err *e)
{
	struct kv_split *s = kv_alloc(1, sizeof *s, e);
	int rc = KV_OK;

	*out = NULL;
	if (s == NULL || (s->codes = kv_alloc(n, sizeof *s->codes, e)) == NULL) {
		free(s);
		return KV_EMEM;
	}
	for (s->n = 0; s->n < n && rc == KV_OK; s->n++)
		rc = compile(&s->codes[s->n], patterns[s->n], e);
	if (rc < 0) {
		kv_split_free(s);
		return rc;
	}
	*out = s;
	return KV_OK;
}

void
kv_split_free(struct kv_split *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->n; i++)
		pcre2_code_free(s->codes[i]);
	free(s->codes);
	free(s);
}

/* One call of kv_split_text. */
struct run {
	const struct kv_split *s;
	pcre2_match_data *found;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	kv_piece_fn *fn;
	void *ctx;
};

static int
next_match(struct run *r, size_t level, const char *text, size_t n, size_t from, struct kv_err *e)
{
	const pcre2_code *code = r->s->codes[level];
	const uint32_t flags = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
	PCRE2_UCHAR why[128];
	int rc = pcre2_match(code, (PCRE2_SPTR)text, n, from, flags, r->found, r->context);

	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(code, (PCRE2_SPTR)text, n, from, flags | PCRE2_NO_JIT, r->found, r->context);
	if (rc >= 0)
		return KV_OK;
	if (rc == PCRE2_ERROR_NOMATCH)
		return KV_END;
	pcre2_get_error_message(rc, why, sizeof why);
	return kv_fail(e, KV_EFAIL, "pre-tokenizer pattern %zu, byte %zu of the text: %s", level + 1, from,
	    (char *)why);
}

/* Matches of pattern `level`, and what is between them, go to the next pattern; behind the last one they are pieces. */
static int
split(struct run *r, size_t level, const char *text, size_t n, struct kv_err *e)
{
	size_t at = 0, done = 0;
	int rc = KV_OK;

	if (n == 0)
		return KV_OK;
	if (level == r->s->n)
		return r->fn(r->ctx, text, n, e);
	while (at < n && (rc = next_match(r, level, text, n, at, e)) == KV_OK) {
		const PCRE2_SIZE *o = pcre2_get_ovector_pointer(r->found);
		size_t start = o[0], end = o[1]; /* deeper levels overwrite *o */

		if (start < at || end <= start) /* \K or the like: no sane pattern */
			return kv_fail(e, KV_EMODEL, "pre-tokenizer pattern %zu matches backwards", level + 1);
		if ((rc = split(r, level + 1, text + done, start - done, e)) < 0 ||
		    (rc = split(r, level + 1, text + start, end - start, e)) < 0)
			return rc;
		at = done = end;
	}
	return rc < 0 ? rc : split(r, level + 1, text + done, n - done, e);
}

/* Nothing below U+0300 changes under NFC, and U+0300 begins with byte CC. */
static bool
needs_nfc(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] >= 0xcc)
			return true;
	return false;
}

static int
split_valid(struct run *r, const char *text, size_t n, bool nfc, struct kv_err *e)
{
	utf8proc_uint8_t *composed = NULL;
	utf8proc_ssize_t m;
	int rc;

	if (!nfc || !needs_nfc(text, n))
		return split(r, 0, text, n, e);
	m = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &composed,
	    UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (m < 0)
		return kv_fail(e, m == UTF8PROC_ERROR_NOMEM ? KV_EMEM : KV_EFAIL, "NFC: %s", utf8proc_errmsg(m));
	rc = split(r, 0, (char *)composed, (size_t)m, e);
	free(composed);
	return rc;
}

static int
begin(struct run *r, struct kv_err *e)
{
	r->found = pcre2_match_data_create(1, NULL);
	r->context = pcre2_match_context_create(NULL);
	r->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL);
	if (r->found == NULL || r->context == NULL || r->stack == NULL)
		return kv_no_memory(e, JIT_STACK_MAX);
	pcre2_jit_stack_assign(r->context, NULL, r->stack);
	return KV_OK;
}

int
kv_split_text(const struct kv_split *s, const char *text, size_t n, bool nfc, kv_piece_fn *fn, void *ctx,
    struct kv_err *e)
{
	struct run r = { .s = s, .fn = fn, .ctx = ctx };
	int rc = begin(&r, e);
	bool valid;

	for (size_t i = 0, run; i < n && rc >= 0; i += run) {
		run = kv_utf8_run(text + i, n - i, &valid);
		rc = valid ? split_valid(&r, text + i, run, nfc, e) : fn(ctx, text + i, run, e);
	}
	pcre2_jit_stack_free(r.stack);
	pcre2_match_context_free(r.context);
	pcre2_match_data_free(r.found);
	return rc < 0 ? rc : KV_OK;
}
