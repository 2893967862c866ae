/* SPDX-License-Identifier: MIT
 * What the files behind common.h share among themselves: the command line of this run, messages, help, METHOD.
 */
#ifndef KV_COMMAND_H
#define KV_COMMAND_H

#include "bin/common.h"

#include <stdarg.h>

#include "lib/buf.h"

/* Set by kv_options(). */
struct kv_command {
	const struct kv_tool *tool;
	int argc; /* the line as it came: kv_opt_parse() moves the operands */
	char **argv;
	const struct kv_opt *tables[4]; /* the method's, the tool's, the shared; NULL ends */
};
extern struct kv_command kv_command;

/* ---- message.c: one line to standard error */
void kv_message(const char *kind, const char *fmt, va_list ap);
void kv_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- help.c */
/* The whole text, to be made before the options are read: it shows the defaults it finds in the variables. */
int kv_help_text(const struct kv_tool *tool, struct kv_buf *out, struct kv_err *e);
/* An unknown or missing (given NULL) METHOD is answered with the known ones and their briefs; exits with 2. */
void kv_misuse_method(const struct kv_tool *tool, const char *given) __attribute__((noreturn));

/* ---- options.c */
/* Does the value decide what the output says?  Only such options belong into a result's recipe. */
bool kv_decides_contents(const struct kv_opt *o);

/* ---- tool_method.c: METHOD */
/* The first operand and the method of that name, NULL if there is none; base: options that do not come from methods.
 * Fails: KV_EARG, an option in front of it that no method has. */
int kv_find_method(const struct kv_tool *tool, const struct kv_opt *const *base, int argc, char **argv,
    const char **given, const struct kv_method **m, struct kv_err *e);
/* Marks in p what the user gave.  Fails: KV_EARG, an option that p's method does not take. */
int kv_check_method_options(const struct kv_tool *tool, const struct kv_opt *const *base, struct kv_params *p, int argc,
    char **argv, struct kv_err *e);

#endif
