/* SPDX-License-Identifier: MIT
 * test_gpu.c: one list of devices from NVML and the kernel, and the pools that it becomes (user cases 3, 44). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/heap.h"
#include "gpu_kit.h"
#include "probe/probe.h"

#define TREE(name) BT_TEST_DATA "/gpus/" name
#define NONE       BT_TEST_DATA "/roots/v2-nested"

static fake_nvml *fake;
static void *library;
static bt_gpus *gpus;

static int start(void **state) {
    (void)state;
    fake = kit_nvml_open(BT_FAKE_NVML_TODAY, 2, &library);
    gpus = malloc(sizeof *gpus);
    return gpus ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    kit_nvml_close(BT_FAKE_NVML_TODAY, library);
    free(gpus);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static void probe(const char *root, const char *nvml, uint32_t n_want) {
    bt_error err = {0};
    memset(gpus, 0xA5, sizeof *gpus);
    assert_int_equal(bt_gpu_probe(root, nvml, true, gpus, &err), BT_OK);
    assert_int_equal(gpus->n_devices, n_want);
    assert_int_equal(gpus->n_left_out, 0);
}

static void one_id_is_one_device(void **state) {
    (void)state;
    fake->devices[0].users[FAKE_COMPUTE][0] = (fake_nvml_user){9, 99};
    fake->devices[0].n_users[FAKE_COMPUTE] = 1;
    fake->devices[1].bus = 0x41;
    probe(TREE("nvidia"), BT_FAKE_NVML_TODAY, 2); /* the kernel's card 0000:01:00.0 is CUDA0 */
    assert_string_equal(gpus->devices[0].name, "CUDA0");
    assert_string_equal(gpus->devices[0].pci, "0000:01:00.0");
    assert_string_equal(gpus->devices[0].source, "NVML");
    kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
    kit_expect_user(&gpus->devices[0], 9, 99, -1); /* and no other: fdinfo is not asked of it */
    assert_int_equal(gpus->devices[0].n_users, 1);
    assert_true(gpus->devices[0].users_complete);
    fake->devices[0].bus = 5; /* another place: the kernel's is one that NVML does not know */
    probe(TREE("nvidia"), BT_FAKE_NVML_TODAY, 3);
    assert_string_equal(gpus->devices[2].name, "card0");
    assert_int_equal(gpus->devices[2].state, BT_READING_FAILED);
}

static void cards_stand_behind_nvml(void **state) {
    (void)state;
    fake->n_devices = 1;
    probe(TREE("two-cards"), BT_FAKE_NVML_TODAY, 4);
    static const char *const names[] = {"CUDA0", "card0", "card1", "card3"};
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(gpus->devices[i].name, names[i]);
}

/* User case 41: a board with one memory, of which NVML says that it is not supported to ask. */
static void case_41_one_memory(void **state) {
    (void)state;
    fake->n_devices = 1;
    fake->devices[0].memory_status = fake->devices[0].memory_v2_status = 3;
    (void)snprintf(fake->devices[0].name, sizeof fake->devices[0].name, "NVIDIA GB10");
    probe(NONE, BT_FAKE_NVML_TODAY, 1);
    const bt_gpu *gpu = &gpus->devices[0];
    assert_string_equal(gpu->name, "CUDA0");
    assert_int_equal(gpu->kind, BT_POOL_IGPU);
    assert_true(gpu->shares_host);
    assert_string_equal(gpu->source, "meminfo");
    kit_expect_reported(gpu, UINT64_C(9120512) * 1024,
                        UINT64_C(16303420) * 1024); /* MemAvailable, not MemFree: the cache can be had */
    /* a card, or another reason, is no such board: what cannot be read is failed */
    fake->devices[0].memory_status = fake->devices[0].memory_v2_status = 15;
    probe(NONE, BT_FAKE_NVML_TODAY, 1);
    assert_int_equal(gpus->devices[0].state, BT_READING_FAILED);
    assert_false(gpus->devices[0].shares_host);
    fake->devices[0].memory_status = fake->devices[0].memory_v2_status = 3;
    (void)snprintf(fake->devices[0].name, sizeof fake->devices[0].name, "NVIDIA GeForce RTX 3060");
    probe(NONE, BT_FAKE_NVML_TODAY, 1);
    assert_int_equal(gpus->devices[0].state, BT_READING_FAILED);
    assert_false(gpus->devices[0].shares_host);
}

static void a_failing_nvml_is_a_failed_device(void **state) {
    (void)state;
    static const char driver[] = "nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED (9), fake words ? of 9";
    static const char version[] = "nvmlInit_v2: NVML_ERROR_LIB_RM_VERSION_MISMATCH (18), fake words ? of 18";
    fake->init_status = 18;
    probe(NONE, BT_FAKE_NVML_TODAY, 1); /* nothing on the bus, but it does not say that there is nothing */
    assert_string_equal(gpus->devices[0].name, "CUDA");
    assert_string_equal(gpus->devices[0].pci, "");
    kit_expect_failed(&gpus->devices[0], version);
    assert_false(gpus->devices[0].users_complete);
    probe(TREE("nvidia"), BT_FAKE_NVML_TODAY, 1); /* the kernel knows a card: that is the one */
    assert_string_equal(gpus->devices[0].name, "card0");
    assert_string_equal(gpus->devices[0].source, "NVML");
    kit_expect_failed(&gpus->devices[0], version);
    fake->init_status = 9;
    probe(NONE, BT_FAKE_NVML_TODAY, 0); /* the library of a machine without a card */
    probe(TREE("nvidia"), BT_FAKE_NVML_TODAY, 1);
    kit_expect_failed(&gpus->devices[0], driver);
    probe(TREE("nouveau"), BT_FAKE_NVML_TODAY, 1); /* another driver holds it */
    assert_string_equal(gpus->devices[0].source, "sysfs");
    fake->init_status = 28;
    probe(NONE, BT_FAKE_NVML_TODAY, 0);
    fake->init_status = 0;
    fake->count_status = 999;
    probe(NONE, BT_FAKE_NVML_TODAY, 1);
    kit_expect_failed(&gpus->devices[0], "nvmlDeviceGetCount_v2: NVML_ERROR_UNKNOWN (999), fake words ? of 999");
    assert_int_equal(fake->n_inits, fake->n_shutdowns);
}

