# SPDX-License-Identifier: MIT
# Which device computes: what kv-show lists, what --device auto does where there is no card, what is refused.
load helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	export KV_MODEL; KV_MODEL=$(tiny_model)
}

shim() {
	shim=$KV_BUILD/tests/libkvcuda-shim.so
	[ -e "$shim" ] || skip "no shim library: no CUDA headers here"
	export KV_CUDA_LIBRARY=$shim KV_CUBLAS_LIBRARY=$shim
}

@test "the processor is listed, and why there is no card" {
	KV_CUDA_LIBRARY=./none.so kv-show --devices >list
	grep -Ec '^cpu +[0-9]+ threads?, precisions f32 bf16 i16 \(auto: (f32|i16)\)' list
	grep -Ec '^cuda +not usable: .*none.so.*make cuda' list
	[ "$(wc -l <list)" -eq 2 ]
	KV_CUDA_LIBRARY=./none.so kv-show --devices --json >json
	[ "$(grep -c '"device"' json)" -eq 2 ]
	grep -c '"usable": *false' json
	fails 2 'with --json alone' kv-show --devices file.kv
}

@test "a card is listed by its number" {
	shim
	kv-show --devices >list
	grep -Ec '^cuda:0 +.*GiB, compute capability [0-9.]+, precisions f32 bf16 \(auto: bf16\)' list
	KV_SHIM_DEVICES=0 kv-show --devices | grep -Ec '^cuda +not usable: there is no NVIDIA driver'
}

@test "no library: auto takes the processor without a word, --device cuda says how to get one" {
	! ldconfig -p | grep -c libkvcuda || skip "libkvcuda.so is installed"
	mkdir -p alone/bin
	cp "$(command -v kv-prefill)" alone/bin
	run --separate-stderr alone/bin/kv-prefill --device auto -p x -o x.kv
	[ "$status" -eq 0 ]
	[ "$stderr" = "" ]
	fails 1 'cuda: libkvcuda.so.*make cuda.*--device cpu' alone/bin/kv-prefill --device cuda -p x -o y.kv
	[ ! -e y.kv ]
	KV_CUDA_LIBRARY=./none.so fails 0 'warning: cuda: .*none.so' kv-prefill --device auto -p x -o x.kv
}

@test "no driver: auto takes the processor without a word, --device cuda gives the reason" {
	shim
	export KV_SHIM_DEVICES=0
	run --separate-stderr kv-prefill --device auto -p x -o x.kv
	[ "$status" -eq 0 ]
	[ "$stderr" = "" ]
	run --separate-stderr kv-prefill -v --device auto -p x -o x.kv
	[[ $stderr == *"device: cpu, for want of cuda: "*"no NVIDIA driver"* ]]
	fails 1 'no NVIDIA driver: install it, or use --device cpu' kv-prefill --device cuda -p x
}

@test "a library that is no backend: auto says so and takes the processor" {
	cp "$(command -v kv-show)" broken.so
	export KV_CUDA_LIBRARY=./broken.so
	fails 0 'warning: cuda: .*broken.so.*; the CPU computes instead' kv-prefill --device auto -p x -o x.kv
	fails 1 'broken.so' kv-prefill --device cuda -p x
}

@test "numbers and precisions that a card does not have" {
	shim
	fails 1 'there is 1 CUDA device, numbered from 0, and no number 7' kv-prefill --device cuda:7 -p x
	fails 1 'precision i16 is the CPU.s: use bf16 or f32, or --device cpu' kv-prefill --device cuda --precision i16 -p x
	run --separate-stderr kv-prefill -v --device auto --precision i16 -p x -o x.kv
	[ "$status" -eq 0 ]
	[[ $stderr == *"device: cpu, for want of cuda: "*"i16"* ]]
}

@test "a card that is full: one line" {
	shim
	KV_SHIM_MEMORY=100000 fails 1 'out of (device )?memory' kv-prefill --device cuda -p x
}

@test "no cuBLAS: auto says so and takes the processor, --device cuda gives the reason; scores need none" {
	shim
	export KV_CUBLAS_LIBRARY=./none.so
	fails 0 'warning: cuda: .*none.so.*; the CPU computes instead' kv-prefill --device auto -p x -o x.kv
	fails 1 'cuda: .*none.so' kv-prefill --device cuda -p x -o y.kv
	[ ! -e y.kv ]
	kv-score knorm --device cuda -o s.kv x.kv
	[ -s s.kv ]
}
