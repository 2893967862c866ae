/* SPDX-License-Identifier: MIT
 * The samples of a training: prompts and responses, prepared once and kept in a folder (lesson_file.h), one at a time
 * in memory.
 */
#ifndef KV_LESSONS_H
#define KV_LESSONS_H

#include "formats/lesson_file.h"
#include "lib/train/training.h"

struct kv_lessons_options {
	const char *dir; /* the folder */
	bool with_kv;    /* keep keys and values there; else every look at a sample runs its prompt anew */
	size_t generate; /* tokens of the model's own response, for samples that bring none */
	const struct kv_model *model;
	struct kv_student *student;
	const char *device; /* where prompts run: name, threads and precision */
	unsigned threads;
	enum kvk_precision precision;
	const json_t *entry; /* of the history of what is written; borrowed */
	/* Told what was found damaged and is made anew. */
	void (*note)(const char *text);
	/* Told why the device that auto had chosen gave way to the CPU: see struct kv_device.  Which one it opens is
	 * told by whoever opened the student's. */
	void (*unfit)(const char *why);
};

struct kv_lessons;

int kv_lessons_new(struct kv_lessons **out, const struct kv_lessons_options *o, struct kv_err *e);
void kv_lessons_free(struct kv_lessons *l);

/* One more; prompt and response (NULL: generate) are taken over and zeroed, id is copied. */
int kv_lessons_add(
    struct kv_lessons *l, const char *id, struct kv_ids *prompt, struct kv_ids *response, struct kv_err *e);
size_t kv_lessons_count(const struct kv_lessons *l);

/* Makes what is not there yet of sample i.  usable: false when its response is empty, which teaches nothing.  made: it
 * was not there.  Fails: as kv_teach() and kv_lesson_write(). */
struct kv_lesson_state {
	bool usable, made;
	uint64_t bytes;          /* in the folder */
	size_t tokens, response; /* tokens of both */
};
int kv_lessons_prepare(struct kv_lessons *l, size_t i, struct kv_lesson_state *s, struct kv_err *e);

/* Sample i, until the next call; a damaged file is made anew. */
int kv_lessons_get(struct kv_lessons *l, size_t i, struct kv_sample_view *v, struct kv_err *e);

/* The precision that prompts run at: never auto, and the same to the end.  Opens their device.  Fails: as
 * kv_device_ready(). */
int kv_lessons_precision(struct kv_lessons *l, const char **name, struct kv_err *e);

/* What decides all samples, for telling runs apart: hex of a hash over prompts, responses and options. */
int kv_lessons_hash(const struct kv_lessons *l, char hex[33], struct kv_err *e);

#endif
