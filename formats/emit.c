/* SPDX-License-Identifier: MIT */
#include "formats/emit.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/record.h"

/* One tensor of every layer: some rows of every head. */
struct part {
	char name[KV_NAME_MAX];
	enum kvk_type type;
	size_t H, n;   /* heads and rows that are written */
	json_t *attrs; /* NULL: none */
	size_t bytes;
	void *host;    /* [H][n][D]; NULL as long as the writer has room for it */
};

enum { Q, Q_BEHIND, K, K_BEHIND, V, N_PARTS };
static const char *const axes[N_PARTS] = { "head query dim", "head query dim", "kv_head token dim", "kv_head row dim",
	"kv_head token dim" };

struct kv_emit {
	struct kv_emit_options o;
	struct part part[N_PARTS]; /* name empty: not wanted */
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

int
kv_emit_new(struct kv_emit **out, const struct kv_emit_options *o, size_t T, size_t n_behind, struct kv_err *e)
{
	struct kv_emit *x = kv_alloc(1, sizeof *x, e);
	int rc;

	*out = NULL;
	if (x == NULL)
		return KV_EMEM;
	x->o = *o;
	if ((rc = open_parts(x, T, n_behind, e)) < 0)
		kv_emit_free(x);
	else
		*out = x;
	return rc;
}

void
kv_emit_free(struct kv_emit *x)
{
	if (x == NULL)
		return;
	kv_writer_settle(x->o.writer, NULL); /* who goes on with the writer hears of its fault */
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

/* The part's rows, which begin at `from` and are `stride` apart from head to head, into the stream. */
static int
emit(struct kv_emit *x, size_t layer, struct part *p, const float *from, size_t stride, struct kv_err *e)
{
	size_t shape[] = { p->H, p->n, x->o.cfg->D };
	struct kv_tensor t = { 0 };
	void *room;
	int rc;

	if (p->name[0] == '\0')
		return KV_OK;
	if ((rc = find_room(x, p, &room, e)) < 0 ||
	    (rc = kv_device_get_rows(x->o.device, room, p->type, from, p->H, stride, p->n, x->o.cfg->D, e)) < 0)
		return rc;
	rc = kv_tensor_init(&t, p->name, (int)layer, p->type, axes[p - x->part], shape, e);
	if (rc == KV_OK) {
		t.data = room;
		t.attrs = json_incref(p->attrs);
		rc = kv_writer_tensor(x->o.writer, &t, e);
	}
	kv_tensor_fini(&t);
	return rc;
}

int
kv_emit_layer(struct kv_emit *x, const struct kv_layer_view *view, struct kv_err *e)
{
	size_t layer = view->layer, skipped = (view->n - x->part[Q].n) * x->o.cfg->D;
	int rc;

	/* the memory of the layer before this one is free when that has been written */
	if ((rc = kv_writer_settle(x->o.writer, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[Q], view->q + skipped, view->n, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[Q_BEHIND], view->q_behind, view->n_behind, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[K], view->k, view->stride, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[K_BEHIND], view->k_behind, view->stride, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[V], view->v, view->stride, e)) < 0)
		return rc;
	return kv_writer_layer_end(x->o.writer, (int)layer, e);
}
