# SPDX-License-Identifier: MIT
# kv-score: methods without attention, controls, combine, and methods mixed by layer.
load helpers

setup_file() {
	load helpers
	kv-prefill -m "$(tiny_model --layers 3)" --queries all -o "$BATS_FILE_TMPDIR/cache.kv" \
	    -p "some words of a prompt that is longer than the window, and some words behind them that nobody has read before"
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cache=$BATS_FILE_TMPDIR/cache.kv
	mkdir out
}

# kept FILE LAYER HEAD - the positions that budgets of 20 keep of its scores
kept() {
	kv-budget uniform -b 20 "$1" | kv-evict | kv-show --no-header --tensor index --layer "$2" --head "$3" - | awk '{ print $NF }'
}

@test "streaming keeps the first four and the last, first-k the first" {
	kv-score streaming "$cache" -o streaming.kv
	kv-score first-k "$cache" -o first.kv
	T=$(kv-show --json --no-stats "$cache" | grep -o '"prompt_length":[0-9]*' | head -n 1 | cut -d : -f 2)
	for head in 0 1; do
		cmp <(kept streaming.kv 2 $head) <(seq 0 3; seq $((T - 16)) $((T - 1)))
		cmp <(kept first.kv 2 $head) <(seq 0 19)
	done
	cmp <(kv-score streaming --sink 0 --recent-share 0.5 "$cache" | kept - 0 0) <(seq 0 9; seq $((T - 10)) $((T - 1)))
}

@test "random: a seed decides, and nothing else; shuffled keeps a head's numbers" {
	kv-score random --seed 7 --threads 1 --only score "$cache" -o a.kv
	kv-score random --seed 7 --threads 2 --only score "$cache" -o b.kv
	cmp a.kv b.kv
	kv-score random --seed 8 --only score "$cache" -o b.kv
	run cmp a.kv b.kv
	[ "$status" -eq 1 ]
	kv-score knorm "$cache" -o knorm.kv
	kv-score shuffled --seed 3 knorm.kv -o shuffled.kv
	cmp <(tensor score 1 knorm.kv --head 1 | awk '{ print $NF }' | sort) \
	    <(tensor score 1 shuffled.kv --head 1 | awk '{ print $NF }' | sort)
	run cmp <(tensor score 1 knorm.kv) <(tensor score 1 shuffled.kv)
	[ "$status" -eq 1 ]
}

@test "inverted twice is where it began, and keeps what the method drops" {
	kv-score knorm "$cache" -o knorm.kv
	kv-score inverted knorm.kv | kv-score inverted - -o twice.kv
	cmp <(tensor score 0 knorm.kv | awk '{ print $NF }') <(tensor score 0 twice.kv | awk '{ print $NF }')
	kv-score inverted knorm.kv -o inverted.kv
	[ -z "$(comm -12 <(kept knorm.kv 1 0 | sort) <(kept inverted.kv 1 0 | sort))" ]
	fails 1 'inverted needs scores.*put kv-score METHOD before it' kv-score inverted "$cache" -o out/x
	no_file out
}

@test "expected-attention says which queries it wants" {
	kv-score expected-attention "$cache" -o ea.kv
	cmp <(kept ea.kv 0 0 | head -n 4) <(seq 0 3)
	kv-prefill -m "$(tiny_model --layers 3)" --for expected-attention -p "some words" | kv-score expected-attention >/dev/null
	kv-prefill -m "$(tiny_model --layers 3)" --for snapkv -p "$(seq 1 60)" -o window.kv
	fails 1 'queries all' kv-score expected-attention window.kv -o out/x
	no_file out
}

@test "methods mixed by layer: each layer has the scores of its own method" {
	kv-score knorm --layers 0-1 "$cache" | kv-score keydiff --layers 2 - -o mixed.kv
	kv-score knorm "$cache" -o knorm.kv
	kv-score keydiff "$cache" -o keydiff.kv
	for layer in 0 1; do cmp <(tensor score $layer mixed.kv) <(tensor score $layer knorm.kv); done
	cmp <(tensor score 2 mixed.kv) <(tensor score 2 keydiff.kv)
	kv-budget uniform -b 20 mixed.kv | kv-evict -o small.kv
	# the last method wins where both have scored
	kv-score keydiff --layers 1- knorm.kv -o over.kv
	cmp <(tensor score 0 over.kv) <(tensor score 0 knorm.kv)
	cmp <(tensor score 1 over.kv) <(tensor score 1 keydiff.kv)
}

@test "layers that nobody scored are named, unless they keep everything" {
	kv-score knorm --layers 0-1 "$cache" | kv-budget uniform -b 20 -o some.kv
	fails 1 'layer 2.*needs scores' kv-evict some.kv -o out/x
	fails 1 'layer 2.*needs scores' kv-budget adakv -b 20 some.kv -o out/x
	no_file out
	kv-evict --skip-layers 2 some.kv -o small.kv
	[ "$(tensor index 2 small.kv | wc -l)" -gt "$(tensor index 1 small.kv | wc -l)" ]
	kv-budget uniform -b 100000 some.kv | kv-evict -o all.kv
}

@test "combine: a weight of one is that method; the result replaces what it was made of" {
	kv-score knorm "$cache" -o knorm.kv
	kv-score keydiff --only score "$cache" -o keydiff.kv
	kv-score combine --weights 0,1 knorm.kv keydiff.kv:score=score.b -o one.kv
	cmp <(tensor score 1 one.kv | awk '{ print $NF }') <(tensor score 1 keydiff.kv | awk '{ print $NF }')
	lacks 'score\.b' < <(kv-show one.kv)
	for how in sum max rank; do
		kv-score combine --how $how --weights 2,1 knorm.kv keydiff.kv:score=score.b -o mixed.kv
		kv-budget uniform -b 20 mixed.kv | kv-evict -o small.kv
	done
	kv-score snapkv -w 8 "$cache" | kv-score combine --how rank - keydiff.kv:score=score.b -o protected.kv
	T=$(kv-show --json --no-stats "$cache" | grep -o '"prompt_length":[0-9]*' | head -n 1 | cut -d : -f 2)
	cmp <(kept protected.kv 0 1 | tail -n 8) <(seq $((T - 8)) $((T - 1)))
}

@test "combine: misuse and what does not go together" {
	kv-score knorm "$cache" -o knorm.kv
	kv-score streaming --only score "$cache" -o streaming.kv
	kv-score snapkv -w 4 --only score "$cache" -o snapkv.kv
	kv-score snapkv -w 4 --granularity head --only score "$cache" -o heads.kv
	fails 2 'numbers with commas' kv-score combine --weights 1,x
	fails 2 'ranks do not need it' kv-score combine --how rank --normalize sum
	fails 1 'needs scores.*FILE:score=score.b' kv-score combine "$cache" -o out/x
	fails 1 '1 weights for 2 scores' kv-score combine --weights 1 knorm.kv snapkv.kv:score=score.b -o out/x
	fails 1 'negative score.*--normalize range' kv-score combine --normalize max knorm.kv snapkv.kv:score=score.b -o out/x
	fails 1 'heads.*same --granularity' kv-score combine knorm.kv heads.kv:score=score.b -o out/x
	fails 1 'give --recent TOKENS' kv-score combine "$cache" snapkv.kv streaming.kv:score=score.b -o out/x
	no_file out
	kv-score combine --recent 4 "$cache" snapkv.kv streaming.kv:score=score.b >/dev/null
}
