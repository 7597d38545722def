/* SPDX-License-Identifier: MIT
 * report.h: machine, facts and plan as text for people and as JSON for scripts (docs/interfaces.md), and back. */
#pragma once

#include "base/text.h"
#include "burthen.h"
#include "memory/account.h"

/* Text: the seed's two layouts ("Execution Plan", "RAM budget impossible"), extended below them. */
void bt_report_plan_text(const bt_plan *plan, const bt_facts *facts, bt_text *out);
void bt_report_facts_text(const bt_facts *facts, bt_text *out);
void bt_report_machine_text(const bt_machine *machine, bt_text *out);

/* Once, before any other call here: the JSON library's memory goes through base/heap.h from now on. engine_version:
 * what llama.cpp says of itself, named in fingerprints and reports; NULL where none is linked. It must stay readable.
 */
void bt_report_init(const char *engine_version);

/* JSON. The _json calls give a string that ends in a newline, to free with bt_heap_free(); BT_E_NOMEM when memory is
 * out, BT_E_LIMIT over BT_JSON_OUT_MAX_BYTES. Numbers over INT64_MAX are written as null: unlimited. Bytes that are no
 * UTF-8 are written as U+FFFD. facts must be those the plan was made of; machine may be NULL. */
#define BT_JSON_OUT_MAX_BYTES (64u << 20)
/* What --mlock came to (lock_text.c). */
typedef struct bt_locked {
    bool wanted;
    uint64_t asked_bytes, locked_bytes; /* whole pages; locked: as the kernel counts them, where it does */
    bool by_limit;                      /* RLIMIT_MEMLOCK stands in the way */
    char reason[160];                   /* why not all is locked, or known to be; else empty */
} bt_locked;
typedef struct bt_measured {
    uint64_t peak_rss_bytes, residual_bytes;
    bt_known cgroup_peak_bytes;
    bt_line_use lines[BT_LINE_COUNT];
    uint64_t pool_bytes, live_bytes, peak_live_bytes, weights_bytes;
    bt_known device_bytes[BT_DEVICE_MAX]; /* that each device of the plan has less free than before loading */
    uint32_t idle_slots, reserved_classes;
    uint32_t prompt_tokens, generated_tokens;
    double load_s, ttft_s, prefill_tokens_per_s, decode_tokens_per_s;
    uint64_t passes;
    uint64_t drafted_tokens, accepted_tokens;
    uint64_t streamed_bytes;
    char reader[16];         /* "io_uring", "pread" */
    char reader_reason[160]; /* why not io_uring; empty where it is, or was not wanted */
    /* Where streamed weights came from in the end, and what both ways cost the computing thread: nanoseconds a MiB; 0:
     * not measured. */
    bool from_page_cache;
    uint64_t cached_bytes; /* of streamed_bytes, through the page cache */
    uint64_t disk_ns_per_mib, cached_ns_per_mib;
    /* Of the different experts that micro-batches chose: there at once, or read; how often there were more of them than
     * slots; what was read; seconds that computing waited for them. */
    uint64_t expert_hits, expert_misses, expert_waves, expert_bytes;
    uint64_t expert_guesses, expert_guesses_used; /* read before they were asked for, and asked for then */
    double expert_wait_s;
    double read_bytes_per_s, io_wait_s, compute_s, roofline_ratio;
    uint64_t elastic_peak_bytes;              /* weights in memory lent by kv and compute, at most */
    uint64_t elastic_taken, elastic_released; /* units */
    bt_layouts layouts;                       /* of weights, at the end */
    uint64_t major_faults, schedules_built, schedules_reused;
    bt_known loop_major_faults; /* from the second token to the last, loop_tokens of them */
    uint32_t loop_tokens;
    bt_locked locked;
    bt_known loop_heap_allocations, loop_heap_growth_bytes; /* from the second token to the last */
} bt_measured;
/* Text: planned | reserved | committed | peak, one row per line that is not all zero, then the total, the weights that
 * were held in what lines had not used yet, the peak of the process, the residual, and what was locked. */
void bt_report_lines_text(const bt_measured *measured, bt_text *out);

/* What each device of the plan holds, under what was planned; nothing where all is on the host. */
void bt_report_devices_text(const bt_plan *plan, const bt_measured *measured, bt_text *out);

/* From what the calls gave and what the kernel says: counted_bytes, VmLck; limit_bytes, RLIMIT_MEMLOCK. */
void bt_locked_make(const bt_lock_use *use, bt_known counted_bytes, bt_known limit_bytes, bt_locked *ret);
/* A sentence when not all is locked; else false, and nothing is appended. most_bytes: what may be asked for until the
 * end, which the remedy names. */
