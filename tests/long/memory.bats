# SPDX-License-Identifier: MIT
# Peak memory at scale.
load ../cli/helpers

setup() {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	case $KV_BUILD in */san) skip "sanitizers bring memory of their own" ;; esac
	export KV_MODEL=$KV_LONG_MODEL
	cd "$BATS_TEST_TMPDIR"
}

@test "kv-prefill of 4,096 tokens: at most the model file and 200 MB" {
	for _ in 1 2 3; do cat "$BATS_TEST_DIRNAME/../../examples/report.txt"; done >text
	tokens=$(kv-prefill -f text --queries none --drop k,v,logits | kv-show --json --no-stats - | grep -o '"tokens": *\[[^]]*' |
		sed 's/.*\[//' | cut -d, -f1-4096)
	[ "$(tr -dc , <<<"$tokens" | wc -c)" -eq 4095 ]
	peak_rss peak kv-prefill --tokens "$tokens" -o cache.kv
	model=$(($(stat -L -c %s "$KV_MODEL") / 1024))
	echo "# peak $(cat peak) kB, model file $model kB" >&3
	[ "$(cat peak)" -le $((model + 200 * 1000)) ]
}

@test "a stream of 10 sequences through kv-evict: one layer in and one out" {
	head -c 4000 "$BATS_TEST_DIRNAME/../../examples/report.txt" >text
	args=()
	for _ in 1 2 3 4 5 6 7 8 9 10; do args+=(-f text); done
	kv-prefill "${args[@]}" | kv-score snapkv | kv-budget uniform -r 0.5 >ten.kv
	kv-prefill -f text | kv-score snapkv | kv-budget uniform -r 0.5 >one.kv
	peak_rss one kv-evict -o out.kv <one.kv
	peak_rss mapped kv-evict -o out.kv ten.kv
	peak_rss ten sh -c 'cat ten.kv | exec kv-evict -o out.kv'
	peak_rss pipe sh -c 'cat one.kv | exec kv-evict -o out.kv'
	echo "# one sequence $(cat pipe) kB, ten $(cat ten) kB, stream of ten $(stat -c %s ten.kv) bytes" >&3
	echo "# mapped: one sequence $(cat one) kB, ten $(cat mapped) kB" >&3
	[ "$(cat ten)" -le $(($(cat pipe) + 2000)) ]
	[ "$(cat mapped)" -le $(($(cat one) + 2000)) ]
}
