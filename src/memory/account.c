/* SPDX-License-Identifier: MIT
 * account.c: lines with caps, and the mappings that stand on them.
 *
 *     line kv     [####################..........]  cap = the plan's bytes
 *                  charged by commits     left
 *     all lines   [###########################...]  budget
 *
 * A commit is a comparison under one lock, made before any page exists: left = cap - charged, for the line and for the
 * sum, and the smaller of the two decides. Nothing here touches memory; the pages of a charge appear when their owner
 * writes to them. What heap lines are measured to hold counts as charged on them: it cannot be refused any more, but it
 * is no longer free for others either.
 *
 * Lending: a mapping that was charged in full may take its charge back and commit as it grows; a borrower commits what
 * is left of that meanwhile. Charges of borrowers count in the sum, never on a line: their cap is what is lent.
 *
 *     lender    [####committed####|........ lendable ........]
 *     borrower                     [#### lent ####]            lent <= lendable, checked by the commits of both
 *
 * Bound: 65536 mappings (the kernel's own default, vm.max_map_count, is 65530). Left out: which mapping to give up when
 * memory is short; that is the plan's business, and the answer here is always a refusal with numbers. */
#include "memory/account.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "plan/plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define MAPPING_MAX 65536u
/* Records that need no heap: a model and its context take some 30, and a new kind of graph in the token loop, which
 * allocates nothing, two more. */
#define RECORD_MAX 64u

typedef struct account_line {
    uint64_t cap_bytes;
    uint64_t reserved_bytes;
    uint64_t committed_bytes; /* charged by mappings */
    uint64_t lendable_bytes;  /* may be charged again by those that lend */
    uint64_t noted_bytes;     /* charged by the last note */
    uint64_t peak_committed_bytes;
    uint64_t resident_bytes; /* of mappings, when last measured */
    uint64_t peak_resident_bytes;
} account_line;

struct bt_account {
    pthread_mutex_t lock; /* everything below */
    uint64_t budget_bytes;
    uint64_t charged_bytes; /* committed and noted, over all lines */
    account_line lines[BT_LINE_COUNT];
    bt_lending lending;
    uint64_t mapped_bytes, peak_mapped_bytes; /* as measured, over all lines and borrowers */
    bt_mapping *first;
    uint32_t n_mappings;
    bt_mapping records[RECORD_MAX];
    bt_mapping *spare; /* of those, a list by next */
    bool locks;
    int lock_sys; /* errno of the first lock that was refused */
};

/* Under the lock. NULL: no memory. */
static bt_mapping *record_new(bt_account *account) {
    bt_mapping *record = account->spare;
    if (!record) return bt_heap_alloc(sizeof *record);
    account->spare = record->next;
    return record;
}

/* Under the lock. */
static void record_free(bt_account *account, bt_mapping *record) {
    if (record < account->records || record >= account->records + RECORD_MAX) {
        bt_heap_free(record);
        return;
    }
    record->next = account->spare;
    account->spare = record;
}

static bool is_line(bt_line at) {
    return (unsigned)at < (unsigned)BT_LINE_COUNT;
}

bt_status bt_account_open(const uint64_t caps[BT_LINE_COUNT], uint64_t budget_bytes, bt_account **ret_account,
                          bt_error *err) {
    bt_account *account = bt_heap_alloc(sizeof *account);
    if (!account) return bt_fail_sys(err, ENOMEM, "heap", "cannot make the memory account");
    int sys = pthread_mutex_init(&account->lock, NULL);
    if (sys != 0) {
        bt_heap_free(account);
        return bt_fail_sys(err, sys, "lock", "cannot make the memory account");
    }
    account->budget_bytes = budget_bytes;
    for (uint32_t i = RECORD_MAX; i > 0; i--)
        record_free(account, &account->records[i - 1]);
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        account->lines[i].cap_bytes = caps[i];
    }
    *ret_account = account;
    return BT_OK;
}

bool bt_account_close(bt_account *account) {
    if (!account) return true;
    bool empty = account->first == NULL;
    for (bt_mapping *mapping = account->first; mapping;) {
        bt_mapping *next = mapping->next;
        (void)bt_os_unreserve(mapping->base, mapping->bytes);
        record_free(account, mapping);
        mapping = next;
    }
    (void)pthread_mutex_destroy(&account->lock);
    bt_heap_free(account);
    return empty;
}

