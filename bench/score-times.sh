#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# score-times.sh - what scoring costs: every method of kv-score on a prompt of 2,000 tokens, as a share of its prefill.
#
# Medians of three runs, in turns with the prefill, of wall time and of processor time (user and system), from a file in
# the page cache to a file, only the scores written.  Methods read a stream with the queries that they want.  Prints the
# table and, on standard error, the load of the machine; exits with 1 if a method costs more than it may by processor
# time: 5 %, or 60 % where it repeats the attention of all tokens.  KV_BUILD: build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
KV_BUILD=${KV_BUILD:-$PWD/build}
PATH=$KV_BUILD/bin:$PATH
KV_MODEL=$(realpath "$(tools/fetch-model)")
export KV_MODEL
runs=3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

declare -A limit=([h2o]=60 [observed]=60)

# timed NAME COMMAND...: a line "wall processor" of seconds behind those of NAME
timed() {
	local name=$1 TIMEFORMAT='%R %U %S'; shift
	{ time "$@" 2>"$work/why" >/dev/null; } 2>"$work/time" || { cat "$work/why" >&2; return 1; }
	awk '{ print $1, $2 + $3 }' "$work/time" >>"$work/$name.times"
}

# median NAME COLUMN
median() {
	awk -v c="$2" '{ print $c }' "$work/$1.times" | sort -n | sed -n "$((runs / 2 + 1))p"
}

score() {
	local from=$work/some.kv

	case $1 in
	h2o | observed | expected-attention) from=$work/all.kv ;;
	inverted | shuffled) from=$work/snapkv.kv ;;
	combine) from=$work/snapkv.kv; set -- combine --how rank "$work/knorm.kv:score=score.b" ;;
	esac
	kv-score "$@" --only score -o "$work/score.kv" "$from"
}

prefill() {
	kv-prefill -f "$work/prompt" -o "$work/cache.kv"
}

cat examples/report.txt examples/report.txt | head -c 8050 >"$work/prompt"
kv-prefill --queries all -f "$work/prompt" -o "$work/all.kv"
kv-prefill --queries window:33 --response generate:32 -f "$work/prompt" -o "$work/some.kv"
kv-score snapkv --only score -o "$work/snapkv.kv" "$work/some.kv"
kv-score knorm --only score -o "$work/knorm.kv" "$work/some.kv"
methods=$(kv-score --help | awk '/^METHOD:/ { on = 1; next } on && NF == 0 { exit } on { print $1 }')

for ((i = 0; i < runs; i++)); do
	timed prefill prefill
	for m in $methods; do timed "$m" score "$m"; done
done
tokens=$(kv-show --no-stats --json "$work/snapkv.kv" | sed -nE 's/.*"prompt_length": ?([0-9]+).*/\1/p' | head -n 1)
echo "$tokens tokens, KV_THREADS=${KV_THREADS:-0}, load average $(cut -d' ' -f1-3 /proc/loadavg)" >&2

printf 'method\twall_s\tcpu_s\twall_percent\tcpu_percent\tlimit_percent\n'
printf 'prefill\t%s\t%s\t100\t100\t-\n' "$(median prefill 1)" "$(median prefill 2)"
for m in $methods; do
	printf '%s\t%s\t%s\t%s\n' "$m" "$(median "$m" 1)" "$(median "$m" 2)" "${limit[$m]:-5}"
done | awk -F'\t' -v wall="$(median prefill 1)" -v cpu="$(median prefill 2)" '
	{
		printf "%s\t%s\t%s\t%.1f\t%.1f\t%s\n", $1, $2, $3, 100 * $2 / wall, 100 * $3 / cpu, $4
		bad = bad || 100 * $3 / cpu > $4
	}
	END { exit bad }'
