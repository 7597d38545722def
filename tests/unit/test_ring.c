/* SPDX-License-Identifier: MIT
 * test_ring.c: reading ahead along a cycle, wrong guesses, repeats, full rings, failures and what comes after; units of
 * unequal sizes: many small ones or few large ones, and places cut up by those that are held.
 *
 * Most tests give each unit an image of SLOT bytes, so that a ring of n SLOTs holds n of them. */
#include "base/heap.h"
#include "store/reader_internal.h"
#include "store/ring.h"
#include "store_kit.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE    ((uint64_t)BT_PAGE_BYTES)
#define N_UNITS 8u
#define SLOT    (12 * PAGE)

static const bt_reader_kind kinds[] = {BT_READER_URING, BT_READER_PREAD};

typedef struct fixture {
    kit k;
    bt_store store;
    bt_reader *reader;
    bt_account *account;
    bt_ring *ring;
    bt_extent extents[N_UNITS][2];
    bt_ring_unit units[N_UNITS];
} fixture;

/* Unit i: pages of file 0, and one page of file 1, 4 + i pages in all. The last ends where its file does. */
static void make_units(fixture *f, bool even) {
    for (uint32_t i = 0; i < N_UNITS; i++) {
        uint64_t n = 3 + i;
        f->extents[i][0] = (bt_extent){.shard = 0, .file_offset = (uint64_t)i * 10 * PAGE, .bytes = n * PAGE};
        f->extents[i][1] = (bt_extent){.shard = 1, .file_offset = i * PAGE, .bytes = PAGE, .image_offset = n * PAGE};
        f->units[i] =
            (bt_ring_unit){.extents = f->extents[i], .n_extents = 2, .image_bytes = even ? SLOT : (n + 1) * PAGE};
    }
}

static bool open_sized(fixture *f, bt_reader_kind kind, bt_io_mode mode, bool even, uint64_t ring_bytes) {
    static const uint64_t sizes[] = {80 * PAGE - 3, N_UNITS * PAGE - 100};
    memset(f, 0, sizeof *f);
    kit_open(&f->k, "ring", sizes, 2, 21);
    make_units(f, even);
    assert_int_equal(bt_store_open(&f->k.facts, mode, &f->store, NULL), BT_OK);
    bt_reader_params params = {.kind = kind, .request_bytes = 8192};
    if (bt_reader_open(&f->store, &params, &f->reader, NULL) != BT_OK) {
        assert_int_equal(kind, BT_READER_URING);
        bt_store_close(&f->store);
        kit_close(&f->k);
        return false;
    }
    uint64_t caps[BT_LINE_COUNT] = {0};
    caps[BT_LINE_RING] = ring_bytes;
    assert_int_equal(bt_account_open(caps, UINT64_MAX, &f->account, NULL), BT_OK);
    assert_int_equal(bt_ring_open(f->account, f->reader, f->units, N_UNITS, ring_bytes, &f->ring, NULL), BT_OK);
    return true;
}

static bool open_fixture(fixture *f, bt_reader_kind kind, bt_io_mode mode, uint32_t n_slots) {
    return open_sized(f, kind, mode, true, n_slots * SLOT);
}

static void close_fixture(fixture *f) {
    bt_ring_close(f->ring);
    bt_reader_close(f->reader);
    bt_store_close(&f->store);
    assert_true(bt_account_close(f->account));
    kit_close(&f->k);
}

static void check_image(const fixture *f, uint32_t unit, const uint8_t *image) {
    for (uint32_t i = 0; i < 2; i++) {
        const bt_extent *e = &f->extents[unit][i];
        assert_memory_equal(image + e->image_offset, f->k.data[e->shard] + e->file_offset, e->bytes);
    }
}

static uint8_t *acquire(fixture *f, uint32_t unit) {
    void *image = NULL;
    bt_error err = {0};
    if (bt_ring_acquire(f->ring, &unit, 1, &image, &err) != BT_OK) fail_msg("unit %u: %s", unit, err.text);
    check_image(f, unit, image);
    return image;
}

static bt_status try_acquire(fixture *f, uint32_t unit, void **ret_image, bt_error *err) {
    return bt_ring_acquire(f->ring, &unit, 1, ret_image, err);
}

static void use(fixture *f, uint32_t unit) {
    (void)acquire(f, unit);
    bt_ring_release(f->ring, unit);
}

