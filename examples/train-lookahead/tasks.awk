# SPDX-License-Identifier: MIT
# tasks.awk - what is asked about a passage.  make_task() sets `head`, `tail` and, for chat, `chat`; the prompt is
# head passage tail.  A raw prompt ends where the answer goes on; a chat has its instruction before or behind the text.

function choices(list) { return split(list, choice, /\|/) }
function any(list) { return choice[pick(choices(list))] }

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
		head = any("Continue the following text.|Continue this text in the same style.|Write the next paragraph of this text.|Here is the beginning of a document. Write how it goes on.") "\n\n"
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
	ask(any("Summarize the text in three sentences.|Summarize this text.|What is this text about?|Write a short summary of the text.|Give a one-paragraph summary of this document.|Explain to a beginner what the text says.|What are the most important facts in this text?"),
		any("Summary:|In short,|TL;DR:|The main point of the text is that|To sum up,"))
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
	q = any("What does the text say about X?|Explain what X means in this text.|Why is X important, according to the text?|What is X?|Using only the text, tell me about X.|How is X used?|Where does the text mention X, and why?|What is said about X?")
	gsub(/X/, x, q)
	ask(q, "Question: " q "\nAnswer:")
}

function task_list() {
	ask(any("List the main points of the text.|List the names that occur in the text.|List the most important terms of the text, with a short explanation of each.|List five facts from the text.|Which steps does the text describe? List them.|Extract all numbers and dates with what they stand for.|Write a table of contents for this text."),
		any("Main points:\n1.|The important terms are:\n-|Names in the text:|Facts:\n1.|Key words:"))
}

# ---- needles: sentences that have nothing to do with the text, one of which is asked for

function value(   s, k) {
	if ((k = pick(4)) == 1)
		return any(ADJECTIVE) " " any(NOUN)
	if (k == 2) {
		for (k = 1; k <= 8; k++)
			s = s substr("0123456789abcdef", pick(16), 1)
		return s
	}
	return 10000 + int(rnd() * (rnd() < 0.5 ? 89999 : 8999999))
}

function sentence(what, of, is) {
	return any("The " what " of the " of " is " is ".|Remember that the " what " of the " of " is " is ".|Note: " is " is the " what " of the " of ".|One of the things to know: the " what " of the " of " is " is ".")
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

function task_needle(   n, k, what, of, asked, q) {
	n = pick(4)
	asked = pick(n)
	for (k = 1; k <= n; k++) {
		what = any(n > 1 && k > 1 && rnd() < 0.5 ? what : PROPERTY)
		of = any(ADJECTIVE) " " any(NOUN)
		if (k == asked)
			q = "the " what " of the " of
		insert(sentence(what, of, value()), kind == "code" ? "#" : "")
	}
	ask("What is " q "?" (rnd() < 0.5 ? " " any("Answer with the value only.|The text says it.|Look for it in the text.|Quote the sentence.") : ""),
		any("Question: What is " q "?\nAnswer:|Question: What is " q "?\nAnswer: It is|According to the text, " q " is"))
}

# ---- code

function task_code() {
	chat = rnd() < 0.4
	if (chat) {
		head = any("Complete this code.|Continue the following source file.|Write the next lines of this program.") "\n\n```\n"
		tail = "\n"
	}
}

function task_explain() {
	ask(any("Explain what this code does.|Describe the functions in this file.|Write a comment that explains this code.|What could go wrong in this code?|Which functions are defined here, and what are they for?"),
		any("# What the code above does:|/* Summary of the code above:|In words, this code"))
	if (chat) {
		head = head "```\n"
		tail = "\n```" tail
	}
}

BEGIN {
	ADJECTIVE = "amber|ancient|bitter|brave|bright|broken|calm|clever|copper|crimson|curious|distant|early|empty|faded|gentle|golden|green|hidden|hollow|iron|lonely|lucky|marble|narrow|northern|orange|pale|patient|purple|quiet|rapid|rusty|scarlet|silent|silver|sleepy|solid|southern|tidy|velvet|violet|wooden|young"
	NOUN = "anchor|archive|balcony|bridge|cabinet|candle|canyon|captain|castle|cellar|clock|comet|courier|desert|dolphin|engine|falcon|farmer|ferry|fiddle|forest|garden|glacier|hammer|harbour|heron|island|kettle|ladder|lantern|library|market|meadow|mirror|orchard|painter|parrot|pepper|pilot|planet|printer|river|rocket|saddle|sailor|station|statue|tavern|teacher|temple|tower|tunnel|valley|village|violin|wagon|walnut|window"
	PROPERTY = "access code|serial number|password|price|telephone extension|room number|secret name|identifier|magic number|weight|registration mark|call sign"
	TASKS["prose"] = "continue continue continue continue summarise summarise summarise question question question question question needle needle needle list list"
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
