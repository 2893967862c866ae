#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kv-show on streams of known contents (tests/tools/make_stream) and on model files.
load helpers

setup_file() {
	for kind in full evicted evil logits; do
		"$KV_BUILD/tests/tools/make_stream" "$kind" "$BATS_FILE_TMPDIR/$kind.kv"
	done
}

setup() {
	cd "$BATS_FILE_TMPDIR"
}

# has LINE - standard output has exactly this line
has() {
	grep -Fxq -- "$1" <<<"$output" || { echo "no line '$1' in:"; echo "$output"; return 1; }
}

# harmless - standard output has no control byte but tab and newline, no C1 character, and nothing that turns a line
# around
harmless() {
	LC_ALL=C lacks -nP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]' <<<"$output"
	iconv -f utf-8 -t utf-8 >/dev/null <<<"$output"
}

@test "a summary has header, history, a line per tensor and totals" {
	run --separate-stderr kv-show full.kv
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	has 'full.kv: kvtools stream, version 1'
	has 'model    plain (llama): 2 layers, 4 query heads, 2 KV heads of 4, vocabulary 8, context 64'
	grep -q "^history  kv-prefill .* -p 'six words'$" <<<"$output"
	has 'sequence 0  6 tokens  id="plain" prompt_length=6'
	has 'sequence 1  3 tokens  id="plain" prompt_length=3'
	has '    1 k            f32               192          1      1.515       2.03  [kv_head 2, token 6, dim 4]'
	has '    0 score        f32                48          0     0.7875      1.375  [kv_head 2, token 6]  nan 1  inf 1  method="plain"'
	has '    - logits       f32                32          0        3.5          7  [vocab 8]'
	has 'total    2 sequences, 18 tensors, 1,872 bytes'
}

@test "an evicted cache is summed up by layer and as a whole" {
	run kv-show evicted.kv
	[ "$status" -eq 0 ]
	[ "$(grep -c 'kept 5 of 12 entries (41.7 %), by head: 3 2$' <<<"$output")" -eq 2 ]
	has '  all kept 10 of 24 entries (41.7 %), 2.5 a head on average'
}

@test "standard input, a pipe, and a layer and a sequence of it" {
	run kv-show -l 1 -s 1 <full.kv
	[ "$status" -eq 0 ]
	[[ "$output" == '<stdin>: kvtools stream'* ]]
	has 'total    1 sequence, 4 tensors, 344 bytes'
	run kv-show <(cat full.kv)
	[ "$status" -eq 0 ]
	has 'total    2 sequences, 18 tensors, 1,872 bytes'
}

@test "JSON Lines: an object per record" {
	run kv-show --json evicted.kv
	[ "$status" -eq 0 ]
	[ "$(head -n 1 <<<"$output" | cut -c 1-34)" = '{"record":"header","kvstream":1,"m' ]
	has '{"record":"sequence","sequence":1,"id":"plain","tokens":[10,11,12],"prompt_length":3}'
	has '{"record":"tensor","sequence":0,"name":"index","layer":0,"dtype":"i32","shape":[5],"axes":["entry"],"bytes":20,"attrs":{"next_position":6},"min":0,"mean":2.8,"max":5,"nan":0,"inf":0}'
	has '{"record":"kept","sequence":0,"layer":1,"heads":[3,2],"of":6}'
	[ "$(tail -n 1 <<<"$output")" = '{"record":"end","sequences":2,"tensors":18,"bytes":832}' ]
	[ "$(grep -vc '^{"record":".*}$' <<<"$output")" -eq 0 ]
}