static bt_ring_stats stats_of(const fixture *f) {
    bt_ring_stats stats;
    bt_ring_stats_read(f->ring, &stats);
    return stats;
}

static uint64_t requests_of(const fixture *f) {
    bt_reader_stats stats;
    bt_reader_stats_read(f->reader, &stats);
    return stats.requests;
}

/* Until the reader has nothing to do any more: all guesses are read. */
static void settle(fixture *f) {
    assert_int_equal(bt_ring_settle(f->ring, NULL), BT_OK);
}

static void test_a_cycle(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t w = 0; w < 4; w++) {
        for (uint32_t n_slots = 1; n_slots <= 3; n_slots++) {
            fixture f;
            if (!open_fixture(&f, kinds[w / 2], w % 2 ? BT_IO_BUFFERED : BT_IO_DIRECT, n_slots)) continue;
            bt_line_use line;
            bt_account_use(f.account, BT_LINE_RING, &line);
            assert_int_equal(line.committed_bytes, n_slots * SLOT);
            bt_account_measure(f.account);
            bt_account_use(f.account, BT_LINE_RING, &line);
            assert_int_equal(line.resident_bytes, n_slots * SLOT); /* populated */
            assert_int_equal(bt_ring_set_order(f.ring, order, 8, NULL), BT_OK);
            for (uint32_t pass = 0; pass < 5; pass++) {
                for (uint32_t i = 0; i < 8; i++) {
                    use(&f, i);
                }
            }
            bt_ring_stats s = stats_of(&f);
            assert_int_equal(s.acquired, 40);
            assert_int_equal(s.hits + s.stalls, 40);
            assert_int_equal(s.wrong_guesses, 0);
            close_fixture(&f);
        }
    }
}

static void test_reads_ahead_and_wraps(void **state) {
    (void)state;
    static const uint32_t order[] = {3, 1, 5};
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        uint64_t wait_ns = UINT64_MAX;
        for (uint32_t try = 0; try < 20 && wait_ns >= 100000000; try++) { /* a pause of the machine's is no wait */
            if (!open_fixture(&f, kinds[w], BT_IO_AUTO, 2)) break;
            assert_int_equal(bt_ring_set_order(f.ring, order, 3, NULL), BT_OK);
            for (uint32_t i = 0; i < 9; i++) {
                settle(&f);
                use(&f, order[i % 3]);
            }
            bt_ring_stats s = stats_of(&f);
            assert_int_equal(s.hits, 9);
            assert_int_equal(s.stalls, 0);
            wait_ns = s.wait_ns;
            close_fixture(&f);
        }
        assert_true(wait_ns < 100000000 || wait_ns == UINT64_MAX); /* nothing to wait for; or no such reader here */
    }
}

static void test_without_an_order(void **state) {
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_fixture(&f, kinds[w], BT_IO_AUTO, 2)) continue;
        use(&f, 4);
        uint64_t requests = requests_of(&f);
        use(&f, 4); /* still there */
        assert_int_equal(requests_of(&f), requests);
        use(&f, 2);
        use(&f, 4);
        assert_int_equal(requests_of(&f), requests + 4); /* 3 + 2 pages in requests of 2, and 1 */
        use(&f, 0);                                      /* takes the place of 4, which was placed before 2 */
        requests = requests_of(&f);
        use(&f, 2);
        assert_int_equal(requests_of(&f), requests);
        assert_int_equal(stats_of(&f).stalls, 3);
        assert_int_equal(stats_of(&f).hits, 3);
        close_fixture(&f);
    }
}

static void test_skipped_units(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_fixture(&f, kinds[w], BT_IO_AUTO, 3)) continue;
        assert_int_equal(bt_ring_set_order(f.ring, order, 8, NULL), BT_OK); /* guesses 0 1 2 */
        use(&f, 2);                                                         /* a later guess: 0 and 1 were wrong */
        assert_int_equal(stats_of(&f).wrong_guesses, 2);
        settle(&f); /* guesses 3 4 5 */
        uint64_t requests = requests_of(&f);
        use(&f, 3);
        assert_int_equal(stats_of(&f).wrong_guesses, 2);
        assert_int_equal(stats_of(&f).hits >= 1, 1);
        settle(&f);
        assert_int_equal(requests_of(&f), requests + 6); /* reads on: unit 6, 9 pages in requests of 2, and 1 */
        use(&f, 7);                                      /* no guess at all: 4 5 6 were wrong; goes on with 0 */
        assert_int_equal(stats_of(&f).wrong_guesses, 5);
        settle(&f);
        uint64_t stalls = stats_of(&f).stalls;
        use(&f, 0);
        use(&f, 1);
        assert_int_equal(stats_of(&f).stalls, stalls);
        assert_int_equal(stats_of(&f).wrong_guesses, 5);
        close_fixture(&f);
    }
}

