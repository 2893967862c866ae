#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 02-snapkv.sh [DOCUMENT] - SnapKV (arXiv:2404.14469): what the last 32 tokens look at, and these.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
