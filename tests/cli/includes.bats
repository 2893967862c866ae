#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tests/check-includes and its like find what they are there to find, and our own tree has none of it.

setup() {
	check="$BATS_TEST_DIRNAME/../check-includes"
	T=$BATS_TEST_TMPDIR
	mkdir -p "$T"/bin "$T"/formats "$T"/lib/score "$T"/kernels/cpu "$T"/tests
	: >"$T/kernels/backend.h"
}

@test "our own tree is clean" {
	run "$check"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a file may include what is below it and the contract of its room" {
	printf '#include <stdio.h>\n#include "formats/a.h"\n#include "lib/score/score.h"\n' >"$T/bin/kv-a.c"
	printf '#include "lib/score/score.h"\n#include "kernels/backend.h"\n' >"$T/lib/score/knorm.c"
	printf '#include "lib/score/attention.h"\n' >"$T/lib/score/scores.c"
	printf '#include "kernels/%s.h"\n' backend lack cpu/cpu >"$T/kernels/cpu/op.c"
	run "$check" "$T"
	[ "$status" -eq 0 ]
}

# stray FILE LINE WHAT: a tree with just this line in FILE is refused, and the message names the file and says WHAT.
stray() {
	printf '%s\n' "$2" >"$T/$1"
	run "$check" "$T"
	rm "$T/$1"
	[ "$status" -ne 0 ]
	[[ "$output" == *"$1:1: "*"$3"* ]]
}

@test "what goes upwards or sideways is named" {
	stray lib/a.c '#include "formats/stream.h"' 'lib/ is below formats/'
	stray formats/a.c '#include "bin/common.h"' 'formats/ is below bin/'
	stray kernels/cpu/a.c '#include "lib/err.h"' 'a kernel knows backend.h'
	stray kernels/cpu/a.c '#include "kernels/cuda/b.h"' 'a kernel knows backend.h'
	stray kernels/cpu/a.c '#include "kernels/other.h"' 'a kernel knows backend.h'
	stray lib/a.c '#include <cuda_runtime.h>' 'only kernels/cuda'
	stray lib/a.c '#include "err.h"' 'from the root'
	stray tests/a.c '#include "lib/err.c"' 'no header'
	stray lib/a.c '#include "lib/score/score.h"' 'none of its rooms'
	: >"$T/lib/score/other.c"
	stray lib/score/a.c '#include "lib/score/other.h"' 'no other method'
}

@test "two files of one name are named" {
	echo 'int a;' >"$T/lib/score/a.c"
	echo 'int b;' >"$T/kernels/cpu/a.c"
	run "$check" "$T"
	[ "$status" -ne 0 ]
	[[ "$output" == *"same base name"* ]]
}

@test "a section that is cited is there" {
	methods=$BATS_TEST_DIRNAME/../check-methods
	run "$methods"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	printf '# Methods\n## 1. Rules\n### 1.4 Order\n### 1.10 More\n## 4. Selection\n' >"$T/METHODS.md"
	printf '/* %s 1.4. See %s 1.10, 4 and 1.4 */\n' METHODS METHODS >"$T/lib/a.c"
	run "$methods" "$T"
	[ "$status" -eq 0 ]
	printf '\n/* %s 1.4, 1.1 and 2 */\n' METHODS >"$T/lib/a.h"
	run "$methods" "$T"
	[ "$status" -ne 0 ]
	[[ $output == *"lib/a.h:2: METHODS.md has no section 1.1"* && $output == *"has no section 2"* ]]
	[[ $output != *"1.4"* ]]
}

@test "a line of more than 120 columns is named" {
	columns=$BATS_TEST_DIRNAME/../check-columns
	run "$columns"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	mkdir "$T/bench"
	printf '/* %112s */\n\t/* %104s */\n/* %111s\303\244 */\n' x x x >"$T/lib/a.c" # just 120, whatever the bytes
	printf 'f("%130s", "\\"%s");\n' x x >"$T/tests/a.c" # what is quoted does not count there
	run "$columns" "$T"
	[ "$status" -eq 0 ]
	printf '\n/* %115s */\n' x >"$T/lib/a.h"
	printf 'f(  \t%114s);\n' x >"$T/tests/a.c"
	run "$columns" "$T"
	[ "$status" -ne 0 ]
	[[ $output == *"lib/a.h:2: 121 columns"* && $output == *"tests/a.c:1: 124 columns"* ]]
}
