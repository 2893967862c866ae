/* SPDX-License-Identifier: MIT
 * random: a number from 0 to 1 for every slot, exact in f32 (METHODS 2.11).  Any method should do better. */
#include "lib/hash.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_seed, "0" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const uint64_t seed = kv_seed(p, &kv_param_seed);

	(void)e;
	for (size_t h = 0; h < out->H; h++)
		for (size_t j = 0; j < out->n; j++)
			out->s[h * out->n + j] = (float)(kv_hash_slot(seed, (uint64_t)l->layer, h, j) >> 40) * 0x1p-24f;
	return KV_OK;
}

const struct kv_score_method kv_score_random = {
	.about = {
	    .name = "random",
	    .brief = "a random number for every token of every head",
	    .takes = takes,
	},
	.run = run,
};
