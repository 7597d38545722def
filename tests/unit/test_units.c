/* SPDX-License-Identifier: MIT
 * Units and extents: worked examples, and the rules that must hold of any model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model_kit.h"

#include <stdlib.h>

#define PAGE ((uint64_t)BT_PAGE_BYTES)

static const bt_unit_facts *unit(const bt_facts *f, uint32_t i, const char *name, bt_unit_kind kind) {
    assert_true(i < f->n_units);
    assert_string_equal(f->units[i].name, name);
    assert_int_equal(f->units[i].kind, kind);
    return &f->units[i];
}

static void member(const bt_facts *f, const bt_unit_facts *u, uint32_t i, const char *name) {
    assert_true(i < u->n_tensors);
    assert_string_equal(f->tensors[f->unit_tensors[u->first_tensor + i]].name, name);
}

/* Bytes [start, end) of a shard lie in the unit's extents, at one place of its image. */
static void covered(const bt_facts *f, const bt_unit_facts *u, uint32_t shard, uint64_t start, uint64_t end) {
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *e = &f->extents[u->first_extent + i];
        if (e->shard == shard && e->file_offset <= start && end <= e->file_offset + e->bytes) return;
    }
    fail_msg("%s does not hold bytes %" PRIu64 " to %" PRIu64, u->name, start, end);
}

static void check_unit(const bt_facts *f, const bt_unit_facts *u) {
    uint64_t at = 0, bytes = 0;
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *e = &f->extents[u->first_extent + i];
        assert_int_equal(e->file_offset % PAGE, 0);
        assert_int_equal(e->bytes % PAGE, 0);
        assert_int_equal(e->image_offset, at);
        assert_true(e->bytes > 0 && e->file_offset + e->bytes < f->shards[e->shard].file_bytes + PAGE);
        at += e->bytes;
        if (i == 0 || e[-1].shard != e->shard) continue;
        assert_true(e->file_offset >= e[-1].file_offset + e[-1].bytes + 65536); /* else they would be one */
    }
    assert_int_equal(u->image_bytes, at);
    for (uint32_t i = 0; i < u->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[f->unit_tensors[u->first_tensor + i]];
        uint64_t start = t->file_offset, n = t->bytes;
        if (u->kind == BT_KIND_HEAD) start += u->row_first * t->row_bytes, n = u->n_rows * t->row_bytes;
        covered(f, u, t->shard, start, start + n);
        bytes += n;
        assert_int_equal(t->block, u->block);
    }
    assert_int_equal(u->bytes, bytes);
}

/* What must hold of any facts. */
static void check_all(const bt_facts *f) {
    uint64_t head_rows = 0, sum = f->n_units > 0 ? 0 : 1;
    uint32_t n_members = 0, n_extents = 0;
    for (uint32_t i = 0; i < f->n_units; i++) {
        const bt_unit_facts *u = &f->units[i];
        assert_int_equal(u->first_tensor, n_members);
        assert_int_equal(u->first_extent, n_extents);
        n_members += u->n_tensors, n_extents += u->n_extents;
        check_unit(f, u);
        if (u->kind == BT_KIND_HEAD) {
            assert_int_equal(u->row_first, head_rows);
            head_rows += u->n_rows;
        }
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(f->units[k].name, u->name);
        sum += u->bytes;
    }
    assert_int_equal(f->n_unit_tensors, n_members);
    assert_int_equal(f->n_extents, n_extents);
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        bool placed = t->role != BT_ROLE_SMALL && t->role != BT_ROLE_UNUSED;
        assert_int_equal(t->unit != BT_NO_UNIT, placed);
        if (!placed) sum += t->role == BT_ROLE_SMALL ? t->bytes : 0;
        if (placed) assert_true(t->unit < f->n_units);
        if (t->role == BT_ROLE_HEAD || t->role == BT_ROLE_TIED) assert_int_equal(head_rows, t->bytes / t->row_bytes);
    }
    assert_int_equal(f->weight_bytes, sum); /* every byte is small or in exactly one unit */
}

static bt_facts *opened(gw *w) {
    bt_facts *f = kit_file_open(w, "units.gguf");
    gw_done(w);
    check_all(f);
    return f;
}

