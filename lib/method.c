/* SPDX-License-Identifier: MIT */
#include "lib/method.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const struct kv_param kv_param_window = {
	.name = "window", .letter = 'w', .kind = KV_PARAM_COUNT, .arg = "TOKENS", .min = 1, .max = KV_COUNT_MAX,
	.choices = "all", .help = "prompt queries that look back",
};
const struct kv_param kv_param_window_or_0 = {
	.name = "window", .letter = 'w', .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX,
	.choices = "all", .help = "prompt queries that look back as well",
};
const struct kv_param kv_param_rows = {
	.name = "rows", .kind = KV_PARAM_CHOICE, .arg = "HOW", .choices = "mean|sum",
	.help = "how the queries become one number",
};
const struct kv_param kv_param_gqa = {
	.name = "gqa", .kind = KV_PARAM_CHOICE, .arg = "HOW", .choices = "mean|max|sum",
	.help = "how the query heads of a KV head become one",
};
const struct kv_param kv_param_granularity = {
	.name = "granularity", .kind = KV_PARAM_CHOICE, .arg = "WHAT", .choices = "kv-head|head",
	.help = "what has scores of its own, and later a cache",
};
const struct kv_param kv_param_pool = {
	.name = "pool", .kind = KV_PARAM_CHOICE, .arg = "KIND", .choices = "max|avg|none",
	.help = "how the ranking smooths scores",
};
const struct kv_param kv_param_pool_width = {
	.name = "pool-width", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .min = 1, .max = KV_COUNT_MAX,
	.help = "of the pooling, odd",
};
const struct kv_param kv_param_sink = {
	.name = "sink", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX, .hidden = true,
	.help = "first tokens to protect",
};
const struct kv_param kv_param_recent = {
	.name = "recent", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX, .choices = "all|window",
	.hidden = true, .help = "last tokens to protect",
};
const struct kv_param kv_param_recent_share = {
	.name = "recent-share", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1, .hidden = true,
	.help = "last tokens to protect, as a share of the budget behind the sinks",
};
const struct kv_param kv_param_seed = {
	.name = "seed", .kind = KV_PARAM_SEED, .arg = "N", .help = "of the random numbers",
};

/* ---- names */

static const char *const pools[] = { [KVK_POOL_NONE] = "none", [KVK_POOL_MAX] = "max", [KVK_POOL_AVG] = "avg" };
static const char *const reduces[] = { [KVK_MEAN] = "mean", [KVK_SUM] = "sum", [KVK_MAX] = "max", [KVK_VAR] = "var",
	[KVK_ENTROPY] = "entropy" };

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

/* ---- setting values */

/* The row of the command line that writes into v. */
static struct kv_opt
option(struct kv_value *v)
{
	static const enum kv_opt_kind kind[] = { [KV_PARAM_COUNT] = KV_SIZE, [KV_PARAM_NUMBER] = KV_DOUBLE,
		[KV_PARAM_CHOICE] = KV_STRING, [KV_PARAM_FLAG] = KV_FLAG, [KV_PARAM_TEXT] = KV_STRING,
		[KV_PARAM_SEED] = KV_U64 };
	void *const to[] = { [KV_PARAM_COUNT] = &v->count, [KV_PARAM_NUMBER] = &v->number, [KV_PARAM_CHOICE] = &v->text,
		[KV_PARAM_FLAG] = &v->flag, [KV_PARAM_TEXT] = &v->text, [KV_PARAM_SEED] = &v->seed };
	const struct kv_param *p = v->param;

	return (struct kv_opt){ p->name, p->letter, kind[p->kind], to[p->kind], p->arg, p->help, p->min, p->max,
		p->choices };
}

void
kv_params_init(struct kv_params *p, const struct kv_method *m)
{
	*p = (struct kv_params){ .method = m };
	for (const struct kv_takes *t = m->takes; t != NULL && t->param != NULL; t++) {
		struct kv_value *v = &p->v[p->n++];
		struct kv_opt o;

		assert(p->n <= KV_PARAMS_MAX);
		*v = (struct kv_value){ .param = t->param, .count = KV_UNSET, .number = -INFINITY };
		o = option(v);
		if (t->value != NULL && kv_opt_set(&o, t->value, NULL) < 0)
			assert(!"a method's default that its own row refuses");
	}
}

static struct kv_value *
by_name(struct kv_params *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i].param->name, name) == 0)
			return &p->v[i];
	return NULL;
}

bool
kv_params_given(struct kv_params *p, const char *name)
{
	struct kv_value *v = by_name(p, name);

	if (v != NULL)
		v->given = true;
	return v != NULL;
}

int
kv_params_set(struct kv_params *p, const char *name, const char *text, struct kv_err *e)
{
	struct kv_value *v = by_name(p, name);
	struct kv_opt o;

	if (v == NULL)
		return kv_fail(e, KV_EARG, "%s has no option --%s", p->method->name, name);
	v->given = true;
	o = option(v);
	return kv_opt_set(&o, text, e);
}

void
kv_params_options(struct kv_params *p, struct kv_opt table[KV_PARAMS_MAX + 1])
{
	for (size_t i = 0; i < p->n; i++)
		table[i] = option(&p->v[i]);
	table[p->n] = (struct kv_opt){ 0 };
}

