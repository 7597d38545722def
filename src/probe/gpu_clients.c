/* SPDX-License-Identifier: MIT
 *
 * gpu_clients.c: who holds a device's memory, from /proc/PID/fdinfo and from KFD.
 *
 *   fdinfo of every process that may be looked into -> drm-driver, drm-pdev -> device
 *                                                   -> drm-client-id: copies of a descriptor are one client
 *                                                   -> drm-resident-REGION ... -> own memory, the host's
 *   /sys/class/kfd: topology (gpu_id -> PCI id), proc/PID/vram_GPUID -> own memory, of ROCm programs
 *
 * The keys are those of the kernel's document on DRM client usage stats. Of a region's figures what is resident counts;
 * drivers that do not say it give drm-memory, an older word for the same, or drm-total, which counts what was asked
 * for. Regions called vram or local are the device's own; gtt, system, memory and stolen are the host's; what amdgpu
 * calls cpu is neither used by the device nor kept from anyone by it.
 *
 * KFD and fdinfo see the same memory of the same process, each perhaps not all: the larger counts. A figure that cannot
 * be read, an unknown unit, or a descriptor that cannot be told from its copies make that process's figure unknown, and
 * a process that may not be looked into makes the list incomplete: what is missing must not look free.
 * Bounds: N_CLIENT_MAX clients, N_DESCRIPTOR_MAX descriptors of a process. Left out: shared buffers, which count for
 * each that holds them; pids of other namespaces; devices in partitions, of which KFD counts each apart. */
#include "probe/gpu_clients.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N_REGION_MAX     16u /* of one descriptor; amdgpu has eleven */
#define N_CLIENT_MAX     4096u
#define N_DESCRIPTOR_MAX 65536u
#define N_NODE_MAX       64u /* of KFD's topology: processors and devices */

/* ---- the text of a descriptor ------------------------------------------------------------------------------------ */

typedef enum measure { IS_TOTAL, IS_MEMORY, IS_RESIDENT, N_MEASURES } measure; /* the last that is there counts */

typedef struct figure {
    bool given;
    bt_known bytes; /* unknown: given, and not understood */
} figure;

typedef struct region {
    bt_span name;
    figure figures[N_MEASURES];
} region;

static bt_span after(bt_span span, size_t n) {
    return (bt_span){span.at + n, span.n_bytes - n};
}

static bt_known parse_bytes(bt_span value) {
    bt_span word;
    uint64_t bytes = 0;
    uint64_t unit = 1;
    if (!bt_span_word(&value, &word) || !bt_span_number(word, &bytes)) return (bt_known){0};
    if (bt_span_word(&value, &word)) {
        if (bt_span_is(word, "KiB"))
            unit = UINT64_C(1) << 10;
        else if (bt_span_is(word, "MiB"))
            unit = UINT64_C(1) << 20;
        else
            return (bt_known){0};
        if (bt_span_word(&value, &word)) return (bt_known){0};
    }
    if (!bt_mul_u64(bytes, unit, &bytes)) return (bt_known){0};
    return (bt_known){true, bytes};
}

static region *region_of(region *regions, uint32_t *n, bt_span name) {
    for (uint32_t i = 0; i < *n; i++) {
        if (regions[i].name.n_bytes == name.n_bytes && memcmp(regions[i].name.at, name.at, name.n_bytes) == 0)
            return &regions[i];
    }
    if (*n == N_REGION_MAX) return NULL;
    region *added = &regions[(*n)++];
    *added = (region){.name = name};
    return added;
}

/* false: one region too many. */
static bool parse_region(bt_span key, bt_span value, region *regions, uint32_t *n) {
    static const char *const prefixes[N_MEASURES] = {"drm-total-", "drm-memory-", "drm-resident-"};
    for (uint32_t i = 0; i < N_MEASURES; i++) {
        if (!bt_span_starts(key, prefixes[i])) continue;
        region *found = region_of(regions, n, after(key, strlen(prefixes[i])));
        if (!found) return false;
        found->figures[i] = (figure){true, parse_bytes(value)};
    }
    return true;
}

