/* SPDX-License-Identifier: MIT
 * test_router_macros.c: ${NAME} in values: where each is known, in what order, and that none can take long. */
#include "router_kit.h"

static const char *description(const char *head, const char *model) {
    static char got[4000];
    char text[4000];
    (void)snprintf(text, sizeof text, "%s\nmodels:\n  m-1:\n    model: x\n%s", head, model);
    bt_config *c = kit_parse(text);
    (void)snprintf(got, sizeof got, "%s", c->models[0].description);
    bt_config_close(c);
    return got;
}

static void replaced(void **state) {
    (void)state;
    static const char head[] = "macros: {a: 1, b: \"${a}-${c}\", c: c, d: '$${a}${', e: ''}";
    assert_string_equal(description(head, "    description: ${a} ${b} ${MODEL_ID}"), "1 1-c m-1");
    assert_string_equal(description(head, "    description: '${d}${e}'"), "$1${");
    /* a model's own come first, also inside of others */
    assert_string_equal(description(head, "    description: ${b} ${x}\n    macros: {c: own, x: '${a}${c}'}"),
                        "1-own 1own");
    assert_string_equal(description(head, "    description: \"${env.KEY} ${env.MACRO}\""), "sk-1 ${KEY}");
    /* no macros: for a shell, or nothing */
    assert_string_equal(description(head, "    description: \"$a ${a:-1} ${} ${a b} ${env.} ${env.A-B} $\""),
                        "$a ${a:-1} ${} ${a b} ${env.} ${env.A-B} $");
}

static void in_commands(void **state) {
    (void)state;
    bt_config *c = kit_parse(
        "macros:\n"
        "  server: |\n"
        "    llama-server --port ${PORT}\n"
        "    # --mlock\n"
        "    ${env.MORE}\n"
        "  ctx: 4096\n"
        "models:\n"
        "  a:\n"
        "    cmd: |\n"
        "      ${server} -c ${ctx} \\\n"
        "      # -m ${nothing.here} ${none}\n"
        "      -m '${MODEL_ID}.gguf'\n"
        "    ttl: ${env.TTL}\n"
        "    concurrency: ${ctx}\n"
        "    unlisted: ${yes}\n"
        "    macros: {yes: true}\n"
        "    metadata: {ctx: '${ctx}', t: \"${yes}\", s: \"${ctx}k\", e: \"${env.TTL}\", i: \"${MODEL_ID}\"}\n"
        "    filters:\n"
        "      set_params_by_id: {'${MODEL_ID}:high': {n: 1}, '${MODEL_ID}': {n: 2}}\n");
    static const char *const words[] = {"llama-server", "--port", "${PORT}", "-ngl",  "99",
                                        "-c",           "4096",   "-m",      "a.gguf"};
    const bt_config_model *m = &c->models[0];
    for (size_t i = 0; i < 9; i++)
        assert_string_equal(m->cmd[i], words[i]);
    assert_null(m->cmd[9]);
    assert_int_equal(m->ttl_ms, 7000);
    assert_int_equal(m->concurrency, 4096);
    assert_true(m->unlisted && m->uses_port);
    assert_string_equal(m->metadata_json, "{\"ctx\":4096,\"t\":true,\"s\":\"4096k\",\"e\":7,\"i\":\"a\"}");
    assert_int_equal(m->n_aliases, 1);
    assert_string_equal(m->aliases[0], "a:high");
    assert_int_equal(m->filters.n_set_by_id, 2);
    assert_string_equal(m->filters.set_by_id[1], "a");
    bt_config_close(c);
}

static void refused(void **state) {
    (void)state;
    kit_refused("\nlisten: ${a}", ":2: listen: ${a} is no macro");
    kit_refused("macros: {port: 1}\nlisten: 'x:${prt}'", ":2: listen: ${prt} is no macro; did you mean ${port}?");
    kit_refused("listen: ${env.NONE}", "${env.NONE} is not in the environment");
    kit_refused("listen: ${env.BAD}", "${env.BAD} is no UTF-8");
    kit_refused("listen: ${MODEL_ID}:1", "${MODEL_ID} is known in a model only");
    kit_refused("listen: h:${PORT}", "${PORT} is known in cmd");
    kit_refused("models: {a: {cmd: 'x ${PORT} ${PID}'}}", "${PID} is known in cmdStop only");
    kit_refused("models: {a: {model: x, name: '${PORT}'}}", "${PORT} is known in cmd");
    kit_refused("macros: {a: '${a}'}\nlisten: ${a}", "${a} comes to itself");
    kit_refused("macros: {a: '${b}', b: '${c}', c: 'x${a}'}\nlisten: ${b}", "${b} comes to itself");
    kit_refused("macros: {PORT: 1}", "\"PORT\" is no name for a macro");
    kit_refused("macros: {a.b: 1}", "\"a.b\" is no name for a macro");
    kit_refused("macros: {'': 1}", "is no name for a macro");
    kit_refused("macros:\n  a: [1]", ":2: macros: macro a is a list");
    kit_refused("macros: 1", "macros: a mapping (key: value) belongs here");
    kit_refused("models: {a: {model: x, macros: {MODEL_ID: 1}}}", "\"MODEL_ID\" is no name for a macro");
    char text[400];
    (void)snprintf(text, sizeof text, "macros: {%064d: 1}", 0);
    kit_refused(text, "is no name for a macro");
}

static void bounded(void **state) {
    (void)state;
    char text[4000] = "macros:\n  a: ''\n";
    for (char c = 'b'; c < 'l'; c++) { /* ten thousand million times nothing */
        char line[200];
        (void)snprintf(line, sizeof line, "  %c: '${%c}${%c}${%c}${%c}${%c}${%c}${%c}${%c}${%c}${%c}'\n", c, c - 1,
                       c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1);
        strcat(text, line);
    }
    strcat(text, "listen: ${k}\n");
    kit_refused(text, ":13: listen: ${a} is one macro too many in a value");
    (void)snprintf(text, sizeof text, "macros:\n  m0: x\n");
    for (uint32_t i = 1; i < 20; i++) {
        char line[40];
        (void)snprintf(line, sizeof line, "  m%u: ${m%u}\n", i, i - 1);
        strcat(text, line);
    }
    strcat(text, "listen: ${m19}\n");
    kit_refused(text, "is a macro too deep in others");
    static char large[40000];
    size_t n = (size_t)snprintf(large, sizeof large, "macros: {m: ");
    memset(large + n, 'x', 30000);
    (void)snprintf(large + n + 30000, sizeof large - n - 30000, "}\nlisten: \"${m}${m}${m}\"\n");
    kit_refused(large, ":2: listen: more than 64.0 KiB in one value");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(replaced), cmocka_unit_test(in_commands),
                                       cmocka_unit_test(refused), cmocka_unit_test(bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
