/* SPDX-License-Identifier: MIT
 *
 * drop_in_bench.c: llama-bench under a RAM budget.
 *
 * It has a parser of its own (tools/llama-bench/llama-bench.cpp), which differs from its sisters' in three things. A
 * value is a list, "512,1024", of numbers also "first-last", "first-last+step" and "first-last*factor". An option that
 * is given again adds to its list, but for -mg. And every combination is a test, with a context of its own, one after
 * another: the model is loaded again where what it is loaded with differs.
 *
 *   a test     its context
 *   -p         prompt + depth
 *   -n         answer + depth
 *   -pg        prompt + answer + depth
 *
 * So one plan is made for the largest context, batch, micro-batch and number of threads, and what is smaller is held by
 * it too. What has no largest, types of the cache, flash attention, layouts, must be the same in all tests. What would
 * put memory elsewhere is refused as of other programs (drop_in_rules.c); since options add up, nothing that is wrong
 * in the line can be set right behind it.
 *
 * At a depth it keeps the state of the context, to restore it for each repetition; at another depth the next one is
 * made before the last is dropped. Neither the environment nor a file is read. */
#include "guard/drop_in_bench.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "model/types.h"
#include "plan/costs.h"
#include "plan/price.h"

#include <stdio.h>
#include <string.h>

/* cmd_params_defaults of llama-bench.cpp */
#define PROMPT_DEFAULT 512
#define GEN_DEFAULT    128
#define BATCH_DEFAULT  2048
#define UBATCH_DEFAULT 512

#define F16           1u
#define LAYERS_ENOUGH 99 /* what people write for all of them (drop_in_rules.c) */
#define CELL_BYTES                                                                                                     \
    UINT64_C(16) /* of a cell in a state beside keys and values: its position and sequences, of 4 bytes */
#define EVERY_TENSOR ".*=" BT_DROP_IN_BUFFER

/* ---- values ---- */

static void add(bt_bench_list *list, int64_t value) {
    if (list->n == 0) *list = (bt_bench_list){.least = value, .most = value, .least_from_zero = INT64_MAX};
    list->n++;
    if (value > 0) list->n_positive++;
    if (value < list->least) list->least = value;
    if (value > list->most) list->most = value;
    if (value >= 0 && value < list->least_from_zero) list->least_from_zero = value;
}

/* Digits up to what std::stoi takes; the text moves behind them. */
static bool take_number(const char **text, int64_t *ret) {
    int64_t number = 0;
    if (!bt_is_digit(**text)) return false;
    for (; bt_is_digit(**text); (*text)++) {
        number = number * 10 + (**text - '0');
        if (number > INT32_MAX) return false;
    }
    *ret = number;
    return true;
}

/* first-last+step: of what a list is asked for, its ends, the first that is not negative, and whether several are
 * positive, the numbers between say nothing more. The program ends at a step that does not rise. */
static bool add_sum(bt_bench_list *list, int64_t first, int64_t last, int64_t step) {
    if (step < 1) return false;
    int64_t from_zero = first < 0 ? first + (step - 1 - first) / step * step : first + step;
    int64_t end = first + (last - first) / step * step;
    add(list, first);
    if (from_zero < end) add(list, from_zero);
    if (end > first) add(list, end);
    return true;
}

static bool add_product(bt_bench_list *list, int64_t first, int64_t last, int64_t factor) {
    for (int64_t i = first; i <= last; i *= factor) {
        if (i * factor <= i) return false;
        add(list, i);
    }
    return true;
}

/* One of parse_int_range() of llama-bench.cpp: first[-last[(+|*)step]]. The text moves behind it. */
static bool take_range(const char **text, bool negative, bt_bench_list *list) {
    int64_t first = 0, last = 0, step = 1;
    char sign = '+';
    bool minus = negative && **text == '-';
    if (minus) (*text)++;
    if (!take_number(text, &first)) return false;
    if (minus) first = -first;
    last = first;
    if (**text == '-') {
        (*text)++;
        if (!take_number(text, &last)) return false;
        if (**text == '+' || **text == '*') {
            sign = *(*text)++;
            if (!take_number(text, &step)) return false;
        }
    }
    if (first > last) return true; /* none */
    return sign == '+' ? add_sum(list, first, last, step) : add_product(list, first, last, step);
}

