#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 01-fullkv.sh [DOCUMENT] - the whole cache: what every eviction is measured against.
. "$(dirname "$0")/lib.sh"

prefill --queries window:32
answer "$cache" | tee "$work/answer"

# A budget as long as the prompt evicts nothing: the same answer.
kv-score snapkv "$cache" | kv-budget uniform -r 1 | kv-evict -o "$kept"
keeps_in_all "$(size prompt_length "$cache")" "$kept"
answer "$kept" | cmp - "$work/answer" || fail "the answer changed"
