/* SPDX-License-Identifier: MIT
 *
 * place.c: what to do with a command line when devices have less free than it was written for.
 *
 *     keep  ->  trim the context  ->  fewer layers, or experts, on devices  ->  refuse
 *
 * The first that fits is the answer (research notes, seed 4, G4). It goes in one direction only: a context never grows,
 * nothing is ever moved onto a device. Trimming comes before any refusal: it costs tokens, where moving layers costs
 * every token its speed. Of a dense model layers are moved, of a mixture the experts of its first blocks, for they are
 * most of the bytes and few of them are used by a token; where all of them are with the host already, layers again.
 * Below a share of the layers on devices (the floor) a start is refused rather than crawling, but never one whose own
 * command line was below it.
 *
 * What cannot be known is no reason to stand in the way: then nothing is changed, and the reason is said (G5).
 *
 * The host is a pool like the others. What grows beside a start and has a limit of its own (the prompt cache, then
 * checkpoints) is lowered first where it is over; what was moved to the host must fit what is free there, mapped or
 * not, since a remedy that ends in reading weights again and again is none. */
#include "guard/place_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "plan/companions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MIB UINT64_C(1048576)
/* Of a context that is trimmed (research notes, seed 4, G17): the step, and what must be left of it. */
#define CTX_STEP  4096u
#define CTX_FLOOR 0.6

const char *bt_guard_kind_name(bt_guard_kind kind) {
    static const char *const names[] = {"unchanged", "trimmed", "offloaded", "refused", "passed", "budgeted"};
    return names[kind];
}

/* ---- does it fit ---- */

bool bt_guard_devices_hold(const bt_guard_search *s, const bt_guard_price *price, bt_guard_against against) {
    const uint64_t *have = against == BT_AGAINST_FREE ? s->free : s->budget;
    if (!s->uses_devices) return true;
    for (uint32_t i = 0; i < s->n; i++)
        if (price->devices[i].total_bytes > have[i]) return false;
    return price->device_bytes <= (against == BT_AGAINST_FREE ? s->free_all : s->budget_all);
}

/* With devices that are part of the host's memory. */
static uint64_t shared_bytes(const bt_guard_search *s, const bt_guard_price *price) {
    const uint32_t *index = NULL;
    uint32_t n = bt_guard_devices(s->prices, &index);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->ask->price.devices[index[i]].pool.shares_host) sum = bt_sat_add_u64(sum, price->devices[i].total_bytes);
    return sum;
}

/* What the host must hold: all of it but what grows beside it. */
static uint64_t host_base(const bt_guard_search *s, const bt_guard_price *price, bool moved) {
    uint64_t bytes = moved ? price->host.total_bytes : price->host_firm_bytes;
    bytes = bt_sat_sub_u64(bytes, price->host.bytes[BT_GUARD_CHECKPOINTS]);
    bytes = bt_sat_sub_u64(bytes, price->host.bytes[BT_GUARD_PROMPT_CACHE]);
    return bt_sat_add_u64(bytes, shared_bytes(s, price));
}

bool bt_guard_host_holds(const bt_guard_search *s, const bt_guard_price *price, bool moved) {
    bt_known have = s->ask->settings.host_free_bytes;
    return !have.known || host_base(s, price, moved) <= have.value;
}

/* ---- where nothing is decided ---- */

bool bt_guard_names_gguf(const char *path) {
    size_t n = strlen(path);
    return n >= 5 && strcasecmp(path + n - 5, ".gguf") == 0;
}

bool bt_guard_is_llama(bt_program program) {
    return program == BT_PROGRAM_SERVER || program == BT_PROGRAM_CLI || program == BT_PROGRAM_COMPLETION ||
           program == BT_PROGRAM_PERPLEXITY || program == BT_PROGRAM_EMBEDDING || program == BT_PROGRAM_FIT_PARAMS;
}

