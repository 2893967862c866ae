/* SPDX-License-Identifier: MIT
 * A compute device by name: the CPU, or the CUDA backend when libkvcuda.so can be opened.
 */
#ifndef KV_DEVICE_H
#define KV_DEVICE_H

#include <stdbool.h>

#include "kernels/backend.h"
#include "lib/err.h"

#define KV_CARD_MAX 64 /* bytes of a card's name, terminator included */

struct kv_device {
	const struct kvk_backend *op; /* the table; NULL: not open */
	struct kvk_dev *dev;          /* its first argument everywhere */
	void *library;                /* dlopen handle, NULL for the CPU */
	const char *name;             /* which one, for kv_device_ready() */
	char card[KV_CARD_MAX];       /* what all processes call it; "": its memory is the host's, or nobody else's */
	unsigned threads;
	enum kvk_precision precision; /* wanted; 0 is f32.  Set it after kv_device_plan(), before the device opens */
	char fallback[KV_ERR_TEXT]; /* why auto took the CPU, "" if it did not */
	/* Told the same at once, when there is a card that should have been fit to use; not when there is none, no
	 * driver or no library.  NULL: nobody.  Set it after kv_device_plan(). */
	void (*unfit)(const char *why);
	bool lent; /* other processes have opened memory of it: it must stay open */
	void *arrivals; /* kv_device_arrivals(); NULL: none yet */
	size_t arrivals_bytes;
};

/* Names are "auto", "cpu", "cuda" and "cuda:N", N from 0 to KV_DEVICE_LAST. */
#define KV_DEVICE_LAST 1023
bool kv_device_is_name(const char *name);

/* Open a device; *d needs no preparation.  name: "auto" (CUDA if there is a usable device, else the CPU), "cpu", "cuda"
 * or "cuda:N"; NULL is auto.  Its precision is f32.  threads 0: all the machine has.  Fails: KV_EARG (unknown name, too
 * many threads), KV_EDEV (with the backend's reason). */
int kv_device_open(struct kv_device *d, const char *name, unsigned threads, struct kv_err *e);
void kv_device_close(struct kv_device *d);

/* Open the device that another process calls `card`, whatever its number is here.  Fails: KV_EDEV. */
int kv_device_open_card(struct kv_device *d, const char *card, struct kv_err *e);

/* A device that is opened when it is first needed: many runs never do.  Whoever computes calls ready() before anything
 * else here, with the operations of the table that it is going to call, separated by spaces; it costs next to nothing
 * when the device is open.  auto opens the CPU if CUDA lacks one of them.  name must stay.
 * Fails: as kv_device_open(), and with KV_EDEV, naming an operation that an open device lacks. */
void kv_device_plan(struct kv_device *d, const char *name, unsigned threads);
int kv_device_ready(struct kv_device *d, const char *ops, struct kv_err *e);

/* auto takes another device than the one that it began with.  Whoever has a piece of work of which nothing has been
 * handed on yet asks, when it ended in the fault e (rc, which is negative), whether to do it again: KV_OK, if that is a
 * fault of a card (out of memory, mostly) that auto had chosen.  The card is closed then, all its memory is gone, and
 * the CPU is open in *d in its place; `fallback` and unfit() tell; e is as if nothing had happened.  Before, the caller
 * gives back what it has on the card, or forgets it: kv_device_can_fall_back() tells without doing anything.
 * Else rc, and e stays; or why the CPU cannot be opened. */
int kv_device_fall_back(struct kv_device *d, int rc, struct kv_err *e);
bool kv_device_can_fall_back(const struct kv_device *d, const struct kv_err *e);

/* The precision in use: never auto.  It is going to be told, so that it stays whatever device *d becomes. */
enum kvk_precision kv_device_precision(struct kv_device *d);

/* The CUDA library is the one that KV_CUDA_LIBRARY names; else libkvcuda.so in ../lib, .. or the folder of the running
 * program; else whichever the dynamic loader finds. */

/* All devices by name, with a line about each: "cpu", and "cuda:0", "cuda:1", ..., or "cuda" with why there is none
 * that can be used.  fn returns KV_OK, or a fault that ends the list. */
typedef int kv_device_fn(void *ctx, const char *name, bool usable, const char *text);
int kv_device_list(kv_device_fn *fn, void *ctx);

/* What opening asks of a table: our interface version, and the calls for opening, memory and errors.  Fails: KV_EDEV,
 * naming what is missing. */
int kv_device_check_table(const struct kvk_backend *t, struct kv_err *e);

/* A program that has a second device open says which one its calls are for; one that is not open, or has no card's
 * name, is fine. */
int kv_device_use(const struct kv_device *d, struct kv_err *e);

/* The fault rc (negative) that e has is this device's, if that is a card: see kv_device_fall_back().  Returns rc. */
int kv_device_blame(const struct kv_device *d, int rc, struct kv_err *e);

/* Turn a backend's status into ours: KV_OK for 0, else KV_EDEV with "cpu: WHAT: reason", a fault of the device's.
 * what: the operation, or where it is used, "embedding"; left out where the reason begins with it. */
int kv_device_check(const struct kv_device *d, int status, const char *what, struct kv_err *e);

#endif
