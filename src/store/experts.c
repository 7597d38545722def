/* SPDX-License-Identifier: MIT
 *
 * experts.c: slots for experts, filled as they are asked for; the experts used longest ago go.
 *
 * Identity is (block, part, expert): each slot remembers, for each of its parts, whose bytes stand there, and learns it
 * only when the read is complete. An expert is there when all parts of its slot are its own. So a read that failed, or
 * was given up in the middle of a pass, leaves nothing that could be mistaken for something else.
 *
 *     request    union of a micro-batch <= slots: a slot for each, missing parts read together, one job for each part
 *     in turn    union > slots: the slots are a ring through which the experts pass, once for each part
 *
 *          order   r0 r1 | n0 n1 n2 n3 n4 ...      r: there already, n: not; s slots
 *          slots   their own | free ones, then those of r0, r1, then again from the first
 *
 * A slot is read into when the expert that stood there has had its turn; up to AHEAD reads are under way. The order is
 * the same for all parts, so that at the end the last s experts are there as wholes.
 *
 * A guess is what a block may want next: it is read while nothing else is, into slots that were used longest ago, whole
 * experts at a time. The block's next request finds it there, or on its way, and waits for what it wants of it. Until
 * it was waited for, its slot is nobody else's.
 *
 * Direct reads come in pages. Where an expert's part is whole pages long it stands at the same place of its first page
 * as all others, and is used where it was read to; else it is moved to the start of its region, so that a kernel may
 * step from slot to slot.
 *
 * Bounds: the mapping; 1024 experts a block (model/shape.c); PART_JOBS jobs of a part. */
#include "store/experts.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>

#define NONE      UINT32_MAX
#define AHEAD     8u   /* reads in turn: experts are a quarter of a MiB and more, so that is a full queue */
#define JOB_RUNS  128u /* of one job; a reader has room for 256 beside the ring's (store/ring.c) */
#define PART_JOBS 8u   /* 1024 experts */

typedef struct slot {
    uint32_t owner;                     /* the expert that it was given to, or NONE */
    uint32_t holds[BT_EXPERT_PART_MAX]; /* whose bytes stand there, or NONE */
    uint64_t used;                      /* clock of the last request */
    bool coming;                        /* a guess is being read into it */
} slot;

/* The slots of a block. */
typedef struct shelf {
    const bt_expert_block *facts;
    uint64_t offset; /* of slot 0 in the mapping */
    slot *slots;     /* [n_slots] */
    uint32_t n_slots;
    uint32_t *slot_of; /* [n_expert] or NONE */
} shelf;

/* A part of an expert on its way to a slot. */
typedef struct arrival {
    uint32_t expert, slot;
} arrival;

/* Reads of one part. */
typedef struct part_reads {
    int jobs[PART_JOBS]; /* [n_jobs] of JOB_RUNS arrivals each; -1: waited for */
    uint32_t n_jobs;
    arrival *arrivals; /* [n_expert] */
    uint32_t n;
} part_reads;

/* Experts that come in turn. */
typedef struct turns {
    uint32_t *order, *slot_at;         /* [n_expert] */
    uint32_t n, n_there;               /* of them, there at first */
    uint32_t next[BT_EXPERT_PART_MAX]; /* the first of those that were not there that was not started */
    int jobs[AHEAD];                   /* of it, at its number modulo AHEAD; -1: nothing to wait for */
} turns;

/* Experts of a block that are being read before they were asked for. */
typedef struct guesses {
    uint32_t block, n;
    arrival arrivals[BT_EXPERT_GUESS_MAX];
    int jobs[BT_EXPERT_GUESS_MAX]; /* -1: waited for */
} guesses;

struct bt_experts {
    bt_account *account;
    bt_reader *reader;
    const bt_facts *facts;
    bt_mapping *mapping;
    shelf *blocks;    /* [facts->n_expert_blocks] */
    uint32_t current; /* block of the last request, or NONE */
    bool shared;      /* blocks stand on each other */
    part_reads reads[BT_EXPERT_PART_MAX];
    turns turns;
    guesses guesses;
    bool *is_wanted; /* [n_expert] scratch */
    uint64_t clock;
    bt_experts_trace trace;
    void *trace_user;
    bt_experts_stats stats;
};

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

