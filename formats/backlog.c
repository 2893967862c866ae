/* SPDX-License-Identifier: MIT */
#include "formats/backlog.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

struct job {
	struct job *next;
	const void *bytes;
	size_t n, n_head;
	char head[];
};

struct kv_backlog {
	struct kv_sink *to;
	pthread_t thread;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t more, done;
	struct job *first, **end; /* the first one may be on its way */
	bool closing;
	struct kv_err err; /* code 0: none yet */
};

/* Without the lock. */
static void
do_job(struct kv_backlog *b, const struct job *j, struct kv_err *e)
{
	*e = (struct kv_err){ 0 };
	kv_sink_write_both(b->to, j->head, j->n_head, j->bytes, j->n, e);
}

/* The first job has been done, with this result; after a fault the others are too. */
static void
leave_job(struct kv_backlog *b, const struct kv_err *e)
{
	struct job *j;

	if (e->code < 0)
		b->err = *e;
	do {
		j = b->first;
		b->first = j->next;
		free(j);
	} while (b->first != NULL && b->err.code < 0);
	if (b->first != NULL)
		return;
	b->end = &b->first;
	pthread_cond_signal(&b->done);
}

static void *
work(void *ctx)
{
	struct kv_backlog *b = ctx;
	const struct job *j;
	struct kv_err e;

	pthread_mutex_lock(&b->lock);
	for (;;) {
		while (b->first == NULL && !b->closing)
			pthread_cond_wait(&b->more, &b->lock);
		if (b->first == NULL)
			break;
		j = b->first;
		pthread_mutex_unlock(&b->lock);
		do_job(b, j, &e);
		pthread_mutex_lock(&b->lock);
		leave_job(b, &e);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* Signals are for the program's first thread. */
static int
start_quietly(struct kv_backlog *b)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(&b->thread, NULL, work, b);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int
kv_backlog_new(struct kv_backlog **out, struct kv_sink *to, struct kv_err *e)
{
	struct kv_backlog *b = *out = kv_alloc(1, sizeof *b, e);
	int rc;

	if (b == NULL)
		return KV_EMEM;
	b->to = to;
	b->end = &b->first;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	pthread_cond_init(&b->done, NULL);
	if ((rc = start_quietly(b)) == 0)
		return KV_OK;
	free(b);
	*out = NULL;
	return kv_fail(e, KV_EFAIL, "cannot start a thread: %s", strerror(rc));
}

static int
fault_of(const struct kv_backlog *b, struct kv_err *e)
{
	if (b->err.code < 0 && e != NULL)
		*e = b->err;
	return b->err.code < 0 ? b->err.code : KV_OK;
}

int
kv_backlog_put(struct kv_backlog *b, const void *head, size_t n_head, const void *bytes, size_t n, struct kv_err *e)
{
	struct job *j = malloc(sizeof *j + n_head);
	int rc;

	if (j == NULL)
		return kv_no_memory(e, sizeof *j + n_head);
	*j = (struct job){ .bytes = bytes, .n = n, .n_head = n_head };
	if (n_head > 0)
		memcpy(j->head, head, n_head);
	pthread_mutex_lock(&b->lock);
	if ((rc = fault_of(b, e)) == KV_OK) {
		*b->end = j;
		b->end = &j->next;
		pthread_cond_signal(&b->more);
	}
	pthread_mutex_unlock(&b->lock);
	if (rc < 0)
		free(j);
	return rc;
}

int
kv_backlog_settle(struct kv_backlog *b, struct kv_err *e)
{
	int rc;

	pthread_mutex_lock(&b->lock);
	while (b->first != NULL)
		pthread_cond_wait(&b->done, &b->lock);
	rc = fault_of(b, e);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

void
kv_backlog_free(struct kv_backlog *b)
{
	if (b == NULL)
		return;
	pthread_mutex_lock(&b->lock);
	b->closing = true;
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	pthread_cond_destroy(&b->done);
	pthread_cond_destroy(&b->more);
	pthread_mutex_destroy(&b->lock);
	free(b);
}
