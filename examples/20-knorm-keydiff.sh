#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 20-knorm-keydiff.sh [DOCUMENT] - no attention at all: keys with a small norm (Knorm, arXiv:2406.11430), keys unlike
# the others (KeyDiff, arXiv:2504.15364).  No queries are needed, so any cache will do.
. "$(dirname "$0")/lib.sh"

prefill --queries none
for method in knorm keydiff; do
	kv-score "$method" "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$work/$method.kv"
	echo "--- $method"
	answer "$work/$method.kv"
	keeps_in_all "$budget" "$work/$method.kv"
done
differ "$work/knorm.kv" "$work/keydiff.kv"