static const char *pass_reason(const bt_guard_ask *ask) {
    const bt_effective *e = ask->price.effective;
    if (!bt_guard_is_llama(e->program)) return "the command is none whose memory can be read from its arguments";
    if (e->router) return "a server without a model starts others, each with settings of its own";
    if (e->n_bad > 0) return "the program will refuse one of its arguments";
    if (e->model.text && !bt_guard_names_gguf(e->model.text)) return "the model is no .gguf file";
    if (!ask->price.facts) return ask->facts_reason ? ask->facts_reason : "the model cannot be read";
    return NULL;
}

/* Drafters that guess from the model's own states have tokens of their own, and a table between. */
static bool drafts_alone(const bt_effective *e, const bt_facts *draft) {
    const uint32_t others =
        1u << BT_DRAFTER_EAGLE3 | 1u << BT_DRAFTER_MTP | 1u << BT_DRAFTER_DFLASH | 1u << BT_DRAFTER_DSPARK;
    return e->draft_model.text && (e->drafters & others) == 0 && strncmp(draft->arch, "eagle", 5) != 0 &&
           strncmp(draft->arch, "dflash", 6) != 0;
}

/* llama.cpp finds out after it has loaded both, and ends (common/speculative.cpp); earlier builds went on with garbage
 * (user case 60). */
static bool refuse_vocab(const bt_guard_ask *ask, bt_guard_decision *ret) {
    const bt_facts *draft = ask->price.draft;
    bt_error why = {0};
    if (!draft || !drafts_alone(ask->price.effective, draft)) return false;
    if (bt_companion_draft_check(ask->price.facts, draft, &why) == BT_OK) return false;
    ret->kind = BT_GUARD_REFUSED;
    (void)snprintf(ret->code, sizeof ret->code, "draft_vocab");
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", why.text);
    return true;
}

static bool nothing_pinned(const bt_effective *e) {
    return e->gpu_layers.value == BT_LAYERS_AUTO;
}

static void pass(bt_guard_decision *ret, const char *reason) {
    ret->kind = BT_GUARD_PASSED;
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason);
}

/* ---- what there is ---- */

/* false: a device in use does not say what it has, and no size was named for it. */
static bool read_devices(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_guard_search *s) {
    const uint32_t *index = NULL;
    s->n = bt_guard_devices(prices, &index);
    for (uint32_t i = 0; i < s->n; i++) {
        const bt_guard_device *device = &ask->price.devices[index[i]];
        bool reads = device->pool.state == BT_READING_REPORTED;
        bool unlimited = device->pool.state == BT_READING_UNLIMITED;
        if (!reads && !unlimited && !device->target_bytes.known) return false;
        s->free[i] = reads ? device->pool.free_bytes : unlimited ? UINT64_MAX : device->target_bytes.value;
        s->budget[i] = device->target_bytes.known ? bt_min_u64(device->target_bytes.value, s->free[i]) : s->free[i];
        s->free_all = bt_sat_add_u64(s->free_all, s->free[i]);
        s->budget_all = bt_sat_add_u64(s->budget_all, s->budget[i]);
    }
    bt_known target = ask->settings.target_bytes;
    if (target.known && target.value > 0) s->budget_all = bt_min_u64(s->budget_all, target.value);
    return true;
}

/* What the program's own fitting is to leave of each device (G9): as much as is over the budget. */
static void set_fit_target(const bt_guard_search *s, const bt_effective *e, bt_guard_decision *ret) {
    uint64_t of_devices = 0;
    bool more = false;
    for (uint32_t i = 0; i < s->n; i++)
        of_devices = bt_sat_add_u64(of_devices, s->budget[i]);
    for (uint32_t i = 0; i < s->n; i++) {
        /* a budget in all is dealt out by what each may hold */
        uint64_t part = of_devices > 0 ? bt_mul_div_u64(s->budget[i], s->budget_all, of_devices) : 0;
        uint64_t leave = bt_sat_sub_u64(s->free[i], part) / MIB;
        uint64_t asked = 1024;
        if (e->n_fit_targets == 1) asked = e->fit_target_mib[0];
        if (e->n_fit_targets > 1) asked = i < e->n_fit_targets ? e->fit_target_mib[i] : 1024;
        more = more || leave > asked;
        ret->fit_target_mib[i] = bt_max_u64(leave, asked);
    }
    if (more) ret->n_fit_targets = s->n;
}

