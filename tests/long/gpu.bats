# SPDX-License-Identifier: MIT
# bench/gpu.sh, on little and on the shim in place of a card: every part runs, and every table has its figures.  They mean
# nothing and are not looked at.
load ../cli/helpers

setup() {
	[ -e "$KV_BUILD/tests/libkvcuda-shim.so" ] || skip "the shim is not built (make check-cuda)"
	case $KV_BUILD in */san) skip "sanitizers bring time and memory of their own" ;; esac
	gpu=$BATS_TEST_DIRNAME/../../bench/gpu.sh
	model=${KV_SHARED:-$BATS_TEST_DIRNAME/../../../shared}/data/stories260K.gguf # small; or else the demo's
	[ -e "$model" ] || model=$KV_LONG_MODEL
	export KV_DEVICE=cuda GPU_TINY=1 GPU_SMOLLM2=$model GPU_PYTHON=false GPU_RESULTS=$BATS_TEST_TMPDIR
	cd "$BATS_TEST_TMPDIR"
}

@test "GPU_TINY: every part runs, both devices agree, every table has its figures" {
	GPU_SECONDS=900 "$gpu"
	run ! grep -E 'FAILED|LEFT OUT, [0-9]|stopped' quick.card.txt
	[ -z "$GPU_SMOLLM2" ] || grep -c 'text: the same' quick.card.txt
	for row in kvtools:prefill:72:0 kvtools:prefill_spread:72:0 kvtools:prefill_lookahead:72:0 kvtools:scores_all:72:0 \
		kvtools:select:72:64 kvtools:step_adakv:72:34 kvtools:decode:72:34 kvtools:lend:40:0 kvtools:borrow:72:0 \
		process:prefill:40:0 process:peak_bytes:72:0 process:driver_bytes:0:0 pipeline:overhead_laq:72:0 \
		pipeline:overhead_snapkv:40:0 tests:passed:0:0 lanes:differ:0:0; do
		IFS=: read -r table what tokens entries <<<"$row"
		awk -F '\t' -v t="$table" -v w="$what" -v n="$tokens" -v b="$entries" '
			$1 == t && $2 == w && $3 == n && $4 == b && $5 ~ /^-?[0-9]/ { found = 1 }
			END { exit !found }' quick.card.tsv || { echo "no $row"; cat quick.card.tsv; return 1; }
	done
	[ "$(grep -c -E 'met|MISSED' <(sed -n '/^GOALS/,$p' quick.card.txt | sed 1,3d))" -ge 7 ]
	[ "$(wc -l <quick.card-lanes.txt)" -eq 256 ]
}

@test "told to end while a part hangs, it leaves figures and tables of what it has, and nothing else" {
	mkdir tmp
	printf '#!/bin/sh\nexec sleep 60\n' >python
	chmod +x python
	GPU_PYTHON=$PWD/python TMPDIR=$PWD/tmp GPU_PARTS=lanes,torch run timeout 6 "$gpu"
	[ "$status" -ne 0 ]
	grep -c 'TOLD TO END' quick.card.txt
	grep -c '^GOALS' quick.card.txt
	grep -c "$(printf 'lanes\tdiffer\t0\t0\t0')" quick.card.tsv
	[ -z "$(ls tmp)" ]
}

@test "a part that hangs is stopped, and the next one runs" {
	printf '#!/bin/sh\n[ "$1" = -c ] || exec sleep 60\n' >python
	chmod +x python
	GPU_PYTHON=$PWD/python GPU_PARTS=torch,lend GPU_SECONDS=80 run "$gpu"
	[ "$status" -eq 1 ]
	grep -c 'python: stopped' quick.card.txt
	grep -c "$(printf 'kvtools\tborrow\t72')" quick.card.tsv
}
