/* SPDX-License-Identifier: MIT
 * Threads that copy host memory: one alone fills pinned memory at a fifth of the speed at which a card empties it.
 * None of them calls CUDA's library. */
#include "kernels/cuda/cuda.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STACK_BYTES ((size_t)1 << 20)

struct cuda_crew {
	pthread_mutex_t lock;
	pthread_cond_t wanted, done;
	struct cuda_copy *first, **end; /* those that nobody has begun */
	bool leave;
	size_t helpers;
	pthread_t thread[CUDA_COPIERS];
};

/* The lock is held, but for the copy itself. */
static void
do_first(struct cuda_crew *c)
{
	struct cuda_copy *copy = c->first;

	if ((c->first = copy->next) == NULL)
		c->end = &c->first;
	pthread_mutex_unlock(&c->lock);
	memcpy(copy->to, copy->from, copy->bytes);
	pthread_mutex_lock(&c->lock);
	copy->done = true;
	pthread_cond_broadcast(&c->done);
}

static void *
help(void *arg)
{
	struct cuda_crew *c = (struct cuda_crew *)arg;

	pthread_mutex_lock(&c->lock);
	while (!c->leave)
		if (c->first != NULL)
			do_first(c);
		else
			pthread_cond_wait(&c->wanted, &c->lock);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Fewer where the system gives fewer.  Signals are the program's. */
static void
start_helpers(struct cuda_crew *c, size_t n)
{
	pthread_attr_t attr;
	sigset_t all, before;

	if (pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (c->helpers < n && pthread_create(&c->thread[c->helpers], &attr, help, c) == 0)
		c->helpers++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

struct cuda_crew *
cuda_crew_open(size_t threads)
{
	struct cuda_crew *c = (struct cuda_crew *)calloc(1, sizeof *c);

	if (c == NULL)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wanted, NULL);
	pthread_cond_init(&c->done, NULL);
	c->end = &c->first;
	start_helpers(c, (threads < CUDA_COPIERS ? threads : CUDA_COPIERS) - 1);
	return c;
}

void
cuda_crew_close(struct cuda_crew *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->leave = true;
	pthread_cond_broadcast(&c->wanted);
	pthread_mutex_unlock(&c->lock);
	while (c->helpers > 0)
		pthread_join(c->thread[--c->helpers], NULL);
	pthread_cond_destroy(&c->done);
	pthread_cond_destroy(&c->wanted);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

size_t
cuda_crew_size(const struct cuda_crew *c)
{
	return c != NULL ? c->helpers + 1 : 1;
}

void
cuda_copy_begin(struct cuda_crew *c, struct cuda_copy *copy)
{
	copy->next = NULL;
	if ((copy->done = c == NULL)) {
		memcpy(copy->to, copy->from, copy->bytes);
		return;
	}
	pthread_mutex_lock(&c->lock);
	*c->end = copy;
	c->end = &copy->next;
	pthread_cond_signal(&c->wanted);
	pthread_mutex_unlock(&c->lock);
}

void
cuda_copy_end(struct cuda_crew *c, struct cuda_copy *copy)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	while (!copy->done)
		if (c->first != NULL)
			do_first(c);
		else
			pthread_cond_wait(&c->done, &c->lock);
	pthread_mutex_unlock(&c->lock);
}
