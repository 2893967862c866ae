/* SPDX-License-Identifier: MIT */
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u; /* splitmix64 */
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void
schedule_read(struct schedule *s)
{
	static const char *const names[] = { "fifo", "lifo", "reverse" };
	const char *text = getenv("KV_SHIM_SCHEDULE");
	char *end;

	s->order = FIFO;
	if (text == NULL || text[0] == '\0')
		return;
	for (unsigned i = 0; i < 3; i++) {
		s->order = (enum order)i;
		if (strcmp(text, names[i]) == 0)
			return;
	}
	s->order = RANDOM;
	if (strncmp(text, "random:", 7) == 0 && text[7] != '\0') {
		s->seed = s->blocks = mix(strtoull(text + 7, &end, 10));
		if (*end == '\0')
			return;
	}
	fprintf(stderr, "cuda-shim: KV_SHIM_SCHEDULE is fifo, lifo, reverse or random:SEED, not %s\n", text);
	abort();
}

void
schedule_clear(struct schedule *s)
{
	s->first = s->n = 0;
}

static uint16_t *
at(struct schedule *s, unsigned i)
{
	return &s->ready[(s->first + i) % (MAX_THREADS * 2)];
}

void
schedule_add(struct schedule *s, unsigned thread)
{
	*at(s, s->n++) = (uint16_t)thread;
}

void
schedule_add_all(struct schedule *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		schedule_add(s, s->order == REVERSE ? n - 1 - i : i);
}

bool
schedule_take(struct schedule *s, unsigned *thread)
{
	if (s->n == 0)
		return false;
	if (s->order == LIFO) {
		*thread = *at(s, --s->n);
		return true;
	}
	if (s->order == RANDOM) {
		s->seed = mix(s->seed);

		uint16_t *chosen = at(s, (unsigned)(s->seed % s->n)), *front = at(s, 0);
		const uint16_t t = *chosen;

		*chosen = *front;
		*front = t;
	}
	*thread = *at(s, 0);
	s->first++;
	s->n--;
	return true;
}

static uint64_t
common(uint64_t a, uint64_t b)
{
	while (b != 0) {
		const uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

uint64_t
schedule_block(const struct schedule *s, uint64_t i, uint64_t n)
{
	uint64_t step;

	if (s->order == FIFO)
		return i;
	if (s->order != RANDOM)
		return n - 1 - i;
	/* Any step without a factor in common visits all. */
	for (step = s->blocks % n; common(step, n) != 1; step++)
		;
	return (uint64_t)(((unsigned __int128)i * step + mix(s->blocks) % n) % n);
}