@test "values: positions of tokens, queries and kept entries" {
	run kv-show -t k -l 1 --head 1 -s 1 full.kv
	[ "$output" = $'position\tdim0\tdim1\tdim2\tdim3\n0\t1.5\t1.50999999\t1.51999998\t1.52999997\n1\t1.60000002\t1.61000001\t1.62\t1.63\n2\t1.70000005\t1.71000004\t1.72000003\t1.73000002' ]
	run kv-show -t k -l 1 --head 1 -s 1 --no-header evicted.kv
	[ "$output" = $'0\t1.5\t1.50999999\t1.51999998\t1.52999997\n2\t1.70000005\t1.71000004\t1.72000003\t1.73000002' ]
	run kv-show -t q -l 0 --head 3 -s 0 --no-header full.kv
	[ "$output" = $'4\t24\t25\t26\t27\n5\t28\t29\t30\t31' ]
	run kv-show -t score -l 0 -s 1 full.kv
	[ "$output" = $'position\thead\tscore\n0\t0\t0\n1\t0\tnan\n2\t0\tinf\n0\t1\t0.375\n1\t1\t0.5\n2\t1\t0.625' ]
	run kv-show -t index -s 0 -l 0 evicted.kv
	[ "$output" = $'position\thead\tindex\n0\t0\t0\n4\t0\t4\n5\t0\t5\n0\t1\t0\n5\t1\t5' ]
	run kv-show -t logits -s 1 full.kv
	[ "${lines[0]}" = $'vocab\tlayer\tlogits' ]
	[ "${lines[8]}" = $'7\t-1\t7' ]
}

