# SPDX-License-Identifier: MIT
# Peak memory of filters over a stream much larger than one layer: 8 sequences of 4 layers, 2 MB of keys and values each.
load helpers

setup() {
	case $KV_BUILD in */san) skip "sanitizers bring memory of their own" ;; esac
	cd "$BATS_TEST_TMPDIR"
	for n in 1 8; do
		make_large $n 4 4096 - | kv-score snapkv -w 8 | kv-budget uniform -r 0.5 -o $n.kv
	done
	[ "$(stat -c %s 8.kv)" -gt 64000000 ]
}

# peak COMMAND... - its peak memory in kB; the output goes nowhere
peak() {
	peak_rss rss "$@" >/dev/null && cat rss
}

@test "kv-evict over a mapped file: eight sequences need what one needs" {
	one=$(peak kv-evict 1.kv)
	eight=$(peak kv-evict 8.kv)
	echo "one sequence $one kB, eight $eight kB"
	[ "$eight" -le $((one + 1000)) ]
}

@test "kv-evict behind a pipe: eight sequences need what one needs" {
	one=$(cat 1.kv | peak kv-evict)
	eight=$(cat 8.kv | peak kv-evict)
	echo "one sequence $one kB, eight $eight kB"
	[ "$eight" -le $((one + 1000)) ]
}
