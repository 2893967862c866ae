/* SPDX-License-Identifier: MIT */
#include "bench/lib/expression.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define WORD_MAX 64

struct parser {
	const char *at;
	expression_get_fn get;
	void *ctx;
	char *why;
	unsigned why_bytes;
	bool failed;
};

static double
fail(struct parser *p, const char *what, const char *which)
{
	if (!p->failed)
		snprintf(p->why, p->why_bytes, "%s '%s'", what, which);
	p->failed = true;
	return 0;
}

/* The next character that is no blank. */
static char
peek(struct parser *p)
{
	while (isspace((unsigned char)*p->at))
		p->at++;
	return *p->at;
}

static void
word(struct parser *p, char to[WORD_MAX])
{
	unsigned n = 0;

	for (; isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '.'; p->at++)
		if (n < WORD_MAX - 1)
			to[n++] = *p->at;
	to[n] = '\0';
}

static double
named(struct parser *p)
{
	char name[WORD_MAX], field[WORD_MAX] = "";
	double value;

	word(p, name);
	if (*p->at == ':') {
		p->at++;
		word(p, field);
	}
	if (p->get(p->ctx, name, field, &value))
		return value;
	return fail(p, "nothing measured is called", name);
}

static double sum(struct parser *p);

static double
term(struct parser *p)
{
	const char c = peek(p);
	double value;
	char *end;

	if (isalpha((unsigned char)c))
		return named(p);
	if (c == '(') {
		p->at++;
		value = sum(p);
		if (peek(p) != ')')
			return fail(p, "expected ) before", p->at);
		p->at++;
		return value;
	}
	value = strtod(p->at, &end);
	if (end == p->at || !isdigit((unsigned char)c))
		return fail(p, "expected a name, a number or ( before", p->at);
	p->at = end;
	return value;
}

static double
product(struct parser *p)
{
	double value = term(p);

	for (char c; !p->failed && ((c = peek(p)) == '*' || c == '/');) {
		p->at++;
		value = c == '*' ? value * term(p) : value / term(p);
	}
	return value;
}

static double
sum(struct parser *p)
{
	double value = product(p);

	for (char c; !p->failed && ((c = peek(p)) == '+' || c == '-');) {
		p->at++;
		value = c == '+' ? value + product(p) : value - product(p);
	}
	return value;
}

bool
expression_value(const char *text, expression_get_fn get, void *ctx, double *value, char *why, unsigned why_bytes)
{
	struct parser p = { .at = text, .get = get, .ctx = ctx, .why = why, .why_bytes = why_bytes };

	*value = sum(&p);
	if (!p.failed && peek(&p) != '\0')
		fail(&p, "unexpected", p.at);
	return !p.failed;
}
