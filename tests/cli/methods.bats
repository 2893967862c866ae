# SPDX-License-Identifier: MIT
# kv-score, kv-budget and kv-evict: what they make of a cache, in one pipe and in steps, and what they refuse.
load helpers

TEXT="some words of a prompt that is longer than the window, "

setup_file() {
	load helpers
	local words

	words=$(printf "$TEXT%.0s" 1 2 3 4)
	kv-prefill -m "$(tiny_model)" -p "$words" -p "short" -p "$words" -o "$BATS_FILE_TMPDIR/cache.kv"
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cache=$BATS_FILE_TMPDIR/cache.kv
	mkdir out
}

# pipe ENTRIES [kv-evict options] - the linear pipeline
pipe() {
	local entries=$1; shift
	kv-score snapkv "$cache" | kv-budget uniform -b "$entries" | kv-evict "$@"
}

@test "in steps from files and in one pipe: the same bytes" {
	pipe 48 >pipe.kv
	kv-score snapkv --only score -o score.kv "$cache"
	kv-budget uniform -b 48 -o budget.kv score.kv
	kv-evict -o steps.kv "$cache" budget.kv
	cmp pipe.kv steps.kv
	# budgets alone, scores from a third file
	kv-budget uniform -b 48 --only budget -o alone.kv score.kv
	kv-evict "$cache" score.kv alone.kv >three.kv
	cmp pipe.kv three.kv
	[ "$(stat -c %s score.kv)" -lt $(($(stat -c %s "$cache") / 4)) ]
}

@test "one thread and two: the same bytes" {
	for n in 1 2; do
		kv-score snapkv --threads $n "$cache" | kv-budget uniform -b 48 --threads $n | kv-evict --threads $n >$n.kv
	done
	cmp 1.kv 2.kv
}

@test "A, B, A: the third sequence keeps what the first keeps" {
	pipe 48 -o small.kv
	for l in 0 1; do
		for t in score index k v; do
			kv-show --tensor $t --layer $l --sequence 0 small.kv >first
			kv-show --tensor $t --layer $l --sequence 2 small.kv >third
			[ -s first ]
			cmp first third
		done
	done
}

@test "a budget that covers the prompt keeps every value, with and without scores" {
	pipe 100000 >all.kv
	kv-budget uniform -b 100000 "$cache" | kv-evict >unscored.kv
	for file in all.kv unscored.kv; do
		for t in k v; do
			for h in 0 1; do
				kv-show --tensor $t --layer 1 --head $h "$cache" >before
				kv-show --tensor $t --layer 1 --head $h $file >after
				[ -s before ]
				cmp before after
			done
		done
	done
}

@test "tova gives all heads of a layer the same set" {
	kv-score tova "$cache" | kv-budget uniform -b 20 | kv-evict -o small.kv
	kv-show --tensor index --layer 0 --head 0 small.kv >zero
	kv-show --tensor index --layer 0 --head 1 small.kv >one
	[ -s zero ]
	[ "$(awk '{ print $NF }' zero)" = "$(awk '{ print $NF }' one)" ]
}

@test "a share of the prompt, and budgets that are in the stream already" {
	kv-score snapkv "$cache" | kv-budget uniform -r 1 | kv-evict -o all.kv
	kv-score snapkv "$cache" | kv-budget uniform -b 40 -o forty.kv
	kv-budget uniform forty.kv --only budget -o again.kv
	cmp <(kv-show --tensor budget --layer 0 forty.kv) <(kv-show --tensor budget --layer 0 again.kv)
	kv-budget uniform -b 50 forty.kv --only budget -o fifty.kv
	kv-show --tensor budget --layer 0 fifty.kv | grep '50$' >/dev/null
	fails 1 'sequence 0, layer 0: how many entries\? give -b ENTRIES or -r RATIO' kv-budget uniform -o out/x "$cache"
	no_file out
}

@test "ties: the two rules differ where the maximum makes plateaus" {
	pipe 34 --tie raw >raw.kv
	pipe 34 --tie position >position.kv
	pipe 34 >default.kv
	kv-show --tensor index --layer 0 raw.kv >a
	kv-show --tensor index --layer 0 position.kv >b
	kv-show --tensor index --layer 0 default.kv >c
	run ! cmp -s a b
	cmp a c
}

@test "what is missing is named, with the program that brings it" {
	kv-score snapkv --drop q -o noq.kv "$cache"
	fails 1 'noq.kv: sequence 0, layer 0: snapkv needs queries.*kv-prefill with --queries window:32' kv-score snapkv noq.kv -o out/x
	fails 1 'tova needs queries.*--queries last' kv-score tova noq.kv -o out/x
	fails 1 'last 64 prompt tokens.*--queries window:64' kv-score snapkv -w 64 "$cache" -o out/x
	kv-score snapkv --drop k -o nok.kv "$cache"
	fails 1 'needs the keys' kv-score snapkv nok.kv -o out/x
	fails 1 'needs budgets \(tensor budget\): put kv-budget' kv-evict "$cache" -o out/x
	kv-budget uniform -b 48 -o noscore.kv "$cache"
	fails 1 'noscore.kv: sequence 0, layer 0: the budget is smaller than the prompt: .*tensor score.*kv-score' kv-evict noscore.kv -o out/x
	kv-budget uniform -b 48 --drop v -o nov.kv "$cache"
	fails 1 'the values \(tensor v\)' kv-evict nov.kv -o out/x
	no_file out
}

