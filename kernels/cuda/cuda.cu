/* SPDX-License-Identifier: MIT
 * The CUDA backend: its table, opening and describing a card, errors. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIN_MAJOR 8 /* compute capability 8.0: bf16 and cp.async */

int
cuda_fail(struct kvk_dev *dev, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(dev->text, sizeof dev->text, fmt, ap);
	va_end(ap);
	return code;
}

int
cuda_check(struct kvk_dev *dev, cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return 0;
	cudaGetLastError(); /* the next call begins clean, unless the context is lost */
	if (status == cudaErrorMemoryAllocation)
		return cuda_fail(dev, KVK_EMEM, "%s: out of device memory", what);
	return cuda_fail(dev, KVK_ERUN, "%s: %s", what, cudaGetErrorString(status));
}

/* Why there is no card to use at all; 0 and the number of cards, else the text. */
static int
count_devices(int *n, char *why, size_t why_bytes)
{
	const cudaError_t status = cudaGetDeviceCount(n);
	int driver = 0;

	if (status == cudaSuccess && *n > 0)
		return 0;
	cudaGetLastError();
	cudaDriverGetVersion(&driver);
	if (driver == 0) {
		snprintf(why, why_bytes, "there is no NVIDIA driver: install it, or use --device cpu");
		return KVK_ENODEV;
	}
	if (status == cudaErrorNoDevice || status == cudaSuccess) {
		snprintf(why, why_bytes, "the NVIDIA driver finds no card: use --device cpu");
		return KVK_ENODEV;
	}
	if (status == cudaErrorInsufficientDriver)
		snprintf(why, why_bytes,
		    "the NVIDIA driver knows CUDA %d.%d, this library needs %d.%d: "
		    "update the driver, or use --device cpu",
		    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	else
		snprintf(why, why_bytes, "%s: use --device cpu", cudaGetErrorString(status));
	return KVK_ERUN;
}

int
cuda_find_device(int ordinal, cudaDeviceProp *prop, char *why, size_t why_bytes)
{
	int n = 0, rc = count_devices(&n, why, why_bytes);

	if (rc != 0)
		return rc;
	if (ordinal < 0 || ordinal >= n) {
		snprintf(why, why_bytes, "there %s %d CUDA device%s, numbered from 0, and no number %d",
		    n == 1 ? "is" : "are", n, n == 1 ? "" : "s", ordinal);
		return KVK_ENODEV;
	}
	if (cudaGetDeviceProperties(prop, ordinal) != cudaSuccess) {
		snprintf(why, why_bytes, "%s", cudaGetErrorString(cudaGetLastError()));
		return KVK_ERUN;
	}
	if (prop->major < MIN_MAJOR) {
		snprintf(why, why_bytes,
		    "%s has compute capability %d.%d, at least %d.0 is needed: use --device cpu", prop->name,
		    prop->major, prop->minor, MIN_MAJOR);
		return KVK_ERUN;
	}
	return 0;
}

static int
dev_describe(int ordinal, char *text, size_t bytes)
{
	cudaDeviceProp prop;
	int n, rc;

	if (count_devices(&n, text, bytes) != 0)
		return KVK_ENODEV;
	if ((rc = cuda_find_device(ordinal, &prop, text, bytes)) == 0)
		snprintf(text, bytes, "%s, %.1f GiB, compute capability %d.%d, precisions f32 bf16 (auto: bf16)",
		    prop.name, (double)prop.totalGlobalMem / (1 << 30), prop.major, prop.minor);
	return rc;
}

static void
dev_close(struct kvk_dev *dev)
{
	if (dev == NULL)
		return;
	if (dev->stream != NULL)
		cudaStreamSynchronize(dev->stream);
	if (dev->copies != NULL)
		cudaStreamSynchronize(dev->copies);
	cuda_products_close(dev);
	cuda_spares_close(dev);
	cuda_fetches_close(dev);
	cuda_staging_close(dev);
	cuda_crew_close(dev->crew);
	cuda_memory_close(dev);
	if (dev->copies != NULL)
		cudaStreamDestroy(dev->copies);
	if (dev->stream != NULL)
		cudaStreamDestroy(dev->stream);
	free(dev);
}

static int
open_streams(struct kvk_dev *d)
{
	int rc;

	if ((rc = cuda_check(d, cudaSetDevice(d->ordinal), "the card")) != 0 ||
	    (rc = cuda_check(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "a queue")) != 0 ||
	    (rc = cuda_check(d, cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking), "a queue")) != 0)
		return rc;
	return cuda_memory_open(d);
}

