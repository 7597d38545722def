/* SPDX-License-Identifier: MIT
 * Split models: user case 58, and every way in which the parts can disagree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/arena.h"
#include "model/shards.h"
#include "model_kit.h"

#include <stdlib.h>
#include <unistd.h>

#define N_PARTS 3

static void part_path(unsigned index, char path[512]) {
    char name[64];
    snprintf(name, sizeof name, "set-%05u-of-%05u.gguf", index + 1, N_PARTS);
    kit_path(name, path);
}

static void split_keys(gw *w, unsigned no, unsigned count, int32_t n_tensors) {
    gw_u16(w, "split.no", no);
    gw_u16(w, "split.count", count);
    gw_i32(w, "split.tensors.count", n_tensors);
}

/* Three parts: table and key-values, block 0, block 1 and output. */
static void make_part(gw *w, unsigned index) {
    gw_init(w);
    if (index == 0) gw_model_keys(w, &kit_small);
    split_keys(w, index, N_PARTS, 21);
    if (index == 0) gw_tensor(w, "token_embd.weight", 8, 256, 1024);
    if (index > 0) gw_model_block(w, &kit_small, index - 1);
    if (index == 2) gw_tensor(w, "output_norm.weight", 0, 256, 1), gw_tensor(w, "output.weight", 8, 256, 1024);
}

static void write_part(unsigned index) {
    gw w;
    char path[512];
    part_path(index, path);
    make_part(&w, index);
    gw_write(&w, path);
    gw_done(&w);
}

static void write_all(void) {
    for (unsigned i = 0; i < N_PARTS; i++)
        write_part(i);
}

