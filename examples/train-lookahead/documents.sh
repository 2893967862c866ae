#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# documents.sh NAME - the text of one row of sources.tsv: per document a line of a form feed and its name, then its
# lines.
#
# Markup is removed, characters that are no text as well; of HTML also the lines that half of the documents share, which
# are menus.  Of more documents than the row takes those come whose names have the lowest checksums.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8

IFS=$'\t' read -r _ _ _ _ most reader packages files < <(awk -F'\t' -v name="$1" '$2 == name' "$here/sources.tsv") ||
	{ echo "documents.sh: no source '$1' in sources.tsv" >&2; exit 1; }

# The files of the packages that match, the chosen ones in the order of their names.
list() {
	# shellcheck disable=SC2086
	dpkg -L $packages | grep -E -- "$files" | while read -r f; do
		[ ! -f "$f" ] || [ -L "$f" ] || printf '%s\t%s\n' "$(cksum <<<"$f" | cut -d' ' -f1)" "$f"
	done | sort -n | awk -v most="$most" 'NR <= most' | cut -f2 | sort
}

# A file as it is, whatever it was compressed by.
plain() {
	case $1 in
	*.gz | *.dz) zcat -f <"$1" ;;
	*) cat "$1" ;;
	esac
}

# read_READER: text of one file; a reader that knows where its text comes from, or cuts it, is all_READER.
read_text() { plain "$1"; }
read_code() { plain "$1"; }
read_html() { w3m -dump -cols 90 -T text/html "$1"; }
read_pod() { pod2text -w 90 "$1"; }
read_man() { MANWIDTH=90 man -l "$1" 2>/dev/null | col -bx; }
read_fortune() { sed 's/^%$//' "$1"; }

# A document per novel.
all_austen() {
	Rscript /dev/stdin <<'R'
b <- janeaustenr::austen_books()
for (n in levels(b$book)) {
	cat("\f", n, "\n", sep = "")
	writeLines(as.character(b$text[b$book == n]))
}
R
}

# A document per book: "Ge1:1 In the beginning ..." is a verse, a chapter has a heading.
all_bible() {
	bible -f 'Genesis1:1-Revelation22:21' </dev/null | awk '{
		match($1, /[A-Za-z]+/); book = substr($1, 1, RSTART + RLENGTH - 1)
		split(substr($1, length(book) + 1), at, ":")
		if (book != last) printf "\f%s\n", book
		last = book
		if (at[2] == 1) print (at[1] == 1 ? "" : "\n") "CHAPTER " at[1] "\n"
		sub(/^[^ ]+ /, ""); print at[2] " " $0 }' | fold -s -w 90 | sed 's/ $//'
}

# A document per letter of the dictionary, its front matter left out.
all_devil() {
	plain "$(list)" | awk '
		/^ *PREFACE/ { on = 1; printf "\fpreface\n" }
		/^[A-Z][A-Z -]+, / && substr($0, 1, 1) != last { last = substr($0, 1, 1); printf "\f%s\n", last }
		on'
}

# A document per 1,200 lines, from a chapter or paragraph on.
all_parts() {
	plain "$(list)" | awk '
		NR == 1 || (n > 1200 && /^$/) { printf "\fpart %d\n", ++part; n = 0 }
		{ n++; print }'
}

all_files() {
	local f

	list | while read -r f; do
		printf '\f%s\n' "$f"
		"read_$reader" "$f" | tr -d '\f' || echo "documents.sh: $f: unreadable, left out" >&2
	done
}

# Bytes that are no text go; a soft hyphen and a space that does not break are what a reader would see.
clean() {
	iconv -c -f UTF-8 -t UTF-8 | tr -d '\000-\010\013\015-\037\177' |
		sed $'s/\u00ad//g; s/[\u00a0\u2003]/ /g; s/[ \t]*$//' | cat -s
}

# Lines that stand in half of all documents, the empty one apart.
no_menus() {
	awk '
		/^\f/ { docs++ }
		{ line[NR] = $0; if ($0 != "" && seen[$0] != docs) { seen[$0] = docs; n[$0]++ } }
		END {
			for (i = 1; i <= NR; i++)
				if ((docs < 6 || n[line[i]] * 2 < docs) &&
				    line[i] !~ /^(Prev|Next|Home|Up|\[?(prev|next)\]?)( |$)|━━━|^This document was generated/ &&
				    line[i] !~ /^\[ *(<<?|Top|prev|next)? *\] |^ *\[[A-Za-z_ ]*\] *$/)
					print line[i]
		}' | cat -s
}

if declare -F "all_$reader" >/dev/null; then all=all_$reader; else all=all_files; fi
if [ "$reader" = html ]; then $all | clean | no_menus; else $all | clean; fi
