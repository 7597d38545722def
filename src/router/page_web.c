/* SPDX-License-Identifier: MIT
 *
 * page_web.c: the page for people: "/" is web/index.html, /web/NAME the rest of it, from memory.
 *
 * Its files hold nothing that anybody may not see, so they need no key; what they show is asked for by the page, with
 * the key that its reader has typed. The policy lets it run and show what came from here, ask here, and nothing else:
 * no text of a model, a client or a log can become a script, and no other site can hold the page in a frame. A file is
 * asked for again each time it is used, and sent again when its tag has changed, so that a new router never meets half
 * an old page. */
#include "router/routing.h"
#include "router/web_files.h"

#include <string.h>

#define PREFIX "/web/"

static const char content_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

static const bt_web_file *find(const char *path) {
    const char *name = NULL;
    if (strcmp(path, "/") == 0)
        name = "index.html";
    else if (strncmp(path, PREFIX, sizeof PREFIX - 1) == 0)
        name = path + sizeof PREFIX - 1;
    for (uint32_t i = 0; name && i < bt_web_n_files; i++)
        if (strcmp(bt_web_files[i].name, name) == 0) return &bt_web_files[i];
    return NULL;
}

bool bt_page_web_has(const char *path) {
    return find(path) != NULL;
}

/* One of the tags that the client has, or "*" (RFC 9110, 13.1.2: by their text, weak or not). */
static bool is_held(const bt_request *request, const char *tag) {
    const char *held = bt_request_header(request, "If-None-Match");
    return held && (strstr(held, tag) || strcmp(held, "*") == 0);
}

void bt_page_web(bt_router *router, bt_request *request) {
    const bt_web_file *file = find(bt_request_path(request));
    (void)router;
    if (!file) {
        bt_reply_error(request, 404, "not_found", NULL, 0, NULL, "the page has no such file");
        return;
    }
    const bt_header headers[] = {{"ETag", file->tag},
                                 {"Cache-Control", "no-cache"},
                                 {"Content-Security-Policy", content_policy},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"X-Frame-Options", "DENY"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cross-Origin-Opener-Policy", "same-origin"},
                                 {"Cross-Origin-Resource-Policy", "same-origin"}};
    const uint32_t n = sizeof headers / sizeof *headers;
    if (is_held(request, file->tag))
        bt_reply(request, 304, NULL, "", 0, headers, n);
    else
        bt_reply(request, 200, file->type, file->data, file->n_bytes, headers, n);
}
