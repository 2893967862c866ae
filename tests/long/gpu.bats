# SPDX-License-Identifier: MIT
# bench/gpu.sh, on little and on the shim in place of a card: every part runs, and every table has its figures.  They mean
# nothing and are not looked at.
load ../cli/helpers

@test "GPU_TINY: every part runs, both devices agree, every table has its figures" {
	[ -n "${KV_GPU_TINY:-}" ] || skip "takes many minutes: KV_GPU_TINY=1 runs it"
	[ -e "$KV_BUILD/tests/libkvcuda-shim.so" ] || skip "the shim is not built (make check-cuda)"
	case $KV_BUILD in */san) skip "sanitizers bring time and memory of their own" ;; esac
	KV_DEVICE=cuda GPU_TINY=1 GPU_SECONDS=1200 GPU_SMOLLM2=$KV_LONG_MODEL GPU_PYTHON=false \
		GPU_RESULTS=$BATS_TEST_TMPDIR "$BATS_TEST_DIRNAME/../../bench/gpu.sh"
	cd "$BATS_TEST_TMPDIR"
	run ! grep -E 'FAILED|LEFT OUT' quick.card.txt
	[ -z "$KV_LONG_MODEL" ] || grep -c 'text: the same' quick.card.txt
	for row in kvtools:prefill:72:0 kvtools:prefill_lookahead:72:0 kvtools:scores_all:72:0 kvtools:select:72:64 \
		kvtools:step_adakv:72:34 kvtools:decode:72:34 process:prefill:40:0 pipeline:overhead_laq:72:0; do
		IFS=: read -r table what tokens entries <<<"$row"
		awk -F '\t' -v t="$table" -v w="$what" -v n="$tokens" -v b="$entries" '
			$1 == t && $2 == w && $3 == n && $4 == b && $5 ~ /^-?[0-9]/ { found = 1 }
			END { exit !found }' quick.card.tsv || { echo "no $row"; cat quick.card.tsv; return 1; }
	done
	[ "$(wc -l <quick.card-lanes.txt)" -eq 256 ]
}
