/* SPDX-License-Identifier: MIT
 * fake_nvml.c: a library with the calls of NVML that a probe makes, which answers what a test wants.
 *
 * It is built three times: with the calls of today; FAKE_OLD, with those of the first versions only, whose entries of
 * processes are shorter; FAKE_BROKEN, without a call that is needed. Layouts are checked where the real library can:
 * the version of a structure, and the room of a list. Types have the probe's names: one sanitizer compares those too.
 *
 * A program of its own is shown cards by FAKE_NVML_FILE, read at each reading:
 *
 *     TOTAL FREE [BUS] a card, in MiB; its place is 0000:BUS:00.0, else its number from 1
 *     user PID MIB     a process that holds memory of the card above
 *     memory STATUS    its memory cannot be read; STATUS: as the library says it
 *     users STATUS     its list of processes cannot be read
 *     init STATUS      nothing can be
 *     later N FREE     of the card above, from the N-th reading on: a byte for each is in the file FAKE_NVML_READINGS
 */
#include "fake_nvml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, UNINITIALIZED = 1, VERSION_MISMATCH = 25 };

static fake_nvml fake;

EXPORT fake_nvml *fake_nvml_state(void);
fake_nvml *fake_nvml_state(void) {
    return &fake;
}

static bool is_open(void) {
    return fake.n_inits > fake.n_shutdowns;
}

static fake_nvml_device *device_of(void *handle) {
    uintptr_t index = (uintptr_t)handle - 1;
    return &fake.devices[index < FAKE_NVML_DEVICES ? index : FAKE_NVML_DEVICES - 1];
}

