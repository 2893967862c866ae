#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 14-speckv.sh [DOCUMENT] - SpecKV (arXiv:2506.08373): a draft model answers, and the queries of its answer, as the
# target model sees it behind the prompt, score the prompt.  Without KV_DRAFT the model is its own draft, from a SnapKV
# cache.
. "$(dirname "$0")/lib.sh"

# shellcheck disable=SC2086
kv-prefill -m "${KV_DRAFT:-$KV_MODEL}" $chat -f "$work/prompt" | kv-score snapkv | kv-budget uniform -b "$budget" | kv-evict |
	kv-decode -m "${KV_DRAFT:-$KV_MODEL}" -n 32 | head -c -1 >"$work/draft"
prefill --for speckv --response "file:$work/draft"
kv-score speckv "$cache" | kv-budget uniform -b "$budget" | kv-evict -o "$kept"
answer "$kept"

keeps_in_all "$budget" "$kept"
keeps -33 -1 "$kept"
