/* SPDX-License-Identifier: MIT
 * Write a model that is in memory as a file, for tests of the readers and of the programs.
 */
#ifndef WRITE_MODEL_H
#define WRITE_MODEL_H

#include "lib/model/model.h"

/* A GGUF file; matrices with cols a multiple of the block are quantised to `type` (simple round-to-nearest quantisers),
 * vectors stay F32. */
int write_gguf(const struct kv_model *m, enum kvk_type type, const char *path, struct kv_err *e);

/* A Hugging Face folder: config.json, tokenizer.json, generation_config.json, model.safetensors, or with n_shards > 1
 * model-0000i-of-0000n.safetensors and their index.  type: F32, F16 or BF16. */
int write_hf(const struct kv_model *m, enum kvk_type type, unsigned n_shards, const char *folder, struct kv_err *e);

#endif
