/* SPDX-License-Identifier: MIT
 * Meetings of the lanes of a warp.
 */
#include "block.h"

int
kv_shim_nothing(void *const *lanes, unsigned mask)
{
	(void)lanes;
	(void)mask;
	return -1;
}

/* All lanes of the mask are here: have they come for the same thing? */
static void
check_agreement(const struct thread *t, const struct thread *lanes)
{
	for (unsigned l = 0; l < LANES; l++) {
		const struct thread *o = &lanes[l];

		if (!(t->mask >> l & 1u))
			continue;
		if (o->mask != t->mask)
			fault(t, &t->at, "%s with mask %08x, while lane %u has mask %08x in %s at %s:%d", t->at.what,
			    t->mask, l, o->mask, o->at.what, o->at.file, o->at.line);
		if (o->compute != t->compute || o->at.line != t->at.line || o->at.file != t->at.file)
			fault(t, &t->at, "divergence: %s, while lane %u is in %s at %s:%d", t->at.what, l, o->at.what,
			    o->at.file, o->at.line);
	}
}

static void
check_mask(const struct thread *t, const struct warp *w)
{
	if (!(t->mask >> t->lane & 1u))
		fault(t, &t->at, "%s: mask %08x lacks the calling lane %u", t->at.what, t->mask, t->lane);
	if (t->mask & w->exited)
		fault(t, &t->at, "%s: mask %08x has lanes %08x that have returned", t->at.what, t->mask,
		    t->mask & w->exited);
}

static void
release(struct warp *w, struct thread *lanes, unsigned mask)
{
	const bool backwards = block.schedule.order == REVERSE;

	w->waiting &= ~mask;
	w->phase = !w->phase;
	for (unsigned i = 0; i < LANES; i++) {
		const unsigned l = backwards ? LANES - 1 - i : i;

		if (mask >> l & 1u)
			schedule_add(&block.schedule, lanes[l].id);
	}
}

void
kv_shim_meet(unsigned mask, kv_shim_compute *compute, void *mine, const char *what, const char *file, int line)
{
	struct thread *t = self();
	struct warp *w = &block.warps[t->warp];
	struct thread *lanes = &block.threads[t->warp * LANES];
	const unsigned phase = w->phase;

	t->at = { what, file, line };
	t->mask = mask;
	t->compute = compute;
	check_mask(t, w);
	w->brought[t->lane] = mine;
	w->waiting |= 1u << t->lane;
	if (compute == kv_shim_nothing)
		shim_release(&w->sync[phase]);
	if ((w->waiting & mask) == mask) {
		check_agreement(t, lanes);

		const int bad = compute(w->brought, mask);

		if (bad >= 0)
			fault(&lanes[bad], &lanes[bad].at, "%s: from a lane that is not in mask %08x", what, mask);
		release(w, lanes, mask);
	}
	give_way();
	if (compute == kv_shim_nothing)
		shim_acquire(&w->sync[phase]);
}

void
meet_exit(struct thread *t)
{
	struct warp *w = &block.warps[t->warp];

	w->exited |= 1u << t->lane;
	if (w->waiting == 0)
		return;
	for (unsigned l = 0; l < LANES; l++) {
		const struct thread *o = &block.threads[t->warp * LANES + l];

		if ((w->waiting >> l & 1u) && (o->mask >> t->lane & 1u))
			fault(o, &o->at, "%s: lane %u of mask %08x has returned", o->at.what, t->lane, o->mask);
	}
}
