#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 24-by-layer.sh [DOCUMENT] - SnapKV in the lower half of the layers, key norms above.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
half=$(($(size layers "$cache") / 2))
kv-score snapkv --layers "0-$((half - 1))" "$cache" | kv-score knorm --recent 32 --layers "$half-" |
	kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
for method in snapkv knorm; do # each has decided its own layers
	kv-score "$method" --recent 32 "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$work/$method.kv"
done
cmp <(index_of "$kept" | awk -v h="$half" '$1 < h') <(index_of "$work/snapkv.kv" | awk -v h="$half" '$1 < h') ||
	fail "the lower layers are not SnapKV's"
cmp <(index_of "$kept" | awk -v h="$half" '$1 >= h') <(index_of "$work/knorm.kv" | awk -v h="$half" '$1 >= h') ||
	fail "the upper layers are not Knorm's"
