/* SPDX-License-Identifier: MIT
 * alloc [-b ENTRIES] [--rounds N] - what an allocator's decision costs, without reading or writing anything.
 *
 * One layer at a time of SnapKV scores as they might be (a head's are exp() of normal numbers, of a width of its own),
 * in memory; the allocators take turns.  Prints TSV: method, heads, tokens, microseconds per layer: median, min, max,
 * and rounds.  Times are of kv_budget_layers(), what all allocators have in common included: `uniform` is that.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bin/common.h"
#include "lib/budget/budget.h"
#include "lib/clock.h"

static size_t entries = 128, rounds = 101;

static const struct kv_opt opts[] = {
	{ "entries", 'b', KV_SIZE, &entries, "ENTRIES", "to keep per head", 1, KV_COUNT_MAX, NULL },
	{ "rounds", 0, KV_SIZE, &rounds, "N", "of every method", 1, 100000, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "alloc",
	.usage = "[options]",
	.brief = "time the decisions of allocators",
	.opts = opts,
	.common = KV_COMMON_DEVICE,
};

static const char *const methods[] = { "uniform", "champion", "adakv" };
#define N_METHODS (sizeof methods / sizeof methods[0])

static const struct {
	size_t H, T;
} sizes[] = { { 3, 2048 }, { 3, 8192 }, { 8, 8192 }, { 8, 32768 } };
#define N_SIZES (sizeof sizes / sizeof sizes[0])

/* ---- scores */

static double
uniform_number(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* s [H][n]; each head sums to 1, as attention does. */
static void
fill(float *s, size_t H, size_t n)
{
	uint64_t state = 7;

	for (size_t h = 0; h < H; h++) {
		const double width = 1 + 2 * uniform_number(&state);
		double sum = 0;

		for (size_t i = 0; i < n; i++) {
			const double u = uniform_number(&state), v = uniform_number(&state);

			s[h * n + i] = (float)exp(width * sqrt(-2 * log(u)) * cos(2 * M_PI * v));
			sum += (double)s[h * n + i];
		}
		for (size_t i = 0; i < n; i++)
			s[h * n + i] = (float)((double)s[h * n + i] / sum);
	}
}

static int
put_score(struct kv_step *step, size_t H, size_t T, struct kv_err *e)
{
	const struct kv_score_attrs a = {
		.method = "snapkv",
		.pool = KVK_POOL_MAX,
		.pool_width = 7,
		.protect = { .n_recent = 32, .recent_share = -1 },
		.n_tokens = T,
	};
	const size_t shape[] = { H, T - a.protect.n_recent };
	struct kv_tensor t;
	int rc = kv_tensor_new(&t, "score", 0, KVK_F32, "kv_head token", shape, e);

	if (rc < 0)
		return rc;
	fill(t.owned, H, shape[1]);
	if ((t.attrs = json_object()) == NULL)
		rc = kv_no_memory(e, sizeof t);
	else if ((rc = kv_score_attrs_to_json(&a, t.attrs, e)) == KV_OK)
		rc = kv_step_put(step, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

/* ---- times */

static int
allot(const struct kv_layer *l, const char *method, double *us, struct kv_err *e)
{
	struct kv_params p;
	struct kv_budgeting x = { .p = &p, .grant = { .entries = entries } };
	double from;
	int rc;

	kv_params_init(&p, &kv_budget_find(method)->about);
	from = kv_seconds();
	rc = kv_budget_layers(&x, l, 1, e);
	*us = 1e6 * (kv_seconds() - from);
	return rc;
}

static int
rising(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* us [N_METHODS][rounds] */
static void
print_times(size_t H, size_t T, double *us)
{
	for (size_t m = 0; m < N_METHODS; m++) {
		double *x = us + m * rounds;

		qsort(x, rounds, sizeof *x, rising);
		printf("%s\t%zu\t%zu\t%.1f\t%.1f\t%.1f\t%zu\n", methods[m], H, T,
		    (x[(rounds - 1) / 2] + x[rounds / 2]) / 2, x[0], x[rounds - 1], rounds);
	}
}

static int
time_layer(struct kv_device *d, size_t H, size_t T, double *us, struct kv_err *e)
{
	const struct kv_config cfg = { .L = 1, .Hq = H, .Hkv = H, .D = 64, .d = 64 * H };
	const struct kv_sequence seq = { .T = T, .n_tokens = T };
	struct kv_step step = { .seq = &seq };
	const struct kv_layer l = { .device = d, .cfg = &cfg, .step = &step, .T = T };
	int rc = put_score(&step, H, T, e);
	double first;

	for (size_t m = 0; m < N_METHODS && rc == KV_OK; m++)
		rc = allot(&l, methods[m], &first, e);
	for (size_t i = 0; i < rounds && rc == KV_OK; i++)
		for (size_t m = 0; m < N_METHODS && rc == KV_OK; m++) {
			kv_step_remove(&step, "budget");
			rc = allot(&l, methods[m], &us[m * rounds + i], e);
		}
	if (rc == KV_OK)
		print_times(H, T, us);
	kv_step_clear(&step);
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_device d;
	struct kv_err e = { 0 };
	double *us;
	int rc = KV_OK;

	kv_options(argc, argv, &tool);
	kv_device_plan(&d, kv_common.device, kv_common.threads);
	if ((us = kv_alloc(N_METHODS * rounds, sizeof *us, &e)) == NULL)
		return kv_report(KV_EMEM, &e);
	printf("method\theads\ttokens\tmedian_us\tmin_us\tmax_us\trounds\n");
	for (size_t i = 0; i < N_SIZES && rc == KV_OK; i++)
		rc = time_layer(&d, sizes[i].H, sizes[i].T, us, &e);
	free(us);
	kv_close_device(&d);
	return kv_report(rc, &e);
}
