/* SPDX-License-Identifier: MIT */
#include "formats/emit.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/record.h"
#include "lib/device_memory.h"

#define MARK 4 /* bytes */

/* One tensor of every layer: some rows of every head. */
struct part {
	char name[KV_NAME_MAX];
	enum kvk_type type;
	size_t H, n;   /* heads and rows that are written */
	json_t *attrs; /* NULL: none */
	size_t bytes;
	void *host;       /* [H][n][D]; NULL as long as the writer has room for it */
	void *lent;       /* what is lent of the layer on the device; NULL: nothing, the layer's data are: */
	void *data;       /* on the host */
	void *on_device;  /* the same on the device, on its way to: */
	void *fetched[2]; /* of layers in turn */
};

enum { Q, Q_BEHIND, K, K_BEHIND, V, N_PARTS };
static const char *const axes[N_PARTS] = { "head query dim", "head query dim", "kv_head token dim", "kv_head row dim",
	"kv_head token dim" };

struct kv_emit {
	struct kv_emit_options o;
	struct part part[N_PARTS]; /* name empty: not wanted */
	bool opened;   /* the device is the one that shows the layers */
	bool overlaps; /* a layer is copied to the host while the next is computed, and written then */
	bool pending;  /* `layer` is on its way */
	void *mark;    /* what is fetched behind a layer that is lent, and so arrives after it; NULL: nothing yet */
	size_t layer;
};

/* Where a layer's rows of a part begin, and how far apart its heads are, in rows. */
struct from {
	const float *at;
	size_t stride;
};

json_t *
kv_row_attrs(const char *region, size_t first)
{
	if (region == NULL)
		return json_pack("{s:I}", "first_position", (json_int_t)first);
	return json_pack("{s:s, s:I}", "region", region, "first_position", (json_int_t)first);
}

static int
open_part(struct kv_emit *x, struct part *p, const char *name, const char *suffix, enum kvk_type type, size_t H,
    size_t n, struct kv_err *e)
{
	size_t elements;

	*p = (struct part){ .type = type, .H = H, .n = n };
	snprintf(p->name, sizeof p->name, "%s%s%s", name, suffix[0] != '\0' ? "." : "", suffix);
	if (!kv_mul(H * x->o.cfg->D, n, &elements) || !kv_type_bytes(type, elements, &p->bytes))
		return kv_no_memory(e, SIZE_MAX);
	return KV_OK;
}

/* The same, and its rows say that they stand at `first` and behind. */
static int
open_rows(struct kv_emit *x, struct part *p, const char *name, const char *suffix, enum kvk_type type, size_t H,
    const char *region, size_t first, size_t n, struct kv_err *e)
{
	int rc = open_part(x, p, name, suffix, type, H, n, e);

	if (rc == KV_OK && (p->attrs = kv_row_attrs(region, first)) == NULL)
		rc = kv_no_memory(e, n);
	return rc;
}

static int
open_parts(struct kv_emit *x, size_t T, size_t n_behind, struct kv_err *e)
{
	const struct kv_emit_options *o = &x->o;
	const size_t Hq = o->cfg->Hq, Hkv = o->cfg->Hkv, W = kv_queries_rows(o->queries, T);
	int rc;

	if ((rc = open_part(x, &x->part[K], "k", "", o->type, Hkv, T, e)) < 0 ||
	    (rc = open_part(x, &x->part[V], "v", "", o->type, Hkv, T, e)) < 0)
		return rc;
	if (W > 0 &&
	    (rc = open_rows(x, &x->part[Q], "q", "", KVK_F32, Hq, kv_queries_region(o->queries), T - W, W, e)) < 0)
		return rc;
	if (o->behind == NULL)
		return KV_OK;
	rc = open_rows(x, &x->part[Q_BEHIND], "q", o->behind, KVK_F32, Hq, NULL, T, n_behind, e);
	return rc < 0 ? rc : open_rows(x, &x->part[K_BEHIND], "k", o->behind, o->type, Hkv, NULL, T, n_behind, e);
}

static void
free_rooms(struct kv_emit *x)
{
	const struct kv_device *d = x->o.device;

	for (size_t i = 0; i < N_PARTS; i++)
		if (x->part[i].on_device != NULL) {
			kv_device_free(d, x->part[i].on_device);
			d->op->host_free(d->dev, x->part[i].fetched[0]);
			d->op->host_free(d->dev, x->part[i].fetched[1]);
			x->part[i].on_device = x->part[i].fetched[0] = x->part[i].fetched[1] = NULL;
		}
}

