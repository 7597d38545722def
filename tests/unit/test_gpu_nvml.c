/* SPDX-License-Identifier: MIT
 * test_gpu_nvml.c: NVML as it may answer: each call failing, versions missing, values that contradict themselves, lists
 * that grow (research notes: V rules, B3; user case 44). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/heap.h"
#include "gpu_kit.h"
#include "probe/gpu_nvml.h"

static fake_nvml *fake;
static void *library;
static bt_gpus *gpus;
static bt_nvml nvml;

static int start(void **state) {
    (void)state;
    fake = kit_nvml_open(BT_FAKE_NVML_TODAY, 2, &library);
    gpus = calloc(1, sizeof *gpus);
    assert_non_null(gpus);
    return 0;
}

static int stop(void **state) {
    (void)state;
    assert_int_equal(fake->n_inits, fake->n_shutdowns);
    kit_nvml_close(BT_FAKE_NVML_TODAY, library);
    free(gpus);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static void probe(void) {
    memset(gpus, 0, sizeof *gpus);
    memset(&nvml, 0xA5, sizeof nvml);
    bt_nvml_probe(BT_FAKE_NVML_TODAY, true, gpus, &nvml);
}

static void add_process(unsigned int device, int list, unsigned int pid, unsigned long long bytes) {
    fake_nvml_device *d = &fake->devices[device];
    d->users[list][d->n_users[list]++] = (fake_nvml_user){pid, bytes};
}

static void devices_are_reported(void **state) {
    (void)state;
    fake->devices[1].domain = 0x10001; /* as virtual machines have them */
    fake->devices[1].device = 0x1f;
    fake->devices[1].free = 0; /* measured: full, not unknown */
    probe();
    assert_int_equal(nvml.state, BT_READING_REPORTED);
    assert_int_equal(gpus->n_devices, 2);
    const bt_gpu *gpu = &gpus->devices[0];
    kit_expect_reported(gpu, 20 * KIT_GIB, 24 * KIT_GIB);
    assert_int_equal(gpu->used_bytes.value, 4 * KIT_GIB - KIT_MIB); /* without the reserve */
    assert_string_equal(gpu->name, "CUDA0");
    assert_string_equal(gpu->device, "NVIDIA Fake 0");
    assert_string_equal(gpu->uuid, "GPU-00000000");
    assert_string_equal(gpu->pci, "0000:01:00.0");
    assert_string_equal(gpu->source, "NVML");
    assert_int_equal(gpu->kind, BT_POOL_GPU);
    assert_false(gpu->shares_host);
    assert_false(gpu->clamped);
    assert_int_equal(gpu->n_users, 0);
    assert_true(gpu->users_complete);
    assert_string_equal(gpus->devices[1].name, "CUDA1");
    assert_string_equal(gpus->devices[1].pci, "10001:02:1f.0");
    kit_expect_reported(&gpus->devices[1], 0, 24 * KIT_GIB);
    assert_int_equal(fake->n_memory_v2_calls, 2);
    assert_int_equal(fake->n_memory_calls, 0);
    assert_int_equal(fake->n_inits, 1);
}

static void an_absent_library_is_no_failure(void **state) {
    (void)state;
    bt_nvml_probe(BT_TEST_OUT "/no-such-library.so.1", true, gpus, &nvml);
    assert_int_equal(nvml.state, BT_READING_ABSENT);
    assert_int_equal(gpus->n_devices, 0);
}

static void a_library_without_a_needed_call_failed(void **state) {
    (void)state;
    bt_nvml_probe(BT_FAKE_NVML_BROKEN, true, gpus, &nvml);
    assert_int_equal(nvml.state, BT_READING_FAILED);
    assert_non_null(strstr(nvml.reason, "has no nvmlShutdown"));
    assert_false(bt_nvml_has_nothing(&nvml));
    assert_int_equal(gpus->n_devices, 0);
    assert_null(dlopen(BT_FAKE_NVML_BROKEN, RTLD_NOW | RTLD_NOLOAD));
}

