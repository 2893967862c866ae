#!/bin/sh
# SPDX-License-Identifier: MIT
# check_oracle.sh FIXTURES - the tests that read tests/golden/oracle, on all of the reference's fixtures instead of the cut.
# Run `make check` first; FIXTURES is the folder that the reference's make_fixtures.py writes.
KV_ORACLE=$(cd "${1:?give the folder of the fixtures}" && pwd) || exit
export KV_ORACLE
cd "$(dirname "$0")/../.." || exit
for t in $(grep -l 'oracle_open\|score_oracle' tests/unit/*.c); do
	set -- "$@" "${KV_BUILD:-build}/tests/unit/$(basename "$t" .c)"
done
shift
exec tests/run-unit "$@"
