/* SPDX-License-Identifier: MIT
 * What is said to someone who asks for help or needs it. */
#include "bin/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *
method_word(const struct kv_tool *tool)
{
	return tool->method != NULL ? tool->method : "METHOD";
}

static int
help_methods(const struct kv_tool *tool, struct kv_buf *out, struct kv_err *e)
{
	const struct kv_method *m = kv_common.params.method;
	int rc = KV_OK;

	if (m != NULL) {
		rc = kv_buf_printf(
		    out, e, "\n%s: %s%s%s\n", m->name, m->brief, m->paper ? ", " : "", m->paper ? m->paper : "");
		return rc == KV_OK ? kv_opt_help(kv_command.tables[0], out, e) : rc;
	}
	if (tool->methods != NULL)
		rc = kv_buf_printf(out, e, "\n%s:\n", method_word(tool));
	for (size_t i = 0; rc == KV_OK && tool->methods != NULL && (m = tool->methods(i)) != NULL; i++)
		rc = kv_buf_printf(out, e, "  %-24s  %s\n", m->name, m->brief);
	if (rc == KV_OK && tool->methods != NULL && tool->method == NULL)
		rc = kv_buf_printf(out, e, "\n'%s METHOD --help' has the options of a METHOD.\n", tool->name);
	return rc;
}

int
kv_help_text(const struct kv_tool *tool, struct kv_buf *out, struct kv_err *e)
{
	int rc;

	if ((rc = kv_buf_printf(out, e, "usage: %s %s\n%s\n", tool->name, tool->usage, tool->brief)) < 0 ||
	    (rc = help_methods(tool, out, e)) < 0 || (rc = kv_buf_printf(out, e, "\noptions:\n")) < 0)
		return rc;
	for (size_t i = 1; rc == KV_OK && kv_command.tables[i] != NULL; i++)
		rc = kv_opt_help(kv_command.tables[i], out, e);
	return rc;
}

_Noreturn static void
misuse(const struct kv_tool *tool)
{
	fprintf(stderr, "usage: %s %s\ntry '%s --help'\n", tool->name, tool->usage, tool->name);
	exit(KV_EXIT_USAGE);
}

void
kv_usage(const struct kv_tool *tool, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	kv_message("", fmt, ap);
	va_end(ap);
	misuse(tool != NULL ? tool : kv_command.tool);
}

void
kv_misuse_method(const struct kv_tool *tool, const char *given)
{
	const struct kv_method *m;

	if (given == NULL)
		kv_complain("expected a %s, one of", method_word(tool));
	else
		kv_complain("unknown %s '%s', expected one of", method_word(tool), given);
	for (size_t i = 0; (m = tool->methods(i)) != NULL; i++)
		fprintf(stderr, "  %-16s  %s\n", m->name, m->brief);
	misuse(tool);
}

const char *
kv_need_model(const struct kv_tool *tool)
{
	if (kv_common.model == NULL)
		kv_usage(tool, "which model? give -m MODEL or set KV_MODEL");
	return kv_common.model;
}
