#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 11-champion-snap.sh [DOCUMENT] - ChampionKV (arXiv:2610.18026) over SnapKV: entries in inverse proportion to a head's
# largest score.  Tells how many heads are abnormal.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" | kv-budget champion -b "$budget" --verbose -o "$work/budget.kv" 2>"$work/heads"
kv-evict "$work/budget.kv" -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
tail -n 1 "$work/heads" | grep 'abnormal: [0-9]* of [0-9]* heads' || fail "no word about abnormal heads"