static void forget(bt_experts *e, shelf *b) {
    for (uint32_t i = 0; i < e->facts->n_expert; i++)
        b->slot_of[i] = NONE;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        b->slots[i].owner = NONE;
        b->slots[i].coming = false;
        for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++)
            b->slots[i].holds[p] = NONE;
    }
}

static bt_status open_block(bt_experts *e, uint32_t index, uint32_t n_slots, bt_error *err) {
    shelf *b = &e->blocks[index];
    uint32_t n_expert = e->facts->n_expert;
    b->facts = &e->facts->expert_blocks[index];
    b->n_slots = n_slots;
    b->slots = bt_heap_array(n_slots, sizeof *b->slots);
    b->slot_of = bt_heap_array(n_expert, sizeof *b->slot_of);
    if (!b->slots || !b->slot_of) return no_heap(err);
    forget(e, b);
    return BT_OK;
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
        BT_TRY(open_block(e, i, n_slots[i], err));
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
    e->current = NONE;
    e->shared = shared;
    for (uint32_t i = 0; i < AHEAD; i++)
        e->turns.jobs[i] = -1;
    bt_status status = open_parts(e, n_slots, err);
    if (status != BT_OK) {
        bt_experts_close(e);
        return status;
    }
    *ret_experts = e;
    return BT_OK;
}

/* Guesses that are still under way are forgotten. */
static void drop_guesses(bt_experts *e) {
    guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->jobs[i] < 0) continue;
        bt_reader_cancel(e->reader, g->jobs[i]);
        e->blocks[g->block].slots[g->arrivals[i].slot].coming = false;
    }
    g->n = 0;
}

/* Nothing that was asked for is under way any more. */
static void give_up(bt_experts *e) {
    for (uint32_t p = 0; p < BT_EXPERT_PART_MAX; p++) {
        part_reads *reads = &e->reads[p];
        for (uint32_t i = 0; i < reads->n_jobs; i++)
            if (reads->jobs[i] >= 0) bt_reader_cancel(e->reader, reads->jobs[i]);
        reads->n_jobs = reads->n = 0;
    }
    for (uint32_t i = 0; i < AHEAD; i++) {
        if (e->turns.jobs[i] >= 0) bt_reader_cancel(e->reader, e->turns.jobs[i]);
        e->turns.jobs[i] = -1;
    }
    e->turns.n = 0;
}

