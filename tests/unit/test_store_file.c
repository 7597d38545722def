/* SPDX-License-Identifier: MIT
 * test_store_file.c: opening shards, their identity, exact reads. */
#include "base/heap.h"
#include "store/file.h"
#include "store_kit.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t sizes[] = {3 * 4096 + 17, 0, 100, 65536};

static void test_open_in_every_mode(void **state) {
    (void)state;
    kit k;
    kit_open(&k, "file_open", sizes, 4, 1);
    uint32_t fds = kit_n_fds();
    uint64_t blocks = bt_heap_live_blocks();
    static const bt_io_mode modes[] = {BT_IO_AUTO, BT_IO_DIRECT, BT_IO_BUFFERED};
    for (size_t m = 0; m < 3; m++) {
        bt_store store;
        assert_int_equal(bt_store_open(&k.facts, modes[m], &store, NULL), BT_OK);
        assert_int_equal(store.n_files, 4);
        assert_int_equal(kit_n_fds(), fds + 8);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(store.files[i].file_bytes, sizes[i]);
            assert_string_equal(store.files[i].path, k.paths[i]);
            int flags = fcntl(store.files[i].fd, F_GETFL);
            assert_int_equal((flags & O_DIRECT) != 0, store.files[i].direct);
            assert_int_equal(fcntl(store.files[i].buffered_fd, F_GETFL) & O_DIRECT, 0);
            assert_true(fcntl(store.files[i].fd, F_GETFD) & FD_CLOEXEC);
        }
        if (modes[m] == BT_IO_BUFFERED) assert_false(store.direct);
        bt_store_close(&store);
        bt_store_close(&store); /* twice does no harm */
        assert_int_equal(kit_n_fds(), fds);
        assert_int_equal(bt_heap_live_blocks(), blocks);
    }
    kit_close(&k);
}

static void test_exact_reads(void **state) {
    (void)state;
    kit k;
    kit_open(&k, "file_read", sizes, 3, 2);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_AUTO, &store, NULL), BT_OK);
    uint8_t got[3 * 4096 + 18];
    assert_int_equal(bt_store_read(&store, 0, 0, got, sizes[0], NULL), BT_OK);
    assert_memory_equal(got, k.data[0], sizes[0]);
    assert_int_equal(bt_store_read(&store, 0, 4099, got, 7000, NULL), BT_OK);
    assert_memory_equal(got, k.data[0] + 4099, 7000);
    assert_int_equal(bt_store_read(&store, 1, 0, got, 0, NULL), BT_OK);
    bt_error err = {0};
    assert_int_equal(bt_store_read(&store, 2, 90, got, 20, &err), BT_E_IO);
    assert_string_equal(err.code, "read_short");
    assert_non_null(strstr(err.text, k.paths[2]));
    assert_non_null(strstr(err.text, "ends at offset 100, inside the 20 bytes wanted at offset 90"));
    assert_int_equal(err.need, 20);
    assert_int_equal(err.have, 10);
    assert_int_equal(bt_store_read(&store, 3, 0, got, 1, NULL), BT_E_ARG);
    assert_int_equal(bt_store_read(&store, 0, UINT64_MAX, got, 2, NULL), BT_E_ARG);
    bt_store_close(&store);
    kit_close(&k);
}

static void expect_stale(const kit *k, const char *words) {
    bt_store store;
    bt_error err = {0};
    uint32_t fds = kit_n_fds();
    assert_int_equal(bt_store_open(&k->facts, BT_IO_AUTO, &store, &err), BT_E_STALE);
    assert_string_equal(err.code, "model_changed");
    assert_non_null(strstr(err.text, words));
    assert_int_equal(kit_n_fds(), fds);
}

static void test_another_file_is_noticed(void **state) {
    (void)state;
    kit k;
    kit_open(&k, "file_stale", sizes, 4, 3);
    bt_shard saved = k.shards[3];
    k.shards[3].file_bytes++;
    expect_stale(&k, "65537 bytes then, 65536 now");
    k.shards[3] = saved;
    k.shards[3].inode++;
    expect_stale(&k, "another file");
    k.shards[3] = saved;
    k.shards[3].device++;
    expect_stale(&k, "another file");
    k.shards[3] = saved;
    k.shards[3].mtime_ns++;
    expect_stale(&k, "written to");
    k.shards[3] = saved;
    assert_int_equal(unlink(k.paths[3]), 0);
    bt_store store;
    bt_error err = {0};
    assert_int_equal(bt_store_open(&k.facts, BT_IO_AUTO, &store, &err), BT_E_IO);
    assert_string_equal(err.code, "open_failed");
    assert_non_null(strstr(err.text, k.paths[3]));
    kit_close(&k);
}

static void test_changed_while_open(void **state) {
    (void)state;
    kit k;
    kit_open(&k, "file_check", sizes, 4, 4);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_AUTO, &store, NULL), BT_OK);
    assert_int_equal(bt_store_check(&store, &k.facts, NULL), BT_OK);
    /* Renamed over: ours is still the one we opened. */
    char moved[600];
    (void)snprintf(moved, sizeof moved, "%s.moved", k.paths[3]);
    assert_int_equal(rename(k.paths[3], moved), 0);
    assert_int_equal(bt_store_check(&store, &k.facts, NULL), BT_OK);
    assert_int_equal(truncate(moved, 4096), 0);
    bt_error err = {0};
    assert_int_equal(bt_store_check(&store, &k.facts, &err), BT_E_IO);
    assert_string_equal(err.code, "model_changed");
    assert_int_equal(err.need, 65536);
    assert_int_equal(err.have, 4096);
    assert_int_equal(unlink(moved), 0);
    bt_store_close(&store);
    kit_close(&k);
}

static void test_no_files(void **state) {
    (void)state;
    bt_facts facts = {0};
    bt_store store;
    assert_int_equal(bt_store_open(&facts, BT_IO_AUTO, &store, NULL), BT_E_ARG);
}

/* A file system of the kernel that refuses O_DIRECT: proc. Its files say size 0, which is all the facts need. */
static void test_falls_back_to_buffered(void **state) {
    (void)state;
    kit k;
    kit_open(&k, "file_proc", sizes, 1, 5);
    char path[512];
    (void)snprintf(path, sizeof path, "%s", k.paths[0]);
    (void)snprintf(k.paths[0], sizeof k.paths[0], "/proc/version");
    kit_refresh(&k, 0);
    bt_store store;
    assert_int_equal(bt_store_open(&k.facts, BT_IO_DIRECT, &store, NULL), BT_OK);
    assert_false(store.direct);
    assert_false(store.files[0].direct);
    char word[6] = {0};
    assert_int_equal(bt_store_read(&store, 0, 0, word, 5, NULL), BT_OK);
    assert_string_equal(word, "Linux");
    bt_store_close(&store);
    (void)snprintf(k.paths[0], sizeof k.paths[0], "%s", path);
    kit_close(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_in_every_mode),
        cmocka_unit_test(test_exact_reads),
        cmocka_unit_test(test_another_file_is_noticed),
        cmocka_unit_test(test_changed_while_open),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_falls_back_to_buffered),
    };
    return cmocka_run_group_tests_name("store_file", tests, NULL, NULL);
}
