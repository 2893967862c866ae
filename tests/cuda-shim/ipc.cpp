/* SPDX-License-Identifier: MIT
 * Device memory of another process: a handle names its file (process and descriptor) and a place in it.
 *
 * KV_SHIM_IPC=0: there is nothing of the kind, as in some containers.
 */
#include <cuda_runtime.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "memory.h"
#include "runtime.h"

struct handle {
	char magic[8];
	int32_t process, file, device;
	uint64_t at, page_bytes, n_bytes;
};
static_assert(sizeof(struct handle) <= sizeof(cudaIpcMemHandle_t), "fits the library's handle");
static const char magic[8] = { 'k', 'v', '-', 's', 'h', 'i', 'm', '1' };

static cudaError_t
ipc_ready(void)
{
	const char *text = getenv("KV_SHIM_IPC");

	if (device_ready() != cudaSuccess)
		return device_ready();
	return text == NULL || strcmp(text, "0") != 0 ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p)
{
	struct lock l;
	const struct allocation *a = memory_find(p);
	struct handle h;

	if (ipc_ready() != cudaSuccess)
		return failed(ipc_ready());
	if (a == NULL || a->imported)
		return failed(cudaErrorInvalidValue);
	memset(&h, 0, sizeof(h));
	memcpy(h.magic, magic, sizeof(magic));
	h.process = (int32_t)getpid();
	h.file = memory_file();
	h.device = a->device;
	h.at = (uint64_t)a->at;
	h.page_bytes = a->page_bytes;
	h.n_bytes = a->n_bytes;
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return cudaSuccess;
}

/* A second opening in one process gives the same address. */
static struct allocation *opened[1024];

static cudaError_t
map_handle(void **p, const struct handle *h, const cudaIpcMemHandle_t *name)
{
	const size_t rounded = (h->n_bytes + ALIGN - 1) / ALIGN * ALIGN;
	struct allocation a;
	char path[64];
	bool mapped;
	int file;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h->process, (int)h->file);
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return failed(cudaErrorMapBufferObjectFailed);
	memset(&a, 0, sizeof(a));
	a.pages = memory_place(h->page_bytes);
	mapped = a.pages != NULL && memory_map(a.pages, h->page_bytes, file, (off_t)h->at);
	close(file);
	if (!mapped)
		return failed(cudaErrorMapBufferObjectFailed);
	a.p = a.pages + h->page_bytes - rounded;
	a.n_bytes = h->n_bytes;
	a.page_bytes = h->page_bytes;
	a.device = h->device;
	a.imported = true;
	a.n_opened = 1;
	memcpy(a.handle, name, sizeof(a.handle));
	shim_poison(a.pages, (size_t)(a.p - a.pages));
	shim_poison(a.p + a.n_bytes, rounded - a.n_bytes);
	memory_add(&a);
	*p = a.p;
	return cudaSuccess;
}

cudaError_t
cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t name, unsigned flags)
{
	struct lock l;
	struct handle h;
	cudaError_t status;

	(void)flags;
	if (ipc_ready() != cudaSuccess)
		return failed(ipc_ready());
	memcpy(&h, &name, sizeof(h));
	if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.page_bytes == 0)
		return failed(cudaErrorInvalidValue);
	if (h.process == (int32_t)getpid())
		return failed(cudaErrorDeviceUninitialized); /* as the library refuses its own handles */
	for (auto &place : opened)
		if (place != NULL && memcmp(place->handle, &name, sizeof(name)) == 0) {
			place->n_opened++;
			*p = place->p;
			return cudaSuccess;
		}
	status = map_handle(p, &h, &name);
	for (auto &place : opened)
		if (status == cudaSuccess && place == NULL) {
			place = memory_find(*p);
			break;
		}
	return status;
}

cudaError_t
cudaIpcCloseMemHandle(void *p)
{
	struct lock l;
	struct allocation *a;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	stream_finish_all();
	a = memory_find(p);
	if (a == NULL || a->p != p || !a->imported)
		complain("cudaIpcCloseMemHandle: %p was not opened, or is closed", p);
	if (--a->n_opened > 0)
		return cudaSuccess;
	for (auto &place : opened)
		if (place == a)
			place = NULL;
	memory_drop(a);
	return cudaSuccess;
}
