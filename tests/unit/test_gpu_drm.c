/* SPDX-License-Identifier: MIT
 * test_gpu_drm.c: cards and their users as the kernel describes them: the trees of tests/data/gpus, which are made by
 * hand after the drivers' sources and documents, and the parsers (research notes: T22, B3; user cases 3, 40, 44). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/heap.h"
#include "gpu_kit.h"
#include "probe/gpu_clients.h"
#include "probe/gpu_drm.h"

#include <inttypes.h>
#include <sys/stat.h>

#define TREE(name) BT_TEST_DATA "/gpus/" name

static bt_gpus *gpus;
static bt_proc_text scratch;

static int start(void **state) {
    (void)state;
    gpus = calloc(1, sizeof *gpus);
    return gpus ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    free(gpus);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static void probe(const char *root, uint32_t n_want) {
    bt_error err = {0};
    memset(gpus, 0, sizeof *gpus);
    bt_drm_cards_probe(root, &scratch, gpus);
    assert_int_equal(gpus->n_devices, n_want);
    assert_int_equal(bt_drm_users_probe(root, &scratch, gpus, &err), BT_OK);
}

static void expect_device(const bt_gpu *gpu, const char *name, const char *device, const char *pci, const char *source,
                          bool shares_host) {
    assert_string_equal(gpu->name, name);
    assert_string_equal(gpu->device, device);
    assert_string_equal(gpu->pci, pci);
    assert_string_equal(gpu->source, source);
    assert_int_equal(gpu->kind, shares_host ? BT_POOL_IGPU : BT_POOL_GPU);
    assert_int_equal(gpu->shares_host, shares_host);
}

/* ---- cards ------------------------------------------------------------------------------------------------------- */

static void a_card_has_its_own_memory(void **state) {
    (void)state;
    probe(TREE("amdgpu-card"), 1);
    expect_device(&gpus->devices[0], "card0", "amdgpu 1002:744c", "0000:03:00.0", "amdgpu sysfs", false);
    kit_expect_reported(&gpus->devices[0], UINT64_C(25753026560) - 6 * KIT_GIB, UINT64_C(25753026560));
    assert_int_equal(gpus->devices[0].used_bytes.value, 6 * KIT_GIB);
    assert_string_equal(gpus->devices[0].driver, "amdgpu");
}

static void a_processor_has_the_hosts_beside_a_carve_out(void **state) {
    (void)state;
    probe(TREE("amdgpu-apu"), 1); /* user case 40 */
    expect_device(&gpus->devices[0], "card0", "amdgpu 1002:1586", "0000:c5:00.0", "amdgpu sysfs", true);
    kit_expect_reported(&gpus->devices[0], 312 * KIT_MIB + 107 * KIT_GIB, 512 * KIT_MIB + 108 * KIT_GIB);
    assert_int_equal(gpus->devices[0].used_bytes.value, 200 * KIT_MIB + KIT_GIB);
    probe(TREE("amdgpu-apu-carved"), 1); /* 8 + 124 GiB on a board of 128: never more than there is */
    kit_expect_reported(&gpus->devices[0], 7 * KIT_GIB + 110 * KIT_GIB, 8 * KIT_GIB + 118 * KIT_GIB);
    assert_string_equal(gpus->devices[0].name, "card1");
    assert_true(gpus->devices[0].total_bytes <= 128 * KIT_GIB);
    probe(TREE("amdgpu-apu-old"), 1); /* told by the sizes alone */
    expect_device(&gpus->devices[0], "card0", "amdgpu 1002:15d8", "0000:04:00.0", "amdgpu sysfs", true);
    kit_expect_reported(&gpus->devices[0], 400 * KIT_MIB + 6 * KIT_GIB - 100 * KIT_MIB, 512 * KIT_MIB + 6 * KIT_GIB);
}

