/* SPDX-License-Identifier: MIT
 *
 * page_requests.c: /api/requests: the calls that wait or run now, newest first, without a word of what is said in them.
 */
#include "router/json_tree.h"
#include "router/routing.h"

#include <jansson.h>

#define REQUESTS_SHOWN 256u

typedef struct requests {
    const bt_router *router;
    json_t *list;
    uint64_t n;
} requests;

static void add_request(void *user, const bt_call_view *view) {
    requests *all = user;
    if (all->n++ >= REQUESTS_SHOWN) return;
    uint64_t age_ms = bt_loop_now_ms(all->router->loop) - view->began_ms;
    bt_json_tree_add(&all->list, json_pack("{s:I, s:s, s:s, s:s, s:I, s:I}", "id", (json_int_t)view->id, "model",
                                           view->model, "path", view->path, "state", view->state, "age_ms",
                                           (json_int_t)age_ms, "sent_bytes", (json_int_t)view->sent_bytes));
}

void bt_page_requests(bt_router *router, bt_request *request) {
    requests all = {.router = router, .list = json_array()};
    bt_calls_each(router, add_request, &all);
    bt_page_tree(request, json_pack("{s:o, s:I}", "requests", all.list, "n", (json_int_t)all.n));
}
