/* SPDX-License-Identifier: MIT
 * measure [-n ROUNDS] [-v] [FILE] - run commands in turns, and print what they took.
 *
 * FILE (standard input) has one line for each of them and for each figure that is made of them:
 *
 *	run NAME PROGRAM [WORD...] [| PROGRAM ...] [< FILE] [> FILE]
 *	value LABEL EXPRESSION
 *
 * A round is every run once, in the order of the file, so that whatever else happens on the machine happens to all of
 * them.  An EXPRESSION (expression.h) is computed in every round by itself; LABEL has no blanks.  In it, NAME is
 * the run's wall time in seconds, NAME:cpu the processor's (user and system, all programs), NAME:peak the largest
 * resident memory of any of its programs in kB, both also of one program (NAME:cpu.kv_score for kv-score), NAME:bytes
 * the size of its standard output if that is a file or kept, NAME:KEY a number of the JSON object that it printed.
 * Empty lines and those that begin with # are left out.
 *
 * Prints TSV: name, program, quantity (wall_s, cpu_s, peak_kb, bytes, value), median, min, max, rounds.  The line of a
 * run as a whole has - for a program.  Exits with 1 as soon as a program ends with another status than 0, or when a
 * value is not finite; with 2 when FILE is wrong, before anything has run.
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/lib/command.h"
#include "bench/lib/expression.h"

#define WHY_MAX 512

struct run {
	char *name;
	struct command command;
	struct command_use *use; /* [rounds] */
	json_t **object;         /* [rounds] what it printed; NULL: no object */
};

struct value {
	char *label, *expression;
};

static struct {
	struct run *runs;
	struct value *values;
	size_t n_runs, n_values, rounds;
	bool verbose;
} m = { .rounds = 3 };

_Noreturn static void __attribute__((format(printf, 2, 3)))
leave(int status, const char *fmt, ...)
{
	va_list ap;

	fputs("measure: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(status);
}

static void *
grown(void *p, size_t n, size_t size)
{
	if ((p = realloc(p, n * size)) == NULL)
		leave(1, "%s", strerror(errno));
	return p;
}

/* ---- the file */

static struct run *
find_run(const char *name)
{
	for (size_t i = 0; i < m.n_runs; i++)
		if (strcmp(m.runs[i].name, name) == 0)
			return &m.runs[i];
	return NULL;
}

static bool
is_name(const char *s)
{
	if (!isalpha((unsigned char)*s))
		return false;
	while (isalnum((unsigned char)*s) || *s == '_' || *s == '.')
		s++;
	return *s == '\0';
}

static void
add_run(const char *name, const char *text, size_t line)
{
	struct run r = { .name = strdup(name) };
	char why[WHY_MAX];

	if (!is_name(name) || find_run(name) != NULL)
		leave(2, "line %zu: '%s' is no name, or another run's", line, name);
	if (!command_parse(&r.command, text, why, sizeof why))
		leave(2, "line %zu: %s", line, why);
	m.runs = grown(m.runs, m.n_runs + 1, sizeof *m.runs);
	m.runs[m.n_runs++] = r;
}

/* Before anything was measured: is the name one of a run? */
static bool
exists(void *ctx, const char *name, const char *field, double *value)
{
	(void)ctx;
	(void)field;
	*value = 1;
	return find_run(name) != NULL;
}

static void
add_value(const char *label, const char *expression, size_t line)
{
	char why[WHY_MAX];
	double x;

	if (!expression_value(expression, exists, NULL, &x, why, sizeof why))
		leave(2, "line %zu: %s", line, why);
	m.values = grown(m.values, m.n_values + 1, sizeof *m.values);
	m.values[m.n_values++] = (struct value){ strdup(label), strdup(expression) };
}

/* The first word of *at, which then stands behind it; "" if there is none. */
static char *
cut_word(char **at)
{
	char *word = *at + strspn(*at, " \t"), *end = word + strcspn(word, " \t");

	*at = *end != '\0' ? end + 1 : end;
	*end = '\0';
	return word;
}

static void
read_file(FILE *f)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	for (size_t i = 1; (n = getline(&line, &cap, f)) >= 0; i++) {
		char *at = line, *what, *name;

		line[strcspn(line, "\n")] = '\0';
		what = cut_word(&at);
		if (*what == '\0' || *what == '#')
			continue;
		name = cut_word(&at);
		if (strcmp(what, "run") == 0)
			add_run(name, at, i);
		else if (strcmp(what, "value") == 0)
			add_value(name, at, i);
		else
			leave(2, "line %zu: expected run or value, got '%s'", i, what);
	}
	free(line);
	if (m.n_runs == 0)
		leave(2, "nothing to run");
}

