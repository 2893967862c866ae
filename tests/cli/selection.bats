# SPDX-License-Identifier: MIT
# kv-evict's ways to select, end to end: what stays, what decoding makes of it, what is refused; kv-decode --follow.
load helpers

setup_file() {
	load helpers
	local words

	words=$(printf 'some words of a prompt that is longer than the window, %.0s' 1 2 3)
	kv-prefill -m "$(tiny_model)" -p "$words" -p "short" -p "quite another prompt, which is of middling length" \
		-o "$BATS_FILE_TMPDIR/cache.kv"
	kv-score snapkv -w 8 "$BATS_FILE_TMPDIR/cache.kv" -o "$BATS_FILE_TMPDIR/score.kv"
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cache=$BATS_FILE_TMPDIR/cache.kv score=$BATS_FILE_TMPDIR/score.kv
}

# evict ENTRIES [kv-evict options] - SnapKV scores, uniform budgets
evict() {
	local entries=$1; shift
	kv-budget uniform -b "$entries" "$score" | kv-evict "$@"
}

# positions LAYER HEAD STREAM - those kept of the first sequence
positions() {
	tensor index "$1" "$3" --head "$2" --sequence 0 | awk 'NR > 1 { print $NF }'
}

# logits STREAM - all that kv-decode chose from
logits() {
	tensor logits.response - "$1"
}

@test "one set for all heads of a layer, as many entries as before" {
	evict 24 -o each.kv
	evict 24 --uniform-heads -o one.kv
	for l in 0 1; do
		cmp <(positions $l 0 one.kv) <(positions $l 1 one.kv)
		[ "$(positions $l 0 one.kv | wc -l)" -eq 24 ]
	done
	run ! cmp -s <(positions 0 0 each.kv) <(positions 0 1 each.kv)
	kv-decode -n 4 one.kv >/dev/null
}

@test "units stay whole, but for one" {
	evict 30 --chunk 4 -o units.kv
	evict 30 --chunk 4 --chunk-score max -o max.kv
	for h in 0 1; do
		[ "$(positions 1 $h units.kv | wc -l)" -eq 30 ]
		# 136 tokens, the last 8 are protected: 32 whole units before them
		[ "$(positions 1 $h units.kv | awk '$1 < 128 { n[int($1 / 4)]++ } END { for (u in n) if (n[u] < 4) print u }' | wc -l)" -le 1 ]
	done
	run ! cmp -s <(positions 1 0 units.kv) <(positions 1 0 max.kv)
	cmp <(evict 30 --chunk 1 --only index,offset | kv-show --tensor index -) <(evict 30 --only index,offset | kv-show --tensor index -)
}

@test "a threshold and a share end a head's set, the budget is the cap" {
	kv-score snapkv -w 8 --pool none "$cache" -o raw.kv
	kv-budget uniform -r 1 raw.kv >all.kv
	kv-evict --threshold 0.008 all.kv -o above.kv
	# all of them and none else
	for h in 0 1; do
		tensor score 0 raw.kv --head $h --sequence 0 | awk 'NR > 1 && $NF >= 0.008 { print $1 }' >want
		[ -s want ]
		positions 0 $h above.kv | awk '$1 < 128' | cmp - want
	done
	kv-evict --threshold-share 0.7 all.kv -o share.kv
	[ "$(kv-stat --quantity retained --per head --json share.kv | grep -c retained)" -gt 0 ]
	kv-stat --quantity retained --per head share.kv | awk -F'\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "mean") c = i }
		NR > 1 && $c < 0.7 { bad = 1 } END { exit bad || c == 0 }'
	evict 24 --threshold-share 0.999 -o capped.kv
	[ "$(positions 0 0 capped.kv | wc -l)" -eq 24 ]
	kv-score knorm "$cache" | kv-budget uniform -b 24 >norm.kv
	fails 1 'sequence 0, layer 0: a share of these scores means nothing' kv-evict --threshold-share 0.5 norm.kv -o x
	kv-evict --threshold -3 norm.kv -o y
	fails 1 'a threshold or share is one of scores: .*kv-score' kv-evict --threshold 1 -o x <(kv-budget uniform -r 1 "$cache")
}

