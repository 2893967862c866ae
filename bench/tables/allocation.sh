# SPDX-License-Identifier: MIT
# allocation.sh - what champion's and adakv's decisions cost, without reading and writing (bench/alloc.c).

alloc -b "$budget" --rounds "$([ -n "$quick" ] && echo 11 || echo 201)" >"$work/alloc"
sed 1d "$work/alloc" | while IFS=$'\t' read -r method heads tokens median min max n; do
	row allocation "$method.$heads.$tokens" us "$median" "$min" "$max" "$n"
done

printf 'ALLOCATION: microseconds per layer, median (min to max); uniform is what all have in common\n\n'
printf '%6s %7s  %-26s %-26s %-28s %s\n' heads tokens uniform champion adakv 'champion / adakv'
for size in $(sed 1d "$work/alloc" | awk '!seen[$2, $3]++ { print $2 ":" $3 }'); do
	awk -F '\t' -v h="${size%:*}" -v t="${size#*:}" '
		$2 == h && $3 == t { text[$1] = sprintf("%.1f (%.1f to %.1f)", $4, $5, $6); median[$1] = $4 }
		END { printf "%6d %7d  %-26s %-26s %-28s %.3f\n", h, t, text["uniform"], text["champion"], text["adakv"],
			median["champion"] / median["adakv"] }' "$work/alloc"
done
