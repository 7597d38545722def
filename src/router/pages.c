/* SPDX-License-Identifier: MIT
 *
 * pages.c: what the router says of itself and its models: lists, memory, history, streams of events and logs.
 *
 * Shapes: /v1/models as OpenAI has it, with what llama-server adds (meta); /running as llama-swap; /api/... are ours
 * (docs/serve.md). Left out: requests on their way (page_requests.c), /metrics (page_metrics.c), what is found out
 * aside (page_aside.c). */
#include "router/routing.h"

#include "base/error.h"
#include "base/heap.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_FLOW_BYTES (512u << 10) /* all events that are kept, once */
#define LOGS_FLOW_BYTES   (256u << 10) /* a ring and a half */
#define LOGS_TEXT_MAX     (1u << 20)

static void reply_tree(bt_request *request, json_t *root) {
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text)
        bt_reply_json(request, 200, text);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "no memory for the answer");
    bt_heap_free(text);
    json_decref(root);
}

static json_t *known_json(bt_known known) {
    return known.known && known.value <= INT64_MAX ? json_integer((json_int_t)known.value) : json_null();
}

static json_t *number_json(uint64_t value) {
    return known_json((bt_known){true, value});
}

/* ---- models ---- */

static json_t *meta_of(const bt_model *model) {
    const bt_need *need = &model->need;
    if (!model->need_there || !need->arch[0]) return NULL;
    json_t *meta = json_pack("{s:s, s:b, s:b}", "architecture", need->arch, "chat_template", need->has_template,
                             "embeds", need->embeds);
    (void)json_object_set_new(meta, "n_ctx_train", json_integer(need->n_ctx_train));
    (void)json_object_set_new(meta, "n_params", number_json(need->n_params));
    (void)json_object_set_new(meta, "size", number_json(need->file_bytes));
    if (need->n_ctx > 0) (void)json_object_set_new(meta, "n_ctx", json_integer(need->n_ctx));
    return meta;
}

static json_t *model_json(const bt_model *model) {
    const bt_config_model *config = model->config;
    bool loaded = model->state == BT_MODEL_READY;
    json_t *one = json_pack("{s:s, s:s, s:i, s:s, s:{s:s}}", "id", model->id, "object", "model", "created", 0,
                            "owned_by", "burthen", "status", "value", loaded ? "loaded" : "unloaded");
    if (config->name) (void)json_object_set_new(one, "name", json_string(config->name));
    if (config->description) (void)json_object_set_new(one, "description", json_string(config->description));
    if (config->n_aliases > 0) {
        json_t *aliases = json_array();
        for (uint32_t i = 0; i < config->n_aliases; i++)
            (void)json_array_append_new(aliases, json_string(config->aliases[i]));
        (void)json_object_set_new(one, "aliases", aliases);
    }
    json_t *meta = meta_of(model);
    if (meta) (void)json_object_set_new(one, "meta", meta);
    if (config->metadata_json) (void)json_object_set_new(one, "metadata", json_loads(config->metadata_json, 0, NULL));
    return one;
}

void bt_page_models(bt_router *router, bt_request *request) {
    const bt_config *config = bt_models_config(router->models);
    json_t *data = json_array();
    for (uint32_t i = 0; i < bt_models_count(router->models); i++) {
        const bt_model *model = bt_models_at(router->models, i);
        if (!model->config->unlisted && !(model->outdated && !model->next_config))
            (void)json_array_append_new(data, model_json(model));
    }
    for (uint32_t i = 0; i < config->n_peers; i++) {
        for (uint32_t k = 0; k < config->peers[i].n_models; k++) {
            char id[2 * BT_CONFIG_ID_MAX + 2];
            (void)snprintf(id, sizeof id, "%s/%s", config->peers[i].name, config->peers[i].models[k]);
            (void)json_array_append_new(data, json_pack("{s:s, s:s, s:i, s:s}", "id", id, "object", "model", "created",
                                                        0, "owned_by", config->peers[i].name));
        }
    }
    reply_tree(request, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

static json_t *pool_bytes(const bt_pools *pools, const uint64_t *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i] > 0) (void)json_object_set_new(object, pools->items[i].name, number_json(bytes[i]));
    return object;
}

