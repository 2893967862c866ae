/* SPDX-License-Identifier: MIT
 * Command-line options from a table: one row gives the parser, the help text and the default.
 *
 * Rows write into variables that hold their defaults beforehand; help prints what it finds there, unless it is a number
 * outside the row's own range: that stands for "not given".  Numbers are parsed whole and refused with their range when
 * they do not fit, never clamped.  `-o FILE`, `-oFILE`, `--output FILE`, `--output=FILE` and grouped flags (-qv) work;
 * `--` ends the options; operands and options may be mixed.
 */
#ifndef KV_OPT_H
#define KV_OPT_H

#include "lib/buf.h"
#include "lib/err.h"

enum kv_opt_kind {
	KV_FLAG,   /* bool *: set to true */
	KV_UINT,   /* unsigned *: 0 .. 2^32-1 */
	KV_SIZE,   /* size_t *: 0 .. 2^63-1; a larger default means "not given" and is not shown */
	KV_U64,    /* uint64_t * */
	KV_DOUBLE, /* double *, finite */
	KV_STRING, /* const char **, points into argv */
	KV_LIST,   /* struct kv_strings *: may be given several times */
};

struct kv_strings {
	const char **v;
	size_t n;
};

struct kv_opt {
	const char *name; /* long name without dashes; NULL ends a table */
	char letter;      /* 0: none */
	enum kv_opt_kind kind;
	void *to;
	const char *arg;     /* "TOKENS"; NULL for flags */
	const char *help;    /* one line, lower case */
	double min, max;     /* range of numbers when max > min; inclusive */
	const char *choices; /* "auto|cpu|cuda" for KV_STRING: anything else is refused; NULL: any.  For KV_SIZE: words
			      * that stand for numbers, the first for SIZE_MAX, the second for SIZE_MAX - 1, ... */
};

/* Parse argv by the tables (NULL-terminated array of tables).  Operands move to the front of argv[1..]; *argc becomes 1
 * + their number, argv[*argc] = NULL.  Fails: KV_EARG with a sentence for the user. */
int kv_opt_parse(const struct kv_opt *const *tables, int *argc, char **argv, struct kv_err *e);

/* One option from its text, as the command line has it (NULL for flags).  Fails: KV_EARG. */
int kv_opt_set(const struct kv_opt *o, const char *text, struct kv_err *e);

/* The same walk for another purpose: fn sees every option as its row and its text (NULL for flags), every operand with
 * o NULL, in order; a value below KV_OK from it ends the walk. */
typedef int (*kv_opt_fn)(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e);
int kv_opt_walk(
    const struct kv_opt *const *tables, int argc, char *const *argv, kv_opt_fn fn, void *ctx, struct kv_err *e);

/* Help lines for one table, each "  -w, --window TOKENS   text (default 32)". */
int kv_opt_help(const struct kv_opt *table, struct kv_buf *out, struct kv_err *e);

/* Frees the lists' arrays. */
void kv_opt_fini(const struct kv_opt *const *tables);

#endif
