# SPDX-License-Identifier: MIT
load helpers

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
}

story() {
	shared_file data/stories260K.gguf
	export KV_MODEL=$file
}

@test "the story model tells its story, greedily, from the whole cache" {
	story
	kv-prefill -p "Once upon a time" | kv-decode -n 200 >text
	[[ $(cat text) == ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, \
red ball. She wanted to play with it, but it was too high."* ]]
}

@test "a budget of the whole prompt changes no byte of the answer" {
	story
	printf 'Once upon a time, there was a dog. The dog had a ball and wanted to play in the park all day.' >p
	kv-prefill -f p -o full.kv
	kv-score snapkv full.kv | kv-budget uniform -b 4096 | kv-evict -o kept.kv
	kv-decode -n 40 --temperature 0.8 --seed 3 -o a.kv full.kv >full
	kv-decode -n 40 --temperature 0.8 --seed 3 -o b.kv kept.kv >kept
	[ -s full ]
	cmp full kept
	tensor logits.response - a.kv >la
	tensor logits.response - b.kv >lb
	cmp la lb
	kv-decode --nll p full.kv >n1
	kv-decode --nll p kept.kv >n2
	cmp n1 n2
}

@test "several answers as text: each ends with a newline, a line says whose the next is" {
	kv-prefill -p "é" -p "ab" -p "日本" -o p.kv
	for seed in 1 2 3; do
		kv-decode -n 60 --ignore-eos --temperature 1 --seed $seed --jsonl p.kv >json
		kv-decode -n 60 --ignore-eos --temperature 1 --seed $seed p.kv >text
		[ "$(grep -c '^--- [12]$' text)" -eq 2 ]
		[ "$(grep -o '"n_tokens":60' json | wc -l)" -eq 3 ]
	done
}


@test "one thread and two give the same bytes" {
	kv-prefill -p "some words" -o p.kv
	KV_THREADS=1 kv-decode -n 20 --ignore-eos --jsonl p.kv >one
	KV_THREADS=2 kv-decode -n 20 --ignore-eos --jsonl p.kv >two
	cmp one two
}

@test "sampling repeats itself with the seed, and only with it" {
	kv-prefill -p "some words" -o p.kv
	kv-decode -n 20 --ignore-eos --temperature 1 --seed 7 --jsonl p.kv >a
	kv-decode -n 20 --ignore-eos --temperature 1 --seed 7 --jsonl p.kv >b
	kv-decode -n 20 --ignore-eos --temperature 1 --seed 8 --jsonl p.kv >c
	cmp a b
	run ! cmp -s a c
	kv-decode -n 20 --ignore-eos --temperature 1 --top-k 1 --seed 8 --jsonl p.kv >d
	kv-decode -n 20 --ignore-eos --jsonl p.kv >e
	cmp d e
}

@test "JSON Lines: tokens, stop, positions, kept entries; a clash keeps the attribute" {
	printf '{"prompt":[5,6,7,8],"response":"expected","topic":"x"}\n' >p.jsonl
	kv-prefill --jsonl p.jsonl | kv-decode -n 5 --ignore-eos --jsonl >out
	grep -Fq '"topic":"x"' out
	grep -Fq '"attributes.response":"expected"' out
	grep -Fq '"n_tokens":5' out
	grep -Fq '"stop":"length"' out
	grep -Fq '"next_position":8' out
	grep -Eq '"kept_entries":[0-9]+' out
}

@test "nll of a continuation is that of the tokens it is made of" {
	story
	kv-prefill -p "Once upon a time" -o p.kv
	printf ', there was a little girl named Lily.' >likely
	printf ', purple xylophone 99 %%%% girl Lily.' >unlikely
	kv-decode --nll likely p.kv >a
	kv-decode --nll unlikely p.kv >b
	[ "$(head -n 1 a)" = $'id\tn_tokens\tnll\tnll_per_token' ]
	awk 'NR == 2 { x = $4 } END { exit !(x > 0 && x < 1) }' a
	awk 'NR == 2 { x = $4 } END { exit !(x > 3) }' b
	# the sum of ln p over greedy steps, from the logits of the answer's stream
	n=$(awk 'NR == 2 { print $2 }' a)
	kv-decode -n "$n" --jsonl p.kv >greedy
	grep -Fq '"response":", there was a little girl named Lily."' greedy
	printf '{"prompt":"Once upon a time","gold":", there was a little girl named Lily."}\n' >j
	kv-prefill --jsonl j | kv-decode --nll-field gold >c
	cmp a c
}

@test "a turn is appended to the cache, at the positions behind it" {
	kv-prefill -p "one two three four" --no-bos --dtype f32 -o half.kv
	kv-prefill -p "one two three four five six" --no-bos --dtype f32 -o whole.kv
	kv-decode -p " five six" -n 8 --ignore-eos --jsonl half.kv | grep -o '"tokens":[^]]*\]\|"next_position":[0-9]*' >a
	kv-decode -n 8 --ignore-eos --jsonl whole.kv | grep -o '"tokens":[^]]*\]\|"next_position":[0-9]*' >b
	cmp a b
}

@test "a turn needs no logits; an answer without them says what brings them" {
	kv-prefill -p "one two" --drop logits -o p.kv
	kv-decode -p " three" -n 2 p.kv >/dev/null
	fails 1 'p.kv: sequence 0.*no logits.*kv-prefill' kv-decode -n 2 p.kv
}

@test "the stream of an answer" {
	kv-prefill --tokens "5 6 7 8 9" -o p.kv
	kv-decode -n 4 --ignore-eos -o out.kv p.kv >text
	[ -s text ]
	kv-show out.kv >shown
	grep -Eq 'logits.response.*\[row 4, vocab ' shown
	grep -Eq ' q.response .*query 4,.*first_position=5' shown
	kv-show --json out.kv >json
	grep -q kv-prefill json
	grep -q kv-decode json
	kv-decode -n 4 --ignore-eos -o - p.kv >out2.kv
	kv-score tova p.kv | kv-budget uniform -r 1 --only budget -o budget.kv
	kv-decode -n 4 --ignore-eos -o - p.kv budget.kv | kv-show --json - >json # joined: the recipes of both, each entry once
	for program in kv-prefill kv-score kv-budget kv-decode; do
		[ "$(grep -o "\"program\": *\"$program\"" json | wc -l)" -eq 1 ]
	done
	tensor q.response 0 out.kv >a
	tensor q.response 0 out2.kv >b
	cmp a b
}

@test "the context is the end, with a warning" {
	KV_MODEL=$(tiny_model --context 16)
	kv-prefill --tokens "1 2 3 4 5 6 7 8 9 10" -o p.kv
	run --separate-stderr kv-decode --ignore-eos -n 50 --jsonl p.kv
	[ "$status" -eq 0 ]
	[[ $stderr == *"context of 16"* ]]
	[[ $output == *'"stop":"context"'* ]]
	[[ $output == *'"n_tokens":7'* ]]
}

@test "a turn of a conversation closes the answer that was open" {
	kv-prefill --chat -p "hi" --dtype f32 -o half.kv
	kv-prefill --special --dtype f32 -o whole.kv -p \
	    $'<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n'
	kv-decode --chat -p "more" -n 8 --ignore-eos --jsonl half.kv >a
	kv-decode -n 8 --ignore-eos --jsonl whole.kv >b
	for f in a b; do grep -ao '"tokens":[^]]*\]\|"next_position":[0-9]*' $f >$f.part; done
	[ -s a.part ]
	cmp a.part b.part
}

@test "a turn comes from a file or from the record, byte by byte" {
	printf '{"prompt":"one two","question":" three\\u0000 "}\n' >j
	printf ' three\0 ' >q
	kv-prefill --jsonl j -o p.kv
	kv-decode --prompt-field question -n 5 --ignore-eos --jsonl p.kv >a
	kv-decode -f q -n 5 --ignore-eos --jsonl p.kv >b
	cmp a b
	kv-decode -p ' three' -n 5 --ignore-eos --jsonl p.kv >c # the turn's last two bytes are two tokens
	at() { grep -ao '"next_position":[0-9]*' "$1" | cut -d : -f 2; }
	[ "$(at a)" -eq $(($(at c) + 2)) ]
}

@test "no tokens are no answer" {
	kv-prefill -p "one two" -o p.kv
	[ "$(kv-decode -n 0 p.kv)" = "" ]
	kv-decode -n 0 --jsonl p.kv | grep -Fc '"n_tokens":0'
}
