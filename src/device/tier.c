/* SPDX-License-Identifier: MIT
 *
 * tier.c: whether streamed units and experts come from the disk or from the page cache, measured both ways.
 *
 *     pass       1      2      3      4      5        6 ...
 *     read from  cache  cache  cache  disk   disk     the cheaper one
 *     counted                  yes           yes
 *
 * Where the system has room for all that streams beside the budget, its page cache holds it after one pass, and copying
 * from there may be several times as fast as the disk. It may also be slower: direct reads come while others compute,
 * copies are made by the thread that computes. So both are tried, on passes of a few tokens (a prompt hides what its
 * reads cost), and what a way costs is the time in which the computing thread read or waited, for each byte. On a tie
 * the disk is read, which leaves the memory to others. Page cache is the system's to take back: when what comes from
 * there has become slower than the disk was, several passes in a row, the disk is read and the trial made again later.
 *
 * What is read is the same bytes either way. Bound: a few numbers. Left out: parts of the model in either tier. */

#include "device/internal.h"

#include "base/size.h"

/* Columns of a pass that is one of tokens, not of a prompt: what may be verified at once. */
#define FEW_COLUMNS BT_TOKEN_BY_TOKEN_MAX
/* In per cent: by how much cheaper the cache must be, above what two passes differ by. */
#define GAIN_PER_CENT 10u
/* Passes from a cache that is dearer than the disk was: one may be chance. */
#define SLOW_MAX 4u
/* Passes from the disk until the cache is tried again, of which it takes three. */
#define REST_PASSES 256u

typedef struct trial_step {
    bool cached, counts;
} trial_step;

static const trial_step trial[] = {{true, false}, {true, false}, {true, true}, {false, false}, {false, true}};
#define N_STEPS ((uint32_t)(sizeof trial / sizeof *trial))

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

void bt_tier_start(bt_tier *tier) {
    tier->step = 0;
    tier->n_passes = 0;
    tier->cached = trial[0].cached;
}

static void go_on_trying(bt_tier *tier, uint64_t ns_per_mib, bool is_few) {
    const trial_step *step = &trial[tier->step];
    if (tier->step > 0 && !is_few) return;
    if (step->counts) *(step->cached ? &tier->cached_ns_per_mib : &tier->disk_ns_per_mib) = ns_per_mib;
    tier->step++;
    uint64_t with_gain = bt_mul_div_u64(tier->cached_ns_per_mib, 100 + GAIN_PER_CENT, 100);
    tier->cached = tier->step < N_STEPS ? trial[tier->step].cached : with_gain < tier->disk_ns_per_mib;
}

/* A cache that was taken from us is left; after a rest it is tried again. */
static void watch(bt_tier *tier, uint64_t ns_per_mib) {
    if (!tier->cached) {
        if (tier->was_taken && ++tier->n_passes == REST_PASSES) bt_tier_start(tier);
        return;
    }
    tier->n_passes = ns_per_mib > tier->disk_ns_per_mib ? tier->n_passes + 1 : 0;
    if (tier->n_passes < SLOW_MAX) return;
    tier->was_taken = true;
    tier->cached = false;
    tier->n_passes = 0;
}

void bt_tier_decide(bt_tier *tier, uint64_t ns_per_mib, bool is_few) {
    if (tier->step < N_STEPS)
        go_on_trying(tier, ns_per_mib, is_few);
    else if (is_few && tier->disk_ns_per_mib > 0)
        watch(tier, ns_per_mib);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool has_choice(const bt_device *device) {
    bool streams = device->ring || (device->moe.experts && !device->moe.all_there);
    return streams && device->params.may_cache;
}

void bt_tier_open(bt_device *device) {
    if (!has_choice(device)) return;
    bt_tier_start(&device->tier);
    /* A file that is only read through the cache has no other way, and there is nothing to try. */
    if (!device->params.store->direct) device->tier.step = N_STEPS;
    bt_reader_set_cached(device->params.reader, device->tier.cached);
}

void bt_tier_before(bt_device *device) {
    if (!has_choice(device)) return;
    bt_reader_stats reads;
    bt_reader_stats_read(device->params.reader, &reads);
    device->tier.read_bytes = reads.read_bytes;
    device->tier.wait_ns = device->stats.wait_ns;
}

void bt_tier_after(bt_device *device, const bt_schedule *schedule) {
    bt_tier *tier = &device->tier;
    if (!has_choice(device)) return;
    bt_reader_stats reads;
    bt_reader_stats_read(device->params.reader, &reads);
    uint64_t bytes = reads.read_bytes - tier->read_bytes;
    if (bytes == 0) return; /* all was there */
    uint64_t ns_per_mib = bt_mul_div_u64(device->stats.wait_ns - tier->wait_ns, UINT64_C(1) << 20, bytes);
    bt_tier_decide(tier, ns_per_mib, schedule->n_columns <= FEW_COLUMNS);
    bt_reader_set_cached(device->params.reader, tier->cached);
}
