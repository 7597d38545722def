/* SPDX-License-Identifier: MIT
 * test_guard_place.c: what is done with a command line. G and T: rules and cases of the research notes, seed 4. The
 * notes derive their decisions from mean layers and a flat overhead; here the same models are priced by our own
 * formulas, so that the thresholds are others and the shape of each row is the same: kept, trimmed, then layers or
 * experts, then the floor, then nothing at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "guard_kit.h"

static kit_facts dense, mixture;
static kit_guard g;

static int start(void **state) {
    (void)state;
    kit_dense(&dense);
    kit_mixture(&mixture);
    kit_guard_open(&g, &dense.facts);
    g.ask.settings.target_bytes = (bt_known){true, 24 * KIT_GIB};
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_guard_close(&g);
    return 0;
}

static uint64_t gib(double n) {
    return (uint64_t)(n * (double)KIT_GIB);
}

/* One device with so much free. */
static const bt_guard_decision *decide(const char *words, double free_gib) {
    g.ask.price.n_devices = 0;
    kit_device(&g, "Vulkan0", gib(free_gib));
    return kit_decide(&g, words);
}

static void holds(const char *words, double free_gib, bt_guard_kind kind, const char *expected) {
    const bt_guard_decision *d = decide(words, free_gib);
    if (d->kind != kind || strcmp(g.text, expected) != 0)
        fail_msg("%.3f GiB: %s '%s' (%s), expected %s '%s'", free_gib, bt_guard_kind_name(d->kind), g.text, d->reason,
                 bt_guard_kind_name(kind), expected);
    if (kind == BT_GUARD_UNCHANGED || kind == BT_GUARD_REFUSED) assert_int_equal(g.rewrite.n_edits, 0);
}

static void refused(const char *words, double free_gib, const char *code) {
    const bt_guard_decision *d = decide(words, free_gib);
    if (d->kind != BT_GUARD_REFUSED || strcmp(d->code, code) != 0)
        fail_msg("%.3f GiB: %s '%s' (%s), expected a refusal '%s'", free_gib, bt_guard_kind_name(d->kind), d->code,
                 d->reason, code);
    assert_int_equal(strncmp(d->reason, "insufficient ", 13), 0);
    assert_int_equal(g.rewrite.n_edits, 0);
}

#define DENSE   "-m x.gguf -ngl 99 -c 32768 -ctk q8_0 -ctv q8_0 -np 1"
#define MIXTURE "-m x.gguf -ngl 99 -c 32768 -np 1"

