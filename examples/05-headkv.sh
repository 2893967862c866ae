#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 05-headkv.sh [DOCUMENT] - HeadKV (arXiv:2410.19258): heads of all layers share the entries by importances that were
# measured beforehand.  Here they are made on the spot: how much a head's attention, while it answers, looks at the
# history; what the method asks for are importances from a data set of retrieval and reasoning.
. "$(dirname "$0")/lib.sh"

prefill --for truth --response "generate:$tokens" --for snapkv
kv-score truth --granularity head --only score "$cache" -o "$work/truth.kv"
kv-show --no-header --tensor score "$work/truth.kv" | awk '
	$1 > 3 { sum[$3, $4] += $5; layers = $3 > layers ? $3 : layers; heads = $4 > heads ? $4 : heads }
	END {
		for (l = 0; l <= layers; l++)
			for (h = 0; h <= heads; h++)
				printf "%.6g%s", sum[l, h], h < heads ? " " : "\n"
	}' >"$work/importance"
kv-score snapkv "$cache" | kv-budget headkv -b "$budget" --importance "$work/importance" --beta 1.5 | kv-evict -o "$kept"
answer "$kept"

got=$(index_of "$kept" | wc -l)
most=$((budget * $(size kv_heads "$kept") * $(size layers "$kept")))
[ "$got" -le "$most" ] && [ "$got" -gt $((most * 9 / 10)) ] || fail "$got entries, expected $most or slightly fewer"
keeps -32 -1 "$kept"
