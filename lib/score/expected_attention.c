/* SPDX-License-Identifier: MIT
 * expected-attention: what the next tokens will attend to, if their queries are drawn like the prompt's (METHODS 2.12,
 * arXiv:2510.00636).  The queries, turned back to where no position has rotated them, are taken as normally
 * distributed; mean and covariance are turned to the average of the coming positions; the expectation of exp(q.k)
 * follows in closed form.  Double precision up to the softmax: scores differ by the exponential of what is summed
 * up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/score/score.h"

static const struct kv_param future = {
	.name = "future", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .min = 1, .max = 1 << 20,
	.help = "how many coming positions the rotation is averaged over",
};
static const struct kv_param covariance = {
	.name = "covariance", .kind = KV_PARAM_CHOICE, .arg = "WHETHER", .choices = "on|off",
	.help = "use the covariance of the queries, or their mean alone",
};
static const struct kv_param value_norm = {
	.name = "value-norm", .kind = KV_PARAM_CHOICE, .arg = "WHETHER", .choices = "on|off",
	.help = "multiply by the norm of the value",
};
static const struct kv_param epsilon = {
	.name = "epsilon", .kind = KV_PARAM_NUMBER, .arg = "X", .min = 0, .max = 1e9,
	.help = "added to the attention before the norm of the value multiplies it",
};

static const struct kv_takes takes[] = {
	{ &future, "512" },
	{ &covariance, "on" },
	{ &value_norm, "on" },
	{ &epsilon, "0" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "4" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

/* A layer on its way; first: the columns before it, the sinks, are left out everywhere. */
struct expected {
	const struct kv_config *c;
	const struct kv_tensor *q, *k;
	size_t T, first, n;
	float *rows;       /* [Hq][n][D] queries without rotation */
	double *mean, *cov; /* [Hq][D], [Hq][D][D] */
	double *z;         /* [Hq][T] */
};

static void
expected_fini(struct expected *x)
{
	free(x->z);
	free(x->cov);
	free(x->mean);
	free(x->rows);
}

static int
expected_init(struct expected *x, const struct kv_layer *l, const struct kv_params *p, struct kv_err *e)
{
	const size_t sink = kv_count(p, &kv_param_sink);
	int rc;

	x->c = l->cfg;
	x->q = kv_step_find(l->step, "q");
	x->k = kv_step_find(l->step, "k");
	x->T = l->T;
	x->first = sink < l->T ? sink : l->T;
	x->n = l->T - x->first;
	if (x->c->inv_freq == NULL || x->c->rope_dim == 0 || x->c->rope_dim > x->c->D)
		return kv_fail(e, KV_ESHAPE, "%s needs the model's rotary frequencies, which the stream's header lacks",
		    p->method->name);
	if ((rc = kv_queries_match(x->q, l->T, l->T, kv_queries_of(KV_ALL), NULL, e)) < 0)
		return rc;
	if ((x->rows = kv_alloc_unset(x->c->Hq * x->n * x->c->D, sizeof *x->rows, e)) == NULL ||
	    (x->mean = kv_alloc(x->c->Hq * x->c->D, sizeof *x->mean, e)) == NULL ||
	    (x->cov = kv_alloc_unset(x->c->Hq * x->c->D * x->c->D, sizeof *x->cov, e)) == NULL ||
	    (x->z = kv_alloc(x->c->Hq * x->T, sizeof *x->z, e)) == NULL)
		return KV_EMEM;
	return KV_OK;
}

/* ---- rotation: pair i is elements i and half + i */

/* The angles of position p are those of its multiple of STEP and of the rest together: few sines instead of one per
 * position. */
#define STEP 64

struct turns {
	size_t half;
	double *c, *s;   /* [STEP][half] of positions 0 .. STEP - 1 */
	double *cs, *ss; /* [half] of the current multiple */
};

static int
turns_init(struct turns *t, const struct kv_config *c, struct kv_err *e)
{
	const size_t n = c->rope_dim / 2;

	*t = (struct turns){ .half = n };
	if ((t->c = kv_alloc(2 * (STEP + 1) * n, sizeof *t->c, e)) == NULL)
		return KV_EMEM;
	t->s = t->c + STEP * n;
	t->cs = t->s + STEP * n;
	t->ss = t->cs + n;
	for (size_t p = 0; p < STEP; p++)
		for (size_t i = 0; i < n; i++)
			sincos((double)p * (double)c->inv_freq[i], &t->s[p * n + i], &t->c[p * n + i]);
	return KV_OK;
}

