#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cross-product.sh - every scorer x every allocator x every way to select on one real prompt, checked and measured.
#
# The prompt is the report of examples/demo.sh with a question that wants a long answer.  The full cache answers with 64
# greedy tokens; every evicted cache is made to follow them (NLL), and its kept sets are weighed by SnapKV's scores and
# by the answer's own ones (retained mass).  Every combination is evicted and checked by tests/tools/check_kept: exact
# totals, protected positions; NLL is measured for all scorers and allocators with the default selector, and for all
# selectors of a few.  Prints the table; see bench/results/cross-product.md.
#
# KV_BUILD: build folder.  KV_WORK: folder of what can be used again (default $KV_BUILD/bench/cross-product): a run
# that was stopped goes on where it was.  KV_JOBS: how many scorers at a time (default 1).
set -euo pipefail
cd "$(dirname "$0")/.."
KV_BUILD=${KV_BUILD:-$PWD/build}
PATH=$KV_BUILD/bin:$KV_BUILD/tests/tools:$PATH
work=${KV_WORK:-$KV_BUILD/bench/cross-product}
budget=128
KV_MODEL=$(realpath "$(tools/fetch-model)")
export KV_MODEL
mkdir -p "$work/score" "$work/budget" "$work/row"

# The ways to select: options of kv-evict, and what check_kept is to expect instead of exactly the budget.
declare -A select=(
	[raw]='' [position]='--tie position' [uniform-heads]='--uniform-heads' [chunk]='--chunk 10'
	[chunk-max-uniform]='--chunk 10 --chunk-score max --uniform-heads' [threshold]='--threshold 0.001'
	[share]='--threshold-share 0.9' [skip-layers]='--skip-layers 0-1' [renumber]='--renumber'
)
declare -A expect=(
	[uniform-heads]=--uniform [chunk-max-uniform]=--uniform [threshold]=--most [share]=--most
	[skip-layers]='--skip 0-1'
)
# Where kv-evict refuses a combination, it has to say this.
declare -A refuses=(
	[share]='a share of these scores means nothing' [renumber]='equally many|same number of|as many'
)
selectors='raw position uniform-heads chunk chunk-max-uniform threshold share skip-layers renumber'

# methods PROGRAM: names of the table that its help prints
methods() {
	"$1" --help | awk '/^METHOD:/ { on = 1; next } on && NF == 0 { exit } on { print $1 }'
}

# made FILE COMMAND...: FILE, unless it is there
made() {
	local to=$1; shift
	[ -e "$to" ] || "$@" -o "$to"
}

# value QUANTITY FILE...: its mean, over the layers of the one sequence
value() {
	kv-stat --quantity "$@" |
		awk -F'\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "mean") c = i } NR == 2 { print $c }'
}

# follow CACHE: nats per token of the answer
follow() {
	kv-decode --follow "$work/answer.kv" "$1" | awk 'NR == 2 { print $NF }'
}

prompt() {
	printf 'Read this report, then answer the question.\n\n'
	cat examples/report.txt
	printf '\nQuestion: From which wood did the oak for the piles come, and what else is told about the piles? '
	printf 'Answer with three sentences from the report.'
}

# The cache, the answer, and what LAQ wants: eight tokens from an evicted cache.
prepare() {
	prompt >"$work/prompt"
	made "$work/all.kv" kv-prefill --chat --queries all --response generate:64 -f "$work/prompt"
	made "$work/cache.kv" kv-score random -q --only k,v,logits "$work/all.kv"
	made "$work/answer.kv" kv-decode -q -n 64 --drop q.response,logits.response "$work/cache.kv" >/dev/null
	made "$work/profile.kv" kv-score nacl --rows mean --window 32 --only score "$work/all.kv"
	made "$work/score/snapkv.kv" kv-score snapkv --only score "$work/all.kv"
	if [ ! -e "$work/pseudo.kv" ]; then
		kv-budget uniform -b $budget "$work/score/snapkv.kv" | kv-evict "$work/cache.kv" - |
			kv-decode -n 8 --only q.response -o "$work/pseudo.kv" >"$work/pseudo.txt"
	fi
}

score() {
	local to=$work/score/$1.kv

	case $1 in
	laq)
		made "$to" kv-score laq --only score \
			"$work/all.kv:q.response=q.answer,k.response=k.answer" "$work/pseudo.kv"
		;;
	shuffled | inverted) made "$to" kv-score "$1" --only score "$work/score/snapkv.kv" ;;
	combine)
		made "$to" kv-score combine --how rank --only score \
			"$work/score/snapkv.kv" "$work/score/knorm.kv:score=score.b"
		;;
	*) made "$to" kv-score "$1" --only score "$work/all.kv" ;;
	esac
}

