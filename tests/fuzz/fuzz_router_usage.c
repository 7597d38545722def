/* SPDX-License-Identifier: MIT
 * fuzz_router_usage.c: answers of servers, as JSON and as an event stream: however they are cut into pieces, the same
 * counts come out, and they are counts. */
#include "fuzz.h"

#include "json_check.h"
#include "usage_check.h"

static bool one(char *text, size_t n) {
    bool any = false;
    for (int stream = 0; stream < 2; stream++) {
        bt_usage whole = usage_of(stream, text, n, 0);
        bt_usage bytes = usage_of(stream, text, n, 1);
        bt_usage pieces = usage_of(stream, text, n, 2 + n % 37);
        FUZZ_CHECK(usage_in_range(&whole, n / 8));
        FUZZ_CHECK(usage_same(&whole, &bytes) && usage_same(&whole, &pieces));
        any = any || whole.prompt_tokens.known || whole.output_tokens.known;
    }
    return any;
}

static const char *word(size_t i) {
    static const char *const words[] = {"\n",
                                        "\r\n",
                                        "\r",
                                        "\n\n",
                                        "data: ",
                                        "data:",
                                        "event: ",
                                        ": ",
                                        "\"usage\":{",
                                        "\"timings\":{",
                                        "\"prompt_tokens\":",
                                        "\"completion_tokens\":",
                                        "\"input_tokens\":",
                                        "\"output_tokens\":",
                                        "\"cached_tokens\":",
                                        "\"prompt_tokens_details\":{",
                                        "\"cache_n\":",
                                        "\"prompt_n\":",
                                        "\"predicted_n\":",
                                        "\"predicted_per_second\":",
                                        "\"draft_n_accepted\":",
                                        "null",
                                        "-1",
                                        "9",
                                        "2147483647",
                                        "2147483648",
                                        "1e5",
                                        ".",
                                        "[DONE]",
                                        "\xff",
                                        "\\u0075"};
    if (i < JSON_MARKS) return json_mark(i);
    i -= JSON_MARKS;
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"usage", NULL};

const fuzz_target fuzz_here = {
    .name = "router_usage", .one = one, .bare = true, .word = word, .more = more, .n_rounds = 8000};
