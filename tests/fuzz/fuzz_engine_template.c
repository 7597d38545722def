/* SPDX-License-Identifier: MIT
 * fuzz_engine_template.c: a chat template as a stranger's model file has it, through the worker (engine/template.h): a
 * conversation's text, or a refusal in words. Whatever it does, the worker keeps to its memory and its time, and
 * answers in the way of its wire: BT_E_IO it is never. */
#include "fuzz.h"

#include "engine/template.h"
#include "plain_check.h"

#include <stdlib.h>

#define LIMIT_BYTES (UINT64_C(32) << 20)

static bool one(char *text, size_t n) {
    static const bt_message messages[] = {
        {"system", "Be brief.", 9}, {"user", "Say <|im_end|>", 14}, {"assistant", "No.", 3}, {"user", "Why?", 4}};
    const char *worker = getenv("BT_TEMPLATE_WORKER");
    bt_template t = {.source = text,
                     .bos = "<s>",
                     .eos = "</s>",
                     .add_bos = true,
                     .limit_bytes = LIMIT_BYTES,
                     .worker = worker ? worker : BT_WORKER_BUILT};
    bt_rendered rendered = {0};
    bt_error err = {0};
    (void)n;
    bt_status status = bt_template_render(&t, messages, 4, &rendered, &err);
    if (status != BT_OK) {
        FUZZ_CHECK(status == BT_E_FORMAT || status == BT_E_NOMEM || status == BT_E_LIMIT);
        plain_check(err.text);
        return false;
    }
    FUZZ_CHECK(rendered.peak_bytes <= LIMIT_BYTES && rendered.n_stops <= BT_TEMPLATE_STOPS_MAX);
    bt_rendered_done(&rendered);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"{{ ",
                                        " }}",
                                        "{% ",
                                        " %}",
                                        "{%- ",
                                        " -%}",
                                        "{# ",
                                        " #}",
                                        "for m in messages",
                                        "endfor",
                                        "if ",
                                        "else",
                                        "endif",
                                        "set x = ",
                                        "macro f(a)",
                                        "endmacro",
                                        "messages",
                                        "message['content']",
                                        "m.role",
                                        "raise_exception('no')",
                                        "loop.index0",
                                        "namespace(a=1)",
                                        "range(1000000000)",
                                        "|tojson",
                                        "|length",
                                        "|trim",
                                        "|join(',')",
                                        "[::-1]",
                                        "strftime_now('%Y')",
                                        "~",
                                        "*",
                                        "'a' * 1000000000",
                                        "bos_token",
                                        "add_generation_prompt",
                                        "((((((((",
                                        "{{{{",
                                        "<|im_start|>",
                                        "\\n",
                                        "not ",
                                        " is defined",
                                        "tools",
                                        "true",
                                        "none",
                                        "-1",
                                        "0.5",
                                        "**",
                                        "//0",
                                        "%0"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "engine_template", .one = one, .word = word, .n_rounds = 150};
