/* SPDX-License-Identifier: MIT
 *
 * running_measure.c: what a run held, by line, against what was planned; what it read; what of that is said and kept.
 *
 * Mappings know their line. Of the heap it is known how much came after loading: the sampler's part is computed, that
 * of threads is planned, that of a conversation is counted; the rest belongs to graphs. What the process held at its
 * peak that no line explains is the residual. */
#include "cli/running.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/kept.h"
#include "cli/logs.h"
#include "cli/running_internal.h"
#include "device/measured.h"
#include "engine/price.h"
#include "plan/plan.h"
#include "probe/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define REPORT_MAX_BYTES (1u << 20)            /* a table of some lines */
#define LEARN_BYTES      (UINT64_C(256) << 20) /* what a trial of the disk reads at the most (store/disk_speed.c) */
#define LEARN_PER_CENT   10                    /* runs differ by as much */
#define SENTENCE_BYTES   4096                  /* what the log takes */

bool bt_running_wants_lock(const bt_running *running) {
    return running->options->wishes.mlock || running->plan.wishes.mlock; /* the second: of --plan */
}

void bt_running_measure_lock(const bt_running *running, bt_locked *ret) {
    *ret = (bt_locked){0};
    if (!bt_running_wants_lock(running)) return;
    bt_lock_use use;
    bt_account_lock_use(bt_engine_account(running->engine), &use);
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    bt_locked_make(&use, memory.locked_bytes, bt_os_lock_limit_bytes(), ret);
}

void bt_running_warn_of_lock(bt_running *running, const bt_locked *locked) {
    bt_text text;
    bt_text_init(&text, SENTENCE_BYTES);
    if (!running->lock_warned && bt_report_lock_warning(locked, bt_report_lockable_bytes(&running->plan), &text)) {
        bt_log(BT_LOG_WARN, "%s", bt_text_str(&text));
        running->lock_warned = true;
    }
    bt_text_done(&text);
}

/* ---- memory, by line ---- */

/* Heap of graphs. Of two models it is not known whose it is: the draft's is what is above the other's plan. */
static void note_graphs(const bt_running *running, bt_account *account, uint64_t heap_bytes) {
    bt_account_note(account, BT_LINE_COMPUTE, 0);
    if (running->draft) {
        bt_line_use use;
        bt_account_use(account, BT_LINE_COMPUTE, &use);
        uint64_t room = bt_sat_sub_u64(running->plan.ledger.bytes[BT_LINE_COMPUTE], use.committed_bytes);
        uint64_t drafts = bt_sat_sub_u64(heap_bytes, room);
        bt_account_note(account, BT_LINE_DRAFT_COMPUTE, bt_sat_add_u64(bt_draft_heap_bytes(running->draft), drafts));
        heap_bytes -= drafts;
    }
    bt_account_note(account, BT_LINE_COMPUTE, heap_bytes);
}

/* Heap that came after loading belongs to the sampler (planned with the logits) and to graphs (compute). */
static void measure_lines(bt_running *running, bt_measured *measured) {
    bt_account *account = bt_engine_account(running->engine);
    uint64_t freed_bytes = running->draft ? bt_draft_freed_bytes(running->draft) : 0;
    uint64_t loaded_bytes = bt_sat_sub_u64(running->loaded_heap_bytes, freed_bytes);
    uint64_t heap_bytes = bt_sat_sub_u64(bt_engine_heap_bytes(running->engine), loaded_bytes);
    uint64_t sampler_bytes = bt_min_u64(heap_bytes, bt_price_sampler_bytes(running->facts));
    bt_account_note(account, BT_LINE_LOGITS, sampler_bytes);
    heap_bytes -= sampler_bytes;
    /* Stacks of the workers, and what they touch first, are anonymous pages as the heap is. The dry run, which computes
     * nothing, did not see them: they are planned on a line of their own. */
    uint64_t threads_bytes = bt_min_u64(heap_bytes, running->plan.ledger.bytes[BT_LINE_THREADS]);
    bt_account_note(account, BT_LINE_THREADS, threads_bytes);
    heap_bytes -= threads_bytes;
    uint64_t chat_bytes = 0; /* texts and tokens of a conversation: planned on the line staging */
    if (running->options->wishes.chat)
        chat_bytes = bt_min_u64(heap_bytes, bt_sat_sub_u64(bt_heap_live_bytes(), running->loaded_own_bytes));
    if (chat_bytes > 0) bt_account_note(account, BT_LINE_STAGING, chat_bytes);
    note_graphs(running, account, heap_bytes - chat_bytes);
    bt_account_measure(account);
    uint64_t explained = 0;
    uint64_t explained_now = 0;
    uint64_t mapped_now = 0;
    for (int line = 0; line < BT_LINE_COUNT; line++) {
        bt_line_use *use = &measured->lines[line];
        bt_account_use(account, (bt_line)line, use);
        use->planned_bytes = running->plan.ledger.bytes[line]; /* also where there was no budget, and so no cap */
        explained = bt_sat_add_u64(explained, use->peak_resident_bytes);
        explained_now = bt_sat_add_u64(explained_now, use->resident_bytes);
    }
    /* Lines that lend do not peak together: the most that was mapped at once, and the heap, may be more. */
    bt_lending lending;
    bt_account_lending_read(account, &lending);
    mapped_now = bt_account_mapped_bytes(account);
    uint64_t heap_now = bt_sat_sub_u64(bt_sat_add_u64(explained_now, lending.resident_bytes), mapped_now);
    explained = bt_max_u64(explained, bt_sat_add_u64(heap_now, bt_account_peak_mapped_bytes(account)));
    measured->elastic_peak_bytes = lending.peak_lent_bytes;
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    measured->peak_rss_bytes = memory.peak_rss_bytes.value;
    measured->major_faults = memory.major_faults.value;
    measured->residual_bytes = bt_sat_sub_u64(measured->peak_rss_bytes, explained);
}

