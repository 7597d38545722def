/* SPDX-License-Identifier: MIT
 *
 * drop_in_rules.c: which command lines cannot hold a RAM budget, and the sentence that says why.
 *
 * Three reasons. Memory would stand outside the device: weights, caches or graphs on the CPU, on other devices, on
 * other machines, in mappings of the file. Memory would stand in the device that no plan has priced: a draft, a
 * projector, prediction blocks. Or it is not known what will stand there: a model that is fetched first, facts that the
 * command overrides, a line that the program itself refuses.
 *
 * Nothing here is taken away silently: what was asked for is done, or refused with what to do instead. Only where the
 * outcome is the same is the line rewritten (drop_in.c): --fit, -ngl above all layers, how the file is read.
 *
 * Most are a row: which setting, when it is in the way, and why. The first one that is in the way is said. Settings are
 * as they are in the end, so one of the environment or of a file that argv overrides is in nobody's way. */
#include "guard/drop_in_internal.h"

#include "base/error.h"
#include "guard/place.h"
#include "model/types.h"

#include <stdio.h>
#include <string.h>

#define LAYERS_ENOUGH 99 /* what people write for all of them (llama.cpp's own examples) */

/* ---- the sentence ---- */

static void describe_origin(const bt_set_by *by, char *ret, size_t n) {
    ret[0] = '\0';
    if (by->origin == BT_FROM_ENV) (void)snprintf(ret, n, " (%.60s in the environment)", by->where);
    if (by->origin == BT_FROM_FILE) (void)snprintf(ret, n, " (in %.100s)", by->where);
}

static bt_status refuse(bt_error *err, const char *option, const char *value, const bt_set_by *by, const char *why) {
    char origin[128];
    describe_origin(by, origin, sizeof origin);
    return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "%s%s%.80s%s %s", option,
                   value && *value ? " " : "", value ? value : "", origin, why);
}

static bt_status refuse_command(bt_error *err, const char *why) {
    return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "%s", why);
}

/* ---- when a setting is in the way ---- */

typedef bool (*in_the_way)(const bt_setting *setting, const bt_facts *facts);

static bool is_given(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->text && s->text[0];
}

static bool is_on(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value != 0;
}

static bool is_off(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value == 0;
}

static bool is_placed(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->text && strcmp(s->text, "none") != 0;
}

static bool is_negative(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value < 0;
}

static bool is_below_one(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value < 1;
}

static bool is_other_device(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->text && strcmp(s->text, BT_DROP_IN_DEVICE) != 0;
}

static bool is_below_all(const bt_setting *s, const bt_facts *facts) {
    if (s->value < 0 || s->value >= LAYERS_ENOUGH) return false; /* auto, all */
    return (uint32_t)s->value <= facts->n_block_all;             /* the head is a layer of its own */
}

static bool is_split(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value > BT_SPLIT_LAYER;
}

static bool is_mapped(const bt_setting *s, const bt_facts *facts) {
    (void)facts;
    return s->value != BT_LOAD_AUTO && s->value != BT_LOAD_NONE;
}

typedef struct rule {
    const char *option;
    size_t offset; /* of the bt_setting */
    in_the_way breaks;
    const char *why;
} rule;

#define OF(member) offsetof(bt_effective, member)
#define FETCHED    "names a model that is fetched first, and a plan needs its file: fetch it, and give the file with -m"
#define ONE_DEVICE "is for several devices, and under a RAM budget " BT_DROP_IN_DEVICE " alone is used: leave it out"
#define FETCHED_PROJECTOR                                                                                              \
    "names a projector that is fetched first, and a plan needs its file: fetch it, and give the file with --mmproj"
#define FETCHED_DRAFT                                                                                                  \
    "names a draft model that is fetched first, and a plan needs its file: fetch it, and give the file with "          \
    "--model-draft"
#define NO_LOOKUP "is read into memory that nobody has priced: leave it out"
#define NO_SIZE   "is no number that memory can be planned for: give one above 0"

