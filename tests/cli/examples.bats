# SPDX-License-Identifier: MIT
# examples/[0-9]*.sh on a tiny model; each ends in a check of its own.
load helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	KV_MODEL=$(tiny_model)
	export KV_MODEL KV_CHAT= KV_TOKENS=6 KV_BUDGET=48
	printf 'The piles of the old pier are made of oak from the hills behind the town; the planks are of pine.\n' >report
}

@test "every example runs and its check holds" {
	local script n=0

	for script in "$BATS_TEST_DIRNAME"/../../examples/[0-9]*.sh; do
		"$script" report >out 2>err || { echo "$script:"; cat out err; return 1; }
		[ ! -s err ] || { echo "$script says:"; cat err; return 1; }
		n=$((n + 1))
	done
	[ "$n" -gt 5 ]
}

@test "a check that does not hold ends an example with status 1" {
	cat >example.sh <<-END
		. "$BATS_TEST_DIRNAME/../../examples/lib.sh"
		prefill --for tova
		kv-score tova "\$cache" | kv-budget uniform -b 20 | kv-evict -o "\$kept"
	END
	for check in 'keeps_in_all 20' 'keeps -1 -1' same_in_all_heads; do
		bash -c '. ./example.sh report; '"$check"' "$kept"'
	done
	for check in 'keeps_in_all 21' 'keeps 0 30' 'differ "$kept"'; do
		fails 1 'keep' bash -c '. ./example.sh report; '"$check"' "$kept"'
	done
}
