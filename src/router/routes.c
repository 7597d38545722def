/* SPDX-License-Identifier: MIT
 *
 * routes.c: from a path to who answers it.
 *
 * Three kinds: what goes to the model that its body names (POST), what goes to the model that ?model= names (GET), and
 * pages of the router's own. /upstream/MODEL/... is anything, of any method. A path of ours with another method is 405,
 * one of nobody is 404. Versionless twins (/chat/completions) are llama-server's own, and go on as they are. */
#include "base/text.h"
#include "router/routing.h"
#include "router/server_target.h"

#include <stdio.h>
#include <string.h>

/* By the body's "model". */
static const char *const body_paths[] = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/reranking",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/infill",
    "/chat/completions",
    "/completions",
    "/completion",
    "/embeddings",
    "/embedding",
    "/rerank",
    "/reranking",
    "/infill",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
};

/* By ?model=. */
static const char *const query_paths[] = {"/props", "/slots", "/v1/audio/voices", "/sdapi/v1/loras"};

typedef void page(bt_router *router, bt_request *request);

static void page_health(bt_router *router, bt_request *request) {
    (void)router;
    bt_reply_json(request, 200, "{\"status\":\"ok\"}");
}

static void page_unload_all(bt_router *router, bt_request *request) {
    bt_page_unload(router, request, NULL);
}

static const struct {
    const char *method, *path;
    page *answer;
} pages[] = {
    {"GET", "/", bt_page_web},
    {"GET", "/health", page_health},
    {"GET", "/v1/health", page_health},
    {"GET", "/v1/models", bt_page_models},
    {"GET", "/models", bt_page_models},
    {"GET", "/running", bt_page_running},
    {"GET", "/unload", page_unload_all}, /* as llama-swap has it */
    {"POST", "/api/models/unload", page_unload_all},
    {"GET", "/metrics", bt_page_metrics},
    {"GET", "/api/memory", bt_page_memory},
    {"GET", "/api/requests", bt_page_requests},
    {"GET", "/api/activity", bt_page_activity},
    {"GET", "/api/metrics/activity", bt_page_activity}, /* as llama-swap has it */
    {"GET", "/api/machine", bt_page_machine},
    {"GET", "/api/plan", bt_page_plan},
    {"GET", "/api/events", bt_page_events},
};

bool bt_routes_is_open(const char *method, const char *path) {
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return reads && (strcmp(path, "/health") == 0 || strcmp(path, "/v1/health") == 0 || bt_page_web_has(path));
}

bool bt_routes_is_quiet(const char *method, const char *path) {
    static const char *const looks[] = {"/health", "/v1/health", "/api/memory", "/api/requests"};
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) return false;
    return bt_is_among(path, looks, sizeof looks / sizeof *looks) || bt_page_web_has(path);
}

/* What follows a prefix, or NULL. */
static const char *after(const char *path, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(path, prefix, n) == 0 ? path + n : NULL;
}

static void refuse_method(bt_request *request, const char *allowed) {
    bt_reply_error(request, 405, "method", NULL, 0, NULL, "%s takes %s", bt_request_path(request), allowed);
}

/* GET for HEAD: the server leaves the body out. */
static const char *method_of(const bt_request *request) {
    const char *method = bt_request_method(request);
    return strcmp(method, "HEAD") == 0 ? "GET" : method;
}

static bool answer_page(bt_router *router, bt_request *request) {
    const char *allowed = NULL;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(bt_request_path(request), pages[i].path) != 0) continue;
        if (strcmp(method_of(request), pages[i].method) == 0) {
            pages[i].answer(router, request);
            return true;
        }
        allowed = pages[i].method;
    }
    if (allowed) refuse_method(request, allowed);
    return allowed != NULL;
}

/* /upstream/MODEL/rest: ids may hold slashes, so the longest that is a name counts. The rest is taken from the target
 * as it was sent, so that what is encoded stays so. */
#define UPSTREAM_PARTS 3u /* of a name that is looked for: "org/model" has two, "peer/org/model" three */

