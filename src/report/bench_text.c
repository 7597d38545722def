/* SPDX-License-Identifier: MIT
 * bench_text.c: what was measured, as two tables: what a budget gives, then where the time of a token goes.
 *
 *            budget    planned       peak  pinned  prefill tok/s        decode tok/s
 *       25%  95.2 MiB   95.1 MiB   93.0 MiB    31 %          120.3  18.20 (17.90-18.40)
 *
 *            MB/token  read MB/s  bare MB/s  wait ms  compute ms  ratio
 *       25%      62.1       1200       1310     10.2        44.0   0.93
 *
 * Side by side they are 145 columns; one below the other they fit BT_HELP_COLUMNS, with names of budgets up to 12
 * bytes. Memory is in binary units, as everywhere; what is read in millions of bytes, as disks are sold. A budget that
 * was refused says why instead. Below: where the prompt was cut, and what bounds decoding. */
#include "base/size.h"
#include "report/bench.h"

#include <stdio.h>
#include <string.h>

#define MEGA       1e6
#define MILLI      1e3
#define CELL_BYTES 32u

typedef struct column {
    const char *title;
    int width, decimals;
    bt_bench_figure figure;
    double scale;
} column;

static const column columns[] = {
    {"MB/token", 8, 1, BT_BENCH_BYTES, 1 / MEGA},   {"read MB/s", 9, 0, BT_BENCH_READ, 1 / MEGA},
    {"bare MB/s", 9, 0, BT_BENCH_BARE, 1 / MEGA},   {"wait ms", 7, 1, BT_BENCH_WAIT, MILLI},
    {"compute ms", 10, 1, BT_BENCH_COMPUTE, MILLI}, {"ratio", 5, 2, BT_BENCH_RATIO, 1},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static void add_number(bt_text *out, int width, int decimals, bt_bench_spread spread, double scale) {
    if (spread.known)
        bt_text_addf(out, "  %*.*f", width, decimals, spread.median * scale);
    else
        bt_text_addf(out, "  %*s", width, "-");
}

static void add_speed(bt_text *out, const bt_bench_row *row) {
    char cell[CELL_BYTES] = "-";
    bt_bench_spread decode = bt_bench_spread_of(row, BT_BENCH_DECODE);
    if (decode.known && row->n_repetitions > 1)
        (void)snprintf(cell, sizeof cell, "%.2f (%.2f-%.2f)", decode.median, decode.min, decode.max);
    else if (decode.known)
        (void)snprintf(cell, sizeof cell, "%.2f", decode.median);
    bt_text_addf(out, "  %22s", cell);
}

/* How wide the names of the budgets are; 0: there are none. */
static int name_width(const bt_bench *bench) {
    size_t width = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++)
        width = bt_max_u64(width, strlen(bench->rows[i].asked));
    return (int)width;
}

static void add_budget(bt_text *out, const bt_bench_row *row) {
    bt_text_addf(out, "  %11s", row->budget_bytes == UINT64_MAX ? "none" : BT_SIZE(row->budget_bytes));
}

static void add_row(bt_text *out, const bt_bench_row *row, int width) {
    if (width > 0) bt_text_addf(out, "  %-*s", width, row->asked);
    add_budget(out, row);
    if (row->refusal.code[0]) {
        bt_text_add(out, "  refused: ");
        bt_text_add(out, row->refusal.message);
        bt_text_add(out, "\n");
        return;
    }
    uint64_t units_bytes = bt_sat_add_u64(row->pinned_bytes, row->streamed_bytes);
    bt_text_addf(out, "  %11s  %11s", BT_SIZE(row->planned_bytes), BT_SIZE(row->peak_bytes));
    if (units_bytes > 0)
        bt_text_addf(out, "  %4u %%", (unsigned)bt_mul_div_u64(row->pinned_bytes, 100, units_bytes));
    else
        bt_text_addf(out, "  %6s", "-");
    add_number(out, 13, 1, bt_bench_spread_of(row, BT_BENCH_PREFILL), 1);
    add_speed(out, row);
    bt_text_add(out, "\n");
}

/* Of one budget without a name the budget is it. */
static void add_times(bt_text *out, const bt_bench *bench, int width) {
    bool begun = false;
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        const bt_bench_row *row = &bench->rows[i];
        if (row->refusal.code[0]) continue;
        if (!begun) {
            bt_text_addf(out, "\n  %*s", width > 0 ? width : 11, width > 0 ? "" : "budget");
            for (size_t k = 0; k < N_COLUMNS; k++)
                bt_text_addf(out, "  %*s", columns[k].width, columns[k].title);
            bt_text_add(out, "\n");
            begun = true;
        }
        if (width > 0)
            bt_text_addf(out, "  %-*s", width, row->asked);
        else
            add_budget(out, row);
        for (size_t k = 0; k < N_COLUMNS; k++)
            add_number(out, columns[k].width, columns[k].decimals, bt_bench_spread_of(row, columns[k].figure),
                       columns[k].scale);
        bt_text_add(out, "\n");
    }
}

