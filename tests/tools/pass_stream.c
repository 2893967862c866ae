/* SPDX-License-Identifier: MIT
 * pass_stream [--hold] USES [FILE...] - a filter that changes nothing: tensors of the list USES are looked at, all of a
 * sequence before the first of them leaves if --hold.
 */
#include <stdio.h>
#include <string.h>

#include "formats/pipe.h"

/* What the program uses is read, so that it has to be in memory. */
static void
touch(const struct kv_step *s)
{
	const struct kv_tensor *t;
	volatile unsigned char byte;

	for (size_t i = 0; (t = kv_step_at(s, i)) != NULL; i++)
		for (size_t k = 0; t->data != NULL && k < t->bytes; k += 1024)
			byte = ((const unsigned char *)t->data)[k];
	(void)byte;
}

int
main(int argc, char **argv)
{
	bool hold = argc > 1 && strcmp(argv[1], "--hold") == 0;
	struct kv_pipe_options o = { .files = argv + 2 + hold, .uses = argv[1 + hold] };
	struct kv_step *s, *held;
	struct kv_pipe *p = NULL;
	struct kv_err e = { 0 };
	size_t n;
	int rc = kv_pipe_open(&p, &o, &e);

	while (rc == KV_OK) {
		if (hold && (rc = kv_pipe_hold(p, &held, &n, &e)) != KV_OK)
			break;
		while ((rc = kv_pipe_next(p, &s, &e)) == KV_OK) {
			touch(s);
			if (s->layer == KV_NO_LAYER)
				break;
		}
	}
	if ((rc = kv_pipe_finish(p, rc, &e)) < 0)
		fprintf(stderr, "pass_stream: %s\n", e.text);
	return rc < 0;
}
