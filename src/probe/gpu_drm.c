/* SPDX-License-Identifier: MIT
 *
 * gpu_drm.c: graphics cards through /sys/class/drm.
 *
 *   cardN/device/uevent -> driver, PCI id -> what that driver says
 *
 *   amdgpu           mem_info_vram_*: the card's own memory; mem_info_gtt_*: the host's that it may use
 *   i915, xe         nothing; a processor's graphics share the host's memory
 *   nouveau, nvidia  nothing; NVML knows of the latter
 *   SoC (panfrost, panthor, v3d)    nothing; they share the host's memory
 *
 * Drivers that are not listed drive displays, or cards that models are not computed on: they are no devices here.
 *
 * A processor's graphics have a carve-out, which the firmware takes from the host's memory before the system starts,
 * and use the host's own beside it. Neither is the whole: the pool is both, the latter no more than the host has (user
 * cases 3 and 40). Whether amdgpu drives such a one, no file says outright. gpu_metrics does where it is: its formats
 * 2 and 3 are for processors with graphics, 1 is for cards (kernel, kgd_pp_interface.h). A device that sleeps is not
 * asked, since that would wake it. Else the sizes decide: CARVE_OUT_MAX_BYTES.
 *
 * A figure that cannot be read makes the reading a failed one with that file's reason, never 0. Bounds: N_CARDS
 * cards, a few small files of each. Left out: memory that the CPU sees of a card, and other hosts' cards. */
#include "probe/gpu_drm.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "probe/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define N_CARDS 64u /* minors of cards (kernel, drm_drv.c) */

/* Firmware that chooses by itself takes 64 MiB to 512 MiB, 2 GiB at most; cards with so little that models would be
 * computed on them are gone, and the host's part, half of its memory by default, is then over four times that. */
#define CARVE_OUT_MAX_BYTES (UINT64_C(2) << 30)
#define CARVE_OUT_PART      4u

/* Intel's integrated graphics are always this device (kernel, arch/x86/kernel/early-quirks.c looks for them here). */
#define INTEL_INTEGRATED "0000:00:02.0"

#define PCI_VENDOR_NVIDIA "10de"

/* ---- files --------------------------------------------------------------------------------------------------------
 */

static int BT_PRINTF(3, 4) read_file(const char *root, bt_proc_text *text, const char *fmt, ...) {
    char path[192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof path) return -ENAMETOOLONG;
    return bt_proc_read(root, path, 0, text);
}

static void fail_read(bt_gpu *gpu, const char *file, int rc) {
    bt_error err = {0};
    (void)bt_fail_sys(&err, -rc, "probe", "cannot read %s", file);
    bt_gpu_fail(gpu, "%s", err.text);
}

/* One number of a card; false, and the reading has failed with the reason. */
static bool read_number(const char *root, bt_proc_text *text, const char *card, const char *file, bt_gpu *gpu,
                        uint64_t *ret) {
    bt_span word;
    int rc = read_file(root, text, "/sys/class/drm/%s/device/%s", card, file);
    if (rc < 0) {
        fail_read(gpu, file, rc);
        return false;
    }
    if (bt_span_only_word(text->data, &word) && bt_span_number(word, ret)) return true;
    bt_gpu_fail(gpu, "%s holds no number", file);
    return false;
}

/* ---- uevent -------------------------------------------------------------------------------------------------------
 */

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static char lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* Hexadecimal digits and these marks, in lower case. */
static bool copy_id(bt_span from, const char *marks, char *ret, size_t capacity) {
    if (from.n_bytes == 0 || from.n_bytes >= capacity) return false;
    for (size_t i = 0; i < from.n_bytes; i++) {
        if (!is_hex(from.at[i]) && !strchr(marks, from.at[i])) return false;
    }
    for (size_t i = 0; i < from.n_bytes; i++)
        ret[i] = lower(from.at[i]);
    ret[from.n_bytes] = '\0';
    return true;
}

