/* SPDX-License-Identifier: MIT
 * peak_rss FILE COMMAND... - run a command and write its peak resident memory, in kB, to FILE, and how many pages it
 * was given, to FILE.pages; exits as the command does.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int
put(const char *path, const char *suffix, long n)
{
	char name[4096];
	FILE *f;

	snprintf(name, sizeof name, "%s%s", path, suffix);
	if ((f = fopen(name, "w")) == NULL)
		return -1;
	fprintf(f, "%ld\n", n);
	return fclose(f);
}

int
main(int argc, char **argv)
{
	struct rusage use;
	int status;
	pid_t pid;

	if (argc < 3)
		return 2;
	if ((pid = fork()) == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) < 0 || put(argv[1], "", use.ru_maxrss) != 0 ||
	    put(argv[1], ".pages", use.ru_minflt) != 0) {
		perror(argv[0]);
		return 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
