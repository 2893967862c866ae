# SPDX-License-Identifier: MIT
# tasks.awk - what is asked about a passage; the words are in phrases.tsv.  make_task() sets `head`, `tail` and, for
# chat, `chat`; the prompt is head passage tail.  A raw prompt ends where the answer goes on; a chat has its instruction
# before or behind the text.

function any(list) { return PHRASE[list, pick(N_PHRASES[list])] }

# An instruction for a chat, before or behind; or a cue behind a raw text.
function ask(instruction, cue) {
	chat = rnd() < 0.55
	if (!chat)
		tail = "\n\n" cue
	else if (rnd() < 0.5)
		head = instruction "\n\n"
	else
		tail = "\n\n" instruction
}

# The text itself, cut within its last line, is the prompt.
function task_continue(   n, word, i) {
	chat = rnd() < 0.45
	if (chat) {
		head = any("continue") "\n\n"
		return
	}
	n = split(line_of[n_lines], word, " ")
	line_of[n_lines] = ""
	for (i = 1; i <= int(n * rnd()); i++)
		line_of[n_lines] = line_of[n_lines] (i > 1 ? " " : "") word[i]
	if (line_of[n_lines] == "")
		n_lines--
}

function task_summarise() {
	ask(any("summarise"), any("summary cue"))
}

# The word that stands out: often in the passage, seldom elsewhere.
function topic(   n, word, count, w, best, top, k) {
	n = split(text_of_lines(), word, /[^A-Za-z_]+/)
	for (k = 1; k <= n; k++)
		if (length(word[k]) >= 5)
			count[word[k]]++
	for (k = 1; k <= 6; k++) {
		best = ""
		for (w in count)
			if (count[w] >= 2 && (best == "" || weigh(w, count[w]) > weigh(best, count[best]) ||
			    (weigh(w, count[w]) == weigh(best, count[best]) && w < best)))
				best = w
		if (best == "")
			break
		top[k] = best
		delete count[best]
	}
	return k > 1 ? top[pick(k - 1)] : "the author"
}
function weigh(w, n) { return n * n / (1 + frequency[w]) }

function task_question(   x, q) {
	x = topic()
	q = any("question")
	gsub(/X/, x, q)
	ask(q, "Question: " q "\nAnswer:")
}

function task_list() {
	ask(any("list"), any("list cue"))
}

# ---- needles: sentences that have nothing to do with the text, one of which is asked for

function value(   s, k) {
	if ((k = pick(4)) == 1)
		return any("adjective") " " any("noun")
	if (k == 2) {
		for (k = 1; k <= 8; k++)
			s = s substr("0123456789abcdef", pick(16), 1)
		return s
	}
	return 10000 + int(rnd() * (rnd() < 0.5 ? 89999 : 8999999))
}

function sentence(what, of, is,   s) {
	s = any("needle")
	gsub(/WHAT/, what, s)
	gsub(/WHOSE/, of, s)
	gsub(/VALUE/, is, s)
	return s
}

function insert(s, comment,   at) {
	at = pick(n_lines)
	if (comment != "")
		line_of[at] = line_of[at] "\n" comment " " s
	else if (line_of[at] == "")
		line_of[at] = "\n" s "\n"
	else
		line_of[at] = line_of[at] " " s
}

function task_needle(   n, k, what, of, asked, q, cue) {
	n = pick(4)
	asked = pick(n)
	for (k = 1; k <= n; k++) {
		if (k == 1 || rnd() < 0.5)
			what = any("property")
		of = any("adjective") " " any("noun")
		if (k == asked)
			q = "the " what " of the " of
		insert(sentence(what, of, value()), kind == "code" ? "#" : "")
	}
	cue = any("needle cue")
	gsub(/X/, q, cue)
	ask("What is " q "?" (rnd() < 0.5 ? " " any("hint") : ""), cue)
}

# ---- code

function task_code() {
	chat = rnd() < 0.4
	if (chat) {
		head = any("code") "\n\n```\n"
		tail = "\n"
	}
}

function task_explain() {
	ask(any("explain"), any("explain cue"))
	if (chat) {
		head = head "```\n"
		tail = "\n```" tail
	}
}

BEGIN {
	while ((getline row < phrases) > 0)
		if (split(row, f, "\t") == 2) {
			gsub(/\\n/, "\n", f[2])
			PHRASE[f[1], ++N_PHRASES[f[1]]] = f[2]
		}
	TASKS["prose"] = "continue continue continue continue summarise summarise summarise question question question " \
		"question question needle needle needle list list"
	TASKS["code"] = "code code code code code code explain explain question question needle needle"
}

function make_task(   n, all, name) {
	n = split(TASKS[kind == "code" ? "code" : "prose"], all, " ")
	name = all[pick(n)]
	head = tail = ""
	chat = 0
	if (name == "continue") task_continue()
	else if (name == "summarise") task_summarise()
	else if (name == "question") task_question()
	else if (name == "needle") task_needle()
	else if (name == "list") task_list()
	else if (name == "code") task_code()
	else task_explain()
	return name
}
