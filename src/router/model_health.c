/* SPDX-License-Identifier: MIT
 *
 * model_health.c: is a model that starts ready? Its /health (or what the configuration names) is asked: often at first,
 * when a small model may be there in a moment, then less. A status of 200 says so; nothing else ends the asking but the
 * model's end, and the time that it has (model_life.c). */
#include "router/models.h"

#include <stdio.h>

void bt_model_drop_probe(bt_model *model) {
    if (model->probe) bt_exchange_cancel(model->probe);
    if (model->probe_flow) bt_flow_drop_consumer(model->probe_flow);
    model->probe = NULL;
    model->probe_flow = NULL;
}

static void become_ready(bt_model *model) {
    uint64_t now_ms = bt_model_now_ms(model);
    model->ready_ms = now_ms;
    model->idle_since_ms = now_ms;
    model->retry_at_ms = 0;
    model->cut_percent = 0;
    model->port_lost = false;
    model->refusal.status = 0;
    bt_metrics_observe(&model->counts.start, (double)(now_ms - model->started_ms) / 1000.0);
    bt_sampler_ask(model->all->ask.sampler);
    bt_model_set(model, BT_MODEL_READY, "after %.1f s", (double)(now_ms - model->started_ms) / 1000.0);
}

static void weigh(bt_model *model, uint32_t status) {
    if (model->state != BT_MODEL_STARTING) return;
    if (status == 200) {
        become_ready(model);
        return;
    }
    uint64_t age_ms = bt_model_now_ms(model) - model->started_ms;
    bt_model_look_again(model, age_ms < 2000 ? 50 : age_ms < 30000 ? 250 : 1000);
}

/* The head says it all: what may follow is a page of any length, or of none that ends. */
static void on_probe_head(void *user, const bt_exchange_head *head) {
    bt_model *model = user;
    uint32_t status = head->status;
    bt_model_drop_probe(model);
    weigh(model, status);
}

static void on_probe_end(void *user, bt_exchange_failure failure, const char *words) {
    bt_model *model = user;
    (void)words, (void)failure;
    model->probe = NULL;
    bt_model_drop_probe(model);
    weigh(model, 0);
}

void bt_model_look_at_health(bt_model *model) {
    char url[512];
    bt_error why = {0};
    bt_model_look_again(model, 1000); /* its time may be over meanwhile (settle_starting) */
    if (model->probe) return;
    if (!model->config->check_endpoint) {
        become_ready(model);
        return;
    }
    (void)snprintf(url, sizeof url, "%s%s", model->url, model->config->check_endpoint);
    const bt_exchange_ask ask = {.client = model->all->ask.client,
                                 .method = "GET",
                                 .url = url,
                                 .connect_timeout_ms = 1000,
                                 .header_timeout_ms = 5000,
                                 .on_head = on_probe_head,
                                 .on_end = on_probe_end,
                                 .user = model};
    bt_exchange_ask with_flow = ask;
    if (bt_flow_open(4096, &model->probe_flow, &why) == BT_OK) {
        with_flow.flow = model->probe_flow;
        if (bt_exchange_start(&with_flow, &model->probe, &why) == BT_OK) return;
        bt_flow_drop_producer(model->probe_flow);
        bt_model_drop_probe(model);
    }
}
