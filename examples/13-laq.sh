#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 13-laq.sh [DOCUMENT] - LAQ++ (arXiv:2505.20334): a first eviction by SnapKV, eight pseudo tokens decoded from what is
# left, and their queries, with those of the last eight prompt tokens, score the whole prompt again.
. "$(dirname "$0")/lib.sh"

prefill --for laq
kv-score snapkv "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$work/first.kv"
kv-decode -n 8 --only q.response -o "$work/pseudo.kv" "$work/first.kv" >"$work/pseudo.txt"
kv-score laq -w 8 "$cache" "$work/pseudo.kv" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -8 -1 "$kept"
differ "$kept" "$work/first.kv"
