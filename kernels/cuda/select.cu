/* SPDX-License-Identifier: MIT
 * Which entries a head keeps: exact, without sorting, the same as the CPU's.
 *
 * An entry's key is its rank and its tie value as a 64-bit integer that orders like the floats do.  A radix search
 * finds the last key that is kept, digit by digit, and ends early when all keys with the digits known so far are kept.
 *
 * A block takes a short head alone, its keys in registers.  A long one goes to several: every block counts the digits
 * of its part, and the last of the head's blocks to finish picks the digit, a launch each; two more launches count what
 * each warp's part keeps, and write it in order.  All sums are of integers: same input, same bytes. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define THREADS 512
#define WARPS   (THREADS / 32)
#define DIGIT   11   /* bits; a word of 32 is three digits: 11, 11 and 10 */
#define BINS    (1 << DIGIT)
#define CHUNK   2048 /* entries of a block, at least, and a multiple of 32 * WARPS */
#define CHUNKS  64   /* blocks of a head, at most */
#define SHORT   (16 * (size_t)THREADS) /* entries of a head that a block takes alone */
#define HEADS   128  /* of a launch for those */
#define LOWEST  0x007fffffu /* the key word of -inf */
#define ABOVE   0xffffffffu /* beyond that of +inf, which is 0xff800000 */

/* What is known of a head, on the host first and then on the device. */
struct progress {
	uint64_t limit;       /* the last kept key, its digits from `shift` on */
	uint64_t want;        /* entries still to be kept, of those with just these digits, lowest positions first */
	size_t first, end;    /* candidates: the positions between sinks and recents */
	size_t out;           /* where the head's positions go */
	unsigned shift, done; /* bits not looked at yet; no need to */
	unsigned finished;    /* blocks of this digit */
};

struct source {
	const float *rank, *tie; /* [H][n], tie may be NULL */
	const uint8_t *protect;  /* [H][T] or NULL */
	size_t n, T;
	size_t chunk, chunks; /* entries of a block, blocks of a head */
};

