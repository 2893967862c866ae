/* SPDX-License-Identifier: MIT
 * Causal attention over a ragged cache: which kernel, how the work is cut, and the merging of shared tiles' pieces.
 *
 * Precision bf16 means tensor cores: an f32 cache is rounded to bf16 first, into scratch memory (of the size of the
 * cache's used entries); one of f16 or bf16 is taken as it is, and queries and weights are rounded to its type.
 * Against real arithmetic with the cache's elements, |error| <= (2^-8 + 2^-8 ln2 |logit|) max|v| or so for bf16, an
 * eighth of it for f16.  Precision f32 means f32. */
#include "kernels/cuda/attend.h"

#include <stdlib.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define MERGE_THREADS 128
#define SHARED_BYTES  ((size_t)256 << 20) /* the most that pieces of shared tiles may take */

/* Row r of a head: its pieces in ascending order. */
KV_KERNEL(MERGE_THREADS) attend_merge_pieces(struct attend a)
{
	const unsigned R = a.n * a.G, r = blockIdx.x % R;
	struct attend_unit u;
	int sees;

	u.g = blockIdx.x / R;
	sees = attend_sees(a, (unsigned)a.len[u.g], r);
	for (size_t d = threadIdx.x; d < a.D; d += MERGE_THREADS) {
		float m = 0, l = 0, o = 0;
		struct attend_row w;

		u.piece = 0;
		do {
			const float *ml = a.ml + ((size_t)(u.g * a.pieces + u.piece) * R + r) * 2;

			w = attend_row_of(u.piece == 0, false, ml[0], ml[1], &m, &l);
			o = attend_element(w, o, attend_to(a, u, r)[d]);
			u.piece++;
		} while (attend_begin(u.piece) < (size_t)sees);
		w.first = w.last = true;
		a.y[(((size_t)(r / a.G) * a.H + u.g) * a.G + r % a.G) * a.D + d] = attend_element(w, 0, o);
	}
}

/* The entries of each head, one head behind the other, in rows of `row` elements, zeros at their ends. */
template <typename From, typename To>
KV_KERNEL(256) attend_pack(const From *x, const size_t *start, const size_t *packed, const size_t *len, unsigned H,
    size_t D, size_t row, int vectors, To *y)
{
	const size_t step = (size_t)gridDim.x * blockDim.x, fours = row / 4;

	for (unsigned g = 0; g < H; g++)
		for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < len[g] * fours; i += step) {
			const size_t e = i / fours, d = i % fours * 4;
			const float4 f =
			    d < D ? attend_four(x + (start[g] + e) * D + d, D - d, vectors) : make_float4(0, 0, 0, 0);
			const To four[4] = { (To)f.x, (To)f.y, (To)f.z, (To)f.w };
			uint2 bits;

			memcpy(&bits, four, sizeof bits);
			*(uint2 *)(y + packed[g] * row + i * 4) = bits;
		}
}

template <typename From, typename To>
static int
pack(struct kvk_dev *dev, const struct attend *a, const void *x, const size_t *start, size_t most, void *y)
{
	const unsigned blocks = most < 256 * 1024 ? cuda_blocks(most + 1, 256) : 1024;

	return cuda_check(dev, KV_LAUNCH((attend_pack<From, To>), blocks, 256, 0, dev->stream, (const From *)x, start,
	                           a->start, a->len, a->H, a->D, a->row, a->vectors, (To *)y), "attention");
}

static int
pack_as(struct kvk_dev *dev, const struct attend *a, enum kvk_type type, const void *x, const size_t *start,
    size_t most, void *y)
{
	if (type == KVK_F32)
		return pack<float, __nv_bfloat16>(dev, a, x, start, most, y);
	if (type == KVK_BF16)
		return pack<__nv_bfloat16, __nv_bfloat16>(dev, a, x, start, most, y);
	return pack<__half, __half>(dev, a, x, start, most, y);
}

static int
check(struct kvk_dev *dev, const struct kvk_ragged *c, size_t n, size_t Hq)
{
	if (!cuda_is_float(c->type))
		return cuda_fail(dev, KVK_ETYPE, "attention: a cache is of type f32, f16 or bf16");
	if (c->H == 0 || Hq % c->H != 0)
		return cuda_fail(
		    dev, KVK_ESHAPE, "attention: %zu query heads cannot share a cache of %zu heads", Hq, c->H);
	for (size_t g = 0; g < c->H; g++) {
		if (c->len[g] < n)
			return cuda_fail(dev, KVK_ESHAPE,
			    "attention: head %zu has %zu entries, fewer than the %zu new rows", g, c->len[g], n);
		if (c->len[g] >= (size_t)1 << 30)
			return cuda_fail(
			    dev, KVK_ESHAPE, "attention: head %zu has %zu entries, more than 2^30", g, c->len[g]);
	}
	if (c->D > ATTEND_MAX_D)
		return cuda_fail(
		    dev, KVK_ESHAPE, "attention: heads of %zu elements, more than %zu", c->D, ATTEND_MAX_D);
	return 0;
}

/* How a call is done. */
struct plan {
	struct attend a;
	bool mma, pack;
	int height;
	size_t longest, entries; /* of a head; of all */
	size_t *at;              /* host: q_at [Hq], start [H], len [H], packed start [H] */
	size_t n_at;
};

static bool
aligned(const void *x, size_t bytes)
{
	return (uintptr_t)x % bytes == 0;
}

/* Is each piece of a tile a block of its own?  Where the tiles alone leave the card idle (of small ones two at least
 * are needed for each multiprocessor), and sums find room. */
