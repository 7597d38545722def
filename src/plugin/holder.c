/* SPDX-License-Identifier: MIT
 *
 * holder.c: from a plan.json to a device that libllama can be given.
 *
 *   plan.json -> plan, path of the model -> facts -> the plan is for this very file and build
 *             -> account with the plan's caps -> files, reader -> device (nothing large is touched yet)
 *
 * The device is started when the program has loaded the model (device/guest.c). What the program holds beside it has
 * its lines in the plan (base, vocab, metadata), which nobody can enforce from inside. Lives as long as the process. */

#include "plugin/holder.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "base/text_file.h"
#include "device/measured.h"
#include "memory/account.h"
#include "probe/disk.h"
#include "report/report.h"
#include "store/disk_speed.h"

#include "ggml.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define ARENA_MAX_BYTES (64u << 20) /* 65,536 units of a plan, and its text */
#define ARENA_BLOCK     (64u << 10)

struct bt_holder {
    bt_arena *arena;
    bt_plan plan;
    bt_facts *facts;
    bt_account *account;
    bt_store store;
    bool store_open;
    bt_reader *reader;
    bt_device *device;
};

/* ---- the plan ---- */

static bt_status read_file(const char *path, bt_text *text, bt_error *err) {
    int fd = bt_os_open(path, false);
    if (fd < 0) return bt_fail_sys(err, -fd, "plan", "cannot open the plan %s", path);
    int rc = bt_text_read(text, fd);
    (void)bt_os_close(fd); /* only read */
    if (rc == -EFBIG)
        return bt_fail(err, BT_E_FORMAT, "plan", BT_MEASURE_BYTES, 0, text->max_bytes, "the plan %s is larger than %s",
                       path, BT_SIZE(text->max_bytes));
    if (rc < 0) return bt_fail_sys(err, -rc, "plan", "cannot read the plan %s", path);
    return BT_OK;
}

static bt_status check_plan(const bt_holder *holder, const bt_fingerprint *of_plan, bt_error *err) {
    const bt_plan *plan = &holder->plan;
    bt_fingerprint now;
    bt_fingerprint_make(holder->facts, NULL, &now);
    BT_TRY(bt_fingerprint_check(of_plan, &now, err));
    if (plan->verdict == BT_REFUSED && !plan->forced)
        return bt_fail(err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, plan->planned_bytes, plan->budget_bytes,
                       "the plan was refused");
    if (!plan->wishes.guest || plan->offload || plan->n_units != holder->facts->n_units)
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_ITEMS, plan->n_units, holder->facts->n_units,
                       "the plan was not made for a program of llama.cpp's own: exec --ram-budget makes one");
    return BT_OK;
}

static bt_status read_plan(bt_holder *holder, const bt_text *text, bt_error *err) {
    const char *json = bt_text_str(text);
    bt_fingerprint of_plan;
    char path[PATH_MAX];
    BT_TRY(bt_fingerprint_from_json(json, text->n_bytes, &of_plan, err));
    BT_TRY(bt_plan_from_json(json, text->n_bytes, holder->arena, &holder->plan, err));
    BT_TRY(bt_plan_model_from_json(json, text->n_bytes, path, sizeof path, err));
    BT_TRY(bt_facts_open(path, &holder->facts, err));
    return check_plan(holder, &of_plan, err);
}

static bt_status open_plan(bt_holder *holder, const char *path, bt_error *err) {
    holder->arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    if (!holder->arena) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to read a plan");
    bt_text text;
    bt_text_init(&text, BT_JSON_IN_MAX_BYTES);
    bt_status status = read_file(path, &text, err);
    if (status == BT_OK) status = read_plan(holder, &text, err);
    bt_text_done(&text);
    return status;
}

/* ---- what carries it out ---- */

/* As the disk of the model's file is read best, on this machine. Whether the page cache may serve, the plan says: seen
 * from here it may be a cgroup's that was made for this very process. */
static void look_at_disk(bt_holder *holder) {
    bt_disk *disk = &holder->plan.disk;
    bt_disk_find("", holder->facts->shards[0].path, disk);
    (void)bt_disk_recall(disk);
}

static bt_status open_account(bt_holder *holder, bt_error *err) {
    const bt_plan *plan = &holder->plan;
    uint64_t caps[BT_LINE_COUNT];
    memcpy(caps, plan->ledger.bytes, sizeof caps);
    return bt_account_open(caps, bt_max_u64(plan->budget_bytes, plan->planned_bytes), &holder->account, err);
}

