/* SPDX-License-Identifier: MIT
 * A score tensor's attributes, and the user's options: text on one side, typed values on the other. */
#include "lib/score/score.h"

#include <stdio.h>
#include <string.h>

static const char *const pools[] = { [KVK_POOL_NONE] = "none", [KVK_POOL_MAX] = "max", [KVK_POOL_AVG] = "avg" };
static const char *const reduces[] = { [KVK_MEAN] = "mean", [KVK_SUM] = "sum", [KVK_MAX] = "max" };

static int
find(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -1;
}

const char *
kv_pool_name(enum kvk_pool pool)
{
	return pools[pool];
}

const char *
kv_reduce_name(enum kvk_reduce how)
{
	return reduces[how];
}

int
kv_pool_find(const char *name)
{
	return find(pools, sizeof pools / sizeof *pools, name);
}

int
kv_reduce_find(const char *name)
{
	return find(reduces, sizeof reduces / sizeof *reduces, name);
}

/* ---- options */

/* An option that would change nothing is refused: the user expects it to. */
static int
check_takes(const struct kv_score *m, const struct kv_score_options *o, struct kv_err *e)
{
	const struct {
		unsigned takes;
		bool given;
		const char *option;
	} row[] = {
		{ KV_TAKES_WINDOW, o->window != KV_UNSET, "--window" },
		{ KV_TAKES_ROWS, o->rows != NULL, "--rows" },
		{ KV_TAKES_GQA, o->gqa != NULL, "--gqa" },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (row[i].given && !(m->takes & row[i].takes))
			return kv_fail(e, KV_EARG, "%s has no option %s", m->name, row[i].option);
	return KV_OK;
}

static int
set_count(size_t *to, size_t given, const char *option, struct kv_err *e)
{
	if (given == KV_UNSET)
		return KV_OK;
	if (given > KV_COUNT_MAX)
		return kv_fail(e, KV_EARG, "%s %zu is beyond %.0f", option, given, KV_COUNT_MAX);
	*to = given;
	return KV_OK;
}

static int
set_reduce(enum kvk_reduce *to, const char *given, const char *option, struct kv_err *e)
{
	int how = given ? kv_reduce_find(given) : (int)*to;

	if (how < 0)
		return kv_fail(e, KV_EARG, "%s '%s': must be mean, sum or max", option, given);
	*to = (enum kvk_reduce)how;
	return KV_OK;
}

static int
set_pool(struct kv_score_params *p, const struct kv_score_options *o, struct kv_err *e)
{
	int pool = o->pool ? kv_pool_find(o->pool) : (int)p->pool;

	if (pool < 0)
		return kv_fail(e, KV_EARG, "--pool '%s': must be max, avg or none", o->pool);
	p->pool = (enum kvk_pool)pool;
	if (o->pool_width != KV_UNSET) {
		if (p->pool == KVK_POOL_NONE)
			return kv_fail(e, KV_EARG, "--pool-width needs --pool max or --pool avg");
		if (o->pool_width % 2 == 0 || o->pool_width > KV_COUNT_MAX)
			return kv_fail(e, KV_EARG, "--pool-width %zu: must be an odd number of tokens", o->pool_width);
		p->pool_width = o->pool_width;
	}
	if (p->pool == KVK_POOL_NONE)
		p->pool_width = 1;
	return KV_OK;
}

int
kv_score_configure(
    struct kv_score_params *p, const struct kv_score *m, const struct kv_score_options *o, struct kv_err *e)
{
	int rc;

	*p = m->defaults;
	p->seed = o->seed;
	if (o->window == 0)
		return kv_fail(e, KV_EARG, "--window 0: must be at least 1");
	if ((rc = check_takes(m, o, e)) < 0 || (rc = set_count(&p->window, o->window, "--window", e)) < 0 ||
	    (rc = set_count(&p->n_sink, o->n_sink, "--sink", e)) < 0 ||
	    (rc = set_count(&p->n_recent, o->n_recent, "--recent", e)) < 0 ||
	    (rc = set_reduce(&p->rows, o->rows, "--rows", e)) < 0 ||
	    (rc = set_reduce(&p->gqa, o->gqa, "--gqa", e)) < 0 || (rc = set_pool(p, o, e)) < 0)
		return rc;
	if (p->n_recent == KV_SAME)
		p->n_recent = p->window;
	return KV_OK;
}

/* ---- attributes */

json_t *
kv_score_attrs_to_json(const struct kv_score_attrs *a, const struct kv_score_params *p)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "method", a->method, "pool", kv_pool_name(a->pool),
	    "pool_width", (json_int_t)a->pool_width, "n_sink", (json_int_t)a->n_sink, "n_recent",
	    (json_int_t)a->n_recent, "n_tokens", (json_int_t)a->n_tokens);

	if (o == NULL || p == NULL)
		return o;
	if (p->window != KV_ALL)
		json_object_set_new(o, "window", json_integer((json_int_t)p->window));
	json_object_set_new(o, "rows", json_string(kv_reduce_name(p->rows)));
	json_object_set_new(o, "gqa", json_string(p->all_heads ? "all" : kv_reduce_name(p->gqa)));
	return o;
}

static int
get_count(const json_t *o, const char *key, size_t *to, struct kv_err *e)
{
	const json_t *x = json_object_get(o, key);
	json_int_t v = json_integer_value(x);

	if (!json_is_integer(x) || v < 0 || (double)v > KV_COUNT_MAX)
		return kv_fail(e, KV_EFORMAT, "score: attribute %s %s: run kv-score again", key,
		    x == NULL ? "is missing" : "is not a number of tokens");
	*to = (size_t)v;
	return KV_OK;
}

static int
get_text(const json_t *o, const char *key, const char **to, struct kv_err *e)
{
	const json_t *x = json_object_get(o, key);

	if ((*to = json_string_value(x)) == NULL)
		return kv_fail(e, KV_EFORMAT, "score: attribute %s %s: run kv-score again", key,
		    x == NULL ? "is missing" : "is not text");
	return KV_OK;
}

int
kv_score_attrs_from_json(struct kv_score_attrs *a, const json_t *o, struct kv_err *e)
{
	const char *method, *pool;
	int rc, kind;

	*a = (struct kv_score_attrs){ 0 };
	if ((rc = get_text(o, "method", &method, e)) < 0 || (rc = get_text(o, "pool", &pool, e)) < 0 ||
	    (rc = get_count(o, "pool_width", &a->pool_width, e)) < 0 ||
	    (rc = get_count(o, "n_sink", &a->n_sink, e)) < 0 || (rc = get_count(o, "n_recent", &a->n_recent, e)) < 0 ||
	    (rc = get_count(o, "n_tokens", &a->n_tokens, e)) < 0)
		return rc;
	if ((kind = kv_pool_find(pool)) < 0)
		return kv_fail(e, KV_EFORMAT, "score: pooling '%s' is unknown to this version (max, avg, none)", pool);
	if (a->pool_width % 2 == 0)
		return kv_fail(e, KV_EFORMAT, "score: pool_width %zu is not odd", a->pool_width);
	a->pool = (enum kvk_pool)kind;
	snprintf(a->method, sizeof a->method, "%s", method);
	return KV_OK;
}