# How much of the answer's attention a KV head has outside the first 4 and the last 124 tokens: the importances of
# headkv and the gates of duo.
heads() {
	[ -e "$work/heads.tsv" ] && return
	kv-score streaming --only score "$work/cache.kv" | kv-budget uniform -b $budget -o "$work/near.kv"
	kv-stat --quantity retained-by --per head "$work/score/truth.kv" "$work/near.kv" |
		awk 'NR > 1 { printf("%s%.9f", ($4 > 0 ? "\t" : ($3 > 0 ? "\n" : "")), 1 - $5) } END { printf "\n" }' \
			>"$work/heads.part"
	mv "$work/heads.part" "$work/heads.tsv"
}

# allot SCORER ALLOCATOR: budgets (and protect) alone
allot() {
	local from=$work/score/$1.kv to=$work/budget/$1.$2.kv only=budget,protect

	[ -e "$to" ] && return
	case $2 in
	pyramid-*) kv-budget pyramid -q -b $budget "$from" | kv-budget "${2#pyramid-}" -q --only $only -o "$to" ;;
	headkv) kv-budget headkv -b $budget --importance "$work/heads.tsv" -q --only $only "$from" -o "$to" ;;
	cake) kv-budget cake -b $budget -q --only $only "$work/score/cake.kv" -o "$to" ;; # its preferences, whoever scores
	fastgen) kv-budget fastgen -q --only budget "$work/profile.kv" -o "$to" ;; # the size of its sets, not the sets
	duo)
		kv-budget duo --gates "$work/heads.tsv" --sparsity 0.947 --sink 4 --recent 24 -q --only $only "$from" \
			-o "$to"
		;;
	*) kv-budget "$2" -b $budget -q --only $only "$from" -o "$to" ;;
	esac
}

# one SCORER ALLOCATOR SELECTOR: a row of the table
one() {
	local row=$work/row/$1.$2.$3 only=k,v,index,offset,budget,protect,logits kept=$work/kept.$1.kv entries nll=-

	[ -e "$row" ] && return
	[ "$4" = nll ] || only=index,offset,budget,protect
	# shellcheck disable=SC2086
	if ! kv-evict -q ${select[$3]} --only $only -o "$kept" \
		"$work/cache.kv" "$work/score/$1.kv" "$work/budget/$1.$2.kv" 2>"$kept.why"; then
		grep -Eq "${refuses[$3]:-never}" "$kept.why" || { echo "$1 $2 $3: $(cat "$kept.why")" >&2; return 1; }
		printf '%s\t%s\t%s\trefused\t-\t-\t-\n' "$1" "$2" "$3" >"$row"
		return
	fi
	# shellcheck disable=SC2086
	entries=$(check_kept ${expect[$3]:-} "$kept") || { echo "$1 $2 $3: not what the budgets say" >&2; return 1; }
	[ "$4" != nll ] || nll=$(follow "$kept") || return
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$entries" "$nll" \
		"$(value retained-by "$work/score/snapkv.kv" "$kept")" \
		"$(value retained-by "$work/score/truth.kv" "$kept")" >"$row.part"
	mv "$row.part" "$row"
}

# all SCORER...: every combination
all() {
	local s a e

	for s; do
		for a in $allocators; do
			allot "$s" "$a"
			for e in $selectors; do
				case $e:$s:$a in
				raw:* | *:snapkv:uniform | *:snapkv:adakv | *:snapkv:champion) one "$s" "$a" "$e" nll ;;
				*) one "$s" "$a" "$e" - ;;
				esac
			done
		done
	done
}

prepare
scorers=$(methods kv-score)
for s in $scorers; do score "$s"; done
heads
allocators="$(methods kv-budget) pyramid-adakv pyramid-champion"
jobs=()
for ((i = 1; i <= ${KV_JOBS:-1}; i++)); do
	# shellcheck disable=SC2046
	all $(awk -v i="$i" -v n="${KV_JOBS:-1}" 'NR % n == i % n' <<<"$scorers") &
	jobs+=($!)
done
for j in "${jobs[@]}"; do wait "$j"; done

# What was granted: so many entries in every head and layer on average.  duo and fastgen decide themselves.
cat "$work"/row/*.raw | awk -F'\t' -v n="$(value entries "$work/near.kv")" '
	$2 != "duo" && $2 != "fastgen" && $4 != n { print $1, $2 ": " $4 " entries, granted " n; bad = 1 }
	END { exit bad }' >&2

full=$(follow "$work/cache.kv")
printf 'scorer\tallocator\tselector\tentries\tnll\tretained_snapkv\tretained_truth\n'
printf -- '-\tfull\t-\t%s\t%s\t1\t1\n' \
	"$(value entries "$work/cache.kv")" "$full"
for s in $scorers; do
	for a in $allocators; do
		for e in $selectors; do cat "$work/row/$s.$a.$e"; done
	done
done
