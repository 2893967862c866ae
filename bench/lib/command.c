/* SPDX-License-Identifier: MIT */
#include "bench/lib/command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"

#define SAID_MAX ((size_t)64 << 10)

static bool
fail(char *why, size_t why_bytes, const char *what, const char *which)
{
	snprintf(why, why_bytes, "%s%s%s", which, which[0] != '\0' ? ": " : "", what);
	return false;
}

/* ---- words */

/* The next word, in place; NULL behind the last.  *quoted: it is a word even if it looks like a sign. */
static char *
next_word(char **at, bool *quoted)
{
	char *from = *at, *to, *word;

	while (isspace((unsigned char)*from))
		from++;
	*quoted = *from == '\'';
	if (*from == '\0')
		return NULL;
	for (word = to = from; *from != '\0' && !isspace((unsigned char)*from);) {
		if (*from != '\'') {
			*to++ = *from++;
			continue;
		}
		for (from++; *from != '\0' && *from != '\'';)
			*to++ = *from++;
		from += *from == '\'';
	}
	*at = *from != '\0' ? from + 1 : from;
	*to = '\0';
	return word;
}

static struct program *
add_program(struct command *c)
{
	struct program *p = realloc(c->programs, (c->n + 1) * sizeof *p);

	if (p == NULL)
		return NULL;
	c->programs = p;
	p[c->n] = (struct program){ 0 };
	return &p[c->n++];
}

static bool
add_word(struct program *p, char *word)
{
	char **argv = realloc(p->argv, (p->n + 2) * sizeof *argv);

	if (argv == NULL)
		return false;
	argv[p->n++] = word;
	argv[p->n] = NULL;
	p->argv = argv;
	if (p->n == 1)
		p->name = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
	return true;
}

static bool
parse_words(struct command *c, char *why, size_t why_bytes)
{
	struct program *p = add_program(c);
	char *at = c->text, *word;
	bool quoted;

	while (p != NULL && (word = next_word(&at, &quoted)) != NULL) {
		const char sign = !quoted && word[0] != '\0' && word[1] == '\0' ? word[0] : ' ';

		if (sign == '|') {
			if (p->n == 0)
				return fail(why, why_bytes, "no program before |", "");
			p = add_program(c);
		} else if (sign == '<' || sign == '>') {
			const char **file = sign == '<' ? &c->in : &c->out;

			if ((*file = next_word(&at, &quoted)) == NULL)
				return fail(why, why_bytes, "no file behind < or >", "");
		} else if (!add_word(p, word))
			return fail(why, why_bytes, strerror(errno), "");
	}
	if (p == NULL)
		return fail(why, why_bytes, strerror(errno), "");
	return p->n > 0 ? true : fail(why, why_bytes, "a program is missing", "");
}

bool
command_parse(struct command *c, const char *text, char *why, size_t why_bytes)
{
	*c = (struct command){ .text = strdup(text) };
	return c->text != NULL ? parse_words(c, why, why_bytes) : fail(why, why_bytes, strerror(errno), "");
}

void
command_fini(struct command *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->programs[i].argv);
	free(c->programs);
	free(c->text);
	*c = (struct command){ 0 };
}

/* ---- one run */

static double
seconds(struct timeval t)
{
	return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Takes in and out, which are neither 0 nor 1: those have been open since we began. */
static pid_t
start(const struct program *p, int in, int out)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(in, STDIN_FILENO);
		dup2(out, STDOUT_FILENO);
		execvp(p->argv[0], p->argv);
		fprintf(stderr, "%s: %s\n", p->argv[0], strerror(errno));
		_exit(127);
	}
	close(in);
	close(out);
	return pid;
}

