# SPDX-License-Identifier: MIT
# prompts.awk - from documents to prompts, with tasks.awk.
#
#   awk -f prompts.awk -f tasks.awk -v set=SET -v n=N -v lo=TOKENS -v hi=TOKENS -v seed=N -v table=sources.tsv \
#       -v phrases=phrases.tsv NAME.txt...
#
# NAME.txt has the documents of the source NAME: lines with their numbers of tokens and a tab before them (`tokens
# lines`), and a form feed before a document's name. set: train and heldout share out the documents of the training
# sources, every `share`-th by a hash of its name is held out; test and long those of the test sources, long has half
# of those with more than 9,000 tokens. In test and long no document serves twice. Lengths are spread evenly over the
# logarithms from lo to hi. Prints JSON Lines: id, task, source, document, chat, prompt. The same input gives the same
# prompts: random numbers are Park and Miller's, and nothing depends on the order of an awk's arrays.

function rnd() {
	state = (state * 16807) % 2147483647
	return state / 2147483647
}
function pick(k) { return 1 + int(rnd() * k) }

function hash(s,   h, i) {
	h = 7
	for (i = 1; i <= length(s); i++)
		h = (h * 31 + ORD[substr(s, i, 1)]) % 2147483647
	return (h * 16807) % 2147483647
}

function shuffle(a, n,   i, j, t) {
	for (i = n; i > 1; i--) {
		j = pick(i)
		t = a[i]; a[i] = a[j]; a[j] = t
	}
}

# ---- reading

BEGIN {
	for (i = 1; i < 256; i++)
		ORD[sprintf("%c", i)] = i
	state = hash(set " " seed) % 2147483646 + 1
	group = set == "train" || set == "heldout" ? "train" : "test"
	if (!share)
		share = 12
	while ((getline row < table) > 0)
		if (split(row, f, "\t") > 4 && f[1] == group) {
			name_of[++n_sources] = f[2]
			number_of[f[2]] = n_sources
			kind_of[n_sources] = f[3]
			weight[n_sources] = f[4]
		}
	FS = "\t"
}

