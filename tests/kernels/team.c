/* SPDX-License-Identifier: MIT
 * Threads: every item once, whatever the sizes; results do not depend on their number; many small jobs in a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "tests/lib/kernels.h"

struct seen {
	_Atomic int *times; /* [n] */
	_Atomic int busy[8];
	_Atomic int wrong;
	size_t step;
};

static void
visit(void *ctx, size_t from, size_t to, size_t worker)
{
	struct seen *s = ctx;

	if (worker >= 8 || atomic_fetch_add(&s->busy[worker], 1) != 0 || from % s->step != 0 || to - from > s->step)
		s->wrong = 1;
	for (size_t i = from; i < to; i++)
		atomic_fetch_add(&s->times[i], 1);
	atomic_fetch_sub(&s->busy[worker], 1);
}

static void
expect_once(struct kvk_dev *dev, size_t n, size_t step)
{
	struct seen s = { .step = step, .times = test_alloc(n, sizeof *s.times) };

	cpu_run(dev, n, step, visit, &s);
	assert_int_equal(s.wrong, 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(s.times[i], 1);
	free((void *)s.times);
}

static void
every_item_is_visited_once(void **state)
{
	static const size_t sizes[] = { 0, 1, 2, 31, 64, 1000 }, steps[] = { 1, 7, 64, 5000 };

	(void)state;
	for (int threads = 1; threads <= 8; threads++) {
		struct kvk_dev *dev = test_dev(threads);

		for (size_t i = 0; i < 6; i++)
			for (size_t k = 0; k < 4; k++)
				expect_once(dev, sizes[i], steps[k]);
		kvk_cpu.close(dev);
	}
}

/* A helper that wakes late, or between two jobs, must neither miss nor repeat anything. */
static void
many_small_jobs_in_a_row(void **state)
{
	struct kvk_dev *dev = test_dev(5);

	(void)state;
	for (int i = 0; i < 3000; i++)
		expect_once(dev, 9, 1 + (size_t)(i % 3));
	kvk_cpu.close(dev);
}

static void
a_device_that_computes_nothing_closes(void **state)
{
	(void)state;
	kvk_cpu.close(test_dev(4));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_item_is_visited_once),
		cmocka_unit_test(many_small_jobs_in_a_row),
		cmocka_unit_test(a_device_that_computes_nothing_closes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
