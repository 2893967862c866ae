# SPDX-License-Identifier: MIT
# kv-stat: tables of one stream and of two, what they agree with, gates, and what is refused.
load helpers

TEXT="some words of a prompt that is longer than the window, "

setup_file() {
	load helpers
	local words

	cd "$BATS_FILE_TMPDIR"
	words=$(printf "$TEXT%.0s" 1 2 3 4)
	kv-prefill -m "$(tiny_model)" -p "$words" -p "again: $words" -p "first $words" -o cache.kv
	kv-score snapkv -o s.kv --only score cache.kv
	kv-score tova -o t.kv --only score cache.kv
	kv-budget uniform -b 48 -o budget.kv s.kv
	kv-evict -o kept.kv cache.kv budget.kv
	kv-budget uniform -b 60 s.kv | kv-evict -o more.kv cache.kv -
}

setup() {
	cd "$BATS_FILE_TMPDIR"
}

# value QUANTITY OF - the mean in a table of two streams on standard input
value() {
	awk -F '\t' -v q="$1" -v of="$2" '$1 == q && $2 == of { print $3; n++ } END { exit n != 1 }'
}

@test "one stream: a line of names, a row per quantity, what kv-show counts" {
	run --separate-stderr kv-stat kept.kv
	[ "$status" -eq 0 ] && [ -z "$stderr" ]
	[ "${lines[0]}" = $'quantity\tmean\tn\tsd' ]
	[[ "$output" == *$'\nbudget\t48\t3\t0\n'* ]]
	shown=$(kv-show --json -s 0 kept.kv | grep -o '"record":"kept".*"heads":\[[0-9,]*\]' | grep -o '\[.*\]' | tr -d '[]' | tr , '\n' | paste -sd+ | bc)
	[[ "$output" == *$'\nentries\t'"$shown"$'\t3\t0\n'* ]]
	kv-stat <kept.kv | cmp - <(echo "$output")
	cat kept.kv | kv-stat - | cmp - <(echo "$output")
}

@test "what is kept: by index as by score and budget" {
	kv-stat --quantity retained --per head kept.kv >a
	kv-stat --quantity retained --per head budget.kv >b
	cmp a b
	[ "$(wc -l <a)" -gt 4 ]
	kv-evict --tie position cache.kv budget.kv | kv-stat --quantity retained --per head >a
	kv-stat --quantity retained --per head --tie position budget.kv | cmp a -
	! cmp -s a b
}

@test "the bound is above what is retained, and more entries retain more" {
	kv-stat --quantity retained,retained-bound --per layer more.kv |
		awk -F '\t' '{ x[$1, $2] = $3; if ($1 == "retained") n++ }
			END { for (l = 0; l < n; l++) if (!(x["retained", l] > 0 && x["retained", l] <= x["retained-bound", l])) exit 1
			      exit n < 1 }'
	kv-stat kept.kv more.kv >table
	[ "$(value retained B-A <table | awk '{ print ($1 > 0) }')" -eq 1 ]
	[ "$(value budget B-A <table)" = 12 ]
	# three differences of one sign
	[ "$(awk -F '\t' '$1 == "retained" && $2 == "B-A" { print $4, $6, $7 }' table)" = '3 0.25 0.25' ]
}

@test "finer rows: per sequence, per layer, per head" {
	layers=$(kv-show --json --no-stats -s 0 kept.kv | grep -c '"name":"index"')
	[ "$(kv-stat --per sequence --quantity budget kept.kv | cut -f 1,2)" = $'quantity\tsequence\nbudget\t0\nbudget\t1\nbudget\t2' ]
	[ "$(kv-stat --per layer --quantity budget kept.kv | tail -n +2 | wc -l)" -eq "$layers" ]
	[ "$(kv-stat --per head --quantity budget kept.kv | head -n 1)" = $'quantity\tlayer\thead\tmean\tn\tsd' ]
	# what is not measured per layer is left out
	[ -z "$(kv-stat --per head kept.kv | grep max-std)" ]
	[ -n "$(kv-stat --per layer kept.kv | grep max-std)" ]
}

@test "JSON Lines say the same as the table" {
	kv-stat kept.kv more.kv | tail -n +2 | cut -f 1-3 >table
	kv-stat --json kept.kv more.kv | sed -E 's/^\{"quantity":"([^"]*)","unit":"[^"]*","of":"([^"]*)","mean":([^,]*),.*\}$/\1\t\2\t\3/; s/\.0$//' | cmp - table
	run kv-stat --json --per head --quantity budget kept.kv
	[ "${lines[0]}" = '{"quantity":"budget","unit":"entries","of":"A","layer":0,"head":0,"mean":48.0,"n":3,"sd":0.0}' ]
}

