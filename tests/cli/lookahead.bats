# SPDX-License-Identifier: MIT
# LookaheadKV modules: kv-prefill --lookahead, kv-score lookahead, kv-show, and what is refused.
load helpers

prompt=17,4,99,23,250,8,61,61,300,12,77,5,140,31,2,88,19,204,46,7,160,33,91,128,11,54,270,66,9,38,115,22,3,84,47,190

setup() {
	cd "$BATS_TEST_TMPDIR"
	KV_MODEL=$(tiny_model)
	export KV_MODEL
	mkdir out
}

@test "the prompt's tensors are the same bytes with and without a module, at every precision" {
	make_module --trained -n 32 --rank 8 "$KV_MODEL" m.safetensors
	for p in f32 bf16 i16; do
		kv-prefill --precision $p --tokens "$prompt" --queries all -o plain.kv
		kv-prefill --precision $p --tokens "$prompt" --queries all --lookahead m.safetensors -o with.kv
		for t in q k v; do
			for l in 0 1; do
				cmp <(tensor $t $l plain.kv) <(tensor $t $l with.kv)
			done
		done
		cmp <(tensor logits - plain.kv) <(tensor logits - with.kv)
		[ "$(tensor q.lookahead 1 with.kv --no-header | wc -l)" -eq $((4 * 32)) ]
		[ "$(tensor k.lookahead 0 with.kv --no-header | wc -l)" -eq $((2 * 32)) ]
		[ "$(tensor q.lookahead 1 with.kv --no-header | awk 'NR == 1 { print $1 }')" = 36 ]
	done
}

@test "the whole pipe: scores of all tokens, decoding goes on at the prompt's end" {
	make_module --trained "$KV_MODEL" m.safetensors
	kv-prefill --tokens "$prompt" --for lookahead --lookahead m.safetensors -o cache.kv
	kv-score lookahead cache.kv -o score.kv
	[ "$(tensor score 1 score.kv --no-header | wc -l)" -eq $((2 * 36)) ]
	kv-budget uniform -b 10 score.kv | kv-evict -o small.kv
	[ "$(kv-decode --jsonl --ignore-eos -n 2 small.kv | grep -o '"next_position":[0-9]*')" = '"next_position":37' ]
	kv-score lookahead --recent 5 cache.kv | kv-budget uniform -b 10 | kv-evict -o recent.kv
	tensor index 1 recent.kv --no-header | awk '$NF >= 31 { n++ } END { exit n != 2 * 5 }'
	kv-score lookahead --granularity head cache.kv | kv-show --json --no-stats | grep -c '"name":"score".*"shape":\[4,36\]'
	# adapters matter, and another module has another hash in the history
	make_module "$KV_MODEL" fresh.safetensors
	kv-prefill --tokens "$prompt" --for lookahead --lookahead fresh.safetensors | kv-score lookahead -o fresh.kv
	run ! cmp -s <(tensor score 1 score.kv) <(tensor score 1 fresh.kv)
	hash=$(kv-show --json m.safetensors | grep -o '"module":"[0-9a-f]*"')
	kv-show --json --no-stats score.kv | grep -c "$hash"
	kv-show --json --no-stats fresh.kv | lacks "$hash"
}

@test "without adapters, learned tokens are tokens: those of the embedding table score as a response does" {
	kv-prefill --tokens "$prompt" --response tokens:41,6,233 --for truth -o response.kv
	make_module --copy 41,6,233 --rank 0 "$KV_MODEL" copy.safetensors
	kv-prefill --tokens "$prompt" --lookahead copy.safetensors -o lookahead.kv
	for l in 0 1; do
		for t in q k; do
			cmp <(tensor $t.response $l response.kv) <(tensor $t.lookahead $l lookahead.kv)
		done
		cmp <(kv-score truth response.kv | kv-show --tensor score --layer $l) \
			<(kv-score lookahead lookahead.kv | kv-show --tensor score --layer $l)
	done
}

@test "beside a response: two runs, one stream" {
	make_module --trained "$KV_MODEL" m.safetensors
	kv-prefill --tokens "$prompt" --response tokens:41,6,233 -o response.kv
	kv-prefill --tokens "$prompt" --lookahead m.safetensors -o whole.kv
	kv-prefill --tokens "$prompt" --lookahead m.safetensors --only q.lookahead,k.lookahead -o lookahead.kv
	kv-score lookahead response.kv lookahead.kv -o a.kv
	kv-score lookahead whole.kv -o b.kv
	kv-score truth --only score response.kv -o truth.kv
	cmp <(tensor score 1 a.kv) <(tensor score 1 b.kv)
	kv-stat --quantity recall -k 3 a.kv truth.kv | grep -c '^recall'
}

