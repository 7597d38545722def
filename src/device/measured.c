/* SPDX-License-Identifier: MIT
 *
 * measured.c: the counters of a device and of its reader, gathered for a report. What the process holds beside it, only
 * the program knows that it stands in. */
#include "device/measured.h"

#include "device/internal.h"

#include <stdio.h>

const char *bt_device_reader_name(const bt_reader *reader) {
    return bt_reader_kind_of(reader) == BT_READER_URING ? "io_uring" : "pread";
}

static void measure_reads(bt_device *device, bt_measured *measured) {
    const bt_reader *reader = device->params.reader;
    bt_reader_stats reads;
    bt_reader_stats_read(reader, &reads);
    measured->streamed_bytes = reads.read_bytes;
    measured->read_bytes_per_s = reads.busy_ns ? (double)reads.read_bytes * 1e9 / (double)reads.busy_ns : 0.0;
    (void)snprintf(measured->reader, sizeof measured->reader, "%s", bt_device_reader_name(reader));
    (void)snprintf(measured->reader_reason, sizeof measured->reader_reason, "%s", bt_reader_reason(reader));
    bt_tier_stats tier;
    bt_device_tier_stats_read(device, &tier);
    measured->from_page_cache = tier.cached;
    measured->cached_bytes = reads.cached_bytes;
    measured->disk_ns_per_mib = tier.disk_ns_per_mib;
    measured->cached_ns_per_mib = tier.cached_ns_per_mib;
}

static void measure_experts(bt_device *device, bt_measured *measured) {
    bt_experts_stats experts;
    bt_device_experts_stats_read(device, &experts);
    measured->expert_hits = experts.hits;
    measured->expert_misses = experts.misses;
    measured->expert_guesses = experts.guesses;
    measured->expert_guesses_used = experts.guesses_used;
    measured->expert_waves = experts.waves;
    measured->expert_bytes = experts.read_bytes;
    measured->expert_wait_s = (double)experts.wait_ns / 1e9;
}

void bt_device_measure(bt_device *device, bt_measured *measured) {
    bt_device_stats stats;
    bt_device_stats_read(device, &stats);
    measured->io_wait_s = (double)stats.wait_ns / 1e9;
    measured->compute_s = (double)stats.compute_ns / 1e9;
    measured->schedules_built = stats.schedules_built;
    measured->schedules_reused = stats.schedules_reused;
    bt_pool_report pool;
    bt_device_pool_report(device, &pool);
    measured->pool_bytes = pool.pool_bytes;
    measured->live_bytes = pool.live_bytes;
    measured->peak_live_bytes = pool.peak_live_bytes;
    measured->weights_bytes = pool.weights_bytes;
    measured->idle_slots = pool.idle_slots;
    measured->reserved_classes = pool.reserved_classes;
    if (device->params.reader) measure_reads(device, measured);
    measure_experts(device, measured);
    bt_elastic_stats elastic;
    bt_device_elastic_stats_read(device, &elastic);
    measured->elastic_taken = elastic.taken;
    measured->elastic_released = elastic.released;
    bt_device_layouts_read(device, &measured->layouts);
}