/* "" is an empty list, and a comma may stand at the end. */
static bool read_numbers(const char *text, bool negative, bt_bench_list *list) {
    while (*text) {
        if (!take_range(&text, negative, list)) return false;
        if (*text && *text != ',') return false;
        if (*text) text++;
    }
    return true;
}

/* How the value of an option is read. false: llama-bench refuses it. words: of the row. */
typedef bool (*list_reader)(const char *text, const char *words, bt_bench_list *list);

static bool read_ranges(const char *text, const char *words, bt_bench_list *list) {
    (void)words;
    return read_numbers(text, false, list);
}

static bool read_layers(const char *text, const char *words, bt_bench_list *list) {
    (void)words;
    return read_numbers(text, true, list);
}

/* The last occurrence counts. */
static bool read_again(const char *text, const char *words, bt_bench_list *list) {
    *list = (bt_bench_list){0};
    return read_ranges(text, words, list);
}

/* prompt,answer; neither: no test */
static bool read_pair(const char *text, const char *words, bt_bench_list *list) {
    const char *comma = strchr(text, ',');
    int32_t n_prompt = 0, n_gen = 0;
    (void)words;
    if (!comma || strchr(comma + 1, ',') || !bt_value_int(text, &n_prompt) || !bt_value_int(comma + 1, &n_gen))
        return false;
    if (n_prompt < 0 || n_gen < 0) return false;
    if (n_prompt > 0 || n_gen > 0) add(list, (int64_t)n_prompt + n_gen);
    return true;
}

/* The word before the next comma; longer than any that is taken: NULL. text moves behind the comma, or is NULL at the
 * end. */
static const char *take_word(const char **text, char ret[static 32]) {
    size_t n = strcspn(*text, ",");
    if (n >= 32) return NULL;
    memcpy(ret, *text, n);
    ret[n] = '\0';
    *text = (*text)[n] ? *text + n + 1 : NULL;
    return ret;
}

/* string_split<bool>(): a stream takes 0 and 1 and ignores what is behind them, and nothing behind the last comma. */
static bool read_switches(const char *text, const char *words, bt_bench_list *list) {
    char word[32];
    int32_t value = 0;
    (void)words;
    while (text && *text) {
        if (!take_word(&text, word) || !bt_value_int(word, &value) || value < 0 || value > 1) return false;
        add(list, value);
    }
    return true;
}

static bool read_sizes(const char *text, const char *words, bt_bench_list *list) {
    char word[32];
    int32_t value = 0;
    (void)words;
    while (text) {
        if (!take_word(&text, word) || !bt_value_int(word, &value)) return false;
        add(list, value);
    }
    return true;
}

/* words: those that llama-bench's ggml_type_from_name() knows. */
static bool read_types(const char *text, const char *words, bt_bench_list *list) {
    char word[32];
    int32_t index = 0;
    uint32_t type = 0;
    while (text) {
        if (!take_word(&text, word) || !bt_value_choice(word, words, &index) || !bt_type_by_name(word, &type))
            return false;
        add(list, type);
    }
    return true;
}

static bool read_flash(const char *text, const char *words, bt_bench_list *list) {
    char word[32];
    bt_flash flash = BT_FLASH_AUTO;
    (void)words;
    while (text) {
        if (!take_word(&text, word) || !bt_value_flash(word, &flash)) return false;
        add(list, flash);
    }
    return true;
}

static bool read_choices(const char *text, const char *words, bt_bench_list *list) {
    char word[32];
    int32_t index = 0;
    while (text) {
        if (!take_word(&text, word) || !bt_value_choice(word, words, &index)) return false;
        add(list, index);
    }
    return true;
}

/* Every word between commas is this one. */
static bool are_all(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; strncmp(text, word, n) == 0; text += n + 1) {
        if (!text[n]) return true;
        if (text[n] != ',') return false;
    }
    return false;
}

/* ---- options ---- */

typedef struct row {
    const char *spellings; /* the longest last */
    enum { TAKES_NOTHING, TAKES_VALUE, TAKES_MODELS, TAKES_DEVICES, TAKES_TENSORS } takes;
    list_reader read;   /* of a VALUE; NULL: it has no part in memory */
    size_t offset;      /* of the bt_bench_list */
    const char *words;  /* that are taken */
    const char *refuse; /* whatever its value: why */
} row;

