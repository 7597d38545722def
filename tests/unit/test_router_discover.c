/* SPDX-License-Identifier: MIT
 * test_router_discover.c: models of a folder and of a command line: ids, sets, projectors, links, what is no model. */
#include "router_kit.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT BT_TEST_OUT "/router-models"

static int remove_one(const char *path, const struct stat *is, int type, struct FTW *at) {
    (void)is;
    (void)type;
    (void)at;
    return remove(path);
}

static int start(void **state) {
    (void)state;
    (void)nftw(ROOT, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    kit_notes = (bt_config_notes){0};
    return mkdir(ROOT, 0755);
}

static void folder(const char *name) {
    char path[400];
    (void)snprintf(path, sizeof path, ROOT "/%s", name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void file(const char *name, const char *head) {
    char path[400];
    (void)snprintf(path, sizeof path, ROOT "/%s", name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fwrite(head, 1, 8, f);
    (void)fclose(f);
}

static void model(const char *name) {
    file(name, "GGUF\3\0\0\0");
}

static bt_config *found(const char *more) {
    char text[1000];
    (void)snprintf(text, sizeof text, "models_dir: " ROOT "\nttl: 5m\n%s", more);
    bt_config *c = kit_parse(text);
    bt_error err = {0};
    if (bt_config_discover(c, NULL, &kit_notes, &err) != BT_OK) fail_msg("%s", err.text);
    return c;
}

static const char *ids(const bt_config *c) {
    static char got[2000];
    got[0] = '\0';
    for (uint32_t i = 0; i < c->n_models; i++) {
        if (i > 0) strcat(got, " ");
        strcat(got, c->models[i].id);
    }
    return got;
}

static void names(void **state) {
    (void)state;
    folder("b");
    folder("b/c");
    folder("b/c/d");
    folder("b/c/d/e");
    folder("b/c/d/e/f");
    folder(".hidden");
    model("z.gguf");
    model("A model.GGUF");
    model("b/z.gguf");
    model("b/c/d/e/deep.gguf");
    model("b/c/d/e/f/deeper.gguf");
    model(".hidden/h.gguf");
    model(".h.gguf");
    model("z.gguf.part");
    model("README.md");
    file("text.gguf", "what is this");
    file("old.gguf", "GGUF\0\0\0\3");
    folder("dir.gguf");
    bt_config *c = found("models: {z: {model: /x}, own: {model: '" ROOT "/b/../b/z.gguf'}}");
    assert_string_equal(ids(c), "z own A model deep z-2");
    assert_string_equal(c->models[4].model, ROOT "/z.gguf");
    assert_int_equal(c->models[4].ttl_ms, 300000);
    assert_string_equal(c->models[4].proxy, "http://127.0.0.1:${PORT}");
    assert_string_equal(c->models[4].check_endpoint, "/health");
    assert_true(c->models[4].uses_port);
    assert_int_equal(c->models[4].line, 0);
    assert_int_equal(c->models[4].group, UINT32_MAX);
    assert_null(c->models[4].args);
    assert_true(kit_noted(0, "text.gguf: it is no GGUF file"));
    assert_true(kit_noted(0, "old.gguf: its GGUF version or byte order is not known"));
    assert_int_equal(kit_notes.n, 2);
    bt_config_close(c);
}

static void sets(void **state) {
    (void)state;
    model("whole-00001-of-00003.gguf");
    model("whole-00002-of-00003.gguf");
    model("whole-00003-of-00003.gguf");
    model("less-00001-of-00002.gguf");
    model("tail-00002-of-00003.gguf");
    model("tail-00003-of-00003.gguf");
    bt_config *c = found("");
    assert_string_equal(ids(c), "whole");
    assert_string_equal(c->models[0].model, ROOT "/whole-00001-of-00003.gguf");
    assert_true(kit_noted(0, "less-00001-of-00002.gguf: less-00002-of-00002.gguf is missing"));
    assert_true(kit_noted(0, "tail-00002-of-00003.gguf: the first part of its set is missing"));
    assert_int_equal(kit_notes.n, 2);
    bt_config_close(c);
}

static const char *projector(const bt_config *c, const char *id) {
    const bt_config_model *m = bt_config_find(c, id);
    assert_non_null(m);
    if (!m->args) return "";
    assert_string_equal(m->args[0], "--mmproj");
    assert_null(m->args[2]);
    return m->args[1] + sizeof ROOT;
}

static void projectors(void **state) {
    (void)state;
    folder("one");
    model("one/x-Q4.gguf");
    model("one/mmproj-F16.gguf");
    folder("set");
    model("set/s-00001-of-00002.gguf");
    model("set/s-00002-of-00002.gguf");
    model("set/mmproj-model-f16.gguf");
    folder("two");
    model("two/gemma-3-4b-it-Q4_K_M.gguf");
    model("two/gemma-3-12b-it-Q4_K_M.gguf");
    model("two/mmproj-gemma-3-4b-it-f16.gguf");
    model("two/gemma-3-12b-it.mmproj-Q8_0.gguf");
    model("two/smol.gguf");
    folder("far");
    model("far/mmproj-smol-f16.gguf");
    bt_config *c = found("");
    assert_int_equal(c->n_models, 5);
    assert_string_equal(projector(c, "x-Q4"), "one/mmproj-F16.gguf");
    assert_string_equal(projector(c, "s"), "set/mmproj-model-f16.gguf");
    assert_string_equal(projector(c, "gemma-3-4b-it-Q4_K_M"), "two/mmproj-gemma-3-4b-it-f16.gguf");
    assert_string_equal(projector(c, "gemma-3-12b-it-Q4_K_M"), "two/gemma-3-12b-it.mmproj-Q8_0.gguf");
    assert_string_equal(projector(c, "smol"), "");
    bt_config_close(c);
}

static void links(void **state) {
    (void)state;
    folder("blobs");
    folder("snap");
    model("blobs/0f3a");
    assert_int_equal(symlink("../blobs/0f3a", ROOT "/snap/real.gguf"), 0);
    assert_int_equal(symlink("../blobs/none", ROOT "/snap/gone.gguf"), 0);
    for (int i = 0; i < 30; i++) { /* 30 to the fourth without a look at where they lead */
        char path[400];
        (void)snprintf(path, sizeof path, ROOT "/snap/loop%d", i);
        assert_int_equal(symlink("..", path), 0);
    }
    bt_config *c = found("models: {mine: {cmd: 'x ${PORT} -m " ROOT "/blobs/0f3a'}}");
    assert_string_equal(ids(c), "mine real"); /* a word that is no .gguf is not looked at */
    assert_true(kit_noted(0, "gone.gguf: "));
    bt_config_close(c);
    c = found("models: {mine: {cmd: 'x ${PORT} -m " ROOT "/snap/real.gguf'}, b: {cmd: 'x ${PORT}'}}");
    assert_string_equal(ids(c), "mine b");
    bt_config_close(c);
}

static void many(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "m%03u.gguf", i);
        model(name);
    }
    bt_config *c = found("");
    assert_int_equal(c->n_models, BT_CONFIG_MODELS_MAX);
    assert_string_equal(c->models[255].id, "m255");
    assert_string_equal(c->models[0].id, "m000");
    assert_true(kit_noted(0, "more than 256 models"));
    bt_config_close(c);
}

static void by_name(void **state) {
    (void)state;
    bt_config *c = NULL;
    bt_error err = {0};
    bool added = false;
    static char ctx[] = "-c";
    static char size[] = "512";
    char *const args[] = {ctx, size, NULL};
    model("a.gguf");
    model("s-00001-of-00002.gguf");
    model("t-00002-of-00002.gguf");
    folder("b");
    model("b/a.gguf");
    assert_int_equal(bt_config_new(&c, NULL), BT_OK);
    assert_int_equal(bt_config_discover(c, NULL, &kit_notes, &err), BT_OK); /* none given */
    assert_int_equal(bt_config_add_file(c, ROOT "/a.gguf", args, &added, &err), BT_OK);
    assert_true(added);
    assert_string_equal(c->models[0].args[1], "512");
    assert_int_equal(bt_config_add_file(c, ROOT "/b/../a.gguf", NULL, &added, &err), BT_OK);
    assert_false(added);
    assert_int_equal(bt_config_add_file(c, ROOT "/b/a.gguf", NULL, &added, &err), BT_OK);
    assert_true(added);
    assert_string_equal(ids(c), "a a-2");
    static const char *const bad[] = {ROOT "/none.gguf", ROOT "/b", ROOT "/s-00001-of-00002.gguf",
                                      ROOT "/t-00002-of-00002.gguf"};
    static const char *const why[] = {"No such file", "it is no file", "s-00002-of-00002.gguf is missing",
                                      "it is not the first of its parts"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(bt_config_add_file(c, bad[i], NULL, &added, &err), BT_E_ARG);
        assert_string_equal(err.code, "model_file");
        if (!strstr(err.text, why[i])) fail_msg("%s", err.text);
        assert_false(added);
    }
    c->models_dir = ROOT "/b"; /* what is said for each goes to models of a folder too */
    model("b/c.gguf");
    assert_int_equal(bt_config_discover(c, args, &kit_notes, &err), BT_OK);
    assert_string_equal(ids(c), "a a-2 c");
    assert_string_equal(c->models[2].args[1], "512");
    folder("p");
    model("p/d.gguf");
    model("p/mmproj-d.gguf");
    c->models_dir = ROOT "/p"; /* behind its projector */
    assert_int_equal(bt_config_discover(c, args, &kit_notes, &err), BT_OK);
    assert_string_equal(c->models[3].args[0], "--mmproj");
    assert_string_equal(c->models[3].args[2], "-c");
    assert_string_equal(c->models[3].args[3], "512");
    assert_null(c->models[3].args[4]);
    c->models_dir = ROOT "/nowhere";
    assert_int_equal(bt_config_discover(c, NULL, &kit_notes, &err), BT_E_IO);
    assert_string_equal(err.code, "models_dir");
    bt_config_close(c);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names, start),      cmocka_unit_test_setup(sets, start),
        cmocka_unit_test_setup(projectors, start), cmocka_unit_test_setup(links, start),
        cmocka_unit_test_setup(many, start),       cmocka_unit_test_setup(by_name, start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
