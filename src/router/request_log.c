/* SPDX-License-Identifier: MIT
 *
 * request_log.c: what the log says of requests: a line each, when it is over.
 *
 *     127.0.0.1 POST /v1/chat/completions 200 645 B 0.531 s smol
 *
 * Who, what, how it ended, how much, how long, whom it went to; nothing of a query, a header or a body: they may hold
 * keys and prompts. A request that was not answered well can be caused by anybody who reaches the address, without a
 * key: of those at most BAD_LINES_MAX a second are lines, and one more says how many were left out. Keys that were
 * wrong and pages that may not ask are warnings.
 *
 * Looks at the router that succeed (its own page's, each second) are no lines. */
#include "router/routing.h"

#include <inttypes.h>
#include <stdio.h>

#define BAD_LINES_MAX                                                                                                  \
    20u /* a second: 20 lines of some 300 bytes are 500 MB a day at the worst, and logrotate's to keep */
#define SECOND_MS      1000u
#define PATH_MAX_SHOWN 200

static void end_second(void *user) {
    bt_router *router = user;
    bt_request_log *log = &router->request_log;
    if (log->n_left_out > 0)
        bt_models_tell(router->models, BT_LOG_WARN, "%" PRIu64 " more requests were refused or failed within a second",
                       log->n_left_out);
    log->n_written = 0;
    log->n_left_out = 0;
}

void bt_request_log_open(bt_router *router) {
    router->request_log = (bt_request_log){.told = {.on_time = end_second, .user = router}};
}

/* Whether one more line that anybody can cause may be written. */
static bool may_write(bt_router *router) {
    bt_request_log *log = &router->request_log;
    if (log->n_written == 0) bt_loop_timer_set(router->loop, &log->told, SECOND_MS);
    if (log->n_written < BAD_LINES_MAX) {
        log->n_written++;
        return true;
    }
    log->n_left_out++;
    return false;
}

static void write_line(bt_router *router, const bt_request *request, bt_log_level level) {
    char line[512];
    const char *model = bt_call_model(request);
    uint64_t ms = bt_loop_now_ms(router->loop) - bt_request_began_ms(request);
    uint64_t sent_bytes = bt_request_sent_bytes(request);
    uint32_t status = bt_request_status(request);
    int n = snprintf(line, sizeof line, "%s %.16s %.*s %u %" PRIu64 " B %.3f s%s%.64s%s", bt_request_peer(request),
                     bt_request_method(request), PATH_MAX_SHOWN, bt_request_path(request), status, sent_bytes,
                     (double)ms / 1000.0, model ? " " : "", model ? model : "",
                     bt_request_gone(request) ? " client left" : "");
    const bt_log_field fields[] = {{.name = "peer", .text = bt_request_peer(request)},
                                   {.name = "method", .text = bt_request_method(request)},
                                   {.name = "path", .text = bt_request_path(request)},
                                   {.name = "status", .number = status},
                                   {.name = "bytes", .number = sent_bytes},
                                   {.name = "ms", .number = ms},
                                   {.name = "to", .text = model}};
    const bt_log_entry entry = {
        .level = level, .plain = level == BT_LOG_INFO, .message = line, .fields = fields, .n_fields = model ? 7 : 6};
    if (n > 0) bt_models_log(router->models, &entry);
}

void bt_request_log_ended(bt_router *router, const bt_request *request) {
    uint32_t status = bt_request_status(request);
    bool good = status == 200 || status == 304;
    if (good && bt_routes_is_quiet(bt_request_method(request), bt_request_path(request))) return;
    if (status >= 400 && !may_write(router)) return;
    write_line(router, request, status == 403 || status >= 500 ? BT_LOG_WARN : BT_LOG_INFO);
}

void bt_request_log_refused(bt_router *router, const bt_request *request) {
    uint32_t status = bt_request_status(request);
    if (status < 400 || !may_write(router)) return; /* a preflight is answered by the server itself */
    write_line(router, request, BT_LOG_WARN);
}
