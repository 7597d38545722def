/* SPDX-License-Identifier: MIT
 * test_guard.c: what must hold of every decision on a command line, whatever the model, the devices and the words: it
 * never loosens, what it writes fits what it says, and decides nothing further when it is asked again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "guard_kit.h"
#include "random.h"
#include "rounds.h"

#define ROUNDS 1500

static kit_facts model;
static kit_guard g;

static uint64_t seed = 8;

static uint64_t below(uint64_t n) {
    return random_next(&seed) % n;
}

static void some_model(void) {
    bool mixture = below(2) == 0;
    if (mixture)
        kit_mixture(&model);
    else
        kit_dense(&model);
    if (below(3) == 0)
        for (uint32_t b = 0; b < model.facts.n_block; b++)
            model.kv[b].window = b % 4 == 3 ? 0 : 1024;
    for (uint32_t i = 0; below(2) == 0 && i < model.facts.n_tensors; i++) /* blocks of different sizes */
        model.tensors[i].bytes = model.tensors[i].bytes * (50 + below(100)) / 100;
}

static void add_words(char *text, const char *words) {
    (void)strcat(text, " ");
    (void)strcat(text, words);
}

static void add_number(char *text, const char *flag, uint64_t n) {
    char words[48];
    (void)snprintf(words, sizeof words, "%s %llu", flag, (unsigned long long)n);
    add_words(text, words);
}

static void some_words(char *text, uint32_t n_devices) {
    static const char *const types[] = {"-ctk q8_0 -ctv q8_0", "-ctk q4_0 -ctv q8_0", "-fa on"};
    static const char *const others[] = {"-nkvo",       "--swa-full", "-ub 256",           "-cmoe",       "-cram 100",
                                         "--no-repack", "--mlock",    "--load-mode none",  "-no-kvu",     "-kvu",
                                         "-ctxcp 4",    "-sm layer",  "-ot 'exps\\.=CPU'", "--op-offload"};
    (void)strcpy(text, "llama-server -m x.gguf");
    add_number(text, "-ngl", below(4) == 0 ? below(50) : 99);
    if (below(5) > 0) add_number(text, "-c", 512 * (1 + below(256)));
    if (below(2) == 0) add_number(text, "-np", 1 + below(6));
    if (below(3) == 0) add_number(text, "--n-cpu-moe", below(50));
    if (below(3) == 0) add_words(text, types[below(3)]);
    for (uint64_t n = below(4); n > 0; n--)
        add_words(text, others[below(sizeof others / sizeof *others)]);
    if (n_devices > 1 && below(2) == 0) {
        add_words(text, "-ts ");
        for (uint32_t i = 0; i < n_devices; i++)
            (void)sprintf(text + strlen(text), "%s%llu", i > 0 ? "," : "", (unsigned long long)(1 + below(9)));
    }
    if (n_devices > 1 && below(4) == 0) add_number(text, "-mg", below(n_devices));
    if (n_devices > 1 && below(8) == 0) add_words(text, "-sm none");
}

/* Numbers that nobody means, and a command line may have all the same. */
static void some_extremes(char *text) {
    static const char *const flags[] = {"-c", "-np", "-ub", "-b", "-ctxcp", "-cram", "-ngl", "-ncmoe", "-mg", "-t"};
    static const char *const numbers[] = {"2147483647", "-2147483648", "0", "-1", "1", "-3", "1000000"};
    for (uint64_t n = 1 + below(4); n > 0; n--) {
        add_words(text, flags[below(sizeof flags / sizeof *flags)]);
        add_words(text, numbers[below(sizeof numbers / sizeof *numbers)]);
    }
}

static void some_devices(uint32_t n) {
    char name[16];
    g.ask.price.n_devices = 0;
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s%u", below(2) == 0 ? "CUDA" : "Vulkan", i);
        bt_guard_device *d = kit_device(&g, name, below(26 * KIT_GIB / n + KIT_GIB));
        if (below(5) == 0) d->target_bytes = (bt_known){true, below(24 * KIT_GIB)};
    }
}

static void some_settings(void) {
    g.ask.settings = (bt_guard_settings){0};
    if (below(3) == 0) g.ask.settings.target_bytes = (bt_known){true, 1 + below(24 * KIT_GIB)};
    if (below(3) == 0) g.ask.settings.min_gpu_fraction = below(2) == 0 ? -1 : 0.8;
    if (below(3) == 0) g.ask.settings.host_free_bytes = (bt_known){true, below(32 * KIT_GIB)};
    g.ask.settings.host_is_budget = below(2) == 0;
}

static bool on_devices(const bt_guard_decision *d) {
    return d->before.n_gpu_layers > 0 || strstr(g.text, "-ot") != NULL;
}

static void never_loosens(const bt_guard_decision *d) {
    assert_true(d->after.n_ctx <= d->before.n_ctx);
    assert_true(d->after.n_gpu_layers <= d->before.n_gpu_layers);
    assert_true(d->after.n_cpu_moe >= d->before.n_cpu_moe);
    assert_true(d->after.checkpoints <= d->before.checkpoints);
    assert_true(d->before.cache_ram_mib < 0 || d->after.cache_ram_mib <= d->before.cache_ram_mib);
    assert_true(d->fraction_after <= d->fraction_before);
}

