/* SPDX-License-Identifier: MIT
 * test_reservations.c: what other budgets have promised: by real processes, many at once, killed, with their numbers
 * taken by others; and files that are torn, foreign, or somebody else's. */
#include "base/text.h"
#include "leave.h"
#include "probe/reservations.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER BT_TEST_OUT "/reservations"
#define BOOK   FOLDER "/reservations"
#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#if defined(__SANITIZE_ADDRESS__)
#define N_MANY                                                                                                         \
    60u /* a process under the sanitizer is some ten times slower, and each waits its turn for 10 s at most */
#else
#define N_MANY 200u
#endif

static bt_machine machine;

static int start(void **state) {
    (void)state;
    assert_int_equal(system("rm -rf '" FOLDER "'"), 0); /* NOLINT(bugprone-command-processor) */
    return setenv("BURTHEN_STATE_DIR", FOLDER, 1);
}

static void look(void) {
    memset(&machine, 0, sizeof machine);
    bt_reservations_probe(&machine);
}

static void expect_others(uint32_t n, uint64_t promised_bytes) {
    look();
    assert_string_equal(machine.reservations_reason, "");
    assert_int_equal(machine.n_reservations, n);
    assert_int_equal(machine.promised_bytes, promised_bytes);
    assert_true(machine.untouched_bytes <= promised_bytes);
}

