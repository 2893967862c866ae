# SPDX-License-Identifier: MIT
# What can go wrong is said in one line, with status 1 or 2, without an End record and without a file under its final
# name.
load helpers

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	mkdir out
}

cache() {
	[ -e cache.kv ] || kv-prefill -p "a prompt of some words" -o cache.kv
}

@test "misuse: status 2, the usage and a hint" {
	fails 2 "unknown option '--bogus'" kv-prefill --bogus
	fails 2 '^usage: kv-prefill ' kv-prefill --bogus
	fails 2 "try 'kv-prefill --help'" kv-prefill --bogus
	fails 2 'no prompt: give -p' kv-prefill
	fails 2 "unexpected 'x'" kv-prefill -p a x
	fails 2 "expected window:N, part:N, last, all or none, got 'window:0'" kv-prefill -p a --queries window:0
	fails 2 'expected one of f16\|bf16\|f32' kv-prefill -p a --dtype f8
	fails 2 "unknown METHOD 'nosuch'.*snapkv" kv-prefill -p a --for nosuch
	fails 2 'system is for --chat' kv-prefill -p a --system b
	fails 2 "chat-template: expected one of .*chatml" kv-prefill -p a --chat-template nosuch
	fails 2 'exclude each other' kv-decode -p a -f b
	fails 2 'from 1e-09 to 1' kv-decode --top-p 1.5
	fails 2 'from 0 to 1024' kv-decode --threads 5000
	fails 2 'both want standard output' kv-decode --jsonl -o -
	fails 2 'auto, cpu, cuda or cuda:N' kv-decode --device gpu
}

@test "the environment is checked like the options" {
	KV_THREADS=many fails 2 'KV_THREADS.*many' kv-prefill -p a
	KV_DEVICE=gpu fails 2 "got 'gpu'" kv-prefill -p a
	unset KV_MODEL
	fails 2 'KV_MODEL' kv-prefill -p a
	fails 2 'KV_MODEL' kv-decode
}

@test "no model, no prompt file, a folder instead of a file" {
	fails 1 'nosuch.gguf' kv-prefill -m nosuch.gguf -p a
	fails 1 'nosuch.txt' kv-prefill -f nosuch.txt
	fails 1 '^kv-prefill: .*out' kv-prefill -f out
	fails 1 'nosuch.kv' kv-decode nosuch.kv
	fails 1 'out.*directory' kv-decode out
	fails 1 'directory' kv-decode <out
	echo text >out/text
	fails 1 'out/text' kv-prefill -m out/text -p a
	fails 1 'out/text' kv-decode out/text
}

@test "an empty prompt" {
	fails 1 'prompt 0: the prompt is empty' kv-prefill -p '' -o out/x
	fails 1 'prompt 1 \(/dev/null\): the prompt is empty' kv-prefill -p a -f /dev/null -o out/x
	fails 1 'prompt 0: the prompt is empty' kv-prefill --tokens ' ' -o out/x
	no_file out
}

@test "a prompt longer than the context, an id outside the vocabulary: before anything runs" {
	printf '5 %.0s' $(seq 5000) >long
	fails 1 'prompt 1 \(long\): the prompt has 5000 tokens, the model.s context ends at [0-9]+' \
	    kv-prefill -p a --tokens-file long -o out/x
	fails 1 'token id 1000000 at position 1 is outside' kv-prefill --tokens "1 1000000" -o out/x
	no_file out
}

@test "a record that a stream cannot carry" {
	printf '{"prompt":"a"}\n{"prompt":"a","x":%s1%s}\n' "$(printf '[%.0s' $(seq 20))" "$(printf ']%.0s' $(seq 20))" >deep.jsonl
	fails 1 'prompt 1: .*nested' kv-prefill --jsonl deep.jsonl -o out/x
	{ printf '{"prompt":"a","x":['; seq -s , 1600000 | tr -d '\n'; printf ']}\n'; } >wide.jsonl
	fails 1 'prompt 0: .*more than [0-9]+ elements' kv-prefill --jsonl wide.jsonl -o out/x
	printf '{"prompt":"a"}\n{"prompt":"\377"}\n' >bytes.jsonl
	fails 1 'bytes.jsonl:2: not JSON' kv-prefill --jsonl bytes.jsonl -o out/x
	no_file out
}

