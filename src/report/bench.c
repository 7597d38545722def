/* SPDX-License-Identifier: MIT
 * bench.c: figures of a measurement.
 *
 * The roofline ratio is the time of a token by what it takes at least: the time in which its bytes are read by the
 * reader alone, or the time in which it is computed, whichever is longer (docs/design.md section 15). Where nothing is
 * read it is the time by computing alone. Several sequences share a pass: a token is one of any of them, so each costs
 * its part of the pass. Repetitions are few and the machine is shared, so a row is a median with the
 * least and the most beside it, never a mean. */
#include "report/bench.h"

#include <math.h>
#include <stdlib.h>

#define NS 1e9

const char *const bt_bench_figure_names[BT_BENCH_FIGURE_COUNT] = {
#define X(name, text) text,
    BT_BENCH_FIGURE_MAP(X)
#undef X
};

static double rate(uint64_t count, uint64_t ns) {
    return count > 0 && ns > 0 ? (double)count * NS / (double)ns : (double)NAN;
}

/* Nanoseconds that reading and computing take at least, for all tokens of a repetition. What is read only when it is
 * asked for (experts) has no pass to read it bare: there it is the time in which the disk was at work. */
static double read_ns(const bt_bench_repetition *r) {
    if (r->bare_bytes == 0) return r->read_bytes > 0 ? (double)r->busy_ns : 0;
    return (double)r->read_bytes * (double)r->bare_ns / (double)r->bare_bytes;
}

static double ratio(const bt_bench_repetition *r) {
    double least = fmax(read_ns(r), (double)r->compute_ns);
    return least > 0 ? (double)r->decode_ns / least : (double)NAN;
}

uint32_t bt_bench_sequences(const bt_bench *bench) {
    for (uint32_t i = 0; i < bench->n_rows; i++)
        if (bench->rows[i].n_repetitions > 0) return bench->rows[i].n_parallel;
    return 1;
}

double bt_bench_figure_of(const bt_bench_row *row, const bt_bench_repetition *r, bt_bench_figure figure) {
    uint64_t n_sequences = row->n_parallel;
    double n_gen = (double)(row->n_gen * n_sequences);
    switch (figure) {
    case BT_BENCH_PREFILL:
        return rate(row->n_prompt * n_sequences, r->prompt_ns);
    case BT_BENCH_DECODE:
        return rate(row->n_gen * n_sequences, r->decode_ns);
    case BT_BENCH_BYTES:
        return (double)r->read_bytes / n_gen;
    case BT_BENCH_READ:
        return rate(r->read_bytes, r->busy_ns);
    case BT_BENCH_BARE:
        return rate(r->bare_bytes, r->bare_ns);
    case BT_BENCH_WAIT:
        return (double)r->wait_ns / NS / n_gen;
    case BT_BENCH_COMPUTE:
        return (double)r->compute_ns / NS / n_gen;
    case BT_BENCH_FAULTS:
        return (double)r->major_faults / n_gen;
    case BT_BENCH_RATIO:
        return ratio(r);
    case BT_BENCH_FIGURE_COUNT:
        break;
    }
    return (double)NAN;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

bt_bench_spread bt_bench_spread_of(const bt_bench_row *row, bt_bench_figure figure) {
    double values[BT_BENCH_REPETITION_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->n_repetitions && i < BT_BENCH_REPETITION_MAX; i++) {
        double value = bt_bench_figure_of(row, &row->repetitions[i], figure);
        if (isfinite(value)) values[n++] = value;
    }
    if (n == 0) return (bt_bench_spread){0};
    qsort(values, n, sizeof *values, by_value);
    return (bt_bench_spread){
        .known = true, .median = (values[(n - 1) / 2] + values[n / 2]) / 2, .min = values[0], .max = values[n - 1]};
}

double bt_bench_read_s(const bt_bench_row *row) {
    bt_bench_spread bytes = bt_bench_spread_of(row, BT_BENCH_BYTES);
    bt_bench_spread bandwidth = bt_bench_spread_of(row, BT_BENCH_BARE);
    if (!bandwidth.known) bandwidth = bt_bench_spread_of(row, BT_BENCH_READ);
    bool reads = bytes.known && bytes.median > 0 && bandwidth.known && bandwidth.median > 0;
    return reads ? bytes.median / bandwidth.median : 0;
}

bt_bound bt_bench_bound(const bt_bench_row *row) {
    bt_bench_spread compute = bt_bench_spread_of(row, BT_BENCH_COMPUTE);
    double read_s = bt_bench_read_s(row);
    return read_s > 0 && read_s > compute.median ? BT_BOUND_DISK : BT_BOUND_COMPUTE;
}
