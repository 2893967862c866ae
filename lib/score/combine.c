/* SPDX-License-Identifier: MIT
 * combine: one tensor from all those of the layer that are named score or score.* (METHODS 2.15).  Each is taken as it
 * ranks, pooled; what comes out is not pooled again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/rescale.h"
#include "lib/score/score.h"

#define INPUTS_MAX 32

static const struct kv_param how = {
	.name = "how",
	.kind = KV_PARAM_CHOICE,
	.arg = "HOW",
	.choices = "sum|max|rank",
	.help = "weighted sum, largest weighted score, or weighted mean of the ranks",
};
static const struct kv_param weights = {
	.name = "weights",
	.kind = KV_PARAM_TEXT,
	.arg = "A,B,...",
	.help = "one per score, in their order; else all 1",
};
static const struct kv_param normalize = {
	.name = "normalize",
	.kind = KV_PARAM_CHOICE,
	.arg = "WHAT",
	.choices = "none|sum|max|range",
	.help = "per head, first: divide by the sum or the largest, or bring to 0 .. 1",
};

static const struct kv_takes takes[] = {
	{ &how, "sum" },
	{ &weights, NULL },
	{ &normalize, "none" },
	{ &kv_param_sink, NULL },
	{ &kv_param_recent, NULL },
	{ 0 },
};

/* The scores of a layer. */
struct inputs {
	size_t n, H, columns;
	struct input {
		const struct kv_tensor *t;
		struct kv_score_attrs a;
		size_t columns;
		double weight;
	} of[INPUTS_MAX];
};

/* ---- weights */

/* The i-th number of the list, or 1 without a list.  Fails: KV_EARG, at a word that is no number. */
static int
weight_at(const char *list, size_t i, double *w, struct kv_err *e)
{
	const char *s = list;
	char *end;

	*w = 1;
	for (size_t at = 0; s != NULL; at++) {
		const double x = strtod(s, &end);

		if (end == s || !isfinite(x) || (*end != ',' && *end != '\0'))
			return kv_fail(
			    e, KV_EARG, "--weights: expected numbers with commas between them, got '%s'", list);
		if (at == i) {
			*w = x;
			return KV_OK;
		}
		s = *end == ',' ? end + 1 : NULL;
	}
	return KV_OK;
}

static size_t
n_weights(const char *list)
{
	size_t n = list != NULL;

	for (; list != NULL && *list != '\0'; list++)
		n += *list == ',';
	return n;
}

static int
check(const struct kv_params *p, struct kv_err *e)
{
	double w;

	if (kv_is(p, &how, "rank") && !kv_is(p, &normalize, "none"))
		return kv_fail(
		    e, KV_EARG, "--how rank and --normalize %s: ranks do not need it", kv_text(p, &normalize));
	return weight_at(kv_text(p, &weights), SIZE_MAX, &w, e);
}

/* ---- inputs */

static bool
is_score(const struct kv_tensor *t)
{
	return strcmp(t->name, "score") == 0 || strncmp(t->name, "score.", 6) == 0;
}

static int
add_input(struct inputs *in, const struct kv_layer *l, const struct kv_tensor *t, struct kv_err *e)
{
	struct input *x = &in->of[in->n];
	size_t H;
	int rc;

	if (in->n == INPUTS_MAX)
		return kv_fail(e, KV_ESHAPE, "combine takes at most %d scores", INPUTS_MAX);
	x->t = t;
	if ((rc = kv_score_read(t, l->cfg->Hkv, l->T, &x->a, &H, &x->columns, e)) < 0)
		return kv_where(e, "%s", t->name);
	if (in->n > 0 && H != in->H)
		return kv_fail(e, KV_ESHAPE, "%s has %zu heads, but %s has %zu: give all the same --granularity",
		    t->name, H, in->of[0].t->name, in->H);
	in->H = H;
	in->columns = in->n == 0 || x->columns < in->columns ? x->columns : in->columns;
	in->n++;
	return KV_OK;
}

static int
find_inputs(struct inputs *in, const struct kv_layer *l, const struct kv_params *p, struct kv_err *e)
{
	const char *list = kv_text(p, &weights);
	const struct kv_tensor *t;
	int rc;

	in->n = 0;
	for (size_t i = 0; (t = kv_step_at(l->step, i)) != NULL; i++)
		if (is_score(t) && (rc = add_input(in, l, t, e)) < 0)
			return rc;
	if (in->n == 0)
		return kv_fail(e, KV_ESHAPE,
		    "combine needs scores: put kv-score METHOD before it, and give further ones as FILE:score=score.b");
	if (list != NULL && n_weights(list) != in->n)
		return kv_fail(e, KV_EARG, "--weights %s: %zu weights for %zu scores", list, n_weights(list), in->n);
	for (size_t i = 0; i < in->n; i++)
		if ((rc = weight_at(list, i, &in->of[i].weight, e)) < 0)
			return rc;
	return KV_OK;
}

static int
size(const struct kv_layer *l, const struct kv_params *p, size_t *H, size_t *n, struct kv_err *e)
{
	struct inputs in;
	int rc = find_inputs(&in, l, p, e);

	if (rc == KV_OK) {
		*H = in.H;
		*n = in.columns;
	}
	return rc;
}

/* ---- numbers */

