#!/bin/sh
# SPDX-License-Identifier: MIT
# check_oracle.sh FIXTURES - the tests that read tests/golden/oracle, on all of the reference's fixtures, not on the cut.
# Build the unit tests first (make check does); FIXTURES is the folder that the reference's make_fixtures.py writes.
# Ends with what was compared of all that there is, and fails when something was left out that is not in $later.
later='cost' # of what is not built yet: a cost model
KV_ORACLE=$(cd "${1:?give the folder of the fixtures}" && pwd) || exit
KV_ORACLE_LOG=$(mktemp) || exit
export KV_ORACLE KV_ORACLE_LOG
trap 'rm -f "$KV_ORACLE_LOG"' EXIT
cd "$(dirname "$0")/../.." || exit
for t in $(grep -l 'oracle_open\|score_oracle' tests/unit/*.c); do
	set -- "$@" "${KV_BUILD:-build}/tests/unit/$(basename "$t" .c)"
done
shift
tests/run-unit "$@"
rc=$?

echo
for f in "$KV_ORACLE"/*.json; do
	basename "$f" .json
done | awk -v later=" $later " '
	NR == FNR { name[++n] = $1; next }
	!($0 in seen) { seen[$0] = 1; count[$1, $2, $4]++ }
	$1 == "holds" && !(($2, $4) in known) { known[$2, $4] = 1; what[$2, ++kinds[$2]] = $4 }
	END {
		for (i = 1; i <= n; i++) {
			line = sprintf("%-18s", name[i])
			if (!kinds[name[i]]) {
				line = line " no test reads this"
				unread += index(later, " " name[i] " ") == 0
			}
			for (j = 1; j <= kinds[name[i]]; j++) {
				w = what[name[i], j]
				held = count["holds", name[i], w]; got = count["checked", name[i], w] + 0
				line = line sprintf(" %s %d/%d", w, got, held)
				all += held; done += got
				if (got < held)
					left = left sprintf("not compared: %s %s: %d\n", name[i], w, held - got)
			}
			print line
		}
		printf "%s%d of %d results compared\n", left, done, all
		exit done < all || unread > 0
	}' - "$KV_ORACLE_LOG" || rc=1
exit "$rc"
