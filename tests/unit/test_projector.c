/* SPDX-License-Identifier: MIT
 * test_projector.c: facts of multimodal projectors from headers that a test wrote, good ones and bad ones; and the
 * hashes by which vocabularies are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/projector.h"
#include "model_kit.h"

#define F16 1u

static void vision_keys(gw *w, const char *type) {
    gw_string(w, "general.architecture", "clip");
    gw_bool(w, "clip.has_vision_encoder", true);
    if (type) gw_string(w, "clip.projector_type", type);
    gw_u32(w, "clip.vision.image_size", 448);
    gw_u32(w, "clip.vision.patch_size", 14);
    gw_u32(w, "clip.vision.embedding_length", 64);
    gw_u32(w, "clip.vision.feed_forward_length", 256);
    gw_u32(w, "clip.vision.block_count", 2);
    gw_u32(w, "clip.vision.attention.head_count", 4);
}

static bt_projector *open_written(gw *w, bt_status status, const char *code) {
    char path[512];
    bt_error err = {0};
    bt_projector *p = NULL;
    gw_write(w, kit_path("projector.gguf", path));
    gw_done(w);
    bt_status got = bt_projector_open(path, &p, &err);
    if (got != status || strcmp(err.code, code) != 0)
        fail_msg("got %d %s '%s', expected %d %s", got, err.code, err.text, status, code);
    return p;
}

static void test_vision(void **state) {
    (void)state;
    gw w;
    gw_init(&w);
    vision_keys(&w, "internvl");
    gw_u32(&w, "clip.vision.projector.scale_factor", 2);
    gw_u32(&w, "clip.vision.preproc_max_tiles", 6);
    gw_tensor(&w, "v.blk.0.ffn_gate.weight", F16, 64, 256);
    gw_tensor(&w, "mm.model.mlp.1.weight", F16, 256, 96);
    gw_tensor(&w, "mm.model.mlp.3.weight", F16, 96, 96);
    gw_tensor(&w, "mm.a.mlp.1.weight", F16, 4096, 32); /* of an audio encoder: no part of it */
    bt_projector *p = open_written(&w, BT_OK, "");
    assert_int_equal(p->weight_bytes, 2 * (64 * 256 + 256 * 96 + 96 * 96 + 4096 * 32));
    assert_int_equal(p->tensor_bytes, 2 * 4096 * 32);
    assert_int_equal(p->n_tensors, 4);
    assert_int_equal(strlen(p->header_sha256), 64);
    assert_false(p->audio.exists);
    const bt_encoder *e = &p->vision;
    assert_true(e->exists && e->known && e->gated && e->batches && !e->windows);
    assert_int_equal(e->rule, BT_IMAGE_TILE);
    assert_int_equal(e->merge, 2);
    assert_int_equal(e->n_tiles_max, 7); /* and the overview */
    assert_int_equal(e->n_hidden, 256);
    assert_int_equal(e->n_sides, 2);
    bt_projector_close(p);
    bt_projector_close(NULL);
}

static void test_tiles(void **state) {
    (void)state;
    static const uint32_t pinpoints[] = {448, 896, 896, 896, 1344, 448};
    gw w;
    gw_init(&w);
    vision_keys(&w, "mlp");
    gw_u32s(&w, "clip.vision.image_grid_pinpoints", pinpoints, 6);
    bt_projector *p = open_written(&w, BT_OK, "");
    assert_int_equal(p->vision.n_tiles_max, 5);
    bt_projector_close(p);
    gw_init(&w);
    vision_keys(&w, "idefics3");
    gw_u32(&w, "clip.vision.preproc_image_size", 4 * 448 - 1);
    p = open_written(&w, BT_OK, "");
    assert_int_equal(p->vision.n_tiles_max, 17);
    bt_projector_close(p);
}

/* Pictures of any shape: up to a number of pixels that the file must give, or to an edge that it may. */
static void test_any_shape(void **state) {
    (void)state;
    gw w;
    gw_init(&w);
    vision_keys(&w, "phi4");
    (void)open_written(&w, BT_E_FORMAT, "gguf_key_missing");
    gw_init(&w);
    vision_keys(&w, "phi4");
    gw_u32(&w, "clip.vision.image_max_pixels", 1000000);
    bt_projector *p = open_written(&w, BT_OK, "");
    assert_int_equal(p->vision.rule, BT_IMAGE_PIXELS);
    assert_int_equal(p->vision.pixels_max, 1000000);
    bt_projector_close(p);
    for (uint32_t edge = 0; edge <= 1540; edge += 1540) {
        gw_init(&w);
        vision_keys(&w, "lightonocr");
        if (edge > 0) gw_u32(&w, "clip.vision.preproc_image_size", edge);
        p = open_written(&w, BT_OK, "");
        assert_int_equal(p->vision.rule, BT_IMAGE_EDGE);
        assert_int_equal(p->vision.pixels_max, edge > 0 ? 1540 * 1540 : 448 * 448);
        assert_int_equal(p->vision.n_tiles_max, 1);
        bt_projector_close(p);
    }
}

