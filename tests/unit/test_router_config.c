/* SPDX-License-Identifier: MIT
 * test_router_config.c: a configuration: defaults, every kind of key, and what is refused at which line. */
#include "router_kit.h"

static void defaults(void **state) {
    (void)state;
    bt_config *made = NULL;
    assert_int_equal(bt_config_new(&made, NULL), BT_OK);
    bt_config *read = kit_parse("# nothing\n");
    bt_config *both[] = {made, read};
    for (size_t i = 0; i < 2; i++) {
        const bt_config *c = both[i];
        assert_string_equal(c->listen, "127.0.0.1:8080");
        assert_int_equal(c->start_port, 0);
        assert_int_equal(c->hold_ms, 10000);
        assert_int_equal(c->patience_ms, 60000);
        assert_int_equal(c->cooldown_ms, 60000);
        assert_int_equal(c->oom_reserve_bytes, 1u << 30);
        assert_int_equal(c->oom_grace_ms, 30000);
        assert_true(c->oom_evict && !c->oom_reserve_off && !c->ram_budget_given && !c->insecure && !c->log_children);
        assert_true(c->min_gpu_fraction > 0.49 && c->min_gpu_fraction < 0.51);
        assert_int_equal(c->limits.request_bytes, 32u << 20);
        assert_int_equal(bt_config_bodies_bytes(c), 64u << 20);
        assert_int_equal(c->limits.flow_bytes, 64u << 10);
        assert_int_equal(c->limits.idle_ms, 120000);
        assert_int_equal(c->limits.n_connections, 1024);
        assert_int_equal(c->limits.n_queued, 1024);
        assert_int_equal(c->limits.n_queued_model, 256);
        assert_int_equal(c->limits.n_probs, 128);
        assert_int_equal(c->n_models + c->n_groups + c->n_peers + c->n_devices + c->n_api_keys, 0);
        assert_null(c->llama_server);
        assert_null(c->models_dir);
    }
    assert_null(made->file);
    assert_string_equal(read->file, "dir/c.yaml");
    bt_config_close(made);
    bt_config_close(read);
    bt_config_close(NULL);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void the_example(void **state) {
    (void)state;
    bt_config *c = kit_parse("listen: 127.0.0.1:9090\n"
                             "ram_budget: 12G\n"
                             "devices: {CUDA0: {budget: 22G, target: 21G}, CUDA1: 4G}\n"
                             "oom_guard: {reserve: 2G, evict: false, grace: 45s}\n"
                             "min_gpu_fraction: 0.25\n"
                             "models_dir: ~/models\n"
                             "models:\n"
                             "  small: {model: small.gguf, persistent: true}\n"
                             "  big:   {cmd: \"llama-server -m big.gguf -ngl 99 -c 32768 --port ${PORT}\", aliases: "
                             "[gpt-4], ttl: 10m}\n");
    assert_string_equal(c->listen, "127.0.0.1:9090");
    assert_true(c->ram_budget_given);
    assert_int_equal(c->ram_budget_bytes, UINT64_C(12) << 30);
    assert_int_equal(c->n_devices, 2);
    assert_string_equal(c->devices[0].name, "CUDA0");
    assert_true(c->devices[0].budget_bytes.known && c->devices[0].target_bytes.known);
    assert_int_equal(c->devices[0].budget_bytes.value, UINT64_C(22) << 30);
    assert_int_equal(c->devices[0].target_bytes.value, UINT64_C(21) << 30);
    assert_int_equal(c->devices[1].budget_bytes.value, UINT64_C(4) << 30);
    assert_false(c->devices[1].target_bytes.known);
    assert_int_equal(c->oom_reserve_bytes, UINT64_C(2) << 30);
    assert_int_equal(c->oom_grace_ms, 45000);
    assert_false(c->oom_evict);
    assert_true(c->min_gpu_fraction > 0.249 && c->min_gpu_fraction < 0.251);
    assert_string_equal(c->models_dir, "/home/ann/models");
    assert_int_equal(c->n_models, 2);
    const bt_config_model *m = &c->models[0];
    assert_string_equal(m->id, "small");
    assert_int_equal(m->line, 8);
    assert_string_equal(m->model, "dir/small.gguf");
    assert_true(m->persistent && m->uses_port);
    assert_null(m->cmd);
    assert_string_equal(m->proxy, "http://127.0.0.1:${PORT}");
    assert_string_equal(m->check_endpoint, "/health");
    assert_int_equal(m->health_timeout_ms, 120000);
    assert_int_equal(m->stop_timeout_ms, 10000);
    assert_int_equal(m->connect_timeout_ms, 30000);
    assert_int_equal(m->header_timeout_ms, 0);
    assert_int_equal(m->ttl_ms, 0);
    assert_int_equal(m->group, UINT32_MAX);
    m = &c->models[1];
    assert_string_equal(m->cmd[0], "llama-server");
    assert_string_equal(m->cmd[8], "${PORT}");
    assert_null(m->cmd[9]);
    assert_int_equal(m->ttl_ms, 600000);
    assert_ptr_equal(bt_config_find(c, "gpt-4"), m);
    assert_ptr_equal(bt_config_find(c, "big"), m);
    assert_null(bt_config_find(c, "gpt-5"));
    assert_int_equal(kit_notes.n, 0);
    bt_config_close(c);
}

static void every_key_of_a_model(void **state) {
    (void)state;
    bt_config *c = kit_parse("healthCheckTimeout: 300\nunloadTimeout: 20\nglobalTTL: 600\n"
                             "models:\n"
                             "  a:\n"
                             "    cmd: [prog, 'two words', '${PORT}']\n"
                             "    cmdStop: stop --pid ${PID}\n"
                             "    proxy: http://localhost:${PORT}/\n"
                             "    checkEndpoint: none\n"
                             "    env: [A=1, 'B=${PORT}']\n"
                             "    name: 12\n"
                             "    description: d ${MODEL_ID}\n"
                             "    unlisted: true\n"
                             "    useModelName: other\n"
                             "    concurrencyLimit: 3\n"
                             "    timeouts: {connect: 5, responseHeader: 250ms, keepalive: 1}\n"
                             "    metadata: {n: 1, p: '${PORT}', o: {x: [true, null, '1']}}\n"
                             "    memory: {host: 2G, CUDA0: 1.5G}\n"
                             "    min_gpu_fraction: off\n"
                             "    ram_budget: 512M\n"
                             "    priority: -3\n"
                             "    preload: true\n"
                             "    sendLoadingState: true\n"
                             "  b: {model: /x/b.gguf, args: -c 4096, ttl: -1, env: {C: 2, D: },\n"
                             "      health_timeout: 5s, stop_timeout: 1s}\n"
                             "  c: {model: c.gguf, ttl: 0, unloadTimeout: 0, ram_budget: off, min_gpu_fraction: 1}\n");
    const bt_config_model *m = &c->models[0];
    assert_string_equal(m->cmd[1], "two words");
    assert_string_equal(m->cmd_stop[2], "${PID}");
    assert_string_equal(m->proxy, "http://localhost:${PORT}/");
    assert_null(m->check_endpoint);
    assert_string_equal(m->env[1], "B=${PORT}");
    assert_null(m->env[2]);
    assert_string_equal(m->name, "12");
    assert_string_equal(m->description, "d a");
    assert_true(m->unlisted && m->preload);
    assert_string_equal(m->use_model_name, "other");
    assert_int_equal(m->concurrency, 3);
    assert_int_equal(m->connect_timeout_ms, 5000);
    assert_int_equal(m->header_timeout_ms, 250);
    assert_string_equal(m->metadata_json, "{\"n\":1,\"p\":\"${PORT}\",\"o\":{\"x\":[true,null,\"1\"]}}");
    assert_int_equal(m->n_memory, 2);
    assert_string_equal(m->memory[1].pool, "CUDA0");
    assert_int_equal(m->memory[1].bytes, UINT64_C(3) << 29);
    assert_true(m->min_gpu_fraction < 0);
    assert_int_equal(m->ram, BT_CONFIG_RAM_SIZE);
    assert_int_equal(m->ram_bytes, 512u << 20);
    assert_int_equal(m->priority, -3);
    assert_int_equal(m->ttl_ms, 600000);
    assert_int_equal(m->health_timeout_ms, 300000);
    assert_int_equal(m->stop_timeout_ms, 20000);
    assert_true(kit_noted(17, "${PORT} is not known here"));
    assert_true(kit_noted(16, "models.<id>.timeouts.keepalive: "));
    assert_true(kit_noted(23, "models.<id>.sendLoadingState: "));
    assert_int_equal(kit_notes.n, 3);
    m = &c->models[1];
    assert_string_equal(m->model, "/x/b.gguf");
    assert_string_equal(m->args[1], "4096");
    assert_string_equal(m->env[0], "C=2");
    assert_string_equal(m->env[1], "D=");
    assert_int_equal(m->ttl_ms, 600000);
    assert_int_equal(m->health_timeout_ms, 5000);
    assert_int_equal(m->stop_timeout_ms, 1000);
    assert_int_equal(c->models[2].ttl_ms, 0);
    assert_int_equal(c->models[2].stop_timeout_ms, 20000);
    assert_int_equal(c->models[2].ram, BT_CONFIG_RAM_OFF);
    assert_true(c->models[2].min_gpu_fraction > 0.99);
    bt_config_close(c);
}

/* What llama-swap's own examples give as "none". */
static void empty_values(void **state) {
    (void)state;
    bt_config *c =
        kit_parse("apiKeys: []\ngroups: {}\nhooks: {}\npeers:\nmacros: {}\nmodels:\n"
                  "  a: {cmd: 'x ${PORT}', cmdStop: '', proxy: '', checkEndpoint: '', useModelName: '', name: '',\n"
                  "      description: '', aliases: [], env: [], metadata: {}, macros: {}, ttl: ,\n"
                  "      filters: {stripParams: '', setParams: {}, setParamsByID: {}}}\n"
                  "  b: {cmd: 'x ${PORT}', filters: {}}\n");
    const bt_config_model *m = &c->models[0];
    assert_null(m->cmd_stop);
    assert_string_equal(m->proxy, "http://127.0.0.1:${PORT}");
    assert_string_equal(m->check_endpoint, "/health");
    assert_null(m->use_model_name);
    assert_null(m->name);
    assert_null(m->description);
    assert_int_equal(m->n_aliases + m->filters.n_strip + m->filters.n_set_by_id, 0);
    assert_string_equal(m->metadata_json, "{}");
    assert_true(bt_config_same_child(m, m));
    assert_int_equal(c->n_peers + c->n_groups, 0);
    assert_int_equal(kit_notes.n, 0);
    bt_config_close(c);
}

static void the_top(void **state) {
    (void)state;
    bt_config *c =
        kit_parse("apiKeys: ['${env.KEY}', b]\nallowed_hosts: x.lan\ncors_origins: ['*']\ninsecure: true\n"
                  "tls_cert: /c.pem\ntls_key: k.pem\nram_budget: auto\noom_guard: off\nhold: 0\npatience: 1m\n"
                  "cooldown: 1m30s\nllama_server: bin/llama-server\nstart_port: 0\nlogToStdout: both\n"
                  "limits: {request: 1M, bodies: 2M, connections: 10, queued: 11, queued_model: 12, n_probs: 0,\n"
                  "         flow: 8K, idle: 5}\n"
                  "healthCheckTimeout: 3\nlogLevel: debug\nperformance: {every: 5}\nlogTimeFormat: ~\n");
    assert_int_equal(c->n_api_keys, 2);
    assert_string_equal(c->api_keys[0], "sk-1");
    assert_int_equal(c->n_allowed_hosts, 1);
    assert_string_equal(c->allowed_hosts[0], "x.lan");
    assert_string_equal(c->cors_origins[0], "*");
    assert_true(c->insecure && !c->ram_budget_given && c->oom_reserve_off && !c->oom_evict && c->log_children);
    assert_string_equal(c->tls_cert, "/c.pem");
    assert_string_equal(c->tls_key, "dir/k.pem");
    assert_int_equal(c->hold_ms, 0);
    assert_int_equal(c->patience_ms, 60000);
    assert_int_equal(c->cooldown_ms, 90000);
    assert_string_equal(c->llama_server, "dir/bin/llama-server");
    assert_int_equal(c->start_port, 0);
    assert_int_equal(c->limits.request_bytes, 1u << 20);
    assert_int_equal(c->limits.bodies_bytes, 2u << 20);
    assert_int_equal(c->limits.n_connections, 10);
    assert_int_equal(c->limits.n_queued, 11);
    assert_int_equal(c->limits.n_queued_model, 12);
    assert_int_equal(c->limits.n_probs, 0);
    assert_int_equal(c->limits.flow_bytes, 8192);
    assert_int_equal(c->limits.idle_ms, 5000);
    assert_int_equal(c->defaults.health_timeout_ms, 15000);
    assert_true(kit_noted(17, "at least 15 s"));
    assert_true(kit_noted(18, "logLevel: "));
    assert_true(kit_noted(19, "performance.every: "));
    assert_int_equal(kit_notes.n, 3); /* what is null is not there */
    bt_config_close(c);
}

static void groups_peers_and_the_rest(void **state) {
    (void)state;
    static const char models[] = "models: {a: {model: a}, b: {model: b}, c: {model: c, aliases: [see]}}\n";
    char text[2000];
    static const char *const forms[] = {
        "groups: {g: {swap: false, members: [a, c]}, h: {exclusive: false, persistent: "
        "true, members: b}}\n",
        "routing: {router: {use: group, settings: {groups: {g: {swap: false, members: [a, "
        "c]}, h: {exclusive: false, persistent: true, members: b}}}}, scheduler: {use: "
        "fifo, settings: {fifo: {priority: {see: 7}}}}}\n"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text, "%s%shooks: {on_startup: {preload: [a, see]}}\n", forms[i], models);
        bt_config *c = kit_parse(text);
        assert_int_equal(c->n_groups, 2);
        assert_string_equal(c->groups[0].name, "g");
        assert_true(!c->groups[0].swap && c->groups[0].exclusive && !c->groups[0].persistent);
        assert_true(c->groups[1].swap && !c->groups[1].exclusive && c->groups[1].persistent);
        assert_int_equal(c->models[0].group, 0);
        assert_int_equal(c->models[1].group, 1);
        assert_int_equal(c->models[2].group, 0);
        assert_true(c->models[0].preload && !c->models[1].preload && c->models[2].preload);
        assert_int_equal(c->models[2].priority, i == 1 ? 7 : 0);
        bt_config_close(c);
    }
    (void)snprintf(text, sizeof text,
                   "peers:\n  far: {proxy: 'https://far.lan/v0', models: [x, a, p/q], apiKey: '${env.KEY}',\n"
                   "        filters: {stripParams: 'temperature, top_p', setParams: {n: 1}}}\n"
                   "  near: {proxy: 'http://1.2.3.4:9', models: [y, x], timeouts: {responseHeader: 0}}\n%s",
                   models);
    bt_config *c = kit_parse(text);
    const char *model = NULL;
    assert_int_equal(c->n_peers, 2);
    assert_string_equal(c->peers[0].api_key, "sk-1");
    assert_int_equal(c->peers[0].header_timeout_ms, 60000);
    assert_int_equal(c->peers[1].header_timeout_ms, 0);
    assert_int_equal(c->peers[0].filters.n_strip, 2);
    assert_string_equal(c->peers[0].filters.strip[1], "top_p");
    assert_ptr_equal(bt_config_find_peer(c, "far/x", &model), &c->peers[0]);
    assert_string_equal(model, "x");
    assert_ptr_equal(bt_config_find_peer(c, "far/p/q", &model), &c->peers[0]);
    assert_string_equal(model, "p/q");
    assert_ptr_equal(bt_config_find_peer(c, "p/q", &model), &c->peers[0]);
    assert_ptr_equal(bt_config_find_peer(c, "y", &model), &c->peers[1]);
    assert_null(bt_config_find_peer(c, "x", &model)); /* two have it */
    assert_null(model);
    assert_null(bt_config_find_peer(c, "a", &model)); /* ours */
    assert_ptr_equal(bt_config_find_peer(c, "far/a", &model), &c->peers[0]);
    assert_null(bt_config_find_peer(c, "near/a", &model));
    assert_null(bt_config_find_peer(c, "z", &model));
    bt_config_close(c);
}

