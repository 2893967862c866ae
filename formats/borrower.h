/* SPDX-License-Identifier: MIT
 * Payloads that a stream only refers to: they lie in a file, or in the memory of the program that made them (STREAM.md,
 * References).  Nothing is believed: what is referred to is checked before it is mapped.
 */
#ifndef KV_BORROWER_H
#define KV_BORROWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device.h"
#include "lib/err.h"

#define KV_LENT_STAMP 64 /* so many bytes before a payload in memory that was lent stand the 8 of its stamp */

/* Where a payload lies. */
struct kv_reference {
	const char *path; /* absolute; NULL: it lies in the stream itself */
	uint64_t at;      /* its first byte */
	bool is_memory;   /* of a running program: in a memfd that was lent */
	uint64_t stamp;   /* of memory: which loan this is */
	const char *card; /* of memory: not the payload lies there but a struct kv_device_payload, which says where on
			     this card; or NULL */
	uint64_t size;    /* of a file: its bytes; one of another size or date is refused */
	int64_t mtime_ns; /* when it was modified last, in ns since 1970 */
};

/* A payload in the memory of a card. */
struct kv_device_payload {
	struct kvk_handle handle; /* it begins where this memory begins */
	uint64_t bytes;           /* of the memory, or fewer */
};

/* size and mtime_ns of an open file.  Fails: KV_EIO. */
int kv_reference_date(struct kv_reference *r, int fd, struct kv_err *e);

struct kv_loan;

/* The loans of one stream.  Zeros are none. */
struct kv_borrower {
	struct kv_lent *lent; /* [n_lent] files */
	size_t n_lent;
	struct kv_loan *loans;    /* the last one first */
	struct kv_device *device; /* of the program: what it borrows, and what it copies with; NULL: it has none */
	struct kv_device other;   /* opened to copy from another card */
};

/* Note a payload of `bytes` that was referred to; *loan lives until kv_borrower_return().  A program's memory is held
 * from now on.  Fails: KV_EMEM. */
int kv_borrow(struct kv_borrower *b, const struct kv_reference *r, size_t bytes, struct kv_loan **loan,
    struct kv_err *e);
/* Its bytes, mapped, or copied to the host from a card.  all: all of them will be read; else their pages come as they
 * are touched.  Fails: KV_EIO, saying what became of it and what to do; KV_EMEM. */
int kv_loan_map(struct kv_loan *l, bool all, const void **data, struct kv_err *e);
/* Where it lies on the program's own device, which is opened to find out; KV_END: it does not.  Fails: as
 * kv_loan_map(), and as the device does. */
int kv_loan_on_device(struct kv_loan *l, const void **on_device, struct kv_err *e);
/* The program has done with what kv_loan_on_device() gave it.  NULL is fine. */
void kv_loan_leave(struct kv_loan *l);
bool kv_loan_is_memory(const struct kv_loan *l);
/* The reference has gone on to the next program, which will give it back. */
void kv_loan_pass(struct kv_loan *l);
/* What the message about bytes that are not what they should be calls their place; NULL: no loan, "". */
const char *kv_loan_path(const struct kv_loan *l);

/* All loans but one (NULL: all) are done with: unmapped, and what was not passed on is given back to the program that
 * lent it. */
void kv_borrower_return(struct kv_borrower *b, struct kv_loan *but);
void kv_borrower_fini(struct kv_borrower *b);

#endif
