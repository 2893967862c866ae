/* SPDX-License-Identifier: MIT
 * What kv-show's views are made of: escaping, numbers, JSON lines, statistics, and the views themselves on tensors
 * written here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lib/show/show.h"
#include "tests/lib/streams.h"

static void
assert_escaped(const char *bytes, size_t n, const char *expected)
{
	struct kv_buf out = { 0 };

	assert_int_equal(kv_escape(&out, bytes, n, NULL), KV_OK);
	assert_string_equal(out.data ? out.data : "", expected);
	kv_buf_fini(&out);
}

static void
control_bytes_are_escaped(void **state)
{
	static const char all[] = "a\x1b[31mb\x7f\0c\n\t\r\\";

	(void)state;
	assert_escaped(all, sizeof all - 1, "a\\x1b[31mb\\x7f\\x00c\\n\\t\\r\\\\");
	assert_escaped("\xc2\x9b"
		       "1m",
	    4, "\\xc2\\x9b1m");                               /* C1 CSI in UTF-8 */
	assert_escaped("\x9b", 1, "\\x9b");                   /* and as a byte */
	assert_escaped("\xe2\x80\xae", 3, "\\xe2\\x80\\xae"); /* right-to-left override */
	assert_escaped("na\xc3\xafve \xf0\x9f\x90\xa2", 11, "na\xc3\xafve \xf0\x9f\x90\xa2");
	assert_escaped("\xc3", 1, "\\xc3");                                     /* cut short */
	assert_escaped("\xc0\xaf\xed\xa0\x80", 5, "\\xc0\\xaf\\xed\\xa0\\x80"); /* overlong, surrogate */
	assert_escaped("", 0, "");
}

/* Whatever comes in, what goes out has no control byte. */
static void
every_pair_of_bytes_is_harmless(void **state)
{
	(void)state;
	for (unsigned a = 0; a < 256; a++)
		for (unsigned b = 0; b < 256; b++) {
			const char in[2] = { (char)a, (char)b };
			struct kv_buf out = { 0 };

			assert_int_equal(kv_escape(&out, in, 2, NULL), KV_OK);
			for (size_t i = 0; i < out.n; i++) {
				unsigned char c = (unsigned char)out.data[i];

				assert_true(c >= 0x20 && c != 0x7f);
				assert_false(c == 0xc2 && (unsigned char)out.data[i + 1] < 0xa0);
			}
			kv_buf_fini(&out);
		}
}

static void
assert_said(struct kv_show *s, const char *expected)
{
	assert_int_equal(s->rc, KV_OK);
	assert_string_equal(s->out.data ? s->out.data : "", expected);
	kv_show_fini(s);
}

static void
values_are_shortened(void **state)
{
	struct kv_show s = { 0 };
	json_t *v = json_loads(
	    "{\"a\":[1,2,3],\"long\":[0,1,2,3,4,5,6,7,8,9],\"x\":{\"y\":null},\"s\":\"\\u001b!\",\"r\":0.125}", 0,
	    NULL);
	static const char *const skip[] = { "a", NULL };

	(void)state;
	kv_say_pairs(&s, v, skip);
	json_decref(v);
	assert_said(&s, "  long=[0, 1, 2, 3, ... 9] (10) x={y=null} s=\"\\x1b!\" r=0.125");
}

static void
counts_have_commas(void **state)
{
	struct kv_show s = { 0 };

	(void)state;
	kv_say_count(&s, 0, 3);
	kv_say_count(&s, 999, 5);
	kv_say_count(&s, 1000, 7);
	kv_say_count(&s, 1234567, 0);
	assert_said(&s, "  0  999  1,0001,234,567");
}

static void
json_lines_have_no_control_bytes(void **state)
{
	struct kv_show s = { 0 };
	json_t *back;

	(void)state;
	kv_say_json(&s, json_pack("{s:s}", "k\x1b", "\x7f\xc2\x85\n\xc2\xa0\"\\"));
	assert_string_equal(s.out.data, "{\"k\\u001b\":\"\\u007f\\u0085\\n\xc2\xa0\\\"\\\\\"}\n");
	back = json_loads(s.out.data, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(back, "k\x1b")), "\x7f\xc2\x85\n\xc2\xa0\"\\");
	json_decref(back);
	kv_show_fini(&s);
	kv_say_json(&s, json_pack("{s:o}", "k", json_string_nocheck("a\x80z")));
	assert_said(&s, "{\"k\":\"a\xef\xbf\xbdz\"}\n");
}

