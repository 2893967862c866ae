#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 21-expected-attention.sh [DOCUMENT] - Expected Attention (arXiv:2510.00636): what queries like the prompt's would look
# at next.
. "$(dirname "$0")/lib.sh"

prefill --for expected-attention
kv-score expected-attention "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps 0 3 "$kept"
