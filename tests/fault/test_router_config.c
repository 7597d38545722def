/* SPDX-License-Identifier: MIT
 * test_router_config.c: every allocation and every file call of reading a configuration, of adding models, of a command
 * and of a filter fails, once, and then it and all after it: a clean error, nothing left behind. (What libyaml asks of
 * the C library cannot be made to fail here.) */
#include "router_kit.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/fault.h"
#include "open_files.h"

#include <sys/stat.h>

#define FAULT_MAX 3000u
#define ROOT      BT_TEST_OUT "/router-fault"

static const char text[] =
    "macros: {a: x, b: '${a}y'}\napi_keys: ['${env.KEY}']\ndevices: {CUDA0: 1G}\nmodels_dir: " ROOT "\n"
    "models:\n  m: {cmd: 'x ${b} ${PORT}', aliases: [n], env: {A: 1}, metadata: {k: [1, '${a}']},\n"
    "      filters: {strip_params: 'a, b', set_params: {c: 1}, set_params_by_id: {m:h: {d: 2}}},\n"
    "      memory: {host: 1G}, macros: {c: d}}\n"
    "groups: {g: {members: [m]}}\npeers: {p: {proxy: 'http://x', models: [a, b]}}\n"
    "hooks: {on_startup: {preload: [n]}}\n";

static void clean(bt_status status, const bt_error *err) {
    assert_true(status == BT_E_NOMEM || status == BT_E_IO);
    assert_int_equal(err->status, status);
    assert_true(err->code[0] != '\0' && err->text[0] != '\0');
}

static bt_status everything(bt_config **ret, bt_error *err) {
    char *out = NULL;
    char **argv = NULL;
    char *url = NULL;
    size_t n = 0;
    bool added = false;
    static const char body[] = "{\"model\":\"m\",\"a\":1}";
    BT_TRY(bt_config_load(ROOT "/c.yaml", ret, &kit_notes, err));
    BT_TRY(bt_config_discover(*ret, NULL, &kit_notes, err));
    BT_TRY(bt_config_add_file(*ret, ROOT "/more/z.gguf", NULL, &added, err));
    const bt_config_model *m = bt_config_find(*ret, "m");
    bt_arena *arena = bt_arena_open(1u << 16, 1024);
    if (!arena) return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory");
    bt_status status = bt_config_argv(*ret, m, 1, arena, &argv, err);
    if (status == BT_OK) status = bt_config_url(m, 1, arena, &url, err);
    bt_arena_close(arena);
    if (status == BT_OK) status = bt_config_filter(&m->filters, "r", "m:h", body, sizeof body - 1, &out, &n, err);
    if (status != BT_OK) assert_null(out);
    bt_heap_free(out);
    return status;
}

static void write_file(const char *path, const char *data, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    (void)fclose(file);
}

static void sweep(void **state) {
    (void)state;
    (void)mkdir(ROOT, 0755);
    (void)mkdir(ROOT "/more", 0755);
    write_file(ROOT "/c.yaml", text, sizeof text - 1);
    write_file(ROOT "/a.gguf", "GGUF\3\0\0\0", 8);
    write_file(ROOT "/mmproj-a.gguf", "GGUF\3\0\0\0", 8);
    write_file(ROOT "/more/z.gguf", "GGUF\3\0\0\0", 8);
    assert_int_equal(setenv("KEY", "k", 1), 0);
    for (int persistent = 0; persistent < 2; persistent++) {
        uint64_t n_failed = 0;
        for (uint64_t k = 0;; k++) {
            bt_config *c = NULL;
            bt_error err = {0};
            uint64_t blocks = bt_heap_live_blocks();
            uint32_t n_files = n_open_files();
            assert_true(k < FAULT_MAX);
            bt_fault_arm(k, persistent);
            bt_status status = everything(&c, &err);
            bool hit = bt_fault_disarm();
            if (status != BT_OK) {
                /* A file that cannot be read is a note in a folder, and an error where it was named. */
                if (strcmp(err.code, "model_file") != 0) clean(status, &err);
                n_failed++;
            } else if (!hit) {
                assert_int_equal(c->n_models, 3);
            }
            bt_config_close(c);
            assert_int_equal(bt_heap_live_blocks(), blocks);
            assert_int_equal(n_open_files(), n_files);
            if (!hit) break;
        }
        assert_true(n_failed > 15);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sweep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