/* name, number; the reference says what they mean */
static const struct {
    const char *name;
    int status;
} statuses[] = {
    {"NVML_ERROR_UNINITIALIZED", 1},
    {"NVML_ERROR_INVALID_ARGUMENT", 2},
    {"NVML_ERROR_NOT_SUPPORTED", 3},
    {"NVML_ERROR_NO_PERMISSION", 4},
    {"NVML_ERROR_INSUFFICIENT_POWER", 8},
    {"NVML_ERROR_DRIVER_NOT_LOADED", 9},
    {"NVML_ERROR_TIMEOUT", 10},
    {"NVML_ERROR_IRQ_ISSUE", 11},
    {"NVML_ERROR_FUNCTION_NOT_FOUND", 13},
    {"NVML_ERROR_CORRUPTED_INFOROM", 14},
    {"NVML_ERROR_GPU_IS_LOST", 15},
    {"NVML_ERROR_RESET_REQUIRED", 16},
    {"NVML_ERROR_OPERATING_SYSTEM", 17},
    {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18},
    {"NVML_ERROR_IN_USE", 19},
    {"NVML_ERROR_MEMORY", 20},
    {"NVML_ERROR_NO_DATA", 21},
    {"NVML_ERROR_INSUFFICIENT_RESOURCES", 23},
    {"NVML_ERROR_NOT_READY", 27},
    {"NVML_ERROR_GPU_NOT_FOUND", 28},
    {"NVML_ERROR_INVALID_STATE", 29},
    {"NVML_ERROR_UNKNOWN", 999},
    {"an NVML error of a later version", 77},
};
#define N_STATUSES (sizeof statuses / sizeof *statuses)

static const char *sentence(const char *call, size_t i, char ret[160]) {
    (void)snprintf(ret, 160, "%s: %s (%d), fake words ? of %d", call, statuses[i].name, statuses[i].status,
                   statuses[i].status);
    return ret;
}

static void each_failure_keeps_its_name_and_number(void **state) {
    (void)state;
    char want[160];
    for (size_t i = 0; i < N_STATUSES; i++) {
        int status = statuses[i].status;
        bool has_nothing = status == 9 || status == 28;
        fake->init_status = status;
        probe();
        assert_int_equal(nvml.state, BT_READING_FAILED);
        assert_int_equal(nvml.code, status);
        assert_string_equal(nvml.reason, sentence("nvmlInit_v2", i, want));
        assert_int_equal(bt_nvml_has_nothing(&nvml), has_nothing);
        assert_int_equal(gpus->n_devices, 0);
        fake->init_status = 0;

        fake->count_status = status;
        probe();
        assert_int_equal(nvml.state, BT_READING_FAILED);
        assert_string_equal(nvml.reason, sentence("nvmlDeviceGetCount_v2", i, want));
        assert_int_equal(gpus->n_devices, 0);
        fake->count_status = 0;

        fake->devices[0].handle_status = status;
        probe();
        assert_int_equal(nvml.state, BT_READING_REPORTED);
        kit_expect_failed(&gpus->devices[0], sentence("nvmlDeviceGetHandleByIndex_v2", i, want));
        assert_string_equal(gpus->devices[0].users_reason, want);
        assert_false(gpus->devices[0].users_complete);
        kit_expect_reported(&gpus->devices[1], 20 * KIT_GIB, 24 * KIT_GIB); /* one failing device takes no other down */
        fake->devices[0].handle_status = 0;

        fake->devices[1].memory_v2_status = fake->devices[1].memory_status = status;
        probe();
        bool asks_older = status == 3 || status == 13;
        kit_expect_failed(&gpus->devices[1],
                          sentence(asks_older ? "nvmlDeviceGetMemoryInfo" : "nvmlDeviceGetMemoryInfo_v2", i, want));
        assert_true(gpus->devices[1].users_complete); /* unified memory: per process works (B3) */
        kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
        fake->devices[1].memory_v2_status = fake->devices[1].memory_status = 0;

        fake_nvml_device *d = &fake->devices[0];
        d->name_status = d->uuid_status = d->pci_status = status;
        probe();
        kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
        assert_string_equal(gpus->devices[0].device, "");
        assert_string_equal(gpus->devices[0].uuid, "");
        assert_string_equal(gpus->devices[0].pci, "");
        d->name_status = d->uuid_status = d->pci_status = 0;
    }
}

static void each_failing_list_makes_it_incomplete(void **state) {
    (void)state;
    char want[160];
    static const char *const calls[] = {"nvmlDeviceGetComputeRunningProcesses_v3",
                                        "nvmlDeviceGetGraphicsRunningProcesses_v3",
                                        "nvmlDeviceGetMPSComputeRunningProcesses_v3"};
    add_process(0, FAKE_COMPUTE, 5, 500);
    add_process(0, FAKE_GRAPHICS, 6, 600);
    for (size_t i = 0; i < N_STATUSES; i++) {
        for (int list = 0; list < FAKE_LISTS; list++) {
            int status = statuses[i].status;
            bool harmless = list == FAKE_MPS && (status == 3 || status == 13); /* there is no MPS here */
            fake->devices[0].list_status[list] = status;
            probe();
            assert_int_equal(gpus->devices[0].users_complete, harmless);
            assert_string_equal(gpus->devices[0].users_reason, harmless ? "" : sentence(calls[list], i, want));
            assert_int_equal(gpus->devices[0].n_users, list == FAKE_MPS ? 2 : 1);
            kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
            fake->devices[0].list_status[list] = 0;
        }
    }
}

