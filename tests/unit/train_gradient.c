/* SPDX-License-Identifier: MIT
 * The training's scores and gradients against a naive forward pass in double precision and its central differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/loss.h"
#include "lib/train/student.h"
#include "tests/lib/kernels.h"
#include "tests/lib/naive_student.h"
#include "tests/lib/rig.h"

#define STEP  1e-4 /* of the differences, double precision */
#define PER   5    /* numbers tried per layer and kind */
#define CLOSE 1e-5 /* relative, in the norm over the numbers of a kind */

/* Biases, norms of queries and keys, interleaved pairs, shared and single heads, sizes that are no whole vectors. */
static const struct tiny_spec specs[] = {
	{ .arch = "qwen2", .L = 3, .Hq = 4, .Hkv = 2, .D = 10, .d = 24, .ff = 36, .vocab = 60, .seed = 1 },
	{ .arch = "qwen3", .L = 2, .Hq = 6, .Hkv = 2, .D = 16, .d = 20, .ff = 28, .vocab = 60, .seed = 2 },
	{ .arch = "llama",
	    .L = 2,
	    .Hq = 2,
	    .Hkv = 2,
	    .D = 8,
	    .d = 16,
	    .ff = 24,
	    .vocab = 60,
	    .interleaved = true,
	    .seed = 3 },
	{ .arch = "llama", .L = 1, .Hq = 3, .Hkv = 1, .D = 8, .d = 16, .ff = 24, .vocab = 60, .seed = 4 },
};
#define N_SPECS (sizeof specs / sizeof *specs)

/* A model, a module and a prompt. */
struct bench {
	struct rig r;
	struct kv_lookahead *m;
	struct kv_student *s;
	size_t T, floats; /* floats of all scores */
	float *k, *v, *truth, *score, *gradient;
	const void *k_of[8], *v_of[8];
	struct kv_seen seen;
};

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

static void
open_bench(
    struct bench *b, const struct tiny_spec *spec, const struct kv_lookahead_shape *shape, size_t T, unsigned threads)
{
	const size_t per = spec->Hkv * T * spec->D;
	struct kv_err e = { 0 };
	float *numbers;

	*b = (struct bench){ .T = T, .floats = spec->L * spec->Hq * T };
	rig_open(&b->r, spec, threads);
	must(kv_lookahead_new(&b->m, &b->r.m.cfg, shape, &e), &e);
	numbers = test_floats(b->m->n_parameters, 0.35f, 9);
	memcpy(b->m->parameters, numbers, b->m->n_parameters * sizeof *numbers);
	free(numbers);
	must(kv_student_new(&b->s, b->r.x, &b->r.d, shape, &e), &e);
	must(kv_student_set(b->s, b->m, &e), &e);
	b->k = test_floats(spec->L * per, 1, 5);
	b->v = test_floats(spec->L * per, 1, 6);
	b->truth = test_floats(b->floats, 0.5f, 7);
	for (size_t i = 0; i < b->floats; i++)
		b->truth[i] = i % 5 == 0 ? 0 : b->truth[i] + 0.5f;
	b->score = test_floats(b->floats, 0, 0);
	b->gradient = test_floats(b->m->n_parameters, 0, 0);
	for (size_t l = 0; l < spec->L; l++) {
		b->k_of[l] = b->k + l * per;
		b->v_of[l] = b->v + l * per;
	}
	b->seen = (struct kv_seen){ .T = T, .type = KVK_F32, .k = b->k_of, .v = b->v_of };
}

static void
close_bench(struct bench *b)
{
	free(b->gradient);
	free(b->score);
	free(b->truth);
	free(b->v);
	free(b->k);
	kv_student_free(b->s);
	kv_lookahead_free(b->m);
	rig_close(&b->r);
}

/* Forth and back once; the loss. */
static double
gradient_of(struct bench *b)
{
	float *dscore = test_floats(b->floats, 0, 0);
	struct kv_err e = { 0 };
	double loss;

	must(kv_student_forward(b->s, &b->seen, b->score, &e), &e);
	loss = kv_loss(b->truth, b->score, b->floats / b->T, b->T, 1, dscore);
	must(kv_student_backward(b->s, &b->seen, dscore, &e), &e);
	must(kv_student_gradient(b->s, b->gradient, &e), &e);
	free(dscore);
	return loss;
}

