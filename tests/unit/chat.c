/* SPDX-License-Identifier: MIT
 * Chat templates: recognised, written around the texts, one BOS.  Expected texts are written by hand from the published
 * templates; ids of real models are compared with their own tokenizers in tokenizer.c and by
 * tests/golden/check_originals.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/text/chat.h"
#include "tests/lib/small_vocab.h"

/* Beginnings of published templates, as far as they matter here.  GGUF files hold real line feeds or \n, both occur. */
static const char smollm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% "
    "endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}";
static const char qwen25[] =
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- else %}{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{%- else %}"
    "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}";
static const char qwen3[] = "{%- if messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}<think>";
static const char quoted[] = "{{ \"<|im_start|>system\\nYou're \\\"it\\\".\\n<|im_end|>\\n\" }}";
static const char bare[] = "{% if x %}<|im_start|>system\nIt's me<|im_end|>\n{% endif %}{{ bos_token }}";
static const char llama3[] = "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
			     "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = "
			     "bos_token + content %}{% endif %}";
static const char llama31[] = "{{- bos_token }}{%- set date_string = \"26 Jul 2024\" %}"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}{{- \"Cutting Knowledge Date: December 2023\\n\" }}";
static const char llama2[] =
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}";
static const char mistral1[] =
    "{{ bos_token }}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}";
static const char mistral3[] = "{{- bos_token }}{{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}";
static const char mistral7[] =
    "{{- bos_token }}{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}{{- '[INST]' }}";
static const char gemma[] =
    "{{ bos_token }}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}";
static const char phi3[] = "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{{ '<|assistant|>\n' }}";
static const char zephyr[] =
    "{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
    "{{ '<|assistant|>' }}";
static const char deepseek[] =
    "{{bos_token}}{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}";
static const char r1[] = "{{bos_token}}{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜><think>\\n'}}";
static const char falcon3[] =
    "{{ '<|user|>\n' + message['content'] + '\n' }}{{ '<|assistant|>\n' + message['content'] + eos_token }}";

static const char *const none[] = { NULL };
static const char *const special[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
	"<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
	"<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<｜User｜>",
	"<｜Assistant｜>", "<｜end▁of▁sentence｜>", NULL };

static void
templates_are_recognised(void **state)
{
	static const struct {
		const char *jinja, *name;
	} rows[] = {
		{ smollm2, "chatml" },
		{ qwen25, "qwen" },
		{ qwen3, "chatml" },
		{ quoted, "chatml" },
		{ bare, "chatml" },
		{ llama3, "llama3" },
		{ llama31, "llama3.1" },
		{ llama2, "llama2" },
		{ mistral1, "mistral-v1" },
		{ mistral3, "mistral" },
		{ mistral7, "mistral-v7" },
		{ gemma, "gemma" },
		{ phi3, "phi3" },
		{ zephyr, "zephyr" },
		{ deepseek, "deepseek" },
		{ r1, "deepseek-r1" },
		{ falcon3, NULL },
		{ "", NULL },
		{ "{{ messages }}", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct kv_chat *c = kv_chat_recognise(rows[i].jinja);

		if (rows[i].name == NULL)
			assert_null(c);
		else if (c == NULL || strcmp(kv_chat_name(c), rows[i].name) != 0)
			fail_msg("row %zu: expected %s, found %s", i, rows[i].name, c ? kv_chat_name(c) : "none");
	}
	assert_null(kv_chat_recognise(NULL));
	assert_null(kv_chat_find("chat"));
}

static void
the_list_of_names_is_the_table(void **state)
{
	char names[512], *rest = names;
	size_t n = 0;

	(void)state;
	assert_true(strlen(kv_chat_names) < sizeof names);
	strcpy(names, kv_chat_names);
	for (char *name; (name = strsep(&rest, "|")) != NULL; n++) {
		assert_non_null(kv_chat_find(name));
		assert_string_equal(kv_chat_name(kv_chat_find(name)), name);
	}
	assert_int_equal(n, 13);
}

/* The text of a conversation's turns, special tokens included. */
struct rig {
	struct kv_vocab v;
	struct kv_tokenizer *t;
	struct kv_ids ids;
	struct kv_buf text;
	struct kv_err e;
};

static void
rig_start(struct rig *r, const char *jinja)
{
	*r = (struct rig){ 0 };
	assert_int_equal(small_bpe(&r->v, none, special, none, &r->e), KV_OK);
	r->v.bos = SMALL_BPE_FIRST;
	r->v.chat_template = jinja;
	assert_int_equal(kv_tokenizer_new(&r->t, &r->v, &r->e), KV_OK);
}

static void
rig_end(struct rig *r)
{
	kv_buf_fini(&r->text);
	kv_ids_fini(&r->ids);
	kv_tokenizer_free(r->t);
	kv_vocab_fini(&r->v);
}

static const char *
turn(struct rig *r, const char *family, const char *system, const char *user, bool first, bool open)
{
	size_t from = first ? 0 : r->ids.n;

	r->text.n = 0;
	if (first)
		r->ids.n = 0;
	if (kv_chat_encode(kv_chat_find(family), r->t, system, user, strlen(user), first, open, 0, &r->ids, &r->e) < 0)
		fail_msg("%s", r->e.text);
	assert_int_equal(kv_decode(r->t, r->ids.v + from, r->ids.n - from, true, &r->text, &r->e), KV_OK);
	return r->text.data;
}

static void
first_turns(void **state)
{
	static const struct {
		const char *jinja, *family, *system, *wanted;
	} rows[] = {
		{ smollm2, "chatml", NULL,
		    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
		    "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
		{ smollm2, "chatml", "", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
		{ smollm2, "chatml", "Be brief",
		    "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
		    "<|im_start|>assistant\n" },
		{ qwen25, "qwen", NULL,
		    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
		    "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
		{ qwen3, "chatml", NULL, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
		{ quoted, "chatml", NULL,
		    "<|im_start|>system\nYou're \"it\".\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
		    "<|im_start|>assistant\n" },
		{ bare, "chatml", NULL,
		    "<s><|im_start|>system\nIt's me<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
		    "<|im_start|>assistant\n" },
		{ llama3, "llama3", NULL,
		    "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
		    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
		{ llama31, "llama3.1", NULL,
		    "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
		    "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
		    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
		{ llama31, "llama3.1", "Be brief",
		    "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
		    "December 2023\nToday Date: 26 Jul 2024\n\nBe "
		    "brief<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
		    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
		{ llama2, "llama2", "Be brief", "<s>[INST] <<SYS>>\nBe brief\n<</SYS>>\n\nHi [/INST]" },
		{ llama2, "llama2", NULL, "<s>[INST] Hi [/INST]" },
		{ mistral1, "mistral-v1", NULL, "<s>[INST] Hi [/INST]" },
		{ mistral3, "mistral", "Be brief", "<s>[INST]Be brief\n\nHi[/INST]" },
		{ mistral7, "mistral-v7", "Be brief", "<s>[SYSTEM_PROMPT]Be brief[/SYSTEM_PROMPT][INST]Hi[/INST]" },
		{ gemma, "gemma", "Be brief",
		    "<s><start_of_turn>user\nBe brief\n\nHi<end_of_turn>\n<start_of_turn>model\n" },
		{ phi3, "phi3", "Be brief", "<|system|>Be brief<|end|><|user|>Hi<|end|><|assistant|>" },
		{ zephyr, "zephyr", "Be brief", "<|system|>\nBe brief</s>\n<|user|>\nHi</s>\n<|assistant|>\n" },
		{ deepseek, "deepseek", "Be brief", "<s>Be brief<｜User｜>Hi<｜Assistant｜>" },
		{ r1, "deepseek-r1", NULL, "<s><｜User｜>Hi<｜Assistant｜><think>\n" },
		/* a family chosen by name against the model's own template */
		{ llama3, "qwen", NULL,
		    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
		    "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
		{ NULL, "llama3", NULL,
		    "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
		    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig r;
		const char *found;

		rig_start(&r, rows[i].jinja);
		found = turn(&r, rows[i].family, rows[i].system, "Hi", true, false);
		if (strcmp(found, rows[i].wanted) != 0)
			fail_msg("row %zu: expected\n%s\nfound\n%s", i, rows[i].wanted, found);
		rig_end(&r);
	}
}

static void
further_turns(void **state)
{
	static const struct { const char *family; bool open; const char *wanted; } rows[] = {
		{ "chatml", true, "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n" },
		{ "chatml", false, "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n" },
		{ "llama3", true, "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd?<|eot_id|>"
		    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
		{ "llama2", true, "</s><s>[INST] And? [/INST]" },
		{ "mistral", true, "</s>[INST]And?[/INST]" },
		{ "mistral", false, "[INST]And?[/INST]" },
		{ "gemma", true, "<end_of_turn>\n<start_of_turn>user\nAnd?<end_of_turn>\n<start_of_turn>model\n" },
		{ "zephyr", true, "</s>\n<|user|>\nAnd?</s>\n<|assistant|>\n" },
		{ "deepseek", true, "<｜end▁of▁sentence｜><｜User｜>And?<｜Assistant｜>" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig r;

		rig_start(&r, smollm2);
		turn(&r, rows[i].family, "Be brief", "Hi", true, false);
		assert_string_equal(turn(&r, rows[i].family, "ignored", "And?", false, rows[i].open), rows[i].wanted);
		rig_end(&r);
	}
}

static size_t
count(const struct kv_ids *ids, int32_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < ids->n; i++)
		n += ids->v[i] == id;
	return n;
}

static void
bos_comes_once_and_markup_alone_is_special(void **state)
{
	struct rig r;

	(void)state;
	rig_start(&r, llama3);
	r.v.add_bos = true; /* by the vocabulary and by the template */
	turn(&r, "llama3", NULL, "<|eot_id|>", true, false);
	assert_int_equal(count(&r.ids, r.v.bos), 1);
	assert_int_equal(count(&r.ids, kv_token_find(r.t, "<|eot_id|>")), 1);
	r.ids.n = 0;
	assert_int_equal(kv_chat_encode(kv_chat_find("llama3"), r.t, NULL, "<|eot_id|>", 10, true, false,
			     KV_ENCODE_SPECIAL, &r.ids, &r.e),
	    KV_OK);
	assert_int_equal(count(&r.ids, kv_token_find(r.t, "<|eot_id|>")), 2);
	/* ids that hold something already get no BOS */
	assert_int_equal(kv_chat_encode(kv_chat_find("llama3"), r.t, NULL, "x", 1, true, false, 0, &r.ids, &r.e),
	    KV_OK);
	assert_int_equal(count(&r.ids, r.v.bos), 1);
	rig_end(&r);
}

static void
text_between_special_tokens_is_one_piece(void **state)
{
	static const char *const merges[] = { "\xc4\x8a \xc4\x8a", "n \xc4\x8a", NULL }; /* U+010A spells a line feed */
	static const char *const two[] = { "<|im_start|>", "<|im_end|>", NULL };
	struct rig r = { 0 };

	(void)state;
	assert_int_equal(small_bpe(&r.v, merges, two, none, &r.e), KV_OK);
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_OK);
	turn(&r, "chatml", NULL, "\nin", true, false);
	/* "user\n" + "\nin" joins both line feeds; "in" + "<|im_end|>" + "\n" does not join */
	assert_int_equal(count(&r.ids, SMALL_BPE_FIRST), 1);
	assert_int_equal(count(&r.ids, SMALL_BPE_FIRST + 1), 0);
	rig_end(&r);
}

static void
bytes_of_the_user_survive(void **state)
{
	static const char user[] = "  a\0b\xff ";
	struct rig r;

	(void)state;
	rig_start(&r, NULL);
	assert_int_equal(kv_chat_encode(kv_chat_find("mistral"), r.t, NULL, user, sizeof user - 1, true, false, 0,
	    &r.ids, &r.e),
	    KV_OK);
	assert_int_equal(kv_decode(r.t, r.ids.v, r.ids.n, false, &r.text, &r.e), KV_OK);
	assert_int_equal(r.text.n, sizeof user - 1);
	assert_memory_equal(r.text.data, user, sizeof user - 1);
	rig_end(&r);
}

static void
a_vocabulary_without_the_end_token_is_refused(void **state)
{
	struct rig r = { 0 };

	(void)state;
	assert_int_equal(small_bpe(&r.v, none, none, none, &r.e), KV_OK);
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_OK);
	assert_int_equal(kv_chat_encode(kv_chat_find("chatml"), r.t, NULL, "x", 1, true, false, 0, &r.ids, &r.e),
	    KV_EMODEL);
	assert_non_null(strstr(r.e.text, "<|im_end|>"));
	rig_end(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(templates_are_recognised),
		cmocka_unit_test(the_list_of_names_is_the_table),
		cmocka_unit_test(first_turns),
		cmocka_unit_test(further_turns),
		cmocka_unit_test(bos_comes_once_and_markup_alone_is_special),
		cmocka_unit_test(text_between_special_tokens_is_one_piece),
		cmocka_unit_test(bytes_of_the_user_survive),
		cmocka_unit_test(a_vocabulary_without_the_end_token_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