/* ---- sentences ---- */

static const char *file_of(const bt_guard_search *s) {
    const char *path = s->ask->price.facts->path;
    return path ? bt_path_file(path) : "the model";
}

static void say_numbers(const bt_guard_search *s, const bt_guard_price *price, char *text, size_t n) {
    if (nothing_pinned(s->ask->price.effective))
        (void)snprintf(text, n, "the program fits itself to its devices");
    else if (s->n == 0 || !s->uses_devices)
        (void)snprintf(text, n, "nothing on devices");
    else
        (void)snprintf(text, n, "%s of %s", BT_SIZE(price->device_bytes), BT_SIZE(s->budget_all));
}

static void say_kept(const bt_guard_search *s, bt_guard_decision *ret) {
    char numbers[96];
    say_numbers(s, &ret->price_after, numbers, sizeof numbers);
    (void)snprintf(ret->reason, sizeof ret->reason, "fits as it stands: %s", numbers);
    bt_known have = s->ask->settings.host_free_bytes;
    uint64_t need = host_base(s, &ret->price_after, true);
    if (!have.known || need <= have.value) return;
    size_t n = strlen(ret->reason);
    (void)snprintf(ret->reason + n, sizeof ret->reason - n,
                   "; the host has %s for %s, so weights will be read again from the file", BT_SIZE(have.value),
                   BT_SIZE(need));
}

static void say_changed(const bt_guard_search *s, bt_guard_decision *ret) {
    const bt_placement *a = &ret->before, *b = &ret->after;
    char what[240] = "", numbers[96];
    size_t n = 0;
    say_numbers(s, &ret->price_after, numbers, sizeof numbers);
    if (ret->changes_ctx)
        n += (size_t)snprintf(what + n, sizeof what - n, ", context %" PRIu32 " instead of %" PRIu32, b->n_ctx,
                              a->n_ctx);
    if (ret->changes_gpu_layers)
        n += (size_t)snprintf(what + n, sizeof what - n, ", %" PRIu32 " layers on devices instead of %" PRIu32,
                              b->n_gpu_layers, a->n_gpu_layers);
    if (ret->changes_cpu_moe)
        n += (size_t)snprintf(what + n, sizeof what - n,
                              ", experts of %" PRIu32 " blocks on the host instead of %" PRIu32, b->n_cpu_moe,
                              a->n_cpu_moe);
    if (ret->changes_shares || ret->changes_main_gpu)
        n += (size_t)snprintf(what + n, sizeof what - n, ", dealt out anew over the devices");
    if (ret->changes_cache_ram)
        n += (size_t)snprintf(what + n, sizeof what - n, ", a prompt cache of %" PRId32 " MiB", b->cache_ram_mib);
    if (ret->changes_checkpoints)
        (void)snprintf(what + n, sizeof what - n, ", %" PRId32 " checkpoints", b->checkpoints);
    (void)snprintf(ret->reason, sizeof ret->reason, "%s: %s%s%s", what + 2, numbers,
                   ret->over_target ? ", over the target but within what is free" : "",
                   ret->changes_cache_ram || ret->changes_checkpoints ? "; the host has no more" : "");
}

/* ---- decisions ---- */

bool bt_guard_is_worse(double fraction, double floor) {
    return fraction < floor - 1e-9;
}

static bool same_shares(const bt_placement *a, const bt_placement *b) {
    if (a->n_shares != b->n_shares) return false;
    for (uint32_t i = 0; i < a->n_shares; i++)
        if (a->shares[i] != b->shares[i]) return false;
    return true;
}