static void names(void **state) {
    (void)state;
    size_t prefix = 0;
    uint32_t index = 9, count = 9;
    assert_true(bt_shard_name_parse("/m/a-00002-of-00005.gguf", &prefix, &index, &count));
    assert_int_equal(prefix, 4);
    assert_int_equal(index, 1);
    assert_int_equal(count, 5);
    assert_true(bt_shard_name_parse("x-99999-of-99999.gguf", &prefix, &index, &count));
    assert_int_equal(index, 99998);
    static const char *const bad[] = {"",
                                      "model.gguf",
                                      "-00001-of-00001.gguf",
                                      "a-00000-of-00005.gguf",
                                      "a-00006-of-00005.gguf",
                                      "a-0001-of-00005.gguf",
                                      "a-00001-of-00005.gguf.part",
                                      "a-0000x-of-00005.gguf",
                                      "a-00001_of-00005.gguf",
                                      "a_00001-of-00005.gguf",
                                      "a-00001-of-00005.GGUF"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(bt_shard_name_parse(bad[i], &prefix, &index, &count));
}

/* Given any of the parts, the facts are the same. */
static void any_part(void **state) {
    (void)state;
    write_all();
    char sha[65] = "";
    for (unsigned given = 0; given < N_PARTS; given++) {
        char path[512], first[512];
        part_path(given, path);
        part_path(0, first);
        bt_facts *facts = kit_open(path);
        assert_string_equal(facts->path, path);
        assert_int_equal(facts->n_shards, N_PARTS);
        assert_int_equal(facts->n_tensors, 21);
        assert_string_equal(facts->shards[0].path, first);
        uint64_t file_bytes = 0, header_bytes = 0;
        for (unsigned i = 0; i < N_PARTS; i++) {
            char part[512];
            struct stat st;
            part_path(i, part);
            assert_string_equal(facts->shards[i].path, part);
            assert_int_equal(stat(part, &st), 0);
            assert_int_equal(facts->shards[i].file_bytes, st.st_size);
            assert_int_equal(facts->shards[i].inode, st.st_ino);
            assert_int_equal(facts->shards[i].device, st.st_dev);
            assert_int_equal(facts->shards[i].mtime_ns, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
            file_bytes += (uint64_t)st.st_size;
            header_bytes += facts->shards[i].data_offset;
        }
        assert_int_equal(facts->file_bytes, file_bytes);
        assert_in_range(facts->header_bytes, header_bytes - (uint64_t)N_PARTS * 31, header_bytes);
        assert_int_equal(facts->tensors[0].shard, 0);
        assert_int_equal(facts->tensors[1].shard, 1);
        assert_int_equal(facts->tensors[10].shard, 2);
        assert_int_equal(facts->tensors[10].block, 1);
        assert_int_equal(facts->tensors[1].file_offset, facts->shards[1].data_offset);
        if (given > 0) assert_string_equal(facts->header_sha256, sha);
        memcpy(sha, facts->header_sha256, sizeof sha);
        assert_int_equal(strlen(sha), 64);
        bt_facts_close(facts);
    }
}

static void missing(void **state) {
    (void)state;
    char first[512], second[512], third[512];
    write_all();
    part_path(0, first), part_path(1, second), part_path(2, third);
    unlink(second);
    kit_refused(first, BT_E_FORMAT, "shard_missing", "1 of 3 parts of the model are missing: set-00002-of-00003.gguf");
    kit_refused(third, BT_E_FORMAT, "shard_missing", "missing: set-00002-of-00003.gguf");
    kit_refused(second, BT_E_IO, "model_open", "No such file");
    unlink(first);
    kit_refused(third, BT_E_FORMAT, "shard_missing",
                "2 of 3 parts of the model are missing: set-00001-of-00003.gguf, set-00002-of-00003.gguf");
    gw w;
    gw_init(&w), gw_model_keys(&w, &kit_small), split_keys(&w, 0, 900, 21), gw_model_tensors(&w, &kit_small);
    gw_write(&w, kit_path("big-00001-of-00900.gguf", first)), gw_done(&w);
    kit_refused(first, BT_E_FORMAT, "shard_missing",
                "899 of 900 parts of the model are missing: big-00002-of-00900.gguf");
    kit_refused(first, BT_E_FORMAT, "shard_missing", " more");
}

/* User case 58: parts joined with cat are the first part with a tail. */
static void joined(void **state) {
    (void)state;
    gw w;
    make_part(&w, 0);
    char path[512];
    gw_write(&w, kit_path("joined.gguf", path)), gw_done(&w);
    kit_refused(path, BT_E_FORMAT, "shard_name", "split.count says 3, this is one file");
    kit_refused(path, BT_E_FORMAT, "shard_name", "not with cat");
}

/* A split.count of 1, or none, is a model of its own, under any name. */
static void alone(void **state) {
    (void)state;
    for (int with_keys = 0; with_keys < 2; with_keys++) {
        gw w;
        gw_init(&w), gw_model_all(&w, &kit_small);
        if (with_keys) split_keys(&w, 0, 1, 21);
        bt_facts *facts = kit_file_open(&w, "alone-00002-of-00004.gguf");
        assert_int_equal(facts->n_shards, 1);
        assert_int_equal(strlen(facts->header_sha256), 64);
        bt_facts_close(facts);
        gw_done(&w);
    }
}

static void write_as(gw *w, unsigned index) {
    char path[512];
    part_path(index, path);
    gw_write(w, path);
    gw_done(w);
}

static void disagreeing(void **state) {
    (void)state;
    gw w;
    char first[512], second[512];
    part_path(0, first), part_path(1, second);
    write_all(), make_part(&w, 2), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "shard_mismatch", "split.no says that it is part 3, but its name says 2");
    kit_refused(second, BT_E_FORMAT, "shard_mismatch", "split.no says that it is part 3, but its name says 2");
    write_all(), gw_init(&w), split_keys(&w, 1, 4, 21), gw_model_block(&w, &kit_small, 0), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "shard_mismatch", "split.count says 4, but its name says 3");
    write_all(), gw_init(&w), gw_model_block(&w, &kit_small, 0), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "shard_mismatch", "no split.no");
    write_all(), gw_init(&w), gw_u32(&w, "split.no", 1), gw_model_block(&w, &kit_small, 0), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "gguf_type", "'split.no' is u32, not u16"); /* ggml would abort */
    write_all(), make_part(&w, 1), gw_tensor(&w, "blk.0.more.weight", 0, 32, 1), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "shard_mismatch", "split.tensors.count says 21, but the parts hold 22 tensors");
    write_all(), gw_init(&w), split_keys(&w, 1, N_PARTS, 21), gw_model_block(&w, &kit_small, 1), write_as(&w, 1);
    kit_refused(first, BT_E_FORMAT, "gguf_tensor", "tensor 'blk.1.attn_k.weight' occurs twice");
    write_all(), gw_cut(second, 1000);
    kit_refused(first, BT_E_FORMAT, "gguf_truncated", "set-00002-of-00003.gguf");
    write_all();
    gw_init(&w), gw_model_keys(&w, &kit_small), split_keys(&w, 0, 2000, 21), gw_model_tensors(&w, &kit_small);
    char path[512];
    gw_write(&w, kit_path("big-00001-of-02000.gguf", path)), gw_done(&w);
    kit_refused(path, BT_E_LIMIT, "shard_count", "the limit is 1024");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),  cmocka_unit_test(any_part), cmocka_unit_test(missing),
        cmocka_unit_test(joined), cmocka_unit_test(alone),    cmocka_unit_test(disagreeing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