static void the_nearest_model(void **state) {
    (void)state;
    static const char text[] =
        "models:\n  gemma-3: {model: x, aliases: [small]}\n  hidden: {model: y, unlisted: true}\n"
        "peers: {far: {proxy: 'http://x', models: [qwen, gemma-3-it]}}\n";
    static const struct {
        const char *name, *said;
        bool near;
    } rows[] = {
        {"gema-3", "no model is called gema-3; did you mean \"gemma-3\"? /v1/models lists all 3", true},
        {"smal", "did you mean \"small\"?", true},
        {"qwn", "did you mean \"far/qwen\"?", true},
        {"far/qwn", "did you mean \"far/qwen\"?", true},
        {"far/gemma-3", "did you mean \"far/gemma-3-it\"?", true},
        {"hiden", "no model is called hiden; /v1/models lists all 3", false},
        {"nobody", "no model is called nobody; /v1/models lists all 3", false},
        {"", "no model is called ; /v1/models lists all 3", false},
    };
    bt_config *c = kit_parse(text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char said[BT_CONFIG_NO_MODEL_BYTES];
        assert_int_equal(bt_config_no_model(c, rows[i].name, said, sizeof said), rows[i].near);
        if (!strstr(said, rows[i].said)) fail_msg("\"%s\" is not in \"%s\"", rows[i].said, said);
    }
    bt_config_close(c);
}