static void compare(bt_guard_decision *ret) {
    const bt_placement *a = &ret->before, *b = &ret->after;
    ret->changes_ctx = a->n_ctx != b->n_ctx;
    ret->changes_gpu_layers = a->n_gpu_layers != b->n_gpu_layers;
    ret->changes_cpu_moe = a->n_cpu_moe != b->n_cpu_moe;
    ret->changes_main_gpu = a->main_gpu != b->main_gpu;
    ret->changes_shares = !same_shares(a, b);
    ret->changes_cache_ram = a->cache_ram_mib != b->cache_ram_mib;
    ret->changes_checkpoints = a->checkpoints != b->checkpoints;
}

/* What grows beside it, held down to what the host has left. A limit is never raised. Under a budget mapped weights are
 * not to give way to it: they would be read again for every token. */
static void trim_caches(const bt_guard_search *s, bool moved, bt_placement *placement, bt_guard_price *price) {
    bt_known have = s->ask->settings.host_free_bytes;
    if (!have.known || s->ask->price.effective->program != BT_PROGRAM_SERVER) return;
    bool with_mapped = moved || s->ask->settings.host_is_budget;
    uint64_t left = bt_sat_sub_u64(have.value, host_base(s, price, with_mapped));
    uint64_t kept = price->host.bytes[BT_GUARD_CHECKPOINTS];
    uint64_t cache = price->host.bytes[BT_GUARD_PROMPT_CACHE];
    if (kept > left) { /* both cannot be: the prompt cache goes, and checkpoints as far as they must */
        uint64_t one = kept / (uint64_t)placement->checkpoints;
        placement->checkpoints = one > 0 ? (int32_t)(left / one) : 0;
        kept = one * (uint64_t)placement->checkpoints;
    }
    left -= kept;
    bool endless = placement->cache_ram_mib < 0 && s->ask->settings.host_is_budget;
    if (cache > left || endless) placement->cache_ram_mib = (int32_t)bt_min_u64(left / MIB, INT32_MAX);
    bt_guard_prices_at(s->prices, placement, price);
}

/* A program that fits itself looks at its devices alone. What grows beside the model is held to a budget of the host
 * all the same: where it does not fit as it is typed, to what is left with nothing on devices, since how much of the
 * model will be there is not known. */
static void trim_of_fitted(const bt_guard_search *s, bt_guard_decision *ret) {
    bt_placement typed = s->baked, host = s->baked;
    bt_guard_price price;
    if (!s->ask->settings.host_is_budget) return;
    bt_guard_prices_at(s->prices, &typed, &price);
    trim_caches(s, false, &typed, &price);
    if (typed.cache_ram_mib == s->baked.cache_ram_mib && typed.checkpoints == s->baked.checkpoints) return;
    host.n_gpu_layers = 0;
    bt_guard_prices_at(s->prices, &host, &price);
    trim_caches(s, true, &host, &price);
    ret->before = ret->after = s->baked;
    ret->after.cache_ram_mib = host.cache_ram_mib;
    ret->after.checkpoints = host.checkpoints;
    compare(ret);
    ret->kind = BT_GUARD_TRIMMED;
    say_changed(s, ret);
}

static void finish(const bt_guard_search *s, bool moved, bt_guard_decision *ret) {
    trim_caches(s, moved, &ret->after, &ret->price_after);
    compare(ret);
    ret->fraction_after = bt_guard_gpu_fraction(s->prices, &ret->after);
    bool changed = ret->changes_ctx || ret->changes_shares || ret->changes_main_gpu || ret->changes_cache_ram ||
                   ret->changes_checkpoints;
    ret->kind = ret->changes_gpu_layers || ret->changes_cpu_moe ? BT_GUARD_OFFLOADED
                : changed                                       ? BT_GUARD_TRIMMED
                                                                : BT_GUARD_UNCHANGED;
    if (ret->kind == BT_GUARD_UNCHANGED)
        say_kept(s, ret);
    else
        say_changed(s, ret);
}

