#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 15-oracle.sh [DOCUMENT] - an upper bound: the scores of the answer itself, which the model gives from the whole cache.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv --response "generate:$tokens"
kv-score truth "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"

# Without pooling no set of as many entries per head has more of the answer's attention.
kv-score truth --pool none --only score -o "$work/truth.kv" "$cache"
kv-budget uniform -b "$budget" "$work/truth.kv" | kv-evict -o "$work/best.kv" "$cache" -
kv-score snapkv "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$work/snapkv.kv"
for name in best kept snapkv; do
	share=$(kv-stat --json --quantity retained-by "$work/truth.kv" "$work/$name.kv" | sed -n 's/.*"mean": *\([0-9.e-]*\).*/\1/p')
	echo "$name: $share of the answer's attention"
	awk -v x="$share" -v best="${best:=$share}" 'BEGIN { exit !(x > 0 && x <= best) }' || fail "more than the best"
done
