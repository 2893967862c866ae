/* SPDX-License-Identifier: MIT */
#include "formats/emit.h"

#include <stdio.h>
#include <stdlib.h>

/* One tensor of every layer: some rows of every head. */
struct part {
	char name[KV_NAME_MAX];
	enum kvk_type type;
	size_t H, n;   /* heads and rows that are written */
	json_t *attrs; /* NULL: none */
	void *host;    /* [H][n][D] */
};

enum { Q, Q_BEHIND, K, K_BEHIND, V, N_PARTS };

struct kv_emit {
	struct kv_emit_options o;
	struct part part[N_PARTS]; /* name empty: not wanted */
};

json_t *
kv_query_attrs(const char *region, size_t first, size_t n)
{
	json_t *positions = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(positions, json_integer((json_int_t)(first + i))) < 0) {
			json_decref(positions);
			return NULL;
		}
	return json_pack("{s:s, s:o}", "region", region, "positions", positions);
}

static int
open_part(struct kv_emit *x, struct part *p, const char *name, const char *suffix, enum kvk_type type, size_t H,
    size_t n, struct kv_err *e)
{
	size_t elements, bytes;

	*p = (struct part){ .type = type, .H = H, .n = n };
	snprintf(p->name, sizeof p->name, "%s%s%s", name, suffix[0] != '\0' ? "." : "", suffix);
	if (!kv_mul(H * x->o.cfg->D, n, &elements) || !kv_type_bytes(type, elements, &bytes))
		return kv_no_memory(e, SIZE_MAX);
	p->host = kv_alloc(bytes > 0 ? bytes : 1, 1, e);
	return p->host != NULL ? KV_OK : KV_EMEM;
}

static int
open_queries(
    struct kv_emit *x, struct part *p, const char *suffix, const char *region, size_t first, size_t n, struct kv_err *e)
{
	int rc = open_part(x, p, "q", suffix, KVK_F32, x->o.cfg->Hq, n, e);

	if (rc == KV_OK && (p->attrs = kv_query_attrs(region, first, n)) == NULL)
		rc = kv_no_memory(e, n);
	return rc;
}

static int
open_parts(struct kv_emit *x, size_t T, size_t n_behind, struct kv_err *e)
{
	const struct kv_emit_options *o = &x->o;
	size_t window = o->window < T ? o->window : T;
	int rc;

	if ((rc = open_part(x, &x->part[K], "k", "", o->type, o->cfg->Hkv, T, e)) < 0 ||
	    (rc = open_part(x, &x->part[V], "v", "", o->type, o->cfg->Hkv, T, e)) < 0)
		return rc;
	if (o->region != NULL && (rc = open_queries(x, &x->part[Q], "", o->region, T - window, window, e)) < 0)
		return rc;
	if (o->behind == NULL)
		return KV_OK;
	rc = open_queries(x, &x->part[Q_BEHIND], o->behind, o->behind, T, n_behind, e);
	return rc == KV_OK ? open_part(x, &x->part[K_BEHIND], "k", o->behind, o->type, o->cfg->Hkv, n_behind, e) : rc;
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
	for (size_t i = 0; i < N_PARTS; i++) {
		json_decref(x->part[i].attrs);
		free(x->part[i].host);
	}
	free(x);
}

/* The part's rows, which begin at `from` and are `stride` apart from head to head, into the stream. */
static int
emit(struct kv_emit *x, size_t layer, struct part *p, const float *from, size_t stride, struct kv_err *e)
{
	size_t shape[] = { p->H, p->n, x->o.cfg->D };
	struct kv_tensor t = { 0 };
	int rc;

	if (p->name[0] == '\0')
		return KV_OK;
	if ((rc = kv_device_get_rows(x->o.device, p->host, p->type, from, p->H, stride, p->n, x->o.cfg->D, e)) < 0)
		return rc;
	rc = kv_tensor_init(
	    &t, p->name, (int)layer, p->type, p->name[0] == 'q' ? "head query dim" : "kv_head token dim", shape, e);
	if (rc == KV_OK) {
		t.data = p->host;
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

	if ((rc = emit(x, layer, &x->part[Q], view->q + skipped, view->n, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[Q_BEHIND], view->q_behind, view->n_behind, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[K], view->k, view->stride, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[K_BEHIND], view->k_behind, view->stride, e)) < 0 ||
	    (rc = emit(x, layer, &x->part[V], view->v, view->stride, e)) < 0)
		return rc;
	return kv_writer_layer_end(x->o.writer, (int)layer, e);
}
