/* SPDX-License-Identifier: MIT
 *
 * gpu_nvml.c: NVIDIA devices through NVML, opened at run time.
 *
 *   library -> init -> count -> each: handle -> name, UUID, PCI id, memory -> lists of processes -> shutdown, close
 *
 * Neither its header nor its import library is needed to build: the few calls and layouts used here have been stable
 * since they appeared, and newer versions of a call have names of their own, so the newest that the library has is
 * taken and the older ones are fallbacks. NVML makes no CUDA context: asking it costs no device memory.
 *
 * Unknown is a state: each error keeps its NVML name and number, and the value for "not available", which WSL and
 * unified-memory boards give, is unknown and not 2^64 - 1 bytes. A process is in the lists of computing, of graphics
 * and of MPS clients with the same bytes each time, and counts once.
 *
 * The order is NVML's, by PCI id. CUDA counts in that order only with CUDA_DEVICE_ORDER=PCI_BUS_ID; else the fastest
 * comes first, and CUDA_VISIBLE_DEVICES hides some. So the number in a name is NVML's, and whoever wants to know which
 * device CUDA calls so compares PCI ids. Bounds: the devices of the list, N_PROCESS_MAX processes of each list. Left
 * out: instances of MIG; pids in a container, where they are the host's. */
#include "probe/gpu_nvml.h"

#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N_PROCESS_START 64u
#define N_PROCESS_MAX   4096u
#define N_ATTEMPTS      4 /* a list that grows between two calls grows slower than the room */

/* ---- the library's interface (NVML API Reference) --------------------------------------------------------------- */

typedef int nvml_status;
typedef void *nvml_handle;

/* Their names, as in the reference; the number is the value. */
#define NVML_STATUS_MAP(X)                                                                                             \
    X(SUCCESS, 0)                                                                                                      \
    X(ERROR_UNINITIALIZED, 1)                                                                                          \
    X(ERROR_INVALID_ARGUMENT, 2)                                                                                       \
    X(ERROR_NOT_SUPPORTED, 3)                                                                                          \
    X(ERROR_NO_PERMISSION, 4)                                                                                          \
    X(ERROR_ALREADY_INITIALIZED, 5)                                                                                    \
    X(ERROR_NOT_FOUND, 6)                                                                                              \
    X(ERROR_INSUFFICIENT_SIZE, 7)                                                                                      \
    X(ERROR_INSUFFICIENT_POWER, 8)                                                                                     \
    X(ERROR_DRIVER_NOT_LOADED, 9)                                                                                      \
    X(ERROR_TIMEOUT, 10)                                                                                               \
    X(ERROR_IRQ_ISSUE, 11)                                                                                             \
    X(ERROR_LIBRARY_NOT_FOUND, 12)                                                                                     \
    X(ERROR_FUNCTION_NOT_FOUND, 13)                                                                                    \
    X(ERROR_CORRUPTED_INFOROM, 14)                                                                                     \
    X(ERROR_GPU_IS_LOST, 15)                                                                                           \
    X(ERROR_RESET_REQUIRED, 16)                                                                                        \
    X(ERROR_OPERATING_SYSTEM, 17)                                                                                      \
    X(ERROR_LIB_RM_VERSION_MISMATCH, 18)                                                                               \
    X(ERROR_IN_USE, 19)                                                                                                \
    X(ERROR_MEMORY, 20)                                                                                                \
    X(ERROR_NO_DATA, 21)                                                                                               \
    X(ERROR_VGPU_ECC_NOT_SUPPORTED, 22)                                                                                \
    X(ERROR_INSUFFICIENT_RESOURCES, 23)                                                                                \
    X(ERROR_FREQ_NOT_SUPPORTED, 24)                                                                                    \
    X(ERROR_ARGUMENT_VERSION_MISMATCH, 25)                                                                             \
    X(ERROR_DEPRECATED, 26)                                                                                            \
    X(ERROR_NOT_READY, 27)                                                                                             \
    X(ERROR_GPU_NOT_FOUND, 28)                                                                                         \
    X(ERROR_INVALID_STATE, 29)                                                                                         \
    X(ERROR_RESET_TYPE_NOT_SUPPORTED, 30)                                                                              \
    X(ERROR_UNKNOWN, 999)

