#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# pack.sh [FOLDER] - everything that bench/gpu.sh runs, built here for a machine with a card that lacks compilers,
# headers or libraries: programs for any x86-64 with AVX2, and shared libraries that they need beside what every such
# machine has (glibc and gcc's).  FOLDER (default build/card) is made anew, and there one runs
#
#	KV_BUILD=build/card bench/gpu.sh
#
# What nvcc makes comes from the usual build folder.  Needs nvcc, no card.
#
#	KV_BUILD      (build) that folder
#	GPU_SMOLLM2   a model file to take along, for the comparison of devices
#	JOBS          compilers at a time (default: as many as processors)
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=$(realpath -m "${KV_BUILD:-build}")
out=$(realpath -m "${1:-$build/card}")
portable=$build/portable
make=(make -j"${JOBS:-$(nproc)}")

# Libraries that every such machine has, in its own versions.
machine='^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda)\.so)'

programs=$(
	(cd bin && printf 'bin/%s\n' kv-*.c | sed 's|\.c$||')
	printf 'bench/%s\n' card_times card_peak lend_times random_model measure document
	echo tests/tools/make_module
	printf '%s\n' tests/device/*.c | sed 's|\.c$||'
)

"${make[@]}" B="$build" "$build/libkvcuda.so" "$build/tests/lanes"
"${make[@]}" B="$portable" CUDA=0 KERNEL_CFLAGS='-O3 -march=x86-64-v3' \
	LDFLAGS="-Wl,--as-needed -Wl,--disable-new-dtags '-Wl,-rpath,\$\$ORIGIN/../lib:\$\$ORIGIN/../../lib'" \
	$(sed "s|^|$portable/|" <<<"$programs")

rm -rf "$out"
mkdir -p "$out/lib"
for name in $programs; do install -D -m 755 -s "$portable/$name" "$out/$name"; done
install -D -m 755 -s "$build/tests/lanes" "$out/tests/lanes"
install -m 755 "$build/libkvcuda.so" "$out/libkvcuda.so"
strip --strip-debug "$out/libkvcuda.so"
model=${GPU_SMOLLM2:-${KV_SHARED:-../shared}/data/stories260K.gguf}
[ ! -e "$model" ] || install -D -m 644 "$model" "$out/models/${model##*/}"
git describe --always --dirty >"$out/packed"

# libraries_of FILE... - name and path of each that is not the machine's
libraries_of() {
	ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | sort -u | grep -v -E "$machine" || true
}
# What the CPU's products open when they are called.
onednn=$(PATH=$PATH:/sbin ldconfig -p | sed -n 's|.*libdnnl\.so\.2 .*=> ||p' | head -n 1)
[ -n "$onednn" ] || echo 'no libdnnl.so.2 here: nothing will be compared with the CPU in f32' >&2
{
	libraries_of $(find "$out" -type f -perm -u+x) $onednn
	[ -z "$onednn" ] || echo "libdnnl.so.2 $onednn"
} | while read -r name path; do
	[ -e "$path" ] || { echo "$name: not found here" >&2; exit 1; }
	install -m 755 -s "$path" "$out/lib/$name"
done

# As on a machine that has none of them.
stray=$(for file in $(find "$out" -type f -perm -u+x ! -path "$out/lib/*"); do
	env -i ldd "$file" | awk '$2 == "=>" { print $1, $3 }' | grep -v -E "$machine" | grep -v " $out/.*lib/" || true
done | sort -u)
[ -z "$stray" ] || { printf 'not found in %s:\n%s\n' "$out/lib" "$stray" >&2; exit 1; }
find "$out/lib" -size +8M -exec gzip {} + # gpu.sh unpacks it
du -sm "$out" | awk -v commit="$(cat "$out/packed")" '{ print $2 ": " $1 " MB, commit " commit }'
