# SPDX-License-Identifier: MIT
# SmolLM2-135M-Instruct against transformers + torch (tests/golden/smollm2.tsv, made by make_smollm2.py).
load ../cli/helpers

golden=$BATS_TEST_DIRNAME/../golden/smollm2.tsv
report=$BATS_TEST_DIRNAME/../../examples/report.txt

setup_file() {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	local size

	export KV_MODEL=$KV_LONG_MODEL KV_PRECISION=f32
	cd "$BATS_FILE_TMPDIR"
	for size in 13 150 600 2400 6000; do
		kv-prefill -p "$(head -c "$size" "$report")" --dtype f32 -o "$size.kv"
	done
}

setup() {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	export KV_MODEL=$KV_LONG_MODEL KV_PRECISION=f32
	cd "$BATS_FILE_TMPDIR"
}

# logits STREAM - id and value of the last token's logits, a line each
logits() {
	kv-show --no-header --tensor logits "$1" | awk '{ print $1, $NF }'
}

# ids KEY STREAM - a list of token ids of the sequence, or of an answer, with commas
ids() {
	if [ "$1" = answer ]; then kv-decode --ignore-eos -n 64 --jsonl "$2"; else kv-show --json --no-stats "$2"; fi |
		grep -o '"tokens": *\[[^]]*' | head -n 1 | tr -d ' ' | sed 's/.*\[//'
}

# largest_difference A B - over the ids that A lists
largest_difference() {
	awk 'NR == FNR { a[$1] = $2; n++; next } $1 in a { d = a[$1] - $2; if (d < 0) d = -d; if (d > m) m = d; seen++ }
		END { if (seen != n || n == 0) { print "only " seen " of " n " ids" > "/dev/stderr"; exit 1 } printf "%.6f\n", m }' "$1" "$2"
}

@test "last-token logits of five prompts of 5 to 1,495 tokens differ by at most 2e-3" {
	for size in 13 150 600 2400 6000; do
		awk -v s="$size" '$1 == "logit" && $2 == s { print $3, $4 }' "$golden" >want
		logits "$size.kv" >got
		d=$(largest_difference want got)
		echo "# $size bytes: largest difference $d" >&3
		awk -v d="$d" 'BEGIN { exit !(d <= 2e-3) }'
	done
}

@test "64 greedy tokens are identical" {
	for size in 13 600 6000; do
		want=$(awk -v s="$size" '$1 == "greedy" && $2 == s { $1 = $2 = ""; print substr($0, 3) }' "$golden" | tr ' ' ,)
		got=$(ids answer "$size.kv")
		[ "$got" = "$want" ] || { echo "want $want"; echo "got  $got"; false; }
	done
}

@test "rounding the cache to f16 leaves the first 32 greedy tokens as they are" {
	for size in 13 600 6000; do
		kv-prefill -p "$(head -c "$size" "$report")" -o half.kv
		want=$(ids answer "$size.kv" | cut -d, -f1-32)
		got=$(ids answer half.kv | cut -d, -f1-32)
		[ "$got" = "$want" ] || { echo "want $want"; echo "got  $got"; false; }
	done
}

@test "the same weights as a Hugging Face folder: logits within 1e-3" {
	mkdir -p hf
	save_hf "$KV_MODEL" hf
	kv-prefill -m hf --tokens "$(ids tokens 600.kv)" --dtype f32 -o hf.kv
	logits 600.kv >a
	logits hf.kv >b
	d=$(largest_difference a b)
	echo "# largest difference $d" >&3
	awk -v d="$d" 'BEGIN { exit !(d <= 1e-3) }'
}

@test "in block fixed point logits differ by at most 5e-2, and the first 32 greedy tokens are the same" {
	export KV_PRECISION=i16
	for size in 13 600 6000; do
		kv-prefill -p "$(head -c "$size" "$report")" --dtype f32 -o fixed.kv
		awk -v s="$size" '$1 == "logit" && $2 == s { print $3, $4 }' "$golden" >want
		logits fixed.kv >got
		d=$(largest_difference want got)
		echo "# $size bytes: largest difference $d" >&3
		awk -v d="$d" 'BEGIN { exit !(d <= 5e-2) }'
		want=$(awk -v s="$size" '$1 == "greedy" && $2 == s { $1 = $2 = ""; print substr($0, 3) }' "$golden" | tr ' ' ,)
		got=$(ids answer fixed.kv)
		[ "$(cut -d, -f1-32 <<<"$got")" = "$(cut -d, -f1-32 <<<"$want")" ]
	done
}

@test "1 and 2 threads: the same bytes" {
	for KV_PRECISION in f32 i16; do
		kv-prefill --threads 1 -p "$(head -c 600 "$report")" -o one.kv
		kv-prefill --threads 2 -p "$(head -c 600 "$report")" -o two.kv
		cmp one.kv two.kv
		kv-decode --threads 1 -n 32 --jsonl one.kv >one.json
		kv-decode --threads 2 -n 32 --jsonl one.kv >two.json
		cmp one.json two.json
	done
}

@test "the demo" {
	"$BATS_TEST_DIRNAME/../../examples/demo.sh" >out
	grep -q 'wood at Lanner' out
	# an answer and a row of the table each at 512, 256 and 128
	for method in snapkv champion lookahead; do
		[ "$(grep -c "^$method " out)" -eq 6 ]
	done
}