void bt_experts_close(bt_experts *e) {
    if (!e) return;
    give_up(e);
    drop_guesses(e);
    bt_account_unmap(e->account, e->mapping);
    for (uint32_t i = 0; e->blocks && i < e->facts->n_expert_blocks; i++) {
        bt_heap_free(e->blocks[i].slots);
        bt_heap_free(e->blocks[i].slot_of);
    }
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

static uint8_t *region_of(const bt_experts *e, const shelf *b, uint32_t part, uint32_t at) {
    return (uint8_t *)e->mapping->base + b->offset + at * b->facts->slot_bytes + b->facts->parts[part].slot_offset;
}

static uint64_t place_in_file(const bt_experts *e, const bt_expert_part *part, uint32_t expert) {
    return e->facts->tensors[part->tensor].file_offset + expert * part->slice_bytes;
}

/* The pages of the file that hold it. */
static bt_run run_of(const bt_experts *e, const shelf *b, uint32_t part, arrival a) {
    const bt_expert_part *p = &b->facts->parts[part];
    uint64_t at = place_in_file(e, p, a.expert);
    uint64_t first = at / BT_PAGE_BYTES * BT_PAGE_BYTES;
    uint64_t end = (at + p->slice_bytes + BT_PAGE_BYTES - 1) / BT_PAGE_BYTES * BT_PAGE_BYTES;
    return (bt_run){e->facts->tensors[p->tensor].shard, first, end - first, region_of(e, b, part, a.slot)};
}

/* It was read: it stands where all stand, and the slot knows it. */
static void arrive(bt_experts *e, shelf *b, uint32_t part, arrival a) {
    const bt_expert_part *p = &b->facts->parts[part];
    uint8_t *region = region_of(e, b, part, a.slot);
    uint32_t read_at = (uint32_t)(place_in_file(e, p, a.expert) % BT_PAGE_BYTES);
    if (read_at != p->shift) memmove(region + p->shift, region + read_at, p->slice_bytes);
    b->slots[a.slot].holds[part] = a.expert;
    e->stats.read_bytes += p->slice_bytes;
}

static bool is_coming(const shelf *b, uint32_t expert) {
    return b->slot_of[expert] != NONE && b->slots[b->slot_of[expert]].coming;
}

static bool holds_all(const shelf *b, uint32_t at, uint32_t expert) {
    for (uint32_t p = 0; p < b->facts->n_parts; p++)
        if (b->slots[at].holds[p] != expert) return false;
    return true;
}

static bool is_there(const shelf *b, uint32_t expert) {
    return b->slot_of[expert] != NONE && holds_all(b, b->slot_of[expert], expert);
}

static void begin(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n) {
    shelf *b = &e->blocks[index];
    give_up(e);                                         /* what a pass that failed left behind */
    if (e->shared && e->current != index) forget(e, b); /* another block was there */
    if (e->trace) e->trace(index, wanted, n, false, e->trace_user);
    e->current = index;
    e->clock++;
    memset(e->is_wanted, 0, e->facts->n_expert * sizeof *e->is_wanted);
    for (uint32_t i = 0; i < n; i++) {
        e->is_wanted[wanted[i]] = true;
        if (is_there(b, wanted[i]))
            e->stats.hits++;
        else if (is_coming(b, wanted[i]))
            e->stats.guesses_used++;
        else
            e->stats.misses++;
    }
}

static void own(shelf *b, uint32_t at, uint32_t expert) {
    slot *s = &b->slots[at];
    uint32_t before = b->slot_of[expert];
    if (before != NONE) b->slots[before].owner = NONE;
    if (s->owner != NONE) b->slot_of[s->owner] = NONE;
    s->owner = expert;
    b->slot_of[expert] = at;
}

/* The slot used longest ago whose owner is not wanted. There is one: the wanted, and what is
 * coming, are no more than the slots. */
static uint32_t find_victim(const bt_experts *e, const shelf *b) {
    uint32_t found = NONE;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        const slot *s = &b->slots[i];
        if (s->coming || (s->owner != NONE && e->is_wanted[s->owner])) continue;
        if (found == NONE || s->used < b->slots[found].used) found = i;
    }
    return found;
}

/* ---- guesses ---------------------------------------------------------------------------------------------------- */

static bt_status finish_guess(bt_experts *e, uint32_t i, bt_error *err) {
    guesses *g = &e->guesses;
    shelf *b = &e->blocks[g->block];
    slot *s = &b->slots[g->arrivals[i].slot];
    bt_status status = bt_reader_wait(e->reader, g->jobs[i], err);
    g->jobs[i] = -1;
    s->coming = false;
    for (uint32_t p = 0; p < b->facts->n_parts && status == BT_OK; p++)
        arrive(e, b, p, g->arrivals[i]);
    return status;
}

/* Wait for all that are under way. One that failed is not there, and is read again when it is asked for. */
static void settle_guesses(bt_experts *e) {
    for (uint32_t i = 0; i < e->guesses.n; i++)
        if (e->guesses.jobs[i] >= 0) (void)finish_guess(e, i, NULL);
    e->guesses.n = 0;
}

/* The request wants one that is under way. */
static bool wants_guess(const bt_experts *e) {
    const guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n && g->block == e->current; i++)
        if (g->jobs[i] >= 0 && e->is_wanted[g->arrivals[i].expert]) return true;
    return false;
}

static bt_status wait_guesses(bt_experts *e, bt_error *err) {
    guesses *g = &e->guesses;
    for (uint32_t i = 0; i < g->n && g->block == e->current; i++)
        if (g->jobs[i] >= 0 && e->is_wanted[g->arrivals[i].expert]) BT_TRY(finish_guess(e, i, err));
    return BT_OK;
}

