#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# demo.sh [QUESTION] - the whole pipeline on a real model and a real document: one prefill, then SnapKV, ChampionKV's
# budgets on SnapKV's scores, and LookaheadKV at several budgets each.
#
# LookaheadKV takes part where there is a module for the model: modules/NAME.lookahead.safetensors beside
# NAME.Q4_1.gguf, or KV_MODULE. Every stage writes a file here, so that it can be timed alone; in daily use they are one
# pipe (see README.md).
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=${KV_BUILD:-$PWD/build}/bin:$PATH

question=${1:-From which wood did the oak for the piles come?}
KV_MODEL=$(tools/fetch-model)
export KV_MODEL
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# timed COMMAND...: runs it and leaves the seconds it took in $seconds
timed() {
	local from=$EPOCHREALTIME
	"$@"
	seconds=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
}

# field NAME FILE: the first number or string of that name in a JSON line, strings on one line
field() {
	sed -nE -e "s/.*\"$1\": ?([0-9]+).*/\1/p" -e "s/.*\"$1\": ?\"(([^\"\\]|\\\\.)*)\".*/\1/p" "$2" | head -n 1 |
		sed -E -e 's/(\\n)+/ /g' -e 's/\\(["\\])/\1/g'
}

# answer NAME CACHE: decodes, prints the answer, adds a line to the table
answer() {
	timed kv-decode --jsonl -n 48 "$2" >"$work/answer.json"
	printf '%-13s %s\n' "$1" "$(field response "$work/answer.json")"
	bytes=$(field kept_bytes "$work/answer.json")
	full=${full:-$bytes}
	awk -v n="$1" -v b="$bytes" -v f="$full" -v t="$budget" -v e="$evict" -v d="$seconds" 'BEGIN {
		printf "%-13s %12d %8.1f %% %10s %10s %10s\n", n, b, 100 * b / f, t, e, d }' >>"$work/table"
}

{
	printf 'Read this report, then answer the question.\n\n'
	cat examples/report.txt
	printf '\nQuestion: %s Answer with one sentence from the report.' "$question"
} >"$work/prompt"

# a base model has no template for conversations, or none that is known: it gets the text as it is
if ! kv-prefill --chat -p x -o "$work/try.kv" 2>"$work/try"; then
	grep -q 'chat template' "$work/try" || { cat "$work/try" >&2; exit 1; }
	chat=
fi
# columns: name, scores, allocator
printf '%s\n' 'snapkv snapkv uniform' 'champion snapkv champion' >"$work/methods"
module=${KV_MODULE:-modules/$(basename "$KV_MODEL" .Q4_1.gguf).lookahead.safetensors}
[ ! -e "$module" ] || echo 'lookahead lookahead uniform' >>"$work/methods"
# a trained module knows single tokens: unpooled it keeps better ones (modules/README.md)
declare -A options=([snapkv]='' [lookahead]='--pool none')

timed kv-prefill ${chat---chat} -f "$work/prompt" -o "$work/cache.kv"
prefill=$seconds
times="prefill $prefill s"
if [ -e "$module" ]; then
	timed kv-prefill ${chat---chat} -f "$work/prompt" --lookahead "$module" -o "$work/cache.kv"
	times="$times, with lookahead tokens $seconds s"
fi
for scores in $(cut -d' ' -f2 "$work/methods" | sort -u); do
	# shellcheck disable=SC2086 # options are words
	timed kv-score "$scores" ${options[$scores]} --only score "$work/cache.kv" -o "$work/$scores.kv"
	times="$times, $scores scores $seconds s"
done
kv-show --json --no-stats "$work/snapkv.kv" >"$work/score.json"

printf '\nmodel       %s\ndocument    examples/report.txt, %s tokens with the question\nquestion    %s\n\n' \
	"$(field name "$work/score.json")" "$(field prompt_length "$work/score.json")" "$question"
printf '%-13s %12s %10s %10s %10s %10s\n' cache 'KV bytes' 'of full' 'budget s' 'evict s' 'decode s' >"$work/table"

budget=- evict=-
answer full "$work/cache.kv"
while read -r name scores allocator; do
	for b in 512 256 128; do
		timed kv-budget "$allocator" -b "$b" "$work/$scores.kv" -o "$work/budget.kv"
		budget=$seconds
		timed kv-evict "$work/cache.kv" "$work/budget.kv" -o "$work/kept.kv"
		evict=$seconds
		answer "$name $b" "$work/kept.kv"
	done
done <"$work/methods"

printf '\n%s, once for all budgets\n\n' "$times"
cat "$work/table"