/* Two encoders in a file, each with a type of its own; and the old way of one name for both. */
static void test_both(void **state) {
    (void)state;
    for (int old = 0; old < 2; old++) {
        gw w;
        gw_init(&w);
        vision_keys(&w, old ? "qwen2.5o" : NULL);
        if (!old) gw_string(&w, "clip.vision.projector_type", "qwen2.5vl_merger");
        if (!old) gw_string(&w, "clip.audio.projector_type", "something_new");
        gw_u32(&w, "clip.vision.n_wa_pattern", 8);
        gw_bool(&w, "clip.has_audio_encoder", true);
        gw_u32(&w, "clip.audio.embedding_length", 128);
        gw_u32(&w, "clip.audio.feed_forward_length", 512);
        gw_u32(&w, "clip.audio.block_count", 2);
        gw_u32(&w, "clip.audio.attention.head_count", 4);
        bt_projector *p = open_written(&w, BT_OK, "");
        assert_string_equal(p->vision.type, "qwen2.5vl_merger");
        assert_true(p->vision.windows && p->vision.n_tokens_max == 4096);
        assert_string_equal(p->audio.type, old ? "qwen2a" : "something_new");
        assert_int_equal(p->audio.known, old);
        assert_true(p->audio.exists);
        bt_projector_close(p);
    }
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } bad[] = {{"clip.vision.patch_size", 0},
               {"clip.vision.image_size", 8193},
               {"clip.vision.block_count", 513},
               {"clip.vision.embedding_length", 0},
               {"clip.vision.attention.head_count", UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gw w;
        gw_init(&w);
        gw_string(&w, "general.architecture", "clip");
        gw_bool(&w, "clip.has_vision_encoder", true);
        gw_string(&w, "clip.projector_type", "gemma3");
        static const char *const keys[] = {"clip.vision.image_size",       "clip.vision.patch_size",
                                           "clip.vision.embedding_length", "clip.vision.feed_forward_length",
                                           "clip.vision.block_count",      "clip.vision.attention.head_count"};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            gw_u32(&w, keys[k], strcmp(keys[k], bad[i].key) == 0 ? bad[i].value : 16);
        assert_null(open_written(&w, BT_E_FORMAT, "mmproj_shape"));
    }
    gw w;
    gw_init(&w);
    gw_model_all(&w, &kit_small);
    assert_null(open_written(&w, BT_E_ARG, "mmproj_kind"));
    gw_init(&w);
    gw_string(&w, "general.architecture", "clip");
    assert_null(open_written(&w, BT_E_FORMAT, "mmproj_shape")); /* no encoder */
    gw_init(&w);
    gw_string(&w, "general.architecture", "clip");
    gw_bool(&w, "clip.has_vision_encoder", true);
    gw_string(&w, "clip.projector_type", "gemma3");
    assert_null(open_written(&w, BT_E_FORMAT, "gguf_key_missing"));
    gw_init(&w);
    vision_keys(&w, "phi4"); /* whose limit is a key */
    assert_null(open_written(&w, BT_E_FORMAT, "gguf_key_missing"));
    gw_init(&w);
    vision_keys(&w, "gemma3");
    gw_u32(&w, "clip.vision.projector.scale_factor", 0);
    assert_null(open_written(&w, BT_E_FORMAT, "mmproj_shape"));
}

/* One hash for 256 tokens, the first five left out; a short last run has one too. */
static void test_vocabulary_marks(void **state) {
    (void)state;
    static const struct {
        uint32_t n_tokens, n_marks;
    } cases[] = {{1, 0}, {5, 0}, {6, 1}, {261, 1}, {262, 2}, {1024, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_model m = kit_small;
        m.n_vocab = cases[i].n_tokens;
        gw w;
        gw_init(&w), gw_model_all(&w, &m), gw_tokens(&w, "tokenizer.ggml.tokens", cases[i].n_tokens);
        bt_facts *facts = kit_file_open(&w, "marks.gguf");
        gw_done(&w);
        assert_int_equal(facts->n_vocab_marks, cases[i].n_marks);
        for (uint32_t k = 1; k < facts->n_vocab_marks; k++)
            assert_true(facts->vocab_marks[k] != 0 && facts->vocab_marks[k] != facts->vocab_marks[k - 1]);
        bt_facts_close(facts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vision), cmocka_unit_test(test_tiles),     cmocka_unit_test(test_any_shape),
        cmocka_unit_test(test_both),   cmocka_unit_test(test_bad_files), cmocka_unit_test(test_vocabulary_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