enum {
#define X(name, value) NVML_##name = (value),
    NVML_STATUS_MAP(X)
#undef X
};

static const char *status_name(nvml_status status) {
    switch (status) {
#define X(name, value)                                                                                                 \
    case value:                                                                                                        \
        return "NVML_" #name;
        NVML_STATUS_MAP(X)
#undef X
    default:
        return "an NVML error of a later version";
    }
}

/* Boards on which processor and graphics have one memory. NVML has no call that says so; of their memory it says that
 * this is not supported (NVIDIA's guide to DGX Spark, "Memory-Usage: Not Supported"), and so it does of a card whose
 * driver is broken, which must not be taken for the host's memory. So they are told by name. */
static const char *const unified_boards[] = {"GB10", "Jetson", "Orin", "Thor", "Xavier", "Tegra"};

#define NOT_AVAILABLE UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE of an unsigned long long */
#define TEXT_BYTES    96u        /* NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

/* The size of the layout, and its number in the top byte. */
#define MEMORY_V2_VERSION (unsigned int)(sizeof(nvml_memory_v2) | (2u << 24))

/* What all versions of the call begin with; behind it they differ, and the room is enough for each of them. */
typedef struct nvml_pci {
    char bus_id_legacy[16];
    unsigned int domain, bus, device;
    unsigned char rest[100];
} nvml_pci;

/* Of the first version; _v2 and _v3 go on with two numbers of the MIG instance, and one driver (535.54) returned a
 * third in _v3. Entries are taken apart with the stride of the call, in room that is enough for the longest. */
typedef struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
} nvml_process;
#define STRIDE_V1  sizeof(nvml_process)
#define STRIDE_V2  24u
#define STRIDE_MAX 32u

typedef struct api {
    bt_os_library *library;
    nvml_status (*init)(void);
    nvml_status (*shutdown)(void);
    const char *(*error_text)(nvml_status);
    nvml_status (*count)(unsigned int *);
    nvml_status (*handle)(unsigned int, nvml_handle *);
    nvml_status (*name)(nvml_handle, char *, unsigned int);
    nvml_status (*uuid)(nvml_handle, char *, unsigned int);
    nvml_status (*pci)(nvml_handle, nvml_pci *);
    nvml_status (*memory)(nvml_handle, nvml_memory *);
    nvml_status (*memory_v2)(nvml_handle, nvml_memory_v2 *);
} api;

/* The newest version that there is. ret: a pointer to a function pointer; NULL is stored when there is none. */
static bool find(const api *a, void *ret, const char *newest, const char *older, const char *oldest) {
    void *symbol = bt_os_library_find(a->library, newest);
    if (!symbol && older) symbol = bt_os_library_find(a->library, older);
    if (!symbol && oldest) symbol = bt_os_library_find(a->library, oldest);
    memcpy(ret, &symbol, sizeof symbol); /* a function pointer has the size of an object's in POSIX (dlsym) */
    return symbol != NULL;
}

