/* SPDX-License-Identifier: MIT
 *
 * pages.c: what the router says of itself and its models: lists, memory, requests, history.
 *
 * Shapes: /v1/models as OpenAI has it, with what llama-server adds (meta); /running as llama-swap; /api/... are ours
 * (docs/serve.md). Left out: requests on their way (page_requests.c), /metrics (page_metrics.c), what goes on as it
 * happens (page_streams.c), what is found out aside (page_aside.c). */
#include "router/json_tree.h"
#include "router/routing.h"

#include "base/heap.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

void bt_page_tree(bt_request *request, json_t *root) {
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text)
        bt_reply_json(request, 200, text);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "no memory for the answer");
    bt_heap_free(text);
    json_decref(root);
}

void bt_page_no_model(bt_router *router, bt_request *request, const char *param, const char *id) {
    char text[BT_CONFIG_NO_MODEL_BYTES];
    (void)bt_config_no_model(bt_models_config(router->models), id, text, sizeof text);
    bt_reply_error(request, 404, "model_not_found", param, 0, NULL, "%s", text);
}

int64_t bt_page_number(const bt_request *request, const char *name, const char *other) {
    const char *text = bt_request_query(request, name);
    if (!text && other) text = bt_request_query(request, other);
    char *end = NULL;
    long long value = text ? strtoll(text, &end, 10) : 0;
    return text && *text && !*end && value > 0 ? value : 0;
}

/* ---- models ---- */

static json_t *meta_of(const bt_model *model) {
    const bt_need *need = &model->need;
    if (!model->need_there || !need->arch[0]) return NULL;
    json_t *meta = json_pack("{s:s, s:b, s:b}", "architecture", need->arch, "chat_template", need->has_template,
                             "embeds", need->embeds);
    bt_json_tree_set(&meta, "n_ctx_train", json_integer(need->n_ctx_train));
    bt_json_tree_set(&meta, "n_params", bt_json_tree_number(need->n_params));
    bt_json_tree_set(&meta, "size", bt_json_tree_number(need->file_bytes));
    if (need->n_ctx > 0) bt_json_tree_set(&meta, "n_ctx", json_integer(need->n_ctx));
    return meta;
}

static json_t *model_json(const bt_model *model) {
    const bt_config_model *config = model->config;
    bool loaded = model->state == BT_MODEL_READY;
    json_t *one = json_pack("{s:s, s:s, s:i, s:s, s:{s:s}}", "id", model->id, "object", "model", "created", 0,
                            "owned_by", "burthen", "status", "value", loaded ? "loaded" : "unloaded");
    if (config->name) bt_json_tree_set(&one, "name", bt_json_tree_text(config->name));
    if (config->description) bt_json_tree_set(&one, "description", bt_json_tree_text(config->description));
    if (config->n_aliases > 0) {
        json_t *aliases = json_array();
        for (uint32_t i = 0; i < config->n_aliases; i++)
            bt_json_tree_add(&aliases, bt_json_tree_text(config->aliases[i]));
        bt_json_tree_set(&one, "aliases", aliases);
    }
    json_t *meta = meta_of(model);
    if (meta) bt_json_tree_set(&one, "meta", meta);
    if (config->metadata_json) bt_json_tree_set(&one, "metadata", json_loads(config->metadata_json, 0, NULL));
    return one;
}

void bt_page_models(bt_router *router, bt_request *request) {
    const bt_config *config = bt_models_config(router->models);
    json_t *data = json_array();
    for (uint32_t i = 0; i < bt_models_count(router->models); i++) {
        const bt_model *model = bt_models_at(router->models, i);
        if (!model->config->unlisted && !(model->outdated && !model->next_config))
            bt_json_tree_add(&data, model_json(model));
    }
    for (uint32_t i = 0; i < config->n_peers; i++) {
        for (uint32_t k = 0; k < config->peers[i].n_models; k++) {
            char id[2 * BT_CONFIG_ID_MAX + 2];
            (void)snprintf(id, sizeof id, "%s/%s", config->peers[i].name, config->peers[i].models[k]);
            bt_json_tree_add(&data, json_pack("{s:s, s:s, s:i, s:s}", "id", id, "object", "model", "created", 0,
                                              "owned_by", config->peers[i].name));
        }
    }
    bt_page_tree(request, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

static json_t *running_json(const bt_router *router, const bt_model *model) {
    const bt_pools *pools = bt_sampler_pools(router->sampler);
    uint64_t now_ms = bt_loop_now_ms(router->loop);
    json_t *one =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b}", "model", model->id, "state", bt_model_phase(model),
                  "proxy", model->url, "running", (int)model->n_running, "waiting", (int)model->n_waiting, "persistent",
                  model->config->persistent, "shrunk", model->shrunk, "streams", model->streamed);
    if (model->child) bt_json_tree_set(&one, "pid", json_integer(bt_child_pid(model->child)));
    bt_json_tree_set(&one, "ttl", json_integer((json_int_t)(model->config->ttl_ms / 1000)));
    bt_json_tree_set(&one, "idle_ms",
                     json_integer(model->state == BT_MODEL_READY && model->n_running == 0
                                      ? (json_int_t)(now_ms - model->idle_since_ms)
                                      : 0));
    bt_json_tree_set(&one, "need_from", bt_json_tree_text(bt_need_how_name(model->need.how)));
    bt_json_tree_set(&one, "need_bytes", bt_json_tree_pool_bytes(pools, model->need.bytes));
    bt_json_tree_set(&one, "reserved_bytes", bt_json_tree_pool_bytes(pools, model->reserved_bytes));
    bt_json_tree_set(&one, "measured_bytes", bt_json_tree_pool_known(pools, model->measured_bytes));
    bt_json_tree_set(&one, "peak_bytes", bt_json_tree_pool_known(pools, model->peak_bytes));
    if (model->need.words[0]) bt_json_tree_set(&one, "guard", bt_json_tree_text(model->need.words));
    if (model->refusal.text[0])
        bt_json_tree_set(
            &one, "last_refusal",
            json_pack("{s:s, s:o}", "code", model->refusal.code, "message", bt_json_tree_text(model->refusal.text)));
    return one;
}