static json_t *pool_known(const bt_pools *pools, const bt_known *bytes) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < pools->n; i++)
        if (bytes[i].known) (void)json_object_set_new(object, pools->items[i].name, known_json(bytes[i]));
    return object;
}

static json_t *running_json(const bt_router *router, const bt_model *model) {
    const bt_pools *pools = bt_sampler_pools(router->sampler);
    uint64_t now_ms = bt_loop_now_ms(router->loop);
    json_t *one =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b}", "model", model->id, "state", bt_model_phase(model),
                  "proxy", model->url, "running", (int)model->n_running, "waiting", (int)model->n_waiting, "persistent",
                  model->config->persistent, "shrunk", model->shrunk, "streams", model->streamed);
    if (model->child) (void)json_object_set_new(one, "pid", json_integer(bt_child_pid(model->child)));
    (void)json_object_set_new(one, "ttl", json_integer((json_int_t)(model->config->ttl_ms / 1000)));
    (void)json_object_set_new(one, "idle_ms",
                              json_integer(model->state == BT_MODEL_READY && model->n_running == 0
                                               ? (json_int_t)(now_ms - model->idle_since_ms)
                                               : 0));
    (void)json_object_set_new(one, "need_from", json_string(bt_need_how_name(model->need.how)));
    (void)json_object_set_new(one, "need_bytes", pool_bytes(pools, model->need.bytes));
    (void)json_object_set_new(one, "reserved_bytes", pool_bytes(pools, model->reserved_bytes));
    (void)json_object_set_new(one, "measured_bytes", pool_known(pools, model->measured_bytes));
    (void)json_object_set_new(one, "peak_bytes", pool_known(pools, model->peak_bytes));
    if (model->need.words[0]) (void)json_object_set_new(one, "guard", json_string(model->need.words));
    if (model->refusal.text[0])
        (void)json_object_set_new(one, "last_refusal",
                                  json_pack("{s:s, s:s}", "code", model->refusal.code, "message", model->refusal.text));
    return one;
}

void bt_page_running(bt_router *router, bt_request *request) {
    json_t *running = json_array();
    for (uint32_t i = 0; i < bt_models_count(router->models); i++) {
        const bt_model *model = bt_models_at(router->models, i);
        bool runs = model->state != BT_MODEL_STOPPED && model->state != BT_MODEL_FAILED;
        if (runs) (void)json_array_append_new(running, running_json(router, model));
    }
    reply_tree(request, json_pack("{s:o}", "running", running));
}

static json_t *stall_json(const bt_pools *pools) {
    return pools->stall.known ? json_real((double)pools->stall.value / 100.0) : json_null();
}

/* What others take of a pool (ceiling.h). */
static void add_ceiling(json_t *one, const bt_ceiling *c) {
    (void)json_object_set_new(one, "foreign_bytes", known_json(c->foreign_bytes));
    (void)json_object_set_new(one, "floor_bytes", known_json(c->floor_bytes));
    (void)json_object_set_new(one, "excess_bytes", known_json(c->excess_bytes));
    (void)json_object_set_new(one, "ceiling_bytes", known_json(c->ceiling_bytes));
    (void)json_object_set_new(one, "trusted", json_boolean(c->trusted));
    if (c->reason[0]) (void)json_object_set_new(one, "ceiling_reason", json_string(c->reason));
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
        if (pool->reason[0]) (void)json_object_set_new(one, "reason", json_string(pool->reason));
        (void)json_object_set_new(one, "total_bytes", known_json(pool->total_bytes));
        (void)json_object_set_new(one, "free_bytes", known_json(pool->free_bytes));
        (void)json_object_set_new(one, "limit_bytes", known_json(pool->limit_bytes));
        if (i == 0) (void)json_object_set_new(one, "router_bytes", number_json(pools->own_bytes));
        if (i == 0) (void)json_object_set_new(one, "stall_percent", stall_json(pools));
        add_ceiling(one, bt_models_ceiling(router->models, i));
        const char *watchdog = bt_watchdog_state_name(bt_models_watchdog(router->models, i));
        (void)json_object_set_new(one, "watchdog", json_string(watchdog));
        (void)json_array_append_new(list, one);
    }
    for (uint32_t i = 0; i < bt_models_count(router->models); i++)
        (void)json_array_append_new(models, running_json(router, bt_models_at(router->models, i)));
    json_t *root = json_pack("{s:o, s:o}", "pools", list, "models", models);
    if (pools->n > 1) {
        json_t *devices = json_object();
        add_ceiling(devices, bt_models_ceiling_of_devices(router->models));
        (void)json_object_set_new(root, "devices", devices);
    }
    reply_tree(request, root);
}

