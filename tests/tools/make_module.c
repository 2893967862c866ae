/* SPDX-License-Identifier: MIT
 * make_module [options] MODEL OUT - write a random LookaheadKV module for a model: as training begins it, or with
 * --trained as if B had learned something, so that adapters act.
 */
#include <stdio.h>
#include <string.h>

#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/hash.h"
#include "lib/opt.h"
#include "lib/tensor.h"

static struct kv_lookahead_shape shape = { .n = 4, .rank = 2, .alpha = 4 };
static const char *targets = "all", *type_name = "f32";
static uint64_t seed;
static bool trained;

static const struct kv_opt opts[] = {
	{ "tokens", 'n', KV_SIZE, &shape.n, "N", "lookahead tokens", 1, 4096, NULL },
	{ "rank", 0, KV_SIZE, &shape.rank, "N", "of the adapters", 0, 4096, NULL },
	{ "alpha", 0, KV_DOUBLE, &shape.alpha, "X", "of the adapters", 0, 0, NULL },
	{ "targets", 0, KV_STRING, &targets, "WHICH", "adapted matrices", 0, 0, "none|qkv|all" },
	{ "type", 0, KV_STRING, &type_name, "TYPE", "of the numbers", 0, 0, "f32|f16|bf16" },
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

static int
make(const char *model, const char *out, struct kv_err *e)
{
	struct kv_model base = { 0 };
	struct kv_lookahead *m = NULL;
	int rc;

	shape.targets = (enum kv_lookahead_targets)kv_lookahead_targets_find(targets);
	if ((rc = kv_model_open(&base, model, false, e)) < 0 || (rc = kv_lookahead_new(&m, &base.cfg, &shape, e)) < 0)
		goto done;
	kv_lookahead_init(m, seed, 0.5);
	if (trained)
		train(m);
	json_object_set_new(m->training, "tool", json_string("make_module"));
	rc = kv_lookahead_write(m, out, kv_type_find(type_name), e);
done:
	kv_lookahead_free(m);
	kv_model_fini(&base);
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
