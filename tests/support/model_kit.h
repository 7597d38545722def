/* SPDX-License-Identifier: MIT
 * model_kit.h: open what a test wrote, and say what must come of it. For tests that include cmocka.h first. */
#pragma once

#include "burthen.h"
#include "gguf_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const gw_model kit_small = {
    .arch = "llama", .n_block = 2, .n_embd = 256, .n_ff = 512, .n_vocab = 1024, .type = 8};

static inline const char *kit_path(const char *name, char path[512]) {
    mkdir(BT_TEST_OUT, 0777);
    snprintf(path, 512, "%s/%s", BT_TEST_OUT, name);
    return path;
}

/* kit_small of another architecture and depth, begun in w. */
static inline void kit_begin(gw *w, const char *arch, uint32_t n_block) {
    gw_model m = kit_small;
    m.arch = arch;
    m.n_block = n_block;
    gw_init(w);
    gw_model_all(w, &m);
}

/* The path opens with this status, code, and a sentence that holds these words. */
static inline void kit_refused(const char *path, bt_status status, const char *code, const char *words) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    bt_status got = bt_facts_open(path, &facts, &err);
    if (got != status || strcmp(err.code, code) != 0 || !strstr(err.text, words))
        fail_msg("%s: got %d %s '%s', expected %d %s '%s'", path, got, err.code, err.text, status, code, words);
    assert_null(facts);
}

static inline void kit_file_refused(const gw *w, bt_status status, const char *code, const char *words) {
    char path[512], name[64];
    snprintf(name, sizeof name, "refused-%ld.gguf", (long)getpid()); /* tests run side by side, in one folder */
    gw_write(w, kit_path(name, path));
    kit_refused(path, status, code, words);
    (void)unlink(path);
}

static inline bt_facts *kit_open(const char *path) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    if (bt_facts_open(path, &facts, &err) != BT_OK) fail_msg("%s: %s: %s", path, err.code, err.text);
    return facts;
}

static inline bt_facts *kit_file_open(const gw *w, const char *name) {
    char path[512];
    gw_write(w, kit_path(name, path));
    return kit_open(path);
}
