/* SPDX-License-Identifier: MIT
 * The command line and the options that all programs share. */
#include "bin/command.h"
#include "lib/file.h"
#include "lib/names.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 1024

struct kv_common_values kv_common = { .device = "auto", .precision = KVK_PRECISION_AUTO };
struct kv_command kv_command;

static bool want_help, want_version;
static const char *precision; /* NULL: not given */

/* Rows a tool may leave out, each with the bit of enum kv_common that brings it; 0: everywhere.  contents: does the
 * value decide what the output says?  Where it goes, what of it, how fast and how chatty do not belong into a result's
 * recipe. */
static const struct {
	unsigned bit;
	bool contents;
	struct kv_opt opt;
} rows[] = {
	{ KV_COMMON_MODEL, true,
	    { "model", 'm', KV_STRING, &kv_common.model, "MODEL", "GGUF file or Hugging Face folder; else $KV_MODEL", 0,
		0, NULL } },
	{ KV_COMMON_OUTPUT, false,
	    { "output", 'o', KV_STRING, &kv_common.output, "FILE", "write here; - is standard output", 0, 0, NULL } },
	{ KV_COMMON_OUTPUT, false,
	    { "only", 0, KV_STRING, &kv_common.only, "NAME,...", "only these tensors leave", 0, 0, NULL } },
	{ KV_COMMON_OUTPUT, false,
	    { "drop", 0, KV_STRING, &kv_common.drop, "NAME,...", "these tensors do not leave", 0, 0, NULL } },
	{ KV_COMMON_OUTPUT, false,
	    { "share", 0, KV_FLAG, &kv_common.share, NULL, "large tensors by reference, not by value; else $KV_SHARE=1",
		0, 0, NULL } },
	{ KV_COMMON_DEVICE, true,
	    { "device", 0, KV_STRING, &kv_common.device, "NAME", "auto, cpu, cuda or cuda:N; else $KV_DEVICE", 0, 0,
		NULL } },
	{ KV_COMMON_DEVICE, false,
	    { "threads", 0, KV_UINT, &kv_common.threads, "N", "0: all processors; else $KV_THREADS", 0, MAX_THREADS,
		NULL } },
	{ KV_COMMON_PRECISION, false,
	    { "precision", 0, KV_STRING, &precision, "NAME",
		"auto, f32, bf16 or i16; else $KV_PRECISION (default auto)", 0, 0, NULL } },
	{ KV_COMMON_SEED, true, { "seed", 0, KV_U64, &kv_common.seed, "N", "of the random numbers", 0, 0, NULL } },
	{ 0, false, { "quiet", 'q', KV_FLAG, &kv_common.quiet, NULL, "no warnings, no progress", 0, 0, NULL } },
	{ 0, false, { "verbose", 'v', KV_FLAG, &kv_common.verbose, NULL, "say more", 0, 0, NULL } },
	{ 0, false, { "help", 'h', KV_FLAG, &want_help, NULL, "this text", 0, 0, NULL } },
	{ 0, false, { "version", 0, KV_FLAG, &want_version, NULL, "the version", 0, 0, NULL } },
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static struct kv_opt shared[N_ROWS + 1]; /* the rows this tool takes */
static struct kv_opt method_opts[KV_PARAMS_MAX + 1];

bool
kv_decides_contents(const struct kv_opt *o)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].opt.name, o->name) == 0)
			return rows[i].contents;
	return true;
}

/* A descriptor that was closed when we started would be taken by the next open(), and data written into the wrong file.
 * Fill the gaps with something on which the missing direction fails. */
static void
fill_descriptors(void)
{
	static const int mode[3] = { O_WRONLY, O_RDONLY, O_RDWR };

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) != fd)
			exit(KV_EXIT_FAILED);
}

/* Fails: KV_EARG. */
static int
take_environment(const struct kv_tool *tool, struct kv_err *e)
{
	struct kv_opt threads = { "threads", 0, KV_UINT, &kv_common.threads, "N", "", 0, MAX_THREADS, NULL };
	const struct kv_opt table[] = { threads, { 0 } }, *const one[] = { table, NULL };
	char option[64], *argv[] = { NULL, option, NULL };
	const char *s;
	int argc = 2;

	if ((tool->common & KV_COMMON_MODEL) && (s = getenv("KV_MODEL")) != NULL && *s != '\0')
		kv_common.model = s;
	if ((tool->common & KV_COMMON_OUTPUT) && (s = getenv("KV_SHARE")) != NULL && *s != '\0') {
		if (strcmp(s, "0") != 0 && strcmp(s, "1") != 0)
			return kv_fail(e, KV_EARG, "KV_SHARE: expected 0 or 1, got '%s'", s);
		kv_common.share = *s == '1';
	}
	if (!(tool->common & KV_COMMON_DEVICE))
		return KV_OK;
	if ((s = getenv("KV_DEVICE")) != NULL && *s != '\0')
		kv_common.device = s;
	if ((s = getenv("KV_THREADS")) == NULL || *s == '\0')
		return KV_OK;
	snprintf(option, sizeof option, "--threads=%s", s);
	return kv_opt_parse(one, &argc, argv, e) < 0 ? kv_where(e, "KV_THREADS") : KV_OK;
}