static void lines_of_errors(void **state) {
    (void)state;
    kit_refused("a: 1\nlisten: x\n", "dir/c.yaml:1: a: unknown key");
    kit_refused("listen: x\n", "dir/c.yaml:1: listen: \"x\" is not HOST:PORT");
    kit_refused("listen: a:99999\n", ":1: listen: \"a:99999\" is not HOST:PORT");
    kit_refused("\nlistem: x:1\n", ":2: listem: unknown key; did you mean \"listen\"?");
    kit_refused("models:\n  a:\n    model: x\n    alias: [b]\n",
                ":4: models.a.alias: unknown key; did you mean \"aliases\"?");
    kit_refused("models:\n  a: {cmd: x, concurencyLimit: 1}\n", "did you mean \"concurrencyLimit\"?");
    kit_refused("[]", ":1: the file: a mapping (key: value) belongs here");
    kit_refused("models: [a]", ":1: models: a mapping (key: value) belongs here");
    kit_refused("models: {a: x}", ":1: models.a: a mapping (key: value) belongs here");
    kit_refused("apiKeys: a\napi_keys: b", ":2: api_keys: \"api_keys\" and \"apiKeys\" (line 1) are the same");
    kit_refused("health_timeout: 1\nhealthCheckTimeout: 20", "are the same");
    kit_refused("api_keys: ['a b']", "has a blank in it");
    kit_refused("ram_budget: lots", ":1: ");
    kit_refused("ram_budget: 0", ":1: ram_budget: 0 B is not from 1 B");
    kit_refused("start_port: 70000", "\"70000\" is not a whole number from 0 to 65535");
    kit_refused("start_port: -1", "\"-1\" is not a whole number");
    kit_refused("start_port: 1.5", "is not a whole number");
    kit_refused("start_port: 99999999999999999999999", "is not a whole number");
    kit_refused("start_port: []", ":1: start_port: a text belongs here");
    kit_refused("hold: soon", "is no time: 10m");
    kit_refused("hold: 10m5", "is no time");
    kit_refused("hold: 2d", "is not from 0 ms to 86400 s");
    kit_refused("hold: -1", "is no time");
    kit_refused("insecure: perhaps", "is neither true nor false");
    kit_refused("min_gpu_fraction: 2", "is no part from 0 to 1");
    kit_refused("min_gpu_fraction: .", "is no part from 0 to 1");
    kit_refused("limits: {flow: 1}", "1 B is not from 4.0 KiB");
    kit_refused("tls_cert: x", "tls_cert and tls_key go together");
    kit_refused("devices: {host: 1G}", "its budget is ram_budget");
    kit_refused("devices: {CUDA0: {budget: 1G, target: 2G}}", "devices.CUDA0: its target is over its budget");
    kit_refused("logToStdout: loud", "is not proxy, upstream, both or none");
}

