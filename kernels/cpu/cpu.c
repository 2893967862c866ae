/* SPDX-License-Identifier: MIT
 * The CPU backend: its table, memory, threads and error text.  Host and device memory are the same. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/fixed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
		cpu_fail(dev, KVK_EMEM, "out of memory (%zu bytes of scratch wanted)", total);
	return dev->scratch;
}

size_t
cpu_taken(size_t n, size_t size)
{
	return (n * size + 63) / 64 * 64;
}

float *
cpu_take_f32(char **at, size_t n)
{
	void *p = *at;

	*at += cpu_taken(n, sizeof(float));
	return p;
}

double *
cpu_take_f64(char **at, size_t n)
{
	void *p = *at;

	*at += cpu_taken(n, sizeof(double));
	return p;
}

struct range {
	size_t n, step;
	cpu_piece_fn *fn;
	void *ctx;
};

static void
run_unit(void *ctx, size_t u, size_t worker)
{
	const struct range *r = ctx;
	const size_t from = u * r->step;

	r->fn(r->ctx, from, r->n - from < r->step ? r->n : from + r->step, worker);
}

void
cpu_run(struct kvk_dev *dev, size_t n, size_t step, cpu_piece_fn *fn, void *ctx)
{
	struct range r = { n, step, fn, ctx };
	const size_t units = n / step + (n % step != 0);

	if (units > 1 && dev->threads > 1 && dev->team == NULL)
		dev->team = cpu_team_new((size_t)dev->threads);
	cpu_team_run(dev->team, units, run_unit, &r);
}

/* What auto is here: block fixed point where that is fast.  Never bf16: vpmaddwd and vpdpwssd multiply 16-bit integers
 * at the rate at which vdpbf16ps multiplies bf16, and the integers are thirty times finer.  (AMX would be another
 * matter.) */
static enum kvk_precision
best_precision(void)
{
	return cpu_fixed_best() != &cpu_fixed_portable ? KVK_PRECISION_I16 : KVK_PRECISION_F32;
}

/* What this build uses of the processor. */
static const char instruction_sets[] = ""
#ifdef __AVX512F__
    " avx512"
#endif
#ifdef __AVX512VNNI__
    " avx512-vnni"
#endif
#ifdef __AVX2__
    " avx2"
#endif
#ifdef __FMA__
    " fma"
#endif
#ifdef __F16C__
    " f16c"
#endif
#ifdef __ARM_NEON
    " neon"
#endif
    ;

static int
dev_describe(int ordinal, char *text, size_t bytes)
{
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (ordinal != 0) {
		snprintf(text, bytes, "there is one CPU device, number 0, not %d", ordinal);
		return KVK_ENODEV;
	}
	snprintf(text, bytes, "%ld thread%s, precisions f32 bf16 i16 (auto: %s)%s%s", processors,
	    processors == 1 ? "" : "s", kvk_precisions[best_precision()],
	    *instruction_sets != '\0' ? ", instruction sets" : "", instruction_sets);
	return 0;
}

static int
dev_open(
    struct kvk_dev **dev, int ordinal, int threads, enum kvk_precision precision, char *why, size_t why_bytes)
{
	struct kvk_dev *d;
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);

	*dev = NULL;
	if (ordinal != 0) {
		snprintf(why, why_bytes, "there is one CPU device, number 0, not %d", ordinal);
		return KVK_ENODEV;
	}
	if (threads < 0 || threads > MAX_THREADS) {
		snprintf(why, why_bytes, "%d threads wanted, 1 to %d are possible (0: all processors)", threads,
		    MAX_THREADS);
		return KVK_ESHAPE;
	}
	if (precision >= KVK_N_PRECISIONS) {
		snprintf(why, why_bytes, "no precision %d", (int)precision);
		return KVK_ESHAPE;
	}
	if ((d = calloc(1, sizeof *d)) == NULL) {
		snprintf(why, why_bytes, "out of memory");
		return KVK_EMEM;
	}
	d->threads = threads > 0 ? threads : processors > 0 ? (int)processors : 1;
	if (d->threads > MAX_THREADS)
		d->threads = MAX_THREADS;
	d->precision = precision == KVK_PRECISION_AUTO ? best_precision() : precision;
	*dev = d;
	return 0;
}

static void
dev_close(struct kvk_dev *dev)
{
	if (dev == NULL)
		return;
	cpu_team_free(dev->team);
	cpu_turns_free(dev->turns);
	for (size_t i = 0; i < CPU_SPARES; i++)
		free(dev->spare[i].p);
	free(dev->scratch);
	free(dev);
}

static const char *
dev_error(struct kvk_dev *dev)
{
	return dev->text;
}

static enum kvk_precision
dev_precision(struct kvk_dev *dev)
{
	return dev->precision;
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

static int
get_as(struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n)
{
	const struct kvk_copy job = {
		.x = src, .x_type = type, .y = host, .y_type = host_type, .H = 1, .n = n, .D = 1
	};

	if (!cpu_is_float(type) || !cpu_is_float(host_type))
		return cpu_fail(dev, KVK_ETYPE, "get_as: types are f32, f16 and bf16");
	return cpu_copy_rows(dev, &job);
}

static int
dev_wait(struct kvk_dev *dev)
{
	(void)dev;
	return 0;
}

static size_t
dev_room(struct kvk_dev *dev)
{
	(void)dev;
	return 0;
}

const struct kvk_backend kvk_cpu = {
	.abi = KVK_ABI,
	.name = "cpu",
	.layers_ahead = 0,
	.chunk_rows = 8 * KVK_ROW_TILE,
	.describe = dev_describe,
	.open = dev_open,
	.close = dev_close,
	.error = dev_error,
	.precision = dev_precision,
	.alloc = dev_alloc,
	.free = dev_free,
	.view = dev_view,
	.unview = dev_unview,
	.put = copy,
	.get = copy,
	.get_as = get_as,
	.wait = dev_wait,
	.copy_rows = cpu_copy_rows,
	.room = dev_room,
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
	.finite = cpu_finite,
	.product = cpu_dense_product,
	.linear_rows = cpu_linear_rows,
	.linear_back = cpu_linear_back,
	.rms_norm_back = cpu_rms_norm_back,
	.silu_mul_back = cpu_silu_mul_back,
	.heads_back = cpu_heads_back,
	.behind = cpu_behind,
	.behind_back = cpu_behind_back,
};
