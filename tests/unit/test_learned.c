/* SPDX-License-Identifier: MIT
 * test_learned.c: what a program took is remembered at its most, exactly or not at all. */
#include "guard/learned.h"

#include "base/os.h"
#include "base/state.h"
#include "leave.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER BT_TEST_OUT "/learned"
#define HEX    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define NAME   "learned-" HEX
#define MIB    (UINT64_C(1) << 20)

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    return setenv("BURTHEN_STATE_DIR", FOLDER "/own", 1);
}

static void put_bytes(const char *name, const char *data, size_t bytes) {
    int dir = -1;
    assert_int_equal(bt_state_open(true, &dir, NULL), BT_OK);
    assert_int_equal(bt_state_write(dir, name, data, bytes, NULL), BT_OK);
    assert_int_equal(bt_os_close(dir), 0);
}

static void put_file(const char *text) {
    put_bytes(NAME, text, strlen(text));
}

/* "" for none. */
static void get_file(const char *name, char ret[256]) {
    bt_text text;
    bt_text_init(&text, 255);
    ret[0] = '\0';
    if (bt_state_recall(name, &text, NULL) == BT_OK) memcpy(ret, bt_text_str(&text), text.n_bytes + 1);
    bt_text_done(&text);
}

static void expect(const char *name, uint64_t bytes) {
    bt_known got = {true, 1};
    bt_learned_read(name, &got);
    assert_int_equal(got.known, bytes > 0);
    assert_int_equal(got.value, bytes);
}

/* ---- keeping ---------------------------------------------------------------------------------------------------- */

