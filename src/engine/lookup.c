/* SPDX-License-Identifier: MIT
 *
 * lookup.c: prompt lookup. Text that is edited, quoted or summed up repeats what stands in the context: when the last
 * tokens came before, what followed them then is likely to follow now.
 *
 *     ... the quick brown fox jumps ....... the quick brown | fox jumps ...
 *         '---- match ---'  '--- draft                     ^ end
 *
 * The longest of the last MATCH_MAX to MATCH_MIN tokens that came before wins; of several places the last one, which is
 * nearest in subject. A draft that reaches the end goes on with itself, as in a text that repeats.
 *
 * The search is one walk backwards over the tokens: 4 KiB of them for a context of 1024, far less than the weights that
 * a step reads. Bound: n_max tokens. */
#include "engine/lookup.h"

#include "base/heap.h"
#include "base/size.h"

#include <string.h>

/* llama.cpp's lookup takes 1 to 4 tokens; one or two are mostly chance, and a wrong draft costs a pass's computing. */
#define MATCH_MIN 3u
#define MATCH_MAX 8u

struct bt_lookup {
    int32_t *tokens; /* [n] */
    uint32_t n, n_max;
};

bt_lookup *bt_lookup_open(uint32_t n_max) {
    bt_lookup *lookup = bt_heap_alloc(sizeof *lookup);
    if (!lookup) return NULL;
    lookup->n_max = n_max;
    lookup->tokens = bt_heap_array((uint64_t)n_max + 1, sizeof *lookup->tokens);
    if (lookup->tokens) return lookup;
    bt_heap_free(lookup);
    return NULL;
}

void bt_lookup_close(bt_lookup *lookup) {
    if (!lookup) return;
    bt_heap_free(lookup->tokens);
    bt_heap_free(lookup);
}

void bt_lookup_add(bt_lookup *lookup, const int32_t *tokens, uint32_t n) {
    n = (uint32_t)bt_min_u64(n, lookup->n_max - lookup->n);
    if (n > 0) memcpy(lookup->tokens + lookup->n, tokens, n * sizeof *tokens);
    lookup->n += n;
}

const int32_t *bt_lookup_tokens(const bt_lookup *lookup, uint32_t *ret_n) {
    *ret_n = lookup->n;
    return lookup->tokens;
}

/* How many tokens before end equal those before the end of all, at most MATCH_MAX. */
static uint32_t match_length(const bt_lookup *lookup, uint32_t end) {
    uint32_t n = 0;
    while (n < MATCH_MAX && n < end && lookup->tokens[end - 1 - n] == lookup->tokens[lookup->n - 1 - n])
        n++;
    return n;
}

bool bt_lookup_draft(const bt_lookup *lookup, int32_t *ret_tokens, uint32_t n) {
    uint32_t best = 0, best_end = 0;
    for (uint32_t end = lookup->n > 0 ? lookup->n - 1 : 0; end >= MATCH_MIN && best < MATCH_MAX; end--) {
        uint32_t length = match_length(lookup, end);
        if (length <= best) continue;
        best = length;
        best_end = end;
    }
    if (best < MATCH_MIN) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = best_end + i;
        ret_tokens[i] = at < lookup->n ? lookup->tokens[at] : ret_tokens[at - lookup->n];
    }
    return true;
}
