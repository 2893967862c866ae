/* SPDX-License-Identifier: MIT
 * What scoring methods and allocators have in common: a name, words for people, and parameters from a table.
 *
 * From that one table come the command line and the help of `kv-score METHOD`, the defaults, the history and the
 * attributes of the tensor that the method makes.  A parameter that several methods share is defined here once and
 * listed by those that take it, each with its own default; one that a single method takes is a static row of the
 * method's file.  Values are asked for by the address of the row:
 *
 *	static const struct kv_param tau = { .name = "tau", .kind = KV_PARAM_NUMBER, .arg = "X", .max = 1,
 *	    .help = "a head whose largest score is below this is abnormal" };
 *	static const struct kv_takes takes[] = { { &tau, "0.01" }, { &kv_param_rows, "mean" }, { 0 } };
 *	...
 *	if (m < kv_number(p, &tau))
 */
#ifndef KV_METHOD_H
#define KV_METHOD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "lib/err.h"
#include "lib/opt.h"

#define KV_COUNT_MAX  2147483647.0       /* of tokens and entries: positions are i32 */
#define KV_UNSET      ((size_t)1 << 63)  /* a count without a default that was not given */
#define KV_ALL        SIZE_MAX           /* the word "all" for a count: the first of its choices */
#define KV_WINDOW     (SIZE_MAX - 1)     /* the word "window" for kv_param_recent: as many as --window */
#define KV_PARAMS_MAX 24                 /* of one method */

enum kv_param_kind {
	KV_PARAM_COUNT,  /* whole number, or one of choices: SIZE_MAX for the first, SIZE_MAX - 1 for the second, ... */
	KV_PARAM_NUMBER, /* needs a range: max > min */
	KV_PARAM_CHOICE, /* one of choices */
	KV_PARAM_FLAG,
	KV_PARAM_TEXT, /* any text; a file's name */
	KV_PARAM_SEED, /* 64 bits */
};

struct kv_param {
	const char *name; /* the long option: "pool-width" */
	char letter;      /* the short one, 0: none */
	enum kv_param_kind kind;
	const char *arg;     /* "TOKENS"; NULL for flags */
	const char *help;    /* one line, lower case */
	double min, max;     /* of counts and numbers, inclusive; no range unless max > min */
	const char *choices; /* "mean|sum" */
	bool hidden;         /* not an attribute of the tensor: someone writes it in another form */
};

/* One parameter of one method. */
struct kv_takes {
	const struct kv_param *param; /* NULL ends the list */
	const char *value;            /* default, as on the command line; NULL: none (flags: off) */
};

struct kv_params;

/* The first member of every method's row. */
struct kv_method {
	const char *name, *brief; /* brief: one line, lower case, no full stop */
	const char *paper;        /* "arXiv:2404.14469", NULL: none */
	const struct kv_takes *takes; /* NULL: no parameters */
	/* Optional: do the values go together?  Fails: KV_EARG, before anything is opened. */
	int (*check)(const struct kv_params *p, struct kv_err *e);
	/* Optional: read what the parameters name (files) into p->state, once per run; close frees it (NULL is
	 * fine). */
	int (*open)(struct kv_params *p, struct kv_err *e);
	void (*close)(struct kv_params *p);
};

struct kv_value {
	const struct kv_param *param;
	bool given; /* by the user */
	bool flag;
	size_t count;
	double number; /* -inf: not given and no default */
	uint64_t seed;
	const char *text; /* of choices and texts; NULL: not given and no default */
};

/* How a method runs. */
struct kv_params {
	const struct kv_method *method;
	struct kv_value v[KV_PARAMS_MAX];
	size_t n;
	void *state; /* open()'s */
};

/* The method's defaults. */
void kv_params_init(struct kv_params *p, const struct kv_method *m);
/* One value by its long name, from text as on the command line (flags: NULL).  Fails: KV_EARG (no such option, out of
 * range). */
int kv_params_set(struct kv_params *p, const char *name, const char *text, struct kv_err *e);
/* The same for a command line: rows for kv_opt_parse() that write into p; [p->n + 1], ended. */
void kv_params_options(struct kv_params *p, struct kv_opt table[KV_PARAMS_MAX + 1]);
/* Mark as given; false when the method has no such parameter. */
bool kv_params_given(struct kv_params *p, const char *name);
/* Do the values go together: what every method wants (an odd pool-width, ...), then the method's own check. */
int kv_params_check(const struct kv_params *p, struct kv_err *e);
/* Open and close the method's state; without hooks nothing happens. */
int kv_params_open(struct kv_params *p, struct kv_err *e);
void kv_params_close(struct kv_params *p);
/* Every value into an object, "pool-width" as pool_width, words as text; values without a default that were not given
 * and hidden ones are left out.  A key that is there stays. */
int kv_params_describe(const struct kv_params *p, json_t *attrs, struct kv_err *e);

/* Values.  Asking for one that the method does not list is a fault of the program (assert). */
bool kv_takes(const struct kv_params *p, const struct kv_param *which); /* does the method list it? */
bool kv_given(const struct kv_params *p, const struct kv_param *which); /* false too if it does not list it */
size_t kv_count(const struct kv_params *p, const struct kv_param *which);
double kv_number(const struct kv_params *p, const struct kv_param *which);
bool kv_flag(const struct kv_params *p, const struct kv_param *which);
uint64_t kv_seed(const struct kv_params *p, const struct kv_param *which);
const char *kv_text(const struct kv_params *p, const struct kv_param *which);
bool kv_is(const struct kv_params *p, const struct kv_param *which, const char *choice);
bool kv_has_window(const struct kv_params *p); /* is one of the two windows listed? */
size_t kv_window(const struct kv_params *p);   /* its value */
enum kvk_reduce kv_reduce(const struct kv_params *p, const struct kv_param *which); /* "mean" -> KVK_MEAN */
enum kvk_pool kv_pool(const struct kv_params *p);                                   /* none where it is not listed */

/* Shared parameters. */
extern const struct kv_param kv_param_window;       /* count or KV_ALL, -w: prompt queries that look back */
extern const struct kv_param kv_param_window_or_0;  /* the same option where none is a choice */
extern const struct kv_param kv_param_rows;         /* mean|sum over query rows */
extern const struct kv_param kv_param_gqa;          /* mean|max|sum over the query heads of a group */
extern const struct kv_param kv_param_granularity;  /* kv-head|head: what has scores of its own */
extern const struct kv_param kv_param_pool;         /* max|avg|none: how the ranking pools */
extern const struct kv_param kv_param_pool_width;   /* odd count */
extern const struct kv_param kv_param_sink;         /* count: first tokens to protect */
extern const struct kv_param kv_param_recent;       /* count, KV_ALL or KV_WINDOW: last tokens to protect */
extern const struct kv_param kv_param_recent_share; /* number: the same as a share of the budget behind the sinks */
extern const struct kv_param kv_param_seed;

/* Names of the enumerations in options and attributes; find returns -1 for an unknown one. */
const char *kv_pool_name(enum kvk_pool pool);
const char *kv_reduce_name(enum kvk_reduce how);
int kv_pool_find(const char *name);
int kv_reduce_find(const char *name);

#endif
