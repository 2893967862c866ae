/* SPDX-License-Identifier: MIT
 * The table of quantities. */
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/stat/families.h"

/* name, unit, brief; of two streams; finest; of a layer, of a sequence; how */
const struct kv_stat kv_stat_list[] = {
	{ "budget", "entries", "entries kept per head", false, KV_STAT_HEAD, KV_STAT_MEAN, KV_STAT_MEAN,
	    kv_measure_entries },
	{ "entries", "entries", "entries kept, all heads and layers together", false, KV_STAT_HEAD, KV_STAT_SUM,
	    KV_STAT_SUM, kv_measure_entries },
	{ "bytes", "bytes", "of the keys and values kept", false, KV_STAT_HEAD, KV_STAT_SUM, KV_STAT_SUM,
	    kv_measure_bytes },
	{ "compression", "share", "entries kept of those of the whole prompt", false, KV_STAT_HEAD, KV_STAT_RATIO,
	    KV_STAT_RATIO, kv_measure_compression },
	{ "retained", "share", "raw scores that the kept entries have", false, KV_STAT_HEAD, KV_STAT_RATIO,
	    KV_STAT_MEAN, kv_measure_retained },
	{ "retained-bound", "share", "the most that as many entries of the layer could have", false, KV_STAT_LAYER,
	    KV_STAT_RATIO, KV_STAT_MEAN, kv_measure_bound },
	{ "score-max", "score", "a head's largest raw score", false, KV_STAT_HEAD, KV_STAT_MEAN, KV_STAT_MEAN,
	    kv_measure_max },
	{ "score-std", "score", "standard deviation of a head's raw scores", false, KV_STAT_HEAD, KV_STAT_MEAN,
	    KV_STAT_MEAN, kv_measure_std },
	{ "max-std-r", "-1..1", "correlation of score-max and score-std over layers and heads", false, KV_STAT_LAYER,
	    KV_STAT_PEARSON, KV_STAT_PEARSON, kv_measure_max_std },
	{ "max-std-slope", "ratio", "slope of score-std over score-max, through the origin", false, KV_STAT_LAYER,
	    KV_STAT_SLOPE, KV_STAT_SLOPE, kv_measure_max_std },
	{ "nll", "nats", "-ln p of a token of the response, its first included", false, KV_STAT_SEQUENCE, KV_STAT_MEAN,
	    KV_STAT_MEAN, kv_measure_nll },
	{ "overlap", "share", "entries that both keep, of what each keeps", true, KV_STAT_HEAD, KV_STAT_RATIO,
	    KV_STAT_MEAN, kv_measure_overlap },
	{ "budget-diff", "entries", "difference of a head's budgets, without sign", true, KV_STAT_HEAD, KV_STAT_MEAN,
	    KV_STAT_MEAN, kv_measure_budget_diff },
	{ "retained-by", "share", "raw scores of A that the entries kept by B have", true, KV_STAT_HEAD, KV_STAT_RATIO,
	    KV_STAT_MEAN, kv_measure_retained_by },
	{ "recall", "share", "the k best of A that are among the k best of B", true, KV_STAT_HEAD, KV_STAT_MEAN,
	    KV_STAT_MEAN, kv_measure_recall },
	{ "kendall", "-1..1", "Kendall's tau-b of the scores", true, KV_STAT_HEAD, KV_STAT_MEAN, KV_STAT_MEAN,
	    kv_measure_kendall },
	{ "pearson", "-1..1", "correlation of the scores", true, KV_STAT_HEAD, KV_STAT_MEAN, KV_STAT_MEAN,
	    kv_measure_pearson },
	{ "kl-scores", "nats", "KL divergence of B's raw scores from A's, each scaled to sum 1", true, KV_STAT_HEAD,
	    KV_STAT_MEAN, KV_STAT_MEAN, kv_measure_kl_scores },
	{ "kl-logits", "nats", "KL divergence of B's predictions from A's, per token but the first", true,
	    KV_STAT_SEQUENCE, KV_STAT_MEAN, KV_STAT_MEAN, kv_measure_kl_logits },
	{ "top1", "share", "tokens but the first where the likeliest is the same", true, KV_STAT_SEQUENCE, KV_STAT_MEAN,
	    KV_STAT_MEAN, kv_measure_top1 },
	{ "nll-diff", "nats", "-ln p in B minus that in A, per token but the first", true, KV_STAT_SEQUENCE,
	    KV_STAT_MEAN, KV_STAT_MEAN, kv_measure_nll_diff },
	{ 0 },
};

const struct kv_stat *
kv_stat_find(const char *name, size_t n)
{
	for (const struct kv_stat *q = kv_stat_list; q->name != NULL; q++)
		if (strlen(q->name) == n && memcmp(q->name, name, n) == 0)
			return q;
	return NULL;
}

int
kv_stat_cells_new(struct kv_stat_cells *c, size_t n, struct kv_err *e)
{
	free(c->cell);
	c->n = n;
	if ((c->cell = kv_alloc(n, sizeof *c->cell, e)) == NULL)
		c->n = 0;
	return c->cell != NULL ? KV_OK : KV_EMEM;
}
