/* SPDX-License-Identifier: MIT
 * libarchive, opened when it is first needed: with the libraries that it brings along it takes most of the time that a
 * program of ours needs to start, and few streams are compressed.
 */
#ifndef KV_LIBARCHIVE_H
#define KV_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

#include "lib/err.h"

/* Its functions by their own names; NULL until kv_libarchive_open(). */
struct kv_libarchive {
	__typeof__(&archive_entry_filetype) archive_entry_filetype;
	__typeof__(&archive_entry_free) archive_entry_free;
	__typeof__(&archive_entry_hardlink) archive_entry_hardlink;
	__typeof__(&archive_entry_hardlink_utf8) archive_entry_hardlink_utf8;
	__typeof__(&archive_entry_new) archive_entry_new;
	__typeof__(&archive_entry_pathname) archive_entry_pathname;
	__typeof__(&archive_entry_pathname_utf8) archive_entry_pathname_utf8;
	__typeof__(&archive_entry_set_filetype) archive_entry_set_filetype;
	__typeof__(&archive_entry_set_gid) archive_entry_set_gid;
	__typeof__(&archive_entry_set_mtime) archive_entry_set_mtime;
	__typeof__(&archive_entry_set_pathname) archive_entry_set_pathname;
	__typeof__(&archive_entry_set_perm) archive_entry_set_perm;
	__typeof__(&archive_entry_set_size) archive_entry_set_size;
	__typeof__(&archive_entry_set_uid) archive_entry_set_uid;
	__typeof__(&archive_entry_size) archive_entry_size;
	__typeof__(&archive_entry_size_is_set) archive_entry_size_is_set;
	__typeof__(&archive_entry_sparse_count) archive_entry_sparse_count;
	__typeof__(&archive_error_string) archive_error_string;
	__typeof__(&archive_filter_count) archive_filter_count;
	__typeof__(&archive_read_data) archive_read_data;
	__typeof__(&archive_read_free) archive_read_free;
	__typeof__(&archive_read_new) archive_read_new;
	__typeof__(&archive_read_next_header) archive_read_next_header;
	__typeof__(&archive_read_open) archive_read_open;
	__typeof__(&archive_read_open1) archive_read_open1;
	__typeof__(&archive_read_set_callback_data) archive_read_set_callback_data;
	__typeof__(&archive_read_set_read_callback) archive_read_set_read_callback;
	__typeof__(&archive_read_set_skip_callback) archive_read_set_skip_callback;
	__typeof__(&archive_read_support_filter_gzip) archive_read_support_filter_gzip;
	__typeof__(&archive_read_support_filter_xz) archive_read_support_filter_xz;
	__typeof__(&archive_read_support_filter_zstd) archive_read_support_filter_zstd;
	__typeof__(&archive_read_support_format_empty) archive_read_support_format_empty;
	__typeof__(&archive_read_support_format_raw) archive_read_support_format_raw;
	__typeof__(&archive_read_support_format_tar) archive_read_support_format_tar;
	__typeof__(&archive_set_error) archive_set_error;
	__typeof__(&archive_write_add_filter_gzip) archive_write_add_filter_gzip;
	__typeof__(&archive_write_add_filter_xz) archive_write_add_filter_xz;
	__typeof__(&archive_write_add_filter_zstd) archive_write_add_filter_zstd;
	__typeof__(&archive_write_close) archive_write_close;
	__typeof__(&archive_write_data) archive_write_data;
	__typeof__(&archive_write_free) archive_write_free;
	__typeof__(&archive_write_header) archive_write_header;
	__typeof__(&archive_write_new) archive_write_new;
	__typeof__(&archive_write_open) archive_write_open;
	__typeof__(&archive_write_set_bytes_per_block) archive_write_set_bytes_per_block;
	__typeof__(&archive_write_set_filter_option) archive_write_set_filter_option;
	__typeof__(&archive_write_set_format_gnutar) archive_write_set_format_gnutar;
	__typeof__(&archive_write_set_format_raw) archive_write_set_format_raw;
};
extern struct kv_libarchive kv_la;

/* Before the first of them is called.  Fails: KV_EFAIL, naming the package. */
int kv_libarchive_open(struct kv_err *e);

#endif
