# SPDX-License-Identifier: MIT
# starts.sh - starting each program with nothing to do: the version, and a prompt of one token, of which there is
# nothing to score or to evict.

kv-prefill -p x -o "$work/one.kv"
kv-score snapkv -o "$work/one_score.kv" "$work/one.kv"
kv-budget uniform -b "$budget" -o "$work/one_budget.kv" "$work/one_score.kv"
kv-evict -o "$work/one_kept.kv" "$work/one_budget.kv"
{
	for p in "$KV_BUILD"/bin/kv-*; do
		p=${p##*/}
		echo "run ${p//-/_}_version $p --version"
	done
	cat <<-END
	run kv_score kv-score snapkv $work/one.kv -o /dev/null
	run kv_budget kv-budget uniform -b $budget $work/one_score.kv -o /dev/null
	run kv_evict kv-evict $work/one_budget.kv -o /dev/null
	run kv_show kv-show $work/one.kv
	run kv_prefill kv-prefill -p x -o /dev/null
	run kv_decode kv-decode -n 1 $work/one_kept.kv
	END
} >"$work/spec"
measured starts "$([ -n "$quick" ] && echo 3 || echo 41)" <"$work/spec"

printf 'STARTS: milliseconds with nothing to do, median (of %s)\n\n' "$([ -n "$quick" ] && echo 3 || echo 41)"
printf '%-12s %12s %18s\n' program --version 'a prompt of 1 token'
for p in "$KV_BUILD"/bin/kv-*; do
	p=${p##*/} name=${p//-/_}
	printf '%-12s %12s %18s\n' "$p" "$(scale=1000 figure %.2f starts "${name}_version" wall_s)" \
		"$(scale=1000 figure %.2f starts "$name" wall_s)"
done
