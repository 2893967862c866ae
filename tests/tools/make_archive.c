/* SPDX-License-Identifier: MIT
 * make_archive KIND FILE - a tar archive that kv-pack would not make, for tests of what takes them apart.
 *
 * dotdot absolute symlink through hardlink device fifo holes zeros twice: a harmless member `good`, then the one that
 * the kind names: `../evil`, `/tmp/kv-evil`, a link `evil` to /tmp, that and a file through it, ..; holes is 10 GiB of
 * nothing, zeros 256 MiB of zeros, compressed by zstd.  plain: `good` and `sub/other` in pax format, and folders. */
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct archive *a;

static void
must(int r)
{
	if (r >= ARCHIVE_WARN)
		return;
	fprintf(stderr, "make_archive: %s\n", archive_error_string(a));
	exit(1);
}

static void
put(const char *name, int type, const char *link, const char *text)
{
	struct archive_entry *e = archive_entry_new();

	archive_entry_set_pathname(e, name);
	archive_entry_set_filetype(e, type);
	archive_entry_set_perm(e, type == AE_IFDIR ? 0755 : 0644);
	archive_entry_set_size(e, (la_int64_t)strlen(text));
	if (type == AE_IFLNK)
		archive_entry_set_symlink(e, link);
	else if (link != NULL)
		archive_entry_set_hardlink(e, link);
	must(archive_write_header(a, e));
	archive_write_data(a, text, strlen(text));
	archive_entry_free(e);
}

static void
put_large(const char *name, la_int64_t bytes, int holes)
{
	struct archive_entry *e = archive_entry_new();
	static const char zeros[1 << 20];

	archive_entry_set_pathname(e, name);
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_size(e, bytes);
	if (holes)
		archive_entry_sparse_add_entry(e, 0, 1);
	must(archive_write_header(a, e));
	if (holes)
		archive_write_data(a, "x", 1);
	else
		for (; bytes > 0; bytes -= (la_int64_t)sizeof zeros)
			archive_write_data(a, zeros, sizeof zeros);
	archive_entry_free(e);
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *kind, *name;
		int type;
		const char *link, *text;
	} rows[] = { { "dotdot", "../evil", AE_IFREG, NULL, "evil" },
		{ "absolute", "/tmp/kv-evil", AE_IFREG, NULL, "evil" }, { "symlink", "evil", AE_IFLNK, "/tmp", "" },
		{ "through", "link", AE_IFLNK, "..", "" }, { "through", "link/evil", AE_IFREG, NULL, "evil" },
		{ "hardlink", "evil", AE_IFREG, "good", "" }, { "device", "evil", AE_IFCHR, NULL, "" },
		{ "fifo", "evil", AE_IFIFO, NULL, "" }, { "twice", "good", AE_IFREG, NULL, "evil" },
		{ "plain", "sub/", AE_IFDIR, NULL, "" }, { "plain", "sub/other", AE_IFREG, NULL, "other" } };
	const char *kind = argc > 2 ? argv[1] : "";

	if (argc != 3 || (a = archive_write_new()) == NULL)
		return 2;
	if (strcmp(kind, "zeros") == 0)
		must(archive_write_add_filter_zstd(a));
	must(archive_write_set_format_pax_restricted(a));
	must(archive_write_open_filename(a, argv[2]));
	put("good", AE_IFREG, NULL, "good");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (strcmp(rows[i].kind, kind) == 0)
			put(rows[i].name, rows[i].type, rows[i].link, rows[i].text);
	if (strcmp(kind, "holes") == 0)
		put_large("evil", (la_int64_t)10 << 30, 1);
	if (strcmp(kind, "zeros") == 0)
		put_large("evil", (la_int64_t)256 << 20, 0);
	must(archive_write_close(a));
	archive_write_free(a);
	return 0;
}
