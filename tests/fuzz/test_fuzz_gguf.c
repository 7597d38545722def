/* SPDX-License-Identifier: MIT
 * test_fuzz_gguf.c: headers that were good once, mutated with a seed.
 *
 * Bytes are flipped, copied, removed, inserted, replaced by numbers that mean trouble; whole files are cut. Nothing
 * may crash, read outside (sanitizers see to that), allocate by the word of a length, or leave anything behind; what
 * is accepted must be facts that hold together, for a planner relies on them. BT_SEED replays a run, BT_ROUNDS makes it
 * longer. Files of tests/data/fuzz/gguf are run as they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "random.h"
#include <cmocka.h>

#include "base/heap.h"
#include "model_kit.h"

#include <dirent.h>
#include <stdlib.h>

#define N_ROUNDS 6000

static uint64_t random_state;

static uint64_t next_random(void) {
    return random_next(&random_state);
}

static size_t below(size_t n) {
    return (size_t)(next_random() % n);
}

/* ---- seeds --------------------------------------------------------------------------------------------------------
 */

static void seed_model(gw *w, unsigned which) {
    static const gw_model models[] = {
        {"llama", 2, 256, 512, 1024, 8, false, false},
        {"gemma3", 6, 128, 256, 300, 12, true, false},
        {"glm4moe", 3, 256, 512, 512, 2, false, false},
        {"deci", 2, 256, 512, 600, 0, false, true},
    };
    gw_model m = models[which];
    if (m.type == 12) m.n_embd = 256;
    gw_init(w);
    gw_model_keys(w, &m);
    switch (which) {
    case 0:
        gw_tokens(w, "tokenizer.ggml.tokens", m.n_vocab);
        gw_u32(w, "general.alignment", 32);
        gw_u16(w, "split.count", 1);
        break;
    case 1:
        gw_u32(w, "gemma3.attention.sliding_window", 512);
        gw_bools(w, "gemma3.attention.sliding_window_pattern", (bool[]){1, 1, 1, 1, 1, 0}, 6);
        break;
    case 2:
        gw_u32(w, "glm4moe.nextn_predict_layers", 1);
        gw_u32(w, "glm4moe.expert_count", 8);
        gw_u32(w, "glm4moe.expert_used_count", 2);
        break;
    default:
        gw_u32s(w, "deci.attention.head_count", (uint32_t[]){4, 0}, 2);
        gw_u32s(w, "deci.attention.head_count_kv", (uint32_t[]){2, 0}, 2);
        gw_string(w, "deci.rope.scaling.type", "yarn");
        break;
    }
    gw_model_tensors(w, &m);
}

/* ---- mutation -------------------------------------------------------------------------------------------------------
 */

static void put_number(unsigned char *bytes, size_t n) {
    static const uint64_t numbers[] = {
        0,          1,          2,          255,        256,        511,        512,
        513,        1024,       65535,      65536,      0x7fffffff, 0x80000000, 0xffffffff,
        1ull << 32, 1ull << 40, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 31};
    unsigned width = (unsigned[]){1, 2, 4, 8}[below(4)];
    if (n < width) return;
    uint64_t v = numbers[below(sizeof numbers / sizeof numbers[0])];
    size_t at = below(n - width + 1);
    for (unsigned i = 0; i < width; i++)
        bytes[at + i] = (unsigned char)(v >> (8 * i));
}

static size_t mutate_once(unsigned char *bytes, size_t n, size_t capacity) {
    size_t a = below(n), b = below(n), part = 1 + below(16);
    switch (below(7)) {
    case 0:
        bytes[a] ^= (unsigned char)(1u << below(8));
        return n;
    case 1:
        bytes[a] = (unsigned char)next_random();
        return n;
    case 2:
    case 3:
        put_number(bytes, n);
        return n;
    case 4: /* one place over another */
        if (a + part <= n && b + part <= n) memmove(bytes + a, bytes + b, part);
        return n;
    case 5: /* out */
        if (a + part > n || n - part < 32) return n;
        memmove(bytes + a, bytes + a + part, n - a - part);
        return n - part;
    default: /* in */
        if (n + part > capacity) return n;
        memmove(bytes + a + part, bytes + a, n - a);
        return n + part;
    }
}

/* ---- what must hold of whatever is accepted --------------------------------------------------------------------- */

