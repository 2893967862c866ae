#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gpu.sh - everything that needs a card, in one go of less than 8 minutes: builds, tests every operation on it, runs a
# real model beside the CPU, and measures a random model of Llama 3.1 8B's shape, beside torch where that is present.
#
# Results: bench/results/CARD.txt (what is printed), CARD.tsv (every figure), CARD-lanes.txt (what lanes of a warp get,
# for tests/golden/lanes.txt).  The exit status is the number of parts that failed; parts that would begin too late are
# left out, and said to be.
#
#	GPU_SECONDS   (470) that everything may take
#	GPU_SIZES     (4096,8192,16384,32768) tokens of prompts
#	GPU_ENTRIES   (128,1024) that eviction keeps per head
#	GPU_NAME      of the results, else the card's
#	GPU_RESULTS   (bench/results) their folder
#	GPU_WORK      folder for model and caches, with 20 GB to spare; kept (default: a temporary one)
#	GPU_SMOLLM2   a model file to compare devices by (default models/*.gguf, or none)
#	GPU_PYTHON    (python3) where torch may be
#	GPU_BUILT=1   builds nothing: what is in KV_BUILD is run
#	GPU_TINY=1    tries the script without a card: the shim's library, a model of a few thousand weights
#	KV_BUILD      build folder; shared libraries that the card's machine lacks may lie in its lib/
#	KV_CUDA_LIBRARY, KV_DEVICE    another library, another card (default cuda)
set -uo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
tiny=${GPU_TINY:-}
seconds=${GPU_SECONDS:-470}
sizes=${GPU_SIZES:-${tiny:+40,72}} sizes=${sizes:-4096,8192,16384,32768}
entries=${GPU_ENTRIES:-${tiny:+34,64}} entries=${entries:-128,1024}
kept=${entries%%,*} shortest=${sizes%%,*} longest=${sizes##*,}
python=${GPU_PYTHON:-python3}
export KV_BUILD=${KV_BUILD:-$PWD/build} KV_DEVICE=${KV_DEVICE:-cuda}
PATH=$KV_BUILD/bin:$KV_BUILD/bench:$KV_BUILD/tests/tools:$PATH
[ ! -d "$KV_BUILD/lib" ] || export LD_LIBRARY_PATH=$KV_BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -n "$tiny" ]; then
	export KV_CUDA_LIBRARY=$KV_BUILD/tests/libkvcuda-shim.so KV_CUBLAS_LIBRARY=$KV_BUILD/tests/libkvcuda-shim.so
	shape="--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --embedding 64 --feed-forward 96 --vocabulary 320"
	precision=f32 behind_rows=4 answer=4 lanes=$KV_BUILD/tests/lanes-shim torch="--device cpu --dtype float32"
else
	export KV_CUDA_LIBRARY=${KV_CUDA_LIBRARY:-$KV_BUILD/libkvcuda.so}
	shape='' precision=bf16 behind_rows=32 answer=32 lanes=$KV_BUILD/tests/lanes torch=''
fi

work=${GPU_WORK:-}
if [ -z "$work" ]; then
	work=$(mktemp -d "${TMPDIR:-/tmp}/gpu.XXXXXX")
	trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
: >"$work/all.tsv"

smi() {
	nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits "${@:2}" 2>/dev/null
}

card() {
	if [ -n "$tiny" ]; then echo quick.card; else
		smi name | head -n 1 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-' | sed 's/^nvidia-//; s/^$/card/'
	fi
}

# row TABLE WHAT TOKENS ENTRIES VALUE - into the figures
row() {
	printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/all.tsv"
}

left() {
	echo $((seconds - SECONDS))
}

# part LEAST NAME COMMAND... - runs it if so many seconds are left, all of them its limit
failed=0
part() {
	local least=$1 name=$2 begin=$SECONDS; shift 2
	if [ "$(left)" -lt "$least" ]; then
		printf '\n%s: LEFT OUT, %d s are left\n' "$name" "$(left)"
		return
	fi
	printf '\n%s\n' "$name"
	"$@" || { failed=$((failed + 1)); printf '%s: FAILED\n' "$name"; }
	row part "$(tr ' ' _ <<<"$name")" 0 0 $((SECONDS - begin))
}

limited() {
	timeout --kill-after=5 "$(left)" "$@"
}

# ---- build, tests

