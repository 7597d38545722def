/* SPDX-License-Identifier: MIT
 * metrics.c: what the router counts, as Prometheus reads it.
 *
 * One table says what there is: name, type, labels, unit and meaning. The text is made from it, and docs/metrics.md is
 * held to it by a test. Names follow Prometheus's own rules: base units, _total for what only grows. What is not known
 * has no sample: a 0 would be a claim.
 *
 * Seconds are counted in buckets that are three apart up to 15 s, where requests and first tokens are, and two from
 * there, where models start: BOUNDS. The servers' own metrics come last (scrape.c), so that one of them that says a
 * great deal takes room from nobody but itself and those after it.
 *
 * Bound: the text's own maximum. All numbers are written without the locale's help. */
#include "router/metrics.h"
#include "router/exposition.h"
#include "router/policy.h"
#include "router/scrape.h"

#include <math.h>
#include <string.h>

enum {
    REQUESTS,
    RUNNING,
    WAITING,
    WAIT_SECONDS,
    FIRST_BYTE_SECONDS,
    REQUEST_SECONDS,
    TOKENS,
    STATE,
    STARTS,
    START_FAILURES,
    EVICTIONS,
    START_SECONDS,
    MODEL_BYTES,
    POOL_BYTES,
    HTTP_REQUESTS,
    HTTP_REFUSED,
    HTTP_CONNECTIONS,
    HTTP_OPEN,
    FLOW_BYTES,
    BODY_BYTES,
    EVENTS_DROPPED,
    RESIDENT_BYTES,
    UPTIME_SECONDS,
    LEFT_OUT,
    N_FAMILIES,
};

static const bt_metrics_family families[N_FAMILIES] = {
    [REQUESTS] = {"burthen_requests_total", "counter", "model, outcome", "requests",
                  "Requests to a model that have ended, by outcome: ok, error, cancelled, refused"},
    [RUNNING] = {"burthen_requests_running", "gauge", "model", "requests", "Requests that a model answers now"},
    [WAITING] = {"burthen_requests_waiting", "gauge", "model", "requests", "Requests that wait for a model now"},
    [WAIT_SECONDS] = {"burthen_request_wait_seconds", "histogram", "model", "s",
                      "Time from a request's arrival until it was given to its model"},
    [FIRST_BYTE_SECONDS] = {"burthen_request_first_byte_seconds", "histogram", "model", "s",
                            "Time from a request's arrival until the first byte of its answer"},
    [REQUEST_SECONDS] = {"burthen_request_seconds", "histogram", "model", "s",
                         "Time from a request's arrival until its end"},
    [TOKENS] = {"burthen_tokens_total", "counter", "model, kind", "tokens",
                "Tokens as the answers say them, by kind: prompt (with those that were cached), output"},
    [STATE] = {"burthen_model_state", "gauge", "model, state", "0 or 1", "1 for the state that a model is in"},
    [STARTS] = {"burthen_model_starts_total", "counter", "model", "starts", "Starts of a model's server"},
    [START_FAILURES] = {"burthen_model_start_failures_total", "counter", "model", "starts",
                        "Starts after which a model's server did not become ready"},
    [EVICTIONS] = {"burthen_model_evictions_total", "counter", "model", "evictions",
                   "Times that a model was stopped for another, or for memory that other programs need"},
    [START_SECONDS] = {"burthen_model_start_seconds", "histogram", "model", "s",
                       "Time from the start of a model's server until it was ready"},
    [MODEL_BYTES] =
        {"burthen_model_bytes", "gauge", "model, pool, kind", "bytes",
         "Memory of a model in a pool, by kind: need (a start takes it), held (charged now), peak (measured)"},
    [POOL_BYTES] = {"burthen_pool_bytes", "gauge", "pool, kind", "bytes",
                    "Memory of a pool, by kind: limit (budget), ceiling (of it, what others leave), free (as the "
                    "system says), foreign (others' use), held (charged), measured"},
    [HTTP_REQUESTS] = {"burthen_http_requests_total", "counter", "", "requests",
                       "Requests that the router was asked, of all paths"},
    [HTTP_REFUSED] = {"burthen_http_refused_total", "counter", "", "requests",
                      "Requests that were refused by key, Host, Origin, size or another limit"},
    [HTTP_CONNECTIONS] = {"burthen_http_connections", "gauge", "", "connections", "Connections of clients now"},
    [HTTP_OPEN] = {"burthen_http_requests_open", "gauge", "", "requests", "Requests that have not ended yet"},
    [FLOW_BYTES] = {"burthen_flow_bytes", "gauge", "", "bytes", "Memory of answers on their way through the router"},
    [BODY_BYTES] = {"burthen_body_bytes", "gauge", "", "bytes", "Memory of the bodies of requests"},
    [EVENTS_DROPPED] = {"burthen_events_dropped_total", "counter", "", "events",
                        "Events that were not kept: too long, not of the form, or no memory"},
    [RESIDENT_BYTES] = {"burthen_resident_bytes", "gauge", "", "bytes", "Resident memory of the router itself"},
    [UPTIME_SECONDS] = {"burthen_uptime_seconds", "gauge", "", "s", "Time since the router started"},
    [LEFT_OUT] = {"burthen_metrics_left_out", "gauge", "model", "lines",
                  "Lines of a server's own metrics that are not below"},
};

