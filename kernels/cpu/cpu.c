/* SPDX-License-Identifier: MIT
 * The CPU backend: its table, memory, threads and error text.  Host and device memory are the same. */
#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

int
cpu_fail(struct kvk_dev *dev, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(dev->text, sizeof dev->text, fmt, ap);
	va_end(ap);
	return code;
}

static void *
aligned(size_t bytes)
{
	if (bytes > SIZE_MAX - 64)
		return NULL;
	return aligned_alloc(64, bytes < 64 ? 64 : (bytes + 63) / 64 * 64);
}

void *
cpu_scratch(struct kvk_dev *dev, size_t n, size_t bytes, size_t *stride)
{
	size_t total;

	*stride = bytes > SIZE_MAX - 64 ? SIZE_MAX : (bytes + 63) / 64 * 64;
	if (__builtin_mul_overflow(n, *stride, &total))
		total = SIZE_MAX;
	if (total > dev->scratch_bytes || dev->scratch == NULL) {
		free(dev->scratch);
		dev->scratch = aligned(total);
		dev->scratch_bytes = dev->scratch != NULL ? total : 0;
	}
	if (dev->scratch == NULL)
		cpu_fail(dev, CPU_EMEM, "out of memory (%zu bytes of scratch wanted)", total);
	return dev->scratch;
}

size_t
cpu_room(size_t n, size_t size)
{
	return (n * size + 63) / 64 * 64;
}

float *
cpu_take_f32(char **at, size_t n)
{
	void *p = *at;

	*at += cpu_room(n, sizeof(float));
	return p;
}

double *
cpu_take_f64(char **at, size_t n)
{
	void *p = *at;

	*at += cpu_room(n, sizeof(double));
	return p;
}

static int
dev_open(struct kvk_dev **dev, int ordinal, int threads, char *why, size_t why_bytes)
{
	struct kvk_dev *d;

	*dev = NULL;
	if (ordinal != 0) {
		snprintf(why, why_bytes, "there is one CPU device, number 0, not %d", ordinal);
		return CPU_ESHAPE;
	}
	if (threads < 0 || threads > MAX_THREADS) {
		snprintf(why, why_bytes, "%d threads wanted, 1 to %d are possible (0: all processors)", threads,
		    MAX_THREADS);
		return CPU_ESHAPE;
	}
	if ((d = calloc(1, sizeof *d)) == NULL) {
		snprintf(why, why_bytes, "out of memory");
		return CPU_EMEM;
	}
	d->threads = threads > 0 ? threads : omp_get_num_procs();
	if (d->threads > MAX_THREADS)
		d->threads = MAX_THREADS;
	*dev = d;
	return 0;
}

static void
dev_close(struct kvk_dev *dev)
{
	if (dev == NULL)
		return;
	free(dev->scratch);
	free(dev);
}

static const char *
dev_error(struct kvk_dev *dev)
{
	return dev->text;
}

static void *
dev_alloc(struct kvk_dev *dev, size_t bytes)
{
	(void)dev;
	return aligned(bytes);
}

static void
dev_free(struct kvk_dev *dev, void *p)
{
	(void)dev;
	free(p);
}

static const void *
dev_view(struct kvk_dev *dev, const void *host, size_t bytes)
{
	(void)dev;
	(void)bytes;
	return host;
}

static void
dev_unview(struct kvk_dev *dev, const void *p)
{
	(void)dev;
	(void)p;
}

static int
copy(struct kvk_dev *dev, void *dst, const void *src, size_t bytes)
{
	(void)dev;
	if (bytes > 0)
		memcpy(dst, src, bytes);
	return 0;
}

/* Threads each convert pieces of `step` elements, by way of floats where both sides are narrow. */
static int
get_as(struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n)
{
	enum { step = 4096 };
	size_t from, to;

	if (!cpu_is_float(type) || !cpu_is_float(host_type))
		return cpu_fail(dev, CPU_ETYPE, "get_as: types are f32, f16 and bf16");
	from = kvk_types[type].bytes;
	to = kvk_types[host_type].bytes;
	if (type == host_type)
		return copy(dev, host, src, n * from);
#pragma omp parallel for num_threads(dev->threads) schedule(static) if (n > 16 * step)
	for (size_t i = 0; i < n; i += step) {
		size_t m = n - i < step ? n - i : step;
		float x[step];

		cpu_expand[type]((const uint8_t *)src + i * from, x, m);
		cpu_pack[host_type](x, (uint8_t *)host + i * to, m);
	}
	return 0;
}

static int
dev_wait(struct kvk_dev *dev)
{
	(void)dev;
	return 0;
}

const struct kvk_backend kvk_cpu = {
	.abi = KVK_ABI,
	.name = "cpu",
	.open = dev_open,
	.close = dev_close,
	.error = dev_error,
	.alloc = dev_alloc,
	.free = dev_free,
	.view = dev_view,
	.unview = dev_unview,
	.put = copy,
	.get = copy,
	.get_as = get_as,
	.wait = dev_wait,
	.weight_open = cpu_weight_open,
	.weight_close = cpu_weight_close,
	.rows = cpu_rows,
	.linear = cpu_linear,
	.rms_norm = cpu_rms_norm,
	.silu_mul = cpu_silu_mul,
	.heads = cpu_heads,
	.attention = cpu_attention,
	.scores = cpu_scores,
	.reduce_heads = cpu_reduce_heads,
	.row_moments = cpu_row_moments,
	.forms = cpu_forms,
	.pool = cpu_pool,
	.select = cpu_select,
};
