/* SPDX-License-Identifier: MIT
 * make_module [options] MODEL OUT - write a random LookaheadKV module for a model: as training begins it, or with
 * --trained as if B had learned something, so that adapters act; or with tokens of the model itself.
 */
#include <stdio.h>
#include <string.h>

#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/hash.h"
#include "lib/opt.h"
#include "lib/tensor.h"
#include "lib/text/ids.h"

static struct kv_lookahead_shape shape = { .n = 4, .rank = 2, .alpha = 4 };
static const char *targets = "all", *type_name = "f32", *copied;
static uint64_t seed;
static bool trained;

static const struct kv_opt opts[] = {
	{ "tokens", 'n', KV_SIZE, &shape.n, "N", "lookahead tokens", 1, 4096, NULL },
	{ "rank", 0, KV_SIZE, &shape.rank, "N", "of the adapters", 0, 4096, NULL },
	{ "alpha", 0, KV_DOUBLE, &shape.alpha, "X", "of the adapters", 0, 0, NULL },
	{ "targets", 0, KV_STRING, &targets, "WHICH", "adapted matrices", 0, 0, "none|qkv|all" },
	{ "type", 0, KV_STRING, &type_name, "TYPE", "of the numbers", 0, 0, "f32|f16|bf16" },
	{ "copy", 0, KV_STRING, &copied, "IDS", "lookahead tokens are these of the model, whose table is f32", 0, 0,
	    NULL },
	{ "trained", 0, KV_FLAG, &trained, NULL, "B is random too", 0, 0, NULL },
	{ "seed", 0, KV_U64, &seed, "N", "another module for another number", 0, 0, NULL },
	{ 0 },
};

static void
train(struct kv_lookahead *m)
{
	for (size_t i = 0; i < m->L * KV_N_ROLES; i++) {
		const struct kv_adapter *a = &m->adapter[i];

		for (size_t j = 0; a->a != NULL && j < a->out * m->shape.rank; j++)
			a->b[j] = (float)(kv_hash_slot(seed, i, 2, j) >> 40) * 0x1p-25f - 0.25f;
	}
}

/* The rows of the embedding table as P. */
static void
copy(struct kv_lookahead *m, const struct kv_model *base, const struct kv_ids *ids)
{
	const float *table = kv_model_weight(base, 0, KV_EMBED)->data;

	for (size_t i = 0; i < ids->n; i++)
		memcpy(m->p + i * m->d, table + (size_t)ids->v[i] * m->d, m->d * sizeof *table);
}

static int
make(const char *model, const char *out, struct kv_err *e)
{
	struct kv_model base = { 0 };
	struct kv_lookahead *m = NULL;
	struct kv_ids ids = { 0 };
	int rc;

	shape.targets = (enum kv_lookahead_targets)kv_lookahead_targets_find(targets);
	if (copied != NULL && (rc = kv_ids_parse(&ids, copied, e)) < 0)
		goto done;
	shape.n = ids.n > 0 ? ids.n : shape.n;
	if ((rc = kv_model_open(&base, model, copied != NULL, e)) < 0 ||
	    (rc = kv_lookahead_new(&m, &base.cfg, &shape, e)) < 0)
		goto done;
	kv_lookahead_init(m, seed, 0.5);
	if (trained)
		train(m);
	if (ids.n > 0)
		copy(m, &base, &ids);
	json_object_set_new(m->training, "tool", json_string("make_module"));
	rc = kv_lookahead_write(m, out, kv_type_find(type_name), e);
done:
	kv_lookahead_free(m);
	kv_model_fini(&base);
	kv_ids_fini(&ids);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct kv_opt *tables[] = { opts, NULL };
	struct kv_buf help = { 0 };
	struct kv_err e = { 0 };

	if (kv_opt_parse(tables, &argc, argv, &e) < 0 || argc != 3) {
		kv_opt_help(opts, &help, NULL);
		fprintf(stderr, "make_module: %s\nUsage: make_module [options] MODEL OUT\n%s", e.text, help.data);
		kv_buf_fini(&help);
		return 2;
	}
	if (make(argv[1], argv[2], &e) < 0) {
		fprintf(stderr, "make_module: %s\n", e.text);
		return 1;
	}
	return 0;
}
