/* SPDX-License-Identifier: MIT
 *
 * experts.c: slots for experts, filled as they are asked for; the experts used longest ago go.
 *
 * A request names the experts of a block that a micro-batch uses. Where they fit in its slots, each gets one (shelf.c),
 * and the parts that are missing are read together, one job for each part. Where they do not, they come in turn
 * (experts_turn.c); what a block may want next is read while nothing else is (experts_guess.c).
 *
 * A slot learns whose bytes stand in it only when the read is complete: one that failed, or was given up in the middle
 * of a pass, leaves nothing that could be mistaken for something else.
 *
 * Direct reads come in pages. Where an expert's part is whole pages long it stands at the same place of its first page
 * as all others, and is used where it was read to; else it is moved to the start of its region, so that a kernel may
 * step from slot to slot.
 *
 * Bounds: the mapping; 1024 experts a block (model/shape.c); BT_EXPERT_PART_JOBS jobs of a part. */
#include "store/experts.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "store/experts_internal.h"

#include <errno.h>
#include <string.h>

/* ---- open and close --------------------------------------------------------------------------------------------- */

static bt_status open_memory(bt_experts *e, uint64_t bytes, bt_error *err) {
    BT_TRY(bt_account_map(e->account, BT_LINE_EXPERTS, bytes, &e->mapping, err));
    BT_TRY(bt_account_commit(e->account, e->mapping, bytes, err));
    (void)bt_os_huge_pages(e->mapping->base, bytes); /* advice */
    /* Page faults inside a submission made it half as fast (docs/design.md, the spike). */
    int rc = bt_os_populate(e->mapping->base, bytes);
    if (rc < 0) return bt_fail_sys(err, -rc, "populate_failed", "host/experts: the system refused %s", BT_SIZE(bytes));
    return BT_OK;
}

static bt_status no_heap(bt_error *err) {
    return bt_fail_sys(err, ENOMEM, "heap", "no memory for the table of experts");
}

static bt_status open_parts(bt_experts *e, const uint32_t *n_slots, bt_error *err) {
    uint32_t n_expert = e->facts->n_expert, n_blocks = e->facts->n_expert_blocks;
    uint64_t bytes = 0;
    e->blocks = bt_heap_array(n_blocks, sizeof *e->blocks);
    e->is_wanted = bt_heap_array(n_expert, sizeof *e->is_wanted);
    e->turns.order = bt_heap_array(n_expert, sizeof *e->turns.order);
    e->turns.slot_at = bt_heap_array(n_expert, sizeof *e->turns.slot_at);
    if (!e->blocks || !e->is_wanted || !e->turns.order || !e->turns.slot_at) return no_heap(err);
    for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++) {
        e->reads[p].arrivals = bt_heap_array(n_expert, sizeof *e->reads[p].arrivals);
        if (!e->reads[p].arrivals) return no_heap(err);
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (n_slots[i] == 0 || n_slots[i] > n_expert)
            return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, n_slots[i], n_expert,
                           "%u slots for the experts of a block; 1 to %u can be", n_slots[i], n_expert);
        if (!bt_shelf_open(&e->blocks[i], &e->facts->expert_blocks[i], n_slots[i], n_expert)) return no_heap(err);
        uint64_t its = bt_sat_mul_u64(n_slots[i], e->blocks[i].facts->slot_bytes);
        if (!e->shared) e->blocks[i].offset = bytes;
        bytes = e->shared ? bt_max_u64(bytes, its) : bt_sat_add_u64(bytes, its);
    }
    return open_memory(e, bytes, err);
}

bt_status bt_experts_open(bt_account *account, bt_reader *reader, const bt_facts *facts, const uint32_t *n_slots,
                          bool shared, bt_experts **ret_experts, bt_error *err) {
    bt_experts *e = bt_heap_alloc(sizeof *e);
    if (!e) return no_heap(err);
    e->account = account;
    e->reader = reader;
    e->facts = facts;
    e->current = BT_SHELF_NONE;
    e->shared = shared;
    for (uint32_t i = 0; i < BT_EXPERT_AHEAD; i++)
        e->turns.jobs[i] = -1;
    bt_status status = open_parts(e, n_slots, err);
    if (status != BT_OK) {
        bt_experts_close(e);
        return status;
    }
    *ret_experts = e;
    return BT_OK;
}

