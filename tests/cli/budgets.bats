# SPDX-License-Identifier: MIT
# kv-budget's methods in pipes and over files: what composes, what --verbose tells, files of importances, what is
# refused.
load helpers

setup_file() {
	load helpers
	local words

	words=$(printf 'some words of a prompt that is longer than the window, %.0s' 1 2 3 4)
	kv-prefill -m "$(tiny_model)" -p "$words" -o "$BATS_FILE_TMPDIR/cache.kv"
	kv-score snapkv --only score "$BATS_FILE_TMPDIR/cache.kv" -o "$BATS_FILE_TMPDIR/score.kv"
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cache=$BATS_FILE_TMPDIR/cache.kv score=$BATS_FILE_TMPDIR/score.kv
	mkdir out
}

# budgets FILE - layer and entries, a line per head
budgets() {
	kv-show --no-header --tensor budget "$1" | awk '{ print $3, $4 }'
}

# heads FILE, layers FILE - of its model
heads() { budgets "$1" | awk '{ n[$1]++ } END { print n[0] }'; }
layers() { budgets "$1" | awk '{ n = $1 } END { print n + 1 }'; }

@test "pyramid and champion in one pipe and in steps: the same bytes, the pyramid's layers" {
	kv-budget pyramid -b 48 "$score" | kv-budget champion >pipe.kv
	kv-budget pyramid -b 48 "$score" -o pyramid.kv
	kv-budget champion pyramid.kv -o steps.kv
	cmp pipe.kv steps.kv
	for f in pyramid.kv pipe.kv; do
		budgets $f | awk '{ n[$1] += $2 } END { for (l in n) print l, n[l] }' | sort >$f.layers
	done
	cmp pyramid.kv.layers pipe.kv.layers
	kv-budget uniform -b 48 "$score" -o uniform.kv
	for f in uniform pyramid pipe; do
		budgets $f.kv | awk '{ n += $2 } END { print n }' >$f.sum
	done
	cmp uniform.sum pyramid.sum
	cmp uniform.sum pipe.sum
	kv-evict "$cache" pipe.kv -o small.kv
}

@test "champion tells of abnormal heads with --verbose" {
	run --separate-stderr kv-budget champion -b 48 --tau 0 -v "$score" -o out.kv
	[ "$status" -eq 0 ]
	[[ $stderr == *'"maxima":['*'"abnormal":[]'* ]]
	[[ $stderr == *"abnormal: 0 of $(budgets out.kv | wc -l) heads (0.00 %)"* ]]
	run --separate-stderr kv-budget champion -b 48 --tau 2 -v "$score" -o all.kv
	[[ $stderr == *"heads (100.00 %)"* ]]
	run --separate-stderr kv-budget champion -b 48 "$score" -o quiet.kv
	[ -z "$stderr" ]
}

@test "headkv: three forms of the same importances, and the same bytes but for the name" {
	kv-budget uniform -b 48 "$score" -o u.kv
	awk -v L="$(layers u.kv)" -v H="$(heads u.kv)" 'BEGIN {
		for (l = 0; l < L; l++) {
			for (h = 0; h < H; h++) {
				x = 1 + (l * H + h) % 3
				printf "%d%s", x, h + 1 < H ? "\t" : "\n" >"f.tsv"
				printf "%s%d%s", h ? ", " : l ? ", [" : "[[", x, h + 1 < H ? "" : "]" >"f.list"
				printf "%s\"%d-%d\": [%d, %d]", l + h ? ", " : "{", l, h, x - 1, x + 1 >"f.json"
			}
		}
		print "]" >"f.list"
		print "}\n" >"f.json"
	}'
	for f in tsv list json; do
		kv-budget headkv -b 48 --importance f.$f "$score" -o $f.kv
		budgets $f.kv >$f.b
	done
	cmp tsv.b list.b
	cmp tsv.b json.b
	[ "$(sort -u tsv.b | wc -l)" -gt "$(layers u.kv)" ]
}

@test "files of importances: what is missing or wrong is named" {
	fails 2 'needs --importance FILE' kv-budget headkv -b 48 "$score"
	fails 2 'needs --gates FILE' kv-budget duo "$score"
	fails 1 'nosuch' kv-budget headkv -b 48 --importance nosuch "$score" -o out/x
	echo '1 2 3 4 5' >wrong
	fails 1 'wrong has 1 layers of 5 heads' kv-budget headkv -b 48 --importance wrong "$score" -o out/x
	fails 1 'wrong has 1 layers of 5 heads' kv-budget duo --gates wrong "$score" -o out/x
	echo '1 nan' >nan
	fails 1 'nan: layer 0, head 1: expected a number' kv-budget headkv -b 48 --importance nan "$score" -o out/x
	echo '1 -1' >negative
	fails 1 'of 0 or more, got -1' kv-budget headkv -b 48 --importance negative "$score" -o out/x
	echo '{"0-0": 1, "x": 2}' >key
	fails 1 "key 'x': expected LAYER-HEAD" kv-budget headkv -b 48 --importance key "$score" -o out/x
	no_file out
}

@test "misuse and missing scores" {
	fails 2 'neither -b nor -r' kv-budget fastgen -b 5 "$score"
	fails 2 'neither -b nor -r' kv-budget duo --gates x -r 0.5 "$score"
	fails 2 'give one of them' kv-budget duo --gates x --threshold 1 --sparsity 0.5 "$score"
	fails 2 'token ids' kv-budget fastgen --special a "$score"
	fails 2 'from 0 to 1' kv-budget champion -b 5 --rho 2 "$score"
	fails 2 'exact\|kvcf' kv-budget pyramid -b 5 --variant mine "$score"
	fails 1 'kv-score' kv-budget champion -b 5 "$cache" -o out/x
	fails 1 'preference.*kv-score cake' kv-budget cake -b 48 "$score" -o out/x
	fails 1 'sums to 1.*kv-score nacl' kv-budget fastgen "$score" -o out/x
	no_file out
}

@test "nacl: the same seed, the same set; another seed, another" {
	for s in 1 1 2; do
		kv-budget nacl -b 60 --seed $s "$score" | kv-evict "$cache" - | kv-show --no-header --tensor index >index.$s.new
		[ ! -e index.$s ] || cmp index.$s index.$s.new
		mv index.$s.new index.$s
	done
	run ! cmp -s index.1 index.2
}
