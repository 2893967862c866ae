/* SPDX-License-Identifier: MIT
 * fetch: to the host what was queued before it, while what is queued behind it goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

enum { N = 5000, ROUNDS = 3 };

/* Each round computes into one place, fetches it to another, and computes somewhere else meanwhile. */
static void
what_was_queued_before(void **state)
{
	float *gate = test_floats(N, 1, 1), *want = test_alloc(N, sizeof *want);
	float *host[ROUNDS];
	void *x, *y[ROUNDS], *other;
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	pair_ok(&p, p.op->arrive(p.dev)); /* nothing is on its way */
	pair_ok(&p, p.op->fetch(p.dev, NULL, NULL, 0));
	x = pair_put(&p, gate, N * sizeof *gate);
	other = pair_put(&p, NULL, N * sizeof *gate);
	for (int i = 0; i < ROUNDS; i++) {
		assert_non_null(host[i] = p.op->host_alloc(p.dev, N * sizeof *gate));
		memset(host[i], 0x55, N * sizeof *gate);
		y[i] = pair_put(&p, NULL, N * sizeof *gate);
		pair_ok(&p, p.op->silu_mul(p.dev, i == 0 ? x : y[i - 1], x, N, y[i]));
		pair_ok(&p, p.op->fetch(p.dev, host[i], y[i], N * sizeof *gate));
		pair_ok(&p, p.op->silu_mul(p.dev, y[i], x, N, other));
	}
	pair_ok(&p, p.op->arrive(p.dev));
	for (int i = 0; i < ROUNDS; i++) {
		pair_ok(&p, p.op->get(p.dev, want, y[i], N * sizeof *want));
		assert_memory_equal(host[i], want, N * sizeof *want);
		assert_int_equal(kvk_cpu.silu_mul(p.cpu, i == 0 ? gate : host[i - 1], gate, N, want), 0);
		for (size_t k = 0; k < N; k++)
			assert_true(want[k] - host[i][k] <= 1e-6f && host[i][k] - want[k] <= 1e-6f);
	}
	for (int i = 0; i < ROUNDS; i++) {
		p.op->host_free(p.dev, host[i]);
		pair_free(&p, y[i]);
	}
	p.op->host_free(p.dev, NULL);
	pair_free(&p, other);
	pair_free(&p, x);
	pair_close(&p);
	free(want);
	free(gate);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_queued_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
