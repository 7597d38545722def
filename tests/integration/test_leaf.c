/* SPDX-License-Identifier: MIT
 * test_leaf.c: the kernel holds a program to the leaf that its process entered before it became that program.
 *
 * Each leaf is made by a child, so that this process stays where it is. As a program with an argument this file is what
 * is held: it waits for a line, touches so many MiB and ends. Skipped where no group can be made, with the reason. */
#include "probe/leaf.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB  (UINT64_C(1) << 20)
#define SKIP 77

#define N_TRIES 20u /* of what another program may sweep away in between */

/* What a child says of its try. */
typedef struct told {
    bt_status status;
    bt_error err;
    bt_leaf leaf;
} told;

typedef struct child {
    pid_t pid;
    int go;   /* a line lets it go on */
    int tell; /* from which take_told reads */
    told told;
} child;

/* ---- the program that is held ----------------------------------------------------------------------------------- */

static int hog(const char *mib_text) {
    char line[2];
    size_t bytes = (size_t)(strtoull(mib_text, NULL, 10) * MIB);
    if (read(STDIN_FILENO, line, 1) != 1) return 3;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return 4;
    for (size_t at = 0; at < bytes; at += 4096)
        base[at] = 1;
    return 0;
}

/* ---- children --------------------------------------------------------------------------------------------------- */

static void read_whole(int fd, void *dest, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, (char *)dest + done, bytes - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    assert_int_equal(done, bytes);
}

static void take_told(child *c) {
    read_whole(c->tell, &c->told, sizeof c->told);
    (void)close(c->tell);
}

/* A child that makes a leaf, at once or when it is let, and tells of it; then it is act's. */
static child begin(uint64_t limit_bytes, void (*act)(const told *, const char *), const char *word, bool at_once) {
    int go[2];
    int tell[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(tell), 0);
    child c = {.pid = fork()};
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        static told t;
        char line[2];
        (void)dup2(go[0], STDIN_FILENO);
        (void)close(go[1]);
        if (!at_once && read(STDIN_FILENO, line, 1) != 1) _exit(5);
        t.status = bt_leaf_make("", limit_bytes, &t.leaf, &t.err);
        if (write(tell[1], &t, sizeof t) != sizeof t) _exit(6);
        act(&t, word);
        _exit(0);
    }
    (void)close(go[0]);
    (void)close(tell[1]);
    c.go = go[1];
    c.tell = tell[0];
    if (at_once) take_told(&c);
    return c;
}

static void let(const child *c) {
    assert_int_equal(write(c->go, "\n", 1), 1);
}

static int end(const child *c) {
    int status = 0;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    (void)close(c->go);
    return status;
}

static void become_hog(const told *t, const char *mib) {
    if (t->status == BT_OK) (void)execl("/proc/self/exe", "hog", mib, (char *)NULL);
}

static void stay(const told *t, const char *word) {
    char line[2];
    (void)t;
    (void)word;
    (void)!read(STDIN_FILENO, line, 1);
}

static void leave(const told *t, const char *word) {
    bt_leaf_leave("", &t->leaf);
    stay(t, word);
}

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* The last name of the group that a process is in. */
static void group_of(pid_t pid, uint32_t version, char ret[256]) {
    char path[64];
    char line[4096];
    const char *before = version == 1 ? ":memory:" : "0::";
    (void)snprintf(path, sizeof path, "/proc/%ld/cgroup", (long)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    ret[0] = '\0';
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, before)) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(ret, 256, "%.250s", strrchr(line, '/') + 1);
    }
    (void)fclose(file);
}

static void name_of(pid_t pid, char ret[256]) {
    (void)snprintf(ret, 256, "burthen-%ld", (long)pid);
}

/* Not known: the group is not there any more. */
static bt_known number_in(const bt_leaf *leaf, const char *file) {
    char path[BT_PROC_PATH_MAX + 64];
    unsigned long long value = 0;
    (void)snprintf(path, sizeof path, "%s/%s", leaf->folder, file);
    FILE *f = fopen(path, "r");
    bool known = f && fscanf(f, "%llu", &value) == 1;
    if (f) (void)fclose(f);
    return (bt_known){.known = known, .value = value};
}