static const char *find_all(api *a) {
    (void)find(a, &a->error_text, "nvmlErrorString", NULL, NULL);
    (void)find(a, &a->name, "nvmlDeviceGetName", NULL, NULL);
    (void)find(a, &a->uuid, "nvmlDeviceGetUUID", NULL, NULL);
    (void)find(a, &a->pci, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo");
    (void)find(a, &a->memory, "nvmlDeviceGetMemoryInfo", NULL, NULL);
    (void)find(a, &a->memory_v2, "nvmlDeviceGetMemoryInfo_v2", NULL, NULL);
    if (!find(a, &a->init, "nvmlInit_v2", "nvmlInit", NULL)) return "nvmlInit_v2";
    if (!find(a, &a->shutdown, "nvmlShutdown", NULL, NULL)) return "nvmlShutdown";
    if (!find(a, &a->count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", NULL)) return "nvmlDeviceGetCount_v2";
    bool found = find(a, &a->handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex", NULL);
    return found ? NULL : "nvmlDeviceGetHandleByIndex_v2";
}

/* "nvmlInit_v2: NVML_ERROR_GPU_IS_LOST (15), GPU is lost"; the last part is the library's own word. */
static void describe(const api *a, const char *call, nvml_status status, char *ret, size_t capacity) {
    const char *text = a->error_text ? a->error_text(status) : NULL;
    char all[256];
    (void)snprintf(all, sizeof all, "%s: %s (%d)%s%.80s", call, status_name(status), status, text ? ", " : "",
                   text ? text : "");
    bt_gpu_text_set(ret, capacity, all);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bt_known known(unsigned long long value) {
    return (bt_known){value != NOT_AVAILABLE, value != NOT_AVAILABLE ? value : 0};
}

/* The call is there in name only, or does not know the layout. */
static bool is_older(nvml_status status) {
    return status == NVML_ERROR_FUNCTION_NOT_FOUND || status == NVML_ERROR_ARGUMENT_VERSION_MISMATCH ||
           status == NVML_ERROR_NOT_SUPPORTED;
}

static bool is_unified(const bt_gpu *gpu, nvml_status status) {
    if (status != NVML_ERROR_NOT_SUPPORTED) return false;
    for (size_t i = 0; i < sizeof unified_boards / sizeof *unified_boards; i++)
        if (strstr(gpu->device, unified_boards[i])) return true;
    return false;
}

static void read_memory(const api *a, nvml_handle handle, bt_gpu *gpu) {
    nvml_status last = NVML_ERROR_FUNCTION_NOT_FOUND;
    char reason[sizeof gpu->reason] = "the library has no call for memory";
    if (a->memory_v2) {
        nvml_memory_v2 memory = {.version = MEMORY_V2_VERSION};
        nvml_status status = a->memory_v2(handle, &memory);
        if (status == NVML_SUCCESS) {
            bt_gpu_read(gpu, known(memory.free), known(memory.total));
            gpu->used_bytes = known(memory.used);
            return;
        }
        last = status;
        describe(a, "nvmlDeviceGetMemoryInfo_v2", status, reason, sizeof reason);
    }
    if (a->memory && is_older(last)) {
        nvml_memory memory = {0};
        nvml_status status = a->memory(handle, &memory);
        if (status == NVML_SUCCESS) {
            bt_gpu_read(gpu, known(memory.free), known(memory.total));
            gpu->used_bytes = known(memory.used);
            return;
        }
        last = status;
        describe(a, "nvmlDeviceGetMemoryInfo", status, reason, sizeof reason);
    }
    bt_gpu_fail(gpu, "%s", reason);
    gpu->shares_host = is_unified(gpu, last); /* gpu.c knows the host's */
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

typedef nvml_status (*list_call)(nvml_handle, unsigned int *, void *);

/* Newest first; without_it: a driver that has no such list has no such processes. */
typedef struct list_kind {
    const char *names[3];
    bool without_it;
} list_kind;

static const list_kind lists[] = {
    {{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
      "nvmlDeviceGetComputeRunningProcesses"},
     false},
    {{"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
      "nvmlDeviceGetGraphicsRunningProcesses"},
     false},
    {{"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
      "nvmlDeviceGetMPSComputeRunningProcesses"},
     true},
};

/* Into a buffer that it makes. Not a success: the list is not known for this reason, and there is no buffer. */
static nvml_status fetch(const api *a, const char *name, list_call call, nvml_handle handle,
                         unsigned char **ret_entries, uint32_t *ret_n, char *reason, size_t capacity) {
    uint32_t n_room = N_PROCESS_START;
    nvml_status status = NVML_ERROR_UNKNOWN;
    for (int attempt = 0; attempt < N_ATTEMPTS; attempt++) {
        unsigned char *entries = bt_heap_array(n_room, STRIDE_MAX);
        unsigned int n = n_room;
        if (!entries) {
            (void)snprintf(reason, capacity, "no memory for a list of processes");
            return NVML_ERROR_MEMORY;
        }
        status = call(handle, &n, entries);
        if (status == NVML_SUCCESS) {
            *ret_entries = entries;
            *ret_n = n < n_room ? n : n_room;
            return status;
        }
        bt_heap_free(entries);
        describe(a, name, status, reason, capacity);
        if (status != NVML_ERROR_INSUFFICIENT_SIZE || n_room == N_PROCESS_MAX) break;
        /* Half more than it says: others start meanwhile. */
        uint64_t n_next = bt_sat_add_u64(bt_max_u64(n, n_room), bt_max_u64(n, n_room) / 2);
        n_room = (uint32_t)bt_min_u64(n_next, N_PROCESS_MAX);
    }
    return status;
}

/* The same process in another list says the same: the larger counts, and unknown only as long as nothing is said. */
static void add_user(bt_gpu *gpu, unsigned int pid, bt_known bytes) {
    bool added = false;
    bt_gpu_user *user = bt_gpu_user_of(gpu, pid, &added);
    if (!user || !bytes.known) return;
    if (!user->bytes.known || user->bytes.value < bytes.value) user->bytes = bytes;
}

static bool read_list(const api *a, const list_kind *kind, nvml_handle handle, bt_gpu *gpu, char *reason,
                      size_t capacity) {
    void *symbol = NULL;
    size_t which = 0;
    for (; which < 3 && !symbol; which++)
        symbol = bt_os_library_find(a->library, kind->names[which]);
    if (!symbol) {
        (void)snprintf(reason, capacity, "the library has no %s", kind->names[0]);
        return kind->without_it;
    }
    const char *name = kind->names[which - 1];
    size_t stride = which == 3 ? STRIDE_V1 : STRIDE_V2;
    list_call call = NULL;
    memcpy(&call, &symbol, sizeof symbol);
    unsigned char *entries = NULL;
    uint32_t n = 0;
    nvml_status status = fetch(a, name, call, handle, &entries, &n, reason, capacity);
    if (status != NVML_SUCCESS)
        return kind->without_it && (status == NVML_ERROR_NOT_SUPPORTED || status == NVML_ERROR_FUNCTION_NOT_FOUND);
    bool good = true;
    for (uint32_t i = 0; i < n && good; i++) {
        nvml_process process;
        memcpy(&process, entries + i * stride, sizeof process);
        /* No process has this number: the entries are not laid out as the call's name says. */
        good = process.pid != 0;
        if (good) add_user(gpu, process.pid, known(process.used_bytes));
    }
    bt_heap_free(entries);
    if (!good) (void)snprintf(reason, capacity, "%s returns what is no list of processes", name);
    return good;
}

static void read_users(const api *a, nvml_handle handle, bt_gpu *gpu) {
    gpu->users_complete = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char reason[sizeof gpu->users_reason] = "";
        if (!read_list(a, &lists[i], handle, gpu, reason, sizeof reason)) bt_gpu_users_incomplete(gpu, "%s", reason);
    }
}

/* ---- devices ------------------------------------------------------------------------------------------------------
 */

/* Empty when it cannot be read, or is no text. */
static void read_text(nvml_status (*call)(nvml_handle, char *, unsigned int), nvml_handle handle,
                      char ret[TEXT_BYTES]) {
    char text[TEXT_BYTES] = "";
    bool good = call && call(handle, text, TEXT_BYTES) == NVML_SUCCESS && memchr(text, '\0', TEXT_BYTES);
    bt_gpu_text_set(ret, TEXT_BYTES, good ? text : "");
}

/* As the kernel writes it; a graphics device is function 0 (the second is its sound). */
static void read_pci(const api *a, nvml_handle handle, bt_gpu *gpu) {
    nvml_pci pci = {{0}, 0, 0, 0, {0}};
    if (!a->pci || a->pci(handle, &pci) != NVML_SUCCESS || pci.bus > 0xFF || pci.device > 0x1F) return;
    (void)snprintf(gpu->pci, sizeof gpu->pci, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
}

static void read_device(const api *a, unsigned int index, bool with_users, bt_gpu *gpu) {
    nvml_handle handle = NULL;
    _Static_assert(sizeof gpu->device == TEXT_BYTES && sizeof gpu->uuid == TEXT_BYTES, "texts of NVML fit");
    (void)snprintf(gpu->name, sizeof gpu->name, "CUDA%u", index);
    (void)snprintf(gpu->source, sizeof gpu->source, "NVML");
    (void)snprintf(gpu->driver, sizeof gpu->driver, "nvidia");
    nvml_status status = a->handle(index, &handle);
    if (status != NVML_SUCCESS) {
        char reason[sizeof gpu->reason];
        describe(a, "nvmlDeviceGetHandleByIndex_v2", status, reason, sizeof reason);
        bt_gpu_fail(gpu, "%s", reason);
        bt_gpu_users_incomplete(gpu, "%s", reason);
        return;
    }
    read_text(a->name, handle, gpu->device);
    read_text(a->uuid, handle, gpu->uuid);
    read_pci(a, handle, gpu);
    read_memory(a, handle, gpu);
    if (with_users) read_users(a, handle, gpu);
}

static void read_devices(const api *a, bool with_users, bt_gpus *gpus, bt_nvml *ret) {
    unsigned int n = 0;
    ret->code = a->count(&n);
    if (ret->code != NVML_SUCCESS) {
        ret->state = BT_READING_FAILED;
        describe(a, "nvmlDeviceGetCount_v2", ret->code, ret->reason, sizeof ret->reason);
        return;
    }
    ret->state = BT_READING_REPORTED;
    for (unsigned int i = 0; i < n && i < BT_GPU_MAX; i++) {
        bt_gpu *gpu = bt_gpu_add(gpus);
        if (gpu) read_device(a, i, with_users, gpu);
    }
    if (n > BT_GPU_MAX) gpus->n_left_out += n - BT_GPU_MAX;
}

bool bt_nvml_has_nothing(const bt_nvml *nvml) {
    return nvml->state == BT_READING_FAILED &&
           (nvml->code == NVML_ERROR_DRIVER_NOT_LOADED || nvml->code == NVML_ERROR_GPU_NOT_FOUND ||
            nvml->code == NVML_ERROR_LIBRARY_NOT_FOUND);
}

void bt_nvml_probe(const char *library, bool with_users, bt_gpus *gpus, bt_nvml *ret_nvml) {
    *ret_nvml = (bt_nvml){.state = BT_READING_ABSENT};
    api a = {.library = bt_os_library_open(library)};
    if (!a.library) return;
    const char *missing = find_all(&a);
    if (missing) {
        ret_nvml->state = BT_READING_FAILED;
        (void)snprintf(ret_nvml->reason, sizeof ret_nvml->reason, "%.80s has no %s", library, missing);
        bt_os_library_close(a.library);
        return;
    }
    ret_nvml->code = a.init();
    if (ret_nvml->code == NVML_SUCCESS) {
        read_devices(&a, with_users, gpus, ret_nvml);
        (void)a.shutdown();
    } else {
        ret_nvml->state = BT_READING_FAILED;
        describe(&a, "nvmlInit_v2", ret_nvml->code, ret_nvml->reason, sizeof ret_nvml->reason);
    }
    bt_os_library_close(a.library);
}