static bool copy_word(bt_span value, char *ret, size_t capacity) {
    bt_span word;
    if (!bt_span_word(&value, &word) || word.n_bytes >= capacity) return false;
    memcpy(ret, word.at, word.n_bytes);
    ret[word.n_bytes] = '\0';
    return true;
}

static bool is_own(bt_span name) {
    return bt_span_starts(name, "vram") || bt_span_starts(name, "local") || bt_span_starts(name, "stolen-local");
}

static bool is_host(bt_span name) {
    return bt_span_is(name, "gtt") || bt_span_is(name, "memory") || bt_span_starts(name, "system") ||
           bt_span_starts(name, "stolen");
}

/* Of all regions of one kind: known when there is one, and all of them can be read. */
static bt_known sum_regions(const region *regions, uint32_t n, bool own) {
    bt_known sum = {0};
    for (uint32_t i = 0; i < n; i++) {
        const region *r = &regions[i];
        if (own ? !is_own(r->name) : (is_own(r->name) || !is_host(r->name))) continue;
        uint32_t k = N_MEASURES - 1;
        while (k > 0 && !r->figures[k].given)
            k--;
        if (!r->figures[k].bytes.known || !bt_add_u64(sum.value, r->figures[k].bytes.value, &sum.value))
            return (bt_known){0};
        sum.known = true;
    }
    return sum;
}

bool bt_drm_fdinfo_parse(const char *text, bt_drm_client *ret) {
    region regions[N_REGION_MAX];
    uint32_t n_regions = 0;
    bool all = true;
    bt_span rest = bt_span_of(text);
    bt_span line;
    memset(ret, 0, sizeof *ret);
    while (bt_span_line(&rest, &line)) {
        bt_span key;
        if (!bt_span_starts(line, "drm-") || !bt_span_part(&line, ':', &key)) continue;
        if (bt_span_is(key, "drm-driver")) {
            (void)copy_word(line, ret->driver, sizeof ret->driver);
        } else if (bt_span_is(key, "drm-pdev")) {
            (void)copy_word(line, ret->pci, sizeof ret->pci);
        } else if (bt_span_is(key, "drm-client-id")) {
            bt_span word;
            ret->id.known = bt_span_word(&line, &word) && bt_span_number(word, &ret->id.value);
        } else {
            all = parse_region(key, line, regions, &n_regions) && all;
        }
    }
    if (all) {
        ret->bytes = sum_regions(regions, n_regions, true);
        ret->host_bytes = sum_regions(regions, n_regions, false);
    }
    return ret->driver[0] != '\0';
}

/* ---- adding up -----------------------------------------------------------------------------------------------------
 */

typedef struct client {
    uint32_t device; /* index in the list */
    uint64_t id;
} client;

/* Some 64 KiB: on the heap. */
typedef struct walk {
    const char *root;
    bt_gpus *gpus;
    client clients[N_CLIENT_MAX];
    uint32_t n_clients;
    uint32_t n_hidden; /* processes that may not be looked into */
} walk;

static bool from_nvml(const bt_gpu *gpu) {
    return strcmp(gpu->source, "NVML") == 0;
}

/* A device of the same PCI id; without one, the only device of that driver that has none either. */
static bt_gpu *device_of(bt_gpus *gpus, const bt_drm_client *c) {
    bt_gpu *found = NULL;
    if (c->pci[0]) {
        found = bt_gpu_find_pci(gpus, c->pci);
        return found && !from_nvml(found) ? found : NULL;
    }
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        bt_gpu *gpu = &gpus->devices[i];
        if (gpu->pci[0] || strcmp(gpu->driver, c->driver) != 0) continue;
        if (found) return NULL;
        found = gpu;
    }
    return found;
}

/* A copy of one that was counted, in this process or another. */
static bool is_copy(walk *w, bt_gpu *gpu, uint64_t id) {
    uint32_t device = (uint32_t)(gpu - w->gpus->devices);
    for (uint32_t i = 0; i < w->n_clients; i++) {
        if (w->clients[i].device == device && w->clients[i].id == id) return true;
    }
    if (w->n_clients < N_CLIENT_MAX) {
        w->clients[w->n_clients++] = (client){device, id};
    } else {
        bt_gpu_users_incomplete(gpu, "more than %u clients", N_CLIENT_MAX);
    }
    return false;
}

