#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ablation.sh TRAIN HELDOUT [OPTION...] - how many lookahead tokens, and adapters where: small modules, the same steps
# for all.
#
# TRAIN and HELDOUT: JSON Lines, as examples/train-lookahead makes them; OPTIONs go to kv-train. A row of the table is
# a module: lookahead tokens, matrices with adapters (none, qkv, all), numbers to learn, steps, and of what is held
# out the last loss and recall. Responses and their attention are prepared once, for all.
#
# KV_MODEL    model; else the demo's            KV_STEPS  steps of each (60), of 8 samples
# KV_ROWS     lookahead tokens ("4 8 16 32 64") KV_TARGETS  ("none qkv all")
# KV_WORK     folder for what is learnt (default: in KV_BUILD); modules that are there are not learnt again
# KV_CACHE    folder for what is prepared (default: in KV_WORK); that of a training with the same responses will do
set -euo pipefail
[ $# -ge 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
KV_BUILD=$(realpath "${KV_BUILD:-$here/../../build}")
PATH=$KV_BUILD/bin:$PATH
KV_MODEL=$(realpath "${KV_MODEL:-$(cd "$here/../.." && realpath "$(tools/fetch-model)")}")
export KV_MODEL
work=${KV_WORK:-$KV_BUILD/bench/lookahead/ablation}
train=$1 heldout=$2 steps=${KV_STEPS:-60}
shift 2
mkdir -p "$work"

# field NAME FILE - the number behind it in the last line that has it
field() {
	sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$2" | tail -n 1
}

printf 'rows\ttargets\tnumbers\tsteps\tloss\trecall@64\trecall@128\trecall@256\tseconds\n'
for n in ${KV_ROWS:-4 8 16 32 64}; do
	for targets in ${KV_TARGETS:-none qkv all}; do
		name=$work/$n.$targets
		if [ ! -e "$name.safetensors" ]; then
			kv-train lookahead -o "$name.safetensors" --rows "$n" --targets "$targets" --steps "$steps" \
				--held-out "$heldout" --measure-every 0 --save-every 0 \
				--cache "${KV_CACHE:-$work/cache}" --id-field id --log "$name.log" "$@" "$train" >"$name.out"
		fi
		printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$n" "$targets" \
			"$(sed -n 's/^\([0-9]*\) numbers to learn.*/\1/p' "$name.out")" "$steps" \
			"$(sed -n '/held_out/s/.*"loss": *\([-0-9.e]*\).*/\1/p' "$name.log" | tail -n 1)" \
			"$(field recall@64 "$name.log")" "$(field recall@128 "$name.log")" \
			"$(field recall@256 "$name.log")" \
			"$(field seconds "$name.log")"
	done
done