static void refused_keys(void **state) {
    (void)state;
    kit_refused("models: {}\nmatrix: {sets: {}}", "dir/c.yaml:2: matrix: memory admission decides");
    kit_refused("routing:\n  router:\n    use: matrix", ":3: routing.router.use: only group: memory admission");
    kit_refused("routing: {router: {settings: {matrix: {}}}}", "routing.router.settings.matrix: memory admission");
    kit_refused("profiles: {x: {}}", "profiles: no names are rewritten");
    kit_refused("selectors: {x: {}}", "selectors: there are no virtual models");
    kit_refused("routing: {scheduler: {use: lifo}}", "only fifo");
    kit_refused("routing: {router: {usee: group}}", "routing.router.usee: unknown key; did you mean \"use\"?");
}

static void refused_models(void **state) {
    (void)state;
    kit_refused("models: {a: {}}", ":1: models.a: it has neither model nor cmd");
    kit_refused("models: {a: {model: x, cmd: y}}", "models.a: it has model and cmd");
    kit_refused("models: {a: {cmd: 'x --port ${PORT}', args: y}}", "models.a: it has args, which go with model");
    kit_refused("models: {a: {model: x, proxy: 'http://x'}}", "models.a: it has proxy, which goes with cmd");
    kit_refused("models:\n\n  a: {cmd: server}", ":3: models.a: it is never told its port");
    kit_refused("models: {a: {cmd: server, proxy: 'http://x:${PORT}'}}", "models.a: it is never told its port");
    kit_refused("models: {a: {cmd: ''}}", "a command without a program");
    kit_refused("models: {a: {cmd: '# off'}}", "a command without a program");
    kit_refused("models:\n  a:\n    cmd: |\n      server\n      --port ${PORT}\n      > log\n",
                ":6: models.a.cmd: no shell reads this");
    kit_refused("models: {a: {model: x, args: --port 1}}", "--port is given by the router");
    kit_refused("models: {a: {model: x, args: [--model=y]}}", "--model=y is given by the router");
    kit_refused("models: {a: {cmd: x, proxy: 'ftp://x'}}", "is no http:// or https:// address");
    kit_refused("models: {a: {cmd: x, proxy: 'http://'}}", "is no http:// or https:// address");
    kit_refused("models: {a: {model: x, check_endpoint: health}}",
                "models.a.check_endpoint: \"health\" is neither a path, as /health, nor none");
    kit_refused("models: {a: {model: x, env: [A]}}", ":1: models.a.env[0]: \"A\" is not NAME=VALUE");
    kit_refused("models: {a: {model: x, env: {A=B: 1}}}", "is no name of a variable");
    kit_refused("models: {a: {model: x, ttl: -2}}", ":1: models.a.ttl: \"-2\" is no time");
    kit_refused("models: {'': {model: x}}", "is no id of a model");
    kit_refused("models: {\"a\\tb\": {model: x}}", "is no id of a model");
    kit_refused("models: {'${A}': {model: x}}", "is no id of a model");
    kit_refused("models: {a: {model: x}, a: {model: y}}", "\"a\" stands at line 1 already");
    kit_refused("models:\n  a: {model: x, aliases: [b]}\n  b: {model: y}",
                ":2: models.a: a is called \"b\", and so is b (line 3)");
    kit_refused("models:\n  a: {model: x, aliases: [c]}\n  b: {model: y, aliases: [c]}",
                ":3: models.b: b is called \"c\"");
    kit_refused("models: {a: {model: x, aliases: [a]}}", "a is called \"a\", and so is a");
    kit_refused("models: {a: {model: x, metadata: [1]}}", "models.a.metadata: a mapping (key: value) belongs here");
    kit_refused("models: {a: {model: x, metadata: {n: .inf}}}", "JSON has no number for .inf");
    kit_refused("models: {alpha: {model: x}}\nhooks: {on_startup: {preload: [alfa]}}",
                ":2: hooks.on_startup.preload: no model is called \"alfa\"; did you mean \"alpha\"?");
    kit_refused("models: {a: {model: x}}\ngroups: {g: {members: [a]}, h: {members: [a]}}",
                "groups.h.members: a is a member of g already");
    kit_refused("groups: {g: {}}", "groups.g: a group without members");
    kit_refused("groups: {g: {members: []}}\nrouting: {router: {settings: {groups: {}}}}", "give them once");
    kit_refused("peers: {p: {models: [a]}}", "peers.p: it has no proxy");
    kit_refused("peers: {p: {proxy: 'http://x'}}", "peers.p: it has no models");
    kit_refused("peers: {p/q: {proxy: 'http://x', models: [a]}}", "is no name of a peer");
    kit_refused("peers: {p: {proxy: 'http://x:${PORT}', models: [a]}}", "a peer is not started here");
    kit_refused("routing: {scheduler: {settings: {fifo: {priority: {x: 1}}}}}", "no model is called \"x\"");
}