static void older_calls_serve_where_newer_ones_are_missing(void **state) {
    (void)state;
    static const int older[] = {3, 13, 25};
    for (size_t i = 0; i < 3; i++) {
        fake->devices[0].memory_v2_status = older[i];
        fake->n_memory_calls = 0;
        probe();
        kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
        assert_int_equal(fake->n_memory_calls, 1);
    }
    fake->devices[0].memory_v2_status = 15; /* lost: the older call would not say anything else */
    fake->n_memory_calls = 0;
    probe();
    assert_int_equal(gpus->devices[0].state, BT_READING_FAILED);
    assert_int_equal(fake->n_memory_calls, 0);
}

static void a_library_of_the_first_versions_serves(void **state) {
    (void)state;
    void *old_library = NULL;
    fake_nvml *old = kit_nvml_open(BT_FAKE_NVML_OLD, 1, &old_library);
    for (unsigned int i = 0; i < 3; i++)
        old->devices[0].users[FAKE_COMPUTE][i] = (fake_nvml_user){40 + i, 1000 + i};
    old->devices[0].n_users[FAKE_COMPUTE] = 3;
    bt_nvml_probe(BT_FAKE_NVML_OLD, true, gpus, &nvml);
    assert_int_equal(nvml.state, BT_READING_REPORTED);
    kit_expect_reported(&gpus->devices[0], 20 * KIT_GIB, 24 * KIT_GIB);
    assert_string_equal(gpus->devices[0].pci, "0000:01:00.0");
    assert_int_equal(gpus->devices[0].n_users, 3); /* entries of 16 bytes */
    kit_expect_user(&gpus->devices[0], 42, 1002, -1);
    assert_true(gpus->devices[0].users_complete); /* no MPS list: older than MPS clients */
    old->devices[0].memory_status = 17;
    memset(gpus, 0, sizeof *gpus);
    bt_nvml_probe(BT_FAKE_NVML_OLD, true, gpus, &nvml);
    kit_expect_failed(&gpus->devices[0], "nvmlDeviceGetMemoryInfo: NVML_ERROR_OPERATING_SYSTEM (17)"); /* no words */
    assert_int_equal(old->n_inits, old->n_shutdowns);
    kit_nvml_close(BT_FAKE_NVML_OLD, old_library);
}

static void contradictions_are_settled(void **state) {
    (void)state;
    fake_nvml_device *d = &fake->devices[0];
    d->free = 25 * KIT_GIB;
    probe();
    kit_expect_reported(&gpus->devices[0], 24 * KIT_GIB, 24 * KIT_GIB);
    assert_true(gpus->devices[0].clamped);
    d->total = 0;
    probe();
    kit_expect_failed(&gpus->devices[0], "total memory is not known");
    d->free = 0;
    probe();
    kit_expect_failed(&gpus->devices[0], "the device reports no memory at all");
    d->free = FAKE_NVML_UNKNOWN;
    d->total = 8;
    probe();
    kit_expect_failed(&gpus->devices[0], "free memory is not available");
    d->free = 4;
    d->total = FAKE_NVML_UNKNOWN;
    probe();
    kit_expect_failed(&gpus->devices[0], "total memory is not known");
    d->bus = 256;
    probe();
    assert_string_equal(gpus->devices[0].pci, "");
    fake->no_end = true;
    probe();
    assert_string_equal(gpus->devices[0].device, "");
    fake->no_end = false;
    (void)snprintf(d->name, sizeof d->name, "a\x1b[31m\xff b\xc3\xa9");
    probe();
    assert_string_equal(gpus->devices[0].device, "a?[31m? b\xc3\xa9");
}