static void test_a_unit_twice_in_the_order(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 0, 2, 0, 3};
    for (size_t w = 0; w < 2; w++) {
        for (uint32_t n_slots = 1; n_slots <= 3; n_slots++) {
            fixture f;
            if (!open_fixture(&f, kinds[w], BT_IO_AUTO, n_slots)) continue;
            assert_int_equal(bt_ring_set_order(f.ring, order, 6, NULL), BT_OK);
            uint64_t requests = 0;
            for (uint32_t i = 0; i < 24; i++) {
                if (i == 6) {
                    settle(&f);
                    requests = requests_of(&f);
                }
                use(&f, order[i % 6]);
            }
            settle(&f);
            assert_int_equal(stats_of(&f).wrong_guesses, 0);
            /* Two slots suffice to keep unit 0: from then on a pass reads 1, 2 and 3 only (3 + 3 + 4 requests). */
            if (n_slots == 2) assert_int_equal(requests_of(&f) - requests, 3 * (3 + 4 + 4));
            close_fixture(&f);
        }
    }
}

static void test_held_twice(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1};
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_fixture(&f, kinds[w], BT_IO_AUTO, 2)) continue;
        uint8_t *a = acquire(&f, 5);
        uint8_t *b = acquire(&f, 5);
        assert_ptr_equal(a, b);
        uint8_t *c = acquire(&f, 6);
        assert_ptr_not_equal(a, c);
        assert_int_equal(bt_ring_set_order(f.ring, order, 2, NULL), BT_OK); /* no room to guess */
        void *image = NULL;
        bt_error err = {0};
        assert_int_equal(try_acquire(&f, 7, &image, &err), BT_E_LIMIT);
        assert_string_equal(err.code, "ring_full");
        assert_int_equal(err.need, SLOT);
        assert_int_equal(err.have, 2 * SLOT);
        bt_ring_release(f.ring, 5); /* still held once */
        assert_int_equal(try_acquire(&f, 7, &image, NULL), BT_E_LIMIT);
        check_image(&f, 5, a);
        check_image(&f, 6, c);
        bt_ring_release(f.ring, 5);
        bt_ring_release(f.ring, 5); /* not held: nothing */
        bt_ring_release(f.ring, 3); /* nowhere: nothing */
        bt_ring_release(f.ring, 99);
        use(&f, 7);
        check_image(&f, 6, c);
        bt_ring_release(f.ring, 6);
        assert_int_equal(try_acquire(&f, N_UNITS, &image, &err), BT_E_ARG);
        close_fixture(&f);
    }
}

static void test_a_new_order_keeps_what_fits(void **state) {
    (void)state;
    static const uint32_t prompt[] = {0, 1, 2, 3};
    static const uint32_t token[] = {0, 1, 2, 3, 4};
    static const uint32_t other[] = {0, 6};
    fixture f;
    assert_true(open_fixture(&f, BT_READER_PREAD, BT_IO_AUTO, 3));
    assert_int_equal(bt_ring_set_order(f.ring, prompt, 4, NULL), BT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        use(&f, i);
    }
    settle(&f); /* guesses 0 1 2 of the next pass */
    uint64_t requests = requests_of(&f);
    assert_int_equal(bt_ring_set_order(f.ring, token, 5, NULL), BT_OK);
    assert_int_equal(requests_of(&f), requests);
    uint64_t hits = stats_of(&f).hits;
    use(&f, 0);
    assert_int_equal(stats_of(&f).hits, hits + 1);
    assert_int_equal(bt_ring_set_order(f.ring, other, 2, NULL), BT_OK);
    settle(&f);
    use(&f, 0);
    use(&f, 6);
    assert_int_equal(stats_of(&f).wrong_guesses, 0);
    assert_int_equal(bt_ring_set_order(f.ring, NULL, 0, NULL), BT_OK);
    use(&f, 3);
    static const uint32_t bad[] = {1, N_UNITS};
    bt_error err = {0};
    assert_int_equal(bt_ring_set_order(f.ring, bad, 2, &err), BT_E_ARG);
    assert_int_equal(bt_ring_set_order(f.ring, bad, (1u << 20) + 1, &err), BT_E_LIMIT);
    close_fixture(&f);
}

