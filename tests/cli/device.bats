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
	KV_SHIM_DEVICES=0 KV_SHIM_DRIVER=99000 kv-show --devices | grep -Ec '^cuda +not usable: the NVIDIA driver finds no card'
	KV_SHIM_DRIVER=11020 kv-show --devices | grep -Ec '^cuda +not usable: the NVIDIA driver knows CUDA 11\.2, .*update'
	KV_SHIM_MEMORY=16384 kv-show --devices | grep -Ec '^cuda:0 +.*GiB'
	KV_CUDA_LIBRARY=$(command -v kv-show) kv-show --devices | grep -Ec '^cuda +not usable: .*kv-show'
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

@test "a driver without a card, and one that is too old" {
	shim
	export KV_SHIM_DEVICES=0 KV_SHIM_DRIVER=99000
	run --separate-stderr kv-prefill --device auto -p x -o x.kv
	[ "$status" -eq 0 ]
	[ "$stderr" = "" ]
	fails 1 'the NVIDIA driver finds no card: use --device cpu' kv-prefill --device cuda -p x
	export KV_SHIM_DEVICES=1 KV_SHIM_DRIVER=11020
	fails 0 'warning: cuda: .*knows CUDA 11\.2, .*; the CPU computes instead' kv-prefill --device auto -p x -o x.kv
	fails 1 'update the driver, or use --device cpu' kv-prefill --device cuda -p x
}

@test "a library that is no backend: auto says so and takes the processor" {
	cp "$(command -v kv-show)" broken.so
	export KV_CUDA_LIBRARY=./broken.so
	fails 0 'warning: cuda: .*broken.so.*; the CPU computes instead' kv-prefill --device auto -p x -o x.kv
	fails 1 'broken.so' kv-prefill --device cuda -p x
}

@test "numbers that no card has are a wrong command line, in every program" {
	for n in 1024 99999999999 99999999999999999999999; do
		fails 2 "^kv-prefill: --device: expected .*N from 0 to 1023, got 'cuda:$n'" kv-prefill --device cuda:$n -p x
		fails 2 "^kv-prefill: KV_DEVICE: expected .*got 'cuda:$n'" env KV_DEVICE=cuda:$n kv-prefill -p x
		fails 2 'expected auto' kv-score snapkv --device cuda:$n x.kv
		fails 2 'expected auto' kv-budget uniform -b 8 --device cuda:$n x.kv
		fails 2 'expected auto' kv-evict --device cuda:$n x.kv
		fails 2 'expected auto' kv-decode --device cuda:$n x.kv
		fails 2 'expected auto' kv-stat --device cuda:$n x.kv
		fails 2 'expected auto' kv-train lookahead --device cuda:$n -o x x.jsonl
		fails 2 '' kv-show --device cuda:$n x.kv
	done
}

@test "numbers and precisions that a card does not have" {
	shim
	fails 1 'there is 1 CUDA device, numbered from 0, and no number 7' kv-prefill --device cuda:7 -p x
	fails 1 'precision i16 is the CPU.s: use bf16 or f32, or --device cpu' kv-prefill --device cuda --precision i16 -p x
	run --separate-stderr kv-prefill -v --device auto --precision i16 -p x -o x.kv
	[ "$status" -eq 0 ]
	[[ $stderr == *"device: cpu, for want of cuda: "*"i16"* ]]
}

# at FOLDER COMMAND... - there, its standard output into `text`; the folder's name is the device
at() {
	local device=$1; shift

	cd "$device" && KV_DEVICE=$device "$@" >text
}

# one_line PATTERN - standard error has one line, and it matches
one_line() {
	[[ $stderr != *$'\n'* && $stderr =~ $1 ]] || { echo "standard error: $stderr"; return 1; }
}

# gives_way REASON COMMAND... - on cards of all sizes that do not suffice: auto warns in one line and leaves what the CPU
# leaves, byte for byte; cuda fails in one line that says what to do, and leaves nothing.  REASON is one of those told.
gives_way() {
	local reason=$1 bytes=0; shift

	shim
	export KV_PRECISION=f32
	rm -rf cpu auto cuda reasons
	mkdir cpu auto cuda
	(at cpu "$@")
	while :; do
		export KV_SHIM_MEMORY=$bytes
		run --separate-stderr at auto "$@"
		[ "$status" -eq 0 ] || { echo "$bytes bytes: $stderr"; return 1; }
		[ -n "$stderr" ] || break # it suffices
		one_line '^kv-[a-z]+: warning: .*out of device memory.*; the CPU computes instead$'
		[[ $stderr != *'0.0 '[MK]B* ]] # not 300 bytes
		echo "$stderr" >>reasons
		[[ $stderr == *'sequence 0, layer 1:'* ]] || diff -r cpu auto # layer 0 has been the card's
		run --separate-stderr at cuda "$@"
		[ "$status" -eq 1 ]
		one_line '^kv-[a-z]+: .*out of device memory.*: use --device cpu$'
		rm -r cuda/text auto
		no_file cuda
		mkdir auto
		bytes=$((bytes * 4 / 3 / 4096 * 4096 + 4096))
	done
	cat reasons
	grep -cE "$reason" reasons
}

tokens=17,4,99,23,250,8,61,61,300,12,77,5,140,31,2,88,19,204,46,7,160,33,91,128,11,54,270,66,9,38,115,22,3,84,47,190

