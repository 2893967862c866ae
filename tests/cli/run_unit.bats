# SPDX-License-Identifier: MIT
# tests/run-unit: what it makes of programs that print as cmocka does.
load helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	mkdir tests
}

# program NAME STATUS LINE... - one that prints these
program() {
	local name=$1 status=$2; shift 2
	{ echo '#!/bin/sh'; printf "echo '%s'\n" "$@"; echo "exit $status"; } >"tests/$name"
	chmod +x "tests/$name"
}

run_unit() {
	run "$BATS_TEST_DIRNAME/../run-unit" "$@"
}

@test "totals over programs, and each test that failed by name, once" {
	program good 0 '[==========] tests: 3 test(s) run.' '[  PASSED  ] 2 test(s).' '[  SKIPPED ] 1 test(s).'
	program bad 1 'x is 1, expected 2' '[  FAILED  ] ties' '[  PASSED  ] 1 test(s).' \
		'[  FAILED  ] 1 test(s), listed below:' '[  FAILED  ] ties'
	run_unit "$PWD/tests/good" "$PWD/tests/bad"
	[ "$status" -eq 1 ]
	echo "$output"
	[ "$(grep -c 'x is 1, expected 2' <<<"$output")" -eq 1 ]
	[ "$(grep '^failed: ' <<<"$output")" = "failed: bad ties" ]
	[ "${lines[-1]}" = "total: 3 passed, 1 failed, 1 skipped" ]
	run_unit "$PWD/tests/good"
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = "total: 2 passed, 0 failed, 1 skipped" ]
}

@test "a program that crashes, or takes longer than KV_TEST_SECONDS, fails, and the next one runs" {
	printf '#!/bin/sh\nkill -SEGV $$\n' >tests/crash
	printf '#!/bin/sh\nexec sleep 20\n' >tests/hang
	program good 0 '[  PASSED  ] 2 test(s).'
	chmod +x tests/*
	KV_TEST_SECONDS=1 run_unit "$PWD/tests/crash" "$PWD/tests/hang" "$PWD/tests/good"
	echo "$output"
	[ "$status" -eq 1 ]
	[ "$(grep -c '^failed: crash, status 139' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^failed: hang, status 124' <<<"$output")" -eq 1 ]
	[ "${lines[-1]}" = "total: 2 passed, 2 failed, 0 skipped" ]
}