@test "fewer queries than the stream has: the last ones" {
	kv-score snapkv -w 8 --only score "$cache" -o eight.kv
	kv-show --tensor score --layer 0 eight.kv >eight
	kv-score snapkv --only score "$cache" -o default.kv
	kv-show --tensor score --layer 0 default.kv >default
	[ "$(wc -l <eight)" -gt "$(wc -l <default)" ]
}

@test "an evicted cache is refused" {
	pipe 48 -o small.kv
	fails 1 'evicted already' kv-score snapkv small.kv -o out/x
	fails 1 'evicted already' kv-budget uniform -b 5 small.kv -o out/x
	fails 1 'evicted already' kv-evict small.kv -o out/x
	no_file out
}

@test "scores of another prompt are refused" {
	kv-prefill -m "$(tiny_model)" -p "another" -p "short" -p "third" | kv-score snapkv --only score -o other.kv
	fails 1 'different prompts.*cache.kv.*other.kv|different prompts.*other.kv.*cache.kv' \
	    kv-budget uniform -b 5 "$cache" other.kv -o out/x
	no_file out
}

@test "misuse: status 2, nothing is opened" {
	fails 2 'expected a METHOD' kv-score
	fails 2 "unknown METHOD 'nosuch'" kv-score nosuch
	fails 2 '^  snapkv +attention' kv-score nosuch
	fails 2 '^  uniform +the same' kv-budget nosuch
	fails 2 'whole number from 1 to 2147483647 or all' kv-score snapkv -w 0
	fails 2 'whole number' kv-score snapkv -w 3x
	fails 2 'odd' kv-score snapkv --pool-width 4
	fails 2 'needs --pool' kv-score snapkv --pool none --pool-width 5
	fails 2 'max\|avg\|none' kv-score snapkv --pool median
	fails 2 'mean\|sum' kv-score snapkv --rows max
	fails 2 'mean\|max\|sum' kv-score snapkv --gqa all
	fails 2 'tova has no option --window, it takes --pool, ' kv-score tova -w 3
	fails 2 "unknown option '--bogus'" kv-score snapkv --bogus
	fails 2 'expected layers' kv-score snapkv --layers 3-1
	fails 1 'layers 0 to 1' kv-score snapkv --layers 1-2 "$cache"
	fails 2 'whole number from 1 to 2147483647' kv-budget uniform -b 0
	fails 2 'whole number' kv-budget uniform -b -5
	fails 2 'whole number' kv-budget uniform -b 1e3
	fails 2 'whole number' kv-budget uniform -b 2147483648
	fails 2 'above 0' kv-budget uniform -r 0
	fails 2 'from 0 to 1' kv-budget uniform -r 1.5
	fails 2 'a number' kv-budget uniform -r half
	fails 2 'not both' kv-budget uniform -b 5 -r 0.5
	fails 2 'raw\|position' kv-evict --tie low
}

@test "every method of the tables is in its man page, with the table's words" {
	for program in kv-score kv-budget; do
		page=$(tr '\n' ' ' <"$BATS_TEST_DIRNAME/../../man/$program.1")
		$program --help | sed -n '/^METHOD:/,/^$/p' | sed 1d | while read -r name brief; do
			[ -n "$name" ] || continue
			[[ $page == *".It Cm $name $brief"* ]] || { echo "$program: no '$name $brief'"; exit 1; }
		done
		$program --help | grep '^METHOD:' >/dev/null
		for method in $($program --help | sed -n '/^METHOD:/,/^$/p' | sed '1d;/^$/d' | awk '{ print $1 }'); do
			for option in $($program "$method" --help | grep -oE '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
				[[ $page == *"Fl ${option#-}"* ]] || { echo "$program: no $option of $method"; exit 1; }
			done
		done
	done
}

@test "methods mixed by layer, and query heads with caches of their own" {
	kv-score snapkv --layers 0-0 "$cache" | kv-score tova --layers 1- | kv-budget uniform -b 40 -o mixed.kv
	cmp <(kv-show --tensor score --layer 0 mixed.kv) <(kv-score snapkv "$cache" | kv-show --tensor score --layer 0)
	cmp <(kv-show --tensor score --layer 1 mixed.kv) <(kv-score tova "$cache" | kv-show --tensor score --layer 1)
	kv-evict mixed.kv -o small.kv
	kv-score snapkv --granularity head "$cache" | kv-budget uniform -b 40 | kv-evict -o heads.kv
	[ "$(kv-show --tensor index --layer 0 heads.kv | wc -l)" -gt "$(kv-show --tensor index --layer 0 small.kv | wc -l)" ]
	kv-decode -m "$(tiny_model)" -n 2 heads.kv >/dev/null
}

@test "help shows the program's own defaults and no invented ones" {
	run --separate-stderr kv-score --help
	[ "$status" -eq 0 ]
	[[ $output != *18446744073709551615* ]]
	run --separate-stderr kv-score snapkv --help
	[[ $output == *"(default 32)"*"mean|sum (default mean)"*"(default window)"* ]]
	[[ $output != *18446744073709551615* ]]
	run --separate-stderr kv-score --help snapkv
	[[ $output == *"(default 32)"* ]]
	run --separate-stderr kv-budget --help
	[[ $output != *"(default -1)"* ]]
	[[ $output != *"(default 0)"*"RATIO"* ]]
	run --separate-stderr kv-evict --help
	[[ $output == *"raw|position (default raw)"* ]]
}