/* Unknown and anything is unknown. */
static void add_known(bt_known *sum, bt_known more) {
    if (!sum->known) return;
    if (!more.known || !bt_add_u64(sum->value, more.value, &sum->value)) *sum = (bt_known){0};
}

static void add_client(walk *w, uint32_t pid, const bt_drm_client *c) {
    bt_gpu *gpu = device_of(w->gpus, c);
    bool added = false;
    if (!gpu || (c->id.known && is_copy(w, gpu, c->id.value))) return;
    bt_gpu_user *user = bt_gpu_user_of(gpu, pid, &added);
    if (!user) return;
    if (added) user->bytes = user->host_bytes = (bt_known){true, 0};
    /* What cannot be told from its copies may have been counted before. */
    add_known(&user->bytes, c->id.known ? c->bytes : (bt_known){0});
    add_known(&user->host_bytes, c->id.known ? c->host_bytes : (bt_known){0});
}

/* ---- all processes
 * --------------------------------------------------------------------------------------------------- */

static bool is_pid(const char *name, uint32_t *ret) {
    uint64_t value = 0;
    if (!bt_span_number(bt_span_of(name), &value) || value == 0 || value > INT32_MAX) return false;
    *ret = (uint32_t)value;
    return true;
}

static bt_os_folder *open_below(const char *root, const char *path) {
    char full[BT_PROC_PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n > 0 && (size_t)n < sizeof full) return bt_os_folder_open(full);
    errno = ENAMETOOLONG;
    return NULL;
}

/* One of its descriptors was not seen: what the others hold is not all. */
static void forget_sums(walk *w, uint32_t pid) {
    for (uint32_t i = 0; i < w->gpus->n_devices; i++) {
        bt_gpu *gpu = &w->gpus->devices[i];
        for (uint32_t k = 0; k < gpu->n_users && !from_nvml(gpu); k++) {
            if (gpu->users[k].pid == pid) gpu->users[k].bytes = gpu->users[k].host_bytes = (bt_known){0};
        }
    }
}

static void look_into(walk *w, bt_proc_text *text, uint32_t pid) {
    char path[96];
    bool hidden = false;
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/fdinfo", pid);
    bt_os_folder *folder = open_below(w->root, path);
    if (!folder) {
        if (!bt_proc_is_absent(-errno)) w->n_hidden++; /* one that has ended holds nothing */
        return;
    }
    const char *name = bt_os_folder_next(folder);
    for (uint32_t i = 0; name && i < N_DESCRIPTOR_MAX; i++, name = bt_os_folder_next(folder)) {
        bt_drm_client c;
        (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/fdinfo/%.32s", pid, name);
        int rc = bt_proc_read(w->root, path, 0, text);
        hidden = hidden || (rc < 0 && !bt_proc_is_absent(rc));
        if (rc == 0 && bt_drm_fdinfo_parse(text->data, &c)) add_client(w, pid, &c);
    }
    bt_os_folder_close(folder);
    if (!hidden && !name) return;
    w->n_hidden++;
    forget_sums(w, pid);
}

static void look_at_processes(walk *w, bt_proc_text *text) {
    bt_os_folder *folder = open_below(w->root, "/proc");
    for (const char *name = folder ? bt_os_folder_next(folder) : NULL; name; name = bt_os_folder_next(folder)) {
        uint32_t pid = 0;
        if (is_pid(name, &pid)) look_into(w, text, pid);
    }
    for (uint32_t i = 0; i < w->gpus->n_devices; i++) {
        bt_gpu *gpu = &w->gpus->devices[i];
        if (from_nvml(gpu)) continue;
        if (!folder) bt_gpu_users_incomplete(gpu, "cannot list /proc");
        if (w->n_hidden > 0)
            bt_gpu_users_incomplete(gpu, "processes that cannot be looked into: %" PRIu32, w->n_hidden);
    }
    if (folder) bt_os_folder_close(folder);
}

/* ---- KFD
 * -------------------------------------------------------------------------------------------------------------- */

/* "gpu_id 1234" of a table of names and numbers. */
static bool number_of(const char *text, const char *name, uint64_t *ret) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    bt_span word;
    while (bt_span_line(&rest, &line)) {
        if (!bt_span_word(&line, &word) || !bt_span_is(word, name)) continue;
        return bt_span_word(&line, &word) && bt_span_number(word, ret);
    }
    return false;
}

