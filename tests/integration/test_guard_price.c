/* SPDX-License-Identifier: MIT
 * test_guard_price.c: what a command line is priced at, against what llama.cpp itself says: llama-fit-params with
 * --fit-print, on fake cards. It prints whole MiB of each device: weights, caches, graph. Weights and caches must be
 * the same but for the padding that is priced; a graph may be dearer by a quarter (of a mixture that is on both sides,
 * where logits of every token hide what is copied, by half) and never cheaper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard_kit.h"

#define CARD_BYTES (2 * KIT_GIB)

typedef struct said {
    uint64_t weights, caches, graph; /* MiB, rounded down */
} said;

static kit_guard g;
static uint32_t n_checked;

static void devices(uint32_t n) {
    char name[16];
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "FAKE%u", i);
        kit_device(&g, name, CARD_BYTES);
    }
}

/* false: the program is not there. */
static bool ask_llama(const char *words, uint32_t n, said ret[BT_POOL_MAX]) {
    const char *folder = getenv("BT_LLAMA_BIN"), *card = getenv("BT_FAKE_DEVICE");
    char command[2048], line_text[256];
    if (!folder || !card) return false;
    (void)snprintf(command, sizeof command, "%s/llama-fit-params", folder);
    FILE *exists = fopen(command, "rb");
    if (!exists) return false;
    (void)fclose(exists);
    (void)snprintf(command, sizeof command,
                   "env -i GGML_BACKEND_PATH='%s' FAKE_OFFLOAD=1 FAKE_DEVICES=FAKE0=2G%s '%s/'%s -fitp on 2>/dev/null",
                   card, n > 1 ? ",FAKE1=2G" : "", folder, words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    uint32_t n_read = 0;
    while (fgets(line_text, sizeof line_text, pipe)) {
        char name[32];
        unsigned long long w, k, c;
        if (sscanf(line_text, "%31s %llu %llu %llu", name, &w, &k, &c) == 4 && n_read <= n)
            ret[n_read++] = (said){w, k, c};
    }
    assert_int_equal(pclose(pipe), 0);
    if (n_read != n + 1) fail_msg("%s: %u devices", command, n_read);
    return true;
}

static void same(const char *words, const char *what, uint64_t bytes, uint64_t mib, uint64_t slack_bytes) {
    if (bytes / KIT_MIB < mib || bytes >= (mib + 1) * KIT_MIB + slack_bytes)
        fail_msg("%s: %s priced at %.2f MiB, llama.cpp has %llu", words, what, (double)bytes / (double)KIT_MIB,
                 (unsigned long long)mib);
}

static void check_within(const char *model, uint32_t n, uint32_t parts, const char *more) {
    const char *source = getenv("BT_SOURCE");
    char path[512], words[1024];
    said said_of[BT_POOL_MAX] = {{0}};
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    bt_facts *facts = NULL;
    bt_placement placement;
    bt_guard_price price;
    (void)snprintf(path, sizeof path, "%s/build/models/%s", source ? source : ".", model);
    if (bt_facts_open(path, &facts, NULL) != BT_OK) return;
    (void)snprintf(words, sizeof words, "llama-fit-params -m %s -dev %s %s", path, n > 1 ? "FAKE0,FAKE1" : "FAKE0",
                   more);
    if (ask_llama(words, n, said_of)) {
        kit_guard_open(&g, facts);
        devices(n);
        kit_read(&g, words);
        assert_int_equal(bt_guard_prices_make(&g.ask.price, &prices, &reason, NULL), BT_OK);
        assert_null(reason);
        bt_guard_placement(prices, &placement);
        bt_guard_prices_at(prices, &placement, &price);
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t *bytes = price.devices[i].bytes;
            same(words, "weights", bytes[BT_GUARD_WEIGHTS], said_of[i].weights, UINT64_C(1024) * facts->n_tensors);
            same(words, "caches", bytes[BT_GUARD_KV], said_of[i].caches, 0);
            /* fake cards take no batches one after another, real ones might: copies of inputs are priced */
            uint64_t mask = n > 1 ? 3 * UINT64_C(512) * (2 * placement.n_ctx + 4 * facts->n_embd) : 0;
            same(words, "graph", bytes[BT_GUARD_COMPUTE], said_of[i].graph,
                 said_of[i].graph * KIT_MIB / parts + 2 * KIT_MIB + mask);
        }
        same(words, "caches of the host", price.host.bytes[BT_GUARD_KV], said_of[n].caches, 0);
        kit_guard_close(&g);
        n_checked++;
    }
    bt_facts_close(facts);
}

static void check(const char *model, uint32_t n, const char *more) {
    check_within(model, n, 4, more);
}

static void dense(void **state) {
    (void)state;
    static const char *const words[] = {
        "-c 4096 -ngl 99",
        "-c 4096 -ngl 31",
        "-c 4096 -ngl 30",
        "-c 4096 -ngl 20",
        "-c 4096 -ngl 1",
        "-c 4096 -ngl 0",
        "-c 4096 -ngl 99 -ctk q8_0 -ctv q8_0",
        "-c 4096 -ngl 99 -nkvo",
        "-c 4096 -ngl 20 -ub 128",
        "-c 4096 -ngl 99 -ot ffn=CPU",
        "-c 4096 -ngl 99 -ot 'blk\\.1\\d\\.attn=CPU'",
        "-c 4096 -ngl 99 -ncffn 7",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        check("smollm2-135m-instruct-q4_1.gguf", 1, words[i]);
}

static void two_devices(void **state) {
    (void)state;
    check("smollm2-135m-instruct-q4_1.gguf", 2, "-c 4096 -ngl 99 -ts 3,1");
    check("smollm2-135m-instruct-q4_1.gguf", 2, "-c 4096 -ngl 20");
    check("smollm2-135m-instruct-q4_1.gguf", 2, "-c 4096 -ngl 99 -ts 0,1");
    check("smollm2-135m-instruct-q4_1.gguf", 2, "-c 4096 -ngl 99 -ts 0.05,0.95");
}

static void windows(void **state) {
    (void)state;
    check("gemma-3-270m-q4_k_m.gguf", 1, "-c 8192 -ngl 99");
    check("gemma-3-270m-q4_k_m.gguf", 1, "-c 8192 -ngl 99 --swa-full");
    check("gemma-3-270m-q4_k_m.gguf", 1, "-c 8192 -ngl 10");
    check("gemma-3-270m-q4_k_m.gguf", 1, "-c 8192 -ngl 99 -np 4");
}

static void mixture(void **state) {
    (void)state;
    check("random-moe.gguf", 1, "-c 4096 -ngl 99");
    check("random-moe.gguf", 1, "-c 4096 -ngl 99 -ncmoe 4");
    check("random-moe.gguf", 1, "-c 4096 -ngl 99 -cmoe");
    check_within("random-moe.gguf", 1, 2, "-c 4096 -ngl 8");
    check_within("random-moe.gguf", 1, 2, "-c 4096 -ngl 8 -ncmoe 12");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(windows),
        cmocka_unit_test(mixture),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0 && n_checked == 0) {
        (void)printf("skipped: neither a model nor llama-fit-params is there\n");
        return 77;
    }
    return failed;
}
