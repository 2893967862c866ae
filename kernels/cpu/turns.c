/* SPDX-License-Identifier: MIT
 * Sines and cosines of rotary embedding, kept from call to call: queries and keys of all layers turn by the same
 * angles. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cpu_turns {
	size_t dim;
	size_t tag[CPU_TURNS]; /* position + 1 of what a slot holds; 0: nothing */
	float *freq;           /* [dim/2] */
	float *table;          /* [CPU_TURNS][dim] cosines, then sines */
};

void
cpu_turns_free(struct cpu_turns *t)
{
	if (t == NULL)
		return;
	free(t->table);
	free(t->freq);
	free(t);
}

static struct cpu_turns *
turns_new(const struct kvk_rope *rope)
{
	struct cpu_turns *t = calloc(1, sizeof *t);

	if (t == NULL)
		return NULL;
	t->dim = rope->dim;
	t->freq = malloc((rope->dim / 2 + 1) * sizeof *t->freq);
	t->table = malloc(CPU_TURNS * (rope->dim + 1) * sizeof *t->table);
	if (t->freq == NULL || t->table == NULL) {
		cpu_turns_free(t);
		return NULL;
	}
	memcpy(t->freq, rope->inv_freq, rope->dim / 2 * sizeof *t->freq);
	return t;
}

struct cpu_turns *
cpu_turns_of(struct kvk_dev *dev, const struct kvk_rope *rope)
{
	struct cpu_turns *t = dev->turns;

	if (t != NULL && t->dim == rope->dim && memcmp(t->freq, rope->inv_freq, rope->dim / 2 * sizeof *t->freq) == 0)
		return t;
	cpu_turns_free(t);
	if ((dev->turns = turns_new(rope)) == NULL)
		cpu_fail(dev, KVK_EMEM, "out of memory for the angles of %zu positions", (size_t)CPU_TURNS);
	return dev->turns;
}

/* The angle is formed in double: in single precision it is off by 1e-3 and more at position 20,000. */
const float *
cpu_turns_at(struct cpu_turns *t, size_t pos)
{
	const size_t slot = pos % CPU_TURNS, half = t->dim / 2;
	float *c = t->table + slot * t->dim;

	if (t->tag[slot] == pos + 1)
		return c;
	for (size_t i = 0; i < half; i++) {
		const double angle = (double)pos * (double)t->freq[i];

		c[i] = (float)cos(angle);
		c[half + i] = (float)sin(angle);
	}
	t->tag[slot] = pos + 1;
	return c;
}