static void fits_what_it_says(const bt_guard_decision *d) {
    uint64_t all = 0;
    for (uint32_t i = 0; on_devices(d) && i < d->price_after.n_devices; i++) {
        const bt_guard_device *device = &g.devices[i];
        uint64_t need = d->price_after.devices[i].total_bytes;
        assert_true(need <= device->pool.free_bytes);
        if (device->target_bytes.known && !d->over_target) assert_true(need <= device->target_bytes.value);
        all += need;
    }
    assert_int_equal(on_devices(d) ? all : d->price_after.device_bytes, d->price_after.device_bytes);
    assert_true(!on_devices(d) || d->over_target || all <= d->budget_bytes.value);
    bt_known host = g.ask.settings.host_free_bytes;
    if (host.known) assert_true(d->price_after.host_firm_bytes <= host.value);
}

/* What was written is what was decided, and nothing more is to be done about it. */
static void is_settled(const bt_guard_decision *d, const char *after) {
    char words[LINE_TEXT_MAX + 16];
    bt_placement decided = d->after;
    bt_guard_price price = d->price_after;
    bool over = d->over_target;
    (void)snprintf(words, sizeof words, "llama-server %s", after);
    kit_decide(&g, words);
    if (over) return;
    if (g.decision.kind != BT_GUARD_UNCHANGED)
        fail_msg("%s: %s '%s' (%s)", words, bt_guard_kind_name(g.decision.kind), g.text, g.decision.reason);
    assert_int_equal(g.decision.before.n_ctx, decided.n_ctx);
    assert_int_equal(g.decision.before.n_gpu_layers, decided.n_gpu_layers);
    assert_int_equal(g.decision.before.n_cpu_moe, decided.n_cpu_moe);
    assert_memory_equal(&g.decision.price_before, &price, sizeof price);
}

/* Each change that a refusal names is one that would do. */
static void suggestions_hold(const char *words) {
    bt_change changes[BT_CHANGE_MAX];
    uint32_t n = g.decision.n_changes;
    memcpy(changes, g.decision.changes, sizeof changes);
    for (uint32_t i = 0; i < n; i++) {
        char more[LINE_TEXT_MAX + 64];
        (void)snprintf(more, sizeof more, "%s %.23s %.23s", words, changes[i].flag, changes[i].value);
        kit_decide(&g, more);
        if (g.decision.kind == BT_GUARD_REFUSED) fail_msg("%s: refused (%s)", more, g.decision.reason);
    }
}

static void every_decision(void **state) {
    (void)state;
    uint32_t n_of[5] = {0};
    const uint32_t n_rounds = rounds_of(ROUNDS);
    for (uint32_t round = 0; round < n_rounds; round++) {
        char words[LINE_TEXT_MAX], after[LINE_TEXT_MAX];
        uint32_t n_devices = below(2) == 0 ? 1 : 1 + (uint32_t)below(8);
        some_model();
        kit_guard_open(&g, &model.facts);
        some_devices(n_devices);
        some_settings();
        some_words(words, n_devices);
        const bt_guard_decision *d = kit_decide(&g, words);
        n_of[d->kind]++;
        if (d->kind == BT_GUARD_UNCHANGED || d->kind == BT_GUARD_REFUSED) assert_int_equal(g.rewrite.n_edits, 0);
        assert_true(d->reason[0] != '\0');
        assert_int_equal(d->kind == BT_GUARD_REFUSED, d->code[0] != '\0');
        if (d->priced) never_loosens(d);
        (void)strcpy(after, g.text);
        if (d->kind == BT_GUARD_REFUSED) {
            suggestions_hold(words);
        } else if (d->priced) {
            fits_what_it_says(d);
            is_settled(d, after);
        }
        kit_guard_close(&g);
    }
    for (uint32_t kind = BT_GUARD_UNCHANGED; kind <= BT_GUARD_REFUSED; kind++)
        if (n_of[kind] < n_rounds / 20) fail_msg("only %u of kind %s", n_of[kind], bt_guard_kind_name(kind));
}

static void extremes(void **state) {
    (void)state;
    for (uint32_t round = 0; round < rounds_of(500); round++) {
        char words[LINE_TEXT_MAX];
        uint32_t n_devices = 1 + (uint32_t)below(3);
        some_model();
        kit_guard_open(&g, &model.facts);
        some_devices(n_devices);
        some_settings();
        some_words(words, n_devices);
        some_extremes(words);
        const bt_guard_decision *d = kit_decide(&g, words);
        if (d->priced) never_loosens(d);
        if (d->priced && d->kind != BT_GUARD_REFUSED) fits_what_it_says(d);
        kit_guard_close(&g);
    }
}

/* On one device: less free never means more on it. */
static void less_free_never_more(void **state) {
    (void)state;
    for (uint32_t round = 0; round < rounds_of(60); round++) {
        char words[LINE_TEXT_MAX];
        double most = 1;
        some_model();
        kit_guard_open(&g, &model.facts);
        some_words(words, 1);
        g.ask.settings.min_gpu_fraction = below(2) == 0 ? -1 : 0;
        kit_device(&g, "Vulkan0", 0);
        for (uint64_t free_bytes = 26 * KIT_GIB; free_bytes > KIT_GIB; free_bytes -= 97 * KIT_MIB * (1 + below(6))) {
            g.devices[0].pool.free_bytes = free_bytes;
            const bt_guard_decision *d = kit_decide(&g, words);
            double fraction = d->kind == BT_GUARD_REFUSED ? 0 : d->fraction_after;
            if (fraction > most)
                fail_msg("%s at %llu: %f, before %f", words, (unsigned long long)free_bytes, fraction, most);
            most = fraction;
        }
        kit_guard_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_decision),
        cmocka_unit_test(extremes),
        cmocka_unit_test(less_free_never_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
