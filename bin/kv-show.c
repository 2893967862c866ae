/* SPDX-License-Identifier: MIT */
#include "bin/common.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format.h"
#include "lib/show/show.h"

#define WIDTH_MIN 40

static struct {
	bool json, no_stats, no_header, tokens, devices;
	const char *tensor;
	size_t layer, head, sequence, width;
} o = { .layer = KV_SHOW_ALL, .head = KV_SHOW_ALL, .sequence = KV_SHOW_ALL, .width = 100 };

static const struct kv_opt opts[] = {
	{ "tensor", 't', KV_STRING, &o.tensor, "NAME", "the values of one tensor, tab-separated", 0, 0, NULL },
	{ "tokens", 'k', KV_FLAG, &o.tokens, NULL, "which tokens were kept, as text (ids without a model)", 0, 0,
	    NULL },
	{ "layer", 'l', KV_SIZE, &o.layer, "L", "this layer only, 0 is the first", 0, 0, NULL },
	{ "head", 0, KV_SIZE, &o.head, "H", "this head only, with --tensor or --tokens", 0, 0, NULL },
	{ "sequence", 's', KV_SIZE, &o.sequence, "N", "this sequence only, 0 is the first", 0, 0, NULL },
	{ "json", 'j', KV_FLAG, &o.json, NULL, "JSON Lines: one object per record, or per token", 0, 0, NULL },
	{ "devices", 0, KV_FLAG, &o.devices, NULL, "what --device can name here, and nothing else", 0, 0, NULL },
	{ "no-stats", 0, KV_FLAG, &o.no_stats, NULL, "do not read payloads: no min, mean, max, no checksums", 0, 0,
	    NULL },
	{ "no-header", 0, KV_FLAG, &o.no_header, NULL, "no line of column names above values", 0, 0, NULL },
	{ "width", 0, KV_SIZE, &o.width, "COLUMNS", "of a line of --tokens", WIDTH_MIN, 100000, NULL },
	{ 0 },
};
static const struct kv_tool tool = {
	.name = "kv-show",
	.usage = "[options] [FILE...]",
	.brief = "show what is in a stream, a cache or a model file",
	.opts = opts,
	.common = KV_COMMON_MODEL,
};

/* The model whose vocabulary --tokens reads the text with; opened once. */
static struct {
	struct kv_model model;
	struct kv_tokenizer *tokenizer;
} text;

/* A stream on its way through a view. */
struct walk {
	struct kv_show *s;
	const struct kv_view *v;
	struct kv_reader *r;
	size_t n;   /* sequences so far, shown or not */
	bool shown; /* the sequence we are in is one to show */
	int layer;  /* of the last tensor */
};

static int
need_text(struct kv_show *s, const json_t *header)
{
	const char *made_by = json_string_value(json_object_get(json_object_get(header, "model"), "fingerprint"));
	const char *ours = text.model.cfg.fingerprint;
	struct kv_err *e = &s->err;

	if (!o.tokens || kv_common.model == NULL)
		return KV_OK;
	if (text.tokenizer == NULL) {
		if ((s->rc = kv_model_open(&text.model, kv_common.model, false, e)) < 0 ||
		    (s->rc = kv_tokenizer_new(&text.tokenizer, &text.model.vocab, e)) < 0)
			return s->rc;
	}
	if (made_by && *made_by && *ours && strcmp(made_by, ours) != 0)
		return s->rc = kv_fail(e, KV_EMODEL, "%s: made by a model with fingerprint %.40s, but that of %s is %s",
			   s->file, made_by, kv_common.model, ours);
	s->tokenizer = text.tokenizer;
	return KV_OK;
}

/* A view's verdict on what it was given lacks the place; the reader's own faults and those of writing do not. */
static int
where(struct walk *w, int rc)
{
	if (rc != KV_EFORMAT && rc != KV_EARG && rc != KV_EMODEL)
		return rc;
	if (w->layer == KV_NO_LAYER)
		return kv_where(&w->s->err, "%s: sequence %zu", w->s->file, w->n - 1);
	return kv_where(&w->s->err, "%s: sequence %zu, layer %d", w->s->file, w->n - 1, w->layer);
}