static unsigned
plan_pieces(const struct kvk_dev *dev, const struct plan *p)
{
	const size_t rows = (size_t)p->a.n * p->a.G;
	const size_t enough = (size_t)dev->prop.multiProcessorCount * (p->height == 16 ? 2 : 1);
	unsigned pieces = 1;

	while (attend_begin(pieces) < p->longest)
		pieces++;
	if ((size_t)p->a.tiles * p->a.H >= enough ||
	    p->a.H * pieces * rows * (p->a.D + 2) * sizeof(float) > SHARED_BYTES)
		return 1;
	return pieces;
}

static int
plan_make(struct kvk_dev *dev, const struct kvk_ragged *c, const size_t *q_at, size_t n, size_t Hq, float scale,
    struct plan *p)
{
	const size_t H = c->H, G = Hq / H, bytes = kvk_types[c->type].bytes;
	struct attend *a = &p->a;
	bool whole;

	if (n * G >= (size_t)1 << 30)
		return cuda_fail(dev, KVK_ESHAPE, "attention: %zu rows of %zu heads each, more than 2^30", n, G);
	a->n = (unsigned)n;
	a->G = (unsigned)G;
	a->H = (unsigned)H;
	a->D = c->D;
	a->sign = scale < 0 ? -1.0f : 1.0f;
	a->scale = fmaxf(fabsf(scale) * 1.44269504f, FLT_MIN);
	p->mma = dev->precision == KVK_PRECISION_BF16;
	whole = c->D % 8 == 0 && aligned(c->k, 16) && aligned(c->v, 16);
	p->pack = p->mma && (c->type == KVK_F32 || !whole);
	a->row = p->pack ? (c->D + 7) / 8 * 8 : c->D;
	a->vectors = c->D % 4 == 0 && aligned(c->k, 4 * bytes) && aligned(c->v, 4 * bytes);
	p->height = cuda_attend_height(p->mma, n * G, c->D);
	a->tiles = cuda_blocks(n * G, (size_t)p->height);
	p->n_at = Hq + 3 * H;
	if ((p->at = (size_t *)malloc(p->n_at * sizeof *p->at)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "attention: out of memory");
	memcpy(p->at, q_at, Hq * sizeof *q_at);
	memcpy(p->at + Hq, c->start, H * sizeof *c->start);
	memcpy(p->at + Hq + H, c->len, H * sizeof *c->len);
	for (size_t g = 0; g < H; g++) {
		p->at[Hq + 2 * H + g] = p->entries;
		p->entries += c->len[g];
		p->longest = c->len[g] > p->longest ? c->len[g] : p->longest;
	}
	a->pieces = plan_pieces(dev, p);
	if ((size_t)a->tiles * H * a->pieces >= (size_t)1 << 31 || n * Hq >= (size_t)1 << 31)
		return cuda_fail(dev, KVK_ESHAPE, "attention: %zu rows of %zu heads are too many for one call", n, Hq);
	return 0;
}

/* Scratch, and what has to be there before the kernel runs. */
static int
plan_memory(struct kvk_dev *dev, const struct kvk_ragged *c, struct plan *p)
{
	struct attend *a = &p->a;
	const size_t Hq = (size_t)a->H * a->G, packed = p->pack ? p->entries * a->row : 0;
	const size_t sums = a->pieces > 1 ? (size_t)a->H * a->pieces * a->n * a->G : 0;
	char *scratch = (char *)cuda_scratch(dev, cuda_taken(p->n_at, sizeof *p->at) + 2 * cuda_taken(packed, 2) +
	                                              cuda_taken(sums * a->D, 4) + cuda_taken(sums, 8));
	const size_t *at, *start;
	void *k, *v;
	int rc;

	if (scratch == NULL)
		return KVK_EMEM;
	at = (const size_t *)cuda_take(&scratch, p->n_at, sizeof *at);
	k = cuda_take(&scratch, packed, 2);
	v = cuda_take(&scratch, packed, 2);
	a->o = (float *)cuda_take(&scratch, sums * a->D, 4);
	a->ml = (float *)cuda_take(&scratch, sums, 8);
	if ((rc = cuda_put(dev, (void *)at, p->at, p->n_at * sizeof *at)) != 0)
		return rc;
	a->q_at = at;
	start = at + Hq;
	a->len = start + a->H;
	a->start = p->pack ? a->len + a->H : start;
	a->k = p->pack ? k : c->k;
	a->v = p->pack ? v : c->v;
	if (!p->pack)
		return 0;
	if ((rc = pack_as(dev, a, c->type, c->k, start, p->longest * a->row / 4, k)) != 0)
		return rc;
	return pack_as(dev, a, c->type, c->v, start, p->longest * a->row / 4, v);
}

static int
plan_run(struct kvk_dev *dev, const struct plan *p, enum kvk_type type)
{
	const struct attend *a = &p->a;
	int rc;

	if (!p->mma)
		rc = cuda_attend_fma(dev, a, type, p->height);
	else if (type == KVK_F16)
		rc = cuda_attend_f16(dev, a, p->height);
	else
		rc = cuda_attend_bf16(dev, a, p->height);
	if (rc != 0 || a->pieces == 1)
		return rc;
	return cuda_check(dev, KV_LAUNCH(attend_merge_pieces, a->H * a->n * a->G, MERGE_THREADS, 0, dev->stream, *a),
	    "attention");
}

int
cuda_attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
    const struct kvk_ragged *cache, float scale, float *y)
{
	struct plan p = {};
	int rc;

	if ((rc = check(dev, cache, n, Hq)) != 0 || n == 0 || Hq == 0 || cache->D == 0)
		return rc;
	p.a.q = q;
	p.a.y = y;
	if ((rc = plan_make(dev, cache, q_at, n, Hq, scale, &p)) == 0 && (rc = plan_memory(dev, cache, &p)) == 0)
		rc = plan_run(dev, &p, cache->type);
	free(p.at);
	return rc;
}
