/* SPDX-License-Identifier: MIT */
#include "bin/common.h"

#include "lib/file.h"
#include "lib/names.h"
#include "lib/text/escape.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 1024

struct kv_common_values kv_common = { .device = "auto", .precision = KVK_PRECISION_AUTO };

static const struct kv_tool *self; /* set by kv_options() */
static int saved_argc;             /* the command line as it came: kv_opt_parse() moves the operands */
static char **saved_argv;
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
	{ KV_COMMON_DEVICE, true,
	    { "device", 0, KV_STRING, &kv_common.device, "NAME", "auto, cpu, cuda or cuda:N; else $KV_DEVICE", 0, 0,
		NULL } },
	{ KV_COMMON_DEVICE, false,
	    { "threads", 0, KV_UINT, &kv_common.threads, "N", "0: all processors; else $KV_THREADS", 0, MAX_THREADS,
		NULL } },
	{ KV_COMMON_PRECISION, false,
	    { "precision", 0, KV_STRING, &precision, "NAME", "auto, f32, bf16 or i16; else $KV_PRECISION (default auto)", 0,
		0, NULL } },
	{ KV_COMMON_SEED, true, { "seed", 0, KV_U64, &kv_common.seed, "N", "of the random numbers", 0, 0, NULL } },
	{ 0, false, { "quiet", 'q', KV_FLAG, &kv_common.quiet, NULL, "no warnings, no progress", 0, 0, NULL } },
	{ 0, false, { "verbose", 'v', KV_FLAG, &kv_common.verbose, NULL, "say more", 0, 0, NULL } },
	{ 0, false, { "help", 'h', KV_FLAG, &want_help, NULL, "this text", 0, 0, NULL } },
	{ 0, false, { "version", 0, KV_FLAG, &want_version, NULL, "the version", 0, 0, NULL } },
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static struct kv_opt shared[N_ROWS + 1]; /* the rows this tool takes */
static struct kv_opt method_opts[KV_PARAMS_MAX + 1];
static const struct kv_opt *tables[4]; /* the method's, the tool's, the shared; NULL */

static const char *
name(void)
{
	return self != NULL ? self->name : "kvtools";
}

/* ---- messages */

static bool progress_shown;

/* One line.  It may quote what a file or a caller says, and they may say anything to a terminal. */
static void
message(const char *kind, const char *fmt, va_list ap)
{
	struct kv_buf line = { 0 };
	char *text = NULL;

	kv_progress_end();
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	if (text == NULL || kv_escape(&line, text, strlen(text), NULL) < 0)
		fprintf(stderr, "%s: %sout of memory\n", name(), kind);
	else
		fprintf(stderr, "%s: %s%s\n", name(), kind, line.data != NULL ? line.data : "");
	kv_buf_fini(&line);
	free(text);
}

static void
say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message("", fmt, ap);
	va_end(ap);
}

void
kv_warn(const char *fmt, ...)
{
	va_list ap;

	if (kv_common.quiet)
		return;
	va_start(ap, fmt);
	message("warning: ", fmt, ap);
	va_end(ap);
}

void
kv_note(const char *fmt, ...)
{
	va_list ap;

	if (!kv_common.verbose)
		return;
	va_start(ap, fmt);
	message("", fmt, ap);
	va_end(ap);
}

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void
kv_progress(const char *what, size_t done, size_t total)
{
	static double first, last;
	double now = seconds();

	if (first == 0)
		first = now;
	if (kv_common.quiet || now - first < 1.0 || now - last < 0.1 || !isatty(STDERR_FILENO))
		return;
	last = now;
	progress_shown = true;
	fprintf(stderr, "\r%s: %s %zu/%zu\033[K", name(), what, done, total);
	fflush(stderr);
}

void
kv_progress_end(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}

/* ---- help and misuse */

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
		rc = kv_buf_printf(out, e, "\n%s: %s%s%s\n", m->name, m->brief, m->paper ? ", " : "", m->paper ? m->paper : "");
		return rc == KV_OK ? kv_opt_help(tables[0], out, e) : rc;
	}
	if (tool->methods != NULL)
		rc = kv_buf_printf(out, e, "\n%s:\n", method_word(tool));
	for (size_t i = 0; rc == KV_OK && tool->methods != NULL && (m = tool->methods(i)) != NULL; i++)
		rc = kv_buf_printf(out, e, "  %-24s  %s\n", m->name, m->brief);
	if (rc == KV_OK && tool->methods != NULL && tool->method == NULL)
		rc = kv_buf_printf(out, e, "\n'%s METHOD --help' has the options of a METHOD.\n", tool->name);
	return rc;
}

