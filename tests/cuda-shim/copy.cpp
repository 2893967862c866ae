/* SPDX-License-Identifier: MIT
 * Copies and fills.  Which side each pointer is on is checked at the call; whether the bytes are still there, when the
 * stream comes to it.
 *
 * Pageable host memory is read and written when the stream comes to it, too: the real library stages it first, mostly.
 *
 * KV_SHIM_TRAFFIC: a file that gets a line when the program ends: its name, bytes to the device, bytes to the host, and
 * how often it waited for a stream that was not done.
 */
#include <cuda_runtime.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "runtime.h"

struct rectangle {
	char *to;
	size_t to_pitch;
	const char *from;
	size_t from_pitch, width, height; /* bytes, rows */
};

/* Bytes from the first to the last of `height` rows. */
static size_t
extent(size_t pitch, size_t width, size_t height)
{
	return width == 0 || height == 0 ? 0 : pitch * (height - 1) + width;
}

static void
check_side(const void *p, size_t bytes, bool is_device, const char *who, const char *what)
{
	if (is_device)
		memory_check(p, bytes, who, what);
	else if (memory_kind(p) == DEVICE)
		complain("%s: %s %p is device memory; the direction says host", who, what, p);
	else if (p == NULL && bytes > 0)
		complain("%s: %s is NULL", who, what);
}

static enum cudaMemcpyKind
find_direction(const struct rectangle *r)
{
	static const enum cudaMemcpyKind kinds[2][2] = {
		{ cudaMemcpyHostToHost, cudaMemcpyHostToDevice },
		{ cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice },
	};

	return kinds[memory_kind(r->from) == DEVICE][memory_kind(r->to) == DEVICE];
}

static void
check(const struct rectangle *r, enum cudaMemcpyKind kind, const char *who)
{
	const size_t to_bytes = extent(r->to_pitch, r->width, r->height);
	const size_t from_bytes = extent(r->from_pitch, r->width, r->height);

	if (kind == cudaMemcpyDefault)
		kind = find_direction(r);
	if (r->height > 1 && (r->to_pitch < r->width || r->from_pitch < r->width))
		complain("%s: rows of %zu bytes do not fit pitches %zu and %zu", who, r->width, r->to_pitch,
		    r->from_pitch);
	check_side(r->to, to_bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, who,
	    "destination");
	check_side(r->from, from_bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, who,
	    "source");
	if (r->to < r->from + from_bytes && r->from < r->to + to_bytes && to_bytes > 0)
		complain("%s: source %p and destination %p overlap", who, (const void *)r->from, (void *)r->to);
}

static size_t traffic[5]; /* bytes, by direction */

__attribute__((destructor)) static void
tell_traffic(void)
{
	const char *path = getenv("KV_SHIM_TRAFFIC");
	FILE *f = path != NULL ? fopen(path, "a") : NULL;

	if (f == NULL)
		return;
	fprintf(f, "%s %zu %zu %zu\n", program_invocation_short_name, traffic[cudaMemcpyHostToDevice],
	    traffic[cudaMemcpyDeviceToHost], stream_waits());
	fclose(f);
}

static void
copy(const struct rectangle *r, enum cudaMemcpyKind kind)
{
	memory_open();
	check(r, kind, "copy");
	__atomic_fetch_add(&traffic[kind == cudaMemcpyDefault ? find_direction(r) : kind], r->width * r->height,
	    __ATOMIC_RELAXED);
	if (r->to_pitch == r->width && r->from_pitch == r->width) {
		memcpy(r->to, r->from, r->width * r->height);
	} else {
		for (size_t i = 0; i < r->height; i++)
			memcpy(r->to + i * r->to_pitch, r->from + i * r->from_pitch, r->width);
	}
	memory_close();
}

static cudaError_t
queue(struct rectangle r, enum cudaMemcpyKind kind, cudaStream_t stream, bool wait, const char *who)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if ((unsigned)kind > cudaMemcpyDefault)
		return failed(cudaErrorInvalidMemcpyDirection);
	check(&r, kind, who);
	if (r.width == 0 || r.height == 0)
		return cudaSuccess;
	memory_check_ends();
	return (wait ? stream_do : stream_add)(stream, [r, kind] { copy(&r, kind); });
}

static struct rectangle
line(void *to, const void *from, size_t bytes)
{
	return { (char *)to, bytes, (const char *)from, bytes, bytes, 1 };
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	return queue(line(to, from, bytes), kind, NULL, true, "cudaMemcpy");
}

cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return queue(line(to, from, bytes), kind, stream, false, "cudaMemcpyAsync");
}

cudaError_t
cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind)
{
	return queue({ (char *)to, to_pitch, (const char *)from, from_pitch, width, height }, kind, NULL, true,
	    "cudaMemcpy2D");
}

cudaError_t
cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return queue({ (char *)to, to_pitch, (const char *)from, from_pitch, width, height }, kind, stream, false,
	    "cudaMemcpy2DAsync");
}

static void
fill(char *to, size_t pitch, int value, size_t width, size_t height, const char *who)
{
	memory_open();
	memory_check(to, extent(pitch, width, height), who, "destination");
	for (size_t i = 0; i < height; i++)
		memset(to + i * pitch, value, width);
	memory_close();
}

static cudaError_t
queue_fill(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream, const char *who)
{
	struct lock l;
	char *p = (char *)to;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	memory_check(to, extent(pitch, width, height), who, "destination");
	if (width == 0 || height == 0)
		return cudaSuccess;
	return stream_add(stream, [p, pitch, value, width, height, who] { fill(p, pitch, value, width, height, who); });
}

cudaError_t
cudaMemset(void *to, int value, size_t bytes)
{
	return queue_fill(to, bytes, value, bytes, 1, NULL, "cudaMemset");
}

cudaError_t
cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	return queue_fill(to, bytes, value, bytes, 1, stream, "cudaMemsetAsync");
}

cudaError_t
cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
	return queue_fill(to, pitch, value, width, height, NULL, "cudaMemset2D");
}

cudaError_t
cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
	return queue_fill(to, pitch, value, width, height, stream, "cudaMemset2DAsync");
}
