#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 18-chunkkv.sh [DOCUMENT] - ChunkKV (arXiv:2502.00299): SnapKV's scores rank units of ten tokens, so that phrases stay
# whole.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv --pool none "$cache" | kv-budget uniform -b "$budget" >"$work/budget.kv"
kv-evict --chunk 10 -o "$kept" "$work/budget.kv"
kv-evict -o "$work/single.kv" "$work/budget.kv"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
differ "$kept" "$work/single.kv"
# before the window every head has at most one unit of which only a part stays; the window may cut one more
index_of "$kept" | awk -v end=$(($(size prompt_length "$kept") - 32)) '
	$3 < end - end % 10 { n[$1 " " $2 " " int($3 / 10)]++ }
	END { for (u in n) if (n[u] < 10) { split(u, a); if (++cut[a[1] " " a[2]] > 1) exit 1 } }' ||
	fail "a head has more than one unit that is cut"
