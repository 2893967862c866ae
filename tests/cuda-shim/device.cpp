/* SPDX-License-Identifier: MIT
 * What the device says of itself (a card of compute capability 9.0, an H100's limits), and errors.
 *
 * KV_SHIM_DEVICES: how many there are (1); 0 answers like a machine without a driver.
 * KV_SHIM_DRIVER: the version of CUDA that there is a driver for (this one's, or 0 without devices).
 * KV_SHIM_MEMORY: bytes of memory of each (8G); K, M and G are understood.
 * KV_SHIM_FAILED: not 0, a kernel has gone wrong: everything is answered with its fault, while this is set.
 * KV_SHIM_SHARED: bytes of shared memory that a block can ask for (227K, and at most that).
 */
#include <cuda_runtime.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "runtime.h"

static thread_local cudaError_t last_error;
static thread_local int current;

/* For good, whoever closes the library: what it holds would look like leaks, and threads may still be inside. */
__attribute__((constructor)) static void
stay(void)
{
	Dl_info me;

	if (dladdr((void *)stay, &me) != 0 && me.dli_fname != NULL)
		(void)dlopen(me.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

int
device_count(void)
{
	const char *text = getenv("KV_SHIM_DEVICES");

	return text == NULL ? 1 : atoi(text);
}

int
device_current(void)
{
	return current;
}

/* What the environment says: 512, 99K, 8G. */
static size_t
bytes_of(const char *variable, size_t usual)
{
	static const char units[] = "KMG";
	const char *text = getenv(variable), *unit;
	char *end;
	size_t bytes;

	if (text == NULL)
		return usual;
	bytes = strtoull(text, &end, 10);
	unit = *end == '\0' ? NULL : strchr(units, *end);
	return unit == NULL ? bytes : bytes << (10 * (unit - units + 1));
}

size_t
device_memory(void)
{
	return bytes_of("KV_SHIM_MEMORY", (size_t)8 << 30);
}

size_t
device_shared(void)
{
	const size_t bytes = bytes_of("KV_SHIM_SHARED", SHARED_OPTIN);

	return bytes < SHARED_OPTIN ? bytes : (size_t)SHARED_OPTIN;
}

static int
driver(void)
{
	const char *text = getenv("KV_SHIM_DRIVER");

	return text != NULL ? atoi(text) : device_count() > 0 ? CUDART_VERSION : 0;
}

cudaError_t
device_ready(void)
{
	const char *text = getenv("KV_SHIM_FAILED");

	if (driver() < CUDART_VERSION)
		return cudaErrorInsufficientDriver;
	if (device_count() == 0)
		return cudaErrorNoDevice;
	return text == NULL || strcmp(text, "0") == 0 ? cudaSuccess : cudaErrorIllegalAddress;
}

cudaError_t
failed(cudaError_t status)
{
	last_error = status;
	return status;
}

cudaError_t
cudaGetLastError(void)
{
	const cudaError_t status = last_error;

	last_error = cudaSuccess;
	return status;
}

cudaError_t
cudaPeekAtLastError(void)
{
	return last_error;
}

static const struct {
	cudaError_t status;
	const char *name, *text;
} errors[] = {
	{ cudaSuccess, "cudaSuccess", "no error" },
	{ cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
	{ cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
	{ cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
	{ cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy" },
	{ cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
	    "CUDA driver version is insufficient for CUDA runtime version" },
	{ cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
	{ cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
	{ cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context" },
	{ cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed" },
	{ cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
	{ cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
	{ cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
	    "part or all of the requested memory range is already mapped" },
	{ cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
	{ cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported" },
};

const char *
cudaGetErrorString(cudaError_t status)
{
	for (const auto &e : errors)
		if (e.status == status)
			return e.text;
	return "unrecognized error code";
}

const char *
cudaGetErrorName(cudaError_t status)
{
	for (const auto &e : errors)
		if (e.status == status)
			return e.name;
	return "unrecognized error code";
}

cudaError_t
cudaGetDeviceCount(int *n)
{
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*n = device_count();
	return cudaSuccess;
}

static cudaError_t
check_device(int device)
{
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	return device < 0 || device >= device_count() ? failed(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
	const cudaError_t status = check_device(device);

	if (status == cudaSuccess)
		current = device;
	return status;
}

cudaError_t
cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
	(void)device_flags;
	(void)flags;
	return check_device(device);
}

cudaError_t
cudaSetDeviceFlags(unsigned flags)
{
	(void)flags;
	return check_device(current);
}

cudaError_t
cudaGetDevice(int *device)
{
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*device = current;
	return cudaSuccess;
}

cudaError_t
cudaDeviceReset(void)
{
	return cudaDeviceSynchronize();
}

cudaError_t
cudaDriverGetVersion(int *version)
{
	*version = driver();
	return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	const cudaError_t status = check_device(device);

	if (status != cudaSuccess)
		return status;
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "CUDA on CPU (test shim)");
	p->uuid.bytes[0] = (char)(device + 1);
	p->pciBusID = device + 1;
	p->totalGlobalMem = device_memory();
	p->sharedMemPerBlock = SHARED_DEFAULT;
	p->sharedMemPerBlockOptin = device_shared();
	p->sharedMemPerMultiprocessor = device_shared() + SHARED_OWN;
	p->reservedSharedMemPerBlock = SHARED_OWN;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536;
	p->warpSize = LANES;
	p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = MAX_THREADS;
	p->maxThreadsDim[2] = 64;
	p->maxGridSize[0] = 2147483647;
	p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->memPitch = 2147483647;
	p->totalConstMem = 65536;
	p->textureAlignment = 512;
	p->major = 9;
	p->minor = 0;
	p->multiProcessorCount = 132;
	p->maxThreadsPerMultiProcessor = 2048;
	p->maxBlocksPerMultiProcessor = 32;
	p->l2CacheSize = 50 << 20;
	p->memoryBusWidth = 5120;
	p->asyncEngineCount = 3;
	p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
	p->hostRegisterSupported = p->memoryPoolsSupported = 1;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	struct cudaDeviceProp p;
	const cudaError_t status = cudaGetDeviceProperties(&p, device);
	const struct {
		enum cudaDeviceAttr attribute;
		int value;
	} known[] = {
		{ cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock },
		{ cudaDevAttrMaxGridDimX, p.maxGridSize[0] },
		{ cudaDevAttrMaxGridDimY, p.maxGridSize[1] },
		{ cudaDevAttrMaxGridDimZ, p.maxGridSize[2] },
		{ cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock },
		{ cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin },
		{ cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor },
		{ cudaDevAttrReservedSharedMemoryPerBlock, (int)p.reservedSharedMemPerBlock },
		{ cudaDevAttrWarpSize, p.warpSize },
		{ cudaDevAttrMultiProcessorCount, p.multiProcessorCount },
		{ cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor },
		{ cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor },
		{ cudaDevAttrComputeCapabilityMajor, p.major },
		{ cudaDevAttrComputeCapabilityMinor, p.minor },
		{ cudaDevAttrL2CacheSize, p.l2CacheSize },
		{ cudaDevAttrAsyncEngineCount, p.asyncEngineCount },
		{ cudaDevAttrUnifiedAddressing, p.unifiedAddressing },
		{ cudaDevAttrMemoryPoolsSupported, p.memoryPoolsSupported },
		{ cudaDevAttrHostRegisterSupported, p.hostRegisterSupported },
		{ cudaDevAttrCanMapHostMemory, p.canMapHostMemory },
		{ cudaDevAttrIntegrated, 0 },
		{ cudaDevAttrPageableMemoryAccess, 0 },
		{ cudaDevAttrComputeMode, 0 },
	};

	for (const auto &k : known)
		if (status == cudaSuccess && k.attribute == attribute) {
			*value = k.value;
			return cudaSuccess;
		}
	return status != cudaSuccess ? status : failed(cudaErrorInvalidValue);
}
