#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gpu.sh - everything that needs a card, in one go of less than 8 minutes: builds, tests every operation on it, measures
# a random model of Llama 3.1 8B's shape, beside torch where that is present, and runs a real model beside the CPU.
#
# What matters most comes first, and no part can take another's time for long: each has a limit, parts that would begin
# too late are left out, and both is said.  Figures are in CARD.tsv as soon as they are known; bench/tables/card.sh
# makes tables of that file, as this script does at its end, or when it is told to end (SIGTERM, SIGINT).
#
# Results: bench/results/CARD.txt (what is printed), CARD.tsv (every figure), CARD-lanes.txt (what lanes of a warp get,
# for tests/golden/lanes.txt).  The exit status is the number of parts that failed.
#
# A machine that has the card may lack compilers, headers, libraries, a network: `make card` elsewhere brings all that
# is run here into build/card, and there KV_BUILD=build/card bench/gpu.sh runs it, in this tree or a copy without .git.
#
#	GPU_SECONDS   (470) that everything may take; each part has its share of them
#	GPU_PARTS     (all) which alone: build,tests,lanes,model,prefill,torch,memory,lend,pipelines,real
#	GPU_SIZES     (4096,8192,16384,32768) tokens of prompts, rising
#	GPU_ENTRIES   (128,1024) that eviction keeps per head
#	GPU_NAME      of the results, else the card's
#	GPU_RESULTS   (bench/results) their folder
#	GPU_WORK      folder for model and caches, with 24 GB to spare; kept (default: a temporary one, where there is room)
#	GPU_SMOLLM2   a model file to compare devices by (default: the one in KV_BUILD/models, models/*.gguf, or none)
#	GPU_PYTHON    (python3) where torch may be
#	GPU_TINY=1    tries the script without a card: the shim's library, a model of a few thousand weights; not from
#	              `make card`'s folder, which has no shim
#	KV_BUILD      (build) folder of what is run; nothing is built where `make card` has made it
#	KV_CUDA_LIBRARY, KV_CUBLAS_LIBRARY, KV_DEVICE    other libraries, another card (default cuda)
set -uo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
tiny=${GPU_TINY:-}
seconds=${GPU_SECONDS:-470}
parts=,${GPU_PARTS:-build,tests,lanes,model,prefill,torch,memory,lend,pipelines,real},
sizes=${GPU_SIZES:-${tiny:+40,72}} sizes=${sizes:-4096,8192,16384,32768}
entries=${GPU_ENTRIES:-${tiny:+34,64}} entries=${entries:-128,1024}
kept=${entries%%,*} shortest=${sizes%%,*} longest=${sizes##*,}
python=${GPU_PYTHON:-python3}
KV_BUILD=$(realpath -m "${KV_BUILD:-build}")
export KV_BUILD KV_DEVICE=${KV_DEVICE:-cuda}
PATH=$KV_BUILD/bin:$KV_BUILD/bench:$KV_BUILD/tests/tools:$PATH
if [ -n "$tiny" ]; then
	export KV_CUDA_LIBRARY=$KV_BUILD/tests/libkvcuda-shim.so KV_CUBLAS_LIBRARY=$KV_BUILD/tests/libkvcuda-shim.so
	layers=2 heads=4 kv_heads=2 head_dim=16 embedding=64 feed_forward=96 vocabulary=320
	precision=f32 behind_rows=4 answer=4 lanes=$KV_BUILD/tests/lanes-shim torch="--device cpu --dtype float32"
	real_tokens=32 real_kept=16 real_answer=4 device_tests=(pool select ipc)
else
	export KV_CUDA_LIBRARY=${KV_CUDA_LIBRARY:-$KV_BUILD/libkvcuda.so}
	layers=32 heads=32 kv_heads=8 head_dim=128 embedding=4096 feed_forward=14336 vocabulary=128256
	precision=bf16 behind_rows=32 answer=32 lanes=$KV_BUILD/tests/lanes torch=''
	real_tokens=1024 real_kept=$kept real_answer=48 device_tests=()
fi
shape="--layers $layers --heads $heads --kv-heads $kv_heads --head-dim $head_dim --embedding $embedding"
shape+=" --feed-forward $feed_forward --vocabulary $vocabulary"

# ---- time, figures

# row TABLE WHAT TOKENS ENTRIES VALUE - into the figures
row() {
	printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$figures"
}

left() {
	echo $((seconds - SECONDS))
}

# part KEY LEAST MOST NAME COMMAND... - runs it if LEAST seconds of 470 are left, for MOST of them at most
failed=() until=0
part() {
	local key=$1 least=$(($2 * seconds / 470)) most=$(($3 * seconds / 470)) name=$4 begin=$SECONDS; shift 4
	case $parts in *,"$key",*) ;; *) return ;; esac
	if [ "$(left)" -lt "$least" ]; then
		printf '\n%s: LEFT OUT, %d s are left\n' "$name" "$(left)"
		return
	fi
	printf '\n%s\n' "$name"
	[ "$(left)" -gt "$most" ] || most=$(left)
	until=$((SECONDS + most))
	"$@" || { failed+=("$name"); printf '%s: FAILED\n' "$name"; }
	row part "$(tr ' ,' __ <<<"$name")" 0 0 $((SECONDS - begin))
}

