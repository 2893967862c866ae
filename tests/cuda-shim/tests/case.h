/* SPDX-License-Identifier: MIT
 * What the tests of the shim share.
 */
#ifndef SHIM_CASE_H
#define SHIM_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"

#define OK(call) assert_int_equal(call, cudaSuccess)

static const char *const schedules[] = { "fifo", "lifo", "reverse", "random:1", "random:2", "random:3" };
enum { N_SCHEDULES = 6 };

/* Device memory with the bytes of `host`, or as cudaMalloc leaves it. */
template <typename T>
static inline T *
put(const T *host, size_t n)
{
	T *p;

	OK(cudaMalloc(&p, n * sizeof(T)));
	if (host != NULL)
		OK(cudaMemcpy(p, host, n * sizeof(T), cudaMemcpyHostToDevice));
	return p;
}

/* n elements of device memory, which is freed. */
template <typename T>
static inline void
take(T *host, T *device, size_t n)
{
	OK(cudaMemcpy(host, device, n * sizeof(T), cudaMemcpyDeviceToHost));
	OK(cudaFree(device));
}

#endif