static bool try_keep(const bt_guard_search *s, bt_guard_decision *ret) {
    ret->after = s->baked;
    return bt_guard_try(s, &ret->after, &ret->price_after) && bt_guard_host_holds(s, &ret->price_after, false);
}

/* Only a number that somebody wrote. */
bool bt_guard_may_trim(const bt_effective *e) {
    return e->ctx.value > 0 && (e->ctx.by.origin != BT_FROM_DEFAULT && e->ctx.by.origin != BT_FROM_PROGRAM);
}

/* The largest context that is whole steps below the baked one, no less than least, and fits. Less context never takes
 * more, so that halves can be left out: a command line may name one of two billion tokens. */
bool bt_guard_try_ctx(const bt_guard_search *s, uint32_t least, bt_placement *ret, bt_guard_price *ret_price) {
    uint64_t low = 1, high = (s->baked.n_ctx - bt_min_u64(least, s->baked.n_ctx)) / s->ctx_step;
    bool found = false;
    while (low <= high) {
        uint64_t cut = low + (high - low) / 2;
        bt_placement at = s->baked;
        bt_guard_price price;
        at.n_ctx = s->baked.n_ctx - (uint32_t)(cut * s->ctx_step);
        if (bt_guard_try(s, &at, &price) && bt_guard_host_holds(s, &price, false)) {
            *ret = at;
            *ret_price = price;
            found = true;
            high = cut - 1;
        } else {
            low = cut + 1;
        }
    }
    return found;
}

uint32_t bt_guard_ctx_floor(uint32_t n_ctx) {
    return (uint32_t)bt_max_u64((uint64_t)(CTX_FLOOR * n_ctx), 1);
}

static bool try_trim(const bt_guard_search *s, bt_guard_decision *ret) {
    return bt_guard_may_trim(s->ask->price.effective) &&
           bt_guard_try_ctx(s, bt_guard_ctx_floor(s->baked.n_ctx), &ret->after, &ret->price_after);
}

bool bt_guard_step_down(const bt_facts *facts, bool experts, bt_placement *placement) {
    uint32_t *n = experts ? &placement->n_cpu_moe : &placement->n_gpu_layers;
    if (*n == (experts ? facts->n_block_all : 0)) return false;
    *n = experts ? *n + 1 : *n - 1;
    return true;
}

static bool walk_down(const bt_guard_search *s, bool experts, bt_guard_decision *ret) {
    bt_placement at = ret->after;
    while (bt_guard_step_down(s->ask->price.facts, experts, &at)) {
        ret->after = at;
        if (bt_guard_try(s, &ret->after, &ret->price_after)) return true;
    }
    return false;
}

double bt_guard_floor(const bt_guard_settings *settings) {
    if (settings->degrade || settings->min_gpu_fraction < 0) return 0;
    return settings->min_gpu_fraction > 0 ? settings->min_gpu_fraction : BT_GUARD_FRACTION_DEFAULT;
}

/* The most that fits of what the command line has on devices; false: not even the least does, which is what after and
 * price_after then are. A mixture's layers follow its experts only where no floor would refuse the result. */
static bool try_offload(const bt_guard_search *s, bt_guard_decision *ret) {
    bool experts = bt_guard_experts_can_move(s->prices, s->baked.n_cpu_moe);
    ret->after = s->baked;
    bt_guard_prices_at(s->prices, &ret->after, &ret->price_after);
    if (walk_down(s, experts, ret)) return true;
    return experts && bt_guard_floor(&s->ask->settings) <= 0 && walk_down(s, false, ret);
}

static void refuse_vram(const bt_guard_search *s, bt_guard_decision *ret) {
    bool in_all = ret->price_after.device_bytes > s->free_all;
    ret->kind = BT_GUARD_REFUSED;
    (void)snprintf(ret->code, sizeof ret->code, "insufficient_vram");
    (void)snprintf(ret->reason, sizeof ret->reason,
                   "insufficient VRAM: %.120s needs %s on devices even with all that can be moved on the host, %s; "
                   "%s is free",
                   file_of(s), BT_SIZE(ret->price_after.device_bytes),
                   in_all ? "more than there is" : "more on one of them than it has", BT_SIZE(s->free_all));
}

