#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 09-streamingllm.sh [DOCUMENT] - StreamingLLM (arXiv:2309.17453): four attention sinks and the last tokens stay; as
# published, with positions inside the cache, and as most public code has it, with those of the prompt.
. "$(dirname "$0")/lib.sh"

prefill --queries none
kv-score streaming --sink 4 "$cache" | kv-budget uniform -b "$budget" >"$work/budget.kv"
kv-evict -o "$kept" "$work/budget.kv"
kv-evict --renumber -o "$work/moved.kv" "$work/budget.kv"
echo "--- true positions"
answer "$kept"
echo "--- positions inside the cache"
answer "$work/moved.kv"

keeps_in_all "$budget" "$kept"
keeps 0 3 "$kept"
keeps $((4 - budget)) -1 "$kept"
cmp <(index_of "$kept") <(index_of "$work/moved.kv") || fail "renumbering changed what stays"
kv-decode -n 1 --ignore-eos --jsonl "$work/moved.kv" | grep "\"next_position\":$budget\b" >/dev/null ||
	fail "the answer does not begin at position $budget"