static void
statistics_leave_out_what_is_not_finite(void **state)
{
	static const float f32[] = { 1, -2, NAN, 4, INFINITY, -INFINITY, NAN };
	static const uint16_t f16[] = { 0x3c00 /* 1 */, 0xc000 /* -2 */, 0x7e00 /* nan */, 0x0001 /* 2^-24 */,
		0xfc00 /* -inf */ };
	static const uint16_t bf16[] = { 0x3f80 /* 1 */, 0x4040 /* 3 */ };
	static const uint8_t u8[] = { 1, 0, 3, 255, 1 };
	size_t seven = 7, five = 5, two = 2, none = 0;
	struct kv_tensor t;
	struct kv_stats st;

	(void)state;
	assert_int_equal(kv_tensor_init(&t, "x", 0, KVK_F32, "token", &seven, NULL), KV_OK);
	t.data = f32;
	assert_int_equal(kv_stats_of(&t, &st, NULL), KV_OK);
	assert_true(st.min == -2 && st.max == 4 && st.mean == 1 && st.n_nan == 2 && st.n_inf == 2);
	assert_int_equal(kv_tensor_init(&t, "x", 0, KVK_F16, "token", &five, NULL), KV_OK);
	t.data = f16;
	assert_int_equal(kv_stats_of(&t, &st, NULL), KV_OK);
	assert_true(st.min == -2 && st.max == 1 && st.n_nan == 1 && st.n_inf == 1);
	assert_true(fabs(st.mean - (-1 + 0x1p-24) / 3) < 1e-15);
	assert_int_equal(kv_tensor_init(&t, "x", 0, KVK_BF16, "token", &two, NULL), KV_OK);
	t.data = bf16;
	assert_int_equal(kv_stats_of(&t, &st, NULL), KV_OK);
	assert_true(st.min == 1 && st.max == 3 && st.mean == 2);
	assert_int_equal(kv_tensor_init(&t, "x", 0, KVK_U8, "token", &five, NULL), KV_OK);
	assert_int_equal(t.bytes, 5);
	t.data = u8;
	assert_true(kv_stats_can(&t));
	assert_int_equal(kv_stats_of(&t, &st, NULL), KV_OK);
	assert_true(st.min == 0 && st.max == 255 && st.mean == 52);
	assert_int_equal(kv_tensor_init(&t, "x", 0, KVK_F32, "token", &none, NULL), KV_OK);
	assert_int_equal(kv_stats_of(&t, &st, NULL), KV_OK);
	assert_true(isnan(st.min) && isnan(st.mean) && isnan(st.max));
}

/* ---- views */

/* Feed a tensor of i32 or f32 values to a view. */
static void
feed(struct kv_show *s, const struct kv_view *v, const char *name, enum kvk_type type, const char *axes,
    const size_t *shape, const void *data)
{
	struct kv_tensor t;

	assert_int_equal(kv_tensor_init(&t, name, 3, type, axes, shape, NULL), KV_OK);
	t.data = data;
	assert_int_equal(v->tensor(s, &t), KV_OK);
	kv_tensor_fini(&t);
}

static void
begin(struct kv_show *s, size_t number, size_t n_tokens)
{
	json_t *tokens = json_array(), *map = json_pack("{s:o}", "tokens", tokens);

	for (size_t i = 0; i < n_tokens; i++)
		json_array_append_new(tokens, json_integer((json_int_t)(100 + i)));
	assert_int_equal(kv_show_begin(s, number, map), KV_OK);
	json_decref(map);
}

static const int32_t index5[5] = { 0, 4, 1, 2, 4 }, offset3[3] = { 0, 2, 5 };
static const size_t n5 = 5, n3 = 3, n52[2] = { 5, 2 }, n23[2] = { 2, 3 };

static struct kv_show_options
all_of(const char *tensor)
{
	return (struct kv_show_options){ .tensor = tensor,
		.layer = KV_SHOW_ALL,
		.head = KV_SHOW_ALL,
		.sequence = KV_SHOW_ALL,
		.column_names = true,
		.width = 60 };
}

