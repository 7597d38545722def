/* SPDX-License-Identifier: MIT
 * test_mixture.c: a mixture of experts over slots has the logits of one that is wholly in memory, to the bit.
 *
 * Models of random weights, whose experts are whole pages long or of odd lengths, in three parts or two; prompts whose
 * experts are more than the slots, single tokens, two sequences in one batch; beside other weights that stream. What
 * was asked for is recorded and replayed through a cache written anew: hits, misses and bytes must be the same. Where
 * calls can be made to fail, a read that fails in the middle of a pass fails that pass and nothing after it. Cases X7,
 * X10 and X13 of research notes, seed 3. */
#include "base/fault.h"
#include "base/heap.h"
#include "engine/session.h"
#include "gguf_write.h"
#include "random.h"

#include "llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_EMBD   256u
#define N_HEAD   4u
#define N_VOCAB  320u
#define N_BLOCK  3u
#define N_EXPERT 16u
#define N_USED   4u
#define N_CTX    256u
#define N_UBATCH 32u
#define N_PROMPT 75u /* three micro-batches, the last of 11 tokens */
#define N_STEPS  13u
#define N_ROWS   (N_STEPS + 1) /* an even number */

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct form {
    const char *name, *arch;
    uint32_t type, n_ff;
} form;

static const form forms[] = {
    {"pages", "qwen3moe", F16, 64},  /* 32,768 bytes: 8 pages */
    {"odd", "qwen3moe", Q8_0, 96},   /* 26,112 bytes */
    {"small", "qwen3moe", Q4_0, 64}, /* 9,216 bytes */
    {"fused", "hy_v3", Q8_0, 96},    /* gate and up are one matrix; an expert that is always used stands beside */
};
#define N_FORMS (sizeof forms / sizeof *forms)

typedef struct tensor {
    char name[64];
    uint32_t type;
    uint64_t ne[3];
} tensor;

static tensor tensors[64];
static uint32_t n_tensors;

static void add(const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2) {
    tensor *t = &tensors[n_tensors++];
    *t = (tensor){.type = type, .ne = {ne0, ne1, ne2}};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
}

static void add_block(uint32_t block, const char *part, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2) {
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%u.%s.weight", block, part);
    add(name, type, ne0, ne1, ne2);
}

static void list_tensors(const form *m) {
    uint64_t kv = N_EMBD / 2, head = N_EMBD / N_HEAD;
    n_tensors = 0;
    add("token_embd.weight", F16, N_EMBD, N_VOCAB, 1);
    for (uint32_t b = 0; b < N_BLOCK; b++) {
        add_block(b, "attn_norm", F32, N_EMBD, 0, 1);
        add_block(b, "attn_q", F16, N_EMBD, N_EMBD, 1);
        add_block(b, "attn_k", F16, N_EMBD, kv, 1);
        add_block(b, "attn_v", F16, N_EMBD, kv, 1);
        add_block(b, "attn_q_norm", F32, head, 0, 1);
        add_block(b, "attn_k_norm", F32, head, 0, 1);
        add_block(b, "attn_output", F16, N_EMBD, N_EMBD, 1);
        add_block(b, "ffn_norm", F32, N_EMBD, 0, 1);
        add_block(b, "ffn_gate_inp", F32, N_EMBD, N_EXPERT, 1);
        add_block(b, "ffn_down_exps", m->type, m->n_ff, N_EMBD, N_EXPERT);
        if (strcmp(m->arch, "hy_v3") == 0) {
            add_block(b, "ffn_gate_up_exps", m->type, N_EMBD, UINT64_C(2) * m->n_ff, N_EXPERT);
            add_block(b, "ffn_gate_shexp", m->type, N_EMBD, m->n_ff, 1);
            add_block(b, "ffn_up_shexp", m->type, N_EMBD, m->n_ff, 1);
            add_block(b, "ffn_down_shexp", m->type, m->n_ff, N_EMBD, 1);
        } else {
            add_block(b, "ffn_gate_exps", m->type, N_EMBD, m->n_ff, N_EXPERT);
            add_block(b, "ffn_up_exps", m->type, N_EMBD, m->n_ff, N_EXPERT);
        }
    }
    add("output_norm.weight", F32, N_EMBD, 0, 1);
    add("output.weight", F16, N_EMBD, N_VOCAB, 1);
}

