# SPDX-License-Identifier: MIT
load helpers

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
}


@test "help goes to standard output and shows the defaults" {
	run --separate-stderr kv-prefill --help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[[ $output == *"--queries WHICH"*"(default window:32)"* ]]
	[[ $output == *"--dtype TYPE"*"f16|bf16|f32 (default f16)"* ]]
	[[ $output == *"--model MODEL"*"(default $KV_MODEL)"* ]]
}

@test "the version" {
	run kv-prefill --version
	[ "$status" -eq 0 ]
	[[ $output == "kv-prefill (kvtools) "[0-9]* ]]
}

@test "the same command gives the same bytes, whatever the number of threads" {
	KV_THREADS=1 kv-prefill -p "some words of a prompt" -p "another" >one
	KV_THREADS=2 kv-prefill -p "some words of a prompt" -p "another" >two
	cmp one two
}

@test "A, B, A: what a prompt gives does not depend on its neighbours" {
	kv-prefill -p "the first prompt" -p "something else, longer" -p "the first prompt" -o aba.kv
	kv-decode -n 6 --ignore-eos --jsonl aba.kv >answers
	[ "$(wc -l <answers)" -eq 3 ]
	sed 's/"id":"[0-9]*"//' answers >plain
	[ "$(sed -n 1p plain)" = "$(sed -n 3p plain)" ]
	[ "$(sed -n 1p plain)" != "$(sed -n 2p plain)" ]
	# bit by bit: the logits of the third answer are those of the first
	kv-decode -n 4 --ignore-eos -o out.kv aba.kv
	tensor logits.response - out.kv --sequence 0 >first
	tensor logits.response - out.kv --sequence 2 >third
	cmp first third
}

@test "bytes of a file are not trimmed; NUL and broken UTF-8 are bytes like others" {
	printf ' a\0\377 \n\n' >text
	kv-prefill -f text --no-bos -o file.kv
	kv-prefill -f - --no-bos -o stdin.kv <text
	kv-decode -n 3 --jsonl file.kv >a
	kv-decode -n 3 --jsonl stdin.kv >b
	cmp a b
	# in this vocabulary a byte is its own token, and " a" is 263
	kv-show --json file.kv >shown
	grep -Fq '"tokens":[263,0,255,32,10,10]' shown
	printf ' a\0\377 ' >shorter
	kv-prefill -f shorter --no-bos -o shorter.kv
	tensor logits - file.kv >a
	tensor logits - shorter.kv >b
	run ! cmp -s a b
}

@test "JSON Lines: ids, and fields that travel along" {
	printf '%s\n' '{"prompt":"a b","id":17,"answers":["x",{"y":null}],"n":1.5}' '' '{"prompt":"c","id":"z"}' >p.jsonl
	kv-prefill --jsonl p.jsonl --id-field id | kv-decode -n 2 --jsonl >out
	[ "$(wc -l <out)" -eq 2 ]
	grep -Fq '"answers":["x",{"y":null}]' out
	grep -Fq '"n":1.5' out
	grep -Fq '"prompt":"a b"' out
	grep -Fq '"id":"17"' out
	grep -Fq '"id":"z"' out
}

@test "text, file, ids and JSON Lines are prompts of one run, in this order" {
	printf 'from a file' >f
	printf '{"prompt":[5,6,7]}\n' >j
	printf '9 10\n11,12' >t
	kv-prefill --jsonl j --tokens-file t --tokens "1 2 3" -f f -p "from a text" | kv-decode -n 1 --jsonl >out
	[ "$(wc -l <out)" -eq 5 ]
	grep -o '"next_position":[0-9]*' out | tail -n 3 | tr '\n' ' ' >n
	[ "$(cat n)" = '"next_position":3 "next_position":4 "next_position":3 ' ]
}

@test "the queries that are asked for" {
	for q in window:2 last all none; do
		kv-prefill -p "0123456789" --queries $q -o $q.kv
		kv-show $q.kv >$q.txt
	done
	grep -Eq ' q .*query 2,.*region="window" first_position=9' window:2.txt
	grep -Eq ' q .*query 1,.*region="last" first_position=10' last.txt
	grep -Eq ' q .*query 11,.*region="all" first_position=0' all.txt
	run ! grep -q ' q ' none.txt
	kv-prefill -p "0123456789" --for snapkv >for.kv
	kv-prefill -p "0123456789" --queries window:32 >window.kv
	tensor q 0 for.kv >a
	tensor q 0 window.kv >b
	cmp a b
}

@test "verbose says which device it was, and why" {
	run --separate-stderr kv-prefill -v --device cpu -p x -o x.kv
	[ "$status" -eq 0 ]
	[ "$stderr" = "kv-prefill: device: cpu" ]
	run --separate-stderr kv-prefill -v --device auto -p x -o x.kv
	[ "$status" -eq 0 ]
	[[ $stderr == "kv-prefill: device: cpu, for want of cuda: "* || $stderr == "kv-prefill: device: cuda" ]]
}

@test "only and drop choose what leaves" {
	kv-prefill -p "some words" --only logits -o logits.kv
	kv-prefill -p "some words" --drop q,k,v -o dropped.kv
	tensor logits - logits.kv >a
	tensor logits - dropped.kv >b
	cmp a b
	run ! tensor k 0 logits.kv
	run ! tensor k 0 dropped.kv
}

@test "the type of keys and values" {
	for t in f16 bf16 f32; do
		kv-prefill -p "some words" --dtype $t -o $t.kv
	done
	[ "$(stat -c %s f16.kv)" -eq "$(stat -c %s bf16.kv)" ]
	[ "$(stat -c %s f16.kv)" -lt "$(stat -c %s f32.kv)" ]
	kv-decode -n 2 f32.kv >/dev/null
}

@test "chat wraps in the model's template, BOS once" {
	kv-prefill --chat -p "hi" -o chat.kv
	kv-prefill --special -p $'<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n' -o plain.kv
	kv-show --json chat.kv >shown
	grep -Fq '"chat":"chatml"' shown
	tensor logits - chat.kv >a
	tensor logits - plain.kv >b
	cmp a b
}