static void
end_layer(struct walk *w)
{
	if (w->s->rc == KV_OK)
		where(w, w->v->layer(w->s));
	kv_show_layer_fini(w->s);
	w->layer = KV_NO_LAYER;
}

static int
show_sequence(struct walk *w, const json_t *map)
{
	w->layer = KV_NO_LAYER;
	w->shown = o.sequence == KV_SHOW_ALL || o.sequence == w->n;
	w->n++;
	if (!w->shown)
		return w->s->rc;
	w->s->n_sequences++;
	return where(w, kv_show_begin(w->s, w->n - 1, map) < 0 ? w->s->rc : w->v->sequence(w->s, map));
}

static int
show_tensor(struct walk *w, struct kv_tensor *t)
{
	struct kv_show *s = w->s;

	if (!w->shown)
		return s->rc;
	if (t->layer != w->layer)
		end_layer(w);
	w->layer = t->layer;
	if (o.layer != KV_SHOW_ALL && (t->layer < 0 || (size_t)t->layer != o.layer))
		return s->rc;
	s->n_tensors++;
	s->n_bytes += t->bytes;
	if (s->rc == KV_OK && w->v->wants(s, t))
		s->rc = kv_reader_payload(w->r, t, &s->err);
	return s->rc < 0 ? s->rc : where(w, w->v->tensor(s, t));
}

static int
show_close(struct walk *w)
{
	if (!w->shown)
		return w->s->rc;
	end_layer(w);
	return w->s->rc < 0 ? w->s->rc : where(w, w->v->close(w->s));
}

static int
show_record(struct walk *w, struct kv_record *rec)
{
	switch (rec->kind) {
	case KV_RECORD_HEADER: return need_text(w->s, rec->map) < 0 ? w->s->rc : w->v->header(w->s, rec->map);
	case KV_RECORD_SEQUENCE: return show_sequence(w, rec->map);
	case KV_RECORD_TENSOR: return show_tensor(w, &rec->tensor);
	case KV_RECORD_CLOSE: return show_close(w);
	case KV_RECORD_OTHER: return w->v->other(w->s, rec->raw.n);
	case KV_RECORD_LAYER_END:
	case KV_RECORD_END: break;
	}
	return w->s->rc;
}

static int
show_stream(struct kv_show *s, const struct kv_view *v, const char *path)
{
	struct walk w = { .s = s, .v = v };
	struct kv_record rec = { 0 };

	if ((s->rc = kv_reader_open(&w.r, path, &s->err)) < 0)
		return s->rc;
	s->file = kv_reader_name(w.r);
	while (s->rc == KV_OK && (s->rc = kv_reader_next(w.r, &rec, &s->err)) == KV_OK) {
		show_record(&w, &rec);
		kv_record_fini(&rec);
		kv_show_flush(s, 0);
	}
	if (s->rc == KV_END) {
		s->rc = KV_OK;
		if (o.layer != KV_SHOW_ALL && s->n_tensors == 0)
			s->rc = kv_fail(&s->err, KV_EARG, "%s: no tensor of layer %zu", s->file, o.layer);
		else if (v->end(s) == KV_EARG)
			kv_where(&s->err, "%s", s->file);
	}
	kv_record_fini(&rec);
	kv_show_layer_fini(s); /* may borrow from the reader */
	kv_reader_free(w.r);
	return s->rc;
}

struct weight_context {
	struct kv_show *s;
	const struct kv_model_view *v;
};

static int
show_weight(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	struct weight_context *c = ctx;

	if (c->v->weight(c->s, name, w) == KV_OK)
		kv_show_flush(c->s, 1 << 16);
	if (c->s->rc < 0)
		*e = c->s->err;
	return c->s->rc;
}

