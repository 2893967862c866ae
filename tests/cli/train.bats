# SPDX-License-Identifier: MIT
# kv-train: prepared samples, learning, going on after a kill, refusals.
load helpers

setup_file() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_FILE_TMPDIR"
	for i in 1 2 3 4 5 6; do
		printf '{"prompt":"%s","id":"s%d","response":"%s"}\n' "$(seq -s ' ' $i 3 $((i * 5 + 30)))" $i "$(seq -s ' ' $i 9)"
	done >samples.jsonl
	train --steps 40 --save-every 7 -o whole.safetensors --log whole.log --threads 1 samples.jsonl
}

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_TEST_TMPDIR"
	cp "$BATS_FILE_TMPDIR/samples.jsonl" .
}

train() {
	kv-train lookahead --rows 4 --rank 2 --batch 2 --generate 8 --held-out-share 0.3 --measure-every 10 --lr 0.01 \
	    --cache "$BATS_FILE_TMPDIR/cache" -q "$@"
}

# figures LOG KEY - the values of a key, one per line
figures() {
	grep -o "\"$2\":[0-9.e-]*" "$1" | cut -d: -f2
}

@test "a trained module runs: queries and keys of its tokens, and a score" {
	module=$BATS_FILE_TMPDIR/whole.safetensors
	kv-show "$module" >shown
	grep -c '"kv-train"' shown
	grep -c 'steps_made=40' shown
	kv-prefill -p "$(seq -s ' ' 30)" --lookahead "$module" | kv-score lookahead | kv-budget uniform -b 20 | kv-evict |
		kv-decode -n 4 --ignore-eos >/dev/null
	# it learns
	figures "$BATS_FILE_TMPDIR/whole.log" loss | awk 'NR <= 5 { a += $1 } { l[NR] = $1 } END { for (i = NR - 6; i <= NR; i++) b += l[i] / 7; exit !(b < a / 5) }'
	[ "$(grep -c held_out "$BATS_FILE_TMPDIR/whole.log")" -eq 4 ]
	[ "$(grep -c gradient_norm "$BATS_FILE_TMPDIR/whole.log")" -eq 40 ]
}

@test "the same bytes for any number of threads, and killed on the way" {
	train --steps 40 --save-every 7 -o two.safetensors --threads 2 samples.jsonl
	cmp two.safetensors "$BATS_FILE_TMPDIR/whole.safetensors"
	for after in 0.05 0.1 0.15 0.1; do
		timeout -s KILL $after kv-train lookahead --rows 4 --rank 2 --batch 2 --generate 8 --held-out-share 0.3 \
		    --measure-every 10 --lr 0.01 --cache "$BATS_FILE_TMPDIR/cache" -q --steps 40 --save-every 7 \
		    -o killed.safetensors --log killed.log --resume samples.jsonl || true
	done
	train --steps 40 --save-every 7 -o killed.safetensors --log killed.log --resume samples.jsonl
	cmp killed.safetensors "$BATS_FILE_TMPDIR/whole.safetensors"
	figures killed.log loss >a
	figures "$BATS_FILE_TMPDIR/whole.log" loss >b
	cmp a b
}

@test "a stop by time is clean, and the rest can follow" {
	train --steps 40 --save-every 7 -o short.safetensors --max-minutes 0.000001 samples.jsonl 2>err || {
		grep -c "the time is up" err
		train --steps 40 --save-every 7 -o short.safetensors --resume samples.jsonl
	}
	kv-show short.safetensors >/dev/null
}