static void
turns_step(struct turns *t, const struct kv_config *c, size_t p)
{
	for (size_t i = 0; i < t->half; i++)
		sincos((double)(p / STEP * STEP) * (double)c->inv_freq[i], &t->ss[i], &t->cs[i]);
}

/* One row at position p, of the current multiple. */
static void
row_back(const struct turns *t, size_t p, float *row)
{
	const double *c = t->c + p % STEP * t->half, *s = t->s + p % STEP * t->half;

	for (size_t i = 0; i < t->half; i++) {
		const double cosine = t->cs[i] * c[i] - t->ss[i] * s[i], sine = t->ss[i] * c[i] + t->cs[i] * s[i];
		const double a = (double)row[i], b = (double)row[t->half + i];

		row[i] = (float)(a * cosine + b * sine);
		row[t->half + i] = (float)(b * cosine - a * sine);
	}
}

/* rows [Hq][n][D]: row j of a head stands at position first + j and is turned back by it. */
static int
turn_back(struct expected *x, const struct kv_layer *l, struct kv_err *e)
{
	const size_t D = x->c->D;
	struct turns t;
	float *q;
	int rc = kv_score_floats(l, x->q, &q, e);

	if (rc < 0)
		return rc;
	for (size_t h = 0; h < x->c->Hq; h++)
		memcpy(x->rows + h * x->n * D, q + ((h + 1) * x->q->shape[1] - x->n) * D, x->n * D * sizeof *q);
	free(q);
	if ((rc = turns_init(&t, x->c, e)) < 0)
		return rc;
	for (size_t p = x->first; p < x->T; p++) {
		if (p == x->first || p % STEP == 0)
			turns_step(&t, x->c, p);
		for (size_t h = 0; h < x->c->Hq; h++)
			row_back(&t, p, x->rows + (h * x->n + p - x->first) * D);
	}
	free(t.c);
	return KV_OK;
}

/* The mean of the rotations to positions T .. T + n - 1: pair i becomes (c a - s b, s a + c b). */
static void
average_turn(const struct expected *x, size_t n, double *c, double *s)
{
	for (size_t i = 0; i < x->c->rope_dim / 2; i++) {
		c[i] = s[i] = 0;
		for (size_t p = x->T; p < x->T + n; p++) {
			c[i] += cos((double)p * (double)x->c->inv_freq[i]) / (double)n;
			s[i] += sin((double)p * (double)x->c->inv_freq[i]) / (double)n;
		}
	}
}

/* v: a vector whose elements are `step` apart. */
static void
turn(const struct expected *x, const double *c, const double *s, double *v, size_t step)
{
	const size_t half = x->c->rope_dim / 2;

	for (size_t i = 0; i < half; i++) {
		const double a = v[i * step], b = v[(half + i) * step];

		v[i * step] = c[i] * a - s[i] * b;
		v[(half + i) * step] = s[i] * a + c[i] * b;
	}
}

/* mean becomes scale R mean, cov scale^2/2 R cov R^T: the coefficients of the exponent. */
static int
turn_ahead(struct expected *x, const struct kv_params *p, struct kv_err *e)
{
	const size_t D = x->c->D, half = x->c->rope_dim / 2;
	const double scale = (double)x->c->scale, weight = kv_is(p, &covariance, "on") ? scale * scale / 2 : 0;
	double *c = kv_alloc(2 * half, sizeof *c, e), *s = c + half;

	if (c == NULL)
		return KV_EMEM;
	average_turn(x, kv_count(p, &future), c, s);
	for (size_t h = 0; h < x->c->Hq; h++) {
		double *mean = x->mean + h * D, *cov = x->cov + h * D * D;

		turn(x, c, s, mean, 1);
		for (size_t i = 0; i < D; i++)
			turn(x, c, s, cov + i * D, 1);
		for (size_t i = 0; i < D; i++)
			turn(x, c, s, cov + i, D);
		for (size_t i = 0; i < D; i++)
			mean[i] *= scale;
		for (size_t i = 0; i < D * D; i++)
			cov[i] *= weight;
	}
	free(c);
	return KV_OK;
}

/* ---- the device's part */

