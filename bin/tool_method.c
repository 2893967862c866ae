/* SPDX-License-Identifier: MIT
 * The METHOD operand: it brings options of its own, so it is looked for before the command line is parsed. */
#include <stdlib.h>
#include <string.h>

#include "bin/command.h"

/* The options of every method of a tool. */
struct every {
	struct one {
		struct kv_params p;
		struct kv_opt opts[KV_PARAMS_MAX + 1];
	} *one;
	const struct kv_opt **tables; /* one's, then `base`'s; NULL ends */
};

static void
every_fini(struct every *x)
{
	free(x->tables);
	free(x->one);
}

/* first: the method whose options go before those of the others; NULL: none. */
static int
every_init(struct every *x, const struct kv_tool *tool, const struct kv_method *first, const struct kv_opt *const *base,
    struct kv_err *e)
{
	size_t n = 0, n_base = 0, at = 0;

	while (tool->methods(n) != NULL)
		n++;
	while (base[n_base] != NULL)
		n_base++;
	x->one = kv_alloc(n + 1, sizeof *x->one, e);
	x->tables = kv_alloc(n + n_base + 2, sizeof *x->tables, e);
	if (x->one == NULL || x->tables == NULL)
		return KV_EMEM;
	for (size_t i = first != NULL ? 0 : 1; i <= n; i++) {
		struct one *one = &x->one[i];

		kv_params_init(&one->p, i == 0 ? first : tool->methods(i - 1));
		kv_params_options(&one->p, one->opts);
		x->tables[at++] = one->opts;
	}
	for (size_t i = 0; i < n_base; i++)
		x->tables[at++] = base[i];
	return KV_OK;
}

static int
first_operand(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	(void)e;
	if (o != NULL)
		return KV_OK;
	*(const char **)ctx = text;
	return KV_END;
}

int
kv_find_method(const struct kv_tool *tool, const struct kv_opt *const *base, int argc, char **argv, const char **given,
    const struct kv_method **m, struct kv_err *e)
{
	struct every x = { 0 };
	int rc = every_init(&x, tool, NULL, base, e);

	*given = NULL;
	*m = NULL;
	if (rc == KV_OK)
		rc = kv_opt_walk(x.tables, argc, argv, first_operand, given, e);
	every_fini(&x);
	for (size_t i = 0; *given != NULL && tool->methods(i) != NULL; i++)
		if (strcmp(tool->methods(i)->name, *given) == 0)
			*m = tool->methods(i);
	return rc < 0 ? rc : KV_OK;
}

struct check {
	struct kv_params *p;
	const struct kv_opt *const *base;
};

static bool
is_in(const struct kv_opt *const *tables, const char *name)
{
	for (; *tables != NULL; tables++)
		for (const struct kv_opt *o = *tables; o->name != NULL; o++)
			if (strcmp(o->name, name) == 0)
				return true;
	return false;
}

/* An option of another method would change nothing, and the user expects it to. */
static int
check_option(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	const struct check *c = ctx;
	struct kv_buf b = { 0 };
	int rc;

	(void)text;
	if (o == NULL || kv_params_given(c->p, o->name) || is_in(c->base, o->name))
		return KV_OK;
	for (size_t i = 0; i < c->p->n; i++)
		if (kv_buf_printf(&b, NULL, "%s--%s", i > 0 ? ", " : "", c->p->v[i].param->name) < 0)
			break;
	rc = kv_fail(e, KV_EARG, "%s has no option --%s%s%s", c->p->method->name, o->name,
	    b.n > 0 ? ", it takes " : ", and none of its own", b.n > 0 ? b.data : "");
	kv_buf_fini(&b);
	return rc;
}

int
kv_check_method_options(const struct kv_tool *tool, const struct kv_opt *const *base, struct kv_params *p, int argc,
    char **argv, struct kv_err *e)
{
	struct check c = { p, base };
	struct every x = { 0 };
	int rc = every_init(&x, tool, p->method, base, e);

	if (rc == KV_OK)
		rc = kv_opt_walk(x.tables, argc, argv, check_option, &c, e);
	every_fini(&x);
	return rc < 0 ? rc : KV_OK;
}
