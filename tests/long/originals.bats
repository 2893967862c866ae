# SPDX-License-Identifier: MIT
load ../cli/helpers

@test "token ids equal those of the vendors' own tokenizers (Llama 3 and 4, Qwen, Mistral)" {
	run "$BATS_TEST_DIRNAME/../golden/check_originals.sh" "$KV_BUILD"
	echo "$output" | sed 's/^/# /' >&3
	[ "$status" -eq 0 ]
	case $output in *skip:*) skip "${output##*skip: }" ;; esac
}
