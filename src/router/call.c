/* SPDX-License-Identifier: MIT
 *
 * call.c: a request on its way to a model, or to a peer, and the answer's way back.
 *
 *   body read -> model found -> waits for its turn (queue.c) -> filters -> exchange -> head -> flow -> client
 *
 * A call ends in exactly one of: the server's answer, an error of ours as JSON, or the client's leaving; what is left
 * of it is undone wherever it is: a place in the queue, a start that nobody else waits for, an exchange. The turn is
 * over when the server has finished, not when a slow client has read it all: what it has not read is in the flow,
 * bounded.
 *
 * Left out: the way to the server and back (call_exchange.c), what is known of a request itself (server.c). */
#include "router/call_internal.h"

#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

#define TARGET_MAX 8192u /* as long as a request line may be */

/* ---- ends ---- */

void bt_call_leave(bt_call *call) {
    if (call->model) bt_models_leave(call->router->models, &call->job);
}

void bt_call_answer_error(bt_call *call, uint32_t status, const char *code, uint32_t retry_after_s, const char *detail,
                          const char *text) {
    if (call->answered) return;
    call->answered = true;
    (void)snprintf(call->code, sizeof call->code, "%s", code);
    bt_loop_timer_stop(call->router->loop, &call->comment);
    if (call->early)
        bt_early_error(call->early, status, code, detail, text);
    else
        bt_reply_error(call->request, status, code, NULL, retry_after_s, detail, "%s", text);
}

static void answer_refusal(bt_call *call, const bt_model_refusal *refusal) {
    bt_call_answer_error(call, refusal->status ? refusal->status : 503,
                         refusal->code[0] ? refusal->code : "unavailable", refusal->retry_after_s,
                         refusal->detail_json[0] ? refusal->detail_json : NULL, refusal->text);
}

static void on_gone(void *user) {
    bt_call *call = user;
    call->gone = true;
    bt_loop_timer_stop(call->router->loop, &call->late);
    bt_loop_timer_stop(call->router->loop, &call->comment);
    bt_call_stop(call);
    bt_call_leave(call);
}

/* ---- its turn ---- */

/* A request that cannot be handed on by its own fault: headers of which there are too many, or that no server would
 * take; a body that a filter cannot be applied to. Whether that was it; then it is answered. */
static bool answer_fault(bt_call *call, bt_status status, const bt_error *why) {
    if (status == BT_E_LIMIT)
        bt_call_answer_error(call, 431, "headers", 0, NULL, why->text);
    else if (status == BT_E_ARG)
        bt_call_answer_error(call, 400, "request", 0, NULL, why->text);
    else if (status == BT_E_FORMAT)
        bt_call_answer_error(call, 400, "body", 0, NULL, why->text);
    else
        return false;
    return true;
}

static void on_turn(bt_job *job, bool granted) {
    bt_call *call = job->user;
    bt_model *model = call->model;
    bt_error why = {0};
    if (!granted) {
        answer_refusal(call, &model->refusal);
        return;
    }
    call->granted_ms = bt_loop_now_ms(call->router->loop);
    const bt_config_model *config = model->config;
    bt_status status =
        bt_call_exchange(call, model->url, NULL, config->connect_timeout_ms, config->header_timeout_ms, &why);
    if (status == BT_OK) return;
    if (!answer_fault(call, status, &why)) bt_call_answer_error(call, 500, "internal", 1, NULL, why.text);
    bt_call_leave(call);
}

/* ---- the beginning ---- */

static void link_call(bt_router *router, bt_call *call) {
    call->next = router->calls;
    if (router->calls) router->calls->prev = call;
    router->calls = call;
}

static void unlink_call(bt_router *router, bt_call *call) {
    if (call->prev) call->prev->next = call->next;
    if (call->next) call->next->prev = call->prev;
    if (router->calls == call) router->calls = call->next;
}

static bool may_have_body(const char *method) {
    return strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0 && strcmp(method, "DELETE") != 0;
}

/* The filters' and aliases' rewriting. BT_E_FORMAT: the body is nothing that they can be applied to. */
static bt_status rewrite_body(bt_call *call, const bt_config_filters *filters, const char *use_name, bt_error *err) {
    size_t n_body = 0;
    const char *body = bt_request_body(call->request, &n_body);
    bool nothing = filters->n_strip == 0 && !filters->set_json && filters->n_set_by_id == 0 && !use_name;
    if (!call->is_json || nothing) return BT_OK;
    return bt_config_filter(filters, use_name, call->name, body, n_body, &call->body, &call->n_body, err);
}

static void go_to_model(bt_call *call, bt_model *model) {
    bt_error why = {0};
    call->model = model;
    call->job = (bt_job){.on_turn = on_turn, .user = call};
    (void)snprintf(call->id, sizeof call->id, "%s", model->id);
    bt_status status = rewrite_body(call, &model->config->filters, model->config->use_model_name, &why);
    if (status == BT_OK) status = bt_models_enqueue(call->router->models, model, &call->job, &why);
    if (status == BT_OK) {
        model->n_calls++;
        return;
    }
    call->model = NULL;
    if (status == BT_E_LIMIT)
        bt_call_answer_error(call, strcmp(why.code, "queue_full") == 0 ? 503 : 429, why.code, 5, NULL, why.text);
    else if (!answer_fault(call, status, &why))
        bt_call_answer_error(call, 500, "internal", 0, NULL, why.text);
}

