/* SPDX-License-Identifier: MIT
 * Streams and events.  Work is done when it is queued; with KV_SHIM_STREAMS=lazy only when something forces it (a wait
 * of the host, or of another stream through an event), so that a forgotten wait shows.
 */
#include <cuda_runtime.h>

#include <deque>
#include <memory>
#include <set>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "block.h"
#include "runtime.h"

struct CUstream_st {
	unsigned flags;
	std::deque<std::function<void()>> queue;
	uint64_t n_queued, n_done;
};

/* One recording of an event: done when its stream has come to `ticket`. */
struct record {
	CUstream_st *stream; /* NULL when done */
	uint64_t ticket;
	double ms;
};

struct CUevent_st {
	unsigned flags;
	std::shared_ptr<struct record> last; /* NULL: never recorded */
};

static std::recursive_mutex &mutex = *new std::recursive_mutex;
static CUstream_st &legacy = *new CUstream_st();
static std::set<CUstream_st *> &streams = *new std::set<CUstream_st *>;

lock::lock()
{
	mutex.lock();
}

lock::~lock()
{
	mutex.unlock();
}

static bool
is_lazy(void)
{
	static int lazy = -1;

	if (lazy < 0) {
		const char *text = getenv("KV_SHIM_STREAMS");

		lazy = text != NULL && strcmp(text, "lazy") == 0;
	}
	return lazy;
}

static CUstream_st *
find(cudaStream_t stream, const char *who)
{
	if (stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
		return &legacy;
	if (streams.count(stream) == 0)
		complain("%s: %p is not a stream, or no longer", who, (void *)stream);
	return stream;
}

/* Work of a stream up to a ticket.  A piece of work may wait for another stream in turn. */
static void
finish(CUstream_st *s, uint64_t ticket)
{
	while (s->n_done < ticket && !s->queue.empty()) {
		std::function<void()> work = std::move(s->queue.front());

		s->queue.pop_front();
		work();
		s->n_done++;
	}
}

static void
finish_stream(CUstream_st *s)
{
	finish(s, s->n_queued);
}

static size_t n_waits;

size_t
stream_waits(void)
{
	return n_waits;
}

void
stream_finish_all(void)
{
	bool busy = !legacy.queue.empty();

	for (const CUstream_st *s : streams)
		busy = busy || !s->queue.empty();
	n_waits += busy;
	finish_stream(&legacy);
	for (CUstream_st *s : streams)
		finish_stream(s);
	memory_check_ends();
}

/* The default stream and all that are not cudaStreamNonBlocking wait for each other. */
static void
finish_before(CUstream_st *s)
{
	if (s != &legacy) {
		if (!(s->flags & cudaStreamNonBlocking))
			finish_stream(&legacy);
		return;
	}
	for (CUstream_st *o : streams)
		if (!(o->flags & cudaStreamNonBlocking))
			finish_stream(o);
}

static void
add(CUstream_st *s, std::function<void()> work)
{
	finish_before(s);
	s->queue.push_back(std::move(work));
	s->n_queued++;
	if (!is_lazy())
		finish_stream(s);
}

cudaError_t
stream_add(cudaStream_t stream, std::function<void()> work)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	add(find(stream, "a call"), std::move(work));
	return cudaSuccess;
}

cudaError_t
stream_do(cudaStream_t stream, std::function<void()> work)
{
	struct lock l;
	const cudaError_t status = stream_add(stream, std::move(work));

	if (status == cudaSuccess) {
		n_waits += !find(stream, "a call")->queue.empty();
		finish_stream(find(stream, "a call"));
	}
	return status;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*stream = new CUstream_st();
	(*stream)->flags = flags;
	streams.insert(*stream);
	return cudaSuccess;
}

cudaError_t
cudaStreamCreate(cudaStream_t *stream)
{
	return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	(void)priority;
	return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());

	CUstream_st *s = find(stream, "cudaStreamDestroy");

	if (s == &legacy)
		return failed(cudaErrorInvalidResourceHandle);
	finish_stream(s);
	streams.erase(s);
	delete s;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());

	CUstream_st *s = find(stream, "cudaStreamSynchronize");

	n_waits += !s->queue.empty();
	finish_before(s);
	finish_stream(s);
	memory_check_ends();
	return cudaSuccess;
}

/* Who asks in a loop gets there: each question does one piece of work. */
cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());

	CUstream_st *s = find(stream, "cudaStreamQuery");

	if (s->queue.empty())
		return cudaSuccess;
	finish(s, s->n_done + 1);
	return cudaErrorNotReady;
}

cudaError_t
cudaDeviceSynchronize(void)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	stream_finish_all();
	return cudaSuccess;
}

cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
	return stream_add(stream, [fn, data] { fn(data); });
}

/* ---- events */
static void
finish_record(const std::shared_ptr<struct record> &r)
{
	if (r != NULL && r->stream != NULL)
		finish(r->stream, r->ticket);
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*event = new CUevent_st();
	(*event)->flags = flags;
	return cudaSuccess;
}

cudaError_t
cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	delete event;
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());

	CUstream_st *s = find(stream, "cudaEventRecord");
	auto r = std::make_shared<struct record>();

	r->stream = s;
	r->ticket = s->n_queued + 1;
	event->last = r;
	add(s, [r] {
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC, &t);
		r->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
		r->stream = NULL;
	});
	return cudaSuccess;
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	n_waits += event->last != NULL && event->last->stream != NULL;
	finish_record(event->last);
	memory_check_ends();
	return cudaSuccess;
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (event->last == NULL || event->last->stream == NULL)
		return cudaSuccess;
	finish(event->last->stream, event->last->stream->n_done + 1);
	return cudaErrorNotReady;
}

cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (from->last == NULL || to->last == NULL || ((from->flags | to->flags) & cudaEventDisableTiming))
		return failed(cudaErrorInvalidResourceHandle);
	if (from->last->stream != NULL || to->last->stream != NULL)
		return failed(cudaErrorNotReady);
	*ms = (float)(to->last->ms - from->last->ms);
	return cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	struct lock l;

	(void)flags;
	if (device_ready() != cudaSuccess)
		return failed(device_ready());

	const std::shared_ptr<struct record> r = event->last; /* as it is now: later records are no matter */

	add(find(stream, "cudaStreamWaitEvent"), [r] { finish_record(r); });
	return cudaSuccess;
}