static bt_status open_device(bt_holder *holder, const bt_holder_calls *calls, bt_error *err) {
    const bt_plan *plan = &holder->plan;
    const bt_device_params params = {
        .account = holder->account,
        .facts = holder->facts,
        .place = plan->place,
        .store = &holder->store,
        .reader = holder->reader,
        .ring_bytes = bt_sat_mul_u64(plan->n_slots, plan->slot_bytes),
        .replaces = plan->layouts.n_replaced > 0,
        .derived_bytes = plan->ledger.bytes[BT_LINE_DERIVED],
        .n_threads = plan->n_threads,
        .n_ubatch = plan->n_ubatch,
        .budget_bytes = plan->budget_bytes,
        .n_expert_slots = plan->n_expert_slots,
        .n_expert_extra = plan->n_expert_extra,
        .experts_shared = plan->experts_shared,
        .may_cache = plan->page_cache,
        .elastic = plan->wishes.elastic != BT_OFF && plan->budget_bytes != UINT64_MAX,
        .guest = true,
        .heard = calls->heard,
        .ran = calls->ran,
        .guest_user = calls->user,
    };
    return bt_device_open(&params, &holder->device, err);
}

static bt_status open_parts(bt_holder *holder, const char *plan_path, const bt_holder_calls *calls, bt_error *err) {
    BT_TRY(open_plan(holder, plan_path, err));
    look_at_disk(holder);
    BT_TRY(open_account(holder, err));
    BT_TRY(bt_store_open(holder->facts, holder->plan.wishes.io, &holder->store, err));
    holder->store_open = true;
    const bt_disk *disk = &holder->plan.disk;
    const bt_reader_params reader = {
        .kind = BT_READER_AUTO,
        .depth = disk->depth ? disk->depth : BT_DISK_DEPTH,
        .request_bytes = disk->request_bytes ? disk->request_bytes : BT_DISK_REQUEST_BYTES,
    };
    BT_TRY(bt_reader_open(&holder->store, &reader, &holder->reader, err));
    return open_device(holder, calls, err);
}

bt_status bt_holder_open(const char *plan_path, const bt_holder_calls *calls, bt_holder **ret_holder, bt_error *err) {
    bt_holder *holder = bt_heap_alloc(sizeof *holder);
    if (!holder)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *holder, 0, "no memory to hold a plan");
    bt_status status = open_parts(holder, plan_path, calls, err);
    if (status != BT_OK) {
        (void)bt_holder_close(holder);
        return status;
    }
    *ret_holder = holder;
    return BT_OK;
}

bool bt_holder_close(bt_holder *holder) {
    if (!holder) return true;
    bt_device_close(holder->device);
    bt_reader_close(holder->reader);
    if (holder->store_open) bt_store_close(&holder->store);
    bool nothing_left = bt_account_close(holder->account);
    bt_facts_close(holder->facts);
    bt_arena_close(holder->arena);
    bt_heap_free(holder);
    return nothing_left;
}

bt_device *bt_holder_device(bt_holder *holder) {
    return holder->device;
}

const bt_plan *bt_holder_plan(const bt_holder *holder) {
    return &holder->plan;
}

const bt_facts *bt_holder_facts(const bt_holder *holder) {
    return holder->facts;
}

/* All that is no mapping of ours is the program's, whatever its lines are called: base, vocab, metadata. */
void bt_holder_measure(bt_holder *holder, bt_measured *ret) {
    *ret = (bt_measured){0};
    bt_device_measure(holder->device, ret);
    bt_account_measure(holder->account);
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    ret->peak_rss_bytes = memory.peak_rss_bytes.value;
    ret->major_faults = memory.major_faults.value;
    bt_account_note(holder->account, BT_LINE_BASE,
                    bt_sat_sub_u64(memory.rss_bytes.value, bt_account_mapped_bytes(holder->account)));
    for (int line = 0; line < BT_LINE_COUNT; line++) {
        bt_account_use(holder->account, (bt_line)line, &ret->lines[line]);
        ret->lines[line].planned_bytes = holder->plan.ledger.bytes[line];
    }
    bt_lending lending;
    bt_account_lending_read(holder->account, &lending);
    ret->elastic_peak_bytes = lending.peak_lent_bytes;
}