static int
dev_open(struct kvk_dev **dev, int ordinal, int threads, enum kvk_precision precision, char *why, size_t why_bytes)
{
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	struct kvk_dev *d;
	int rc;

	*dev = NULL;
	if (precision >= KVK_N_PRECISIONS) {
		snprintf(why, why_bytes, "no precision %d", (int)precision);
		return KVK_ESHAPE;
	}
	if (precision == KVK_PRECISION_I16) {
		snprintf(why, why_bytes, "precision i16 is the CPU's: use bf16 or f32, or --device cpu");
		return KVK_ENODEV;
	}
	if ((d = (struct kvk_dev *)calloc(1, sizeof *d)) == NULL) {
		snprintf(why, why_bytes, "out of memory");
		return KVK_EMEM;
	}
	d->ordinal = ordinal;
	d->threads = threads > 0 ? (size_t)threads : processors > 0 ? (size_t)processors : 1;
	d->precision = precision == KVK_PRECISION_F32 ? KVK_PRECISION_F32 : KVK_PRECISION_BF16;
	if ((rc = cuda_find_device(ordinal, &d->prop, why, why_bytes)) == 0 && (rc = open_streams(d)) != 0)
		snprintf(why, why_bytes, "%s", d->text);
	if (rc == 0)
		*dev = d;
	else
		dev_close(d);
	return rc;
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

static int
dev_wait(struct kvk_dev *dev)
{
	return cuda_check(dev, cudaStreamSynchronize(dev->stream), "the card");
}

extern "C" {
extern __attribute__((visibility("default"))) const struct kvk_backend kvk_cuda;
const struct kvk_backend kvk_cuda = {
	.abi = KVK_ABI,
	.name = "cuda",
	.layers_ahead = 1,
	.chunk_rows = 64 * KVK_ROW_TILE,
	.products = cuda_products_open,
	.describe = dev_describe,
	.open = dev_open,
	.close = dev_close,
	.error = dev_error,
	.precision = dev_precision,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.view = cuda_view,
	.unview = cuda_unview,
	.put = cuda_put,
	.get = cuda_get,
	.get_as = cuda_get_as,
	.wait = dev_wait,
	.copy_rows = cuda_copy_rows,
	.room = cuda_room,
	.weight_open = cuda_weight_open,
	.weight_close = cuda_weight_close,
	.rows = cuda_rows,
	.linear = cuda_linear,
	.rms_norm = cuda_rms_norm,
	.silu_mul = cuda_silu_mul,
	.heads = cuda_heads,
	.attention = cuda_attention,
	.scores = cuda_scores,
	.reduce_heads = cuda_reduce_heads,
	.row_moments = cuda_row_moments,
	.forms = cuda_forms,
	.pool = cuda_pool,
	.select = cuda_select,
	.finite = cuda_finite,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.fetch = cuda_fetch,
	.arrive = cuda_arrive,
	.card = cuda_card,
	.use = cuda_use,
	.lend = cuda_lend,
	.borrow = cuda_borrow,
	.unborrow = cuda_unborrow,
	.product = cuda_product,
	.linear_rows = cuda_linear_rows,
	.linear_back = cuda_linear_back,
	.rms_norm_back = cuda_rms_norm_back,
	.silu_mul_back = cuda_silu_mul_back,
	.heads_back = cuda_heads_back,
	.behind = cuda_behind,
	.behind_back = cuda_behind_back,
};
}
