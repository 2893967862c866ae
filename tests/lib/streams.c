/* SPDX-License-Identifier: MIT */
#include "tests/lib/streams.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/record.h"
#include "lib/file.h"

void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("status %d: %s", rc, e->text);
}

void
expect_text(const struct kv_err *e, const char *part)
{
	if (strstr(e->text, part) == NULL)
		fail_msg("expected '%s' in '%s'", part, e->text);
}

/* ---- files */

static char folder[64];

static void
remove_folder(void)
{
	char path[sizeof folder + 300];
	struct dirent *d;
	DIR *dir = opendir(folder);

	while (dir != NULL && (d = readdir(dir)) != NULL) {
		snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
		unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(folder);
}

const char *
scratch(const char *name)
{
	static char paths[16][128];
	static unsigned turn;
	char *path = paths[turn++ % 16];

	if (folder[0] == '\0') {
		/* memory where there is some: rewriting a file many times on a disk waits for the disk */
		strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/kv-test-XXXXXX" : "/tmp/kv-test-XXXXXX");
		assert_non_null(mkdtemp(folder));
		atexit(remove_folder);
	}
	snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

size_t
scratch_count(void)
{
	DIR *dir = opendir(folder);
	struct dirent *d;
	size_t n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir)) != NULL)
		n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
	closedir(dir);
	return n;
}

void
scratch_write(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

struct kv_buf
scratch_read(const char *path)
{
	struct kv_buf b = { 0 };
	struct kv_err e = { 0 };

	if (kv_file_read(path, SIZE_MAX, &b, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

json_t *
json_of(const char *text)
{
	char *copy = strdup(text), *p;
	json_t *v;

	for (p = copy; *p != '\0'; p++)
		if (*p == '\'')
			*p = '"';
	v = json_loads(copy, JSON_DECODE_ANY, NULL);
	assert_non_null(v);
	free(copy);
	return v;
}

/* ---- samples */

/* Bytes that differ from tensor to tensor: a little generator, seeded by sequence, layer and name. */
static void
fill(struct kv_tensor *t, size_t sequence)
{
	unsigned char *p = t->owned;
	uint32_t x = (uint32_t)(sequence * 977 + (size_t)(t->layer + 1) * 31 + (unsigned char)t->name[0]);

	for (size_t i = 0; i < t->bytes; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = (unsigned char)(x >> 24);
	}
}

static void
write_tensor(struct kv_writer *w, const char *name, size_t sequence, int layer, size_t tokens)
{
	static const struct {
		const char *name, *axes;
		enum kvk_type type;
	} kinds[] = {
		{ "k", "kv_head token dim", KVK_F16 },
		{ "v", "kv_head token dim", KVK_F16 },
		{ "score", "kv_head token", KVK_F32 },
		{ "budget", "kv_head", KVK_I32 },
		{ "protect", "kv_head token", KVK_U8 },
		{ "x", "token", KVK_F32 },
		{ "logits", "vocab", KVK_F32 },
	};
	size_t k = 0, shape[3] = { 2, tokens, 4 };
	struct kv_tensor t;
	struct kv_err e = { 0 };

	while (strcmp(kinds[k].name, name) != 0)
		k++;
	if (strcmp(name, "x") == 0)
		shape[0] = tokens;
	if (strcmp(name, "logits") == 0)
		shape[0] = 10;
	must(kv_tensor_new(&t, name, layer, kinds[k].type, kinds[k].axes, shape, &e), &e);
	if (strcmp(name, "x") == 0)
		t.axis[0][0] = '\0';
	if (strcmp(name, "score") == 0)
		t.attrs = json_of("{'method':'snapkv','window':4,'pool':'max','pool_width':7}");
	fill(&t, sequence);
	must(kv_writer_tensor(w, &t, &e), &e);
	kv_tensor_fini(&t);
}

static void
write_sequence(struct kv_writer *w, const struct sample *s, size_t number)
{
	json_t *map = json_of("{'attributes':{'answer':'blue','n':3}}"), *tokens = json_array();
	char names[64], *save, *name;
	struct kv_err e = { 0 };

	for (size_t i = 0; i < s->tokens + s->behind; i++)
		json_array_append_new(tokens, json_integer(s->token0 + (int)(i * 7 + number)));
	json_object_set_new(map, "tokens", tokens);
	json_object_set_new(map, "prompt_length", json_integer((json_int_t)s->tokens));
	if (s->id != NULL)
		json_object_set_new(map, "id", json_string(s->id));
	must(kv_writer_sequence(w, map, &e), &e);
	for (size_t l = 0; l < s->layers; l++) {
		strcpy(names, s->tensors ? s->tensors : "k v score");
		for (name = strtok_r(names, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save))
			write_tensor(w, name, number, (int)l, s->tokens);
		if (s->layer_ends)
			must(kv_writer_layer_end(w, (int)l, &e), &e);
	}
	if (s->logits)
		write_tensor(w, "logits", number, KV_NO_LAYER, s->tokens);
	must(kv_writer_close(w, &e), &e);
	json_decref(map);
}

void
sample_write(const char *path, const struct sample *s)
{
	char *const argv[] = { "--text", "caf\xe9" }; /* Latin-1: arguments are bytes */
	json_t *model = json_of("{'name':'tiny','layers':4,'heads':4,'kv_heads':2,'head_dim':4,'scale':0.5}");
	json_t *entry = kv_history_entry("kv-sample", "1", 2, argv);
	struct kv_writer *w = NULL;
	struct kv_err e = { 0 };

	json_object_set_new(model, "fingerprint", json_string(s->fingerprint ? s->fingerprint : "f00d"));
	must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
	if (s->part_max > 0)
		kv_writer_part_max(w, s->part_max);
	must(kv_writer_header(w, model, NULL, entry, &e), &e);
	for (size_t i = 0; i < s->sequences; i++)
		write_sequence(w, s, i);
	must(kv_writer_finish(w, &e), &e);
	json_decref(model);
	json_decref(entry);
}

/* ---- walking */

int
stream_walk(const char *path, bool load, struct kv_err *e)
{
	struct kv_reader *r = NULL;
	struct kv_record rec = { 0 };
	int rc = kv_reader_open(&r, path, e);

	while (rc == KV_OK && (rc = kv_reader_next(r, &rec, e)) == KV_OK) {
		if (load && rec.kind == KV_RECORD_TENSOR)
			rc = kv_reader_payload(r, &rec.tensor, e);
		kv_record_fini(&rec);
	}
	kv_reader_free(r);
	return rc == KV_END ? KV_OK : rc;
}

int
stream_walk_piped(const void *bytes, size_t n, struct kv_err *e)
{
	char path[32];
	int fd[2], rc;

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], bytes, n), n);
	snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
	close(fd[1]);
	rc = stream_walk(path, true, e);
	close(fd[0]);
	return rc;
}