static const rule rules[] = {
    {"--hf-repo", OF(hf_repo), is_given, FETCHED},
    {"--docker-repo", OF(docker_repo), is_given, FETCHED},
    {"--model-url", OF(model_url), is_given, FETCHED},
    {"--server-base", OF(server_base), is_given,
     "uses a server elsewhere, which a RAM budget here cannot hold: give "
     "the budget to that server"},
    {"--rpc", OF(rpc), is_given, "puts weights on other machines, which a RAM budget here cannot hold: leave it out"},
    {"--device", OF(device), is_other_device,
     "names other devices, and under a RAM budget this version uses " BT_DROP_IN_DEVICE " alone: leave it out"},
    {"--no-kv-offload", OF(kv_offload), is_off, "puts the KV cache outside the budget: leave it out"},
    {"--n-gpu-layers", OF(gpu_layers), is_below_all, "leaves layers outside the budget: leave it out, or give 99"},
    {"--tensor-split", OF(tensor_split), is_given, ONE_DEVICE},
    {"--split-mode", OF(split_mode), is_split, ONE_DEVICE},
    {"--main-gpu", OF(main_gpu), is_on, ONE_DEVICE},
    {"--load-mode", OF(load_mode), is_mapped, "reads the model past the budget: leave it out, or give none"},
    {"--check-tensors", OF(check_tensors), is_on, "reads every weight into memory of its own: leave it out"},
    {"--override-kv", OF(override_kv), is_given,
     "may change what the model needs, which is then not known: leave it "
     "out, or write it into the file"},
    {"--backend-sampling", OF(backend_sampling), is_on,
     "keeps more for each row of logits than is priced: leave it "
     "out"},
    {"--hf-repo-draft", OF(draft_hf_repo), is_given, FETCHED_DRAFT},
    {"--spec-draft-device", OF(draft_device), is_placed,
     "puts the draft model on a device, where no line of the plan is: leave it out"},
    {"--lookup-cache-static", OF(lookup_static), is_given, NO_LOOKUP},
    {"--lookup-cache-dynamic", OF(lookup_dynamic), is_given, NO_LOOKUP},
    {"--mmproj-device", OF(mmproj_device), is_placed,
     "puts the projector on a device, where no line of the plan is: leave it out"},
    {"--mmproj-url", OF(mmproj_url), is_given, FETCHED_PROJECTOR},
    {"--cache-ram", OF(cache_ram), is_negative, "sets no limit: give a size in MiB, or 0"},
    {"--ctx-size", OF(ctx), is_negative, NO_SIZE},
    {"--batch-size", OF(batch), is_below_one, NO_SIZE},
    {"--ubatch-size", OF(ubatch), is_below_one, NO_SIZE},
};

/* What stands behind the option: the text, or, of a choice that earlier builds spelled otherwise, its word. */
static const char *value_of(const rule *r, const bt_setting *s) {
    static const char *const modes[] = {"auto", "none", "mmap", "mlock", "mmap+mlock", "dio"};
    if (r->breaks == is_mapped) return modes[s->value];
    return r->breaks == is_on && r->offset != OF(main_gpu) ? NULL : r->breaks == is_off ? NULL : s->text;
}

static bt_status check_settings(const bt_effective *e, const bt_facts *facts, bt_error *err) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        bt_setting s;
        memcpy(&s, (const char *)e + rules[i].offset, sizeof s);
        if (rules[i].breaks(&s, facts))
            return refuse(err, rules[i].option, value_of(&rules[i], &s), &s.by, rules[i].why);
    }
    return BT_OK;
}

/* ---- the rest ---- */

static bool is_program(bt_program program) {
    return program == BT_PROGRAM_SERVER || program == BT_PROGRAM_CLI || program == BT_PROGRAM_COMPLETION ||
           program == BT_PROGRAM_PERPLEXITY || program == BT_PROGRAM_EMBEDDING;
}

/* The program would refuse, and then nothing would be held: its own reason is among the notes. */
static bt_status check_bad(const bt_effective *e, bt_error *err) {
    if (e->n_bad == 0) return BT_OK;
    for (uint32_t i = 0; i < e->n_notes; i++)
        if (strncmp(e->notes[i], "llama.cpp refuses ", 18) == 0) return refuse_command(err, e->notes[i]);
    return refuse_command(err, "llama.cpp refuses one of the options and does not start");
}