/* Under 0.005 s nobody waits; 300 s is longer than a start of a model may take. */
static const double bounds[BT_METRICS_BUCKETS] = {0.005, 0.015, 0.05, 0.15, 0.5, 1.5, 5, 15, 30, 60, 120, 300};
static const char *const bound_names[BT_METRICS_BUCKETS + 1] = {"0.005", "0.015", "0.05", "0.15", "0.5", "1.5", "5",
                                                                "15",    "30",    "60",   "120",  "300", "+Inf"};

const bt_metrics_family *bt_metrics_families(uint32_t *ret_n) {
    *ret_n = N_FAMILIES;
    return families;
}

void bt_metrics_observe(bt_metrics_histogram *histogram, double seconds) {
    if (isnan(seconds)) return;
    if (seconds < 0) seconds = 0; /* a clock that was set back */
    uint32_t i = 0;
    while (i < BT_METRICS_BUCKETS && seconds > bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->n++;
    histogram->sum_s += seconds;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Names and values in turn, then NULL. */
#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_LABELS   ((const char *const[]){NULL})

static void begin(bt_text *out, uint32_t family) {
    const bt_metrics_family *f = &families[family];
    bt_text_addf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
}

/* A sample up to its value. */
static void put_name(bt_text *out, uint32_t family, const char *part, const char *const *labels) {
    bt_text_addf(out, "%s%s", families[family].name, part);
    for (uint32_t i = 0; labels[i]; i += 2) {
        bt_text_addf(out, "%s%s=\"", i == 0 ? "{" : ",", labels[i]);
        bt_exposition_escape(out, labels[i + 1]);
        bt_text_add(out, "\"");
    }
    bt_text_add(out, labels[0] ? "} " : " ");
}

static void put(bt_text *out, uint32_t family, const char *const *labels, uint64_t value) {
    put_name(out, family, "", labels);
    bt_text_addf(out, "%llu\n", (unsigned long long)value);
}

static void put_known(bt_text *out, uint32_t family, const char *const *labels, bt_known value) {
    if (value.known) put(out, family, labels, value.value);
}

static void put_alone(bt_text *out, uint32_t family, uint64_t value) {
    begin(out, family);
    put(out, family, NO_LABELS, value);
}

static void put_histogram(bt_text *out, uint32_t family, const char *model, const bt_metrics_histogram *h) {
    uint64_t n = 0;
    for (uint32_t i = 0; i <= BT_METRICS_BUCKETS; i++) {
        n += h->counts[i];
        put_name(out, family, "_bucket", LABELS("model", model, "le", bound_names[i]));
        bt_text_addf(out, "%llu\n", (unsigned long long)n);
    }
    /* microseconds in 64 bits: 30,000 years of waiting */
    uint64_t sum_us = h->sum_s < 1e12 ? (uint64_t)(h->sum_s * 1e6 + 0.5) : UINT64_C(1000000000000000000);
    put_name(out, family, "_sum", LABELS("model", model));
    bt_text_addf(out, "%llu.%06llu\n", (unsigned long long)(sum_us / 1000000), (unsigned long long)(sum_us % 1000000));
    put_name(out, family, "_count", LABELS("model", model));
    bt_text_addf(out, "%llu\n", (unsigned long long)n);
}

/* The samples of one model in one family. */
static void put_model(bt_text *out, uint32_t family, const bt_metrics_model *m) {
    const char *const *model = LABELS("model", m->id);
    switch (family) {
    case REQUESTS:
        put(out, family, LABELS("model", m->id, "outcome", "ok"), m->n_ok);
        put(out, family, LABELS("model", m->id, "outcome", "error"), m->n_error);
        put(out, family, LABELS("model", m->id, "outcome", "cancelled"), m->n_cancelled);
        put(out, family, LABELS("model", m->id, "outcome", "refused"), m->n_refused);
        break;
    case RUNNING:
        put(out, family, model, m->n_running);
        break;
    case WAITING:
        put(out, family, model, m->n_waiting);
        break;
    case WAIT_SECONDS:
        put_histogram(out, family, m->id, &m->wait);
        break;
    case FIRST_BYTE_SECONDS:
        put_histogram(out, family, m->id, &m->first_byte);
        break;
    case REQUEST_SECONDS:
        put_histogram(out, family, m->id, &m->total);
        break;
    case TOKENS:
        put(out, family, LABELS("model", m->id, "kind", "prompt"), m->prompt_tokens);
        put(out, family, LABELS("model", m->id, "kind", "output"), m->output_tokens);
        break;
    case STATE:
        for (bt_model_state s = BT_MODEL_STOPPED; s <= BT_MODEL_FAILED; s++) {
            const char *name = bt_model_state_name(s);
            put(out, family, LABELS("model", m->id, "state", name), m->state && strcmp(name, m->state) == 0);
        }
        break;
    case STARTS:
        put(out, family, model, m->n_starts);
        break;
    case START_FAILURES:
        put(out, family, model, m->n_start_failures);
        break;
    case EVICTIONS:
        put(out, family, model, m->n_evictions);
        break;
    default:
        put_histogram(out, family, m->id, &m->start);
    }
}

static void put_memory(bt_text *out, const bt_metrics_view *view) {
    begin(out, MODEL_BYTES);
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_metrics_model *m = &view->models[i];
        for (uint32_t k = 0; k < view->n_pools && k < BT_POOL_MAX; k++) {
            const char *pool = view->pools[k].name;
            put_known(out, MODEL_BYTES, LABELS("model", m->id, "pool", pool, "kind", "need"), m->need_bytes[k]);
            put_known(out, MODEL_BYTES, LABELS("model", m->id, "pool", pool, "kind", "held"), m->held_bytes[k]);
            put_known(out, MODEL_BYTES, LABELS("model", m->id, "pool", pool, "kind", "peak"), m->peak_bytes[k]);
        }
    }
    begin(out, POOL_BYTES);
    for (uint32_t k = 0; k < view->n_pools; k++) {
        const bt_metrics_pool *p = &view->pools[k];
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "limit"), p->limit_bytes);
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "ceiling"), p->ceiling_bytes);
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "free"), p->free_bytes);
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "foreign"), p->foreign_bytes);
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "held"), p->held_bytes);
        put_known(out, POOL_BYTES, LABELS("pool", p->name, "kind", "measured"), p->measured_bytes);
    }
}

