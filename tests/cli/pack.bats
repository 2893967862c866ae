#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Compressed streams, streams in archives, kv-pack, and the example of a cached experiment.
load helpers

setup_file() {
	cd "$BATS_FILE_TMPDIR"
	export KV_MODEL; KV_MODEL=$(tiny_model)
	kv-prefill -p "a prompt of some words, and then some more of them" -o cache.kv
	kv-score snapkv -w 4 -o scored.kv cache.kv
	kv-budget uniform -b 6 -o budget.kv scored.kv
	kv-evict -o kept.kv budget.kv
	kv-decode -n 3 kept.kv >text
	printf 'only one note\n' >notes.txt
}

setup() {
	export KV_MODEL; KV_MODEL=$(tiny_model)
	cd "$BATS_FILE_TMPDIR"
	out=$BATS_TEST_TMPDIR
}

# packers - the compressors of this machine, each as "suffix command"
packers() {
	for p in "zst zstd" "gz gzip" "xz xz"; do
		if command -v "${p#* }" >/dev/null; then printf '%s\n' "$p"; fi
	done
}

@test "every program reads compressed streams like plain ones, from files and pipes" {
	while read -r suffix packer; do
		for stage in cache scored budget kept; do "$packer" -qc $stage.kv >"$out/$stage.kv.$suffix"; done
		kv-score snapkv -w 4 "$out/cache.kv.$suffix" | cmp - scored.kv
		kv-score snapkv -w 4 <"$out/cache.kv.$suffix" | cmp - scored.kv
		kv-budget uniform -b 6 "$out/scored.kv.$suffix" | cmp - budget.kv
		kv-evict <(cat "$out/budget.kv.$suffix") | cmp - kept.kv
		kv-decode -n 3 "$out/kept.kv.$suffix" | cmp - text
		"$packer" -qc kept.kv | kv-decode -n 3 | cmp - text
		kv-show --tensor v "$out/kept.kv.$suffix" | cmp - <(kv-show --tensor v kept.kv)
		mv "$out/kept.kv.$suffix" "$out/any.name"
		kv-show --json <"$out/any.name" | cmp - <(kv-show --json <kept.kv)
	done < <(packers)
}

@test "-o compresses by suffix, and other tools read it" {
	for suffix in zst gz xz; do
		kv-score snapkv -w 4 -o "$out/scored.kv.$suffix" cache.kv
		[ "$(stat -c %s "$out/scored.kv.$suffix")" -lt "$(stat -c %s scored.kv)" ]
		kv-budget uniform -b 6 "$out/scored.kv.$suffix" | cmp - budget.kv
	done
	kv-score snapkv -w 4 -o "$out/scored.kv" cache.kv
	cmp "$out/scored.kv" scored.kv
	while read -r suffix packer; do
		"$packer" -t "$out/scored.kv.$suffix"
		"$packer" -dc "$out/scored.kv.$suffix" | cmp - scored.kv
	done < <(packers)
	ln -s /dev/full "$out/full.kv.zst"
	fails 1 'full.kv.zst: .*No space left' kv-score snapkv -w 4 -o "$out/full.kv.zst" cache.kv
}

@test "a compressed stream that is cut or damaged is refused, and leaves no file" {
	mkdir "$out/empty"
	for suffix in zst gz xz; do
		kv-score snapkv -w 4 -o "$out/s.kv.$suffix" cache.kv
		size=$(stat -c %s "$out/s.kv.$suffix")
		for part in 1 3 7 9; do
			head -c $((size * part / 10)) "$out/s.kv.$suffix" >"$out/cut"
			fails 1 'cut: .*cut short' kv-budget uniform -b 6 -o "$out/empty/x" "$out/cut"
			fails 1 '<stdin>: .*cut short' bash -c "kv-budget uniform -b 6 -o $out/empty/x.zst <$out/cut"
		done
		head -c $((size / 2)) "$out/s.kv.$suffix" >"$out/flipped"
		printf '\252\125\252' >>"$out/flipped"
		tail -c +$((size / 2 + 4)) "$out/s.kv.$suffix" >>"$out/flipped"
		fails 1 'flipped' kv-budget uniform -b 6 -o "$out/empty/x" "$out/flipped"
	done
	no_file "$out/empty"
}

@test "a member of an archive is a stream wherever one is read" {
	mkdir -p run1
	cp scored.kv run1/score.kv
	tar cf "$out/a.tar" run1/score.kv cache.kv
	gzip -c "$out/a.tar" >"$out/a.tar.gz"
	for a in a.tar a.tar.gz; do
		kv-budget uniform -b 6 "$out/$a:run1/score.kv" | cmp - budget.kv
		kv-budget uniform -b 6 --only score,budget -o "$out/b.kv" "$out/$a:run1/score.kv"
		kv-evict --drop q "$out/$a:cache.kv" "$out/b.kv" | kv-decode -n 3 | cmp - text
		fails 1 'a.tar.*:run2/x.kv: no such member; there are run1/score.kv, cache.kv' kv-show "$out/$a:run2/x.kv"
	done
	fails 1 'tar archive; name a stream in it' kv-show "$out/a.tar.gz"
	fails 1 'nosuch.tar:x: No such file' kv-show nosuch.tar:x
	fails 1 'not a tar archive' kv-show cache.kv:x
	cp budget.kv "$out/a.tar:run1"
	kv-evict "$out/a.tar:run1" | cmp - kept.kv
}

