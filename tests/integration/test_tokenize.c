/* SPDX-License-Identifier: MIT
 * Texts in windows: the tokens of the whole at once, for every vocabulary that llama.cpp's source brings along and for
 * texts that are hard to cut; memory that does not grow with the text; refusals; refused memory. */
#include "base/heap.h"
#include "engine/tokenize.h"
#include "llama_kit.h"
#include "random.h"

#include "llama.h"

#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_BYTES  20000u
#define LARGE_BYTES (3u << 20)

static const char *const files[] = {"README.md", "docs/design.md", "docs/serve.md", "src/engine/exact.c"};

static char *source_path(const char *name, char path[4096]) {
    const char *source = getenv("BT_SOURCE");
    (void)snprintf(path, 4096, "%s/%s", source ? source : ".", name);
    return path;
}

static struct llama_model *open_vocab(const char *path) {
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    return llama_model_load_from_file(path, params);
}

/* ---- texts ---- */

static size_t read_files(char *text, size_t most) {
    char path[4096];
    size_t n = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && n < most; i++) {
        FILE *file = fopen(source_path(files[i], path), "rb");
        assert_non_null(file);
        n += fread(text + n, 1, most - n, file);
        (void)fclose(file);
    }
    return n;
}

/* A character of 1 to 4 bytes. */
static size_t put(char *at, uint32_t code) {
    if (code < 0x80) {
        at[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint32_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6)
        at[i] = (char)(0x80u | (code & 0x3fu));
    at[0] = (char)(first[n] | code);
    return n;
}

typedef enum kind { FILES, SAME, BLANKS, DIGITS, LINES, HAN, EMOJI, MIXED, SPECIAL, BYTES, KINDS } kind;

static const char *const names[] = {"files", "one letter", "blanks", "digits",  "line ends",
                                    "han",   "emoji",      "mixed",  "special", "bytes"};

static size_t make_text(kind what, uint64_t *state, char *text, size_t most) {
    static const char *const bits[] = {"the ",
                                       "  ",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "Wort",
                                       "\xc3\xa4\xc3\xb6",
                                       "42",
                                       "<",
                                       "|>",
                                       "'s",
                                       " a",
                                       ".",
                                       "_",
                                       "(((",
                                       "   ",
                                       "\n\n\n",
                                       "0x1F",
                                       "caf\xc3\xa9 ",
                                       "\xe2\x80\x94",
                                       "tokenization",
                                       "AAAA",
                                       "\xe4\xb8\xad\xe6\x96\x87",
                                       "!?",
                                       "$"};
    static const char *const marks[] = {"<|im_start|>",    "<|im_end|>", "<s>",   "</s>",
                                        "<start_of_turn>", "<eos>",      "[SEP]", "<|endoftext|>"};
    if (what == FILES) return read_files(text, most);
    size_t n = 0;
    while (n + 64 < most) {
        uint64_t r = random_next(state);
        const char *word = NULL;
        if (what == SAME) n += put(text + n, 'a');
        if (what == BLANKS) n += put(text + n, r % 64 == 0 ? '\n' : ' ');
        if (what == DIGITS) n += put(text + n, '0' + (uint32_t)(r % 10));
        if (what == LINES) n += put(text + n, r % 3 == 0 ? '\r' : '\n');
        if (what == HAN) n += put(text + n, 0x4e00 + (uint32_t)(r % 0x5000));
        if (what == EMOJI) n += put(text + n, 0x1f300 + (uint32_t)(r % 0x300));
        if (what == BYTES) text[n++] = (char)(r % 0xf3 + 1);
        if (what == MIXED || what == SPECIAL) word = bits[r % (sizeof bits / sizeof *bits)];
        if (what == SPECIAL && r % 7 == 0) word = marks[r / 7 % (sizeof marks / sizeof *marks)];
        if (word) {
            memcpy(text + n, word, strlen(word));
            n += strlen(word);
        }
    }
    return n;
}

/* ---- the same tokens ---- */

/* llama.cpp's answer for the whole text. A thread of its own: where a vocabulary's rule is left to std::regex, that
 * goes three calls deeper with each character, and 26 000 digits in a row pass the usual stack. */
typedef struct whole {
    const bt_tokenize_ask *ask;
    int32_t *tokens;
    int32_t n;
} whole;

static void *tokenize_whole(void *user) {
    whole *w = user;
    w->n = llama_tokenize(w->ask->vocab, w->ask->text, (int32_t)w->ask->n_bytes, w->tokens,
                          (int32_t)(3 * w->ask->n_bytes) + 16, w->ask->add_special, w->ask->parse_special);
    return NULL;
}

static void ask_whole(whole *w) {
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 1u << 30), 0);
    assert_int_equal(pthread_create(&thread, &attributes, tokenize_whole, w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attributes);
}