@test "layers that keep everything, with a budget or without" {
	evict 24 --skip-layers 1 -o one.kv
	[ "$(positions 0 0 one.kv | wc -l)" -eq 24 ]
	cmp <(positions 1 1 one.kv) <(seq 0 135)
	kv-evict --skip-layers 0- "$cache" -o all.kv
	kv-decode --ignore-eos -n 6 -o a.kv "$cache"
	kv-decode --ignore-eos -n 6 -o b.kv all.kv
	cmp <(logits a.kv) <(logits b.kv)
	kv-evict --skip-layers 0 --skip-layers 1-1 "$cache" -o both.kv
	cmp <(kv-show --tensor k --layer 1 all.kv) <(kv-show --tensor k --layer 1 both.kv)
	fails 1 '--skip-layers 1-2: the model has layers 0 to 1' kv-evict --skip-layers 1-2 "$cache" -o x
	fails 2 '--skip-layers: expected layers' kv-evict --skip-layers two "$cache"
}

@test "what is protected can be said anew" {
	evict 20 --sink 3 --recent 2 -o own.kv
	positions 0 0 own.kv >p
	[ "$(head -n 3 p | tr '\n' ' ')" = "0 1 2 " ]
	[ "$(tail -n 2 p | tr '\n' ' ')" = "134 135 " ]
	[ "$(wc -l <p)" -eq 20 ]
	evict 20 --recent 0 -o none.kv
	run ! grep -qx 135 <(positions 0 0 none.kv)
}

@test "renumbered: the prompt's whole cache changes by no bit" {
	evict 100000 --renumber -o all.kv
	kv-decode --ignore-eos -n 8 -o a.kv "$cache"
	kv-decode --ignore-eos -n 8 -o b.kv all.kv
	cmp <(logits a.kv) <(logits b.kv)
}

@test "renumbered: decoding goes on behind the entries, past what the context had room for" {
	long=$(printf 'many words, %.0s' {1..41})
	kv-prefill -p "$long" | kv-score streaming --sink 4 | kv-budget uniform -b 20 >budget.kv
	kv-evict budget.kv -o kept.kv
	kv-evict --renumber budget.kv -o moved.kv
	cmp <(positions 0 0 kept.kv) <(positions 0 0 moved.kv)
	[ "$(kv-stat --quantity overlap kept.kv moved.kv | awk 'END { print $3 }')" = 1 ]
	cmp <(kv-show --tensor v --layer 1 kept.kv) <(kv-show --tensor v --layer 1 moved.kv)
	kv-decode --ignore-eos --jsonl -n 200 kept.kv 2>err | grep '"stop":"context"' >/dev/null
	kv-decode --ignore-eos --jsonl -n 200 moved.kv >one
	grep '"stop":"length"' one >/dev/null
	grep '"next_position":219' one >/dev/null
	KV_THREADS=1 kv-decode --ignore-eos --jsonl -n 200 moved.kv | cmp one -
	kv-decode -p " and a turn" --ignore-eos --jsonl -n 3 moved.kv | grep '"next_position":30' >/dev/null
}

@test "renumbered: every head of every layer must keep equally many" {
	kv-score snapkv -w 8 --only score,k,v "$cache" | kv-budget uniform -b 40 >budget.kv
	fails 1 'sequence 0, layer 0: head 1 keeps [0-9]+ entries, head 0 keeps [0-9]+: renumbered heads must keep equally many' \
		kv-evict --renumber --threshold 0.015 budget.kv -o x
	fails 1 'sequence 0, layer 1: the heads of this layer keep 136 entries each, those of layer 0 40' \
		kv-evict --renumber --skip-layers 1 budget.kv -o x
	[ ! -e x ]
}

