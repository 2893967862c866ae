#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 16-fastgen.sh [DOCUMENT] - like FastGen (arXiv:2310.01801): every head keeps the smallest of five sets that holds 95 %
# of the attention that the last 32 tokens pay.
. "$(dirname "$0")/lib.sh"

prefill --queries window:32
kv-score nacl --window 32 --rows mean "$cache" | kv-budget fastgen -o "$work/budget.kv"
kv-evict "$work/budget.kv" -o "$kept"
answer "$kept"

keeps 0 3 "$kept"
kv-show --no-header --tensor budget "$work/budget.kv" | awk '{ print $3, $1, $4 }' | sort >"$work/budget"
index_of "$kept" | awk '{ n[$1 " " $2]++ } END { for (h in n) print h, n[h] }' | sort >"$work/spent"
cmp "$work/budget" "$work/spent" || fail "kept sets are not the budgets"
