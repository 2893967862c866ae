#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# evaluate.sh PROMPTS [MODULE] - LookaheadKV and the others on held-out prompts: what they keep, and what it does to
# the answer.
#
# PROMPTS: JSON Lines with fields id and prompt (text, or token ids), as examples/train-lookahead makes them.
# MODULE:  a LookaheadKV module for the model; without it its rows are missing.
#
# The full cache answers with 64 greedy tokens. Every method scores the prompt, an allocator shares out each budget,
# and the evicted cache is made to follow the answer. A row of the table is a method at a budget, over all prompts:
#   recall  of a head's 128 best prompt tokens by the answer's own attention, how many are among the 128 best by
#           score (of the positions that the method scores: window methods do not score their window)
#   kept    of the entries that the oracle keeps at this budget, how many the method keeps, protected ones included
#   mass    share of the answer's attention to the prompt that the kept entries have
#   kl, nll, top1   the evicted cache behind the answer's tokens: KL divergence from the full one and -ln p of the
#           answer, in nats per token, and how often both have the same likeliest token
# each with its standard deviation, and two-sided p of Wilcoxon's signed-rank test against lookahead on the same
# prompts. speckv has the answer itself as its draft, and is an upper hint therefore; truth is the oracle. -raw: ranked
# without pooling (kv-score --pool none).
#
# KV_AGAINST the method that the tests are of, instead of lookahead
# KV_MODEL   model; else the demo's                     KV_BUDGETS  entries per head and layer ("64 128 256")
# KV_WORK    folder of what can be used again: a run that was stopped goes on where it was, and another module costs its
#            own rows only (default: in KV_BUILD, after the names of the prompts and the model)
# KV_JOBS    groups of prompts at a time, each on one thread (2)     KV_GROUP  prompts in a group (4)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '3,6s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
KV_BUILD=$(realpath "${KV_BUILD:-$here/../../build}")
PATH=$KV_BUILD/bin:$PATH
KV_MODEL=$(realpath "${KV_MODEL:-$(cd "$here/../.." && realpath "$(tools/fetch-model)")}")
export KV_MODEL KV_THREADS=${KV_THREADS:-1}
budgets=${KV_BUDGETS:-64 128 256}
module='' key=''
if [ "$1" = --group ]; then # xargs, below
	module=$3 key=$4
