#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 07-tova.sh [DOCUMENT] - TOVA (arXiv:2401.06104): what the last token looks at, the same in all heads of a layer.
. "$(dirname "$0")/lib.sh"

prefill --for tova
kv-score tova "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -1 -1 "$kept"
same_in_all_heads "$kept"
