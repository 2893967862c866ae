/* SPDX-License-Identifier: MIT */
#include "tests/lib/tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/fingerprint.h"

#define LINE_FLOATS 16 /* every matrix starts on a 64-byte line, as in a real model file */

static const char chatml[] =
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* In GPT-2's alphabet; U+0120 is the space. */
static const char *const merges[] = { "\xc4\xa0 t", "h e", "i n", "e r", "a n", "\xc4\xa0t he", "o n", "\xc4\xa0 a" };
static const char *const specials[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>" };
enum { N_MERGES = sizeof merges / sizeof *merges, N_SPECIALS = sizeof specials / sizeof *specials };

/* Sebastiano Vigna's splitmix64: the n-th value of the sequence that starts at seed. */
static uint64_t
splitmix(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* n values, uniform, of this mean and standard deviation; no libm but sqrt, which is exact to the last bit
 * everywhere. */
static void
grow(float *x, size_t n, uint64_t seed, double mean, double deviation)
{
	double half_width = sqrt(3) * deviation;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)(mean + half_width * ((double)(splitmix(seed, i) >> 11) * 0x1p-52 - 1));
}

static void
grow_role(float *x, const struct kv_config *c, enum kv_role role, size_t rows, size_t cols, uint64_t seed)
{
	bool bias = role == KV_Q_BIAS || role == KV_K_BIAS || role == KV_V_BIAS;
	bool unit = role == KV_EMBED && !c->tied;

	if (bias)
		grow(x, cols, seed, 0, 0.3);
	else if (kv_roles[role].vector)
		grow(x, cols, seed, 1, 0.2);
	else
		grow(x, rows * cols, seed, 0, unit ? 1 : 1 / sqrt((double)cols));
}

/* Calls fn, unless NULL, for every matrix the configuration needs, in a fixed order, with the place of its floats
 * behind base; *end is the number of floats in all. */
typedef int (*place_fn)(struct kv_model *m, size_t layer, enum kv_role role, float *x, uint64_t seed, struct kv_err *e);

static int
walk(struct kv_model *m, place_fn fn, float *base, uint64_t seed, size_t *end, struct kv_err *e)
{
	size_t at = 0, rows, cols;
	int rc;

	for (size_t layer = 0; layer < m->cfg.L; layer++) {
		for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
			if (!kv_role_needed(&m->cfg, role) || (!kv_roles[role].per_layer && layer > 0))
				continue;
			if (fn != NULL && (rc = fn(m, layer, role, base + at, seed, e)) < 0)
				return rc;
			kv_role_shape(&m->cfg, role, &rows, &cols);
			at += (rows * cols + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
		}
	}
	*end = at;
	return KV_OK;
}

static int
place(struct kv_model *m, size_t layer, enum kv_role role, float *x, uint64_t seed, struct kv_err *e)
{
	struct kv_matrix w = { .type = KVK_F32, .data = x };

	kv_role_shape(&m->cfg, role, &w.rows, &w.cols);
	grow_role(x, &m->cfg, role, w.rows, w.cols, splitmix(seed, layer * KV_N_ROLES + role));
	return kv_model_set(m, layer, role, &w, "tiny", e);
}

static int
fingerprint(struct kv_config *c, const float *weights, size_t floats, struct kv_err *e)
{
	struct kv_fingerprint *f = kv_fingerprint_new();

	if (f == NULL)
		return kv_no_memory(e, 0);
	kv_fingerprint_add(f, weights, floats * sizeof *weights);
	kv_fingerprint_take(f, c->fingerprint);
	return KV_OK;
}

/* The weights stand in one block that belongs to the vocabulary's memory and goes with it. */
static int
grow_weights(struct kv_model *m, uint64_t seed, struct kv_err *e)
{
	size_t floats;
	float *block;
	int rc;

	if ((rc = kv_model_alloc(m, e)) < 0 || (rc = walk(m, NULL, NULL, seed, &floats, e)) < 0)
		return rc;
	if ((block = kv_vocab_alloc(&m->vocab, floats + LINE_FLOATS, sizeof *block, e)) == NULL)
		return KV_EMEM;
	block += (LINE_FLOATS - (uintptr_t)block / sizeof *block % LINE_FLOATS) % LINE_FLOATS;
	if ((rc = walk(m, place, block, seed, &floats, e)) < 0 ||
	    (rc = fingerprint(&m->cfg, block, floats, e)) < 0)
		return rc;
	return kv_model_complete(m, true, e);
}

/* A byte as GPT-2 spells it in its vocabulary: itself when it is printable, else the next free code point from U+0100
 * on. */
static size_t
spell_byte(unsigned byte, char out[2])
{
	unsigned cp = byte, free_cp = 0x100;

	for (unsigned b = 0; b <= byte; b++) {
		bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;

		cp = printable ? b : free_cp++;
	}
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	out[0] = (char)(0xc0 | cp >> 6);
	out[1] = (char)(0x80 | (cp & 0x3f));
	return 2;
}

static int
add_token(struct kv_vocab *v, const char *text, size_t n, enum kv_token_kind kind, struct kv_err *e)
{
	const char *copy = kv_vocab_strdup(v, text, n, e);

	if (copy == NULL)
		return KV_EMEM;
	v->tokens[v->n++] = (struct kv_token){ .text = copy, .n = (uint32_t)n, .kind = (uint8_t)kind };
	return KV_OK;
}

/* "a b" -> the token "ab" */
static int
add_merge(struct kv_vocab *v, const char *merge, struct kv_err *e)
{
	char text[32];
	const char *space = strchr(merge, ' ');
	int n = snprintf(text, sizeof text, "%.*s%s", (int)(space - merge), merge, space + 1);

	if ((v->merges[v->n_merges++] = kv_vocab_strdup(v, merge, strlen(merge), e)) == NULL)
		return KV_EMEM;
	return add_token(v, text, (size_t)n, KV_TOKEN_NORMAL, e);
}

static int
add_tokens(struct kv_vocab *v, size_t n, struct kv_err *e)
{
	char text[32];
	int rc = KV_OK;

	for (unsigned b = 0; b < 256 && rc == KV_OK; b++)
		rc = add_token(v, text, spell_byte(b, text), KV_TOKEN_NORMAL, e);
	for (size_t i = 0; i < N_MERGES && rc == KV_OK; i++)
		rc = add_merge(v, merges[i], e);
	for (size_t i = 0; i < N_SPECIALS && rc == KV_OK; i++)
		rc = add_token(v, specials[i], strlen(specials[i]), KV_TOKEN_SPECIAL, e);
	while (v->n < n && rc == KV_OK) {
		int bytes = snprintf(text, sizeof text, "<unused%zu>", v->n);

		rc = add_token(v, text, (size_t)bytes, KV_TOKEN_UNUSED, e);
	}
	return rc;
}

static int
grow_vocab(struct kv_vocab *v, size_t n, struct kv_err *e)
{
	int rc;

	v->bos = v->eos = v->unk = v->pad = -1;
	if (n < TINY_MIN_VOCAB)
		return KV_OK;
	v->kind = KV_VOCAB_BPE;
	v->tokens = kv_vocab_alloc(v, n, sizeof *v->tokens, e);
	v->merges = kv_vocab_alloc(v, N_MERGES, sizeof *v->merges, e);
	v->chat_template = kv_vocab_strdup(v, chatml, strlen(chatml), e);
	if (v->tokens == NULL || v->merges == NULL || v->chat_template == NULL)
		return KV_EMEM;
	if ((rc = add_tokens(v, n, e)) < 0)
		return rc;
	v->bos = TINY_BOS;
	v->eos = TINY_EOS;
	v->add_bos = true;
	if ((rc = kv_vocab_set_pre(v, "gpt-2", e)) < 0)
		return rc;
	return kv_vocab_set_stops(v, NULL, 0, e);
}

static int
configure(struct kv_config *c, const struct tiny_spec *s, struct kv_err *e)
{
	static const struct kv_rope_llama3 llama3 = { 8, 1, 4, 32 };
	int rc;

	*c = (struct kv_config){
		.arch = kv_arch_find(s->arch), .L = s->L, .Hq = s->Hq, .Hkv = s->Hkv, .D = s->D, .d = s->d, .ff = s->ff,
		.vocab = s->vocab, .context = s->context, .rms_eps = 1e-5f, .scale = (float)(1 / sqrt((double)s->D)),
		.rope_theta = 10000, .rope_dim = s->D, .rope_interleaved = s->interleaved, .tied = s->tied,
	};
	if (c->arch == NULL)
		return kv_fail(e, KV_EARG, "tiny_model: unknown architecture '%s'", s->arch);
	snprintf(c->name, sizeof c->name, "tiny-%s", s->arch);
	snprintf(c->rope_scaling, sizeof c->rope_scaling, "%s", s->llama3_scaling ? "llama3" : "none");
	if ((rc = kv_config_rope(c, 1, s->llama3_scaling ? &llama3 : NULL, NULL, e)) < 0)
		return rc;
	return kv_config_check(c, e);
}

int
tiny_model(struct kv_model *m, const struct tiny_spec *s, struct kv_err *e)
{
	int rc;

	if ((rc = configure(&m->cfg, s, e)) < 0 || (rc = grow_vocab(&m->vocab, s->vocab, e)) < 0)
		return rc;
	return grow_weights(m, s->seed, e);
}
