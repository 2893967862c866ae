#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 12-champion-pyramid.sh [DOCUMENT] - ChampionKV (arXiv:2610.18026) over PyramidKV: two allocators in a pipe, the first
# gives layers what the second shares out among heads.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" | kv-budget pyramid -b "$budget" -o "$work/pyramid.kv"
kv-budget champion "$work/pyramid.kv" | kv-evict -o "$kept"
answer "$kept"

# every layer has what the pyramid gave it
total() {
	kv-show --no-header --tensor budget "$1" | awk '{ n[$3] += $NF } END { for (l in n) print l, n[l] }' | sort -n
}
keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
total "$work/pyramid.kv" >"$work/granted"
index_of "$kept" | awk '{ n[$1]++ } END { for (l in n) print l, n[l] }' | sort -n >"$work/spent"
cmp "$work/granted" "$work/spent" || fail "champion moved entries between layers"