static void
rows_of_scores(void **state)
{
	static const float score[6] = { 0, 0.5f, 1, -1, 0.1f, NAN };
	struct kv_show s = { .o = all_of("score") };

	(void)state;
	begin(&s, 0, 3);
	feed(&s, &kv_view_rows, "score", KVK_F32, "kv_head token", n23, score);
	assert_int_equal(kv_view_rows.layer(&s), KV_OK);
	assert_said(&s, "position\tsequence\tlayer\thead\tscore\n0\t0\t3\t0\t0\n1\t0\t3\t0\t0.5\n2\t0\t3\t0\t1\n"
			"0\t0\t3\t1\t-1\n1\t0\t3\t1\t0.100000001\n2\t0\t3\t1\tnan\n");
}

static void
rows_of_an_evicted_head(void **state)
{
	static const float k[10] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	struct kv_show s = { .o = all_of("k") };

	(void)state;
	s.o.head = 1;
	s.o.layer = 3;
	s.o.sequence = 0;
	begin(&s, 0, 5);
	feed(&s, &kv_view_rows, "k", KVK_F32, "entry dim", n52, k); /* before its index: the view waits */
	feed(&s, &kv_view_rows, "index", KVK_I32, "entry", &n5, index5);
	feed(&s, &kv_view_rows, "offset", KVK_I32, "bound", &n3, offset3);
	assert_int_equal(kv_view_rows.layer(&s), KV_OK);
	assert_int_equal(kv_view_rows.end(&s), KV_OK);
	assert_said(&s, "position\tdim0\tdim1\n1\t4\t5\n2\t6\t7\n4\t8\t9\n");
}

static void
rows_of_the_index(void **state)
{
	struct kv_show s = { .o = all_of("index") };

	(void)state;
	s.o.column_names = false;
	begin(&s, 2, 5);
	feed(&s, &kv_view_rows, "index", KVK_I32, "entry", &n5, index5);
	feed(&s, &kv_view_rows, "offset", KVK_I32, "bound", &n3, offset3);
	assert_int_equal(kv_view_rows.layer(&s), KV_OK);
	assert_said(&s, "0\t2\t3\t0\t0\n4\t2\t3\t0\t4\n1\t2\t3\t1\t1\n2\t2\t3\t1\t2\n4\t2\t3\t1\t4\n");
}

/* Queries and what stands behind a prompt: their attributes say where they stand. */
static void
rows_with_positions(void **state)
{
	static const struct {
		const char *attrs, *said;
	} rows[] = {
		{ "{'first_position':7}", "position\tq\n7\t0.5\n8\t1.5\n9\t2.5\n" },
		{ "{'positions':[3,9,4]}", "position\tq\n3\t0.5\n9\t1.5\n4\t2.5\n" },
		{ "{'positions':[3,9]}", "query\tq\n0\t0.5\n1\t1.5\n2\t2.5\n" }, /* of other rows */
		{ "{'first_position':-1}", "query\tq\n0\t0.5\n1\t1.5\n2\t2.5\n" },
		{ "{'first_position':'7','positions':[3,9,4]}", "query\tq\n0\t0.5\n1\t1.5\n2\t2.5\n" },
	};
	static const float q[3] = { 0.5f, 1.5f, 2.5f };
	struct kv_tensor t;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct kv_show s = { .o = all_of("q") };

		s.o.sequence = s.o.layer = 0;
		begin(&s, 0, 3);
		assert_int_equal(kv_tensor_init(&t, "q", 0, KVK_F32, "query", &n3, NULL), KV_OK);
		t.data = q;
		t.attrs = json_of(rows[i].attrs);
		assert_int_equal(kv_view_rows.tensor(&s, &t), KV_OK);
		kv_tensor_fini(&t);
		assert_int_equal(kv_view_rows.layer(&s), KV_OK);
		assert_said(&s, rows[i].said);
	}
}

static void
no_rows_is_a_fault(void **state)
{
	struct kv_show s = { .o = all_of("nothing") };

	(void)state;
	begin(&s, 0, 5);
	feed(&s, &kv_view_rows, "index", KVK_I32, "entry", &n5, index5);
	assert_int_equal(kv_view_rows.layer(&s), KV_OK);
	assert_int_equal(kv_view_rows.end(&s), KV_EARG);
	kv_show_fini(&s);
}

