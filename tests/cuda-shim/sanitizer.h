/* SPDX-License-Identifier: MIT
 * What the engine tells the sanitizers.  Weak, so that one build of the engine serves all: the functions are there when
 * the program that loads the library has a sanitizer.  The engine itself is never instrumented.
 */
#ifndef SHIM_SANITIZER_H
#define SHIM_SANITIZER_H

#include <stddef.h>

extern "C" {
#define SHIM_WEAK __attribute__((weak))
SHIM_WEAK void __asan_poison_memory_region(void const volatile *p, size_t bytes);
SHIM_WEAK void __asan_unpoison_memory_region(void const volatile *p, size_t bytes);
SHIM_WEAK void __asan_set_error_report_callback(void (*callback)(const char *report));
SHIM_WEAK void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t bytes);
SHIM_WEAK void __sanitizer_finish_switch_fiber(void *saved, const void **old_bottom, size_t *old_bytes);
SHIM_WEAK void *__tsan_get_current_fiber(void);
SHIM_WEAK void *__tsan_create_fiber(unsigned flags);
SHIM_WEAK void __tsan_set_fiber_name(void *fiber, const char *name);
SHIM_WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
SHIM_WEAK void __tsan_acquire(void *p);
SHIM_WEAK void __tsan_release(void *p);
#undef SHIM_WEAK
}

static inline void
shim_poison(const void *p, size_t bytes)
{
	if (__asan_poison_memory_region != NULL)
		__asan_poison_memory_region(p, bytes);
}

static inline void
shim_unpoison(const void *p, size_t bytes)
{
	if (__asan_unpoison_memory_region != NULL)
		__asan_unpoison_memory_region(p, bytes);
}

static inline bool
shim_has_asan(void)
{
	return __asan_poison_memory_region != NULL;
}

static inline bool
shim_has_tsan(void)
{
	return __tsan_create_fiber != NULL;
}

/* memset() that no sanitizer sees, though it replaces the C library's. */
static inline void
shim_fill(void *p, unsigned char value, size_t bytes)
{
#if defined(__x86_64__)
	__asm__ volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(value) : "memory");
#else
	for (volatile unsigned char *to = (volatile unsigned char *)p; bytes > 0; bytes--)
		*to++ = value;
#endif
}

static inline void
shim_acquire(void *p)
{
	if (shim_has_tsan())
		__tsan_acquire(p);
}

static inline void
shim_release(void *p)
{
	if (shim_has_tsan())
		__tsan_release(p);
}

#endif