#define OF(member) offsetof(bt_drop_in_bench, member)
#define FETCHED    "names a model that is fetched first, and a plan needs its file: fetch it, and give the file with -m"
#define ONE_DEVICE "is for several devices, and under a RAM budget " BT_DROP_IN_DEVICE " alone is used: leave it out"

#define OTHER_DEVICE                                                                                                   \
    "names other devices, and under a RAM budget this version uses " BT_DROP_IN_DEVICE " alone: leave it out"
#define OUTSIDE                               "keeps weights outside the budget: leave it out; what does not fit is streamed"
#define EARLIER                               "is one of earlier builds of llama.cpp, which cannot load the device: use --load-mode none"
#define VALUE(spellings, read, member, words) {spellings, TAKES_VALUE, read, OF(member), words, NULL}
#define NOTHING(spellings)                    {spellings, TAKES_NOTHING, NULL, 0, NULL, NULL}
#define ANYTHING(spellings)                   {spellings, TAKES_VALUE, NULL, 0, NULL, NULL}
#define NOWHERE(spellings, why)               {spellings, TAKES_VALUE, NULL, 0, NULL, why}
#define TYPES                                 "f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl"

static const row rows[] = {
    NOTHING("-h --help"),
    NOTHING("--version"),
    NOTHING("--list-devices"),
    NOTHING("--offline"),
    NOTHING("-v --verbose"),
    NOTHING("--progress"),
    NOTHING("--no-warmup"),
    ANYTHING("-hff --hf-file"),
    ANYTHING("-hft --hf-token"),
    ANYTHING("-r --repetitions"),
    ANYTHING("--prio"),
    ANYTHING("--delay"),
    ANYTHING("-o --output"),
    ANYTHING("-oe --output-err"),
    ANYTHING("--numa"),
    ANYTHING("-C --cpu-mask"),
    ANYTHING("--cpu-strict"),
    ANYTHING("--poll"),
    ANYTHING("-nopo --no-op-offload"),
    ANYTHING("--no-host"),
    {"-m --model", TAKES_MODELS, NULL, 0, NULL, NULL},
    {"-dev --device", TAKES_DEVICES, NULL, 0, NULL, NULL},
    {"-ot --override-tensor", TAKES_TENSORS, NULL, 0, NULL, NULL},
    VALUE("-p --n-prompt", read_ranges, prompt, NULL),
    VALUE("-n --n-gen", read_ranges, gen, NULL),
    VALUE("-d --n-depth", read_ranges, depth, NULL),
    VALUE("-pg", read_pair, both, NULL),
    VALUE("-b --batch-size", read_ranges, batch, NULL),
    VALUE("-ub --ubatch-size", read_ranges, ubatch, NULL),
    VALUE("-t --threads", read_ranges, threads, NULL),
    VALUE("-ctk --cache-type-k", read_types, type_k, TYPES),
    VALUE("-ctv --cache-type-v", read_types, type_v, TYPES),
    VALUE("-fa --flash-attn", read_flash, flash, NULL),
    VALUE("-ngl --n-gpu-layers", read_layers, gpu_layers, NULL),
    VALUE("-ncmoe --n-cpu-moe", read_ranges, n_cpu_moe, NULL),
    VALUE("-mg --main-gpu", read_again, main_gpu, NULL),
    VALUE("-sm --split-mode", read_choices, split_mode, "none|layer|row|tensor"),
    VALUE("-lm --load-mode", read_choices, load_mode, "auto|none|mmap|mlock|mmap+mlock|dio"),
    VALUE("-lzm --lazy-mode", read_choices, lazy_mode, "auto|on|off"),
    VALUE("-nkvo --no-kv-offload", read_switches, no_kv_offload, NULL),
    VALUE("-embd --embeddings", read_switches, embeddings, NULL),
    VALUE("--repack", read_switches, repack, NULL),
    VALUE("-fitt --fit-target", read_sizes, fit_target, NULL),
    VALUE("-fitc --fit-ctx", read_sizes, fit_ctx, NULL),
    NOWHERE("-ts --tensor-split", ONE_DEVICE),
    NOWHERE("-rpc --rpc", "puts weights on other machines, which a RAM budget here cannot hold: leave it out"),
    NOWHERE("-hf -hfr --hf-repo", FETCHED),
    NOWHERE("-mmp --mmap", EARLIER),
    NOWHERE("-dio --direct-io", EARLIER),
};