void bt_experts_give_up(bt_experts *e) {
    for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++) {
        bt_expert_reads *reads = &e->reads[p];
        for (uint32_t i = 0; i < reads->n_jobs; i++)
            if (reads->jobs[i] >= 0) bt_reader_cancel(e->reader, reads->jobs[i]);
        reads->n_jobs = reads->n = 0;
    }
    for (uint32_t i = 0; i < BT_EXPERT_AHEAD; i++) {
        if (e->turns.jobs[i] >= 0) bt_reader_cancel(e->reader, e->turns.jobs[i]);
        e->turns.jobs[i] = -1;
    }
    e->turns.n = 0;
}

void bt_experts_close(bt_experts *e) {
    if (!e) return;
    bt_experts_give_up(e);
    bt_experts_drop_guesses(e);
    bt_account_unmap(e->account, e->mapping);
    for (uint32_t i = 0; e->blocks && i < e->facts->n_expert_blocks; i++)
        bt_shelf_close(&e->blocks[i]);
    for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++)
        bt_heap_free(e->reads[p].arrivals);
    bt_heap_free(e->turns.order);
    bt_heap_free(e->turns.slot_at);
    bt_heap_free(e->is_wanted);
    bt_heap_free(e->blocks);
    bt_heap_free(e);
}

uint8_t *bt_experts_base(const bt_experts *experts, uint32_t block) {
    return (uint8_t *)experts->mapping->base + experts->blocks[block].offset;
}

/* ---- one part of one expert ------------------------------------------------------------------------------------- */

uint8_t *bt_experts_region(const bt_experts *e, const bt_shelf *b, uint32_t part, uint32_t at) {
    return (uint8_t *)e->mapping->base + b->offset + at * b->facts->slot_bytes + b->facts->parts[part].slot_offset;
}

static uint64_t place_in_file(const bt_experts *e, const bt_expert_part *part, uint32_t expert) {
    return e->facts->tensors[part->tensor].file_offset + expert * part->slice_bytes;
}

bt_run bt_experts_run(const bt_experts *e, const bt_shelf *b, uint32_t part, bt_expert_arrival a) {
    const bt_expert_part *p = &b->facts->parts[part];
    uint64_t at = place_in_file(e, p, a.expert);
    uint64_t first = at / BT_PAGE_BYTES * BT_PAGE_BYTES;
    uint64_t end = (at + p->slice_bytes + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    return (bt_run){e->facts->tensors[p->tensor].shard, first, end - first, bt_experts_region(e, b, part, a.slot)};
}

void bt_experts_arrive(bt_experts *e, bt_shelf *b, uint32_t part, bt_expert_arrival a) {
    const bt_expert_part *p = &b->facts->parts[part];
    uint8_t *region = bt_experts_region(e, b, part, a.slot);
    uint32_t read_at = (uint32_t)(place_in_file(e, p, a.expert) % BT_PAGE_BYTES);
    if (read_at != p->shift) memmove(region + p->shift, region + read_at, p->slice_bytes);
    b->slots[a.slot].holds[part] = a.expert;
    e->stats.read_bytes += p->slice_bytes;
}

void bt_experts_begin(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n) {
    bt_shelf *b = &e->blocks[index];
    bt_experts_give_up(e);                                    /* what a pass that failed left behind */
    if (e->shared && e->current != index) bt_shelf_forget(b); /* another block was there */
    if (e->trace) e->trace(index, wanted, n, false, e->trace_user);
    e->current = index;
    e->clock++;
    memset(e->is_wanted, 0, e->facts->n_expert * sizeof *e->is_wanted);
    for (uint32_t i = 0; i < n; i++) {
        e->is_wanted[wanted[i]] = true;
        if (bt_shelf_has(b, wanted[i]))
            e->stats.hits++;
        else if (bt_shelf_expects(b, wanted[i]))
            e->stats.guesses_used++;
        else
            e->stats.misses++;
    }
}

/* ---- a request that fits ---------------------------------------------------------------------------------------- */

/* There is a slot for each: the wanted, and what is coming, are no more than the slots. */
static void give_slots(bt_experts *e, bt_shelf *b, const uint32_t *wanted, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (b->slot_of[wanted[i]] == BT_SHELF_NONE) bt_shelf_give(b, bt_shelf_oldest(b, e->is_wanted), wanted[i]);
        b->slots[b->slot_of[wanted[i]]].used = e->clock;
    }
}