static void write_back(fixture *f) {
    int fd = open(f->k.paths[0], O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, f->k.data[0], 80 * PAGE - 3, 0), 80 * PAGE - 3);
    assert_int_equal(close(fd), 0);
}

static void test_failure_and_recovery(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t w = 0; w < 4; w++) {
        for (uint32_t n_slots = 1; n_slots <= 3; n_slots++) {
            fixture f;
            if (!open_fixture(&f, kinds[w / 2], w % 2 ? BT_IO_BUFFERED : BT_IO_DIRECT, n_slots)) continue;
            assert_int_equal(truncate(f.k.paths[0], (off_t)(33 * PAGE)), 0); /* unit 3 starts at 30 and has 6 */
            assert_int_equal(bt_ring_set_order(f.ring, order, 8, NULL), BT_OK);
            for (uint32_t i = 0; i < 3; i++) {
                use(&f, i);
            }
            void *image = NULL;
            bt_error err = {0};
            for (uint32_t i = 0; i < 3; i++) { /* fails as often as it is asked for */
                assert_int_equal(try_acquire(&f, 3, &image, &err), BT_E_IO);
                assert_string_equal(err.code, "read_short");
                assert_non_null(strstr(err.text, f.k.paths[0]));
            }
            assert_null(image);
            bt_reader_poll(f.reader);
            use(&f, 0); /* the others still come */
            use(&f, 2);
            write_back(&f);
            for (uint32_t i = 0; i < 16; i++) {
                use(&f, i % 8);
            }
            close_fixture(&f);
        }
    }
}

/* A guess was read while the disk failed; by the time that it is asked for, the disk works again. */
static void test_failure_of_a_guess(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t w = 0; w < 4; w++) {
        fixture f;
        if (!open_fixture(&f, kinds[w / 2], w % 2 ? BT_IO_BUFFERED : BT_IO_DIRECT, 3)) continue;
        assert_int_equal(truncate(f.k.paths[0], (off_t)(33 * PAGE)), 0);
        assert_int_equal(bt_ring_set_order(f.ring, order, 8, NULL), BT_OK);
        for (uint32_t i = 0; i < 3; i++)
            use(&f, i);
        for (uint32_t i = 0; i < 50; i++) { /* unit 3 is a guess by now, and its read fails */
            bt_reader_poll(f.reader);
            (void)usleep(1000);
        }
        write_back(&f);
        void *image = NULL;
        bt_error err = {0};
        assert_int_equal(try_acquire(&f, 3, &image, &err), BT_OK);
        assert_int_equal(err.status, BT_OK); /* nor is anything said of the first try */
        bt_ring_release(f.ring, 3);
        for (uint32_t i = 0; i < 16; i++)
            use(&f, i % 8);
        close_fixture(&f);
    }
}

/* Units of 4, 5, ... 11 pages: as many are read ahead as there is room for, and the largest alone. */
static void test_unequal_units(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 7};
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_sized(&f, kinds[w], BT_IO_AUTO, false, 15 * PAGE)) continue;
        assert_int_equal(bt_ring_set_order(f.ring, order, 4, NULL), BT_OK);
        settle(&f);
        assert_int_equal(requests_of(&f), 3 + 3 + 4); /* 0, 1 and 2 fill it: 4 + 5 + 6 pages, in requests of 2 */
        uint8_t *first = acquire(&f, 0);
        assert_ptr_equal(acquire(&f, 1), first + 4 * PAGE);
        assert_ptr_equal(acquire(&f, 2), first + 9 * PAGE);
        bt_ring_release(f.ring, 0);
        bt_ring_release(f.ring, 1);
        settle(&f);
        assert_int_equal(requests_of(&f), 10); /* 9 pages in one piece: unit 7 has 11 and waits */
        bt_ring_release(f.ring, 2);
        settle(&f);
        assert_int_equal(requests_of(&f), 10 + 6 + 3); /* and, beside it, 0 */
        assert_ptr_equal(acquire(&f, 7), first);
        assert_ptr_equal(acquire(&f, 0), first + 11 * PAGE);
        bt_ring_release(f.ring, 7);
        bt_ring_release(f.ring, 0);
        for (uint32_t i = 1; i < 40; i++) {
            use(&f, order[i % 4]);
        }
        assert_int_equal(stats_of(&f).wrong_guesses, 0);
        close_fixture(&f);
    }
}

