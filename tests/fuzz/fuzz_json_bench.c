/* SPDX-License-Identifier: MIT
 * fuzz_json_bench.c: a row of `burthen bench` as another process measured it: read, or refused; and whatever numbers
 * stand in it, it can be shown. */
#include "fuzz.h"

#include "json_check.h"
#include "report/bench.h"

static bool one(char *text, size_t n) {
    static bt_bench bench;
    bt_error err = {0};
    bench = (bt_bench){.n_prompt = 16, .n_gen = 4, .n_repetitions = 1, .n_rows = 1};
    bt_status status = bt_bench_row_from_json(text, n, &bench.rows[0], &err);
    if (status != BT_OK) {
        json_check_refusal(status, &err);
        return false;
    }
    FUZZ_CHECK(bench.rows[0].n_repetitions <= BT_BENCH_REPETITION_MAX);
    bt_text out;
    bt_text_init(&out, 1u << 20);
    bt_bench_text(&bench, "m", &out);
    bt_bench_svg(&bench, "m", &out);
    FUZZ_CHECK(!out.failed && !strstr(bt_text_str(&out), "nan") && !strstr(bt_text_str(&out), "inf"));
    bt_text_done(&out);
    return true;
}

const fuzz_target fuzz_here = {
    .name = "json_bench", .one = one, .bare = true, .start = json_start, .word = json_word, .n_rounds = 1000};
