#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 25-combine.sh [DOCUMENT] - SnapKV and Knorm as one score: the mean of their ranks, SnapKV counting twice.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score knorm --only score -o "$work/knorm.kv" "$cache"
kv-score snapkv "$cache" | kv-score combine --how rank --weights 2,1 - "$work/knorm.kv:score=score.b" |
	kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
# All the weight on one is that one.
kv-score snapkv "$cache" | kv-score combine --how rank --weights 1,0 - "$work/knorm.kv:score=score.b" |
	kv-budget uniform -b "$budget" | kv-evict --tie position -o "$work/first.kv"
kv-score snapkv "$cache" | kv-budget uniform -b "$budget" | kv-evict --tie position -o "$work/snapkv.kv"
cmp <(index_of "$work/first.kv") <(index_of "$work/snapkv.kv") || fail "a weight of 0 still counts"
