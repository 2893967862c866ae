#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 03-pyramidkv.sh [DOCUMENT] - PyramidKV (arXiv:2406.02069): SnapKV's scores, many entries in the first layers, few in
# the last.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" | kv-budget pyramid -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
index_of "$kept" | awk '{ n[$1]++; last = $1 > last ? $1 : last }
	END { for (l = 1; l <= last; l++) if (n[l] > n[l - 1]) exit 1 }' || fail "a layer has more than the one before it"