static void refuse_floor(const bt_guard_search *s, double floor, bt_guard_decision *ret) {
    ret->kind = BT_GUARD_REFUSED;
    (void)snprintf(ret->code, sizeof ret->code, "gpu_floor");
    (void)snprintf(
        ret->reason, sizeof ret->reason,
        "insufficient VRAM: with %s to use of %s free, %.120s would have %.0f %% of it on devices, under the "
        "floor of %.0f %%",
        BT_SIZE(bt_min_u64(s->budget_all, s->free_all)), BT_SIZE(s->free_all), file_of(s), 100 * ret->fraction_after,
        100 * floor);
}

static void refuse_ram(const bt_guard_search *s, bool moved, bt_guard_decision *ret) {
    ret->kind = BT_GUARD_REFUSED;
    (void)snprintf(ret->code, sizeof ret->code, "insufficient_ram");
    (void)snprintf(ret->reason, sizeof ret->reason, "insufficient memory: %.120s needs %s of the host%s, which has %s",
                   file_of(s), BT_SIZE(host_base(s, &ret->price_after, moved)),
                   moved ? " for what does not fit on devices" : "", BT_SIZE(s->ask->settings.host_free_bytes.value));
}

/* Layers or experts to the host, or the refusal of it. */
static void offload(const bt_guard_search *s, bt_guard_decision *ret) {
    double floor = bt_guard_floor(&s->ask->settings);
    bool fits = try_offload(s, ret);
    if (!fits && !bt_guard_devices_hold(s, &ret->price_after, BT_AGAINST_FREE)) {
        refuse_vram(s, ret);
        return;
    }
    ret->over_target = !fits;
    ret->fraction_after = bt_guard_gpu_fraction(s->prices, &ret->after);
    if (bt_guard_is_worse(ret->fraction_after, floor) && !bt_guard_is_worse(ret->fraction_before, floor)) {
        refuse_floor(s, floor, ret);
        return;
    }
    if (!bt_guard_host_holds(s, &ret->price_after, true)) {
        refuse_ram(s, true, ret);
        return;
    }
    finish(s, true, ret);
}

static bt_status decide(const bt_guard_search *s, bt_guard_decision *ret, bt_error *err) {
    bt_guard_prices_at(s->prices, &s->baked, &ret->price_before);
    ret->fraction_before = bt_guard_gpu_fraction(s->prices, &s->baked);
    if (try_keep(s, ret) || try_trim(s, ret)) {
        finish(s, false, ret);
        return BT_OK;
    }
    ret->after = s->baked;
    if (bt_guard_try(s, &ret->after, &ret->price_after))
        refuse_ram(s, false, ret);
    else
        offload(s, ret);
    if (ret->kind != BT_GUARD_REFUSED) return BT_OK;
    compare(ret);
    ret->fraction_after = bt_guard_gpu_fraction(s->prices, &ret->after);
    return bt_guard_suggest(s, ret, err);
}

uint32_t bt_guard_ctx_step(const bt_effective *e) {
    uint32_t slots = e->slots.value > 1 && e->kv_unified.value == 0 ? (uint32_t)e->slots.value : 1;
    return (uint32_t)bt_min_u64((uint64_t)CTX_STEP * slots, UINT32_MAX);
}

static void start(const bt_guard_ask *ask, const bt_guard_prices *prices, bt_guard_search *s) {
    const bt_effective *e = ask->price.effective;
    s->ask = ask;
    s->prices = prices;
    bt_guard_placement(prices, &s->baked);
    s->may_split = e->n_shares > 0 && s->n > 1 && e->split_mode.value == BT_SPLIT_LAYER;
    s->may_main = e->main_gpu.by.origin != BT_FROM_DEFAULT && s->n > 1;
    s->ctx_step = bt_guard_ctx_step(e);
    s->uses_devices = s->n > 0 && (s->baked.n_gpu_layers > 0 || e->rules.n_pattern > 0);
}