@test "samples are prepared once; a damaged file is made anew" {
	run --separate-stderr train --steps 2 -o a.safetensors --cache here samples.jsonl
	[ "$status" -eq 0 ]
	[ "$(ls here | wc -l)" -eq 6 ]
	stat -c '%n %Y %i' here/* >before
	train --steps 2 -o b.safetensors --cache here samples.jsonl
	stat -c '%n %Y %i' here/* | cmp - before
	cmp a.safetensors b.safetensors
	for f in here/*; do printf 'xx' | dd of="$f" bs=1 seek=3000 conv=notrunc status=none; done
	kv-train lookahead --rows 4 --rank 2 --batch 2 --generate 8 --held-out-share 0.3 --measure-every 10 --lr 0.01 --steps 2 \
	    -o c.safetensors --cache here samples.jsonl >/dev/null 2>err
	grep -c 'made anew' err
	cmp a.safetensors c.safetensors
	set -- here/*
	head -c 200 "$1" >cut; mv cut "$1"; : >"$2"; cp "$4" "$3"
	train --steps 2 -o d.safetensors --cache here samples.jsonl
	cmp a.safetensors d.safetensors
}

@test "without keys and values in the folder the result is the same" {
	train --steps 3 -o a.safetensors samples.jsonl
	train --steps 3 -o b.safetensors --cache small --no-cache-kv samples.jsonl
	cmp a.safetensors b.safetensors
	kv-show "$(ls -d small/* | head -n 1)" >shown
	grep -c ' score ' shown
	run ! grep -q ' k ' shown
	# they join when they are wanted
	train --steps 3 -o c.safetensors --cache small samples.jsonl
	cmp a.safetensors c.safetensors
	kv-show "$(ls -d small/* | head -n 1)" >shown
	grep -c ' k ' shown
}

@test "shards fill one folder; samples come through a pipe" {
	for i in 0 1 2; do
		train --prepare-only --shard $i/3 --cache parts <samples.jsonl
		[ "$(ls parts | wc -l)" -eq $((2 * i + 2)) ]
	done
	train --steps 3 -o a.safetensors --cache parts samples.jsonl
	cat samples.jsonl | train --steps 3 -o b.safetensors
	cmp a.safetensors b.safetensors
}

@test "the data set's own responses, a file of its own to measure on" {
	head -n 2 samples.jsonl >out.jsonl
	train --held-out-share 0 --held-out out.jsonl --response-field response --steps 10 -o a.safetensors --log log samples.jsonl
	[ "$(figures log samples)" -eq 2 ]
	run ! cmp a.safetensors "$BATS_FILE_TMPDIR/whole.safetensors"
	# what a stream of the folder says is what kv-score truth says of that response
	sed -n 3p samples.jsonl | kv-train lookahead --rows 1 --prepare-only --cache own --precision f32 -q --response-field response
	tensor score 1 own/* | awk '{ print $NF }' >a
	sed -n 3p samples.jsonl | kv-prefill --jsonl - --precision f32 --response field:response |
		kv-score truth --granularity head --pool none -o t.kv
	tensor score 1 t.kv | awk '{ print $NF }' >b
	[ "$(wc -l <a)" -eq "$(wc -l <b)" ]
	paste a b | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d } END { exit !(NR > 0 && m < 2e-4) }'
}

@test "shapes: no adapters, alpha 0, start from another module" {
	train --steps 2 --rank 0 -o a.safetensors samples.jsonl
	train --steps 2 --targets none -o b.safetensors samples.jsonl
	train --steps 2 --alpha 0 -o c.safetensors samples.jsonl
	train --steps 2 --targets qkv -o d.safetensors samples.jsonl
	cmp a.safetensors b.safetensors
	for m in a c d; do
		kv-prefill -p "some words" --lookahead $m.safetensors | kv-score lookahead --only score | kv-show >/dev/null
	done
	train --steps 2 --from d.safetensors -o e.safetensors samples.jsonl
	kv-show e.safetensors >shown
	grep -c 'targets = "qkv"' shown
}

@test "early stop keeps the best module" {
	train --steps 400 --lr 0.5 --clip 0 --measure-every 1 --patience 3 -o a.safetensors --log log samples.jsonl
	steps=$(grep -c gradient_norm log)
	[ "$steps" -lt 400 ]
	best=$(grep -o '"best_step":[0-9]*' log | tail -n 1 | cut -d: -f2)
	[ "$best" -eq $((steps - 3)) ]
	kv-show a.safetensors >shown
	grep -c "best_step=$best " shown
}

@test "long prompts are left out or cut, and said to be" {
	fails 1 'no sample is left' kv-train lookahead -o a --max-prompt 5 samples.jsonl
	run --separate-stderr kv-train lookahead -o a --max-prompt 45 --rows 2 --steps 1 samples.jsonl
	[ "$status" -eq 0 ]
	grep -c 'left out' <<<"$stderr"
	run --separate-stderr kv-train lookahead -o a --max-prompt 45 --cut --rows 2 --steps 1 samples.jsonl
	grep -c 'were cut to 45 tokens' <<<"$stderr"
}

@test "misuse and failures" {
	fails 2 'expected a METHOD' kv-train
	fails 2 "unknown METHOD 'x'" kv-train x
	fails 2 'give -o FILE' kv-train lookahead samples.jsonl
	fails 2 '--recall' kv-train lookahead -o a --recall 1,x samples.jsonl
	for eps in 0 -1 1e-21 2 nan; do
		fails 2 '^kv-train: --eps: expected a number' kv-train lookahead -o a --eps $eps samples.jsonl
	done
	train --steps 3 --eps 1e-20 -o e.safetensors samples.jsonl
	fails 2 '--shard' kv-train lookahead --prepare-only --cache c --shard 2/2 samples.jsonl
	fails 2 'exclude each other' kv-train lookahead -o a --held-out x --held-out-share 0.1 samples.jsonl
	fails 1 'no such|No such' kv-train lookahead -o a missing.jsonl
	fails 1 "no field 'text'" kv-train lookahead -o a --field text samples.jsonl
	fails 1 "'response' is neither|nothing" kv-train lookahead -o a --response-field id2 samples.jsonl ||
		fails 1 'id2' kv-train lookahead -o a --response-field id2 samples.jsonl
	fails 1 'a/b|No such' kv-train lookahead -o a/b/c samples.jsonl
	train --steps 3 --save-every 1 -o a.safetensors samples.jsonl
	fails 1 "another training, 'rate' differs" train --steps 3 --save-every 1 -o a.safetensors --resume --lr 0.02 samples.jsonl
	fails 1 "another training, 'alpha' differs" train --steps 3 --save-every 1 -o a.safetensors --resume --alpha 4 samples.jsonl
	make_model --seed 9 other.gguf
	train --steps 3 --save-every 1 -o b.safetensors --response-field response samples.jsonl
	fails 1 "another training, 'model' differs" train -m other.gguf --steps 3 --save-every 1 -o b.safetensors --resume \
		--response-field response samples.jsonl
	printf 'x' | dd of=a.safetensors.checkpoint bs=1 seek=9000 conv=notrunc status=none
	fails 1 'damaged' train --steps 3 --save-every 1 -o a.safetensors --resume samples.jsonl
	printf '' >empty.jsonl
	fails 1 'no prompt' kv-train lookahead -o b empty.jsonl
	[ ! -e b ]
}

@test "what cannot be written is found before the work" {
	fails 1 'nix/a.safetensors: cannot create' train --steps 2 -o nix/a.safetensors samples.jsonl
	fails 1 'nix/b: cannot create' train --steps 2 -o a.safetensors --checkpoint nix/b samples.jsonl
	fails 1 '.: Is a directory' train --steps 2 -o . samples.jsonl
	fails 1 'no room for a prompt in the model.s context' train --rows 512 --steps 2 -o a.safetensors samples.jsonl
	[ ! -e a.safetensors ]
	# what can be told only at the end costs no module
	fails 1 'b.safetensors is written, but standard output: No space' bash -c 'kv-train lookahead --rows 4 --steps 1 --response-field response \
		--held-out-share 0.3 -o b.safetensors samples.jsonl >/dev/full'
	kv-show b.safetensors >/dev/null
}

@test "a checkpoint that cannot be written costs no module" {
	fails 1 '^kv-train: a.safetensors is written, but there is no checkpoint to go on from: /dev/full: .*No space left' \
		train --steps 40 --save-every 7 -o a.safetensors --checkpoint /dev/full samples.jsonl
	[ "$(wc -l <<<"$stderr")" -eq 1 ]
	cmp a.safetensors "$BATS_FILE_TMPDIR/whole.safetensors"
	# told at once where a next one may do better; gone at the end, it is not told twice
	fails 1 'warning: step 1: no checkpoint: /dev/full: .*No space left' kv-train lookahead --rows 1 --steps 2 --save-every 1 \
		--cache "$BATS_FILE_TMPDIR/cache" --generate 8 -o b.safetensors --checkpoint /dev/full samples.jsonl
	[ "$(grep -c 'No space left' <<<"$stderr")" -eq 2 ]
	kv-show b.safetensors >/dev/null
	# the same when the folder has gone: between the check in the beginning and the first checkpoint, by way of the samples
	mkdir gone
	mkfifo lines
	{ rm -r gone; cat samples.jsonl; } >lines 3>&- &
	fails 1 'c.safetensors is written, but there is no checkpoint to go on from: gone/c: cannot create' \
		train --steps 3 -o c.safetensors --checkpoint gone/c lines
	wait
	kv-show c.safetensors >/dev/null
}

@test "a log that cannot be written costs no module, nor do figures" {
	fails 1 '^kv-train: a.safetensors is written, but the log is not whole: /dev/full: .*No space left' \
		train --steps 40 --save-every 7 -o a.safetensors --log /dev/full samples.jsonl
	[ "$(wc -l <<<"$stderr")" -eq 1 ]
	cmp a.safetensors "$BATS_FILE_TMPDIR/whole.safetensors"
	# told once on the way; the other place has all its lines
	short() { kv-train lookahead --rows 1 --steps 4 --measure-every 1 --cache "$BATS_FILE_TMPDIR/cache" --generate 8 \
		--held-out-share 0.3 -o "$@" samples.jsonl; }
	fails 1 'warning: step 1: the log ends here: /dev/full: .*No space left' short b.safetensors --log /dev/full
	[ "$(grep -c 'No space left' <<<"$stderr")" -eq 2 ]
	[ "$(grep -c '^step [1-4]/4 ' <<<"$output")" -eq 4 ]
	full() { short "$@" >/dev/full; }
	fails 1 'warning: step 1: figures end here: standard output: No space left' full c.safetensors --log log
	[ "$(grep -c '^kv-train: c.safetensors is written, but standard output: No space left' <<<"$stderr")" -eq 1 ]
	[ "$(grep -c held_out log)" -eq 4 ]
	cmp b.safetensors c.safetensors
	fails 1 'd.safetensors is written, but there is no checkpoint .*No space.*; the log is not whole: .*; standard output: No space' \
		full d.safetensors --log /dev/full --checkpoint /dev/full
	cmp b.safetensors d.safetensors
}

@test "--from brings its shape: options beside it say the same or are refused" {
	train --steps 1 --targets qkv -o d.safetensors samples.jsonl # --rows 4 --rank 2
	learn() { kv-train lookahead --batch 2 --generate 8 --steps 1 --cache "$BATS_FILE_TMPDIR/cache" -q "$@" samples.jsonl; }
	learn --from d.safetensors -o e.safetensors
	learn --from d.safetensors --rows 4 --rank 2 --alpha 32 --targets qkv -o f.safetensors
	cmp e.safetensors f.safetensors
	fails 2 '^kv-train: --rows 5, but the module of --from has 4: d.safetensors' learn --from d.safetensors --rows 5 -o x
	fails 2 '^kv-train: --rank 8, but the module of --from has 2: d.safetensors' learn --from d.safetensors --rank=8 -o x
	fails 2 '^kv-train: --rank 0, but the module of --from has 2' learn --from d.safetensors --rank 0 -o x
	fails 2 '^kv-train: --alpha 31.5, but the module of --from has 32' learn --from d.safetensors --alpha 31.5 -o x
	fails 2 '^kv-train: --targets all, but the module of --from has qkv' learn --from d.safetensors --targets all -o x
	fails 2 '^kv-train: --targets none, but the module of --from has qkv' learn --from d.safetensors --targets none -o x
	# without adapters
	learn --rows 4 --targets none -o n.safetensors
	for same in '--targets none' '--rank 0' '--rank 8 --targets none' '--rank 0 --targets none'; do
		learn --from n.safetensors $same -o g.safetensors
	done
	fails 2 '^kv-train: --rank 8, but the module of --from has 0' learn --from n.safetensors --rank 8 -o x
	fails 2 '^kv-train: --targets all, but the module of --from has none' learn --from n.safetensors --targets all -o x
	fails 1 'samples.jsonl: not a safetensors file' learn --from samples.jsonl --rows 4 -o x
	[ ! -e x ]
}

@test "a dash is no file" {
	fails 2 '^kv-train: -o -: standard output has the figures' kv-train lookahead -o - samples.jsonl
	fails 2 '^kv-train: --log -: standard output' kv-train lookahead -o a --log - samples.jsonl
	fails 2 '^kv-train: --checkpoint -: standard output' kv-train lookahead -o a --checkpoint - samples.jsonl
	[ ! -e - ] && [ ! -e ./-.cache ] && [ ! -e a ]
}

@test "a warning about a prepared sample names its file" {
	head -n 1 samples.jsonl >one.jsonl
	prepare() { kv-train lookahead --prepare-only --cache here --generate 8 "$@" one.jsonl 2>err >/dev/null; }
	learn() { kv-train lookahead --rows 1 --steps 1 --cache here --generate 8 --precision f32 -o a.safetensors one.jsonl 2>err >/dev/null; }
	prepare --precision f32
	file=$(echo here/*)
	cp "$file" good.kv
	# not what it should be, each in another way: only the beginning is looked at, or all of it
	kv-prefill --jsonl one.jsonl -o "$file" --precision f32
	prepare --precision f32
	grep -c "^kv-train: warning: $file: .*made anew" err
	cmp "$file" good.kv
	kv-prefill --jsonl one.jsonl --response field:response --dtype f32 --precision f32 -o "$file"
	learn
	grep -c "^kv-train: warning: $file: .*k: expected f16, found f32.*made anew" err
	printf '{"prompt":"other"}\n' | kv-prefill --jsonl - -o "$file"
	learn
	grep -c "^kv-train: warning: $file: of another prompt: made anew" err
	head -c 3000 good.kv >"$file"
	learn
	grep -c "^kv-train: warning: $file: .*cut short.*made anew" err
}

# damaged FILE PATTERN - kv-show says so, in one line that begins with the file
damaged() {
	for view in '' --json; do
		fails 1 "^kv-show: $1: .*$2" kv-show $view "$1"
		[ "$(wc -l <<<"$stderr")" -eq 1 ]
	done
}

@test "kv-show tells every kind of damage of a module and a checkpoint, in one line" {
	cp "$BATS_FILE_TMPDIR/whole.safetensors" m.safetensors
	cp "$BATS_FILE_TMPDIR/whole.safetensors.checkpoint" c.safetensors.checkpoint
	kv-show c.safetensors.checkpoint >shown
	grep -c '^c.safetensors.checkpoint: a training between two steps' shown
	grep -c '^  step = 40$' shown
	grep -c ' adam.v$' shown
	for good in m.safetensors c.safetensors.checkpoint; do
		x=x${good#?}
		size=$(stat -c %s $good)
		: >$x; damaged $x 'no room for a header'
		head -c 5 $good >$x; damaged $x 'no room for a header'
		head -c 200 $good >$x; damaged $x 'cut short'
		head -c $((size - 7)) $good >$x; damaged $x 'truncated'
		replace() { cp $good $x; printf "$2" | dd of=$x bs=1 seek=$1 conv=notrunc status=none; }
		replace 6 '\x40'; damaged $x 'not a safetensors file: header of'
		replace 0 '\x10\x00'; damaged $x 'header: byte '
		replace 8 'x'; damaged $x 'header: byte '
		replace 9 'x'; damaged $x 'header: byte '
		replace $((size - 1)) 'x'; damaged $x 'its checksum is'
		LC_ALL=C sed 's/__metadata__/__metadatA__/' $good >$x; damaged $x 'tensor __metadatA__: no dtype'
		LC_ALL=C sed 's/"dtype"/"dtypE"/' $good >$x; damaged $x 'no dtype'
		LC_ALL=C sed 's/"F\(16\|32\)"/"X\1"/' $good >$x; damaged $x 'dtype X.. is not supported'
		LC_ALL=C sed 's/"shape"/"shapE"/' $good >$x; damaged $x 'no shape'
		LC_ALL=C sed 's/"data_offsets"/"data_offsetS"/' $good >$x; damaged $x 'data_offsets: expected two'
		LC_ALL=C sed 's/"data_offsets":\[0,/"data_offsets":[1,/' $good >$x; damaged $x 'takes .* bytes'
	done
	module() { LC_ALL=C sed "$1" m.safetensors >x.safetensors; damaged x.safetensors "$2"; }
	module 's/"tokens":"4"/"tokens":"x"/' 'metadata: tokens: expected a number'
	module 's/"rank":"2"/"ronk":"2"/' 'metadata: no rank'
	module 's/"kvlookahead":"1"/"kvlookahead":"7"/' 'a module of version 7'
	module 's/"training":"{/"training":"[/' 'training: expected a JSON object'
	state() { LC_ALL=C sed "$1" c.safetensors.checkpoint >x.safetensors.checkpoint; damaged x.safetensors.checkpoint "$2"; }
	state 's/"state":"{/"state":"[/' 'its state is no JSON object'
	state 's/"state"/"stAte"/' 'no state in its metadata'
	# what is as good as what was there, but for the checksum
	module 's/"alpha":"32"/"alpha":"22"/' 'its checksum is'
	module 's/steps_made\\":40/steps_made\\":41/' 'its checksum is'
	fails 1 '^kv-prefill: x.safetensors: .*its checksum is' kv-prefill -p words --lookahead x.safetensors -o out.kv
	for key in adam_steps best_step step worse recipe best_loss; do
		state "s/\\(\"$key\\\\\":[^0-9]*\\)[0-9]/\\17/" 'its checksum is'
	done
	state 's/"ended\\":true/"ended\\":null/' 'its checksum is'
	cp x.safetensors.checkpoint resumed.safetensors.checkpoint
	fails 1 '^kv-train: resumed.safetensors.checkpoint: .*its checksum is' train --steps 40 --save-every 7 --resume \
		-o resumed.safetensors samples.jsonl
	[ ! -e resumed.safetensors ]
	state 's/"xxh3"/"xxh2"/' 'no xxh3 in its metadata'
	# other names do as well
	cp x.safetensors.checkpoint other; damaged other 'no xxh3'
	head -c 300 m.safetensors >other; damaged other 'cut short'
	# what damage is shown is refused where it would be used
	cp m.safetensors x.safetensors
	printf x | dd of=x.safetensors bs=1 seek=$(($(stat -c %s m.safetensors) - 1)) conv=notrunc status=none
	fails 1 '^kv-prefill: x.safetensors: .*its checksum is' kv-prefill -p words --lookahead x.safetensors -o out.kv
	fails 1 '^kv-train: x.safetensors: .*its checksum is' train --steps 1 --from x.safetensors -o out samples.jsonl
	fails 1 'x.safetensors: not a model but' kv-prefill -m x.safetensors -p words -o out.kv
	[ ! -e out.kv ]
}

@test "modules from before there was a checksum are good" {
	kv-show "$BATS_TEST_DIRNAME/../../modules/SmolLM2-135M-Instruct.lookahead.safetensors" >shown
	grep -c 'parameters = 2394624' shown
	lacks xxh3 <shown
}
