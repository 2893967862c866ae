/* SPDX-License-Identifier: MIT
 * What training makes small (METHODS 5.2): the divergence of where lookahead tokens look from where a response looks.
 */
#ifndef KV_LOSS_H
#define KV_LOSS_H

#include <stddef.h>

/* sum_j g_j ln(g_j / p_j), nats, with g and p the two scores [n] divided by their sums; terms with g_j = 0 are 0, sums
 * and p_j are at least 1e-12.  In double precision.  gradient (NULL: not wanted) [n]: that of score, times weight:
 * weight * (1 / sum score - g_j / score_j). */
double kv_loss_head(const float *truth, const float *score, size_t n, double weight, float *gradient);

/* The mean over n_heads heads (layers times query heads), [n_heads][n] each; gradient times `weight`. */
double kv_loss(const float *truth, const float *score, size_t n_heads, size_t n, double weight, float *gradient);

#endif