/* Two units that fit together, wherever the first of them already is. */
static void test_together(void **state) {
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_sized(&f, kinds[w], BT_IO_AUTO, false, 21 * PAGE)) continue;
        use(&f, 3); /* 7 pages at 0 */
        use(&f, 6); /* 10 pages at 7; on either side of it there is no room for the 11 of unit 7 */
        static const uint32_t both[] = {6, 7};
        void *images[3] = {NULL};
        bt_error err = {0};
        if (bt_ring_acquire(f.ring, both, 2, images, &err) != BT_OK) fail_msg("%s", err.text);
        check_image(&f, 6, images[0]);
        check_image(&f, 7, images[1]);
        assert_ptr_equal(images[1], (uint8_t *)images[0] + 10 * PAGE);
        static const uint32_t third = 0;
        assert_int_equal(bt_ring_acquire(f.ring, &third, 1, images + 2, &err), BT_E_LIMIT);
        assert_string_equal(err.code, "ring_full");
        check_image(&f, 6, images[0]);
        bt_ring_release(f.ring, 6);
        bt_ring_release(f.ring, 7);
        static const uint32_t three[] = {5, 6, 0}; /* 9 + 10 + 4 pages */
        assert_int_equal(bt_ring_acquire(f.ring, three, 3, images, &err), BT_E_LIMIT);
        for (uint32_t i = 0; i < N_UNITS; i++) {
            use(&f, i); /* none of them is held */
        }
        static const uint32_t same[] = {2, 2};
        assert_int_equal(bt_ring_acquire(f.ring, same, 2, images, NULL), BT_OK);
        assert_ptr_equal(images[0], images[1]);
        bt_ring_release(f.ring, 2);
        check_image(&f, 2, images[0]);
        bt_ring_release(f.ring, 2);
        uint32_t many[BT_RING_ACQUIRE_MAX + 1] = {0};
        assert_int_equal(bt_ring_acquire(f.ring, many, BT_RING_ACQUIRE_MAX + 1, images, &err), BT_E_ARG);
        close_fixture(&f);
    }
}

/* Of units acquired together the second cannot be read: none is held, both come later. */
static void test_together_fails(void **state) {
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        fixture f;
        if (!open_sized(&f, kinds[w], BT_IO_AUTO, false, 16 * PAGE)) continue;
        assert_int_equal(truncate(f.k.paths[0], (off_t)(33 * PAGE)), 0); /* unit 3 starts at 30 and has 6 */
        static const uint32_t both[] = {1, 3};
        void *images[2] = {NULL};
        bt_error err = {0};
        assert_int_equal(bt_ring_acquire(f.ring, both, 2, images, &err), BT_E_IO);
        assert_null(images[0]);
        int fd = open(f.k.paths[0], O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, f.k.data[0], 80 * PAGE - 3, 0), 80 * PAGE - 3);
        assert_int_equal(close(fd), 0);
        use(&f, 7); /* 11 pages: room only when neither is held */
        assert_int_equal(bt_ring_acquire(f.ring, both, 2, images, &err), BT_OK);
        check_image(&f, 1, images[0]);
        check_image(&f, 3, images[1]);
        bt_ring_release(f.ring, 1);
        bt_ring_release(f.ring, 3);
        close_fixture(&f);
    }
}

/* Between two settled states as much is read as was used, however far the ring reads ahead, and a settled ring has what
 * comes first. Units of unequal sizes may lie otherwise than before: over many passes that is less than a ring. */
