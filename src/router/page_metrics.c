/* SPDX-License-Identifier: MIT
 *
 * page_metrics.c: /metrics: what the router counts, and what its servers say of themselves.
 *
 * Every ready model's own /metrics is asked for at the same time; who does not answer within SCRAPE_MS is left out of
 * this page. A page that is being made holds at most SCRAPE_BYTES a model. */
#include "router/routing.h"

#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

#define SCRAPE_MS    1000u
#define SCRAPE_BYTES (256u << 10)
#define PAGE_MAX     (16u << 20)

typedef struct scrape {
    struct scraping *all;
    char id[BT_CONFIG_ID_MAX + 1];
    bt_exchange *exchange;
    bt_flow *flow;
    bt_text text;
    bool good;
} scrape;

typedef struct scraping {
    bt_router *router;
    bt_request *request;
    uint32_t n, n_open;
    bool asking;   /* still starting them */
    bt_timer late; /* from its start: a server may begin its answer and never end it */
    scrape items[];
} scraping;

static void free_scraping(scraping *s) {
    bt_loop_timer_stop(s->router->loop, &s->late);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->items[i].exchange) bt_exchange_cancel(s->items[i].exchange);
        if (s->items[i].flow) bt_flow_drop_consumer(s->items[i].flow);
        bt_text_done(&s->items[i].text);
    }
    bt_heap_free(s);
}

static const scrape *scrape_of(const scraping *s, const char *id) {
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->items[i].id, id) == 0 && s->items[i].good && !s->items[i].text.failed) return &s->items[i];
    return NULL;
}

static void fill_model(const bt_model *model, const scraping *s, uint32_t n_pools, bt_metrics_model *ret) {
    const scrape *said = scrape_of(s, model->id);
    *ret = model->counts;
    ret->id = model->id;
    ret->state = bt_model_state_name(model->state);
    ret->n_running = model->n_running;
    ret->n_waiting = model->n_waiting;
    for (uint32_t i = 0; i < n_pools; i++) {
        ret->need_bytes[i] = (bt_known){model->need_there && model->need.how != BT_NEED_UNKNOWN, model->need.bytes[i]};
        ret->held_bytes[i] = (bt_known){true, model->reserved_bytes[i]};
        ret->peak_bytes[i] = model->peak_bytes[i];
    }
    ret->child_text = said ? bt_text_str(&said->text) : NULL;
    ret->n_child_text = said ? said->text.n_bytes : 0;
}

static bt_known foreign_of(const bt_ceiling *ceiling) {
    return ceiling->trusted ? ceiling->foreign_bytes : (bt_known){0};
}

static void fill_pools(const bt_router *router, const bt_pools *pools, bt_metrics_pool *ret) {
    for (uint32_t i = 0; i < pools->n; i++) {
        uint64_t held = 0, measured = 0;
        for (uint32_t k = 0; k < bt_models_count(router->models); k++) {
            const bt_model *model = bt_models_at(router->models, k);
            held = bt_sat_add_u64(held, model->reserved_bytes[i]);
            if (model->measured_bytes[i].known) measured = bt_sat_add_u64(measured, model->measured_bytes[i].value);
        }
        ret[i] = (bt_metrics_pool){.name = pools->items[i].name,
                                   .limit_bytes = pools->items[i].limit_bytes,
                                   .ceiling_bytes = bt_models_limit(router->models, i),
                                   .foreign_bytes = foreign_of(bt_models_ceiling(router->models, i)),
                                   .free_bytes = pools->items[i].free_bytes,
                                   .held_bytes = {true, held},
                                   .measured_bytes = {true, measured}};
    }
}

