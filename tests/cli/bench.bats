# SPDX-License-Identifier: MIT
# The tools of bench/: what measure makes of runs, and that its subjects do the work they are measured for.
load helpers
PATH=$KV_BUILD/bench:$PATH

setup() {
	cd "$BATS_TEST_TMPDIR"
}

# value NAME QUANTITY [PROGRAM] - median, min, max of the table in $output
value() {
	awk -F '\t' -v n="$1" -v q="$2" -v p="${3:--}" '$1 == n && $2 == p && $3 == q { print $4, $5, $6 }' <<<"$output"
}

@test "measure: commands take turns, and figures are made round by round" {
	cat >next <<-'END'
	read -r x <$1; echo $1 $x >>order; echo $((x * 2)) >$1; echo "{\"x\": $x}"
	END
	echo 1 >a; echo 10 >b
	run measure -n 3 <<-'END'
	# a: 1 2 4, b: 10 20 40
	run first sh next a
	run second sh next b

	value sum first:x+second:x
	value mixed (second:x-first:x*2)/4-1.5
	value ratio second:x/first:x
	END
	[ "$status" -eq 0 ]
	[ "$(tr '\n' ' ' <order)" = "a 1 b 10 a 2 b 20 a 4 b 40 " ]
	[ "$(value sum value)" = "22 11 44" ]
	[ "$(value mixed value)" = "2.5 0.5 6.5" ]
	[ "$(value ratio value)" = "10 10 10" ]
}

@test "measure: the median of an even number of rounds is between the middle two" {
	echo 1 >a
	run measure -n 4 <<-'END'
	run r sh -c 'read -r x <a; echo $((x * 2)) >a; echo "{\"x\": $x}"'
	value x r:x
	END
	[ "$(value x value)" = "3 1 8" ]
}

@test "measure: memory and time of each program of a pipeline, bytes of its output" {
	run measure -n 1 <<-'END'
	run r head -c 60000000 /dev/zero | tail -c 60000000 | wc -c > out
	run s sleep 0.3
	value of_tail r:peak.tail
	value wc r:bytes
	END
	[ "$status" -eq 0 ]
	[ "$(cat out)" = 60000000 ]
	read -r tail _ <<<"$(value r peak_kb tail)"
	read -r head _ <<<"$(value r peak_kb head)"
	[ "$tail" -gt 58000 ] && [ "$head" -lt 30000 ]
	[ "$(value of_tail value)" = "$(value r peak_kb tail)" ]
	[ "$(value wc value)" = "9 9 9" ]
	awk '{ exit !($1 >= 0.3 && $1 < 3) }' <<<"$(value s wall_s)"
	awk '{ exit !($1 < 0.2) }' <<<"$(value s cpu_s)"
}

@test "measure: fails when a program of a run fails, and says which" {
	fails 1 'bad: false ended with status 1' measure -n 1 <<<"run bad head -c 1000000 /dev/zero | false | cat"
	fails 1 'bad: false ended with status 1' measure -n 1 <<<"run bad false | cat"
	fails 1 'no-such-program ended with status 127' measure -n 1 <<<"run bad no-such-program"
	fails 1 'bad: head was ended by signal 13' measure -n 1 <<<"run bad head -c 1000000 /dev/zero | true"
	fails 1 'signal 9' measure -n 1 <<<"run bad sh -c 'kill -9 \$\$'"
	fails 1 'nowhere/file: No such file' measure -n 1 <<<"run bad cat < nowhere/file"
	fails 1 'did not print' measure -n 1 <<<"run a true
	value v a:x"
	fails 1 'v: inf' measure -n 1 <<<"run a true
	value v 1/0"
}

@test "measure: a file that is wrong is refused before anything runs" {
	fails 2 "called 'b'" measure <<<"run a touch ran
	value v b"
	fails 2 'line 2: unexpected' measure <<<"run a touch ran
	value v 2 a"
	fails 2 'line 2: expected \)' measure <<<"run a touch ran
	value v (a"
	fails 2 'no name, or another' measure <<<"run a touch ran
	run a true"
	fails 2 'expected run or value' measure <<<"run a touch ran
	walk b true"
	fails 2 'a program is missing' measure <<<"run a touch ran
	run b true |"
	fails 2 'nothing to run' measure </dev/null
	fails 2 'usage' measure -n 0 </dev/null
	[ ! -e ran ]
}

@test "one process gives the answer of the five programs" {
	export KV_MODEL=$(tiny_model)
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "all the words of a long text"; done >text
	for m in uniform champion; do
		kv-prefill -f text | kv-score snapkv | kv-budget $m -b 60 | kv-evict | kv-decode -n 30 >five
		one_process $m -f text -b 60 -n 30 | cmp - five
	done
	[ "$(wc -c <five)" -gt 10 ]
	kv-prefill -f text | kv-decode -n 30 >full
	run ! cmp full five
}

@test "a document has exactly the tokens that were asked for" {
	export KV_MODEL=$(tiny_model)
	for n in 2 33 300; do
		document -n $n "$BATS_TEST_DIRNAME/../../examples/report.txt" >text
		kv-prefill -f text --queries none --drop k,v,logits -o s.kv
		kv-show --json --no-stats s.kv | grep -c "\"prompt_length\":$n[,}]"
	done
}
