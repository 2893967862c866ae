#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# overhead.sh MODULE - what a method adds to a prefill: LookaheadKV beside SnapKV and LAQ.
#
# The prefill alone, its cache going nowhere; the prefill with a method's score in a pipe, so that transport counts
# too; and LAQ, whose prefill goes to a file: SnapKV's score and eviction to 128 entries per head, pseudo tokens
# decoded from what is left, and the second score. Runs take turns (bench/measure.c); overhead is (method - prefill) /
# prefill, round by round, of wall time and of processor time of all programs. The last column is LAQ's overhead over
# the row's, of the medians.
#
# MODULE: a LookaheadKV module for the model.  KV_PSEUDO: LAQ's pseudo tokens (32).  BENCH_MODEL, BENCH_SIZES (default
# "2048 8064": a lookahead token is a position of the context), BENCH_ROUNDS (5), BENCH_WORK, KV_THREADS, KV_BUILD: as
# bench/run.sh has them.  `make bench` builds what this needs.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
module=$(realpath "$1")
cd "$(dirname "$0")/../.."
export LC_ALL=C BENCH_SIZES=${BENCH_SIZES:-2048 8064} BENCH_ROUNDS=${BENCH_ROUNDS:-5}
# shellcheck source=bench/lib.sh
. bench/lib.sh

# parts NAME RUN... - values of a method that consists of these runs, over the prefill
parts() {
	local name=$1 wall cpu; shift
	wall=$(printf '+%s' "$@") cpu=$(printf '+%s:cpu' "$@")
	printf 'value overhead_%s 100*(%s-prefill)/prefill\n' "$name" "${wall#+}"
	printf 'value overhead_cpu_%s 100*(%s-prefill:cpu)/prefill:cpu\n' "$name" "${cpu#+}"
	printf 'value seconds_%s %s\n' "$name" "${wall#+}"
}

spec() {
	local doc=$1

	echo "run prefill kv-prefill -f $doc --queries none -o /dev/null"
	echo "run snapkv kv-prefill -f $doc | kv-score snapkv --only score -o /dev/null"
	echo "run lookahead kv-prefill -f $doc --queries none --lookahead $module |" \
		"kv-score lookahead --only score -o /dev/null"
	echo "run laq_prefill kv-prefill -f $doc -o $work/laq.kv"
	echo "run laq_first kv-score snapkv $work/laq.kv | kv-budget uniform -b $budget | kv-evict -o $work/first.kv"
	echo "run laq_decode kv-decode -n ${KV_PSEUDO:-32} --ignore-eos --only q.response" \
		"-o $work/pseudo.kv $work/first.kv > /dev/null"
	echo "run laq_score kv-score laq --only score -o /dev/null $work/laq.kv $work/pseudo.kv"
	parts prefill prefill
	parts snapkv snapkv
	parts lookahead lookahead
	parts laq laq_prefill laq_first laq_decode laq_score
}

: >"$work/all.tsv"
describe begin
for n in $sizes; do
	spec "$(document "$n")" >"$work/spec"
	measured "overhead.$n" "$(rounds 1)" <"$work/spec"
done

printf '\nOVERHEAD over the prefill alone, percent: median (min to max) of %s rounds\n\n' "$(rounds 1)"
printf '%6s  %-10s %9s  %-26s %-26s %s\n' tokens method 'wall s' wall processor 'LAQ / this, wall and processor'
for n in $sizes; do
	for name in prefill snapkv lookahead laq; do
		printf '%6s  %-10s %9s  %-26s %-26s %s\n' "$n" "$name" \
			"$(figure %.3f "overhead.$n" "seconds_$name" value)" \
			"$(ratio %.2f "overhead.$n" "overhead_$name")" \
			"$(ratio %.2f "overhead.$n" "overhead_cpu_$name")" \
			"$(awk -F'\t' -v t="overhead.$n" -v n="$name" '
				$1 == t && $4 == "value" { v[$2] = $5 }
				END {
					w = v["overhead_" n]; c = v["overhead_cpu_" n]
					printf "%s %s", (w > 0 ? sprintf("%.1f", v["overhead_laq"] / w) : "-"),
						(c > 0 ? sprintf("%.1f", v["overhead_cpu_laq"] / c) : "-")
				}' "$work/all.tsv")"
	done
done
printf '\n' && describe end