bool bt_report_lock_warning(const bt_locked *locked, uint64_t most_bytes, bt_text *out);
/* What --mlock will ask for at most: the lines of a plan that are mappings. */
uint64_t bt_report_lockable_bytes(const bt_plan *plan);
/* For a plan that wishes it: a line that says whether it will be allowed. */
void bt_report_lock_text(const bt_plan *plan, bool allowed, bt_known limit_bytes, bt_text *out);

/* The row of a plan that says what streamed weights are read from, and how. */
void bt_report_disk_row(const bt_plan *plan, bt_text *out);
/* Weights stream from a disk that is slow, rotates, or is behind a network: a sentence that says what a token costs;
 * else false, and nothing is appended. */
bool bt_report_disk_warning(const bt_plan *plan, bt_text *out);
/* Major faults of a token in the loop; false when too few tokens came. */
bool bt_report_faults_per_token(const bt_measured *measured, double *ret_faults);
/* More of them than a run has whose memory is its own, while weights stream: a sentence with the remedy; else false,
 * and nothing is appended. */
bool bt_report_faults_warning(const bt_plan *plan, const bt_measured *measured, bt_text *out);

BT_MUST_CHECK bt_status bt_report_plan_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                                            char **ret_json, bt_error *err);
BT_MUST_CHECK bt_status bt_report_facts_json(const bt_facts *facts, char **ret_json, bt_error *err);
BT_MUST_CHECK bt_status bt_report_machine_json(const bt_machine *machine, char **ret_json, bt_error *err);
BT_MUST_CHECK bt_status bt_report_stats_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                                             const bt_measured *measured, const char *text, size_t text_bytes,
                                             const int32_t *tokens, uint32_t n_tokens, char **ret_json, bt_error *err);
/* What is kept of a run: what was measured, what it was planned for, the model's and machine's fingerprints; no text,
 * no tokens, no path. ended_s: seconds since 1970. */
BT_MUST_CHECK bt_status bt_report_kept_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                                            const bt_measured *measured, uint64_t ended_s, char **ret_json,
                                            bt_error *err);

/* A report for others to read. Names that say who and where somebody is are taken out of a machine before a plan is
 * made of it: paths of cgroups become "level 0" (the leaf), reasons that hold paths become a plain word. */
void bt_report_machine_anonymize(bt_machine *machine);
/* versions, machine, facts, plan and the last run; paths of facts are shortened to file names. kept: text of
 * bt_report_kept_json, or NULL; one that is not of this model, or none of this schema, is left out. */
BT_MUST_CHECK bt_status bt_report_share_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                                             const char *kept, char **ret_json, bt_error *err);
/* Strict readers: unknown members are ignored, wrong types and ranges are BT_E_FORMAT, code "json", naming the member.
 * Texts over BT_JSON_IN_MAX_BYTES are BT_E_LIMIT. */
#define BT_JSON_IN_MAX_BYTES (16u << 20) /* a plan of 65,536 units is 8 MiB */
BT_MUST_CHECK bt_status bt_machine_from_json(const char *json, size_t n_bytes, bt_machine *ret_machine, bt_error *err);
/* place[] is allocated from the arena, and NULL where the plan placed nothing. */
struct bt_arena;
BT_MUST_CHECK bt_status bt_plan_from_json(const char *json, size_t n_bytes, struct bt_arena *arena, bt_plan *ret_plan,
                                          bt_error *err);

/* What a plan was made for: the model file, the machine, this build. */
typedef struct bt_fingerprint {
    uint64_t model_bytes; /* of all shards */
    int64_t model_mtime_ns;
    char header_sha256[65];
    char machine[17]; /* hash of host total and cores; empty when unknown */
    char build[96];   /* "0.1.0" or "0.1.0 llama.cpp b1234" */
} bt_fingerprint;
void bt_fingerprint_make(const bt_facts *facts, const bt_machine *machine, bt_fingerprint *ret);
/* Of a plan.json. */
BT_MUST_CHECK bt_status bt_fingerprint_from_json(const char *json, size_t n_bytes, bt_fingerprint *ret, bt_error *err);
/* The path of its model, as it was given. */
BT_MUST_CHECK bt_status bt_plan_model_from_json(const char *json, size_t n_bytes, char *ret_path, size_t capacity,
                                                bt_error *err);
/* BT_E_STALE, code "plan_stale", naming both, when the model or the build is another. Machines are not compared. */
BT_MUST_CHECK bt_status bt_fingerprint_check(const bt_fingerprint *of_plan, const bt_fingerprint *now, bt_error *err);