@test "a card without the memory: prefill" {
	gives_way 'layer [01]: .*wanted, .*free' kv-prefill --tokens "$tokens" --tokens "$tokens,1,2,3" -o x.kv
	gives_way '300 tokens: .*wanted, .*free' kv-prefill --tokens "$(seq -s, 1 300)" -o x.kv
}

@test "weights of all layers were kept on the card: they make room for a longer prompt" {
	shim
	export KV_PRECISION=f32 KV_MODEL; KV_MODEL=$(tiny_model --layers 4 --feed-forward 4096 --context 1024)
	prompts=(--tokens "$tokens" --tokens "$(seq -s, 1 300),$(seq -s, 1 200)")
	kv-prefill --device cuda --queries last "${prompts[@]}" -o want.kv
	export KV_SHIM_MEMORY=27M # 13 MB for the weights, 18 for the longer prompt
	kv-prefill --device cuda --queries last "${prompts[@]}" -o got.kv
	cmp want.kv got.kv
}

@test "weights that were kept on the card give way to those of a later layer, and to decoding's" {
	shim
	export KV_PRECISION=f32 KV_MODEL; KV_MODEL=$(tiny_model --layers 8 --feed-forward 4096 --context 1024)
	long=$(seq -s, 1 300),$(seq -s, 1 300),$(seq -s, 1 300)
	kv-prefill --device cuda --queries last --tokens "$long" -o want.kv
	# less than all layers need, and than two of them at a time: 36M are one layer's
	for KV_SHIM_MEMORY in 54M 37M; do
		export KV_SHIM_MEMORY
		kv-prefill --device cuda --queries last --tokens "$long" -o got.kv
		cmp want.kv got.kv
	done
	unset KV_SHIM_MEMORY
	KV_MODEL=$(tiny_model --layers 6 --feed-forward 1024 --context 512)
	response=(--device cuda --queries last --tokens "$(seq -s, 1 60)" --response generate:3)
	kv-prefill "${response[@]}" -o want.kv
	KV_SHIM_MEMORY=7M kv-prefill "${response[@]}" -o got.kv
	cmp want.kv got.kv
}

@test "a card without the memory: a response of its own, and a module" {
	make_module --trained -n 8 --rank 4 "$KV_MODEL" m.safetensors
	gives_way . kv-prefill --tokens "$tokens" --response generate:5 -o x.kv
	gives_way . kv-prefill --tokens "$tokens" --lookahead "$PWD/m.safetensors" -o x.kv
}

@test "a card without the memory: scores, budgets, eviction" {
	kv-prefill --tokens "$(seq -s, 1 250)" --queries all -o x.kv
	for method in snapkv h2o expected-attention; do
		gives_way 'x.kv: sequence 0, layer 0: .*wanted, .*free' kv-score $method -o s.kv "$PWD/x.kv"
	done
	kv-score snapkv -o s.kv x.kv
	gives_way 'layer 0' kv-budget adakv -b 60 -o b.kv "$PWD/s.kv"
	kv-budget uniform -b 60 -o b.kv s.kv
	gives_way 'layer 0' kv-evict -o e.kv "$PWD/b.kv"
	kv-evict -o e.kv b.kv
	gives_way . kv-stat --quantity retained "$PWD/b.kv"
}

@test "a card without the memory: training" {
	shim
	for i in 1 2; do
		printf '{"prompt":"%s","id":"s%d","response":"%s"}\n' "$(seq -s ' ' $i 3 20)" $i "$(seq -s ' ' $i 5)"
	done >samples.jsonl
	export KV_PRECISION=f32
	train() {
		rm -rf $1 $1.cache
		kv-train lookahead --device $1 --rows 4 --rank 2 --batch 1 --steps 3 --lr 0.01 --cache ./$1.cache -o $1 --log $1.log \
			samples.jsonl >/dev/null && grep -o '"loss":[0-9.e-]*' $1.log | cut -d: -f2 >$1.loss
	}
	train cpu
	for bytes in 0 300K 600K 900K 1200K 1500K 1800K; do
		export KV_SHIM_MEMORY=$bytes
		run --separate-stderr train auto
		[ "$status" -eq 0 ] || { echo "$bytes bytes: $stderr"; return 1; }
		[ -n "$stderr" ] || break
		run ! grep -v '^kv-train: warning: .*out of device memory.*; the CPU computes instead$' <<<"$stderr"
		paste cpu.loss auto.loss | awk '{ d = $1 - $2; if (d < 0) d = -d; bad += d > 1e-4 * $1 } END { exit bad > 0 || NR != 3 }'
		[ $bytes != 0 ] || cmp cpu auto
		run --separate-stderr train cuda
		[ "$status" -eq 1 ]
		one_line '^kv-train: .*out of device memory.*: use --device cpu$'
		[ ! -e cuda ]
	done
	[ $bytes != 0 ]
}

@test "a card without the memory: an answer" {
	kv-prefill --tokens "$tokens" -o x.kv
	gives_way 'layer [01]: .*wanted, .*free' kv-decode -n 8 --ignore-eos "$PWD/x.kv"
	gives_way . kv-decode -n 8 --ignore-eos -p hello -o a.kv "$PWD/x.kv"
	echo hello >nll
	gives_way . kv-decode --nll "$PWD/nll" "$PWD/x.kv"
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
