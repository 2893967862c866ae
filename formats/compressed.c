/* SPDX-License-Identifier: MIT */
#include "formats/compressed.h"
#include "formats/libarchive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CHUNK_IN  ((size_t)64 << 10) /* handed out at a time: kv_source_taken() is that exact */
#define CHUNK_OUT ((size_t)64 << 20) /* libarchive's gzip counts in 32 bits */
#define GZIP_TAIL 8                  /* bytes behind gzip's data: CRC-32 and length, little-endian */

/* Flags of a zstd frame (RFC 8878, 3.1.1.1): behind the magic number. */
#define ZSTD_FLAGS_AT  4
#define ZSTD_CHECKSUM  0x04
#define ZSTD_SUM_BYTES 4

static const struct codec {
	const char *suffix, *name;
	unsigned char magic[6];
	size_t n_magic;
	int (**read)(struct archive *); /* in kv_la */
	int (**write)(struct archive *);
} codecs[] = {
	{ ".zst", "zstd", { 0x28, 0xb5, 0x2f, 0xfd }, 4, &kv_la.archive_read_support_filter_zstd,
	    &kv_la.archive_write_add_filter_zstd },
	{ ".gz", "gzip", { 0x1f, 0x8b, 8 }, 3, &kv_la.archive_read_support_filter_gzip,
	    &kv_la.archive_write_add_filter_gzip },
	{ ".xz", "xz", { 0xfd, '7', 'z', 'X', 'Z', 0 }, 6, &kv_la.archive_read_support_filter_xz,
	    &kv_la.archive_write_add_filter_xz },
};
#define N_CODECS (sizeof codecs / sizeof codecs[0])

static const struct codec *const zstd = &codecs[0], *const gzip = &codecs[1];

/* ---- reading */

struct expander {
	struct kv_source raw;
	const struct codec *codec;
	struct archive *a;
	size_t lent; /* of raw's bytes, with libarchive until it asks for more */
	bool raw_ended, ended;
	struct kv_err err; /* the fault of raw, if there was one */
	/* gzip: what its trailer has to say */
	unsigned char tail[GZIP_TAIL];
	uint32_t crc, length, crc_table[256];
};

static void
expander_free(void *ctx)
{
	struct expander *x = ctx;

	if (x->a != NULL)
		kv_la.archive_read_free(x->a);
	kv_source_close(&x->raw);
	free(x);
}

/* The last GZIP_TAIL bytes of all that raw has given. */
static void
keep_tail(struct expander *x, const unsigned char *p, size_t n)
{
	size_t keep = n < GZIP_TAIL ? GZIP_TAIL - n : 0;

	memmove(x->tail, x->tail + GZIP_TAIL - keep, keep);
	memcpy(x->tail + keep, p + n - (GZIP_TAIL - keep), GZIP_TAIL - keep);
}

static la_ssize_t
lend(struct archive *a, void *ctx, const void **bytes)
{
	struct expander *x = ctx;
	int rc;

	kv_source_skip(&x->raw, x->lent);
	x->lent = 0;
	if ((rc = kv_source_peek(&x->raw, 1, &x->err)) < 0) {
		kv_la.archive_set_error(a, EIO, "%s", x->err.text);
		return -1;
	}
	x->lent = x->raw.have < CHUNK_IN ? x->raw.have : CHUNK_IN;
	x->raw_ended = x->lent == 0;
	*bytes = x->raw.at;
	if (x->lent > 0)
		keep_tail(x, x->raw.at, x->lent);
	return (la_ssize_t)x->lent;
}

static int
expander_fault(struct expander *x, struct kv_err *e)
{
	const char *why = kv_la.archive_error_string(x->a);

	if (x->err.code < 0)
		return kv_fail(e, x->err.code, "%s", x->err.text);
	if (x->raw_ended)
		return kv_fail(e, KV_EFORMAT, "the %s data is cut short, or damaged (%s)", x->codec->name,
		    why != NULL ? why : "its end is missing");
	return kv_fail(
	    e, KV_EFORMAT, "the %s data is damaged (%s)", x->codec->name, why != NULL ? why : "no reason given");
}

/* The CRC of gzip (RFC 1952, 8), which libarchive does not compare. */
static void
crc_init(uint32_t table[256])
{
	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320 : table[i] >> 1;
	}
}

static void
crc_add(struct expander *x, const unsigned char *p, size_t n)
{
	uint32_t crc = ~x->crc;

	for (size_t i = 0; i < n; i++)
		crc = crc >> 8 ^ x->crc_table[(crc ^ p[i]) & 0xff];
	x->crc = ~crc;
	x->length += (uint32_t)n;
}