bt_status bt_guard_place(const bt_guard_ask *ask, bt_guard_decision *ret, bt_error *err) {
    const bt_guard_prices *prices = NULL;
    bt_guard_search s = {0};
    *ret = (bt_guard_decision){0};
    const char *reason = pass_reason(ask);
    if (!reason && refuse_vocab(ask, ret)) return BT_OK;
    if (!reason) BT_TRY(bt_guard_prices_make(&ask->price, &prices, &reason, err));
    if (reason) {
        pass(ret, reason);
        return BT_OK;
    }
    if (!read_devices(ask, prices, &s)) {
        pass(ret, "a device does not say how much memory it has");
        return BT_OK;
    }
    start(ask, prices, &s);
    if (nothing_pinned(ask->price.effective)) {
        pass(ret, "no number of layers is pinned (-ngl): the program fits itself to what is free");
        if (ask->settings.fit_target && ask->price.effective->fit.value != 0)
            set_fit_target(&s, ask->price.effective, ret);
        trim_of_fitted(&s, ret);
        return BT_OK;
    }
    if (ask->price.n_devices == 0 && s.baked.n_gpu_layers > 0 && !ask->price.effective->device.text) {
        pass(ret, "no device can be asked how much memory it has");
        return BT_OK;
    }
    ret->priced = true;
    ret->before = s.baked;
    ret->budget_bytes = (bt_known){s.n > 0, s.budget_all};
    ret->free_bytes = (bt_known){s.n > 0, s.free_all};
    ret->n_notes = bt_guard_notes(prices, &ret->notes);
    BT_TRY(decide(&s, ret, err));
    bt_known host = ask->settings.host_total_bytes;
    const bt_guard_price *price = &ret->price_after;
    ret->pins_much = host.known && ret->kind != BT_GUARD_REFUSED && price->pinned_weight_bytes > 0 &&
                     price->pinned_bytes > host.value / 2;
    return BT_OK;
}

/* ---- into the argv ---- */

static bt_status apply_shares(const bt_guard_decision *d, bt_rewrite *rewrite, bt_error *err) {
    char text[BT_SHARE_MAX * 12] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < d->after.n_shares; i++) {
        double share = d->after.shares[i];
        int n_decimals = share == floor(share) ? 0 : 2;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*f", i > 0 ? "," : "", n_decimals, share);
    }
    return bt_rewrite_set(rewrite, BT_FLAG_TENSOR_SPLIT, text, err);
}

static bt_status apply_fit_target(const bt_guard_decision *d, bt_rewrite *rewrite, bt_error *err) {
    char text[BT_POOL_MAX * 22] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < d->n_fit_targets; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64, i > 0 ? "," : "", d->fit_target_mib[i]);
    return bt_rewrite_set(rewrite, BT_FLAG_FIT_TARGET, text, err);
}

bt_status bt_guard_apply(const bt_guard_decision *d, bt_rewrite *rewrite, bt_error *err) {
    if (d->kind == BT_GUARD_REFUSED) return BT_OK;
    if (d->changes_ctx) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_CTX_SIZE, d->after.n_ctx, err));
    if (d->changes_gpu_layers) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_GPU_LAYERS, d->after.n_gpu_layers, err));
    if (d->changes_cpu_moe) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_N_CPU_MOE, d->after.n_cpu_moe, err));
    if (d->changes_shares) BT_TRY(apply_shares(d, rewrite, err));
    if (d->changes_main_gpu) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_MAIN_GPU, d->after.main_gpu, err));
    if (d->changes_cache_ram) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_CACHE_RAM, d->after.cache_ram_mib, err));
    if (d->changes_checkpoints) BT_TRY(bt_rewrite_set_int(rewrite, BT_FLAG_CHECKPOINTS, d->after.checkpoints, err));
    if (d->n_fit_targets > 0) BT_TRY(apply_fit_target(d, rewrite, err));
    return BT_OK;
}