/* ---- the rounds */

static void
run_once(struct run *r, size_t round)
{
	char why[WHY_MAX];

	if (!command_run(&r->command, &r->use[round], why, sizeof why))
		leave(1, "%s: %s", r->name, why);
	r->object[round] = json_loads(r->use[round].said, JSON_DISABLE_EOF_CHECK, NULL);
	if (m.verbose)
		fprintf(stderr, "measure: round %zu of %zu: %s %.3f s\n", round + 1, m.rounds, r->name,
		    r->use[round].wall);
}

static void
run_all(void)
{
	for (size_t i = 0; i < m.n_runs; i++) {
		m.runs[i].use = grown(NULL, m.rounds, sizeof *m.runs[i].use);
		m.runs[i].object = grown(NULL, m.rounds, sizeof *m.runs[i].object);
	}
	for (size_t round = 0; round < m.rounds; round++)
		for (size_t i = 0; i < m.n_runs; i++)
			run_once(&m.runs[i], round);
}

/* ---- what is printed */

/* A number of one program (SIZE_MAX: of the run) in one round. */
typedef double quantity_fn(const struct run *r, size_t program, size_t round);

static double
wall(const struct run *r, size_t program, size_t round)
{
	(void)program;
	return r->use[round].wall;
}

static double
cpu(const struct run *r, size_t program, size_t round)
{
	double sum = 0;

	for (size_t i = 0; i < r->command.n; i++)
		sum += program == SIZE_MAX || program == i ? r->use[round].of[i].cpu : 0;
	return sum;
}

static double
peak(const struct run *r, size_t program, size_t round)
{
	long most = 0;

	for (size_t i = 0; i < r->command.n; i++)
		if ((program == SIZE_MAX || program == i) && r->use[round].of[i].peak_kb > most)
			most = r->use[round].of[i].peak_kb;
	return (double)most;
}

static double
bytes(const struct run *r, size_t program, size_t round)
{
	(void)program;
	return r->use[round].bytes;
}

static const struct {
	const char *field, *name;
	quantity_fn *of;
	bool of_program;
} quantities[] = {
	{ "", "wall_s", wall, false },
	{ "cpu", "cpu_s", cpu, true },
	{ "peak", "peak_kb", peak, true },
	{ "bytes", "bytes", bytes, false },
};
#define N_QUANTITIES (sizeof quantities / sizeof quantities[0])

