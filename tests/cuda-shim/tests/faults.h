/* SPDX-License-Identifier: MIT
 * Planted faults: each must be reported, and the same kernel without its fault must pass.
 *
 * A case runs in a process of its own.  Which faults are seen depends on how this program is built: by itself, with
 * ASan and UBSan, or with TSan.
 */
#ifndef SHIM_FAULTS_H
#define SHIM_FAULTS_H

#include "case.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
enum { BUILD = 1 };
#elif defined(__SANITIZE_THREAD__)
enum { BUILD = 2 };
#else
enum { BUILD = 0 };
#endif

/* A row of a program's table.  run(good) must return true, run(bad) end with a report or return false. */
struct fault {
	const char *name;
	bool (*run)(int how);
	int good, bad;
	/* On stderr, built plainly, with ASan and with TSan.  NULL: known not to be seen; empty: not run. */
	const char *seen[3];
	const char *variable, *value; /* of the environment; NULL: none */
};

/* This program again with the case's name; its stderr in text.  Returns the status of waitpid(). */
static inline int
run_apart(const struct fault *f, bool bad, char *text, size_t room)
{
	int pipes[2], status;
	size_t n = 0;
	pid_t child;
	ssize_t got;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		const struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (f->variable != NULL)
			setenv(f->variable, f->value, 1);
		setenv("TSAN_OPTIONS", "halt_on_error=1", 1);
		execl("/proc/self/exe", "faults", f->name, bad ? "bad" : "good", (char *)NULL);
		_exit(126);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], text + n, room - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static inline void
test_fault(void **state)
{
	const struct fault *f = (const struct fault *)*state;
	const char *seen = f->seen[BUILD];
	static char text[1 << 16];
	int status;

	status = run_apart(f, false, text, sizeof(text));
	if (status != 0)
		fail_msg("without the fault: status %x, %s", (unsigned)status, text);
	status = run_apart(f, true, text, sizeof(text));
	if (seen == NULL) /* known not to be seen: tell when that changes */
		assert_int_equal(status, 0);
	else if (status == 0 || strstr(text, seen) == NULL)
		fail_msg("status %x, expected \"%s\" in: %s", (unsigned)status, seen, text);
}

/* main() of a program with this table: all cases, or the one that run_apart() names. */
template <size_t N_FAULTS>
static inline int
run_faults(const char *program, const struct fault (&faults)[N_FAULTS], int argc, char **argv)
{
	struct CMUnitTest all[N_FAULTS] = {};
	size_t n = 0;

	for (const struct fault &f : faults) {
		if (argc > 2 && strcmp(argv[1], f.name) == 0)
			return f.run(strcmp(argv[2], "bad") == 0 ? f.bad : f.good) ? 0 : 1;
		if (f.seen[BUILD] != NULL && f.seen[BUILD][0] == '\0')
			continue;
		all[n].name = f.name;
		all[n].test_func = test_fault;
		all[n++].initial_state = (void *)&f;
	}
	return _cmocka_run_group_tests(program, all, n, NULL, NULL);
}

#endif
