/* SPDX-License-Identifier: MIT
 * test_router_start.c: the words a model is started with, its address, when two are the same child, and the text of
 * --check-config. */
#include "router_kit.h"

#include "base/arena.h"

static const char *argv_of(const bt_config *c, const char *id, uint32_t port) {
    static char got[2000];
    bt_arena *arena = bt_arena_open(1u << 20, 4096);
    char **argv = NULL;
    assert_non_null(arena);
    assert_int_equal(bt_config_argv(c, bt_config_find(c, id), port, arena, &argv, NULL), BT_OK);
    got[0] = '\0';
    for (size_t i = 0; argv[i]; i++) {
        if (i > 0) strcat(got, "|");
        strcat(got, argv[i]);
    }
    bt_arena_close(arena);
    return got;
}

static const char *url_of(const bt_config *c, const char *id, uint32_t port) {
    static char got[400];
    bt_arena *arena = bt_arena_open(1u << 16, 4096);
    char *url = NULL;
    assert_non_null(arena);
    assert_int_equal(bt_config_url(bt_config_find(c, id), port, arena, &url, NULL), BT_OK);
    (void)snprintf(got, sizeof got, "%s", url);
    bt_arena_close(arena);
    return got;
}

static void commands(void **state) {
    (void)state;
    static const char models[] = "models:\n"
                                 "  a: {model: /m/a.gguf, args: '-c 4096 --slots ${PORT}'}\n"
                                 "  p: {model: '/m/${x}.gguf', macros: {x: p}}\n"
                                 "  own: {model: /b, args: [--cache-ram, 100]}\n"
                                 "  own2: {model: /b, args: --cache_ram=100}\n"
                                 "  own3: {model: /b, args: -cram 1}\n"
                                 "  own4: {model: /b, env: [LLAMA_ARG_CACHE_RAM=3]}\n"
                                 "  ckpt: {model: /b, args: --swa_checkpoints 9 --metrics}\n"
                                 "  near: {model: /b, args: --cache-reuse 1}\n"
                                 "  size: {model: /b, ram_budget: 1G}\n"
                                 "  cmd: {cmd: 'x -p ${PORT} a${PORT}${PORT}'}\n"
                                 "  url: {cmd: x, proxy: 'http://127.0.0.1:81/v1//'}\n";
    char text[2000];
    bt_config *c = kit_parse(models);
    assert_string_equal(argv_of(c, "a", 5800), "llama-server|-m|/m/"
                                               "a.gguf|--host|127.0.0.1|--port|5800|--alias|a|--no-webui|--metrics|--"
                                               "cache-ram|0|--ctx-checkpoints|3|-c|4096|--slots|5800");
    assert_string_equal(argv_of(c, "cmd", 65535), "x|-p|65535|a6553565535");
    assert_string_equal(
        argv_of(c, "size", 1),
        "llama-server|-m|/"
        "b|--host|127.0.0.1|--port|1|--alias|size|--no-webui|--metrics|--cache-ram|0|--ctx-checkpoints|0");
    assert_string_equal(argv_of(c, "near", 1), "llama-server|-m|/"
                                               "b|--host|127.0.0.1|--port|1|--alias|near|--no-webui|--metrics|--cache-"
                                               "ram|0|--ctx-checkpoints|3|--cache-reuse|1");
    assert_string_equal(url_of(c, "a", 5801), "http://127.0.0.1:5801");
    assert_string_equal(url_of(c, "url", 5801), "http://127.0.0.1:81/v1");
    assert_string_equal(
        argv_of(c, "p", 7),
        "llama-server|-m|/m/"
        "p.gguf|--host|127.0.0.1|--port|7|--alias|p|--no-webui|--metrics|--cache-ram|0|--ctx-checkpoints|3");
    bt_config_close(c);
    (void)snprintf(text, sizeof text, "ram_budget: 4G\nllama_server: /opt/ls\n%s", models);
    c = kit_parse(text);
    assert_string_equal(argv_of(c, "near", 1), "/opt/ls|-m|/"
                                               "b|--host|127.0.0.1|--port|1|--alias|near|--no-webui|--metrics|--cache-"
                                               "ram|0|--ctx-checkpoints|3|--cache-reuse|1");
    static const char *const own[] = {"own", "own2", "own3", "own4"};
    for (size_t i = 0; i < 4; i++)
        assert_null(strstr(argv_of(c, own[i], 1), "--cache-ram|0"));
    assert_string_equal(argv_of(c, "ckpt", 1), "/opt/ls|-m|/b|--host|127.0.0.1|--port|1|--alias|ckpt|--no-webui|"
                                               "--cache-ram|0|--swa_checkpoints|9|--metrics");
    bt_config_close(c);
}

