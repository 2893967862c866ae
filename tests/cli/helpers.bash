# SPDX-License-Identifier: MIT
# What the tests of the programs share.  Programs are those of $KV_BUILD/bin, models are grown by
# tests/tools/make_model.
bats_require_minimum_version 1.5.0
set -o pipefail # so behind a pipe `grep -c`, which reads to the end: `grep -q` may leave its writer without a reader
PATH=$KV_BUILD/bin:$KV_BUILD/tests/tools:$PATH
unset KV_MODEL KV_THREADS KV_SHARE KV_CUDA_LIBRARY KV_CUBLAS_LIBRARY
export KV_DEVICE=cpu # whatever card there is

# tiny_model [make_model options] - the path of a small model that is made once per options and test file
tiny_model() {
	local path="$BATS_FILE_TMPDIR/tiny$(printf '%s' "$*" | tr -c 'a-z0-9' _).gguf"

	[ -e "$path" ] || make_model "$@" "$path" || return
	printf '%s\n' "$path"
}

# shared_file PATH - a file of the shared folder beside the repository; skips the test where there is none
shared_file() {
	local path="${KV_SHARED:-$BATS_TEST_DIRNAME/../../../shared}/$1"

	[ -e "$path" ] || skip "no shared/$1 here"
	file=$path
}

# fails STATUS PATTERN COMMAND... - ends with this status, and one line of standard error matches
fails() {
	local want=$1 pattern=$2; shift 2

	run --separate-stderr "$@"
	[ "$status" -eq "$want" ] || { echo "status $status, expected $want: $*"; echo "$stderr"; return 1; }
	grep -Eq -- "$pattern" <<<"$stderr" || { echo "no '$pattern' in:"; echo "$stderr"; return 1; }
}

# lacks [grep options] PATTERN - no line of standard input matches.  (A bare `! command` never fails a bats test.)
lacks() {
	if grep "$@" >&2; then return 1; fi
}

# tensor NAME LAYER STREAM [kv-show options] - the values of a tensor; a tensor that is not there is a failure
tensor() {
	local name=$1 layer=$2 stream=$3 values; shift 3

	[ "$layer" = - ] || set -- --layer "$layer" "$@"
	values=$(kv-show --tensor "$name" "$@" "$stream") && [ -n "$values" ] && printf '%s\n' "$values"
}

# no_file FOLDER - nothing in it, no temporary file either
no_file() {
	[ -z "$(ls -A "$1")" ] || { ls -A "$1"; return 1; }
}
