/* SPDX-License-Identifier: MIT
 * Threads that share the units of one operation. */
#ifndef KVK_CPU_TEAM_H
#define KVK_CPU_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_team;

/* Does unit u of a job; worker: which of the team's threads it runs on, 0 .. threads-1, for memory of its own. */
typedef void cpu_unit_fn(void *ctx, size_t u, size_t worker);

/* threads >= 1, the caller's among them; fewer start when the system has no more.  NULL: no memory. */
struct cpu_team *cpu_team_new(size_t threads);
void cpu_team_free(struct cpu_team *t); /* NULL is fine */

/* fn for units 0 .. n-1, begun in ascending order, all done on return.  t NULL: by the caller alone.  Not from within a
 * unit. */
void cpu_team_run(struct cpu_team *t, size_t n, cpu_unit_fn *fn, void *ctx);

#endif