/* Room for layers on their way from the device; false: there is none, or nothing of the kind is needed. */
static bool
take_rooms(struct kv_emit *x)
{
	const struct kv_device *d = x->o.device;

	if (d->op->fetch == NULL || kv_writer_shares(x->o.writer))
		return false;
	for (size_t i = 0; i < N_PARTS; i++) {
		struct part *p = &x->part[i];

		if (p->name[0] == '\0' || !kv_writer_leaves(x->o.writer, p->name))
			continue;
		if ((p->on_device = kv_device_alloc(d, p->bytes, 1, NULL)) == NULL ||
		    (p->fetched[0] = d->op->host_alloc(d->dev, p->bytes)) == NULL ||
		    (p->fetched[1] = d->op->host_alloc(d->dev, p->bytes)) == NULL)
			return false;
	}
	return true;
}

int
kv_emit_new(struct kv_emit **out, const struct kv_emit_options *o, size_t T, size_t n_behind, struct kv_err *e)
{
	struct kv_emit *x = kv_alloc(1, sizeof *x, e);
	int rc;

	*out = NULL;
	if (x == NULL)
		return KV_EMEM;
	x->o = *o;
	if ((rc = open_parts(x, T, n_behind, e)) < 0) {
		kv_emit_free(x);
		return rc;
	}
	*out = x;
	return KV_OK;
}

void
kv_emit_free(struct kv_emit *x)
{
	if (x == NULL)
		return;
	if (x->pending)
		x->o.device->op->arrive(x->o.device->dev);
	kv_writer_settle(x->o.writer, NULL); /* who goes on with the writer hears of its fault */
	free_rooms(x);
	if (x->mark != NULL)
		x->o.device->op->host_free(x->o.device->dev, x->mark);
	for (size_t i = 0; i < N_PARTS; i++) {
		json_decref(x->part[i].attrs);
		free(x->part[i].host);
	}
	free(x);
}

/* Where the next layer's rows of a part go: into the writer's own memory, or into ours. */
static int
find_room(struct kv_emit *x, struct part *p, void **room, struct kv_err *e)
{
	int rc = kv_writer_room(x->o.writer, p->name, p->bytes, room, e);

	if (rc < 0 || *room != NULL)
		return rc;
	if (p->host == NULL)
		p->host = kv_alloc(p->bytes > 0 ? p->bytes : 1, 1, e);
	*room = p->host;
	return p->host != NULL ? KV_OK : KV_EMEM;
}

/* A layer's rows of a part into the stream: they lie at `data`, or on the device and are lent there. */
static int
put(struct kv_emit *x, size_t layer, const struct part *p, const void *data, const void *on_device, struct kv_err *e)
{
	const size_t shape[] = { p->H, p->n, x->o.cfg->D };
	struct kv_tensor t;
	int rc = kv_tensor_init(&t, p->name, (int)layer, p->type, axes[p - x->part], shape, e);

	if (rc == KV_OK) {
		t.data = data;
		t.device = on_device;
		t.attrs = json_incref(p->attrs);
		rc = kv_writer_tensor(x->o.writer, &t, e);
	}
	kv_tensor_fini(&t);
	return rc;
}

static int
arrive(const struct kv_emit *x, struct kv_err *e)
{
	return kv_device_arrive(x->o.device, "copy to the host", e);
}

/* ---- lent, or written from memory that is the host's */

/* A layer's rows of a part to where they are lent, which is not waited for; or to the host.  Nothing, if they do not
 * leave. */
static int
move(struct kv_emit *x, struct part *p, const struct from *from, struct kv_err *e)
{
	const struct kv_device *d = x->o.device;
	const size_t D = x->o.cfg->D;
	int rc;

	if (!kv_writer_leaves(x->o.writer, p->name))
		return KV_OK;
	if ((rc = kv_writer_room_on_device(x->o.writer, p->name, p->bytes, &p->lent, e)) < 0)
		return rc;
	if (p->lent != NULL)
		return kv_device_copy_rows(d, p->lent, p->type, from->at, p->H, from->stride, p->n, D, e);
	rc = find_room(x, p, &p->data, e);
	return rc < 0 ? rc : kv_device_get_rows(d, p->data, p->type, from->at, p->H, from->stride, p->n, D, e);
}

/* What is lent is on its way: a few of its bytes are fetched behind it, so that the layer need not be waited for before
 * the next one has been queued. */