static void start_guess(bt_experts *e, shelf *b, uint32_t expert) {
    guesses *g = &e->guesses;
    bt_run runs[BT_EXPERT_PART_MAX];
    arrival a = {expert, find_victim(e, b)};
    slot *s = &b->slots[a.slot];
    int job = -1;
    for (uint32_t p = 0; p < b->facts->n_parts; p++) {
        runs[p] = run_of(e, b, p, a);
        s->holds[p] = NONE;
    }
    own(b, a.slot, expert);
    s->used = e->clock;
    if (bt_reader_start(e->reader, runs, b->facts->n_parts, &job, NULL) != BT_OK) return; /* it is no promise */
    s->coming = true;
    e->stats.guesses++;
    g->arrivals[g->n] = a;
    g->jobs[g->n++] = job;
}

void bt_experts_guess(bt_experts *experts, uint32_t block, const uint32_t *guessed, uint32_t n) {
    shelf *b = &experts->blocks[block];
    uint32_t n_most = (uint32_t)bt_min_u64(n, BT_EXPERT_GUESS_MAX);
    if (experts->shared || block == experts->current || b->n_slots < experts->facts->n_expert_used + n_most) return;
    settle_guesses(experts);
    if (experts->trace) experts->trace(block, guessed, n_most, true, experts->trace_user);
    experts->guesses.block = block;
    memset(experts->is_wanted, 0, experts->facts->n_expert * sizeof *experts->is_wanted);
    for (uint32_t i = 0; i < n_most; i++)
        experts->is_wanted[guessed[i]] = true;
    for (uint32_t i = 0; i < n_most; i++)
        if (!is_there(b, guessed[i])) start_guess(experts, b, guessed[i]);
}

/* ---- a request that fits ---------------------------------------------------------------------------------------- */

static void give_slots(bt_experts *e, shelf *b, const uint32_t *wanted, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (b->slot_of[wanted[i]] == NONE) own(b, find_victim(e, b), wanted[i]);
        b->slots[b->slot_of[wanted[i]]].used = e->clock;
    }
}

/* first: the pass waits for it. */
static bt_status start_job(bt_experts *e, const shelf *b, uint32_t part, const arrival *arrivals, uint32_t n,
                           bool first, int *ret_job, bt_error *err) {
    bt_run runs[JOB_RUNS];
    for (uint32_t i = 0; i < n; i++) {
        runs[i] = run_of(e, b, part, arrivals[i]);
        b->slots[arrivals[i].slot].holds[part] = NONE;
    }
    return first ? bt_reader_start_first(e->reader, runs, n, ret_job, err)
                 : bt_reader_start(e->reader, runs, n, ret_job, err);
}

static bt_status start_part(bt_experts *e, shelf *b, uint32_t part, const uint32_t *wanted, uint32_t n, bt_error *err) {
    part_reads *reads = &e->reads[part];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = b->slot_of[wanted[i]];
        if (!b->slots[at].coming && b->slots[at].holds[part] != wanted[i])
            reads->arrivals[reads->n++] = (arrival){wanted[i], at};
    }
    for (uint32_t i = 0; i < reads->n; i += JOB_RUNS) {
        uint32_t n_runs = (uint32_t)bt_min_u64(reads->n - i, JOB_RUNS);
        int job = -1;
        BT_TRY(start_job(e, b, part, reads->arrivals + i, n_runs, true, &job, err));
        reads->jobs[reads->n_jobs++] = job;
    }
    return BT_OK;
}

bt_status bt_experts_request(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n, uint32_t first_part,
                             bt_error *err) {
    shelf *b = &e->blocks[index];
    if (n > b->n_slots)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, n, b->n_slots, "%u experts at once in %u slots",
                       n, b->n_slots);
    if (n + e->guesses.n > b->n_slots) settle_guesses(e);
    begin(e, index, wanted, n);
    give_slots(e, b, wanted, n);
    /* The reader serves the job that was started last first: the one that is needed first is started last. */
    bt_status status = BT_OK;
    for (uint32_t p = b->facts->n_parts; p-- > 0 && status == BT_OK;)
        if (p != first_part) status = start_part(e, b, p, wanted, n, err);
    if (status == BT_OK) status = start_part(e, b, first_part, wanted, n, err);
    if (status != BT_OK) give_up(e);
    return status;
}

