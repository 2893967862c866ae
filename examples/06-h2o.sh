#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 06-h2o.sh [DOCUMENT] - H2O (arXiv:2306.14048): what all tokens have looked at, in half of the budget; the last ones in
# the other half.
. "$(dirname "$0")/lib.sh"

prefill --for h2o
kv-score h2o "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps "-$((budget / 2))" -1 "$kept"