static int (*rescaling(const struct kv_params *p))(float *x, size_t n, struct kv_err *e)
{
	if (kv_is(p, &how, "rank"))
		return kv_rescale_rank;
	if (kv_is(p, &normalize, "sum"))
		return kv_rescale_sum;
	if (kv_is(p, &normalize, "max"))
		return kv_rescale_max;
	return kv_is(p, &normalize, "range") ? kv_rescale_range : NULL;
}

/* One input on top of what is there: y [n] in double precision, so that the order of terms is the only rounding. */
static void
mix(bool largest, bool first, double w, const float *x, size_t n, double *y)
{
	for (size_t i = 0; i < n; i++) {
		const double v = w == 0 ? 0 : w * (double)x[i];

		y[i] = first ? v : largest ? fmax(y[i], v) : y[i] + v;
	}
}

/* ---- protection: all that any of them protects */

static int
protection(const struct inputs *in, const struct kv_params *p, struct kv_protection *all, struct kv_err *e)
{
	*all = (struct kv_protection){ .recent_share = -1 };
	for (size_t i = 0; i < in->n; i++) {
		const struct kv_protection *x = &in->of[i].a.protect;

		all->n_sink = x->n_sink > all->n_sink ? x->n_sink : all->n_sink;
		if (x->recent_share >= 0)
			all->recent_share = fmax(all->recent_share, x->recent_share);
		else
			all->n_recent = x->n_recent > all->n_recent ? x->n_recent : all->n_recent;
	}
	if (kv_given(p, &kv_param_sink))
		all->n_sink = kv_count(p, &kv_param_sink);
	if (kv_given(p, &kv_param_recent)) {
		all->n_recent = kv_count(p, &kv_param_recent);
		all->recent_share = -1;
	}
	if (all->n_recent > (size_t)KV_COUNT_MAX)
		all->n_recent = (size_t)KV_COUNT_MAX;
	if (all->recent_share >= 0 && all->n_recent > 0)
		return kv_fail(e, KV_ESHAPE,
		    "one score protects a share of the budget, another a number of last tokens: give --recent TOKENS");
	return KV_OK;
}

static int
describe(const struct kv_params *p, const struct kv_layer *l, const struct inputs *in, json_t *attrs, struct kv_err *e)
{
	struct kv_score_attrs a = { .pool = KVK_POOL_NONE, .pool_width = 1, .n_tokens = l->T };
	json_t *of = json_array();
	int rc;

	for (size_t i = 0; i < in->n; i++)
		json_array_append_new(of, json_string(in->of[i].a.method));
	json_object_set_new(attrs, "of", of);
	snprintf(a.method, sizeof a.method, "%s", p->method->name);
	if ((rc = protection(in, p, &a.protect, e)) < 0)
		return rc;
	return kv_score_attrs_to_json(&a, attrs, e);
}

/* ---- the layer */

static int
mix_input(const struct kv_layer *l, const struct kv_params *p, const struct input *x, size_t H, size_t n, bool first,
    double *y, struct kv_err *e)
{
	int (*const rescale)(float *, size_t, struct kv_err *) = rescaling(p);
	float *s = kv_alloc(H * x->columns, sizeof *s, e);
	int rc = s == NULL ? KV_EMEM : kv_pooled(l->device, &x->a, x->t->data, H, x->columns, s, e);

	for (size_t h = 0; h < H && rc == KV_OK; h++) {
		float *row = s + h * x->columns;

		if (rescale != NULL)
			rc = rescale(row, n, e);
		mix(kv_is(p, &how, "max"), first, x->weight, row, n, y + h * n);
	}
	if (rc < 0)
		kv_where(e, "%s", x->t->name);
	free(s);
	return rc;
}

/* The inputs but `score`, which the result replaces, leave the step. */
static void
remove_others(const struct kv_layer *l)
{
	const struct kv_tensor *t;
	char name[KV_NAME_MAX];

	for (size_t i = 0; (t = kv_step_at(l->step, i)) != NULL;)
		if (is_score(t) && strcmp(t->name, "score") != 0) {
			snprintf(name, sizeof name, "%s", t->name);
			kv_step_remove(l->step, name);
		} else
			i++;
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const size_t H = out->H, n = out->n;
	double sum = 0, *y;
	struct inputs in;
	int rc;

	if ((rc = find_inputs(&in, l, p, e)) < 0)
		return rc;
	if ((y = kv_alloc(H * n, sizeof *y, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < in.n && rc == KV_OK; i++) {
		rc = mix_input(l, p, &in.of[i], H, n, i == 0, y, e);
		sum += in.of[i].weight;
	}
	for (size_t i = 0; i < H * n; i++)
		out->s[i] = (float)(kv_is(p, &how, "rank") && sum > 0 ? y[i] / sum : y[i]);
	if (rc == KV_OK && (rc = describe(p, l, &in, out->attrs, e)) == KV_OK)
		remove_others(l);
	free(y);
	return rc;
}

const struct kv_score_method kv_score_combine = {
	.about = {
	    .name = "combine",
	    .brief = "mixes the tensors score, score.* in the stream: sum, largest or ranks",
	    .takes = takes,
	    .check = check,
	},
	.looks = "score.*",
	.size = size,
	.run = run,
};
