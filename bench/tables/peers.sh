# SPDX-License-Identifier: MIT
# peers.sh - other programs on the same machine, the same weights, tokens and threads, in turns with ours.
#
#	BENCH_PYTHON           a Python with llama_cpp, and with torch and transformers; what it lacks is left out
#	BENCH_KVPRESS_PYTHON   one with kvpress (default: the same)
#	BENCH_HF               the model as a Hugging Face folder, for torch and kvpress
#	BENCH_LLAMA_SETTINGS   of flash attention, batch and micro batch: "1:2048:512 0:2048:512"; default: of flash
#	                       attention on and off each the fastest of several micro batches, tried out before
#	BENCH_TORCH_TYPES      default "bfloat16 float32"
#	BENCH_PEER_SIZES       tokens of the documents (default: those of BENCH_SIZES from 2,000 on)
#
# Peers tell the time of their own work: without their start, after a first short run.  Ours is told twice: the whole
# process, and without start, which is the time less that of the smallest work (a prefill of one token, an answer of 2).
# That takes off more than a start: of a prefill the unpacking of weights, which every prompt needs, of an answer the
# loading of the cache.  The truth is between the two.
# A ratio is the peer's time over ours, in every round; of llama.cpp's two the better one counts.

python=${BENCH_PYTHON:-} press_python=${BENCH_KVPRESS_PYTHON:-${BENCH_PYTHON:-}} peers=bench/peers
here() { # MODULE PYTHON - is it there?
	[ -n "$2" ] && "$2" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" 2>/dev/null
}
llama= torch= press=
here llama_cpp "$python" && [ -f "$KV_MODEL" ] && llama=yes
here torch "$python" && here transformers "$python" && [ -n "${BENCH_HF:-}" ] && torch=yes
here kvpress "$press_python" && [ -n "${BENCH_HF:-}" ] && press=yes
torch_types=${BENCH_TORCH_TYPES:-bfloat16 float32}
context=$(shape context)

# seconds COMMAND... - of a prefill, as the peer tells it
seconds() {
	"$@" | grep -o '"prefill_s": [0-9.e+-]*' | cut -d' ' -f2
}

# llama_run FLASH:BATCH:UBATCH DOCUMENT TOKENS DECODE
llama_run() {
	local flash batch ubatch
	IFS=: read -r flash batch ubatch <<<"$1"
	echo "$python $peers/llama.py $KV_MODEL $2 $3 --decode $4 --threads $KV_THREADS --flash $flash" \
		"--batch $batch --ubatch $ubatch"
}

# best_settings FLASH DOCUMENT TOKENS
best_settings() {
	local ubatch
	for ubatch in $([ -n "$quick" ] && echo 512 || echo 128 256 512 1024 2048); do
		printf '%s %s\n' "$(seconds $(llama_run "$1:2048:$ubatch" "$2" "$3" 1))" "$1:2048:$ubatch"
	done | sort -g | head -n 1 | cut -d' ' -f2
}

# compared PEER - values of a run that tells prefill_s and decode_s
compared() {
	cat <<-END
	value $1.prefill_rate $room/$1:prefill_s
	value $1.decode_rate ($answer-1)/$1:decode_s
	value $1.prefill_ratio $1:prefill_s/prefill
	value $1.prefill_ratio_no_start $1:prefill_s/(prefill-start)
	value $1.decode_ratio ($1:decode_s/($answer-1))/(decode/$answer)
	value $1.decode_ratio_no_start ($1:decode_s/($answer-1))/((decode-decode_2)/($answer-2))
	END
}

