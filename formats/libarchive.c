/* SPDX-License-Identifier: MIT */
#include "formats/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION(name) { #name, offsetof(struct kv_libarchive, name) }

static const struct {
	const char *name;
	size_t at; /* in kv_la */
} functions[] = {
	FUNCTION(archive_entry_filetype),
	FUNCTION(archive_entry_free),
	FUNCTION(archive_entry_hardlink),
	FUNCTION(archive_entry_hardlink_utf8),
	FUNCTION(archive_entry_new),
	FUNCTION(archive_entry_pathname),
	FUNCTION(archive_entry_pathname_utf8),
	FUNCTION(archive_entry_set_filetype),
	FUNCTION(archive_entry_set_gid),
	FUNCTION(archive_entry_set_mtime),
	FUNCTION(archive_entry_set_pathname),
	FUNCTION(archive_entry_set_perm),
	FUNCTION(archive_entry_set_size),
	FUNCTION(archive_entry_set_uid),
	FUNCTION(archive_entry_size),
	FUNCTION(archive_entry_size_is_set),
	FUNCTION(archive_entry_sparse_count),
	FUNCTION(archive_error_string),
	FUNCTION(archive_filter_count),
	FUNCTION(archive_read_data),
	FUNCTION(archive_read_free),
	FUNCTION(archive_read_new),
	FUNCTION(archive_read_next_header),
	FUNCTION(archive_read_open),
	FUNCTION(archive_read_open1),
	FUNCTION(archive_read_set_callback_data),
	FUNCTION(archive_read_set_read_callback),
	FUNCTION(archive_read_set_skip_callback),
	FUNCTION(archive_read_support_filter_gzip),
	FUNCTION(archive_read_support_filter_xz),
	FUNCTION(archive_read_support_filter_zstd),
	FUNCTION(archive_read_support_format_empty),
	FUNCTION(archive_read_support_format_raw),
	FUNCTION(archive_read_support_format_tar),
	FUNCTION(archive_set_error),
	FUNCTION(archive_write_add_filter_gzip),
	FUNCTION(archive_write_add_filter_xz),
	FUNCTION(archive_write_add_filter_zstd),
	FUNCTION(archive_write_close),
	FUNCTION(archive_write_data),
	FUNCTION(archive_write_free),
	FUNCTION(archive_write_header),
	FUNCTION(archive_write_new),
	FUNCTION(archive_write_open),
	FUNCTION(archive_write_set_bytes_per_block),
	FUNCTION(archive_write_set_filter_option),
	FUNCTION(archive_write_set_format_gnutar),
	FUNCTION(archive_write_set_format_raw),
};

struct kv_libarchive kv_la;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why[160]; /* empty: it is open */

static void
find_functions(void *library)
{
	void *p;

	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		if ((p = dlsym(library, functions[i].name)) == NULL)
			snprintf(why, sizeof why, "libarchive has no %s; this needs version 3.5 or later",
			    functions[i].name);
		memcpy((char *)&kv_la + functions[i].at, &p, sizeof p);
	}
}

static void
open_library(void)
{
	static const char *const names[] = { "libarchive.so.13", "libarchive.so" };
	void *library = NULL;

	for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		snprintf(why, sizeof why, "cannot open libarchive (Debian: libarchive13): %.100s", dlerror());
	else
		find_functions(library);
}

int
kv_libarchive_open(struct kv_err *e)
{
	pthread_once(&once, open_library);
	return why[0] == '\0' ? KV_OK : kv_fail(e, KV_EFAIL, "%s", why);
}
