# SPDX-License-Identifier: MIT
# pipelines.sh - what eviction and its pipes add to a prefill; five processes against one.
#
# Overhead is (pipeline - prefill alone) / prefill alone, round by round: of wall time, and of processor time (of all
# programs together).  The prefill alone writes to /dev/null, so transport counts as overhead.

# pipeline DOCUMENT ALLOCATOR [OPTION] - four programs
pipeline() {
	printf 'kv-prefill %s -f %s | kv-score snapkv %s | kv-budget %s -b %s %s | kv-evict -o /dev/null' \
		"${3:-}" "$1" "${3:-}" "$2" "$budget" "${3:-}"
}

# overhead NAME - values of a run
overhead() {
	printf 'value overhead_%s 100*(%s-prefill)/prefill\n' "$1" "$1"
	printf 'value overhead_cpu_%s 100*(%s:cpu-prefill:cpu)/prefill:cpu\n' "$1" "$1"
	printf 'value stages_cpu_%s 100*(%s:cpu.kv_score+%s:cpu.kv_budget+%s:cpu.kv_evict)/prefill:cpu\n' "$1" "$1" "$1" "$1"
}

share=
has kv-prefill --share && has kv-score --share && has kv-budget --share && share=--share
reply=$((answer / 2))
names="snapkv champion${share:+ snapkv_share champion_share}"
for n in $sizes; do
	doc=$(document $((n + reply <= $(shape context) ? n : $(shape context) - reply)))
	five="kv-prefill -f $doc | kv-score snapkv | kv-budget uniform -b $budget | kv-evict | kv-decode -n $reply"
	one="one_process uniform -f $doc -b $budget -n $reply"
	bash -o pipefail -c "$five" >"$work/five"
	$one | cmp - "$work/five" || { echo "one process answers something else" >&2; exit 1; }
	{
		echo "run prefill kv-prefill -f $doc -o /dev/null"
		for name in $names; do
			case $name in *_share) option=$share ;; *) option= ;; esac
			echo "run $name $(pipeline "$doc" "$(sed 's/snapkv/uniform/; s/_share//' <<<"$name")" $option)"
			overhead "$name"
		done
		printf 'run five %s\nrun one %s\nvalue five_over_one five/one\n' "$five" "$one"
		printf 'value five_over_one_cpu five:cpu/one:cpu\n'
	} >"$work/spec"
	measured "pipelines.$n" "$(rounds "$n")" <"$work/spec"
done

printf 'PIPELINES: prefill, score, budget, evict to %s entries per head, over the prefill alone\n' "$budget"
printf '(percent of its time, median (min to max))\n\n'
printf '%6s  %-16s %9s %-26s %-26s %s\n' tokens pipeline 'wall s' 'overhead, wall' 'overhead, cpu' \
	'cpu of the three stages'
for n in $sizes; do
	printf '%6s  %-16s %9s\n' "$n" prefill "$(figure %.3f "pipelines.$n" prefill wall_s)"
	for name in $names; do
		printf '%6s  %-16s %9s %-26s %-26s %s\n' "$n" "$name" "$(figure %.3f "pipelines.$n" "$name" wall_s)" \
			"$(ratio %.2f "pipelines.$n" "overhead_$name")" "$(ratio %.2f "pipelines.$n" "overhead_cpu_$name")" \
			"$(ratio %.2f "pipelines.$n" "stages_cpu_$name")"
	done
done
[ -n "$share" ] || printf '\n(no --share here: payloads inline only)\n'

printf '\nFIVE PROCESSES AGAINST ONE: the same, and an answer of %s tokens; the same text from both\n\n' "$reply"
printf '%6s  %9s %9s  %-24s %s\n' tokens 'five, s' 'one, s' 'five / one, wall' 'five / one, cpu'
for n in $sizes; do
	printf '%6s  %9s %9s  %-24s %s\n' "$n" "$(figure %.3f "pipelines.$n" five wall_s)" \
		"$(figure %.3f "pipelines.$n" one wall_s)" "$(ratio %.3f "pipelines.$n" five_over_one)" \
		"$(ratio %.3f "pipelines.$n" five_over_one_cpu)"
done

printf '\nPEAK MEMORY of each program in the five-process pipeline, MB\n\n%6s %s\n' tokens \
	'    kv-prefill   kv-score  kv-budget   kv-evict  kv-decode one_process'
for n in $sizes; do
	printf '%6s    ' "$n"
	for p in kv-prefill kv-score kv-budget kv-evict kv-decode; do
		printf ' %10s' "$(scale=0.001 figure %.1f "pipelines.$n" five peak_kb $p)"
	done
	printf ' %10s\n' "$(scale=0.001 figure %.1f "pipelines.$n" one peak_kb)"
done
printf '\nthe model file, which kv-prefill, kv-decode and one_process map, has %s MB\n' \
	"$(du -Lsk "$KV_MODEL" | awk '{ printf "%.1f", $1 * 1.024e-3 }')"