static void put(const char *text) {
    (void)mkdir(FOLDER, 0700);
    FILE *file = fopen(BOOK, "w");
    assert_non_null(file);
    if (!file) return;
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void get(char text[4096]) {
    FILE *file = fopen(BOOK, "r");
    assert_non_null(file);
    if (!file) return;
    size_t n = fread(text, 1, 4095, file);
    text[n] = '\0';
    (void)fclose(file);
}

static void promise(uint64_t bytes) {
    bool promised = false;
    bt_error err = {0};
    if (bt_reservation_make("run", bytes, UINT64_MAX, &promised, &err) != BT_OK) fail_msg("%s", err.text);
    assert_true(promised);
}

/* ---- children --------------------------------------------------------------------------------------------------- */

typedef struct child {
    pid_t pid;
    int go; /* a byte makes it end; closing too */
} child;

/* A process that has promised bytes, and says so before this returns. touch_bytes of it are in memory. */
static child child_start(uint64_t bytes, uint64_t touch_bytes) {
    int go[2];
    int ready[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(go[1]);
        bool promised = false;
        bool good = bt_reservation_make("perplexity", bytes, UINT64_MAX, &promised, NULL) == BT_OK && promised;
        char *memory = touch_bytes ? malloc(touch_bytes) : NULL;
        if (memory) memset(memory, 1, touch_bytes);
        char byte = good ? 'y' : 'n';
        good = write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1;
        if (good) bt_reservation_drop();
        leave(memory && memory[touch_bytes / 2] == 0 ? 1 : 0);
    }
    (void)close(go[0]);
    (void)close(ready[1]);
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    (void)close(ready[0]);
    return (child){pid, go[1]};
}

static void child_end(child c, bool by_kill) {
    if (by_kill)
        assert_int_equal(kill(c.pid, SIGKILL), 0);
    else
        assert_int_equal(write(c.go, "x", 1), 1);
    (void)close(c.go);
    assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
}

static void another_process_is_seen(void **state) {
    (void)state;
    expect_others(0, 0); /* no folder: nobody */
    assert_int_equal(access(FOLDER, F_OK), -1);
    child c = child_start(3 * GIB, 64 * MIB);
    expect_others(1, 3 * GIB);
    const bt_reservation *other = &machine.reservations[0];
    assert_int_equal(other->pid, c.pid);
    assert_string_equal(other->command, "perplexity");
    assert_true(other->resident_bytes >= 64 * MIB && other->resident_bytes < 1 * GIB);
    assert_int_equal(machine.untouched_bytes, 3 * GIB - other->resident_bytes);
    child_end(c, false);
    expect_others(0, 0);
}

/* A process in our own group has promised at every level of it; groups that are not known are taken to be ours. */
static void a_promise_counts_at_each_level(void **state) {
    (void)state;
    child c = child_start(GIB, 0);
    for (uint32_t version = 0; version < 2; version++) {
        memset(&machine, 0, sizeof machine);
        char source[4096] = "";
        FILE *f = fopen("/proc/self/cgroup", "r");
        bool is_v1 = f && fread(source, 1, sizeof source - 1, f) > 0 && strstr(source, ":memory:");
        if (f) (void)fclose(f);
        machine.cgroup_version = version == 0 ? 0 : is_v1 ? 1 : 2;
        machine.n_cgroup_levels = 3;
        machine.cgroup[0].depth = 40; /* deeper than any group of ours */
        machine.cgroup[1].depth = machine.cgroup[2].depth = 0;
        machine.cgroup[2].promised_bytes = 5;
        bt_reservations_probe(&machine);
        assert_int_equal(machine.untouched_bytes, GIB - machine.reservations[0].resident_bytes);
        assert_int_equal(machine.cgroup[0].promised_bytes, version == 0 ? machine.untouched_bytes : 0);
        assert_int_equal(machine.cgroup[1].promised_bytes, machine.untouched_bytes);
        assert_int_equal(machine.cgroup[2].promised_bytes, machine.untouched_bytes + 5);
    }
    child_end(c, false);
}

static void our_own_promise_is_not_among_the_others(void **state) {
    (void)state;
    promise(GIB);
    expect_others(0, 0);
    promise(2 * GIB); /* in place of the first */
    child c = child_start(GIB, 0);
    char text[4096];
    get(text);
    assert_non_null(strstr(text, " 2147483648 run\n"));
    assert_null(strstr(text, " 1073741824 run\n"));
    expect_others(1, GIB);
    child_end(c, false);
    bt_reservation_drop();
    get(text);
    assert_null(strstr(text, "run"));
}

static void more_in_memory_than_promised_is_not_less_than_nothing(void **state) {
    (void)state;
    child c = child_start(1, 8 * MIB);
    expect_others(1, 1);
    assert_int_equal(machine.untouched_bytes, 0);
    child_end(c, true);
}

static void a_crash_leaves_no_claim(void **state) {
    (void)state;
    child killed = child_start(5 * GIB, 0);
    child kept = child_start(GIB, 0);
    child_end(killed, true);
    expect_others(1, GIB);
    promise(MIB); /* and is gone from the file at the next turn */
    char text[4096];
    get(text);
    assert_null(strstr(text, "5368709120"));
    child_end(kept, false);
    bt_reservation_drop();
}

static void a_number_that_was_taken_again_is_another_process(void **state) {
    (void)state;
    child c = child_start(GIB, 0);
    char text[4096];
    char changed[4200];
    get(text);
    char *line = strchr(text, '\n') + 1;
    char *start_at = strchr(line, ' ') + 1;
    /* its number, started at another tick */
    (void)snprintf(changed, sizeof changed, "%.*s1%s", (int)(start_at - text), text, start_at);
    put(changed);
    expect_others(0, 0);
    put(text);
    expect_others(1, GIB);
    child_end(c, false);
}

static void others_that_were_faster_are_looked_at_again(void **state) {
    (void)state;
    child c = child_start(GIB, 0);
    bool promised = true;
    assert_int_equal(bt_reservation_make("run", MIB, GIB - 1, &promised, NULL), BT_OK);
    assert_false(promised);
    char text[4096];
    get(text);
    assert_null(strstr(text, "run"));
    assert_int_equal(bt_reservation_make("run", MIB, GIB, &promised, NULL), BT_OK);
    assert_true(promised);
    child_end(c, false);
    bt_reservation_drop();
}

static void two_hundred_at_once(void **state) {
    (void)state;
    static child children[N_MANY];
    static pid_t pids[N_MANY];
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    /* all wait at the gate, write over each other, take back, and write again */
    for (uint32_t i = 0; i < N_MANY; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] != 0) continue;
        char byte = 0;
        bool promised = false;
        (void)close(gate[1]);
        bool good = read(gate[0], &byte, 1) == 0;
        for (uint64_t turn = 1; turn <= 2 && good; turn++) {
            if (turn == 2) bt_reservation_drop();
            good = bt_reservation_make("run", turn * MIB, UINT64_MAX, &promised, NULL) == BT_OK && promised;
        }
        _exit(good ? 0 : 1); /* without taking back: as if killed; and at once, for each waits for the others */
    }
    (void)close(gate[0]);
    (void)close(gate[1]);
    uint32_t n_failed = 0;
    for (uint32_t i = 0; i < N_MANY; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status != 0) n_failed++;
    }
    assert_int_equal(n_failed, 0);
    expect_others(0, 0);
    /* and alive at once: the sums hold all, the list its maximum */
    for (uint32_t i = 0; i < N_MANY; i++)
        children[i] = child_start(GIB, 0);
    expect_others(N_MANY < BT_RESERVATION_MAX ? N_MANY : BT_RESERVATION_MAX, N_MANY * GIB);
    for (uint32_t i = 0; i < N_MANY; i++)
        child_end(children[i], i % 2 == 0);
    expect_others(0, 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void what_is_no_such_file_is_begun_anew(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "\n\n",
        "burthen-reservations 2 x\n1 2 3 4 run\n",
        "burthen-reservations 1 another-boot\n1 2 3 4 run\n",
        "{\"schema\": 1}\n",
        "\x7f\x45\x4c\x46\xff\xfe",
        "burthen-reservations 1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put(texts[i]);
        expect_others(0, 0);
        promise(MIB);
        char text[4096];
        get(text);
        assert_memory_equal(text, "burthen-reservations 1 ", 23);
        assert_non_null(strstr(text, " 1048576 run\n"));
        bt_reservation_drop();
    }
    /* too large for one of ours */
    static char large[200000];
    memset(large, 'x', sizeof large - 1);
    put(large);
    expect_others(0, 0);
    promise(MIB);
    bt_reservation_drop();
}

