/* SPDX-License-Identifier: MIT
 * account.h: the only owner of big memory.
 *
 * An account has one line per bt_line, each with a cap: the plan's bytes. Address space is reserved freely and only
 * recorded; pages are committed against the cap *before* the system is asked for them (docs/design.md C3), so that what
 * would push a line over its cap, or the sum over the budget, is refused with numbers. Heap lines (base, vocab,
 * metadata, threads, page tables) own no mapping: their use is noted from outside. Thread-safe. */
#pragma once

#include "burthen.h"

typedef struct bt_account bt_account;

/* A stretch of reserved address space on one line. */
typedef struct bt_mapping {
    void *base;               /* page aligned */
    uint64_t bytes;           /* reserved, multiple of the page */
    uint64_t asked_bytes;     /* as asked for */
    uint64_t committed_bytes; /* promised to be touched at most: charged */
    uint64_t lends_bytes;     /* what it was charged in full; what it has not committed of that may be lent */
    bool borrows;             /* lives on what others lend, not on its line's cap */
    bool scattered;           /* what is committed may lie anywhere in it, and was touched at once */
    uint64_t lock_asked_bytes, locked_bytes; /* whole pages */
    bt_line line;
    struct bt_mapping *next, *prev;
} bt_mapping;

typedef struct bt_line_use {
    uint64_t planned_bytes;   /* cap */
    uint64_t reserved_bytes;  /* address space now */
    uint64_t committed_bytes; /* charged now */
    uint64_t peak_committed_bytes;
    uint64_t resident_bytes;      /* measured: pages in memory now (mappings), or the last note (heap lines) */
    uint64_t peak_resident_bytes; /* largest measured so far */
} bt_line_use;

/* caps: one per line; UINT64_MAX = no cap (measuring, or no budget). budget_bytes: cap of the sum; UINT64_MAX = none.
 */
BT_MUST_CHECK bt_status bt_account_open(const uint64_t caps[BT_LINE_COUNT], uint64_t budget_bytes,
                                        bt_account **ret_account, bt_error *err);
uint64_t bt_account_budget_bytes(const bt_account *account); /* as it was opened with */
/* Every mapping must be gone: returns false, and frees what it can, if one is left (a leak). */
bool bt_account_close(bt_account *account);

/* Reserve bytes of address space on a line; commit none of it. 0 bytes reserve one page. */
BT_MUST_CHECK bt_status bt_account_map(bt_account *account, bt_line line, uint64_t bytes, bt_mapping **ret_mapping,
                                       bt_error *err);
/* Charge more of it: from now on committed_bytes more may be touched. BT_E_BUDGET, code "ram_budget", names
 * line / committed / requested / cap in MiB when over; nothing changes then. */
BT_MUST_CHECK bt_status bt_account_commit(bt_account *account, bt_mapping *mapping, uint64_t bytes, bt_error *err);
/* What a commit on a line could get now. */
uint64_t bt_account_left_bytes(bt_account *account, bt_line line);
/* Give back bytes of charge; the caller has dropped the pages. */
void bt_account_release(bt_account *account, bt_mapping *mapping, uint64_t bytes);
/* Move a mapping (and its charge) to another line; refused like a commit. */
BT_MUST_CHECK bt_status bt_account_relabel(bt_account *account, bt_mapping *mapping, bt_line line, bt_error *err);
void bt_account_unmap(bt_account *account, bt_mapping *mapping); /* NULL is fine */

/* ---- lending (docs/design.md S5): what one mapping is sure to need later, another may hold until then ---- */

typedef struct bt_lending {
    uint64_t lendable_bytes; /* charged in full once, not committed now: the sum over all lenders */
    uint64_t lent_bytes;     /* of that, committed by borrowers */
    uint64_t peak_lent_bytes;
    uint64_t resident_bytes; /* of borrowers, when last measured */
} bt_lending;

/* The whole charge of a mapping, whose pages were dropped, becomes lendable: from now on it commits what it touches.
 * Its line's cap and the budget were asked for all of it, so it can always have it back, once what is lent is. */
void bt_account_lend(bt_account *account, bt_mapping *mapping);
/* The mapping lends no more; its charge stays what it has committed. What borrowers hold must fit what the others
 * lend: false, and nothing changes, if it does not. */
bool bt_account_lend_end(bt_account *account, bt_mapping *mapping);
/* Reserve address space whose charges stand on what is lent. A commit of it beyond that is refused (BT_E_BUDGET, code
 * "ram_budget"); so is a commit of a lender that would need what is lent: the borrower releases first. */
BT_MUST_CHECK bt_status bt_account_map_borrower(bt_account *account, bt_line line, uint64_t bytes,
                                                bt_mapping **ret_mapping, bt_error *err);
void bt_account_lending_read(bt_account *account, bt_lending *ret);

/* ---- locking (docs/decisions/015): what is charged stays in memory once it is there ---- */

typedef struct bt_lock_use {
    uint64_t asked_bytes, locked_bytes; /* whole pages, of the mappings that there are */
    int sys;                            /* errno of the first that was refused, 0 if none was */
} bt_lock_use;

/* From now on what is charged is locked, what stands in its way for the system is not: first the mappings that there
 * are, pins before all others, each as a whole; later ones as they are charged. Nothing is brought into memory, and
 * borrowers are left out. A refusal (RLIMIT_MEMLOCK) is counted, and changes nothing else. */
void bt_account_lock(bt_account *account);
/* Before the pages of a mapping are dropped for good. */
void bt_account_unlock(bt_account *account, bt_mapping *mapping);
void bt_account_lock_use(bt_account *account, bt_lock_use *ret);

/* Heap lines: what was measured from outside. It counts as committed on its line and in the sum; it is never refused.
 */
void bt_account_note(bt_account *account, bt_line line, uint64_t resident_bytes);
/* Measure the resident pages of every mapping now and update the peaks. */
void bt_account_measure(bt_account *account);
void bt_account_use(bt_account *account, bt_line line, bt_line_use *ret);
/* What all mappings together, borrowers too, held when last measured, and the most that was measured. */
uint64_t bt_account_mapped_bytes(bt_account *account);
uint64_t bt_account_peak_mapped_bytes(bt_account *account);
/* Committed over all lines. */
uint64_t bt_account_committed_bytes(bt_account *account);
/* Committed on the lines that hold weights: output_norm, embeddings, head, ring, pinned, experts, derived. */
uint64_t bt_account_weights_bytes(bt_account *account);