/* 11.75 GiB of blocks and head, 2.125 of cache, 0.16 of graph: 14.0356 needed; 0.266 for a step of the context. */
static void derived_dense(void **state) {
    (void)state;
    holds("llama-server " DENSE, 14.04, BT_GUARD_UNCHANGED, DENSE);
    holds("llama-server " DENSE, 14.03, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 28672 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 13.5, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 24576 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 13.23, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 20480 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 13.22, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 30 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 10, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 23 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 6.89, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 16 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    assert_float_equal(g.decision.fraction_after, 0.5, 0);
    refused("llama-server " DENSE, 6.88, "gpu_floor");
    assert_float_equal(g.decision.fraction_after, 15.0 / 32, 0);
    refused("llama-server " DENSE, 0.26, "gpu_floor");
    refused("llama-server " DENSE, 0.25, "insufficient_vram"); /* the graph, and a copy of the host's largest matrix */
    /* its own command line is below the floor: kept, and lowered (G23) */
    holds("llama-server -m x.gguf -ngl 14 -c 32768 -ctk q8_0 -ctv q8_0 -np 1", 6.1, BT_GUARD_UNCHANGED,
          "-m x.gguf -ngl 14 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server -m x.gguf -ngl 14 -c 32768 -ctk q8_0 -ctv q8_0 -np 1", 4, BT_GUARD_OFFLOADED,
          "-m x.gguf -ngl 9 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    /* four slots apart: a step of 16384 is more than may be cut off (G20) */
    holds("llama-server -m x.gguf -ngl 99 -c 32768 -ctk q8_0 -ctv q8_0 -np 4", 13.9, BT_GUARD_OFFLOADED,
          "-m x.gguf -ngl 32 -c 32768 -ctk q8_0 -ctv q8_0 -np 4");
    /* four that share it: steps of 4096 */
    holds("llama-server -m x.gguf -ngl 99 -c 32768 -ctk q8_0 -ctv q8_0 -np 4 -kvu", 13.9, BT_GUARD_TRIMMED,
          "-m x.gguf -ngl 99 -c 28672 -ctk q8_0 -ctv q8_0 -np 4 -kvu");
    /* what is free is not what may be used (G13) */
    g.ask.settings.target_bytes.value = gib(14);
    holds("llama-server " DENSE, 22.5, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 28672 -ctk q8_0 -ctv q8_0 -np 1");
}

static void derived_dense_without_floor(void **state) {
    (void)state;
    g.ask.settings.min_gpu_fraction = -1;
    holds("llama-server " DENSE, 6.5, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 15 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    holds("llama-server " DENSE, 0.26, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 0 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
    g.ask.settings.min_gpu_fraction = 0.9;
    refused("llama-server " DENSE, 10, "gpu_floor");
    g.ask.settings.degrade = true;
    holds("llama-server " DENSE, 10, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 23 -c 32768 -ctk q8_0 -ctv q8_0 -np 1");
}

/* 16.875 GiB on the device, 3 of cache, 0.122 of graph: 19.9968 needed; 0.379 for a step, 0.319 for a block's experts,
 * and once 0.106 for the copy of a matrix of the host. */
static void derived_mixture(void **state) {
    (void)state;
    g.ask.price.facts = &mixture.facts;
    holds("llama-server " MIXTURE, 20, BT_GUARD_UNCHANGED, MIXTURE);
    holds("llama-server " MIXTURE, 19.99, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 28672 -np 1");
    holds("llama-server " MIXTURE, 19.6, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 24576 -np 1");
    holds("llama-server " MIXTURE, 18.87, BT_GUARD_TRIMMED, "-m x.gguf -ngl 99 -c 20480 -np 1");
    holds("llama-server " MIXTURE, 18.85, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 4");
    holds("llama-server " MIXTURE, 18, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 7");
    holds("llama-server " MIXTURE, 16, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 13");
    holds("llama-server " MIXTURE, 11.82, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 26");
    assert_float_equal(g.decision.fraction_after, 0.5125, 1e-6);
    refused("llama-server " MIXTURE, 11.81, "gpu_floor");
    refused("llama-server " MIXTURE, 4.81, "gpu_floor");
    refused("llama-server " MIXTURE, 4.8, "insufficient_vram");
    /* never back (G3) */
    holds("llama-server -m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 12", 18, BT_GUARD_UNCHANGED,
          "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 12");
    holds("llama-server -m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 12", 15.2, BT_GUARD_TRIMMED,
          "-m x.gguf -ngl 99 -c 20480 -np 1 --n-cpu-moe 12");
    /* a number that stands there is raised where it stands, as it is spelled (G10) */
    holds("llama-server -ncmoe 12 -m x.gguf -ngl 99 -c 32768 -np 1", 14, BT_GUARD_OFFLOADED,
          "-ncmoe 20 -m x.gguf -ngl 99 -c 32768 -np 1");
    /* all experts are with the host: layers are left; below the floor they are not asked for */
    g.ask.settings.min_gpu_fraction = -1;
    holds("llama-server " MIXTURE, 4, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 40 -c 32768 -np 1 --n-cpu-moe 48");
    holds("llama-server " MIXTURE, 4.81, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 99 -c 32768 -np 1 --n-cpu-moe 48");
    holds("llama-server -m x.gguf -ngl 99 -c 32768 -np 1 -cmoe", 3.6, BT_GUARD_OFFLOADED,
          "-m x.gguf -ngl 36 -c 32768 -np 1 -cmoe");
}

/* Just as much is enough, of a device and in all; a byte less is not. */
static void to_the_byte(void **state) {
    (void)state;
    uint64_t need = decide("llama-server " DENSE, 20)->price_before.device_bytes;
    g.devices[0].pool.free_bytes = need;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_UNCHANGED);
    g.devices[0].pool.free_bytes = need - 1;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_TRIMMED);
    g.devices[0].pool.free_bytes = 20 * KIT_GIB;
    g.ask.settings.target_bytes.value = need;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_UNCHANGED);
    g.ask.settings.target_bytes.value = need - 1;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_TRIMMED);
    g.ask.settings.target_bytes.known = false;
    g.devices[0].target_bytes = (bt_known){true, need};
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_UNCHANGED);
    g.devices[0].target_bytes.value = need - 1;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_TRIMMED);
    uint64_t firm = g.decision.price_before.host_firm_bytes - g.decision.price_before.host.bytes[BT_GUARD_PROMPT_CACHE];
    g.devices[0].target_bytes.known = false;
    g.ask.settings.host_free_bytes = (bt_known){true, firm};
    assert_int_equal(kit_decide(&g, "llama-server " DENSE " -cram 0")->kind, BT_GUARD_UNCHANGED);
    g.ask.settings.host_free_bytes.value = firm - 1;
    assert_int_not_equal(kit_decide(&g, "llama-server " DENSE " -cram 0")->kind, BT_GUARD_UNCHANGED);
}

/* T10: down from where it fits, by a tenth each, to the first layer that would be lost. */
static void t10_trim_before_layers(void **state) {
    (void)state;
    double free_gib = 24;
    while (decide("llama-server " DENSE, free_gib)->kind == BT_GUARD_UNCHANGED)
        free_gib -= 0.1;
    const bt_guard_decision *d = &g.decision;
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_int_equal(d->after.n_ctx % 4096, 0);
    assert_in_range(d->after.n_ctx, (uint32_t)(0.6 * 32768), 32767);
    assert_int_equal(d->after.n_gpu_layers, 33);
    assert_int_equal(d->after.n_cpu_moe, 0);
    assert_true(d->price_after.device_bytes <= gib(free_gib));
    assert_true(d->price_before.device_bytes > gib(free_gib));
}

/* ---- G5, G9: where nothing is decided ---- */

static void passed(const char *words, const char *reason) {
    const bt_guard_decision *d = decide(words, 4);
    if (d->kind != BT_GUARD_PASSED || !strstr(d->reason, reason))
        fail_msg("%s: %s '%s', expected '%s'", words, bt_guard_kind_name(d->kind), d->reason, reason);
    assert_int_equal(g.rewrite.n_edits, 0);
}

static void g5_fail_open(void **state) {
    (void)state;
    passed("llama-server -m x.gguf -c 32768", "no number of layers");
    passed("llama-server -m x.gguf -ngl auto -c 32768", "no number of layers");
    passed("llama-server -m /models/flux.safetensors -ngl 10", ".gguf"); /* T6 */
    passed("llama-server -ngl 99 -c 32768", "without a model");
    passed("llama-server -m x.gguf -ngl many", "refuse");
    passed("llama-server -m x.gguf -ngl 99 --override-kv a=int:1", "--override-kv");
    passed("llama-server -m x.gguf -ngl 99 -dev Vulkan1,Vulkan0", "--device"); /* T13 */
    passed("llama-server -m x.gguf -ngl 99 -ot 'blk(?=a)=CPU'", "cannot be followed");
    passed("llama-server -m x.gguf -ngl 99 -ot 'ffn=Vulkan7'", "--override-tensor");
    passed("llama-server -m x.gguf -ngl 99 --rpc there:1", "--rpc");
    passed("llama-bench -m x.gguf -ngl 99", "none whose memory");
    g.ask.price.facts = &mixture.facts;
    passed("llama-server -m x.gguf -ngl 99 -ncmoe 3 -ot 'exps=Vulkan0'", "to a device by name");
    g.ask.price.facts = &dense.facts;
    holds("llama-server -m X.GGUF -ngl 99 -c 4096", 14, BT_GUARD_UNCHANGED, "-m X.GGUF -ngl 99 -c 4096");
}

static void g5_nothing_is_known(void **state) {
    (void)state;
    kit_device(&g, "Vulkan0", 0)->pool.state = BT_READING_FAILED;
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_PASSED);
    assert_non_null(strstr(g.decision.reason, "does not say"));
    g.devices[0].target_bytes = (bt_known){true, gib(14)}; /* but a size was named */
    assert_int_equal(kit_decide(&g, "llama-server " DENSE)->kind, BT_GUARD_TRIMMED);
    g.ask.price.n_devices = 0; /* T5 */
    assert_int_equal(kit_decide(&g, "llama-server -m x.gguf -ngl 99 --n-cpu-moe 12")->kind, BT_GUARD_PASSED);
    g.ask.price.facts = NULL;
    g.ask.facts_reason = "the file is cut short";
    passed("llama-server " DENSE, "cut short");
    dense.facts.kv_known = false;
    (void)snprintf(dense.facts.kv_reason, sizeof dense.facts.kv_reason, "nobody knows this cache");
    g.ask.price.facts = &dense.facts;
    passed("llama-server " DENSE, "nobody knows");
}

static void g5_rows_over_devices(void **state) {
    (void)state;
    kit_device(&g, "CUDA0", gib(4));
    kit_device(&g, "CUDA1", gib(4));
    assert_int_equal(kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -sm row -ts 1,1")->kind, BT_GUARD_PASSED);
    assert_int_equal(kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -sm tensor")->kind, BT_GUARD_PASSED);
}

static void g9_fit_target(void **state) {
    (void)state;
    g.ask.settings.fit_target = true;
    g.ask.settings.target_bytes.value = gib(10);
    const bt_guard_decision *d = decide("llama-server -m x.gguf", 14);
    assert_int_equal(d->kind, BT_GUARD_PASSED);
    assert_string_equal(g.text, "-m x.gguf --fit-target 4096");
    decide("llama-server -m x.gguf -fitt 512", 14);
    assert_string_equal(g.text, "-m x.gguf -fitt 4096");
    decide("llama-server -m x.gguf -fitt 8000", 14); /* it leaves more already */
    assert_int_equal(g.rewrite.n_edits, 0);
    decide("llama-server -m x.gguf", 10.5); /* llama.cpp leaves 1024 MiB of its own */
    assert_int_equal(g.rewrite.n_edits, 0);
    decide("llama-server -m x.gguf --fit off", 14);
    assert_int_equal(g.rewrite.n_edits, 0);
    g.ask.settings.target_bytes.known = false;
    g.ask.price.n_devices = 0;
    kit_device(&g, "CUDA0", gib(14))->target_bytes = (bt_known){true, gib(8)};
    kit_device(&g, "CUDA1", gib(10));
    kit_decide(&g, "llama-server -m x.gguf");
    assert_string_equal(g.text, "-m x.gguf --fit-target 6144,1024");
}

/* "all", 999 and 99 are the same, and are not touched where they fit (G9, section 7). */
static void g9_all_layers(void **state) {
    (void)state;
    holds("llama-server -m x.gguf -ngl all -c 4096", 14, BT_GUARD_UNCHANGED, "-m x.gguf -ngl all -c 4096");
    holds("llama-server -m x.gguf -ngl 999 -c 4096", 14, BT_GUARD_UNCHANGED, "-m x.gguf -ngl 999 -c 4096");
    holds("llama-server -m x.gguf -ngl all -c 4096", 10, BT_GUARD_OFFLOADED, "-m x.gguf -ngl 26 -c 4096");
    holds("llama-server -m x.gguf --gpu-layers=999 -c 4096", 10, BT_GUARD_OFFLOADED,
          "-m x.gguf --gpu-layers=26 -c 4096");
    holds("llama-server -m x.gguf -ngl 5 -ngl 99 -c 4096", 10, BT_GUARD_OFFLOADED,
          "-m x.gguf -ngl 5 -ngl 26 -c 4096"); /* the last one counts */
}

/* G21: no context stands there. llama.cpp shrinks it down to --fit-ctx, or takes what the model was trained with. */
static void g21_no_context(void **state) {
    (void)state;
    decide("llama-server -m x.gguf -ngl 99 -np 1", 14);
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
    assert_int_equal(g.decision.before.n_ctx, 4096);
    decide("llama-server -m x.gguf -ngl 99 -np 1 --fit off", 14);
    assert_int_equal(g.decision.before.n_ctx, 131072);
    assert_int_equal(g.decision.kind, BT_GUARD_OFFLOADED); /* 16 GiB of cache, and no context to be trimmed */
    assert_false(g.decision.changes_ctx);
    decide("llama-server -m x.gguf -ngl 99 -np 1 -c 0", 16);
    assert_int_equal(g.decision.before.n_ctx, 131072);
    assert_false(g.decision.changes_ctx);
}

/* Nothing on devices: nothing to be refused for. */
static void nothing_on_devices(void **state) {
    (void)state;
    holds("llama-server -m x.gguf -ngl 0 -c 4096", 0.01, BT_GUARD_UNCHANGED, "-m x.gguf -ngl 0 -c 4096");
    holds("llama-server -m x.gguf -ngl 99 -c 4096 -dev none", 0.01, BT_GUARD_UNCHANGED,
          "-m x.gguf -ngl 99 -c 4096 -dev none");
}

/* ---- 2.9, G11: several devices ---- */

static void t12_shares(void **state) {
    (void)state;
    static const uint64_t gib_free[] = {1 * KIT_GIB, 15 * KIT_GIB};
    const uint64_t extra = gib(0.4), fixed[] = {extra, 5 * KIT_GIB};
    double shares[2];
    assert_int_equal(bt_guard_main(gib_free, 2), 1);
    assert_true(bt_guard_shares(gib_free, fixed, 2, shares));
    assert_float_equal(shares[0], 0.06, 1e-9);
    assert_float_equal(shares[1], 0.94, 1e-9);
}

static void t13_shares(void **state) {
    (void)state;
    static const uint64_t gib_free[] = {11 * KIT_GIB, 15 * KIT_GIB}, none[2] = {0};
    const uint64_t extra = gib(0.4), fixed[] = {extra, 2 * KIT_GIB};
    double shares[2];
    assert_true(bt_guard_shares(gib_free, fixed, 2, shares));
    assert_float_equal(shares[0], 0.45, 1e-9);
    assert_float_equal(shares[1], 0.55, 1e-9);
    assert_false(bt_guard_shares(none, fixed, 2, shares)); /* nothing is left: unchanged */
}

static void t12_retuned(void **state) {
    (void)state;
    kit_device(&g, "Vulkan0", gib(1));
    kit_device(&g, "Vulkan1", gib(15));
    const bt_guard_decision *d =
        kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm layer --main-gpu 0 --tensor-split 0.5,0.5");
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_string_equal(g.text, "-m x.gguf -ngl 99 -c 4096 -np 1 -sm layer --main-gpu 1 --tensor-split 0.05,0.95");
    assert_true(d->price_after.devices[0].total_bytes <= gib(1));
    assert_true(d->price_after.devices[1].total_bytes <= gib(15));
    assert_false(d->changes_ctx || d->changes_gpu_layers);
    /* both have room: the shares stay, however uneven */
    g.devices[0].pool.free_bytes = gib(8);
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ts 0.5,0.5");
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
    /* none stand there: none are added, llama.cpp deals out by what is free */
    g.devices[0].pool.free_bytes = gib(2);
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
    assert_int_equal(g.decision.price_after.devices[0].n_blocks, 4); /* 33 layers x 2 / 17, rounded up */
    /* which forgets that a graph has to fit as well: three layers of 368 MiB in 1 GiB. Fewer layers do. */
    g.devices[0].pool.free_bytes = gib(1);
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1");
    assert_string_equal(g.text, "-m x.gguf -ngl 32 -c 4096 -np 1");
    assert_int_equal(g.decision.price_after.devices[0].n_blocks, 2);
}

/* Four devices, the outer ones in use: the main one keeps the number that the program gives it. */
static void t13_positions(void **state) {
    (void)state;
    kit_device(&g, "CUDA0", gib(11));
    kit_device(&g, "CUDA1", 0);
    kit_device(&g, "CUDA2", 0);
    kit_device(&g, "CUDA3", gib(15));
    g.devices[1].pool.free_bytes = g.devices[2].pool.free_bytes = gib(0.5); /* its context alone */
    const bt_guard_decision *d = kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -mg 0 -ts 1,1,1,1");
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_int_equal(d->after.main_gpu, 3);
    assert_int_equal(d->price_after.devices[1].n_blocks, 0);
    assert_int_equal(d->price_after.devices[2].n_blocks, 0);
    /* of a list of its own, the place in that list */
    d = kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -dev CUDA3,CUDA0 -mg 1 -ts 1,9");
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_int_equal(d->after.main_gpu, 0);
    assert_string_equal(d->price_after.devices[0].name, "CUDA3");
}

/* The whole model on one card: another card. */
static void split_none(void **state) {
    (void)state;
    kit_device(&g, "Vulkan0", gib(2));
    kit_device(&g, "Vulkan1", gib(14));
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 0");
    assert_string_equal(g.text, "-m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 1");
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm none");
    assert_int_equal(g.decision.kind, BT_GUARD_REFUSED); /* no -mg stands there */
}

/* What is free is a snapshot, of which a desktop takes some later: what a target holds back of it no plan counts on. */
static void g14_not_all_of_the_snapshot(void **state) {
    (void)state;
    static const char words[] = "llama-server -m x.gguf -ngl 99 -c 32768 -np 1";
    uint32_t n_less = 0, n_held = 0;
    g.ask.settings.min_gpu_fraction = -1;
    for (double free_gib = 4; free_gib <= 20; free_gib += 0.5) {
        g.ask.settings.target_bytes.value = gib(free_gib);
        uint64_t all_bytes = decide(words, free_gib)->price_after.device_bytes;
        g.ask.settings.target_bytes.value = gib(free_gib - 3);
        const bt_guard_decision *d = decide(words, free_gib);
        if (d->over_target) continue; /* nothing of it is on devices, and that is said */
        assert_true(d->price_after.device_bytes <= gib(free_gib - 3));
        n_held++;
        n_less += d->price_after.device_bytes < all_bytes;
    }
    assert_true(n_held > 25 && n_less > 15);
}

/* What there is, is the sum over what the program may use; the whole of a model on one device is judged by that one,
 * and goes to the one with the most free, which need not be the largest. */
static void g15_the_sum_and_the_one(void **state) {
    (void)state;
    kit_device(&g, "Vulkan0", gib(8));
    kit_device(&g, "Vulkan1", gib(9));
    const bt_guard_decision *d = kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ts 1,1");
    assert_int_equal(d->kind, BT_GUARD_UNCHANGED);
    assert_int_equal(d->free_bytes.value, gib(17));
    d = kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -dev Vulkan1");
    assert_int_equal(d->free_bytes.value, gib(9));
    assert_true(d->kind == BT_GUARD_OFFLOADED && d->price_after.device_bytes <= gib(9));
    /* no one of them holds it, whatever they have together */
    d = kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 1");
    assert_int_equal(d->kind, BT_GUARD_OFFLOADED);
    assert_true(d->price_after.devices[1].total_bytes <= gib(9));
    assert_int_equal(d->price_after.devices[0].n_blocks, 0);
    /* of three the one with the most free, not the largest */
    kit_device(&g, "Vulkan2", gib(14))->pool.total_bytes = gib(15);
    g.devices[0].pool.total_bytes = gib(48);
    kit_decide(&g, "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 0");
    assert_string_equal(g.text, "-m x.gguf -ngl 99 -c 4096 -np 1 -sm none -mg 2");
}

/* Eight cards, one of them busy: as given, moved, and with a budget in all. */
static void eight_devices(void **state) {
    (void)state;
    char name[16];
    for (uint32_t i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof name, "CUDA%u", i);
        kit_device(&g, name, gib(3));
    }
    const char *words = "llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -ts 1,1,1,1,1,1,1,1";
    const bt_guard_decision *d = kit_decide(&g, words);
    assert_int_equal(d->kind, BT_GUARD_UNCHANGED);
    static const uint32_t blocks[] = {5, 4, 4, 4, 4, 4, 4, 3}; /* 33 layers, the last is the head */
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(d->price_after.devices[i].n_blocks, blocks[i]);
    assert_true(d->price_after.devices[7].head);
    g.devices[2].pool.free_bytes = gib(1.4);
    d = kit_decide(&g, words);
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_true(d->changes_shares && !d->changes_gpu_layers);
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(d->price_after.devices[i].total_bytes <= g.devices[i].pool.free_bytes);
        n_blocks += d->price_after.devices[i].n_blocks;
    }
    assert_int_equal(n_blocks, 32);
    g.ask.settings.target_bytes.value = gib(14); /* eight contexts and graphs are 5 of it */
    d = kit_decide(&g, words);
    assert_int_equal(d->kind, BT_GUARD_OFFLOADED);
    assert_true(d->price_after.device_bytes <= gib(14));
}

/* ---- the host ---- */

static void host_caches_are_trimmed(void **state) {
    (void)state;
    g.ask.settings.host_free_bytes = (bt_known){true, 4 * KIT_GIB};
    holds("llama-server -m x.gguf -ngl 99 -c 4096 -np 1", 14, BT_GUARD_TRIMMED,
          "-m x.gguf -ngl 99 -c 4096 -np 1 --cache-ram 4007");
    assert_true(g.decision.price_after.host_firm_bytes <= 4 * KIT_GIB);
    assert_true(g.decision.price_after.host_firm_bytes > 4 * KIT_GIB - 2 * KIT_MIB);
    holds("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -cram 100", 14, BT_GUARD_UNCHANGED,
          "-m x.gguf -ngl 99 -c 4096 -np 1 -cram 100");
    holds("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -cram -1", 14, BT_GUARD_UNCHANGED,
          "-m x.gguf -ngl 99 -c 4096 -np 1 -cram -1"); /* nobody set a budget for the host */
    g.ask.settings.host_is_budget = true;
    decide("llama-server -m x.gguf -ngl 99 -c 4096 -np 1 -cram -1", 14);
    assert_int_equal(g.decision.kind, BT_GUARD_TRIMMED);
    assert_int_equal(g.decision.after.cache_ram_mib, 4007 - 256); /* the mapped table stays, too */
}

/* Of a program that fits itself to its devices only what grows on the host is lowered, only under a budget of it, and
 * only where it does not fit as it is typed: to what there is with the whole model on the host. */
static void host_caches_of_what_fits_itself(void **state) {
    (void)state;
    char want[128];
    g.ask.settings.host_free_bytes = (bt_known){true, 18 * KIT_GIB};
    passed("llama-server -m x.gguf -c 4096 -np 1 -cram 20000", "no number of layers");
    g.ask.settings.host_is_budget = true;
    passed("llama-server -m x.gguf -c 4096 -np 1 -cram 12000", "no number of layers");
    decide("llama-server -m x.gguf -ngl 0 -c 4096 -np 1 -cram 20000", 14);
    int32_t left_mib = g.decision.after.cache_ram_mib;
    assert_in_range(left_mib, 1024, 11000);
    (void)snprintf(want, sizeof want, "-m x.gguf -c 4096 -np 1 -cram %d", (int)left_mib);
    holds("llama-server -m x.gguf -c 4096 -np 1 -cram 20000", 14, BT_GUARD_TRIMMED, want);
    assert_non_null(strstr(g.decision.reason, "fits itself"));
    g.ask.settings.host_free_bytes.value = KIT_GIB;
    holds("llama-server -m x.gguf -c 4096 -np 1", 14, BT_GUARD_TRIMMED, "-m x.gguf -c 4096 -np 1 --cache-ram 0");
    passed("llama-server -m x.gguf -c 4096 -np 1 --cache-ram 0", "no number of layers");
}

/* Windows in every block: 1536 cells of 4 KiB in 32 blocks, 192 MiB for each of 32 checkpoints. */
static void host_checkpoints_are_trimmed(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 32; b++)
        dense.kv[b].window = 1024;
    g.ask.settings.host_free_bytes = (bt_known){true, 4 * KIT_GIB};
    const bt_guard_decision *d = decide("llama-server -m x.gguf -ngl 99 -c 8192 -np 1", 14);
    assert_int_equal(d->price_before.host.bytes[BT_GUARD_CHECKPOINTS], 32 * 192 * KIT_MIB);
    assert_int_equal(d->kind, BT_GUARD_TRIMMED);
    assert_true(d->changes_checkpoints && d->changes_cache_ram);
    assert_int_equal(d->after.checkpoints, 20);
    assert_true(d->price_after.host_firm_bytes <= 4 * KIT_GIB);
    decide("llama-server -m x.gguf -ngl 99 -c 8192 -np 1 --swa-full", 14);
    assert_int_equal(g.decision.price_before.host.bytes[BT_GUARD_CHECKPOINTS], 0);
}

/* What is moved must have room there, mapped or not; what stands in the command line only if it is not mapped. */
static void host_is_a_pool(void **state) {
    (void)state;
    g.ask.settings.host_free_bytes = (bt_known){true, 3 * KIT_GIB};
    refused("llama-server " DENSE " -cram 0", 10, "insufficient_ram");
    g.ask.settings.host_free_bytes.value = 6 * KIT_GIB;
    decide("llama-server " DENSE " -cram 0", 10);
    assert_int_equal(g.decision.kind, BT_GUARD_OFFLOADED);
    g.ask.settings.host_free_bytes.value = 3 * KIT_GIB;
    decide("llama-server -m x.gguf -ngl 16 -c 4096 -np 1 -cram 0", 10);
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
    assert_non_null(strstr(g.decision.reason, "read again"));
    refused("llama-server -m x.gguf -ngl 16 -c 4096 -np 1 -cram 0 --load-mode none", 10, "insufficient_ram");
    /* a cache in the host's memory is what a trim can lower */
    g.ask.settings.host_free_bytes.value = 2200 * KIT_MIB;
    holds("llama-server " DENSE " -nkvo -cram 0", 14, BT_GUARD_TRIMMED,
          "-m x.gguf -ngl 99 -c 28672 -ctk q8_0 -ctv q8_0 -np 1 -nkvo -cram 0");
}

/* User case 29: half of the host's memory is what drivers pin at most. */
static void case_29_pins_much(void **state) {
    (void)state;
    static const char none[] = "llama-server -m x.gguf -ngl 8 -c 4096 -np 1 -cram 0 --load-mode none";
    decide(none, 24);
    const uint64_t pinned = g.decision.price_after.pinned_bytes;
    assert_in_range(pinned, 9000 * KIT_MIB, 10000 * KIT_MIB); /* 25 of 32 blocks, and the table */
    assert_false(g.decision.pins_much);                       /* of a host that nobody knows */
    g.ask.settings.host_total_bytes = (bt_known){true, 2 * pinned};
    decide(none, 24);
    assert_false(g.decision.pins_much);
    g.ask.settings.host_total_bytes.value--;
    decide(none, 24);
    assert_true(g.decision.pins_much);
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
    decide("llama-server -m x.gguf -ngl 8 -c 4096 -np 1 -cram 0 --load-mode none --no-host", 24);
    assert_false(g.decision.pins_much);
}

/* A device that is part of the host's memory is counted there too. */
static void host_shared(void **state) {
    (void)state;
    kit_device(&g, "Vulkan0", gib(20))->pool.shares_host = true;
    g.ask.settings.host_free_bytes = (bt_known){true, gib(20)};
    assert_int_equal(kit_decide(&g, "llama-server " DENSE " -cram 0")->kind, BT_GUARD_UNCHANGED);
    g.ask.settings.host_free_bytes = (bt_known){true, gib(13.9)};
    assert_int_equal(kit_decide(&g, "llama-server " DENSE " -cram 0")->kind, BT_GUARD_TRIMMED);
}

/* ---- refusals say what would do ---- */

static void refusal_suggests(void **state) {
    (void)state;
    refused("llama-server -m x.gguf -ngl 99 -c 131072 -np 1 --fit off", 13, "gpu_floor");
    const bt_guard_decision d = g.decision;
    assert_int_equal(d.n_changes, 2);
    assert_string_equal(d.changes[0].flag, "-c");
    assert_string_equal(d.changes[0].value, "8192");
    assert_string_equal(d.changes[1].flag, "-ngl");
    /* each of them is not refused */
    for (uint32_t i = 0; i < d.n_changes; i++) {
        char words[256];
        (void)snprintf(words, sizeof words, "llama-server -m x.gguf -ngl 99 -c 131072 -np 1 --fit off %s %s",
                       d.changes[i].flag, d.changes[i].value);
        assert_int_equal(decide(words, 13)->kind, BT_GUARD_UNCHANGED);
        assert_int_equal(g.decision.price_after.device_bytes, d.changes[i].need_bytes);
    }
}

/* Of a mixture first experts, then layers as well. */
static void refusal_suggests_both(void **state) {
    (void)state;
    g.ask.price.facts = &mixture.facts;
    refused("llama-server " MIXTURE, 4, "insufficient_vram");
    const bt_change *last = &g.decision.changes[g.decision.n_changes - 1];
    assert_string_equal(last->flag, "--n-cpu-moe");
    assert_string_equal(last->value, "48 -ngl 40");
    decide("llama-server " MIXTURE " --n-cpu-moe 48 -ngl 40", 4);
    assert_int_equal(g.decision.kind, BT_GUARD_UNCHANGED);
}

static void refusal_suggests_types(void **state) {
    (void)state;
    g.ask.settings.min_gpu_fraction = 1;
    refused("llama-server -m x.gguf -ngl 99 -c 32768 -np 4", 14.1, "gpu_floor");
    bool found = false;
    for (uint32_t i = 0; i < g.decision.n_changes; i++)
        found = found || strcmp(g.decision.changes[i].value, "q8_0 -ctv q8_0") == 0;
    assert_true(found);
}

/* Only what is over the target but within what is free: the least is started, and it is said. */
static void over_target(void **state) {
    (void)state;
    g.ask.settings.min_gpu_fraction = -1;
    g.ask.settings.target_bytes.value = 100 * KIT_MIB;
    const bt_guard_decision *d = decide("llama-server " DENSE, 8);
    assert_int_equal(d->kind, BT_GUARD_OFFLOADED);
    assert_true(d->over_target);
    assert_int_equal(d->after.n_gpu_layers, 0);
    assert_non_null(strstr(d->reason, "over the target"));
}

/* An arena that is too small is a failure, not a decision; nothing of the expressions is lost. */
static void no_memory(void **state) {
    (void)state;
    bt_error err = {0};
    kit_device(&g, "Vulkan0", gib(10));
    kit_read(&g, "llama-server -m x.gguf -ngl 99 -c 131072 --fit off -ot 'blk.1=CPU'");
    uint32_t n_failed = 0;
    for (uint64_t max_bytes = 16384; max_bytes < UINT64_C(1) << 20; max_bytes += 16384) {
        bt_arena *small = bt_arena_open(max_bytes, 4096);
        assert_non_null(small);
        g.ask.price.arena = small;
        bt_status status = bt_guard_place(&g.ask, &g.decision, &err);
        if (status != BT_OK) assert_int_equal(status, BT_E_NOMEM);
        n_failed += status != BT_OK;
        bt_arena_close(small);
    }
    assert_in_range(n_failed, 1, 40);
    g.ask.price.arena = g.arena;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(derived_dense, start, stop),
        cmocka_unit_test_setup_teardown(derived_dense_without_floor, start, stop),
        cmocka_unit_test_setup_teardown(derived_mixture, start, stop),
        cmocka_unit_test_setup_teardown(to_the_byte, start, stop),
        cmocka_unit_test_setup_teardown(t10_trim_before_layers, start, stop),
        cmocka_unit_test_setup_teardown(g5_fail_open, start, stop),
        cmocka_unit_test_setup_teardown(g5_nothing_is_known, start, stop),
        cmocka_unit_test_setup_teardown(g5_rows_over_devices, start, stop),
        cmocka_unit_test_setup_teardown(g9_fit_target, start, stop),
        cmocka_unit_test_setup_teardown(g9_all_layers, start, stop),
        cmocka_unit_test_setup_teardown(g21_no_context, start, stop),
        cmocka_unit_test_setup_teardown(nothing_on_devices, start, stop),
        cmocka_unit_test(t12_shares),
        cmocka_unit_test(t13_shares),
        cmocka_unit_test_setup_teardown(t12_retuned, start, stop),
        cmocka_unit_test_setup_teardown(t13_positions, start, stop),
        cmocka_unit_test_setup_teardown(split_none, start, stop),
        cmocka_unit_test_setup_teardown(eight_devices, start, stop),
        cmocka_unit_test_setup_teardown(host_caches_are_trimmed, start, stop),
        cmocka_unit_test_setup_teardown(host_caches_of_what_fits_itself, start, stop),
        cmocka_unit_test_setup_teardown(host_checkpoints_are_trimmed, start, stop),
        cmocka_unit_test_setup_teardown(host_is_a_pool, start, stop),
        cmocka_unit_test_setup_teardown(case_29_pins_much, start, stop),
        cmocka_unit_test_setup_teardown(host_shared, start, stop),
        cmocka_unit_test_setup_teardown(refusal_suggests, start, stop),
        cmocka_unit_test_setup_teardown(refusal_suggests_both, start, stop),
        cmocka_unit_test_setup_teardown(refusal_suggests_types, start, stop),
        cmocka_unit_test_setup_teardown(over_target, start, stop),
        cmocka_unit_test_setup_teardown(g14_not_all_of_the_snapshot, start, stop),
        cmocka_unit_test_setup_teardown(g15_the_sum_and_the_one, start, stop),
        cmocka_unit_test_setup_teardown(no_memory, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