/* ---- history ---- */

/* other: its name in llama-swap; NULL: none. */
static int64_t query_number(const bt_request *request, const char *name, const char *other) {
    const char *text = bt_request_query(request, name);
    if (!text && other) text = bt_request_query(request, other);
    char *end = NULL;
    long long value = text ? strtoll(text, &end, 10) : 0;
    return text && *text && !*end && value > 0 ? value : 0;
}

void bt_page_activity(bt_router *router, bt_request *request) {
    bt_error why = {0};
    char *json = NULL;
    int64_t limit = query_number(request, "limit", NULL);
    const bt_activity_filter filter = {.model = bt_request_query(request, "model"),
                                       .from_ms = query_number(request, "from_ms", "start"),
                                       .to_ms = query_number(request, "to_ms", "end"),
                                       .after_id = (uint64_t)query_number(request, "after_id", "min_id"),
                                       .limit = limit > BT_ACTIVITY_KEPT ? BT_ACTIVITY_KEPT : (uint32_t)limit};
    if (bt_activity_json(router->activity, &filter, &json, &why) == BT_OK)
        bt_reply_json(request, 200, json);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "%s", why.text);
    bt_heap_free(json);
}

/* ---- streams ---- */

static void reply_stream(bt_request *request, const char *type, bt_flow *flow) {
    const bt_header headers[] = {{"Content-Type", type}, {"Cache-Control", "no-cache"}};
    bt_reply_flow(request, 200, headers, 2, (bt_known){0}, flow);
}

/* The last ones, for who asks once. */
static void reply_events(bt_router *router, bt_request *request) {
    bt_error why = {0};
    char *json = NULL;
    if (bt_events_json(router->events, bt_request_query(request, "type"), &json, &why) == BT_OK)
        bt_reply_json(request, 200, json);
    else
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "%s", why.text);
    bt_heap_free(json);
}

void bt_page_events(bt_router *router, bt_request *request) {
    bt_error why = {0};
    const char *accept = bt_request_header(request, "Accept");
    if (!accept || !strstr(accept, "text/event-stream")) {
        reply_events(router, request);
        return;
    }
    bt_flow *flow = NULL;
    const char *last = bt_request_header(request, "Last-Event-ID");
    uint64_t after = last ? strtoull(last, NULL, 10) : (uint64_t)query_number(request, "after", NULL);
    bt_status status = bt_flow_open(EVENTS_FLOW_BYTES, &flow, &why);
    if (status == BT_OK) {
        status = bt_events_listen(router->events, after, flow, &why);
        if (status != BT_OK) {
            bt_flow_drop_producer(flow);
            bt_flow_drop_consumer(flow);
        }
    }
    if (status == BT_OK)
        reply_stream(request, "text/event-stream", flow);
    else
        bt_reply_error(request, 503, "listeners", NULL, 5, NULL, "%s", why.text);
}

static void reply_log(bt_request *request, const bt_log_ring *ring) {
    bt_text text;
    bt_text_init(&text, LOGS_TEXT_MAX);
    bt_log_ring_text(ring, &text);
    bt_reply(request, 200, "text/plain; charset=utf-8", bt_text_str(&text), text.n_bytes, NULL, 0);
    bt_text_done(&text);
}

static void stream_log(bt_request *request, bt_log_ring *ring) {
    bt_error why = {0};
    bt_flow *flow = NULL;
    bool history = bt_request_query(request, "no-history") == NULL;
    bt_status status = bt_flow_open(LOGS_FLOW_BYTES, &flow, &why);
    if (status == BT_OK) {
        status = bt_log_ring_listen(ring, history, flow, &why);
        if (status != BT_OK) {
            bt_flow_drop_producer(flow);
            bt_flow_drop_consumer(flow);
        }
    }
    if (status == BT_OK)
        reply_stream(request, "text/plain; charset=utf-8", flow);
    else
        bt_reply_error(request, 503, "listeners", NULL, 5, NULL, "%s", why.text);
}

