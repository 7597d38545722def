/* SPDX-License-Identifier: MIT
 * test_fuzz_gpu.c: the texts of /proc and /sys about graphics devices, mutated, through the parsers and through a whole
 * probe; and the corpus of tests/data/fuzz/gpu as it is. What must hold stands in gpu_check.h. The seed is printed;
 * BT_SEED=N runs that one again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define GPU_CHECK(condition) assert_true(condition)
#include "base/heap.h"
#include "gpu_check.h"
#include "random.h"

#include <dirent.h>

#define N_ROUNDS      20000
#define N_ROUNDS_TREE 300
#define N_TEXT_MAX    8192
#define CORPUS        BT_TEST_DATA "/fuzz/gpu"
#define TREE          BT_TEST_OUT "/fuzz-gpu"

static uint64_t seed = UINT64_C(0x677075);

static size_t below(size_t n) {
    return (size_t)(random_next(&seed) % n);
}

typedef struct sample {
    char data[N_TEXT_MAX];
    size_t n;
} sample;

static void load(const char *path, sample *ret) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be read", path);
    if (!file) return;
    ret->n = fread(ret->data, 1, sizeof ret->data / 2, file);
    assert_int_equal(fclose(file), 0);
}

static void splice(sample *text, size_t at, size_t n_old, const char *more, size_t n_new) {
    if (text->n - n_old + n_new > sizeof text->data) return;
    memmove(text->data + at + n_new, text->data + at + n_old, text->n - at - n_old);
    memcpy(text->data + at, more, n_new);
    text->n = text->n - n_old + n_new;
}

static void mutate(sample *text) {
    static const char *const pieces[] = {"-",
                                         "18446744073709551615",
                                         "99999999999999999999",
                                         "\n",
                                         " KiB",
                                         " MiB",
                                         ":",
                                         "drm-resident-vram",
                                         "drm-memory-local0: 7\n",
                                         "drm-client-id:",
                                         "\xff",
                                         "/..",
                                         "PCI_SLOT_NAME=",
                                         "DRIVER=",
                                         "0",
                                         "",
                                         "\r\n",
                                         "\t"};
    const size_t at = below(text->n + 1);
    const size_t left = text->n - at;
    const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
    char copy[128];
    switch (below(5)) {
    case 0:
        if (left > 0) text->data[at] = (char)(text->data[at] ^ (char)(1u << below(8)));
        break;
    case 1:
        splice(text, at, left > 0 ? below(left < 64 ? left : 64) : 0, "", 0);
        break;
    case 2: {
        size_t n = below((left < sizeof copy ? left : sizeof copy) + 1);
        memcpy(copy, text->data + at, n);
        splice(text, below(text->n + 1), 0, copy, n);
        break;
    }
    default:
        splice(text, at, left > 0 ? below(left < 8 ? left : 8) : 0, piece, strlen(piece));
    }
}

static void check(const sample *text) {
    char *exact = bt_heap_alloc(text->n + 1);
    assert_non_null(exact);
    if (!exact) return;
    memcpy(exact, text->data, text->n);
    gpu_check_text(exact, text->n);
    bt_heap_free(exact);
}

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
#define N_PATHS (sizeof paths / sizeof *paths)

static sample samples[N_PATHS];

static void load_all(void) {
    for (size_t i = 0; i < N_PATHS; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, BT_TEST_DATA "/gpus/amdgpu-card/%s", paths[i]);
        load(path, &samples[i]);
    }
}

static void mutated_texts(void **state) {
    (void)state;
    static sample text;
    load_all();
    for (int i = 0; i < N_ROUNDS; i++) {
        text = samples[below(N_PATHS)];
        for (size_t n = 1 + below(6); n > 0; n--)
            mutate(&text);
        check(&text);
    }
}

static void corpus(void **state) {
    (void)state;
    static sample text;
    size_t n_files = 0;
    DIR *folder = opendir(CORPUS);
    assert_non_null(folder);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, CORPUS "/%s", entry->d_name);
        load(path, &text);
        check(&text);
        n_files++;
    }
    closedir(folder);
    assert_true(n_files >= 10);
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

static void mutated_trees(void **state) {
    (void)state;
    static sample text;
    uint32_t n_reported = 0;
    bt_gpus *gpus = malloc(sizeof *gpus);
    assert_non_null(gpus);
    /* NOLINTNEXTLINE(bugprone-command-processor): fixed paths of the build */
    assert_int_equal(system("rm -rf '" TREE "' && mkdir -p '" BT_TEST_OUT "' && cp -r '" BT_TEST_DATA
                            "/gpus/amdgpu-card' '" TREE "'"),
                     0);
    load_all();
    for (int i = 0; i < N_ROUNDS_TREE; i++) {
        for (size_t k = 0; k < N_PATHS; k++) {
            char path[1024];
            text = samples[k];
            if (below(3) == 0) mutate(&text);
            (void)snprintf(path, sizeof path, TREE "/%s", paths[k]);
            FILE *file = fopen(path, "wb");
            assert_non_null(file);
            if (!file) return;
            (void)fwrite(text.data, 1, text.n, file);
            assert_int_equal(fclose(file), 0);
        }
        assert_int_equal(bt_gpu_probe(TREE, NULL, true, gpus, NULL), BT_OK);
        assert_true(gpus->n_devices <= 1);
        if (gpus->n_devices == 0) continue;
        check_device(&gpus->devices[0]);
        if (gpus->devices[0].state == BT_READING_REPORTED) n_reported++;
    }
    free(gpus);
    assert_int_equal(bt_heap_live_blocks(), 0);
    assert_in_range(n_reported, N_ROUNDS_TREE / 10, N_ROUNDS_TREE - 1); /* some got that far, and some did not */
}

int main(void) {
    const char *asked = getenv("BT_SEED");
    if (asked) seed = strtoull(asked, NULL, 0);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_texts),
        cmocka_unit_test(corpus),
        cmocka_unit_test(mutated_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
