/* SPDX-License-Identifier: MIT
 * A launch: arguments are checked and copied, the kernel runs when its stream comes to it.
 */
#ifndef KV_SHIM_LAUNCH_H
#define KV_SHIM_LAUNCH_H

#include <string.h>
#include <tuple>
#include <type_traits>

/* Launch bounds: as many bytes of no-ops before the kernel as it may have warps, and their place in a section of the
 * program (launch.cpp reads it).  They are never executed.  clang takes no number that depends on a template. */
#if defined(__clang__)
#define KV_SHIM_BOUND(threads)
#else
#define KV_SHIM_BOUND(threads) __attribute__((patchable_function_entry((threads) / 32, (threads) / 32)))
#endif

struct kv_shim_job {
	const char *name;
	const void *kernel; /* its address: attributes are kept by it */
	dim3 grid, block;
	size_t bytes; /* dynamic shared memory */
	cudaStream_t stream;
	void (*call)(void *arguments);
	void (*drop)(void *arguments);
	void *arguments; /* the engine's from now on */
};

cudaError_t kv_shim_submit(const struct kv_shim_job *job);
/* Reports when argument `which` points to memory of the host that the device cannot see.  In a struct a word that only
 * happens to look like a pointer must pass: `sure` is false there. */
void kv_shim_check_pointer(const char *kernel, int which, const void *p, bool sure);

template <typename T>
static inline void
kv_shim_check_argument(const char *kernel, int which, const T &x)
{
	if constexpr (std::is_pointer<T>::value) {
		kv_shim_check_pointer(kernel, which, (const void *)x, true);
	} else if constexpr (std::is_class<T>::value) {
#if !defined(__clang__) /* which cannot tell what is padding, and it holds anything */
		T copy = x;

		__builtin_clear_padding(&copy);
		for (size_t at = 0; at + sizeof(void *) <= sizeof(T); at += sizeof(void *)) {
			const void *p;

			memcpy(&p, (const char *)(const void *)&copy + at, sizeof(p));
			kv_shim_check_pointer(kernel, which, p, false);
		}
#endif
	}
}

template <typename... P>
struct kv_shim_call {
	void (*kernel)(P...);
	std::tuple<P...> arguments;

	static void
	run(void *call)
	{
		struct kv_shim_call *c = (struct kv_shim_call *)call;

		std::apply(c->kernel, c->arguments);
	}

	static void
	drop(void *call)
	{
		delete (struct kv_shim_call *)call;
	}
};

template <typename... P, typename... A>
static inline cudaError_t
kv_shim_launch(const char *name, dim3 grid, dim3 block, size_t bytes, cudaStream_t stream, void (*kernel)(P...),
    A... arguments)
{
	static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
	typedef kv_shim_call<P...> call;
	call *c = new call{ kernel, std::tuple<P...>((P)arguments...) };
	int which = 0;

	std::apply([&](const P &...x) { (kv_shim_check_argument(name, which++, x), ...); }, c->arguments);

	const struct kv_shim_job job = { name, (const void *)kernel, grid, block, bytes, stream, call::run, call::drop,
		c };

	return kv_shim_submit(&job);
}

/* nvcc's overloads that take a kernel as it is. */
template <typename... P>
static inline cudaError_t
cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attribute, int value)
{
	return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

template <typename... P>
static inline cudaError_t
cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, void (*kernel)(P...))
{
	return cudaFuncGetAttributes(attributes, (const void *)kernel);
}

#endif
