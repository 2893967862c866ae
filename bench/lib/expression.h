/* SPDX-License-Identifier: MIT
 * Expressions over what was measured: + - * / ( ), numbers, and NAME or NAME:FIELD of a run.
 */
#ifndef BENCH_EXPRESSION_H
#define BENCH_EXPRESSION_H

#include <stdbool.h>

/* The value of a run's field; field "" is what the name alone means.  false: there is no such thing. */
typedef bool (*expression_get_fn)(void *ctx, const char *name, const char *field, double *value);

/* Names and fields: a letter, then letters, digits, '_' and '.'.
 * false: why [why_bytes] says what is wrong with the text, or which name is unknown. */
bool expression_value(const char *text, expression_get_fn get, void *ctx, double *value, char *why, unsigned why_bytes);

#endif
