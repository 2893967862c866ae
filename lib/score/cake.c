/* SPDX-License-Identifier: MIT
 * cake: mean attention of the last W prompt tokens plus gamma times its variance over them (METHODS 2.13,
 * arXiv:2503.12491).  The original pools per query head before the mean over a group; averages commute, so the raw
 * score here is the group's and names the pooling.  `preference` = entropy^(1/tau1) * variance^(1/tau2) of the whole
 * layer is what the allocator of the same name spends by. */
#include <math.h>
#include <stdlib.h>

#include "lib/attention.h"
#include "lib/buf.h"
#include "lib/score/score.h"

static const struct kv_param variance_weight = { .name = "gamma", .kind = KV_PARAM_NUMBER, .arg = "X", .max = 1e9,
	.help = "weight of the variance" };
static const struct kv_param tau1 = { .name = "tau1", .kind = KV_PARAM_NUMBER, .arg = "X", .min = 0.01, .max = 100,
	.help = "a layer's entropy counts to the power 1/X" };
static const struct kv_param tau2 = { .name = "tau2", .kind = KV_PARAM_NUMBER, .arg = "X", .min = 0.01, .max = 100,
	.help = "a layer's variance counts to the power 1/X" };

static const struct kv_takes takes[] = {
	{ &kv_param_window, "32" },
	{ &variance_weight, "200" },
	{ &tau1, "1" },
	{ &tau2, "1" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "avg" },
	{ &kv_param_pool_width, "5" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "window" },
	{ 0 },
};

/* Over all query heads and columns.  variance [H][n]: means over groups of Hq/H heads; room [n]: scratch. */
static int
preference(const struct kv_layer *l, const struct kv_params *p, const struct kv_raw *out, const float *variance,
    float *room, double *to, struct kv_err *e)
{
	const struct kv_attention a = { .window = kv_window(p), .rows = KVK_ENTROPY, .heads = KVK_SUM };
	double entropy = 0, sum = 0;
	int rc = kv_attention(l, p->method->name, &a, 1, out->n, room, e);

	if (rc < 0)
		return rc;
	for (size_t j = 0; j < out->n; j++)
		entropy += (double)room[j];
	for (size_t i = 0; i < out->H * out->n; i++)
		sum += (double)variance[i];
	sum *= (double)(l->cfg->Hq / out->H);
	*to = pow(fmax(entropy, 0), 1 / kv_number(p, &tau1)) * pow(sum, 1 / kv_number(p, &tau2));
	if (!isfinite(*to))
		*to = 0; /* of scores that are not numbers: such a layer is not preferred */
	return KV_OK;
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = { .window = kv_window(p), .rows = KVK_VAR, .heads = KVK_MEAN, .mean = out->s };
	const float weight = (float)kv_number(p, &variance_weight);
	double layer = 0;
	float *v, *room = NULL;
	int rc = KV_EMEM;

	if ((v = kv_alloc(out->H * out->n, sizeof *v, e)) == NULL ||
	    (room = kv_alloc(out->n, sizeof *room, e)) == NULL)
		goto done;
	if ((rc = kv_attention(l, p->method->name, &a, out->H, out->n, v, e)) < 0 ||
	    (rc = preference(l, p, out, v, room, &layer, e)) < 0)
		goto done;
	for (size_t i = 0; i < out->H * out->n; i++)
		out->s[i] += weight * v[i];
	json_object_set_new(out->attrs, "preference", json_real(layer));
done:
	free(room);
	free(v);
	return rc;
}

const struct kv_score_method kv_score_cake = {
	.about = {
	    .name = "cake",
	    .brief = "attention of the last W prompt tokens, mean plus variance",
	    .paper = "arXiv:2503.12491",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = kv_queries_window,
	.columns = kv_columns_history,
	.run = run,
};
