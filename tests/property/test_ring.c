/* SPDX-License-Identifier: MIT
 * test_ring.c: random scripts of acquire, release, poll and new orders against a naive model.
 *
 * The model knows who holds what. Held images must be right at every step and apart from each other; acquiring succeeds
 * when the unit is held already, when nothing is held and the units fit together, and when there is a gap for each of
 * the units between those held; it fails when they are more than the ring. The seed is printed; BT_SEED=n replays one
 * script. */
#include "store/ring.h"
#include "store_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE      ((uint64_t)BT_PAGE_BYTES)
#define UNIT_MAX  12u
#define N_STEPS   250u
#define N_SCRIPTS 60u

typedef struct model {
    kit k;
    bt_store store;
    bt_reader *reader;
    bt_account *account;
    bt_ring *ring;
    bt_extent extents[UNIT_MAX][3];
    bt_ring_unit units[UNIT_MAX];
    uint32_t n_units;
    uint64_t ring_bytes;
    uint32_t holds[UNIT_MAX];
    uint8_t *images[UNIT_MAX];
    uint64_t n_acquired;
} model;

static bool open_model(model *m, uint64_t *seed) {
    memset(m, 0, sizeof *m);
    uint64_t sizes[] = {60 * PAGE - kit_below(seed, PAGE), 17 * PAGE + kit_below(seed, PAGE)};
    kit_open(&m->k, "ring_property", sizes, 2, kit_random(seed));
    m->n_units = 1 + (uint32_t)kit_below(seed, UNIT_MAX);
    uint64_t largest = PAGE;
    for (uint32_t i = 0; i < m->n_units; i++) {
        bt_ring_unit *u = &m->units[i];
        u->extents = m->extents[i];
        u->n_extents = (uint32_t)kit_below(seed, 4); /* none, too */
        for (uint32_t j = 0; j < u->n_extents; j++) {
            bt_extent *e = &m->extents[i][j];
            e->shard = (uint32_t)kit_below(seed, 2);
            uint64_t n_pages = (sizes[e->shard] + PAGE - 1) / PAGE;
            uint64_t first = kit_below(seed, n_pages);
            e->file_offset = first * PAGE;
            e->bytes = PAGE * (1 + kit_below(seed, n_pages - first < 9 ? n_pages - first : 9));
            e->image_offset = u->image_bytes;
            u->image_bytes += e->bytes;
        }
        if (u->image_bytes > largest) largest = u->image_bytes;
    }
    static const bt_io_mode modes[] = {BT_IO_DIRECT, BT_IO_BUFFERED};
    assert_int_equal(bt_store_open(&m->k.facts, modes[kit_below(seed, 2)], &m->store, NULL), BT_OK);
    bt_reader_params params = {.kind = kit_below(seed, 2) ? BT_READER_AUTO : BT_READER_PREAD,
                               .depth = 1 + (uint32_t)kit_below(seed, 8),
                               .request_bytes = 4096 * (1 + (uint32_t)kit_below(seed, 8)),
                               .max_jobs = 2 + (uint32_t)kit_below(seed, 5)};
    assert_int_equal(bt_reader_open(&m->store, &params, &m->reader, NULL), BT_OK);
    uint64_t caps[BT_LINE_COUNT];
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        caps[i] = UINT64_MAX;
    }
    assert_int_equal(bt_account_open(caps, UINT64_MAX, &m->account, NULL), BT_OK);
    m->ring_bytes = largest + PAGE * kit_below(seed, 40);
    return bt_ring_open(m->account, m->reader, m->units, m->n_units, m->ring_bytes, &m->ring, NULL) == BT_OK;
}

static void close_model(model *m) {
    bt_ring_close(m->ring);
    bt_reader_close(m->reader);
    bt_store_close(&m->store);
    assert_true(bt_account_close(m->account));
    kit_close(&m->k);
}

static bool apart(const model *m, uint32_t a, uint32_t b) {
    if (m->units[a].image_bytes == 0 || m->units[b].image_bytes == 0) return true;
    return m->images[a] + m->units[a].image_bytes <= m->images[b] ||
           m->images[b] + m->units[b].image_bytes <= m->images[a];
}

static void check_held(const model *m) {
    for (uint32_t i = 0; i < m->n_units; i++) {
        if (m->holds[i] == 0) continue;
        for (uint32_t j = 0; j < m->units[i].n_extents; j++) {
            const bt_extent *e = &m->extents[i][j];
            assert_memory_equal(m->images[i] + e->image_offset, m->k.data[e->shard] + e->file_offset, e->bytes);
        }
        for (uint32_t j = 0; j < i; j++) {
            assert_true(m->holds[j] == 0 || apart(m, i, j));
        }
    }
}