typedef struct tally {
    uint32_t n_equal, n_refused;
} tally;

static void compare(const char *path, const struct llama_vocab *vocab, kind what, const char *text, size_t n,
                    bool special, tally *t) {
    bt_tokenize_ask ask = {.vocab = vocab,
                           .text = text,
                           .n_bytes = n,
                           .add_special = special,
                           .parse_special = special,
                           .room_bytes = UINT64_MAX};
    int32_t *theirs = malloc((3 * n + 16) * sizeof *theirs);
    assert_non_null(theirs);
    whole them = {.ask = &ask, .tokens = theirs};
    ask_whole(&them);
    int32_t n_theirs = them.n;
    int32_t *ours = NULL;
    uint32_t n_ours = 0;
    uint32_t n_counted = 0;
    bt_error err = {0};
    assert_true(n_theirs >= 0);
    assert_int_equal(bt_tokenize(&ask, &ours, &n_ours, &err), BT_OK);
    assert_int_equal(bt_tokenize_count(&ask, &n_counted, &err), BT_OK);
    assert_int_equal(n_counted, n_ours);
    for (uint32_t i = 0; i < n_ours && i < (uint32_t)n_theirs; i++)
        if (ours[i] != theirs[i])
            fail_msg("%s, %s: token %u is %d, of the whole %d", path, names[what], i, ours[i], theirs[i]);
    if ((uint32_t)n_theirs != n_ours)
        fail_msg("%s, %s: %u tokens, of the whole %d", path, names[what], n_ours, n_theirs);
    bt_heap_free(ours);
    free(theirs);
    t->n_equal++;
    /* with no room there must be a seam in every window */
    ask.room_bytes = 0;
    bt_status status = bt_tokenize_count(&ask, &n_counted, &err);
    if (status != BT_OK) {
        assert_int_equal(status, BT_E_LIMIT);
        assert_string_equal(err.code, "tokenize_room");
        t->n_refused++;
    }
    if (what == FILES && status != BT_OK) print_message("%s: files have no seams\n", path);
}

/* both: each text with and without special tokens; else by turns. */
static void each_vocabulary(const char *pattern, size_t n_min, bool both) {
    char path[4096];
    static char text[TEXT_BYTES];
    glob_t found;
    if (glob(source_path(pattern, path), 0, NULL, &found) != 0) skip();
    assert_true(found.gl_pathc >= n_min);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct llama_model *model = open_vocab(found.gl_pathv[i]);
        if (!model) continue; /* a vocabulary that this llama.cpp knows no more */
        tally t = {0};
        for (kind what = 0; what < KINDS; what++) {
            uint64_t state = 7 + (uint64_t)what;
            size_t n = make_text(what, &state, text, sizeof text);
            for (unsigned special = 0; special < 2; special++)
                if (both || special == (unsigned)what % 2)
                    compare(strrchr(found.gl_pathv[i], '/') + 1, llama_model_get_vocab(model), what, text, n, special,
                            &t);
        }
        print_message("%-40s %u texts equal, %u of them only where there is room\n",
                      strrchr(found.gl_pathv[i], '/') + 1, t.n_equal, t.n_refused);
        llama_model_free(model);
    }
    globfree(&found);
}

static void models(void **unused) {
    (void)unused;
    each_vocabulary("build/models/smollm2-135m-instruct-q4_1.gguf", 1, true);
    each_vocabulary("build/models/gemma-3-270m-q4_k_m.gguf", 1, true);
}

static void vocabularies(void **unused) {
    (void)unused;
    each_vocabulary("build/llama.cpp/source/models/ggml-vocab-*.gguf", 10, false);
}

/* ---- memory ---- */

static uint64_t status_bytes(const char *key) {
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoull(line + strlen(key), NULL, 10);
    (void)fclose(file);
    return kib << 10;
}

/* Digits are the worst there is: a token each, and a word each. */
static void a_long_text_takes_no_more(void **unused) {
    (void)unused;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* what is freed stays for a while */
#endif
    char path[4096];
    struct llama_model *model = open_vocab(source_path("build/models/smollm2-135m-instruct-q4_1.gguf", path));
    if (!model) skip();
    char *text = malloc(LARGE_BYTES);
    assert_non_null(text);
    uint64_t state = 3;
    bt_tokenize_ask ask = {.vocab = llama_model_get_vocab(model), .text = text, .room_bytes = 0};
    ask.n_bytes = make_text(DIGITS, &state, text, 20000);
    uint32_t n = 0;
    bt_error err = {0};
    assert_int_equal(bt_tokenize_count(&ask, &n, &err), BT_OK); /* what is made once is made */
    ask.n_bytes = make_text(DIGITS, &state, text, LARGE_BYTES);
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file || fputs("5", file) < 0 || fclose(file) != 0) skip();
    uint64_t before = status_bytes("VmRSS:");
    assert_int_equal(bt_tokenize_count(&ask, &n, &err), BT_OK);
    uint64_t peak = status_bytes("VmHWM:");
    assert_int_equal(n, ask.n_bytes);
    print_message("%zu bytes: %llu KiB\n", ask.n_bytes, (unsigned long long)(peak - before) >> 10);
    assert_true(peak - before < 1u << 20); /* VmHWM is counted in batches; as a whole it takes 300 MiB */
    free(text);
    llama_model_free(model);
}