@test "a full disk and a closed output" {
	cache
	fails 1 '^kv-prefill: ' kv-prefill -p a -o /dev/full
	fails 1 '^kv-prefill: ' bash -c 'kv-prefill -p a >/dev/full'
	fails 1 '^kv-decode: ' bash -c 'kv-decode -n 2 cache.kv >/dev/full'
	fails 1 '^kv-decode: ' bash -c 'kv-decode -n 2 --jsonl cache.kv >/dev/full'
	fails 1 '^kv-prefill: ' bash -c 'kv-prefill --help >/dev/full'
	fails 1 '^kv-prefill: ' bash -c 'kv-prefill -p a >&-'
	fails 1 '^kv-decode: ' bash -c 'kv-decode -n 2 cache.kv >&-'
	fails 1 '^kv-prefill: ' bash -c 'kv-prefill --version >&-'
}

@test "a closed output never becomes part of the next file that is opened" {
	cp "$KV_MODEL" model.gguf
	run bash -c 'kv-prefill -m model.gguf -p a >&- 2>&- <&-'
	[ "$status" -eq 1 ]
	cmp model.gguf "$KV_MODEL"
}

@test "the reader has gone: the end is quiet" {
	local prompts=()

	# more than a pipe takes when nobody reads
	for i in $(seq 40); do prompts+=(--tokens "$(printf '5 %.0s' $(seq 60))"); done
	run --separate-stderr bash -c \
	    'kv-prefill "$@" --queries all | head -c 100 | wc -c; echo ${PIPESTATUS[0]}' - "${prompts[@]}"
	[ -z "$stderr" ]
	[ "${lines[0]}" = 100 ]
	[ "${lines[1]}" -ne 0 ]
}

@test "a terminal is no place for a stream" {
	command -v script || skip "no script"
	run script -qec "kv-prefill -p a" /dev/null
	[ "$status" -eq 1 ]
	[[ $output == *terminal* ]]
	run script -qec "kv-decode" /dev/null
	[ "$status" -eq 1 ]
	[[ $output == *terminal* ]]
}

@test "a stream that is cut" {
	cache
	size=$(stat -c %s cache.kv)
	for i in $(seq 0 19); do
		head -c $((size * i / 20)) cache.kv >cut.kv
		fails 1 '^kv-decode: ' kv-decode -n 2 -o out/x cut.kv
		fails 1 '^kv-decode: ' kv-decode -n 2 -o out/x <cut.kv
		no_file out
	done
	head -c $((size - 1)) cache.kv >cut.kv
	fails 1 'cut short' kv-decode -n 2 cut.kv
}

@test "the producer is killed in the middle of a tensor" {
	cache
	run --separate-stderr bash -c '{ head -c 3000 cache.kv; kill -9 $BASHPID; } | kv-decode -n 2 -o out/x'
	[ "$status" -ne 0 ]
	[[ $stderr == *"kv-decode: "* ]]
	no_file out
}

@test "an interrupted run leaves no file" {
	mkfifo fifo
	kv-prefill -f fifo -o out/x &
	pid=$!
	exec 9>fifo
	kill -TERM $pid
	exec 9>&-
	run wait $pid
	[ "$status" -ne 0 ]
	no_file out
}

@test "the wrong model for a cache: both are named" {
	cache
	other=$(tiny_model --seed 99)
	fails 1 'cache.kv: wrong model for this cache.*weights [0-9a-f]{32}.*weights [0-9a-f]{32}' kv-decode -m "$other" cache.kv
	fails 1 'wrong model' kv-decode -m "$other" -o out/x cache.kv
	no_file out
}