static void go_to_peer(bt_call *call, const bt_config_peer *peer, const char *their_name) {
    bt_error why = {0};
    char key[1100];
    bt_header authorization = {"Authorization", key};
    (void)snprintf(call->id, sizeof call->id, "%.60s/%.60s", peer->name, their_name);
    if (peer->api_key) (void)snprintf(key, sizeof key, "Bearer %s", peer->api_key);
    call->router->peer_requests++;
    call->granted_ms = bt_loop_now_ms(call->router->loop);
    bt_status status = rewrite_body(call, &peer->filters, their_name, &why);
    if (status == BT_OK)
        status = bt_call_exchange(call, peer->proxy, peer->api_key ? &authorization : NULL, 30000,
                                  peer->header_timeout_ms, &why);
    if (status != BT_OK && !answer_fault(call, status, &why))
        bt_call_answer_error(call, 502, "peer", 0, NULL, why.text);
}

static void go(bt_call *call) {
    bt_router *router = call->router;
    const char *their_name = NULL;
    bt_model *model = bt_models_find(router->models, call->name);
    if (model) {
        go_to_model(call, model);
        return;
    }
    const bt_config_peer *peer = bt_config_find_peer(bt_models_config(router->models), call->name, &their_name);
    if (peer) {
        go_to_peer(call, peer, their_name);
        return;
    }
    call->answered = true;
    (void)snprintf(call->code, sizeof call->code, "model_not_found");
    bt_page_no_model(router, call->request, "model", call->name);
}

/* What the body asks for is within the limits, and says for which model it is. */
static bool read_body(bt_call *call, const char *name) {
    const bt_config *config = bt_models_config(call->router->models);
    const char *type = bt_request_header(call->request, "Content-Type");
    size_t n_body = 0;
    const char *body = bt_request_body(call->request, &n_body);
    bt_call_body said;
    bt_error why = {0};
    bool wants = may_have_body(call->method) && n_body > 0;
    if (wants && bt_call_body_read(type, body, n_body, &said, &why) != BT_OK) {
        if (!name) {
            bt_call_answer_error(call, 400, "body", 0, NULL, why.text);
            return false;
        }
        wants = false; /* of /upstream: whatever the server understands */
    }
    if (!wants) said = (bt_call_body){0};
    if (said.n_probs > config->limits.n_probs) {
        char text[200];
        (void)snprintf(text, sizeof text, "probabilities of %llu tokens each were asked for; at most %u are allowed",
                       (unsigned long long)said.n_probs, config->limits.n_probs);
        bt_call_answer_error(call, 400, "n_probs", 0, NULL, text);
        return false;
    }
    call->is_json = said.is_json;
    call->streams = said.streams;
    (void)snprintf(call->name, sizeof call->name, "%s", name ? name : said.model);
    if (!call->name[0] && config->n_models == 1)
        (void)snprintf(call->name, sizeof call->name, "%s", config->models[0].id);
    if (call->name[0]) return true;
    call->answered = true;
    (void)snprintf(call->code, sizeof call->code, "model_missing");
    bt_reply_error(call->request, 400, "model_missing", "model", 0, NULL,
                   "the request names no model; /v1/models lists them");
    return false;
}

/* It begins with a slash: of "/upstream/model?x" nothing but "?x" is left. */
static char *copy_target(const char *target) {
    size_t n = strlen(target) + 2;
    char *copy = bt_heap_alloc(n);
    if (copy) (void)snprintf(copy, n, "%s%s", *target == '/' ? "" : "/", target);
    return copy;
}

void bt_call_begin(bt_router *router, bt_request *request, const char *name, const char *target) {
    bt_call *call = bt_heap_alloc(sizeof *call);
    if (call) call->target = copy_target(target ? target : bt_request_target(request));
    if (!call || !call->target || strlen(call->target) > TARGET_MAX) {
        if (call) bt_heap_free(call->target);
        bt_heap_free(call);
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "no memory for another request");
        return;
    }
    call->router = router;
    call->request = request;
    call->method = bt_request_method(request);
    call->late = (bt_timer){.on_time = bt_call_answer_late, .user = call};
    call->comment = (bt_timer){.on_time = bt_call_comment, .user = call};
    link_call(router, call);
    bt_request_set_user(request, call);
    bt_request_on_gone(request, on_gone, call);
    if (router->closing) {
        bt_call_answer_error(call, 503, "shutting_down", 0, NULL, "the router is shutting down");
        return;
    }
    if (!read_body(call, name)) return;
    go(call);
    uint64_t comments_ms = bt_models_config(router->models)->loading_comments_ms;
    if (!call->answered && call->streams && comments_ms > 0)
        bt_loop_timer_set(router->loop, &call->comment, comments_ms);
}