peer_sizes=${BENCH_PEER_SIZES:-$(for n in $sizes; do [ -n "$quick" ] || [ "$n" -ge 2000 ] && echo "$n"; done)}
[ -z "$quick" ] || peer_sizes=${peer_sizes##*[[:space:]]}
rooms= settings=${BENCH_LLAMA_SETTINGS:-}
for n in $peer_sizes; do
	room=$((n + answer <= context ? n : context - answer))
	doc=$(document "$room") cache=$(cache "$room")
	rooms+=" $room"
	[ -z "$llama" ] || [ -n "$settings" ] ||
		settings="$(best_settings 1 "$doc" "$room") $(best_settings 0 "$doc" "$room")"
	{
		cat <<-END
		run start kv-prefill -p x -o /dev/null
		run prefill kv-prefill -f $doc -o /dev/null
		run decode kv-decode --ignore-eos -n $answer $cache
		run decode_2 kv-decode --ignore-eos -n 2 $cache
		value prefill_rate $room/prefill
		value prefill_rate_no_start $room/(prefill-start)
		value decode_rate $answer/decode
		value decode_rate_no_start ($answer-2)/(decode-decode_2)
		END
		for s in ${llama:+$settings}; do
			name=llama_flash_${s%%:*}
			echo "run $name $(llama_run "$s" "$doc" "$room" "$answer")"
			compared "$name"
		done
		for type in ${torch:+$torch_types}; do
			echo "run torch_$type $python $peers/hf.py $BENCH_HF $doc $room --decode $answer" \
				"--threads $KV_THREADS --dtype $type"
			compared "torch_$type"
		done
	} >"$work/spec"
	measured "peers.$room" "$(rounds "$n")" <"$work/spec"
done

# The whole of it, from a cold start of every process.
whole=$([ -n "$quick" ] && echo 128 || echo 2000) reply=$((answer / 2))
if [ -n "$press" ]; then
	doc=$(document "$whole")
	{
		echo "run pipeline kv-prefill -f $doc | kv-score snapkv | kv-budget uniform -b $budget | kv-evict |" \
			"kv-decode --ignore-eos -n $reply"
		for type in $torch_types; do
			echo "run kvpress_$type $press_python $peers/press.py $BENCH_HF $doc $whole" \
				"--decode $reply --budget $budget --threads $KV_THREADS --dtype $type"
			echo "value kvpress_$type.ratio kvpress_$type/pipeline"
		done
	} >"$work/spec"
	measured peers.whole "$(rounds "$whole")" <"$work/spec"
fi

# version MODULE PYTHON
version_of() {
	"$2" -c "import importlib.metadata as m; print(m.version('$1'))" 2>/dev/null || echo '?'
}

printf 'PEERS: tokens per second, and how many times as fast we are; median (min to max)\n\n'
[ -z "$llama" ] || printf 'llama.cpp by llama_cpp_python %s, the same file; flash:batch:ubatch %s\n' \
	"$(version_of llama_cpp_python "$python")" "$settings"
[ -z "$torch" ] || printf 'torch %s, transformers %s, weights %s\n' "$(version_of torch "$python")" \
	"$(version_of transformers "$python")" "$(basename "$BENCH_HF")"
for n in $rooms; do
	printf '\n%s tokens, then an answer of %s\n' "$n" "$answer"
	printf '  %-16s %-28s %-28s %-24s %s\n' prefill 'tokens/s' 'without our start' 'theirs / ours' 'without our start'
	printf '  %-16s %-28s %s\n' kvtools "$(ratio %.1f "peers.$n" prefill_rate)" "$(ratio %.1f "peers.$n" prefill_rate_no_start)"
	for s in ${llama:+$settings}; do names="${names:-} llama_flash_${s%%:*}"; done
	for type in ${torch:+$torch_types}; do names="${names:-} torch_$type"; done
	for name in ${names:-}; do
		printf '  %-16s %-28s %-28s %-24s %s\n' "$name" "$(ratio %.1f "peers.$n" "$name.prefill_rate")" '' \
			"$(ratio %.2f "peers.$n" "$name.prefill_ratio")" "$(ratio %.2f "peers.$n" "$name.prefill_ratio_no_start")"
	done
	printf '  %-16s %-28s %-28s %-24s %s\n' decode 'tokens/s' 'without our start' 'theirs / ours' 'without our start'
	printf '  %-16s %-28s %s\n' kvtools "$(ratio %.1f "peers.$n" decode_rate)" "$(ratio %.1f "peers.$n" decode_rate_no_start)"
	for name in ${names:-}; do
		printf '  %-16s %-28s %-28s %-24s %s\n' "$name" "$(ratio %.1f "peers.$n" "$name.decode_rate")" '' \
			"$(ratio %.2f "peers.$n" "$name.decode_ratio")" "$(ratio %.2f "peers.$n" "$name.decode_ratio_no_start")"
	done
	unset names
done
if [ -n "$press" ]; then
	printf '\nThe whole pipeline as processes, start included: %s tokens, SnapKV keeps %s entries, an answer of %s\n' \
		"$whole" "$budget" "$reply"
	printf '  %-20s %9s s\n' kvtools "$(figure %.2f peers.whole pipeline wall_s)"
	for type in $torch_types; do
		printf '  %-20s %9s s, %s times ours\n' "kvpress_$type" "$(figure %.2f peers.whole "kvpress_$type" wall_s)" \
			"$(ratio %.2f peers.whole "kvpress_$type.ratio")"
	done
	printf '  kvpress %s, torch %s\n' "$(version_of kvpress "$press_python")" "$(version_of torch "$press_python")"
fi
[ -n "$llama$torch$press" ] || printf '(none: BENCH_PYTHON and BENCH_HF say where they are)\n'
