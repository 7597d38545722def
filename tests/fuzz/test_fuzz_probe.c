/* SPDX-License-Identifier: MIT
 * test_fuzz_probe.c: the texts of /proc and /sys, mutated, through the parsers and through a whole probe.
 *
 * Each text stands in a heap block of exactly its size, so that a sanitizer sees a read past its end. What the parsers
 * may answer is checked by properties that hold for any input: a known number is one that the text could say, a
 * reading is sound or says why it is not, a path is a path. The seed is printed; BT_SEED=N runs that one again. */
#include "base/heap.h"
#include "probe/cgroup.h"
#include "probe/host.h"
#include "probe/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include <cmocka.h>

#define N_ROUNDS      20000
#define N_ROUNDS_TREE 500 /* each writes four files */
#define N_TEXT_MAX    8192

static uint64_t seed = UINT64_C(0x62757274);

static uint64_t next_random(void) {
    return random_next(&seed);
}

static size_t below(size_t n) {
    return (size_t)(next_random() % n);
}

typedef struct sample {
    char data[N_TEXT_MAX];
    size_t n_bytes;
} sample;

static void load(const char *path, sample *ret) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    if (!file) return;
    ret->n_bytes = fread(ret->data, 1, sizeof ret->data, file);
    assert_int_equal(fclose(file), 0);
    assert_true(ret->n_bytes > 0 && ret->n_bytes < N_TEXT_MAX / 2);
}

/* Replace n_old bytes at `at`; what does not fit is not done. */
static void splice(sample *text, size_t at, size_t n_old, const char *new_bytes, size_t n_new) {
    if (text->n_bytes - n_old + n_new > sizeof text->data) return;
    memmove(text->data + at + n_new, text->data + at + n_old, text->n_bytes - at - n_old);
    memcpy(text->data + at, new_bytes, n_new);
    text->n_bytes = text->n_bytes - n_old + n_new;
}

static void mutate(sample *text) {
    static const char *const pieces[] = {"-",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "99999999999999999999999",
                                         "\n",
                                         "\r\n",
                                         " ",
                                         "\t",
                                         "max",
                                         "9223372036854771712",
                                         "0",
                                         "/..",
                                         "\\0",
                                         "\\040",
                                         ":",
                                         "memory",
                                         " - ",
                                         "cgroup2",
                                         "\xff\xfe",
                                         "/",
                                         ",",
                                         ".",
                                         "",
                                         "kB"};
    char copy[256];
    size_t at = below(text->n_bytes + 1);
    size_t left = text->n_bytes - at;
    const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
    switch (below(6)) {
    case 0: /* a bit */
        if (left > 0) text->data[at] = (char)(text->data[at] ^ (char)(1u << below(8)));
        break;
    case 1: /* the end is missing */
        if (below(8) == 0) text->n_bytes = at;
        break;
    case 2: /* some bytes are missing */
        splice(text, at, left > 0 ? below(left < 64 ? left : 64) : 0, "", 0);
        break;
    case 3: { /* some bytes again, elsewhere */
        size_t n = below((left < sizeof copy ? left : sizeof copy) + 1);
        memcpy(copy, text->data + at, n);
        splice(text, below(text->n_bytes + 1), 0, copy, n);
        break;
    }
    default: /* a piece that means something, beside or instead of what is there */
        splice(text, at, left > 0 ? below(left < 8 ? left : 8) : 0, piece, strlen(piece));
    }
}

static char *mutated(const sample *from) {
    static sample text;
    text = *from;
    for (size_t n = 1 + below(6); n > 0; n--)
        mutate(&text);
    char *exact = bt_heap_alloc(text.n_bytes + 1);
    assert_non_null(exact);
    if (exact) memcpy(exact, text.data, text.n_bytes);
    return exact;
}

/* ---- parsers ---------------------------------------------------------------------------------------------------- */