static void too_many(void **state) {
    (void)state;
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof text, "models:\n");
    for (uint32_t i = 0; i < BT_CONFIG_MODELS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  m%u: {model: x, aliases: [a%u, b%u, c%u]}\n", i, i, i, i);
    bt_config *c = kit_parse(text);
    assert_int_equal(c->n_models, BT_CONFIG_MODELS_MAX);
    bt_config_close(c);
    (void)snprintf(text + n, sizeof text - n, "  more: {model: x}\n");
    kit_refused(text, "more than 256 models");
    n -= sizeof "c255]}\n" - 1;
    (void)snprintf(text + n, sizeof text - n, "c255, d]}\n");
    kit_refused(text, "more than 1024 ids and aliases");
    char *large = malloc(BT_CONFIG_FILE_MAX + 1);
    assert_non_null(large);
    memset(large, '#', BT_CONFIG_FILE_MAX + 1);
    bt_error err = {0};
    assert_int_equal(bt_config_parse(large, BT_CONFIG_FILE_MAX + 1, "x", NULL, &c, NULL, &err), BT_E_LIMIT);
    assert_int_equal(bt_config_parse(large, BT_CONFIG_FILE_MAX, "x", NULL, &c, NULL, &err), BT_OK);
    bt_config_close(c);
    free(large);
    /* A value of 64 KiB in each of a thousand places is more than a configuration may be. */
    n = (size_t)snprintf(text, sizeof text, "macros:\n  m: ");
    memset(text + n, 'x', 60000);
    n += 60000;
    n += (size_t)snprintf(text + n, sizeof text - n, "\nmodels:\n  a:\n    model: x\n    args:\n");
    for (uint32_t i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "    - ${m}\n");
    kit_refused(text, "comes to more than 32.0 MiB");
}

