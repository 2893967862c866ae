#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 23-observed-champion.sh [DOCUMENT] - ChampionKV's budgets by accumulated attention per observer instead of a window's.
. "$(dirname "$0")/lib.sh"

prefill --for observed
kv-score observed --recent 8 "$cache" | kv-budget champion -b "$budget" --tau 0 | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -8 -1 "$kept"
