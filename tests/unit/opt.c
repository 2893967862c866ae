/* SPDX-License-Identifier: MIT
 * Options from a table: every spelling, the ranges, what is refused, the help text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/opt.h"

static struct {
	bool quiet, verbose;
	unsigned window;
	size_t budget;
	uint64_t seed;
	double ratio;
	const char *out, *mode;
	struct kv_strings texts;
} o;

static const struct kv_opt first[] = {
	{ "quiet", 'q', KV_FLAG, &o.quiet, NULL, "say nothing", 0, 0, NULL },
	{ "verbose", 'v', KV_FLAG, &o.verbose, NULL, "say more", 0, 0, NULL },
	{ "window", 'w', KV_UINT, &o.window, "TOKENS", "recent queries", 1, 1000, NULL },
	{ "budget", 'b', KV_SIZE, &o.budget, "ENTRIES", "entries to keep", 0, 0, NULL },
	{ 0 },
};
static const struct kv_opt second[] = {
	{ "seed", 0, KV_U64, &o.seed, "N", "of random numbers", 0, 0, NULL },
	{ "ratio", 'r', KV_DOUBLE, &o.ratio, "SHARE", "of the prompt", 0, 1, NULL },
	{ "output", 'o', KV_STRING, &o.out, "FILE", "write here", 0, 0, NULL },
	{ "mode", 0, KV_STRING, &o.mode, "MODE", "how", 0, 0, "raw|position" },
	{ "prompt", 'p', KV_LIST, &o.texts, "TEXT", "a prompt", 0, 0, NULL },
	{ 0 },
};
static const struct kv_opt *const tables[] = { first, second, NULL };

/* Parse a command line given as one string, words separated by '|'; operands come back in argv[1..]. */
static char words[256];
static char *argv[32];
static int argc;
static struct kv_err err;

static int
parse(const char *line)
{
	kv_opt_fini(tables);
	memset(&o, 0, sizeof o);
	o.window = 32;
	err = (struct kv_err){ 0 };
	snprintf(words, sizeof words, "prog|%s", line);
	argc = 0;
	for (char *p = words, *next; p != NULL; p = next) {
		if ((next = strchr(p, '|')) != NULL)
			*next++ = '\0';
		argv[argc++] = p;
	}
	argv[argc] = NULL;
	return kv_opt_parse(tables, &argc, argv, &err);
}

static void
spellings(void **state)
{
	static const char *const lines[] = { "-w|5|-o|x", "-w5|-ox", "--window|5|--output|x", "--window=5|--output=x",
		"-qvw5|-ox" };

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_int_equal(parse(lines[i]), KV_OK);
		assert_int_equal(o.window, 5);
		assert_string_equal(o.out, "x");
		assert_int_equal(argc, 1);
	}
	assert_true(o.quiet && o.verbose);
}

static void
operands(void **state)
{
	(void)state;
	assert_int_equal(parse("a|-q|-|b|--|-v|--seed"), KV_OK);
	assert_true(o.quiet && !o.verbose);
	assert_int_equal(argc, 6);
	assert_string_equal(argv[1], "a");
	assert_string_equal(argv[2], "-");
	assert_string_equal(argv[3], "b");
	assert_string_equal(argv[4], "-v");
	assert_string_equal(argv[5], "--seed");
	assert_null(argv[6]);
}

static void
values(void **state)
{
	(void)state;
	assert_int_equal(
	    parse("--seed|18446744073709551615|-r|.25|-b|9223372036854775807|-p|one|-p|two|--mode=raw"), KV_OK);
	assert_true(o.seed == UINT64_MAX);
	assert_true(o.ratio == 0.25);
	assert_true(o.budget == INT64_MAX);
	assert_int_equal(o.texts.n, 2);
	assert_string_equal(o.texts.v[1], "two");
	assert_string_equal(o.mode, "raw");
	assert_int_equal(parse("--output="), KV_OK);
	assert_string_equal(o.out, "");
}

/* What is refused, and a piece of the sentence that must say why. */
static const struct {
	const char *line, *says;
} bad[] = {
	{ "--bogus", "unknown option '--bogus'" },
	{ "--bogus=3", "unknown option '--bogus'" },
	{ "-x", "unknown option '-x'" },
	{ "-qx", "unknown option '-x'" },
	{ "--win|3", "unknown option '--win'" },
	{ "--windows|3", "unknown option '--windows'" },
	{ "--quiet=yes", "takes no value" },
	{ "-w", "expected TOKENS" },
	{ "--window", "expected TOKENS" },
	{ "-w|0", "from 1 to 1000, got '0'" },
	{ "-w|1001", "from 1 to 1000" },
	{ "-w|-1", "got '-1'" },
	{ "-w|+1", "got '+1'" },
	{ "-w| 1", "got ' 1'" },
	{ "-w|1x", "got '1x'" },
	{ "-w|1.5", "got '1.5'" },
	{ "--window=", "got ''" },
	{ "-b|9223372036854775808", "expected a whole number" },
	{ "-b|99999999999999999999", "expected a whole number" },
	{ "--seed|18446744073709551616", "expected a whole number" },
	{ "-r|1.5", "from 0 to 1" },
	{ "-r|nan", "expected a number" },
	{ "-r|inf", "expected a number" },
	{ "-r|0.5x", "expected a number" },
	{ "-r|", "expected a number" },
	{ "--mode|ra", "one of raw|position, got 'ra'" },
	{ "--mode|raw2", "one of raw|position" },
	{ "--mode=", "one of raw|position" },
};

static void
refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(parse(bad[i].line), KV_EARG);
		if (strstr(err.text, bad[i].says) == NULL)
			fail_msg("%s: '%s' does not say '%s'", bad[i].line, err.text, bad[i].says);
		assert_int_equal(o.window, 32); /* never clamped */
	}
}

static void
help(void **state)
{
	struct kv_buf b = { 0 };

	(void)state;
	parse("-q");
	o.out = "-";
	assert_int_equal(kv_opt_help(first, &b, &err), KV_OK);
	assert_int_equal(kv_opt_help(second, &b, &err), KV_OK);
	assert_string_equal(b.data, "  -q, --quiet               say nothing\n"
				    "  -v, --verbose             say more\n"
				    "  -w, --window TOKENS       recent queries (default 32)\n"
				    "  -b, --budget ENTRIES      entries to keep (default 0)\n"
				    "      --seed N              of random numbers (default 0)\n"
				    "  -r, --ratio SHARE         of the prompt (default 0)\n"
				    "  -o, --output FILE         write here (default -)\n"
				    "      --mode MODE           how: raw|position\n"
				    "  -p, --prompt TEXT         a prompt\n");
	b.n = 0;
	o.window = 0; /* outside its range: not given */
	assert_int_equal(kv_opt_help(first, &b, &err), KV_OK);
	assert_non_null(strstr(b.data, "recent queries\n"));
	kv_buf_fini(&b);
	kv_opt_fini(tables);
	assert_null(o.texts.v);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spellings),
		cmocka_unit_test(operands),
		cmocka_unit_test(values),
		cmocka_unit_test(refused),
		cmocka_unit_test(help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
