/* SPDX-License-Identifier: MIT
 * test_trees.c: whole trees of /proc and /sys with some of their files changed by accident, through a probe of the
 * machine and one of its graphics devices. The texts alone are fuzz_proc.c's and fuzz_gpu.c's; here it is what a probe
 * makes of them together: a reading is sound or says why it is not. The seed is printed; BT_SEED=N runs it again. */
#include "base/heap.h"
#include "chain_kit.h"
#include "corpus.h"
#include "probe/cgroup.h"
#include "probe/gpu.h"
#include "probe/probe.h"

#define N_ROUNDS 300 /* each writes all files of its tree */

static const char *word(size_t i) {
    static const char *const words[] = {
        "-",     "18446744073709551615", "\n", " KiB", " kB", ":", "max", "/..", "\\040", "0::", "\xff", "\t", "0::/",
        "memory"};
    return words[i];
}
#define N_TREE_WORDS 14

/* A copy of a tree of tests/data below out, and some of its files as samples. */
static void copy_tree(const char *of, const char *out, const char *const *paths, size_t n_paths) {
    char line[1024];
    (void)snprintf(line, sizeof line, "rm -rf '%s' && mkdir -p '%s' && cp -r '" BT_TEST_DATA "/%s/.' '%s'", out, out,
                   of, out);
    /* NOLINTNEXTLINE(bugprone-command-processor): fixed paths of the build */
    assert_int_equal(system(line), 0);
    corpus_begin(UINT64_C(0x74726565));
    for (size_t i = 0; i < n_paths; i++) {
        (void)snprintf(line, sizeof line, "%s/%s", out, paths[i]);
        assert_true(corpus_add(line));
    }
}

/* Most stay whole, or nearly every tree would fail at its first file. */
static void change_tree(const char *out, const char *const *paths, size_t n_paths) {
    static sample s;
    for (size_t i = 0; i < n_paths; i++) {
        char path[1024];
        s = samples[i];
        if (below(3) == 0) corpus_change(&s, N_TREE_WORDS, word);
        (void)snprintf(path, sizeof path, "%s/%s", out, paths[i]);
        FILE *file = fopen(path, "wb");
        if (!file) fail_msg("%s cannot be written", path);
        if (!file) return;
        assert_int_equal(fwrite(s.data, 1, s.n, file), s.n);
        assert_int_equal(fclose(file), 0);
    }
}

static void check_machine(const bt_machine *machine) {
    char source[CHAIN_SOURCE_BYTES];
    const bt_pool *host = &machine->pools[0];
    assert_int_equal(machine->n_pools, 1);
    assert_true(host->state == BT_READING_REPORTED || host->state == BT_READING_FAILED);
    assert_true(host->free_bytes <= host->total_bytes);
    assert_true(machine->cgroup_version <= 2);
    assert_true(machine->n_cgroup_levels <= BT_CGROUP_LEVEL_MAX);
    if (machine->cgroup_reason[0]) assert_int_equal(machine->cgroup_version + machine->n_cgroup_levels, 0);
    bt_known available = chain_left(machine, source);
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

static void machines(void **state) {
    (void)state;
    static const char out[] = BT_TEST_OUT "/tree-machine";
    static const char *const paths[] = {"proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo",
                                        "sys/fs/cgroup/memory.stat", "sys/fs/cgroup/memory.max"};
    static bt_machine machine;
    uint32_t n_with_chain = 0;
    copy_tree("roots/v2-container", out, paths, sizeof paths / sizeof *paths);
    uint64_t n_blocks = bt_heap_live_blocks();
    for (int i = 0; i < N_ROUNDS; i++) {
        change_tree(out, paths, sizeof paths / sizeof *paths);
        assert_int_equal(bt_machine_probe(out, &machine, NULL), BT_OK);
        check_machine(&machine);
        if (machine.n_cgroup_levels > 0) n_with_chain++;
    }
    assert_int_equal(bt_heap_live_blocks(), n_blocks);
    assert_in_range(n_with_chain, N_ROUNDS / 20, N_ROUNDS - 1); /* some got that far, and some did not */
}

static void check_device(const bt_gpu *gpu) {
    assert_true(gpu->name[0] != '\0' && gpu->source[0] != '\0');
    assert_true(gpu->free_bytes <= gpu->total_bytes);
    assert_int_equal(gpu->state == BT_READING_REPORTED, gpu->total_bytes > 0);
    assert_int_equal(gpu->state == BT_READING_FAILED, gpu->reason[0] != '\0');
    assert_int_equal(gpu->shares_host, gpu->kind == BT_POOL_IGPU);
    assert_int_equal(gpu->users_complete, gpu->users_reason[0] == '\0');
    assert_true(gpu->n_users <= BT_GPU_USER_MAX);
    for (uint32_t i = 0; i < gpu->n_users; i++)
        assert_true(gpu->users[i].pid > 0 && (gpu->users[i].bytes.known || gpu->users[i].bytes.value == 0));
}

static void devices(void **state) {
    (void)state;
    static const char out[] = BT_TEST_OUT "/tree-devices";
    static const char *const paths[] = {
        "sys/class/drm/card0/device/uevent",
        "sys/class/drm/card0/device/mem_info_vram_total",
        "sys/class/drm/card0/device/mem_info_vram_used",
        "sys/class/drm/card0/device/gpu_metrics",
        "proc/1201/fdinfo/12",
        "proc/1300/fdinfo/5",
        "sys/class/kfd/kfd/topology/nodes/2/properties",
        "sys/class/kfd/kfd/proc/1400/vram_33977",
        "proc/meminfo",
    };
    bt_gpus *gpus = malloc(sizeof *gpus);
    uint32_t n_reported = 0;
    assert_non_null(gpus);
    copy_tree("gpus/amdgpu-card", out, paths, sizeof paths / sizeof *paths);
    for (int i = 0; i < N_ROUNDS; i++) {
        change_tree(out, paths, sizeof paths / sizeof *paths);
        assert_int_equal(bt_gpu_probe(out, NULL, true, gpus, NULL), BT_OK);
        assert_true(gpus->n_devices <= 1);
        if (gpus->n_devices == 0) continue;
        check_device(&gpus->devices[0]);
        if (gpus->devices[0].state == BT_READING_REPORTED) n_reported++;
    }
    free(gpus);
    assert_int_equal(bt_heap_live_blocks(), 0);
    assert_in_range(n_reported, N_ROUNDS / 10, N_ROUNDS - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(machines), cmocka_unit_test(devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
