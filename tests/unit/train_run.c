/* SPDX-License-Identifier: MIT
 * The run of a training: Adam, rates, order, recall, what a handful of samples comes to, and going on from a state. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/training_state.h"
#include "lib/train/order.h"
#include "lib/train/teacher.h"
#include "lib/train/training.h"
#include "tests/lib/kernels.h"
#include "tests/lib/rig.h"
#include "tests/lib/streams.h"

static void
adam_by_hand(void **state)
{
	struct kv_adam a = { .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8 };
	float x[2] = { 1, -2 };
	const float g[2][2] = { { 0.5f, -4 }, { -1, 0 } };
	struct kv_err e = { 0 };

	(void)state;
	must(kv_adam_init(&a, 2, &e), &e);
	kv_adam_step(&a, x, g[0], 0.1);
	/* the first step goes by the rate, whatever the gradient's size */
	assert_true(fabs((double)x[0] - 0.9) < 1e-6 && fabs((double)x[1] + 1.9) < 1e-6);
	kv_adam_step(&a, x, g[1], 0.1);
	/* m = 0.9 0.05 - 0.1 = -0.055, v = 0.99 0.0025 + 0.01 = 0.012475; over 0.19 and 0.0199 */
	assert_true(fabs((double)x[0] - (0.9 + 0.1 * (0.055 / 0.19) / sqrt(0.012475 / 0.0199))) < 1e-6);
	/* m = -0.36, v = 0.1584 */
	assert_true(fabs((double)x[1] - (-1.9 + 0.1 * (0.36 / 0.19) / sqrt(0.1584 / 0.0199))) < 1e-6);
	kv_adam_fini(&a);
}

static void
rates_climb_and_fall(void **state)
{
	struct kv_schedule s = { .rate = 2, .last = 0.1, .warm_up = 3, .steps = 13 };

	(void)state;
	assert_true(fabs(kv_schedule_rate(&s, 0) - 0.5) < 1e-12);
	assert_true(fabs(kv_schedule_rate(&s, 2) - 1.5) < 1e-12);
	assert_true(fabs(kv_schedule_rate(&s, 3) - 2) < 1e-12);
	assert_true(fabs(kv_schedule_rate(&s, 8) - 2 * (0.1 + 0.9 * 0.5)) < 1e-12);
	s.decay = KV_DECAY_LINEAR;
	assert_true(fabs(kv_schedule_rate(&s, 5) - 2 * (0.1 + 0.9 * 0.8)) < 1e-12);
	s.decay = KV_DECAY_NONE;
	assert_true(kv_schedule_rate(&s, 12) == 2);
	s = (struct kv_schedule){ .rate = 1, .warm_up = 0, .steps = 1 };
	assert_true(kv_schedule_rate(&s, 0) == 1);
}

static void
gradients_are_clipped(void **state)
{
	float g[2] = { 3, -4 };

	(void)state;
	assert_true(kv_gradient_clip(g, 2, 0) == 5 && g[0] == 3);
	assert_true(kv_gradient_clip(g, 2, 10) == 5 && g[0] == 3);
	assert_true(kv_gradient_clip(g, 2, 2.5) == 5);
	assert_true(fabs((double)g[0] - 1.5) < 1e-7 && fabs((double)g[1] + 2) < 1e-7);
}

static void
every_epoch_sees_every_sample(void **state)
{
	size_t a[50], b[50], seen[50] = { 0 }, same = 0;

	(void)state;
	kv_order(1, 0, a, 50);
	kv_order(1, 1, b, 50);
	for (size_t i = 0; i < 50; i++) {
		seen[a[i]]++;
		same += a[i] == b[i];
	}
	for (size_t i = 0; i < 50; i++)
		assert_int_equal(seen[i], 1);
	assert_true(same < 10);
	kv_order(1, 0, b, 50);
	assert_memory_equal(a, b, sizeof a);
	kv_order(1, 0, a, 0);
}

static void
recall_counts_what_is_common(void **state)
{
	/* two heads; ties go to the lower position */
	static const float truth[2][5] = { { 5, 4, 3, 2, 1 }, { 1, 1, 1, 1, 1 } };
	static const float score[2][5] = { { 1, 4, 5, 2, 3 }, { 0, 0, 0, 0, 9 } };
	static const size_t ks[] = { 1, 2, 3, 5, 100 };
	double recall[5] = { 0 };
	struct kv_device d;
	struct kv_err e = { 0 };

	(void)state;
	must(kv_device_open(&d, "cpu", 1, &e), &e);
	must(kv_recall(&d, *truth, *score, 2, 5, ks, 5, recall, &e), &e);
	assert_true(fabs(recall[0] - 0) < 1e-12);
	assert_true(fabs(recall[1] - (0.5 + 0.5) / 2) < 1e-12);
	assert_true(fabs(recall[2] - (2.0 / 3 + 2.0 / 3) / 2) < 1e-12);
	assert_true(recall[3] == 1 && recall[4] == 1);
	kv_device_close(&d);
}