static void write_keys(gw *w, const form *m) {
    char key[96];
#define KEY(text) (snprintf(key, sizeof key, "%s." text, m->arch), key)
    gw_string(w, "general.architecture", m->arch);
    gw_u32(w, KEY("block_count"), N_BLOCK);
    gw_u32(w, KEY("context_length"), N_CTX);
    gw_u32(w, KEY("embedding_length"), N_EMBD);
    gw_u32(w, KEY("feed_forward_length"), m->n_ff);
    gw_u32(w, KEY("attention.head_count"), N_HEAD);
    gw_u32(w, KEY("attention.head_count_kv"), N_HEAD / 2);
    gw_f32(w, KEY("attention.layer_norm_rms_epsilon"), 1e-5F);
    gw_u32(w, KEY("expert_count"), N_EXPERT);
    gw_u32(w, KEY("expert_used_count"), N_USED);
    gw_u32(w, KEY("expert_feed_forward_length"), m->n_ff);
    gw_u32(w, KEY("vocab_size"), N_VOCAB);
#undef KEY
    gw_string(w, "tokenizer.ggml.model", "no_vocab");
}

static float draw(uint64_t *state) {
    return (float)(random_next(state) >> 40) / (float)(1u << 24) * 2.0F - 1.0F;
}

static void write_data(FILE *file, const bt_facts *facts) {
    uint64_t state = 77;
    for (uint32_t i = 0; i < n_tensors; i++) {
        const bt_tensor *t = NULL;
        for (uint32_t k = 0; k < facts->n_tensors; k++)
            if (strcmp(facts->tensors[k].name, tensors[i].name) == 0) t = &facts->tensors[k];
        if (!t) fail_msg("%s is not in the facts", tensors[i].name);
        uint64_t n = t->bytes / t->row_bytes * t->ne[0];
        float *values = malloc(n * sizeof *values);
        void *data = calloc(1, t->bytes);
        if (!values || !data) abort();
        bool is_norm = strstr(t->name, "norm") != NULL;
        for (uint64_t k = 0; k < n; k++)
            values[k] = is_norm ? 1.0F : draw(&state) * sqrtf(3.0F / (float)t->ne[0]);
        if (t->type == F32)
            memcpy(data, values, t->bytes);
        else
            (void)ggml_quantize_chunk((enum ggml_type)t->type, values, data, 0, (int64_t)(n / t->ne[0]),
                                      (int64_t)t->ne[0], NULL);
        assert_int_equal(fseek(file, (long)t->file_offset, SEEK_SET), 0);
        assert_int_equal(fwrite(data, 1, t->bytes, file), t->bytes);
        free(data);
        free(values);
    }
}

static void path_of(const form *m, char path[4096]) {
    (void)snprintf(path, 4096, "%s/moe-%s.gguf", BT_TEST_OUT, m->name);
}