/* Where the name ends, nobody has said: it is the first that is near to one, else what stands before a slash. */
static void refuse_upstream(bt_router *router, bt_request *request, const char *rest) {
    char name[3 * BT_CONFIG_ID_MAX + 1], text[BT_CONFIG_NO_MODEL_BYTES], near[BT_CONFIG_NO_MODEL_BYTES];
    const bt_config *config = bt_models_config(router->models);
    bool found = false;
    (void)bt_config_no_model(config, "so", text, sizeof text);
    for (size_t n = strcspn(rest, "/?"), i = 0; !found && i < UPSTREAM_PARTS; i++) {
        if (n >= sizeof name || !bt_target_decode(rest, n, name)) break;
        found = bt_config_no_model(config, name, near, sizeof near);
        if (i == 0 || found) (void)snprintf(text, sizeof text, "%s", near);
        if (rest[n] != '/') break;
        n += 1 + strcspn(rest + n + 1, "/?");
    }
    bt_reply_error(request, 404, "model_not_found", "model", 0, NULL, "%s", text);
}

static bool answer_upstream(bt_router *router, bt_request *request) {
    const char *rest = after(bt_request_target(request), "/upstream/");
    char name[3 * BT_CONFIG_ID_MAX + 1]; /* each byte may be sent as an escape of three */
    if (!rest) return false;
    size_t n_path = strcspn(rest, "?");
    for (size_t n = n_path; n > 0; n--) {
        const char *model = NULL;
        if ((n < n_path && rest[n] != '/') || n >= sizeof name || !bt_target_decode(rest, n, name)) continue;
        if (!bt_models_find(router->models, name) &&
            !bt_config_find_peer(bt_models_config(router->models), name, &model))
            continue;
        bt_call_begin(router, request, name, rest + n);
        return true;
    }
    refuse_upstream(router, request, rest);
    return true;
}

static bool answer_model(bt_router *router, bt_request *request) {
    const char *path = bt_request_path(request), *method = method_of(request);
    const char *unload = after(path, "/api/models/unload/"), *load = after(path, "/api/models/load/");
    const char *logs = after(path, "/logs");
    if (after(path, "/web/")) {
        if (strcmp(method, "GET") == 0)
            bt_page_web(router, request);
        else
            refuse_method(request, "GET");
        return true;
    }
    if (unload || load) {
        if (strcmp(method, "POST") != 0)
            refuse_method(request, "POST");
        else if (unload)
            bt_page_unload(router, request, unload);
        else
            bt_page_load(router, request, load);
        return true;
    }
    if (logs && (*logs == '\0' || *logs == '/')) {
        if (strcmp(method, "GET") == 0)
            bt_page_logs(router, request, logs);
        else
            refuse_method(request, "GET");
        return true;
    }
    return answer_upstream(router, request);
}

/* What a GET of it starts or ends. */
static bool is_deed(const char *path) {
    return strcmp(path, "/unload") == 0 || after(path, "/upstream/") ||
           bt_is_among(path, query_paths, sizeof query_paths / sizeof *query_paths);
}

void bt_routes_answer(bt_router *router, bt_request *request) {
    const char *path = bt_request_path(request);
    if (is_deed(path) && bt_request_is_foreign(request)) {
        bt_reply_error(request, 403, "origin", NULL, 0, NULL,
                       "pages from elsewhere may not ask for this: cors_origins does not name them");
        return;
    }
    if (bt_is_among(path, body_paths, sizeof body_paths / sizeof *body_paths)) {
        if (strcmp(bt_request_method(request), "POST") == 0)
            bt_call_begin(router, request, NULL, NULL);
        else
            refuse_method(request, "POST");
        return;
    }
    if (bt_is_among(path, query_paths, sizeof query_paths / sizeof *query_paths)) {
        bt_call_begin(router, request, bt_request_query(request, "model"), NULL);
        return;
    }
    if (answer_page(router, request) || answer_model(router, request)) return;
    bt_reply_error(request, 404, "not_found", NULL, 0, NULL, "there is nothing at %.200s", path);
}
