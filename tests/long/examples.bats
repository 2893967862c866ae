# SPDX-License-Identifier: MIT
# examples/[0-9]*.sh on the demo's model and document; each ends in a check of its own.
load ../cli/helpers

setup() {
	[ -n "$KV_LONG_MODEL" ] || skip "the demo's model cannot be fetched"
	export KV_MODEL=$KV_LONG_MODEL
}

@test "every example answers the demo's question, and its check holds" {
	local script

	for script in "$BATS_TEST_DIRNAME"/../../examples/[0-9]*.sh; do
		"$script" >"$BATS_TEST_TMPDIR/out" || { echo "$script:"; cat "$BATS_TEST_TMPDIR/out"; return 1; }
		echo "# $(basename "$script" .sh): $(head -n 1 "$BATS_TEST_TMPDIR/out")" >&3
	done
}
