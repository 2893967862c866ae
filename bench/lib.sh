# SPDX-License-Identifier: MIT
# lib.sh - what the tables share: the model, documents, measuring, and looking at what was measured.

KV_BUILD=${KV_BUILD:-$PWD/build}
PATH=$KV_BUILD/bin:$KV_BUILD/bench:$PATH
KV_MODEL=$(realpath "$(KV_MODEL=${BENCH_MODEL:-${KV_MODEL:-}} tools/fetch-model)")
export KV_MODEL
KV_THREADS=${KV_THREADS:-$(nproc)}
export KV_THREADS
unset KV_SHARE
quick=${BENCH_QUICK:-}
sizes=${BENCH_SIZES:-$([ -n "$quick" ] && echo 64 256 || echo 512 2048 8192)}
budget=$([ -n "$quick" ] && echo 48 || echo 128)
answer=$([ -n "$quick" ] && echo 16 || echo 128) # tokens

work=${BENCH_WORK:-}
if [ -z "$work" ]; then
	work=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
	trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"

# rounds TOKENS
rounds() {
	if [ -n "${BENCH_ROUNDS:-}" ]; then echo "$BENCH_ROUNDS"
	elif [ -n "$quick" ]; then echo 2
	elif [ "$1" -ge 8000 ]; then echo 2
	elif [ "$1" -ge 2000 ]; then echo 3
	else echo 5; fi
}

# has PROGRAM OPTION - does its help list the option?
has() {
	[ "$("$1" --help | grep -c -e "$2\b")" -gt 0 ]
}

# made FILE COMMAND...: the standard output of the command as FILE, unless that is there; prints FILE
made() {
	local file=$work/$1; shift
	[ -e "$file" ] || { "$@" >"$file.part" && mv "$file.part" "$file"; }
	printf '%s\n' "$file"
}

# document TOKENS - the name of a text of exactly that length
document() {
	made "document.$1" command document -n "$1" examples/report.txt
}

# cache TOKENS - of that document
cache() {
	made "cache.$1" kv-prefill -f "$(document "$1")"
}

# measured TABLE ROUNDS <FILE of bench/measure.c - adds rows to the table
measured() {
	measure ${BENCH_VERBOSE:+-v} -n "$2" >"$work/rows"
	sed -e 1d -e "s/^/$1\t/" "$work/rows" >>"$work/all.tsv"
}

# row TABLE NAME QUANTITY MEDIAN MIN MAX ROUNDS - one that something else has measured
row() {
	printf '%s\t%s\t-\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/all.tsv"
}

# figure FORMAT TABLE NAME QUANTITY [PROGRAM] - the median, multiplied by $scale; - if it was not measured
figure() {
	awk -F '\t' -v f="$1" -v t="$2" -v n="$3" -v q="$4" -v p="${5:--}" -v scale="${scale:-1}" '
		$1 == t && $2 == n && $3 == p && $4 == q { s = sprintf(f, scale * $5) } END { print s == "" ? "-" : s }' \
		"$work/all.tsv"
}

# ratio FORMAT TABLE NAME - of a value: median (min to max)
ratio() {
	awk -F '\t' -v f="$1" -v t="$2" -v n="$3" '
		$1 == t && $2 == n && $4 == "value" { s = sprintf(f " (" f " to " f ")", $5, $6, $7) }
		END { print s == "" ? "-" : s }' "$work/all.tsv"
}

# shape KEY - a number of the model's description
shape() {
	[ -e "$work/model.json" ] || kv-show --json --no-stats "$KV_MODEL" | head -n 1 >"$work/model.json"
	grep -o "\"$1\":[0-9]*" "$work/model.json" | head -n 1 | cut -d: -f2
}

# flops TOKENS - floating-point operations of a prefill: 2 for every weight of a matrix and token; 4 Hq D for every pair
# of a token and one that it sees; in the last layer q, k and v of all tokens, the rest for the last one; logits of the
# last one.  Norms, rotations, softmax and activations are not counted.
flops() {
	awk -v T="$1" -v L="$(shape layers)" -v H="$(shape heads)" -v K="$(shape kv_heads)" -v D="$(shape head_dim)" \
		-v d="$(shape embedding)" -v ff="$(shape feed_forward)" -v V="$(shape vocabulary)" 'BEGIN {
		qkv = 2 * d * (H + 2 * K) * D; rest = 2 * d * H * D + 6 * d * ff; pair = 4 * H * D
		whole = T * (qkv + rest) + pair * T * (T + 1) / 2; last = T * qkv + rest + pair * T
		printf "%.0f\n", (L - 1) * whole + last + 2 * d * V }'
}

# roof_of NAME - of bench/roof.c in GFLOP/s; 0 where the machine has none
roof_of() {
	[ -e "$work/roof" ] || roof "$KV_THREADS" >"$work/roof"
	awk -v n="$1" '$1 == n { print $2 + 0 }' "$work/roof"
}

precision_in_use() {
	kv-prefill -p x "$@" | kv-show --json --no-stats - | grep -o '"precision":"[^"]*"' | head -n 1 | cut -d'"' -f4
}

commit() {
	git describe --always --dirty 2>/dev/null || echo unknown
}

onednn() {
	dpkg-query -W -f '${Version}' libdnnl2 2>/dev/null || echo unknown
}

# describe begin|end - the machine and what runs on it
describe() {
	local model kb cpu family number memory sets
	if [ "$1" = end ]; then
		printf 'load average at the end: %s; took %d s\n' "$(cut -d' ' -f1-3 /proc/loadavg)" "$SECONDS"
		return
	fi
	model=$(basename "$KV_MODEL") kb=$(du -Lsk "$KV_MODEL" | cut -f1)
	cpu=$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)
	family=$(lscpu | sed -n 's/^CPU family: *//p') number=$(lscpu | sed -n 's/^Model: *//p')
	memory=$(awk '/MemTotal/ { printf "%.1f GB", $2 / 1e6 }' /proc/meminfo)
	sets=$(grep -o -w -E 'avx2|fma|f16c|avx512[a-z_0-9]*|avx_vnni|amx_[a-z0-9]*' /proc/cpuinfo | sort -u | tr '\n' ' ')
	cat <<-END
	kvtools $(kv-prefill --version | awk '{ print $NF }'), commit $(commit), $(date -u +%Y-%m-%d)
	model: $model, $kb kB; threads: $KV_THREADS; precision: $(precision_in_use)
	machine: $cpu (family $family, model $number), $(nproc) processors, $memory
	instruction sets: $sets
	system: $(uname -sr); compiler: $(${CC:-cc} --version | head -n 1); oneDNN: $(onednn)
	load average at the beginning: $(cut -d' ' -f1-3 /proc/loadavg)${quick:+
	QUICK: these are no figures, only a trial of the scripts}
	END
}
