/* SPDX-License-Identifier: MIT
 * test_footprint.c: what a command took of each pool is remembered at its most, exactly or not at all. */
#include "guard/footprint.h"

#include "base/os.h"
#include "base/state.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

#define FOLDER BT_TEST_OUT "/footprint"
#define HEX    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define NAME   "footprint-" HEX
#define MIB    (UINT64_C(1) << 20)

static const char *const pools[] = {"host", "CUDA0"};

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    return setenv("BURTHEN_STATE_DIR", FOLDER "/own", 1);
}

static void keep(uint64_t host_bytes, uint64_t device_bytes) {
    const bt_known peaks[] = {{host_bytes > 0, host_bytes}, {device_bytes > 0, device_bytes}};
    bt_footprint_keep(NAME, pools, 2, peaks);
}

static void expect(uint64_t host_bytes, uint64_t device_bytes) {
    bt_footprint got;
    bt_footprint_read(NAME, &got);
    assert_int_equal(got.n, (host_bytes > 0) + (device_bytes > 0));
    assert_int_equal(bt_footprint_find(&got, "host"), host_bytes);
    assert_int_equal(bt_footprint_find(&got, "CUDA0"), device_bytes);
    assert_int_equal(bt_footprint_find(&got, "CUDA1"), 0);
}

static void put_file(const char *text) {
    int dir = -1;
    assert_int_equal(bt_state_open(true, &dir, NULL), BT_OK);
    assert_int_equal(bt_state_write(dir, NAME, text, strlen(text), NULL), BT_OK);
    assert_int_equal(bt_os_close(dir), 0);
}

static void the_most_stands_pool_by_pool(void **state) {
    (void)state;
    expect(0, 0); /* and no folder is made by looking */
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
    keep(0, 0);
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
    keep(300 * MIB, 0);
    expect(300 * MIB, 0);
    keep(200 * MIB, 5 * MIB);
    expect(300 * MIB, 5 * MIB);
    keep(0, 4 * MIB);
    expect(300 * MIB, 5 * MIB);
    keep(301 * MIB, 6 * MIB);
    expect(301 * MIB, 6 * MIB);
}

static void the_file_is_as_documented(void **state) {
    (void)state;
    bt_text text;
    keep(1000, 20);
    bt_text_init(&text, 255);
    assert_int_equal(bt_state_recall(NAME, &text, NULL), BT_OK);
    assert_string_equal(bt_text_str(&text), "burthen-footprint 1\nCUDA0 20\nhost 1000\n");
    bt_text_done(&text);
}

static void what_is_not_exactly_so_is_none(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        "burthen-footprint 1\n",
        "burthen-footprint 2\nhost 1000\n",
        "burthen-footprint 1\nhost 1000",
        "burthen-footprint 1\nhost 01000\n",
        "burthen-footprint 1\nhost 0\n",
        "burthen-footprint 1\nhost -1\n",
        "burthen-footprint 1\nhost  1000\n",
        "burthen-footprint 1\nhost 1000 \n",
        "burthen-footprint 1\nhost 1000\nCUDA0 20\n", /* out of order */
        "burthen-footprint 1\nhost 1000\nhost 1000\n",
        "burthen-footprint 1\nhost 18446744073709551616\n",
        "burthen-footprint 1\n\n",
        "burthen-footprint 1\na-name-of-thirty-two-bytes-and-on 7\n",
        "burthen-footprint 1\n1 1\n2 1\n3 1\n4 1\n5 1\n6 1\n7 1\n8 1\n9 1\nA 1\nB 1\nC 1\nD 1\nE 1\nF 1\nG 1\nH 1\n",
    };
    put_file("burthen-footprint 1\nhost 1000\n");
    expect(1000, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_file(wrong[i]);
        expect(0, 0);
    }
    keep(7, 0); /* and is written anew */
    expect(7, 0);
}

static void names(void **state) {
    (void)state;
    bt_footprint got;
    const bt_known one = {true, 1};
    static const char *const wrong[] = {"", "footprint-", "learned-" HEX, "footprint-../" HEX, "footprint-x" HEX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bt_footprint_keep(wrong[i], pools, 1, &one);
        bt_footprint_read(wrong[i], &got);
        assert_int_equal(got.n, 0);
    }
    const char *const strange[] = {"two words"};
    bt_footprint_keep(NAME, strange, 1, &one);
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
}

static const char *variables = "";

static void name_of(const char *program, const char *header, uint64_t bytes, const char *text, char ret[80]) {
    static line words;
    bt_footprint_name(program, header, bytes, line_split(&words, text), variables, ret);
    assert_int_equal(strlen(ret), strlen(NAME));
}

/* Port and alias make no other; everything else does. */
static void what_a_name_is_of(void **state) {
    (void)state;
    char a[80], b[80];
    static const char *const same[] = {"s -m x.gguf --port 1", "s --port=2 -m x.gguf -a name --alias=b",
                                       "s -m x.gguf --port"};
    static const char *const different[] = {"s -mx.gguf", "s -m x.gguf -c 1", "s -m x.gguf --ports 1",
                                            "s -m 'x.gguf '"};
    name_of("/bin/sh", "abc", 9, "s -m x.gguf", a);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        name_of("/bin/sh", "abc", 9, same[i], b);
        assert_string_equal(a, b);
    }
    for (size_t i = 0; i < sizeof different / sizeof *different; i++) {
        name_of("/bin/sh", "abc", 9, different[i], b);
        assert_string_not_equal(a, b);
    }
    name_of("/bin/sh", "abd", 9, "s -m x.gguf", b);
    assert_string_not_equal(a, b);
    name_of("/bin/sh", "abc", 8, "s -m x.gguf", b);
    assert_string_not_equal(a, b);
    name_of("/bin/ls", "abc", 9, "s -m x.gguf", b);
    assert_string_not_equal(a, b);
    variables = "CUDA_VISIBLE_DEVICES=1\n";
    name_of("/bin/sh", "abc", 9, "s -m x.gguf", b);
    assert_string_not_equal(a, b);
    variables = "";
    name_of("/not/there", "abc", 9, "s", a);
    name_of(NULL, "abc", 9, "s", b);
    assert_string_equal(a, b);
    name_of(NULL, NULL, 0, "s", b);
    assert_string_not_equal(a, b);
}

static void at_most_so_many(void **state) {
    (void)state;
    char name[80];
    const bt_known one = {true, 1};
    for (int i = 0; i < 70; i++) {
        (void)snprintf(name, sizeof name, "footprint-%064x", i);
        bt_footprint_keep(name, pools, 1, &one);
    }
    uint32_t n = 0;
    DIR *list = opendir(FOLDER "/own");
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, "footprint-", 10) == 0) n++;
    (void)closedir(list);
    assert_int_equal(n, 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_most_stands_pool_by_pool, start),
        cmocka_unit_test_setup(the_file_is_as_documented, start),
        cmocka_unit_test_setup(what_is_not_exactly_so_is_none, start),
        cmocka_unit_test_setup(names, start),
        cmocka_unit_test_setup(what_a_name_is_of, start),
        cmocka_unit_test_setup(at_most_so_many, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
