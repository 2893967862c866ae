# SPDX-License-Identifier: MIT
# stages.sh - every stage alone, from files in the page cache.
#
# Prefill writes to /dev/null; the others are what examples/caching does: scores alone, budgets alone, the smaller
# cache.
# Decoding begins where there is room for the answer in the model's context: a document of 8,192 tokens of a context of
# 8,192 is cut for it.  "Without start" is what remains of the time when that of the smallest work is taken off: a
# prefill of one token, an answer of 2.

context=$(shape context)
for n in $sizes; do
	room=$((n + answer <= context ? n : context - answer))
	doc=$(document "$n") cache=$(cache "$n") short=$(cache "$room")
	kv-score snapkv --only score "$cache" -o "$work/score.$n"
	kv-budget uniform -b "$budget" "$work/score.$n" -o "$work/budget.$n"
	kv-score snapkv "$short" | kv-budget uniform -b "$budget" | kv-evict -o "$work/kept.$room"
	measured "stages.$n" "$(rounds "$n")" <<-END
	run start kv-prefill -p x -o /dev/null
	run prefill kv-prefill -f $doc -o /dev/null
	run score_whole kv-score snapkv $cache -o /dev/null
	run score kv-score snapkv --only score $cache > $work/out
	run budget_uniform kv-budget uniform -b $budget $work/score.$n > $work/out
	run budget_champion kv-budget champion -b $budget $work/score.$n > $work/out
	run budget_adakv kv-budget adakv -b $budget $work/score.$n > $work/out
	run evict kv-evict $cache $work/budget.$n > $work/out
	run decode_full kv-decode --ignore-eos -n $answer $short
	run decode_full_2 kv-decode --ignore-eos -n 2 $short
	run decode_kept kv-decode --ignore-eos -n $answer $work/kept.$room
	run decode_kept_2 kv-decode --ignore-eos -n 2 $work/kept.$room
	value prefill_rate $n/prefill
	value prefill_rate_no_start $n/(prefill-start)
	value prefill_gflops $(flops "$n")/prefill/1e9
	value prefill_gflops_no_start $(flops "$n")/(prefill-start)/1e9
	value decode_full_rate $answer/decode_full
	value decode_full_rate_no_start ($answer-2)/(decode_full-decode_full_2)
	value decode_kept_rate $answer/decode_kept
	value decode_kept_rate_no_start ($answer-2)/(decode_kept-decode_kept_2)
	value decode_gain (decode_full-decode_full_2)/(decode_kept-decode_kept_2)
	END
	row "stages.$n" prefill_stream bytes "$(stat -c %s "$cache")"{,,} 1
	row "stages.$n" prefill flops "$(flops "$n")"{,,} 1
done

printf 'STAGES ALONE: one program, from a file in the page cache\n\n'
printf '%6s  %-16s %9s %9s %11s %9s\n' tokens stage 'wall s' 'cpu s' 'bytes out' 'peak MB'
for n in $sizes; do
	for stage in prefill score_whole score budget_uniform budget_champion budget_adakv evict decode_full decode_kept; do
		case $stage in
		prefill | score_whole) bytes=$(figure %.0f "stages.$n" prefill_stream bytes) ;;
		*) bytes=$(figure %.0f "stages.$n" $stage bytes) ;;
		esac
		printf '%6s  %-16s %9s %9s %11s %9s\n' "$n" $stage "$(figure %.3f "stages.$n" $stage wall_s)" \
			"$(figure %.3f "stages.$n" $stage cpu_s)" "$bytes" \
			"$(scale=0.001 figure %.1f "stages.$n" $stage peak_kb)"
	done
done
printf '\ndecode: %s tokens; kept: SnapKV, %s entries per head; where n + %s exceeds the context, from a document cut to fit\n' \
	"$answer" "$budget" "$answer"

printf '\nTOKENS PER SECOND: median (min to max)\n\n%6s  %-14s %-28s %s\n' tokens what 'whole process' 'without start'
for n in $sizes; do
	for what in prefill decode_full decode_kept; do
		printf '%6s  %-14s %-28s %s\n' "$n" $what "$(ratio %.1f "stages.$n" ${what}_rate)" \
			"$(ratio %.1f "stages.$n" ${what}_rate_no_start)"
	done
	printf '%6s  %-14s %s times as fast as with the full cache, without start\n' "$n" decode_kept \
		"$(ratio %.2f "stages.$n" decode_gain)"
done

printf '\nROOF: GFLOP/s of prefill against what the machine can do\n\n'
for name in f32-fma f32-onednn bf16-onednn i16-madd; do
	printf '%-12s %8s GFLOP/s\n' $name "$(roof_of $name | sed 's/^0$/-/')"
	row stages.roof $name gflops "$(roof_of $name)"{,,} 1
done
printf '\n%6s  %10s %-26s %12s %12s\n' tokens GFLOP 'GFLOP/s without start' 'of f32 roof' 'of bf16 roof'
for n in $sizes; do
	rate=$(figure %.2f "stages.$n" prefill_gflops_no_start value)
	printf '%6s  %10s %-26s %12s %12s\n' "$n" "$(scale=1e-9 figure %.1f "stages.$n" prefill flops)" \
		"$(ratio %.1f "stages.$n" prefill_gflops_no_start)" \
		$(for name in f32-onednn bf16-onednn; do
			awk -v x="$rate" -v r="$(roof_of $name)" 'BEGIN { if (r > 0) printf "%.1f%% ", 100 * x / r; else printf "- " }'
		done)
done
printf '\nFLOP: 2 per weight of a matrix and token, 4 Hq D per pair of a token and one it sees; of the last layer q, k, v of all\n'
printf 'tokens and the rest for the last one; logits of the last one.\n'
