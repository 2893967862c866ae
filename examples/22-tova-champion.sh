#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 22-tova-champion.sh [DOCUMENT] - TOVA's scores with a pyramid over the layers and ChampionKV's budgets within them.
# TOVA scores all heads of a layer alike, so champion has nothing to prefer there: the same sets as without it.
. "$(dirname "$0")/lib.sh"

prefill --for tova
kv-score tova "$cache" | kv-budget pyramid -b "$budget" -o "$work/pyramid.kv"
kv-evict -o "$work/plain.kv" "$work/pyramid.kv"
kv-budget champion "$work/pyramid.kv" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -1 -1 "$kept"
cmp <(index_of "$work/plain.kv") <(index_of "$kept") || fail "champion moved entries between heads that are alike"
