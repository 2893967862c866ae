/* SPDX-License-Identifier: MIT
 * The measuring functions, for the table in quantities.c; struct kv_stat says what they do.
 */
#ifndef KV_FAMILIES_H
#define KV_FAMILIES_H

#include "lib/stat/stat.h"

kv_measure_fn kv_measure_entries; /* entries.c */
kv_measure_fn kv_measure_compression;
kv_measure_fn kv_measure_bytes;
kv_measure_fn kv_measure_budget_diff;
kv_measure_fn kv_measure_retained; /* mass.c */
kv_measure_fn kv_measure_bound;
kv_measure_fn kv_measure_retained_by;
kv_measure_fn kv_measure_max_std; /* spread.c */
kv_measure_fn kv_measure_max;
kv_measure_fn kv_measure_std;
kv_measure_fn kv_measure_overlap; /* agreement.c */
kv_measure_fn kv_measure_recall;
kv_measure_fn kv_measure_kendall;
kv_measure_fn kv_measure_pearson;
kv_measure_fn kv_measure_kl_scores;
kv_measure_fn kv_measure_kl_logits; /* fidelity.c */
kv_measure_fn kv_measure_top1;
kv_measure_fn kv_measure_nll;
kv_measure_fn kv_measure_nll_diff;

#endif