static void check_host_texts(const char *text) {
    bt_pool pool;
    bt_host_pool_parse(text, &pool);
    bt_known available = bt_meminfo_available(text);
    if (pool.state == BT_READING_REPORTED) {
        assert_true(available.known);
        assert_true(pool.total_bytes > 0 && pool.free_bytes <= pool.total_bytes);
        assert_int_equal(pool.clamped, available.value > pool.total_bytes);
        assert_string_equal(pool.reason, "");
    } else {
        assert_int_equal(pool.state, BT_READING_FAILED);
        assert_int_equal(pool.free_bytes | pool.total_bytes, 0);
        assert_true(pool.reason[0] != '\0');
    }
    assert_int_equal(available.value % 1024, 0);
    if (available.known) {
        /* a number the text could say: its digits stand there */
        char digits[32];
        (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)(available.value / 1024));
        assert_non_null(strstr(text, digits));
    }
    bt_known vm_stat = bt_vm_stat_available(text);
    assert_true(vm_stat.known || vm_stat.value == 0);
    assert_true(bt_host_cores_parse(text) <= 8192);
    (void)bt_host_limit_parse(text, "Max address space");
}

static void check_cgroup_texts(const char *text) {
    static char path[BT_PROC_PATH_MAX];
    static bt_cgroup_mount mount;
    static const char *const controllers[] = {"memory", "cpu", NULL};
    static const char group[] = "/user.slice/a";
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        memset(path, 'p', sizeof path);
        if (bt_cgroup_path_parse(text, controllers[i], path)) {
            assert_int_equal(path[0], '/');
            assert_non_null(memchr(path, '\0', sizeof path));
            assert_null(strchr(path, '\n'));
            assert_non_null(strstr(text, path));
        }
        memset(&mount, 0, sizeof mount);
        bt_cgroup_mount_parse(text, controllers[i], group, &mount);
        if (!mount.found) continue;
        assert_int_equal(mount.root[0], '/');
        assert_int_equal(mount.point[0], '/');
        if (mount.holds_group && mount.root[1]) assert_memory_equal(mount.root, group, strlen(mount.root));
    }
    bt_known limit = {0};
    if (bt_cgroup_limit_parse(text, &limit)) assert_true(limit.value < UINT64_C(1) << 62);
    bt_known cores = {0};
    if (bt_cgroup_cpu_max_parse(text, &cores)) assert_true(!cores.known || cores.value >= 1);
    for (uint32_t version = 1; version <= 2; version++) {
        bt_cgroup_stat stat = bt_cgroup_stat_parse(text, version);
        assert_true(!stat.hierarchical_limit.known || version == 1);
        assert_true(stat.hierarchical_limit.value < UINT64_C(1) << 62);
    }
}

static void mutated_texts_give_sound_answers_or_none(void **state) {
    (void)state;
    static const char *const paths[] = {
        "v2-nested/proc/meminfo",
        "v2-nested/proc/self/mountinfo",
        "v2-nested/proc/self/cgroup",
        "v2-nested/sys/fs/cgroup/user.slice/memory.stat",
        "hybrid/proc/self/mountinfo",
        "hybrid/proc/self/cgroup",
        "v2-nested/proc/self/limits",
        "v1-plain/sys/fs/cgroup/memory/memory.stat",
        "v2-container/proc/self/status",
        "v2-container/sys/fs/cgroup/cpu.max",
        "v2-container/sys/fs/cgroup/memory.max",
    };
    static const char vm_stat[] = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:  100000.\n"
                                  "Pages active:  900000.\nPages inactive:  50000.\n";
    enum { N_FILES = sizeof paths / sizeof paths[0] };
    static sample samples[N_FILES + 1];
    for (size_t i = 0; i < N_FILES; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, BT_TEST_DATA "/roots/%s", paths[i]);
        load(path, &samples[i]);
    }
    samples[N_FILES].n_bytes = strlen(vm_stat);
    memcpy(samples[N_FILES].data, vm_stat, strlen(vm_stat));
    for (int i = 0; i < N_ROUNDS; i++) {
        char *text = mutated(&samples[below(N_FILES + 1)]);
        check_host_texts(text);
        check_cgroup_texts(text);
        bt_heap_free(text);
    }
}

