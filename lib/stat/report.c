/* SPDX-License-Identifier: MIT
 * Rows as text. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/stat/stat.h"

static const char *const ofs[] = {
	[KV_STAT_OF_A] = "A", [KV_STAT_OF_B] = "B", [KV_STAT_OF_BOTH] = "A:B", [KV_STAT_OF_DIFFERENCE] = "B-A"
};

static const char *const places[] = { [KV_STAT_OVERALL] = "",
	[KV_STAT_SEQUENCE] = "\tsequence",
	[KV_STAT_LAYER] = "\tlayer",
	[KV_STAT_HEAD] = "\tlayer\thead" };

int
kv_stat_say_names(struct kv_buf *out, enum kv_stat_per per, bool two, struct kv_err *e)
{
	return kv_buf_printf(
	    out, e, "quantity%s%s\tmean\tn\tsd%s\n", two ? "\tof" : "", places[per], two ? "\tsign_p\twilcoxon_p" : "");
}

static int
say_number(struct kv_buf *out, double x, struct kv_err *e)
{
	return isnan(x) ? kv_buf_printf(out, e, "\t-") : kv_buf_printf(out, e, "\t%.9g", x);
}

int
kv_stat_say_row(struct kv_buf *out, const struct kv_stat_row *r, enum kv_stat_per per, bool two, struct kv_err *e)
{
	const bool has_place = per != KV_STAT_OVERALL;
	int rc = kv_buf_printf(out, e, "%s%s%s", r->q->name, two ? "\t" : "", two ? ofs[r->of] : "");

	if (rc == KV_OK && has_place)
		rc = kv_buf_printf(out, e, "\t%ld", per == KV_STAT_SEQUENCE ? r->sequence : r->layer);
	if (rc == KV_OK && per == KV_STAT_HEAD)
		rc = kv_buf_printf(out, e, "\t%ld", r->head);
	if (rc == KV_OK)
		rc = say_number(out, r->mean, e);
	if (rc == KV_OK)
		rc = kv_buf_printf(out, e, "\t%zu", r->n);
	if (rc == KV_OK)
		rc = say_number(out, r->sd, e);
	if (rc == KV_OK && two && (rc = say_number(out, r->sign, e)) == KV_OK)
		rc = say_number(out, r->wilcoxon, e);
	return rc == KV_OK ? kv_buf_add(out, "\n", 1, e) : rc;
}

static json_t *
number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

int
kv_stat_say_json(struct kv_buf *out, const struct kv_stat_row *r, struct kv_err *e)
{
	json_t *o = json_pack("{s:s, s:s, s:s}", "quantity", r->q->name, "unit", r->q->unit, "of", ofs[r->of]);
	char *text;
	int rc;

	if (r->sequence >= 0)
		json_object_set_new(o, "sequence", json_integer(r->sequence));
	if (r->layer >= 0)
		json_object_set_new(o, "layer", json_integer(r->layer));
	if (r->head >= 0)
		json_object_set_new(o, "head", json_integer(r->head));
	json_object_set_new(o, "mean", number(r->mean));
	json_object_set_new(o, "n", json_integer((json_int_t)r->n));
	json_object_set_new(o, "sd", number(r->sd));
	if (r->of == KV_STAT_OF_DIFFERENCE) {
		json_object_set_new(o, "sign_p", number(r->sign));
		json_object_set_new(o, "wilcoxon_p", number(r->wilcoxon));
	}
	text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
	rc = text != NULL ? kv_buf_printf(out, e, "%s\n", text) : kv_no_memory(e, sizeof *r);
	free(text);
	json_decref(o);
	return rc;
}

int
kv_stat_say_list(struct kv_buf *out, struct kv_err *e)
{
	int rc = KV_OK;

	for (int two = 0; two <= 1; two++) {
		if (rc == KV_OK)
			rc = kv_buf_printf(out, e, two ? "of two streams, A and B:\n" : "of one stream:\n");
		for (const struct kv_stat *q = kv_stat_list; rc == KV_OK && q->name != NULL; q++)
			if (q->two == two)
				rc = kv_buf_printf(out, e, "  %-16s%-9s%s\n", q->name, q->unit, q->brief);
	}
	return rc;
}