@test "create, list, verify, extract" {
	mkdir -p run1
	cp scored.kv run1/score.kv
	kv-score snapkv -w 4 --only score -o run1/small.kv.zst cache.kv
	kv-pack create -o "$out/e.tar.zst" cache.kv ./run1/score.kv run1/small.kv.zst notes.txt
	run --separate-stderr kv-pack list "$out/e.tar.zst"
	[ "${#lines[@]}" -eq 4 ]
	[[ ${lines[0]} =~ ^stream\ +[0-9]+\ +1\ +cache.kv$ ]]
	[[ ${lines[1]} =~ ^stream\ +[0-9]+\ +1\ +run1/score.kv$ ]]
	[[ ${lines[2]} =~ ^stream\ .*run1/small.kv.zst$ ]]
	[[ ${lines[3]} =~ ^other\ +14\ +-\ +notes.txt$ ]]
	run kv-pack list --json "$out/e.tar.zst"
	[[ $output == *'"name":"run1/small.kv.zst"'*'"program":"kv-score"'*'"complete":true'* ]]
	[[ $output == *"$(kv-show --json cache.kv | grep -o '"fingerprint":"[0-9a-f]*"')"* ]]
	kv-pack verify "$out/e.tar.zst"
	kv-pack extract -C "$out/x" "$out/e.tar.zst"
	cmp "$out/x/run1/score.kv" scored.kv
	cmp "$out/x/notes.txt" notes.txt
	[ ! -e "$out/x/manifest.json" ]
	kv-pack extract -C "$out/y" - run1/score.kv <"$out/e.tar.zst"
	[ "$(cd "$out/y" && find . -type f)" = ./run1/score.kv ]
	kv-budget uniform -b 6 "$out/e.tar.zst:run1/score.kv" | cmp - budget.kv
	fails 1 'x.kv: no such member' kv-pack extract -C "$out/y" "$out/e.tar.zst" x.kv
	fails 1 'notes.txt: exists; --force' kv-pack extract -C "$out/x" "$out/e.tar.zst" notes.txt
	echo other >"$out/x/notes.txt"
	kv-pack extract --force -C "$out/x" "$out/e.tar.zst" notes.txt
	cmp "$out/x/notes.txt" notes.txt
}

@test "same files, same archive; GNU tar reads it" {
	kv-pack create -o "$out/a.tar.zst" cache.kv notes.txt
	touch -d '2001-01-01' notes.txt
	kv-pack create -o "$out/b.tar.zst" cache.kv notes.txt
	cmp "$out/a.tar.zst" "$out/b.tar.zst"
	kv-pack create --mtime 1000000000 -o "$out/c.tar" cache.kv notes.txt
	[[ $(TZ=UTC tar tvf "$out/c.tar") == *'0/0'*'2001-09-09 01:46 cache.kv'* ]]
	[ "$(tar tf "$out/c.tar" | tr '\n' ' ')" = 'manifest.json cache.kv notes.txt ' ]
	tar xOf "$out/c.tar" cache.kv | cmp - cache.kv
	kv-pack create -o - cache.kv notes.txt | kv-pack verify -
	if command -v zstd >/dev/null; then zstd -dc "$out/a.tar.zst" | tar xO notes.txt | cmp - notes.txt; fi
}

@test "create refuses what would not come back" {
	cd "$out"
	cp "$BATS_FILE_TMPDIR/cache.kv" .
	head -c 2000 cache.kv >cut.kv
	mkdir made
	fails 1 'cut.kv: .*cut short' kv-pack create -o made/e.tar.zst cache.kv cut.kv
	fails 1 'cache.kv: is an absolute path' kv-pack create -o made/e.tar.zst "$out/cache.kv"
	fails 1 "\.\./x: leads out of its folder" kv-pack create -o made/e.tar.zst ../x
	fails 1 'cache.kv: named twice' kv-pack create -o made/e.tar.zst cache.kv ./cache.kv
	fails 1 'made: is a directory' kv-pack create -o made/e.tar.zst made
	fails 1 'nosuch: No such file' kv-pack create -o made/e.tar.zst nosuch
	fails 1 'manifest.json: is the name of' kv-pack create -o made/e.tar.zst manifest.json
	echo text >broken.kv
	fails 1 'broken.kv: not a kvtools stream' kv-pack create -o made/e.tar.zst broken.kv
	fails 1 'No space left' kv-pack create -o /dev/full cache.kv
	no_file made
}

