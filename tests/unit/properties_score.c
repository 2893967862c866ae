/* SPDX-License-Identifier: MIT
 * What holds for every scoring method in the table: early queries see no later key, one layer and prompts of any length
 * work, and scores of any size keep their order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

enum { HQ = 4, HKV = 2, D = 8, BEHIND = 3, T_MAX = 64 };

/* All that a method may ask for: queries of all tokens, values, a response, earlier scores. */
struct prompt {
	float q[HQ][T_MAX][D], k[HKV][T_MAX][D], v[HKV][T_MAX][D]; /* [T] rows of each head are used, close together */
	float q_behind[HQ][BEHIND][D], k_behind[HKV][BEHIND][D], score[HKV][T_MAX];
	struct score_layer x;
};

static uint64_t seed;

/* -1 .. 1 */
static float
draw(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void
fill(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = draw();
}

static void
prompt_init(struct prompt *p)
{
	seed = 1;
	fill(&p->q[0][0][0], sizeof p->q / sizeof(float));
	fill(&p->k[0][0][0], sizeof p->k / sizeof(float));
	fill(&p->v[0][0][0], sizeof p->v / sizeof(float));
	fill(&p->q_behind[0][0][0], sizeof p->q_behind / sizeof(float));
	fill(&p->k_behind[0][0][0], sizeof p->k_behind / sizeof(float));
	fill(&p->score[0][0], sizeof p->score / sizeof(float));
}

/* Scores of the first T tokens; the values are copied: *n columns of HKV heads. */
static float *
run(struct prompt *p, const struct kv_score_method *m, size_t T, const char *window, size_t *n)
{
	const size_t score[] = { HKV, T }, v[] = { HKV, T, D };
	const struct kv_score_attrs a = { .method = "test", .pool_width = 1, .protect = { 0, 0, -1 }, .n_tokens = T };
	json_t *attrs = json_object();
	const struct kv_tensor *s;
	struct kv_params params;
	struct kv_err e = { 0 };
	float *copy;

	kv_params_init(&params, &m->about);
	if (window != NULL && kv_params_set(&params, "window", window, &e) < 0)
		fail_msg("%s", e.text);
	score_layer_init(&p->x, &score_device, HQ, HKV, T, D, 1, &p->q[0][0][0], T, &p->k[0][0][0]);
	score_response(&p->x, &p->q_behind[0][0][0], &p->k_behind[0][0][0], BEHIND);
	score_behind(&p->x, "lookahead", &p->q_behind[0][0][0], &p->k_behind[0][0][0], BEHIND);
	score_layer_put(&p->x, "v", KVK_F32, "kv_head token dim", v, &p->v[0][0][0], NULL);
	assert_int_equal(kv_score_attrs_to_json(&a, attrs, &e), KV_OK);
	score_layer_put(&p->x, "score", KVK_F32, "kv_head token", score, &p->score[0][0], attrs);
	score_rotary(&p->x, 10000);
	s = score_run(&p->x, &params);
	*n = s->shape[1];
	assert_true(s->shape[0] == HKV && *n <= T);
	copy = malloc(s->bytes + 1);
	assert_non_null(copy);
	if (s->bytes > 0)
		memcpy(copy, s->data, s->bytes);
	score_layer_fini(&p->x);
	return copy;
}

static bool
takes_window(const struct kv_score_method *m)
{
	struct kv_params p;

	kv_params_init(&p, &m->about);
	return kv_params_given(&p, "window");
}

/* The queries of the T tokens, element 0: `early` before the position j, -1 from there on and behind the prompt. */
static void
point(struct prompt *p, size_t T, size_t j, float early)
{
	float *q = &p->q[0][0][0];

	for (size_t h = 0; h < HQ; h++) {
		for (size_t i = 0; i < T; i++)
			q[(h * T + i) * D] = i < j ? early : -1;
		for (size_t i = 0; i < BEHIND; i++)
			p->q_behind[h][i][0] = -1;
	}
}

/* Is this method's subject where its queries point, whoever could see what?  Its model of coming queries is made of
 * those of all tokens alike, see METHODS 2.12. */
static bool
looks_everywhere(const struct kv_score_method *m)
{
	return strcmp(m->about.name, "expected-attention") == 0;
}

/* A key that attracts whoever stands before it and repels everyone else gets nothing, and changes nothing elsewhere. */
static void
no_future_of(const struct kv_score_method *m, size_t T, size_t j, const char *window)
{
	const bool attention = m->needs != NULL && strchr(m->needs, 'q') != NULL;
	struct prompt *p = calloc(1, sizeof *p);
	float *k, *drawn, *repelled;
	size_t n, again;

	assert_non_null(p);
	prompt_init(p);
	k = &p->k[0][0][0];
	for (size_t h = 0; h < HKV; h++) {
		for (size_t t = 0; t < T; t++)
			k[(h * T + t) * D] = t == j ? 300 : 0;
		for (size_t t = 0; t < BEHIND; t++)
			p->k_behind[h][t][0] = 0;
	}
	point(p, T, j, 1);
	drawn = run(p, m, T, window, &n);
	point(p, T, j, -1);
	repelled = run(p, m, T, window, &again);
	assert_int_equal(n, again);
	if (!looks_everywhere(m) && memcmp(drawn, repelled, HKV * n * sizeof *drawn) != 0)
		fail_msg("%s: %zu tokens, a key at %zu changes scores", m->about.name, T, j);
	for (size_t h = 0; h < HKV && attention && !looks_everywhere(m) && j < n; h++)
		if (drawn[h * n + j] != 0)
			fail_msg("%s: %zu tokens, the key at %zu has %g", m->about.name, T, j, (double)drawn[h * n + j]);
	free(repelled);
	free(drawn);
	free(p);
}

static void
no_future(void **state)
{
	(void)state;
	for (const struct kv_score_method *const *m = kv_score_list; *m != NULL; m++)
		for (size_t i = 0; i < 3; i++) {
			no_future_of(*m, T_MAX, (const size_t[]){ 5, T_MAX - 20, T_MAX - 2 }[i], NULL);
			if (takes_window(*m)) {
				no_future_of(*m, T_MAX, (const size_t[]){ 5, T_MAX - 9, T_MAX - 2 }[i], "8");
				no_future_of(*m, T_MAX, T_MAX - 9, "1");
			}
		}
}

/* The same test finds a method that looks ahead: the negative control. */
static int
leaky(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const float *q = kv_step_find(l->step, "q")->data, *k = kv_step_find(l->step, "k")->data;

	(void)p;
	(void)e;
	for (size_t h = 0; h < out->H; h++)
		for (size_t j = 0; j < out->n; j++)
			out->s[h * out->n + j] = (float)kv_dot(q, k + (h * l->T + j) * D, D);
	return KV_OK;
}

static void
control(void **state)
{
	const struct kv_score_method m = { .about = { .name = "leaky", .brief = "" }, .run = leaky };
	struct prompt *p = calloc(1, sizeof *p);
	float *a, *b;
	size_t n;

	(void)state;
	assert_non_null(p);
	prompt_init(p);
	(&p->k[0][0][0])[40 * D] = 300;
	point(p, T_MAX, 40, 1);
	a = run(p, &m, T_MAX, NULL, &n);
	point(p, T_MAX, 40, -1);
	b = run(p, &m, T_MAX, NULL, &n);
	assert_true(a[40] > 200 && b[40] < -200);
	free(b);
	free(a);
	free(p);
}

/* Prompts of 1 token and more, in the only layer there is: as many columns as the method says, and numbers in them. */
static void
any_length(void **state)
{
	static const size_t length[] = { 1, 2, 3, 4, 5, 31, 32, 33, 34 };
	struct prompt *p = calloc(1, sizeof *p);

	(void)state;
	assert_non_null(p);
	prompt_init(p);
	for (const struct kv_score_method *const *m = kv_score_list; *m != NULL; m++)
		for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
			struct kv_params params;
			size_t n;
			float *s = run(p, *m, length[i], NULL, &n);

			kv_params_init(&params, &(*m)->about);
			if ((*m)->columns != NULL)
				assert_int_equal(n, (*m)->columns(&params, length[i]));
			for (size_t j = 0; j < HKV * n; j++)
				if (!isfinite(s[j]) || (s[j] == 0 && signbit(s[j])))
					fail_msg("%s: %zu tokens, score %zu is %g", (*m)->about.name, length[i], j, (double)s[j]);
			free(s);
		}
	free(p);
}

