#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 10-cake.sh [DOCUMENT] - CAKE (arXiv:2503.12491): mean and variance of the window's attention; layers whose attention
# spreads and shifts get more.
. "$(dirname "$0")/lib.sh"

prefill --for cake
kv-score cake "$cache" | kv-budget cake -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -32 -1 "$kept"