static void torn_lines_are_dropped_and_sound_ones_kept(void **state) {
    (void)state;
    child c = child_start(GIB, 0);
    char text[4096];
    char torn[8192];
    get(text);
    char *line = strchr(text, '\n') + 1;
    static const char *const bad[] = {
        "1 2 3 run",           "x 2 3 4 run", "1 2 3 99999999999999999999 run", "1 2 3 4 Run",
        "1 2 3 4 run more",    "0 2 3 4 run", "1 2 3 4 sixteenlettersxx",       "1 2 3 4",
        "4294967297 2 3 4 run"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(torn, sizeof torn, "%.*s%s\n%s", (int)(line - text), text, bad[i], line);
        put(torn);
        expect_others(1, GIB);
    }
    /* cut in the middle of the only line: nothing is made of half a number */
    (void)snprintf(torn, sizeof torn, "%.*s", (int)(strrchr(text, ' ') - text - 4), text);
    put(torn);
    expect_others(0, 0);
    child_end(c, true);
}

static void another_pid_namespace_is_kept_and_not_counted(void **state) {
    (void)state;
    promise(MIB);
    char text[4096];
    char both[8192];
    get(text);
    (void)snprintf(both, sizeof both, "%s7 1234 1 9000000000 run\n", text);
    put(both);
    expect_others(0, 0);
    promise(2 * MIB);
    get(text);
    assert_non_null(strstr(text, "\n7 1234 1 9000000000 run\n"));
    bt_reservation_drop();
}

static void a_full_file_makes_room_or_says_so(void **state) {
    (void)state;
    promise(MIB);
    char text[4096];
    get(text);
    bt_text full;
    bt_text_init(&full, 1u << 20);
    bt_text_add_n(&full, text, (size_t)(strchr(text, '\n') + 1 - text));
    for (int i = 0; i < 1024; i++)
        bt_text_addf(&full, "%d 1234 1 9000000000 run\n", i + 1);
    put(bt_text_str(&full));
    promise(3 * MIB); /* lines that nobody here can check make room */
    bt_text_done(&full);
    assert_int_equal(start(state), 0);
    /* 1024 lines of one that lives: it is counted as often as it stands there, and there is no room */
    child c = child_start(GIB, 0);
    get(text);
    char *line = strchr(text, '\n') + 1;
    bt_text_init(&full, 1u << 20);
    bt_text_add_n(&full, text, (size_t)(line - text));
    for (int i = 0; i < 1024; i++)
        bt_text_add(&full, line);
    put(bt_text_str(&full));
    bt_text_done(&full);
    bool promised = false;
    bt_error err = {0};
    assert_int_equal(bt_reservation_make("run", MIB, UINT64_MAX, &promised, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "reservations_full");
    child_end(c, true);
    promise(MIB);
    bt_reservation_drop();
}

static void a_folder_that_is_not_ours_is_said(void **state) {
    (void)state;
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    assert_int_equal(chmod(FOLDER, 0777), 0);
    look();
    assert_int_equal(machine.n_reservations, 0);
    assert_non_null(strstr(machine.reservations_reason, "nothing can be kept in "));
    bool promised = false;
    bt_error err = {0};
    assert_int_equal(bt_reservation_make("run", MIB, UINT64_MAX, &promised, &err), BT_E_IO);
    assert_string_equal(err.code, "state_dir");
    assert_false(promised);
    bt_reservation_drop(); /* nothing to take back, and silent */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(another_process_is_seen, start),
        cmocka_unit_test_setup(a_promise_counts_at_each_level, start),
        cmocka_unit_test_setup(our_own_promise_is_not_among_the_others, start),
        cmocka_unit_test_setup(more_in_memory_than_promised_is_not_less_than_nothing, start),
        cmocka_unit_test_setup(a_crash_leaves_no_claim, start),
        cmocka_unit_test_setup(a_number_that_was_taken_again_is_another_process, start),
        cmocka_unit_test_setup(others_that_were_faster_are_looked_at_again, start),
        cmocka_unit_test_setup(two_hundred_at_once, start),
        cmocka_unit_test_setup(what_is_no_such_file_is_begun_anew, start),
        cmocka_unit_test_setup(torn_lines_are_dropped_and_sound_ones_kept, start),
        cmocka_unit_test_setup(another_pid_namespace_is_kept_and_not_counted, start),
        cmocka_unit_test_setup(a_full_file_makes_room_or_says_so, start),
        cmocka_unit_test_setup(a_folder_that_is_not_ours_is_said, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