@test "query heads: the same sets make the same answer as KV heads" {
	for how in kv-head head; do
		kv-score snapkv -w 8 --pool none --granularity $how "$cache" | kv-budget uniform -b 24 >budget.kv
		kv-evict --uniform-heads -o $how.kv budget.kv
		kv-decode --ignore-eos -n 6 -o $how.out $how.kv >/dev/null
		kv-evict --uniform-heads --renumber budget.kv | kv-decode --ignore-eos -n 6 -o $how.moved >/dev/null
	done
	cmp <(positions 1 0 kv-head.kv) <(positions 1 3 head.kv)
	cmp <(logits kv-head.out) <(logits head.out)
	cmp <(logits kv-head.moved) <(logits head.moved)
	# and of their own: four caches of a layer, no two alike
	kv-score snapkv -w 8 --granularity head "$cache" | kv-budget uniform -b 24 | kv-evict -o own.kv
	[ "$(for h in 0 1 2 3; do positions 0 $h own.kv | cksum; done | sort -u | wc -l)" -eq 4 ]
	kv-decode -n 4 own.kv >/dev/null
}

@test "all of it together" {
	evict 24 --uniform-heads --chunk 5 --threshold-share 0.9 --sink 2 --skip-layers 0 -o all.kv
	cmp <(positions 1 0 all.kv) <(positions 1 1 all.kv)
	[ "$(positions 1 0 all.kv | wc -l)" -le 24 ]
	[ "$(positions 1 0 all.kv | head -n 2 | tr '\n' ' ')" = "0 1 " ]
	KV_THREADS=1 evict 24 --uniform-heads --chunk 5 --threshold-share 0.9 --sink 2 --skip-layers 0 | cmp all.kv -
}

@test "following another run's answer, token by token" {
	kv-decode --ignore-eos -n 7 -o full.kv "$cache" >/dev/null
	kv-decode --follow full.kv -o same.kv "$cache" >nll
	[ "$(wc -l <nll)" -eq 4 ]
	cmp <(logits full.kv) <(logits same.kv)
	evict 12 -o small.kv
	kv-decode --follow full.kv -o follow.kv small.kv >/dev/null
	kv-decode --ignore-eos -n 7 -o free.kv small.kv >/dev/null
	run ! cmp -s <(logits follow.kv) <(logits free.kv)
	[ "$(tensor q.response 1 follow.kv --head 0 --sequence 1 | wc -l)" -eq 8 ]
	kv-stat --quantity kl-logits,top1 full.kv follow.kv | grep kl-logits >/dev/null
	kv-stat --quantity kl-logits --fail-above 0 full.kv same.kv >/dev/null
		kv-prefill -p "other" -p "quite another prompt, which is of middling length" | kv-decode --ignore-eos -n 3 -o two.kv >/dev/null
	fails 1 'different prompts: sequence 0, token 1' kv-decode --follow two.kv "$cache"
	fails 1 'has no response to follow: kv-decode -o' kv-decode --follow "$cache" "$cache"
	fails 1 'no_such_file' kv-decode --follow no_such_file "$cache"
	fails 2 'exclude each other' kv-decode --follow full.kv --nll-field x "$cache"
	fails 2 'wants a file' kv-decode --follow - "$cache"
}

@test "following finds a sequence by its id, wherever it stands" {
	printf '{"id":"%s","prompt":"%s"}\n' a "the first" b "the second" >ab.jsonl
	tac ab.jsonl >ba.jsonl
	head -n 1 ab.jsonl >a.jsonl
	for x in ab ba a; do kv-prefill --jsonl $x.jsonl --id-field id -o $x.kv; done
	kv-decode --ignore-eos -n 4 -o answers.kv ab.kv >/dev/null
	kv-decode --follow answers.kv -o followed.kv ba.kv >/dev/null
	cmp <(tensor logits.response - answers.kv --sequence 1 | cut -f 2-) <(tensor logits.response - followed.kv --sequence 0 | cut -f 2-)
	kv-decode --ignore-eos -n 4 -o answer.kv a.kv >/dev/null
	fails 1 'has no sequence with the id "b" to follow' kv-decode --follow answer.kv ab.kv
}

@test "misuse: status 2" {
	fails 2 'threshold-share' kv-evict --threshold-share 1.5 "$score"
	fails 2 'threshold-share 0 would keep nothing' kv-evict --threshold-share 0 "$score"
	fails 2 'chunk' kv-evict --chunk -1 "$score"
	fails 2 'chunk-score' kv-evict --chunk 4 --chunk-score median "$score"
	fails 2 'threshold' kv-evict --threshold inf "$score"
}