/* KFD's number of each device of the list; 0: it has none. */
static void find_gpu_ids(walk *w, bt_proc_text *text, uint64_t ids[BT_GPU_MAX]) {
    for (uint32_t i = 0; i < N_NODE_MAX; i++) {
        char path[96];
        bt_span word;
        uint64_t id = 0;
        uint64_t location = 0;
        uint64_t domain = 0;
        (void)snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%" PRIu32 "/gpu_id", i);
        int rc = bt_proc_read(w->root, path, 0, text);
        if (bt_proc_is_absent(rc)) break; /* nodes are numbered without a gap */
        if (rc < 0) continue;             /* a device that this cgroup may not use */
        /* The node of a processor has 0. */
        if (!bt_span_only_word(text->data, &word) || !bt_span_number(word, &id) || id == 0) continue;
        (void)snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%" PRIu32 "/properties", i);
        if (bt_proc_read(w->root, path, 0, text) < 0 || !number_of(text->data, "location_id", &location)) continue;
        (void)number_of(text->data, "domain", &domain); /* older kernels do not say it */
        char pci[24];
        /* location_id: bus, device and function, as in the PCI address (kernel, kfd_topology.c) */
        (void)snprintf(pci, sizeof pci, "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64, domain & UINT32_MAX,
                       location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7);
        bt_gpu *gpu = bt_gpu_find_pci(w->gpus, pci);
        if (gpu) ids[gpu - w->gpus->devices] = id;
    }
}

static void add_kfd_process(walk *w, bt_proc_text *text, uint32_t pid, const uint64_t ids[BT_GPU_MAX]) {
    for (uint32_t i = 0; i < w->gpus->n_devices; i++) {
        char path[96];
        bt_span word;
        uint64_t bytes = 0;
        bool added = false;
        if (ids[i] == 0) continue;
        (void)snprintf(path, sizeof path, "/sys/class/kfd/kfd/proc/%" PRIu32 "/vram_%" PRIu64, pid, ids[i]);
        int rc = bt_proc_read(w->root, path, 0, text);
        if (bt_proc_is_absent(rc)) continue;
        bool good = rc == 0 && bt_span_only_word(text->data, &word) && bt_span_number(word, &bytes);
        if (good && bytes == 0) continue; /* it only opened the device */
        bt_gpu_user *user = bt_gpu_user_of(&w->gpus->devices[i], pid, &added);
        if (!user) continue;
        if (!good)
            user->bytes = (bt_known){0};
        else if (added)
            user->bytes = (bt_known){true, bytes};
        else if (user->bytes.known)
            user->bytes.value = bt_max_u64(user->bytes.value, bytes);
    }
}

static void look_at_kfd(walk *w, bt_proc_text *text) {
    uint64_t ids[BT_GPU_MAX] = {0};
    find_gpu_ids(w, text, ids);
    bt_os_folder *folder = open_below(w->root, "/sys/class/kfd/kfd/proc");
    if (!folder) return;
    for (const char *name = bt_os_folder_next(folder); name; name = bt_os_folder_next(folder)) {
        uint32_t pid = 0;
        if (is_pid(name, &pid)) add_kfd_process(w, text, pid, ids);
    }
    bt_os_folder_close(folder);
}

bt_status bt_drm_users_probe(const char *root, bt_proc_text *scratch, bt_gpus *gpus, bt_error *err) {
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        if (from_nvml(&gpus->devices[i])) continue;
        gpus->devices[i].users_complete = true;
        n_asked++;
    }
    if (n_asked == 0) return BT_OK;
    walk *w = bt_heap_alloc(sizeof *w);
    if (!w) return bt_fail_sys(err, ENOMEM, "probe", "cannot look for the users of graphics devices");
    w->root = root;
    w->gpus = gpus;
    look_at_processes(w, scratch);
    look_at_kfd(w, scratch);
    bt_heap_free(w);
    return BT_OK;
}
