# SPDX-License-Identifier: MIT
# --share: tensors by reference.  The same bytes come out, and what cannot be followed is named.
load helpers

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	KV_MODEL=$(tiny_model) || return
	export KV_MODEL
	text=$(printf 'the quick brown fox jumps over the lazy dog %.0s' {1..12})
}

# pipeline [option] - the whole of it; what is kept goes to standard output
pipeline() {
	kv-prefill -p "$text" -p "${text:9}" "$@" | kv-score snapkv "$@" | kv-budget champion -b 60 "$@" |
		kv-evict --drop q "$@"
}

@test "the same cache, by option or by environment, for some of the programs or all" {
	pipeline -o - >want.kv
	kv-prefill -p "$text" -p "${text:9}" --share | kv-score snapkv | kv-budget champion -b 60 | kv-evict --drop q -o some.kv
	cmp want.kv some.kv
	kv-prefill -p "$text" -p "${text:9}" | kv-score snapkv --share | kv-budget champion -b 60 --share |
		kv-evict --drop q -o some.kv
	cmp want.kv some.kv
	KV_SHARE=1 pipeline >all.kv
	cmp want.kv all.kv
	pipeline --share >all.kv
	cmp want.kv all.kv
}

@test "the same answers" {
	pipeline | kv-decode -n 12 >want
	pipeline --share | kv-decode -n 12 >got
	cmp want got
	KV_SHARE=1 pipeline | kv-decode -n 12 >got
	cmp want got
}

@test "all layers at once: they wait as references" {
	whole() { kv-prefill -p "$text" "$@" | kv-score cake "$@" | kv-budget cake -b 60 "$@" | kv-evict "$@"; }
	whole >want.kv
	whole --share >got.kv
	cmp want.kv got.kv
}

@test "a cached file is referred to, and what is stored is whole" {
	kv-prefill -p "$text" -o cache.kv
	kv-score snapkv cache.kv | kv-budget uniform -b 60 | kv-evict >want.kv
	kv-score snapkv --share cache.kv | kv-budget uniform -b 60 --share | kv-evict >got.kv
	cmp want.kv got.kv
	kv-score snapkv --share cache.kv >whole.kv
	kv-score snapkv cache.kv | cmp - whole.kv
	kv-score snapkv --share <cache.kv | kv-budget uniform -b 60 -o whole.kv.zst
	mv cache.kv gone.kv
	kv-evict whole.kv.zst | cmp - want.kv
}

@test "a file that has gone since is named" {
	kv-prefill -p "$text" -o cache.kv
	kv-score snapkv --share cache.kv | kv-budget uniform -b 60 | cat >references.kv # no memory is lent: scores are small
	[ "$(wc -c <references.kv)" -lt "$(($(wc -c <cache.kv) / 2))" ]
	kv-evict references.kv >/dev/null
	mv cache.kv gone.kv
	fails 1 'kv-evict: references.kv: sequence 0, layer 0, [qk]: .* in the file .*/cache.kv, .* without --share' \
		kv-evict references.kv -o none.kv
	[ ! -e none.kv ]
}

@test "every reader follows references" {
	kv-prefill -p "$text" --share | kv-show >shown
	kv-prefill -p "$text" | kv-show >want
	cmp shown want
	kv-prefill -p "$text" --share | kv-score knorm --share | kv-decode -n 8 >got 2>/dev/null
	kv-prefill -p "$text" | kv-decode -n 8 >want
	cmp got want
}

@test "who makes the tensors waits for a late reader" {
	kv-prefill -p "$text" --share | (sleep 1; kv-score snapkv) | kv-budget uniform -b 60 | kv-evict >got.kv
	kv-prefill -p "$text" | kv-score snapkv | kv-budget uniform -b 60 | kv-evict | cmp - got.kv
}

@test "a reader that does not know references: an error, not a wait" {
	run --separate-stderr bash -o pipefail -c 'kv-prefill -p "$0" --share | cat >stored.kv' "$text"
	[ "$status" -eq 1 ]
	grep -c 'nobody has fetched what was left in memory.*without --share' <<<"$stderr"
	fails 1 'stored.kv: sequence 0, layer 0, [qk]: .* memory of another program, which is gone .* without --share' \
		kv-score snapkv --only score stored.kv -o none.kv
	[ ! -e none.kv ]
}

@test "KV_SHARE is 0 or 1" {
	KV_SHARE=yes fails 2 'KV_SHARE: expected 0 or 1' kv-score snapkv none.kv
}