/* '_' is '-' after "--". */
static bool is_word(const char *word, size_t n, const char *text) {
    bool long_one = text[0] == '-' && text[1] == '-';
    if (strlen(text) != n) return false;
    for (size_t i = 0; i < n; i++)
        if ((long_one && text[i] == '_' ? '-' : text[i]) != word[i]) return false;
    return true;
}

static const row *row_of(const char *text) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (const char *p = rows[i].spellings; *p; p += strspn(p, " ")) {
            size_t n = strcspn(p, " ");
            if (is_word(p, n, text)) return &rows[i];
            p += n;
        }
    }
    return NULL;
}

static const char *name_of(const row *r) {
    const char *space = strrchr(r->spellings, ' ');
    return space ? space + 1 : r->spellings;
}

static bt_status refuse(bt_error *err, const char *option, const char *value, const char *why) {
    return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "%.80s%s%.80s %s", option,
                   *value ? " " : "", value, why);
}

static bt_status refuse_command(bt_error *err, const char *why) {
    return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "%s", why);
}

static bt_status read_list(const row *r, const char *value, bt_drop_in_bench *bench, bt_error *err) {
    bt_bench_list list;
    char *at = (char *)bench + r->offset;
    memcpy(&list, at, sizeof list);
    if (!r->read(value, r->words, &list))
        return refuse(err, name_of(r), value, "is refused by llama-bench, which does not start");
    memcpy(at, &list, sizeof list);
    return BT_OK;
}

static bt_status read_value(const row *r, const char *value, bt_drop_in_bench *bench, bt_error *err) {
    if (r->refuse) return refuse(err, name_of(r), value, r->refuse);
    if (r->read) return read_list(r, value, bench, err);
    if (r->takes == TAKES_MODELS) {
        bench->n_models += strchr(value, ',') ? 2 : 1;
        bench->model = value;
    } else if (r->takes == TAKES_DEVICES) {
        bench->n_devices++;
        if (!are_all(value, BT_DROP_IN_DEVICE)) return refuse(err, name_of(r), value, OTHER_DEVICE);
    } else if (r->takes == TAKES_TENSORS) {
        bench->n_tensor_rules++;
        if (!are_all(value, EVERY_TENSOR)) return refuse(err, name_of(r), value, OUTSIDE);
    }
    return BT_OK;
}

/* ---- what cannot be held ---- */

static bool is_above_zero(const bt_bench_list *list) {
    return list->n > 0 && list->most > 0;
}

static bool is_not_zero(const bt_bench_list *list) {
    return list->n > 0 && (list->least != 0 || list->most != 0);
}

static bool is_below_one(const bt_bench_list *list) {
    return list->n > 0 && list->least < 1;
}

static bool differs(const bt_bench_list *list) {
    return list->n > 0 && list->least != list->most;
}

static bool is_split(const bt_bench_list *list) {
    return list->n > 0 && list->most > BT_SPLIT_LAYER;
}

static bool is_read_otherwise(const bt_bench_list *list) {
    return list->n > 0 && (list->least != BT_LOAD_NONE || list->most != BT_LOAD_NONE);
}

static bool is_lazy(const bt_bench_list *list) {
    return list->n > 0 && list->least != BT_LAZY_OFF;
}

#define NO_SIZE "has a number that memory cannot be planned for: give numbers above 0"
#define ONE_PLAN                                                                                                       \
    "has several values, and one plan holds all tests of a run: give one of them, and run it again for the next"
#define NO_FIT "changes what is loaded after it was planned: leave it out"

