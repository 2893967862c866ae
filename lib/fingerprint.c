/* SPDX-License-Identifier: MIT */
#include "lib/fingerprint.h"

#include <stdint.h>
#include <stdlib.h>
#include <xxhash.h>

#define WHOLE  ((size_t)4 << 20)  /* up to here every byte counts */
#define EDGE   ((size_t)1 << 20)  /* bytes at each end of a longer range */
#define PIECE  ((size_t)16 << 10) /* and evenly spaced pieces between them */
#define PIECES 64

struct kv_fingerprint {
	XXH3_state_t *state;
};

struct kv_fingerprint *
kv_fingerprint_new(void)
{
	struct kv_fingerprint *f = malloc(sizeof *f);

	if (f == NULL || (f->state = XXH3_createState()) == NULL) {
		free(f);
		return NULL;
	}
	XXH3_128bits_reset(f->state);
	return f;
}

void
kv_fingerprint_add(struct kv_fingerprint *f, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	unsigned char size[8];

	if (n <= WHOLE) {
		XXH3_128bits_update(f->state, p, n);
		return;
	}
	for (int i = 0; i < 8; i++)
		size[i] = (unsigned char)((unsigned long long)n >> 8 * i);
	XXH3_128bits_update(f->state, size, sizeof size);
	XXH3_128bits_update(f->state, p, EDGE);
	for (size_t i = 0; i < PIECES; i++)
		XXH3_128bits_update(f->state, p + EDGE + i * ((n - 2 * EDGE) / PIECES), PIECE);
	XXH3_128bits_update(f->state, p + n - EDGE, EDGE);
}

void
kv_fingerprint_take(struct kv_fingerprint *f, char hex[33])
{
	static const char digits[] = "0123456789abcdef";
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(f->state));
	for (int i = 0; i < 16; i++) {
		hex[2 * i] = digits[c.digest[i] >> 4];
		hex[2 * i + 1] = digits[c.digest[i] & 15];
	}
	hex[32] = '\0';
	XXH3_freeState(f->state);
	free(f);
}
