/* SPDX-License-Identifier: MIT
 * fuzz_router_target.c: the target of a request, and the headers that say who asks: Host, Origin, Authorization. What
 * is taken is a plain path, and nobody is let in by an accident. */
#include "fuzz.h"

#include "plain_check.h"
#include "router/server_access.h"
#include "router/server_target.h"

static const char *const keys[] = {"sk-right-0123456789"};
static const char *const hosts[] = {"box.example"};
static const char *const origins[] = {"https://page.example"};
static const bt_config config = {.listen = "127.0.0.1:8080",
                                 .api_keys = keys,
                                 .n_api_keys = 1,
                                 .allowed_hosts = hosts,
                                 .n_allowed_hosts = 1,
                                 .cors_origins = origins,
                                 .n_cors_origins = 1};

static void check_path(const char *path) {
    FUZZ_CHECK(path[0] == '/' || strcmp(path, "*") == 0);
    for (const char *part = path; part; part = strchr(part + 1, '/'))
        FUZZ_CHECK(strncmp(part, "/../", 4) != 0 && strcmp(part, "/..") != 0 && strncmp(part, "/./", 3) != 0 &&
                   strcmp(part, "/.") != 0);
    plain_check(path);
}

static void check_access(const char *text) {
    bool has_key = strstr(text, keys[0]) != NULL;
    FUZZ_CHECK(!bt_access_key(&config, NULL, text) || has_key);
    FUZZ_CHECK(!bt_access_key(&config, text, NULL) || has_key || strncasecmp(text, "basic", 5) == 0);
    /* A name that may pass has one of these in it; a numeric address passes (no page can take one over). */
    static const char *const own[] = {"localhost", "box.example"};
    bool known = text[0] == '[' || (text[0] >= '0' && text[0] <= '9');
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        known = known || strcasestr(text, own[i]) != NULL;
    FUZZ_CHECK(!bt_access_host(&config, text, "") || known);
    bt_access_origin origin = bt_access_origin_find(&config, text, "127.0.0.1:8080");
    FUZZ_CHECK(origin != BT_ORIGIN_LISTED || strcasestr(text, "page.example"));
    FUZZ_CHECK(origin != BT_ORIGIN_SAME || strstr(text, "127.0.0.1"));
    FUZZ_CHECK(origin != BT_ORIGIN_ANY);
}

static bool one(char *text, size_t n) {
    (void)n;
    bt_target target = {0};
    bt_error err = {0};
    check_access(text);
    bt_status status = bt_target_parse(text, &target, &err);
    if (status != BT_OK) {
        FUZZ_CHECK(status == BT_E_ARG && strcmp(err.code, "target") == 0);
        return false;
    }
    check_path(target.path);
    FUZZ_CHECK(strlen(target.raw) <= BT_TARGET_MAX && memchr(target.authority, '\0', sizeof target.authority));
    const char *model = bt_target_query(&target, "model");
    if (model) FUZZ_CHECK(strlen(model) <= n);
    for (size_t at = 0; at < target.n_query;)
        at += strlen(target.query + at) + 1; /* ends at its end, or a sanitizer says so */
    bt_target_done(&target);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"/",
                                        "?",
                                        "&",
                                        "=",
                                        "%",
                                        "%2f",
                                        "%2e%2e",
                                        "%00",
                                        "%c3%a4",
                                        "%ff",
                                        "/../",
                                        "/./",
                                        "//",
                                        "#",
                                        "+",
                                        "model=",
                                        "http://",
                                        "HTTPS://localhost:8080",
                                        "localhost",
                                        "127.0.0.1:8080",
                                        "[::1]",
                                        "box.example",
                                        "https://page.example",
                                        "Bearer ",
                                        "Basic ",
                                        "sk-right-0123456789",
                                        "null",
                                        "@",
                                        ":",
                                        "*",
                                        "\xc3\xa4",
                                        "."};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "router_target", .one = one, .word = word, .n_rounds = 20000};