@test "verify finds a flipped byte and names the member" {
	cp cache.kv "$out/a.kv"
	cp notes.txt "$out/n.txt"
	cd "$out"
	kv-pack create -o e.tar a.kv n.txt
	for name in a.kv n.txt; do
		case $name in
		a.kv) at=$(grep -obUa tokens e.tar | head -n 1 | cut -d : -f 1) ;;
		n.txt) at=$(grep -obUa 'only one note' e.tar | tail -n 1 | cut -d : -f 1) ;;
		esac
		cp e.tar bad.tar
		printf X | dd of=bad.tar bs=1 seek="$at" conv=notrunc status=none
		fails 1 "bad.tar: $name" kv-pack verify bad.tar
		fails 1 "bad.tar: $name" kv-pack extract -C "x-$name" bad.tar
		[ ! -e "x-$name/$name" ]
	done
	kv-pack create -o e.tar.zst a.kv n.txt
	head -c -4 e.tar.zst >cut.tar.zst # the checksum of zstd alone
	fails 1 'cut.tar.zst: .*cut short' kv-pack verify cut.tar.zst
	head -c 6000 e.tar >cut.tar
	fails 1 'cut.tar: ' kv-pack verify cut.tar
	tar cf other.tar a.kv
	fails 1 'other.tar: no manifest.json' kv-pack verify other.tar
	tar xf e.tar manifest.json
	tar cf missing.tar manifest.json a.kv
	fails 1 'missing.tar: n.txt: missing' kv-pack verify missing.tar
	cp n.txt more.txt
	tar cf more.tar manifest.json a.kv n.txt more.txt
	fails 1 'more.tar: more.txt: refused, the manifest' kv-pack extract -C y more.tar
}

@test "hostile archives are refused by the member's name, and nothing gets out" {
	cd "$out"
	while read -r kind member why; do
		make_archive "$kind" "$kind.tar"
		mkdir -p "$kind/in"
		fails 1 "$kind.tar: $member: refused, .*$why" kv-pack extract -q -C "$kind/in" "$kind.tar"
		fails 1 "$member: refused" kv-pack extract -q --force -C "$kind/in" - <"$kind.tar"
		[ "$(cd "$kind" && find . -mindepth 1 | sort | tr '\n' ' ')" = './in ./in/good ' ]
		[ ! -e /tmp/kv-evil ]
	done <<-'END'
	dotdot \.\./evil leads out
	absolute /tmp/kv-evil absolute path
	symlink evil symbolic link
	through link symbolic link
	hardlink evil hard link
	device evil device
	fifo evil fifo
	holes evil file with holes
	zeros evil expands more than
	twice good there twice
	END
}

@test "a link that is there already is not followed" {
	cd "$out"
	make_archive plain plain.tar
	mkdir in outside
	ln -s ../outside in/sub
	fails 1 'sub/other: .*in/sub: is there and is not a folder' kv-pack extract -q -C in plain.tar
	rm in/good in/sub
	ln -s ../outside/good in/good
	fails 1 'good: is there and is not a file' kv-pack extract -q --force -C in plain.tar
	no_file outside
	rm in/good
	run --separate-stderr kv-pack extract -C in plain.tar
	[ "$status" -eq 0 ]
	[[ $stderr == *'warning: no manifest.json'* ]]
	[ "$(cat in/good in/sub/other)" = goodother ]
}

@test "misuse" {
	fails 2 'expected a COMMAND' kv-pack
	fails 2 "unknown COMMAND 'pack'" kv-pack pack
	fails 2 'give -o ARCHIVE' kv-pack create cache.kv
	fails 2 'name the files' kv-pack create -o "$out/x"
	fails 2 'list: which archive' kv-pack list
	fails 2 "verify: unexpected 'b'" kv-pack verify a b
	fails 1 'nosuch.tar: No such file' kv-pack list nosuch.tar
	fails 1 'cache.kv: not a tar archive' kv-pack list cache.kv
	fails 1 'directory' kv-pack list .
}

@test "the example: twenty budgets from one prefill, and only what changed is made" {
	example=$BATS_TEST_DIRNAME/../../examples/caching
	head -c 300 "$example/../report.txt" >"$out/prompt.txt"
	run make -C "$example" check MODEL="$KV_MODEL" PROMPT="$out/prompt.txt" OUT="$out/made" TOKENS=3
	[ "$status" -eq 0 ] || { echo "$output"; return 1; }
	[ "$(wc -l <"$out/made/results.tsv")" -eq 20 ]
	[ "$(grep -c '^kv-prefill' <<<"$output")" -eq 2 ] # the cache, and the whole pipeline that it is compared with
	run make -C "$example" MODEL="$KV_MODEL" PROMPT="$out/prompt.txt" OUT="$out/made" TOKENS=3 METHOD=tova
	[ "$(grep -c '^kv-prefill' <<<"$output")" -eq 0 ]
	[ "$(grep -c '^kv-budget' <<<"$output")" -eq 20 ]
}