@test "a cache without keys, or with layers missing" {
	kv-prefill -p "a b c" --drop k -o nok.kv
	fails 1 'nok.kv: sequence 0, layer 0: no k: kv-prefill writes it' kv-decode nok.kv
	kv-prefill -p "a b c" --only logits -o logits.kv
	fails 1 'logits.kv: sequence 0, layer 0: no k: kv-prefill writes it' kv-decode logits.kv
}

@test "turns and continuations that are not there" {
	cache
	fails 1 "field 'question' is missing" kv-decode --prompt-field question cache.kv
	fails 1 'the turn to append is empty' kv-decode -p '' cache.kv
	fails 1 'the continuation to measure is empty' kv-decode --nll /dev/null cache.kv
	fails 1 'nosuch' kv-decode --nll nosuch cache.kv
}

@test "a flipped bit is found by the checksum" {
	cache
	cp cache.kv flipped.kv
	at=$(($(stat -c %s cache.kv) - 600)) # among the logits, which come last
	byte=$(od -An -tu1 -j $at -N 1 cache.kv)
	printf "\\x$(printf %02x $((byte ^ 16)))" | dd of=flipped.kv bs=1 seek=$at conv=notrunc status=none
	fails 1 'flipped.kv: sequence 0' kv-decode -n 2 -o out/x flipped.kv
	no_file out
}

@test "what is not finite is no token: layer and position are named" {
	KV_MODEL=$(tiny_model --broken-token 90) # Z
	fails 1 '(layer [0-9]+|embedding), position 5' kv-prefill -p "a b Z c" -o out/x
	no_file out
	kv-prefill -p "a b c" -o good.kv
	fails 1 'good.kv: sequence 0.*(layer [0-9]+|embedding), position 7' kv-decode -p " Z" -n 5 good.kv
	fails 1 'good.kv: sequence 0.*(layer [0-9]+|embedding), position 7' kv-decode --nll <(printf ' Zebra') good.kv
}

@test "a model with sizes beyond sense is refused at once" {
	local limit=2000000

	case $KV_BUILD in */san) limit=unlimited ;; esac # sanitizers reserve terabytes
	make_model --hf hf
	sed -i -E 's/"head_dim": *[0-9]+/"head_dim": 2147483648/' hf/config.json
	grep -q 2147483648 hf/config.json
	fails 1 'head_dim is 2147483648, expected 2 to 65536' bash -c "ulimit -v $limit; timeout 20 kv-show hf"
}

@test "budgets and methods that are none" {
	kv-prefill -p "a prompt of some words" | kv-score snapkv -w 4 -o scored.kv
	fails 2 "from 1 to|expected" kv-budget uniform -b 0 -o out/x scored.kv
	fails 2 "expected a whole number" kv-budget uniform -b many -o out/x scored.kv
	fails 2 "unknown METHOD 'nosuch'.*" kv-score nosuch -o out/x scored.kv
	no_file out
}

@test "what a stage needs and does not get is named, with what brings it" {
	kv-prefill -p "a prompt of some words" --queries none -o noq.kv
	fails 1 'noq.kv: sequence 0, layer 0.*--(queries|for)' kv-score snapkv -o out/x noq.kv
	cache
	fails 1 'cache.kv: sequence 0.*kv-budget' kv-evict -o out/x cache.kv
	no_file out
}

@test "caches and budgets of different prompts do not join" {
	cache
	kv-prefill -p "another prompt of other words" | kv-score snapkv -w 4 --only score | kv-budget uniform -b 4 >other.kv
	fails 1 'cache.kv.*other.kv|other.kv.*cache.kv' kv-evict -o out/x cache.kv other.kv
	no_file out
}

