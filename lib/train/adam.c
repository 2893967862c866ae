/* SPDX-License-Identifier: MIT */
#include "lib/train/adam.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

int
kv_adam_init(struct kv_adam *a, size_t n, struct kv_err *e)
{
	a->n = n;
	a->t = 0;
	a->m = kv_alloc(n, sizeof *a->m, e);
	a->v = kv_alloc(n, sizeof *a->v, e);
	return a->m != NULL && a->v != NULL ? KV_OK : KV_EMEM;
}

void
kv_adam_fini(struct kv_adam *a)
{
	free(a->m);
	free(a->v);
	a->m = a->v = NULL;
}

void
kv_adam_step(struct kv_adam *a, float *x, const float *gradient, double rate)
{
	const double t = (double)++a->t, m_scale = 1 / (1 - pow(a->beta1, t)), v_scale = 1 / (1 - pow(a->beta2, t));

	for (size_t i = 0; i < a->n; i++) {
		const double g = (double)gradient[i];
		const double m = a->beta1 * (double)a->m[i] + (1 - a->beta1) * g;
		const double v = a->beta2 * (double)a->v[i] + (1 - a->beta2) * g * g;

		a->m[i] = (float)m;
		a->v[i] = (float)v;
		x[i] = (float)((double)x[i] - rate * m * m_scale / (sqrt(v * v_scale) + a->eps));
	}
}

double
kv_gradient_clip(float *gradient, size_t n, double most)
{
	double sum = 0, norm;

	for (size_t i = 0; i < n; i++)
		sum += (double)gradient[i] * (double)gradient[i];
	norm = sqrt(sum);
	if (most > 0 && norm > most)
		for (size_t i = 0; i < n; i++)
			gradient[i] = (float)((double)gradient[i] * most / norm);
	return norm;
}

double
kv_schedule_rate(const struct kv_schedule *s, size_t step)
{
	const size_t rest = s->steps > s->warm_up ? s->steps - s->warm_up : 1;
	const double at = step > s->warm_up ? (double)(step - s->warm_up) / (double)rest : 0;
	double share = 1;

	if (step < s->warm_up)
		return s->rate * (double)(step + 1) / (double)(s->warm_up + 1);
	if (s->decay == KV_DECAY_COSINE)
		share = 0.5 * (1 + cos(at * acos(-1)));
	if (s->decay == KV_DECAY_LINEAR)
		share = 1 - at;
	return s->rate * (s->last + (1 - s->last) * share);
}