@test "a stream against itself" {
	kv-stat kept.kv kept.kv >table
	for q in overlap recall kendall pearson; do [ "$(value $q A:B <table)" = 1 ]; done
	for q in budget-diff kl-scores; do [ "$(value $q A:B <table)" = 0 ]; done
	[ "$(value retained-by A:B <table)" = "$(value retained A <table)" ]
	[ "$(awk -F '\t' '$2 == "B-A" { print $3, $6, $7 }' table | sort -u)" = '0 1 1' ]
}

@test "two methods: recall by k, raw and pooled, and one side's scores under the other's choice" {
	[ "$(kv-stat --quantity recall -k 0 s.kv t.kv | value recall A:B)" = 1 ]
	[ "$(kv-stat --quantity recall s.kv t.kv | value recall A:B)" = 1 ] # 512: all there are
	[ "$(kv-stat --quantity recall -k 20 s.kv t.kv | value recall A:B | awk '{ print ($1 > 0.1 && $1 < 1) }')" -eq 1 ]
	[ "$(kv-stat --quantity kendall --pooled s.kv t.kv)" != "$(kv-stat --quantity kendall s.kv t.kv)" ]
	kv-stat --quantity retained-by t.kv kept.kv | value retained-by A:B
	fails 1 't.kv and s.kv: sequence 0: retained-by: no tensor budget, index or k in s.kv: kv-budget METHOD' \
		kv-stat --quantity retained-by t.kv s.kv
}

@test "decodes: -ln p as kv-decode --nll says; a full cache against itself; an evicted one behind the same tokens" {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	kv-decode --nll <(printf ' the window is open') -o full.kv cache.kv >nll
	kv-decode --nll <(printf ' the window is open') -o small.kv kept.kv >/dev/null
	kv-stat --quantity nll --per sequence full.kv | tail -n +2 | cut -f 3 >ours
	tail -n +2 nll | cut -f 4 | cmp - ours
	kv-stat full.kv full.kv >table
	[ "$(value kl-logits A:B <table) $(value top1 A:B <table) $(value nll-diff A:B <table)" = '0 1 0' ]
	kv-stat full.kv small.kv >table
	[ "$(value kl-logits A:B <table | awk '{ print ($1 > 0 && $1 < 5) }')" -eq 1 ]
	# the first token is in nll, whose difference is 0 there, and not in nll-diff
	n=$(sed -n 2p nll | cut -f 2)
	awk -v n="$n" -v a="$(value nll B-A <table)" -v b="$(value nll-diff A:B <table)" \
		'BEGIN { d = a * n - b * (n - 1); exit !(d < 1e-6 && d > -1e-6) }'
	kv-decode --nll <(printf ' the door is open') -o other.kv kept.kv >/dev/null
	fails 1 'the responses differ: token [0-9]+ is [0-9]+ in A, [0-9]+ in B.*kv-decode --nll' kv-stat full.kv other.kv
	kv-stat --quantity nll full.kv other.kv >/dev/null
}

@test "gates" {
	kv-stat --quantity retained --fail-below 0.01 --fail-above 1 kept.kv >table
	[ "$(wc -l <table)" -eq 2 ]
	fails 1 '^kv-stat: budget is 48, below 48.5$' kv-stat --quantity budget --fail-below 48.5 kept.kv
	[[ "$output" == *$'\nbudget\t48\t3\t0' ]] # the table is there all the same
	fails 1 '^kv-stat: layer 0, head 0: budget is 48, above 47$' kv-stat --quantity budget --per head --fail-above 47 kept.kv
	kv-stat --quantity overlap --fail-below 1 kept.kv kept.kv >/dev/null
	fails 1 '^kv-stat: budget of B minus that of A is -12, below 0$' kv-stat --quantity budget --fail-below 0 more.kv kept.kv
	kv-stat --quantity budget --fail-below 0 kept.kv more.kv >/dev/null
	fails 2 'which --quantity' kv-stat --fail-below 0.5 kept.kv
	fails 2 'one only' kv-stat --quantity budget,retained --fail-below 0.5 kept.kv
}

