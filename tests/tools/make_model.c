/* SPDX-License-Identifier: MIT
 * make_model [options] OUT - write a small random model for tests of the programs: a GGUF file, or with --hf a folder.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lib/opt.h"
#include "lib/tensor.h"
#include "tests/lib/tiny.h"
#include "tests/lib/write_model.h"

static struct tiny_spec spec = { .arch = "llama",
	.L = 2,
	.Hq = 4,
	.Hkv = 2,
	.D = 16,
	.d = 64,
	.ff = 96,
	.vocab = 320,
	.context = 512,
	.interleaved = true };
static const char *type_name = "f32";
static bool hf;
static unsigned shards = 1;
static size_t broken_token = SIZE_MAX;

static const struct kv_opt opts[] = {
	{ "arch", 0, KV_STRING, &spec.arch, "NAME", "architecture", 0, 0, "llama|qwen2|qwen3" },
	{ "type", 0, KV_STRING, &type_name, "TYPE",
	    "type of the matrices: f32, f16, q8_0, q4_k, ...; a matrix whose rows are no whole "
	    "number of blocks stays f32",
	    0, 0, NULL },
	{ "layers", 0, KV_SIZE, &spec.L, "N", "layers", 1, 100, NULL },
	{ "heads", 0, KV_SIZE, &spec.Hq, "N", "query heads", 1, 64, NULL },
	{ "kv-heads", 0, KV_SIZE, &spec.Hkv, "N", "KV heads", 1, 64, NULL },
	{ "head-dim", 0, KV_SIZE, &spec.D, "N", "head size", 2, 256, NULL },
	{ "embedding", 0, KV_SIZE, &spec.d, "N", "embedding size", 1, 4096, NULL },
	{ "feed-forward", 0, KV_SIZE, &spec.ff, "N", "feed-forward size", 1, 16384, NULL },
	{ "vocabulary", 0, KV_SIZE, &spec.vocab, "N", "tokens; fewer than 268: no vocabulary", 1, 65536, NULL },
	{ "context", 0, KV_SIZE, &spec.context, "N", "longest sequence", 1, 1e6, NULL },
	{ "tied", 0, KV_FLAG, &spec.tied, NULL, "the output table is the embedding table", 0, 0, NULL },
	{ "llama3", 0, KV_FLAG, &spec.llama3_scaling, NULL, "Llama 3.1's rotary scaling, original context 32", 0, 0,
	    NULL },
	{ "hf", 0, KV_FLAG, &hf, NULL, "write a Hugging Face folder", 0, 0, NULL },
	{ "shards", 0, KV_UINT, &shards, "N", "safetensors files in the folder", 1, 99, NULL },
	{ "broken-token", 0, KV_SIZE, &broken_token, "ID", "the embedding of this token is not a number", 0, 65535,
	    NULL },
	{ "seed", 0, KV_U64, &spec.seed, "N", "another model for another number", 0, 0, NULL },
	{ 0 },
};

static void
break_token(struct kv_model *m, size_t id)
{
	const struct kv_matrix *w = kv_model_weight(m, 0, KV_EMBED);
	float *row = (float *)w->data + id * w->cols; /* grown, so f32 and writable */

	for (size_t i = 0; id < w->rows && i < w->cols; i++)
		row[i] = NAN;
}

static int
make(const char *out, struct kv_err *e)
{
	enum kvk_type type = kv_type_find(type_name);
	struct kv_model m = { 0 };
	int rc;

	if (type == KVK_N_TYPES || type == KVK_I32)
		return kv_fail(e, KV_EARG, "type '%s' is not known", type_name);
	spec.interleaved = strcmp(spec.arch, "llama") == 0;
	if ((rc = tiny_model(&m, &spec, e)) == KV_OK)
		break_token(&m, broken_token);
	if (rc == KV_OK)
		rc = hf ? write_hf(&m, type, shards, out, e) : write_gguf(&m, type, out, e);
	kv_model_fini(&m);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct kv_opt *tables[] = { opts, NULL };
	struct kv_buf help = { 0 };
	struct kv_err e = { 0 };

	if (kv_opt_parse(tables, &argc, argv, &e) < 0 || argc != 2) {
		kv_opt_help(opts, &help, NULL);
		fprintf(stderr, "make_model: %s\nUsage: make_model [options] OUT\n%s", e.text, help.data);
		kv_buf_fini(&help);
		return 2;
	}
	if (make(argv[1], &e) < 0) {
		fprintf(stderr, "make_model: %s\n", e.text);
		return 1;
	}
	return 0;
}
