/* SPDX-License-Identifier: MIT
 * lanes [FILE] - what each lane of a warp gets from the operations that kernels exchange data by: matrix products,
 * ldmatrix, copies past the registers, shuffles, votes.  One line per lane, as hexadecimal words; with a file, such as
 * one that a card has written, lines that differ are shown instead, and the exit status is 1.
 *
 * A program of its own, built by nvcc for a card and against tests/cuda-shim for a processor.  All numbers are small
 * integers, so that sums are exact in any order.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/ptx.h"

#define WORDS 4 /* per lane */

static __device__ inline uint32_t
bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return u;
}

/* Small integers, different for every place. */
static __device__ inline float
number(unsigned i)
{
	return (float)((int)((i * 2654435761u) >> 28) - 8);
}

static __device__ inline uint32_t
pair_bf16(unsigned i)
{
	return bits(number(i)) >> 16 | (bits(number(i + 1)) & 0xffff0000u);
}

static __device__ inline uint32_t
pair_f16(unsigned i)
{
	const __half low = __float2half(number(i)), high = __float2half(number(i + 1));
	uint16_t l, h;

	memcpy(&l, &low, sizeof l);
	memcpy(&h, &high, sizeof h);
	return (uint32_t)h << 16 | l;
}

KV_KERNEL(32)
mma_bf16(uint32_t *out)
{
	const unsigned lane = threadIdx.x;
	uint32_t a[4], b[2];
	float c[4];

	for (unsigned i = 0; i < 4; i++) {
		a[i] = pair_bf16(lane * 8 + i * 2);
		c[i] = number(1000 + lane * 4 + i);
	}
	for (unsigned i = 0; i < 2; i++)
		b[i] = pair_bf16(500 + lane * 4 + i * 2);
	ptx_mma_bf16(c, a, b);
	for (unsigned i = 0; i < 4; i++)
		out[lane * WORDS + i] = bits(c[i]);
}

KV_KERNEL(32)
mma_f16(uint32_t *out)
{
	const unsigned lane = threadIdx.x;
	uint32_t a[4], b[2];
	float c[4];

	for (unsigned i = 0; i < 4; i++) {
		a[i] = pair_f16(lane * 8 + i * 2);
		c[i] = number(1000 + lane * 4 + i);
	}
	for (unsigned i = 0; i < 2; i++)
		b[i] = pair_f16(500 + lane * 4 + i * 2);
	ptx_mma_f16(c, a, b);
	for (unsigned i = 0; i < 4; i++)
		out[lane * WORDS + i] = bits(c[i]);
}

/* Four matrices of 8 x 8, element number (matrix, row, column) = 64 matrix + 8 row + column. */
KV_KERNEL(32)
ldmatrix(uint32_t *out)
{
	KV_SHARED(uint4, rows, [32]);
	const unsigned lane = threadIdx.x;
	uint16_t row[8];
	uint32_t r[4];

	for (unsigned i = 0; i < 8; i++)
		row[i] = (uint16_t)(lane * 8 + i);
	memcpy(&rows[lane], row, sizeof row);
	__syncwarp();
	ptx_ldmatrix(r, &rows[lane]);
	for (unsigned i = 0; i < 4; i++)
		out[lane * WORDS + i] = r[i];
}

KV_KERNEL(32)
ldmatrix_t(uint32_t *out)
{
	KV_SHARED(uint4, rows, [32]);
	const unsigned lane = threadIdx.x;
	uint16_t row[8];
	uint32_t r[4];

	for (unsigned i = 0; i < 8; i++)
		row[i] = (uint16_t)(lane * 8 + i);
	memcpy(&rows[lane], row, sizeof row);
	__syncwarp();
	ptx_ldmatrix_t(r, &rows[lane]);
	for (unsigned i = 0; i < 4; i++)
		out[lane * WORDS + i] = r[i];
}

/* Lane l copies the first l / 2 bytes of 16, the others become 0. */
KV_KERNEL(32)
copy_async(uint32_t *out, const uint4 *in)
{
	KV_SHARED(uint4, rows, [32]);
	const unsigned lane = threadIdx.x;

	rows[lane] = make_uint4(~0u, ~0u, ~0u, ~0u);
	__syncwarp();
	ptx_copy_async(&rows[lane], &in[lane], (int)(lane / 2));
	ptx_copy_commit();
	ptx_copy_wait<0>();
	__syncthreads();
	memcpy(&out[lane * WORDS], &rows[31 - lane], sizeof *rows);
}

KV_KERNEL(32)
shuffles(uint32_t *out)
{
	const unsigned lane = threadIdx.x, x = lane * 3 + 1;

	out[lane * WORDS] = __shfl_sync(KV_FULL, x, (int)(lane * 7 + 5));
	out[lane * WORDS + 1] = __shfl_up_sync(KV_FULL, x, 5u);
	out[lane * WORDS + 2] = __shfl_down_sync(KV_FULL, x, 5u);
	out[lane * WORDS + 3] = __shfl_xor_sync(KV_FULL, x, 11);
}

