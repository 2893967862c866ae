#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# card.sh [FIGURES.tsv] - the tables of bench/gpu.sh, from its figures: table, what, tokens, entries, value.  Read by
# that script, or run by itself on a file that it has left.
if [ -z "${figures:-}" ]; then
	figures=${1:?give a file of figures} sizes='' entries=''
	layers=32 heads=32 kv_heads=8 head_dim=128 embedding=4096 feed_forward=14336 vocabulary=128256
	answer=32 behind_rows=32
	sizes=$(awk -F '\t' '$1 == "kvtools" && $2 == "prefill" { print $3 }' "$figures" | sort -nu | paste -sd ,)
	entries=$(awk -F '\t' '$1 == "kvtools" && $2 == "decode" && $4 > 0 { print $4 }' "$figures" | sort -nu | paste -sd ,)
	kept=${entries%%,*} longest=${sizes##*,}
fi

declare -A figure
while IFS=$'\t' read -r table what n b value; do figure[$table $what $n $b]=$value; done <"$figures"

# at TABLE WHAT TOKENS [ENTRIES] - the value, or nothing
at() {
	printf '%s' "${figure[$1 $2 $3 ${4:-0}]:-}"
}

# both FORMAT EXPRESSION FORMAT PERCENT - "x (y %)"
both() {
	local x
	x=$(calc "$1" "$2")
	[ "$x" = - ] && echo - || echo "$x ($(calc "$3" "$4") %)"
}

# calc FORMAT EXPRESSION - "-" where a value is missing in it, as () shows
calc() {
	case $2 in
	*'()'*) printf -- - ;;
	*) awk "BEGIN { printf(\"$1\", $2) }" 2>/dev/null || printf -- - ;;
	esac
}

# seconds_of METHOD TOKENS ENTRIES - an expression: what it takes on the card for the whole model
seconds_of() {
	local n=$2 b=$3 keep behind
	keep="($(at kvtools select "$n" "$b"))+($(at kvtools gather "$n" "$b"))"
	behind="($(at kvtools scores_behind "$n"))+($(at kvtools rank "$n"))+$keep"
	local snapkv="($(at kvtools scores_window "$n"))+($(at kvtools rank "$n"))+$keep"
	case $1 in
	snapkv) echo "$snapkv" ;;
	champion | adakv) echo "$snapkv+($(at kvtools "step_$1" "$n" "$b"))" ;;
	h2o) echo "($(at kvtools scores_all "$n"))+($(at kvtools rank "$n"))+$keep" ;;
	lookahead) echo "($(at kvtools prefill_lookahead "$n"))-($(at kvtools prefill "$n"))+$behind" ;;
	laq) echo "$snapkv+$answer*($(at kvtools decode "$n" "$b"))+$behind" ;;
	esac
}

# percent_of METHOD TOKENS ENTRIES - of the prefill, an expression
percent_of() {
	echo "100*($(seconds_of "$@"))/($(at kvtools prefill "$2"))"
}

# Weights, and what two layers hold of a prompt: its rows, queries, keys and values, f32.
memory_goal() { # TOKENS
	local matrices=$((embedding * (2 * heads + 2 * kv_heads) * head_dim + 3 * embedding * feed_forward))
	local rows=$(($1 * (embedding + (heads + 2 * kv_heads) * head_dim)))
	echo $((2 * (layers * matrices + 2 * vocabulary * embedding) + 2 * 4 * rows))
}

peak() { # TOKENS - bytes of a process, without what the driver takes for itself
	echo "($(at process peak_bytes "$1"))-($(at process driver_bytes 0))"
}

