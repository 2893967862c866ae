#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# run.sh - the measurements of `make bench`: tables as text on standard output, and everything as TSV.
#
# Both are kept, as bench/results/$BENCH_NAME.txt and .tsv, with a description of the machine at the head.  In the TSV,
# `table` names the script in bench/tables that asked; the other columns are those of bench/measure.c.
#
#	BENCH_MODEL     model file or folder (else KV_MODEL, else the demo's, which is fetched)
#	BENCH_NAME      of the results (default local, or quick: git does not look at these)
#	BENCH_RESULTS   folder of the results (default bench/results)
#	BENCH_TABLES    which, of: stages pipelines allocation precision starts peers (default all; peers where there is
#	                a BENCH_PYTHON)
#	BENCH_SIZES     tokens of the documents (default "512 2048 8192")
#	BENCH_ROUNDS    of every interleaved run (default 5, from 2,000 tokens on 3, from 8,000 on 2; quick 2)
#	BENCH_QUICK=1   tries everything out on little: no figures to be quoted
#	BENCH_WORK      folder for documents and caches, kept (default: a temporary one)
#	BENCH_VERBOSE=1 tells the time of every single run on standard error
#	KV_THREADS      of all programs and peers (default: all processors)
#	KV_BUILD        build folder
# bench/tables/peers.sh has those for other programs.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
. bench/lib.sh

out=${BENCH_RESULTS:-bench/results}/${BENCH_NAME:-$([ -n "$quick" ] && echo quick || echo local)}
: >"$work/all.tsv"
{
	describe begin
	for table in ${BENCH_TABLES:-stages pipelines allocation precision starts}; do
		printf '\n' && . "bench/tables/$table.sh"
	done
	printf '\n' && describe end
} | tee "$work/all.txt"
{
	sed -n '/./!q; s/^/# /p' "$work/all.txt"
	printf 'table\tname\tprogram\tquantity\tmedian\tmin\tmax\trounds\n'
	cat "$work/all.tsv"
} >"$out.tsv"
cp "$work/all.txt" "$out.txt"
printf '\nkept as %s.txt and .tsv\n' "$out"
