/* SPDX-License-Identifier: MIT
 * metrics.h: counters and gauges as Prometheus reads them, those of the servers among them. */
#pragma once

#include "base/text.h"
#include "router/usage.h"

#define BT_METRICS_BUCKETS 12u

/* Seconds, in fixed buckets (metrics.c says which). */
typedef struct bt_metrics_histogram {
    uint64_t counts[BT_METRICS_BUCKETS + 1]; /* the last: above all */
    double sum_s;
    uint64_t n;
} bt_metrics_histogram;
void bt_metrics_observe(bt_metrics_histogram *histogram, double seconds);

/* Of one model, added up by who runs it. */
typedef struct bt_metrics_model {
    const char *id, *state;
    uint64_t n_ok, n_error, n_cancelled, n_refused; /* requests that ended so */
    uint64_t n_starts, n_start_failures, n_evictions;
    uint32_t n_running, n_waiting;
    uint64_t prompt_tokens, output_tokens;
    bt_metrics_histogram wait, first_byte, total, start;
    bt_known need_bytes[BT_POOL_MAX], held_bytes[BT_POOL_MAX], peak_bytes[BT_POOL_MAX];
    const char *child_text; /* what the server's own /metrics said, or NULL */
    size_t n_child_text;
} bt_metrics_model;

typedef struct bt_metrics_pool {
    const char *name;
    bt_known limit_bytes, ceiling_bytes, free_bytes, foreign_bytes, held_bytes, measured_bytes;
} bt_metrics_pool;

typedef struct bt_metrics_view {
    const bt_metrics_model *models;
    uint32_t n_models;
    const bt_metrics_pool *pools;
    uint32_t n_pools;
    uint64_t n_requests, n_refused, n_connections, n_open, flow_bytes, bodies_bytes, rss_bytes, uptime_s;
    uint64_t n_events_dropped; /* bt_events_dropped */
} bt_metrics_view;

/* What there is of our own, as docs/metrics.md has it. */
typedef struct bt_metrics_family {
    const char *name, *type; /* "counter", "gauge", "histogram" */
    const char *labels;      /* "model, outcome"; "": none */
    const char *unit;        /* "s", "bytes", "tokens", "requests"... */
    const char *help;
} bt_metrics_family;
/* The whole table: a test holds docs/metrics.md to it. */
const bt_metrics_family *bt_metrics_families(uint32_t *ret_n);

/* Text format 0.0.4: each family once, with HELP and TYPE, labels escaped; a value that is not known has no sample.
 * Names: burthen_... The servers' own families come after ours, under their own names, merged over the models, each
 * sample with a label model="id" more (one of its own becomes exported_model); a family whose type differs between
 * servers, one that is named burthen_..., or a line that is not of the format, is left out and counted
 * (burthen_metrics_left_out). Bounds: scrape.h; what finds no room in out is left out whole. out fails when our own
 * families do not fit, or memory is refused. */
void bt_metrics_text(const bt_metrics_view *view, bt_text *out);