static double *
doubles(const float *x, size_t n)
{
	double *y = test_alloc(n, sizeof *y);

	for (size_t i = 0; i < n; i++)
		y[i] = (double)x[i];
	return y;
}

/* Sums of squares of the differences' gradient and of what the student's is off, over numbers first .. first + n - 1.
 */
struct sums {
	double square, off;
};

static void
compare(
    const struct bench *b, const struct naive_student *n, double *theta, size_t first, size_t count, struct sums *to)
{
	for (size_t i = 0; i < PER && i < count; i++) {
		size_t at = first + (count <= PER ? i : (i * 7919 + 13) % count);
		double was = theta[at], up, down, want;

		theta[at] = was + STEP;
		up = naive_student_loss(n, theta, NULL);
		theta[at] = was - STEP;
		down = naive_student_loss(n, theta, NULL);
		theta[at] = was;
		want = (up - down) / (2 * STEP);
		to->square += want * want;
		to->off += (want - (double)b->gradient[at]) * (want - (double)b->gradient[at]);
	}
}

static void
expect_close(const struct sums *s, const char *model, const char *what)
{
	double off = sqrt(s->off / s->square);

	print_message("%s %s: %.1e of %.1e\n", model, what, off, sqrt(s->square));
	assert_true(s->square > 1e-12);
	assert_true(off < CLOSE);
}

static void
every_gradient_is_the_differences(void **state)
{
	static const struct kv_lookahead_shape shape = { .n = 5, .rank = 3, .alpha = 7, .targets = KV_LOOKAHEAD_ALL };
	static const char *const names[KV_N_ROLES] = { [KV_Q] = "q",
		[KV_K] = "k",
		[KV_V] = "v",
		[KV_O] = "o",
		[KV_GATE] = "gate",
		[KV_UP] = "up",
		[KV_DOWN] = "down" };

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		struct naive_student n;
		struct bench b;
		double *theta, loss;
		struct sums p = { 0 };

		open_bench(&b, &specs[i], &shape, 19, 2);
		loss = gradient_of(&b);
		n = (struct naive_student){ &b.r.m, b.m, b.T, b.k, b.v, b.truth };
		theta = doubles(b.m->parameters, b.m->n_parameters);
		assert_true(fabs(naive_student_loss(&n, theta, NULL) - loss) < 1e-5 * loss);
		compare(&b, &n, theta, 0, shape.n * specs[i].d, &p);
		expect_close(&p, specs[i].arch, "P");
		for (size_t role = 0; role < KV_N_ROLES; role++) {
			struct sums of[2] = { 0 };

			for (size_t l = 0; l < specs[i].L; l++) {
				const struct kv_adapter *a = kv_lookahead_adapter(b.m, l, role);

				if (a == NULL)
					continue;
				compare(&b, &n, theta, (size_t)(a->a - b.m->parameters), shape.rank * a->in, &of[0]);
				compare(&b, &n, theta, (size_t)(a->b - b.m->parameters), shape.rank * a->out, &of[1]);
			}
			if (names[role] == NULL || (specs[i].L == 1 && role != KV_Q && role != KV_K))
				continue;
			print_message("%s ", names[role]);
			expect_close(&of[0], specs[i].arch, "A");
			print_message("%s ", names[role]);
			expect_close(&of[1], specs[i].arch, "B");
		}
		free(theta);
		close_bench(&b);
	}
}

static void
scores_are_the_naive_ones(void **state)
{
	static const size_t lengths[] = { 1, 7, 95, 96, 97, 200 };
	static const struct kv_lookahead_shape shape = { .n = 9, .rank = 2, .alpha = 3, .targets = KV_LOOKAHEAD_QKV };

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct naive_student n;
		struct bench b;
		double *theta, *want;
		struct kv_err e = { 0 };

		open_bench(&b, &specs[i % N_SPECS], &shape, lengths[i], 2);
		must(kv_student_forward(b.s, &b.seen, b.score, &e), &e);
		n = (struct naive_student){ &b.r.m, b.m, b.T, b.k, b.v, b.truth };
		theta = doubles(b.m->parameters, b.m->n_parameters);
		want = test_alloc(b.floats, sizeof *want);
		naive_student_loss(&n, theta, want);
		test_near("scores", b.score, want, b.floats, 1e-7, 2e-5);
		free(want);
		free(theta);
		close_bench(&b);
	}
}