static uint32_t
little_endian(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int
check_end(struct expander *x, struct kv_err *e)
{
	if (x->codec != gzip || (little_endian(x->tail) == x->crc && little_endian(x->tail + 4) == x->length))
		return KV_OK;
	return kv_fail(
	    e, KV_EFORMAT, "the gzip data is damaged: its checksum does not fit (or it was joined from several)");
}

static int
expander_pull(void *ctx, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct expander *x = ctx;
	la_ssize_t r;

	*got = 0;
	if (x->ended || n == 0)
		return KV_OK;
	if ((r = kv_la.archive_read_data(x->a, dst, n)) < 0)
		return expander_fault(x, e);
	*got = (size_t)r;
	if (x->codec == gzip)
		crc_add(x, dst, *got);
	if (r > 0)
		return KV_OK;
	x->ended = true;
	return check_end(x, e);
}

static int
expander_open(struct expander *x, struct kv_err *e)
{
	struct archive_entry *entry;
	int r;

	if ((r = kv_libarchive_open(e)) < 0)
		return r;
	if ((x->a = kv_la.archive_read_new()) == NULL)
		return kv_no_memory(e, 0);
	if (x->codec == gzip)
		crc_init(x->crc_table);
	if ((*x->codec->read)(x->a) < ARCHIVE_WARN || kv_la.archive_read_support_format_raw(x->a) != ARCHIVE_OK ||
	    kv_la.archive_read_support_format_empty(x->a) != ARCHIVE_OK)
		return expander_fault(x, e);
	if (kv_la.archive_read_open(x->a, x, NULL, lend, NULL) != ARCHIVE_OK ||
	    (r = kv_la.archive_read_next_header(x->a, &entry)) < ARCHIVE_OK)
		return expander_fault(x, e);
	/* the filters are ours and the reading itself; ours is not there when it finds its head too short */
	if (kv_la.archive_filter_count(x->a) > 2)
		return kv_fail(e, KV_EFORMAT, "compressed twice");
	if (kv_la.archive_filter_count(x->a) < 2)
		return kv_fail(e, KV_EFORMAT, "the %s data is cut short, or damaged", x->codec->name);
	x->ended = r == ARCHIVE_EOF; /* compressed nothing */
	return KV_OK;
}

int
kv_source_expand(struct kv_source *s, struct kv_err *e)
{
	const struct codec *c = NULL;
	struct expander *x;
	char *name;
	int rc;

	if ((rc = kv_source_peek(s, sizeof c->magic, e)) < 0)
		return rc;
	for (size_t i = 0; i < N_CODECS; i++)
		if (s->have >= codecs[i].n_magic && memcmp(s->at, codecs[i].magic, codecs[i].n_magic) == 0)
			c = &codecs[i];
	if (c == NULL)
		return KV_OK;
	name = strdup(s->name);
	if (name == NULL || (x = kv_alloc(1, sizeof *x, e)) == NULL) {
		free(name);
		return kv_no_memory(e, sizeof *x);
	}
	x->codec = c;
	kv_source_unmap(s);
	x->raw = *s;
	*s = (struct kv_source){
		.name = name, .fd = -1, .pull = expander_pull, .ctx = x, .drop = expander_free, .below = &x->raw
	};
	return expander_open(x, e);
}

/* ---- writing */

struct kv_compressor {
	const struct codec *codec;
	struct archive *a;
	int fd;
	uint64_t n_out;    /* bytes that left */
	struct kv_err err; /* why they could not */
	bool dropped;      /* what comes now is nobody's */
	bool add_sum;      /* zstd: the frame is ours to complete */
	XXH64_state_t *sum;
};

static const struct codec *
codec_of(const char *path)
{
	size_t n = strlen(path), m;

	for (size_t i = 0; i < N_CODECS; i++)
		if ((m = strlen(codecs[i].suffix)) < n && strcmp(path + n - m, codecs[i].suffix) == 0)
			return &codecs[i];
	return NULL;
}

bool
kv_compressed_name(const char *path)
{
	return codec_of(path) != NULL;
}

/* libarchive has no way to ask for zstd's checksum.  It is a flag in the frame's head and four bytes behind its last
 * block, so that it can be added on the way out. */
static int
put_zstd_head(struct kv_compressor *c, const unsigned char *p, size_t n)
{
	unsigned char head[ZSTD_FLAGS_AT + 1];

	memcpy(head, p, sizeof head);
	c->add_sum = !(head[ZSTD_FLAGS_AT] & ZSTD_CHECKSUM);
	head[ZSTD_FLAGS_AT] |= ZSTD_CHECKSUM;
	if (kv_write_all(c->fd, head, sizeof head, &c->err) < 0)
		return -1;
	return kv_write_all(c->fd, p + sizeof head, n - sizeof head, &c->err);
}

static la_ssize_t
put_out(struct archive *a, void *ctx, const void *bytes, size_t n)
{
	struct kv_compressor *c = ctx;
	bool head = c->codec == zstd && c->n_out == 0 && n > ZSTD_FLAGS_AT;

	if (c->dropped)
		return (la_ssize_t)n;
	if ((head ? put_zstd_head(c, bytes, n) : kv_write_all(c->fd, bytes, n, &c->err)) < 0) {
		kv_la.archive_set_error(a, EIO, "%s", c->err.text);
		return -1;
	}
	c->n_out += n;
	return (la_ssize_t)n;
}

static int
compressor_fault(struct kv_compressor *c, struct kv_err *e)
{
	const char *why = kv_la.archive_error_string(c->a);

	if (c->err.code < 0)
		return kv_fail(e, c->err.code, "%s", c->err.text);
	return kv_fail(e, KV_EFAIL, "cannot compress: %s", why != NULL ? why : "no reason given");
}

static int
compressor_open(struct kv_compressor *c, struct kv_err *e)
{
	struct archive_entry *entry;
	int rc = kv_libarchive_open(e);

	if (rc < 0)
		return rc;
	entry = kv_la.archive_entry_new();
	c->a = kv_la.archive_write_new();
	c->sum = XXH64_createState();
	if (entry == NULL || c->a == NULL || c->sum == NULL) {
		rc = kv_no_memory(e, 0);
		goto done;
	}
	XXH64_reset(c->sum, 0);
	kv_la.archive_entry_set_filetype(entry, AE_IFREG);
	if ((*c->codec->write)(c->a) != ARCHIVE_OK || kv_la.archive_write_set_format_raw(c->a) != ARCHIVE_OK ||
	    kv_la.archive_write_set_bytes_per_block(c->a, 0) != ARCHIVE_OK)
		rc = compressor_fault(c, e);
	else if (c->codec == gzip &&
		 kv_la.archive_write_set_filter_option(c->a, "gzip", "timestamp", NULL) != ARCHIVE_OK)
		rc = compressor_fault(c, e);
	else if (kv_la.archive_write_open(c->a, c, NULL, put_out, NULL) != ARCHIVE_OK ||
		 kv_la.archive_write_header(c->a, entry) != ARCHIVE_OK)
		rc = compressor_fault(c, e);
done:
	kv_la.archive_entry_free(entry);
	return rc;
}

int
kv_compressor_new(struct kv_compressor **out, const char *path, int fd, struct kv_err *e)
{
	struct kv_compressor *c = *out = kv_alloc(1, sizeof *c, e);
	int rc;

	if (c == NULL)
		return KV_EMEM;
	c->codec = codec_of(path);
	c->fd = fd;
	if (c->codec == NULL)
		rc = kv_fail(e, KV_EARG, "%s: ends neither in .zst nor in .gz nor in .xz", path);
	else
		rc = compressor_open(c, e);
	if (rc < 0) {
		kv_compressor_free(c);
		*out = NULL;
	}
	return rc;
}

int
kv_compressor_write(struct kv_compressor *c, const void *bytes, size_t n, struct kv_err *e)
{
	const char *p = bytes;
	la_ssize_t put;

	for (; n > 0; p += put, n -= (size_t)put) {
		put = kv_la.archive_write_data(c->a, p, n < CHUNK_OUT ? n : CHUNK_OUT);
		if (put <= 0)
			return compressor_fault(c, e);
		if (c->codec == zstd)
			XXH64_update(c->sum, p, (size_t)put);
	}
	return KV_OK;
}

int
kv_compressor_finish(struct kv_compressor *c, struct kv_err *e)
{
	XXH64_hash_t sum = XXH64_digest(c->sum);
	unsigned char bytes[ZSTD_SUM_BYTES];

	if (kv_la.archive_write_close(c->a) != ARCHIVE_OK)
		return compressor_fault(c, e);
	if (!c->add_sum)
		return KV_OK;
	for (int i = 0; i < ZSTD_SUM_BYTES; i++)
		bytes[i] = (unsigned char)(sum >> 8 * i);
	return kv_write_all(c->fd, bytes, sizeof bytes, e);
}

void
kv_compressor_free(struct kv_compressor *c)
{
	if (c == NULL)
		return;
	c->dropped = true;
	if (c->a != NULL) {
		kv_la.archive_write_close(c->a); /* the codec's memory is freed here alone, after an error too */
		kv_la.archive_write_free(c->a);
	}
	XXH64_freeState(c->sum);
	free(c);
}