@test "tokens: ids without a model" {
	run kv-show --tokens -s 0 evicted.kv
	[ "$output" = 'sequence 0: 6 tokens; 4 heads keep 2.5 each (41.7 %); kept by all 2, by none 3
marks: # all heads, 9..1 tenths of them, . fewer, blank none
      0 | 10 11 12 13 14 15
        | #           5  #' ]
	run kv-show --tokens -l 0 --head 1 -s 0 evicted.kv
	[ "${lines[1]}" = '      0 | 10···· 15' ]
	run kv-show --tokens --json -l 0 -s 1 evicted.kv
	[ "${lines[1]}" = '{"sequence":1,"position":1,"token":11,"kept":1,"of":2}' ]
}

@test "tokens: a full cache keeps all, a stream without keys still has its tokens" {
	run kv-show --tokens -s 1 full.kv
	[ "${lines[0]}" = 'sequence 1: 3 tokens; 4 heads keep 3.0 each (100.0 %); kept by all 3, by none 0' ]
	[ "${lines[3]}" = '        | #  #  #' ]
	run kv-show --tokens -s 1 -l 0 --head 1 full.kv
	[ "${lines[1]}" = '      0 | 10 11 12' ]
	run kv-show --tokens -s 1 logits.kv
	[ "$output" = $'sequence 1: 3 tokens; no keys in this stream\n      0 | 10 11 12' ]
	fails 1 'no keys of this layer' kv-show --tokens -l 0 logits.kv
	fails 1 'sequence 0: no keys of this layer and head' kv-show --tokens -l 1 --head 2 evicted.kv
}

@test "tokens: text with a model, and not with another one" {
	model=$(tiny_model)
	kv-prefill -m "$model" -p $'naïve line\nwith \x1b[31m and more words than anyone needs' |
		kv-score snapkv -w 4 | kv-budget uniform -b 12 | kv-evict >"$BATS_TEST_TMPDIR/kept.kv"
	run --separate-stderr kv-show --tokens -m "$model" "$BATS_TEST_TMPDIR/kept.kv"
	[ "$status" -eq 0 ]
	grep -q 'naïve line\\n$' <<<"$output"
	grep -qF 'with \x1b[31m and more words than anyone needs' <<<"$output"
	grep -q '####$' <<<"$output" # the window
	harmless
	KV_MODEL=$model run --separate-stderr kv-show --tokens -l 0 --head 0 "$BATS_TEST_TMPDIR/kept.kv"
	[ "$status" -eq 0 ]
	grep -q '····' <<<"$output"
	fails 1 'fingerprint' kv-show --tokens -m "$model" evicted.kv
}

@test "nothing in a file reaches the terminal as a control sequence" {
	for view in '' '--json' '--tensor=nobody.knows' '--no-stats'; do
		run kv-show $view evil.kv
		[ "$status" -eq 0 ]
		harmless
	done
	run kv-show evil.kv
	[[ "$output" == *'a\x1b[31m\x07 \x7f\xc2\x9b\n\xe2\x80\xae'* ]]
	has '    ? a record of 13 bytes that this version does not know'
	run kv-show --json evil.kv
	[[ "$output" == *'"id":"a\u001b[31m\u0007 \u007f\u009b\n\u202e"'* ]]
}

@test "nor does a message that quotes a file" {
	printf '\x1b[31mred' >"$BATS_TEST_TMPDIR/red"
	fails 1 'not a kvtools stream' kv-show "$BATS_TEST_TMPDIR/red"
	LC_ALL=C lacks -P '\x1b' <<<"$stderr"
	fails 1 'a.x1b\[31m' kv-show $'a\x1b[31m'
}

@test "a stream that is cut short: what is there, then the message" {
	size=$(stat -c %s full.kv)
	head -c $((size / 2)) full.kv >"$BATS_TEST_TMPDIR/half.kv"
	fails 1 'half.kv: .*cut short' kv-show "$BATS_TEST_TMPDIR/half.kv"
	grep -q '^    0 k  ' <<<"$output"
	lacks '^total' <<<"$output"
	fails 1 'cut short' kv-show --json "$BATS_TEST_TMPDIR/half.kv"
	lacks '"record":"end"' <<<"$output"
	for n in $(seq 1 97 $((size - 1))); do
		fails 1 '.' kv-show <(head -c "$n" full.kv)
		lacks '^total' <<<"$output"
	done
}

@test "a flipped bit of a payload is found, unless payloads are not read" {
	cp full.kv "$BATS_TEST_TMPDIR/flipped.kv"
	at=$(LC_ALL=C grep -obUaP '\x00\x00\x80\x3f\x00\x00\x00\x40' full.kv | tail -n 1 | cut -d : -f 1)
	printf '\x01' | dd of="$BATS_TEST_TMPDIR/flipped.kv" bs=1 seek="$at" conv=notrunc status=none
	fails 1 'sequence 1.*logits.*checksum' kv-show "$BATS_TEST_TMPDIR/flipped.kv"
	run kv-show --no-stats "$BATS_TEST_TMPDIR/flipped.kv"
	[ "$status" -eq 0 ]
	has '    - logits       f32                32  [vocab 8]'
}

@test "several files: one that fails does not stop the others" {
	fails 1 'nowhere' kv-show nowhere full.kv
	has 'total    2 sequences, 18 tensors, 1,872 bytes'
}

@test "misuse" {
	fails 2 '--head' kv-show --head 1 full.kv
	fails 2 '--tensor' kv-show --tensor k --json full.kv
	fails 2 'layer.*whole number' kv-show --layer x full.kv
	fails 1 'no such values' kv-show -t nothing full.kv
	fails 1 'no such values' kv-show -t k --head 7 full.kv
	fails 1 'directory' kv-show "$BATS_TEST_TMPDIR"
	fails 1 'not a kvtools stream' kv-show "$BATS_TEST_FILENAME"
	fails 1 'empty' kv-show /dev/null
}

@test "a full disk is told, a reader that has gone is not" {
	fails 1 'No space left' bash -c 'kv-show full.kv >/dev/full'
	run --separate-stderr bash -c 'kv-show --tensor k $(yes full.kv | head -n 300) | head -n 1'
	[ -z "$stderr" ]
	[ "${lines[0]}" = $'position\tsequence\tlayer\thead\tdim0\tdim1\tdim2\tdim3' ]
}

@test "a model file" {
	model=$(tiny_model)
	run --separate-stderr kv-show "$model"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *': model file, gguf' ]]
	grep -q '^tokens   byte-level BPE, .*  eos .*</s>' <<<"$output"
	grep -q '^chat     chatml$' <<<"$output"
	grep -q '^  general.architecture = "llama"$' <<<"$output"
	grep -Eq '^f[0-9]+ +[0-9,]+ +[0-9]+ x [0-9]+  token_embd.weight$' <<<"$output"
	grep -q '^total ' <<<"$output"
	harmless
	run kv-show --json "$model"
	grep -q '^{"record":"model",.*"chat":"chatml"' <<<"$output"
	grep -q '^{"record":"tensor","name":"token_embd.weight","dtype":"f' <<<"$output"
	fails 1 'model file' kv-show --tokens "$model"
}

@test "the published small model" {
	shared_file data/stories260K.gguf
	run kv-show "$file"
	has 'model    stories260K (llama): 5 layers, 8 query heads, 4 KV heads of 8, vocabulary 512, context 512'
	has 'total    47 tensors, 1,040,128 bytes'
}