static const struct {
    const char *option;
    size_t offset;
    bool (*breaks)(const bt_bench_list *list);
    const char *why;
} rules[] = {
    {"--batch-size", OF(batch), is_below_one, NO_SIZE},
    {"--ubatch-size", OF(ubatch), is_below_one, NO_SIZE},
    {"--threads", OF(threads), is_below_one, NO_SIZE},
    {"--cache-type-k", OF(type_k), differs, ONE_PLAN},
    {"--cache-type-v", OF(type_v), differs, ONE_PLAN},
    {"--flash-attn", OF(flash), differs, ONE_PLAN},
    {"--repack", OF(repack), differs, ONE_PLAN},
    {"--n-cpu-moe", OF(n_cpu_moe), is_above_zero, OUTSIDE},
    {"--no-kv-offload", OF(no_kv_offload), is_above_zero, "puts the KV cache outside the budget: leave it out"},
    {"--main-gpu", OF(main_gpu), is_above_zero, ONE_DEVICE},
    {"--split-mode", OF(split_mode), is_split, ONE_DEVICE},
    {"--load-mode", OF(load_mode), is_read_otherwise, "reads the model past the budget: leave it out, or give none"},
    {"--lazy-mode", OF(lazy_mode), is_lazy, "reads the model past the budget: leave it out, or give off"},
    {"--embeddings", OF(embeddings), is_above_zero,
     "keeps a vector of each token of a batch, which is not priced here: leave it out"},
    {"--fit-target", OF(fit_target), is_not_zero, NO_FIT},
    {"--fit-ctx", OF(fit_ctx), is_not_zero, NO_FIT},
};

static bt_status check_lists(const bt_drop_in_bench *bench, bt_error *err) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        bt_bench_list list;
        memcpy(&list, (const char *)bench + rules[i].offset, sizeof list);
        if (rules[i].breaks(&list)) return refuse(err, rules[i].option, "", rules[i].why);
    }
    return BT_OK;
}

static int64_t most_of(const bt_bench_list *list, int64_t otherwise) {
    return list->n > 0 ? list->most : otherwise;
}

/* Of the largest test; 0: there is none, each has no token. */
static int64_t context_of(const bt_drop_in_bench *bench) {
    int64_t most = most_of(&bench->prompt, PROMPT_DEFAULT);
    int64_t n_gen = most_of(&bench->gen, GEN_DEFAULT);
    if (n_gen > most) most = n_gen;
    if (most_of(&bench->both, 0) > most) most = bench->both.most;
    return most > 0 ? most + most_of(&bench->depth, 0) : 0;
}

static bt_status check_tests(const bt_drop_in_bench *bench, bt_error *err) {
    int64_t n_ctx = context_of(bench);
    if (n_ctx == 0) return refuse_command(err, "the command has no test: give -p, -n or -pg a number above 0");
    if (n_ctx <= INT32_MAX) return BT_OK;
    return refuse_command(err, "the largest test has more tokens than a context can hold: give -p, -n, -pg or -d less");
}

bt_status bt_drop_in_bench_read(char *const *argv, bt_drop_in_bench *ret, bt_error *err) {
    *ret = (bt_drop_in_bench){0};
    for (; *argv; argv++) {
        const row *r = row_of(*argv);
        if (!r)
            return refuse(err, *argv, "",
                          "is no option of today's llama-bench, and what it does to memory is not known: leave it out");
        if (r->takes == TAKES_NOTHING) continue;
        if (!argv[1]) return refuse(err, name_of(r), "", "lacks its value, and llama-bench does not start");
        argv++;
        BT_TRY(read_value(r, *argv, ret, err));
    }
    if (ret->n_models == 0)
        return refuse_command(err, "the command names no model file, and a plan needs one: give it with -m");
    if (ret->n_models > 1)
        return refuse_command(err, "the command names several models, and a plan is of one: run them one after another "
                                   "(a comma in a path makes two of it)");
    BT_TRY(check_lists(ret, err));
    return check_tests(ret, err);
}

/* ---- wishes ---- */

