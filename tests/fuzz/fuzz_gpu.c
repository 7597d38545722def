/* SPDX-License-Identifier: MIT
 * fuzz_gpu.c: what the kernel and others write of graphics devices: uevent, fdinfo, gpu_metrics. */
#include "fuzz.h"

#include "probe/gpu_clients.h"
#include "probe/gpu_drm.h"

#include <string.h>

static void check_words(const char *text, size_t capacity, const char *of) {
    FUZZ_CHECK(memchr(text, '\0', capacity) != NULL);
    for (const char *p = text; *p; p++)
        FUZZ_CHECK(*p != '\n' && *p != '/'); /* it becomes part of a path or of a line */
    FUZZ_CHECK(of == NULL || strstr(of, text) != NULL);
}

/* text ends in NUL, at text[n]. */
static void check_text(const char *text, size_t n) {
    bt_drm_device device;
    bt_drm_client client;
    bt_drm_uevent_parse(text, &device);
    check_words(device.driver, sizeof device.driver, text);
    check_words(device.pci, sizeof device.pci, NULL);
    check_words(device.id, sizeof device.id, NULL);
    bool found = bt_drm_fdinfo_parse(text, &client);
    FUZZ_CHECK(found == (client.driver[0] != '\0'));
    FUZZ_CHECK(memchr(client.driver, '\0', sizeof client.driver) && memchr(client.pci, '\0', sizeof client.pci));
    FUZZ_CHECK(client.bytes.known || client.bytes.value == 0);
    FUZZ_CHECK(client.host_bytes.known || client.host_bytes.value == 0);
    FUZZ_CHECK(!client.bytes.known || strstr(text, "vram") || strstr(text, "local"));
    bt_drm_form form = bt_drm_metrics_form(text, n);
    FUZZ_CHECK(form == BT_DRM_FORM_UNKNOWN || n >= 4);
    char plain[96];
    bt_gpu_text_set(plain, sizeof plain, text);
    FUZZ_CHECK(memchr(plain, '\0', sizeof plain) != NULL);
    for (const char *p = plain; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f); /* nothing drives a terminal */
}

static bool one(char *text, size_t n) {
    check_text(text, n);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"drm-driver:\t",
                                        "drm-client-id:",
                                        "drm-pdev:",
                                        "drm-resident-vram",
                                        "drm-memory-vram:",
                                        "drm-total-local0:",
                                        "drm-memory-local0: 7\n",
                                        "drm-shared-",
                                        "drm-memory-gtt",
                                        "drm-resident-system0",
                                        " KiB",
                                        " MiB",
                                        "PCI_SLOT_NAME=",
                                        "PCI_ID=",
                                        "PCI_CLASS=30000\n",
                                        "DRIVER=",
                                        "amdgpu",
                                        "i915",
                                        "xe",
                                        "nouveau",
                                        "0000:03:00.0",
                                        "/..",
                                        "\r\n",
                                        "\t"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"gpus/amdgpu-card/sys/class/drm/card0/device/uevent",
                                   "gpus/amdgpu-card/sys/class/drm/card0/device/mem_info_vram_total",
                                   "gpus/amdgpu-card/sys/class/drm/card0/device/gpu_metrics",
                                   "gpus/amdgpu-card/proc/1201/fdinfo/12",
                                   "gpus/amdgpu-card/proc/1300/fdinfo/5",
                                   "gpus/amdgpu-card/sys/class/kfd/kfd/topology/nodes/2/properties",
                                   "gpus/amdgpu-card/sys/class/kfd/kfd/proc/1400/vram_33977",
                                   NULL};

const fuzz_target fuzz_here = {
    .name = "gpu", .one = one, .word = word, .more = more, .n_rounds = 20000, .takes_all = true};
