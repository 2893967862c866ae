/* SPDX-License-Identifier: MIT */
#include "formats/training_state.h"

#include <string.h>

#include "formats/checkpoint.h"

static void
parts_of(const struct kv_training *t, float *parts[KV_CHECKPOINT_PARTS])
{
	parts[KV_CHECKPOINT_PARAMETERS] = t->module->parameters;
	parts[KV_CHECKPOINT_M] = t->adam.m;
	parts[KV_CHECKPOINT_V] = t->adam.v;
	parts[KV_CHECKPOINT_BEST] = t->best;
}

int
kv_training_save(const struct kv_training *t, const char *path, const json_t *recipe, struct kv_err *e)
{
	float *parts[KV_CHECKPOINT_PARTS];
	json_t *state = json_pack("{s:O s:I s:I s:I s:I s:b}", "recipe", recipe, "step", (json_int_t)t->step,
	    "adam_steps", (json_int_t)t->adam.t, "best_step", (json_int_t)t->best_step, "worse", (json_int_t)t->worse,
	    "ended", t->ended);
	int rc;

	if (state == NULL ||
	    (t->best_step > 0 && json_object_set_new(state, "best_loss", json_real(t->best_loss)) != 0)) {
		json_decref(state);
		return kv_no_memory(e, sizeof *state);
	}
	parts_of(t, parts);
	rc = kv_checkpoint_write(path, state, parts, t->module->n_parameters, e);
	json_decref(state);
	return rc;
}

/* By their text: numbers that were written and read are the same then. */
static bool
same(const json_t *a, const json_t *b)
{
	return (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b)) ||
	       json_equal(a, b);
}

static int
check_recipe(const json_t *saved, const json_t *recipe, struct kv_err *e)
{
	const char *key;
	const json_t *v;

	json_object_foreach ((json_t *)recipe, key, v) {
		if (!same(json_object_get(saved, key), v))
			return kv_fail(e, KV_EARG,
			    "it is the state of another training, '%s' differs: leave --resume out to start anew", key);
	}
	return KV_OK;
}

static size_t
count(const json_t *state, const char *key)
{
	const json_int_t v = json_integer_value(json_object_get(state, key));

	return v > 0 ? (size_t)v : 0;
}

int
kv_training_load(struct kv_training *t, const char *path, const json_t *recipe, struct kv_err *e)
{
	float *parts[KV_CHECKPOINT_PARTS];
	json_t *state;
	int rc;

	parts_of(t, parts);
	if ((rc = kv_checkpoint_read(path, &state, parts, t->module->n_parameters, e)) < 0)
		return rc;
	if ((rc = check_recipe(json_object_get(state, "recipe"), recipe, e)) < 0)
		kv_where(e, "%s", path);
	t->step = count(state, "step");
	t->adam.t = count(state, "adam_steps");
	t->best_step = count(state, "best_step");
	t->worse = count(state, "worse");
	t->ended = json_is_true(json_object_get(state, "ended"));
	if (t->best_step > 0)
		t->best_loss = json_number_value(json_object_get(state, "best_loss"));
	json_decref(state);
	return rc;
}

int
kv_training_describe(const struct kv_training *t, const json_t *recipe, json_t *to, struct kv_err *e)
{
	int bad = json_object_update(to, (json_t *)recipe) ||
		  json_object_set_new(to, "steps_made", json_integer((json_int_t)t->step));

	if (t->best_step > 0)
		bad = bad || json_object_set_new(to, "best_step", json_integer((json_int_t)t->best_step)) ||
		      json_object_set_new(to, "held_out_loss", json_real(t->best_loss));
	return bad ? kv_no_memory(e, 256) : KV_OK;
}
