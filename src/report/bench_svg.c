/* SPDX-License-Identifier: MIT
 * bench_svg.c: tokens a second over the budget, as an SVG document of its own.
 *
 *     tok/s |      .--o   decoding            two panels, since a prompt is read some ten times as fast as an
 *           |  .--o                           answer is written; one axis of budgets below both, in MiB; dashed lines
 *           |-o---:--------:---               where the plan begins to run and where all is in memory; a bar from
 *                min     all pinned           the least to the most of the repetitions; a cross where it was refused
 *
 * Colours stand in the document, with others for dark surroundings, and a ground of its own for where neither is known;
 * nothing is loaded from elsewhere. Names come from files and are escaped. Bounds: BT_BENCH_ROW_MAX points a panel,
 * TICKS_MAX ticks an axis. */
#include "base/size.h"
#include "report/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB       1048576.0
#define WIDTH     720
#define HEIGHT    560
#define LEFT      72.0
#define RIGHT     696.0
#define TICKS     5.0  /* wanted on an axis; nice steps give half to twice as many */
#define TICKS_MAX 16   /* however the numbers fall */
#define NAME_MAX  200u /* of a file name that is shown */

/* The colours are two of Okabe and Ito's, which stay apart for eyes that do not see all colours, lighter on dark. */
static const char style[] =
    "<style>\n"
    ".ground{fill:#ffffff}.ink{fill:#24292f}.faint{fill:#57606a}.grid{stroke:#d0d7de}.axis{stroke:#57606a}\n"
    ".mark{stroke:#57606a;stroke-dasharray:4 4}.no{stroke:#cf222e;stroke-width:2}\n"
    ".decode{stroke:#0072b2;fill:none;stroke-width:2}.prefill{stroke:#d55e00;fill:none;stroke-width:2}\n"
    ".decode-dot{fill:#0072b2}.prefill-dot{fill:#d55e00}\n"
    "text{font:12px system-ui,sans-serif}.title{font-size:15px;font-weight:600}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".ground{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#30363d}.axis{stroke:#9198a1}\n"
    ".mark{stroke:#9198a1}.no{stroke:#ff7b72}\n"
    ".decode{stroke:#56b4e9}.prefill{stroke:#e69f00}.decode-dot{fill:#56b4e9}.prefill-dot{fill:#e69f00}\n"
    "}\n</style>\n";

typedef struct axis {
    double low, high, step;
    double at_low, at_high; /* where they stand in the document */
} axis;

typedef struct panel {
    bt_bench_figure figure;
    const char *class, *label;
    axis y;
} panel;

static double place(const axis *a, double value) {
    return a->at_low + (value - a->low) / (a->high - a->low) * (a->at_high - a->at_low);
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them span the range. */
static double nice_step(double range) {
    double rough = range / TICKS;
    double power = pow(10, floor(log10(rough)));
    double times = rough / power;
    double nice = times < 1.5 ? 1 : 2;
    if (times >= 3.5) nice = 5;
    if (times >= 7.5) nice = 10;
    return nice * power;
}

/* An axis over a range, widened to whole steps. */
static axis axis_make(double low, double high, double at_low, double at_high) {
    if (!(high > low)) high = low + fmax(1, low * 0.1); /* one value: some room beside it */
    double step = nice_step(high - low);
    return (axis){floor(low / step) * step, ceil(high / step) * step, step, at_low, at_high};
}

static void add_escaped(bt_text *out, const char *s) {
    size_t n = bt_utf8_fit(s, strnlen(s, NAME_MAX));
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(s + i, n - i);
        if (length == 0 || bt_utf8_is_control(s + i, length))
            bt_text_add(out, "?");
        else if (strchr("&<>\"'", s[i]))
            bt_text_addf(out, "&#%d;", s[i]);
        else
            bt_text_add_n(out, s + i, length);
        i += length ? length : 1;
    }
}

static void add_label(bt_text *out, double x, double y, const char *anchor, const char *class, const char *label) {
    bt_text_addf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", class, x, y, anchor,
                 label);
}

