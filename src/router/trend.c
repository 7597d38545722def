/* SPDX-License-Identifier: MIT
 *
 * trend.c: whether what a server holds of a device grows with each token that it serves (user case 47).
 *
 * A server allocates while it loads, and again with the first long prompt; then what it holds should stay. Where a
 * driver's pool keeps ever larger buffers it does not, and the end is an error in the middle of an answer, hours later:
 *
 *     held   ________________/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾     a step: no trend
 *            _______.--'''.--'''.--'''.--'''       one after the other: a trend
 *                   |<- 256 tokens ->|
 *
 * Eight steps in a row of at least 256 tokens, at whose end more is held each time, and 1 % more in all: that is a
 * trend. A step without growth begins anew. What is left of the device, divided by the pace, is when that is full. It
 * is said, and no more: who is charged with what, model_memory.c says. Left out: the host, where a prompt cache grows
 * up to its limit and is meant to; devices whose driver does not say who holds what, and those that share the host's.
 */
#include "router/trend.h"

#include "base/size.h"

/* No trend, from here on. */
static void begin_anew(bt_trend *t, const bt_trend_sample *sample) {
    t->n_grown = 0;
    t->told_bytes = 0;
    t->grown_bytes = t->n_tokens = 0;
    t->left_tokens = (bt_known){0};
    t->from_tokens = sample->n_tokens;
    t->from_bytes = sample->held_bytes.value;
}

static void reckon(bt_trend *t, const bt_trend_sample *sample) {
    uint64_t grown = sample->held_bytes.value - t->from_bytes;
    bool is_trend = t->n_grown >= BT_TREND_STEPS && grown >= t->from_bytes / 100 * BT_TREND_PERCENT;
    if (!is_trend) return;
    t->grown_bytes = grown;
    t->n_tokens = sample->n_tokens - t->from_tokens;
    t->left_tokens = (bt_known){sample->free_bytes.known, 0};
    if (sample->free_bytes.known)
        t->left_tokens.value = bt_mul_div_u64(sample->free_bytes.value, t->n_tokens, t->grown_bytes);
}

static void end_step(bt_trend *t, const bt_trend_sample *sample) {
    if (t->before_bytes.known && sample->held_bytes.value > t->before_bytes.value) {
        t->n_grown++;
        reckon(t, sample);
    } else {
        begin_anew(t, sample);
    }
    t->before_bytes = sample->held_bytes;
    t->step_tokens = sample->n_tokens;
}

bool bt_trend_look(bt_trend *t, const bt_trend_sample *sample) {
    if (!sample->held_bytes.known) return false;
    if (!t->began) t->step_tokens = sample->n_tokens;
    t->began = true;
    if (sample->n_tokens - t->step_tokens >= BT_TREND_TOKENS) end_step(t, sample);
    if (t->grown_bytes == 0 || t->grown_bytes < bt_sat_mul_u64(t->told_bytes, 2)) return false;
    t->told_bytes = t->grown_bytes;
    return true;
}
