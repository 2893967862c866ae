#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Paired differences and the p values that scipy gives them.

    make_paired.py > tests/golden/paired.txt

A case per line: p of the sign test, p of Wilcoxon's signed-rank test, the differences.  Exact up to 50 differences that
are not zero (with ties by enumerating all signs, hence small ones only), beyond by the normal distribution without
continuity correction.  Needs numpy and scipy.
"""
import numpy as np
from scipy import stats


def p_values(d):
    left = d[d != 0]
    n = len(left)
    if n == 0:
        return 1.0, 1.0
    sign = stats.binomtest(int((left > 0).sum()), n, 0.5).pvalue
    tied = len(set(np.abs(left))) < n
    method = "asymptotic" if n > 50 else stats.PermutationMethod(n_resamples=np.inf) if tied else "exact"
    return sign, stats.wilcoxon(left, correction=False, method=method).pvalue


def main():
    rng = np.random.default_rng(3)
    cases = [[], [0.0], [1.0], [-1.0, 2.0], [1.0, 1.0], [1.0, -1.0], [0.0, 0.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0]]
    for n in (6, 9, 14, 25, 26, 49, 50, 51, 120, 400):  # no two of one size
        size = rng.permutation(np.arange(1, n + 1)) / 8.0
        cases.append(size * np.where(rng.random(n) < 0.35, -1, 1))
    for n in (5, 8, 10, 12):  # ties and zeros, few
        cases.append(rng.integers(-2, 5, n) / 2.0)
    for n in (70, 300):  # ties and zeros, many
        cases.append(rng.integers(-3, 5, n) / 2.0)
    for d in cases:
        d = np.asarray(d, dtype=float)
        print(*("%.17g" % x for x in (*p_values(d), *d)))


if __name__ == "__main__":
    main()
