/* SPDX-License-Identifier: MIT
 *
 * need.c: what a model's server will take, asked of a copy of the router and brought back.
 *
 *     ask -> copy (aside.h): the words, their files, prices (need_find.c) -> one struct through a pipe -> checked ->
 * need
 *
 * The header of a model with a large vocabulary is megabytes, on a disk that may be slow or gone, in a format that
 * somebody else wrote: neither the time that it takes nor what is wrong with it may reach the router. So nothing is
 * opened here, and the answer is believed only as far as it goes: it is the copy's struct, of the same program, and
 * every string in it is held to end and every number of choices to be one. What fails is a need that is not known, with
 * the reason; a model whose need is not known can still be started, alone. */
#include "router/need.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/heap.h"
#include "guard/footprint.h"
#include "router/need_find.h"

#include <stdio.h>
#include <string.h>

#define LIMIT_MS        20000u /* need.h */
#define ARENA_MAX_BYTES (4u << 20)
#define ARENA_BLOCK     (16u << 10)
/* In the place of ${PORT}, which is not known before a start, and no reason for another footprint. */
#define PORT 1u

struct bt_needing {
    bt_aside *aside;
    bt_need_done *on_done;
    void *user;
};

const char *bt_need_how_name(bt_need_how how) {
    static const char *const names[] = {"unknown", "declared", "budget", "priced", "learned"};
    return names[how];
}

/* ---- in the copy ---- */

static bt_status work(void *arg, bt_text *answer, bt_error *err) {
    const bt_need_ask *ask = arg;
    char **argv = NULL;
    bt_need need = {0};
    bt_arena *arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    if (!arena) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to read a command");
    bt_status status = bt_config_argv(ask->config, ask->model, PORT, arena, &argv, err);
    if (status == BT_OK) status = bt_need_find(ask, argv, &need, err);
    if (status == BT_OK) bt_text_add_n(answer, (const char *)&need, sizeof need);
    bt_arena_close(arena);
    return status;
}

/* ---- in the router ---- */

static bool ends(const char *text, size_t n) {
    return memchr(text, '\0', n) != NULL;
}

#define ENDS(member) ends(need->member, sizeof need->member)

static bool is_good(const bt_need *need) {
    return (unsigned)need->how <= BT_NEED_LEARNED && ENDS(reason) && ENDS(decision) && ENDS(code) && ENDS(words) &&
           ENDS(arch) && ENDS(learned_name);
}

static void unknown(bt_need *need, const char *reason) {
    *need = (bt_need){.how = BT_NEED_UNKNOWN};
    (void)snprintf(need->reason, sizeof need->reason, "%.199s", reason);
}

static void on_answer(void *user, const bt_text *answer, const bt_error *err) {
    const bt_needing needing = *(bt_needing *)user;
    bt_need need;
    if (err) {
        unknown(&need, err->text);
    } else if (answer->n_bytes != sizeof need) {
        unknown(&need, "the answer about its memory is not whole");
    } else {
        memcpy(&need, answer->data, sizeof need);
        if (!is_good(&need)) unknown(&need, "the answer about its memory cannot be read");
    }
    bt_heap_free(user);
    needing.on_done(needing.user, &need);
}

bt_status bt_need_start(const bt_need_ask *ask, bt_need_done *on_done, void *user, bt_needing **ret, bt_error *err) {
    bt_needing *needing = bt_heap_alloc(sizeof *needing);
    if (!needing) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to price a command");
    needing->on_done = on_done;
    needing->user = user;
    bt_need_ask copied = *ask; /* the copy has it where it lies here */
    bt_status status = bt_aside_start(ask->loop, work, &copied, LIMIT_MS, on_answer, needing, &needing->aside, err);
    if (status != BT_OK) {
        bt_heap_free(needing);
        return status;
    }
    *ret = needing;
    return BT_OK;
}

void bt_need_cancel(bt_needing *needing) {
    if (!needing) return;
    bt_aside_cancel(needing->aside);
    bt_heap_free(needing);
}

void bt_need_learn(const char *learned_name, const char *const *pools, uint32_t n_pools, const bt_known *peak_bytes) {
    bt_footprint_keep(learned_name, pools, n_pools, peak_bytes);
}