/* ---- a training in memory */

#define SAMPLES 4

struct school {
	struct rig r;
	struct kv_student *s;
	struct kv_lookahead *m;
	struct kv_lesson lesson[SAMPLES];
	const void *of[SAMPLES][8];
	struct kv_training t;
	struct kv_training_calls calls;
	struct kv_training_plan plan;
	double loss;      /* of the last step */
	size_t stop_at;   /* steps; 0: never */
	const char *path; /* of the state; NULL: none is saved */
	json_t *recipe;
};

static int
get(void *ctx, bool held_out, size_t i, struct kv_sample_view *v, struct kv_err *e)
{
	struct school *x = ctx;

	(void)held_out;
	(void)e;
	v->seen = (struct kv_seen){ x->lesson[i].T, KVK_F16, x->of[i], x->of[i] + x->r.m.cfg.L };
	v->truth = x->lesson[i].truth;
	return KV_OK;
}

static int
stepped(void *ctx, const struct kv_training_step *s, struct kv_err *e)
{
	struct school *x = ctx;

	(void)e;
	x->loss = s->loss;
	return KV_OK;
}

static int
measured(void *ctx, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e)
{
	(void)ctx;
	(void)e;
	assert_true(f->loss >= t->best_loss && f->recall[0] >= 0 && f->recall[0] <= 1);
	return KV_OK;
}

static int
save(void *ctx, const struct kv_training *t, struct kv_err *e)
{
	struct school *x = ctx;

	return x->path != NULL ? kv_training_save(t, x->path, x->recipe, e) : KV_OK;
}

static bool
stop(void *ctx)
{
	struct school *x = ctx;

	return x->stop_at > 0 && x->t.step >= x->stop_at;
}

static void
open_school(struct school *x, size_t steps)
{
	static const struct tiny_spec spec = { .arch = "llama",
		.L = 2,
		.Hq = 4,
		.Hkv = 2,
		.D = 16,
		.d = 48,
		.ff = 64,
		.vocab = 90,
		.tied = true,
		.seed = 11 };
	static const struct kv_lookahead_shape shape = { .n = 8, .rank = 8, .alpha = 32, .targets = KV_LOOKAHEAD_ALL };
	struct kv_err e = { 0 };
	int32_t tokens[60];

	*x = (struct school){ .recipe = json_pack("{s:i s:f}", "steps", (int)steps, "rate", 0.1) };
	rig_open(&x->r, &spec, 2);
	must(kv_student_new(&x->s, x->r.x, &x->r.d, &shape, &e), &e);
	for (size_t i = 0; i < SAMPLES; i++) {
		const size_t T = 30 + 7 * i, layer = spec.Hkv * T * spec.D;
		const struct kv_teach how = { .tokens = tokens, .T = T, .generate = 12, .truth = true };

		rig_tokens(&x->r, tokens, T, i);
		must(kv_teach(x->r.x, x->s, &how, &x->lesson[i], &e), &e);
		assert_int_equal(x->lesson[i].response.n, 12);
		for (size_t l = 0; l < spec.L; l++) {
			x->of[i][l] = x->lesson[i].k + l * layer;
			x->of[i][spec.L + l] = x->lesson[i].v + l * layer;
		}
	}
	must(kv_lookahead_new(&x->m, &x->r.m.cfg, &shape, &e), &e);
	kv_lookahead_init(x->m, 5, 0.3);
	x->plan = (struct kv_training_plan){ .batch = 2,
		.clip = 1,
		.seed = 3,
		.measure_every = 10,
		.save_every = 4,
		.schedule = { .rate = 0.01, .warm_up = 5, .steps = steps },
		.ks = { 8 },
		.n_k = 1 };
	x->calls = (struct kv_training_calls){ x, SAMPLES, 1, get, stepped, measured, save, stop };
	x->t = (struct kv_training){
		.plan = &x->plan, .calls = &x->calls, .student = x->s, .device = &x->r.d, .module = x->m
	};
	must(kv_training_init(&x->t, &e), &e);
	x->t.adam.beta1 = 0.9;
	x->t.adam.beta2 = 0.99;
	x->t.adam.eps = 1e-8;
}

