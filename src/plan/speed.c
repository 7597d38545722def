/* SPDX-License-Identifier: MIT
 *
 * speed.c: the search under --policy speed (docs/design.md P2, which states the order).
 *
 * What is compared is the time of an exchange: a prompt of EXCHANGE_PROMPT tokens, which takes a pass of the weights
 * for each micro-batch, and EXCHANGE_ANSWER tokens of answer, a pass each. So memory taken from the micro-batch for the
 * sake of pins is paid for where it costs. Context up to BT_CTX_FLOOR comes before time: the fastest context is always
 * the smallest, and one that holds no conversation helps nobody.
 *
 * Under one cost model time never falls as the context grows, since a smaller context leaves more for pins. The fastest
 * time is therefore the one at the smallest context, and bisection finds the largest context that is as fast. Filling a
 * row is the dear step; a row whose reading would be too long even if every byte of its room saved a byte is not
 * filled. Where a rate is unknown, what time is monotone in takes its place: the bytes read, counted double without
 * overlap. */
#include "base/size.h"
#include "plan/search.h"

#include <string.h>

/* llama-bench's default test: pp512, tg128. */
#define EXCHANGE_PROMPT 512u
#define EXCHANGE_ANSWER 128u

/* Contexts from start - first step to start - last step. */
typedef struct span {
    uint32_t first, last;
} span;

static uint64_t pass_time(const bt_search *search, uint64_t read_bytes, uint32_t n_slots) {
    uint64_t ns = 0;
    bt_bound bound;
    bool known = bt_forecast_ns(search->problem, 1, search->weight_bytes_per_pass, n_slots, &ns, &bound);
    if (known && bt_forecast_ns(search->problem, read_bytes, search->weight_bytes_per_pass, n_slots, &ns, &bound))
        return ns;
    return bt_sat_mul_u64(read_bytes, n_slots == 1 ? 2 : 1);
}

static uint64_t exchange_time(const bt_search *search, const bt_costs *costs, uint64_t read_bytes, uint32_t n_slots) {
    uint64_t n_ubatch = bt_max_u64(costs->n_ubatch, 1);
    uint64_t passes = (EXCHANGE_PROMPT + n_ubatch - 1) / n_ubatch + EXCHANGE_ANSWER;
    return bt_sat_mul_u64(passes, pass_time(search, read_bytes, n_slots));
}

/* No filling of the row is faster than this. */
static uint64_t least_time(const bt_search *search, const bt_ask *ask, const bt_costs *costs, uint32_t n_ctx,
                           bt_option_row row) {
    uint64_t room = 0;
    if (row.n_slots == 0 || !search->pins_pay_at_most ||
        !bt_search_room(search, costs, n_ctx, row, ask->budget_bytes, &room))
        return 0;
    return exchange_time(search, costs, bt_sat_sub_u64(search->weight_bytes_per_pass, room), row.n_slots);
}

/* The fastest row at a context, if it takes no longer than limit; of equals the better row. Its placement ends in
 * search->place. */
static bool fastest_at(bt_search *search, const bt_ask *ask, const bt_costs *costs, uint32_t n_ctx, uint64_t limit,
                       bt_candidate *ret, uint64_t *ret_time) {
    bt_option_row rows[BT_ROW_MAX];
    uint32_t n = bt_search_rows(search, ask, costs, rows);
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t need = bt_search_need(search, costs, n_ctx, rows[i]);
        if (need == UINT64_MAX || need > ask->budget_bytes) continue;
        if (least_time(search, ask, costs, n_ctx, rows[i]) > limit) continue;
        bt_candidate c;
        if (!bt_search_fill(search, costs, n_ctx, rows[i], ask->budget_bytes, &c)) continue;
        uint64_t time = exchange_time(search, costs, c.read_bytes_per_pass, c.n_slots);
        if (time > limit || (found && time >= *ret_time)) continue;
        found = true;
        *ret_time = time;
        *ret = c;
        memcpy(search->place_best, search->place, search->problem->n_units * sizeof *search->place);
    }
    if (found) memcpy(search->place, search->place_best, search->problem->n_units * sizeof *search->place);
    return found;
}

static uint32_t ctx_of(const bt_ask *ask, uint32_t step) {
    return ask->n_ctx_start - step * ask->n_ctx_step;
}

/* The largest context of the span at which a cost model takes no longer than limit; false when none does. */
static bool largest_within(bt_search *search, const bt_ask *ask, const bt_costs *costs, span s, uint64_t limit,
                           uint32_t *ret_step) {
    bt_candidate c;
    uint64_t time = 0;
    if (!fastest_at(search, ask, costs, ctx_of(ask, s.last), limit, &c, &time)) return false;
    uint32_t low = s.first;
    uint32_t high = s.last;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fastest_at(search, ask, costs, ctx_of(ask, middle), limit, &c, &time)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *ret_step = high;
    return true;
}

/* The fastest of all cost models within a span of contexts; of equals the larger context, then the first model. */
static bool fastest_in(bt_search *search, const bt_ask *ask, span s, bt_candidate *ret) {
    const bt_costs *costs = &search->costs[ask->first_cost];
    uint64_t best = UINT64_MAX;
    bool found = false;
    for (uint32_t i = 0; i < ask->n_costs; i++) {
        uint64_t time = 0;
        if (!fastest_at(search, ask, &costs[i], ctx_of(ask, s.last), best, ret, &time)) continue;
        best = time;
        found = true;
    }
    if (!found) return false;
    const bt_costs *chosen = NULL;
    uint32_t step = 0;
    for (uint32_t i = 0; i < ask->n_costs && !(chosen && step == s.first); i++) {
        uint32_t at = 0;
        if (!largest_within(search, ask, &costs[i], s, best, &at)) continue;
        if (chosen && at >= step) continue;
        chosen = &costs[i];
        step = at;
    }
    uint64_t time = 0;
    return chosen && fastest_at(search, ask, chosen, ctx_of(ask, step), best, ret, &time);
}

bool bt_search_fastest(bt_search *search, const bt_ask *ask, bt_candidate *ret) {
    uint32_t floor = bt_ctx_floor(search, ask);
    uint32_t last = bt_ctx_steps(ask);
    uint32_t above = last;
    while (above > 0 && ctx_of(ask, above) < floor)
        above--;
    if (fastest_in(search, ask, (span){0, above}, ret)) return true;
    for (uint32_t step = above + 1; step <= last; step++) /* a few: the floor is four of libllama's own steps */
        if (fastest_in(search, ask, (span){step, step}, ret)) return true;
    return false;
}