/* Starts all; pid [c->n], -1 from the first that could not be started.  Takes in; out stays open. */
static void
start_all(const struct command *c, int in, int out, pid_t *pid)
{
	for (size_t i = 0; i < c->n; i++)
		pid[i] = -1;
	for (size_t i = 0; i < c->n; i++) {
		int ends[2] = { -1, -1 }, to;

		if (i + 1 < c->n && pipe2(ends, O_CLOEXEC) < 0)
			break;
		to = i + 1 < c->n ? ends[1] : fcntl(out, F_DUPFD_CLOEXEC, 0);
		pid[i] = start(&c->programs[i], in, to);
		in = ends[0];
		if (pid[i] < 0)
			break;
	}
	if (in >= 0)
		close(in);
}

static bool
lost_its_reader(int status)
{
	return status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
}

/* Why the first of those that failed did; one that lost its reader only if there is no other. */
static bool
blame(const struct command *c, const struct command_use *use, char *why, size_t why_bytes)
{
	size_t who = c->n;
	const char *name;
	int status;

	for (size_t i = 0; i < c->n; i++)
		if (use->of[i].status != 0 &&
		    (who == c->n ||
			(lost_its_reader(use->of[who].status) && !lost_its_reader(use->of[i].status))))
			who = i;
	name = c->programs[who].name;
	status = use->of[who].status;
	if (status == -1)
		snprintf(why, why_bytes, "%s could not be started", name);
	else if (WIFSIGNALED(status))
		snprintf(why, why_bytes, "%s was ended by signal %d", name, WTERMSIG(status));
	else
		snprintf(why, why_bytes, "%s ended with status %d", name, WEXITSTATUS(status));
	return false;
}

/* Waits for all; false if one of them failed. */
static bool
wait_all(const struct command *c, const pid_t *pid, struct command_use *use, char *why, size_t why_bytes)
{
	bool good = true;

	for (size_t i = 0; i < c->n; i++) {
		struct program_use *u = &use->of[i];
		struct rusage r = { 0 };

		if (pid[i] < 0 || wait4(pid[i], &u->status, 0, &r) < 0)
			u->status = -1;
		u->cpu = seconds(r.ru_utime) + seconds(r.ru_stime);
		u->peak_kb = r.ru_maxrss;
		good = good && u->status == 0;
	}
	return good ? true : blame(c, use, why, why_bytes);
}

/* What stands in the kept output. */
static bool
look(const struct command *c, int out, struct command_use *use, char *why, size_t why_bytes)
{
	struct stat st;
	ssize_t n = 0;

	if (fstat(out, &st) < 0)
		return fail(why, why_bytes, strerror(errno), "standard output");
	use->bytes = S_ISREG(st.st_mode) ? (double)st.st_size : 0;
	if ((use->said = calloc(1, SAID_MAX + 1)) == NULL)
		return fail(why, why_bytes, strerror(errno), "");
	if (c->out == NULL && (n = pread(out, use->said, SAID_MAX, 0)) < 0)
		return fail(why, why_bytes, strerror(errno), "standard output");
	return true;
}

bool
command_run(const struct command *c, struct command_use *use, char *why, size_t why_bytes)
{
	pid_t *pid = calloc(c->n, sizeof *pid);
	int in, out = -1;
	bool good = false;
	double from;

	*use = (struct command_use){ .of = calloc(c->n, sizeof *use->of) };
	in = open(c->in != NULL ? c->in : "/dev/null", O_RDONLY | O_CLOEXEC);
	if (c->out != NULL)
		out = open(c->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	else
		out = memfd_create("output", MFD_CLOEXEC);
	if (pid == NULL || use->of == NULL)
		fail(why, why_bytes, strerror(errno), "");
	else if (in < 0 || out < 0)
		fail(why, why_bytes, strerror(errno), in < 0 ? c->in : c->out != NULL ? c->out : "standard output");
	else {
		from = kv_seconds();
		start_all(c, in, out, pid);
		in = -1;
		good = wait_all(c, pid, use, why, why_bytes);
		use->wall = kv_seconds() - from;
		good = look(c, out, use, why, why_bytes) && good;
	}
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	free(pid);
	return good;
}

void
command_use_fini(struct command_use *use)
{
	free(use->of);
	free(use->said);
	*use = (struct command_use){ 0 };
}