/* Of all programs together, this one counted. */
static unsigned long long count_reading(void) {
    const char *path = getenv("FAKE_NVML_READINGS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return 0;
    (void)fputc('.', file);
    long n = fflush(file) == 0 ? ftell(file) : 0;
    (void)fclose(file);
    return n > 0 ? (unsigned long long)n : 0;
}

static void read_line(const char *line, unsigned long long n_readings) {
    unsigned long long a = 0, b = 0, bus = fake.n_devices + 1;
    int status = 0;
    if (sscanf(line, "init %d", &status) == 1) fake.init_status = status;
    if (sscanf(line, "%llu %llu %llu", &a, &b, &bus) >= 2 && fake.n_devices < FAKE_NVML_DEVICES) {
        fake_nvml_device *card = &fake.devices[fake.n_devices++];
        memset(card, 0, sizeof *card);
        card->bus = (unsigned int)bus;
        card->total = a << 20;
        card->free = b << 20;
        (void)snprintf(card->name, sizeof card->name, "a card of a test");
    }
    if (fake.n_devices == 0) return;
    fake_nvml_device *d = &fake.devices[fake.n_devices - 1];
    if (sscanf(line, "user %llu %llu", &a, &b) == 2 && d->n_users[FAKE_COMPUTE] < FAKE_NVML_USERS)
        d->users[FAKE_COMPUTE][d->n_users[FAKE_COMPUTE]++] = (fake_nvml_user){(unsigned int)a, b << 20};
    if (sscanf(line, "later %llu %llu", &a, &b) == 2 && n_readings >= a) d->free = b << 20;
    if (sscanf(line, "memory %d", &status) == 1) d->memory_status = d->memory_v2_status = status;
    if (sscanf(line, "users %d", &status) == 1)
        for (int i = 0; i < FAKE_LISTS; i++)
            d->list_status[i] = status;
}

static void read_cards(void) {
    char line[128];
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    unsigned long long n_readings = count_reading();
    fake.n_devices = 0;
    fake.init_status = 0;
    while (fgets(line, sizeof line, file))
        read_line(line, n_readings);
    (void)fclose(file);
}

static int init(void) {
    read_cards();
    if (fake.init_status == 0) fake.n_inits++;
    return fake.init_status;
}

static int count(unsigned int *ret) {
    if (!is_open()) return UNINITIALIZED;
    *ret = fake.n_devices;
    return fake.count_status;
}

static int handle(unsigned int index, void **ret) {
    if (!is_open()) return UNINITIALIZED;
    if (index >= fake.n_devices) return INVALID_ARGUMENT;
    *ret = (void *)(uintptr_t)(index + 1); /* NOLINT(performance-no-int-to-ptr): opaque */
    return device_of(*ret)->handle_status;
}

static int text(int status, const char *value, char *ret, unsigned int capacity) {
    if (status != 0) return status;
    if (fake.no_end)
        memset(ret, 'x', capacity);
    else
        (void)snprintf(ret, capacity, "%s", value);
    return 0;
}

/* The layout of all versions up to the device number. */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

static int pci(void *opaque, struct nvml_pci *ret) {
    const fake_nvml_device *d = device_of(opaque);
    if (d->pci_status != 0) return d->pci_status;
    memset(ret, 0, sizeof *ret);
    (void)snprintf(ret->bus_id, sizeof ret->bus_id, "%08X:%02X:%02X.0", d->domain, d->bus, d->device);
    ret->domain = d->domain;
    ret->bus = d->bus;
    ret->device = d->device;
    return 0;
}

struct nvml_memory {
    unsigned long long total, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo(void *opaque, struct nvml_memory *ret);
int nvmlDeviceGetMemoryInfo(void *opaque, struct nvml_memory *ret) {
    const fake_nvml_device *d = device_of(opaque);
    fake.n_memory_calls++;
    if (d->memory_status != 0) return d->memory_status;
    *ret = (struct nvml_memory){d->total, d->free, d->total - d->free};
    return 0;
}

EXPORT int nvmlDeviceGetName(void *opaque, char *ret, unsigned int capacity);
int nvmlDeviceGetName(void *opaque, char *ret, unsigned int capacity) {
    return text(device_of(opaque)->name_status, device_of(opaque)->name, ret, capacity);
}

EXPORT int nvmlDeviceGetUUID(void *opaque, char *ret, unsigned int capacity);
int nvmlDeviceGetUUID(void *opaque, char *ret, unsigned int capacity) {
    return text(device_of(opaque)->uuid_status, device_of(opaque)->uuid, ret, capacity);
}

static int list(void *opaque, int which, size_t stride, unsigned int *n, unsigned char *ret) {
    fake_nvml_device *d = device_of(opaque);
    fake.n_list_calls++;
    if (d->list_status[which] != 0) return d->list_status[which];
    if (fake.grows && d->n_users[which] < FAKE_NVML_USERS) d->n_users[which]++;
    if (*n < d->n_users[which]) {
        *n = d->n_users[which];
        return INSUFFICIENT_SIZE;
    }
    *n = d->n_users[which];
    memset(ret, 0, *n * stride);
    for (unsigned int i = 0; i < *n; i++) {
        const fake_nvml_user *user = &d->users[which][i];
        unsigned int no_instance = UINT32_MAX;
        memcpy(ret + i * stride, &user->pid, sizeof user->pid);
        memcpy(ret + i * stride + 8, &user->bytes, sizeof user->bytes);
        if (stride < 24) continue;
        memcpy(ret + i * stride + 16, &no_instance, sizeof no_instance);
        memcpy(ret + i * stride + 20, &no_instance, sizeof no_instance);
    }
    return 0;
}

#ifdef FAKE_OLD
#define NAME(name) name
#define LIST(name) name
#define STRIDE     16u
#else
#define NAME(name) name##_v2
#define LIST(name) name##_v3
#define STRIDE     (fake.long_entries ? 32u : 24u)

/* The number of a status, so that a test knows that the text is the library's. */
EXPORT const char *nvmlErrorString(int status);
const char *nvmlErrorString(int status) {
    static char words[32];
    (void)snprintf(words, sizeof words, "fake words \x1b of %d", status);
    return words;
}

struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *opaque, struct nvml_memory_v2 *ret);
int nvmlDeviceGetMemoryInfo_v2(void *opaque, struct nvml_memory_v2 *ret) {
    const fake_nvml_device *d = device_of(opaque);
    fake.n_memory_v2_calls++;
    if (ret->version != (sizeof *ret | 2u << 24)) return VERSION_MISMATCH;
    if (d->memory_v2_status != 0) return d->memory_v2_status;
    *ret = (struct nvml_memory_v2){ret->version, d->total, 1 << 20, d->free, d->total - d->free - (1 << 20)};
    return 0;
}

EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *opaque, unsigned int *n, void *ret);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *opaque, unsigned int *n, void *ret) {
    return list(opaque, FAKE_MPS, STRIDE, n, ret);
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *opaque, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo_v3(void *opaque, struct nvml_pci *ret) {
    return pci(opaque, ret);
}
#endif

#ifndef FAKE_BROKEN
EXPORT int nvmlShutdown(void);
int nvmlShutdown(void) {
    fake.n_shutdowns++;
    return 0;
}
#endif

#ifdef FAKE_OLD
EXPORT int nvmlDeviceGetPciInfo(void *opaque, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo(void *opaque, struct nvml_pci *ret) {
    return pci(opaque, ret);
}
#endif

EXPORT int NAME(nvmlInit)(void);
int NAME(nvmlInit)(void) {
    return init();
}

EXPORT int NAME(nvmlDeviceGetCount)(unsigned int *ret);
int NAME(nvmlDeviceGetCount)(unsigned int *ret) {
    return count(ret);
}

EXPORT int NAME(nvmlDeviceGetHandleByIndex)(unsigned int index, void **ret);
int NAME(nvmlDeviceGetHandleByIndex)(unsigned int index, void **ret) {
    return handle(index, ret);
}

EXPORT int LIST(nvmlDeviceGetComputeRunningProcesses)(void *opaque, unsigned int *n, void *ret);
int LIST(nvmlDeviceGetComputeRunningProcesses)(void *opaque, unsigned int *n, void *ret) {
    return list(opaque, FAKE_COMPUTE, STRIDE, n, ret);
}

EXPORT int LIST(nvmlDeviceGetGraphicsRunningProcesses)(void *opaque, unsigned int *n, void *ret);
int LIST(nvmlDeviceGetGraphicsRunningProcesses)(void *opaque, unsigned int *n, void *ret) {
    return list(opaque, FAKE_GRAPHICS, STRIDE, n, ret);
}