static void small_model(void **state) {
    (void)state;
    gw w;
    gw_init(&w), gw_model_all(&w, &kit_small);
    bt_facts *f = opened(&w);
    assert_int_equal(f->n_units, 6);
    const bt_unit_facts *u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    assert_int_equal(u->n_tensors, 2); /* k and v are small */
    member(f, u, 0, "blk.0.attn_q.weight");
    member(f, u, 1, "blk.0.attn_output.weight");
    assert_int_equal(u->bytes, 2 * 256 * 8 * 34);
    u = unit(f, 1, "blk.0.ffn", BT_KIND_FEED_FORWARD);
    assert_int_equal(u->n_tensors, 3);
    member(f, u, 0, "blk.0.ffn_gate.weight");
    member(f, u, 1, "blk.0.ffn_up.weight");
    member(f, u, 2, "blk.0.ffn_down.weight");
    assert_int_equal(u->n_extents, 1);
    const bt_tensor *down = &f->tensors[f->unit_tensors[u->first_tensor + 2]];
    assert_int_equal(f->extents[u->first_extent].file_offset, down->file_offset / PAGE * PAGE);
    assert_int_equal(u->bytes, 3 * 512 * 8 * 34);
    unit(f, 2, "blk.1.attn", BT_KIND_ATTENTION);
    unit(f, 3, "blk.1.ffn", BT_KIND_FEED_FORWARD);
    u = unit(f, 4, "head.0", BT_KIND_HEAD); /* all rows fit one panel */
    assert_int_equal(u->n_rows, 1024);
    u = unit(f, 5, "token_embd", BT_KIND_TABLE);
    assert_int_equal(u->bytes, 1024 * 8 * 34);
    assert_int_equal(u->block, -1);
    bt_facts_close(f);
}

/* q and output of a block are near each other: with k between them (small), the three are one run. */
static void near_and_far(void **state) {
    (void)state;
    gw w;
    gw_init(&w), gw_model_keys(&w, &kit_small);
    gw_model_block(&w, &kit_small, 0), gw_model_block(&w, &kit_small, 1);
    gw_tensor(&w, "blk.1.attn_gate.weight", 8, 256, 256);
    gw_tensor(&w, "output_norm.weight", 0, 256, 1);
    bt_facts *f = opened(&w);
    const bt_unit_facts *u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    assert_int_equal(u->n_extents, 1); /* attn_output and attn_q follow each other */
    u = unit(f, 2, "blk.1.attn", BT_KIND_ATTENTION);
    member(f, u, 0, "blk.1.attn_q.weight");
    member(f, u, 1, "blk.1.attn_gate.weight");
    member(f, u, 2, "blk.1.attn_output.weight");
    assert_int_equal(u->n_extents, 1); /* 34 KiB of attn_v between them are read along */
    assert_true(u->image_bytes >= u->bytes + UINT64_C(128) * 8 * 34);
    bt_facts_close(f);
    gw_init(&w), gw_model_keys(&w, &kit_small);
    gw_tensor(&w, "blk.0.attn_q.weight", 8, 256, 256), gw_tensor(&w, "blk.0.ffn_up.weight", 8, 256, 4096);
    gw_tensor(&w, "blk.0.attn_k.weight", 8, 256, 256), gw_tensor(&w, "blk.1.attn_q.weight", 8, 256, 256);
    f = opened(&w);
    u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    assert_int_equal(u->n_extents, 2); /* a megabyte lies between */
    bt_facts_close(f);
}

static void split_groups(void **state) {
    (void)state;
    gw_model m = kit_small;
    m.n_embd = 1024, m.n_ff = 4096, m.n_vocab = 30001;
    gw w;
    gw_init(&w), gw_model_all(&w, &m);
    bt_facts *f = opened(&w);
    /* attention: 1.1 + 0.6 + 0.6 + 1.1 MiB together; feed-forward: 4.25 MiB each */
    const bt_unit_facts *u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    assert_int_equal(u->n_tensors, 4);
    member(f, u, 0, "blk.0.attn_q.weight");
    member(f, u, 1, "blk.0.attn_k.weight");
    member(f, u, 2, "blk.0.attn_v.weight");
    member(f, u, 3, "blk.0.attn_output.weight");
    unit(f, 1, "blk.0.ffn_gate", BT_KIND_FEED_FORWARD);
    unit(f, 2, "blk.0.ffn_up", BT_KIND_FEED_FORWARD);
    u = unit(f, 3, "blk.0.ffn_down", BT_KIND_FEED_FORWARD);
    assert_int_equal(u->bytes, 4096 * 32 * 34);
    unit(f, 4, "blk.1.attn", BT_KIND_ATTENTION);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (f->units[i].image_bytes > largest) largest = f->units[i].image_bytes;
    /* panels: multiples of 64 rows whose image is no larger than the largest unit of a block */
    u = unit(f, 8, "head.0", BT_KIND_HEAD);
    assert_int_equal(u->n_rows % BT_PANEL_ROW_ALIGN, 0);
    assert_true(u->image_bytes <= largest);
    assert_true(u->image_bytes + UINT64_C(64) * 32 * 34 + 3 * PAGE > largest); /* and no smaller than need be */
    assert_int_equal(u->n_rows, (largest - 2 * PAGE) / (UINT64_C(64) * 32 * 34) * 64);
    uint32_t n_panels = (uint32_t)((30001 + u->n_rows - 1) / u->n_rows);
    assert_int_equal(f->n_units, 8 + n_panels + 1);
    char last[16];
    snprintf(last, sizeof last, "head.%u", n_panels - 1);
    u = unit(f, 8 + n_panels - 1, last, BT_KIND_HEAD);
    assert_int_equal(u->row_first + u->n_rows, 30001);
    unit(f, 8 + n_panels, "token_embd", BT_KIND_TABLE);
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        if (f->tensors[i].role == BT_ROLE_HEAD) assert_int_equal(f->tensors[i].unit, 8);
    }
    bt_facts_close(f);
}