static bt_status check_command(const bt_effective *e, bt_error *err) {
    if (!is_program(e->program))
        return refuse_command(err, "a RAM budget is held for llama-server, llama-cli, llama-completion, "
                                   "llama-perplexity, llama-embedding and llama-bench alone");
    BT_TRY(check_bad(e, err));
    if (e->bundle.text) return refuse(err, e->bundle.text, NULL, &e->bundle.by, FETCHED);
    if (e->router)
        return refuse_command(err, "a server without -m starts others, whose memory a RAM budget cannot hold: give the "
                                   "model's file with -m");
    return BT_OK;
}

/* Of llama-perplexity the length of what is scored: there is no default of the model's. */
static bt_status check_chunk(const bt_effective *e, bt_error *err) {
    if (e->program != BT_PROGRAM_PERPLEXITY || e->ctx.value > 0) return BT_OK;
    return refuse(err, "--ctx-size", e->ctx.text, &e->ctx.by, NO_SIZE);
}

static bt_status check_model(const bt_effective *e, bt_error *err) {
    if (!e->model.text)
        return refuse_command(err, "the command names no model file, and a plan needs one: give it with -m");
    if (!bt_guard_names_gguf(e->model.text))
        return refuse(err, "--model", e->model.text, &e->model.by, "is no .gguf file, and a plan needs one");
    return BT_OK;
}

static bt_status check_tensor_rules(const bt_rules *tensor_rules, bt_error *err) {
    static const char why[] = "keeps weights outside the budget: leave it out; what does not fit is streamed";
    for (uint32_t i = 0; i < tensor_rules->n; i++) {
        const bt_tensor_rule *r = &tensor_rules->items[i];
        char value[96];
        (void)snprintf(value, sizeof value, "%d", (int)r->n);
        switch (r->kind) {
        case BT_RULE_PATTERN:
            if (strcmp(r->buffer, BT_DROP_IN_BUFFER) == 0) continue;
            (void)snprintf(value, sizeof value, "%.48s=%.40s", r->pattern, r->buffer);
            return refuse(err, "--override-tensor", value, &r->by, why);
        case BT_RULE_EXPERTS:
            return refuse(err, "--cpu-moe", NULL, &r->by, why);
        case BT_RULE_N_EXPERTS:
            return refuse(err, "--n-cpu-moe", value, &r->by, why);
        case BT_RULE_N_FFN:
            return refuse(err, "--n-cpu-ffn", value, &r->by, why);
        }
    }
    return BT_OK;
}

/* Those that look n-grams up need no model; a plain draft model has lines in the plan; the others need models of other
 * kinds, or blocks of this one that are not loaded else. */
static bt_status check_drafters(const bt_effective *e, bt_error *err) {
    static const struct {
        bt_drafter drafter;
        const char *word;
    } models[] = {{BT_DRAFTER_SIMPLE, "draft-simple"},
                  {BT_DRAFTER_EAGLE3, "draft-eagle3"},
                  {BT_DRAFTER_MTP, "draft-mtp"},
                  {BT_DRAFTER_DFLASH, "draft-dflash"},
                  {BT_DRAFTER_DSPARK, "draft-dspark"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if ((e->drafters & 1u << models[i].drafter) && !(i == 0 && e->draft_model.text))
            return refuse(err, "--spec-type", models[i].word, &e->spec_type.by,
                          "drafts with weights that this version does not hold under a RAM budget: leave it out, or "
                          "use ngram-mod");
    return BT_OK;
}

static bt_status check_flash(const bt_effective *e, bt_error *err) {
    if (e->flash.value != BT_FLASH_OFF || bt_type_block_elements((uint32_t)e->cache_v.value) <= 1) return BT_OK;
    return refuse(err, "--cache-type-v", e->cache_v.text, &e->cache_v.by,
                  "needs flash attention, which --flash-attn off forbids: llama.cpp refuses the two together");
}

bt_status bt_drop_in_check(const bt_effective *effective, const bt_facts *facts, bt_error *err) {
    BT_TRY(check_command(effective, err));
    BT_TRY(check_settings(effective, facts, err));
    BT_TRY(check_chunk(effective, err));
    BT_TRY(check_model(effective, err));
    BT_TRY(check_tensor_rules(&effective->rules, err));
    BT_TRY(check_drafters(effective, err));
    BT_TRY(check_flash(effective, err));
    if (effective->earlier_build)
        return refuse_command(err, "an option is one of earlier builds of llama.cpp, which cannot load the device: use "
                                   "today's (--load-mode none for --no-mmap)");
    return BT_OK;
}