static bt_status map(bt_account *account, bt_line line, uint64_t bytes, bool borrows, bt_mapping **ret_mapping,
                     bt_error *err) {
    uint64_t rounded = 0;
    if (!is_line(line) || !bt_align_up_u64(bytes ? bytes : 1, bt_os_page_bytes(), &rounded)) {
        return bt_fail(err, BT_E_ARG, "mapping_size", BT_MEASURE_BYTES, bytes, UINT64_MAX,
                       "no mapping of %llu bytes on line %u can exist", (unsigned long long)bytes, (unsigned)line);
    }
    pthread_mutex_lock(&account->lock);
    if (account->n_mappings >= MAPPING_MAX) {
        pthread_mutex_unlock(&account->lock);
        return bt_fail(err, BT_E_LIMIT, "mapping_count", BT_MEASURE_ITEMS, (uint64_t)MAPPING_MAX + 1, MAPPING_MAX,
                       "host/%s: more than %u mappings", bt_line_name(line), MAPPING_MAX);
    }
    bt_mapping *mapping = record_new(account);
    if (!mapping) {
        pthread_mutex_unlock(&account->lock);
        return bt_fail_sys(err, ENOMEM, "heap", "cannot record a mapping");
    }
    errno = 0;
    void *base = bt_os_reserve(rounded);
    int sys = base ? 0 : errno ? errno : ENOMEM;
    if (base) {
        *mapping = (bt_mapping){.base = base, .bytes = rounded, .asked_bytes = bytes, .borrows = borrows, .line = line};
        mapping->next = account->first;
        if (mapping->next) mapping->next->prev = mapping;
        account->first = mapping;
        account->n_mappings++;
        account->lines[line].reserved_bytes = bt_sat_add_u64(account->lines[line].reserved_bytes, rounded);
    } else {
        record_free(account, mapping);
    }
    pthread_mutex_unlock(&account->lock);
    if (!base) {
        return bt_fail_sys(err, sys, "reserve_failed", "host/%s: the system refused %s of address space",
                           bt_line_name(line), BT_SIZE(rounded));
    }
    *ret_mapping = mapping;
    return BT_OK;
}

bt_status bt_account_map(bt_account *account, bt_line line, uint64_t bytes, bt_mapping **ret_mapping, bt_error *err) {
    return map(account, line, bytes, false, ret_mapping, err);
}

/* ---- charging, under the lock ---------------------------------------------------------------------------------- */

static uint64_t line_charge(const account_line *l) {
    return l->committed_bytes + l->noted_bytes; /* both are part of charged_bytes, which never wraps */
}

static void raise_peak(account_line *l) {
    l->peak_committed_bytes = bt_max_u64(l->peak_committed_bytes, line_charge(l));
}

/* Lines that hold weights of the model, as opposed to what computing needs. */
static const bt_line weight_lines[] = {
    BT_LINE_OUTPUT_NORM, BT_LINE_EMBEDDINGS, BT_LINE_HEAD,          BT_LINE_RING,           BT_LINE_PINNED,
    BT_LINE_EXPERTS,     BT_LINE_DERIVED,    BT_LINE_DRAFT_WEIGHTS, BT_LINE_MMPROJ_WEIGHTS,
};

static uint64_t weights_charge(const bt_account *account) {
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof weight_lines / sizeof *weight_lines; i++) {
        sum += line_charge(&account->lines[weight_lines[i]]);
    }
    return sum;
}

#define MIB_TEXT 40

/* Refusals speak MiB throughout, so that their numbers can be compared at a glance: one decimal, or three below one
 * MiB. Rounded to the nearest; bt_error has the exact ones. */
static const char *mib(uint64_t bytes, char text[MIB_TEXT]) {
    uint64_t whole = bytes >> 20;
    uint64_t rest = bytes & 0xFFFFF;
    unsigned parts = whole || !rest ? 10 : 1000;
    uint64_t part = (rest * parts + (UINT64_C(1) << 19)) >> 20;
    if (part == parts) {
        part = 0;
        whole++;
    }
    (void)snprintf(text, MIB_TEXT, "%llu.%0*llu MiB", (unsigned long long)whole, parts == 10 ? 1 : 3,
                   (unsigned long long)part);
    return text;
}

#define MIB(bytes) mib((bytes), (char[MIB_TEXT]){0})

/* Charged, or sure to be asked for again by those that lend. Borrowers hold what is lendable. */
static uint64_t promised(const bt_account *account) {
    const bt_lending *lending = &account->lending;
    return bt_sat_add_u64(account->charged_bytes, bt_sat_sub_u64(lending->lendable_bytes, lending->lent_bytes));
}

