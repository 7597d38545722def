/* SPDX-License-Identifier: MIT
 * options.c: the option table.
 *
 * Names and meanings are llama.cpp's where the meaning is the same (docs/interfaces.md). What llama.cpp's users type
 * and this version cannot do is in the table too, hidden, and answers with that, instead of being taken for a typing
 * error; a value that asks for what happens anyway (-ngl 0, --repack off) passes. Ranges are those of the types and of
 * llama.cpp; what contradicts a model is the plan's to refuse. */
#include "cli/options.h"
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"
#include "report/bench.h"

#include <string.h>

#define ALL_MODEL        (BT_CLI_PLAN | BT_CLI_RUN | BT_CLI_BENCH | BT_CLI_PERPLEXITY | BT_CLI_REPORT)
#define EVERY            (ALL_MODEL | BT_CLI_INSPECT | BT_CLI_DEVICES | BT_CLI_HELP | BT_CLI_VERSION)
#define LOADS            (BT_CLI_RUN | BT_CLI_BENCH | BT_CLI_PERPLEXITY)
#define GENERATES        (BT_CLI_RUN | BT_CLI_BENCH)
#define CTX_MAX          1073741824.0 /* 2^30: above every trained context, and far from overflow when rounded up */
#define THREAD_MAX       4096.0       /* as in machine.json */
#define ROPE_MAX         1000.0       /* far above what any model bears; a double of micros stays exact */
#define SLOT_MAX         64.0         /* a ring deeper than the reader's queue holds only waiting bytes */
#define IMAGE_TOKENS_MAX 1048576.0    /* 16 times the largest limit of a projector type (youtuvl, 62,500) */
/* llama.cpp's defaults for the samplers (common/common.h). */
#define TEMPERATURE 0.8
#define TOP_K       40
#define TOP_P       0.95
#define MIN_P       0.05
#define MICRO       1e6

static bt_status parse_budget(const char *value, void *target, bt_error *err) {
    bt_cli_options *options = target;
    if (strcmp(value, "auto") == 0) {
        options->wishes.budget_kind = BT_BUDGET_AUTO;
        return BT_OK;
    }
    BT_TRY(bt_size_parse(value, "--ram-budget", &options->wishes.budget_bytes, err));
    options->wishes.budget_kind = options->wishes.budget_bytes == 0 ? BT_BUDGET_OFF : BT_BUDGET_BYTES;
    return BT_OK;
}

static bt_status parse_type(const char *value, const char *flag, uint32_t *ret, bt_error *err) {
    if (strcmp(value, "auto") == 0) {
        *ret = BT_TYPE_AUTO;
        return BT_OK;
    }
    if (bt_type_by_name(value, ret)) return BT_OK;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "%s wants auto, or a tensor type such as f16, q8_0 or q4_0, not \"%s\"", flag, value);
}

static bt_status parse_type_k(const char *value, void *target, bt_error *err) {
    return parse_type(value, "--cache-type-k", &((bt_cli_options *)target)->wishes.type_k, err);
}

static bt_status parse_type_v(const char *value, void *target, bt_error *err) {
    return parse_type(value, "--cache-type-v", &((bt_cli_options *)target)->wishes.type_v, err);
}

static bt_status parse_rope_scaling(const char *value, void *target, bt_error *err) {
    static const char *const names[] = {"none", "linear", "yarn"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        ((bt_cli_options *)target)->wishes.rope_scaling = (bt_rope_scaling)(BT_ROPE_NONE + i);
        return BT_OK;
    }
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "--rope-scaling wants none, linear or yarn, not \"%s\"", value);
}

/* ---- what this version cannot do -------------------------------------------------------------------------------- */

/* instead: what this version can do about it; "" is nothing. */
static bt_status later_but(const char *what, const char *instead, bt_error *err) {
    return bt_fail(err, BT_E_UNSUPPORTED, "unsupported", BT_MEASURE_NONE, 0, 0, "%s not in this version%s%s", what,
                   instead[0] ? "; " : "", instead);
}