static void add_head(bt_text *out, const bt_bench *bench, const char *file) {
    uint32_t n_threads = 0;
    for (uint32_t i = 0; i < bench->n_rows && n_threads == 0; i++)
        n_threads = bench->rows[i].n_threads;
    bt_text_add_escaped(out, file, strlen(file));
    uint32_t n_sequences = bt_bench_sequences(bench);
    bt_text_add(out, ": ");
    if (n_sequences > 1) bt_text_addf(out, "%u sequences at once, of each ", n_sequences);
    bt_text_addf(out, "%u pseudo-random tokens of prompt, %u more one by one; %u repetition%s", bench->n_prompt,
                 bench->n_gen, bench->n_repetitions, bench->n_repetitions == 1 ? "" : "s");
    if (n_threads > 0) bt_text_addf(out, ", %u thread%s", n_threads, n_threads == 1 ? "" : "s");
    bt_text_add(out, "\n\n");
    if (name_width(bench) > 0) bt_text_addf(out, "  %-*s", name_width(bench), "");
    bt_text_addf(out, "  %11s  %11s  %11s  %6s  %13s  %22s\n", "budget", "planned", "peak", "pinned", "prefill tok/s",
                 "decode tok/s");
}

/* ---- below the table -------------------------------------------------------------------------------------------- */

static const char *name_of(const bt_bench_row *row, char text[BT_SIZE_TEXT]) {
    return row->asked[0] ? row->asked : bt_size_format(row->budget_bytes, text);
}

static void add_cuts(bt_text *out, const bt_bench *bench) {
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        const bt_bench_row *row = &bench->rows[i];
        char size[BT_SIZE_TEXT];
        if (row->n_repetitions == 0 || row->n_prompt == bench->n_prompt) continue;
        bt_text_addf(out, "%s: the prompt was cut to %u tokens, which is what the context of %u holds beside %u more\n",
                     row->budget_bytes == UINT64_MAX ? "here" : name_of(row, size), row->n_prompt,
                     row->n_ctx / (uint32_t)bt_max_u64(row->n_parallel, 1), row->n_gen);
    }
}

static uint32_t count_bound(const bt_bench *bench, bt_bound bound) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++)
        n += bench->rows[i].n_repetitions > 0 && bt_bench_bound(&bench->rows[i]) == bound;
    return n;
}

static void add_names(bt_text *out, const bt_bench *bench, bt_bound bound) {
    const char *before = "";
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        const bt_bench_row *row = &bench->rows[i];
        char size[BT_SIZE_TEXT];
        if (row->n_repetitions == 0 || bt_bench_bound(row) != bound) continue;
        bt_text_addf(out, "%s%s", before, name_of(row, size));
        before = ", ";
    }
}

static void add_why(bt_text *out, const bt_bench_row *row) {
    bt_bench_spread compute = bt_bench_spread_of(row, BT_BENCH_COMPUTE);
    double read_s = bt_bench_read_s(row);
    if (read_s > 0)
        bt_text_addf(out, ": reading a token alone takes %.1f ms, computing it %.1f ms", read_s * MILLI,
                     compute.median * MILLI);
    else
        bt_text_add(out, ": nothing is read");
}

static void add_bound(bt_text *out, const bt_bench *bench) {
    uint32_t n_disk = count_bound(bench, BT_BOUND_DISK);
    uint32_t n_compute = count_bound(bench, BT_BOUND_COMPUTE);
    if (n_disk + n_compute == 0) return;
    bt_text_add(out, "\nDecoding is bound by ");
    if (n_disk > 0 && n_compute > 0) {
        bt_text_add(out, "the disk at ");
        add_names(out, bench, BT_BOUND_DISK);
        bt_text_add(out, ", by computing at ");
        add_names(out, bench, BT_BOUND_COMPUTE);
    } else {
        bt_text_add(out, n_disk > 0 ? "the disk" : "computing");
        if (n_disk + n_compute > 1)
            bt_text_add(out, " at every budget");
        else
            for (uint32_t i = 0; i < bench->n_rows; i++)
                if (bench->rows[i].n_repetitions > 0) add_why(out, &bench->rows[i]);
    }
    bt_text_add(out, ".\n");
}

void bt_bench_text(const bt_bench *bench, const char *file, bt_text *out) {
    add_head(out, bench, file);
    for (uint32_t i = 0; i < bench->n_rows; i++)
        add_row(out, &bench->rows[i], name_width(bench));
    add_times(out, bench, name_width(bench));
    add_cuts(out, bench);
    add_bound(out, bench);
}