static uint64_t line_left(const bt_account *account, bt_line at) {
    const account_line *l = &account->lines[at];
    return bt_sat_sub_u64(l->cap_bytes, bt_sat_add_u64(line_charge(l), l->lendable_bytes));
}

uint64_t bt_account_left_bytes(bt_account *account, bt_line line) {
    pthread_mutex_lock(&account->lock);
    uint64_t left = bt_min_u64(line_left(account, line), bt_sat_sub_u64(account->budget_bytes, promised(account)));
    pthread_mutex_unlock(&account->lock);
    return left;
}

/* May bytes more be charged on a line, of which moved are charged elsewhere already, and own are what a lender takes
 * back? A move adds nothing to the sum: even an overdrawn budget does not keep a charge on the wrong line. */
static bt_status check_charge(const bt_account *account, bt_line at, uint64_t bytes, uint64_t moved, uint64_t own,
                              bt_error *err) {
    const account_line *l = &account->lines[at];
    uint64_t line_bytes = bt_sat_add_u64(line_left(account, at), own);
    uint64_t budget_left =
        bt_sat_add_u64(bt_sat_sub_u64(account->budget_bytes, promised(account)), bt_sat_add_u64(moved, own));
    uint64_t left = bt_min_u64(line_bytes, budget_left);
    if (bytes <= left) return BT_OK;
    if (budget_left <= line_bytes) {
        return bt_fail(
            err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, bytes, left,
            "host/%s needs %s, %s left of %s (ram budget): short by %s; %s are committed, %s of them weights",
            bt_line_name(at), MIB(bytes), MIB(left), MIB(account->budget_bytes), MIB(bytes - left),
            MIB(account->charged_bytes), MIB(weights_charge(account)));
    }
    return bt_fail(err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, bytes, left,
                   "host/%s needs %s, %s left of %s (planned for this line): short by %s; %s are committed on it",
                   bt_line_name(at), MIB(bytes), MIB(left), MIB(l->cap_bytes), MIB(bytes - left), MIB(line_charge(l)));
}

/* What a lender commits, it no longer lends; what a borrower commits, is lent. */
static bt_status check_lending(const bt_account *account, const bt_mapping *mapping, uint64_t bytes, bt_error *err) {
    const bt_lending *lending = &account->lending;
    bool lends = mapping->lends_bytes > mapping->committed_bytes;
    if (!lends && !mapping->borrows) return BT_OK;
    uint64_t left = bt_sat_sub_u64(lending->lendable_bytes, lending->lent_bytes);
    uint64_t moved = lends ? bt_min_u64(bytes, mapping->lends_bytes - mapping->committed_bytes) : bytes;
    if (moved <= left) return BT_OK;
    return bt_fail(err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, moved, left,
                   "host/%s needs %s, %s left of %s that may be lent: short by %s", bt_line_name(mapping->line),
                   MIB(moved), MIB(left), MIB(lending->lendable_bytes), MIB(moved - left));
}

/* The commit of a mapping on the lines and in what is lent; it was checked. */
static void charge(bt_account *account, bt_mapping *mapping, uint64_t bytes) {
    bt_lending *lending = &account->lending;
    uint64_t lent_back = bt_min_u64(bytes, bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes));
    lending->lendable_bytes -= lent_back;
    account->lines[mapping->line].lendable_bytes -= lent_back;
    mapping->committed_bytes += bytes;
    account->charged_bytes += bytes; /* <= budget_bytes <= UINT64_MAX: check_charge */
    if (mapping->borrows) {
        lending->lent_bytes += bytes;
        lending->peak_lent_bytes = bt_max_u64(lending->peak_lent_bytes, lending->lent_bytes);
        return;
    }
    account_line *l = &account->lines[mapping->line];
    l->committed_bytes += bytes;
    raise_peak(l);
}

/* May it be committed on its line and in the sum? A borrower stands on no line. */
static bt_status check_mapping(const bt_account *account, const bt_mapping *mapping, uint64_t bytes, bt_error *err) {
    BT_TRY(check_lending(account, mapping, bytes, err));
    if (mapping->borrows) return BT_OK;
    uint64_t own = bt_min_u64(bytes, bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes));
    return check_charge(account, mapping->line, bytes, 0, own, err);
}