static bt_status later(const char *what, bt_error *err) {
    return later_but(what, "", err);
}

static bt_status parse_device(const char *value, void *target, bt_error *err) {
    (void)target;
    bool nothing = strcmp(value, "0") == 0 || strcmp(value, "auto") == 0 || strcmp(value, "none") == 0;
    return nothing ? BT_OK : later("graphics cards and other devices are", err);
}

static bt_status parse_speculate(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    static const char lookup[] = "ngram";
    static const char model[] = "draft"; /* as long */
    if (strcmp(value, "off") == 0 || strcmp(value, "auto") == 0) {
        wishes->speculate = strcmp(value, "off") == 0 ? BT_SPECULATE_OFF : BT_SPECULATE_AUTO;
        wishes->n_draft = 0;
        return BT_OK;
    }
    bool by_model = strncmp(value, model, sizeof model - 1) == 0;
    bool good = by_model || strncmp(value, lookup, sizeof lookup - 1) == 0;
    const char *rest = good ? value + sizeof lookup - 1 : "";
    bool counted = good && rest[0] == ':';
    good = good && (rest[0] == '\0' || (counted && rest[1] >= '1' && rest[1] <= '6' && rest[2] == '\0'));
    if (!good)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--speculate wants off, auto, ngram, draft, ngram:K or draft:K with K from 1 to 6, not \"%s\"",
                       value);
    wishes->speculate = by_model ? BT_SPECULATE_DRAFT : BT_SPECULATE_NGRAM;
    wishes->n_draft = counted ? (uint32_t)(rest[1] - '0') : 0;
    return BT_OK;
}

/* Those who only feed tokens have nothing to guess. */
static bt_status parse_draft(const char *value, void *target, bt_error *err) {
    (void)target;
    return strcmp(value, "off") == 0 ? BT_OK : later_but("draft models here are", "run and plan take one", err);
}