/* ---- refusals ---- */

static void no_seam_and_no_room(void **unused) {
    (void)unused;
    char path[4096];
    struct llama_model *model = open_vocab(source_path("build/llama.cpp/source/models/ggml-vocab-bert-bge.gguf", path));
    if (!model) skip();
    static char text[TEXT_BYTES];
    memset(text, 'A', sizeof text); /* becomes another letter, or unknown */
    bt_tokenize_ask ask = {.vocab = llama_model_get_vocab(model), .text = text, .n_bytes = sizeof text};
    bt_token_stream *stream = NULL;
    uint32_t n = 0;
    bt_error err = {0};
    ask.room_bytes = UINT64_C(110) * (sizeof text / 2);
    assert_int_equal(bt_token_stream_open(&ask, &stream, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "tokenize_room");
    assert_int_equal(err.have, ask.room_bytes);
    assert_true(err.need > err.have && !stream);
    ask.room_bytes = UINT64_C(110) * sizeof text;
    assert_int_equal(bt_tokenize_count(&ask, &n, &err), BT_OK);
    assert_true(n > 0);
    ask.n_bytes = BT_TOKENIZE_TEXT_MAX + (size_t)1;
    assert_int_equal(bt_token_stream_open(&ask, &stream, &err), BT_E_ARG);
    assert_string_equal(err.code, "prompt_bytes");
    llama_model_free(model);
}

/* Four bytes that would be a number over 0x10ffff: llama.cpp ends the process over them. */
static void beyond_unicode(void **unused) {
    (void)unused;
    static const char *const bad[] = {"a\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "abc\xf7\xbf\xbf\xbf z",
                                      "\xe2\xf6\xbf\xbf\xbf"};
    static const char *const good[] = {"\xf4\x8f\xbf\xbf", "\xf5\x80\x80", "\xf8\x80\x80\x80\x80",
                                       "\xff\xfe",         "\xf4\x90\x80", "\xed\xa0\x80",
                                       "\xc0\x80"};
    char path[4096];
    struct llama_model *model = open_vocab(source_path("build/models/smollm2-135m-instruct-q4_1.gguf", path));
    if (!model) skip();
    bt_tokenize_ask ask = {.vocab = llama_model_get_vocab(model)};
    uint32_t n = 0;
    bt_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask.text = bad[i];
        ask.n_bytes = strlen(bad[i]);
        assert_int_equal(bt_tokenize_count(&ask, &n, &err), BT_E_FORMAT);
        assert_string_equal(err.code, "text_utf8");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ask.text = good[i];
        ask.n_bytes = strlen(good[i]);
        assert_int_equal(bt_tokenize_count(&ask, &n, &err), BT_OK);
        assert_true(n > 0);
    }
    llama_model_free(model);
}

static void short_ones(void **unused) {
    (void)unused;
    char path[4096];
    struct llama_model *model = open_vocab(source_path("build/models/gemma-3-270m-q4_k_m.gguf", path));
    if (!model) skip();
    bt_tokenize_ask ask = {.vocab = llama_model_get_vocab(model), .text = "", .add_special = true};
    bt_token_stream *stream = NULL;
    int32_t tokens[4] = {-7, -7, -7, -7};
    uint32_t n = 9;
    bt_error err = {0};
    assert_int_equal(bt_token_stream_open(&ask, &stream, &err), BT_OK);
    assert_int_equal(bt_token_stream_next(stream, tokens, 0, &n, &err), BT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(bt_token_stream_next(stream, tokens, 3, &n, &err), BT_OK);
    assert_int_equal(n, 1); /* <bos> */
    assert_int_equal(tokens[1], -7);
    assert_int_equal(bt_token_stream_next(stream, tokens, 3, &n, &err), BT_OK);
    assert_int_equal(n, 0);
    bt_token_stream_close(stream);
    bt_token_stream_close(NULL);
    llama_model_free(model);
}

int main(void) {
    llama_log_set(kit_quiet, NULL);
    llama_backend_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_ones),          cmocka_unit_test(models),
        cmocka_unit_test(vocabularies),        cmocka_unit_test(a_long_text_takes_no_more),
        cmocka_unit_test(no_seam_and_no_room), cmocka_unit_test(beyond_unicode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
