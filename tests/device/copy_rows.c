/* SPDX-License-Identifier: MIT
 * copy_rows on the device: every byte as a loop over elements has it, and what lies between rows stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/copies.h"
#include "tests/lib/pair.h"

static void
run(void *ctx, const struct kvk_copy *job, size_t x_bytes, size_t y_bytes)
{
	/* at the same distance from a line of memory as on the host, whose alignment rows of words depend on */
	const size_t x_shift = (uintptr_t)job->x % 64, y_shift = (uintptr_t)job->y % 64;
	struct pair *p = ctx;
	char *x = pair_put(p, NULL, x_bytes + x_shift), *y = pair_put(p, NULL, y_bytes + y_shift);
	struct kvk_copy there = *job;

	pair_ok(p, p->op->put(p->dev, x + x_shift, job->x, x_bytes));
	pair_ok(p, p->op->put(p->dev, y + y_shift, job->y, y_bytes));
	there.x = x + x_shift;
	there.y = y + y_shift;
	pair_ok(p, p->op->copy_rows(p->dev, &there));
	pair_ok(p, p->op->get(p->dev, job->y, y + y_shift, y_bytes));
	pair_free(p, x);
	pair_free(p, y);
}

static void
every_shape(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	copies_all(run, &p);
	pair_close(&p);
}

static void
refused(void **state)
{
	struct kvk_copy job = { .x_type = KVK_I32, .x_stride = 2, .y_stride = 2, .H = 2, .n = 2, .D = 1 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->copy_rows(p.dev, &job), 0);
	assert_string_equal(
	    p.op->error(p.dev), "copy_rows: types are f32, f16 and bf16, or the same plain type on both sides");
	job.x_type = job.y_type = KVK_F32;
	job.y_stride = 1;
	assert_int_not_equal(p.op->copy_rows(p.dev, &job), 0);
	assert_string_equal(p.op->error(p.dev), "copy_rows: 2 rows of a head, and the next one 1 rows behind it");
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