/* ---- locking, under the lock ------------------------------------------------------------------------------------ */

static void lock_range(bt_account *account, bt_mapping *mapping, uint64_t offset, uint64_t bytes, bool may_fill) {
    int rc = bt_os_lock((uint8_t *)mapping->base + offset, bytes, may_fill);
    mapping->lock_asked_bytes += bytes;
    if (rc == 0) mapping->locked_bytes += bytes;
    if (rc < 0 && account->lock_sys == 0) account->lock_sys = -rc;
}

/* Of a scattered mapping the pages that are there: its gaps count for RLIMIT_MEMLOCK as if they were memory. */
static void lock_resident(bt_account *account, bt_mapping *mapping) {
    const uint8_t *base = mapping->base;
    for (uint64_t at = 0; at < mapping->bytes;) {
        int64_t gap = bt_os_run_bytes(base + at, mapping->bytes - at, false);
        if (gap < 0) return;
        at += (uint64_t)gap;
        int64_t run = bt_os_run_bytes(base + at, mapping->bytes - at, true);
        if (run <= 0) return;
        lock_range(account, mapping, at, (uint64_t)run, true);
        at += (uint64_t)run;
    }
}

/* What is charged of it and was not asked for yet. A lender has all that it was charged once: the pages that it has
 * lent are locked when they come. */
static void lock_mapping(bt_account *account, bt_mapping *mapping) {
    uint64_t charge = 0;
    uint64_t promised_bytes = bt_max_u64(mapping->committed_bytes, mapping->lends_bytes);
    if (mapping->borrows || !bt_align_up_u64(promised_bytes, bt_os_page_bytes(), &charge)) return;
    charge = bt_min_u64(charge, mapping->bytes);
    if (charge <= mapping->lock_asked_bytes) return;
    if (!mapping->scattered)
        lock_range(account, mapping, mapping->lock_asked_bytes, charge - mapping->lock_asked_bytes,
                   mapping->lends_bytes == 0);
    else if (mapping->lock_asked_bytes == 0)
        lock_resident(account, mapping);
}

bt_status bt_account_commit(bt_account *account, bt_mapping *mapping, uint64_t bytes, bt_error *err) {
    pthread_mutex_lock(&account->lock);
    bt_status status = BT_OK;
    uint64_t room = bt_sat_sub_u64(mapping->bytes, mapping->committed_bytes);
    if (bytes > room) {
        status = bt_fail(err, BT_E_LIMIT, "commit_bounds", BT_MEASURE_BYTES, bytes, room,
                         "host/%s: %llu bytes to commit, %llu of the mapping's %llu left", bt_line_name(mapping->line),
                         (unsigned long long)bytes, (unsigned long long)room, (unsigned long long)mapping->bytes);
    } else {
        status = check_mapping(account, mapping, bytes, err);
    }
    if (status == BT_OK) charge(account, mapping, bytes);
    if (status == BT_OK && account->locks) lock_mapping(account, mapping);
    pthread_mutex_unlock(&account->lock);
    return status;
}

/* Under the lock. */
static void release(bt_account *account, bt_mapping *mapping, uint64_t bytes) {
    uint64_t given = bt_min_u64(bytes, mapping->committed_bytes);
    uint64_t lendable_before = bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes);
    mapping->committed_bytes -= given;
    uint64_t lendable_more = bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes) - lendable_before;
    account->lending.lendable_bytes += lendable_more;
    account->lines[mapping->line].lendable_bytes += lendable_more;
    if (mapping->borrows)
        account->lending.lent_bytes -= given;
    else
        account->lines[mapping->line].committed_bytes -= given;
    account->charged_bytes -= given;
}

void bt_account_release(bt_account *account, bt_mapping *mapping, uint64_t bytes) {
    pthread_mutex_lock(&account->lock);
    release(account, mapping, bytes);
    pthread_mutex_unlock(&account->lock);
}

