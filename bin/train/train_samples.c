/* SPDX-License-Identifier: MIT
 * Samples of a training: read, shared out, prepared. */
#include "bin/train/train.h"

#include <math.h>
#include <stdlib.h>

#include "formats/sample_lines.h"
#include "lib/train/order.h"

static const struct kv_train_options *const o = &kv_train;

/* Which lessons are held out: those of the other file, or the first ones of an order of their own. */
static int
divide(struct kv_train_run *r, size_t learnt, struct kv_err *e)
{
	const size_t all = kv_lessons_count(r->lessons);
	const size_t share = (size_t)round((double)learnt * o->held_out_share);
	size_t *order = kv_alloc(all, sizeof *order, e);

	r->of[0] = kv_alloc(all, sizeof *order, e);
	r->of[1] = kv_alloc(all, sizeof *order, e);
	if (order == NULL || r->of[0] == NULL || r->of[1] == NULL) {
		free(order);
		return KV_EMEM;
	}
	kv_order(kv_common.seed, KV_ORDER_HELD_OUT, order, learnt);
	for (size_t i = 0; i < all; i++) {
		const bool out = i >= learnt || order[i] < share;

		r->of[out][r->n[out]++] = i;
	}
	free(order);
	return KV_OK;
}

int
kv_train_read(struct kv_train_run *r, struct kv_err *e)
{
	struct kv_sample_lines s = {
		.model = &r->model,
		.field = o->field,
		.id_field = o->id_field,
		.response_field = o->response_field,
		.chat = o->chat,
		.template = r->chat,
		.system = o->system,
		.flags = (o->no_bos ? 0 : KV_ENCODE_BOS) | (o->special ? KV_ENCODE_SPECIAL : 0),
		.max_prompt = o->max_prompt,
		.max_response = o->max_response,
		.cut = o->cut,
	};
	size_t learnt;
	int rc = KV_OK;

	for (size_t i = 0; r->files[i] != NULL && rc == KV_OK; i++)
		rc = kv_sample_lines_read(&s, r->files[i], r->lessons, e);
	learnt = rc == KV_OK ? kv_lessons_count(r->lessons) : 0;
	if (rc == KV_OK && o->held_out != NULL)
		rc = kv_sample_lines_read(&s, o->held_out, r->lessons, e);
	if (rc == KV_OK)
		rc = divide(r, learnt, e);
	if (s.n_left_out > 0)
		kv_warn("%zu prompts are longer than %zu tokens and left out (--max-prompt, --cut)", s.n_left_out,
		    s.max_prompt);
	if (s.n_cut > 0)
		kv_warn("%zu prompts were cut to %zu tokens", s.n_cut, s.max_prompt);
	kv_sample_lines_fini(&s);
	return rc;
}

/* Every sample is in the folder then; those without a response are dropped. */
int
kv_train_prepare(struct kv_train_run *r, struct kv_err *e)
{
	const size_t all = kv_lessons_count(r->lessons);
	size_t done = 0;

	for (int out = 0; out < 2; out++) {
		size_t kept = 0;

		for (size_t i = 0; i < r->n[out]; i++, done++) {
			struct kv_lesson_state s = { .usable = true };
			int rc;

			if (kv_train_time_is_up(r))
				return kv_fail(e, KV_EFAIL,
				    "the time is up after %zu of %zu samples were prepared: run it again to go on",
				    done, all);
			if (done % r->shards != r->shard)
				continue;
			if ((rc = kv_lessons_prepare(r->lessons, r->of[out][i], &s, e)) < 0)
				return rc;
			r->bytes += s.bytes;
			r->empty += !s.usable;
			if (s.usable)
				r->of[out][kept++] = r->of[out][i];
			kv_progress("samples prepared", done + 1, all);
		}
		r->n[out] = kept;
	}
	if (r->empty > 0)
		kv_warn("%zu samples have an empty response and are left out", r->empty);
	return KV_OK;
}
