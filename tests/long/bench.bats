# SPDX-License-Identifier: MIT
# make bench, on little: every table comes about and has its figures.  They mean nothing and are not looked at.
load ../cli/helpers

@test "BENCH_QUICK: every table has its figures" {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	case $KV_BUILD in */san) skip "sanitizers bring time and memory of their own" ;; esac
	BENCH_QUICK=1 BENCH_SIZES="64 128" BENCH_ROUNDS=1 BENCH_PYTHON= BENCH_MODEL=$KV_LONG_MODEL \
		BENCH_RESULTS=$BATS_TEST_TMPDIR "$BATS_TEST_DIRNAME/../../bench/run.sh"
	cd "$BATS_TEST_TMPDIR"
	for row in stages.128:prefill:wall_s stages.128:decode_gain:value stages.roof:f32-onednn:gflops \
		pipelines.128:overhead_champion:value pipelines.128:overhead_snapkv_share:value \
		pipelines.128:five_over_one:value allocation:adakv.8.8192:us precision:bf16:kl_nats starts:kv_evict:wall_s; do
		IFS=: read -r table name quantity <<<"$row"
		awk -F '\t' -v t="$table" -v n="$name" -v q="$quantity" '
			$1 == t && $2 == n && $4 == q && $5 ~ /^-?[0-9]/ && $6 <= $5 && $5 <= $7 { found = 1 }
			END { exit !found }' quick.tsv || { echo "no $row"; cat quick.tsv; return 1; }
	done
	run ! grep -Ew 'nan|inf' quick.tsv
	grep -c '^# machine: ..' quick.tsv
	grep -c '^STARTS' quick.txt
}