@test "several prompts in a run, as each alone; one thread and two" {
	make_module --trained --type f16 "$KV_MODEL" m.safetensors
	kv-prefill --tokens "$prompt" --tokens 5,6,7 --tokens 9 --lookahead m.safetensors --threads 1 -o all.kv
	kv-prefill --tokens "$prompt" --tokens 5,6,7 --tokens 9 --lookahead m.safetensors --threads 2 -o two.kv
	cmp all.kv two.kv
	kv-prefill --tokens 5,6,7 --lookahead m.safetensors -o one.kv
	for t in q.lookahead k.lookahead; do
		cmp <(tensor $t 1 all.kv --sequence 1) <(tensor $t 1 one.kv --sequence 0)
	done
	kv-score lookahead all.kv | kv-budget uniform -b 2 | kv-evict -o small.kv
	[ "$(tensor index 0 small.kv --sequence 2 --no-header | wc -l)" -eq 2 ]
}

@test "every architecture and folders too; rank 0 and alpha 0" {
	for arch in llama qwen2 qwen3; do
		model=$(tiny_model --arch $arch)
		make_module --trained --targets qkv "$model" m.safetensors
		kv-prefill -m "$model" --tokens "$prompt" --lookahead m.safetensors | kv-score lookahead --only score -o score.kv
		[ "$(tensor score 0 score.kv --no-header | wc -l)" -eq $((2 * 36)) ]
	done
	make_model --hf folder
	make_module --trained folder m.safetensors
	kv-prefill -m folder --tokens "$prompt" --lookahead m.safetensors -o a.kv
	make_module --rank 0 "$KV_MODEL" rank0.safetensors
	make_module --alpha 0 --trained "$KV_MODEL" alpha0.safetensors
	kv-prefill --tokens "$prompt" --lookahead rank0.safetensors -o r.kv
	kv-prefill --tokens "$prompt" --lookahead alpha0.safetensors -o a.kv
	cmp <(tensor q.lookahead 1 r.kv) <(tensor q.lookahead 1 a.kv)
}

@test "kv-show tells what a module is" {
	make_module -n 4 --rank 2 "$KV_MODEL" m.safetensors
	kv-show m.safetensors >text
	grep -c '^m.safetensors: a LookaheadKV module' text
	grep -c 'tokens = 4$' text
	grep -c 'parameters = 2560$' text # 4 * 64 + 2 * (128 + 96 + 96 + 128 + 3 * 160 + 128 + 96)
	grep -c 'training = {tool="make_module"}' text
	grep -c 'model.layers.1.self_attn.k_proj.lora_B.weight' text
	lacks 'layers.1.mlp' <text
	kv-show --json m.safetensors | grep -c '"base_parameters":102720,"parameters":2560'
	kv-prefill --tokens 1 --lookahead m.safetensors -v -o x.kv 2>err
	grep -c '4 lookahead tokens, 2560 numbers, 2.49 % of the model' err
}

@test "what does not fit is refused, and leaves no file" {
	make_module "$KV_MODEL" m.safetensors
	other=$(tiny_model --seed 3)
	fails 1 'm.safetensors: made for another model .*fingerprint' kv-prefill -m "$other" --tokens 1,2 --lookahead m.safetensors -o out/x
	fails 2 'for lookahead: .*--lookahead MODULE' kv-prefill --tokens 1,2 --for lookahead -o out/x
	fails 2 'exclude each other: run twice' kv-prefill --tokens 1,2 --lookahead m.safetensors --response tokens:1 -o out/x
	fails 1 'none: No such file' kv-prefill --tokens 1,2 --lookahead none -o out/x
	fails 1 'not a safetensors file' kv-prefill --tokens 1,2 --lookahead "$KV_MODEL" -o out/x
	fails 1 'm.safetensors: not a model but a LookaheadKV module' kv-prefill -m m.safetensors --tokens 1,2 -o out/x
	head -c 5000 m.safetensors >cut.safetensors
	fails 1 'cut.safetensors: .*truncated' kv-prefill --tokens 1,2 --lookahead cut.safetensors -o out/x
	kv-prefill --tokens 1,2 -o plain.kv
	fails 1 'lookahead needs lookahead queries .*--lookahead MODULE' kv-score lookahead plain.kv -o out/x
	small=$(tiny_model --context 38)
	make_module "$small" small.safetensors
	fails 1 'prompt 0: 36 tokens and 4 lookahead tokens: .*ends at 38' kv-prefill -m "$small" --tokens "$prompt" --lookahead small.safetensors -o out/x
	no_file out
}