static void write_model(const form *m) {
    char path[4096];
    gw w;
    bt_facts *facts = NULL;
    bt_error err = {0};
    path_of(m, path);
    list_tensors(m);
    gw_init(&w);
    write_keys(&w, m);
    for (uint32_t i = 0; i < n_tensors; i++) {
        const tensor *t = &tensors[i];
        if (t->ne[2] > 1)
            gw_tensor_3d(&w, t->name, t->type, t->ne[0], t->ne[1], t->ne[2]);
        else if (t->ne[1] > 0)
            gw_tensor(&w, t->name, t->type, t->ne[0], t->ne[1]);
        else
            gw_tensor_raw(&w, t->name, t->type, 1, t->ne, w.data_bytes), w.data_bytes += (t->ne[0] * 4 + 31) / 32 * 32;
    }
    gw_write(&w, path);
    gw_done(&w);
    if (bt_facts_open(path, &facts, &err) != BT_OK) fail_msg("%s", err.text);
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    write_data(file, facts);
    assert_int_equal(fclose(file), 0);
    bt_facts_close(facts);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct request {
    uint32_t block, n, wanted[N_EXPERT];
    bool is_guess;
} request;

#define REQUEST_MAX 4096u
static request requests[REQUEST_MAX];
static uint32_t n_requests;

static void record(uint32_t block, const uint32_t *wanted, uint32_t n, bool is_guess, void *user) {
    (void)user;
    if (n_requests == REQUEST_MAX) return;
    request *r = &requests[n_requests++];
    r->block = block;
    r->n = n;
    r->is_guess = is_guess;
    memcpy(r->wanted, wanted, n * sizeof *wanted);
}

typedef struct fixture {
    bt_facts *facts;
    bt_plan plan;
    bt_engine *engine;
    bt_session *session;
} fixture;

static void open_model(fixture *f, const form *m, uint32_t n_slots, uint32_t n_extra, bool shared) {
    char path[4096];
    bt_error err = {0};
    path_of(m, path);
    *f = (fixture){0};
    if (bt_facts_open(path, &f->facts, &err) != BT_OK) fail_msg("%s", err.text);
    assert_int_equal(f->facts->n_expert_blocks, N_BLOCK);
    f->plan = (bt_plan){.n_ctx = N_CTX,
                        .n_batch = N_CTX,
                        .n_ubatch = N_UBATCH,
                        .n_parallel = 2,
                        .n_threads = 2,
                        .n_slots = 2,
                        .place = bt_heap_array(f->facts->n_units, sizeof *f->plan.place),
                        .n_units = f->facts->n_units,
                        .n_expert_slots = n_slots,
                        .n_expert_extra = n_extra,
                        .experts_shared = shared,
                        .budget_bytes = UINT64_MAX};
    assert_non_null(f->plan.place);
    for (uint32_t u = 0; u < f->facts->n_units; u++) { /* other units stream beside the experts */
        const bt_unit_facts *unit = &f->facts->units[u];
        f->plan.place[u] = unit->kind == BT_KIND_TABLE ? BT_PLACE_ROWS : BT_PLACE_STREAMED;
        if (unit->image_bytes > f->plan.slot_bytes) f->plan.slot_bytes = unit->image_bytes;
    }
    bt_engine_params params = {.facts = f->facts, .plan = &f->plan, .n_threads = 2};
    if (bt_engine_open(&params, &f->engine, &err) != BT_OK) fail_msg("%s", err.text);
    bt_session_params session = bt_session_params_of(&f->plan, 2);
    if (bt_session_open(f->engine, &session, &f->session, &err) != BT_OK) fail_msg("%s", err.text);
    n_requests = 0;
    bt_device_set_expert_trace(bt_engine_device(f->engine), record, NULL);
}

static void close_model(fixture *f) {
    bt_session_close(f->session);
    bt_engine_close(f->engine);
    bt_heap_free(f->plan.place);
    bt_facts_close(f->facts);
}

static void keep_row(const fixture *f, float *dest) {
    const float *logits = llama_get_logits_ith(bt_session_context(f->session), -1);
    assert_non_null(logits);
    memcpy(dest, logits, N_VOCAB * sizeof *dest);
}

static int32_t token(uint32_t i) {
    uint64_t state = i;
    return (int32_t)(random_next(&state) % N_VOCAB);
}

/* A prompt, then tokens one by one: a row of logits after each. */
static void run(const fixture *f, float *rows) {
    int32_t tokens[N_PROMPT];
    bt_error err = {0};
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = token(i);
    bt_session_clear(f->session);
    if (bt_session_decode(f->session, tokens, N_PROMPT, NULL, &err) != BT_OK) fail_msg("%s", err.text);
    keep_row(f, rows);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        int32_t next = token(N_PROMPT + i);
        if (bt_session_decode(f->session, &next, 1, NULL, &err) != BT_OK) fail_msg("%s", err.text);
        keep_row(f, rows + (size_t)(i + 1) * N_VOCAB);
    }
}

/* Two sequences, a token of each in one batch: both rows of each step. */
static void run_two(const fixture *f, float *rows) {
    struct llama_batch batch = llama_batch_init(2, 0, 1);
    bt_session_clear(f->session);
    for (uint32_t i = 0; i < N_ROWS / 2; i++) {
        batch.n_tokens = 2;
        for (int32_t s = 0; s < 2; s++) {
            batch.token[s] = token(1000 * (uint32_t)s + i);
            batch.pos[s] = (llama_pos)i;
            batch.n_seq_id[s] = 1;
            batch.seq_id[s][0] = s;
            batch.logits[s] = 1;
        }
        assert_int_equal(llama_decode(bt_session_context(f->session), batch), 0);
        for (int32_t s = 0; s < 2; s++)
            memcpy(rows + ((size_t)2 * i + (size_t)s) * N_VOCAB,
                   llama_get_logits_ith(bt_session_context(f->session), s), N_VOCAB * sizeof *rows);
    }
    llama_batch_free(batch);
    bt_session_clear(f->session);
}

static float whole[N_ROWS * N_VOCAB], two_whole[N_ROWS * N_VOCAB], over_slots[N_ROWS * N_VOCAB];

