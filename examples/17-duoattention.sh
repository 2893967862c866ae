#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 17-duoattention.sh [DOCUMENT] - DuoAttention (arXiv:2410.10819): retrieval heads keep everything, the other half 64
# first and 128 last tokens.  Gates come with a model that was trained for them; here they are a stand-in, attention to
# far tokens.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" -o "$work/scored.kv"
kv-show --no-header --tensor score "$work/scored.kv" | awk '
	$1 > 63 { sum[$3, $4] += $5; layers = $3 > layers ? $3 : layers; heads = $4 > heads ? $4 : heads }
	END {
		for (l = 0; l <= layers; l++)
			for (h = 0; h <= heads; h++)
				printf "%.6g%s", sum[l, h], h < heads ? "\t" : "\n"
	}' >"$work/full_attention_heads.tsv"
kv-budget duo --gates "$work/full_attention_heads.tsv" --sparsity 0.5 --sink 64 --recent 128 "$work/scored.kv" |
	kv-evict -o "$kept"
answer "$kept"

keeps 0 63 "$kept"
keeps -128 -1 "$kept"
T=$(size prompt_length "$kept")
full=$(index_of "$kept" | awk -v T="$T" '{ n[$1 " " $2]++ } END { for (h in n) full += n[h] == T; print full + 0 }')
heads=$(($(size kv_heads "$kept") * $(size layers "$kept")))
[ "$full" -eq $((heads / 2)) ] || fail "$full of $heads heads are full"