static void add_line(bt_text *out, const char *class, double x1, double y1, double x2, double y2) {
    bt_text_addf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

/* ---- axes ------------------------------------------------------------------------------------------------------- */

static void add_y_ticks(bt_text *out, const panel *p) {
    for (int i = 0; i <= TICKS_MAX && p->y.low + i * p->y.step <= p->y.high + p->y.step / 2; i++) {
        double value = p->y.low + i * p->y.step;
        char label[32];
        (void)snprintf(label, sizeof label, "%.6g", value);
        add_line(out, "grid", LEFT, place(&p->y, value), RIGHT, place(&p->y, value));
        add_label(out, LEFT - 8, place(&p->y, value) + 4, "end", "faint", label);
    }
}

static void add_x_ticks(bt_text *out, const axis *x, const panel *p) {
    double bottom = p->y.at_low;
    add_line(out, "axis", LEFT, bottom, RIGHT, bottom);
    for (int i = 0; i <= TICKS_MAX && x->low + i * x->step <= x->high + x->step / 2; i++) {
        double value = x->low + i * x->step;
        char label[32];
        (void)snprintf(label, sizeof label, "%.6g", value);
        add_line(out, "axis", place(x, value), bottom, place(x, value), bottom + 5);
        add_label(out, place(x, value), bottom + 19, "middle", "faint", label);
    }
}

static void add_mark(bt_text *out, const axis *x, const panel *p, bt_known bytes, const char *label, bool labelled) {
    if (!bytes.known) return;
    double at = (double)bytes.value / MIB;
    if (at < x->low || at > x->high) return;
    add_line(out, "mark", place(x, at), p->y.at_low, place(x, at), p->y.at_high);
    bool is_left = place(x, at) < (LEFT + RIGHT) / 2;
    if (labelled)
        add_label(out, place(x, at) + (is_left ? 4 : -4), p->y.at_high + 12, is_left ? "start" : "end", "faint", label);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static double budget_mib(const bt_bench_row *row) {
    uint64_t bytes = row->budget_bytes == UINT64_MAX ? row->planned_bytes : row->budget_bytes;
    return (double)bytes / MIB;
}

/* Rows by budget: their numbers, least first. */
static void sort_rows(const bt_bench *bench, uint32_t order[BT_BENCH_ROW_MAX]) {
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        uint32_t at = i;
        for (; at > 0 && budget_mib(&bench->rows[order[at - 1]]) > budget_mib(&bench->rows[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void add_curve(bt_text *out, const bt_bench *bench, const uint32_t *order, const axis *x, const panel *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        const bt_bench_row *row = &bench->rows[order[i]];
        bt_bench_spread s = bt_bench_spread_of(row, p->figure);
        if (!s.known) continue;
        if (n++ == 0) bt_text_addf(out, "<polyline class=\"%s\" points=\"", p->class);
        bt_text_addf(out, "%.1f,%.1f ", place(x, budget_mib(row)), place(&p->y, s.median));
    }
    if (n > 0) bt_text_add(out, "\"/>\n");
}

static void add_cross(bt_text *out, double x, double y) {
    add_line(out, "no", x - 5, y - 5, x + 5, y + 5);
    add_line(out, "no", x - 5, y + 5, x + 5, y - 5);
}

static void add_points(bt_text *out, const bt_bench *bench, const axis *x, const panel *p) {
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        const bt_bench_row *row = &bench->rows[i];
        double at = place(x, budget_mib(row));
        bt_bench_spread s = bt_bench_spread_of(row, p->figure);
        if (row->refusal.code[0]) add_cross(out, at, p->y.at_low);
        if (!s.known) continue;
        add_line(out, p->class, at, place(&p->y, s.min), at, place(&p->y, s.max));
        bt_text_addf(out,
                     "<circle class=\"%s-dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%.1f MiB: %.2f tok/s "
                     "(%.2f to %.2f)</title></circle>\n",
                     p->class, at, place(&p->y, s.median), budget_mib(row), s.median, s.min, s.max);
    }
}

static double highest(const bt_bench *bench, bt_bench_figure figure) {
    double most = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        bt_bench_spread s = bt_bench_spread_of(&bench->rows[i], figure);
        if (s.known) most = fmax(most, s.max);
    }
    return most;
}

/* From the least budget, or the minimum if that is less, to the most. */
static axis x_axis(const bt_bench *bench) {
    double low = INFINITY;
    double high = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++) {
        low = fmin(low, budget_mib(&bench->rows[i]));
        high = fmax(high, budget_mib(&bench->rows[i]));
    }
    const bt_known marks[] = {bench->minimum_bytes, bench->all_pinned_bytes};
    for (int i = 0; i < 2; i++) {
        if (!marks[i].known) continue;
        low = fmin(low, (double)marks[i].value / MIB);
        high = fmax(high, (double)marks[i].value / MIB);
    }
    return axis_make(bench->n_rows > 0 ? low : 0, high, LEFT, RIGHT);
}

static void add_legend(bt_text *out, const panel *p, double x, double y) {
    add_line(out, p->class, x, y - 4, x + 24, y - 4);
    bt_text_addf(out, "<circle class=\"%s-dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", p->class, x + 12, y - 4);
    add_label(out, x + 32, y, "start", "ink", p->label);
}

static void add_legend_refused(bt_text *out, const bt_bench *bench, double x, double y) {
    bool any = false;
    for (uint32_t i = 0; i < bench->n_rows; i++)
        any |= bench->rows[i].refusal.code[0] != '\0';
    if (!any) return;
    add_cross(out, x + 12, y - 4);
    add_label(out, x + 32, y, "start", "ink", "refused");
}

static void add_title(bt_text *out, const bt_bench *bench, const char *file) {
    bt_text_addf(out, "<text class=\"ink title\" x=\"%.1f\" y=\"24\">", LEFT);
    add_escaped(out, file);
    bt_text_addf(out, "</text>\n<text class=\"faint\" x=\"%.1f\" y=\"42\">", LEFT);
    uint32_t n_sequences = bt_bench_sequences(bench);
    if (n_sequences > 1) bt_text_addf(out, "%u sequences at once, of each ", n_sequences);
    bt_text_addf(out, "%u tokens of prompt, %u more one by one; ", bench->n_prompt, bench->n_gen);
    bt_text_addf(out, "median of %u repetition%s, bars from the least to the most</text>\n", bench->n_repetitions,
                 bench->n_repetitions == 1 ? "" : "s");
}

void bt_bench_svg(const bt_bench *bench, const char *file, bt_text *out) {
    panel panels[] = {
        {.figure = BT_BENCH_DECODE, .class = "decode", .label = "decoding, tokens a second"},
        {.figure = BT_BENCH_PREFILL, .class = "prefill", .label = "prompt, tokens a second"},
    };
    const double tops[] = {84, 322};
    const double height = 180;
    uint32_t order[BT_BENCH_ROW_MAX];
    axis x = x_axis(bench);
    sort_rows(bench, order);
    bt_text_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                 "role=\"img\">\n<title>tokens a second over the memory budget</title>\n",
                 WIDTH, HEIGHT, WIDTH, HEIGHT);
    bt_text_add(out, style);
    bt_text_addf(out, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    add_title(out, bench, file);
    add_legend_refused(out, bench, LEFT + 240, tops[0] - 12);
    for (size_t i = 0; i < sizeof panels / sizeof *panels; i++) {
        panel *p = &panels[i];
        p->y = axis_make(0, highest(bench, p->figure), tops[i] + height, tops[i]);
        add_y_ticks(out, p);
        add_x_ticks(out, &x, p);
        add_mark(out, &x, p, bench->minimum_bytes, "least that runs", i == 0);
        add_mark(out, &x, p, bench->all_pinned_bytes, "all in memory", i == 0);
        add_curve(out, bench, order, &x, p);
        add_points(out, bench, &x, p);
        add_legend(out, p, LEFT, tops[i] - 12);
    }
    add_label(out, (LEFT + RIGHT) / 2, HEIGHT - 16, "middle", "ink", "memory budget, MiB");
    bt_text_add(out, "</svg>\n");
}
