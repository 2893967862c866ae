# SPDX-License-Identifier: MIT
# Every stage of the pipeline on the CUDA backend, as the shim runs it on a processor, beside the CPU backend.
load helpers

prompt=17,4,99,23,250,8,61,61,300,12,77,5,140,31,2,88,19,204,46,7,160,33,91,128,11,54,270,66,9,38,115,22,3,84,47,190

shim() {
	local shim=$KV_BUILD/tests/libkvcuda-shim.so

	[ -e "$shim" ] || skip "no shim library: no CUDA headers here"
	export KV_CUDA_LIBRARY=$shim KV_CUBLAS_LIBRARY=$shim KV_PRECISION=f32
	export KV_MODEL; KV_MODEL=$(tiny_model)
}

setup_file() {
	shim
	cd "$BATS_FILE_TMPDIR"
	for d in cpu cuda; do
		kv-prefill --device $d --tokens "$prompt" --queries all -o $d.kv
	done
}

setup() {
	shim
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR"/c*.kv .
}

# near TOLERANCE A B - tables of the same size whose numbers differ by at most that, relative to the largest
near() {
	paste <(tr '\t' '\n' <"$2") <(tr '\t' '\n' <"$3") | awk -v most="$1" '
		NF != 2 { bad = 1 }
		$1 + 0 == $1 { d = $1 - $2; m = $1 < 0 ? -$1 : $1; if (d < 0) d = -d; if (d > worst) worst = d; if (m > top) top = m; n++ }
		$1 + 0 != $1 && $1 != $2 { bad = 1 }
		END { if (bad || n == 0 || worst > most * top) { print "off by", worst, "of", top, "in", n; exit 1 } }'
}

@test "prefill: queries, keys, values and logits" {
	for t in q k v; do
		for l in 0 1; do
			tensor $t $l cpu.kv >a
			tensor $t $l cuda.kv >b
			near 1e-4 a b
		done
	done
	near 1e-4 <(tensor logits - cpu.kv) <(tensor logits - cuda.kv)
	kv-show --json --no-stats cuda.kv | grep -c '"precision":"f32"'
}

@test "prefill: the same bytes with and without rows behind, and twice" {
	kv-prefill --device cuda --tokens "$prompt" --queries all --response tokens:41,6,233 -o with.kv
	kv-prefill --device cuda --tokens "$prompt" --queries all -o again.kv
	for t in q k v; do
		cmp <(tensor $t 1 cuda.kv) <(tensor $t 1 with.kv)
		cmp <(tensor $t 1 cuda.kv) <(tensor $t 1 again.kv)
	done
	kv-prefill --device cpu --tokens "$prompt" --queries all --response tokens:41,6,233 -o response.kv
	near 1e-4 <(tensor q.response 1 response.kv) <(tensor q.response 1 with.kv)
}

# both SCORER [options] - from one cache: the same scores, and the same kept sets
both() {
	for d in cpu cuda; do
		kv-score "$@" --device $d -o $d.score cpu.kv
		for budget in uniform adakv; do
			kv-budget $budget -b 9 --device $d -o $d.budget $d.score
			kv-evict --device $d -o $d.$budget $d.budget
		done
	done
	for l in 0 1; do
		tensor score $l cpu.score >a
		tensor score $l cuda.score >b
		near 2e-5 a b
		for budget in uniform adakv; do
			cmp <(tensor index $l cpu.$budget) <(tensor index $l cuda.$budget)
			cmp <(tensor k $l cpu.$budget) <(tensor k $l cuda.$budget)
		done
	done
}

@test "scores of every kind, and what is kept by them" {
	for scorer in snapkv h2o tova knorm keydiff expected-attention cake; do
		echo "$scorer"
		both "$scorer"
	done
	both snapkv --granularity head
	for d in cpu cuda; do
		kv-score snapkv --device $d cpu.kv | kv-budget champion -b 9 --device $d | kv-evict --device $d -o $d.champion
	done
	for l in 0 1; do
		cmp <(tensor index $l cpu.champion) <(tensor index $l cuda.champion)
	done
}

@test "text: from the whole cache, from what was kept, and with a budget per head" {
	both snapkv
	for d in cpu cuda; do
		kv-decode --device $d -n 24 --ignore-eos --jsonl cpu.kv >$d.whole
		kv-decode --device $d -n 24 --ignore-eos --jsonl cpu.adakv >$d.kept
		kv-decode --device $d -n 24 --ignore-eos --jsonl --temperature 0.7 --seed 5 cpu.uniform >$d.sampled
	done
	for t in whole kept sampled; do
		cmp <(grep -o '"text":.*' cpu.$t) <(grep -o '"text":.*' cuda.$t)
	done
}

@test "a pipe, all of it on the device, and a model of quantised weights" {
	for type in q4_0 q8_0 q4_k f16; do
		export KV_MODEL; KV_MODEL=$(tiny_model --type $type --embedding 256 --head-dim 64 --feed-forward 256)
		for d in cpu cuda; do
			export KV_DEVICE=$d
			kv-prefill --tokens "$prompt" | kv-score snapkv | kv-budget uniform -b 12 | kv-evict |
				kv-decode -n 8 --ignore-eos >$d.text
		done
		cmp cpu.text cuda.text
	done
}

@test "bf16: near f32, and told in the history" {
	KV_PRECISION=auto kv-prefill --device cuda --tokens "$prompt" --queries all -o narrow.kv
	kv-show --json --no-stats narrow.kv | grep -c '"precision":"bf16"'
	near 0.05 <(tensor k 1 cpu.kv) <(tensor k 1 narrow.kv)
	KV_PRECISION=auto kv-decode --device cuda -n 4 --ignore-eos narrow.kv >/dev/null
}

@test "lookahead: queries and keys of a module's tokens, and their score" {
	make_module --trained -n 8 --rank 4 "$KV_MODEL" m.safetensors
	for d in cpu cuda; do
		kv-prefill --device $d --tokens "$prompt" --lookahead m.safetensors -o $d.look
		kv-score lookahead --device $d $d.look -o $d.score
	done
	near 1e-4 <(tensor q.lookahead 1 cpu.look) <(tensor q.lookahead 1 cuda.look)
	near 1e-3 <(tensor score 1 cpu.score) <(tensor score 1 cuda.score)
}

@test "training: the same losses" {
	for i in 1 2; do
		printf '{"prompt":"%s","id":"s%d","response":"%s"}\n' "$(seq -s ' ' $i 3 20)" $i "$(seq -s ' ' $i 5)"
	done >samples.jsonl
	for d in cpu cuda; do
		kv-train lookahead --device $d --rows 4 --rank 2 --batch 2 --steps 2 --generate 4 --lr 0.01 --cache ./$d.cache -q \
			-o $d.safetensors --log $d.log samples.jsonl
		grep -o '"loss":[0-9.e-]*' $d.log | cut -d: -f2 >$d.loss
	done
	[ "$(wc -l <cpu.loss)" -eq 2 ]
	near 1e-4 cpu.loss cuda.loss
}

@test "what lies on the device is measured there too" {
	for d in cpu cuda; do
		kv-score snapkv cpu.kv | kv-budget uniform -b 9 | kv-evict -o small.kv
		kv-stat --device $d --quantity retained,retained-bound small.kv >$d.stat
	done
	cmp cpu.stat cuda.stat
}