prefills() {
	local n ours theirs
	printf '\nPREFILL: seconds of the best run inside one process; of a process of its own; its memory on the card,\n'
	printf "without the driver's, MB, and torch's.\n"
	printf 'torch: eager, fused attention as it chooses, bf16, the same shapes.\n\n'
	printf '%8s %10s %10s %10s %14s %12s %10s %12s\n' tokens kvtools tokens/s torch 'torch / ours' 'a process' \
		'peak MB' 'torch peak'
	for n in ${sizes//,/ }; do
		ours=$(at kvtools prefill "$n") theirs=$(at torch prefill "$n")
		printf '%8s %10s %10s %10s %14s %12s %10s %12s\n' "$n" "${ours:--}" "$(calc %.0f "$n/($ours)")" "${theirs:--}" \
			"$(calc %.2f "($theirs)/($ours)")" "$(calc %.3f "($(at process prefill "$n"))")" \
			"$(calc %.0f "($(peak "$n"))/1e6")" "$(calc %.0f "($(at torch peak_bytes "$n"))/1e6")"
	done
}

evictions() {
	local n b method
	printf '\nEVICTION: milliseconds on the card for the whole model, and percent of the prefill\n\n'
	printf '%8s %8s %20s %20s %20s %20s %20s %20s %10s\n' tokens entries SnapKV Champion-Snap Ada-KV H2O LookaheadKV \
		LAQ 'LAQ / LKV'
	for n in ${sizes//,/ }; do
		for b in ${entries//,/ }; do
			printf '%8s %8s' "$n" "$b"
			for method in snapkv champion adakv h2o lookahead laq; do
				printf ' %20s' "$(both %.3f "1000*($(seconds_of $method "$n" "$b"))" \
					%.2f "$(percent_of $method "$n" "$b")")"
			done
			printf ' %10s\n' "$(calc %.1f "($(seconds_of laq "$n" "$b"))/($(seconds_of lookahead "$n" "$b"))")"
		done
	done
	printf 'SnapKV: scores of the window, groups and pooling, selection, gathering.\n'
	printf 'Champion-Snap, Ada-KV: their budgets as well.\n'
	printf 'LookaheadKV: what %s rows add to the prefill, their scores, and so on.\n' "$behind_rows"
	printf 'LAQ: SnapKV, %s tokens, scores, and so on.\n' "$answer"
}

stages() {
	local n b what
	printf '\nSTAGES as kv-score, kv-budget and kv-evict run them on layers in host memory: milliseconds of a model\n\n'
	printf '%8s %8s %12s %12s %12s %12s %12s\n' tokens entries score uniform champion adakv evict
	for n in ${sizes//,/ }; do
		for b in ${entries//,/ }; do
			printf '%8s %8s %12s' "$n" "$b" "$(calc %.2f "1000*($(at kvtools step_score "$n"))")"
			for what in step_uniform step_champion step_adakv step_evict; do
				printf ' %12s' "$(calc %.2f "1000*($(at kvtools $what "$n" "$b"))")"
			done
			printf '\n'
		done
	done
}

decodings() {
	local n b ours theirs
	printf '\nDECODING: milliseconds per token behind a prompt\n\n'
	printf '%8s %8s %10s %10s %14s\n' tokens entries kvtools torch 'torch / ours'
	for n in ${sizes//,/ }; do
		for b in 0 ${entries//,/ }; do
			ours=$(at kvtools decode "$n" "$b") theirs=$(at torch decode "$n" "$b")
			printf '%8s %8s %10s %10s %14s\n' "$n" "$([ "$b" = 0 ] && echo all || echo "$b")" \
				"$(calc %.3f "1000*($ours)")" "$(calc %.3f "1000*($theirs)")" "$(calc %.2f "($theirs)/($ours)")"
		done
	done
}

# Whole programs, their starts among it.
pipeline_times() {
	local n what
	printf '\nPIPELINES of processes: seconds, and percent above a kv-prefill that writes logits alone\n\n%8s' tokens
	set -- snapkv snapkv_inline champion adakv lookahead laq
	printf ' %10s' prefill; printf ' %20s' "$@"; printf '\n'
	for n in ${sizes//,/ }; do
		[ -n "$(at pipeline prefill "$n")" ] || continue
		printf '%8s %10s' "$n" "$(calc %.3f "($(at pipeline prefill "$n"))")"
		for what; do
			printf ' %20s' "$(both %.3f "($(at pipeline prefill "$n"))*(1+($(at pipeline "overhead_$what" "$n"))/100)" \
				%.1f "($(at pipeline "overhead_$what" "$n"))")"
		done
		printf '\n'
	done
}

# goal WHAT RELATION LIMIT UNIT FORMAT EXPRESSION
goal() {
	local value said=-
	value=$(calc "$5" "$6")
	[ "$value" = - ] || [ "$3" = - ] ||
		said=$(awk -v x="$(calc %.9g "$6")" -v y="$3" -v r="$2" 'BEGIN {
			print (r == "<" ? x < y : r == "<=" ? x <= y : x >= y) ? "met" : "MISSED" }')
	printf '%-58s %14s %12s %-6s %s\n' "$1" "$2 $3" "$value" "$4" "$said"
}

goals() {
	local n=$longest b=$kept lookahead worst='' ratio at_size=$longest
	lookahead=$(seconds_of lookahead "$n" "$b")
	for size in ${sizes//,/ }; do
		ratio=$(calc %.4f "($(at torch prefill "$size"))/($(at kvtools prefill "$size"))")
		[ "$ratio" != - ] || continue
		[ -n "$worst" ] && awk -v a="$worst" -v b="$ratio" 'BEGIN { exit !(a <= b) }' || { worst=$ratio at_size=$size; }
	done
	printf '\nGOALS, %s tokens, %s entries per head\n\n%-58s %14s %12s\n' "$n" "$b" '' goal measured
	goal "tests of operations that failed" "<=" 0 "" %d "($(at tests failed 0))"
	goal "lanes of a warp: status of the comparison" "<=" 0 "" %d "($(at lanes differ 0))"
	goal "kept entries of a real model that differ from the CPU's" "<=" 0 "" %d "($(at real entries_that_differ 0))"
	goal "SnapKV, of the prefill" "<" 1 "%" %.3f "$(percent_of snapkv "$n" "$b")"
	goal "Champion-Snap, of the prefill" "<" 1 "%" %.3f "$(percent_of champion "$n" "$b")"
	goal "LookaheadKV, of the prefill" "<" 2.16 "%" %.3f "$(percent_of lookahead "$n" "$b")"
	goal "LAQ / LookaheadKV, of such overheads" ">=" 14.5 "" %.1f "($(seconds_of laq "$n" "$b"))/($lookahead)"
	goal "prefill: torch's time / ours, worst of all sizes ($at_size)" ">=" 0.9 "" %.2f "($worst)"
	goal "memory of the prefill: weights and two layers" "<=" "$(calc %.0f "$(memory_goal "$n")/1e6")" MB \
		%.0f "($(peak "$n"))/1e6"
	goal "K and V lent: what the prefill waits, within its spread" "<=" \
		"$(calc %.3f "1000*($(at kvtools prefill_spread "$n"))")" ms %.3f "2000*$layers*($(at kvtools lend "$n"))"
	goal "K and V of a layer opened while the next is computed" "<=" \
		"$(calc %.3f "1000*($(at kvtools prefill "$n"))/$layers")" ms %.3f "2000*($(at kvtools borrow "$n"))"
}

prefills
evictions
stages
decodings
pipeline_times
goals
