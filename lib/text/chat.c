/* SPDX-License-Identifier: MIT */
#include "lib/text/chat.h"

#include <string.h>

#include "lib/text/chat_family.h"
#include "lib/text/markup.h"

const struct kv_chat *
kv_chat_find(const char *name)
{
	for (const struct kv_chat *c = kv_chat_families; c->name != NULL; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

static bool
fits(const struct kv_chat *c, const char *jinja)
{
	for (size_t i = 0; i < sizeof c->marks / sizeof *c->marks && c->marks[i] != NULL; i++)
		if (!kv_jinja_has(jinja, c->marks[i]))
			return false;
	return true;
}

const struct kv_chat *
kv_chat_recognise(const char *jinja)
{
	if (jinja == NULL)
		return NULL;
	for (const struct kv_chat *c = kv_chat_families; c->name != NULL; c++)
		if (fits(c, jinja))
			return c;
	return NULL;
}

const struct kv_chat *
kv_chat_choose(const struct kv_chat *asked, const char *name, const char *jinja)
{
	if (asked != NULL)
		return asked;
	return name != NULL ? kv_chat_find(name) : kv_chat_recognise(jinja);
}

const char *
kv_chat_name(const struct kv_chat *c)
{
	return c->name;
}

/* One call of kv_chat_encode: text waits in `text` until a special token of the markup cuts it. */
struct turn {
	const struct kv_tokenizer *t;
	struct kv_buf text;
	unsigned flags;
	struct kv_ids *ids;
};

static int
flush(struct turn *u, struct kv_err *e)
{
	int rc = kv_encode(u->t, u->text.data, u->text.n, u->flags & KV_ENCODE_SPECIAL, u->ids, e);

	u->text.n = 0;
	return rc;
}

static int
add_markup(struct turn *u, const char *s, struct kv_err *e)
{
	size_t n = strlen(s), at, len;
	int32_t id;
	int rc;

	while ((id = kv_markup_find(u->t, s, n, &at, &len)) >= 0) {
		if ((rc = kv_buf_add(&u->text, s, at, e)) < 0 || (rc = flush(u, e)) < 0 ||
		    (rc = kv_ids_add(u->ids, id, e)) < 0)
			return rc;
		s += at + len;
		n -= at + len;
	}
	return kv_buf_add(&u->text, s, n, e);
}

static int
add_system(struct turn *u, const struct kv_chat *c, const char *text, struct kv_err *e)
{
	int rc;

	if ((rc = add_markup(u, c->system[0], e)) < 0)
		return rc;
	if (c->preamble != NULL && (rc = kv_buf_add(&u->text, c->preamble, strlen(c->preamble), e)) < 0)
		return rc;
	if ((rc = kv_buf_add(&u->text, text, strlen(text), e)) < 0)
		return rc;
	return add_markup(u, c->system[1], e);
}

/* What stands before the user's text.  system: NULL for none. */
static int
open_turn(struct turn *u, const struct kv_chat *c, const char *system, struct kv_err *e)
{
	int rc;

	if (system != NULL && !c->system_in_user && (rc = add_system(u, c, system, e)) < 0)
		return rc;
	if ((rc = add_markup(u, c->user[0], e)) < 0)
		return rc;
	return system != NULL && c->system_in_user ? add_system(u, c, system, e) : KV_OK;
}

static int
close_answer(struct turn *u, const struct kv_chat *c, bool open, struct kv_err *e)
{
	int rc;

	if (open && (rc = add_markup(u, c->end, e)) < 0)
		return rc;
	if ((rc = add_markup(u, c->next, e)) < 0)
		return rc;
	if (!c->bos_each_turn || kv_tokenizer_vocab(u->t)->bos < 0)
		return KV_OK;
	if ((rc = flush(u, e)) < 0)
		return rc;
	return kv_ids_add(u->ids, kv_tokenizer_vocab(u->t)->bos, e);
}

/* The model's own template, if it is of this family. */
static const char *
own_template(const struct kv_chat *c, const struct kv_vocab *v)
{
	return kv_chat_recognise(v->chat_template) == c ? v->chat_template : NULL;
}

static int
add_bos(const struct kv_chat *c, const struct kv_vocab *v, struct kv_ids *ids, struct kv_err *e)
{
	const char *jinja = own_template(c, v);
	bool wanted = v->add_bos || (jinja != NULL ? kv_jinja_has(jinja, "bos_token") : c->bos);

	if (!wanted || v->bos < 0 || ids->n > 0)
		return KV_OK;
	return kv_ids_add(ids, v->bos, e);
}

/* The system text to use: the caller's, the template's, the family's; *system is NULL when there is to be none. */
static int
choose_system(const struct kv_chat *c, const struct kv_vocab *v, const char **system, struct kv_buf *own,
    struct kv_err *e)
{
	const char *jinja = own_template(c, v);
	bool found = false;
	int rc = KV_OK;

	if (*system != NULL) {
		if ((*system)[0] == '\0')
			*system = NULL;
		return KV_OK;
	}
	if (jinja != NULL)
		rc = kv_jinja_default_system(c, jinja, own, &found, e);
	if (found)
		*system = own->data != NULL ? own->data : "";
	else if (jinja == NULL || c->preamble != NULL)
		*system = c->default_system;
	return rc;
}

static int
encode(struct turn *u, const struct kv_chat *c, const char *system, const char *user, size_t user_bytes, bool first,
    bool open, struct kv_err *e)
{
	struct kv_buf own = { 0 };
	const struct kv_vocab *v = kv_tokenizer_vocab(u->t);
	int rc;

	if (!first)
		system = NULL;
	else if ((rc = choose_system(c, v, &system, &own, e)) < 0)
		goto done;
	if ((rc = first ? add_bos(c, v, u->ids, e) : close_answer(u, c, open, e)) < 0 ||
	    (rc = open_turn(u, c, system, e)) < 0 || (rc = kv_buf_add(&u->text, user, user_bytes, e)) < 0 ||
	    (rc = add_markup(u, c->user[1], e)) < 0)
		goto done;
	rc = flush(u, e);
done:
	kv_buf_fini(&own);
	return rc;
}

int
kv_chat_encode(const struct kv_chat *c, const struct kv_tokenizer *t, const char *system, const char *user,
    size_t user_bytes, bool first, bool open, unsigned flags, struct kv_ids *ids, struct kv_err *e)
{
	struct turn u = { .t = t, .flags = flags, .ids = ids };
	int rc;

	if (kv_token_find(t, c->end) < 0)
		return kv_fail(e, KV_EMODEL,
		    "chat family '%s' ends answers with %s, which is not in this model's vocabulary; choose "
		    "another family (%s)",
		    c->name, c->end, kv_chat_names);
	rc = encode(&u, c, system, user, user_bytes, first, open, e);
	kv_buf_fini(&u.text);
	return rc;
}