typedef enum verdict { MUST_FAIL, MAY_FAIL, MUST_HOLD } verdict;

/* Of one unit, or of two. */
static verdict judge(const model *m, const uint32_t *units, uint32_t n) {
    uint64_t held = 0, more = 0;
    for (uint32_t i = 0; i < m->n_units; i++) {
        if (m->holds[i] > 0) held += m->units[i].image_bytes;
    }
    for (uint32_t k = 0; k < n; k++) {
        bool again = m->holds[units[k]] > 0 || (k > 0 && units[k] == units[0]);
        if (!again) more += m->units[units[k]].image_bytes;
    }
    if (held + more > m->ring_bytes) return MUST_FAIL;
    return held == 0 || more == 0 ? MUST_HOLD : MAY_FAIL;
}

static void step_acquire(model *m, const uint32_t *units, uint32_t n) {
    verdict expected = judge(m, units, n);
    void *images[2] = {NULL, NULL};
    bt_error err = {0};
    bt_status status = bt_ring_acquire(m->ring, units, n, images, &err);
    m->n_acquired += n;
    if (status != BT_OK) {
        assert_int_equal(status, BT_E_LIMIT);
        assert_string_equal(err.code, "ring_full");
        if (expected == MUST_HOLD) fail_msg("unit %u: %s", units[0], err.text);
        return;
    }
    assert_int_not_equal(expected, MUST_FAIL);
    for (uint32_t k = 0; k < n; k++) {
        if (m->holds[units[k]] > 0) assert_ptr_equal(images[k], m->images[units[k]]);
        m->images[units[k]] = images[k];
        m->holds[units[k]]++;
    }
}

static void step_release(model *m, uint64_t *seed) {
    uint32_t unit = (uint32_t)kit_below(seed, m->n_units);
    for (uint32_t i = 0; i < m->n_units && m->holds[unit] == 0; i++) {
        unit = (unit + 1) % m->n_units;
    }
    bt_ring_release(m->ring, unit);
    if (m->holds[unit] > 0) m->holds[unit]--;
}

static void run_script(uint64_t seed) {
    model m;
    assert_true(open_model(&m, &seed));
    uint32_t order[20];
    uint32_t n_order = 0;
    uint32_t next = 0;
    for (uint32_t step = 0; step < N_STEPS; step++) {
        uint64_t dice = kit_below(&seed, 100);
        if (dice < 3 || step == 0) {
            n_order = (uint32_t)kit_below(&seed, 21);
            for (uint32_t i = 0; i < n_order; i++) {
                order[i] = (uint32_t)kit_below(&seed, m.n_units);
            }
            next = 0;
            assert_int_equal(bt_ring_set_order(m.ring, order, n_order, NULL), BT_OK);
        } else if (dice < 45 && n_order > 0) { /* mostly as expected, at times with a unit left out */
            next = (next + (kit_below(&seed, 8) == 0 ? 1 : 0)) % n_order;
            step_acquire(&m, &order[next], 1);
            next = (next + 1) % n_order;
        } else if (dice < 55) {
            const uint32_t units[] = {(uint32_t)kit_below(&seed, m.n_units), (uint32_t)kit_below(&seed, m.n_units)};
            step_acquire(&m, units, 1 + (uint32_t)kit_below(&seed, 2));
        } else if (dice < 60) {
            bt_reader_poll(m.reader);
        } else {
            step_release(&m, &seed);
        }
        check_held(&m);
    }
    bt_ring_stats stats;
    bt_ring_stats_read(m.ring, &stats);
    assert_int_equal(stats.acquired, m.n_acquired);
    assert_true(stats.hits + stats.stalls >= stats.acquired / 2); /* more when units were laid out anew */
    close_model(&m);
}

static void test_random_scripts(void **state) {
    (void)state;
    const char *given = getenv("BT_SEED");
    if (given) {
        run_script(strtoull(given, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= N_SCRIPTS; seed++) {
        (void)fprintf(stderr, "seed %llu\r", (unsigned long long)seed); /* the last one shown is the one that failed */
        run_script(seed);
    }
    (void)fprintf(stderr, "\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_scripts)};
    return cmocka_run_group_tests_name("ring_property", tests, NULL, NULL);
}