static void the_most_stands(void **state) {
    (void)state;
    expect(NAME, 0); /* and no folder is made by looking */
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
    bt_learned_keep(NAME, 300 * MIB);
    expect(NAME, 300 * MIB);
    bt_learned_keep(NAME, 200 * MIB);
    expect(NAME, 300 * MIB);
    bt_learned_keep(NAME, 301 * MIB);
    expect(NAME, 301 * MIB);
    expect("learned-" /* another */ "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0);
}

static void the_file_is_as_documented(void **state) {
    (void)state;
    char text[256];
    char wanted[256];
    uint64_t unix_s = 0;
    bt_learned_keep(NAME, 300 * MIB);
    bt_learned_keep(NAME, 1);
    get_file(NAME, text);
    assert_int_equal(sscanf(text, "burthen-learned 1\n%*u %*u %" SCNu64, &unix_s), 1);
    assert_true(unix_s + 60 > (uint64_t)time(NULL) && unix_s <= (uint64_t)time(NULL));
    (void)snprintf(wanted, sizeof wanted, "burthen-learned 1\n314572800 2 %" PRIu64 "\n", unix_s);
    assert_string_equal(text, wanted);
}

static void nothing_is_not_kept(void **state) {
    (void)state;
    bt_learned_keep(NAME, 0);
    expect(NAME, 0);
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
}

static void only_the_newest_are_kept(void **state) {
    (void)state;
    char name[BT_LEARNED_NAME_BYTES];
    uint32_t n_left = 0;
    put_bytes("other", "x", 1);
    for (uint32_t i = 0; i < 66; i++) {
        (void)snprintf(name, sizeof name, "learned-%064x", i);
        bt_learned_keep(name, MIB + i);
        struct timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
        char path[512];
        (void)snprintf(path, sizeof path, FOLDER "/own/%s", name);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    for (uint32_t i = 0; i < 66; i++) {
        (void)snprintf(name, sizeof name, "learned-%064x", i);
        bt_known got;
        bt_learned_read(name, &got);
        assert_int_equal(got.known, i >= 2);
        n_left += got.known;
    }
    assert_int_equal(n_left, 64);
    assert_int_equal(access(FOLDER "/own/other", F_OK), 0);
    assert_int_equal(access(FOLDER "/own/learned.lock", F_OK), 0);
}

/* ---- what is not exactly so ------------------------------------------------------------------------------------- */

static void a_broken_file_is_none_and_is_begun_anew(void **state) {
    (void)state;
    static const char *const broken[] = {
        "",
        "burthen-learned 1\n",
        "burthen-learned 1\n900000000 1\n",
        "burthen-learned 1\n900000000 1 1700000000", /* cut */
        "burthen-learned 1\n900000000 1 1700000000\n\n",
        "burthen-learned 1\n900000000 1 1700000000 \n",
        "burthen-learned 1\n900000000 1 1700000000 4\n",
        "burthen-learned 1\n900000000  1 1700000000\n",
        "burthen-learned 1\n0900000000 1 1700000000\n",
        "burthen-learned 1\n0 1 1700000000\n",
        "burthen-learned 1\n900000000 0 1700000000\n",
        "burthen-learned 1\n-900000000 1 1700000000\n",
        "burthen-learned 1\n99999999999999999999 1 1700000000\n",
        "burthen-learned 1\r\n900000000 1 1700000000\n",
        "burthen-learned 2\n900000000 1 1700000000\n",
        "burthen-learned\n900000000 1 1700000000\n",
        "burthen-disk 1\n900000000 1 1700000000\n",
    };
    char text[256];
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        put_file(broken[i]);
        expect(NAME, 0);
        bt_learned_keep(NAME, 3 * MIB);
        expect(NAME, 3 * MIB);
        get_file(NAME, text);
        assert_non_null(strstr(text, "\n3145728 1 "));
    }
    put_bytes(NAME, "burthen-learned 1\n900000000 1 1700000000\n\0x", 43); /* a byte after its end */
    expect(NAME, 0);
    static char large[4096];
    memset(large, '1', sizeof large);
    put_bytes(NAME, large, sizeof large);
    expect(NAME, 0);
    put_file("burthen-learned 1\n900000000 1 1700000000\n"); /* and this is one */
    expect(NAME, 900000000);
    put_file("burthen-learned 1\n900000000 18446744073709551615 1700000000\n");
    bt_learned_keep(NAME, 1);
    expect(NAME, 900000000);
}

static void what_is_no_name_of_ours_is_neither_read_nor_kept(void **state) {
    (void)state;
    static const char *const names[] = {
        "",
        "learned-",
        "learned.lock",
        "reservations",
        "../" NAME,
        "learned-../" HEX,
        NAME "0",
        NAME ".lock",
        "learned-0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
        "learned-/123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bt_learned_keep(names[i], MIB);
        expect(names[i], 0);
    }
    assert_int_equal(access(FOLDER "/own", F_OK), -1);
    static const char good[] = "burthen-learned 1\n900000000 1 1700000000\n";
    put_bytes("reservations", good, sizeof good - 1);
    expect("reservations", 0);
}

static void a_folder_that_cannot_be_written_is_done_without(void **state) {
    (void)state;
    /* a file where the folder should be: for root as well */
    int fd = open(FOLDER "/own", O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    bt_learned_keep(NAME, MIB);
    expect(NAME, 0);
    /* a folder that others can write is no place either */
    assert_int_equal(unlink(FOLDER "/own"), 0);
    assert_int_equal(mkdir(FOLDER "/own", 0700), 0);
    bt_learned_keep(NAME, MIB);
    expect(NAME, MIB);
    assert_int_equal(chmod(FOLDER "/own", 0777), 0);
    expect(NAME, 0);
    bt_learned_keep(NAME, 2 * MIB);
    assert_int_equal(chmod(FOLDER "/own", 0700), 0);
    expect(NAME, MIB);
}

/* ---- side by side ----------------------------------------------------------------------------------------------- */

static void writers_side_by_side_lose_nothing(void **state) {
    (void)state;
    enum { N_WRITERS = 6, N_RUNS = 25 };
    pid_t pids[N_WRITERS];
    char text[256];
    uint64_t n_runs = 0;
    for (uint32_t w = 0; w < N_WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (pids[w] != 0) continue;
        uint64_t most = 0;
        for (uint64_t i = 0; i < N_RUNS; i++) {
            bt_known seen;
            bt_learned_keep(NAME, MIB + (i * 7919 + w * 104729) % 1000);
            bt_learned_read(NAME, &seen);
            if (!seen.known || seen.value < most) leave(1); /* always whole, and never less */
            most = seen.value;
        }
        leave(0);
    }
    for (uint32_t w = 0; w < N_WRITERS; w++) {
        int status = 0;
        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        assert_int_equal(status, 0);
    }
    uint64_t most = 0;
    for (uint64_t w = 0; w < N_WRITERS; w++) {
        for (uint64_t i = 0; i < N_RUNS; i++) {
            uint64_t value = (i * 7919 + w * 104729) % 1000;
            if (value > most) most = value;
        }
    }
    expect(NAME, MIB + most);
    get_file(NAME, text);
    assert_int_equal(sscanf(text, "burthen-learned 1\n%*u %" SCNu64, &n_runs), 1);
    assert_int_equal(n_runs, N_WRITERS * N_RUNS);
}

/* ---- the name --------------------------------------------------------------------------------------------------- */

static void put_program(const char *path, const char *text, time_t mtime_s) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    struct timespec times[2] = {{mtime_s, 5}, {mtime_s, 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void each_of_its_parts_is_another_name(void **state) {
    (void)state;
    static const char program[] = FOLDER "/llama-server";
    static const char twin[] = FOLDER "/a copy";
    char names[8][BT_LEARNED_NAME_BYTES];
    put_program(program, "x", 1000);
    put_program(twin, "y", 1000);
    assert_true(bt_learned_name(program, HEX, 4, "-ub 512", names[0]));
    assert_true(bt_learned_name(program, "fe", 4, "-ub 512", names[1]));
    assert_true(bt_learned_name(program, HEX, 5, "-ub 512", names[2]));
    assert_true(bt_learned_name(program, HEX, 4, "-ub 51", names[3]));
    assert_true(bt_learned_name(program, HEX "-", 4, "ub 512", names[4]));
    put_program(program, "xx", 1000);
    assert_true(bt_learned_name(program, HEX, 4, "-ub 512", names[5]));
    put_program(program, "x", 1001);
    assert_true(bt_learned_name(program, HEX, 4, "-ub 512", names[6]));
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(strlen(names[i]), 8 + 64);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
        bt_learned_keep(names[i], MIB + i); /* each is a name that can be kept */
        expect(names[i], MIB + i);
    }
    assert_true(bt_learned_name(twin, HEX, 4, "-ub 512", names[7])); /* elsewhere: the same file to us */
    assert_string_equal(names[7], names[0]);
}

static void the_hash_is_of_what_the_header_says(void **state) {
    (void)state;
    char name[BT_LEARNED_NAME_BYTES];
    put_program(FOLDER "/p", "x", 1000);
    assert_true(bt_learned_name(FOLDER "/p", "ab", 4, "s", name));
    /* sha256 of size, seconds and nanoseconds, "ab\0", the slots and "s\0", numbers as 64 bits; by another program */
    assert_string_equal(name, "learned-ecc5292f382195756bda490e4cd46b0e15d1ee4db2350f3073a5e713f6370335");
}

static void no_program_has_no_name(void **state) {
    (void)state;
    char name[BT_LEARNED_NAME_BYTES] = "x";
    assert_false(bt_learned_name(FOLDER "/none", HEX, 4, "", name));
    assert_string_equal(name, "");
    assert_false(bt_learned_name(FOLDER, HEX, 4, "", name));
    bt_learned_keep(name, MIB);
    expect(name, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_most_stands, start),
        cmocka_unit_test_setup(the_file_is_as_documented, start),
        cmocka_unit_test_setup(nothing_is_not_kept, start),
        cmocka_unit_test_setup(only_the_newest_are_kept, start),
        cmocka_unit_test_setup(a_broken_file_is_none_and_is_begun_anew, start),
        cmocka_unit_test_setup(what_is_no_name_of_ours_is_neither_read_nor_kept, start),
        cmocka_unit_test_setup(a_folder_that_cannot_be_written_is_done_without, start),
        cmocka_unit_test_setup(writers_side_by_side_lose_nothing, start),
        cmocka_unit_test_setup(each_of_its_parts_is_another_name, start),
        cmocka_unit_test_setup(the_hash_is_of_what_the_header_says, start),
        cmocka_unit_test_setup(no_program_has_no_name, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