/* ---- a whole tree ----------------------------------------------------------------------------------------------- */

#define TREE BT_TEST_OUT "/fuzz-root"

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (!file) return;
    (void)fwrite(text, 1, strlen(text), file);
    assert_int_equal(fclose(file), 0);
}

static void check_machine(const bt_machine *machine) {
    char source[BT_CGROUP_SOURCE_TEXT];
    const bt_pool *host = &machine->pools[0];
    assert_int_equal(machine->n_pools, 1);
    assert_true(host->state == BT_READING_REPORTED || host->state == BT_READING_FAILED);
    assert_true(host->free_bytes <= host->total_bytes);
    assert_true(machine->cgroup_version <= 2);
    assert_true(machine->n_cgroup_levels <= BT_CGROUP_LEVEL_MAX);
    if (machine->cgroup_reason[0]) assert_int_equal(machine->cgroup_version + machine->n_cgroup_levels, 0);
    bt_known available = bt_cgroup_available(machine, source);
    bool has_limit = false;
    for (uint32_t i = 0; i < machine->n_cgroup_levels; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        assert_int_equal(level->path[0], '/');
        assert_non_null(memchr(level->path, '\0', sizeof level->path));
        if (!level->limit.known) continue;
        has_limit = true;
        assert_true(available.value <= level->limit.value);
        assert_true(host->limit.value <= level->limit.value);
    }
    assert_int_equal(available.known, has_limit);
    assert_int_equal(source[0] != '\0', has_limit);
}

static void mutated_trees_give_sound_machines(void **state) {
    (void)state;
    static const char *const paths[] = {"proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo",
                                        "sys/fs/cgroup/memory.stat", "sys/fs/cgroup/memory.max"};
    enum { N_FILES = sizeof paths / sizeof paths[0] };
    static sample samples[N_FILES];
    static bt_machine machine;
    uint32_t n_with_chain = 0;
    /* NOLINTNEXTLINE(bugprone-command-processor): fixed paths of the build */
    assert_int_equal(system("rm -rf '" TREE "' && mkdir -p '" BT_TEST_OUT "' && cp -r '" BT_TEST_DATA
                            "/roots/v2-container' '" TREE "'"),
                     0);
    for (size_t i = 0; i < N_FILES; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, TREE "/%s", paths[i]);
        load(path, &samples[i]);
    }
    uint64_t n_blocks = bt_heap_live_blocks();
    for (int i = 0; i < N_ROUNDS_TREE; i++) {
        for (size_t k = 0; k < N_FILES; k++) {
            char path[1024];
            (void)snprintf(path, sizeof path, TREE "/%s", paths[k]);
            char *text = mutated(&samples[k]);
            /* half of the files stay whole, or nearly every tree would fail at its first file */
            if (below(2) == 0) {
                memcpy(samples[k].data + samples[k].n_bytes, "", 1);
                put(path, samples[k].data);
            } else {
                put(path, text);
            }
            bt_heap_free(text);
        }
        assert_int_equal(bt_machine_probe(TREE, &machine, NULL), BT_OK);
        check_machine(&machine);
        if (machine.n_cgroup_levels > 0) n_with_chain++;
    }
    assert_int_equal(bt_heap_live_blocks(), n_blocks);
    assert_true(n_with_chain > N_ROUNDS_TREE / 20); /* enough of them got that far */
}

int main(void) {
    const char *asked = getenv("BT_SEED");
    if (asked) seed = strtoull(asked, NULL, 0);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_texts_give_sound_answers_or_none),
        cmocka_unit_test(mutated_trees_give_sound_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
