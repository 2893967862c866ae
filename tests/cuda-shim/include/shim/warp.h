/* SPDX-License-Identifier: MIT
 * Warp functions.  Each is a meeting of the lanes in its mask; the last to arrive computes for all of them.
 *
 * As on a card, only __syncwarp() orders memory: a shuffle or a vote does not.
 */
#ifndef KV_SHIM_WARP_H
#define KV_SHIM_WARP_H

#include <string.h>

/* lanes[l] is what lane l brought, for lanes in the mask.  Returns -1, or the lane whose request cannot be met. */
typedef int kv_shim_compute(void *const lanes[32], unsigned mask);

void kv_shim_meet(unsigned mask, kv_shim_compute *compute, void *mine, const char *what, const char *file, int line);

struct kv_shim_shuffle {
	uint64_t value, result;
	int from;
};
struct kv_shim_ballot {
	int predicate;
	unsigned result;
};
struct kv_shim_match {
	uint64_t value;
	unsigned result;
};
enum kv_shim_reduce_how { KV_SHIM_ADD, KV_SHIM_MIN, KV_SHIM_MAX, KV_SHIM_UMIN, KV_SHIM_UMAX, KV_SHIM_AND_BITS,
	KV_SHIM_OR_BITS, KV_SHIM_XOR_BITS };
struct kv_shim_reduce {
	enum kv_shim_reduce_how how;
	unsigned value, result;
};
struct kv_shim_mma {
	float *c;          /* [4] */
	const uint32_t *a; /* [4] */
	const uint32_t *b; /* [2] */
};
struct kv_shim_rows {
	uint16_t row[8]; /* what the lane's address holds */
	uint32_t *r;     /* [4] */
};
kv_shim_compute kv_shim_nothing, kv_shim_do_shuffle, kv_shim_do_ballot, kv_shim_do_match, kv_shim_do_reduce,
    kv_shim_do_mma_bf16, kv_shim_do_mma_f16, kv_shim_do_ldmatrix, kv_shim_do_ldmatrix_t;

static inline void
__syncwarp(unsigned mask = 0xffffffffu, KV_SHIM_SITE)
{
	kv_shim_meet(mask, kv_shim_nothing, NULL, "__syncwarp", file, line);
}

/* ---- shuffles, of anything up to 8 bytes */
template <typename T>
static inline T
kv_shim_moved(unsigned mask, T value, int from, const char *what, const char *file, int line)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
	struct kv_shim_shuffle s = { 0, 0, from };
	T result;

	memcpy((void *)&s.value, (const void *)&value, sizeof(T));
	kv_shim_meet(mask, kv_shim_do_shuffle, &s, what, file, line);
	memcpy((void *)&result, (const void *)&s.result, sizeof(T));
	return result;
}

static inline int
kv_shim_lane(void)
{
	return (int)kv_shim_now->lane;
}

template <typename T>
static inline T
__shfl_sync(unsigned mask, T value, int from, int width = 32, KV_SHIM_SITE)
{
	const int first = kv_shim_lane() & ~(width - 1);

	return kv_shim_moved(mask, value, first | (from & (width - 1)), "__shfl_sync", file, line);
}

template <typename T>
static inline T
__shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, KV_SHIM_SITE)
{
	const int lane = kv_shim_lane(), first = lane & ~(width - 1), from = lane - (int)by;

	return kv_shim_moved(mask, value, from < first ? lane : from, "__shfl_up_sync", file, line);
}

template <typename T>
static inline T
__shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, KV_SHIM_SITE)
{
	const int lane = kv_shim_lane(), last = lane | (width - 1), from = lane + (int)by;

	return kv_shim_moved(mask, value, from > last ? lane : from, "__shfl_down_sync", file, line);
}

template <typename T>
static inline T
__shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, KV_SHIM_SITE)
{
	const int lane = kv_shim_lane(), last = lane | (width - 1), from = lane ^ bits;

	return kv_shim_moved(mask, value, from > last ? lane : from, "__shfl_xor_sync", file, line);
}

/* ---- votes */
static inline unsigned
__ballot_sync(unsigned mask, int predicate, KV_SHIM_SITE)
{
	struct kv_shim_ballot b = { predicate, 0 };

	kv_shim_meet(mask, kv_shim_do_ballot, &b, "__ballot_sync", file, line);
	return b.result;
}

static inline int
__any_sync(unsigned mask, int predicate, KV_SHIM_SITE)
{
	struct kv_shim_ballot b = { predicate, 0 };

	kv_shim_meet(mask, kv_shim_do_ballot, &b, "__any_sync", file, line);
	return b.result != 0;
}