KV_KERNEL(32)
shuffles_of_8(uint32_t *out)
{
	const unsigned lane = threadIdx.x, x = lane * 3 + 1;

	out[lane * WORDS] = __shfl_sync(KV_FULL, x, (int)(lane * 7 + 5), 8);
	out[lane * WORDS + 1] = __shfl_up_sync(KV_FULL, x, 3u, 8);
	out[lane * WORDS + 2] = __shfl_down_sync(KV_FULL, x, 3u, 8);
	out[lane * WORDS + 3] = __shfl_xor_sync(KV_FULL, x, 5, 8);
}

KV_KERNEL(32)
votes(uint32_t *out)
{
	const unsigned lane = threadIdx.x;

	out[lane * WORDS] = __ballot_sync(KV_FULL, lane % 3 == 0);
	out[lane * WORDS + 1] = __any_sync(KV_FULL, lane == 40) != 0;
	out[lane * WORDS + 2] = __all_sync(KV_FULL, lane < 40) != 0;
	out[lane * WORDS + 3] = __match_any_sync(KV_FULL, lane % 5);
}

/* ---- the host's part */

enum { N_KERNELS = 8 };

static cudaError_t
launch(int i, uint32_t *out, const uint4 *in, cudaStream_t s)
{
	switch (i) {
	case 0:
		return KV_LAUNCH(mma_bf16, 1, 32, 0, s, out);
	case 1:
		return KV_LAUNCH(mma_f16, 1, 32, 0, s, out);
	case 2:
		return KV_LAUNCH(ldmatrix, 1, 32, 0, s, out);
	case 3:
		return KV_LAUNCH(ldmatrix_t, 1, 32, 0, s, out);
	case 4:
		return KV_LAUNCH(copy_async, 1, 32, 0, s, out, in);
	case 5:
		return KV_LAUNCH(shuffles, 1, 32, 0, s, out);
	case 6:
		return KV_LAUNCH(shuffles_of_8, 1, 32, 0, s, out);
	default:
		return KV_LAUNCH(votes, 1, 32, 0, s, out);
	}
}

/* Print the lanes, or compare them with the next 32 lines of `file`; returns how many differ. */
static int
report(const char *name, const uint32_t *words, FILE *file)
{
	char line[96], want[96];
	int differ = 0;

	for (int lane = 0; lane < 32; lane++) {
		const uint32_t *w = words + lane * WORDS;

		snprintf(line, sizeof line, "%s %d %08x %08x %08x %08x\n", name, lane, w[0], w[1], w[2], w[3]);
		if (file == NULL) {
			fputs(line, stdout);
		} else if (fgets(want, sizeof want, file) == NULL || strcmp(line, want) != 0) {
			printf("got  %swant %s", line, strchr(want, '\n') != NULL ? want : "nothing\n");
			differ++;
		}
	}
	return differ;
}

static int
run(FILE *file)
{
	static const char *const names[N_KERNELS] = { "mma_bf16", "mma_f16", "ldmatrix", "ldmatrix_t", "copy_async",
		"shuffles", "shuffles_of_8", "votes" };
	uint32_t host[32 * WORDS], *out = NULL, *in = NULL;
	cudaStream_t stream;
	cudaError_t status;
	int differ = 0;

	for (uint32_t i = 0; i < 32 * WORDS; i++)
		host[i] = 0x01010101u * (i % 200 + 1);
	if ((status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) != cudaSuccess ||
	    (status = cudaMalloc((void **)&out, sizeof host)) != cudaSuccess ||
	    (status = cudaMalloc((void **)&in, sizeof host)) != cudaSuccess ||
	    (status = cudaMemcpyAsync(in, host, sizeof host, cudaMemcpyHostToDevice, stream)) != cudaSuccess)
		goto done;
	for (int i = 0; i < N_KERNELS; i++) {
		if ((status = launch(i, out, (const uint4 *)in, stream)) != cudaSuccess ||
		    (status = cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, stream)) != cudaSuccess ||
		    (status = cudaStreamSynchronize(stream)) != cudaSuccess)
			goto done;
		differ += report(names[i], host, file);
	}
done:
	if (status != cudaSuccess)
		fprintf(stderr, "lanes: %s\n", cudaGetErrorString(status));
	cudaFree(in);
	cudaFree(out);
	return status != cudaSuccess ? 2 : differ > 0;
}

int
main(int argc, char **argv)
{
	FILE *file = NULL;
	int rc;

	if (argc > 2 || (argc == 2 && (file = fopen(argv[1], "r")) == NULL)) {
		fprintf(stderr, argc > 2 ? "usage: lanes [FILE]\n" : "lanes: %s: cannot be read\n", argc > 1 ? argv[1] : "");
		return 2;
	}
	rc = run(file);
	if (file != NULL)
		fclose(file);
	return rc;
}