static void check_units(const bt_facts *f) {
    for (uint32_t i = 0; i < f->n_units; i++) {
        const bt_unit_facts *u = &f->units[i];
        uint64_t image = 0;
        assert_true(u->n_tensors > 0 && u->first_tensor + u->n_tensors <= f->n_unit_tensors);
        assert_true(u->n_extents > 0 && u->first_extent + u->n_extents <= f->n_extents);
        for (uint32_t k = 0; k < u->n_extents; k++) {
            const bt_extent *e = &f->extents[u->first_extent + k];
            assert_true(e->shard < f->n_shards && e->image_offset == image);
            assert_true(e->file_offset + e->bytes < f->shards[e->shard].file_bytes + BT_PAGE_BYTES);
            image += e->bytes;
        }
        assert_true(image == u->image_bytes && u->bytes <= image);
        assert_true(u->block >= -1 && u->block < (int32_t)f->n_block);
        assert_true(memchr(u->name, '\0', sizeof u->name));
        for (uint32_t k = 0; k < u->n_tensors; k++)
            assert_true(f->unit_tensors[u->first_tensor + k] < f->n_tensors);
    }
}

static void check_facts(const bt_facts *f) {
    assert_true(f->n_block <= BT_BLOCK_MAX && f->n_tensors <= BT_TENSOR_MAX && f->n_shards >= 1);
    assert_true(f->arch && f->name && f->tokenizer && f->tokenizer_pre && f->kv);
    assert_true(f->kv_known || f->kv_reason[0] != '\0');
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        assert_true(t->file_offset + t->bytes <= f->shards[t->shard].file_bytes);
        assert_true(t->bytes > 0 && t->row_bytes > 0 && t->bytes % t->row_bytes == 0);
        assert_true(t->unit == BT_NO_UNIT || t->unit < f->n_units);
    }
    check_units(f);
}

static bool run_file(const char *path) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    bt_status status = bt_facts_open(path, &facts, &err);
    if (status == BT_OK) {
        check_facts(facts);
    } else {
        assert_true(status == BT_E_FORMAT || status == BT_E_LIMIT);
        assert_true(err.text[0] != '\0' && err.code[0] != '\0');
        for (const char *p = err.text; *p; p++)
            assert_true((unsigned char)*p >= 0x20); /* nothing drives a terminal */
    }
    bt_facts_close(facts);
    assert_int_equal(bt_heap_live_bytes(), 0);
    return status == BT_OK;
}

static void mutations(void **state) {
    (void)state;
    const char *seed_text = getenv("BT_SEED"), *rounds_text = getenv("BT_ROUNDS");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 20260301;
    uint64_t n_rounds = rounds_text ? strtoull(rounds_text, NULL, 10) : N_ROUNDS, n_accepted = 0;
    print_message("seed %" PRIu64 "\n", seed);
    random_state = seed;
    char path[512];
    kit_path("fuzz.gguf", path);
    for (uint64_t round = 0; round < n_rounds; round++) {
        gw w;
        size_t n_good;
        seed_model(&w, (unsigned)below(4));
        unsigned char *good = gw_header(&w, &n_good);
        size_t capacity = n_good + 256, n = n_good;
        unsigned char *bytes = malloc(capacity);
        assert_non_null(bytes);
        memcpy(bytes, good, n_good);
        for (size_t i = below(4); i > 0; i--)
            n = mutate_once(bytes, n, capacity);
        if (below(20) == 0) n = 1 + below(n);
        gw_write_bytes(path, bytes, n);
        if (below(20) != 0) gw_cut(path, n_good + w.data_bytes + 8192);
        n_accepted += run_file(path);
        free(bytes), free(good), gw_done(&w);
    }
    print_message("%" PRIu64 " of %" PRIu64 " accepted\n", n_accepted, n_rounds);
    assert_true(n_accepted > n_rounds / 10 && n_accepted < n_rounds); /* the seeds are good, the mutations are not */
}

static void corpus(void **state) {
    (void)state;
    static const char folder[] = BT_TEST_DATA "/fuzz/gguf";
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        run_file(path);
    }
    closedir(dir);
}

int main(void) {
    mkdir(BT_TEST_OUT, 0777);
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutations), cmocka_unit_test(corpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
