/* SPDX-License-Identifier: MIT
 * Errors: what can fail returns an int and takes a struct kv_err * as its last parameter.
 *
 * 0 (KV_OK) is success, KV_END (> 0) a clean end of input, negative values are faults.  Whoever sees the fault writes
 * one sentence with kv_fail(); callers on the way up may put *where* in front of it with kv_where(); only bin/ prints
 * it.
 * Sentences are lower case, without a full stop, and say what to do about it where there is something to do.
 */
#ifndef KV_ERR_H
#define KV_ERR_H

enum kv_status {
	KV_OK = 0,
	KV_END = 1,      /* nothing more to read */
	KV_EFAIL = -1,   /* the work failed, for a reason only the text tells */
	KV_EIO = -2,     /* the system refused: open, read, write, rename */
	KV_EFORMAT = -3, /* bytes that are not what they claim to be */
	KV_ESHAPE = -4,  /* sizes that do not fit each other */
	KV_EARG = -5,    /* a parameter outside its range */
	KV_EMEM = -6,    /* out of memory */
	KV_EDEV = -7,    /* the compute device failed or lacks an operation */
	KV_EMODEL = -8,  /* a model that is unknown, incomplete or not the one expected */
	KV_EPIPE = -9,   /* the reader of our output has gone: ends quietly */
};

#define KV_ERR_TEXT 1024

struct kv_err {
	int code;               /* one of the negative values above; 0 if no fault was recorded */
	char text[KV_ERR_TEXT]; /* one sentence, always terminated; if too long, cut in its middle */
	const void *device;     /* the struct kv_device whose fault it is, a card: the CPU may do better; NULL: none */
};

/* Record a fault (replacing an earlier one) and return code.  e may be NULL. */
int kv_fail(struct kv_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put "WHERE: " in front of the recorded sentence; returns e->code, so that `return kv_where(e, "layer %zu", l)` reads
 * well. */
int kv_where(struct kv_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* KV_EMEM with the size that could not be had. */
int kv_no_memory(struct kv_err *e, unsigned long long bytes);

#endif