static int
fit(struct expected *x, const struct kv_device *d, struct kv_err *e)
{
	const size_t Hq = x->c->Hq, D = x->c->D;
	const float *rows = NULL;
	double *mean, *cov = NULL;
	int rc = KV_EMEM;

	if ((mean = kv_device_alloc(d, Hq * D, sizeof *mean, e)) == NULL ||
	    (cov = kv_device_alloc(d, Hq * D * D, sizeof *cov, e)) == NULL ||
	    (rows = kv_device_view(d, x->rows, Hq * x->n * D * sizeof *rows, e)) == NULL)
		goto done;
	rc = kv_device_check(d, d->op->row_moments(d->dev, rows, Hq, x->n, D, mean, cov), "row_moments", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, x->mean, mean, Hq * D * sizeof *mean, "row_moments", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, x->cov, cov, Hq * D * D * sizeof *cov, "row_moments", e);
done:
	kv_device_unview(d, rows);
	kv_device_free(d, cov);
	kv_device_free(d, mean);
	return rc;
}

static int
exponents(struct expected *x, const struct kv_device *d, struct kv_err *e)
{
	const size_t Hq = x->c->Hq, D = x->c->D;
	struct kvk_forms job = { .k_type = x->k->type, .Hq = Hq, .Hkv = x->c->Hkv, .T = x->T, .D = D };
	double *z;
	int rc = KV_EMEM;

	if ((z = kv_device_alloc(d, Hq * x->T, sizeof *z, e)) == NULL ||
	    (job.k = kv_device_view_tensor(d, x->k, e)) == NULL ||
	    (job.b = kv_device_view(d, x->mean, Hq * D * sizeof *x->mean, e)) == NULL ||
	    (job.a = kv_device_view(d, x->cov, Hq * D * D * sizeof *x->cov, e)) == NULL)
		goto done;
	rc = kv_device_check(d, d->op->forms(d->dev, &job, z), "forms", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, x->z, z, Hq * x->T * sizeof *z, "forms", e);
done:
	kv_device_unview(d, job.a);
	kv_device_unview(d, job.b);
	kv_device_unview_tensor(d, x->k, job.k);
	kv_device_free(d, z);
	return rc;
}

/* ---- scores */

/* z [n] becomes its softmax. */
static void
softmax(double *z, size_t n)
{
	double top = -INFINITY, sum = 0;

	for (size_t j = 0; j < n; j++)
		top = fmax(top, z[j]);
	for (size_t j = 0; j < n; j++)
		sum += z[j] = exp(z[j] - top);
	for (size_t j = 0; j < n; j++)
		z[j] /= sum;
}

/* Of query heads h .. h + G - 1. */
static double
reduced(const struct expected *x, enum kvk_reduce how, size_t h, size_t G, size_t j)
{
	double y = x->z[h * x->T + j];

	for (size_t g = 1; g < G; g++) {
		const double v = x->z[(h + g) * x->T + j];

		y = how == KVK_MAX ? fmax(y, v) : y + v;
	}
	return how == KVK_MEAN ? y / (double)G : y;
}

static int
finish(const struct expected *x, const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out,
    struct kv_err *e)
{
	const size_t D = x->c->D, G = x->c->Hq / out->H, share = out->H / x->c->Hkv;
	const bool norms = kv_is(p, &value_norm, "on");
	const double eps = kv_number(p, &epsilon);
	float *v;
	int rc = kv_score_floats(l, kv_step_find(l->step, "v"), &v, e);

	if (rc < 0)
		return rc;
	for (size_t h = 0; h < x->c->Hq; h++)
		softmax(x->z + h * x->T + x->first, x->n);
	for (size_t h = 0; h < out->H; h++)
		for (size_t j = x->first; j < x->T; j++) {
			const float *value = v + (h / share * x->T + j) * D;
			double s = reduced(x, kv_reduce(p, &kv_param_gqa), h * G, G, j);

			if (norms)
				s = (s + eps) * sqrt(kv_dot(value, value, D));
			out->s[h * out->n + j] = (float)s;
		}
	free(v);
	return KV_OK;
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	struct expected x = { 0 };
	int rc;

	if ((rc = kv_device_ready(l->device, "row_moments forms", e)) < 0 ||
	    (rc = expected_init(&x, l, p, e)) < 0 || (rc = turn_back(&x, l, e)) < 0 ||
	    (rc = fit(&x, l->device, e)) < 0 || (rc = turn_ahead(&x, p, e)) < 0 ||
	    (rc = exponents(&x, l->device, e)) < 0)
		goto done;
	rc = finish(&x, l, p, out, e);
done:
	expected_fini(&x);
	return rc;
}

const struct kv_score_method kv_score_expected_attention = {
	.about = {
	    .name = "expected-attention",
	    .brief = "attention that coming queries will pay, drawn like the prompt's, times the norm of the value",
	    .paper = "arXiv:2510.00636",
	    .takes = takes,
	},
	.needs = "k,v,q",
	.queries = kv_queries_all,
	.run = run,
};
