/* SPDX-License-Identifier: MIT
 * One pipeline of programs: its words, one run of it, and what each program used.
 */
#ifndef BENCH_COMMAND_H
#define BENCH_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct program {
	char **argv;      /* [n + 1], NULL at the end */
	size_t n;
	const char *name; /* without its folder */
};

/* PROGRAM [WORD...] [| PROGRAM ...] [< FILE] [> FILE], words between blanks, 'quoted' where they have blanks. */
struct command {
	char *text; /* that the words lie in */
	struct program *programs;
	size_t n;
	const char *in, *out; /* NULL: /dev/null; the standard output is kept and looked at */
};

/* false: why says what is wrong with the text. */
bool command_parse(struct command *c, const char *text, char *why, size_t why_bytes);
void command_fini(struct command *c);

struct program_use {
	double cpu;   /* seconds, user and system */
	long peak_kb; /* resident memory */
	int status;   /* as from wait() */
};

struct command_use {
	double wall;                /* seconds from before the first program starts until the last one has ended */
	double bytes;               /* of the standard output; 0 for one that is no file */
	struct program_use *of;     /* [c->n] */
	char *said;                 /* the standard output's first 64 KiB, if it was kept, "" else */
};

/* Runs it once.  false: a program could not be started, or ended with another status than 0; why says which. */
bool command_run(const struct command *c, struct command_use *use, char *why, size_t why_bytes);
void command_use_fini(struct command_use *use);

#endif
