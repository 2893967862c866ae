/* SPDX-License-Identifier: MIT
 * The half that all programs share: the command line and the common options (options.c, help.c), messages (message.c),
 * a filter's inputs, output and exit status (io.c), its entry in the history (history.c).  What prints or exits is here
 * and nowhere below.
 */
#ifndef KV_COMMON_H
#define KV_COMMON_H

#include "formats/pipe.h"
#include "lib/device.h"
#include "lib/method.h"
#include "lib/opt.h"

enum kv_exit { KV_EXIT_OK = 0, KV_EXIT_FAILED = 1, KV_EXIT_USAGE = 2 };

struct kv_tool {
	const char *name;          /* "kv-score" */
	const char *usage;         /* "METHOD [options] [FILE...]" */
	const char *brief;         /* one line */
	const struct kv_opt *opts; /* the program's own */
	unsigned common;           /* which shared options it takes, of enum kv_common */
	/* The i-th method, NULL behind the last; NULL: no METHOD operand.  A method brings its options with it. */
	const struct kv_method *(*methods)(size_t i);
	const char *method;        /* what METHOD is called here; NULL: METHOD */
};

enum kv_common {
	KV_COMMON_OUTPUT = 1, /* -o FILE, --only, --drop, --share */
	KV_COMMON_DEVICE = 2, /* --device, --threads */
	KV_COMMON_MODEL = 4,  /* -m MODEL */
	KV_COMMON_SEED = 8,   /* --seed */
	KV_COMMON_PRECISION = 16, /* --precision */
};
/* --quiet, --verbose, --help and --version are everywhere. */

/* Values of the shared options after kv_options(); defaults from KV_MODEL, KV_DEVICE, KV_THREADS, KV_SHARE,
 * KV_PRECISION. */
struct kv_common_values {
	const char *output, *only, *drop, *device, *model;
	unsigned threads;
	uint64_t seed;
	enum kvk_precision precision;
	bool quiet, verbose, share;
	struct kv_params params; /* of METHOD, params.method, which is known when kv_options() returns */
};
extern struct kv_common_values kv_common;

/* Parses; leaves with 0 on --help and --version, with 2 on misuse, an unknown METHOD among it.  Returns the new argc:
 * argv[1..] are the operands, METHOD the first of them. */
int kv_options(int argc, char **argv, const struct kv_tool *tool);
/* "kv-score: WHY" and the usage to standard error; exits with 2.  tool NULL: the one that runs. */
void kv_usage(const struct kv_tool *tool, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Is this option on the command line?  Its name without dashes. */
bool kv_option_given(const char *option);
/* The model to open; misuse if neither -m nor KV_MODEL says which. */
const char *kv_need_model(const struct kv_tool *tool);

/* Messages to standard error, prefixed with the program's name. */
void kv_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void kv_note(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* only with --verbose */
void kv_progress(const char *what, size_t done, size_t total);            /* a terminal only, after a second */
void kv_progress_end(void);

/* The kv_unmet_fn of every writer: a warning. */
void kv_unmet(const char *option, int n, const char *name);

/* A filter's inputs (operands), output and device. */
struct kv_io {
	struct kv_pipe *pipe;
	struct kv_device device;
	json_t *entry;     /* our history entry */
	struct kv_err err; /* the first fault sticks; kv_next and kv_finish know it */
	int status;
};
/* Opens the pipe over the operand files; the device opens when it is first needed.  A failure sticks.
 * uses: what the program reads, replaces or removes; keeps: what of it it only reads; partly: of which it
 * reads a part; on_device: which it takes where they lie on the device: struct kv_pipe_options. */
void kv_start(struct kv_io *io, char *const *files, bool no_output, const char *uses, const char *keeps,
    const char *partly, const char *on_device);
int kv_next(struct kv_io *io, struct kv_step **step); /* KV_OK, KV_END, or a fault */
int kv_hold(struct kv_io *io, struct kv_step **steps, size_t *n); /* the same for kv_pipe_hold() */
/* rc: how the loop ended.  Writes the End record, closes, prints the message; returns the exit status. */
int kv_finish(struct kv_io *io, int rc);
/* The unfit of every struct kv_device: a warning. */
void kv_unfit(const char *why);
/* Closes it, if it was opened; --verbose says which it was and, when auto took the CPU, why. */
void kv_close_device(struct kv_device *d);

/* The exit for programs without a pipe: prints e's sentence for a fault, and the way out of a card's; quiet for
 * KV_EPIPE. */
int kv_report(int rc, const struct kv_err *e);
/* Our history entry, new reference: METHOD and the options that decide what the output says.  Input files, output,
 * --only, --drop,
 * --threads and the like are left out, so that the same results are the same bytes however the work was cut into steps.
 */
json_t *kv_history(void);
/* Adds the precision in use to it: what auto became decides results, whether or not --precision was given. */
int kv_history_precision(json_t *entry, struct kv_device *d, struct kv_err *e);

#endif