/* The whole help text, made before the options are read: it shows the defaults it finds in the variables. */
static int
help_text(const struct kv_tool *tool, struct kv_buf *out, struct kv_err *e)
{
	int rc;

	if ((rc = kv_buf_printf(out, e, "usage: %s %s\n%s\n", tool->name, tool->usage, tool->brief)) < 0 ||
	    (rc = help_methods(tool, out, e)) < 0 || (rc = kv_buf_printf(out, e, "\noptions:\n")) < 0)
		return rc;
	for (size_t i = 1; rc == KV_OK && tables[i] != NULL; i++)
		rc = kv_opt_help(tables[i], out, e);
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
	message("", fmt, ap);
	va_end(ap);
	misuse(tool != NULL ? tool : self);
}

/* An unknown or missing METHOD: the known ones with their briefs. */
_Noreturn static void
misuse_method(const struct kv_tool *tool, const char *given)
{
	const struct kv_method *m;

	if (given == NULL)
		say("expected a %s, one of", method_word(tool));
	else
		say("unknown %s '%s', expected one of", method_word(tool), given);
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

/* ---- the command line */

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

static bool
is_device_name(const char *s)
{
	if (strcmp(s, "auto") == 0 || strcmp(s, "cpu") == 0 || strcmp(s, "cuda") == 0)
		return true;
	return strncmp(s, "cuda:", 5) == 0 && s[5] != '\0' && s[5 + strspn(s + 5, "0123456789")] == '\0';
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
	kv_usage(tool, "%s: expected auto, f32, bf16 or i16, got '%s'", precision != NULL ? "--precision" : "KV_PRECISION", s);
}

static void
check_common(const struct kv_tool *tool)
{
	struct kv_err e = { 0 };

	take_precision(tool);
	if (!is_device_name(kv_common.device))
		kv_usage(tool, "--device: expected auto, cpu, cuda or cuda:N, got '%s'", kv_common.device);
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
	saved_argc = argc;
	saved_argv = calloc((size_t)argc + 1, sizeof *argv);
	if (saved_argv == NULL) {
		fprintf(stderr, "%s: out of memory\n", name());
		exit(KV_EXIT_FAILED);
	}
	memcpy(saved_argv, argv, (size_t)argc * sizeof *argv);
}

static void
free_at_exit(void)
{
	if (tables[0] != NULL)
		kv_opt_fini(tables);
	free(saved_argv);
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
	tables[0] = method_opts;
	tables[1] = tool->opts != NULL ? tool->opts : none;
	tables[2] = shared;
	if (tool->methods == NULL || (rc = kv_find_method(tool, tables + 1, argc, argv, given, &m, e)) < 0 || m == NULL)
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

int
kv_options(int argc, char **argv, const struct kv_tool *tool)
{
	struct kv_params *p = &kv_common.params;
	struct kv_buf help = { 0 };
	struct kv_err e = { 0 }, environment = { 0 };
	const char *given = NULL;
	int rc, found;

	self = tool;
	fill_descriptors();
	signal(SIGPIPE, SIG_IGN); /* a write tells us: KV_EPIPE */
	save_command(argc, argv);
	atexit(free_at_exit);
	found = rc = set_tables(tool, argc, argv, &given, &e);
	take_environment(tool, &environment);
	if (rc == KV_OK && p->method != NULL)
		rc = kv_check_method_options(tool, tables + 1, p, argc, argv, &e);
	if (rc == KV_OK && (rc = help_text(tool, &help, &e)) == KV_OK)
		rc = kv_opt_parse(tables, &argc, argv, &e);
	answer_questions(tool, &help, &e);
	if (environment.code < 0)
		kv_usage(tool, "%s", environment.text);
	if (tool->methods != NULL && found == KV_OK && p->method == NULL)
		misuse_method(tool, given);
	if (rc == KV_OK && p->method != NULL)
		rc = kv_params_check(p, &e);
	if (rc < 0)
		kv_usage(tool, "%s", e.text);
	check_common(tool);
	return argc;
}

/* ---- history */

struct recipe {
	char **word;
	int n;
	bool has_method;
};

static bool
decides_contents(const struct kv_opt *o)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].opt.name, o->name) == 0)
			return rows[i].contents;
	return true;
}