static void expect_rows(const form *m, const char *what, uint32_t n_slots, const float *wanted) {
    for (uint32_t i = 0; i < N_ROWS; i++)
        if (memcmp(over_slots + (size_t)i * N_VOCAB, wanted + (size_t)i * N_VOCAB, N_VOCAB * sizeof *wanted) != 0)
            fail_msg("%s, %s, %u slots: row %u differs", m->name, what, n_slots, i);
}

/* ---- the cache, written anew ------------------------------------------------------------------------------------- */

typedef struct cache {
    uint32_t expert[N_EXPERT];
    uint64_t used[N_EXPERT];
    bool coming[N_EXPERT]; /* guessed, and not waited for */
} cache;

#define NOBODY UINT32_MAX

static uint32_t slot_of(const cache *c, uint32_t n_slots, uint32_t expert) {
    uint32_t i = 0;
    while (i < n_slots && c->expert[i] != expert)
        i++;
    return i;
}

static bool wants(const request *r, uint32_t expert) {
    for (uint32_t i = 0; i < r->n; i++)
        if (r->wanted[i] == expert) return true;
    return false;
}

static void replay_in_turn(cache *c, uint32_t n_slots, const request *r, uint64_t now) {
    uint32_t order[N_EXPERT], slots[N_EXPERT], n = 0, n_there = 0, ring[N_EXPERT], n_ring = 0;
    for (uint32_t i = 0; i < n_slots; i++) {
        if (c->expert[i] != NOBODY && wants(r, c->expert[i])) {
            slots[n] = i;
            order[n++] = c->expert[i];
        } else
            ring[n_ring++] = i;
    }
    n_there = n;
    for (uint32_t i = 0; i < n_there; i++)
        ring[n_ring++] = slots[i];
    for (uint32_t e = 0, k = 0; e < N_EXPERT; e++) {
        if (!wants(r, e) || slot_of(c, n_slots, e) < n_slots) continue;
        slots[n] = ring[k++ % n_slots];
        order[n++] = e;
    }
    for (uint32_t i = 0; i < n; i++) {
        c->expert[slots[i]] = order[i];
        c->used[slots[i]] = now;
    }
}

static void replay_fitting(cache *c, uint32_t n_slots, const request *r, uint64_t now, uint64_t *n_read) {
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t at = slot_of(c, n_slots, r->wanted[i]);
        if (at == n_slots) {
            for (uint32_t k = 0; k < n_slots; k++)
                if (!c->coming[k] && !(c->expert[k] != NOBODY && wants(r, c->expert[k])) &&
                    (at == n_slots || c->used[k] < c->used[at]))
                    at = k;
            c->expert[at] = r->wanted[i];
        }
        c->used[at] = now;
        *n_read += c->coming[at];
        c->coming[at] = false;
    }
}

/* What is coming has come; returns how many that were. */
static uint32_t settle(cache *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_EXPERT; i++) {
        n += c->coming[i];
        c->coming[i] = false;
    }
    return n;
}

static uint32_t replay_guess(cache *c, uint32_t n_slots, const request *r, uint64_t now) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (slot_of(c, n_slots, r->wanted[i]) < n_slots) continue;
        uint32_t at = n_slots;
        for (uint32_t k = 0; k < n_slots; k++)
            if (!c->coming[k] && !(c->expert[k] != NOBODY && wants(r, c->expert[k])) &&
                (at == n_slots || c->used[k] < c->used[at]))
                at = k;
        c->expert[at] = r->wanted[i];
        c->used[at] = now;
        c->coming[at] = true;
        n++;
    }
    return n;
}