bt_status bt_experts_start(bt_experts *e, const bt_shelf *b, uint32_t part, const bt_expert_arrival *arrivals,
                           uint32_t n, bool first, int *ret_job, bt_error *err) {
    bt_run runs[BT_EXPERT_JOB_RUNS];
    for (uint32_t i = 0; i < n; i++) {
        runs[i] = bt_experts_run(e, b, part, arrivals[i]);
        b->slots[arrivals[i].slot].holds[part] = BT_SHELF_NONE;
    }
    return first ? bt_reader_start_first(e->reader, runs, n, ret_job, err)
                 : bt_reader_start(e->reader, runs, n, ret_job, err);
}

static bt_status start_part(bt_experts *e, bt_shelf *b, uint32_t part, const uint32_t *wanted, uint32_t n,
                            bt_error *err) {
    bt_expert_reads *reads = &e->reads[part];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = b->slot_of[wanted[i]];
        if (!b->slots[at].coming && b->slots[at].holds[part] != wanted[i])
            reads->arrivals[reads->n++] = (bt_expert_arrival){wanted[i], at};
    }
    for (uint32_t i = 0; i < reads->n; i += BT_EXPERT_JOB_RUNS) {
        uint32_t n_runs = (uint32_t)bt_min_u64(reads->n - i, BT_EXPERT_JOB_RUNS);
        int job = -1;
        BT_TRY(bt_experts_start(e, b, part, reads->arrivals + i, n_runs, true, &job, err));
        reads->jobs[reads->n_jobs++] = job;
    }
    return BT_OK;
}

bt_status bt_experts_request(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n, uint32_t first_part,
                             bt_error *err) {
    bt_shelf *b = &e->blocks[index];
    if (n > b->n_slots)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, n, b->n_slots, "%u experts at once in %u slots",
                       n, b->n_slots);
    if (n + e->guesses.n > b->n_slots) bt_experts_settle_guesses(e);
    bt_experts_begin(e, index, wanted, n);
    give_slots(e, b, wanted, n);
    /* The reader serves the job that was started last first: the one that is needed first is started last. */
    bt_status status = BT_OK;
    for (uint32_t p = b->facts->n_parts; p-- > 0 && status == BT_OK;)
        if (p != first_part) status = start_part(e, b, p, wanted, n, err);
    if (status == BT_OK) status = start_part(e, b, first_part, wanted, n, err);
    if (status != BT_OK) bt_experts_give_up(e);
    return status;
}

bt_status bt_experts_wait(bt_experts *e, uint32_t part, bt_error *err) {
    bt_expert_reads *reads = &e->reads[part];
    bt_status status = BT_OK;
    bt_shelf *b = &e->blocks[e->current];
    if (reads->n_jobs == 0 && !bt_experts_wants_guess(e)) return BT_OK;
    uint64_t since_ns = bt_os_now_ns();
    for (uint32_t i = 0; i < reads->n_jobs && status == BT_OK; i++) {
        if (reads->jobs[i] < 0) continue;
        status = bt_reader_wait(e->reader, reads->jobs[i], err);
        reads->jobs[i] = -1;
        uint32_t first = i * BT_EXPERT_JOB_RUNS, end = (uint32_t)bt_min_u64(reads->n, first + BT_EXPERT_JOB_RUNS);
        for (uint32_t k = first; k < end && status == BT_OK; k++)
            bt_experts_arrive(e, b, part, reads->arrivals[k]);
    }
    if (status == BT_OK) status = bt_experts_wait_guesses(e, err);
    e->stats.wait_ns += bt_os_now_ns() - since_ns;
    if (status == BT_OK)
        reads->n_jobs = reads->n = 0;
    else
        bt_experts_give_up(e);
    return status;
}

uint32_t bt_experts_slot(const bt_experts *experts, uint32_t block, uint32_t expert) {
    return experts->blocks[block].slot_of[expert];
}

/* ---- told -------------------------------------------------------------------------------------------------------- */

void bt_experts_set_trace(bt_experts *e, bt_experts_trace trace, void *user) {
    e->trace = trace;
    e->trace_user = user;
}

void bt_experts_stats_read(const bt_experts *e, bt_experts_stats *ret) {
    *ret = e->stats;
}