device_tests() {
	local file
	for file in tests/device/*.c; do echo "$KV_BUILD/${file%.c}"; done
}

build() {
	local library=$KV_CUDA_LIBRARY
	[ -n "${GPU_BUILT:-}" ] ||
		limited make -j"$(nproc)" B="$KV_BUILD" "$library" "$lanes" $(cd bin && ls kv-*.c | sed "s|\(.*\)\.c|$KV_BUILD/bin/\1|") \
			"$KV_BUILD"/bench/{card_times,random_model,measure,document} "$KV_BUILD/tests/tools/make_module" \
			$(device_tests) >"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log"; return 1; }
	kv-show --devices 2>/dev/null
	ls -l "$library"
}

tests() {
	KV_TEST_BACKEND=$KV_CUDA_LIBRARY limited tests/run-unit $(device_tests)
}

compare_lanes() {
	limited "$lanes" >"$out-lanes.txt" || return 1
	limited "$lanes" tests/golden/lanes.txt && echo "all as in tests/golden/lanes.txt"
}

# ---- a real model, on both devices

pipeline() { # DEVICE CACHE - what adakv leaves of it
	kv-score snapkv --device "$1" "$2" | kv-budget adakv -b "$kept" --device "$1" | kv-evict --device "$1"
}

real_model() {
	local d tokens=$([ -n "$tiny" ] && echo 64 || echo 1024) reply=$([ -n "$tiny" ] && echo 8 || echo 48)
	export KV_MODEL=$smollm2 KV_PRECISION=f32
	document -n "$tokens" examples/report.txt >"$work/document" || return 1
	for d in cpu "$KV_DEVICE"; do
		limited kv-prefill --device "$d" -f "$work/document" -o "$work/$d.kv" &&
			pipeline "$d" "$work/$d.kv" >"$work/$d.kept" && pipeline "$d" "$work/cpu.kv" >"$work/$d.same" &&
			limited kv-decode --device "$d" -n "$reply" "$work/$d.kept" >"$work/$d.text" || return 1
		kv-show -t index "$work/$d.kept" >"$work/$d.index"
		kv-show -t index "$work/$d.same" >"$work/$d.index.same"
	done
	unset KV_MODEL KV_PRECISION
	printf '%s tokens, %s entries per head, Ada-KV: kept entries that differ\n' "$tokens" "$kept"
	printf '  of the same cache, scored on both   %s\n' "$(differ "$work/cpu.index.same" "$work/$KV_DEVICE.index.same")"
	printf '  from the prompt on                  %s\n' "$(differ "$work/cpu.index" "$work/$KV_DEVICE.index")"
	cmp -s "$work/cpu.text" "$work/$KV_DEVICE.text" && echo "  text: the same" || echo "  text: differs"
	cmp "$work/cpu.index.same" "$work/$KV_DEVICE.index.same"
}

differ() {
	diff "$1" "$2" | grep -c '^<' | sed "s|\$| of $(wc -l <"$1")|"
}

# ---- a large random model

model() {
	random_model $shape "$work/random.gguf" &&
		make_module -n "$behind_rows" --rank 8 --alpha 32 --trained --type bf16 "$work/random.gguf" "$work/module" &&
		ls -l "$work/random.gguf" "$work/module"
}

one_process() {
	limited card_times -m "$work/random.gguf" --precision "$precision" --sizes "$sizes" --entries "$entries" \
		--lookahead "$work/module" -n "$answer" >"$work/ours.tsv"
	local rc=$?
	sed 's/^/kvtools\t/' "$work/ours.tsv" >>"$work/all.tsv"
	return $rc
}

with_torch() {
	"$python" -c 'import sys, torch; sys.exit(not (torch.cuda.is_available() or sys.argv[1:]))' $tiny 2>/dev/null ||
		{ echo "no torch with a card here ($python)"; return 0; }
	limited "$python" bench/peers/torch_gpu.py --sizes "$sizes" --entries "$entries" --tokens "$answer" $shape $torch \
		>"$work/torch.tsv"
	local rc=$?
	sed 's/^/torch\t/' "$work/torch.tsv" >>"$work/all.tsv"
	return $rc
}

# prompt TOKENS - the name of a file of so many ids
prompt() {
	awk -v n="$1" -v vocabulary=$([ -n "$tiny" ] && echo 320 || echo 128256) 'BEGIN {
		for (x = 1; n-- > 0;) { x = (x * 16807) % 2147483647; printf "%d ", x % vocabulary } }' >"$work/prompt.$1"
	echo "$work/prompt.$1"
}

# peak COMMAND... - the most memory of the card in use meanwhile, in MB, less what was in use before
peak() {
	local before sampler
	before=$(smi memory.used | head -n 1)
	smi memory.used -lms 20 >"$work/memory" & sampler=$!
	"$@"; local rc=$?
	kill "$sampler" 2>/dev/null; wait "$sampler" 2>/dev/null
	sort -n "$work/memory" | awk -v before="${before:-0}" 'END { print (NR > 0 ? $1 - before : "-") }' >"$work/peak"
	return $rc
}

processes() {
	local n begin
	for n in ${sizes//,/ }; do
		begin=$(date +%s.%N)
		peak limited kv-prefill -m "$work/random.gguf" --precision "$precision" --tokens-file "$(prompt "$n")" -o /dev/null ||
			return 1
		row process prefill "$n" 0 "$(awk -v b="$begin" -v e="$(date +%s.%N)" 'BEGIN { printf "%.3f", e - b }')"
		row process peak_mb "$n" 0 "$(cat "$work/peak")"
	done
}

pipelines() { # TOKENS ROUNDS
	local from="kv-prefill -m $work/random.gguf --precision $precision --tokens-file $(prompt "$1") --share"
	local keep="kv-evict --share -o /dev/null" share="kv-score snapkv --share"
	cat >"$work/spec" <<-END
	run prefill $from --queries none -o /dev/null
	run snapkv $from | $share | kv-budget uniform -b $kept --share | $keep
	run snapkv_inline ${from% --share} | ${share% --share} | kv-budget uniform -b $kept | kv-evict -o /dev/null
	run champion $from | $share | kv-budget champion -b $kept --share | $keep
	run adakv $from | $share | kv-budget adakv -b $kept --share | $keep
	run lookahead $from --queries none --lookahead $work/module | kv-score lookahead --share | kv-budget uniform -b $kept --share | $keep
	run laq_prefill $from -o $work/laq.kv
	run laq_first kv-score snapkv $work/laq.kv | kv-budget uniform -b $kept | kv-evict -o $work/first.kv
	run laq_decode kv-decode -m $work/random.gguf --precision $precision -n $answer --ignore-eos --only q.response -o $work/pseudo.kv $work/first.kv > /dev/null
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
		printf "pipeline\t%s\t%d\t0\t%s\n", $1, n, $4 }' "$work/measured" | tee -a "$work/all.tsv" |
		awk -F '\t' '{ printf "%-22s %10.3f%s\n", $2, $5, $2 ~ /^overhead/ ? " %" : " s" }'
}

# ---- the whole

out=${GPU_RESULTS:-bench/results}/${GPU_NAME:-$(card)}
smollm2=${GPU_SMOLLM2:-$(ls models/*.gguf 2>/dev/null | head -n 1)}
{
	printf 'kvtools, commit %s, %s\n' "$(git describe --always --dirty 2>/dev/null || echo unknown)" "$(date -u +%Y-%m-%d)"
	if [ -n "$tiny" ]; then echo "NO FIGURES: a trial of the script, on a processor"; else
		printf 'card: %s\n' "$(smi name,memory.total,driver_version,clocks.max.sm,power.limit | head -n 1)"
	fi
	printf 'host: %s, %s processors; model: Llama 3.1 8B, random, %s\n' \
		"$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)" "$(nproc)" "$precision"
	part 30 "build" build
	part 30 "every operation on the card" tests
	part 10 "lanes of a warp" compare_lanes
	if [ -n "$smollm2" ]; then part 40 "a real model on both devices" real_model; else
		printf '\na real model on both devices: LEFT OUT, no GPU_SMOLLM2\n'
	fi
	part 60 "a random model" model
	part 60 "prefill, stages and decoding in one process" one_process
	part 40 "torch" with_torch
	part 30 "prefill, a process each" processes
	part 40 "pipelines, $shortest tokens" pipelines "$shortest" 2
	part 60 "pipelines, $longest tokens" pipelines "$longest" 1
	. bench/tables/card.sh
	printf '\ntook %d s; %d parts failed\n' "$SECONDS" "$failed"
} > >(tee "$out.txt")
{ printf 'table\twhat\ttokens\tentries\tvalue\n'; cat "$work/all.tsv"; } >"$out.tsv"
exit "$failed"