static void expect_replay(const fixture *f, uint32_t n_slots, uint32_t n_extra, bool shared) {
    static cache caches[N_BLOCK];
    uint64_t hits = 0, misses = 0, guesses = 0, used = 0, n_read = 0, now = 0;
    uint32_t last = NOBODY, n_coming = 0;
    cache *guessed = NULL;
    memset(caches, 0, sizeof caches);
    for (uint32_t b = 0; b < N_BLOCK; b++)
        for (uint32_t i = 0; i < N_EXPERT; i++)
            caches[b].expert[i] = NOBODY;
    for (uint32_t i = 0; i < n_requests; i++) {
        const request *r = &requests[i];
        cache *c = &caches[r->block];
        uint32_t n = n_slots + (r->block < n_extra);
        if (guessed && (r->is_guess || r->n + n_coming > n)) {
            n_read += settle(guessed);
            guessed = NULL;
            n_coming = 0;
        }
        if (r->is_guess) {
            guessed = c;
            n_coming = replay_guess(c, n, r, now);
            guesses += n_coming;
            continue;
        }
        now++;
        if (shared && last != r->block) {
            for (uint32_t k = 0; k < N_EXPERT; k++)
                c->expert[k] = NOBODY;
        }
        last = r->block;
        for (uint32_t k = 0; k < r->n; k++) {
            uint32_t at = slot_of(c, n, r->wanted[k]);
            hits += at < n && !c->coming[at];
            used += at < n && c->coming[at];
            misses += at == n;
        }
        if (r->n > n)
            replay_in_turn(c, n, r, now);
        else
            replay_fitting(c, n, r, now, &n_read);
    }
    bt_experts_stats stats;
    bt_device_experts_stats_read(bt_engine_device(f->engine), &stats);
    assert_true(n_requests > 0 && n_requests < REQUEST_MAX);
    assert_int_equal(stats.hits, hits);
    assert_int_equal(stats.misses, misses);
    assert_int_equal(stats.guesses, guesses);
    assert_int_equal(stats.guesses_used, used);
    if (shared || n_slots < N_USED + 1) assert_int_equal(guesses, 0); /* no slot to spare */
    assert_true(used <= guesses);
    if (n_slots == 9) assert_true(used > guesses / 5); /* by chance 4 of 16 would be right, of those that are missing */
    uint64_t slice_bytes = 0;
    for (uint32_t p = 0; p < f->facts->expert_blocks[0].n_parts; p++)
        slice_bytes += f->facts->expert_blocks[0].parts[p].slice_bytes;
    assert_int_equal(stats.read_bytes, (misses + n_read) * slice_bytes);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void compare(const form *m, uint32_t n_slots, uint32_t n_extra, bool shared) {
    fixture f;
    open_model(&f, m, n_slots, n_extra, shared);
    run(&f, over_slots);
    expect_rows(m, shared ? "shared" : "of its own", n_slots, whole);
    run_two(&f, over_slots);
    expect_rows(m, "two sequences", n_slots, two_whole);
    run(&f, over_slots); /* with what the sequences left in the slots */
    expect_rows(m, "again", n_slots, whole);
    expect_replay(&f, n_slots, n_extra, shared);
    close_model(&f);
}

static void test_logits_are_equal(void **state) {
    (void)state;
    static const struct {
        uint32_t n_slots, n_extra;
        bool shared;
    } ways[] = {{2, 0, false}, {3, 2, false}, {4, 0, false}, {9, 1, false}, {15, 2, false}, {2, 0, true}, {4, 0, true}};
    for (size_t k = 0; k < N_FORMS; k++) {
        fixture f;
        write_model(&forms[k]);
        open_model(&f, &forms[k], N_EXPERT, 0, false);
        run(&f, whole);
        run_two(&f, two_whole);
        assert_int_equal(n_requests, 0); /* nothing is asked for */
        close_model(&f);
        for (uint32_t i = 1; i < N_ROWS; i++) /* and rows do differ */
            assert_int_not_equal(memcmp(whole, whole + (size_t)i * N_VOCAB, N_VOCAB * sizeof *whole), 0);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            compare(&forms[k], ways[i].n_slots, ways[i].n_extra, ways[i].shared);
    }
}

#ifdef BT_FAULT
/* A call that fails in the middle fails its pass, and nothing after it. */
static void test_failures_in_the_middle(void **state) {
    (void)state;
    for (size_t k = 0; k < N_FORMS; k++) {
        fixture f;
        uint32_t n_failed = 0;
        write_model(&forms[k]);
        open_model(&f, &forms[k], N_EXPERT, 0, false);
        run(&f, whole);
        close_model(&f);
        open_model(&f, &forms[k], 3, 0, false);
        for (uint64_t i = 0; i < 400; i += i < 40 ? 1 : 37) {
            int32_t tokens[N_PROMPT];
            bt_error err = {0};
            for (uint32_t t = 0; t < N_PROMPT; t++)
                tokens[t] = token(t);
            bt_session_clear(f.session);
            bt_fault_arm(i, false);
            bt_status status = bt_session_decode(f.session, tokens, N_PROMPT, NULL, &err);
            (void)bt_fault_disarm();
            if (status == BT_OK) continue;
            assert_true(err.code[0]);
            n_failed++;
        }
        assert_true(n_failed > 10);
        run(&f, over_slots);
        expect_rows(&forms[k], "after failures", 3, whole);
        close_model(&f);
    }
}
#endif

int main(void) {
    bt_error err = {0};
    if (bt_engine_init(&err) != BT_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_equal),
#ifdef BT_FAULT
        cmocka_unit_test(test_failures_in_the_middle),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