static void
tokens_of_two_heads_and_of_one(void **state)
{
	struct kv_show s = { .o = all_of(NULL) };

	(void)state;
	begin(&s, 0, 5);
	feed(&s, &kv_view_tokens, "index", KVK_I32, "entry", &n5, index5);
	feed(&s, &kv_view_tokens, "offset", KVK_I32, "bound", &n3, offset3);
	assert_int_equal(kv_view_tokens.layer(&s), KV_OK);
	assert_int_equal(kv_view_tokens.close(&s), KV_OK);
	assert_said(&s, "sequence 0: 5 tokens; 2 heads keep 2.5 each (50.0 %); kept by all 1, by none 1\n"
			"marks: # all heads, 9..1 tenths of them, . fewer, blank none\n"
			"      0 | 100 101 102 103 104\n"
			"        | 5   5   5       #\n");
	s.o = all_of(NULL);
	s.o.layer = 3;
	s.o.head = 1;
	begin(&s, 0, 5);
	feed(&s, &kv_view_tokens, "index", KVK_I32, "entry", &n5, index5);
	feed(&s, &kv_view_tokens, "offset", KVK_I32, "bound", &n3, offset3);
	assert_int_equal(kv_view_tokens.layer(&s), KV_OK);
	assert_int_equal(kv_view_tokens.close(&s), KV_OK);
	assert_said(&s, "sequence 0: 5 tokens; layer 3, head 1 keeps 3 (60.0 %)\n      0 |\u00b7 101 102\u00b7 104\n");
}

static void
tokens_as_json(void **state)
{
	struct kv_show s = { .o = all_of(NULL) };

	(void)state;
	s.o.json = true;
	s.o.head = 0;
	begin(&s, 7, 5);
	feed(&s, &kv_view_tokens, "index", KVK_I32, "entry", &n5, index5);
	feed(&s, &kv_view_tokens, "offset", KVK_I32, "bound", &n3, offset3);
	assert_int_equal(kv_view_tokens.layer(&s), KV_OK);
	assert_int_equal(kv_view_tokens.close(&s), KV_OK);
	assert_non_null(strstr(s.out.data, "{\"sequence\":7,\"position\":4,\"token\":104,\"kept\":1,\"of\":1}\n"));
	assert_non_null(strstr(s.out.data, "{\"sequence\":7,\"position\":3,\"token\":103,\"kept\":0,\"of\":1}\n"));
	kv_show_fini(&s);
}

/* An index that does not fit its offsets or its sequence is refused, whoever looks. */
static void
broken_indices_are_refused(void **state)
{
	static const struct {
		int32_t index[5], offset[3];
		size_t n_tokens;
	} broken[] = {
		{ { 0, 4, 1, 2, 4 }, { 0, 2, 4 }, 5 },
		{ { 0, 4, 1, 2, 4 }, { 0, 6, 5 }, 5 },
		{ { 0, 4, 1, 2, 4 }, { 0, -1, 5 }, 5 },
		{ { 0, 4, 1, 2, 4 }, { 1, 2, 5 }, 5 },
		{ { 0, 4, -1, 2, 4 }, { 0, 2, 5 }, 5 },
		{ { 0, 4, 1, 2, 4 }, { 0, 2, 5 }, 4 },
		{ { 0, INT32_MAX, 1, 2, 4 }, { 0, 2, 5 }, 5 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
		struct kv_show s = { .o = all_of(NULL) };

		begin(&s, 0, broken[i].n_tokens);
		feed(&s, &kv_view_tokens, "index", KVK_I32, "entry", &n5, broken[i].index);
		feed(&s, &kv_view_tokens, "offset", KVK_I32, "bound", &n3, broken[i].offset);
		assert_int_equal(kv_view_tokens.layer(&s), KV_EFORMAT);
		kv_show_fini(&s);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_bytes_are_escaped),
		cmocka_unit_test(every_pair_of_bytes_is_harmless),
		cmocka_unit_test(values_are_shortened),
		cmocka_unit_test(counts_have_commas),
		cmocka_unit_test(json_lines_have_no_control_bytes),
		cmocka_unit_test(statistics_leave_out_what_is_not_finite),
		cmocka_unit_test(rows_of_scores),
		cmocka_unit_test(rows_of_an_evicted_head),
		cmocka_unit_test(rows_of_the_index),
		cmocka_unit_test(rows_with_positions),
		cmocka_unit_test(no_rows_is_a_fault),
		cmocka_unit_test(tokens_of_two_heads_and_of_one),
		cmocka_unit_test(tokens_as_json),
		cmocka_unit_test(broken_indices_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