FNR == 1 {
	end_document()
	name = FILENAME
	sub(/.*\//, "", name)
	sub(/\.txt$/, "", name)
	source = number_of[name]
	if (source == "") {
		print "prompts.awk: " name " is no source of this set" > "/dev/stderr"
		exit 1
	}
}

{ text = substr($0, length($1) + 2) }
substr(text, 1, 1) == "\f" {
	end_document()
	document = substr(text, 2)
	first = lines + 1
	next
}
{
	line[++lines] = text
	cum[lines] = cum[lines - 1] + $1
	if (FNR % 4 == 0) {
		k = split(text, word, /[^A-Za-z_]+/)
		for (i = 1; i <= k; i++)
			frequency[word[i]]++
	}
}

# Keep the document that was read if it is of this set.
function end_document(   h, mine, tokens) {
	if (document == "")
		return
	h = hash(document)
	tokens = cum[lines] - cum[first - 1]
	if (group == "train")
		mine = (h % share == 0) == (set == "heldout")
	else
		mine = (tokens > 9000 && h % 2 == 0) == (set == "long")
	if (mine && tokens >= 60) {
		from[++docs] = first
		to[docs] = lines
		label[docs] = document
		size[docs] = tokens
		of_source[source, ++n_docs[source]] = docs
	} else {
		lines = first - 1
	}
	document = ""
}

# ---- passages

# Documents of a source in random order, over and over.
function next_document(s) {
	if (at[s] == n_docs[s]) {
		shuffle_documents(s)
		at[s] = 0
	}
	return of_source[s, ++at[s]]
}

function shuffle_documents(s,   i, order) {
	for (i = 1; i <= n_docs[s]; i++)
		order[i] = of_source[s, i]
	shuffle(order, n_docs[s])
	for (i = 1; i <= n_docs[s]; i++)
		of_source[s, i] = order[i]
}

# The next document with that many tokens, or else the largest one; in test sets, of those that are left.  0: none.
function find_document(s, want,   i, d, best) {
	best = 0
	for (i = 1; i <= n_docs[s]; i++) {
		d = group == "test" ? of_source[s, i] : next_document(s)
		if (group == "test" && d in used)
			continue
		if (size[d] >= want)
			return d
		if (best == 0 || size[d] > size[best])
			best = d
	}
	return best
}

# The line of document d in which its token number t stands.
function line_at(d, t,   a, b, m) {
	a = from[d]
	b = to[d]
	t += cum[a - 1]
	while (a < b) {
		m = int((a + b) / 2)
		if (cum[m] < t) a = m + 1
		else b = m
	}
	return a
}

# Lines of d of about `want` tokens, from a paragraph's beginning on.
function take(d, want,   a, i) {
	a = from[d]
	if (size[d] > want && rnd() < 0.75) {
		a = line_at(d, rnd() * (size[d] - want))
		for (i = 0; i < 30 && a > from[d] && line[a - 1] != ""; i++)
			a--
	}
	while (a < to[d] && line[a] == "")
		a++
	for (; a <= to[d] && taken < want; a++) {
		line_of[++n_lines] = line[a]
		taken += cum[a] - cum[a - 1]
	}
	documents = documents (documents == "" ? "" : " ") label[d]
	used[d] = 1
}

function passage(s, want,   d, more) {
	split("", line_of)
	n_lines = taken = 0
	documents = ""
	if ((d = find_document(s, want)) == 0)
		return 0
	take(d, want)
	for (more = 0; group == "train" && taken < 0.9 * want && more < 20; more++) {
		line_of[++n_lines] = ""
		take(next_document(s), want)
	}
	return taken >= 0.5 * want
}

function text_of_lines(   i, s) {
	s = line_of[1]
	for (i = 2; i <= n_lines; i++)
		s = s "\n" line_of[i]
	return s
}

# Is it text?  No index, no table of numbers, no licence.
function is_good(   i, letters, others, legal, filled, s) {
	for (i = 1; i <= n_lines; i++) {
		s = line_of[i]
		if (s == "")
			continue
		filled++
		legal += s ~ /[Cc]opyright|COPYRIGHT|[Ll]icen[sc]e|LICEN|[Ww]arranty|WARRANTY|[Rr]edistribut|SPDX/
		others += gsub(/[^A-Za-z \t]/, "", s)
		gsub(/[ \t]/, "", s)
		letters += length(s)
	}
	return filled > 3 && legal < 3 + filled / 40 && letters / filled > 12 &&
		letters / (letters + others) > (kind == "code" ? 0.55 : 0.72)
}

# Lines of one paragraph become one line, as text often comes.
function flow(   i, k, joined) {
	k = 1
	joined = line_of[1]
	for (i = 2; i <= n_lines; i++) {
		if (length(line_of[i - 1]) > 50 && line_of[i - 1] !~ /^[ \t]/ && line_of[i] ~ /^[A-Za-z0-9"'(]/)
			joined = joined " " line_of[i]
		else {
			line_of[k++] = joined
			joined = line_of[i]
		}
	}
	line_of[k] = joined
	n_lines = k
}

# ---- writing

function json(s,   a, n, i, out) {
	n = split(s, a, "\n")
	for (i = 1; i <= n; i++) {
		gsub(/\\/, "&&", a[i])
		gsub(/"/, "\\u0022", a[i])
		gsub(/\t/, "\\t", a[i])
		out = out (i > 1 ? "\\n" : "") a[i]
	}
	return "\"" out "\""
}

# Of n prompts as many to each source as its weight says, in random order: plan [n].
function make_plan(   i, s, total, sum, k) {
	for (s = 1; s <= n_sources; s++)
		total += weight[s] * (n_docs[s] > 0)
	for (s = 1; s <= n_sources; s++) {
		sum += weight[s] * (n_docs[s] > 0)
		for (; k < int(n * sum / total + 0.5);)
			plan[++k] = s
	}
	shuffle(plan, n)
	for (i = 1; i <= n; i++)
		length_at[i] = lo * exp(log(hi / lo) * (i - rnd()) / n)
	shuffle(length_at, n)
}

function one(i, s, want,   tries, task, p) {
	kind = kind_of[s]
	for (tries = 0; tries < 30; tries++)
		if (passage(s, want) && is_good())
			break
	if (tries == 30)
		return 0
	if (kind != "code" && rnd() < 0.4)
		flow()
	task = make_task()
	p = head text_of_lines() tail
	printf "{\"id\":\"%s-%d\",\"task\":\"%s\",\"source\":\"%s\",\"document\":%s,\"chat\":%s,\"prompt\":%s}\n",
		set, i, task, name_of[s], json(documents), chat ? "true" : "false", json(p)
	return 1
}

END {
	end_document()
	for (s = 1; s <= n_sources; s++)
		shuffle_documents(s)
	make_plan()
	for (i = 1; i <= n; i++)
		for (t = 0; t < 8; t++)
			if (one(i, t == 0 ? plan[i] : pick(n_sources), length_at[i] - 45))
				break
}