bt_status bt_account_relabel(bt_account *account, bt_mapping *mapping, bt_line line, bt_error *err) {
    if (!is_line(line)) {
        return bt_fail(err, BT_E_ARG, "mapping_line", BT_MEASURE_NONE, 0, 0, "there is no line %u", (unsigned)line);
    }
    pthread_mutex_lock(&account->lock);
    bt_status status = BT_OK;
    if (line != mapping->line) {
        uint64_t charge = mapping->committed_bytes;
        uint64_t lendable = bt_sat_sub_u64(mapping->lends_bytes, charge);
        status = check_charge(account, line, charge + lendable, charge + lendable, 0, err);
        if (status == BT_OK) {
            account_line *from = &account->lines[mapping->line];
            account_line *l = &account->lines[line];
            from->committed_bytes -= charge;
            from->lendable_bytes -= lendable;
            from->reserved_bytes -= mapping->bytes;
            l->committed_bytes += charge;
            l->lendable_bytes += lendable;
            l->reserved_bytes = bt_sat_add_u64(l->reserved_bytes, mapping->bytes);
            mapping->line = line;
            raise_peak(l);
        }
    }
    pthread_mutex_unlock(&account->lock);
    return status;
}

/* ---- lending ---- */

void bt_account_lend(bt_account *account, bt_mapping *mapping) {
    pthread_mutex_lock(&account->lock);
    if (!mapping->borrows && mapping->lends_bytes == 0) {
        mapping->lends_bytes = mapping->committed_bytes;
        release(account, mapping, mapping->committed_bytes);
    }
    pthread_mutex_unlock(&account->lock);
}

/* Under the lock. */
static bool lend_end(bt_account *account, bt_mapping *mapping) {
    bt_lending *lending = &account->lending;
    uint64_t lendable = bt_sat_sub_u64(mapping->lends_bytes, mapping->committed_bytes);
    if (lending->lent_bytes > lending->lendable_bytes - lendable) return false;
    lending->lendable_bytes -= lendable;
    account->lines[mapping->line].lendable_bytes -= lendable;
    mapping->lends_bytes = 0;
    return true;
}

bool bt_account_lend_end(bt_account *account, bt_mapping *mapping) {
    pthread_mutex_lock(&account->lock);
    bool ended = lend_end(account, mapping);
    pthread_mutex_unlock(&account->lock);
    return ended;
}

bt_status bt_account_map_borrower(bt_account *account, bt_line line, uint64_t bytes, bt_mapping **ret_mapping,
                                  bt_error *err) {
    return map(account, line, bytes, true, ret_mapping, err);
}

void bt_account_lending_read(bt_account *account, bt_lending *ret) {
    pthread_mutex_lock(&account->lock);
    *ret = account->lending;
    pthread_mutex_unlock(&account->lock);
}

/* ---- locking ---------------------------------------------------------------------------------------------------- */

/* Weights first, which else are read again, then what each token writes. */
static const bt_line lock_order[] = {BT_LINE_PINNED,  BT_LINE_HEAD,    BT_LINE_EMBEDDINGS, BT_LINE_OUTPUT_NORM,
                                     BT_LINE_EXPERTS, BT_LINE_DERIVED, BT_LINE_RING,       BT_LINE_COMPUTE,
                                     BT_LINE_KV,      BT_LINE_LOGITS,  BT_LINE_METADATA};

void bt_account_lock(bt_account *account) {
    pthread_mutex_lock(&account->lock);
    account->locks = true;
    for (size_t i = 0; i < sizeof lock_order / sizeof *lock_order; i++)
        for (bt_mapping *mapping = account->first; mapping; mapping = mapping->next)
            if (mapping->line == lock_order[i]) lock_mapping(account, mapping);
    for (bt_mapping *mapping = account->first; mapping; mapping = mapping->next)
        lock_mapping(account, mapping); /* of other lines */
    pthread_mutex_unlock(&account->lock);
}

void bt_account_unlock(bt_account *account, bt_mapping *mapping) {
    pthread_mutex_lock(&account->lock);
    if (mapping->locked_bytes > 0) (void)bt_os_unlock(mapping->base, mapping->bytes); /* or it is unmapped locked */
    mapping->lock_asked_bytes = mapping->locked_bytes = 0;
    pthread_mutex_unlock(&account->lock);
}

void bt_account_lock_use(bt_account *account, bt_lock_use *ret) {
    pthread_mutex_lock(&account->lock);
    *ret = (bt_lock_use){.sys = account->lock_sys};
    for (const bt_mapping *mapping = account->first; mapping; mapping = mapping->next) {
        ret->asked_bytes += mapping->lock_asked_bytes;
        ret->locked_bytes += mapping->locked_bytes;
    }
    pthread_mutex_unlock(&account->lock);
}

