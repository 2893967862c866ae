/* SPDX-License-Identifier: MIT
 * The queue of cp.async of a thread.
 */
#include "block.h"

#include <stdlib.h>

static struct kv_shim_copy *
copy_at(struct thread *t, unsigned i)
{
	return &t->copies[(t->first_copy + i) & (t->max_copies - 1)];
}

static void
grow(struct thread *t)
{
	const unsigned n = t->max_copies == 0 ? 16 : t->max_copies * 2;
	struct kv_shim_copy *copies = (struct kv_shim_copy *)malloc(n * sizeof(*copies));

	if (copies == NULL)
		complain("no memory for %u asynchronous copies", n);
	for (unsigned i = 0; i < t->n_copies; i++)
		copies[i] = *copy_at(t, i);
	free(t->copies);
	t->copies = copies;
	t->first_copy = 0;
	t->max_copies = n;
}

void
kv_shim_copy_add(void *to, const void *from, int bytes)
{
	struct thread *t = self();

	if (t->n_copies == t->max_copies)
		grow(t);
	*copy_at(t, t->n_copies++) = { to, from, bytes, t->group };
}

void
kv_shim_copy_commit(void)
{
	self()->group++;
}

bool
kv_shim_copy_take(struct kv_shim_copy *copy, int pending)
{
	struct thread *t = self();

	/* Groups 0 .. group-1 are committed, the last `pending` of them may be on their way; so may what is not
	 * committed. */
	if (t->n_copies == 0 || copy_at(t, 0)->group + (unsigned)pending >= t->group)
		return false;
	*copy = *copy_at(t, 0);
	t->first_copy++;
	t->n_copies--;
	return true;
}
