# SPDX-License-Identifier: MIT
# kv-prefill --response: what stands behind a prompt, for its queries and keys.
load helpers

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
}

# same STREAM STREAM TENSOR... - equal values in every layer
same() {
	local a=$1 b=$2 name layer; shift 2

	for name; do
		for layer in 0 1; do
			tensor "$name" $layer "$a" >same.a
			tensor "$name" $layer "$b" >same.b
			cmp same.a same.b
		done
	done
}

# shows STREAM PATTERN [kv-show options] - a line of kv-show's matches; grep reads all of it, for pipefail
shows() {
	local stream=$1 pattern=$2; shift 2

	kv-show "$@" "$stream" >shown
	grep -E -- "$pattern" shown >/dev/null || { cat shown; return 1; }
}

@test "a response changes no bit of the prompt's tensors" {
	words=$(seq -s ' ' 30) # 81 tokens: no multiple of 64
	kv-prefill -p "$words" --dtype f32 --queries all -o alone.kv
	kv-prefill -p "$words" --dtype f32 --queries all --response "tokens:1 2 3 4 5 6 7" -o with.kv
	same alone.kv with.kv q k v
	tensor logits - alone.kv >a
	tensor logits - with.kv >b
	cmp a b
	shows with.kv ' 0 q.response .*query 7,.*first_position=81$'
	shows with.kv ' 0 k.response .*\[kv_head [0-9]+, row 7, dim '
	shows with.kv '"response":\[1,2,3,4,5,6,7\]' --json
}

@test "rows behind are what they are as part of a longer prompt" {
	kv-prefill --tokens "$(seq -s ' ' 40 75)" --dtype f32 --response "tokens:9 8 7" -o behind.kv
	kv-prefill --tokens "$(seq -s ' ' 40 75) 9 8 7" --dtype f32 --queries window:3 -o whole.kv
	tensor q.response 1 behind.kv | awk '{ print $NF }' >a
	tensor q 1 whole.kv | awk '{ print $NF }' >b
	[ "$(wc -l <a)" -eq "$(wc -l <b)" ]
	paste a b | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d } END { exit !(NR > 0 && m < 1e-4) }'
}

@test "the model's own response is kv-decode's, from a file of the same type" {
	for type in f16 f32; do
		kv-prefill -p "some words" --dtype $type --response generate:9 -o own.kv
		kv-prefill -p "some words" --dtype $type | kv-decode -n 9 --jsonl >answer
		ids=$(grep -o '"tokens":[^]]*]' answer | head -n 1)
		kv-show --json own.kv | grep -o '"response":[^]]*]' | sed 's/response/tokens/' >got
		[ "$(cat got)" = "$ids" ]
	done
	shows own.kv 'stop="length"'
	kv-prefill -p "some words" --dtype f32 --response "tokens:$(tr -dc '0-9,' <got)" -o given.kv
	same own.kv given.kv q k v q.response k.response
}

@test "a response comes from a file, a field, a list of ids; text and ids are the same rows" {
	printf ' and more' >more
	printf '%s\n' '{"prompt":"some words","text":" and more","ids":[32,97,110,100,32,109,111,114,101]}' >p.jsonl
	kv-prefill -p "some words" --response file:more -o file.kv
	kv-prefill -p "some words" --response file:- -o stdin.kv <more
	kv-prefill --jsonl p.jsonl --response field:text -o field.kv
	same file.kv stdin.kv q.response k.response
	same file.kv field.kv q.response k.response
	kv-prefill --jsonl p.jsonl --response field:ids -o ids.kv
	shows ids.kv '"response":\[32,97,110,100,32,109,111,114,101\]' --json
	shows ids.kv '"text":" and more"' --json
}

@test "an answer of kv-decode comes back as a response" {
	printf '%s\n' '{"prompt":"one"}' '{"prompt":"two"}' >p.jsonl
	kv-prefill --jsonl p.jsonl | kv-decode -n 5 --ignore-eos --jsonl >answers.jsonl
	kv-prefill --jsonl answers.jsonl --queries none --response field:tokens -o r.kv
	grep -o '"tokens":[^]]*]' answers.jsonl | sed 's/tokens/response/' >want
	kv-show --json r.kv | grep -o '"response":\[[^]]*]' >got
	cmp want got
	kv-show r.kv >shown
	run ! grep -q ' q ' shown
	# another model reads the text of it
	KV_MODEL=$(tiny_model --seed 9) kv-prefill --jsonl answers.jsonl --response field:response -o other.kv
}

@test "the stages behind do not mind a response" {
	kv-prefill -p "$(seq -s ' ' 30)" -o plain.kv
	kv-prefill -p "$(seq -s ' ' 30)" --response generate:6 -o with.kv
	for s in plain with; do
		kv-score snapkv -w 8 $s.kv | kv-budget uniform -b 20 | kv-evict | kv-decode -n 8 --ignore-eos >$s.txt
	done
	cmp plain.txt with.txt
}

@test "an end token at the end is left out; an empty response says so" {
	kv-prefill -p "some words" --response "tokens:5 6 265" -o r.kv
	shows r.kv '"response":\[5,6\]' --json
	run --separate-stderr kv-prefill -p "some words" --response tokens:265 -o empty.kv
	[ "$status" -eq 0 ]
	[[ $stderr == *"prompt 0: the response is empty"* ]]
	shows empty.kv ' 0 q.response .*query 0,'
}

@test "the context is the end of a response" {
	KV_MODEL=$(tiny_model --context 16)
	kv-prefill --tokens "1 2 3 4 5 6 7 8 9 10 11 12" --response generate:50 -o r.kv
	shows r.kv ' 0 q.response .*query 4,'
	shows r.kv 'stop="context"'
	fails 1 'prompt 0: 12 tokens and a response of 5: .*context ends at 16' \
	    kv-prefill --tokens "1 2 3 4 5 6 7 8 9 10 11 12" --response "tokens:1 2 3 4 5" -o no.kv
	[ ! -e no.kv ]
}

@test "what a response may be is said" {
	fails 2 "response: expected file:FILE, field:NAME, tokens:IDS or generate:N, got 'x'" kv-prefill -p a --response x
	fails 2 'response: generate: expected a number of tokens' kv-prefill -p a --response generate:many
	fails 1 "prompt 0: field 'x' is missing" kv-prefill -p a --response field:x -o no.kv
	fails 1 "nowhere" kv-prefill -p a --response file:nowhere -o no.kv
	fails 1 "'x' is not a token id" kv-prefill -p a --response tokens:x -o no.kv
	fails 1 'prompt 0: token id 9999 at position 2 is outside' kv-prefill -p a --response tokens:9999 -o no.kv
	[ ! -e no.kv ]
}
