/* SPDX-License-Identifier: MIT
 * test_router_watch.c: answers of servers and their metrics, mutated: the corpus of tests/data/fuzz/router_usage and
 * .../router_metrics, and what llama-server really said.
 *
 * Usage: however a text is cut into pieces the same comes out, counts are counts, rates are numbers. Metrics: whatever
 * two servers say, the whole text holds to the format (exposition_check.h). The seed is printed; BT_SEED=N runs it
 * again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "exposition_check.h"
#include "random.h"
#include "router/metrics.h"
#include "usage_check.h"

#include <dirent.h>

#define N_ROUNDS_USAGE   40000
#define N_ROUNDS_METRICS 3000
#define N_TEXT_MAX       16384
#define N_FILES_MAX      64

static uint64_t seed = UINT64_C(0x7761746368);
static uint64_t random_state;

typedef struct corpus {
    char *texts[N_FILES_MAX];
    size_t n_bytes[N_FILES_MAX];
    size_t n;
} corpus;

static size_t below(size_t n) {
    return (size_t)(random_next(&random_state) % n);
}

static void add_folder(corpus *c, const char *folder) {
    char path[1024];
    (void)snprintf(path, sizeof path, BT_TEST_DATA "/%s", folder);
    DIR *dir = opendir(path);
    if (!dir) fail_msg("%s is missing", path);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.') continue;
        assert_true(c->n < N_FILES_MAX);
        (void)snprintf(path, sizeof path, BT_TEST_DATA "/%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        char *text = malloc(N_TEXT_MAX);
        if (!file || !text) fail_msg("%s cannot be read", path);
        c->n_bytes[c->n] = fread(text, 1, N_TEXT_MAX, file);
        c->texts[c->n++] = text;
        (void)fclose(file);
    }
    (void)closedir(dir);
}

static void drop(corpus *c) {
    for (size_t i = 0; i < c->n; i++)
        free(c->texts[i]);
}

static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     "\\",
                                     ",",
                                     ":",
                                     "\n",
                                     "\r\n",
                                     "\r",
                                     "\n\n",
                                     "data: ",
                                     "usage",
                                     "null",
                                     "-1",
                                     "9",
                                     "2147483647",
                                     "1e5",
                                     ".",
                                     "{\"usage\":{\"prompt_tokens\":5}}",
                                     "\"timings\":{",
                                     "[DONE]",
                                     "\xff",
                                     "\xc3",
                                     " ",
                                     "\t",
                                     "# TYPE ",
                                     "# HELP ",
                                     " counter",
                                     " histogram",
                                     "_bucket",
                                     "_sum",
                                     "le=\"1\"",
                                     "model=\"x\"",
                                     "NaN",
                                     "+Inf",
                                     "burthen_",
                                     "a 1\n",
                                     "\\n"};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

/* A text of the corpus changed in some places; its length. */
static size_t mutate(const corpus *c, char out[N_TEXT_MAX]) {
    size_t which = below(c->n);
    size_t n = c->n_bytes[which];
    memcpy(out, c->texts[which], n);
    for (size_t k = below(5); k > 0 && n > 0; k--) {
        size_t at = below(n);
        size_t end = at;
        const char *piece = pieces[below(N_PIECES)];
        size_t n_piece = strlen(piece);
        switch (below(6)) {
        case 0: /* a byte */
            out[at] = (char)below(256);
            continue;
        case 1: /* the end goes, or the beginning */
            if (below(3) > 0) continue;
            n = at;
            continue;
        case 2: /* a stretch goes */
            end = at + below(30);
            n_piece = 0;
            break;
        case 3: { /* a stretch comes again, from elsewhere */
            size_t from = below(n);
            piece = c->texts[which] + (from < c->n_bytes[which] ? from : 0);
            n_piece = below(40);
            if (from + n_piece > c->n_bytes[which]) n_piece = 0;
            break;
        }
        case 4: /* a piece comes between */
            break;
        default: /* a piece comes in the place of others */
            end = at + 1 + below(12);
        }
        if (end > n) end = n;
        if (n - (end - at) + n_piece > N_TEXT_MAX) continue;
        memmove(out + at + n_piece, out + end, n - end);
        memcpy(out + at, piece, n_piece);
        n = n - (end - at) + n_piece;
    }
    return n;
}

static void check_usage(const char *text, size_t n) {
    for (int stream = 0; stream < 2; stream++) {
        bt_usage whole = usage_of(stream, text, n, 0);
        bt_usage pieces_of_it = usage_of(stream, text, n, 1 + below(40));
        bt_usage bytes = usage_of(stream, text, n, 1);
        if (!usage_in_range(&whole, n / 8) || !usage_same(&whole, &pieces_of_it) || !usage_same(&whole, &bytes))
            fail_msg("%s: %.*s", stream ? "as a stream" : "as JSON", (int)n, text);
    }
}

static void usage(void **state) {
    (void)state;
    static char text[N_TEXT_MAX];
    corpus c = {0};
    add_folder(&c, "usage");
    add_folder(&c, "fuzz/router_usage");
    uint64_t live = bt_heap_live_blocks();
    random_state = seed;
    for (size_t i = 0; i < c.n; i++)
        check_usage(c.texts[i], c.n_bytes[i]);
    for (size_t round = 0; round < N_ROUNDS_USAGE; round++)
        check_usage(text, mutate(&c, text));
    assert_int_equal(bt_heap_live_blocks(), live);
    drop(&c);
}

/* Two servers at once; what is left out of them is said. */
static void check_metrics(const char *a, size_t n_a, const char *b, size_t n_b) {
    bt_metrics_model models[2] = {{.id = "a", .state = "ready", .child_text = a, .n_child_text = n_a},
                                  {.id = "b", .state = "ready", .child_text = b, .n_child_text = n_b}};
    bt_text out;
    bt_text_init(&out, 1u << 20);
    bt_metrics_text(&(bt_metrics_view){.models = models, .n_models = 2}, &out);
    assert_false(out.failed);
    expo *e = expo_read(bt_text_str(&out), out.n_bytes, false);
    if (e->wrong[0]) fail_msg("%s\n%.*s\n======\n%.*s", e->wrong, (int)n_a, a, (int)n_b, b);
    const double *left_out = expo_value(e, "burthen_metrics_left_out{model=\"a\"}");
    assert_true(left_out && *left_out >= 0 && *left_out <= (double)n_a + 1);
    assert_non_null(expo_value(e, "burthen_uptime_seconds"));
    expo_close(e);
    bt_text_done(&out);
}

static void metrics(void **state) {
    (void)state;
    static char a[N_TEXT_MAX];
    static char b[N_TEXT_MAX];
    corpus c = {0};
    add_folder(&c, "metrics");
    add_folder(&c, "fuzz/router_metrics");
    uint64_t live = bt_heap_live_blocks();
    random_state = seed;
    for (size_t i = 0; i < c.n; i++)
        check_metrics(c.texts[i], c.n_bytes[i], c.texts[0], c.n_bytes[0]);
    for (size_t round = 0; round < N_ROUNDS_METRICS; round++) {
        size_t n_a = mutate(&c, a);
        size_t n_b = mutate(&c, b);
        check_metrics(a, n_a, b, n_b);
    }
    assert_int_equal(bt_heap_live_blocks(), live);
    drop(&c);
}

int main(void) {
    const char *replay = getenv("BT_SEED");
    if (replay) seed = strtoull(replay, NULL, 10);
    (void)fprintf(stderr, "BT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(usage), cmocka_unit_test(metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
