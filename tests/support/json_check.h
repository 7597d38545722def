/* SPDX-License-Identifier: MIT
 * json_check.h: what must hold of a JSON text that is refused, and what such texts are made of. For fuzz targets. */
#pragma once

#include "burthen.h"
#include "fuzz.h"
#include "plain_check.h"
#include "report/report.h"

#include <string.h>

static inline void json_start(void) {
    bt_report_init(NULL);
}

static inline void json_check_refusal(bt_status status, const bt_error *err) {
    FUZZ_CHECK(status == BT_E_FORMAT || status == BT_E_LIMIT);
    FUZZ_CHECK(err->status == status && strcmp(err->code, "json") == 0);
    plain_check(err->text);
}

/* What any JSON text is made of; NULL from the JSON_MARKS-th on. */
#define JSON_MARKS 8u
static inline const char *json_mark(size_t i) {
    static const char *const marks[JSON_MARKS] = {"{", "}", "[", "]", "\"", "\\", ",", ":"};
    return i < JSON_MARKS ? marks[i] : NULL;
}

static inline const char *json_word(size_t i) {
    static const char *const words[] = {"null",
                                        "true",
                                        "-1",
                                        "0",
                                        "1e999",
                                        "1.5",
                                        "9223372036854775807",
                                        "[]",
                                        "{}",
                                        "\"\"",
                                        "\"x\"",
                                        "\\u0000",
                                        "\xff",
                                        ",",
                                        ":",
                                        "[[[[[[[[",
                                        "}",
                                        "]",
                                        "\"",
                                        "99999999999999999999",
                                        "4294967296",
                                        "\"host\"",
                                        "\"reported\"",
                                        "\\ud800",
                                        "\"schema\": 1",
                                        "-0.0",
                                        "1e-400",
                                        "\"pools\"",
                                        "\"name\"",
                                        "\"free_bytes\"",
                                        "\"total_bytes\"",
                                        "\"disk\"",
                                        "\"cgroup\"",
                                        "\"limit_bytes\"",
                                        "\"plan\"",
                                        "\"ledger\"",
                                        "\"verdict\"",
                                        "\"refusal\"",
                                        "\"units\"",
                                        "\"place\"",
                                        "\"wishes\"",
                                        "\"offload\"",
                                        "\"fingerprint\"",
                                        "\"rows\"",
                                        "\"repetitions\"",
                                        "\"measured\""};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}