# limited COMMAND... - within the part's time.  In the background, so that a signal reaches us meanwhile.
limited() {
	local n=$((until - SECONDS)) rc
	timeout --kill-after=5 $((n > 0 ? n : 1)) "$@" & child=$!
	wait "$child"; rc=$?
	child=
	[ $rc -ne 124 ] && [ $rc -ne 137 ] || echo "${1##*/}: stopped, the time for it was over" >&2
	return $rc
}

# measured TABLE COMMAND... - what it prints are figures: what, tokens, entries, value
measured() {
	local rc
	pending=$1; shift
	limited "$@" >"$work/rows"; rc=$?
	collect
	return $rc
}

collect() {
	[ -z "$pending" ] || [ ! -e "$work/rows" ] ||
		sed -n "s/^[a-z_]*\t[0-9]*\t[0-9]*\t[0-9]/$pending\t&/p" "$work/rows" >>"$figures"
	pending=
}

# ---- build, tests

device_programs() {
	local name
	[ ${#device_tests[@]} -gt 0 ] || # the one that takes tens of gigabytes last
		device_tests=($(cd tests/device && ls ./*.c | sed 's|^\./||; s|\.c$||; /^large$/d') large)
	for name in "${device_tests[@]}"; do echo "$KV_BUILD/tests/device/$name"; done
}

# What all parts run: `make card` packs them, too.
programs() {
	(cd bin && ls kv-*.c | sed "s|\(.*\)\.c|$KV_BUILD/bin/\1|")
	printf '%s\n' "$KV_BUILD"/bench/{card_times,card_peak,lend_times,random_model,measure,document} \
		"$KV_BUILD/tests/tools/make_module"
	device_programs
}

build() {
	local file
	if [ -e "$KV_BUILD/packed" ]; then
		echo "as packed: commit $(cat "$KV_BUILD/packed")"
		for file in "$KV_BUILD"/lib/*.gz; do [ ! -e "$file" ] || gunzip -f "$file"; done
	else
		limited make -j"$(nproc)" B="$KV_BUILD" "$KV_CUDA_LIBRARY" "$lanes" $(programs) >"$work/make.log" 2>&1 ||
			{ tail -n 30 "$work/make.log"; return 1; }
	fi
	ls -l "$KV_CUDA_LIBRARY"
	limited kv-show --devices
}

# cuBLAS where programs do not find it by themselves: the toolkit's, or the one that torch brings.
find_cublas() {
	local file of_torch='import glob, sys
for path in sys.path: print(*glob.glob(path + "/nvidia/*/lib/libcublas.so.1[23]"))'
	[ -z "${KV_CUBLAS_LIBRARY:-}" ] && ! ldconfig -p 2>/dev/null | grep libcublas.so.13 >"$work/found" || return 0
	for file in "${CUDA_HOME:-/usr/local/cuda}"/lib64/libcublas.so.1[23] /usr/local/cuda*/lib64/libcublas.so.1[23] \
		$(timeout 30 "$python" -c "$of_torch" 2>/dev/null); do
		[ -e "$file" ] || continue
		export KV_CUBLAS_LIBRARY=$file
		echo "cuBLAS: $file"
		return
	done
}

tests() {
	unshown=$work/tests
	KV_TEST_BACKEND=$KV_CUDA_LIBRARY KV_TEST_SECONDS=40 limited tests/run-unit $(device_programs) >"$unshown"
	local rc=$?
	cat "$unshown"
	unshown=
	set -- $(sed -n '/^total: /s/[^0-9 ]//gp' "$work/tests")
	row tests passed 0 0 "${1:-0}"
	row tests failed 0 0 "${2:-1}"
	return $rc
}

compare_lanes() {
	limited "$lanes" >"$out-lanes.txt" || return 1
	limited "$lanes" tests/golden/lanes.txt
	local rc=$?
	row lanes differ 0 0 $rc
	[ $rc -ne 0 ] || echo "all as in tests/golden/lanes.txt"
	return $rc
}

# ---- a real model, on both devices

pipeline() { # DEVICE CACHE - what adakv leaves of it
	limited bash -c 'set -o pipefail
		kv-score snapkv --device "$1" "$2" | kv-budget adakv -b "$3" --device "$1" | kv-evict --device "$1"' \
		pipeline "$1" "$2" "$real_kept"
}

real_model() {
	local d n rc
	export KV_MODEL=$smollm2 KV_PRECISION=f32
	n=$(kv-show --json --no-stats "$smollm2" | head -n 1 | grep -o '"context":[0-9]*' | cut -d: -f2)
	n=$((n > 0 && n < real_tokens + real_answer ? n - real_answer : real_tokens))
	document -n "$n" examples/report.txt >"$work/document" || return 1
	for d in cpu "$KV_DEVICE"; do
		limited kv-prefill --device "$d" -f "$work/document" -o "$work/$d.kv" &&
			pipeline "$d" "$work/$d.kv" >"$work/$d.kept" && pipeline "$d" "$work/cpu.kv" >"$work/$d.same" &&
			limited kv-decode --device "$d" -n "$real_answer" "$work/$d.kept" >"$work/$d.text" || return 1
		kv-show -t index "$work/$d.kept" >"$work/$d.index"
		kv-show -t index "$work/$d.same" >"$work/$d.index.same"
	done
	unset KV_MODEL KV_PRECISION
	printf '%s, %s tokens, %s entries per head, Ada-KV: kept entries that differ\n' "${smollm2##*/}" "$n" "$real_kept"
	printf '  of the same cache, scored on both   %s\n' "$(differ "$work/cpu.index.same" "$work/$KV_DEVICE.index.same")"
	printf '  from the prompt on                  %s\n' "$(differ "$work/cpu.index" "$work/$KV_DEVICE.index")"
	cmp -s "$work/cpu.text" "$work/$KV_DEVICE.text" && echo "  text: the same" || echo "  text: differs"
	cmp "$work/cpu.index.same" "$work/$KV_DEVICE.index.same"; rc=$?
	row real entries_that_differ 0 0 "$(diff "$work/cpu.index.same" "$work/$KV_DEVICE.index.same" | grep -c '^<')"
	return $rc
}

differ() {
	diff "$1" "$2" | grep -c '^<' | sed "s|\$| of $(wc -l <"$1")|"
}

# ---- a large random model

model() {
	[ ! -e "$work/module" ] || { echo "as it was in $work"; return 0; }
	limited random_model $shape "$work/random.gguf" &&
		limited make_module -n "$behind_rows" --rank 8 --alpha 32 --trained --type bf16 "$work/random.gguf" \
			"$work/module.part" &&
		mv "$work/module.part" "$work/module" && ls -l "$work/random.gguf" "$work/module"
}

# of_model COMMAND... - if it has come about
of_model() {
	[ -e "$work/module" ] || { echo "no model"; return 1; }
	"$@"
}

one_process() { # TOKENS
	measured kvtools card_times -m "$work/random.gguf" --precision "$precision" --sizes "$1" --entries "$entries" \
		--lookahead "$work/module" -n "$answer"
}

with_torch() {
	local usable='import sys, torch; sys.exit(not (torch.cuda.is_available() or sys.argv[1:]))'
	limited "$python" -c "$usable" $tiny 2>/dev/null ||
		{ echo "no torch with a card here ($python)"; return 0; }
	measured torch "$python" bench/peers/torch_gpu.py --sizes "$(falling)" --entries "$entries" --tokens "$answer" \
		$shape $torch
}

# The sizes, longest first.
falling() {
	tr , '\n' <<<"$sizes" | tac | paste -sd ,
}

# prompt TOKENS - the name of a file of so many ids
prompt() {
	awk -v n="$1" -v vocabulary="$vocabulary" 'BEGIN {
		for (x = 1; n-- > 0;) { x = (x * 16807) % 2147483647; printf "%d ", x % vocabulary } }' >"$work/prompt.$1"
	echo "$work/prompt.$1"
}

# A process of its own each, from its start on.  What a program holds that hardly does anything is the driver's.
processes() {
	local n bytes took
	limited card_peak "$work/peak" "$lanes" >"$work/lanes" || return 1
	read -r bytes took <"$work/peak"
	row process driver_bytes 0 0 "$bytes"
	for n in $(falling | tr , ' '); do
		prompt "$n" >"$work/name"
		limited card_peak "$work/peak" kv-prefill -m "$work/random.gguf" --precision "$precision" --queries none \
			--tokens-file "$(cat "$work/name")" --only logits -o /dev/null || return 1
		read -r bytes took <"$work/peak"
		row process peak_bytes "$n" 0 "$bytes"
		row process prefill "$n" 0 "$took"
	done
}

lend() {
	measured kvtools lend_times --row $((kv_heads * head_dim * 2)) --sizes "$sizes"
}

pipelines() { # TOKENS ROUNDS
	local from="kv-prefill -m $work/random.gguf --precision $precision --tokens-file $(prompt "$1") --share"
	local keep="kv-evict --share -o /dev/null" share="kv-score snapkv --share"
	local decode="kv-decode -m $work/random.gguf --precision $precision -n $answer --ignore-eos --only q.response"
	local lookahead="$from --queries none --lookahead $work/module | kv-score lookahead --share"
	cat >"$work/spec" <<-END
	run prefill ${from% --share} --queries none --only logits -o /dev/null
	run snapkv $from | $share | kv-budget uniform -b $kept --share | $keep
	run snapkv_inline ${from% --share} | ${share% --share} | kv-budget uniform -b $kept | kv-evict -o /dev/null
	run champion $from | $share | kv-budget champion -b $kept --share | $keep
	run adakv $from | $share | kv-budget adakv -b $kept --share | $keep
	run lookahead $lookahead | kv-budget uniform -b $kept --share | $keep
	run laq_prefill ${from% --share} -o $work/laq.kv
	run laq_first kv-score snapkv $work/laq.kv | kv-budget uniform -b $kept | kv-evict -o $work/first.kv
	run laq_decode $decode -o $work/pseudo.kv $work/first.kv > /dev/null
	run laq_score kv-score laq $work/laq.kv $work/pseudo.kv | kv-budget uniform -b $kept | kv-evict -o /dev/null
	value overhead_snapkv 100*(snapkv-prefill)/prefill
	value overhead_snapkv_inline 100*(snapkv_inline-prefill)/prefill
	value overhead_champion 100*(champion-prefill)/prefill
	value overhead_adakv 100*(adakv-prefill)/prefill
	value overhead_lookahead 100*(lookahead-prefill)/prefill
	value overhead_laq 100*(laq_prefill+laq_first+laq_decode+laq_score-prefill)/prefill
	END
	limited measure -n "$2" "$work/spec" >"$work/measured" || return 1
	rm -f "$work/laq.kv" "$work/first.kv"
	awk -F '\t' -v n="$1" '($3 == "wall_s" && $2 == "-") || $3 == "value" {
		printf "pipeline\t%s\t%d\t0\t%s\n", $1, n, $4 }' "$work/measured" >>"$figures"
}

# ---- the whole

# A folder with room for the model.
roomy() {
	local folder
	for folder in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm .; do
		[ -n "$tiny" ] || df -Pk "$folder" 2>/dev/null | awk 'NR == 2 && $4 > 24e6 { found = 1 } END { exit !found }' ||
			continue
		[ ! -w "$folder" ] || break
	done
	realpath "$folder"
}

smi() {
	timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1 | grep . || echo unknown
}

# By the driver's own tool, or by ours where it has been built.
card() {
	local name
	name=$(smi name)
	[ "$name" != unknown ] ||
		name=$(timeout 30 kv-show --devices 2>/dev/null | sed -n 's/^cuda[:0-9]* *\([^,]*\),.*GiB.*/\1/p' | head -n 1)
	if [ -n "$tiny" ]; then echo quick.card; else
		tr 'A-Z ' 'a-z-' <<<"${name:-card}" | tr -cd 'a-z0-9-' | sed 's/^nvidia-//'
	fi
}

describe() {
	local commit
	commit=$(cat "$KV_BUILD/packed" 2>/dev/null || git describe --always --dirty 2>/dev/null || echo unknown)
	printf 'kvtools, commit %s, %s\n' "$commit" "$(date -u +%Y-%m-%d)"
	if [ -n "$tiny" ]; then echo "NO FIGURES: a trial of the script, on a processor"; else
		printf 'card: %s\n' "$(smi name,memory.total,driver_version,clocks.max.sm,power.limit)"
	fi
	printf 'host: %s, %s processors, %s; model: Llama 3.1 8B, random, %s\n' \
		"$(lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)" "$(nproc)" \
		"$(awk '/MemTotal/ { printf "%.0f GB", $2 / 1e6 }' /proc/meminfo)" "$precision"
}

summary() {
	collect
	[ -z "$unshown" ] || cat "$unshown"
	. bench/tables/card.sh
	printf '\ntook %d s; %d parts failed\n' "$SECONDS" "${#failed[@]}"
	[ ${#failed[@]} -eq 0 ] || printf '  %s\n' "${failed[@]}"
	[ ! -e "$work/tests" ] || sed -n '/^failed: /p' "$work/tests"
}

stopped() {
	trap '' TERM INT HUP
	[ -z "$child" ] || kill "$child" 2>/dev/null
	printf '\nTOLD TO END after %d s\n' "$SECONDS"
	failed+=("the rest")
	finish
}

finish() {
	summary
	exec >&3 2>&4 3>&- 4>&-
	for _ in {1..30}; do kill -0 "$tee" 2>/dev/null || break; sleep 0.1; done # all is written
	[ -n "${GPU_WORK:-}" ] || rm -rf "$work"
	exit "${#failed[@]}"
}

work=${GPU_WORK:-$(mktemp -d "$(roomy)/gpu.XXXXXX")} pending='' unshown='' child=''
mkdir -p "$work"
mkdir -p "${GPU_RESULTS:-bench/results}"
out=${GPU_RESULTS:-bench/results}/${GPU_NAME:-$(card)} figures=$out.tsv
smollm2=${GPU_SMOLLM2:-$(ls "$KV_BUILD"/models/*.gguf models/*.gguf 2>/dev/null | head -n 1)}
[ -n "${GPU_PARTS:-}" ] && [ -e "$figures" ] || printf 'table\twhat\ttokens\tentries\tvalue\n' >"$figures"
exec 3>&1 4>&2 > >(trap '' TERM INT HUP; exec tee ${GPU_PARTS:+-a} "$out.txt") 2>&1
tee=$!
trap stopped TERM INT HUP

describe
part build 5 240 "build" build
find_cublas
part tests 30 120 "every operation on the card" tests
part lanes 5 20 "lanes of a warp" compare_lanes
part model 60 120 "a random model" model
part prefill 60 130 "$longest tokens: prefill, stages, decoding in one process" of_model one_process "$longest"
part torch 30 90 "torch" with_torch
[ "$shortest" = "$longest" ] || part prefill 20 60 "$shortest tokens: the same" of_model one_process "$shortest"
part memory 30 60 "memory, a process each" of_model processes
part lend 10 20 "memory that another process opens" lend
part pipelines 60 150 "$longest tokens: pipelines" of_model pipelines "$longest" 1
[ -z "$smollm2" ] || part real 30 60 "a real model on both devices" real_model
for n in $(falling | tr , '\n' | sed '1d;$d'); do
	part prefill 40 90 "$n tokens: prefill, stages, decoding in one process" of_model one_process "$n"
done
[ "$shortest" = "$longest" ] || part pipelines 40 90 "$shortest tokens: pipelines" of_model pipelines "$shortest" 2
[ -n "$smollm2" ] || printf '\na real model on both devices: LEFT OUT, no GPU_SMOLLM2\n'
finish
