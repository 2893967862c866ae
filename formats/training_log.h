/* SPDX-License-Identifier: MIT
 * What a training has to tell: JSON Lines for plots.  One object per step,
 *	{"step", "epoch", "rate", "loss", "gradient_norm", "tokens", "seconds", "samples_per_second",
 *"tokens_per_second"}, and one per measurement of what was held out,
 *	{"step", "held_out": {"samples", "loss", "recall@64", ..}, "best_step"}.
 * Losses are in nats; seconds count from the start of the program.
 */
#ifndef KV_TRAINING_LOG_H
#define KV_TRAINING_LOG_H

#include "lib/train/training.h"

struct kv_training_log;

/* first: steps that were made before; lines about later ones leave the file, which is empty for 0.
 * Fails: KV_EIO, KV_EMEM. */
int kv_training_log_open(struct kv_training_log **out, const char *path, size_t first, struct kv_err *e);
/* NULL is fine for both of these.  Fails: KV_EIO. */
int kv_training_log_step(
    struct kv_training_log *l, const struct kv_training_step *s, double seconds, double of_step, struct kv_err *e);
int kv_training_log_measure(
    struct kv_training_log *l, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e);
void kv_training_log_close(struct kv_training_log *l);

#endif
