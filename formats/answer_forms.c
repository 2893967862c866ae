/* SPDX-License-Identifier: MIT
 * Answers for people and scripts: running text, JSON Lines, a table. */
#include <stdlib.h>
#include <string.h>

#include "formats/answer_sink.h"
#include "lib/file.h"
#include "lib/text/escape.h"
#include "lib/text/json_text.h"

static int
write_out(const struct kv_answers *a, const char *bytes, size_t n, struct kv_err *e)
{
	return kv_write_all(a->o.fd, bytes, n, e) < 0 ? kv_where(e, "<stdout>") : KV_OK;
}

static int
print(const struct kv_answers *a, const struct kv_buf *b, struct kv_err *e)
{
	return b->n > 0 ? write_out(a, b->data, b->n, e) : KV_OK;
}

/* An id may hold anything; what is read line by line, or by a terminal, needs it harmless. */
static int
add_id(struct kv_buf *b, const struct kv_answers *a, struct kv_err *e)
{
	const char *id = kv_answer_id(a);

	return kv_escape(b, id, strlen(id), e);
}

/* ---- text */

static int
begin_text(struct kv_answers *a, struct kv_err *e)
{
	struct kv_buf line = { 0 };
	int rc = KV_OK;

	if (a->begun == 0)
		return KV_OK;
	if ((rc = kv_buf_printf(&line, e, "--- ")) == KV_OK && (rc = add_id(&line, a, e)) == KV_OK &&
	    (rc = kv_buf_printf(&line, e, "\n")) == KV_OK)
		rc = print(a, &line, e);
	kv_buf_fini(&line);
	return rc;
}

/* Show the text up to the last whole character; all of it when it is finished. */
static int
show(struct kv_answers *a, bool finished, struct kv_err *e)
{
	size_t n = a->text.n - a->shown;
	const char *from = n > 0 ? a->text.data + a->shown : "";
	int rc;

	if (!finished)
		n = kv_utf8_ready(from, n);
	if (n > 0 && (rc = write_out(a, from, n, e)) < 0)
		return rc;
	a->shown += n;
	return KV_OK;
}

static int
grow_text(struct kv_answers *a, const float *logits, struct kv_err *e)
{
	(void)logits;
	return show(a, false, e);
}

static int
finish_text(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	int rc = show(a, true, e);

	(void)f;
	if (rc == KV_OK && (a->text.n == 0 || a->text.data[a->text.n - 1] != '\n'))
		rc = write_out(a, "\n", 1, e);
	return rc;
}

const struct kv_answer_sink kv_answer_text = { begin_text, grow_text, finish_text };

/* ---- JSON Lines */

static json_t *
own_keys(const struct kv_answers *a, const struct kv_answer_facts *f)
{
	json_t *o = json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:I}", "id", kv_answer_id(a), "response",
	    kv_json_text(a->text.data, a->text.n), "tokens", kv_ids_to_json(&a->ids), "n_tokens", (json_int_t)a->ids.n,
	    "next_position", (json_int_t)f->next_position, "kept_entries", (json_int_t)f->kept_entries, "kept_bytes",
	    (json_int_t)f->kept_bytes);

	if (o != NULL && f->stop != NULL)
		json_object_set_new(o, "stop", json_string(f->stop));
	if (o != NULL && f->measured) {
		json_object_set_new(o, "nll", json_real(f->nll));
		json_object_set_new(o, "nll_per_token", json_real(a->ids.n > 0 ? f->nll / (double)a->ids.n : 0));
	}
	return o;
}

/* The attributes of the sequence; those whose names are keys of ours as "attributes.NAME". */
static int
add_attributes(json_t *all, const json_t *attributes, const json_t *own, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	const char *key;
	json_t *value;
	int rc = KV_OK;

	json_object_foreach ((json_t *)attributes, key, value) {
		b.n = 0;
		rc = kv_buf_printf(&b, e, "%s%s", json_object_get(own, key) != NULL ? "attributes." : "", key);
		if (rc == KV_OK && json_object_set(all, b.data, value) < 0)
			rc = kv_no_memory(e, b.n);
		if (rc < 0)
			break;
	}
	kv_buf_fini(&b);
	return rc;
}

static int
finish_json(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	json_t *all = json_object(), *own = own_keys(a, f);
	struct kv_buf line = { 0 };
	char *text = NULL;
	int rc = all == NULL || own == NULL ? kv_no_memory(e, a->text.n) : KV_OK;

	if (rc == KV_OK)
		rc = add_attributes(all, json_object_get(a->map, "attributes"), own, e);
	if (rc < 0)
		goto done;
	if (json_object_update(all, own) < 0 ||
	    (text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17))) == NULL)
		rc = kv_no_memory(e, a->text.n);
	else if ((rc = kv_buf_printf(&line, e, "%s\n", text)) == KV_OK)
		rc = print(a, &line, e);
done:
	free(text);
	kv_buf_fini(&line);
	json_decref(own);
	json_decref(all);
	return rc;
}

const struct kv_answer_sink kv_answer_json = { .finish = finish_json };

/* ---- a table of likelihoods */

static int
begin_table(struct kv_answers *a, struct kv_err *e)
{
	static const char heading[] = "id\tn_tokens\tnll\tnll_per_token\n";

	return a->begun == 0 ? write_out(a, heading, sizeof heading - 1, e) : KV_OK;
}

static int
finish_table(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	double each = a->ids.n > 0 ? f->nll / (double)a->ids.n : 0;
	int rc = add_id(&b, a, e);

	if (rc == KV_OK && (rc = kv_buf_printf(&b, e, "\t%zu\t%.9g\t%.9g\n", a->ids.n, f->nll, each)) == KV_OK)
		rc = print(a, &b, e);
	kv_buf_fini(&b);
	return rc;
}

const struct kv_answer_sink kv_answer_table = { .begin = begin_table, .finish = finish_table };