static void others_say_less(void **state) {
    (void)state;
    probe(TREE("i915"), 1);
    expect_device(&gpus->devices[0], "card0", "i915 8086:a7a0", "0000:00:02.0", "meminfo", true);
    kit_expect_reported(&gpus->devices[0], 11 * KIT_GIB, 16 * KIT_GIB);
    probe(TREE("xe-card"), 1);
    expect_device(&gpus->devices[0], "card0", "xe 8086:e20b", "0000:03:00.0", "sysfs", false);
    kit_expect_failed(&gpus->devices[0], "xe does not say how much of the card's memory is free");
    probe(TREE("nouveau"), 1);
    kit_expect_failed(&gpus->devices[0], "nouveau does not say how much memory there is");
    probe(TREE("nvidia"), 1);
    kit_expect_failed(&gpus->devices[0], "its driver answers through libnvidia-ml.so.1 only, which said nothing of it");
}

static void two_cards_are_two_devices(void **state) {
    (void)state;
    probe(TREE("two-cards"), 3); /* and a display adapter that is none */
    expect_device(&gpus->devices[0], "card0", "i915 8086:46a6", "0000:00:02.0", "meminfo", true);
    /* It sleeps: its gpu_metrics, which here speaks of a processor, is not asked for. */
    expect_device(&gpus->devices[1], "card1", "AMD Radeon RX 6600M", "0000:03:00.0", "amdgpu sysfs", false);
    kit_expect_reported(&gpus->devices[1], 8 * KIT_GIB - 36 * KIT_MIB, 8 * KIT_GIB - 16 * KIT_MIB);
    expect_device(&gpus->devices[2], "card3", "v3d", "", "meminfo", true);
    kit_expect_reported(&gpus->devices[2], 24 * KIT_GIB, 32 * KIT_GIB);
}

static void what_cannot_be_read_is_failed(void **state) {
    (void)state;
    probe(TREE("unreadable"), 3);
    kit_expect_failed(&gpus->devices[0], "cannot read mem_info_vram_used: Is a directory");
    kit_expect_failed(&gpus->devices[1], "cannot read uevent: Is a directory");
    assert_string_equal(gpus->devices[1].name, "card1");
    kit_expect_reported(&gpus->devices[2], 7 * KIT_GIB, 8 * KIT_GIB);
    probe(TREE("odd"), 5);
    kit_expect_failed(&gpus->devices[0], "the device reports no memory at all");
    kit_expect_failed(&gpus->devices[1], "mem_info_vram_used is over mem_info_vram_total");
    kit_expect_reported(&gpus->devices[2], 0, 8 * KIT_GIB); /* full is full */
    kit_expect_failed(&gpus->devices[3], "mem_info_vram_total holds no number");
    kit_expect_failed(&gpus->devices[4], "cannot read mem_info_gtt_total: No such file or directory");
    assert_true(gpus->devices[4].shares_host);
}

static void no_cards_are_no_devices(void **state) {
    (void)state;
    probe(BT_TEST_DATA "/roots/v2-nested", 0);
    char pci[24];
    assert_false(bt_drm_find_nvidia(BT_TEST_DATA "/roots/v2-nested", &scratch, gpus, pci));
}

static void nvidia_is_found_on_the_bus(void **state) {
    (void)state;
    char pci[24] = "";
    assert_true(bt_drm_find_nvidia(TREE("nvidia"), &scratch, gpus, pci));
    assert_string_equal(pci, "0000:01:00.0"); /* the lowest, and no sound */
    probe(TREE("nvidia"), 1);
    assert_true(bt_drm_find_nvidia(TREE("nvidia"), &scratch, gpus, pci));
    assert_string_equal(pci, "0000:41:00.0"); /* the one that is in no list, and that no virtual machine has */
    (void)snprintf(bt_gpu_add(gpus)->pci, sizeof pci, "0000:41:00.0");
    assert_false(bt_drm_find_nvidia(TREE("nvidia"), &scratch, gpus, pci));
}

/* T22 and its neighbours: a tree made here. form: of gpu_metrics; 0: there is none. */
static void put(const char *file, uint64_t value) {
    char path[512];
    (void)snprintf(path, sizeof path, BT_TEST_OUT "/drm/sys/class/drm/card0/device/%s", file);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    if (!out) return;
    (void)fprintf(out, "%" PRIu64 "\n", value);
    assert_int_equal(fclose(out), 0);
}