/* /logs, /logs/MODEL, /logs/stream, /logs/stream/MODEL. */
void bt_page_logs(bt_router *router, bt_request *request, const char *rest) {
    bool streams = strcmp(rest, "/stream") == 0 || strncmp(rest, "/stream/", 8) == 0;
    const char *id = streams ? rest + 7 : rest;
    if (*id == '/') id++;
    bt_log_ring *ring = router->log;
    if (*id && strcmp(id, "proxy") != 0) {
        const bt_model *model = bt_models_find(router->models, id);
        if (!model) {
            bt_reply_error(request, 404, "model_not_found", NULL, 0, NULL, "no model is called %.128s", id);
            return;
        }
        ring = model->log;
    }
    if (streams)
        stream_log(request, ring);
    else
        reply_log(request, ring);
}

/* ---- loading and unloading ---- */

void bt_page_unload(bt_router *router, bt_request *request, const char *id) {
    bt_model *model = id ? bt_models_find(router->models, id) : NULL;
    if (id && !model) {
        bt_reply_error(request, 404, "model_not_found", "model", 0, NULL, "no model is called %.128s", id);
        return;
    }
    bt_models_unload(router->models, model, "unloaded by request");
    bt_reply_json(request, 200, "{\"status\":\"ok\"}");
}

typedef struct loading {
    bt_job job;
    bt_router *router;
    bt_request *request; /* NULL: a preload */
} loading;

static void end_loading(loading *l) {
    bt_models_leave(l->router->models, &l->job);
    bt_heap_free(l);
}

static void on_loaded(bt_job *job, bool granted) {
    loading *l = job->user;
    const bt_model_refusal *refusal = &job->model->refusal;
    if (l->request) {
        bt_request_on_gone(l->request, NULL, NULL);
        if (granted)
            bt_reply_json(l->request, 200, "{\"status\":\"loaded\"}");
        else
            bt_reply_error(l->request, refusal->status ? refusal->status : 503, refusal->code, NULL,
                           refusal->retry_after_s, refusal->detail_json[0] ? refusal->detail_json : NULL, "%s",
                           refusal->text);
    }
    end_loading(l);
}

static void on_left(void *user) {
    end_loading(user);
}

/* request NULL: nobody is told. */
static bt_status load(bt_router *router, bt_request *request, bt_model *model, bt_error *err) {
    loading *l = bt_heap_alloc(sizeof *l);
    if (!l) return bt_fail_sys(err, 12, "models", "no memory to load a model");
    *l = (loading){.job = {.on_turn = on_loaded, .user = l}, .router = router, .request = request};
    bt_status status = bt_models_enqueue(router->models, model, &l->job, err);
    if (status != BT_OK) {
        bt_heap_free(l);
        return status;
    }
    if (request) bt_request_on_gone(request, on_left, l);
    return BT_OK;
}

void bt_page_load(bt_router *router, bt_request *request, const char *id) {
    bt_error why = {0};
    bt_model *model = bt_models_find(router->models, id);
    if (!model)
        bt_reply_error(request, 404, "model_not_found", "model", 0, NULL, "no model is called %.128s", id);
    else if (router->closing)
        bt_reply_error(request, 503, "shutting_down", NULL, 0, NULL, "the router is shutting down");
    else if (model->state == BT_MODEL_READY && strcmp(bt_model_phase(model), "ready") == 0)
        bt_reply_json(request, 200, "{\"status\":\"loaded\"}"); /* however busy it is */
    else if (load(router, request, model, &why) != BT_OK)
        bt_reply_error(request, strcmp(why.code, "model_queue_full") == 0 ? 429 : 503, why.code, NULL, 5, NULL, "%s",
                       why.text);
}

void bt_router_preload(bt_router *router) {
    for (uint32_t i = 0; i < bt_models_count(router->models); i++) {
        bt_model *model = bt_models_at(router->models, i);
        bt_error why = {0};
        if (!model->config->preload || model->state != BT_MODEL_STOPPED) continue;
        if (load(router, NULL, model, &why) != BT_OK)
            bt_models_say(router->models, "%s: not preloaded: %s", model->id, why.text);
    }
}
