/* SPDX-License-Identifier: MIT
 * copy_rows: strides on both sides, lists of rows, all types; against a loop over elements that converts each alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/copies.h"
#include "tests/lib/kernels.h"

static void
run(void *ctx, const struct kvk_copy *job, size_t x_bytes, size_t y_bytes)
{
	(void)x_bytes;
	(void)y_bytes;
	assert_int_equal(kvk_cpu.copy_rows(ctx, job), 0);
}

static void
every_shape(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 3; threads += 2) {
		struct kvk_dev *dev = test_dev(threads);

		copies_all(run, dev);
		kvk_cpu.close(dev);
	}
}

static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	float x[4] = { 0 }, y[4];
	struct kvk_copy job = {
		.x = x, .x_type = KVK_I32, .x_stride = 2, .y = y, .y_stride = 2, .H = 2, .n = 2, .D = 1
	};

	(void)state;
	assert_int_not_equal(kvk_cpu.copy_rows(dev, &job), 0);
	assert_string_equal(
	    kvk_cpu.error(dev), "copy_rows: types are f32, f16 and bf16, or the same plain type on both sides");
	job.x_type = job.y_type = KVK_Q8_0;
	assert_int_not_equal(kvk_cpu.copy_rows(dev, &job), 0);
	job.x_type = job.y_type = KVK_F32;
	job.y_stride = 1;
	assert_int_not_equal(kvk_cpu.copy_rows(dev, &job), 0);
	assert_string_equal(
	    kvk_cpu.error(dev), "copy_rows: 2 rows of a head, and the next one 1 rows behind it");
	job.H = 1;
	assert_int_equal(kvk_cpu.copy_rows(dev, &job), 0);
	kvk_cpu.close(dev);
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