static bt_status parse_projector(const char *value, void *target, bt_error *err) {
    (void)value;
    (void)target;
    return later_but("pictures and sound are", "plan --mmproj prices a projector", err);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define AT(member)   .offset = offsetof(bt_cli_options, member), .set_offset = SIZE_MAX
#define WISH(member) AT(wishes.member)

const bt_option bt_cli_option_table[] = {
    {.name = "ram-budget",
     .kind = BT_OPTION_CUSTOM,
     WISH(budget_bytes),
     .parse = parse_budget,
     .arg = "SIZE",
     .help = "peak memory of the process that is never passed: 512M, 1.5G; auto takes what is available less a "
             "reserve, 0 sets no budget",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "force",
     .alias = "ram-budget-force",
     .kind = BT_OPTION_FLAG,
     WISH(force),
     .help = "run a refused plan after printing what it costs",
     .commands = ALL_MODEL},
    {.name = "ctx-size",
     .shorts = "c",
     .kind = BT_OPTION_U32,
     WISH(n_ctx),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "context in tokens; honoured or refused",
     .shown_default = "the trained length, at most 4096",
     .commands = ALL_MODEL & ~BT_CLI_BENCH},
    {.name = "ctx-size",
     .shorts = "c",
     .kind = BT_OPTION_U32,
     WISH(n_ctx),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "context in tokens; honoured or refused",
     .shown_default = "what the prompt and the tokens after it need",
     .commands = BT_CLI_BENCH},
    {.name = "allow-ctx-reduction",
     .kind = BT_OPTION_FLAG,
     WISH(allow_ctx_reduction),
     .help = "let --ctx-size shrink to fit the budget",
     .commands = ALL_MODEL},
    {.name = "parallel",
     .shorts = "np",
     .kind = BT_OPTION_U32,
     WISH(n_parallel),
     .min = 1,
     .max = 256,
     .arg = "N",
     .help = "sequences",
     .shown_default = "1",
     .commands = ALL_MODEL}, /* 256: LLAMA_MAX_SEQ */
    {.name = "batch-size",
     .shorts = "b",
     .kind = BT_OPTION_U32,
     WISH(n_batch),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "tokens handed over at once",
     .shown_default = "2048",
     .commands = ALL_MODEL},
    {.name = "ubatch-size",
     .shorts = "ub",
     .kind = BT_OPTION_U32,
     .offset = offsetof(bt_cli_options, wishes.n_ubatch),
     .set_offset = offsetof(bt_cli_options, n_ubatch_given),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "tokens computed at once; honoured or refused",
     .shown_default = "512, less when the budget needs it",
     .commands = ALL_MODEL},
    {.name = "cache-type-k",
     .shorts = "ctk",
     .kind = BT_OPTION_CUSTOM,
     WISH(type_k),
     .parse = parse_type_k,
     .arg = "TYPE",
     .help = "type of the KV cache's keys; auto takes q8_0 when the budget needs it",
     .shown_default = "f16",
     .commands = ALL_MODEL},
    {.name = "cache-type-v",
     .shorts = "ctv",
     .kind = BT_OPTION_CUSTOM,
     WISH(type_v),
     .parse = parse_type_v,
     .arg = "TYPE",
     .help = "type of the KV cache's values; auto takes q8_0 when the budget needs it",
     .shown_default = "f16",
     .commands = ALL_MODEL},
    {.name = "flash-attn",
     .shorts = "fa",
     .kind = BT_OPTION_CHOICE,
     WISH(flash_attn),
     .choices = "auto|on|off",
     .help = "flash attention",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "threads",
     .shorts = "t",
     .kind = BT_OPTION_U32,
     WISH(n_threads),
     .min = 1,
     .max = THREAD_MAX,
     .arg = "N",
     .help = "threads that compute",
     .shown_default = "the cores allowed",
     .commands = ALL_MODEL},
    {.name = "buffers",
     .kind = BT_OPTION_U32,
     WISH(n_buffers),
     .min = 1,
     .max = SLOT_MAX,
     .arg = "N",
     .help =
         "how many of the largest unit the ring holds that weights stream through; with 1 that unit is not read ahead",
     .shown_default = "2",
     .commands = ALL_MODEL},
    {.name = "stream-head",
     .kind = BT_OPTION_CHOICE,
     WISH(stream_head),
     .choices = "auto|on|off",
     .help = "stream the output projection, or keep it in memory",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "elastic",
     .kind = BT_OPTION_CHOICE,
     WISH(elastic),
     .choices = "auto|on|off",
     .help = "let weights use the memory of the context until the context needs it",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "speculate",
     .kind = BT_OPTION_CUSTOM,
     WISH(speculate),
     .parse = parse_speculate,
     .arg = "off|auto|GUESS[:K]",
     .help = "guess up to K of 6 tokens and verify them in one pass, with the same text; GUESS is ngram, from what the "
             "context repeats, or draft, by the model of --draft; auto does what it can where weights stream",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "repack",
     .kind = BT_OPTION_CHOICE,
     WISH(repack),
     .choices = "auto|on|off",
     .help =
         "hold weights that stay in memory in a faster layout: instead of the plain one where that gains throughout, "
         "beside it where the budget has room; auto does so when nothing streams",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "mlock",
     .kind = BT_OPTION_FLAG,
     WISH(mlock),
     .help = "lock what is held in memory, as far as RLIMIT_MEMLOCK allows it; says how much it is",
     .commands = ALL_MODEL},
    {.name = "rope-scaling",
     .kind = BT_OPTION_CUSTOM,
     WISH(rope_scaling),
     .parse = parse_rope_scaling,
     .arg = "TYPE",
     .help = "how positions are stretched over a context above the trained one: none, linear or yarn",
     .shown_default = "what the model says",
     .commands = ALL_MODEL},
    {.name = "rope-scale",
     .kind = BT_OPTION_REAL,
     AT(rope_scale),
     .min = 0.001,
     .max = ROPE_MAX,
     .arg = "X",
     .help = "by how much: the context may be X times the trained one",
     .shown_default = "what the model says",
     .commands = ALL_MODEL},
    {.name = "yarn-orig-ctx",
     .kind = BT_OPTION_U32,
     WISH(yarn_orig_ctx),
     .max = CTX_MAX,
     .arg = "N",
     .help = "context that YaRN starts from",
     .shown_default = "the trained length",
     .commands = ALL_MODEL},
    {.name = "policy",
     .kind = BT_OPTION_CHOICE,
     WISH(policy),
     .choices = "ctx|speed",
     .help = "what memory goes to first",
     .shown_default = "ctx",
     .commands = ALL_MODEL},
    {.name = "io",
     .kind = BT_OPTION_CHOICE,
     WISH(io),
     .choices = "auto|direct|buffered",
     .help = "read past the page cache, or through it",
     .shown_default = "auto",
     .commands = ALL_MODEL},
    {.name = "machine",
     .kind = BT_OPTION_TEXT,
     AT(machine_file),
     .arg = "FILE",
     .help = "plan for the machine of this machine.json (see devices --json)",
     .shown_default = "this machine",
     .commands = ALL_MODEL | BT_CLI_DEVICES},
    {.name = "disk",
     .kind = BT_OPTION_TEXT,
     AT(disk_path),
     .arg = "PATH",
     .help = "measure the disk of this file or folder, and remember it",
     .commands = BT_CLI_DEVICES},
    {.name = "plan",
     .kind = BT_OPTION_TEXT,
     AT(plan_file),
     .arg = "FILE",
     .help = "run this plan.json; refused when model, machine or version are not those it was made for",
     .shown_default = "a new plan",
     .commands = LOADS},
    {.name = "exact",
     .kind = BT_OPTION_FLAG,
     AT(exact),
     .help = "price by a dry run instead of by formula",
     .commands = BT_CLI_PLAN | BT_CLI_REPORT},
    {.name = "draft",
     .shorts = "md",
     .kind = BT_OPTION_TEXT,
     AT(draft_file),
     .arg = "FILE",
     .help = "a small model of the same tokens that guesses what the model will say",
     .commands = BT_CLI_PLAN | BT_CLI_RUN},
    {.name = "mmproj",
     .shorts = "mm",
     .kind = BT_OPTION_TEXT,
     AT(mmproj_file),
     .arg = "FILE",
     .help = "price a multimodal projector beside the model, at the largest picture",
     .commands = BT_CLI_PLAN},
    {.name = "image-max-tokens",
     .kind = BT_OPTION_U32,
     AT(n_image_tokens),
     .min = 1,
     .max = IMAGE_TOKENS_MAX,
     .arg = "N",
     .help = "tokens that a picture takes at most, where its size may vary",
     .shown_default = "the projector type's own limit",
     .commands = BT_CLI_PLAN},

    {.name = "prompt",
     .shorts = "p",
     .kind = BT_OPTION_TEXT,
     AT(prompt),
     .arg = "TEXT",
     .help = "the prompt",
     .commands = BT_CLI_RUN,
     .no_env = true},
    {.name = "file",
     .shorts = "f",
     .kind = BT_OPTION_TEXT,
     AT(prompt_file),
     .arg = "FILE",
     .help = "read the text from a file; - is standard input",
     .commands = BT_CLI_RUN | BT_CLI_PERPLEXITY,
     .no_env = true},
    {.name = "n-predict",
     .alias = "predict",
     .shorts = "n",
     .kind = BT_OPTION_I32,
     AT(n_predict),
     .min = -1,
     .max = INT32_MAX,
     .arg = "N",
     .help = "tokens to generate; -1 goes on to the end of the context",
     .shown_default = "-1",
     .commands = BT_CLI_RUN},
    {.name = "temp",
     .alias = "temperature",
     .kind = BT_OPTION_REAL,
     AT(temperature),
     .min = 0,
     .max = 100,
     .arg = "X",
     .help = "temperature; 0 is greedy",
     .shown_default = "0.8",
     .commands = BT_CLI_RUN},
    {.name = "top-k",
     .kind = BT_OPTION_I32,
     AT(top_k),
     .min = 0,
     .max = INT32_MAX,
     .arg = "N",
     .help = "sample among the N likeliest tokens; 0: all",
     .shown_default = "40",
     .commands = BT_CLI_RUN},
    {.name = "top-p",
     .kind = BT_OPTION_REAL,
     AT(top_p),
     .min = 0,
     .max = 1,
     .arg = "X",
     .help = "sample among the likeliest tokens that together reach X",
     .shown_default = "0.95",
     .commands = BT_CLI_RUN},
    {.name = "min-p",
     .kind = BT_OPTION_REAL,
     AT(min_p),
     .min = 0,
     .max = 1,
     .arg = "X",
     .help = "drop tokens less likely than X times the likeliest",
     .shown_default = "0.05",
     .commands = BT_CLI_RUN},
    {.name = "repeat-penalty",
     .kind = BT_OPTION_REAL,
     AT(repeat_penalty),
     .min = 0,
     .max = 100,
     .arg = "X",
     .help = "penalty of tokens seen before; 1: none",
     .shown_default = "1",
     .commands = BT_CLI_RUN},
    {.name = "seed",
     .shorts = "s",
     .kind = BT_OPTION_U32,
     .offset = offsetof(bt_cli_options, seed),
     .set_offset = offsetof(bt_cli_options, seed_given),
     .arg = "N",
     .help = "seed of the sampler",
     .shown_default = "a new one each time",
     .commands = BT_CLI_RUN},
    {.name = "greedy",
     .kind = BT_OPTION_FLAG,
     AT(greedy),
     .help = "always take the likeliest token; same as --temp 0",
     .commands = BT_CLI_RUN},
    {.name = "chunks",
     .kind = BT_OPTION_I32,
     AT(n_chunks),
     .min = -1,
     .max = 1073741824.0,
     .arg = "N",
     .help = "score at most N chunks of the text; -1: all",
     .shown_default = "-1",
     .commands = BT_CLI_PERPLEXITY},
    {.name = "ignore-eos",
     .kind = BT_OPTION_FLAG,
     AT(ignore_eos),
     .help = "go on when the model would end",
     .commands = BT_CLI_RUN},
    {.name = "grammar",
     .kind = BT_OPTION_TEXT,
     AT(grammar_file),
     .arg = "FILE",
     .help = "generate only what this GBNF grammar allows",
     .commands = BT_CLI_RUN},

    {.name = "n-prompt",
     .shorts = "p",
     .kind = BT_OPTION_U32,
     .offset = offsetof(bt_cli_options, n_prompt),
     .set_offset = offsetof(bt_cli_options, n_prompt_given),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "tokens of the prompt, pseudo-random",
     .shown_default = "512, less when the context is smaller",
     .commands = BT_CLI_BENCH},
    {.name = "n-gen",
     .shorts = "n",
     .kind = BT_OPTION_U32,
     AT(n_gen),
     .min = 1,
     .max = CTX_MAX,
     .arg = "N",
     .help = "tokens after it, pseudo-random too, each in a pass of its own",
     .shown_default = "64",
     .commands = BT_CLI_BENCH},
    {.name = "repetitions",
     .shorts = "r",
     .kind = BT_OPTION_U32,
     AT(n_repetitions),
     .min = 1,
     .max = BT_BENCH_REPETITION_MAX,
     .arg = "N",
     .help = "how often; medians are shown, with the least and the most",
     .shown_default = "3",
     .commands = BT_CLI_BENCH},
    {.name = "vs-budget",
     .kind = BT_OPTION_TEXT,
     AT(vs_budget),
     .arg = "LIST",
     .help = "measure at each of these budgets: sizes, or shares of the way from the least that runs to all in memory; "
             "25%,50%,300M",
     .commands = BT_CLI_BENCH,
     .no_env = true},
    {.name = "plot",
     .kind = BT_OPTION_TEXT,
     AT(plot_file),
     .arg = "FILE",
     .help = "draw speed over --vs-budget as SVG",
     .commands = BT_CLI_BENCH,
     .no_env = true},
    {.name = "bench-step",
     .kind = BT_OPTION_FLAG,
     AT(bench_step),
     .help = "one budget of --vs-budget, which is not looked at",
     .commands = BT_CLI_BENCH,
     .hidden = true,
     .no_env = true},

    {.name = "chat",
     .alias = "conversation",
     .shorts = "cnv",
     .kind = BT_OPTION_FLAG,
     WISH(chat),
     .help = "talk with the model through its chat template; so does a terminal without a prompt",
     .commands = BT_CLI_RUN | BT_CLI_PLAN,
     .no_env = true},
    {.name = "system-prompt",
     .shorts = "sys",
     .kind = BT_OPTION_TEXT,
     AT(system_prompt),
     .arg = "TEXT",
     .help = "what the conversation stands under",
     .commands = BT_CLI_RUN,
     .no_env = true},
    {.name = "chat-template",
     .kind = BT_OPTION_TEXT,
     WISH(chat_template),
     .arg = "NAME",
     .help = "chatml, a variant in the model's file, or Jinja text, instead of the model's own",
     .commands = BT_CLI_RUN | BT_CLI_PLAN},
    {.name = "chat-template-file",
     .kind = BT_OPTION_TEXT,
     AT(chat_template_file),
     .arg = "FILE",
     .help = "the same, from a file",
     .commands = BT_CLI_RUN | BT_CLI_PLAN},
    {.name = "session",
     .kind = BT_OPTION_TEXT,
     AT(session_file),
     .arg = "FILE",
     .help = "go on where this file was left, if it is there, and leave it at the end",
     .commands = BT_CLI_RUN,
     .no_env = true},

    {.name = "json",
     .kind = BT_OPTION_FLAG,
     AT(json),
     .help = "print JSON; run and perplexity: a refusal as JSON",
     .commands = ALL_MODEL | BT_CLI_INSPECT | BT_CLI_DEVICES,
     .no_env = true},
    {.name = "stats",
     .kind = BT_OPTION_TEXT,
     AT(stats_file),
     .arg = "FILE",
     .help = "write plan, text and what was measured as JSON",
     .commands = GENERATES},
    {.name = "quiet",
     .shorts = "q",
     .kind = BT_OPTION_FLAG,
     AT(quiet),
     .help = "say nothing but the answer",
     .commands = EVERY},
    {.name = "verbose",
     .shorts = "v",
     .kind = BT_OPTION_FLAG,
     AT(verbose),
     .help = "say what is being done",
     .commands = EVERY},
    {.name = "log-file",
     .kind = BT_OPTION_TEXT,
     AT(log_file),
     .arg = "FILE",
     .help = "append the log to a file",
     .shown_default = "standard error",
     .commands = EVERY},
    {.name = "log-level",
     .kind = BT_OPTION_CHOICE,
     .offset = offsetof(bt_cli_options, log_level),
     .set_offset = offsetof(bt_cli_options, log_level_given),
     .choices = "error|warn|info|debug",
     .help = "what is logged",
     .shown_default = "warn",
     .commands = EVERY},
    {.name = "help",
     .shorts = "h",
     .kind = BT_OPTION_FLAG,
     AT(help),
     .help = "print this",
     .commands = EVERY,
     .no_env = true},

    /* for tests */
    {.name = "root",
     .kind = BT_OPTION_TEXT,
     AT(root),
     .arg = "DIR",
     .help = "read DIR/proc and DIR/sys",
     .commands = ALL_MODEL | BT_CLI_DEVICES,
     .hidden = true,
     .no_env = true},
    {.name = "reader",
     .kind = BT_OPTION_CHOICE,
     AT(reader),
     .choices = "auto|uring|pread",
     .help = "how weights are read",
     .commands = LOADS,
     .hidden = true},

    {.name = "guess-always",
     .kind = BT_OPTION_FLAG,
     AT(guess_always),
     .help = "guess whatever it costs",
     .commands = BT_CLI_RUN,
     .hidden = true,
     .no_env = true},

    /* what llama.cpp's users type */
    {.name = "model-draft",
     .kind = BT_OPTION_TEXT,
     AT(draft_file),
     .commands = BT_CLI_PLAN | BT_CLI_RUN,
     .hidden = true},
    {.name = "gpu-layers",
     .alias = "n-gpu-layers",
     .shorts = "ngl",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_device,
     .commands = ALL_MODEL,
     .hidden = true},
    {.name = "n-cpu-moe",
     .shorts = "ncmoe",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_device,
     .commands = ALL_MODEL,
     .hidden = true},
    {.name = "device",
     .shorts = "dev",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_device,
     .commands = ALL_MODEL,
     .hidden = true},
    {.name = "rpc", .kind = BT_OPTION_CUSTOM, AT(help), .parse = parse_device, .commands = ALL_MODEL, .hidden = true},
    {.name = "tensor-split",
     .shorts = "ts",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_device,
     .commands = ALL_MODEL,
     .hidden = true},
    {.name = "main-gpu",
     .shorts = "mg",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_device,
     .commands = ALL_MODEL,
     .hidden = true},
    {.name = "draft",
     .alias = "model-draft",
     .shorts = "md",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_draft,
     .commands = BT_CLI_BENCH | BT_CLI_PERPLEXITY,
     .hidden = true},
    {.name = "mmproj",
     .shorts = "mm",
     .kind = BT_OPTION_CUSTOM,
     AT(help),
     .parse = parse_projector,
     .commands = LOADS,
     .hidden = true},
};
const size_t bt_cli_option_count = sizeof bt_cli_option_table / sizeof *bt_cli_option_table;

void bt_cli_options_default(bt_cli_options *ret) {
    *ret = (bt_cli_options){
        .wishes = {.type_k = 1, .type_v = 1}, /* GGML_TYPE_F16 */
        .root = "",
        .n_predict = -1,
        .n_chunks = -1,
        .n_prompt = 512, /* as llama-bench */
        .n_gen = 64,
        .n_repetitions = 3,
        .temperature = TEMPERATURE,
        .top_k = TOP_K,
        .top_p = TOP_P,
        .min_p = MIN_P,
        .repeat_penalty = 1,
        .log_level = 1, /* BT_LOG_WARN */
    };
}

bt_status bt_cli_options_parse(bt_cli_command command, int argc, char *const *argv,
                               const char *(*environ_get)(const char *), bt_cli_options *ret, bt_option_result *args,
                               bt_error *err) {
    bt_cli_options_default(ret);
    BT_TRY(bt_options_parse(bt_cli_option_table, bt_cli_option_count, (uint32_t)command, argc, argv, environ_get, ret,
                            args, err));
    ret->argc = argc;
    ret->argv = argv;
    if (ret->greedy) ret->temperature = 0;
    ret->wishes.rope_scale_micro = (uint64_t)(ret->rope_scale * MICRO + 0.5);
    ret->wishes.session = ret->wishes.chat || ret->session_file != NULL;
    bool by_draft = ret->wishes.speculate == BT_SPECULATE_DRAFT && (command & (BT_CLI_PLAN | BT_CLI_RUN));
    if (by_draft && !ret->draft_file)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--speculate draft needs a draft model: --draft FILE");
    return BT_OK;
}