/* ---- the order of many small scores */

enum { MANY = 32768, WINDOW = 32, SMALL_D = 4 };

struct pair {
	double exact;
	float ours;
};

static int
by_exact(const void *a, const void *b)
{
	const double x = ((const struct pair *)a)->exact, y = ((const struct pair *)b)->exact;

	return x < y ? -1 : x > y;
}

/* Pairs of x [n] in the wrong order, by merging; ties count as wrong.  room [n]. */
static double
wrong_pairs(float *x, float *room, size_t n)
{
	const size_t half = n / 2;
	double wrong = 0;

	if (n < 2)
		return 0;
	wrong = wrong_pairs(x, room, half) + wrong_pairs(x + half, room, n - half);
	for (size_t i = 0, j = half, to = 0; to < n; to++)
		if (j == n || (i < half && x[i] < x[j])) {
			room[to] = x[i++];
		} else {
			wrong += (double)(half - i);
			room[to] = x[j++];
		}
	memcpy(x, room, n * sizeof *x);
	return wrong;
}

/* The mean over the last `rows` queries of softmax(q.k), in double precision: keys 0 .. MANY - 1. */
static void
reference(const float *q, const float *k, size_t rows, struct pair *to)
{
	const size_t T = MANY + WINDOW;
	double *e = malloc(T * sizeof *e);

	assert_non_null(e);
	for (size_t i = 0; i < rows; i++) {
		const size_t at = WINDOW - rows + i, seen = MANY + at + 1;
		double sum = 0;

		for (size_t j = 0; j < seen; j++) {
			double z = 0;

			for (size_t d = 0; d < SMALL_D; d++)
				z += (double)q[at * SMALL_D + d] * (double)k[j * SMALL_D + d];
			sum += e[j] = exp(z);
		}
		for (size_t j = 0; j < MANY; j++)
			to[j].exact += e[j] / sum / (double)rows;
	}
	free(e);
}