static int
check_pool(const struct kv_params *p, struct kv_err *e)
{
	size_t width;

	if (!kv_takes(p, &kv_param_pool_width))
		return KV_OK;
	width = kv_count(p, &kv_param_pool_width);
	if (width % 2 == 0)
		return kv_fail(e, KV_EARG, "--pool-width %zu: must be an odd number of tokens", width);
	if (kv_given(p, &kv_param_pool_width) && kv_pool(p) == KVK_POOL_NONE)
		return kv_fail(e, KV_EARG, "--pool-width needs --pool max or --pool avg");
	return KV_OK;
}

int
kv_params_check(const struct kv_params *p, struct kv_err *e)
{
	int rc = check_pool(p, e);

	if (rc == KV_OK && kv_takes(p, &kv_param_recent) && kv_count(p, &kv_param_recent) == KV_WINDOW &&
	    !kv_has_window(p))
		rc = kv_fail(e, KV_EARG, "--recent window: %s has no window", p->method->name);
	if (rc == KV_OK && p->method->check != NULL)
		rc = p->method->check(p, e);
	return rc;
}

int
kv_params_open(struct kv_params *p, struct kv_err *e)
{
	return p->method->open != NULL ? p->method->open(p, e) : KV_OK;
}

void
kv_params_close(struct kv_params *p)
{
	if (p->method != NULL && p->method->close != NULL)
		p->method->close(p);
	p->state = NULL;
}

/* ---- asking for values */

static const struct kv_value *
look_up(const struct kv_params *p, const struct kv_param *which)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].param == which)
			return &p->v[i];
	return NULL;
}

static const struct kv_value *
value(const struct kv_params *p, const struct kv_param *which)
{
	const struct kv_value *v = look_up(p, which);

	assert(v != NULL);
	return v;
}

bool
kv_takes(const struct kv_params *p, const struct kv_param *which)
{
	return look_up(p, which) != NULL;
}

bool
kv_given(const struct kv_params *p, const struct kv_param *which)
{
	const struct kv_value *v = look_up(p, which);

	return v != NULL && v->given;
}

size_t
kv_count(const struct kv_params *p, const struct kv_param *which)
{
	return value(p, which)->count;
}

double
kv_number(const struct kv_params *p, const struct kv_param *which)
{
	return value(p, which)->number;
}

bool
kv_flag(const struct kv_params *p, const struct kv_param *which)
{
	return value(p, which)->flag;
}

uint64_t
kv_seed(const struct kv_params *p, const struct kv_param *which)
{
	return value(p, which)->seed;
}

const char *
kv_text(const struct kv_params *p, const struct kv_param *which)
{
	return value(p, which)->text;
}

bool
kv_is(const struct kv_params *p, const struct kv_param *which, const char *choice)
{
	const char *text = kv_text(p, which);

	return text != NULL && strcmp(text, choice) == 0;
}

bool
kv_has_window(const struct kv_params *p)
{
	return kv_takes(p, &kv_param_window) || kv_takes(p, &kv_param_window_or_0);
}

size_t
kv_window(const struct kv_params *p)
{
	return kv_count(p, kv_takes(p, &kv_param_window) ? &kv_param_window : &kv_param_window_or_0);
}

enum kvk_reduce
kv_reduce(const struct kv_params *p, const struct kv_param *which)
{
	int how = kv_reduce_find(kv_text(p, which));

	assert(how >= 0);
	return (enum kvk_reduce)how;
}

enum kvk_pool
kv_pool(const struct kv_params *p)
{
	return kv_takes(p, &kv_param_pool) ? (enum kvk_pool)kv_pool_find(kv_text(p, &kv_param_pool)) : KVK_POOL_NONE;
}

/* ---- attributes */

/* The word that stands for a count, as in struct kv_opt. */
static json_t *
count_to_json(const struct kv_value *v)
{
	const char *word = v->param->choices;

	if (v->count <= KV_UNSET)
		return v->count == KV_UNSET ? NULL : json_integer((json_int_t)v->count);
	for (size_t skip = SIZE_MAX - v->count; skip > 0; skip--)
		word = strchr(word, '|') + 1;
	return json_stringn(word, strcspn(word, "|"));
}

static json_t *
to_json(const struct kv_value *v)
{
	switch (v->param->kind) {
	case KV_PARAM_COUNT: return count_to_json(v);
	case KV_PARAM_NUMBER: return v->number > -INFINITY ? json_real(v->number) : NULL;
	case KV_PARAM_FLAG: return json_boolean(v->flag);
	case KV_PARAM_SEED: return json_integer((json_int_t)v->seed);
	case KV_PARAM_CHOICE:
	case KV_PARAM_TEXT: return v->text != NULL ? json_string(v->text) : NULL;
	}
	return NULL;
}

int
kv_params_describe(const struct kv_params *p, json_t *attrs, struct kv_err *e)
{
	for (size_t i = 0; i < p->n; i++) {
		json_t *x = p->v[i].param->hidden ? NULL : to_json(&p->v[i]);
		char key[64];
		size_t n = 0;

		for (const char *s = p->v[i].param->name; *s != '\0' && n + 1 < sizeof key; s++)
			key[n++] = *s == '-' ? '_' : *s;
		key[n] = '\0';
		if (x == NULL || json_object_get(attrs, key) != NULL)
			json_decref(x);
		else if (json_object_set_new(attrs, key, x) < 0)
			return kv_no_memory(e, sizeof key);
	}
	return KV_OK;
}