static void put_text(const char *path, const char *text, size_t n) {
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    if (!out) return;
    assert_int_equal(fwrite(text, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void forms_are_told_apart(void **state) {
    (void)state;
    static const struct {
        uint64_t vram_mib, gtt_mib;
        uint8_t form;
        bool integrated;
        uint64_t total_mib;
    } cases[] = {
        {24576, 16384, 0, false, 24576},
        {8192, 16384, 0, false, 8192},
        {2048, 16384, 0, true, 18432},
        {8192, 16384, 2, true, 24576},
        {8192, 16384, 3, true, 24576},
        {512, 110592, 0, true, 65536 + 512},
        {2048, 3072, 0, false, 2048},
        {2048, 16384, 1, false, 2048},
        {2048, 8192, 0, true, 10240},
        {2048, 8191, 0, false, 2048},
        {2049, 16384, 0, false, 2049},
        {512, 2048, 9, true, 2560},
        {192 * 1024, 64 * 1024, 1, false, 192 * 1024},
    };
    static const char uevent[] = "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0A:00.0\n";
    static const char meminfo[] = "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n"; /* 64 GiB */
    /* NOLINTNEXTLINE(bugprone-command-processor): fixed paths of the build */
    assert_int_equal(system("mkdir -p '" BT_TEST_OUT "/drm/sys/class/drm/card0/device' '" BT_TEST_OUT "/drm/proc'"), 0);
    put_text(BT_TEST_OUT "/drm/sys/class/drm/card0/device/uevent", uevent, strlen(uevent));
    put_text(BT_TEST_OUT "/drm/proc/meminfo", meminfo, strlen(meminfo));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char metrics[4] = {64, 0, (char)cases[i].form, 0};
        put("mem_info_vram_total", cases[i].vram_mib * KIT_MIB);
        put("mem_info_vram_used", 0);
        put("mem_info_gtt_total", cases[i].gtt_mib * KIT_MIB);
        put("mem_info_gtt_used", 0);
        put_text(BT_TEST_OUT "/drm/sys/class/drm/card0/device/gpu_metrics", metrics, cases[i].form ? 4 : 0);
        probe(BT_TEST_OUT "/drm", 1);
        const bt_gpu *gpu = &gpus->devices[0];
        if (gpu->shares_host != cases[i].integrated || gpu->total_bytes != cases[i].total_mib * KIT_MIB)
            fail_msg("%zu: shares %d, total %" PRIu64 " MiB", i, gpu->shares_host, gpu->total_bytes / KIT_MIB);
        assert_string_equal(gpu->pci, "0000:0a:00.0");
    }
    /* A card needs no word on the host's part. */
    put_text(BT_TEST_OUT "/drm/sys/class/drm/card0/device/mem_info_gtt_total", "", 0);
    probe(BT_TEST_OUT "/drm", 1);
    kit_expect_reported(&gpus->devices[0], 192 * KIT_GIB, 192 * KIT_GIB);
    put("mem_info_gtt_total", 64 * KIT_GIB);
    /* It shares memory of which nothing is known. */
    put_text(BT_TEST_OUT "/drm/proc/meminfo", "MemTotal: 4 kB\n", 15);
    put_text(BT_TEST_OUT "/drm/sys/class/drm/card0/device/gpu_metrics", "", 0);
    put("mem_info_vram_total", 512 * KIT_MIB);
    probe(BT_TEST_OUT "/drm", 1);
    kit_expect_failed(&gpus->devices[0], "it shares the host's memory, which is not known");
    assert_true(gpus->devices[0].shares_host);
}

static void uevents_are_taken_apart(void **state) {
    (void)state;
    bt_drm_device d;
    bt_drm_uevent_parse("DRIVER=i915\r\nPCI_CLASS=30000\nPCI_ID=8086:A7A0\nPCI_SLOT_NAME=0000:00:02.0\n", &d);
    assert_string_equal(d.driver, "i915");
    assert_string_equal(d.pci, "0000:00:02.0");
    assert_string_equal(d.id, "8086:a7a0");
    assert_true(d.is_display);
    bt_drm_uevent_parse("PCI_CLASS=3\nDRIVER=\nPCI_ID=8086:A7A0:1:1:1:1\nPCI_SLOT_NAME=../../etc\n", &d);
    assert_string_equal(d.driver, "");
    assert_string_equal(d.pci, "");
    assert_string_equal(d.id, "");
    assert_false(d.is_display);
    bt_drm_uevent_parse("DRIVER=a driver\nPCI_SLOT_NAME=0000:00:02.0000000000000000000000\nPCI_CLASS=40300\n", &d);
    assert_string_equal(d.driver, "");
    assert_string_equal(d.pci, "");
    assert_false(d.is_display);
    bt_drm_uevent_parse("", &d);
    assert_string_equal(d.driver, "");
    assert_int_equal(bt_drm_metrics_form("\x40\x00\x02", 3), BT_DRM_FORM_UNKNOWN);
}

/* ---- users ------------------------------------------------------------------------------------------------------- */

static void users_of_a_card(void **state) {
    (void)state;
    const int64_t kib = 1024;
    probe(TREE("amdgpu-card"), 1);
    const bt_gpu *gpu = &gpus->devices[0];
    /* Client 7 is in 1201 twice and in 1300: once in all. Which of them is looked at first, the folder decides. */
    const bt_gpu_user *compositor = kit_user(gpu, 1201);
    const bt_gpu_user *game = kit_user(gpu, 1300);
    const bool first = compositor->bytes.value == (uint64_t)((512 * 1024 + 1024) * kib);
    kit_expect_user(gpu, 1201, (first ? 512 * 1024 + 1024 : 1024) * kib, (first ? 65536 : 0) * kib);
    kit_expect_user(gpu, 1300, (4 * 1024 * 1024 + (first ? 0 : 512 * 1024)) * kib,
                    (131072 + (first ? 0 : 65536)) * kib);
    assert_int_equal(compositor->bytes.value + game->bytes.value, (4 * 1024 * 1024 + 512 * 1024 + 1024) * kib);
    kit_expect_user(gpu, 1400, 1200 * (int64_t)KIT_MIB, 2048 * kib); /* KFD sees more of it */
    kit_expect_user(gpu, 1600, 64 * (int64_t)KIT_MIB, -1);           /* KFD alone */
    assert_int_equal(gpu->n_users, 4);                               /* 1500 has no descriptor of it */
    assert_true(gpu->users_complete);
    assert_string_equal(gpu->users_reason, "");
}

static void users_of_the_other_drivers(void **state) {
    (void)state;
    const int64_t kib = 1024;
    probe(TREE("amdgpu-apu"), 1);
    kit_expect_user(&gpus->devices[0], 900, 100 * 1024 * kib, 20 * 1024 * 1024 * kib);
    kit_expect_user(&gpus->devices[0], 901, 10 * 1024 * kib, 5 * 1024 * kib); /* an older kernel's keys */
    probe(TREE("i915"), 1);
    kit_expect_user(&gpus->devices[0], 800, -1, 65536 * kib); /* it has no memory of its own */
    probe(TREE("xe-card"), 1);
    kit_expect_user(&gpus->devices[0], 810, 4096 * kib, 2 * 1024 * kib);
    probe(TREE("nouveau"), 1);
    kit_expect_user(&gpus->devices[0], 820, -1, -1); /* it holds something */
}

static void what_may_not_be_looked_into_is_said(void **state) {
    (void)state;
    probe(TREE("unreadable"), 3);
    const bt_gpu *gpu = &gpus->devices[2];
    assert_false(gpu->users_complete);
    assert_string_equal(gpu->users_reason, "processes that cannot be looked into: 2");
    kit_expect_user(gpu, 70, 1024 * 1024, 0);
    kit_expect_user(gpu, 74, -1, -1); /* one descriptor of two cannot be read */
    kit_expect_user(gpu, 72, -1, -1); /* cannot be told from a copy */
    kit_expect_user(gpu, 73, -1, 0);  /* one descriptor of two in an unknown unit */
    assert_int_equal(gpu->n_users, 4);
}

static void expect_client(const char *text, int64_t id, int64_t bytes, int64_t host_bytes) {
    bt_drm_client c;
    assert_true(bt_drm_fdinfo_parse(text, &c));
    assert_int_equal(c.id.known, id >= 0);
    assert_int_equal(c.bytes.known, bytes >= 0);
    assert_int_equal(c.host_bytes.known, host_bytes >= 0);
    if (id >= 0) assert_int_equal(c.id.value, id);
    if (bytes >= 0) assert_int_equal(c.bytes.value, bytes);
    if (host_bytes >= 0) assert_int_equal(c.host_bytes.value, host_bytes);
}

static void descriptors_are_taken_apart(void **state) {
    (void)state;
    bt_drm_client c;
    assert_false(bt_drm_fdinfo_parse("pos:\t0\nflags:\t02\nmnt_id:\t15\n", &c));
    assert_false(bt_drm_fdinfo_parse("", &c));
    assert_false(bt_drm_fdinfo_parse("drm-driver:\ndrm-client-id: 1\n", &c));
#define D "drm-driver: d\n"
    expect_client(D, -1, -1, -1);
    expect_client(D "drm-client-id:\t7\ndrm-memory-vram: 5\n", 7, 5, -1);
    expect_client(D "drm-client-id:7\ndrm-total-vram: 9 KiB\ndrm-memory-vram: 8 MiB\n", 7, 8 << 20, -1);
    expect_client(D "drm-resident-vram: 7\ndrm-memory-vram: 8 MiB\ndrm-total-vram: 9\n", -1, 7, -1);
    expect_client(D "drm-total-vram0: 9\ndrm-total-vram1: 1 KiB\n", -1, 1033, -1); /* tiles of one device */
    expect_client(D "drm-resident-local0: 4\ndrm-resident-stolen-local0: 1\ndrm-resident-stolen-system0: 2\n"
                    "drm-resident-system0: 6\ndrm-resident-memory: 100\ndrm-resident-gtt: 1000\n",
                  -1, 5, 1108);
    expect_client(D "drm-resident-cpu: 5\ndrm-resident-doorbell: 4\ndrm-shared-vram: 9\ndrm-engine-gfx: 9 ns\n", -1, -1,
                  -1);
    expect_client(D "drm-memory-vram: 5 GiB\ndrm-memory-gtt: 1\n", -1, -1, 1);
    expect_client(D "drm-memory-vram: -5\n", -1, -1, -1);
    expect_client(D "drm-memory-vram: 5 KiB more\n", -1, -1, -1);
    expect_client(D "drm-memory-vram:\n", -1, -1, -1);
    expect_client(D "drm-memory-vram: 18446744073709551615 KiB\n", -1, -1, -1);
    expect_client(D "drm-memory-vram0: 18446744073709551615\ndrm-memory-vram1: 1\n", -1, -1, -1);
    expect_client(D "drm-memory-vram 5\n", -1, -1, -1); /* no colon */
    expect_client(D "drm-client-id: x\n", -1, -1, -1);
    char many[2048] = D "drm-memory-vram: 5\n";
    for (int i = 0; i < 15; i++)
        (void)snprintf(many + strlen(many), 64, "drm-memory-r%d: 1\n", i);
    expect_client(many, -1, 5, -1);
    (void)snprintf(many + strlen(many), 64, "drm-memory-r15: 1\n"); /* one too many: perhaps it was a memory */
    expect_client(many, -1, -1, -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_card_has_its_own_memory),
        TEST(a_processor_has_the_hosts_beside_a_carve_out),
        TEST(others_say_less),
        TEST(two_cards_are_two_devices),
        TEST(what_cannot_be_read_is_failed),
        TEST(no_cards_are_no_devices),
        TEST(nvidia_is_found_on_the_bus),
        TEST(forms_are_told_apart),
        TEST(uevents_are_taken_apart),
        TEST(users_of_a_card),
        TEST(users_of_the_other_drivers),
        TEST(what_may_not_be_looked_into_is_said),
        TEST(descriptors_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
