#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 04-adakv.sh [DOCUMENT] - Ada-KV (arXiv:2407.11550): SnapKV's scores, which heads of a layer compete with; none gets
# less than a fifth of the average.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" | kv-budget adakv -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
index_of "$kept" | awk -v least=$((32 + (budget - 32) / 5)) '{ n[$1 " " $2]++ }
	END { for (h in n) if (n[h] < least) exit 1 }' || fail "a head has less than the floor"
