# SPDX-License-Identifier: MIT
# A real model of 260 thousand parameters against llama.cpp's text (tests/golden/stories260K.txt).
load ../cli/helpers

@test "200 greedy tokens behind 'Once upon a time' are llama.cpp's" {
	shared_file data/stories260K.gguf
	{ printf 'Once upon a time'; kv-prefill -m "$file" -p 'Once upon a time' | kv-decode -m "$file" -n 200; } >"$BATS_TEST_TMPDIR/text"
	diff "$BATS_TEST_DIRNAME/../golden/stories260K.txt" "$BATS_TEST_TMPDIR/text"
}