void bt_running_measure(bt_running *running, bt_measured *measured) {
    measure_lines(running, measured);
    bt_device_measure(bt_engine_device(running->engine), measured);
    for (uint32_t i = 0; running->plan.offload && i < running->plan.offload->split.n_devices; i++)
        measured->device_bytes[i] = bt_engine_device_held_bytes(running->engine, i);
    measured->load_s = (double)bt_engine_load_read(running->engine)->load_ns / 1e9;
    measured->passes = bt_session_passes(running->session);
    bt_running_measure_lock(running, &measured->locked);
}

void bt_running_warn(bt_running *running, const bt_measured *measured) {
    bt_running_warn_of_lock(running, &measured->locked);
    bt_text text;
    bt_text_init(&text, SENTENCE_BYTES);
    if (bt_report_faults_warning(&running->plan, measured, &text)) bt_log(BT_LOG_WARN, "%s", bt_text_str(&text));
    bt_text_done(&text);
}

bt_status bt_running_write_stats(const bt_running *running, const bt_measured *measured, const bt_text *text,
                                 const int32_t *tokens, uint32_t n_tokens, bt_error *err) {
    char *json = NULL;
    BT_TRY(bt_report_stats_json(&running->plan, running->facts, &running->machine, measured, bt_text_str(text),
                                text->n_bytes, tokens, n_tokens, &json, err));
    const char *path = running->options->stats_file;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* it has the text */
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file) (void)close(fd);
    bool ok = file && fputs(json, file) >= 0;
    int sys = errno;
    if (file && fclose(file) != 0) {
        ok = false;
        sys = errno;
    }
    bt_heap_free(json);
    return ok ? BT_OK : bt_fail_sys(err, sys, "stats_file", "cannot write the statistics to %s", path);
}

void bt_running_print_summary(const bt_running *running, const bt_measured *measured) {
    if (running->options->quiet) return;
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    bt_text_addf(&text, "prompt %u tokens at %.1f/s, generated %u at %.1f/s; read %s at %s/s, waited %.2f s",
                 measured->prompt_tokens, measured->prefill_tokens_per_s, measured->generated_tokens,
                 measured->decode_tokens_per_s, BT_SIZE(measured->streamed_bytes),
                 BT_SIZE((uint64_t)measured->read_bytes_per_s), measured->io_wait_s);
    uint64_t n_experts = measured->expert_hits + measured->expert_guesses_used + measured->expert_misses;
    if (n_experts > 0)
        bt_text_addf(&text, ", %.0f %% of experts were there",
                     100.0 * (double)measured->expert_hits / (double)n_experts);
    if (measured->from_page_cache) bt_text_add(&text, ", from the page cache");
    double faults = 0;
    if (bt_report_faults_per_token(measured, &faults)) bt_text_addf(&text, ", %.1f major faults a token", faults);
    bt_text_add(&text, "\n");
    bt_cli_log_table(&text, false);
    bt_text_done(&text);
}

void bt_running_print_lines(const bt_running *running, const bt_measured *measured) {
    if (running->options->quiet) return;
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    bt_report_lines_text(measured, &text);
    bt_report_devices_text(&running->plan, measured, &text);
    bt_cli_log_table(&text, false);
    bt_text_done(&text);
}

/* A disk was tried out at some moment, perhaps a busy one: what a long run read faster since is remembered instead. */
static void learn_disk(const bt_running *running, const bt_measured *measured) {
    bt_disk disk = running->machine.disk;
    bool is_long = measured->streamed_bytes >= LEARN_BYTES && measured->cached_bytes == 0;
    double known = (double)disk.bytes_per_s;
    if (running->options->machine_file || disk.depth == 0 || !is_long) return;
    if (measured->read_bytes_per_s * 100 <= known * (100 + LEARN_PER_CENT)) return;
    disk.bytes_per_s = (uint64_t)measured->read_bytes_per_s;
    bt_disk_keep(&disk);
}

void bt_running_keep(const bt_running *running, const bt_measured *measured) {
    learn_disk(running, measured);
    bt_kept_write(&running->plan, running->facts, &running->machine, measured);
}