static uint32_t cells_of(uint32_t n_ctx) {
    return (uint32_t)bt_min_u64(((uint64_t)n_ctx + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN, UINT32_MAX);
}

static uint32_t batch_of(const bt_drop_in_bench *bench) {
    uint32_t n_ctx = (uint32_t)context_of(bench);
    return (uint32_t)bt_min_u64((uint64_t)most_of(&bench->batch, BATCH_DEFAULT), cells_of(n_ctx));
}

/* A context at the greatest depth as bytes. What cannot be priced the plan refuses itself. */
static uint64_t state_bytes(const bt_drop_in_bench *bench, const bt_facts *facts, const bt_wishes *wishes) {
    uint32_t n_tokens = (uint32_t)most_of(&bench->depth, 0);
    uint32_t n_ubatch = (uint32_t)bt_min_u64((uint64_t)most_of(&bench->ubatch, UBATCH_DEFAULT), wishes->n_batch);
    uint64_t bytes = 0;
    if (n_tokens == 0 || !bt_kv_price(facts, wishes, n_tokens, n_ubatch, &bytes)) return 0;
    bytes = bt_sat_add_u64(bytes, CELL_BYTES * n_tokens);
    return bench->depth.n_positive > 1 ? bt_sat_mul_u64(bytes, 2) : bytes;
}

static bt_status check_model(const bt_drop_in_bench *bench, const bt_facts *facts, const bt_wishes *w, bt_error *err) {
    int64_t n_layers = bench->gpu_layers.n > 0 ? bench->gpu_layers.least_from_zero : INT64_MAX;
    if (n_layers < LAYERS_ENOUGH && n_layers <= facts->n_block_all) /* the head is a layer of its own */
        return refuse(err, "--n-gpu-layers", "", "leaves layers outside the budget: leave it out, or give 99");
    if (w->flash_attn == BT_OFF && bt_type_block_elements(w->type_v) > 1)
        return refuse(err, "--cache-type-v", bt_type_name(w->type_v),
                      "needs flash attention, which --flash-attn off forbids: llama.cpp refuses the two together");
    if (facts->encoder)
        return refuse_command(err, "the model makes vectors and no text, and of such llama-bench keeps more than is "
                                   "priced here: no budget can be held");
    return BT_OK;
}

bt_status bt_drop_in_bench_wish(const bt_drop_in_bench *bench, const bt_facts *facts, bt_drop_in *ret, bt_error *err) {
    static const bt_choice flash[] = {[BT_FLASH_AUTO] = BT_AUTO, [BT_FLASH_ON] = BT_ON, [BT_FLASH_OFF] = BT_OFF};
    bt_wishes w = {.n_ctx = (uint32_t)context_of(bench),
                   .n_parallel = 1,
                   .n_batch = batch_of(bench),
                   .type_k = (uint32_t)most_of(&bench->type_k, F16),
                   .type_v = (uint32_t)most_of(&bench->type_v, F16),
                   .flash_attn = flash[most_of(&bench->flash, BT_FLASH_AUTO)],
                   .n_threads =
                       (uint32_t)most_of(&bench->threads, 0), /* its default is one of the cores, as a plan's */
                   .speculate = BT_SPECULATE_OFF,
                   .repack = most_of(&bench->repack, 1) != 0 ? BT_AUTO : BT_OFF,
                   .no_devices = true};
    BT_TRY(check_model(bench, facts, &w, err));
    if (bench->ubatch.n > 0) w.n_ubatch = (uint32_t)bt_min_u64((uint64_t)bench->ubatch.most, w.n_batch);
    *ret = (bt_drop_in){.wishes = w, .n_outputs_max = 1}; /* a row of logits, of the last token */
    ret->cache_ram_bytes = state_bytes(bench, facts, &w);
    return BT_OK;
}

/* ---- the line ---- */

bt_status bt_drop_in_bench_apply(const bt_drop_in_bench *bench, const bt_plan *plan, bt_rewrite *rewrite,
                                 bt_error *err) {
    char n_ubatch[16];
    (void)snprintf(n_ubatch, sizeof n_ubatch, "%u", plan->n_ubatch);
    bool same_ubatch = bench->ubatch.n > 0 || bt_min_u64(UBATCH_DEFAULT, batch_of(bench)) == plan->n_ubatch;
    const struct {
        bool stands;
        const char *option, *value;
    } words[] = {{bench->n_devices > 0, "--device", BT_DROP_IN_DEVICE},
                 {bench->gpu_layers.n > 0, "--n-gpu-layers", "999"},
                 {bench->n_tensor_rules > 0, "--override-tensor", EVERY_TENSOR},
                 {bench->load_mode.n > 0, "--load-mode", "none"},
                 {bench->lazy_mode.n > 0, "--lazy-mode", "off"},
                 {same_ubatch, "--ubatch-size", n_ubatch}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!words[i].stands) BT_TRY(bt_rewrite_append_word(rewrite, words[i].option, words[i].value, err));
    return BT_OK;
}
