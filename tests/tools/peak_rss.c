/* SPDX-License-Identifier: MIT
 * peak_rss FILE COMMAND... - run a command and write its peak resident memory, in kB, to FILE; exits as the command
 * does.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	struct rusage use;
	int status;
	FILE *f;
	pid_t pid;

	if (argc < 3)
		return 2;
	if ((pid = fork()) == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) < 0 || (f = fopen(argv[1], "w")) == NULL) {
		perror(argv[0]);
		return 1;
	}
	fprintf(f, "%ld\n", use.ru_maxrss);
	return fclose(f) == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
