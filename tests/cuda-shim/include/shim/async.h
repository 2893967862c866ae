/* SPDX-License-Identifier: MIT
 * cp.async: a copy happens at some time between its issue and its wait.  Here the place becomes NaN at the issue and
 * the bytes come at the wait, so that whoever looks in between is found out.
 */
#ifndef KV_SHIM_ASYNC_H
#define KV_SHIM_ASYNC_H

struct kv_shim_copy {
	void *to;
	const void *from;
	int bytes; /* of 16; the others become 0 */
	unsigned group;
};

/* The running thread's queue.  add: a copy of the group that is open; take: the oldest one of a group that PENDING
 * later ones have followed, false when there is none. */
void kv_shim_copy_add(void *to, const void *from, int bytes);
bool kv_shim_copy_take(struct kv_shim_copy *copy, int pending);
void kv_shim_copy_commit(void);
bool kv_shim_is_shared(const void *p); /* lies in the block's shared memory */

static inline void
kv_shim_copy_async(void *shared, const void *global, int bytes, KV_SHIM_SITE)
{
	uint32_t *to = (uint32_t *)shared;

	if ((uintptr_t)shared % 16 != 0 || (uintptr_t)global % 16 != 0)
		kv_shim_fault(file, line, "cp.async: %p to %p, not 16-byte aligned", global, shared);
	if (bytes < 0 || bytes > 16)
		kv_shim_fault(file, line, "cp.async: %d of 16 bytes", bytes);
	if (!kv_shim_is_shared(shared))
		kv_shim_fault(file, line, "cp.async: %p is not in the block's shared memory", shared);
	for (int i = 0; i < 4; i++)
		to[i] = 0xffffffffu;
	kv_shim_copy_add(shared, global, bytes);
}

template <int PENDING>
static inline void
kv_shim_copy_wait(void)
{
	struct kv_shim_copy c;

	while (kv_shim_copy_take(&c, PENDING)) {
		unsigned char *to = (unsigned char *)c.to;
		const unsigned char *from = (const unsigned char *)c.from;

		for (int i = 0; i < 16; i++)
			to[i] = i < c.bytes ? from[i] : (unsigned char)0;
	}
}

#endif
