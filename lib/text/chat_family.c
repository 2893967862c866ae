/* SPDX-License-Identifier: MIT */
#include "lib/text/chat_family.h"

#include <string.h>

#define DEEPSEEK \
	.system = { "", "" }, .end = "<｜end▁of▁sentence｜>", .next = "", .bos = true
#define LLAMA3 \
	.system = { "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>" }, \
	.user = { "<|start_header_id|>user<|end_header_id|>\n\n", \
	    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" }, \
	.end = "<|eot_id|>", .next = "", .bos = true
#define CHATML \
	.system = { "<|im_start|>system\n", "<|im_end|>\n" }, \
	.user = { "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n" }, .end = "<|im_end|>", .next = "\n"

const char *const kv_chat_names = "chatml|qwen|llama2|llama3|llama3.1|mistral-v1|mistral|mistral-v7|gemma|phi3|zephyr|"
    "deepseek|deepseek-r1";

const struct kv_chat kv_chat_families[] = {
	{ .name = "deepseek-r1", .marks = { "<｜User｜>", "<｜Assistant｜><think>" },
	    .user = { "<｜User｜>", "<｜Assistant｜><think>\n" }, DEEPSEEK },
	{ .name = "deepseek", .marks = { "<｜User｜>", "<｜Assistant｜>" },
	    .user = { "<｜User｜>", "<｜Assistant｜>" }, DEEPSEEK },
	/* The template takes today's date where it can; its own fixed one keeps prompts reproducible. */
	{ .name = "llama3.1",
	    .marks = { "<|start_header_id|>", "Cutting Knowledge Date: December 2023", "26 Jul 2024" },
	    .preamble = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
	    .default_system = "", LLAMA3 },
	{ .name = "llama3", .marks = { "<|start_header_id|>" }, LLAMA3 },
	{ .name = "qwen", .marks = { "<|im_start|>", "You are Qwen" },
	    .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", CHATML },
	{ .name = "chatml", .marks = { "<|im_start|>" }, CHATML },
	{ .name = "llama2", .marks = { "[INST]", "<<SYS>>" }, .system = { "<<SYS>>\n", "\n<</SYS>>\n\n" },
	    .user = { "[INST] ", " [/INST]" }, .end = "</s>", .next = "", .system_in_user = true, .bos = true,
	    .bos_each_turn = true },
	/* From v2 on the brackets are control tokens, and SentencePiece puts its space behind them by itself. */
	{ .name = "mistral-v7", .marks = { "[SYSTEM_PROMPT]", "[INST]" },
	    .system = { "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]" },
	    .user = { "[INST]", "[/INST]" }, .end = "</s>", .next = "", .bos = true },
	{ .name = "mistral-v1", .marks = { "[INST]", " [/INST]" }, .system = { "", "\n\n" },
	    .user = { "[INST] ", " [/INST]" }, .end = "</s>", .next = "", .system_in_user = true, .bos = true },
	{ .name = "mistral", .marks = { "[INST]" }, .system = { "", "\n\n" }, .user = { "[INST]", "[/INST]" },
	    .end = "</s>", .next = "", .system_in_user = true, .bos = true },
	{ .name = "gemma", .marks = { "<start_of_turn>" }, .system = { "", "\n\n" },
	    .user = { "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n" }, .end = "<end_of_turn>",
	    .next = "\n", .system_in_user = true, .bos = true },
	/* Without the template's line feeds: the tokenizer drops them behind these tokens. */
	{ .name = "phi3", .marks = { "<|user|>", "<|end|>", "<|assistant|>" }, .system = { "<|system|>", "<|end|>" },
	    .user = { "<|user|>", "<|end|><|assistant|>" }, .end = "<|end|>", .next = "" },
	{ .name = "zephyr", .marks = { "'<|user|>\n' + message['content'] + eos_token", "<|assistant|>" },
	    .system = { "<|system|>\n", "</s>\n" }, .user = { "<|user|>\n", "</s>\n<|assistant|>\n" },
	    .end = "</s>", .next = "\n" },
	{ .name = NULL },
};

/* Bytes of jinja that mark matches at its beginning; 0 if it does not. */
static size_t
match(const char *jinja, const char *mark)
{
	const char *p = jinja;

	for (; *mark != '\0'; mark++) {
		if (*mark == '\n' && p[0] == '\\' && p[1] == 'n')
			p += 2;
		else if (*p == *mark)
			p++;
		else
			return 0;
	}
	return (size_t)(p - jinja);
}

static const char *
find(const char *jinja, const char *mark, size_t *n)
{
	for (; *jinja != '\0'; jinja++)
		if ((*n = match(jinja, mark)) > 0)
			return jinja;
	return NULL;
}

bool
kv_jinja_has(const char *jinja, const char *mark)
{
	size_t n;

	return find(jinja, mark, &n) != NULL;
}

/* The literal at p, which ends where `after` begins: appended to out.  False if an expression interrupts it. */
static int
literal(const char *p, char quote, const char *after, struct kv_buf *out, bool *found, struct kv_err *e)
{
	int rc = KV_OK;

	*found = false;
	while (*p != '\0' && rc == KV_OK && match(p, after) == 0) {
		char c = *p++;

		if (c == quote || (quote == '\0' && c == '{'))
			return KV_OK;
		if (c == '\\' && quote != '\0' && *p != '\0') {
			c = *p == 'n' ? '\n' : *p == 't' ? '\t' : *p;
			p++;
		}
		rc = kv_buf_add(out, &c, 1, e);
	}
	*found = rc == KV_OK && *p != '\0';
	return rc;
}

int
kv_jinja_default_system(const struct kv_chat *c, const char *jinja, struct kv_buf *out, bool *found, struct kv_err *e)
{
	size_t from = out->n, n;
	int rc = KV_OK;

	*found = false;
	if (c->system_in_user || c->system[0][0] == '\0')
		return KV_OK;
	for (const char *p = jinja; rc == KV_OK && !*found && (p = find(p, c->system[0], &n)) != NULL; p += n) {
		char before = p > jinja ? p[-1] : '\0';

		out->n = from;
		rc = literal(p + n, before == '\'' || before == '"' ? before : '\0', c->system[1], out, found, e);
	}
	if (!*found)
		out->n = from;
	return rc;
}
