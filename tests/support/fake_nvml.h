/* SPDX-License-Identifier: MIT
 * fake_nvml.h: what the fake NVML (tests/support/nvml) answers, for the test that opened it too.
 *
 * The library has the layouts and the numbers of the real one. Statuses are NVML's; 0 is success. */
#pragma once

#include <stdbool.h>

#define FAKE_NVML_DEVICES 20
#define FAKE_NVML_USERS   600
#define FAKE_NVML_UNKNOWN (~0ULL) /* NVML_VALUE_NOT_AVAILABLE */

enum { FAKE_COMPUTE, FAKE_GRAPHICS, FAKE_MPS, FAKE_LISTS };

typedef struct fake_nvml_user {
    unsigned int pid;
    unsigned long long bytes;
} fake_nvml_user;

typedef struct fake_nvml_device {
    char name[96], uuid[96];
    unsigned int domain, bus, device;
    unsigned long long total, free;
    int handle_status, name_status, uuid_status, pci_status, memory_status, memory_v2_status, list_status[FAKE_LISTS];
    fake_nvml_user users[FAKE_LISTS][FAKE_NVML_USERS];
    unsigned int n_users[FAKE_LISTS];
} fake_nvml_device;

typedef struct fake_nvml {
    int init_status, count_status;
    unsigned int n_devices; /* over FAKE_NVML_DEVICES: all above are like the last */
    fake_nvml_device devices[FAKE_NVML_DEVICES];
    bool grows;        /* a list has a process more each time that it is asked for */
    bool long_entries; /* entries of 32 bytes under _v3, as one driver had */
    bool no_end;       /* names fill their buffers */
    unsigned int n_inits, n_shutdowns, n_list_calls, n_memory_v2_calls, n_memory_calls;
} fake_nvml;

/* Exported by the library: its state, which the test may change. */
typedef fake_nvml *(*fake_nvml_control)(void);