static void same(const char *a, const char *b, bool expected) {
    char text[1000];
    (void)snprintf(text, sizeof text, "models: {m: {%s}}", a);
    bt_config *one = kit_parse(text);
    (void)snprintf(text, sizeof text, "models: {m: {%s}}", b);
    bt_config *two = kit_parse(text);
    if (bt_config_same_child(&one->models[0], &two->models[0]) != expected) fail_msg("%s, %s", a, b);
    if (bt_config_same_child(&two->models[0], &one->models[0]) != expected) fail_msg("%s, %s", b, a);
    bt_config_close(one);
    bt_config_close(two);
}

static void same_child(void **state) {
    (void)state;
    same("model: x", "model: x", true);
    same("model: x",
         "model: x, ttl: 5, aliases: [q], name: n, filters: {strip_params: a}, persistent: true, concurrency: 2, "
         "priority: "
         "1, metadata: {a: 1}, unlisted: true, use_model_name: u, stop_timeout: 3, health_timeout: 4, preload: true",
         true);
    same("model: x", "model: x, args: '', env: []", true);
    same("model: x", "model: y", false);
    same("model: x", "cmd: 'x ${PORT}'", false);
    same("model: x", "model: x, args: -c 1", false);
    same("model: x, args: -c 1", "model: x, args: -c 2", false);
    same("model: x, args: -c 1", "model: x, args: -c 1 -v", false);
    same("model: x, args: -c 1", "model: x, args: [-c, 1]", true);
    same("model: x", "model: x, env: [A=1]", false);
    same("model: x, env: [A=1]", "model: x, env: {A: 1}", true);
    same("model: x", "model: x, ram_budget: 1G", false);
    same("model: x, ram_budget: 2G", "model: x, ram_budget: 1G", false);
    same("model: x, memory: {host: 1G}", "model: x, memory: {host: 2G}", false);
    same("model: x, memory: {host: 1G}", "model: x, memory: {CUDA0: 1G}", false);
    same("model: x, memory: {host: 1G}", "model: x, memory: {host: 1024M}", true);
    same("model: x, min_gpu_fraction: off", "model: x", false);
    same("cmd: x, proxy: 'http://a'", "cmd: x, proxy: 'http://b'", false);
}

static void as_text(void **state) {
    (void)state;
    bt_config *c =
        kit_parse("listen: 0.0.0.0:1\napi_keys: [secret-1]\nram_budget: 4G\ndevices: {CUDA0: {budget: 2G, target: "
                  "1G}, V: }\nlogLevel: x\nmodels:\n  a: {model: /a, aliases: [b, c], ttl: 90s, ram_budget: 1G, "
                  "persistent: true, priority: 2}\n  z: {cmd: x, proxy: 'http://u', memory: {host: "
                  "1M, X: 2M}, ttl: 2h, unlisted: true}\ngroups: {g: {members: [a]}}\n"
                  "peers: {p: {proxy: 'http://v', models: [q]}}\n");
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_config_text(c, &kit_notes, &text);
    assert_string_equal(
        bt_text_str(&text),
        "listen 0.0.0.0:1; keys: 1\n"
        "host: 4.00 GiB\n"
        "CUDA0: 2.00 GiB, plans under 1.00 GiB\n"
        "V: what it has\n"
        "watchdog: reserve 1.00 GiB, grace 30 s, evict yes\n"
        "model a: /a; also b, c; in 1.00 GiB of RAM; unloaded after 90 s; group g; priority 2; persistent\n"
        "model z: x; takes host 1.0 MiB, X 2.0 MiB; unloaded after 120 min; unlisted\n"
        "group g: one at a time; alone\n"
        "peer p: http://v, 1 model\n"
        "note: dir/c.yaml:5: logLevel: --log-level of burthen serve says what is logged\n");
    bt_text_done(&text);
    bt_config_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands), cmocka_unit_test(same_child),
                                       cmocka_unit_test(as_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
