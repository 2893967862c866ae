/* SPDX-License-Identifier: MIT
 * kv-stat: measure a stream, or compare two of the same prompts, and print a table. */
#include "bin/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/join.h"
#include "lib/file.h"
#include "lib/stat/stat.h"

#define USES "score,budget,index,offset,logits.response" /* and of k the type */
#define GATE 1e300 /* beyond any bound */

static struct {
	struct kv_stat_options measure;
	const char *quantity, *per, *tie;
	bool json, list;
	double below, above;
} o = { .measure = { .k = 512 }, .tie = "raw", .below = INFINITY, .above = INFINITY };

static const struct kv_opt opts[] = {
	{ "quantity", 0, KV_STRING, &o.quantity, "NAME,...", "only these; else whatever can be measured", 0, 0, NULL },
	{ "per", 0, KV_STRING, &o.per, "WHAT", "a row for each, instead of one over all", 0, 0, "sequence|layer|head" },
	{ "top", 'k', KV_SIZE, &o.measure.k, "ENTRIES", "how many best of each head recall compares", 0, KV_COUNT_MAX,
	    NULL },
	{ "pooled", 0, KV_FLAG, &o.measure.pooled, NULL, "compare scores as they are ranked, not raw ones", 0, 0,
	    NULL },
	{ "tie", 0, KV_STRING, &o.tie, "RULE", "as in kv-evict, where scores and budgets say what is kept", 0, 0,
	    "raw|position" },
	{ "fail-below", 0, KV_DOUBLE, &o.below, "X", "exit with 1 if the quantity is below", -GATE, GATE, NULL },
	{ "fail-above", 0, KV_DOUBLE, &o.above, "X", "exit with 1 if the quantity is above", -GATE, GATE, NULL },
	{ "json", 'j', KV_FLAG, &o.json, NULL, "JSON Lines: one object per row", 0, 0, NULL },
	{ "list", 0, KV_FLAG, &o.list, NULL, "the quantities", 0, 0, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "kv-stat",
	.usage = "[options] [A [B]]",
	.brief = "measure a stream, or compare two of the same prompts",
	.opts = opts,
	.common = KV_COMMON_DEVICE,
};

/* One stream on its way. */
struct side {
	const char *name;
	struct kv_pipe *pipe;
	size_t Hkv;           /* of the model; 0: the header does not say */
	struct kv_step *step; /* NULL: it has ended, or must be read */
	bool ended;
	int32_t *response;
	size_t n_response;
};

struct run {
	struct kv_device device;
	struct side side[2];
	size_t n;
	struct kv_stat_run *stat;
	enum kv_stat_per per;
	struct kv_buf out;
};

/* ---- opening */

static enum kv_stat_per
per_of(const char *name)
{
	if (name == NULL)
		return KV_STAT_OVERALL;
	return name[0] == 's' ? KV_STAT_SEQUENCE : name[0] == 'l' ? KV_STAT_LAYER : KV_STAT_HEAD;
}

static bool
has_gate(void)
{
	return o.below != INFINITY || o.above != INFINITY;
}

static void
understand(struct run *r, int argc, char **argv)
{
	struct kv_err e = { 0 };

	if (argc > 3)
		kv_usage(&tool, "one stream or two, not %d", argc - 1);
	r->n = argc == 3 ? 2 : 1;
	r->side[0].name = argc > 1 ? argv[1] : "-";
	r->side[1].name = argc > 2 ? argv[2] : "-";
	if (r->n == 2 && strcmp(argv[1], "-") == 0 && strcmp(argv[2], "-") == 0)
		kv_usage(&tool, "standard input can be one of the streams, not both");
	if (has_gate() && (o.quantity == NULL || strchr(o.quantity, ',') != NULL))
		kv_usage(&tool, "--fail-below and --fail-above want to know which --quantity, and one only");
	r->per = per_of(o.per);
	if (kv_stat_run_new(&r->stat, o.quantity, r->n == 2, r->per, &o.measure, &e) < 0)
		kv_usage(&tool, "%s", e.text);
}

static int
open_side(struct side *s, struct kv_err *e)
{
	char *files[] = { (char *)s->name, NULL };
	const struct kv_pipe_options options = { .files = files, .no_output = true, .uses = USES };
	int rc = kv_pipe_open(&s->pipe, &options, e);

	if (strcmp(s->name, "-") == 0)
		s->name = "<stdin>";
	if (rc == KV_OK) {
		const json_int_t heads = json_integer_value(json_object_get(kv_pipe_model(s->pipe), "kv_heads"));

		s->Hkv = heads > 0 ? (size_t)heads : 0;
	}
	return rc;
}

static int
open_all(struct run *r, struct kv_err *e)
{
	struct kv_err differ = { 0 };
	int rc;

	kv_device_plan(&r->device, kv_common.device, kv_common.threads);
	r->device.unfit = kv_unfit;
	rc = kv_device_ready(&r->device, "", e);
	for (size_t i = 0; i < r->n && rc == KV_OK; i++)
		rc = open_side(&r->side[i], e);
	if (rc < 0 || r->n == 1)
		return rc;
	/* one model in two files may be worth a comparison; what does not fit is found out where it is used */
	if (kv_join_models(kv_pipe_model(r->side[0].pipe), r->side[0].name, kv_pipe_model(r->side[1].pipe),
		r->side[1].name, &differ) < 0)
		kv_warn("%s", differ.text);
	return rc;
}

/* ---- side by side */

/* The tokens that the rows of logits.response were made for. */
static int
read_response(struct side *s, struct kv_err *e)
{
	const json_t *list = json_object_get(s->step->seq->map, "response");

	free(s->response);
	s->response = NULL;
	s->n_response = json_array_size(list);
	if (!json_is_array(list))
		return KV_OK;
	if ((s->response = kv_alloc(s->n_response, sizeof *s->response, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < s->n_response; i++)
		s->response[i] = (int32_t)json_integer_value(json_array_get(list, i));
	return KV_OK;
}

static int
read_step(struct side *s, struct kv_err *e)
{
	int rc;

	if (s->step != NULL || s->ended)
		return KV_OK;
	if ((rc = kv_pipe_next(s->pipe, &s->step, e)) == KV_END) {
		s->ended = true;
		s->step = NULL;
		return KV_OK;
	}
	return rc == KV_OK && s->step->layer == KV_NO_LAYER ? read_response(s, e) : rc;
}

/* Does the other side have the sequence that this one is in, and the same prompt there?  What was answered may differ.
 */
static int
check_sequences(const struct side *a, const struct side *b, struct kv_err *e)
{
	const struct side *ended = a->ended ? a : b, *other = a->ended ? b : a;
	const struct kv_sequence *x, *y;

	if (ended->ended)
		return kv_fail(e, KV_EMODEL, "sequence %zu is in %s and missing in %s", other->step->seq->number,
		    other->name, ended->name);
	x = a->step->seq, y = b->step->seq;
	for (size_t i = 0; i < x->T && i < y->T; i++)
		if (x->tokens[i] != y->tokens[i])
			return kv_fail(e, KV_EMODEL, "different prompts: sequence %zu, token %zu: %d in %s, %d in %s",
			    x->number, i, (int)x->tokens[i], a->name, (int)y->tokens[i], b->name);
	if (x->T != y->T)
		return kv_fail(e, KV_EMODEL, "different prompts: sequence %zu: %zu tokens in %s, %zu in %s", x->number,
		    x->T, a->name, y->T, b->name);
	return KV_OK;
}

/* Layers ascend; what belongs to no layer comes last. */
static bool
comes_before(int layer, int other)
{
	return layer != KV_NO_LAYER && (other == KV_NO_LAYER || layer < other);
}

static struct kv_stat_view
view_of(struct run *r, const struct side *s, int layer)
{
	const struct kv_step *p = s->step;
	struct kv_stat_view v = {
		.name = s->name,
		.device = &r->device,
		.layer = layer,
		.T = p->seq->T,
		.Hkv = s->Hkv,
		.tie = strcmp(o.tie, "position") == 0 ? KV_TIE_POSITION : KV_TIE_RAW,
	};

	if (p->layer != layer)
		return v; /* this stream has nothing of the layer */
	v.score = kv_step_find(p, "score");
	v.budget = kv_step_find(p, "budget");
	v.protect = kv_step_find(p, "protect");
	v.index = kv_step_find(p, "index");
	v.offset = kv_step_find(p, "offset");
	v.k = kv_step_find(p, "k");
	v.logits = kv_step_find(p, "logits.response");
	v.response = s->response;
	v.n_response = s->n_response;
	return v;
}

/* The lowest layer that one of the streams stands at. */
static int
measure_step(struct run *r, struct kv_err *e)
{
	struct kv_stat_view v[2] = { 0 };
	int layer = r->side[0].step->layer, rc;

	if (r->n == 2 && comes_before(r->side[1].step->layer, layer))
		layer = r->side[1].step->layer;
	for (size_t i = 0; i < r->n; i++)
		v[i] = view_of(r, &r->side[i], layer);
	rc = kv_stat_step(r->stat, &v[0], r->n == 2 ? &v[1] : NULL, e);
	for (size_t i = 0; i < r->n; i++) {
		kv_stat_view_fini(&v[i]);
		if (r->side[i].step->layer == layer)
			r->side[i].step = NULL;
	}
	if (kv_stat_warning(r->stat) != NULL)
		kv_warn("%s", kv_stat_warning(r->stat));
	return rc;
}

static int
measure_all(struct run *r, struct kv_err *e)
{
	struct side *a = &r->side[0], *b = &r->side[1];
	bool begins = true;
	int rc = KV_OK;

	for (;;) {
		for (size_t i = 0; i < r->n && rc == KV_OK; i++)
			rc = read_step(&r->side[i], e);
		if (rc < 0 || (a->ended && (r->n == 1 || b->ended)))
			return rc;
		if (r->n == 2 && begins && (rc = check_sequences(a, b, e)) < 0)
			return rc;
		begins = a->step->layer == KV_NO_LAYER && (r->n == 1 || b->step->layer == KV_NO_LAYER);
		if ((rc = measure_step(r, e)) < 0)
			return rc;
	}
}

/* ---- the table */

/* What a gate looks at: of two streams the comparison, or the difference. */
static bool
is_gated(const struct run *r, const struct kv_stat_row *row)
{
	if (r->n == 1)
		return true;
	return row->of == KV_STAT_OF_BOTH || row->of == KV_STAT_OF_DIFFERENCE;
}

/* "layer 3, head 0: " in front of the fault, as far as the row is of one. */
static int
where(const struct kv_stat_row *p, struct kv_err *e)
{
	if (p->head >= 0)
		return kv_where(e, "layer %ld, head %ld", p->layer, p->head);
	if (p->layer >= 0)
		return kv_where(e, "layer %ld", p->layer);
	return p->sequence >= 0 ? kv_where(e, "sequence %ld", p->sequence) : e->code;
}

/* The first row that is out of bounds, or the lack of any, is the fault. */
static int
check_gate(const struct run *r, const struct kv_stat_row *rows, size_t n, struct kv_err *e)
{
	size_t n_gated = 0;

	for (const struct kv_stat_row *p = rows; p < rows + n; p++) {
		const bool below = o.below != INFINITY && !(p->mean >= o.below);
		const bool above = o.above != INFINITY && !(p->mean <= o.above);

		if (!is_gated(r, p))
			continue;
		n_gated++;
		if (!below && !above)
			continue;
		kv_fail(e, KV_EFAIL, "%s%s is %.9g, %s %.9g", p->q->name,
		    p->of == KV_STAT_OF_DIFFERENCE ? " of B minus that of A" : "", p->mean, below ? "below" : "above",
		    below ? o.below : o.above);
		return where(p, e);
	}
	return n_gated > 0 ? KV_OK : kv_fail(e, KV_EFAIL, "%s has no value that could be checked", o.quantity);
}

static int
print_rows(struct run *r, struct kv_err *e)
{
	const struct kv_stat_row *rows;
	size_t n;
	int rc = kv_stat_rows(r->stat, &rows, &n, e);

	if (rc == KV_OK && !o.json)
		rc = kv_stat_say_names(&r->out, r->per, r->n == 2, e);
	for (size_t i = 0; i < n && rc == KV_OK; i++)
		rc = o.json ? kv_stat_say_json(&r->out, &rows[i], e)
			    : kv_stat_say_row(&r->out, &rows[i], r->per, r->n == 2, e);
	if (rc == KV_OK)
		rc = kv_write_all(STDOUT_FILENO, r->out.data, r->out.n, e);
	return rc == KV_OK && has_gate() ? check_gate(r, rows, n, e) : rc;
}

static int
print_list(void)
{
	struct kv_buf text = { 0 };
	struct kv_err e = { 0 };
	int rc = kv_stat_say_list(&text, &e);

	if (rc == KV_OK)
		rc = kv_write_all(STDOUT_FILENO, text.data, text.n, &e);
	kv_buf_fini(&text);
	return kv_report(rc, &e);
}

int
main(int argc, char **argv)
{
	struct run r = { 0 };
	struct kv_err e = { 0 };
	int rc;

	argc = kv_options(argc, argv, &tool);
	if (o.list)
		return print_list();
	understand(&r, argc, argv);
	if ((rc = open_all(&r, &e)) == KV_OK && (rc = measure_all(&r, &e)) == KV_OK)
		rc = print_rows(&r, &e);
	for (size_t i = 0; rc == KV_OK && o.quantity == NULL && kv_stat_reason(r.stat, i) != NULL; i++)
		if (kv_stat_reason(r.stat, i)[0] != '\0')
			kv_note("not measured: %s", kv_stat_reason(r.stat, i));
	for (size_t i = 0; i < r.n; i++) {
		kv_pipe_finish(r.side[i].pipe, rc, NULL);
		free(r.side[i].response);
	}
	kv_buf_fini(&r.out);
	kv_stat_run_free(r.stat);
	kv_device_close(&r.device);
	return kv_report(rc, &e);
}
