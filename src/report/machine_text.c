/* SPDX-License-Identifier: MIT
 * machine_text.c: the machine for a person: pools, the cgroup chain from leaf to root, and what a budget is not made of
 * but a reader asks for. What is unknown is shown as "unknown", never as 0. Bounded by the machine's own arrays. */
#include "base/size.h"
#include "report/json.h"
#include "report/report.h"
#include "report/text.h"

#include <inttypes.h>
#include <string.h>

#define MEGA UINT64_C(1000000)

/* "  amdgpu 1002:744c at 0000:03:00.0 (amdgpu sysfs)": what is known of it. */
static void add_device(bt_text *out, const bt_pool *pool) {
    bool has_device = pool->device[0] || pool->pci[0];
    if (has_device) bt_text_add(out, "  ");
    bt_text_add_escaped(out, pool->device, strnlen(pool->device, sizeof pool->device));
    if (pool->pci[0]) bt_text_add(out, pool->device[0] ? " at " : "at ");
    bt_text_add_escaped(out, pool->pci, strnlen(pool->pci, sizeof pool->pci));
    if (!pool->source[0]) return;
    bt_text_add(out, has_device ? " (" : "  (");
    bt_text_add_escaped(out, pool->source, strnlen(pool->source, sizeof pool->source));
    bt_text_add(out, ")");
}

static void add_pool(bt_text *out, const bt_pool *pool) {
    bool reported = pool->state == BT_READING_REPORTED;
    bt_text name; /* escaped before it is padded */
    bt_text_init(&name, 4 * sizeof pool->name);
    bt_text_add_escaped(&name, pool->name, strnlen(pool->name, sizeof pool->name));
    bt_text_addf(out, "  %-10s %-6s %-10s %12s %12s", bt_text_str(&name), bt_pool_kind_names[pool->kind],
                 bt_pool_state_names[pool->state], reported ? BT_SIZE(pool->free_bytes) : "unknown",
                 reported ? BT_SIZE(pool->total_bytes) : "unknown");
    out->failed = out->failed || name.failed;
    bt_text_done(&name);
    if (pool->limit.known) bt_text_addf(out, "  limit %s", BT_SIZE(pool->limit.value));
    if (pool->limit.known && pool->limit_source[0]) {
        bt_text_add(out, " (");
        bt_text_add_escaped(out, pool->limit_source, strnlen(pool->limit_source, sizeof pool->limit_source));
        bt_text_add(out, ")");
    }
    add_device(out, pool);
    if (pool->shares_host) bt_text_add(out, "  shares the host's memory");
    if (pool->clamped) bt_text_add(out, "  free was over total: cut down");
    if (pool->reason[0]) {
        bt_text_add(out, "  ");
        bt_text_add_escaped(out, pool->reason, strnlen(pool->reason, sizeof pool->reason));
    }
    bt_text_add(out, "\n");
}

static void add_cgroup(bt_text *out, const bt_machine *machine) {
    if (machine->cgroup_version == 0) {
        bt_text_add(out, "\nMemory cgroup\n  ");
        if (machine->cgroup_reason[0]) {
            bt_text_add(out, "not readable: ");
            bt_text_add_escaped(out, machine->cgroup_reason,
                                strnlen(machine->cgroup_reason, sizeof machine->cgroup_reason));
        } else {
            bt_text_add(out, "none");
        }
        bt_text_add(out, "\n");
        return;
    }
    bt_text_addf(out, "\nMemory cgroup (v%u), leaf to root\n  %12s %12s %12s  %s\n", machine->cgroup_version, "limit",
                 "used", "reclaimable", "path, limit from");
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        bt_text_addf(out, "  %12s %12s %12s  ", level->limit.known ? BT_SIZE(level->limit.value) : "none",
                     BT_SIZE(level->usage_bytes), BT_SIZE(level->reclaimable_bytes));
        bt_text_add_escaped(out, level->path, strnlen(level->path, sizeof level->path));
        if (level->limit_file[0]) {
            bt_text_add(out, "  ");
            bt_text_add_escaped(out, level->limit_file, strnlen(level->limit_file, sizeof level->limit_file));
        }
        if (level->promised_bytes > 0)
            bt_text_addf(out, "  %s promised to other budgets", BT_SIZE(level->promised_bytes));
        bt_text_add(out, "\n");
    }
}

