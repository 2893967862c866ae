#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 26-controls.sh [DOCUMENT] - what any method must beat: its own scores shuffled, its own scores upside down, and random
# ones.
. "$(dirname "$0")/lib.sh"

prefill --for snapkv
kv-score snapkv -o "$work/score.kv" "$cache"
kv-score shuffled --seed 1 "$work/score.kv" -o "$work/shuffled.score"
kv-score inverted "$work/score.kv" -o "$work/inverted.score"
kv-score random --seed 1 --recent 32 "$cache" -o "$work/random.score"
mv "$work/score.kv" "$work/snapkv.score"
for method in snapkv shuffled inverted random; do
	kv-budget uniform -b "$budget" "$work/$method.score" | kv-evict -o "$work/$method.kv"
	echo "--- $method"
	answer "$work/$method.kv"
	keeps_in_all "$budget" "$work/$method.kv"
	keeps -32 -1 "$work/$method.kv"
done

# By SnapKV's own scores no control's choice is as good as its own.
retained() {
	kv-stat --quantity retained-by "$work/snapkv.score" "$work/$1.kv" | awk '$1 == "retained-by" { print $3 }'
}
own=$(retained snapkv)
for control in shuffled inverted random; do
	other=$(retained "$control")
	echo "attention kept: snapkv $own, $control $other"
	awk -v a="$own" -v b="$other" 'BEGIN { exit !(a > b) }' || fail "$control keeps no less than snapkv"
done
