#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# --share on a card: keys and values stay in its memory, and programs hand each other the handles.  The card is the shim's.

load helpers

setup() {
	shim=$KV_BUILD/tests/libkvcuda-shim.so
	[ -e "$shim" ] || skip 'no shim: it needs the headers of CUDA'
	cd "$BATS_TEST_TMPDIR"
	export KV_CUDA_LIBRARY=$shim KV_CUBLAS_LIBRARY=$shim KV_DEVICE=cuda KV_MODEL
	KV_MODEL=$(tiny_model)
	text='the quick brown fox jumps over the lazy dog and runs away from it into the dark woods'
	prompts=(-p "$text" -p "${text:9}" --precision f32 --dtype f32)
}

# evict [option] - what follows a prefill; what is kept goes to standard output
evict() { kv-score snapkv "$@" | kv-budget champion -b 30 "$@" | kv-evict --drop q "$@"; }

# references FILE - how many payloads of a stream lie on a card
references() { grep -ao 'cuda:GPU-' "$1" | wc -l; }

# ends SECONDS COMMAND... - it fails, and in time
ends() { run --separate-stderr timeout -k 1 "$@"; [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$status" -ne 137 ]; }

@test "the same cache, with and without, and nothing of K and V leaves the card" {
	kv-prefill "${prompts[@]}" | evict >want.kv
	kv-prefill "${prompts[@]}" | tee inline.kv | evict >got.kv
	cmp want.kv got.kv
	[ "$(references inline.kv)" -eq 0 ]
	kv-prefill "${prompts[@]}" -o whole.kv
	cmp inline.kv whole.kv
	kv-prefill "${prompts[@]}" --share | tee references.kv | evict >got.kv
	cmp want.kv got.kv
	[ "$(references references.kv)" -ge 12 ] # q, k and v of two layers of two prompts
	[ "$(stat -c %s references.kv)" -lt "$(($(stat -c %s inline.kv) / 4))" ]
	KV_SHARE=1 KV_SHIM_GUARD=1 kv-prefill "${prompts[@]}" | KV_SHARE=1 KV_SHIM_GUARD=1 evict >got.kv
	cmp want.kv got.kv
	KV_SHIM_STREAMS=lazy kv-prefill "${prompts[@]}" --share | KV_SHIM_STREAMS=lazy evict >got.kv
	cmp want.kv got.kv
	KV_SHIM_STREAMS=lazy kv-prefill "${prompts[@]}" | cmp - inline.kv
	renumber() { kv-score snapkv | kv-budget uniform -b 30 | kv-evict --drop q --renumber; }
	kv-prefill "${prompts[@]}" | renumber >want.kv
	KV_SHIM_STREAMS=lazy kv-prefill "${prompts[@]}" --share | KV_SHIM_STREAMS=lazy renumber >got.kv
	cmp want.kv got.kv
}

@test "the same answers" {
	kv-prefill "${prompts[@]}" | evict | kv-decode --precision f32 -n 4 >want
	kv-prefill "${prompts[@]}" --share | evict --share | kv-decode --precision f32 -n 4 >got
	cmp want got
	kv-prefill "${prompts[@]}" | kv-decode --precision f32 -n 4 >want
	kv-prefill "${prompts[@]}" --share | kv-decode --precision f32 -n 4 >got
	cmp want got
	kv-prefill "${prompts[@]}" --share | KV_SHIM_GUARD=1 KV_SHIM_STREAMS=lazy kv-decode --precision f32 -n 4 >got
	cmp want got
}

# traffic DIRECTION PROGRAM - bytes that it copied, to_device or to_host
traffic() { awk -v name="$2" -v to="$1" '$1 == name { print to == "to_device" ? $2 : $3 }' traffic; }

@test "a whole cache that lies on the card is decoded there" {
	export KV_SHIM_TRAFFIC=$PWD/traffic
	kv-prefill "${prompts[@]}" --drop q -o whole.kv
	cache=$(kv-show --json --no-stats whole.kv | grep -E '"name": ?"[kv]"' | grep -Eo '"bytes": ?[0-9]+' |
		awk -F: '{ n += $2 } END { print n }')
	: >traffic
	kv-decode --precision f32 -n 4 whole.kv >want
	to_device=$(traffic to_device kv-decode) to_host=$(traffic to_host kv-decode)
	: >traffic
	kv-prefill "${prompts[@]}" --drop q --share | kv-decode --precision f32 -n 4 >got
	cmp want got
	[ "$(traffic to_device kv-decode)" -eq $((to_device - cache)) ]
	[ "$(traffic to_host kv-decode)" -eq "$to_host" ]
	: >traffic # and a response is decoded from what the prefill has there
	kv-prefill "${prompts[@]}" --response generate:4 --share | kv-show >shown
	[ "$(traffic to_host kv-prefill)" -lt "$cache" ]
}

# waits PROGRAM LAYERS [option] - how often it waited for the card
waits() {
	local name=$1 layers=$2; shift 2

	: >traffic
	kv-prefill "${prompts[@]:2}" -m "$(tiny_model --layers "$layers")" "$@" | kv-score snapkv "$@" |
		kv-budget uniform -b 30 "$@" | kv-evict --drop q "$@" | kv-show >shown
	awk -v name="$name" '$1 == name { print $4 }' traffic
}

@test "the card is waited for when something is needed of it, not for each tensor" {
	export KV_SHIM_TRAFFIC=$PWD/traffic KV_SHIM_STREAMS=lazy
	# for each layer: scores; what is kept; where it is gathered there, keys and values together
	[ "$(($(waits kv-score 6) - $(waits kv-score 3)))" -eq 3 ]
	[ "$(($(waits kv-score 6 --share) - $(waits kv-score 3 --share)))" -eq 3 ]
	[ "$(($(waits kv-evict 6) - $(waits kv-evict 3)))" -eq 3 ]
	[ "$(($(waits kv-evict 6 --share) - $(waits kv-evict 3 --share)))" -eq 6 ]
	[ "$(waits kv-prefill 6 --share)" -eq "$(waits kv-prefill 6)" ] # queries, keys and values of a layer together
	for part in q k,v; do # and what is dropped is not copied
		: >traffic
		kv-prefill "${prompts[@]}" --drop "$part" --share | kv-show >shown
		[ "$(traffic to_host kv-prefill)" -lt 4096 ]
	done
}

@test "fewer queries than there are, from behind the prompt too: they are packed on the card" {
	some() { kv-prefill "${prompts[@]}" --queries all "$@" | kv-score snapkv -w 8 | kv-budget uniform -b 30 | kv-evict --drop q; }
	some >want.kv
	KV_SHIM_GUARD=1 some --share >got.kv
	cmp want.kv got.kv
	behind() { kv-prefill "${prompts[@]}" --queries window:8 --response tokens:5,6,7,8,9,10,11,12,13,14 "$@" | kv-score truth --only score; }
	behind >want.kv
	behind --share >got.kv
	cmp want.kv got.kv
}

@test "all layers at once: they wait on the card" {
	whole() { kv-prefill "${prompts[@]}" "$@" | kv-score cake "$@" | kv-budget cake -b 30 "$@" | kv-evict "$@"; }
	whole >want.kv
	whole --share >got.kv
	cmp want.kv got.kv
}

@test "who computes elsewhere copies from the card" {
	export KV_SHIM_DEVICES=2
	for first in cpu cuda:0 cuda:1; do
		for second in cpu cuda:0 cuda:1; do
			kv-prefill "${prompts[@]}" --device cuda:1 | kv-score snapkv --device $first | kv-budget champion -b 30 |
				kv-evict --device $second --drop q >want.kv
			kv-prefill "${prompts[@]}" --device cuda:1 --share | kv-score snapkv --device $first --share |
				kv-budget champion -b 30 --share | kv-evict --device $second --drop q >got.kv
			cmp want.kv got.kv
		done
	done
	kv-prefill "${prompts[@]}" --share | kv-show >got
	kv-prefill "${prompts[@]}" | kv-show | cmp - got
}

@test "a card that the reader cannot open" {
	ends 20 bash -o pipefail -c 'KV_SHIM_DEVICES=2 kv-prefill "$@" --device cuda:1 --share |
		KV_SHIM_DEVICES=1 kv-score snapkv -o none.kv' - "${prompts[@]}"
	grep -Ec 'kv-score: .*layer 0, q: .* on a card that cannot be opened here; .* without --share: .*no card here is cuda:GPU-' \
		<<<"$stderr"
	ends 20 bash -o pipefail -c 'kv-prefill "$@" --share | KV_CUDA_LIBRARY=./none.so kv-show' - "${prompts[@]}"
	grep -Ec 'kv-show: .* on a card that cannot be opened here; .* without --share: .*none.so' <<<"$stderr"
	[ ! -e none.kv ]
}

@test "no memory to spare on the card: it is shared on the host" {
	kv-prefill "${prompts[@]}" | evict >want.kv
	KV_SHIM_MEMORY=8M kv-prefill "${prompts[@]}" --share | tee references.kv | evict >got.kv
	cmp want.kv got.kv
	[ "$(references references.kv)" -eq 0 ]
	[ "$(grep -ac /proc/ references.kv)" -ge 1 ]
}

@test "no memory on the card for the work: what lies there is fetched, and the CPU goes on" {
	kv-prefill "${prompts[@]}" | KV_DEVICE=cpu kv-score snapkv -o want.kv
	kv-prefill "${prompts[@]}" --share | KV_DEVICE=auto KV_SHIM_MEMORY=8192 kv-score snapkv -o got.kv 2>warning
	cmp want.kv got.kv
	grep -Ec 'kv-score: warning: <stdin>: sequence 0, layer 0: .*out of device memory.*; the CPU computes instead' warning
	[ "$(wc -l <warning)" -eq 1 ]
	kv-budget champion -b 30 got.kv | KV_DEVICE=cpu kv-evict -o want.kv
	kv-prefill "${prompts[@]}" --share | KV_DEVICE=cpu kv-score snapkv --share | kv-budget champion -b 30 --share |
		KV_DEVICE=auto KV_SHIM_MEMORY=4096 kv-evict -o got.kv 2>warning
	cmp want.kv got.kv
	[ "$(grep -c 'the CPU computes instead' warning)" -eq 1 ]
	ends 20 bash -o pipefail -c 'kv-prefill "$@" --share | KV_SHIM_MEMORY=8192 kv-score snapkv -o none.kv' - "${prompts[@]}"
	grep -Ec 'kv-score: <stdin>: sequence 0, layer 0: .*out of device memory.*: use --device cpu' <<<"$stderr"
	[ ! -e none.kv ]
	kv-prefill "${prompts[@]}" | kv-decode --precision f32 -n 4 >want
	for memory in 180K 190K 200K 210K 220K; do # the model has its place there, layers of the cache have none
		kv-prefill "${prompts[@]}" --share |
			KV_DEVICE=auto KV_SHIM_MEMORY=$memory kv-decode --precision f32 -n 4 >got 2>>warnings
		cmp want got
	done
	[ "$(grep -Ec 'kv-decode: warning: layer [01]: cuda: out of device memory .*; the CPU' warnings)" -ge 1 ]
}

@test "a system that does not pass memory of cards on: it is shared on the host, or the reader says so" {
	kv-prefill "${prompts[@]}" | evict >want.kv
	KV_SHIM_IPC=0 kv-prefill "${prompts[@]}" --share | tee references.kv | KV_SHIM_IPC=0 evict >got.kv
	cmp want.kv got.kv
	[ "$(references references.kv)" -eq 0 ]
	[ "$(grep -ac /proc/ references.kv)" -ge 1 ]
	ends 20 bash -o pipefail -c 'kv-prefill "$@" --share | KV_SHIM_IPC=0 kv-score snapkv -o none.kv' - "${prompts[@]}"
	grep -Ec 'kv-score: .*layer 0, q: .* memory of a card, .* cannot open it there \(.*not supported\); .* without --share' \
		<<<"$stderr"
	[ ! -e none.kv ]
}

@test "a stream that was stored: what it refers to has gone" {
	ends 20 bash -o pipefail -c 'kv-prefill "$@" --share | cat >stored.kv' - "${prompts[@]}"
	grep -c 'nobody has fetched what was left in memory.*without --share' <<<"$stderr"
	fails 1 'stored.kv: sequence 0, layer 0, q: .* memory of another program, which is gone .* without --share' \
		kv-score snapkv --only score stored.kv -o none.kv
	[ ! -e none.kv ]
}

@test "who lends is killed: its reader says that the stream ends" {
	mkfifo fifo
	(kv-prefill "${prompts[@]}" --share & echo $! >id; wait) 3>&- | (
		head -c 1500 # a part of it, and then no more before it is killed
		kill -9 "$(cat id)"
		cat
	) >fifo 2>/dev/null 3>&- &
	ends 20 kv-score snapkv fifo -o none.kv
	grep -Ec 'kv-score: .*(cut short|which is gone)' <<<"$stderr"
	[ ! -e none.kv ]
}

@test "the reader is killed: who lends ends" {
	mkfifo fifo
	(sleep 20 & echo $! >sleeper; wait) <fifo 3>&- &
	run --separate-stderr bash -o pipefail -c 'kv-prefill "$@" --share | (kv-score snapkv --share >fifo & sleep 2; kill -9 $!; wait)' - \
		"${prompts[@]}"
	kill "$(cat sleeper)"
	[ "$status" -ne 0 ]
}