static int
rising(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* x [rounds], which is sorted. */
static void
print_row(const char *name, const char *program, const char *quantity, double *x)
{
	const size_t n = m.rounds;

	qsort(x, n, sizeof *x, rising);
	printf("%s\t%s\t%s\t%.7g\t%.7g\t%.7g\t%zu\n", name, program, quantity, (x[(n - 1) / 2] + x[n / 2]) / 2, x[0],
	    x[n - 1], n);
}

static void
print_run(const struct run *r, double *x)
{
	for (size_t q = 0; q < N_QUANTITIES; q++) {
		for (size_t i = 0; i < m.rounds; i++)
			x[i] = quantities[q].of(r, SIZE_MAX, i);
		print_row(r->name, "-", quantities[q].name, x);
		for (size_t p = 0; p < r->command.n && quantities[q].of_program; p++) {
			for (size_t i = 0; i < m.rounds; i++)
				x[i] = quantities[q].of(r, p, i);
			print_row(r->name, r->command.programs[p].name, quantities[q].name, x);
		}
	}
}

/* "kv_score" is kv-score: expressions read - as minus.  SIZE_MAX: the run has no such program. */
static size_t
find_program(const struct run *r, const char *name)
{
	for (size_t i = 0; i < r->command.n; i++) {
		const char *p = r->command.programs[i].name, *q = name;

		while (*p != '\0' && (*p == *q || (*p == '-' && *q == '_')))
			p++, q++;
		if (*p == '\0' && *q == '\0')
			return i;
	}
	return SIZE_MAX;
}

/* "cpu.kv_score" */
static bool
get_of_program(const struct run *r, const char *field, size_t round, double *value)
{
	const char *dot = strchr(field, '.');
	const size_t program = dot != NULL ? find_program(r, dot + 1) : SIZE_MAX;

	if (program == SIZE_MAX)
		return false;
	for (size_t q = 0; q < N_QUANTITIES; q++)
		if (quantities[q].of_program && strncmp(quantities[q].field, field, (size_t)(dot - field)) == 0) {
			*value = quantities[q].of(r, program, round);
			return true;
		}
	return false;
}

/* ctx: the round. */
static bool
get(void *ctx, const char *name, const char *field, double *value)
{
	const size_t round = *(const size_t *)ctx;
	const struct run *r = find_run(name);
	const json_t *number;

	for (size_t q = 0; q < N_QUANTITIES; q++)
		if (strcmp(quantities[q].field, field) == 0) {
			*value = quantities[q].of(r, SIZE_MAX, round);
			return true;
		}
	if (get_of_program(r, field, round, value))
		return true;
	number = json_object_get(r->object[round], field);
	*value = json_number_value(number);
	return json_is_number(number);
}

static void
print_value(const struct value *v, double *x)
{
	char why[WHY_MAX];

	for (size_t i = 0; i < m.rounds; i++)
		if (!expression_value(v->expression, get, &i, &x[i], why, sizeof why))
			leave(1, "%s: %s (it did not print such a number)", v->label, why);
		else if (!isfinite(x[i]))
			leave(1, "%s: %g in round %zu", v->label, x[i], i + 1);
	print_row(v->label, "-", "value", x);
}

static void
forget(void)
{
	for (size_t i = 0; i < m.n_runs; i++) {
		for (size_t k = 0; k < m.rounds; k++) {
			command_use_fini(&m.runs[i].use[k]);
			json_decref(m.runs[i].object[k]);
		}
		command_fini(&m.runs[i].command);
		free(m.runs[i].use);
		free(m.runs[i].object);
		free(m.runs[i].name);
	}
	for (size_t i = 0; i < m.n_values; i++) {
		free(m.values[i].label);
		free(m.values[i].expression);
	}
	free(m.values);
	free(m.runs);
}

int
main(int argc, char **argv)
{
	double *x;
	FILE *f;
	int c;

	while ((c = getopt(argc, argv, "n:v")) != -1)
		if (c == 'v')
			m.verbose = true;
		else if (c != 'n' || (m.rounds = strtoul(optarg, NULL, 10)) - 1 >= 10000)
			leave(2, "usage: measure [-n ROUNDS] [-v] [FILE]");
	if ((f = optind < argc ? fopen(argv[optind], "r") : stdin) == NULL)
		leave(2, "%s: %s", argv[optind], strerror(errno));
	read_file(f);
	if (f != stdin) /* descriptor 0 stays taken */
		fclose(f);
	run_all();
	x = grown(NULL, m.rounds, sizeof *x);
	printf("name\tprogram\tquantity\tmedian\tmin\tmax\trounds\n");
	for (size_t i = 0; i < m.n_runs; i++)
		print_run(&m.runs[i], x);
	for (size_t i = 0; i < m.n_values; i++)
		print_value(&m.values[i], x);
	free(x);
	forget();
	return fflush(stdout) == 0 ? 0 : 1;
}