static void add_reservations(bt_text *out, const bt_machine *machine) {
    if (machine->reservations_reason[0]) {
        bt_text_add(out, "\nOther budgets\n  not known: ");
        bt_text_add_escaped(out, machine->reservations_reason,
                            strnlen(machine->reservations_reason, sizeof machine->reservations_reason));
        bt_text_add(out, "\n");
    }
    if (machine->n_reservations == 0) return;
    bt_text_addf(out, "\nOther budgets: promised %s, not touched yet %s\n  %12s %12s %10s  %s\n",
                 BT_SIZE(machine->promised_bytes), BT_SIZE(machine->untouched_bytes), "promised", "resident", "pid",
                 "command");
    for (uint32_t i = 0; i < machine->n_reservations && i < BT_RESERVATION_MAX; i++) {
        const bt_reservation *other = &machine->reservations[i];
        bt_text_addf(out, "  %12s %12s %10u  ", BT_SIZE(other->promised_bytes), BT_SIZE(other->resident_bytes),
                     other->pid);
        bt_text_add_escaped(out, other->command, strnlen(other->command, sizeof other->command));
        bt_text_add(out, "\n");
    }
}

/* measured_by: what to do where it is not known. */
static void add_speed(bt_text *out, const char *label, bt_known bytes_per_s, const char *source,
                      const char *measured_by) {
    if (!bytes_per_s.known) {
        bt_row(out, label, "unknown (%s)", measured_by);
    } else {
        bt_row(out, label, "%" PRIu64 " MB/s%s", bytes_per_s.value / MEGA, source);
    }
}

static void add_disk(bt_text *out, const bt_disk *disk) {
    bt_text value;
    bt_text_init(&value, 4096);
    bt_text_add_escaped(&value, disk->name, strnlen(disk->name, sizeof disk->name));
    if (disk->kind != BT_DISK_UNKNOWN && (disk->kind != BT_DISK_ROTATING || bt_disk_rotates(disk)))
        bt_text_addf(&value, ", %s", bt_disk_kind_names[disk->kind]);
    if (disk->depth > 0)
        bt_text_addf(&value, ", read best with %u requests of %s", disk->depth, BT_SIZE(disk->request_bytes));
    bt_row(out, "Disk", "%s", bt_text_str(&value));
    out->failed = out->failed || value.failed;
    bt_text_done(&value);
}

void bt_report_machine_text(const bt_machine *machine, bt_text *out) {
    bt_text_addf(out, "Machine\n  %-10s %-6s %-10s %12s %12s\n", "pool", "kind", "state", "free", "total");
    for (uint32_t i = 0; i < machine->n_pools && i < BT_POOL_MAX; i++) {
        add_pool(out, &machine->pools[i]);
    }
    add_cgroup(out, machine);
    add_reservations(out, machine);
    bt_text_add(out, "\nOther\n");
    if (machine->n_threads > 0) {
        bt_row(out, "Cores allowed", "%u", machine->n_threads);
    } else {
        bt_row(out, "Cores allowed", "unknown");
    }
    bt_row(out, "Swap free", "%s (never part of a budget)",
           machine->swap_free_bytes.known ? BT_SIZE(machine->swap_free_bytes.value) : "unknown");
    bt_row(out, "Lockable memory", "%s (RLIMIT_MEMLOCK; used by --mlock)",
           machine->memlock_bytes.known ? BT_SIZE(machine->memlock_bytes.value) : "unlimited");
    if (machine->disk.name[0]) add_disk(out, &machine->disk);
    add_speed(out, "Disk read", machine->disk_bytes_per_s, machine->disk_measured ? " (measured)" : " (given)",
              "devices --disk PATH measures it");
    add_speed(out, "Memory read", machine->memory_bytes_per_s, "", "plan --exact and run measure it");
}
