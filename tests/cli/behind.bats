# SPDX-License-Identifier: MIT
# Scores by what stands behind the prompt: truth, laq and speckv as whole pipelines.
load helpers

prompt=17,4,99,23,250,8,61,61,300,12,77,5,140,31,2,88,19,204,46,7,160,33,91,128,11,54,270,66,9,38,115,22,3,84,47,190
response=41,6,233,70,15,102

setup() {
	cd "$BATS_TEST_TMPDIR"
	KV_MODEL=$(tiny_model)
	export KV_MODEL
	mkdir out
}


# same_scores A B - the same scores, within 1e-4 of them
same_scores() {
	paste <(kv-show --no-header --tensor score "$1") <(kv-show --no-header --tensor score "$2") |
		awk '{ a = $(NF / 2); b = $NF; d = a > b ? a - b : b - a; if (d > 1e-7 + 1e-4 * (a > b ? a : b)) { print; bad = 1 } }
			END { exit bad || NR == 0 }'
}

@test "truth: the response's attention is that of the end of prompt and response together" {
	kv-prefill --tokens "$prompt" --for truth --response "tokens:$response" -o behind.kv
	kv-prefill --tokens "$prompt,$response" --queries window:6 -o whole.kv
	kv-score truth behind.kv -o truth.kv
	kv-score snapkv -w 6 whole.kv -o snapkv.kv
	same_scores truth.kv snapkv.kv
	[ "$(kv-show --no-header --tensor score truth.kv | wc -l)" -eq $((2 * 2 * 36)) ]
	kv-score truth --granularity head behind.kv -o truth.kv
	kv-score snapkv -w 6 --granularity head whole.kv -o snapkv.kv
	same_scores truth.kv snapkv.kv
	kv-budget uniform -b 10 truth.kv | kv-evict -o small.kv
	[ "$(kv-decode --jsonl --ignore-eos -n 2 small.kv | grep -o '"next_position":[0-9]*')" = '"next_position":37' ]
}

@test "truth: an empty response scores nothing, the first tokens stay" {
	kv-prefill --tokens "$prompt" --response tokens: -o behind.kv
	kv-score truth --pool none behind.kv | kv-budget uniform -b 3 | kv-evict -o small.kv
	[ "$(kv-show --no-header --tensor index --layer 0 small.kv | awk '{ printf "%s ", $NF }')" = "0 1 2 0 1 2 " ]
}

@test "speckv: mean over the window, the last token and the draft" {
	kv-prefill --tokens "$prompt" --for speckv --response "tokens:$response" -o behind.kv
	kv-prefill --tokens "$prompt,$response" --queries window:11 -o whole.kv
	kv-score speckv -w 4 --reduce mean behind.kv -o speckv.kv
	kv-score snapkv -w 11 whole.kv -o snapkv.kv
	same_scores speckv.kv snapkv.kv
	kv-score speckv -w 4 behind.kv | kv-budget uniform -b 10 | kv-evict -o small.kv
	kv-show --no-header --tensor index --layer 1 small.kv | awk '$NF >= 31 { n++ } END { exit n != 2 * 5 }'
	fails 1 'needs queries of a response' kv-score speckv -w 4 -o out/x whole.kv
	no_file out
}

@test "laq: queries decoded from the whole cache are those of the response behind it" {
	export KV_PRECISION=f32 # elsewhere prefill and decoding round by themselves
	kv-prefill --tokens "$prompt" --for laq --response generate:6 --dtype f32 -o behind.kv
	kv-prefill --tokens "$prompt" --for laq --dtype f32 -o cache.kv
	kv-decode -n 6 --only q.response -o pseudo.kv cache.kv >text
	kv-score laq -w 3 behind.kv -o a.kv
	kv-score laq -w 3 cache.kv pseudo.kv -o b.kv
	same_scores a.kv b.kv
	kv-score laq --mask public cache.kv pseudo.kv -o c.kv
	[ "$(kv-show --no-header --tensor score c.kv | wc -l)" -eq $((2 * 2 * 36)) ]
	if same_scores b.kv c.kv >/dev/null; then return 1; fi
}

@test "laq: from an evicted cache, for two prompts of different lengths as for each alone" {
	printf '{"prompt": [%s]}\n{"prompt": [%s]}\n' "$prompt" "$response,$prompt,$prompt" >two.jsonl
	pipe() { # pipe NAME PROMPTS...
		local name=$1; shift
		kv-prefill "$@" --for laq -o "$name.kv"
		kv-score snapkv -w 8 "$name.kv" | kv-budget uniform -b 16 | kv-evict |
			kv-decode --ignore-eos -n 5 --only q.response -o "$name.pseudo" >"$name.text"
		kv-score laq "$name.kv" "$name.pseudo" | kv-budget uniform -b 12 | kv-evict -o "$name.small"
	}
	pipe both --jsonl two.jsonl
	pipe first --tokens "$prompt"
	pipe second --tokens "$response,$prompt,$prompt"
	[ "$(kv-show --no-header --tensor index both.small | wc -l)" -eq $((2 * 2 * 2 * 12)) ]
	cmp <(kv-show --no-header --tensor index both.small | awk '{ print $3, $4, $5 }') \
		<(for s in first second; do kv-show --no-header --tensor index $s.small; done | awk '{ print $3, $4, $5 }')
	fails 1 'first.kv.*second.pseudo|second.pseudo.*first.kv' kv-score laq -o out/x first.kv second.pseudo
	no_file out
}

@test "what stands behind is missed by name, with what brings it" {
	fails 2 'for truth: .*--response' kv-prefill --tokens "$prompt" --for truth -o out/x
	fails 2 'for speckv: .*--response' kv-prefill --tokens "$prompt" --for speckv -o out/x
	kv-prefill --tokens "$prompt" --for laq -o cache.kv
	fails 1 'truth needs queries of a response .*--response' kv-score truth -o out/x cache.kv
	fails 1 'laq needs queries of a response .*kv-decode' kv-score laq -o out/x cache.kv
	kv-prefill --tokens "$prompt" --queries none --response "tokens:$response" -o bare.kv
	fails 1 'needs queries .*--queries window:33' kv-score speckv -o out/x bare.kv
	fails 1 'needs queries .*--queries window:8' kv-score laq -w 8 -o out/x bare.kv
	kv-score laq --only score bare.kv -o ok.kv
	kv-score truth --drop k.response bare.kv -o nok.kv
	fails 1 'keys of a response .*--response' kv-score truth -o out/x nok.kv
	no_file out
}

@test "part:N: a part of the prompt, at least its last token" {
	kv-prefill --tokens "$prompt" --queries part:10 -o part.kv
	kv-show part.kv | grep 'q .*head 4, query 3, dim 16.*region="window"' >/dev/null
	kv-prefill --tokens "$prompt" --for nacl -o nacl.kv
	kv-show nacl.kv | grep 'q .*query 1, dim' >/dev/null
	kv-score nacl nacl.kv -o scored.kv
	fails 2 'part:N' kv-prefill --tokens "$prompt" --queries part:0
	fails 2 'part:N' kv-prefill --tokens "$prompt" --queries part:
}