@test "misuse that names its option" {
	fails 2 "--tokens: 'x' is not a token id" kv-prefill --tokens '1 x'
	fails 2 "--only: 'k, v': a space" kv-prefill -p a --only 'k, v'
	fails 2 "--drop: " kv-evict --drop 'k,,v'
	fails 2 'output: the name of the file is empty' kv-prefill -p a -o ''
	fails 2 'from 0 to 18446744073709551615' kv-decode --seed x
	fails 2 'standard input can be read once' kv-prefill -f - --jsonl -
	cache
	fails 2 'standard input can be read once' kv-decode --nll - <cache.kv
	kv-decode --nll - cache.kv <<<" text"
	KV_THREADS=zz kv-evict --help | grep -c '^usage: kv-evict'
	fails 2 'KV_THREADS' env KV_THREADS=zz kv-evict
	fails 1 'no tensor of layer 99' kv-show -l 99 cache.kv
	fails 2 'unknown option .*\\x1b\[31m' kv-prefill $'--\e[31mred'
	fails 2 'unknown METHOD .*\\x1b\[31m' kv-score $'\e[31mred'
}

@test "the place of a fault, however long its name" {
	long=$(printf 'a%.0s' $(seq 3000))
	fails 1 '^kv-decode: aaaa.*\.\.\..*: File name too long$' kv-decode "$long"
	printf '{"prompt":"a","id":"a\\u0000b"}\n' >nul.jsonl
	fails 1 "nul.jsonl:1: field 'id', the id, has a NUL" kv-prefill --jsonl nul.jsonl --id-field id
	cache
	fails 1 '<stdout>: cannot write' bash -c 'kv-decode -n 2 cache.kv >/dev/full'
	fails 1 'is not a regular file' kv-prefill -m <(cat "$KV_MODEL") -p a
	fails 1 'make cuda.*--device cpu' env KV_CUDA_LIBRARY=./none.so kv-prefill --device cuda -p a
}

@test "an output that is there: its mode stays, a link is followed, a signal leaves nothing" {
	echo old >private
	chmod 600 private
	kv-prefill -p a -o private
	[ "$(stat -c %a private)" = 600 ]
	mkdir elsewhere
	ln -s elsewhere/new.kv link
	kv-prefill -p a -o link
	[ -L link ] && [ -s elsewhere/new.kv ]
	run bash -c 'ulimit -c 0; ulimit -f 2; kv-prefill -p "a b c d e f g h" -o out/x'
	[ "$status" -ne 0 ]
	no_file out
}

@test "a text that begins with the beginning-of-sequence token has one" {
	kv-prefill -p hello -o plain.kv
	kv-prefill --special -p '<s>hello' -o said.kv
	kv-show --json plain.kv | grep -o '"tokens":\[[^]]*' >a || kv-show --tokens plain.kv >a
	kv-show --json said.kv | grep -o '"tokens":\[[^]]*' >b || kv-show --tokens said.kv >b
	[ "$(kv-show --json said.kv | grep -o '"prompt_length":[0-9]*')" = "$(kv-show --json plain.kv | grep -o '"prompt_length":[0-9]*')" ]
	cmp a b
}

@test "an id is harmless where people and tables read it" {
	printf '{"prompt":"a","id":"x"}\n{"prompt":"b","id":"\\u001b[31m\\tred"}\n' >ids.jsonl
	kv-prefill --jsonl ids.jsonl --id-field id -o ids.kv
	kv-decode -n 1 ids.kv | grep -Fxc -- '--- \x1b[31m\tred'
	kv-decode --nll <(printf b) ids.kv | grep -Fc '\x1b[31m\tred'
}

@test "a name that no tensor had is worth a warning, not with -q" {
	cache
	fails 0 'warning: --only scores: no tensor had that name' kv-score random --only scores,k -o x.kv cache.kv
	fails 0 'warning: --drop nosuch.\*: no' kv-prefill -p a --drop 'nosuch.*,v' -o x.kv
	run --separate-stderr kv-score random -q --only scores -o x.kv cache.kv
	[ -z "$stderr" ]
	run --separate-stderr kv-score random --only 'score,k,v*' --drop logits -o x.kv cache.kv
	[ -z "$stderr" ]
}

@test "the demo runs on a model without a template for conversations" {
	make_model --context 8192 bare.gguf
	KV_MODEL=$PWD/bare.gguf "$BATS_TEST_DIRNAME/../../examples/demo.sh" | grep -c '^snapkv 128 .*%'
}
