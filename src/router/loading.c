/* SPDX-License-Identifier: MIT
 *
 * loading.c: wishes that a model be loaded, or unloaded, without a request to it: of the page's buttons, and of the
 * configuration (preload). A wish waits like any request, and its turn is over as soon as it has come. */
#include "router/routing.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <string.h>

void bt_page_unload(bt_router *router, bt_request *request, const char *id) {
    bt_model *model = id ? bt_models_find(router->models, id) : NULL;
    if (id && !model) {
        bt_page_no_model(router, request, "model", id);
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
    if (!l) return bt_fail_sys(err, ENOMEM, "models", "no memory to load a model");
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
        bt_page_no_model(router, request, "model", id);
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
            bt_models_tell(router->models, BT_LOG_WARN, "%s: not preloaded: %s", model->id, why.text);
    }
}
