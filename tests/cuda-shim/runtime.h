/* SPDX-License-Identifier: MIT
 * The run-time library's parts and what they share.  Everything happens under one lock.
 */
#ifndef SHIM_RUNTIME_H
#define SHIM_RUNTIME_H

#include <cuda_runtime.h>

#include <functional>
#include <mutex>

/* Held by every function of the run-time library, also while kernels run. */
struct lock {
	lock();
	~lock();
};

/* ---- device.cpp */
int device_count(void);     /* KV_SHIM_DEVICES */
int device_current(void);
size_t device_memory(void); /* KV_SHIM_MEMORY, bytes of each device */
size_t device_shared(void); /* KV_SHIM_SHARED, bytes that a block can ask for: SHARED_OPTIN or less */
/* cudaSuccess; or what a machine without a driver answers to everything. */
cudaError_t device_ready(void);
/* Remember for cudaGetLastError(), and return it. */
cudaError_t failed(cudaError_t status);

/* ---- memory.cpp */
enum kind {
	PAGEABLE, /* the host's, or nobody's */
	PINNED,   /* the host's, and the devices see it */
	DEVICE,
};
enum kind memory_kind(const void *p);
/* Bytes from p to the end of its allocation on the device; 0: p is not in one. */
size_t memory_left(const void *p);
/* Reports unless `bytes` from p lie within one allocation of the device; what, who: for the report. */
void memory_check(const void *p, size_t bytes, const char *who, const char *what);
/* Device memory is for the device: between open and close it can be accessed, else not (KV_SHIM_GUARD=1). */
void memory_open(void);
void memory_close(void);
/* Reports what was written behind the end of an allocation. */
void memory_check_ends(void);
/* What an address is, for a report; in signal handlers as well. */
int memory_describe(char *text, size_t room, const void *p);

/* ---- host.cpp */
bool host_is_pinned(const void *p);

/* ---- stream.cpp */
/* Queue work for a stream; it is done at once, or with KV_SHIM_STREAMS=lazy when somebody waits for it. */
cudaError_t stream_add(cudaStream_t stream, std::function<void()> work);
/* The same for a function that returns when the work is done. */
cudaError_t stream_do(cudaStream_t stream, std::function<void()> work);
void stream_finish_all(void);
/* How often the host has waited for work that was not done yet: with lazy streams whatever it had not waited for. */
size_t stream_waits(void);

#endif
