# SPDX-License-Identifier: MIT
# lib.sh - what the numbered examples share: they begin with `. "$(dirname "$0")/lib.sh"` and end in a check.
#
#   NN-name.sh [DOCUMENT]     DOCUMENT: a text to be asked about, by default report.txt beside this file
#
# KV_MODEL   model; else the demo's, which is fetched        KV_BUDGET     entries per head and layer (128)
# KV_DRAFT   draft model of SpecKV; else KV_MODEL            KV_TOKENS     tokens of the answer, at most (48)
# KV_CHAT    how a prompt is wrapped (--chat; empty: not)    KV_QUESTION   what is asked about the document
set -euo pipefail
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=${KV_BUILD:-$examples/../build}/bin:$PATH
KV_MODEL=${KV_MODEL:-$("$examples/../tools/fetch-model")}
export KV_MODEL

document=${1:-$examples/report.txt}
question=${KV_QUESTION:-From which wood did the oak for the piles come?}
budget=${KV_BUDGET:-128}
tokens=${KV_TOKENS:-48}
chat=${KV_CHAT---chat}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$work/cache.kv kept=$work/kept.kv
{
	printf 'Read this report, then answer the question.\n\n'
	cat "$document"
	printf '\nQuestion: %s Answer with one sentence from the report.' "$question"
} >"$work/prompt"

# prefill [OPTION...] - the prompt's cache, with what a method wants: `prefill --for snapkv`
prefill() {
	# shellcheck disable=SC2086
	kv-prefill $chat -f "$work/prompt" -o "$cache" "$@"
}

# answer CACHE - what the model says from it
answer() {
	kv-decode -n "$tokens" "$1"
}

# ---- checks: each ends the script when it does not hold

fail() {
	echo "$(basename "$0"): $*" >&2
	exit 1
}

# index_of CACHE - what it keeps: a line of layer, head and position per entry
index_of() {
	kv-show --no-header --tensor index "$1" | awk '{ print $3, $4, $5 }'
}

# size NAME CACHE - a number of its header or sequence: layers, kv_heads, prompt_length
size() {
	kv-show --json --no-stats "$2" | grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d : -f 2
}

# keeps_in_all ENTRIES CACHE - exactly that many per head and layer on average, or the whole prompt if it is shorter
keeps_in_all() {
	local T want got

	T=$(size prompt_length "$2")
	want=$((($1 < T ? $1 : T) * $(size kv_heads "$2") * $(size layers "$2")))
	got=$(index_of "$2" | wc -l)
	[ "$got" -eq "$want" ] || fail "$2 keeps $got entries, expected $want"
	echo "kept: $got of $((T * $(size kv_heads "$2") * $(size layers "$2"))) entries"
}

# keeps FROM TO CACHE - every head keeps these positions, both ends included; negative ones count from the prompt's end
keeps() {
	local T from=$1 to=$2

	T=$(size prompt_length "$3")
	[ "$from" -ge 0 ] || from=$((T + from))
	[ "$to" -ge 0 ] || to=$((T + to))
	index_of "$3" | awk -v from="$from" -v to="$to" -v heads=$(($(size kv_heads "$3") * $(size layers "$3"))) '
		$3 >= from && $3 <= to { n[$1 " " $2]++ }
		END { for (h in n) full += n[h] == to - from + 1; exit full != heads }' ||
		fail "$3: not all heads keep positions $from to $to"
}

# same_in_all_heads CACHE - all heads of a layer keep the same positions
same_in_all_heads() {
	index_of "$1" | awk -v H="$(size kv_heads "$1")" '
		{ n[$1 " " $3]++ }
		END { for (e in n) if (n[e] != H) exit 1 }' || fail "$1: heads of a layer keep different positions"
}

# differ CACHE CACHE - they do not keep the same
differ() {
	if cmp -s <(index_of "$1") <(index_of "$2"); then fail "$1 and $2 keep the same"; fi
}