/* What kv-score truth computes from a prefill with the response behind it. */
static void
truth_is_the_response_s_attention(void **state)
{
	static const struct kv_lookahead_shape shape = { .n = 4 };
	const size_t T = 70, n = 13;

	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		const struct tiny_spec *s = &specs[i];
		const size_t per = s->Hkv * T * s->D;
		struct rig_prompt p;
		struct kv_err e = { 0 };
		struct bench b;
		float *want;

		open_bench(&b, s, &shape, T, 2);
		rig_prefill_behind(&b.r, &p, T, n, 3);
		for (size_t l = 0; l < s->L; l++) {
			b.k_of[l] = p.k + l * per;
			b.v_of[l] = p.v + l * per;
		}
		must(kv_student_truth(b.s, &b.seen, p.tokens + T, n, b.score, &e), &e);
		want = test_alloc(s->Hq * T, sizeof *want);
		for (size_t l = 0; l < s->L; l++) {
			int32_t at[13];
			const struct kvk_scores job = { .q = p.q_behind + l * s->Hq * n * s->D,
				.q_type = KVK_F32,
				.q_pos = at,
				.n_q = n,
				.Hq = s->Hq,
				.Hkv = s->Hkv,
				.D = s->D,
				.k = p.k + l * per,
				.k_type = KVK_F32,
				.T = T,
				.k_behind = p.k_behind + l * s->Hkv * n * s->D,
				.n_behind = n,
				.scale = b.r.m.cfg.scale,
				.rows = KVK_MEAN,
				.n = T };

			for (size_t j = 0; j < n; j++)
				at[j] = (int32_t)(T + j);
			assert_int_equal(b.r.d.op->scores(b.r.d.dev, &job, want), 0);
			for (size_t j = 0; j < s->Hq * T; j++)
				assert_true(fabs((double)want[j] - (double)b.score[l * s->Hq * T + j]) <
					    1e-6 + 1e-4 * (double)want[j]);
		}
		free(want);
		rig_prompt_fini(&p);
		close_bench(&b);
	}
}

/* rank 0, targets none and alpha 0: P alone learns, and A and B have no gradient. */
static void
modules_without_adapters_work(void **state)
{
	static const struct kv_lookahead_shape shapes[] = {
		{ .n = 3, .rank = 0, .alpha = 32, .targets = KV_LOOKAHEAD_ALL },
		{ .n = 3, .rank = 4, .alpha = 32, .targets = KV_LOOKAHEAD_NONE },
		{ .n = 3, .rank = 4, .alpha = 0, .targets = KV_LOOKAHEAD_ALL },
	};
	float *first = NULL;
	size_t floats = 3 * specs[0].d;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct bench b;

		open_bench(&b, &specs[0], &shapes[i], 21, 1);
		gradient_of(&b);
		if (first == NULL) {
			first = test_alloc(floats, sizeof *first);
			memcpy(first, b.gradient, floats * sizeof *first);
		}
		test_same("P without adapters", b.gradient, first, floats);
		for (size_t j = floats; j < b.m->n_parameters; j++)
			assert_true(b.gradient[j] == 0);
		close_bench(&b);
	}
	free(first);
}

static void
threads_do_not_show(void **state)
{
	static const struct kv_lookahead_shape shape = { .n = 33, .rank = 8, .alpha = 32, .targets = KV_LOOKAHEAD_ALL };
	float *first = NULL;

	(void)state;
	for (unsigned threads = 1; threads <= 3; threads++) {
		struct bench b;

		open_bench(&b, &specs[0], &shape, 131, threads);
		gradient_of(&b);
		if (first == NULL) {
			first = test_alloc(b.m->n_parameters, sizeof *first);
			memcpy(first, b.gradient, b.m->n_parameters * sizeof *first);
		}
		test_same("gradient", b.gradient, first, b.m->n_parameters);
		gradient_of(&b); /* and nothing is left over from the first time */
		test_same("gradient again", b.gradient, first, b.m->n_parameters);
		close_bench(&b);
	}
	free(first);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_gradient_is_the_differences),
		cmocka_unit_test(scores_are_the_naive_ones),
		cmocka_unit_test(truth_is_the_response_s_attention),
		cmocka_unit_test(modules_without_adapters_work),
		cmocka_unit_test(threads_do_not_show),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
