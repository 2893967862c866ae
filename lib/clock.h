/* SPDX-License-Identifier: MIT
 * Time that passes: of a clock that nobody sets, from a beginning that means nothing.
 */
#ifndef KV_CLOCK_H
#define KV_CLOCK_H

double kv_seconds(void);

#endif