static bool copy_name(bt_span from, char *ret, size_t capacity) {
    if (from.n_bytes == 0 || from.n_bytes >= capacity) return false;
    for (size_t i = 0; i < from.n_bytes; i++) {
        char c = lower(from.at[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
    }
    memcpy(ret, from.at, from.n_bytes);
    ret[from.n_bytes] = '\0';
    return true;
}

void bt_drm_uevent_parse(const char *text, bt_drm_device *ret) {
    bt_span value;
    memset(ret, 0, sizeof *ret);
    if (bt_span_find_line(text, "DRIVER=", &value)) (void)copy_name(value, ret->driver, sizeof ret->driver);
    if (bt_span_find_line(text, "PCI_SLOT_NAME=", &value)) (void)copy_id(value, ":.", ret->pci, sizeof ret->pci);
    if (bt_span_find_line(text, "PCI_ID=", &value)) (void)copy_id(value, ":", ret->id, sizeof ret->id);
    /* "30000": class, subclass and interface in hexadecimal, without leading zeros */
    if (bt_span_find_line(text, "PCI_CLASS=", &value))
        ret->is_display = value.n_bytes == 5 && bt_span_starts(value, "3");
}

/* ---- the host's part ------------------------------------------------------------------------------------------------
 */

typedef struct host_memory {
    bt_known free_bytes, total_bytes;
} host_memory;

static host_memory read_host(const char *root, bt_proc_text *text) {
    if (bt_proc_read(root, "/proc/meminfo", 0, text) < 0) return (host_memory){0};
    return (host_memory){bt_meminfo_available(text->data), bt_meminfo_field(text->data, "MemTotal")};
}

static void share_host(bt_gpu *gpu) {
    gpu->kind = BT_POOL_IGPU;
    gpu->shares_host = true;
}

void bt_drm_share_host(const char *root, bt_proc_text *scratch, bt_gpu *gpu) {
    host_memory host = read_host(root, scratch);
    share_host(gpu);
    (void)snprintf(gpu->source, sizeof gpu->source, "meminfo");
    if (!host.free_bytes.known || !host.total_bytes.known) {
        bt_gpu_fail(gpu, "it shares the host's memory, which is not known");
        return;
    }
    gpu->reason[0] = '\0';
    bt_gpu_read(gpu, host.free_bytes, host.total_bytes);
}

/* ---- amdgpu ---------------------------------------------------------------------------------------------------------
 */

bt_drm_form bt_drm_metrics_form(const void *bytes, size_t n_bytes) {
    /* metrics_table_header: u16 size of the table, u8 format, u8 revision of the content */
    const unsigned char *head = bytes;
    if (n_bytes < 4) return BT_DRM_FORM_UNKNOWN;
    if (head[2] == 1) return BT_DRM_FORM_CARD;
    return head[2] == 2 || head[2] == 3 ? BT_DRM_FORM_INTEGRATED : BT_DRM_FORM_UNKNOWN;
}

static bt_drm_form find_form(const char *root, bt_proc_text *text, const char *card, uint64_t own_bytes,
                             bt_known shared_bytes) {
    bt_span word;
    int rc = read_file(root, text, "/sys/class/drm/%s/device/power/runtime_status", card);
    bool sleeps = rc < 0 ? !bt_proc_is_absent(rc) /* perhaps */
                         : bt_span_only_word(text->data, &word) && bt_span_starts(word, "suspend");
    bt_drm_form form = BT_DRM_FORM_UNKNOWN;
    if (!sleeps && read_file(root, text, "/sys/class/drm/%s/device/gpu_metrics", card) == 0)
        form = bt_drm_metrics_form(text->data, text->n_bytes);
    if (form != BT_DRM_FORM_UNKNOWN) return form;
    bool is_small =
        own_bytes <= CARVE_OUT_MAX_BYTES && shared_bytes.known && shared_bytes.value / CARVE_OUT_PART >= own_bytes;
    return is_small ? BT_DRM_FORM_INTEGRATED : BT_DRM_FORM_CARD;
}

typedef struct memory_part {
    uint64_t total_bytes, used_bytes;
} memory_part;

static bool read_part(const char *root, bt_proc_text *text, const char *card, const char *which, bt_gpu *gpu,
                      memory_part *ret) {
    char file[40];
    (void)snprintf(file, sizeof file, "mem_info_%s_total", which);
    if (!read_number(root, text, card, file, gpu, &ret->total_bytes)) return false;
    (void)snprintf(file, sizeof file, "mem_info_%s_used", which);
    if (!read_number(root, text, card, file, gpu, &ret->used_bytes)) return false;
    if (ret->used_bytes <= ret->total_bytes) return true;
    bt_gpu_fail(gpu, "%s is over mem_info_%s_total", file, which);
    return false;
}

/* The carve-out, which the host does not count as its own, and what it may use of the host's. */
static void read_integrated(const char *root, bt_proc_text *text, const memory_part *own, const memory_part *shared,
                            bt_gpu *gpu) {
    host_memory host = read_host(root, text);
    share_host(gpu);
    if (!host.free_bytes.known || !host.total_bytes.known) {
        bt_gpu_fail(gpu, "it shares the host's memory, which is not known");
        return;
    }
    uint64_t free_shared = bt_min_u64(shared->total_bytes - shared->used_bytes, host.free_bytes.value);
    uint64_t total_shared = bt_min_u64(shared->total_bytes, host.total_bytes.value);
    bt_gpu_read(gpu, (bt_known){true, bt_sat_add_u64(own->total_bytes - own->used_bytes, free_shared)},
                (bt_known){true, bt_sat_add_u64(own->total_bytes, total_shared)});
    gpu->used_bytes = (bt_known){true, bt_sat_add_u64(own->used_bytes, shared->used_bytes)};
}

static void read_amdgpu(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu) {
    memory_part own = {0};
    memory_part shared = {0};
    (void)snprintf(gpu->source, sizeof gpu->source, "amdgpu sysfs");
    bool has_shared = read_part(root, text, card, "gtt", gpu, &shared);
    char shared_reason[sizeof gpu->reason];
    memcpy(shared_reason, gpu->reason, sizeof shared_reason);
    bool has_own = read_part(root, text, card, "vram", gpu, &own);
    bt_drm_form form = find_form(root, text, card, own.total_bytes, (bt_known){has_shared, shared.total_bytes});
    if (!has_own) {
        if (form == BT_DRM_FORM_INTEGRATED) share_host(gpu);
    } else if (form != BT_DRM_FORM_INTEGRATED) {
        gpu->reason[0] = '\0'; /* of the host's part, which a card does not need */
        bt_gpu_read(gpu, (bt_known){true, own.total_bytes - own.used_bytes}, (bt_known){true, own.total_bytes});
        gpu->used_bytes = (bt_known){true, own.used_bytes};
    } else if (has_shared) {
        read_integrated(root, text, &own, &shared, gpu);
    } else {
        share_host(gpu);
        bt_gpu_fail(gpu, "%s", shared_reason);
    }
}

/* ---- others ---------------------------------------------------------------------------------------------------------
 */

static void read_intel(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu) {
    (void)card;
    if (strcmp(gpu->pci, INTEL_INTEGRATED) == 0) {
        bt_drm_share_host(root, text, gpu);
    } else {
        bt_gpu_fail(gpu, "%s does not say how much of the card's memory is free", gpu->driver);
    }
}

static void read_soc(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu) {
    (void)card;
    bt_drm_share_host(root, text, gpu);
}

static void read_silent(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu) {
    (void)root, (void)text, (void)card;
    bt_gpu_fail(gpu, "%s does not say how much memory there is", gpu->driver);
}

static void read_nvidia(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu) {
    (void)root, (void)text, (void)card;
    bt_gpu_fail(gpu, "its driver answers through libnvidia-ml.so.1 only, which said nothing of it");
}

static const struct driver {
    const char *name;
    void (*read)(const char *root, bt_proc_text *text, const char *card, bt_gpu *gpu);
} drivers[] = {
    {"amdgpu", read_amdgpu}, {"i915", read_intel},   {"xe", read_intel},    {"nouveau", read_silent},
    {"nvidia", read_nvidia}, {"panfrost", read_soc}, {"panthor", read_soc}, {"v3d", read_soc},
};

static void name_device(const char *root, bt_proc_text *text, const char *card, const bt_drm_device *device,
                        bt_gpu *gpu) {
    bt_span line = {"", 0};
    char name[sizeof gpu->device] = "";
    if (read_file(root, text, "/sys/class/drm/%s/device/product_name", card) == 0) {
        bt_span rest = bt_span_of(text->data);
        (void)bt_span_line(&rest, &line);
    }
    if (line.n_bytes > 0 && line.n_bytes < sizeof name) memcpy(name, line.at, line.n_bytes);
    if (name[0])
        bt_gpu_text_set(gpu->device, sizeof gpu->device, name);
    else
        (void)snprintf(gpu->device, sizeof gpu->device, "%s%s%s", device->driver, device->id[0] ? " " : "", device->id);
}

static const struct driver *find_driver(const char *name) {
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        if (strcmp(drivers[i].name, name) == 0) return &drivers[i];
    }
    return NULL;
}

static void probe_card(const char *root, bt_proc_text *text, const char *card, bt_gpus *gpus) {
    bt_drm_device device;
    int rc = read_file(root, text, "/sys/class/drm/%s/device/uevent", card);
    if (bt_proc_is_absent(rc)) return;
    bt_drm_uevent_parse(rc < 0 ? "" : text->data, &device);
    const struct driver *driver = find_driver(device.driver);
    if (rc == 0 && !driver) return;
    if (device.pci[0] && bt_gpu_find_pci(gpus, device.pci)) return; /* NVML knows more of it */
    bt_gpu *gpu = bt_gpu_add(gpus);
    if (!gpu) return;
    (void)snprintf(gpu->name, sizeof gpu->name, "%s", card);
    (void)snprintf(gpu->source, sizeof gpu->source, "sysfs");
    if (!driver) { /* whether it is a graphics device at all cannot be told: it is not passed over in silence */
        fail_read(gpu, "uevent", rc);
        return;
    }
    memcpy(gpu->driver, device.driver, sizeof gpu->driver);
    memcpy(gpu->pci, device.pci, sizeof gpu->pci);
    name_device(root, text, card, &device, gpu);
    driver->read(root, text, card, gpu);
}

void bt_drm_cards_probe(const char *root, bt_proc_text *scratch, bt_gpus *gpus) {
    for (uint32_t i = 0; i < N_CARDS; i++) {
        char card[16];
        (void)snprintf(card, sizeof card, "card%" PRIu32, i);
        probe_card(root, scratch, card, gpus);
    }
}

bool bt_drm_find_nvidia(const char *root, bt_proc_text *scratch, bt_gpus *gpus, char ret_pci[24]) {
    char path[BT_PROC_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    bt_os_folder *folder = n > 0 && (size_t)n < sizeof path ? bt_os_folder_open(path) : NULL;
    if (!folder) return false;
    ret_pci[0] = '\0';
    for (const char *name = bt_os_folder_next(folder); name; name = bt_os_folder_next(folder)) {
        bt_drm_device device;
        if (read_file(root, scratch, "/sys/bus/pci/devices/%s/uevent", name) < 0) continue;
        bt_drm_uevent_parse(scratch->data, &device);
        bool is_ours = device.is_display && device.pci[0] && strncmp(device.id, PCI_VENDOR_NVIDIA ":", 5) == 0 &&
                       (device.driver[0] == '\0' || strcmp(device.driver, "nvidia") == 0);
        if (!is_ours || bt_gpu_find_pci(gpus, device.pci)) continue;
        if (ret_pci[0] == '\0' || strcmp(device.pci, ret_pci) < 0) memcpy(ret_pci, device.pci, sizeof device.pci);
    }
    bt_os_folder_close(folder);
    return ret_pci[0] != '\0';
}