/* ---- when it is over ---- */

static const char *outcome_of(const bt_call *call, uint32_t status) {
    if (call->gone) return "cancelled";
    if (status >= 200 && status < 400 && !call->code[0]) return "ok";
    return status == 503 || status == 429 ? "refused" : "error";
}

/* Tokens of a call that has ended: of its prompt, and of its answer where they were not counted while it passed. A
 * count that is not known is 0. */
static uint64_t computed_of(const bt_call *call, const bt_usage *usage) {
    uint64_t prompt = bt_sat_sub_u64(usage->prompt_tokens.value, usage->cached_tokens.value);
    return call->n_pieces > 0 ? prompt : bt_sat_add_u64(prompt, usage->output_tokens.value);
}

static void count(bt_call *call, const bt_activity_row *row) {
    bt_model *model = call->model;
    if (!model) return;
    bt_metrics_model *counts = &model->counts;
    if (strcmp(row->outcome, "ok") == 0) counts->n_ok++;
    if (strcmp(row->outcome, "error") == 0) counts->n_error++;
    if (strcmp(row->outcome, "cancelled") == 0) counts->n_cancelled++;
    counts->prompt_tokens += row->usage.prompt_tokens.known ? row->usage.prompt_tokens.value : 0;
    counts->output_tokens += row->usage.output_tokens.known ? row->usage.output_tokens.value : 0;
    model->n_served += computed_of(call, &row->usage);
    if (row->first_byte_ms > 0) bt_metrics_observe(&counts->first_byte, (double)row->first_byte_ms / 1000.0);
    bt_metrics_observe(&counts->total, (double)row->total_ms / 1000.0);
}

static void tell_row(bt_router *router, const bt_activity_row *row) {
    bt_error why = {0};
    char *json = NULL;
    bt_activity_add(router->activity, row);
    if (bt_activity_row_json(row, &json, &why) == BT_OK) bt_events_add(router->events, "request", json);
    bt_heap_free(json);
}

const char *bt_call_model(const bt_request *request) {
    const bt_call *call = bt_request_user(request);
    return call && call->id[0] ? call->id : NULL;
}

void bt_call_request_ended(bt_router *router, const bt_request *request) {
    bt_call *call = bt_request_user(request);
    if (!call) return;
    uint64_t began_ms = bt_request_began_ms(request), now_ms = bt_loop_now_ms(router->loop);
    size_t n_body = 0;
    (void)bt_request_body(request, &n_body);
    if (bt_request_gone(request)) call->gone = true;
    bt_loop_timer_stop(router->loop, &call->late);
    bt_loop_timer_stop(router->loop, &call->comment);
    bt_call_stop(call);
    bt_call_leave(call);
    if (call->reader) bt_usage_finish(call->reader, &call->usage);
    bt_activity_row row = {.id = bt_request_id(request),
                           .began_ms = bt_os_unix_ms() - (int64_t)(now_ms - began_ms),
                           .status = bt_request_status(request),
                           .waited_ms = (call->granted_ms > 0 ? call->granted_ms : now_ms) - began_ms,
                           .first_byte_ms = call->first_ms > 0 ? bt_max_u64(call->first_ms - began_ms, 1) : 0,
                           .total_ms = now_ms - began_ms,
                           .request_bytes = n_body,
                           .response_bytes = bt_request_sent_bytes(request),
                           .usage = call->usage};
    (void)snprintf(row.model, sizeof row.model, "%.63s", call->id);
    (void)snprintf(row.path, sizeof row.path, "%.63s", bt_request_path(request));
    (void)snprintf(row.outcome, sizeof row.outcome, "%s", outcome_of(call, row.status));
    (void)snprintf(row.code, sizeof row.code, "%.31s", call->code);
    count(call, &row);
    if (call->model) call->model->n_calls--;
    tell_row(router, &row);
    unlink_call(router, call);
    bt_early_close(call->early);
    bt_heap_free(call->target);
    bt_heap_free(call->body);
    bt_heap_free(call);
}

void bt_calls_each(const bt_router *router, void (*each)(void *user, const bt_call_view *view), void *user) {
    for (const bt_call *call = router->calls; call; call = call->next) {
        const char *state = call->first_ms > 0 ? "answering" : call->granted_ms > 0 ? "running" : "waiting";
        const bt_call_view view = {.id = bt_request_id(call->request),
                                   .began_ms = bt_request_began_ms(call->request),
                                   .sent_bytes = bt_request_sent_bytes(call->request),
                                   .model = call->id[0] ? call->id : call->name,
                                   .path = bt_request_path(call->request),
                                   .state = state};
        each(user, &view);
    }
}

/* What is left when the router ends. */
void bt_calls_close(bt_router *router) {
    for (bt_call *call = router->calls; call; call = call->next) {
        bt_call_stop(call);
        bt_call_leave(call);
    }
}