static void put_servers(bt_text *out, const bt_metrics_view *view) {
    bt_scrape *scrape = bt_scrape_open(view->n_models);
    if (!scrape) {
        bt_text_add(out, "# burthen: no memory for what the servers say\n");
        return;
    }
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_metrics_model *m = &view->models[i];
        if (m->child_text) bt_scrape_add(scrape, i, m->id, m->child_text, m->n_child_text);
    }
    bt_scrape_settle(scrape);
    begin(out, LEFT_OUT);
    for (uint32_t i = 0; i < view->n_models; i++) {
        const bt_metrics_model *m = &view->models[i];
        if (m->child_text) put(out, LEFT_OUT, LABELS("model", m->id), bt_scrape_left_out(scrape, i));
    }
    if (!out->failed) bt_scrape_text(scrape, out);
    bt_scrape_close(scrape);
}

void bt_metrics_text(const bt_metrics_view *view, bt_text *out) {
    for (uint32_t family = REQUESTS; family <= START_SECONDS; family++) {
        begin(out, family);
        for (uint32_t i = 0; i < view->n_models; i++)
            put_model(out, family, &view->models[i]);
    }
    put_memory(out, view);
    put_alone(out, HTTP_REQUESTS, view->n_requests);
    put_alone(out, HTTP_REFUSED, view->n_refused);
    put_alone(out, HTTP_CONNECTIONS, view->n_connections);
    put_alone(out, HTTP_OPEN, view->n_open);
    put_alone(out, FLOW_BYTES, view->flow_bytes);
    put_alone(out, BODY_BYTES, view->bodies_bytes);
    put_alone(out, EVENTS_DROPPED, view->n_events_dropped);
    put_alone(out, RESIDENT_BYTES, view->rss_bytes);
    put_alone(out, UPTIME_SECONDS, view->uptime_s);
    put_servers(out, view);
}