bt_status bt_experts_wait(bt_experts *e, uint32_t part, bt_error *err) {
    part_reads *reads = &e->reads[part];
    bt_status status = BT_OK;
    shelf *b = &e->blocks[e->current];
    if (reads->n_jobs == 0 && !wants_guess(e)) return BT_OK;
    uint64_t since_ns = bt_os_now_ns();
    for (uint32_t i = 0; i < reads->n_jobs && status == BT_OK; i++) {
        if (reads->jobs[i] < 0) continue;
        status = bt_reader_wait(e->reader, reads->jobs[i], err);
        reads->jobs[i] = -1;
        uint32_t first = i * JOB_RUNS, end = (uint32_t)bt_min_u64(reads->n, first + JOB_RUNS);
        for (uint32_t k = first; k < end && status == BT_OK; k++)
            arrive(e, b, part, reads->arrivals[k]);
    }
    if (status == BT_OK) status = wait_guesses(e, err);
    e->stats.wait_ns += bt_os_now_ns() - since_ns;
    if (status == BT_OK)
        reads->n_jobs = reads->n = 0;
    else
        give_up(e);
    return status;
}

uint32_t bt_experts_slot(const bt_experts *experts, uint32_t block, uint32_t expert) {
    return experts->blocks[block].slot_of[expert];
}

/* ---- in turn ---------------------------------------------------------------------------------------------------- */

/* What is there, in the order of slots; then the others by number, which is the order of the file. */
static void make_order(bt_experts *e, const shelf *b) {
    turns *t = &e->turns;
    t->n = 0;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        uint32_t owner = b->slots[i].owner;
        if (owner == NONE || !e->is_wanted[owner] || !is_there(b, owner)) continue;
        t->slot_at[t->n] = i;
        t->order[t->n++] = owner;
        e->is_wanted[owner] = false; /* has its turn */
    }
    t->n_there = t->n;
    for (uint32_t i = 0; i < e->facts->n_expert; i++)
        if (e->is_wanted[i]) t->order[t->n++] = i;
}

/* The k-th slot that the others pass through: first those of nobody who has a turn, then those of whom is there. */
static void give_turns(bt_experts *e, const shelf *b) {
    turns *t = &e->turns;
    uint32_t n = t->n_there; /* positions that have a slot */
    for (uint32_t i = 0, there = 0; i < b->n_slots && n < t->n; i++) {
        if (there < t->n_there && t->slot_at[there] == i)
            there++;
        else
            t->slot_at[n++] = i;
    }
    for (uint32_t i = 0; i < t->n_there && n < t->n; i++)
        t->slot_at[n++] = t->slot_at[i];
    for (; n < t->n; n++)
        t->slot_at[n] = t->slot_at[n - b->n_slots];
}

/* Who stood in the slot of the k-th of the others before it: a position, or NONE. */
static uint32_t position_before(const bt_experts *e, const shelf *b, uint32_t k) {
    const turns *t = &e->turns;
    if (k >= b->n_slots) return t->n_there + k - b->n_slots;
    uint32_t n_free = b->n_slots - t->n_there;
    return k < n_free ? NONE : k - n_free;
}

bt_status bt_experts_request_in_turn(bt_experts *e, uint32_t index, const uint32_t *wanted, uint32_t n,
                                     uint32_t *ret_order, bt_error *err) {
    shelf *b = &e->blocks[index];
    turns *t = &e->turns;
    if (n > e->facts->n_expert)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, n, e->facts->n_expert,
                       "%u different experts, of %u", n, e->facts->n_expert);
    settle_guesses(e);
    begin(e, index, wanted, n);
    e->stats.waves++;
    make_order(e, b);
    give_turns(e, b);
    for (uint32_t i = 0; i < t->n; i++) { /* the last of a slot stays */
        own(b, t->slot_at[i], t->order[i]);
        b->slots[t->slot_at[i]].used = e->clock;
    }
    memset(t->next, 0, sizeof t->next);
    memcpy(ret_order, t->order, t->n * sizeof *ret_order);
    return BT_OK;
}

