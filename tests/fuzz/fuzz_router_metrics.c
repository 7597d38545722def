/* SPDX-License-Identifier: MIT
 * fuzz_router_metrics.c: what two servers export, a NUL byte between them: the whole text of /metrics holds to the
 * format (exposition_check.h), and what is left out is said. */
#include "fuzz.h"

#include "exposition_check.h"
#include "router/metrics.h"

#include <stdlib.h>

static bool one(char *data, size_t n) {
    const char *between = n > 0 ? memchr(data, '\0', n) : NULL;
    size_t n_first = between ? (size_t)(between - data) : n;
    size_t n_second = between ? n - n_first - 1 : 0;
    char *first = malloc(n_first ? n_first : 1); /* each of its own size, so that a read past it is seen */
    char *second = malloc(n_second ? n_second : 1);
    FUZZ_CHECK(first && second);
    memcpy(first, data, n_first);
    if (between) memcpy(second, between + 1, n_second);
    bt_metrics_model models[2] = {{.id = "a", .state = "ready", .child_text = first, .n_child_text = n_first},
                                  {.id = "b", .state = "ready", .child_text = second, .n_child_text = n_second}};
    bt_text out;
    bt_text_init(&out, 4u << 20);
    bt_metrics_text(&(bt_metrics_view){.models = models, .n_models = 2}, &out);
    expo *e = expo_read(bt_text_str(&out), out.n_bytes, false);
    const double *left_out = expo_value(e, "burthen_metrics_left_out{model=\"b\"}");
    if (e->wrong[0]) (void)fprintf(stderr, "%s\n", e->wrong);
    FUZZ_CHECK(!out.failed && !e->wrong[0] && left_out && *left_out >= 0 && *left_out <= (double)n_second + 1);
    FUZZ_CHECK(expo_value(e, "burthen_uptime_seconds") != NULL);
    expo_close(e);
    bt_text_done(&out);
    free(first);
    free(second);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"# TYPE ",
                                        "# HELP ",
                                        " counter\n",
                                        " gauge\n",
                                        " histogram\n",
                                        " summary\n",
                                        " untyped\n",
                                        "_bucket",
                                        "_sum",
                                        "_count",
                                        "le=\"1\"",
                                        "le=\"+Inf\"",
                                        "{",
                                        "}",
                                        "model=\"x\"",
                                        "quantile=\"0.5\"",
                                        "NaN",
                                        "+Inf",
                                        "-Inf",
                                        "burthen_",
                                        "a 1\n",
                                        "\\n",
                                        "\\\"",
                                        "\"",
                                        ",",
                                        " ",
                                        "\t",
                                        "\n",
                                        "1e5",
                                        " 1700000000000",
                                        "\xc3"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"metrics", NULL};

const fuzz_target fuzz_here = {
    .name = "router_metrics", .one = one, .bare = true, .word = word, .more = more, .n_rounds = 600, .takes_all = true};
