#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# registers.sh [FILE.cu ...] - what every CUDA kernel takes of a multiprocessor, as `nvcc -Xptxas -v` tells: registers,
# static shared memory, stack, spills.  Without files: all of kernels/cuda, and the table goes to
# bench/results/cuda-registers.txt as well.  Needs nvcc, no card.  What else nvcc says goes to stderr, and fails.
#
#	NVCC         the compiler
#	CUDA_ARCHS   (default "80 90")
#	JOBS         compilers at a time (default: as many as processors)
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
archs=${CUDA_ARCHS:-80 90}
gencode=
for arch in $archs; do gencode+=" -gencode arch=compute_$arch,code=sm_$arch"; done

work=$(mktemp -d "${TMPDIR:-/tmp}/registers.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One line per kernel and architecture: file, kernel, architecture, registers, shared memory, stack, spilled bytes.
of() {
	"$nvcc" -O3 -std=c++17 -I. $gencode -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra -c -o "$work/${1##*/}.o" "$1" 2>&1 |
	c++filt | awk -v file="${1##*/}" '
		/Compiling entry function/ {
			split($0, part, "\047"); kernel = part[2]; arch = part[4]
			sub(/^void /, "", kernel)
			depth = 0; short = ""
			for (i = 1; i <= length(kernel); i++) { # the parameters go, template arguments stay
				c = substr(kernel, i, 1)
				depth += c == "<" ? 1 : c == ">" ? -1 : 0
				if (c == "(" && depth == 0) break
				short = short c
			}
			gsub(/\((unsigned )?(int|bool|long)\)|\(anonymous namespace\)::/, "", short)
		}
		/bytes stack frame/ { if (short != "") { stack = $1; spill = $5 + $9 } }
		/Used [0-9]+ registers/ {
			shared = 0
			if (match($0, /[0-9]+ bytes smem/)) { split(substr($0, RSTART), n, " "); shared = n[1] }
			match($0, /Used [0-9]+/)
			printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", file, short, arch, substr($0, RSTART + 5, RLENGTH - 5), shared,
				stack, spill
			short = ""
		}
		!/^ptxas info|bytes stack frame|Function properties for/ { print >"/dev/stderr"; said = 1 }
		END { exit said }'
}

table() {
	printf 'What every kernel takes: nvcc %s -O3 -Xptxas -v\n' "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
	printf 'Dynamic shared memory comes on top; spill: bytes stored and loaded.\n\n'
	printf '%-20s %-60s %-6s %9s %7s %6s %6s\n' file kernel arch registers shared stack spill
	sort "$work/rows" | while IFS=$'\t' read -r file kernel arch registers shared stack spill; do
		printf '%-20s %-60s %-6s %9s %7s %6s %6s\n' "$file" "$kernel" "$arch" "$registers" "$shared" "$stack" "$spill"
	done
	awk -F '\t' '{ n++; spilled += $7 > 0 } END { printf "\n%d rows, %d of them with spills\n", n, spilled }' "$work/rows"
}

files=("$@")
[ $# -gt 0 ] || files=(kernels/cuda/*.cu)
export nvcc gencode work
export -f of
printf '%s\0' "${files[@]}" | xargs -0 -P "${JOBS:-$(nproc)}" -I '{}' bash -c 'set -o pipefail; of "$1" >"$work/${1##*/}.rows"' of '{}'
cat "$work"/*.rows >"$work/rows"
if [ $# -gt 0 ]; then table; else table | tee bench/results/cuda-registers.txt; fi
