/* SPDX-License-Identifier: MIT
 * fastgen: every head gets the smallest of five sets that holds enough of its attention (METHODS 3.8,
 * arXiv:2310.01801).
 * Only like FastGen, whose code was never published: attention is that of the observation window. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

static const struct kv_param mass = { .name = "mass", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "of a head's attention that its set must hold" };
static const struct kv_param sink = { .name = "sink", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX,
	.help = "first tokens, in every set" };
static const struct kv_param frequent = { .name = "frequent", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "of the prompt: the set of the best others" };
static const struct kv_param local = { .name = "local", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "of the prompt: the set of the last" };
static const struct kv_param special = { .name = "special", .kind = KV_PARAM_TEXT, .arg = "ID,...",
	.help = "token ids whose positions are in every set" };
static const struct kv_param punctuation = { .name = "punctuation", .kind = KV_PARAM_TEXT, .arg = "ID,...",
	.help = "token ids whose positions are in the second set" };
static const struct kv_takes takes[] = {
	{ &mass, "0.95" },
	{ &sink, "4" },
	{ &frequent, "0.3" },
	{ &local, "0.3" },
	{ &special, NULL },
	{ &punctuation, NULL },
	{ 0 },
};

enum policy { SPECIAL, PUNCTUATION, FREQUENT, LOCAL, FULL, N_POLICIES };

/* Does the list "13,198" have the id?  *end: where the list stops making sense. */
static bool
listed(const char *list, int32_t id, const char **end)
{
	bool found = false;

	for (*end = list; list != NULL && **end != 0;) {
		char *behind;
		long v;

		errno = 0;
		v = strtol(*end, &behind, 10);
		if (behind == *end || v < 0 || v > INT32_MAX || errno != 0 || (*behind != 0 && *behind != ','))
			return false;
		found = found || v == id;
		*end = behind + (*behind == ',' && behind[1] != 0);
	}
	return found;
}

static int
check(const struct kv_params *p, struct kv_err *e)
{
	const struct kv_param *const lists[] = { &special, &punctuation };
	const char *end;

	for (size_t i = 0; i < 2; i++) {
		listed(kv_text(p, lists[i]), 0, &end);
		if (end != NULL && *end != 0)
			return kv_fail(
			    e, KV_EARG, "--%s: expected token ids as 13,198, got '%.40s'", lists[i]->name, end);
	}
	return KV_OK;
}

static void
add_tokens(const struct kv_layer *at, const char *list, uint8_t *set)
{
	const struct kv_sequence *seq = at->step->seq;
	const char *end;

	for (size_t t = 0; list != NULL && t < at->T && t < seq->n_tokens; t++)
		if (listed(list, seq->tokens[t], &end))
			set[t] = 1;
}

/* set [T]: the policy's, for one head's attention s [T]. */
static int
make_set(const struct kv_budget_layer *l, const struct kv_params *p, enum policy policy, const double *s, uint8_t *set,
    struct kv_err *e)
{
	const size_t T = l->at->T, n = (size_t)ceil(kv_number(p, &frequent) * (double)T);
	size_t last = (size_t)(kv_number(p, &local) * (double)T);

	last = last > 0 ? last : 1;
	for (size_t t = 0; t < T; t++)
		set[t] = policy == FULL || t < kv_count(p, &sink) || (policy == LOCAL && t >= T - last);
	add_tokens(l->at, kv_text(p, &special), set);
	if (policy >= PUNCTUATION)
		add_tokens(l->at, kv_text(p, &punctuation), set);
	return policy == FREQUENT || policy == LOCAL ? kv_best(s, NULL, T, n, set, e) : KV_OK;
}

/* The first set with enough of s; returns its number, or a fault. */
static int
choose(const struct kv_budget_layer *l, const struct kv_params *p, const double *s, uint8_t *set, struct kv_err *e)
{
	for (int i = SPECIAL; i < FULL; i++) {
		double held = 0;
		int rc = make_set(l, p, (enum policy)i, s, set, e);

		if (rc < 0)
			return rc;
		for (size_t t = 0; t < l->at->T; t++)
			held += set[t] ? s[t] : 0;
		if (held >= kv_number(p, &mass))
			return i;
	}
	make_set(l, p, FULL, s, set, e);
	return FULL;
}

/* s [T] of one head; what is not a number is nothing.  Is it attention, all of it? */
static int
take_mass(const struct kv_budget_layer *l, size_t h, double *s, struct kv_err *e)
{
	const size_t T = l->at->T;
	const float *from = (const float *)l->scores->data + h * T;
	double sum = 0;

	if (l->scores->shape[1] == T)
		for (size_t t = 0; t < T; t++) {
			s[t] = isnan(from[t]) ? 0 : (double)from[t];
			sum += s[t] < 0 ? NAN : s[t];
		}
	if (!(fabs(sum - 1) < 1e-2 || sum == 0) || l->scores->shape[1] != T)
		return kv_fail(e, KV_ESHAPE, "fastgen wants the attention to all positions, which sums to 1 per head, "
		    "as kv-score nacl --rows mean --window 32 gives it");
	return KV_OK;
}

static int
fastgen(const struct kv_budget_layer *l, const struct kv_params *p, uint8_t *keep, size_t *B, struct kv_err *e)
{
	const size_t T = l->at->T;
	json_t *policies = json_array();
	double *s = kv_alloc(T, sizeof *s, e);
	int rc = s != NULL ? KV_OK : KV_EMEM;

	for (size_t h = 0; h < l->H && rc >= 0; h++) {
		if ((rc = take_mass(l, h, s, e)) < 0 || (rc = choose(l, p, s, keep + h * T, e)) < 0)
			break;
		json_array_append_new(policies, json_integer(rc));
		B[h] = 0;
		for (size_t t = 0; t < T; t++)
			B[h] += keep[h * T + t];
	}
	free(s);
	if (rc < 0)
		json_decref(policies);
	else if (json_object_set_new(l->attrs, "policies", policies) < 0)
		return kv_no_memory(e, T);
	return rc < 0 ? rc : KV_OK;
}

const struct kv_budget_method kv_budget_fastgen = {
	.about = {
	    .name = "fastgen",
	    .brief = "the smallest of five sets that holds enough of a head's attention",
	    .paper = "arXiv:2310.01801",
	    .takes = takes,
	    .check = check,
	},
	.needs = "score",
	.free_total = true,
	.sets = fastgen,
};