static bt_status start_ahead(bt_experts *e, shelf *b, uint32_t part, uint32_t position, bt_error *err) {
    turns *t = &e->turns;
    uint32_t n_others = t->n - t->n_there;
    uint32_t now = position < t->n_there ? 0 : position - t->n_there;
    while (t->next[part] < n_others && t->next[part] < now + AHEAD) {
        uint32_t k = t->next[part], before = position_before(e, b, k);
        if (before != NONE && before >= position) break;
        arrival a = {t->order[t->n_there + k], t->slot_at[t->n_there + k]};
        if (b->slots[a.slot].holds[part] != a.expert)
            BT_TRY(start_job(e, b, part, &a, 1, false, &t->jobs[k % AHEAD], err));
        t->next[part]++;
    }
    return BT_OK;
}

static bt_status finish_turn(bt_experts *e, shelf *b, uint32_t part, uint32_t position, bt_error *err) {
    turns *t = &e->turns;
    int *job = &t->jobs[(position - t->n_there) % AHEAD];
    if (*job < 0) return BT_OK;
    uint64_t since_ns = bt_os_now_ns();
    bt_status status = bt_reader_wait(e->reader, *job, err);
    *job = -1;
    e->stats.wait_ns += bt_os_now_ns() - since_ns;
    if (status == BT_OK) arrive(e, b, part, (arrival){t->order[position], t->slot_at[position]});
    return status;
}

bt_status bt_experts_turn(bt_experts *e, uint32_t part, uint32_t position, void **ret_slice, bt_error *err) {
    shelf *b = &e->blocks[e->current];
    turns *t = &e->turns;
    if (position >= t->n)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, position, t->n, "turn %u of %u", position,
                       t->n);
    bt_status status = start_ahead(e, b, part, position, err);
    if (status == BT_OK && position >= t->n_there) status = finish_turn(e, b, part, position, err);
    if (status != BT_OK) {
        give_up(e);
        return status;
    }
    *ret_slice = region_of(e, b, part, t->slot_at[position]) + b->facts->parts[part].shift;
    return BT_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

bt_status bt_experts_read_all(bt_experts *e, uint32_t index, bt_experts_progress progress, void *user, bt_error *err) {
    shelf *b = &e->blocks[index];
    uint64_t done = 0;
    if (b->n_slots < e->facts->n_expert)
        return bt_fail(err, BT_E_ARG, "expert_slots", BT_MEASURE_ITEMS, e->facts->n_expert, b->n_slots,
                       "%u slots for %u experts", b->n_slots, e->facts->n_expert);
    give_up(e);
    drop_guesses(e);
    if (e->shared && e->current != index) forget(e, b);
    turns *t = &e->turns; /* each comes to a slot of its own */
    t->n = e->facts->n_expert;
    t->n_there = 0;
    e->current = index;
    memset(t->next, 0, sizeof t->next);
    for (uint32_t i = 0; i < t->n; i++) {
        t->order[i] = t->slot_at[i] = i;
        own(b, i, i);
    }
    for (uint32_t p = 0; p < b->facts->n_parts; p++) {
        for (uint32_t i = 0; i < t->n; i++) {
            void *slice = NULL;
            BT_TRY(bt_experts_turn(e, p, i, &slice, err));
            done += b->facts->parts[p].slice_bytes;
            if (progress && !progress(done, user)) {
                give_up(e);
                return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "loading was cancelled");
            }
        }
    }
    return BT_OK;
}

void bt_experts_set_trace(bt_experts *e, bt_experts_trace trace, void *user) {
    e->trace = trace;
    e->trace_user = user;
}

void bt_experts_stats_read(const bt_experts *e, bt_experts_stats *ret) {
    *ret = e->stats;
}