static void test_settled_passes(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t w = 0; w < 4; w++) {
        fixture f;
        bool even = w % 2 == 0;
        if (!open_sized(&f, kinds[w / 2], BT_IO_DIRECT, even, 3 * SLOT)) continue;
        assert_int_equal(bt_ring_settle(f.ring, NULL), BT_OK); /* nothing to do */
        const uint32_t *units = NULL;
        assert_int_equal(bt_ring_order(f.ring, &units), 0);
        assert_int_equal(bt_ring_set_order(f.ring, order, 8, NULL), BT_OK);
        assert_int_equal(bt_ring_order(f.ring, &units), 8);
        assert_memory_equal(units, order, sizeof order);
        uint64_t pass_bytes = 0;
        for (uint32_t i = 0; i < N_UNITS; i++)
            pass_bytes += f.extents[i][0].bytes + f.extents[i][1].bytes;
        pass_bytes -= 100 + 3; /* the files' ends cut their last pages */
        assert_int_equal(bt_ring_settle(f.ring, NULL), BT_OK);
        bt_reader_stats start;
        bt_reader_stats_read(f.reader, &start);
        for (uint32_t pass = 1; pass <= 4; pass++) {
            bt_reader_stats now;
            uint64_t stalls = stats_of(&f).stalls;
            use(&f, 0);
            assert_int_equal(stats_of(&f).stalls, stalls); /* it was there */
            for (uint32_t i = 1; i < 8; i++)
                use(&f, i);
            assert_int_equal(bt_ring_settle(f.ring, NULL), BT_OK);
            bt_reader_stats_read(f.reader, &now);
            uint64_t read = now.read_bytes - start.read_bytes;
            if (even) assert_int_equal(read, pass * pass_bytes);
            assert_in_range(read, pass * pass_bytes - 3 * SLOT, pass * pass_bytes + 3 * SLOT);
        }
        close_fixture(&f);
    }
}

static void test_settling_fails(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 1, 2, 3};
    for (size_t k = 0; k < 2; k++) {
        fixture f;
        if (!open_fixture(&f, kinds[k], BT_IO_DIRECT, 2)) continue;
        assert_int_equal(truncate(f.k.paths[0], (off_t)(12 * PAGE)), 0); /* unit 1 starts at 10 and has 4 */
        assert_int_equal(bt_ring_set_order(f.ring, order, 4, NULL), BT_OK);
        bt_error err = {0};
        assert_int_equal(bt_ring_settle(f.ring, &err), BT_E_IO);
        assert_string_equal(err.code, "read_short");
        assert_int_equal(bt_ring_settle(f.ring, NULL), BT_OK); /* at rest: nothing is read before it is asked for */
        int fd = open(f.k.paths[0], O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, f.k.data[0], 80 * PAGE - 3, 0), 80 * PAGE - 3);
        assert_int_equal(close(fd), 0);
        for (uint32_t i = 0; i < 8; i++)
            use(&f, i % 4);
        assert_int_equal(bt_ring_settle(f.ring, NULL), BT_OK);
        close_fixture(&f);
    }
}

static void test_refused_over_the_cap(void **state) {
    (void)state;
    fixture f;
    assert_true(open_fixture(&f, BT_READER_PREAD, BT_IO_AUTO, 1));
    bt_ring *more = NULL;
    bt_error err = {0};
    uint64_t blocks = bt_heap_live_blocks();
    assert_int_equal(bt_ring_open(f.account, f.reader, f.units, N_UNITS, PAGE, &more, &err), BT_E_BUDGET);
    assert_string_equal(err.code, "ram_budget");
    assert_int_equal(bt_ring_open(f.account, f.reader, f.units, N_UNITS, 0, &more, NULL), BT_E_ARG);
    assert_int_equal(bt_ring_open(f.account, f.reader, f.units, N_UNITS, 100, &more, NULL), BT_E_ARG);
    assert_int_equal(bt_ring_open(f.account, f.reader, f.units, N_UNITS, UINT64_MAX / 4096 * 4096, &more, NULL),
                     BT_E_NOMEM);
    assert_int_equal(bt_heap_live_blocks(), blocks);
    bt_ring_close(NULL);
    /* A unit larger than the ring is refused, and harms nobody. */
    f.units[1].image_bytes = SLOT + PAGE;
    static const uint32_t order[] = {0, 1};
    assert_int_equal(bt_ring_set_order(f.ring, order, 2, NULL), BT_OK);
    use(&f, 0);
    void *image = NULL;
    assert_int_equal(try_acquire(&f, 1, &image, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "ring_unit");
    use(&f, 2);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cycle),
        cmocka_unit_test(test_reads_ahead_and_wraps),
        cmocka_unit_test(test_without_an_order),
        cmocka_unit_test(test_skipped_units),
        cmocka_unit_test(test_a_unit_twice_in_the_order),
        cmocka_unit_test(test_held_twice),
        cmocka_unit_test(test_a_new_order_keeps_what_fits),
        cmocka_unit_test(test_failure_and_recovery),
        cmocka_unit_test(test_failure_of_a_guess),
        cmocka_unit_test(test_unequal_units),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_together_fails),
        cmocka_unit_test(test_settled_passes),
        cmocka_unit_test(test_settling_fails),
        cmocka_unit_test(test_refused_over_the_cap),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