static inline int
__all_sync(unsigned mask, int predicate, KV_SHIM_SITE)
{
	struct kv_shim_ballot b = { predicate, 0 };

	kv_shim_meet(mask, kv_shim_do_ballot, &b, "__all_sync", file, line);
	return b.result == mask;
}

template <typename T>
static inline unsigned
__match_any_sync(unsigned mask, T value, KV_SHIM_SITE)
{
	static_assert(sizeof(T) <= 8, "a match compares at most 8 bytes");
	struct kv_shim_match m = { 0, 0 };

	memcpy((void *)&m.value, (const void *)&value, sizeof(T));
	kv_shim_meet(mask, kv_shim_do_match, &m, "__match_any_sync", file, line);
	return m.result;
}

/* ---- sums and such of 32-bit integers (sm_80) */
static inline unsigned
kv_shim_reduced(unsigned mask, enum kv_shim_reduce_how how, unsigned value, const char *what, const char *file,
    int line)
{
	struct kv_shim_reduce r = { how, value, 0 };

	kv_shim_meet(mask, kv_shim_do_reduce, &r, what, file, line);
	return r.result;
}

static inline int
__reduce_add_sync(unsigned mask, int value, KV_SHIM_SITE)
{
	return (int)kv_shim_reduced(mask, KV_SHIM_ADD, (unsigned)value, "__reduce_add_sync", file, line);
}

static inline unsigned
__reduce_add_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_ADD, value, "__reduce_add_sync", file, line);
}

static inline int
__reduce_min_sync(unsigned mask, int value, KV_SHIM_SITE)
{
	return (int)kv_shim_reduced(mask, KV_SHIM_MIN, (unsigned)value, "__reduce_min_sync", file, line);
}

static inline unsigned
__reduce_min_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_UMIN, value, "__reduce_min_sync", file, line);
}

static inline int
__reduce_max_sync(unsigned mask, int value, KV_SHIM_SITE)
{
	return (int)kv_shim_reduced(mask, KV_SHIM_MAX, (unsigned)value, "__reduce_max_sync", file, line);
}

static inline unsigned
__reduce_max_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_UMAX, value, "__reduce_max_sync", file, line);
}

static inline unsigned
__reduce_and_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_AND_BITS, value, "__reduce_and_sync", file, line);
}

static inline unsigned
__reduce_or_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_OR_BITS, value, "__reduce_or_sync", file, line);
}

static inline unsigned
__reduce_xor_sync(unsigned mask, unsigned value, KV_SHIM_SITE)
{
	return kv_shim_reduced(mask, KV_SHIM_XOR_BITS, value, "__reduce_xor_sync", file, line);
}

/* ---- matrices: the twins of kernels/cuda/ptx.h */
static inline void
kv_shim_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], KV_SHIM_SITE)
{
	struct kv_shim_mma m = { c, a, b };

	kv_shim_meet(0xffffffffu, kv_shim_do_mma_bf16, &m, "mma_bf16", file, line);
}

static inline void
kv_shim_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2], KV_SHIM_SITE)
{
	struct kv_shim_mma m = { c, a, b };

	kv_shim_meet(0xffffffffu, kv_shim_do_mma_f16, &m, "mma_f16", file, line);
}

/* Here, so that the sanitizers see the read. */
static inline void
kv_shim_read_row(struct kv_shim_rows *rows, const void *row, uint32_t r[4], const char *file, int line)
{
	const uint16_t *x = (const uint16_t *)row;

	if ((uintptr_t)row % 16 != 0)
		kv_shim_fault(file, line, "ldmatrix: row address %p is not 16-byte aligned", row);
	for (int i = 0; i < 8; i++)
		rows->row[i] = x[i];
	rows->r = r;
}

static inline void
kv_shim_ldmatrix(uint32_t r[4], const void *row, KV_SHIM_SITE)
{
	struct kv_shim_rows rows;

	kv_shim_read_row(&rows, row, r, file, line);
	kv_shim_meet(0xffffffffu, kv_shim_do_ldmatrix, &rows, "ldmatrix", file, line);
}

static inline void
kv_shim_ldmatrix_t(uint32_t r[4], const void *row, KV_SHIM_SITE)
{
	struct kv_shim_rows rows;

	kv_shim_read_row(&rows, row, r, file, line);
	kv_shim_meet(0xffffffffu, kv_shim_do_ldmatrix_t, &rows, "ldmatrix_t", file, line);
}

#endif