static void a_process_counts_once(void **state) {
    (void)state;
    add_process(0, FAKE_COMPUTE, 100, 3 * KIT_GIB);
    add_process(0, FAKE_COMPUTE, 101, FAKE_NVML_UNKNOWN); /* WSL, and inside some containers */
    add_process(0, FAKE_GRAPHICS, 100, 3 * KIT_GIB);
    add_process(0, FAKE_GRAPHICS, 102, 0);
    add_process(0, FAKE_GRAPHICS, 103, FAKE_NVML_UNKNOWN);
    add_process(0, FAKE_MPS, 103, 7);
    add_process(0, FAKE_MPS, 104, 8);
    add_process(1, FAKE_COMPUTE, 100, 5);
    probe();
    const bt_gpu *gpu = &gpus->devices[0];
    assert_int_equal(gpu->n_users, 5);
    kit_expect_user(gpu, 100, 3 * (int64_t)KIT_GIB, -1);
    kit_expect_user(gpu, 101, -1, -1); /* not 0, and not 16 EiB */
    kit_expect_user(gpu, 102, 0, -1);
    kit_expect_user(gpu, 103, 7, -1);
    kit_expect_user(gpu, 104, 8, -1);
    kit_expect_user(&gpus->devices[1], 100, 5, -1);
    assert_true(gpu->users_complete);
    memset(gpus, 0, sizeof *gpus);
    fake->n_list_calls = 0;
    bt_nvml_probe(BT_FAKE_NVML_TODAY, false, gpus, &nvml); /* nobody asked */
    assert_int_equal(gpus->devices[0].n_users, 0);
    assert_false(gpus->devices[0].users_complete);
    assert_int_equal(fake->n_list_calls, 0);
}

static void a_long_list_is_asked_for_again(void **state) {
    (void)state;
    for (unsigned int i = 0; i < 200; i++)
        add_process(0, FAKE_COMPUTE, 1000 + i, i);
    probe();
    assert_int_equal(gpus->devices[0].n_users, 200);
    kit_expect_user(&gpus->devices[0], 1199, 199, -1);
    assert_true(gpus->devices[0].users_complete);
    fake->grows = true; /* each look finds one more; the room grows faster */
    memset(fake->devices[0].users[FAKE_GRAPHICS], 1, sizeof fake->devices[0].users[FAKE_GRAPHICS]);
    fake->devices[0].n_users[FAKE_GRAPHICS] = 64;
    for (unsigned int i = 0; i < 210; i++)
        fake->devices[0].users[FAKE_COMPUTE][i] = (fake_nvml_user){1000 + i, i};
    fake->devices[0].n_users[FAKE_MPS] = 0;
    fake->devices[0].users[FAKE_MPS][0] = (fake_nvml_user){7, 7};
    fake->devices[1] = fake->devices[0];
    probe();
    assert_int_equal(gpus->devices[0].n_users, 202 + 1 + 1); /* asked twice; all of graphics are one pid; MPS */
    assert_true(gpus->devices[0].users_complete);
}

static void more_processes_than_are_kept_are_said(void **state) {
    (void)state;
    for (unsigned int i = 0; i < BT_GPU_USER_MAX + 1; i++)
        add_process(0, FAKE_COMPUTE, 1 + i, 1);
    probe();
    assert_int_equal(gpus->devices[0].n_users, BT_GPU_USER_MAX);
    assert_false(gpus->devices[0].users_complete);
    assert_string_equal(gpus->devices[0].users_reason, "more than 256 processes");
}

static void entries_of_another_size_are_no_list(void **state) {
    (void)state;
    fake->long_entries = true;
    for (unsigned int i = 0; i < 64; i++) /* all the room that was offered */
        add_process(0, FAKE_COMPUTE, 50 + i, 10);
    probe();
    assert_false(gpus->devices[0].users_complete);
    assert_string_equal(gpus->devices[0].users_reason,
                        "nvmlDeviceGetComputeRunningProcesses_v3 returns what is no list of processes");
}

static void devices_over_the_maximum_are_counted(void **state) {
    (void)state;
    fake->n_devices = BT_GPU_MAX;
    probe();
    assert_int_equal(gpus->n_devices, BT_GPU_MAX);
    assert_int_equal(gpus->n_left_out, 0);
    fake->n_devices = 4000000000u;
    probe();
    assert_int_equal(gpus->n_devices, BT_GPU_MAX);
    assert_int_equal(gpus->n_left_out, 4000000000u - BT_GPU_MAX);
    fake->n_devices = 0;
    probe();
    assert_int_equal(gpus->n_devices, 0);
    assert_int_equal(nvml.state, BT_READING_REPORTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(devices_are_reported),
        TEST(an_absent_library_is_no_failure),
        TEST(a_library_without_a_needed_call_failed),
        TEST(each_failure_keeps_its_name_and_number),
        TEST(each_failing_list_makes_it_incomplete),
        TEST(older_calls_serve_where_newer_ones_are_missing),
        TEST(a_library_of_the_first_versions_serves),
        TEST(contradictions_are_settled),
        TEST(a_process_counts_once),
        TEST(a_long_list_is_asked_for_again),
        TEST(more_processes_than_are_kept_are_said),
        TEST(entries_of_another_size_are_no_list),
        TEST(devices_over_the_maximum_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