static void answer(scraping *s) {
    const bt_router *router = s->router;
    const bt_pools *pools = bt_sampler_pools(router->sampler);
    uint32_t n_models = bt_models_count(router->models);
    bt_metrics_pool view_pools[BT_POOL_MAX];
    bt_metrics_model *view_models = bt_heap_array(n_models + 1ull, sizeof *view_models);
    bt_server_counts counts;
    bt_os_memory memory;
    bt_text text;
    if (!view_models) {
        bt_reply_error(s->request, 503, "overloaded", NULL, 1, NULL, "no memory for the page");
        return;
    }
    for (uint32_t i = 0; i < n_models; i++)
        fill_model(bt_models_at(router->models, i), s, pools->n, &view_models[i]);
    fill_pools(router, pools, view_pools);
    bt_server_count(router->server, &counts);
    bt_os_memory_read(&memory);
    const bt_metrics_view view = {.models = view_models,
                                  .n_models = n_models,
                                  .pools = view_pools,
                                  .n_pools = pools->n,
                                  .n_requests = counts.n_requests,
                                  .n_refused = counts.n_refused,
                                  .n_connections = counts.n_connections,
                                  .n_open = counts.n_open,
                                  .flow_bytes = bt_flow_total_bytes(),
                                  .bodies_bytes = counts.bodies_bytes,
                                  .n_events_dropped = bt_events_dropped(router->events),
                                  .rss_bytes = memory.rss_bytes.value,
                                  .uptime_s = (bt_loop_now_ms(router->loop) - router->began_ms) / 1000};
    bt_text_init(&text, PAGE_MAX);
    bt_metrics_text(&view, &text);
    bt_reply(s->request, 200, "text/plain; version=0.0.4; charset=utf-8", bt_text_str(&text), text.n_bytes, NULL, 0);
    bt_text_done(&text);
    bt_heap_free(view_models);
}

static void finish(scraping *s) {
    bt_request_on_gone(s->request, NULL, NULL);
    answer(s);
    free_scraping(s);
}

static void finish_one(scraping *s) {
    if (s->n_open == 0 && !s->asking) finish(s);
}

static void on_late(void *user) {
    scraping *s = user;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->items[i].exchange) s->items[i].good = false;
    finish(s);
}

static void take(scrape *one) {
    char piece[4096];
    for (size_t n; (n = bt_flow_take(one->flow, piece, sizeof piece)) > 0;)
        bt_text_add_n(&one->text, piece, n);
}

static void on_data(void *user) {
    take(user);
}

static void on_head(void *user, const bt_exchange_head *head) {
    scrape *one = user;
    one->good = head->status == 200;
}

static void on_end(void *user, bt_exchange_failure failure, const char *words) {
    scrape *one = user;
    (void)words;
    take(one);
    one->exchange = NULL;
    if (failure != BT_EXCHANGE_OK) one->good = false;
    one->all->n_open--;
    finish_one(one->all);
}

static void on_gone(void *user) {
    free_scraping(user);
}

static void ask_one(scraping *s, const bt_model *model) {
    scrape *one = &s->items[s->n++];
    char url[256];
    bt_error why = {0};
    *one = (scrape){.all = s};
    (void)snprintf(one->id, sizeof one->id, "%s", model->id);
    bt_text_init(&one->text, SCRAPE_BYTES);
    (void)snprintf(url, sizeof url, "%s/metrics", model->url);
    if (bt_flow_open(16384, &one->flow, &why) != BT_OK) return;
    bt_flow_on_data(one->flow, on_data, one);
    const bt_exchange_ask ask = {.client = s->router->client,
                                 .method = "GET",
                                 .url = url,
                                 .connect_timeout_ms = SCRAPE_MS,
                                 .flow = one->flow,
                                 .on_head = on_head,
                                 .on_end = on_end,
                                 .user = one};
    if (bt_exchange_start(&ask, &one->exchange, &why) == BT_OK)
        s->n_open++;
    else
        bt_flow_drop_producer(one->flow);
}

void bt_page_metrics(bt_router *router, bt_request *request) {
    uint32_t n = bt_models_count(router->models);
    scraping *s = bt_heap_alloc(sizeof *s + n * sizeof(scrape));
    if (!s) {
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "no memory for the page");
        return;
    }
    s->router = router;
    s->request = request;
    s->asking = true;
    s->late = (bt_timer){.on_time = on_late, .user = s};
    bt_loop_timer_set(router->loop, &s->late, SCRAPE_MS);
    bt_request_on_gone(request, on_gone, s);
    for (uint32_t i = 0; i < n; i++)
        if (bt_models_at(router->models, i)->state == BT_MODEL_READY) ask_one(s, bt_models_at(router->models, i));
    s->asking = false;
    finish_one(s);
}