/* A file that we cannot run is shown as far as it can be read, and then the fault is told. */
static int
show_model(struct kv_show *s, const struct kv_model_view *v, const char *path, const struct kv_format *f)
{
	struct weight_context c = { s, v };
	struct kv_model m = { 0 };
	struct kv_err fault = { 0 };
	json_t *metadata = NULL;

	s->file = path;
	if (f->open == NULL)
		v->other(s, f->name, f->brief);
	else if (kv_model_open(&m, path, false, &fault) == KV_OK)
		v->config(s, f->name, &m);
	kv_model_fini(&m);
	if (s->rc == KV_OK && (s->rc = f->metadata(path, &metadata, &s->err)) == KV_OK)
		v->metadata(s, metadata);
	json_decref(metadata);
	if (s->rc == KV_OK)
		s->rc = f->tensors(path, show_weight, &c, &s->err);
	if (s->rc == KV_OK)
		v->end(s);
	if (s->rc == KV_OK && fault.code < 0) {
		kv_show_flush(s, 0);
		s->err = fault;
		s->rc = fault.code;
	}
	return s->rc;
}

/* Only what can be opened twice is asked whether it is a model. */
static const struct kv_format *
model_format(const char *path)
{
	struct stat st;

	if (strcmp(path, "-") == 0 || stat(path, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return NULL;
	return kv_format_probe(path);
}

static const struct kv_view *
chosen_view(void)
{
	if (o.tensor)
		return &kv_view_rows;
	if (o.tokens)
		return &kv_view_tokens;
	return o.json ? &kv_view_json : &kv_view_text;
}

static int
show_file(const char *path)
{
	const struct kv_format *f = model_format(path);
	struct kv_show s = { .fd = STDOUT_FILENO, .file = path };
	int status;

	s.o = (struct kv_show_options){ .stats = !o.no_stats,
		.tensor = o.tensor,
		.layer = o.layer,
		.head = o.head,
		.sequence = o.sequence,
		.column_names = !o.no_header,
		.json = o.json,
		.width = o.width };
	if (f == NULL)
		show_stream(&s, chosen_view(), path);
	else if (o.tensor || o.tokens)
		s.rc = kv_fail(&s.err, KV_EARG, "%s: a model file; --tensor and --tokens read streams", path);
	else
		show_model(&s, o.json ? &kv_model_view_json : &kv_model_view_text, path, f);
	if (s.rc != KV_EPIPE) { /* what has been said belongs above the message */
		int rc = s.rc;

		s.rc = KV_OK;
		if (kv_show_flush(&s, 0) == KV_OK)
			s.rc = rc;
	}
	status = kv_report(s.rc, &s.err);
	kv_show_fini(&s);
	return status;
}

static int
show_device(void *ctx, const char *name, bool usable, const char *about)
{
	struct kv_show *s = ctx;

	if (o.json) {
		kv_say_json(s, json_pack("{s:s, s:b, s:s}", "device", name, "usable", usable, "about", about));
		return s->rc;
	}
	kv_say_padded(s, name, 8);
	kv_say(s, "%s", usable ? "" : "not usable: ");
	kv_say_string(s, about);
	kv_say(s, "\n");
	return s->rc;
}

static int
show_devices(void)
{
	struct kv_show s = { .fd = STDOUT_FILENO, .file = "<stdout>" };
	int status;

	kv_device_list(show_device, &s);
	kv_show_flush(&s, 0);
	status = kv_report(s.rc, &s.err);
	kv_show_fini(&s);
	return status;
}

int
main(int argc, char **argv)
{
	int status = KV_EXIT_OK;

	argc = kv_options(argc, argv, &tool);
	if (o.tensor && (o.tokens || o.json))
		kv_usage(&tool, "--tensor goes neither with --tokens nor with --json");
	if (o.head != KV_SHOW_ALL && !o.tensor && !o.tokens)
		kv_usage(&tool, "--head chooses among the rows of --tensor or --tokens");
	if (o.devices && (argc > 1 || o.tensor || o.tokens))
		kv_usage(&tool, "--devices goes with --json alone");
	if (o.devices)
		return show_devices();
	for (int i = 1; i < argc; i++)
		if (show_file(argv[i]) != KV_EXIT_OK)
			status = KV_EXIT_FAILED;
	if (argc < 2)
		status = show_file("-");
	kv_tokenizer_free(text.tokenizer);
	kv_model_fini(&text.model);
	return status;
}