static void loading(void **state) {
    (void)state;
    bt_config *c = NULL;
    bt_config_notes notes;
    bt_error err = {0};
    assert_int_equal(bt_config_load(BT_TEST_OUT "/none.yaml", &c, &notes, &err), BT_E_IO);
    assert_string_equal(err.code, "config");
    FILE *file = fopen(BT_TEST_OUT "/router.yaml", "w");
    assert_non_null(file);
    (void)fputs("models: {a: {model: m.gguf}}\n", file);
    (void)fclose(file);
    assert_int_equal(bt_config_load(BT_TEST_OUT "/router.yaml", &c, &notes, &err), BT_OK);
    assert_string_equal(c->models[0].model, BT_TEST_OUT "/m.gguf");
    bt_config_close(c);
    assert_int_equal(bt_config_load(BT_TEST_OUT, &c, &notes, &err), BT_E_IO); /* a folder */
    assert_int_equal(bt_heap_live_blocks(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_values),      cmocka_unit_test(defaults),
        cmocka_unit_test(the_example),       cmocka_unit_test(every_key_of_a_model),
        cmocka_unit_test(the_top),           cmocka_unit_test(groups_peers_and_the_rest),
        cmocka_unit_test(the_nearest_model), cmocka_unit_test(lines_of_errors),
        cmocka_unit_test(refused_keys),      cmocka_unit_test(refused_models),
        cmocka_unit_test(too_many),          cmocka_unit_test(loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
