/* SPDX-License-Identifier: MIT
 * Reading tests/golden/oracle: the reference implementation's inputs, scores, budgets and kept sets.
 * $KV_ORACLE names another folder: the reference's own fixtures, of which these are a cut.
 * What is missing or malformed ends the test program with a message: golden files are part of the tree.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct oracle_array {
	char name[64];
	unsigned n_axes;
	size_t shape[4];
	float *data;
};

struct oracle {
	json_t *meta;                /* NAME.json */
	struct oracle_array *arrays; /* NAME.npz, if there is one */
	size_t n_arrays;
};

void oracle_open(struct oracle *o, const char *name);
void oracle_fini(struct oracle *o);

/* The names of all cases of kind "score"; ends with NULL. */
extern const char *const oracle_scores[];

const json_t *oracle_results(const struct oracle *o);
const struct oracle_array *oracle_array(const struct oracle *o, const char *name);
/* Which results a test has compared.  With $KV_ORACLE_LOG set to a file, oracle_open() adds a line "holds CASE RECORD
 * WHAT" to it for each result that there is, and this one "checked CASE RECORD WHAT": tests/golden/check_oracle.sh
 * lays one beside the other.  what: a key of the record; NULL: the whole record, which names its method or its tag. */
void oracle_checked(const struct oracle *o, const json_t *record, const char *what);

size_t oracle_size(const json_t *record, const char *key);
const char *oracle_text(const json_t *record, const char *key);
/* An integer; those beyond 2^63 - 1, which jansson does not take, are strings once a case has been opened. */
uint64_t oracle_u64(const json_t *value);
/* A number, or one of the strings "nan", "inf", "-inf". */
float oracle_float(const json_t *value);

/* Does the array of integers hold exactly x [n]? */
int oracle_equals(const json_t *list, const int32_t *x, size_t n);

#endif