static void tied_table(void **state) {
    (void)state;
    gw_model m = kit_small;
    m.tied = true, m.n_vocab = 40000;
    gw w;
    gw_init(&w), gw_model_all(&w, &m);
    bt_facts *f = opened(&w);
    assert_int_equal(f->tensors[0].role, BT_ROLE_TIED);
    assert_int_equal(f->tensors[0].unit, 4);
    uint32_t n_heads = 0;
    for (uint32_t i = 0; i < f->n_units; i++) {
        assert_int_not_equal(f->units[i].kind, BT_KIND_TABLE);
        n_heads += f->units[i].kind == BT_KIND_HEAD;
    }
    uint64_t rows = ((1u << 20) - 2 * PAGE) / (UINT64_C(64) * 8 * 34) * 64;
    assert_int_equal(f->units[4].n_rows, rows);
    assert_int_equal(n_heads, (40000 + rows - 1) / rows);
    bt_facts_close(f);
}

static bt_tensor_role role_of(const bt_facts *f, const char *name) {
    for (uint32_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return f->tensors[i].role;
    fail_msg("no tensor %s", name);
    return BT_ROLE_UNUSED;
}

static void roles(void **state) {
    (void)state;
    gw w;
    gw_init(&w), gw_model_all(&w, &kit_small);
    gw_tensor(&w, "position_embd.weight", 0, 256, 1024);
    gw_tensor(&w, "token_types.weight", 0, 256, 2);
    gw_tensor(&w, "per_layer_token_embd.weight", 8, 256, 1024);
    gw_tensor(&w, "per_layer_model_proj.weight", 8, 256, 1024);
    gw_tensor(&w, "rope_factors_long.weight", 0, 100000, 1);
    gw_tensor(&w, "output.bias", 0, 100000, 1);
    gw_tensor(&w, "blk.0.ffn_gate_inp.weight", 0, 256, 512);  /* a router of 512 KiB */
    gw_tensor(&w, "blk.1.ffn_gate_inp.weight", 0, 256, 1025); /* one of over 1 MiB */
    gw_tensor(&w, "blk.0.attn_q_norm.weight", 0, 64, 1024);   /* 256 KiB */
    gw_tensor(&w, "blk.0.ssm_out.weight", 8, 256, 512);
    gw_tensor(&w, "blk.0.inp_gate.weight", 8, 256, 512);
    gw_tensor_3d(&w, "blk.0.ffn_up_exps.weight", 8, 256, 512, 64);
    bt_facts *f = opened(&w);
    assert_int_equal(role_of(f, "token_embd.weight"), BT_ROLE_TABLE);
    assert_int_equal(role_of(f, "output.weight"), BT_ROLE_HEAD);
    assert_int_equal(role_of(f, "position_embd.weight"), BT_ROLE_TABLE);
    assert_int_equal(role_of(f, "token_types.weight"), BT_ROLE_SMALL);
    assert_int_equal(role_of(f, "per_layer_token_embd.weight"), BT_ROLE_TABLE);
    assert_int_equal(role_of(f, "per_layer_model_proj.weight"), BT_ROLE_UNIT);
    assert_int_equal(role_of(f, "rope_factors_long.weight"), BT_ROLE_SMALL);
    assert_int_equal(role_of(f, "output.bias"), BT_ROLE_SMALL);
    assert_int_equal(role_of(f, "blk.0.ffn_gate_inp.weight"), BT_ROLE_SMALL);
    assert_int_equal(role_of(f, "blk.1.ffn_gate_inp.weight"), BT_ROLE_UNIT);
    assert_int_equal(role_of(f, "blk.0.attn_q_norm.weight"), BT_ROLE_SMALL);
    assert_int_equal(role_of(f, "blk.0.attn_k.weight"), BT_ROLE_SMALL);
    const bt_unit_facts *u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    member(f, u, 1, "blk.0.attn_output.weight");
    member(f, u, 2, "blk.0.ssm_out.weight");
    unit(f, 1, "blk.0.ffn_up_exps", BT_KIND_FEED_FORWARD); /* 8.5 MiB: every tensor of the group on its own */
    unit(f, 2, "blk.0.ffn_gate", BT_KIND_FEED_FORWARD);
    unit(f, 3, "blk.0.ffn_up", BT_KIND_FEED_FORWARD);
    unit(f, 4, "blk.0.inp_gate", BT_KIND_FEED_FORWARD);
    unit(f, 5, "blk.0.ffn_down", BT_KIND_FEED_FORWARD);
    unit(f, 6, "blk.1.attn", BT_KIND_ATTENTION);
    u = unit(f, 7, "blk.1.ffn", BT_KIND_FEED_FORWARD);
    member(f, u, 0, "blk.1.ffn_gate_inp.weight");
    u = unit(f, 8, "per_layer_model_proj", BT_KIND_OTHER);
    assert_int_equal(u->block, -1);
    unit(f, 9, "head.0", BT_KIND_HEAD);
    unit(f, 10, "token_embd", BT_KIND_TABLE);
    unit(f, 11, "position_embd", BT_KIND_TABLE);
    unit(f, 12, "per_layer_token_embd", BT_KIND_TABLE);
    assert_int_equal(f->n_units, 13);
    bt_facts_close(f);
}

/* A unit whose tensors lie in two files has an extent in each. */
static void across_shards(void **state) {
    (void)state;
    char first[512], second[512];
    gw w;
    gw_init(&w), gw_model_keys(&w, &kit_small);
    gw_u16(&w, "split.no", 0), gw_u16(&w, "split.count", 2), gw_i32(&w, "split.tensors.count", 4);
    gw_tensor(&w, "token_embd.weight", 8, 256, 1024), gw_tensor(&w, "blk.0.attn_q.weight", 8, 256, 256);
    gw_write(&w, kit_path("units-00001-of-00002.gguf", first)), gw_done(&w);
    gw_init(&w), gw_u16(&w, "split.no", 1), gw_u16(&w, "split.count", 2), gw_i32(&w, "split.tensors.count", 4);
    gw_tensor(&w, "blk.0.attn_output.weight", 8, 256, 256), gw_tensor(&w, "blk.1.ffn_up.weight", 8, 256, 256);
    gw_write(&w, kit_path("units-00002-of-00002.gguf", second)), gw_done(&w);
    bt_facts *f = kit_open(second);
    check_all(f);
    const bt_unit_facts *u = unit(f, 0, "blk.0.attn", BT_KIND_ATTENTION);
    assert_int_equal(u->n_extents, 2);
    assert_int_equal(f->extents[u->first_extent].shard, 0);
    assert_int_equal(f->extents[u->first_extent + 1].shard, 1);
    assert_int_equal(f->extents[u->first_extent + 1].file_offset, 0);
    bt_facts_close(f);
}

/* Any mix of shapes keeps the rules. */
static void any_model(void **state) {
    (void)state;
    const char *given = getenv("BT_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20260101;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < 60; round++) {
        uint32_t r[8];
        for (int i = 0; i < 8; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407; /* Knuth, MMIX */
            r[i] = (uint32_t)(seed >> 33);
        }
        gw_model m = {.arch = r[6] % 4 ? "qwen3" : "gemma2",
                      .n_block = 1 + r[0] % 9,
                      .n_embd = 256 * (1 + r[1] % 8),
                      .n_ff = 256 * (1 + r[2] % 20),
                      .n_vocab = 100 + r[3] % 50000,
                      .type = (const uint32_t[]){0, 1, 2, 3, 8, 12, 13, 14}[r[4] % 8],
                      .tied = r[5] % 2};
        gw w;
        gw_init(&w), gw_model_all(&w, &m);
        bt_facts *f = opened(&w);
        assert_int_equal(f->tied_head, m.tied);
        bt_facts_close(f);
    }
}

/* Units are the head's alone when the file holds nothing else that is large; none when all is small. */
static void nothing_large(void **state) {
    (void)state;
    gw_model m = kit_small;
    m.n_embd = 128, m.n_ff = 128, m.n_vocab = 100;
    gw w;
    gw_init(&w), gw_model_all(&w, &m);
    bt_facts *f = kit_file_open(&w, "units.gguf");
    gw_done(&w);
    assert_int_equal(f->n_units, 0);
    assert_int_equal(f->n_extents, 0);
    for (uint32_t i = 0; i < f->n_tensors; i++)
        assert_int_equal(f->tensors[i].role, BT_ROLE_SMALL);
    bt_facts_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_model), cmocka_unit_test(near_and_far),  cmocka_unit_test(split_groups),
        cmocka_unit_test(tied_table),  cmocka_unit_test(roles),         cmocka_unit_test(across_shards),
        cmocka_unit_test(any_model),   cmocka_unit_test(nothing_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