/* The METHOD, and the options that decide what the output says, spelled one way: "--window=16". */
static int
add_word(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	struct recipe *r = ctx;
	struct kv_buf b = { 0 };
	char **word;
	int rc;

	if (o == NULL ? self->methods == NULL || r->has_method : !decides_contents(o))
		return KV_OK;
	if ((word = realloc(r->word, ((size_t)r->n + 1) * sizeof *word)) == NULL)
		return kv_no_memory(e, ((size_t)r->n + 1) * sizeof *word);
	r->word = word;
	r->has_method = r->has_method || o == NULL;
	if (o == NULL)
		rc = kv_buf_printf(&b, e, "%s", text);
	else
		rc = kv_buf_printf(&b, e, "--%s%s%s", o->name, text != NULL ? "=" : "", text != NULL ? text : "");
	if (rc == KV_OK)
		r->word[r->n++] = b.data;
	return rc;
}

json_t *
kv_history(void)
{
	struct recipe r = { 0 };
	json_t *entry = NULL;

	if (kv_opt_walk(tables, saved_argc, saved_argv, add_word, &r, NULL) == KV_OK)
		entry = kv_history_entry(name(), KV_VERSION, r.n, r.word);
	while (r.n > 0)
		free(r.word[--r.n]);
	free(r.word);
	return entry;
}

int
kv_history_precision(json_t *entry, const struct kv_device *d, struct kv_err *e)
{
	const char *name = kvk_precisions[d->op->precision(d->dev)];

	return json_object_set_new(entry, "precision", json_string(name)) == 0 ? KV_OK : kv_no_memory(e, strlen(name));
}

/* ---- inputs, output, exit */

void
kv_unmet(const char *option, int n, const char *name)
{
	kv_warn("--%s %.*s: no tensor had that name", option, n, name);
}

void
kv_start(struct kv_io *io, char *const *files, bool no_output, const char *uses)
{
	struct kv_pipe_options o = {
		.files = files,
		.output = kv_common.output,
		.no_output = no_output,
		.only = kv_common.only,
		.drop = kv_common.drop,
		.unmet = kv_unmet,
		.uses = uses,
	};

	*io = (struct kv_io){ 0 };
	kv_device_plan(&io->device, kv_common.device, kv_common.threads);
	io->device.precision = kv_common.precision;
	io->entry = kv_history();
	if (io->entry == NULL) {
		io->status = kv_no_memory(&io->err, sizeof *io->entry);
		return;
	}
	o.entry = io->entry;
	io->status = kv_pipe_open(&io->pipe, &o, &io->err);
}

int
kv_next(struct kv_io *io, struct kv_step **step)
{
	if (io->status == KV_OK)
		io->status = kv_pipe_next(io->pipe, step, &io->err);
	return io->status;
}

int
kv_hold(struct kv_io *io, struct kv_step **steps, size_t *n)
{
	if (io->status == KV_OK)
		io->status = kv_pipe_hold(io->pipe, steps, n, &io->err);
	return io->status;
}

int
kv_finish(struct kv_io *io, int rc)
{
	if (rc >= 0 && io->status < 0)
		rc = io->status;
	if (rc > 0)
		rc = KV_OK;
	if (io->pipe != NULL) {
		struct kv_err e = io->err;
		int closed = kv_pipe_finish(io->pipe, rc, &io->err);

		if (rc < 0)
			io->err = e; /* the first fault is the one to tell */
		else
			rc = closed;
	}
	io->pipe = NULL;
	json_decref(io->entry);
	kv_close_device(&io->device);
	return kv_report(rc, &io->err);
}

void
kv_close_device(struct kv_device *d)
{
	if (d->op != NULL)
		kv_note("device: %s%s%s", d->op->name, d->fallback[0] != '\0' ? ", for want of " : "", d->fallback);
	kv_device_close(d);
}

int
kv_report(int rc, const struct kv_err *e)
{
	kv_progress_end();
	if (rc >= 0)
		return KV_EXIT_OK;
	if (rc == KV_EPIPE) {
		/* end as any Unix program does when its reader has gone */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	} else
		say("%s", e->code != 0 ? e->text : "failed");
	return KV_EXIT_FAILED;
}
