/* SPDX-License-Identifier: MIT
 * How many of the tokens that a response looks at most are among those that a module would keep (METHODS 6.2).
 */
#ifndef KV_RECALL_H
#define KV_RECALL_H

#include "lib/device.h"

#define KV_RECALL_MAX 8 /* numbers k */

/* recall[i] += the mean over the H heads of |top_k(score) and top_k(truth)| / k for k = min(ks[i], n), both raw [H][n]
 * on the host, by the order of METHODS 1.4.  Fails: KV_EDEV, KV_EMEM. */
int kv_recall(const struct kv_device *d, const float *truth, const float *score, size_t H, size_t n, const size_t *ks,
    size_t n_k, double *recall, struct kv_err *e);

#endif