/* Keys whose attention is spread evenly by magnitude over 1e-9 .. 1e-5; what is missing to 1 is the first window
 * key's. */
static void
small_keys(float *q, float *k)
{
	seed = 2;
	for (size_t i = 0; i < WINDOW * SMALL_D; i++)
		q[i] = i % SMALL_D == 0 ? 1 : 0.01f * draw();
	for (size_t j = 0; j < MANY + WINDOW; j++) {
		fill(k + j * SMALL_D, SMALL_D);
		k[j * SMALL_D] = j < MANY ? logf(1e-7f) + logf(100) * draw() : j == MANY ? logf(0.96f) : -30;
	}
}

static void
tau_of(const char *method, const float *q, const float *k, size_t rows)
{
	struct pair *pair = calloc(MANY, sizeof *pair);
	float *x = malloc(2 * MANY * sizeof *x);
	const struct kv_tensor *s;
	struct score_layer layer;
	struct kv_params p;
	double tau;

	assert_true(pair != NULL && x != NULL);
	score_params(&p, method, NULL);
	score_layer_init(&layer, &score_device, 1, 1, MANY + WINDOW, SMALL_D, 1, q, WINDOW, k);
	s = score_run(&layer, &p);
	reference(q, k, rows, pair);
	for (size_t j = 0; j < MANY; j++)
		pair[j].ours = ((const float *)s->data)[j];
	qsort(pair, MANY, sizeof *pair, by_exact);
	assert_true(pair[0].exact < 2e-9 && pair[MANY - 1].exact > 5e-6 && pair[MANY - 1].exact < 2e-5);
	for (size_t j = 0; j < MANY; j++)
		x[j] = pair[j].ours;
	tau = 1 - 4 * wrong_pairs(x, x + MANY, MANY) / ((double)MANY * (MANY - 1));
	if (!(tau > 0.999))
		fail_msg("%s: Kendall's tau is %.6f", method, tau);
	score_layer_fini(&layer);
	free(x);
	free(pair);
}

static void
small_scores(void **state)
{
	float *q = malloc(WINDOW * SMALL_D * sizeof *q), *k = malloc((MANY + WINDOW) * SMALL_D * sizeof *k);

	(void)state;
	assert_true(q != NULL && k != NULL);
	small_keys(q, k);
	tau_of("snapkv", q, k, WINDOW);
	tau_of("tova", q, k, 1);
	free(k);
	free(q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_future),
		cmocka_unit_test(control),
		cmocka_unit_test(any_length),
		cmocka_unit_test(small_scores),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
