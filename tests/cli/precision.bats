#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# --precision: what the programs take, how far the precisions are from f32, what the history tells.

load helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	export KV_MODEL; KV_MODEL=$(tiny_model)
	unset KV_PRECISION
	ids=$(seq 3 60 | tr '\n' ' ')
}

# answers PRECISION - cache and answer of this precision, the answer being that of f32
answers() {
	kv-prefill --precision "$1" --tokens "$ids" -o "$1.cache.kv"
	if [ "$1" = f32 ]; then
		kv-decode --precision "$1" --ignore-eos -n 12 -o "$1.kv" "$1.cache.kv" >/dev/null
	else
		kv-decode --precision "$1" --follow f32.kv -o "$1.kv" "$1.cache.kv" >/dev/null
	fi
}

@test "predictions of i16 and bf16 are those of f32, but for a little; of i16 for the least" {
	local model

	for model in '--type f32' '--type q8_0' '--type q4_1' '--type q4_k --embedding 256 --feed-forward 256'; do
		KV_MODEL=$(tiny_model $model)
		for p in f32 bf16 i16; do answers $p; done
		kv-stat --quantity kl-logits --fail-above 1e-6 f32.kv i16.kv
		kv-stat --quantity kl-logits --fail-above 1e-3 f32.kv bf16.kv
		run ! cmp -s i16.cache.kv f32.cache.kv
		run ! cmp -s i16.cache.kv bf16.cache.kv
		run -0 kv-stat --quantity kl-logits --fail-below 1e-12 f32.kv bf16.kv
	done
}

@test "one thread and two give the same bytes, at every precision" {
	for p in f32 bf16 i16; do
		for t in 1 2; do
			kv-prefill --precision $p --threads $t --tokens "$ids" --queries all -o $t.kv
			kv-decode --precision $p --threads $t --ignore-eos -n 9 $t.kv >$t.txt
		done
		cmp <(tensor k 1 1.kv) <(tensor k 1 2.kv)
		cmp <(tensor logits - 1.kv) <(tensor logits - 2.kv)
		cmp 1.txt 2.txt
	done
}

@test "the environment says it too, the option before it; the history tells what auto was" {
	kv-prefill --tokens "$ids" -o auto.kv
	p=$(kv-show --json auto.kv | grep -Eo '"precision": *"[a-z0-9]*' | grep -Eo '[a-z0-9]*$')
	grep -Ecx 'f32|i16' <<<"$p"
	KV_PRECISION=$p kv-prefill --tokens "$ids" -o same.kv
	cmp <(tensor k 1 auto.kv) <(tensor k 1 same.kv)
	KV_PRECISION=nonsense kv-prefill --precision bf16 --tokens "$ids" -o bf16.kv
	run ! cmp -s <(tensor k 1 auto.kv) <(tensor k 1 bf16.kv)
	fails 2 "KV_PRECISION: expected auto, f32, bf16 or i16, got 'nonsense'" env KV_PRECISION=nonsense kv-prefill --tokens 3
}
