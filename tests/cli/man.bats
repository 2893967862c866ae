#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The examples of the man pages are commands that work: each block is run as it stands, on a small model and a short
# report.
load helpers

setup_file() {
	cd "$BATS_FILE_TMPDIR"
	make_model --layers 5 model.gguf
	make_model --seed 3 draft.gguf
	make_module model.gguf module.safetensors
	printf 'The tide mill stands on a dam of oak piles. It was built in 1789 for a miller who ground barley.' >report.txt
	printf '{"prompt":"%s","id":%d,"answers":["x"]}\n' 'When was the mill built?' 1 'Who ground the barley in it?' 2 >questions.jsonl
	cp questions.jsonl tasks.jsonl
	printf ' The Trust.' >expected.txt
	kv-prefill -m model.gguf -f report.txt -o cache.kv
	kv-score snapkv -o scores.kv --only score cache.kv
	kv-budget uniform -b 40 -o budget.kv scores.kv
	kv-evict -o small.kv cache.kv budget.kv
}

# blocks PAGE - the literal blocks of its EXAMPLES, one file each: 01, 02, ...
blocks() {
	awk '/^\.Sh/ { examples = /EXAMPLES/ }
	     /^\.Bd/ { if (examples) { n++; block = 1; next } }
	     /^\.Ed/ { block = 0 }
	     block { gsub(/\\e/, "\\"); print >sprintf("%02d", n) }' "$1"
}

# examples PAGE - runs them all, in order, in a folder of its own
examples() {
	cp -r "$BATS_FILE_TMPDIR" "$BATS_TEST_TMPDIR/run"
	cd "$BATS_TEST_TMPDIR/run"
	rm -rf [0-9][0-9]
	export KV_MODEL=model.gguf
	ssh() { shift; "$@"; }
	export -f ssh
	blocks "$BATS_TEST_DIRNAME/../../man/$1"
	[ -e 01 ]
	for block in [0-9][0-9]; do
		if grep -qw jq "$block" && ! command -v jq >/dev/null; then continue; fi
		bash -eo pipefail "$block" >out 2>err || { echo "in $1:"; cat "$block" err; return 1; }
		# -v is there to say something
		grep -qw -e -v "$block" || [ ! -s err ] || { echo "in $1:"; cat "$block" err; return 1; }
	done
}

@test "kvtools.7" { examples kvtools.7; }
@test "kv-prefill.1" { examples kv-prefill.1; }
@test "kv-score.1" { examples kv-score.1; }
@test "kv-budget.1" { examples kv-budget.1; }
@test "kv-evict.1" { examples kv-evict.1; }
@test "kv-decode.1" { examples kv-decode.1; }
@test "kv-show.1" { examples kv-show.1; }
@test "kv-stat.1" { examples kv-stat.1; }
@test "kv-pack.1" { examples kv-pack.1; }
@test "kv-train.1" { examples kv-train.1; }

@test "every program has a page that names its options, and a line in kvtools.7" {
	for program in "$KV_BUILD"/bin/kv-*; do
		name=${program##*/}
		page=$BATS_TEST_DIRNAME/../../man/$name.1
		[ -e "$page" ] || { echo "no man page $name.1"; return 1; }
		grep -q "^\.It Xr $name 1" "$BATS_TEST_DIRNAME/../../man/kvtools.7" || { echo "kvtools.7 lacks $name"; return 1; }
		for option in $("$program" --help | grep -oE '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
			case $option in --only | --drop | --device | --threads | --quiet | --verbose | --help | --version) continue ;; esac
			grep -q -- "Fl ${option#-}\>\|Fl Fl ${option#--}\>" "$page" || { echo "$name.1 lacks $option"; return 1; }
		done
	done
}

@test "the pages are read without a complaint, and no paper is lost" {
	pages=$BATS_TEST_DIRNAME/../../man
	for page in "$pages"/*; do
		if command -v mandoc >/dev/null; then
			run mandoc -T lint -W warning "$page"
			[ -z "$output" ] || { echo "$output"; return 1; }
		fi
		command -v groff >/dev/null || continue
		run --separate-stderr groff -mandoc -T utf8 -P-cbou -ww -rLL=78n "$page"
		[ -z "$stderr" ] || { echo "$page"; echo "$stderr"; return 1; }
		while read -r title; do
			tr -s ' \n' ' ' <<<"$output" | grep -Fc "${title%% *}" || { echo "$page: $title is not shown"; return 1; }
		done < <(sed -n 's/^\.%T //p' "$page")
	done
}