static void expect_number(const bt_leaf *leaf, const char *file, uint64_t expected) {
    bt_known number = number_in(leaf, file);
    assert_true(number.known);
    assert_int_equal(number.value, expected);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

/* What is there while it runs: the group under its name, with its limit, which nobody sweeps. */
static void expect_held(const child *c, uint64_t limit_bytes) {
    char name[256];
    char group[256];
    const bt_leaf *leaf = &c->told.leaf;
    if (c->told.status != BT_OK) fail_msg("%s", c->told.err.text);
    name_of(c->pid, name);
    assert_string_equal(strrchr(leaf->folder, '/') + 1, name);
    group_of(c->pid, leaf->version, group);
    assert_string_equal(group, name);
    assert_int_equal(leaf->limit_bytes, limit_bytes);
    if (leaf->version == 1) {
        expect_number(leaf, "memory.limit_in_bytes", limit_bytes);
        if (leaf->swap_held) expect_number(leaf, "memory.memsw.limit_in_bytes", limit_bytes);
    } else {
        expect_number(leaf, "memory.max", limit_bytes);
        if (leaf->swap_held) expect_number(leaf, "memory.swap.max", 0);
    }
    (void)bt_leaf_sweep("");
    assert_true(exists(leaf->folder));
}

/* What stays behind is swept: by us, or by another of our programs that did so since. */
static void expect_swept(const child *c) {
    (void)bt_leaf_sweep("");
    assert_false(exists(c->told.leaf.folder));
}

static void a_program_over_the_limit_is_killed(void **state) {
    (void)state;
    child c = begin(48 * MIB, become_hog, "96", true);
    expect_held(&c, 48 * MIB);
    let(&c);
    int status = end(&c);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_swept(&c);
}

static void a_program_under_it_is_not(void **state) {
    (void)state;
    bt_known peak = {0};
    for (uint32_t i = 0; i < N_TRIES && !peak.known; i++) {
        child c = begin(96 * MIB, become_hog, "48", true);
        expect_held(&c, 96 * MIB);
        let(&c);
        int status = end(&c);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        peak = (bt_known){.known = c.told.leaf.version != 1, .value = 48 * MIB};
        if (!peak.known) peak = number_in(&c.told.leaf, "memory.max_usage_in_bytes");
        expect_swept(&c);
    }
    assert_true(peak.known);                                       /* unless another swept it at once, each time */
    assert_true(peak.value >= 48 * MIB && peak.value <= 96 * MIB); /* what it touched was charged there */
}

static void who_leaves_is_where_he_was(void **state) {
    (void)state;
    char group[256];
    char own[256];
    child c = begin(64 * MIB, leave, "", true);
    assert_int_equal(c.told.status, BT_OK);
    for (int i = 0; i < 2000 && exists(c.told.leaf.folder); i++)
        (void)usleep(10000);
    assert_false(exists(c.told.leaf.folder));
    group_of(c.pid, c.told.leaf.version, group);
    group_of(getpid(), c.told.leaf.version, own);
    assert_string_equal(group, own);
    let(&c);
    assert_int_equal(end(&c), 0);
}

/* The folder of a child's leaf: that of another leaf, with its number. */
static void folder_of(const bt_leaf *other, pid_t pid, char ret[BT_PROC_PATH_MAX + 64]) {
    char name[256];
    name_of(pid, name);
    int n = (int)(strrchr(other->folder, '/') - other->folder);
    (void)snprintf(ret, BT_PROC_PATH_MAX + 64, "%.*s/%s", n, other->folder, name);
}

static void a_number_in_use_is_left_alone_and_an_empty_one_taken_over(void **state) {
    (void)state;
    char path[BT_PROC_PATH_MAX + 64];
    char procs[BT_PROC_PATH_MAX + 128];
    char group[256];
    char own[256];
    child other = begin(64 * MIB, stay, "", true); /* somebody who can be put into a group */
    assert_int_equal(other.told.status, BT_OK);
    child c = begin(64 * MIB, stay, "", false);
    folder_of(&other.told.leaf, c.pid, path);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    FILE *file = fopen(procs, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%ld\n", (long)other.pid) > 0);
    assert_int_equal(fclose(file), 0);
    let(&c);
    take_told(&c);
    assert_int_equal(c.told.status, BT_E_IO);
    assert_int_equal(c.told.err.sys, EEXIST);
    group_of(c.pid, other.told.leaf.version, group);
    group_of(getpid(), other.told.leaf.version, own);
    assert_string_equal(group, own);
    let(&c);
    assert_int_equal(end(&c), 0);
    let(&other);
    assert_int_equal(end(&other), 0);
    (void)bt_leaf_sweep(""); /* both are empty now */
    assert_false(exists(path));
    assert_false(exists(other.told.leaf.folder));

    c = begin(64 * MIB, stay, "", false);
    folder_of(&other.told.leaf, c.pid, path);
    assert_int_equal(mkdir(path, 0755), 0);
    let(&c);
    take_told(&c);
    expect_held(&c, 64 * MIB);
    let(&c);
    assert_int_equal(end(&c), 0);
    expect_swept(&c);
}

int main(int argc, char **argv) {
    if (argc > 1) return hog(argv[1]);
    child c = begin(64 * MIB, stay, "", true);
    let(&c);
    (void)end(&c);
    (void)bt_leaf_sweep("");
    if (c.told.status != BT_OK) {
        (void)printf("skipped: %s\n", c.told.err.text);
        return SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_over_the_limit_is_killed),
        cmocka_unit_test(a_program_under_it_is_not),
        cmocka_unit_test(who_leaves_is_where_he_was),
        cmocka_unit_test(a_number_in_use_is_left_alone_and_an_empty_one_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