/* --precision, else $KV_PRECISION, else auto. */
static void
take_precision(const struct kv_tool *tool)
{
	const char *environment = getenv("KV_PRECISION"), *s = precision;

	if (!(tool->common & KV_COMMON_PRECISION))
		return;
	if (s == NULL && environment != NULL && *environment != '\0')
		s = environment;
	if (s == NULL)
		return;
	for (kv_common.precision = 0; kv_common.precision < KVK_N_PRECISIONS; kv_common.precision++)
		if (strcmp(s, kvk_precisions[kv_common.precision]) == 0)
			return;
	kv_usage(tool, "%s: expected auto, f32, bf16 or i16, got '%s'",
	    precision != NULL ? "--precision" : "KV_PRECISION", s);
}

static void
check_common(const struct kv_tool *tool)
{
	struct kv_err e = { 0 };

	take_precision(tool);
	if (!kv_device_is_name(kv_common.device))
		kv_usage(tool, "%s: expected auto, cpu, cuda or cuda:N with N from 0 to %d, got '%s'",
		    kv_common.device == getenv("KV_DEVICE") ? "KV_DEVICE" : "--device", KV_DEVICE_LAST,
		    kv_common.device);
	if (kv_common.output != NULL && kv_common.output[0] == '\0')
		kv_usage(tool, "--output: the name of the file is empty");
	if (kv_names_check(kv_common.only, &e) < 0)
		kv_usage(tool, "--only: %s", e.text);
	if (kv_names_check(kv_common.drop, &e) < 0)
		kv_usage(tool, "--drop: %s", e.text);
}

static void
save_command(int argc, char **argv)
{
	kv_command.argc = argc;
	kv_command.argv = calloc((size_t)argc + 1, sizeof *argv);
	if (kv_command.argv == NULL) {
		fprintf(stderr, "%s: out of memory\n", kv_command.tool->name);
		exit(KV_EXIT_FAILED);
	}
	memcpy(kv_command.argv, argv, (size_t)argc * sizeof *argv);
}

static void
free_at_exit(void)
{
	if (kv_command.tables[0] != NULL)
		kv_opt_fini(kv_command.tables);
	free(kv_command.argv);
}

/* Print the text, free it and leave, with 0 if it arrived. */
_Noreturn static void
print_and_leave(struct kv_buf *text)
{
	struct kv_err e = { 0 };
	int rc = kv_write_all(STDOUT_FILENO, text->data, text->n, &e);

	kv_buf_fini(text);
	exit(kv_report(rc, &e));
}

/* The tables of options of this tool and, if it has methods, of the one that is asked for; its name into *given. */
static int
set_tables(const struct kv_tool *tool, int argc, char **argv, const char **given, struct kv_err *e)
{
	static const struct kv_opt none[] = { { 0 } };
	const struct kv_method *m = NULL;
	size_t n = 0;
	int rc = KV_OK;

	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].bit == 0 || (tool->common & rows[i].bit))
			shared[n++] = rows[i].opt;
	kv_command.tables[0] = method_opts;
	kv_command.tables[1] = tool->opts != NULL ? tool->opts : none;
	kv_command.tables[2] = shared;
	if (tool->methods != NULL)
		rc = kv_find_method(tool, kv_command.tables + 1, argc, argv, given, &m, e);
	if (rc < 0 || m == NULL)
		return rc;
	kv_params_init(&kv_common.params, m);
	kv_params_options(&kv_common.params, method_opts);
	return KV_OK;
}

/* Leaves if the user wants to read rather than work. */
static void
answer_questions(const struct kv_tool *tool, struct kv_buf *help, struct kv_err *e)
{
	if (want_help)
		print_and_leave(help);
	help->n = 0;
	if (want_version && kv_buf_printf(help, e, "%s (kvtools) %s\n", tool->name, KV_VERSION) == KV_OK)
		print_and_leave(help);
	kv_buf_fini(help);
}

struct search {
	const char *name;
	bool found;
};

static int
look_at_option(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	struct search *s = ctx;

	(void)text, (void)e;
	s->found = s->found || (o != NULL && strcmp(o->name, s->name) == 0);
	return KV_OK;
}

bool
kv_option_given(const char *option)
{
	struct search s = { option, false };

	kv_opt_walk(kv_command.tables, kv_command.argc, kv_command.argv, look_at_option, &s, NULL);
	return s.found;
}

int
kv_options(int argc, char **argv, const struct kv_tool *tool)
{
	struct kv_params *p = &kv_common.params;
	struct kv_buf help = { 0 };
	struct kv_err e = { 0 }, environment = { 0 };
	const char *given = NULL;
	int rc, found;

	kv_command.tool = tool;
	fill_descriptors();
	signal(SIGPIPE, SIG_IGN); /* a write tells us: KV_EPIPE */
	save_command(argc, argv);
	atexit(free_at_exit);
	found = rc = set_tables(tool, argc, argv, &given, &e);
	take_environment(tool, &environment);
	if (rc == KV_OK && p->method != NULL)
		rc = kv_check_method_options(tool, kv_command.tables + 1, p, argc, argv, &e);
	if (rc == KV_OK && (rc = kv_help_text(tool, &help, &e)) == KV_OK)
		rc = kv_opt_parse(kv_command.tables, &argc, argv, &e);
	answer_questions(tool, &help, &e);
	if (environment.code < 0)
		kv_usage(tool, "%s", environment.text);
	if (tool->methods != NULL && found == KV_OK && p->method == NULL)
		kv_misuse_method(tool, given);
	if (rc == KV_OK && p->method != NULL)
		rc = kv_params_check(p, &e);
	if (rc < 0)
		kv_usage(tool, "%s", e.text);
	check_common(tool);
	return argc;
}
