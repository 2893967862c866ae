# SPDX-License-Identifier: MIT
# The CUDA backend on the shim, at length: every order of threads and blocks, streams that do nothing before they must,
# device memory that the host must not touch, races of threads, and a real model.
load ../cli/helpers

setup() {
	shim=$KV_BUILD/tests/libkvcuda-shim.so
	[ -e "$shim" ] || skip "no shim library: no CUDA headers here"
	root=$BATS_TEST_DIRNAME/../..
	export KV_TEST_BACKEND=$shim KV_CUDA_LIBRARY=$shim KV_CUBLAS_LIBRARY=$shim
	tests=("$KV_BUILD"/tests/device/*[!d]) # not what make notes beside them
	cd "$BATS_TEST_TMPDIR"
}

@test "every schedule" {
	for schedule in lifo reverse random:1 random:2 random:3; do
		echo "$schedule"
		KV_SHIM_SCHEDULE=$schedule "$root/tests/run-unit" "${tests[@]}"
	done
}

@test "lazy streams: nothing is read before it was waited for" {
	KV_SHIM_STREAMS=lazy "$root/tests/run-unit" "${tests[@]}"
}

@test "guarded memory: the host does not touch the device's" {
	KV_SHIM_GUARD=1 "$root/tests/run-unit" "${tests[@]}"
}

# Some 45 times slower: of each kernel what is small.
@test "TSan: no races of threads" {
	case $KV_BUILD in */san) skip "built with other sanitizers" ;; esac
	names='pool rms_norm silu_mul heads row_moments forms behind scores attention select'
	names+=' copy_rows finite fetch ipc memory weights linear'
	make -s -j2 -C "$root" B="$KV_BUILD/tsan" SANFLAGS=-fsanitize=thread CUDA_TESTS="$names" cuda-tests >make.log 2>&1 ||
		{ tail -n 20 make.log; return 1; }
	export KV_TEST_BACKEND=$KV_BUILD/tsan/tests/libkvcuda-shim.so KV_CUBLAS_LIBRARY=$KV_BUILD/tsan/tests/libkvcuda-shim.so
	export TSAN_OPTIONS=halt_on_error=1
	cd "$KV_BUILD/tsan/tests/device"
	"$root/tests/run-unit" ./pool ./rms_norm ./silu_mul ./heads ./row_moments ./forms ./behind
	KV_TEST_FILTER=positions "$root/tests/run-unit" ./scores
	KV_TEST_FILTER=tiles_alone "$root/tests/run-unit" ./attention
	KV_TEST_FILTER=nothing "$root/tests/run-unit" ./select
	"$root/tests/run-unit" ./copy_rows ./finite ./fetch ./ipc
	KV_TEST_FILTER=copying_threads "$root/tests/run-unit" ./memory
	KV_TEST_FILTER=one_after_another "$root/tests/run-unit" ./weights
	KV_TEST_FILTER=independence "$root/tests/run-unit" ./linear
}

@test "SmolLM2: a short prompt has the processor's scores, kept sets and text" {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	export KV_MODEL=$KV_LONG_MODEL KV_PRECISION=f32
	text='The mill stands on the creek. The miller sold the barley to the brewer in the town, and the brewer'
	for d in cpu cuda; do
		kv-prefill --device $d -p "$text" -o $d.kv
		kv-score snapkv --device $d --window 8 --recent 8 -o $d.score $d.kv
		kv-budget adakv --device $d -b 12 -o $d.budget $d.score
		kv-evict --device $d -o $d.kept $d.budget
		kv-decode --device $d -n 8 $d.kept >$d.txt
		kv-show -t index $d.kept >$d.index
	done
	cmp cpu.txt cuda.txt
	[ -s cpu.txt ]
	cmp cpu.index cuda.index # the same entries of every head
	[ -s cpu.index ]
}