void bt_page_running(bt_router *router, bt_request *request) {
    json_t *running = json_array();
    for (uint32_t i = 0; i < bt_models_count(router->models); i++) {
        const bt_model *model = bt_models_at(router->models, i);
        bool runs = model->state != BT_MODEL_STOPPED && model->state != BT_MODEL_FAILED;
        if (runs) bt_json_tree_add(&running, running_json(router, model));
    }
    bt_page_tree(request, json_pack("{s:o}", "running", running));
}

static json_t *stall_json(const bt_pools *pools) {
    return pools->stall.known ? json_real((double)pools->stall.value / 100.0) : json_null();
}

/* What others take of a pool (ceiling.h). */
static void add_ceiling(json_t **one, const bt_ceiling *c) {
    bt_json_tree_set(one, "foreign_bytes", bt_json_tree_known(c->foreign_bytes));
    bt_json_tree_set(one, "floor_bytes", bt_json_tree_known(c->floor_bytes));
    bt_json_tree_set(one, "excess_bytes", bt_json_tree_known(c->excess_bytes));
    bt_json_tree_set(one, "ceiling_bytes", bt_json_tree_known(c->ceiling_bytes));
    bt_json_tree_set(one, "trusted", json_boolean(c->trusted));
    if (c->reason[0]) bt_json_tree_set(one, "ceiling_reason", bt_json_tree_text(c->reason));
}

/* All pools and all models: what /running says, also of those that do not run. */
void bt_page_memory(bt_router *router, bt_request *request) {
    const bt_pools *pools = bt_sampler_pools(router->sampler);
    json_t *list = json_array(), *models = json_array();
    for (uint32_t i = 0; i < pools->n; i++) {
        const bt_pools_one *pool = &pools->items[i];
        json_t *one = json_pack("{s:s, s:s}", "name", pool->name, "state",
                                pool->state == BT_READING_REPORTED ? "reported"
                                : pool->state == BT_READING_FAILED ? "failed"
                                                                   : "absent");
        if (pool->reason[0]) bt_json_tree_set(&one, "reason", bt_json_tree_text(pool->reason));
        bt_json_tree_set(&one, "total_bytes", bt_json_tree_known(pool->total_bytes));
        bt_json_tree_set(&one, "free_bytes", bt_json_tree_known(pool->free_bytes));
        bt_json_tree_set(&one, "limit_bytes", bt_json_tree_known(pool->limit_bytes));
        if (i == 0) bt_json_tree_set(&one, "router_bytes", bt_json_tree_number(pools->own_bytes));
        if (i == 0) bt_json_tree_set(&one, "stall_percent", stall_json(pools));
        add_ceiling(&one, bt_models_ceiling(router->models, i));
        const char *watchdog = bt_watchdog_state_name(bt_models_watchdog(router->models, i));
        bt_json_tree_set(&one, "watchdog", bt_json_tree_text(watchdog));
        bt_json_tree_add(&list, one);
    }
    for (uint32_t i = 0; i < bt_models_count(router->models); i++)
        bt_json_tree_add(&models, running_json(router, bt_models_at(router->models, i)));
    json_t *root = json_pack("{s:o, s:o}", "pools", list, "models", models);
    if (pools->n > 1) {
        json_t *devices = json_object();
        add_ceiling(&devices, bt_models_ceiling_of_devices(router->models));
        bt_json_tree_set(&root, "devices", devices);
    }
    bt_page_tree(request, root);
}

/* ---- history ---- */

void bt_page_activity(bt_router *router, bt_request *request) {
    bt_error why = {0};
    char *json = NULL;
    int64_t limit = bt_page_number(request, "limit", NULL);
    const bt_activity_filter filter = {.model = bt_request_query(request, "model"),
                                       .from_ms = bt_page_number(request, "from_ms", "start"),
                                       .to_ms = bt_page_number(request, "to_ms", "end"),
                                       .after_id = (uint64_t)bt_page_number(request, "after_id", "min_id"),
                                       .limit = limit > BT_ACTIVITY_KEPT ? BT_ACTIVITY_KEPT : (uint32_t)limit};
    if (bt_activity_json(router->activity, &filter, &json, &why) == BT_OK)
        bt_reply_json(request, 200, json);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "%s", why.text);
    bt_heap_free(json);
}