/* An integer that orders like x; NaN as -inf, -0 as +0. */
static __device__ inline uint32_t
ordered(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	if (x != x)
		u = 0xff800000u;
	else if (x == 0)
		u = 0;
	return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ inline uint64_t
key_of(const struct source *s, size_t g, size_t i)
{
	const uint32_t rank = i < s->n ? ordered(s->rank[g * s->n + i]) : LOWEST;
	uint32_t high = rank, low = LOWEST;

	if (s->tie != NULL && i < s->n)
		low = ordered(s->tie[g * s->n + i]);
	if (s->protect != NULL && s->protect[g * s->T + i] != 0) {
		high = ABOVE;
		low = rank;
	}
	return (uint64_t)high << 32 | low;
}

/* The words of a key are 11, 11 and 10 bits each. */
static __host__ __device__ inline void
digit_at(int i, unsigned *shift, unsigned *bits)
{
	*bits = i % 3 < 2 ? DIGIT : 32 - 2 * DIGIT;
	*shift = 64 - 32 * (i / 3) - (i % 3 < 2 ? (i % 3 + 1) * DIGIT : 32);
}

/* Without ties and protection the lower words are all the same. */
static __host__ __device__ inline int
digits_of(const struct source *s)
{
	return s->tie != NULL || s->protect != NULL ? 6 : 3;
}

/* A head before the search: it keeps the entries offset[0] .. offset[1] - 1 of the index. */
static __host__ __device__ inline void
begin(const size_t *offset, size_t T, size_t n_sink, size_t n_recent, struct progress *p)
{
	const size_t keep = offset[1] - offset[0];
	const size_t recent = n_recent < keep ? n_recent : keep;
	const size_t sink = n_sink < keep - recent ? n_sink : keep - recent;

	p->first = sink;
	p->end = T - recent;
	p->out = offset[0];
	p->want = keep - recent - sink;
	p->finished = 0;
	p->done = p->want == 0 || p->want == p->end - p->first;
	/* With no candidate wanted, or all of them, no key is above the first limit, or below the second. */
	p->limit = p->want == 0 ? UINT64_MAX : 0;
	p->shift = p->done ? 0 : 64;
}

/* Of count [BINS], read from the top, the bin in which number `want` (>= 1) falls.  The digit joins p->limit.  By the
 * whole block.  GLOBAL: other blocks have counted too, so that the sums are not in this one's first cache; they become
 * 0. */
template <bool GLOBAL>
static __device__ inline void
pick_digit(unsigned *count, unsigned shift, struct progress *p)
{
	KV_SHARED(unsigned, sums, [WARPS]);
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const unsigned top = BINS - 1 - threadIdx.x * (BINS / THREADS);
	const uint64_t want = p->want;
	unsigned own[BINS / THREADS], sum = 0, before;

	for (unsigned i = 0; i < BINS / THREADS; i++)
		sum += own[i] = GLOBAL ? atomicExch(&count[top - i], 0u) : count[top - i];
	before = sum;
	for (unsigned step = 1; step < 32; step *= 2) {
		const unsigned left = __shfl_up_sync(KV_FULL, before, step);

		before += lane >= step ? left : 0;
	}
	if (lane == 31)
		sums[warp] = before;
	__syncthreads();
	before -= sum;
	for (unsigned w = 0; w < warp; w++)
		before += sums[w];
	for (unsigned i = 0; i < BINS / THREADS; before += own[i], i++)
		if (before < want && want <= (uint64_t)before + own[i]) {
			p->limit |= (uint64_t)(top - i) << shift;
			p->want = want - before;
			p->shift = shift;
			p->done = p->want == own[i];
		}
}

/* Blocks: chunks of heads.  count [H][BINS]: zeros, before and after. */
KV_KERNEL(THREADS)
next_digit(struct source s, struct progress *heads, unsigned *count, unsigned shift, unsigned bits)
{
	KV_SHARED(unsigned, mine, [BINS]);
	KV_SHARED(unsigned, last, [1]);
	const unsigned chunks = (unsigned)s.chunks;
	const size_t g = blockIdx.x / chunks, from = blockIdx.x % chunks * s.chunk;
	struct progress *p = heads + g;
	const size_t first = p->first > from ? p->first : from, end = p->end < from + s.chunk ? p->end : from + s.chunk;
	const uint64_t known = p->limit >> shift >> bits;

	if (p->done) /* the whole block */
		return;
	for (unsigned b = threadIdx.x; b < BINS; b += THREADS)
		mine[b] = 0;
	__syncthreads();
	for (size_t i = first + threadIdx.x; i < end; i += THREADS) {
		const uint64_t key = key_of(&s, g, i) >> shift;

		if (key >> bits == known)
			atomicAdd(&mine[key & ((1u << bits) - 1)], 1u);
	}
	__syncthreads();
	for (unsigned b = threadIdx.x; b < BINS; b += THREADS)
		if (mine[b] > 0)
			atomicAdd(&count[g * BINS + b], mine[b]);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last[0] = atomicAdd(&p->finished, 1u) == chunks - 1;
	__syncthreads();
	if (!last[0])
		return;
	__threadfence();
	pick_digit<true>(count + g * BINS, shift, p);
	if (threadIdx.x == 0)
		p->finished = 0;
}

/* Entry i of head g: 2 kept for certain, 1 if among the first p->want of these, 0 not. */
static __device__ inline int
standing(const struct source *s, const struct progress *p, size_t g, size_t i)
{
	uint64_t key, limit;

	if (i < p->first || i >= p->end)
		return i < s->T ? 2 : 0;
	key = key_of(s, g, i) >> p->shift;
	limit = p->limit >> p->shift;
	return key > limit ? 2 : key == limit;
}

/* The part of a head that this warp looks after. */
struct part {
	size_t g, from, end; /* end may be beyond T */
	unsigned number;     /* of chunks * WARPS */
};

static __device__ inline struct part
own_part(const struct source *s)
{
	const size_t length = s->chunk / WARPS;
	const unsigned chunks = (unsigned)s->chunks;
	struct part own;

	own.g = blockIdx.x / chunks;
	own.number = blockIdx.x % chunks * WARPS + threadIdx.x / 32;
	own.from = own.number * length;
	own.end = own.from + length;
	return own;
}

/* kept [H][chunks * WARPS]: how many entries of each part are certain, and how many may be. */
KV_KERNEL(THREADS)
count_parts(struct source s, const struct progress *heads, uint2 *kept)
{
	const struct part own = own_part(&s);
	const struct progress p = heads[own.g];
	unsigned certain = 0, maybe = 0;

	for (size_t i = own.from + threadIdx.x % 32; i < own.end; i += 32) {
		const int is = standing(&s, &p, own.g, i);

		certain += __popc(__ballot_sync(KV_FULL, is == 2));
		maybe += __popc(__ballot_sync(KV_FULL, is == 1));
	}
	if (threadIdx.x % 32 == 0)
		kept[own.g * s.chunks * WARPS + own.number] = make_uint2(certain, maybe);
}

static __device__ inline unsigned
warp_sum(unsigned x)
{
	for (int step = 16; step > 0; step /= 2)
		x += __shfl_xor_sync(KV_FULL, x, step);
	return x;
}

/* The same parts again: each writes behind what those before it keep. */
KV_KERNEL(THREADS)
write_parts(struct source s, const struct progress *heads, const uint2 *kept, int32_t *index)
{
	const struct part own = own_part(&s);
	const struct progress p = heads[own.g];
	const unsigned lane = threadIdx.x % 32, below = (1u << lane) - 1;
	unsigned certain = 0, maybe = 0;

	kept += own.g * s.chunks * WARPS;
	for (unsigned i = lane; i < own.number; i += 32) {
		certain += kept[i].x;
		maybe += kept[i].y;
	}
	certain = warp_sum(certain);
	maybe = warp_sum(maybe);
	index += p.out;
	for (size_t i = own.from + lane; i < own.end; i += 32) {
		const int is = standing(&s, &p, own.g, i);
		const unsigned sure = __ballot_sync(KV_FULL, is == 2), equal = __ballot_sync(KV_FULL, is == 1);
		const unsigned equals = maybe + __popc(equal & below);
		const size_t at = certain + __popc(sure & below) + (equals < p.want ? equals : p.want);

		if (is == 2 || (is == 1 && equals < p.want))
			index[at] = (int32_t)i;
		certain += __popc(sure);
		maybe += __popc(equal);
	}
}

/* ---- a short head: one block, EACH entries to a thread, which follow each other */

struct offsets {
	size_t at[HEADS + 1];
};

/* What the threads before this one have of two numbers, neither of which sums up to 2^16 or more: low and high half. */
static __device__ inline unsigned
before_this(unsigned own)
{
	KV_SHARED(unsigned, sums, [WARPS]);
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	unsigned sum = own;

	for (unsigned step = 1; step < 32; step *= 2) {
		const unsigned left = __shfl_up_sync(KV_FULL, sum, step);

		sum += lane >= step ? left : 0;
	}
	if (lane == 31)
		sums[warp] = sum;
	__syncthreads();
	sum -= own;
	for (unsigned w = 0; w < warp; w++)
		sum += sums[w];
	return sum;
}

template <int EACH>
KV_KERNEL(THREADS)
select_short(struct source s, struct offsets offsets, size_t first_head, size_t n_sink, size_t n_recent, int32_t *index)
{
	KV_SHARED(unsigned, count, [BINS]);
	KV_SHARED(struct progress, p, [1]);
	const size_t g = first_head + blockIdx.x, from = threadIdx.x * (size_t)EACH;
	const int n = digits_of(&s);
	uint64_t key[EACH];
	unsigned certain = 0, maybe = 0, own = 0, shift, bits;

	if (threadIdx.x == 0)
		begin(offsets.at + blockIdx.x, s.T, n_sink, n_recent, p);
	__syncthreads();
	for (int k = 0; k < EACH; k++)
		key[k] = from + k >= p->first && from + k < p->end ? key_of(&s, g, from + k) : 0;
	for (int i = 0; i < n && !p->done; i++) {
		digit_at(i, &shift, &bits);
		for (unsigned b = threadIdx.x; b < BINS; b += THREADS)
			count[b] = 0;
		__syncthreads();
		for (int k = 0; k < EACH; k++)
			if (key[k] != 0 && key[k] >> shift >> bits == p->limit >> shift >> bits)
				atomicAdd(&count[key[k] >> shift & ((1u << bits) - 1)], 1u);
		__syncthreads();
		pick_digit<false>(count, shift, p);
		__syncthreads();
	}
	for (int k = 0; k < EACH; k++) {
		const bool sure = key[k] == 0 ? from + k < s.T : key[k] >> p->shift > p->limit >> p->shift;

		certain |= (unsigned)sure << k;
		maybe |= (unsigned)(key[k] != 0 && key[k] >> p->shift == p->limit >> p->shift) << k;
	}
	own = before_this((unsigned)__popc(certain) << 16 | (unsigned)__popc(maybe));
	for (int k = 0; k < EACH; k++) {
		const unsigned below = (1u << k) - 1;
		const unsigned equals = (own & 0xffff) + __popc(maybe & below);
		const bool last = maybe >> k & 1 && equals < p->want;

		if (certain >> k & 1 || last)
			index[p->out + (own >> 16) + __popc(certain & below) + (equals < p->want ? equals : p->want)] =
			    (int32_t)(from + k);
	}
}

static int
select_short_heads(struct kvk_dev *dev, const struct kvk_select *j, const struct source *s, int32_t *index)
{
	cudaError_t status = cudaSuccess;
	struct offsets offsets = {};

	for (size_t first = 0, n; first < j->H && status == cudaSuccess; first += n) {
		n = j->H - first < HEADS ? j->H - first : HEADS;
		memcpy(offsets.at, j->offset + first, (n + 1) * sizeof *offsets.at);
		if (j->T <= 8 * THREADS)
			status = KV_LAUNCH((select_short<8>), (unsigned)n, THREADS, 0, dev->stream, *s, offsets, first,
			    j->n_sink, j->n_recent, index);
		else
			status = KV_LAUNCH((select_short<16>), (unsigned)n, THREADS, 0, dev->stream, *s, offsets, first,
			    j->n_sink, j->n_recent, index);
	}
	return cuda_check(dev, status, "select");
}

/* ---- a long one */

struct room {
	struct progress *heads; /* [H] */
	unsigned *count;        /* [H][BINS] */
	uint2 *kept;            /* [H][chunks * WARPS] */
};

/* Scratch memory with every head's beginning; *all: no head needs a search. */
static int
prepare(struct kvk_dev *dev, const struct kvk_select *j, size_t chunks, struct room *r, bool *all)
{
	const size_t bytes = cuda_taken(j->H, sizeof *r->heads) + cuda_taken(j->H * BINS, sizeof *r->count) +
	    cuda_taken(j->H * chunks * WARPS, sizeof *r->kept);
	struct progress *heads = (struct progress *)malloc(j->H * sizeof *heads);
	char *at;
	int rc = KVK_EMEM;

	*all = true;
	if (heads == NULL) {
		cuda_fail(dev, KVK_EMEM, "select: out of memory for %zu heads", j->H);
		goto done;
	}
	if ((at = (char *)cuda_scratch(dev, bytes)) == NULL)
		goto done;
	r->heads = (struct progress *)cuda_take(&at, j->H, sizeof *r->heads);
	r->count = (unsigned *)cuda_take(&at, j->H * BINS, sizeof *r->count);
	r->kept = (uint2 *)cuda_take(&at, j->H * chunks * WARPS, sizeof *r->kept);
	for (size_t g = 0; g < j->H; g++) {
		begin(j->offset + g, j->T, j->n_sink, j->n_recent, &heads[g]);
		*all = *all && heads[g].done;
	}
	rc = cuda_put(dev, r->heads, heads, j->H * sizeof *heads);
	if (rc == 0 && !*all)
		rc = cuda_check(
		    dev, cudaMemsetAsync(r->count, 0, j->H * BINS * sizeof *r->count, dev->stream), "select");
done:
	free(heads);
	return rc;
}

static int
search(struct kvk_dev *dev, const struct source *s, unsigned blocks, const struct room *r)
{
	unsigned shift, bits;
	int rc = 0;

	for (int i = 0; i < digits_of(s) && rc == 0; i++) {
		digit_at(i, &shift, &bits);
		rc = cuda_check(dev,
		    KV_LAUNCH(next_digit, blocks, THREADS, 0, dev->stream, *s, r->heads, r->count, shift, bits),
		    "select");
	}
	return rc;
}

static int
refuse(struct kvk_dev *dev, const struct kvk_select *j)
{
	if (j->T > INT32_MAX)
		return cuda_fail(
		    dev, KVK_ESHAPE, "select: %zu tokens are more than 32-bit positions can count", j->T);
	for (size_t g = 0; g < j->H; g++)
		if (j->offset[g + 1] < j->offset[g] || j->offset[g + 1] - j->offset[g] > j->T)
			return cuda_fail(dev, KVK_ESHAPE, "select: head %zu has places %zu to %zu for entries of %zu",
			    g, j->offset[g], j->offset[g + 1], j->T);
	return 0;
}

int
cuda_select(struct kvk_dev *dev, const struct kvk_select *j, int32_t *index)
{
	const size_t wide = ((j->T + CHUNKS - 1) / CHUNKS + CHUNK - 1) / CHUNK * CHUNK;
	const size_t chunk = wide > 0 ? wide : CHUNK;
	const struct source s = { j->rank, j->tie, j->protect, j->n, j->T, chunk, cuda_blocks(j->T, chunk) };
	const unsigned blocks = (unsigned)(j->H * s.chunks);
	struct room r = {};
	bool all;
	int rc;

	if ((rc = refuse(dev, j)) != 0 || blocks == 0)
		return rc;
	if (j->T <= SHORT)
		return select_short_heads(dev, j, &s, index);
	if ((rc = prepare(dev, j, s.chunks, &r, &all)) == 0 && !all)
		rc = search(dev, &s, blocks, &r);
	if (rc == 0)
		rc = cuda_check(
		    dev, KV_LAUNCH(count_parts, blocks, THREADS, 0, dev->stream, s, r.heads, r.kept), "select");
	if (rc == 0)
		rc = cuda_check(
		    dev, KV_LAUNCH(write_parts, blocks, THREADS, 0, dev->stream, s, r.heads, r.kept, index), "select");
	return rc;
}
