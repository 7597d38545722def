/* SPDX-License-Identifier: MIT
 * test_gpu.c: each call of the devices' probe that can fail, failing: a device is gone, failed or as it was, a list of
 * users is as it was or incomplete; nothing leaks, no library and no descriptor stays open. */
#include "base/fault.h"
#include "base/heap.h"
#include "probe/probe.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu_kit.h"

#define TREE(name)  BT_TEST_DATA "/gpus/" name
#define N_FAULT_MAX 2000

static bt_gpus *sound, *hurt;

static int start(void **state) {
    (void)state;
    sound = calloc(1, sizeof *sound);
    hurt = calloc(1, sizeof *hurt);
    return sound && hurt ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    free(sound);
    free(hurt);
    return 0;
}

static int next_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return fd;
}

/* Over all processes: who of two that share a descriptor is looked at first is left open. */
static uint64_t held_bytes(const bt_gpu *gpu) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gpu->n_users; i++)
        sum += gpu->users[i].bytes.known ? gpu->users[i].bytes.value : 0;
    return sum;
}

static void expect_sound_or_failed(const bt_gpu *got) {
    const bt_gpu *want = NULL;
    for (uint32_t i = 0; i < sound->n_devices; i++) {
        if (strcmp(sound->devices[i].name, got->name) == 0) want = &sound->devices[i];
    }
    if (got->state == BT_READING_FAILED) {
        assert_true(got->reason[0] != '\0');
        assert_int_equal(got->free_bytes | got->total_bytes, 0);
    } else {
        assert_non_null(want);
        if (!want) return;
        assert_int_equal(got->state, BT_READING_REPORTED);
        assert_string_equal(got->reason, "");
        assert_int_equal(got->total_bytes, want->total_bytes);
        assert_int_equal(got->free_bytes, want->free_bytes);
        assert_int_equal(got->shares_host, want->shares_host);
    }
    assert_int_equal(got->users_complete, got->users_reason[0] == '\0');
    if (want) assert_true(held_bytes(got) <= held_bytes(want));
}

/* true: the k-th call was there to fail. */
static bool probe_with_fault(const char *root, const char *nvml, uint64_t k, bool persistent) {
    bt_error err = {0};
    int fd = next_descriptor();
    uint64_t n_blocks = bt_heap_live_blocks();
    bt_fault_arm(k, persistent);
    bt_status status = bt_gpu_probe(root, nvml, true, hurt, &err);
    bool hit = bt_fault_disarm();
    assert_int_equal(bt_heap_live_blocks(), n_blocks);
    assert_int_equal(next_descriptor(), fd);
    assert_null(dlopen(BT_FAKE_NVML_TODAY, RTLD_NOW | RTLD_NOLOAD));
    if (status != BT_OK) {
        assert_true(hit);
        assert_int_equal(status, BT_E_NOMEM);
        assert_int_equal(err.status, BT_E_NOMEM);
        return true;
    }
    for (uint32_t i = 0; i < hurt->n_devices; i++)
        expect_sound_or_failed(&hurt->devices[i]);
    if (!hit) assert_int_equal(hurt->n_devices, sound->n_devices);
    return hit;
}

static void sweep(const char *root, const char *nvml, bool persistent) {
    assert_int_equal(bt_gpu_probe(root, nvml, true, sound, NULL), BT_OK);
    for (uint64_t k = 0; k < N_FAULT_MAX; k++) {
        if (probe_with_fault(root, nvml, k, persistent)) continue;
        assert_true(k > 60); /* 64 cards are looked for */
        return;
    }
    fail_msg("more than %d fallible calls", N_FAULT_MAX);
}

static const char *const roots[] = {TREE("amdgpu-card"), TREE("amdgpu-apu"), TREE("two-cards"),
                                    TREE("nvidia"),      TREE("unreadable"), TREE("i915")};

static void faults_of_recorded_trees(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        sweep(roots[i], NULL, false);
        sweep(roots[i], NULL, true);
    }
}

/* The library starts anew, without devices, each time that it is opened: those it has are of its own calls. */
static void faults_of_nvml(void **state) {
    (void)state;
    sweep(TREE("two-cards"), BT_FAKE_NVML_TODAY, false);
    sweep(TREE("two-cards"), BT_FAKE_NVML_TODAY, true);
    sweep(TREE("nvidia"), BT_FAKE_NVML_OLD, false);
}

/* Kept open, it has devices: no memory for a list of processes makes the list incomplete, and nothing else. */
static void no_memory_for_a_list(void **state) {
    (void)state;
    void *library = NULL;
    fake_nvml *fake = kit_nvml_open(BT_FAKE_NVML_TODAY, 1, &library);
    fake->devices[0].users[FAKE_COMPUTE][0] = (fake_nvml_user){9, 99};
    fake->devices[0].n_users[FAKE_COMPUTE] = 1;
    bool seen = false;
    for (uint64_t k = 0; k < 6; k++) {
        uint64_t n_blocks = bt_heap_live_blocks();
        bt_fault_arm(k, false);
        bt_status status = bt_gpu_probe(TREE("nvidia"), BT_FAKE_NVML_TODAY, true, hurt, NULL);
        (void)bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), n_blocks);
        assert_int_equal(fake->n_inits, fake->n_shutdowns);
        if (status != BT_OK) continue;
        const bt_gpu *gpu = &hurt->devices[0];
        if (strcmp(gpu->users_reason, "no memory for a list of processes") != 0) continue;
        seen = true;
        assert_false(gpu->users_complete);
        kit_expect_reported(gpu, 20 * KIT_GIB, 24 * KIT_GIB);
    }
    assert_true(seen);
    kit_nvml_close(BT_FAKE_NVML_TODAY, library);
}

static void a_machine_keeps_its_host(void **state) {
    (void)state;
    static bt_machine machine;
    for (uint64_t k = 0; k < N_FAULT_MAX; k++) {
        assert_int_equal(bt_machine_probe(TREE("amdgpu-card"), &machine, NULL), BT_OK);
        bt_fault_arm(k, false);
        bt_status status = bt_machine_devices_probe(TREE("amdgpu-card"), &machine, NULL);
        bool hit = bt_fault_disarm();
        /* A uevent that cannot be read may be that of one more. */
        assert_in_range(machine.n_pools, 1, 3);
        if (status != BT_OK) assert_int_equal(machine.n_pools, 1);
        assert_string_equal(machine.pools[0].name, "host");
        if (hit) continue;
        assert_int_equal(machine.n_pools, 2);
        return;
    }
    fail_msg("more than %d fallible calls", N_FAULT_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(faults_of_recorded_trees),
        TEST(faults_of_nvml),
        TEST(no_memory_for_a_list),
        TEST(a_machine_keeps_its_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
