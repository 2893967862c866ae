# SPDX-License-Identifier: MIT
# Peak memory of filters over a stream much larger than one layer: 8 sequences of 4 layers, 2 MB of keys and values
# each.
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

@test "a layer's payloads come to the memory of the layer before, however large they are" {
	for n in 2 4; do # 40 MB of keys and as much of values in each
		make_large 1 $n 160000 - | kv-score streaming | kv-budget uniform -b 100 | peak kv-evict
		cp rss.pages $n.pages
	done
	echo "$(<2.pages) pages for two layers, $(<4.pages) for four, of which one has 20000"
	[ "$(<4.pages)" -le $(($(<2.pages) + 2000)) ]
}

@test "kv-budget: keys and values that it does not use are never in memory, whatever way they come" {
	mapped=$(peak kv-budget uniform -r 0.5 8.kv)
	piped=$(cat 8.kv | peak kv-budget uniform -r 0.5)
	none=$(kv-score snapkv -w 8 --only score 8.kv | peak kv-budget uniform -r 0.5)
	echo "mapped $mapped kB, behind a pipe $piped kB, without keys and values $none kB"
	[ "$mapped" -le $((none + 1500)) ] # a part is 1 MB, a layer 2 MB
	[ "$piped" -le $((none + 1000)) ]
}

@test "steps that are held: the spool keeps what is not used, or is large, out of memory" {
	make_large 1 16 4096 deep.kv
	for uses in q k; do # small: in memory; 1 MB: not
		one=$(peak pass_stream --hold $uses 1.kv)
		for n in 8 deep; do
			mapped=$(peak pass_stream --hold $uses $n.kv)
			piped=$(cat $n.kv | peak pass_stream --hold $uses)
			echo "$uses of $n: one sequence $one kB, mapped $mapped kB, behind a pipe $piped kB"
			[ "$mapped" -le $((one + 1500)) ]
			[ "$piped" -le $((one + 2500)) ]
		done
		cat deep.kv | pass_stream --hold $uses | cmp - deep.kv
		pass_stream --hold $uses 8.kv | cmp - 8.kv
	done
}