static void
close_school(struct school *x)
{
	kv_training_fini(&x->t);
	kv_lookahead_free(x->m);
	for (size_t i = 0; i < SAMPLES; i++)
		kv_lesson_fini(&x->lesson[i]);
	kv_student_free(x->s);
	rig_close(&x->r);
	json_decref(x->recipe);
}

static void
a_handful_of_samples_is_learnt_by_heart(void **state)
{
	struct kv_training_figures f;
	struct kv_err e = { 0 };
	struct school x;
	double before;

	(void)state;
	open_school(&x, 250);
	must(kv_training_measure(&x.t, &f, &e), &e);
	before = f.loss;
	must(kv_training_run(&x.t, &e), &e);
	print_message("loss %.4f before, %.4f after, held out %.4f\n", before, x.loss, x.t.best_loss);
	assert_true(x.loss < 0.02 && x.t.best_loss < 0.02 && before > 5 * x.loss);
	assert_true(x.t.ended && x.t.step == 250);
	close_school(&x);
}

static void
a_run_goes_on_from_its_state(void **state)
{
	const char *path = scratch("state");
	struct kv_err e = { 0 };
	struct school whole, x;

	(void)state;
	open_school(&whole, 24);
	must(kv_training_run(&whole.t, &e), &e);
	for (size_t at = 1; at < 24; at += 5) {
		open_school(&x, 24);
		x.stop_at = at;
		x.path = path;
		must(kv_training_run(&x.t, &e), &e);
		assert_false(x.t.ended);
		close_school(&x);
		open_school(&x, 24);
		x.path = path;
		must(kv_training_load(&x.t, path, x.recipe, &e), &e);
		assert_int_equal(x.t.step, at);
		must(kv_training_run(&x.t, &e), &e);
		assert_int_equal(x.t.best_step, whole.t.best_step);
		assert_true(x.t.best_loss == whole.t.best_loss);
		test_same("parameters", x.m->parameters, whole.m->parameters, x.m->n_parameters);
		test_same("best", x.t.best, whole.t.best, x.m->n_parameters);
		close_school(&x);
	}
	close_school(&whole);
}

static void
a_state_that_does_not_fit_is_refused(void **state)
{
	const char *path = scratch("state");
	struct kv_err e = { 0 };
	struct kv_buf bytes;
	struct school x;
	size_t header;

	(void)state;
	open_school(&x, 4);
	x.path = path;
	assert_int_equal(kv_training_load(&x.t, scratch("none"), x.recipe, &e), KV_EIO);
	must(kv_training_run(&x.t, &e), &e);
	json_object_set_new(x.recipe, "rate", json_real(0.2));
	assert_int_equal(kv_training_load(&x.t, path, x.recipe, &e), KV_EARG);
	expect_text(&e, "'rate' differs");
	json_object_set_new(x.recipe, "rate", json_real(0.1));
	bytes = scratch_read(path);
	header = 8 + (unsigned char)bytes.data[0] + ((size_t)(unsigned char)bytes.data[1] << 8);
	for (size_t at = 0; at < bytes.n; at += at < header ? 1 : 997) { /* cut at any place, or one bit wrong */
		scratch_write(path, bytes.data, at);
		assert_true(kv_training_load(&x.t, path, x.recipe, &e) < 0);
		bytes.data[at] ^= 4;
		scratch_write(path, bytes.data, bytes.n);
		if (kv_training_load(&x.t, path, x.recipe, &e) >= 0)
			fail_msg("byte %zu of %zu may be wrong", at, bytes.n);
		bytes.data[at] ^= 4;
	}
	scratch_write(path, bytes.data, bytes.n);
	must(kv_training_load(&x.t, path, x.recipe, &e), &e);
	kv_buf_fini(&bytes);
	close_school(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adam_by_hand),
		cmocka_unit_test(rates_climb_and_fall),
		cmocka_unit_test(gradients_are_clipped),
		cmocka_unit_test(every_epoch_sees_every_sample),
		cmocka_unit_test(recall_counts_what_is_common),
		cmocka_unit_test(a_handful_of_samples_is_learnt_by_heart),
		cmocka_unit_test(a_run_goes_on_from_its_state),
		cmocka_unit_test(a_state_that_does_not_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
