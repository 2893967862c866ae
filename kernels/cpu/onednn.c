/* SPDX-License-Identifier: MIT
 * oneDNN's sgemm, from a library that is opened when it is first needed: it takes several milliseconds and 40 MB of
 * address space that a program without products can do without. */
#include "kernels/cpu/cpu.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static __typeof__(&dnnl_sgemm) sgemm;
static void (*set_threads)(int); /* of the OpenMP runtime that oneDNN brought along; NULL: none */
static char why[160];

static void
find(void *library, const char *name, void *function)
{
	void *p = dlsym(library, name);

	memcpy(function, &p, sizeof p);
}

static void
open_library(void)
{
	static const char *const names[] = { "libdnnl.so.2", "libdnnl.so.3", "libdnnl.so" };
	void *library = NULL;

	for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(why, sizeof why, "cannot open oneDNN (Debian: libdnnl2): %.100s", dlerror());
		return;
	}
	find(library, "dnnl_sgemm", &sgemm);
	find(library, "omp_set_num_threads", &set_threads);
	if (sgemm == NULL)
		snprintf(why, sizeof why, "oneDNN's library has no dnnl_sgemm");
}

int
cpu_sgemm_nt(struct kvk_dev *dev, size_t M, size_t N, size_t K, const float *A, const float *B, float *C)
{
	static _Thread_local bool alone;
	const dnnl_dim_t m = (dnnl_dim_t)M, n = (dnnl_dim_t)N, k = (dnnl_dim_t)K;

	pthread_once(&once, open_library);
	if (sgemm == NULL)
		return cpu_fail(dev, KVK_EMATH, "%s", why);
	if (!alone && set_threads != NULL)
		set_threads(1);
	alone = true;
	if (sgemm('N', 'T', m, n, k, 1.0f, A, k, B, k, 0.0f, C, n) != dnnl_success)
		return cpu_fail(dev, KVK_EMATH, "oneDNN could not compute a product");
	return 0;
}
