# SPDX-License-Identifier: MIT
# precision.sh - does the fast arithmetic change results?  20 prompts in f32 and in each other precision: KL divergence
# of the last token's predictions, and what both keep with SnapKV.
#
#	BENCH_PROMPT_TOKENS    of each prompt (default 1,024)

length=${BENCH_PROMPT_TOKENS:-$([ -n "$quick" ] && echo 150 || echo 1024)}
most=$([ -n "$quick" ] && echo 3 || echo 20)

# Files of this repository and of any Debian system: prose, tables, C, roff, licences.
texts=()
for file in examples/report.txt METHODS.md lib/budget/adakv.c man/kv-score.1 formats/STREAM.md \
	/usr/share/common-licenses/{GPL-2,Apache-2.0,Artistic,CC0-1.0} CONTRIBUTING.md kernels/backend.h man/kvtools.7 \
	bin/kv-decode.c bench/results/kvpress-agreement.md formats/GGUF.md formats/pipe.h tests/cli/errors.bats \
	man/kv-budget.1 lib/text/bpe.c man/kvstream.5 /usr/share/common-licenses/{MPL-1.1,GFDL-1.3} README.md; do
	[ "${#texts[@]}" -lt "$most" ] || break
	[ -e "$file" ] && [ "$(wc -c <"$file")" -ge $((4 * length)) ] || continue
	texts+=("$file")
done
prompts=()
for i in "${!texts[@]}"; do
	prompts+=(-f "$(made "prompt.$i" command document -n "$length" "${texts[$i]}")")
done

# kept PRECISION - of all prompts, what stays and the logits
kept() {
	kv-prefill ${1:+--precision "$1"} "${prompts[@]}" | kv-score snapkv | kv-budget uniform -b "$budget" |
		kv-evict --only index,offset,budget,logits -o "$work/precision.$1.kv"
}

# logits STREAM SEQUENCE - one a line
logits() {
	kv-show --no-header -t logits -s "$2" "$1" | awk '{ print $NF }'
}

# divergence A B SEQUENCE - KL divergence in nats of B's last predictions from A's
divergence() {
	paste <(logits "$1" "$3") <(logits "$2" "$3") | awk '
		{ a[NR] = $1; b[NR] = $2; if (NR == 1 || $1 > ma) ma = $1; if (NR == 1 || $2 > mb) mb = $2 }
		END {
			for (i = 1; i <= NR; i++) { za += exp(a[i] - ma); zb += exp(b[i] - mb) }
			for (i = 1; i <= NR; i++) {
				la = a[i] - ma - log(za); kl += exp(la) * (la - (b[i] - mb - log(zb)))
			}
			printf "%.3e\n", kl
			exit NF != 2 }'
}

# spread - median, min, max of a column of numbers
spread() {
	sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2, x[1], x[NR] }'
}

printf 'PRECISION: %d prompts of %d tokens, each precision against f32; SnapKV keeps %s entries per head\n\n' \
	"${#texts[@]}" "$length" "$budget"
if has kv-prefill --precision; then
	kept f32
	printf '%-8s %-8s %-36s %s\n' asked 'in use' 'KL of last logits, nats' 'entries that both keep, percent'
	for p in bf16 i16; do
		if ! used=$(precision_in_use --precision $p 2>"$work/why"); then
			printf '%-8s %s\n' $p "$(head -n 1 "$work/why")"
			continue
		fi
		kept $p
		for i in "${!texts[@]}"; do
			divergence "$work/precision.f32.kv" "$work/precision.$p.kv" "$i"
		done >"$work/kl"
		kv-stat --quantity overlap --per sequence "$work/precision.f32.kv" "$work/precision.$p.kv" |
			awk -F '\t' '$1 == "overlap" { print 100 * $4 }' >"$work/overlap"
		[ "$(wc -l <"$work/overlap")" -eq "${#texts[@]}" ]
		read -r kl kl_min kl_max <<<"$(spread <"$work/kl")"
		read -r both both_min both_max <<<"$(spread <"$work/overlap")"
		row precision $p kl_nats "$kl" "$kl_min" "$kl_max" "${#texts[@]}"
		row precision $p overlap_percent "$both" "$both_min" "$both_max" "${#texts[@]}"
		printf '%-8s %-8s %-36s %s\n' $p "$used" \
			"$(printf '%.2e (%.1e to %.1e)' "$kl" "$kl_min" "$kl_max")" \
			"$(printf '%.2f (%.2f to %.2f)' "$both" "$both_min" "$both_max")"
		for i in "${!texts[@]}"; do
			row precision.prompts "$p.$(basename "${texts[$i]}")" kl_nats "$(sed -n $((i + 1))p "$work/kl")"{,,} 1
			row precision.prompts "$p.$(basename "${texts[$i]}")" overlap_percent \
				"$(sed -n $((i + 1))p "$work/overlap")"{,,} 1
		done
	done
	printf '\nmedian (min to max) over prompts; a precision that the machine lacks runs as another, see "in use"\n'
else
	printf '(no --precision here)\n'
fi