elif [ $# -ge 2 ]; then
	module=$(realpath "$2")
	key=$(cksum <"$module" | cut -d" " -f1)
fi

# name, score, allocator; what is another module's is another file
methods() {
	cat <<-END
	truth truth uniform
	truth-raw truth-raw uniform
	snapkv snapkv uniform
	snapkv-raw snapkv-raw uniform
	pyramid snapkv pyramid
	adakv snapkv adakv
	champion-snap snapkv champion
	h2o h2o uniform
	tova tova uniform
	streaming streaming uniform
	knorm knorm uniform
	laq-8 laq-8 uniform
	laq-32 laq-32 uniform
	speckv speckv uniform
	END
	[ -z "$module" ] || cat <<-END
	lookahead lookahead-$key uniform
	lookahead+champion lookahead-$key champion
	lookahead+adakv lookahead-$key adakv
	lookahead-raw lookahead-raw-$key uniform
	lookahead-raw+champion lookahead-raw-$key champion
	lookahead-raw+adakv lookahead-raw-$key adakv
	END
}

# made FILE COMMAND... - FILE, unless it is there
made() {
	local to=$1; shift
	[ -e "$to" ] || "$@" -o "$to"
}

# One group of prompts, in its folder: what needs the whole prompt's queries, which are then forgotten.
prefill() {
	local m

	[ ! -e answer.kv ] || return 0
	made all.kv kv-prefill -q --jsonl prompts.jsonl --id-field id --queries all --response generate:64
	for m in truth snapkv h2o tova streaming knorm speckv; do made $m.kv kv-score $m -q --only score all.kv; done
	for m in truth snapkv; do made $m-raw.kv kv-score $m -q --pool none --only score all.kv; done
	made cache.kv kv-score random -q --only k,v,logits all.kv
	kv-decode -q -n 64 --drop q.response -o answer.kv cache.kv >answer.txt
	rm all.kv
}

# The methods that wait for something else: a first eviction and its answer, or the module's rows.
others() {
	local b t

	for b in $budgets; do
		made "oracle.$b.kv" kept uniform "$b" truth.kv --only index,offset,score
		for t in 8 32; do
			[ ! -e "laq-$t.$b.kv" ] || continue
			kept uniform "$b" snapkv.kv -o first.kv
			kv-decode -q -n $t --only q.response -o pseudo.kv first.kv >/dev/null
			kv-score laq -q --only score -o "laq-$t.$b.kv" cache.kv pseudo.kv
		done
	done
	rm -f first.kv pseudo.kv
	[ -n "$module" ] && [ ! -e "lookahead-raw-$key.kv" ] || return 0
	kv-prefill -q --jsonl prompts.jsonl --id-field id --lookahead "$module" \
		--only q.lookahead,k.lookahead -o rows.kv
	kv-score lookahead -q --only score -o "lookahead-$key.kv" cache.kv rows.kv
	kv-score lookahead -q --pool none --only score -o "lookahead-raw-$key.kv" cache.kv rows.kv
	rm rows.kv
}

# kept ALLOCATOR BUDGET SCORES OPTION... - the evicted cache
kept() {
	local allocator=$1 b=$2 scores=$3

	shift 3
	kv-budget "$allocator" -q -b "$b" "$scores" | kv-evict -q "$@" cache.kv -
}

# values A B QUANTITY,... [OPTION...] - a line per sequence: the quantities in their order, a dash for what has no
# value. Without --quantity kv-stat measures what it can and does not mind.
values() {
	local a=$1 b=$2 names=$3

	shift 3
	kv-stat -q --per sequence "$@" "$a" "$b" | awk -F'\t' -v names="$names" '
		NR > 1 && ($2 == "A:B" || $2 == "B") { v[$1, $3] = $4; if ($3 > last) last = $3 }
		END {
			n = split(names, name, ",")
			for (s = 0; s <= last; s++)
				for (i = 1; i <= n; i++)
					printf "%s%s", ((name[i], s) in v ? v[name[i], s] : "-"), (i < n ? "\t" : "\n")
		}'
}

recalls() {
	if [ "$1" = streaming ]; then sed 's/.*/-/' ids; else values truth.kv "$2" recall --quantity recall -k 128; fi
}

# row METHOD SCORES ALLOCATOR BUDGET - lines of method, budget, id, recall, kept, mass, kl, nll, top1
row() {
	local b=$4 scores=$2.kv to=row.$2.$3.$4

	[ ! -e "$to" ] || return 0
	[ -e "$scores" ] || scores=$2.$b.kv
	kept "$3" "$b" "$scores" -o kept.kv
	kv-decode -q --follow answer.kv --only logits.response -o followed.kv kept.kv >/dev/null
	recalls "$2" "$scores" >1.part
	values oracle."$b".kv kept.kv overlap,retained-by --quantity overlap,retained-by >2.part
	values answer.kv followed.kv kl-logits,nll,top1 >3.part
	sed "s/^/$b\t/" ids | paste - 1.part 2.part 3.part >"$to.part"
	rm kept.kv followed.kv ./?.part
	mv "$to.part" "$to"
}

group() {
	local b name scores allocator

	cd "$1"
	sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' prompts.jsonl >ids
	[ "$(wc -l <ids)" -eq "$(wc -l <prompts.jsonl)" ] ||
		{ echo "$1: expected a field id in every line" >&2; return 1; }
	prefill
	others
	methods | while read -r name scores allocator; do
		for b in $budgets; do row "$name" "$scores" "$allocator" "$b"; done
	done
	kv-stat -q --per sequence --quantity nll answer.kv | awk -F'\t' 'NR > 1 { print $3 }' | paste ids - >row.full
}

if [ "$1" = --group ]; then
	group "$2"
	exit
fi

work=${KV_WORK:-$KV_BUILD/bench/lookahead/$(basename "$1" .jsonl)-$(basename "$KV_MODEL")}
mkdir -p "$work"
work=$(realpath "$work")
# Groups of as many prompts; a group whose prompts have changed is done anew.
split -l "${KV_GROUP:-4}" -d -a 3 "$1" "$work/new."
for f in "$work"/new.*; do
	d=$work/group.${f##*.}
	cmp -s "$f" "$d/prompts.jsonl" || rm -rf "$d"
	mkdir -p "$d"
	mv "$f" "$d/prompts.jsonl"
	echo "$d"
done >"$work/groups"
export KV_BUDGETS="$budgets"
xargs -P "${KV_JOBS:-2}" -I '{}' "$0" --group '{}' "$module" "$key" <"$work/groups" >&2

while read -r d; do
	awk '{ print "full\t-\t" $1 "\t1\t1\t1\t0\t" $2 "\t1" }' "$d/row.full"
	methods | while read -r name scores allocator; do
		for b in $budgets; do sed "s/^/$name\t/" "$d/row.$scores.$allocator.$b"; done
	done
done <"$work/groups" >"$work/all.tsv"
# An answer of one token has nothing to follow: its prompt does not count.
awk -F'\t' 'NR == FNR { if ($7 == "-") out[$3] = 1; next } !($3 in out)' \
	"$work/all.tsv" "$work/all.tsv" >"$work/rows.tsv"
echo "rows by prompt: $work/rows.tsv" >&2
awk -v against="${KV_AGAINST:-lookahead}" -f "$here/table.awk" "$work/rows.tsv"
