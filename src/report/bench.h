/* SPDX-License-Identifier: MIT
 * bench.h: what `burthen bench` measured, as plain data: repetitions, the figures made of them, and how they are shown.
 *
 * A row is one budget. What was counted is kept as it was (bytes, nanoseconds); a figure is computed where it is
 * wanted, so that repetitions of several processes can be put together. */
#pragma once

#include "base/text.h"
#include "burthen.h"

#define BT_BENCH_ROW_MAX        32u  /* budgets in one table or plot that can still be told apart */
#define BT_BENCH_REPETITION_MAX 100u /* of a row */

/* One prompt and the tokens after it, of each sequence. */
typedef struct bt_bench_repetition {
    uint64_t prompt_ns, decode_ns;
    /* while decoding */
    uint64_t passes;              /* in each a token of every sequence, or of as many as a micro-batch holds */
    uint64_t read_bytes, busy_ns; /* by the reader; time with a request in flight */
    uint64_t wait_ns, compute_ns; /* for units; in the CPU backend */
    uint64_t major_faults;
    uint64_t bare_bytes, bare_ns; /* the reader alone, just before and just after */
} bt_bench_repetition;

typedef struct bt_bench_row {
    char asked[24];        /* "25%", "300M"; empty: what --ram-budget says */
    uint64_t budget_bytes; /* UINT64_MAX: none */
    bt_verdict verdict;
    bt_refusal refusal;                 /* code empty unless refused; then nothing below is known but planned_bytes */
    uint64_t planned_bytes, peak_bytes; /* peak: VmHWM, of the process that measured */
    uint64_t pinned_bytes, streamed_bytes; /* of the units that every token uses */
    uint64_t planned_read_bytes;           /* for each token */
    uint32_t n_ctx, n_ubatch, n_threads, n_parallel;
    uint32_t n_prompt, n_gen; /* of each of n_parallel sequences */
    uint32_t n_repetitions;
    bt_bench_repetition repetitions[BT_BENCH_REPETITION_MAX];
} bt_bench_row;

typedef struct bt_bench {
    uint32_t n_prompt, n_gen, n_repetitions; /* as asked */
    bt_choice elastic;
    bt_io_mode io;
    bt_known minimum_bytes, all_pinned_bytes; /* of the ladder, at this context */
    uint32_t n_rows;
    bt_bench_row rows[BT_BENCH_ROW_MAX];
} bt_bench;

/* ---- figures (bench.c) ------------------------------------------------------------------------------------------ */

#define BT_BENCH_FIGURE_MAP(X)                                                                                         \
    X(PREFILL, "prefill_tokens_per_s")                                                                                 \
    X(DECODE, "decode_tokens_per_s")                                                                                   \
    X(BYTES, "read_bytes_per_token")                                                                                   \
    X(READ, "read_bytes_per_s")                                                                                        \
    X(BARE, "bare_bytes_per_s")                                                                                        \
    X(WAIT, "io_wait_s_per_token")                                                                                     \
    X(COMPUTE, "compute_s_per_token")                                                                                  \
    X(FAULTS, "major_faults_per_token")                                                                                \
    X(RATIO, "roofline_ratio")

typedef enum bt_bench_figure {
#define X(name, text) BT_BENCH_##name,
    BT_BENCH_FIGURE_MAP(X)
#undef X
        BT_BENCH_FIGURE_COUNT
} bt_bench_figure;
extern const char *const bt_bench_figure_names[BT_BENCH_FIGURE_COUNT];

/* Sequences at once, of the rows that ran; 1 where none did. */
uint32_t bt_bench_sequences(const bt_bench *bench);
/* NaN where it is not known: a bandwidth where nothing was read. */
double bt_bench_figure_of(const bt_bench_row *row, const bt_bench_repetition *repetition, bt_bench_figure figure);

typedef struct bt_bench_spread {
    bool known;
    double median, min, max;
} bt_bench_spread;
/* Over the repetitions that know it. */
bt_bench_spread bt_bench_spread_of(const bt_bench_row *row, bt_bench_figure figure);
/* Seconds that reading a token alone takes: by the bare bandwidth, or by the reader's own rate where there is no bare
 * pass (experts, which are read when they are asked for). 0: nothing is read. */
double bt_bench_read_s(const bt_bench_row *row);
/* What a token would take at least: DISK where reading it alone takes longer than computing it. */
bt_bound bt_bench_bound(const bt_bench_row *row);

/* ---- budgets to measure at (bench_budgets.c) -------------------------------------------------------------------- */

typedef struct bt_bench_budget {
    char asked[24]; /* as it was written */
    bool is_share;
    uint32_t milli_percent; /* of the way from the minimum (0) to all pinned (100,000) */
    uint64_t bytes;         /* where it is no share */
} bt_bench_budget;

/* "25%,50%,300M": BT_E_ARG, code "vs_budget", naming what is wrong. */
BT_MUST_CHECK bt_status bt_bench_budgets_parse(const char *list, bt_bench_budget ret[BT_BENCH_ROW_MAX], uint32_t *ret_n,
                                               bt_error *err);
uint64_t bt_bench_budget_bytes(const bt_bench_budget *budget, uint64_t minimum_bytes, uint64_t all_pinned_bytes);

/* ---- shown ------------------------------------------------------------------------------------------------------ */

/* A table of one line a row, then a sentence on what bounds decoding. file: the model's. */
void bt_bench_text(const bt_bench *bench, const char *file, bt_text *out);
/* Tokens a second over the budget, a panel for decoding and one for prompts; a whole SVG document. */
void bt_bench_svg(const bt_bench *bench, const char *file, bt_text *out);
/* As bt_report_plan_json. */
BT_MUST_CHECK bt_status bt_bench_json(const bt_bench *bench, const bt_facts *facts, const bt_machine *machine,
                                      char **ret_json, bt_error *err);
/* The first row of such a JSON; asked is left empty. BT_E_FORMAT, code "json". */
BT_MUST_CHECK bt_status bt_bench_row_from_json(const char *json, size_t n_bytes, bt_bench_row *ret, bt_error *err);