@test "quantities are listed" {
	run kv-stat --list
	[ "$status" -eq 0 ]
	grep -Eq '^  retained +share +' <<<"$output"
	for q in $(awk '/^  / { print $1 }' <<<"$output"); do
		grep -Eq "^\.It Cm (.* , Cm )?$q( , |$)" "$BATS_TEST_DIRNAME/../../man/kv-stat.1" || { echo "kv-stat.1 lacks $q"; return 1; }
	done
}

@test "what is missing is named with the program that brings it" {
	fails 1 'cache.kv: sequence 0: retained: no tensor score in cache.kv: kv-score METHOD' kv-stat --quantity retained cache.kv
	fails 1 'no tensor budget, index or k in s.kv: kv-budget METHOD, kv-evict' kv-stat --quantity retained s.kv
	fails 1 'no tensor k in s.kv: .*kv-prefill' kv-stat --quantity bytes s.kv
	fails 1 'no tensor logits.response in s.kv: kv-decode -o FILE' kv-stat --quantity nll s.kv
	kv-budget uniform -b 9 --only nothing -o empty.kv s.kv
	fails 1 'nothing to measure: needed are score \(kv-score METHOD\)' kv-stat empty.kv
}

@test "what was not measured, and why, is told with --verbose" {
	run --separate-stderr kv-stat -v s.kv
	[ "$status" -eq 0 ]
	[[ "$stderr" == *'kv-stat: not measured: s.kv: sequence '*': retained: no tensor budget, index or k in s.kv: '* ]]
	[[ "$stderr" != *score-max* ]]
	run --separate-stderr kv-stat s.kv
	[ -z "$stderr" ]
}

@test "misuse" {
	fails 2 "no quantity 'nope': --list" kv-stat --quantity nope kept.kv
	fails 2 'overlap compares two streams' kv-stat --quantity overlap kept.kv
	fails 2 'nll is measured per sequence' kv-stat --quantity nll --per head kept.kv
	fails 2 'one stream or two, not 3' kv-stat kept.kv kept.kv kept.kv
	fails 2 'standard input can be one of the streams' kv-stat - -
	fails 2 '--per' kv-stat --per token kept.kv
}

@test "streams that do not belong together" {
	kv-prefill -m "$(tiny_model)" -p "$(printf "$TEXT%.0s" 1 2 3 4)" -p "$(printf "again; $TEXT%.0s" 1 2 3 4)" -p x | kv-score snapkv -o other.kv
	fails 1 'different prompts: sequence 1, token [0-9]+: [0-9]+ in s.kv, [0-9]+ in other.kv' kv-stat s.kv other.kv
	kv-prefill -m "$(tiny_model)" -p "$(printf "$TEXT%.0s" 1 2 3 4)" | kv-score snapkv -o one.kv
	fails 1 'sequence 1 is in s.kv and missing in one.kv' kv-stat s.kv one.kv
	fails 1 'sequence 1 is in s.kv and missing in one.kv' kv-stat one.kv s.kv
	# another model of the same sizes: a warning, and a table
	make_model --seed 9 other.gguf
	kv-prefill -m other.gguf -p "$(printf "$TEXT%.0s" 1 2 3 4)" | kv-score snapkv -o theirs.kv
	run --separate-stderr kv-stat --quantity kendall one.kv theirs.kv
	[ "$status" -eq 0 ]
	[[ "$stderr" == *'warning: one.kv and theirs.kv come from different models: fingerprint is'* ]]
}

@test "a stream that was cut short, a damaged one, a full disk, a reader that has gone" {
	head -c 20000 kept.kv >cut.kv
	fails 1 'cut.kv: .*cut short' kv-stat cut.kv
	[ -z "$output" ]
	fails 1 'cut.kv: .*cut short' kv-stat kept.kv cut.kv
	run bash -c 'kv-stat kept.kv >/dev/full'
	[ "$status" -eq 1 ]
	run --separate-stderr bash -c 'set -o pipefail; for i in 1 2 3; do kv-stat --per head kept.kv | true; done'
	[ -z "$stderr" ]
}

@test "memory does not grow with the sequences, and keys and values are not read" {
	case $KV_BUILD in */san) skip "sanitizers bring memory of their own" ;; esac
	for n in 1 8; do
		make_large $n 4 4096 - | kv-score snapkv -w 8 | kv-budget uniform -r 0.5 | kv-evict -o large$n.kv
	done
	peak_rss one kv-stat large1.kv large1.kv >/dev/null
	peak_rss eight kv-stat large8.kv large8.kv >/dev/null
	echo "one sequence $(cat one) kB, eight $(cat eight) kB"
	[ "$(cat eight)" -le $(($(cat one) + 1000)) ]
	rm large?.kv
}
