/* SPDX-License-Identifier: MIT
 * machine.c: the machine as it is now, put together.
 *
 * Every probe is made anew: memory is what changes, and a kept answer is a wrong one. A part that cannot be read is
 * unknown, with its reason where there is room for one, and does not stop the others; the only failures are a root
 * that is no directory and no memory for the buffers. free_bytes stays the kernel's own figure; what limits it stands
 * beside it (limit, the cgroup chain), so that whoever plans can say which of them was the ceiling. Left out: devices
 * other than the host and the speed of disk and memory, which their owners add. */
#include "base/error.h"
#include "base/heap.h"
#include "probe/cgroup.h"
#include "probe/host.h"
#include "probe/probe.h"
#include "probe/reservations.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void lower_limit(bt_pool *pool, bt_known limit, const char *source) {
    if (!limit.known || (pool->limit.known && pool->limit.value <= limit.value)) return;
    pool->limit = limit;
    (void)snprintf(pool->limit_source, sizeof pool->limit_source, "%s", source);
}

static void probe_limits(const char *root, bt_proc_text *scratch, bt_machine *machine) {
    char source[BT_CGROUP_SOURCE_TEXT];
    bt_host_limits limits;
    bt_cgroup_probe(root, machine);
    lower_limit(&machine->pools[0], bt_cgroup_limit(machine, source), source);
    bt_host_limits_probe(root, scratch, &limits);
    lower_limit(&machine->pools[0], limits.address_space_bytes, "RLIMIT_AS");
    lower_limit(&machine->pools[0], limits.data_bytes, "RLIMIT_DATA");
    machine->memlock_bytes = limits.locked_bytes;
}

static uint32_t probe_threads(const char *root, bt_proc_text *scratch) {
    uint32_t n_cores = bt_host_cores_probe(root, scratch);
    bt_known quota = bt_cgroup_cores(root);
    return quota.known && quota.value < n_cores ? (uint32_t)quota.value : n_cores;
}

static bt_status check_root(const char *root, bt_error *err) {
    struct stat found;
    if (!root) return bt_fail(err, BT_E_ARG, "probe.root", BT_MEASURE_NONE, 0, 0, "no root was given");
    if (root[0] == '\0') return BT_OK;
    if (stat(root, &found) < 0) {
        (void)bt_fail_sys(err, errno, "probe.root", "cannot look into %s", root);
        if (err) err->status = BT_E_ARG;
        return BT_E_ARG;
    }
    if (S_ISDIR(found.st_mode)) return BT_OK;
    return bt_fail(err, BT_E_ARG, "probe.root", BT_MEASURE_NONE, 0, 0, "%s is no directory", root);
}

bt_status bt_machine_probe(const char *root, bt_machine *ret_machine, bt_error *err) {
    BT_TRY(check_root(root, err));
    bt_proc_text *scratch = bt_heap_alloc(sizeof *scratch);
    if (!scratch) return bt_fail_sys(err, ENOMEM, "probe", "cannot read the machine");
    memset(ret_machine, 0, sizeof *ret_machine);
    bt_host_pool_probe(root, scratch, ret_machine);
    ret_machine->n_pools = 1;
    probe_limits(root, scratch, ret_machine);
    if (root[0] == '\0') bt_reservations_probe(ret_machine); /* a recorded tree has no processes to ask */
    ret_machine->n_threads = probe_threads(root, scratch);
    bt_heap_free(scratch);
    return BT_OK;
}
