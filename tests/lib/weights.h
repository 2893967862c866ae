/* SPDX-License-Identifier: MIT
 * One weight of a model as f32, whatever type and order of rotary pairs it is stored in.
 */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "lib/model/model.h"

/* [rows][cols] as kv_role_shape() says; q, k and what goes with them with rotary pairs interleaved or in halves as
 * asked. NULL: no memory.  free() it. */
float *weight_f32(const struct kv_model *m, size_t layer, enum kv_role role, bool interleaved, struct kv_err *e);

#endif