static void a_recorded_tree_has_no_library(void **state) {
    (void)state;
    probe(TREE("nvidia"), NULL, 1);
    assert_string_equal(gpus->devices[0].name, "card0");
    assert_string_equal(gpus->devices[0].source, "sysfs");
    assert_int_equal(fake->n_inits, 0);
    probe(NONE, NULL, 0);
}

static void users_only_when_asked(void **state) {
    (void)state;
    memset(gpus, 0xA5, sizeof *gpus);
    assert_int_equal(bt_gpu_probe(TREE("amdgpu-card"), NULL, false, gpus, NULL), BT_OK);
    assert_int_equal(gpus->n_devices, 1);
    assert_int_equal(gpus->devices[0].n_users, 0);
    assert_false(gpus->devices[0].users_complete);
    probe(TREE("amdgpu-card"), NULL, 1);
    assert_int_equal(gpus->devices[0].n_users, 4);
}

static void devices_become_pools(void **state) {
    (void)state;
    static bt_machine machine;
    fake->n_devices = 1;
    fake->devices[0].free = 25 * KIT_GIB;
    probe(TREE("amdgpu-apu"), BT_FAKE_NVML_TODAY, 2);
    assert_int_equal(bt_machine_probe(TREE("amdgpu-apu"), &machine, NULL), BT_OK);
    assert_int_equal(machine.n_pools, 1);
    bt_gpu_pools_add(gpus, &machine);
    assert_int_equal(machine.n_pools, 3);
    assert_string_equal(machine.pools[0].name, "host");
    const bt_pool *card = &machine.pools[1];
    assert_string_equal(card->name, "CUDA0");
    assert_string_equal(card->device, "NVIDIA Fake 0");
    assert_string_equal(card->pci, "0000:01:00.0");
    assert_string_equal(card->source, "NVML");
    assert_int_equal(card->kind, BT_POOL_GPU);
    assert_int_equal(card->state, BT_READING_REPORTED);
    assert_int_equal(card->free_bytes, 24 * KIT_GIB);
    assert_true(card->clamped);
    assert_false(card->shares_host);
    assert_false(card->limit.known);
    const bt_pool *shared = &machine.pools[2];
    assert_int_equal(shared->kind, BT_POOL_IGPU);
    assert_true(shared->shares_host); /* user case 3: never a sum of both */
    assert_false(shared->clamped);
    assert_int_equal(shared->total_bytes, 512 * KIT_MIB + 108 * KIT_GIB);
    bt_gpu_pools_add(gpus, &machine); /* they are there */
    assert_int_equal(machine.n_pools, 3);
    memset(machine.pools[1].pci, 0, sizeof machine.pools[1].pci); /* ggml asked it under the same name */
    machine.pools[1].free_bytes = 7;
    bt_gpu_pools_add(gpus, &machine);
    assert_int_equal(machine.n_pools, 3);
    assert_int_equal(machine.pools[1].free_bytes, 7);
    assert_string_equal(machine.pools[1].pci, "0000:01:00.0");
    memset(&machine.pools[1], 0, 2 * sizeof machine.pools[1]);
    machine.n_pools = BT_POOL_MAX - 1; /* room for one */
    bt_gpu_pools_add(gpus, &machine);
    assert_int_equal(machine.n_pools, BT_POOL_MAX);

    assert_int_equal(bt_machine_probe(TREE("unreadable"), &machine, NULL), BT_OK);
    assert_int_equal(bt_machine_devices_probe(TREE("unreadable"), &machine, NULL), BT_OK);
    assert_int_equal(machine.n_pools, 4);
    assert_int_equal(machine.pools[2].state, BT_READING_FAILED);
    assert_string_equal(machine.pools[2].reason, "cannot read uevent: Is a directory");
}

static void this_machine_is_looked_at(void **state) {
    (void)state;
    static bt_machine machine;
    memset(gpus, 0xA5, sizeof *gpus);
    assert_int_equal(bt_gpu_probe("", NULL, true, gpus, NULL), BT_OK);
    assert_in_range(gpus->n_devices, 0, BT_GPU_MAX);
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        const bt_gpu *gpu = &gpus->devices[i];
        assert_true(gpu->name[0] != '\0' && gpu->source[0] != '\0');
        assert_true(gpu->free_bytes <= gpu->total_bytes);
        assert_int_equal(gpu->state == BT_READING_FAILED, gpu->reason[0] != '\0');
        assert_int_equal(gpu->state == BT_READING_REPORTED, gpu->total_bytes > 0);
        assert_int_equal(gpu->users_complete, gpu->users_reason[0] == '\0');
    }
    assert_int_equal(bt_machine_probe("", &machine, NULL), BT_OK);
    assert_int_equal(bt_machine_devices_probe("", &machine, NULL), BT_OK);
    assert_int_equal(machine.n_pools, 1 + gpus->n_devices);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(one_id_is_one_device),           TEST(cards_stand_behind_nvml), TEST(a_failing_nvml_is_a_failed_device),
        TEST(a_recorded_tree_has_no_library), TEST(users_only_when_asked),   TEST(devices_become_pools),
        TEST(this_machine_is_looked_at),      TEST(case_41_one_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
