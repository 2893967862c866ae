# SPDX-License-Identifier: MIT
# What holds for every method that the programs list: two prompts in one stream are two runs, one layer is enough, and
# no head is emptied in silence.
load helpers

# methods PROGRAM - names in the table that its help prints
methods() {
	"$1" --help | awk '/^METHOD:/ { on = 1; next } on && NF == 0 { exit } on { print $1 }'
}

# score METHOD STREAM - with earlier scores in the stream for those that change them
score() {
	case $1 in
	shuffled | inverted | combine) kv-score knorm "$2" | kv-score "$1" ;;
	lookahead) kv-score lookahead "$2:q.response=q.lookahead,k.response=k.lookahead" ;; # any rows behind will do
	*) kv-score "$1" "$2" ;;
	esac
}

# budget METHOD LAYERS FILE - 20 entries, or what the method decides
budget() {
	local table=$BATS_TEST_TMPDIR/heads

	for ((l = 0; l < $2; l++)); do echo '0.9 0.2'; done >"$table"
	case $1 in
	headkv) kv-budget headkv -b 20 --importance "$table" "$3" ;;
	duo) kv-budget duo --gates "$table" --sink 4 --recent 8 "$3" ;;
	fastgen) kv-budget fastgen "$3" ;;
	*) kv-budget "$1" -b 20 "$3" ;;
	esac
}

# scores_for METHOD STREAM - those that the allocator wants
scores_for() {
	case $1 in
	fastgen) kv-score nacl --rows mean --window 8 "$2" ;;
	cake) kv-score cake -w 8 "$2" ;;
	*) kv-score snapkv -w 8 "$2" ;;
	esac
}

long='a prompt of some length, with a few words that come again: words, words, and a prompt.'
short='and a shorter one, which has few words'

prefill() {
	kv-prefill --queries all --response 'tokens:40 41 42' "$@"
}

# same NAME LAYERS BOTH ONE TWO - the tensor in both sequences of BOTH is that of each alone
same() {
	local l

	for ((l = 0; l < $2; l++)); do
		cmp <(tensor "$1" $l "$3" --sequence 0) <(tensor "$1" $l "$4" --sequence 0)
		cmp <(tensor "$1" $l "$3" --sequence 1) <(tensor "$1" $l "$5" --sequence 0)
	done
}

@test "two prompts of different length in one stream are two runs, by every scorer" {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	prefill -p "$long" -p "$short" -o both.kv
	prefill -p "$long" -o one.kv
	prefill -p "$short" -o two.kv
	for m in $(methods kv-score); do
		for f in both one two; do score "$m" $f.kv | kv-budget uniform -b 20 | kv-evict --only k,index >$f.kept; done
		same index 2 both.kept one.kept two.kept || { echo "$m"; return 1; }
		same k 2 both.kept one.kept two.kept || { echo "$m"; return 1; }
	done
}

@test "two prompts of different length in one stream are two runs, by every allocator, up to the answer" {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	prefill -p "$long" -p "$short" -o both.kv
	prefill -p "$long" -o one.kv
	prefill -p "$short" -o two.kv
	for m in $(methods kv-budget); do
		for f in both one two; do scores_for "$m" $f.kv | budget "$m" 2 - | kv-evict >$f.kept; done
		same budget 2 both.kept one.kept two.kept || { echo "$m"; return 1; }
		same index 2 both.kept one.kept two.kept || { echo "$m"; return 1; }
		kv-decode --ignore-eos -n 4 --jsonl both.kept | jq_tokens >both.tokens
		{ kv-decode --ignore-eos -n 4 --jsonl one.kept; kv-decode --ignore-eos -n 4 --jsonl two.kept; } | jq_tokens |
			cmp - both.tokens || { echo "$m"; return 1; }
	done
}

# jq_tokens - the lists of tokens in JSON Lines
jq_tokens() {
	sed -nE 's/.*"tokens": ?(\[[^]]*\]).*/\1/p' | grep .
}

@test "a model of one layer goes through every scorer and every allocator" {
	export KV_MODEL; KV_MODEL=$(tiny_model --layers 1)
	cd "$BATS_TEST_TMPDIR"
	prefill -p "$long" -p x -o cache.kv
	for m in $(methods kv-score); do
		score "$m" cache.kv | kv-budget uniform -b 12 | kv-evict -o kept.kv
		check_kept kept.kv >/dev/null
		kv-decode -n 2 kept.kv >/dev/null
	done
	for m in $(methods kv-budget); do
		scores_for "$m" cache.kv | budget "$m" 1 - | kv-evict -o kept.kv
		check_kept kept.kv >/dev/null
		kv-decode -n 2 kept.kv >/dev/null
	done
}

@test "a head that keeps nothing is told of" {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	kv-prefill -p "$long" | kv-score knorm -o score.kv
	echo '1 0' >heads
	echo '1 0' >>heads
	kv-budget headkv -b 2 --importance heads --beta 1 score.kv 2>warning >budget.kv
	grep -q '2 of 4 heads keep nothing' warning
	kv-evict budget.kv | check_kept - >/dev/null
	kv-budget headkv -b 2 --importance heads --beta 1 -q score.kv 2>&1 >/dev/null | lacks .
	kv-budget uniform -b 1 score.kv 2>&1 >/dev/null | lacks .
}

@test "the check of kept sets finds what is wrong" {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	kv-prefill -p "$long" | kv-score snapkv -w 8 -o score.kv
	kv-budget uniform -b 12 score.kv | kv-evict -o kept.kv
	[ "$(check_kept kept.kv)" -eq $((12 * 2 * 2)) ]
	kv-budget uniform -b 12 score.kv | kv-evict --recent 2 -o other.kv
	fails 1 'is protected and not kept' check_kept other.kv
	kv-budget uniform -b 12 score.kv | kv-evict --skip-layers 0 -o other.kv
	fails 1 'layer 0: head 0 has [0-9]+ entries, expected 12' check_kept other.kv
	fails 1 'heads 0 and 1 have different sets' check_kept --uniform kept.kv
}
