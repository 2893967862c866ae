# SPDX-License-Identifier: MIT
# card.sh - the tables of bench/gpu.sh, from $work/all.tsv: table, what, tokens, entries, value.

# at TABLE WHAT TOKENS [ENTRIES] - the value, or nothing
at() {
	awk -F '\t' -v t="$1" -v w="$2" -v n="$3" -v b="${4:-0}" '
		$1 == t && $2 == w && $3 == n && $4 == b { v = $5 } END { print v }' "$work/all.tsv"
}

# calc FORMAT EXPRESSION - "-" where a value is missing in it, as () shows
calc() {
	case $2 in
	*'()'*) printf -- - ;;
	*) awk "BEGIN { printf(\"$1\", $2) }" 2>/dev/null || printf -- - ;;
	esac
}

printf '\nPREFILL: seconds of the best run inside one process; memory of a process of its own, MB\n\n'
printf '%8s %10s %10s %10s %14s %12s %10s %12s\n' tokens kvtools tokens/s torch 'torch / ours' 'a process' 'peak MB' 'torch peak'
for n in ${sizes//,/ }; do
	ours=$(at kvtools prefill "$n") theirs=$(at torch prefill "$n")
	printf '%8s %10s %10s %10s %14s %12s %10s %12s\n' "$n" "${ours:--}" "$(calc %.0f "$n/($ours)")" "${theirs:--}" \
		"$(calc %.2f "($theirs)/($ours)")" "$(at process prefill "$n")" "$(at process peak_mb "$n")" \
		"$(calc %.0f "($(at torch peak_bytes "$n"))/1e6")"
done

printf '\nEVICTION: milliseconds on the card for the whole model, and percent of the prefill\n\n'
printf '%8s %8s %22s %22s %22s %22s %10s\n' tokens entries SnapKV H2O LookaheadKV LAQ 'LAQ / LKV'
for n in ${sizes//,/ }; do
	for b in ${entries//,/ }; do
		prefill=$(at kvtools prefill "$n") select="($(at kvtools rank "$n"))+($(at kvtools select "$n" "$b"))+($(at kvtools gather "$n" "$b"))"
		snapkv="($(at kvtools scores_window "$n"))+$select" behind="($(at kvtools scores_behind "$n"))+$select"
		h2o="($(at kvtools scores_all "$n"))+$select"
		lookahead="($(at kvtools prefill_lookahead "$n"))-($prefill)+$behind"
		laq="$snapkv+$answer*($(at kvtools decode "$n" "$b"))+$behind"
		printf '%8s %8s' "$n" "$b"
		for method in "$snapkv" "$h2o" "$lookahead" "$laq"; do
			printf ' %22s' "$(calc %.3f "1000*($method)") ($(calc %.2f "100*($method)/($prefill)") %)"
		done
		printf ' %10s\n' "$(calc %.1f "($laq)/($lookahead)")"
	done
done
printf 'SnapKV: scores of the window, groups and pooling, selection, gathering.  Champion-Snap and Ada-KV differ in their budgets (below).\n'
printf 'LookaheadKV: what %s rows add to the prefill, their scores, and so on.  LAQ: SnapKV, %s tokens, scores, and so on.\n' \
	"$behind_rows" "$answer"

printf '\nSTAGES as kv-score, kv-budget and kv-evict run them on layers in host memory: milliseconds for the whole model\n\n'
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

printf '\nDECODING: milliseconds per token behind a prompt\n\n%8s %8s %10s %10s %14s\n' tokens entries kvtools torch 'torch / ours'
for n in ${sizes//,/ }; do
	for b in 0 ${entries//,/ }; do
		ours=$(at kvtools decode "$n" "$b") theirs=$(at torch decode "$n" "$b")
		printf '%8s %8s %10s %10s %14s\n' "$n" "$([ "$b" = 0 ] && echo all || echo "$b")" "$(calc %.3f "1000*($ours)")" \
			"$(calc %.3f "1000*($theirs)")" "$(calc %.2f "($theirs)/($ours)")"
	done
done
