# SPDX-License-Identifier: MIT
# table.awk - from lines of method, budget, id, recall, kept, mass, kl, nll, top1 to a row per budget and method.
#
# p: Wilcoxon's signed-rank test of one method (-v against=NAME) against each other one on the same prompts, two-sided;
# zeros are left out; exact up to 50 differences, ties included, beyond by the normal distribution, corrected for ties.

BEGIN {
	FS = OFS = "\t"
	n_values = split("recall kept mass kl nll top1", name, " ")
	n_tested = split("recall kept mass kl nll", tested, " ")
}

{
	if (!(($1, $2) in n)) {
		if (!($2 in seen_budget) && $2 != "-")
			seen_budget[$2] = budget[++n_budgets] = $2
		if (!($1 in seen_method))
			seen_method[$1] = method[++n_methods] = $1
	}
	i = ++n[$1, $2]
	id[$1, $2, i] = $3
	for (k = 1; k <= n_values; k++)
		value[$1, $2, $3, name[k]] = $(k + 3)
}

# Numbers that are no number, a dash, have neither mean nor deviation.
function mean(m, b, what,   i, s, x) {
	for (i = 1; i <= n[m, b]; i++) {
		if ((x = value[m, b, id[m, b, i], what]) == "-")
			return "-"
		s += x
	}
	return s / n[m, b]
}
function deviation(m, b, what,   i, s, mu, x) {
	if ((mu = mean(m, b, what)) == "-" || n[m, b] < 2)
		return "-"
	for (i = 1; i <= n[m, b]; i++) {
		x = value[m, b, id[m, b, i], what] - mu
		s += x * x
	}
	return sqrt(s / (n[m, b] - 1))
}
function number(x) { return x == "-" ? x : sprintf("%.4f", x) }

function size(x) { return x < 0 ? -x : x }

# d [m] by size: insertion is fast enough for a few hundred prompts.
function sort_by_size(d, m,   i, j, x) {
	for (i = 2; i <= m; i++) {
		x = d[i]
		for (j = i - 1; j >= 1 && size(d[j]) > size(x); j--)
			d[j + 1] = d[j]
		d[j + 1] = x
	}
}

# 1 - erf(x), x >= 0: the series, or the continued fraction where that converges faster.
function erfc(x,   k, term, s, f) {
	if (x < 2) {
		for (k = 0; k < 60; k++) {
			term = k == 0 ? x : -term * x * x / k
			s += term / (2 * k + 1)
		}
		return 1 - s * 2 / sqrt(3.14159265358979)
	}
	f = 0
	for (k = 60; k >= 1; k--)
		f = k / 2 / (x + f)
	return exp(-x * x) / (x + f) / sqrt(3.14159265358979)
}

function wilcoxon(d, m,   i, j, k, s, end, rank, ties, positive, negative, w, ways, sum) {
	sort_by_size(d, m)
	for (i = 1; i <= m; i = end) {
		for (end = i + 1; end <= m && size(d[end]) == size(d[i]);)
			end++
		for (j = i; j < end; j++) {
			rank[j] = i + end - 1 # twice the mean rank
			if (d[j] > 0)
				positive += rank[j]
			else
				negative += rank[j]
		}
		ties += (end - i) * ((end - i) * (end - i) - 1)
	}
	w = positive + 0 < negative + 0 ? positive + 0 : negative + 0
	if (m > 50) {
		s = sqrt((m * (m + 1) * (2 * m + 1) - ties / 2) / 24)
		return erfc(size(w / 2 - m * (m + 1) / 4) / s / sqrt(2))
	}
	for (s = 0; s <= w; s++)
		ways[s] = s == 0
	for (i = 1; i <= m; i++)
		for (s = w; s >= rank[i]; s--)
			ways[s] += ways[s - rank[i]]
	for (s = 0; s <= w; s++)
		sum += ways[s]
	sum = 2 * sum / 2 ^ m
	return sum < 1 ? sum : 1
}

# against m
function p(m, b, what,   i, x, y, d, k) {
	if (m == against || !((against, b) in n))
		return "-"
	for (i = 1; i <= n[m, b]; i++) {
		x = value[against, b, id[m, b, i], what]
		y = value[m, b, id[m, b, i], what]
		if (x == "" || y == "-")
			return "-"
		if (x != y)
			d[++k] = x - y
	}
	return k == 0 ? "1" : sprintf("%.2g", wilcoxon(d, k))
}

function say(m, b,   k, line) {
	line = b OFS m OFS n[m, b]
	for (k = 1; k <= n_values; k++)
		line = line OFS number(mean(m, b, name[k])) OFS number(deviation(m, b, name[k]))
	for (k = 1; k <= n_tested; k++)
		line = line OFS (b == "-" ? "-" : p(m, b, tested[k]))
	print line
}

END {
	line = "budget" OFS "method" OFS "n"
	for (k = 1; k <= n_values; k++)
		line = line OFS name[k] OFS "sd"
	for (k = 1; k <= n_tested; k++)
		line = line OFS "p_" tested[k]
	print line
	for (j = 0; j <= n_budgets; j++)
		for (i = 1; i <= n_methods; i++)
			if ((method[i], j == 0 ? "-" : budget[j]) in n)
				say(method[i], j == 0 ? "-" : budget[j])
}