void bt_account_unmap(bt_account *account, bt_mapping *mapping) {
    if (!mapping) return;
    pthread_mutex_lock(&account->lock);
    release(account, mapping, mapping->committed_bytes);
    /* A lender that goes while it lends leaves a debt, which refuses every commit until it is paid back. */
    account->lending.lendable_bytes -= mapping->lends_bytes;
    account->lines[mapping->line].lendable_bytes -= mapping->lends_bytes;
    mapping->lends_bytes = 0;
    account->lines[mapping->line].reserved_bytes -= mapping->bytes;
    if (mapping->prev)
        mapping->prev->next = mapping->next;
    else
        account->first = mapping->next;
    if (mapping->next) mapping->next->prev = mapping->prev;
    account->n_mappings--;
    (void)bt_os_unreserve(mapping->base, mapping->bytes);
    record_free(account, mapping);
    pthread_mutex_unlock(&account->lock);
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

void bt_account_note(bt_account *account, bt_line line, uint64_t resident_bytes) {
    if (!is_line(line)) return;
    pthread_mutex_lock(&account->lock);
    account_line *l = &account->lines[line];
    account->charged_bytes -= l->noted_bytes;
    /* Saturating, so that a nonsense note refuses everything that follows instead of wrapping to a small sum. */
    l->noted_bytes = bt_min_u64(resident_bytes, UINT64_MAX - account->charged_bytes);
    account->charged_bytes += l->noted_bytes;
    raise_peak(l);
    l->peak_resident_bytes = bt_max_u64(l->peak_resident_bytes, bt_sat_add_u64(l->resident_bytes, l->noted_bytes));
    pthread_mutex_unlock(&account->lock);
}

void bt_account_measure(bt_account *account) {
    uint64_t resident[BT_LINE_COUNT] = {0};
    uint64_t borrowed = 0;
    pthread_mutex_lock(&account->lock);
    for (const bt_mapping *mapping = account->first; mapping; mapping = mapping->next) {
        int64_t bytes = bt_os_resident_bytes(mapping->base, mapping->bytes);
        if (bytes > 0) *(mapping->borrows ? &borrowed : &resident[mapping->line]) += (uint64_t)bytes;
    }
    account->lending.resident_bytes = borrowed;
    uint64_t mapped = borrowed;
    for (unsigned i = 0; i < BT_LINE_COUNT; i++) {
        account_line *l = &account->lines[i];
        mapped += resident[i];
        l->resident_bytes = resident[i];
        l->peak_resident_bytes = bt_max_u64(l->peak_resident_bytes, bt_sat_add_u64(l->resident_bytes, l->noted_bytes));
    }
    account->mapped_bytes = mapped;
    account->peak_mapped_bytes = bt_max_u64(account->peak_mapped_bytes, mapped);
    pthread_mutex_unlock(&account->lock);
}

void bt_account_use(bt_account *account, bt_line line, bt_line_use *ret) {
    *ret = (bt_line_use){0};
    if (!is_line(line)) return;
    pthread_mutex_lock(&account->lock);
    const account_line *l = &account->lines[line];
    *ret = (bt_line_use){
        .planned_bytes = l->cap_bytes,
        .reserved_bytes = l->reserved_bytes,
        .committed_bytes = line_charge(l),
        .peak_committed_bytes = l->peak_committed_bytes,
        .resident_bytes = bt_sat_add_u64(l->resident_bytes, l->noted_bytes),
        .peak_resident_bytes = l->peak_resident_bytes,
    };
    pthread_mutex_unlock(&account->lock);
}

uint64_t bt_account_mapped_bytes(bt_account *account) {
    pthread_mutex_lock(&account->lock);
    uint64_t bytes = account->mapped_bytes;
    pthread_mutex_unlock(&account->lock);
    return bytes;
}

uint64_t bt_account_peak_mapped_bytes(bt_account *account) {
    pthread_mutex_lock(&account->lock);
    uint64_t bytes = account->peak_mapped_bytes;
    pthread_mutex_unlock(&account->lock);
    return bytes;
}

uint64_t bt_account_budget_bytes(const bt_account *account) {
    return account->budget_bytes;
}

uint64_t bt_account_committed_bytes(bt_account *account) {
    pthread_mutex_lock(&account->lock);
    uint64_t bytes = account->charged_bytes;
    pthread_mutex_unlock(&account->lock);
    return bytes;
}

uint64_t bt_account_weights_bytes(bt_account *account) {
    pthread_mutex_lock(&account->lock);
    uint64_t bytes = weights_charge(account);
    pthread_mutex_unlock(&account->lock);
    return bytes;
}
