#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 08-nacl.sh [DOCUMENT] - NACL (arXiv:2408.03675): what the last hundredth of the prompt looks at, and some entries at
# random.
. "$(dirname "$0")/lib.sh"

prefill --for nacl
kv-score nacl "$cache" | kv-budget nacl -b "$budget" --seed 1 | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps 0 3 "$kept"
keeps -8 -1 "$kept"
kv-score nacl "$cache" | kv-budget nacl -b "$budget" --seed 2 | kv-evict -o "$work/other.kv"
differ "$kept" "$work/other.kv"
