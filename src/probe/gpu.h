/* SPDX-License-Identifier: MIT
 * gpu.h: graphics devices as the system describes them: how much memory each has free, and who holds the rest. */
#pragma once

#include "burthen.h"

#define BT_GPU_MAX      (BT_POOL_MAX - 1u) /* with the host they are a machine's pools */
#define BT_GPU_USER_MAX 256u               /* of one device; a desktop has about 30, MPS serves 48 */

/* A process that holds memory of a device. */
typedef struct bt_gpu_user {
    uint32_t pid;        /* as its source counts: NVML and KFD give the host's pids, also inside a container */
    bt_known bytes;      /* of the device's own memory */
    bt_known host_bytes; /* of the host's, mapped for the device; what was driven out of a full device is here too */
} bt_gpu_user;

typedef struct bt_gpu {
    char name[32];   /* of its pool: "CUDA0" in the order of NVML, else its DRM card: "card0" */
    char device[96]; /* what it calls itself */
    char uuid[96];   /* NVML only */
    char pci[24];    /* "0000:01:00.0"; empty: none, or not known */
    char driver[24]; /* of the kernel: "amdgpu"; empty: not known */
    char source[32];
    bt_pool_kind kind; /* BT_POOL_GPU or BT_POOL_IGPU */
    bt_pool_state state;
    char reason[160]; /* why the state is FAILED, else empty */
    uint64_t free_bytes, total_bytes;
    bt_known used_bytes; /* in its source's words, which may leave out what the driver reserves */
    bool clamped;
    bool shares_host;
    bt_gpu_user users[BT_GPU_USER_MAX];
    uint32_t n_users;
    bool users_complete; /* nobody else can hold memory of it; false where users were not asked for */
    char users_reason[160];
} bt_gpu;

/* Some 170 KiB: on the heap. */
typedef struct bt_gpus {
    bt_gpu devices[BT_GPU_MAX];
    uint32_t n_devices;
    uint32_t n_left_out; /* over the maximum */
} bt_gpus;

/* root          as in bt_machine_probe
 * nvml_library  asked in place of the driver's; for tests. NULL: the driver's, and none for a recorded tree
 * with_users    also who holds the memory: a look into every process that this one may look into
 * returns       BT_E_NOMEM, or BT_OK: what cannot be read is said of each device. No device is an empty list. */
BT_MUST_CHECK bt_status bt_gpu_probe(const char *root, const char *nvml_library, bool with_users, bt_gpus *ret_gpus,
                                     bt_error *err);
/* Put them beside the host as pools, but for those that are there already by place or name. What a machine has no room
 * for is left out. */
void bt_gpu_pools_add(const bt_gpus *gpus, bt_machine *machine);

/* ---- for those that fill the list ------------------------------------------------------------------------------- */

/* The next device of the list, zeroed but for its kind, BT_POOL_GPU; NULL, and counted, when there is no room. */
bt_gpu *bt_gpu_add(bt_gpus *gpus);
bt_gpu *bt_gpu_find_pci(bt_gpus *gpus, const char *pci); /* NULL: none; nothing is at "" */
/* Text of others, as it may go to a terminal and into JSON: what is no character that shows something becomes '?'. Cut
 * between characters. */
void bt_gpu_text_set(char *ret, size_t capacity, const char *text);
/* A reading, made consistent (docs/interfaces.md, machine.json). */
void bt_gpu_read(bt_gpu *gpu, bt_known free_bytes, bt_known total_bytes);
void bt_gpu_fail(bt_gpu *gpu, const char *fmt, ...) BT_PRINTF(2, 3);
/* The user of this pid, added if need be; NULL when there is no room: the list is then incomplete. */
bt_gpu_user *bt_gpu_user_of(bt_gpu *gpu, uint32_t pid, bool *ret_added);
void bt_gpu_users_incomplete(bt_gpu *gpu, const char *fmt, ...) BT_PRINTF(2, 3); /* the first reason stays */