static int
mark(struct kv_emit *x, const void *lent, struct kv_err *e)
{
	const struct kv_device *d = x->o.device;

	if (x->mark == NULL && d->op->fetch != NULL)
		x->mark = d->op->host_alloc(d->dev, MARK);
	if (x->mark == NULL)
		return kv_device_check(d, d->op->wait(d->dev), "what is shared", e);
	x->pending = true;
	return kv_device_fetch(d, x->mark, lent, MARK, "what is shared", e);
}

static int
put_layer(struct kv_emit *x, size_t layer, struct kv_err *e)
{
	int rc = x->pending ? arrive(x, e) : KV_OK;

	x->pending = false;
	for (size_t i = 0; i < N_PARTS && rc == KV_OK; i++)
		if (x->part[i].name[0] != '\0')
			rc = put(x, layer, &x->part[i], x->part[i].lent == NULL ? x->part[i].data : NULL,
			    x->part[i].lent, e);
	return rc < 0 ? rc : kv_writer_layer_end(x->o.writer, (int)layer, e);
}

/* The layer before this one is written, if it was waited for, and the last one at once. */
static int
emit_lent(struct kv_emit *x, size_t layer, const struct from *from, struct kv_err *e)
{
	const void *lent = NULL;
	int rc;

	if ((x->pending && (rc = put_layer(x, x->layer, e)) < 0) || (rc = kv_writer_settle(x->o.writer, e)) < 0)
		return rc; /* settled: the memory of the layer before this one is free */
	for (size_t i = 0; i < N_PARTS && rc == KV_OK; i++)
		if (x->part[i].name[0] != '\0' && (rc = move(x, &x->part[i], &from[i], e)) == KV_OK)
			lent = x->part[i].lent != NULL ? x->part[i].lent : lent;
	if (rc == KV_OK && lent != NULL)
		rc = mark(x, lent, e);
	x->layer = layer;
	return rc < 0 || (x->pending && layer + 1 < x->o.cfg->L) ? rc : put_layer(x, layer, e);
}

/* ---- overlapped */

static int
fetch(struct kv_emit *x, size_t layer, const struct part *p, const struct from *from, struct kv_err *e)
{
	const struct kv_device *d = x->o.device;
	int rc = kv_device_copy_rows(d, p->on_device, p->type, from->at, p->H, from->stride, p->n, x->o.cfg->D, e);

	if (rc < 0)
		return rc;
	return kv_device_check(d, d->op->fetch(d->dev, p->fetched[layer % 2], p->on_device, p->bytes), "fetch", e);
}

static int
put_fetched(struct kv_emit *x, size_t layer, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < N_PARTS && rc == KV_OK; i++)
		if (x->part[i].on_device != NULL)
			rc = put(x, layer, &x->part[i], x->part[i].fetched[layer % 2], NULL, e);
	return rc < 0 ? rc : kv_writer_layer_end(x->o.writer, (int)layer, e);
}

/* This layer sets out, the one before it has arrived and is written; the last one has nothing to wait for. */
static int
emit_overlapped(struct kv_emit *x, size_t layer, const struct from *from, struct kv_err *e)
{
	int rc;

	if ((rc = arrive(x, e)) < 0 || (rc = kv_writer_settle(x->o.writer, e)) < 0)
		return rc;
	for (size_t i = 0; i < N_PARTS && rc == KV_OK; i++)
		if (x->part[i].on_device != NULL)
			rc = fetch(x, layer, &x->part[i], &from[i], e);
	if (rc == KV_OK && x->pending)
		rc = put_fetched(x, x->layer, e);
	x->pending = true;
	x->layer = layer;
	if (rc < 0 || layer + 1 < x->o.cfg->L)
		return rc;
	rc = arrive(x, e);
	x->pending = false;
	return rc == KV_OK ? put_fetched(x, layer, e) : rc;
}

int
kv_emit_layer(struct kv_emit *x, const struct kv_layer_view *view, struct kv_err *e)
{
	const struct from from[N_PARTS] = {
		[Q] = { view->q + (view->n - x->part[Q].n) * x->o.cfg->D, view->n },
		[Q_BEHIND] = { view->q_behind, view->n_behind },
		[K] = { view->k, view->stride },
		[K_BEHIND] = { view->k_behind, view->stride },
		[V] = { view->v, view->stride },
	};

	if (!x->opened) {
		x->opened = true;
		if (!(x->overlaps = take_rooms(x)))
			free_rooms(x);
	}
	return x->overlaps ? emit_overlapped(x, view->layer, from, e) : emit_lent(x, view->layer, from, e);
}
