/* SPDX-License-Identifier: MIT
 * Stands before the toolkit's cuda_runtime.h when kernels are compiled by a host compiler: types, enumerations and
 * prototypes are the toolkit's, and what nvcc would build in comes from shim/.  See ../README.md.
 */
#ifndef KV_SHIM_CUDA_RUNTIME_H
#define KV_SHIM_CUDA_RUNTIME_H

#include_next <cuda_runtime.h>

#include "shim/thread.h"

#include "shim/warp.h"

#include "shim/async.h"
#include "shim/atomics.h"
#include "shim/launch.h"
#include "shim/math.h"

/* Would be an ordinary variable here: KV_SHARED and KV_DYN_SHARED are the way. */
#undef __shared__
#define __shared__ kv_shim_takes_KV_SHARED_only

#endif
