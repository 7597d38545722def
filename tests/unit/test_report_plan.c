/* SPDX-License-Identifier: MIT
 * test_report_plan.c: plan -> JSON -> plan is the identity; the reader names what is wrong; both text layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/heap.h"
#include "report/report.h"
#include "report/text.h"
#include "report_fixture.h"

#include <jansson.h>
#include <stdlib.h>

static report_fixture fixture;
static bt_arena *arena;

static int start(void **state) {
    (void)state;
    fixture_make(&fixture);
    arena = bt_arena_open(1u << 20, 1u << 12);
    return arena ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    bt_arena_close(arena);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static char *to_json(const bt_plan *plan) {
    char *json = NULL;
    bt_error err = {0};
    assert_int_equal(bt_report_plan_json(plan, &fixture.facts, &fixture.machine, &json, &err), BT_OK);
    assert_non_null(json);
    return json;
}

#define SAME(field)      assert_int_equal(a->field, b->field)
#define SAME_TEXT(field) assert_string_equal(a->field, b->field)
#define SAME_KNOWN(field)                                                                                              \
    do {                                                                                                               \
        SAME(field.known);                                                                                             \
        SAME(field.value);                                                                                             \
    } while (0)

static void same_wishes(const bt_wishes *a, const bt_wishes *b) {
    SAME(guest);
    SAME(kv_unified);
    SAME(swa_full);
    SAME(budget_kind);
    SAME(budget_bytes);
    SAME(force);
    SAME(n_ctx);
    SAME(allow_ctx_reduction);
    SAME(n_parallel);
    SAME(n_batch);
    SAME(n_ubatch);
    SAME(type_k);
    SAME(type_v);
    SAME(flash_attn);
    SAME(n_threads);
    SAME(n_buffers);
    SAME(stream_head);
    SAME(policy);
    SAME(io);
    SAME(rope_scaling);
    SAME(rope_scale_micro);
    SAME(yarn_orig_ctx);
    SAME(gpu_layers);
    SAME(n_gpu_layers);
    SAME(cpu_moe);
    SAME(n_cpu_moe);
    SAME(no_devices);
    SAME(n_devices);
    for (uint32_t i = 0; i < a->n_devices; i++) {
        SAME_TEXT(devices[i].name);
        SAME_KNOWN(devices[i].budget_bytes);
    }
    SAME(n_tensor_splits);
    for (uint32_t i = 0; i < a->n_tensor_splits; i++)
        SAME(tensor_split_milli[i]);
    SAME(main_gpu);
    SAME(require_device);
    SAME_KNOWN(gpu_mem_bytes);
}

static void same_offload(const bt_offload *a, const bt_offload *b) {
    assert_int_equal(a == NULL, b == NULL);
    if (!a || !b) return;
    SAME_TEXT(source);
    assert_memory_equal(&a->split, &b->split, sizeof a->split);
    for (uint32_t i = 0; i < a->split.n_devices; i++) {
        SAME_TEXT(devices[i].name);
        SAME(devices[i].kind);
        SAME(devices[i].state);
        SAME_TEXT(devices[i].reason);
        SAME(devices[i].shares_host);
        SAME(devices[i].n_blocks);
        SAME(devices[i].weights_bytes);
        SAME(devices[i].kv_bytes);
        SAME(devices[i].compute_bytes);
        SAME(devices[i].context_bytes);
        SAME(devices[i].source);
        SAME_KNOWN(devices[i].budget_bytes);
        SAME_TEXT(devices[i].budget_source);
    }
}

static void same_refusal(const bt_refusal *a, const bt_refusal *b) {
    SAME_TEXT(code);
    SAME_TEXT(message);
    SAME(need_bytes);
    SAME(have_bytes);
    SAME(n_changes);
    for (uint32_t i = 0; i < a->n_changes; i++) {
        SAME_TEXT(changes[i].flag);
        SAME_TEXT(changes[i].value);
        SAME(changes[i].need_bytes);
    }
}

static void same_companion(const bt_companion *a, const bt_companion *b) {
    SAME_TEXT(file);
    SAME(weight_bytes);
    SAME(file_bytes);
    SAME_TEXT(header_sha256);
}

static void same_plan(const bt_plan *a, const bt_plan *b) {
    SAME(verdict);
    SAME(forced);
    SAME(exact);
    SAME(priced_by_dry_run);
    same_wishes(&a->wishes, &b->wishes);
    SAME(n_ctx_requested);
    SAME(n_ctx);
    SAME(n_ctx_train);
    SAME_TEXT(ctx_reason);
    SAME(n_batch);
    SAME(n_ubatch);
    SAME(n_parallel);
    SAME(n_threads);
    SAME(type_k);
    SAME(type_v);
    SAME(head_resident);
    SAME(n_slots);
    SAME(slot_bytes);
    SAME(n_units);
    assert_int_equal(a->place == NULL, b->place == NULL);
    for (uint32_t i = 0; a->place && i < a->n_units; i++) {
        SAME(place[i]);
    }
    SAME(n_pinned);
    SAME(n_streamed);
    SAME(pinned_bytes);
    SAME(layouts.n_replaced);
    SAME(layouts.replaced_bytes);
    SAME(layouts.n_second);
    SAME(layouts.second_bytes);
    SAME(read_bytes_per_pass);
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        SAME(ledger.bytes[i]);
        SAME(ledger.source[i]);
    }
    SAME(page_cache);
    SAME(planned_bytes);
    SAME(budget_bytes);
    SAME(budget_state);
    SAME_TEXT(budget_source);
    SAME(ceiling_bytes);
    SAME_KNOWN(disk_bytes_per_s);
    SAME_KNOWN(forecast.micro_tokens_per_s);
    SAME(forecast.bound);
    for (uint32_t i = 0; i < BT_RUNG_COUNT; i++) {
        SAME(ladder[i].exists);
        SAME(ladder[i].budget_bytes);
        SAME(ladder[i].n_ctx);
        SAME_KNOWN(ladder[i].forecast.micro_tokens_per_s);
        SAME(ladder[i].forecast.bound);
    }
    same_refusal(&a->refusal, &b->refusal);
    same_companion(&a->draft, &b->draft);
    same_companion(&a->mmproj, &b->mmproj);
    same_offload(a->offload, b->offload);
}

static void check_identity(void) {
    char *json = to_json(&fixture.plan);
    bt_plan back;
    bt_error err = {0};
    memset(&back, 0xA5, sizeof back);
    bt_status status = bt_plan_from_json(json, strlen(json), arena, &back, &err);
    if (status != BT_OK) fail_msg("%s", err.text);
    same_plan(&fixture.plan, &back);
    char *again = to_json(&back); /* and nothing that is only written differs */
    assert_string_equal(json, again);
    bt_heap_free(json);
    bt_heap_free(again);
}

static void test_identity(void **state) {
    (void)state;
    check_identity();
    fixture_refuse(&fixture);
    check_identity();
}

static void test_identity_of_extremes(void **state) {
    (void)state;
    bt_plan *p = &fixture.plan;
    p->budget_bytes = UINT64_MAX;
    p->ceiling_bytes = UINT64_MAX;
    p->budget_state = BT_READING_UNLIMITED;
    p->budget_source[0] = '\0';
    p->ctx_reason[0] = '\0';
    p->n_ctx_requested = 0;
    p->n_ctx_train = 0;
    p->wishes = (bt_wishes){.budget_kind = BT_BUDGET_OFF};
    p->ledger.bytes[BT_LINE_KV] = INT64_MAX;
    p->ledger.bytes[BT_LINE_PINNED] = UINT64_MAX;
    p->planned_bytes = UINT64_MAX; /* saturated */
    p->forecast = (bt_forecast){{true, 1}, BT_BOUND_COMPUTE};
    p->disk_bytes_per_s = (bt_known){0};
    memset(p->ladder, 0, sizeof p->ladder);
    check_identity();
    p->verdict = BT_VERDICT_UNKNOWN; /* nothing placed */
    p->place = NULL;
    check_identity();
    *p = (bt_plan){0}; /* an empty plan */
    check_identity();
}

static void test_identity_of_devices(void **state) {
    (void)state;
    bt_wishes *w = &fixture.plan.wishes;
    fixture_offload(&fixture);
    check_identity();
    static const bt_layers_kind kinds[] = {BT_LAYERS_DEFAULT, BT_LAYERS_AUTO, BT_LAYERS_ALL};
    for (size_t i = 0; i < 3; i++) {
        w->gpu_layers = w->cpu_moe = kinds[i];
        w->n_gpu_layers = w->n_cpu_moe = 0;
        check_identity();
    }
    w->gpu_layers = w->cpu_moe = BT_LAYERS_COUNT; /* 0 of them is not the default */
    check_identity();
    w->n_devices = 0, w->no_devices = true;
    check_identity();
    fixture.offload.split.head = true;
    fixture.offload.devices[0].weights_bytes = UINT64_MAX;
    check_identity();
}

/* What may be in a plan's offload, and is refused by its path. */
static void test_wrong_devices(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"blocks\": 1", "\"blocks\": 0", "offload.devices[0].blocks"},
        {"\"blocks\": 1", "\"blocks\": 513", "offload.devices[0].blocks"},
        {"\"blocks\": 1", "\"blocks\": -1", "offload.devices[0].blocks"},
        {"\"kind\": \"igpu\"", "\"kind\": \"card\"", "offload.devices[0].kind"},
        {"\"priced_by\": \"dry-run\"", "\"priced_by\": \"guess\"", "offload.devices[0].priced_by"},
        {"\"kv_bytes\": 300", "\"kv_bytes\": \"a lot\"", "offload.devices[0].kv_bytes"},
        {"\"shares_host\": true", "\"shares_host\": 1", "offload.devices[0].shares_host"},
        {"\"source\": \"--gpu-layers 2\"", "\"source\": 2", "offload.source"},
        {"\"gpu_layers\": 2", "\"gpu_layers\": \"many\"", "wishes.gpu_layers"},
        {"\"gpu_layers\": 2", "\"gpu_layers\": 1.5", "wishes.gpu_layers"},
        {"\"share_milli\": 1500", "\"share_milli\": -1", "wishes.tensor_split[0].share_milli"},
        {"\"main_gpu\": 1", "\"main_gpu\": 14", "wishes.main_gpu"},
    };
    fixture_offload(&fixture);
    char *json = to_json(&fixture.plan);
    size_t n = strlen(json) + 100;
    char *wrong = malloc(n);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *within = strstr(json, cases[i].words[0] == 'o' ? "\"offload\"" : "\"wishes\"");
        const char *at = within ? strstr(within, cases[i].from) : NULL;
        if (!at || !wrong) fail_msg("no %s", cases[i].from);
        snprintf(wrong, n, "%.*s%s%s", (int)(at - json), json, cases[i].to, at + strlen(cases[i].from));
        bt_plan back;
        bt_error err = {0};
        bt_status status = bt_plan_from_json(wrong, strlen(wrong), arena, &back, &err);
        if (status != BT_E_FORMAT || !strstr(err.text, cases[i].words))
            fail_msg("%s: %d, %s", cases[i].to, status, err.text);
    }
    free(wrong);
    bt_heap_free(json);
}

/* A pool behind the host's for each device: lines sum to what is planned; what is not known is null, never 0. */
static void test_pools_of_devices(void **state) {
    (void)state;
    fixture_offload(&fixture);
    char *json = to_json(&fixture.plan);
    json_t *root = json_loads(json, 0, NULL);
    json_t *pools = json_object_get(root, "pools");
    assert_int_equal(json_array_size(pools), 3);
    for (size_t i = 1; i < 3; i++) {
        json_t *pool = json_array_get(pools, i), *lines = json_object_get(pool, "lines");
        const bt_device_plan *device = &fixture.offload.devices[i - 1];
        json_int_t sum = 0;
        assert_string_equal(json_string_value(json_object_get(pool, "name")), device->name);
        for (size_t k = 0; k < json_array_size(lines); k++)
            sum += json_integer_value(json_object_get(json_array_get(lines, k), "planned_bytes"));
        assert_int_equal(sum, bt_device_plan_bytes(device));
        assert_int_equal(json_integer_value(json_object_get(pool, "planned_bytes")), sum);
        assert_int_equal(json_is_null(json_object_get(pool, "budget_bytes")), i == 2);
        assert_int_equal(json_is_null(json_object_get(pool, "headroom_bytes")), i == 2);
    }
    json_t *first = json_array_get(pools, 1);
    assert_int_equal(json_integer_value(json_object_get(first, "headroom_bytes")), 900000000 - 4000322);
    json_decref(root);
    bt_heap_free(json);
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_report_plan_text(&fixture.plan, &fixture.facts, &text);
    assert_non_null(strstr(bt_text_str(&text), "1 on Vulkan0, 1 on CUDA0, 1 on the host; head on the host"));
    assert_non_null(strstr(bt_text_str(&text), "of the first 1 blocks"));
    assert_non_null(strstr(bt_text_str(&text), "driver says 999"));
    bt_text_done(&text);
}

/* Every rate up to 10^9 tokens/s survives the decimal and the double. */
static void test_rates_survive(void **state) {
    (void)state;
    uint64_t micro = 1;
    for (int i = 0; i < 50; i++) {
        fixture.plan.forecast.micro_tokens_per_s = (bt_known){true, micro};
        check_identity();
        micro = micro * 2 + (uint64_t)(i % 3);
        if (micro > UINT64_C(1000000000000000)) break;
    }
}

/* A wish that is open stays open; what was made of it is beside it. */
static void test_open_types(void **state) {
    (void)state;
    fixture.plan.wishes.type_k = fixture.plan.wishes.type_v = BT_TYPE_AUTO;
    char *json = to_json(&fixture.plan);
    assert_non_null(strstr(json, "\"cache_type_k\": \"auto\""));
    assert_non_null(strstr(json, "\"type_k\": \"q4_0\""));
    bt_plan read;
    bt_error err = {0};
    assert_int_equal(bt_plan_from_json(json, strlen(json), arena, &read, &err), BT_OK);
    same_plan(&fixture.plan, &read);
    bt_heap_free(json);
}

static void test_members(void **state) {
    (void)state;
    char *json = to_json(&fixture.plan);
    json_t *root = json_loads(json, 0, NULL);
    const char *verdict = NULL, *where = NULL, *unit = NULL, *build = NULL, *machine = NULL, *line = NULL, *io = NULL;
    json_int_t schema = 0, pinned = 0, partial = 0, streamed = 0, headroom = 0, token_bytes = 0, size = 0, mtime = 0;
    double rate = 0;
    assert_int_equal(json_unpack(root, "{s:s, s:i, s:{s:{s:I,s:I}, s:s, s:s}}", "verdict", &verdict, "schema", &schema,
                                 "fingerprint", "model", "size", &size, "mtime_ns", &mtime, "machine", &machine,
                                 "build", &build),
                     0);
    assert_string_equal(verdict, "streams");
    assert_int_equal(size, 20000000);
    assert_int_equal(mtime, 1700000000000000009); /* the newest shard's */
    assert_int_equal(strlen(machine), 16);
    assert_string_equal(build, "0.1.0 llama.cpp b9");
    assert_int_equal(json_unpack(root, "{s:{s:I,s:I,s:I}, s:{s:I}, s:{s:F}, s:{s:s}}", "blocks", "pinned", &pinned,
                                 "partial", &partial, "streamed", &streamed, "kv", "bytes_per_token", &token_bytes,
                                 "forecast", "tokens_per_s", &rate, "stream", "io", &io),
                     0);
    assert_int_equal(pinned, 1);
    assert_int_equal(partial, 1);
    assert_int_equal(streamed, 1);
    /* q4_0 keys: 18 bytes of 32; q8_0 values: 34 of 32; two blocks of 256 and 128 */
    assert_int_equal(token_bytes, 2 * (256 / 32 * 18 + 128 / 32 * 34));
    assert_true(rate > 333.333165 && rate < 333.333167);
    assert_string_equal(io, "direct");
    json_t *place = json_array_get(json_object_get(root, "placement"), 5);
    assert_int_equal(json_unpack(place, "{s:s,s:s}", "unit", &unit, "where", &where), 0);
    assert_string_equal(unit, "token_embd");
    assert_string_equal(where, "rows");
    json_t *host = json_array_get(json_object_get(root, "pools"), 0);
    assert_int_equal(json_array_size(json_object_get(host, "lines")), BT_LINE_STAGING + 1); /* nothing beside it */
    assert_true(json_is_null(json_object_get(root, "draft")) && json_is_null(json_object_get(root, "mmproj")));
    json_t *kv = json_array_get(json_object_get(host, "lines"), BT_LINE_KV);
    assert_int_equal(json_unpack(host, "{s:I}", "headroom_bytes", &headroom), 0);
    assert_int_equal(headroom, (json_int_t)(fixture.plan.budget_bytes - fixture.plan.planned_bytes));
    assert_int_equal(json_unpack(kv, "{s:s}", "name", &line), 0);
    assert_string_equal(line, "host/kv");
    assert_true(json_is_null(json_object_get(root, "refusal")));
    json_decref(root);
    bt_heap_free(json);
}

/* A plan of before weights were repacked in place. */
static void test_no_layouts(void **state) {
    (void)state;
    char *json = to_json(&fixture.plan);
    json_t *root = json_loads(json, 0, NULL);
    bt_heap_free(json);
    assert_int_equal(json_object_del(root, "layouts"), 0);
    json = json_dumps(root, 0);
    bt_plan read;
    bt_error err = {0};
    assert_int_equal(bt_plan_from_json(json, strlen(json), arena, &read, &err), BT_OK);
    fixture.plan.layouts = (bt_layouts){0};
    same_plan(&fixture.plan, &read);
    bt_heap_free(json);
    json_decref(root);
}

static void test_bytes_that_are_no_utf8(void **state) {
    (void)state;
    fixture.facts.name = "caf\xE9 \xC3\xA9\x1b[31m";
    char *json = to_json(&fixture.plan);
    assert_non_null(strstr(json, "\"name\": \"caf\xEF\xBF\xBD \xC3\xA9\\u001B[31m\""));
    bt_heap_free(json);
}

static void test_units_that_differ(void **state) {
    (void)state;
    char *json = NULL;
    bt_error err = {0};
    fixture.plan.n_units--;
    assert_int_equal(bt_report_plan_json(&fixture.plan, &fixture.facts, NULL, &json, &err), BT_E_ARG);
    assert_null(json);
}

/* ---- the reader is strict --------------------------------------------------------------------------------------- */

/* json with the first from replaced by to */
static char *replaced(const char *json, const char *from, const char *to) {
    const char *at = strstr(json, from);
    if (!at) fail_msg("no %s", from);
    size_t n = strlen(json) + strlen(to) + 1;
    char *out = calloc(1, n);
    assert_non_null(out);
    (void)snprintf(out, n, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    return out;
}

static void test_strict(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *member;
    } cases[] = {
        {"\"schema\": 1", "\"schema\": 2", "\"schema\""},
        {"\"schema\": 1", "\"schema\": \"1\"", "\"schema\""},
        {"\"verdict\": \"streams\"", "\"verdict\": \"flows\"", "\"verdict\""},
        {"\"verdict\": \"streams\"", "\"verdict\": null", "\"verdict\""},
        {"\"forced\": false", "\"forced\": 0", "\"forced\""},
        {"\"forced\"", "\"farced\"", "\"forced\": missing"},
        {"\"wishes\": {", "\"wishes\": 7, \"x\": {", "\"wishes\""},
        {"\"kind\": \"bytes\"", "\"kind\": \"byte\"", "\"wishes.ram_budget.kind\""},
        {"\"ctx_size\": 4000", "\"ctx_size\": 4000.5", "\"wishes.ctx_size\""},
        {"\"ctx_size\": 4000", "\"ctx_size\": -1", "\"wishes.ctx_size\""},
        {"\"cache_type_k\": \"q8_0\"", "\"cache_type_k\": \"q9\"", "\"wishes.cache_type_k\""},
        {"\"cache_type_v\": \"q4_0\"", "\"cache_type_v\": null", "\"wishes.cache_type_v\""},
        {"\"type_k\": \"q4_0\"", "\"type_k\": \"auto\"", "\"kv.type_k\""},
        {"\"type_v\": \"q8_0\"", "\"type_v\": 8", "\"kv.type_v\""},
        {"\"threads\": 5", "\"threads\": 100000", "\"wishes.threads\""},
        {"\"io\": \"direct\"", "\"io\": \"mmap\"", "\"wishes.io\""},
        {"\"effective\": 4096", "\"effective\": 4294967296", "\"ctx.effective\""},
        {"\"effective\": 4096", "\"effective\": null", "\"ctx.effective\""},
        {"\"reason\": \"rounded up to 256\"", "\"reason\": 3", "\"ctx.reason\""},
        {"\"n_ubatch\": 512", "\"n_ubatch\": true", "\"batch.n_ubatch\""},
        {"\"head\": \"resident\"", "\"head\": \"CUDA0\"", "\"head\""},
        {"\"slots\": 2", "\"slots\": 9999", "\"ring.slots\""},
        {"\"total\": 6,\n    \"pinned\": 3", "\"total\": 7,\n    \"pinned\": 3", "\"placement\""},
        {"\"total\": 6,\n    \"pinned\": 3", "\"total\": 6,\n    \"pinned\": 7", "\"units.pinned\""},
        {"\"replaced\": {", "\"replaced\": 4, \"x\": {", "\"layouts.replaced\""},
        {"\"weights\": 4", "\"weights\": -4", "\"layouts.replaced.weights\""},
        {"\"weights\": 7", "\"wights\": 7", "\"layouts.second.weights\""},
        {"\"bytes\": 1017518", "\"bytes\": \"some\"", "\"layouts.second.bytes\""},
        {"\"layouts\": {", "\"layouts\": [4], \"x\": {", "\"layouts\""},
        {"\"where\": \"rows\"", "\"where\": \"moon\"", "\"placement[5].where\""},
        {"\"placement\": [", "\"placement\": [4, ", "\"placement\""},
        {"\"pools\": [", "\"pools\": [5, ", "\"pools[0]\""},
        {"\"name\": \"host\"", "\"name\": \"CUDA0\"", "\"pools[0].name\""},
        {"\"name\": \"host/kv\"", "\"name\": \"host/kw\"", "\"pools[0].lines[3].name\""},
        {"\"name\": \"host/kv\"", "\"name\": \"host/base\"", "\"pools[0].lines[3].name\""},
        {"\"source\": \"dry-run\"", "\"source\": \"guess\"", "\"pools[0].lines[2].source\""},
        {"\"planned_bytes\": 100000", "\"planned_bytes\": 100001", "\"pools[0].planned_bytes\""},
        {"\"bandwidth_bytes_per_s\": 2000000000", "\"bandwidth_bytes_per_s\": -5", "\"stream.bandwidth_bytes_per_s\""},
        {"\"tokens_per_s\": 333.333166", "\"tokens_per_s\": -1.5", "\"forecast.tokens_per_s\""},
        {"\"tokens_per_s\": 333.333166", "\"tokens_per_s\": 1e300", "\"forecast.tokens_per_s\""},
        {"\"bound\": \"disk\"", "\"bound\": \"luck\"", "\"forecast.bound\""},
        {"\"what\": \"overlap\"", "\"what\": \"minimum\"", "\"ladder[1].what\""},
        {"\"what\": \"overlap\"", "\"what\": []", "\"ladder[1].what\""},
        {"\"refusal\": null", "\"refusal\": {}", "\"refusal.code\": missing"},
        {"\"refusal\": null", "\"refusal\": []", "\"refusal\""},
        {"\"schema\": 1", "\"schema\": 1, \"schema\": 1", "not JSON"},
        {"\"schema\": 1", "\"schema\": 99999999999999999999", "not JSON"},
        {"\"schema\": 1", "\"schema\": nan", "not JSON"},
        {"\"schema\": 1", "\"schema\": 1}, {", "not JSON"},
        {"\"schema\": 1", "\"schema\": 1}] [{", "not JSON"},
    };
    char *json = to_json(&fixture.plan);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *bad = replaced(json, cases[i].from, cases[i].to);
        bt_plan plan;
        bt_error err = {0};
        bt_status status = bt_plan_from_json(bad, strlen(bad), arena, &plan, &err);
        if (status != BT_E_FORMAT || strcmp(err.code, "json") != 0 || !strstr(err.text, cases[i].member)) {
            fail_msg("%s -> %s: %s", cases[i].from, cases[i].to, err.text);
        }
        free(bad);
    }
    bt_heap_free(json);
}

static void test_unknown_members_are_ignored(void **state) {
    (void)state;
    char *json = to_json(&fixture.plan);
    char *more = replaced(json, "\"schema\": 1", "\"schema\": 1, \"later\": {\"a\": [1, 2.5, null]}");
    bt_plan plan;
    assert_int_equal(bt_plan_from_json(more, strlen(more), arena, &plan, NULL), BT_OK);
    same_plan(&fixture.plan, &plan);
    free(more);
    bt_heap_free(json);
}

static void test_bounds_of_text(void **state) {
    (void)state;
    bt_plan plan;
    bt_error err = {0};
    static const char *const not_objects[] = {"", "[]", "7", "null", "{", "{\"a\"", "\"{}\"", "{} x"};
    for (size_t i = 0; i < sizeof not_objects / sizeof *not_objects; i++) {
        assert_int_equal(bt_plan_from_json(not_objects[i], strlen(not_objects[i]), arena, &plan, &err), BT_E_FORMAT);
    }
    size_t n = BT_JSON_IN_MAX_BYTES;
    char *huge = malloc(n + 1);
    assert_non_null(huge);
    memset(huge, ' ', n + 1);
    assert_int_equal(bt_plan_from_json(huge, n, arena, &plan, &err), BT_E_FORMAT); /* read, and empty */
    assert_int_equal(bt_plan_from_json(huge, n + 1, arena, &plan, &err), BT_E_LIMIT);
    assert_int_equal(err.need, n + 1);
    assert_int_equal(err.have, n);
    memset(huge, '[', 33); /* one level too many */
    assert_int_equal(bt_plan_from_json(huge, n, arena, &plan, &err), BT_E_LIMIT);
    memset(huge, ',', (1u << 20) + 1); /* one value too many */
    assert_int_equal(bt_plan_from_json(huge, n, arena, &plan, &err), BT_E_LIMIT);
    memset(huge, '[', 1000);
    huge[0] = '"'; /* in a string they are letters */
    assert_int_equal(bt_plan_from_json(huge, 1000, arena, &plan, &err), BT_E_FORMAT);
    memset(huge, 'a', 40000); /* but it may not be as long as a book */
    huge[0] = '"';
    assert_int_equal(bt_plan_from_json(huge, 40000, arena, &plan, &err), BT_E_LIMIT);
    free(huge);
}

/* ---- fingerprints ----------------------------------------------------------------------------------------------- */

static void test_fingerprint(void **state) {
    (void)state;
    char *json = to_json(&fixture.plan);
    bt_fingerprint of_plan;
    bt_fingerprint now;
    bt_error err = {0};
    assert_int_equal(bt_fingerprint_from_json(json, strlen(json), &of_plan, &err), BT_OK);
    bt_heap_free(json);
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_int_equal(bt_fingerprint_check(&of_plan, &now, &err), BT_OK);

    fixture.machine.pools[0].free_bytes -= 4096; /* free memory is not part of it */
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_int_equal(bt_fingerprint_check(&of_plan, &now, &err), BT_OK);

    fixture.machine.disk_bytes_per_s.value++; /* nor is a speed, which is measured anew each time */
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_string_equal(of_plan.machine, now.machine);

    fixture.machine.n_threads++; /* another machine: told apart here, judged by whoever carries the plan out */
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_string_not_equal(of_plan.machine, now.machine);
    assert_int_equal(bt_fingerprint_check(&of_plan, &now, &err), BT_OK);

    bt_fingerprint other = now;
    other.build[0] = '9';
    assert_int_equal(bt_fingerprint_check(&other, &now, &err), BT_E_STALE);
    assert_string_equal(err.code, "plan_stale");
    assert_non_null(strstr(err.text, other.build));
    assert_non_null(strstr(err.text, now.build));

    other = now;
    other.model_bytes++;
    assert_int_equal(bt_fingerprint_check(&other, &now, &err), BT_E_STALE);

    fixture.shards[1].mtime_ns++;
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_int_equal(bt_fingerprint_check(&of_plan, &now, &err), BT_E_STALE);
    assert_non_null(strstr(err.text, "1700000000000000009"));
    assert_non_null(strstr(err.text, "1700000000000000010"));

    fixture.facts.header_sha256[0] = 'f';
    bt_fingerprint_make(&fixture.facts, &fixture.machine, &now);
    assert_int_equal(bt_fingerprint_check(&of_plan, &now, &err), BT_E_STALE);
    assert_non_null(strstr(err.text, "another model"));
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void check_text(const char *expected) {
    bt_text text;
    bt_text_init(&text, 1u << 20);
    bt_report_plan_text(&fixture.plan, &fixture.facts, &text);
    assert_false(text.failed);
    assert_string_equal(bt_text_str(&text), expected);
    bt_text_done(&text);
}

#define LEDGER                                                                                                         \
    "Ledger                       size            bytes  source\n"                                                     \
    "  host/base              97.7 KiB           100000  formula\n"                                                    \
    "  host/vocab            161.7 KiB           165537  tensor\n"                                                     \
    "  host/metadata         225.7 KiB           231074  dry-run\n"                                                    \
    "  host/kv               289.7 KiB           296611  measured\n"                                                   \
    "  host/compute          353.7 KiB           362148  formula\n"                                                    \
    "  host/pagetables       417.7 KiB           427685  tensor\n"                                                     \
    "  host/threads          481.7 KiB           493222  dry-run\n"                                                    \
    "  host/logits           545.7 KiB           558759  measured\n"                                                   \
    "  host/output_norm      609.7 KiB           624296  formula\n"                                                    \
    "  host/embeddings       673.7 KiB           689833  tensor\n"                                                     \
    "  host/head             737.7 KiB           755370  dry-run\n"                                                    \
    "  host/ring             801.7 KiB           820907  measured\n"                                                   \
    "  host/pinned           865.7 KiB           886444  formula\n"                                                    \
    "  host/experts                0 B                0  tensor\n"                                                     \
    "  host/derived          993.7 KiB          1017518  dry-run\n"                                                    \
    "  host/staging            1.0 MiB          1083055  measured\n"                                                   \
    "  total                   8.1 MiB          8512459\n"

#define LADDER                                                                                                         \
    "Ladder                     budget    context     tokens/s\n"                                                      \
    "  minimum                 4.8 MiB        256         20.0\n"                                                      \
    "  with overlap            8.6 MiB       4096      unknown\n"                                                      \
    "  all pinned             26.7 MiB       4096         1235\n"

static void test_text_streams(void **state) {
    (void)state;
    check_text("Execution Plan\n"
               "  Requested RAM        64.0 MiB\n"
               "  Mandatory memory     5.5 MiB\n"
               "  Estimated Peak       8.1 MiB\n"
               "  Context Window       4096\n"
               "  Estimated KV         289.7 KiB\n"
               "  LM Head Mode         resident (737.7 KiB)\n"
               "  Streaming ring       2 buffers (801.7 KiB)\n"
               "  Pinned units         3 / 6 (4.8 MiB)\n"
               "  Repacked in place    4 weights (3.3 MiB), at no byte more: last digits may differ\n"
               "  Second layout        7 weights (993.7 KiB) beside them, for single tokens: last digits may differ\n"
               "\n"
               "  Model                m-00001-of-00002.gguf\n"
               "  Weights              18.1 MiB in 2 files\n"
               "  Context asked        4000\n"
               "  Context because      rounded up to 256\n"
               "  Context trained      8192\n"
               "  KV types             q4_0, q8_0\n"
               "  Batch, micro-batch   2048, 512\n"
               "  Sequences, threads   2, 6\n"
               "  Context of each      2048 guaranteed, of 4096 in all\n"
               "  RoPE scaling         yarn, x 2.50\n"
               "  Disk input           direct\n"
               "  Priced by            dry run\n"
               "\n" LEDGER "  budget                 64.0 MiB         67108864  asked\n"
               "\n"
               "Verdict: streams: runs from disk, about 333 tokens/s, because a token reads 5.7 MiB at 2000 MB/s\n"
               "\n" LADDER "  With 37.3 MiB less all weights still stay in memory at context 4096.\n");
}

static void test_text_impossible(void **state) {
    (void)state;
    fixture_refuse(&fixture);
    fixture.plan.wishes.n_ubatch = 0;
    check_text("RAM budget impossible\n"
               "  Requested            4.0 MiB\n"
               "  Minimum required     8.1 MiB\n"
               "    base               97.7 KiB\n"
               "    scratch            353.7 KiB\n"
               "    logits             545.7 KiB\n"
               "    KV                 289.7 KiB (ctx 4096)\n"
               "    resid+attn         in scratch\n"
               "    norm+embd          1.3 MiB\n"
               "    head               737.7 KiB (resident)\n"
               "    ring               801.7 KiB (2 buffers)\n"
               "    pinned             865.7 KiB\n"
               "    other              3.3 MiB\n"
               "\n"
               "  Model                m-00001-of-00002.gguf\n"
               "  Weights              18.1 MiB in 2 files\n"
               "  Context asked        4000\n"
               "  Context because      rounded up to 256\n"
               "  Context trained      8192\n"
               "  KV types             q4_0, q8_0\n"
               "  Batch, micro-batch   2048, 32 (lowered to fit: last digits may differ from llama.cpp's)\n"
               "  Sequences, threads   2, 6\n"
               "  Context of each      2048 guaranteed, of 4096 in all\n"
               "  RoPE scaling         yarn, x 2.50\n"
               "  Disk input           direct\n"
               "  Priced by            dry run\n"
               "\n" LEDGER "  budget                  4.0 MiB          4194304  asked\n"
               "\n"
               "Verdict: refused: context 4096 needs 9.0 MiB, the budget is 4.0 MiB; runs all the same, because it is "
               "forced\n"
               "\n" LADDER "  With 786.8 KiB more it runs at context 256.\n"
               "\n"
               "What would fit (one of)\n"
               "  --ctx-size 256           needs      3.8 MiB\n"
               "  --ram-budget 9M          needs      9.0 MiB\n");
}

static void find_in_text(const char *wanted) {
    bt_text text;
    bt_text_init(&text, 1u << 20);
    bt_report_plan_text(&fixture.plan, &fixture.facts, &text);
    if (!strstr(bt_text_str(&text), wanted)) fail_msg("no \"%s\" in\n%s", wanted, bt_text_str(&text));
    bt_text_done(&text);
}

/* User case 4: a projector's weights and its peak are lines of their own; what is left of the budget is a number. */
static void test_companions(void **state) {
    (void)state;
    fixture_accompany(&fixture);
    check_identity();
    find_in_text("  Draft model          draft.gguf\n    its weights        66.8 MiB\n");
    find_in_text("  Projector            mmproj.gguf\n    its weights        837.3 MiB\n");
    find_in_text("  host/draft.weights      1.2 MiB          1248592  tensor\n");
    find_in_text("  host/mmproj.weights     1.4 MiB          1510740  tensor\n");
    find_in_text("  left                   ");
    fixture_refuse(&fixture);
    find_in_text("    draft              5.1 MiB\n    projector          2.9 MiB\n    other              8.1 MiB\n");

    /* its lines belong to it: they are read only where it is named, and wanted there */
    char *json = to_json(&fixture.plan);
    char *unnamed = replaced(json, "\"file\": \"mmproj.gguf\"", "\"file\": \"\"");
    bt_plan plan;
    bt_error err = {0};
    assert_int_equal(bt_plan_from_json(unnamed, strlen(unnamed), arena, &plan, &err), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "mmproj.file"));
    free(unnamed);
    char *renamed = replaced(json, "\"mmproj\": {", "\"was_mmproj\": {");
    assert_int_equal(bt_plan_from_json(renamed, strlen(renamed), arena, &plan, &err), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "pools[0].lines"));
    free(renamed);
    bt_heap_free(json);
}

static void test_text_of_other_verdicts(void **state) {
    (void)state;
    bt_plan *p = &fixture.plan;
    p->disk_bytes_per_s = (bt_known){0};
    p->forecast = (bt_forecast){0};
    p->n_slots = 1;
    find_in_text("Verdict: streams: runs from disk, because a token reads 5.7 MiB from a disk whose speed is not known "
                 "(--exact measures it); "
                 "with one buffer the largest units are read while nothing computes\n");
    find_in_text("Streaming ring       1 buffer (801.7 KiB)\n");
    p->wishes.n_buffers = 0;
    find_in_text("Streaming ring       1 buffer (801.7 KiB), a second does not fit\n");
    p->n_slots = 2;
    p->disk_bytes_per_s = (bt_known){true, 2000000000};
    p->forecast = (bt_forecast){{true, 34300000}, BT_BOUND_COMPUTE};
    find_in_text("Verdict: streams: runs from disk, about 34.3 tokens/s, because a token reads 5.7 MiB at 2000 MB/s; "
                 "reading keeps up, computing bounds it\n");
    p->wishes.type_k = BT_TYPE_AUTO;
    find_in_text("KV types             q4_0, q8_0 (auto, lowered for speed)\n");
    p->wishes.policy = BT_POLICY_CTX;
    find_in_text("KV types             q4_0, q8_0 (auto, lowered to fit)\n");
    p->type_k = 1;
    find_in_text("KV types             f16, q8_0 (auto)\n");
    p->n_ctx_requested = 8192;
    find_in_text("Context Window       4096 (capped)\n");
    p->verdict = BT_FITS;
    p->forecast = (bt_forecast){{true, 34300000}, BT_BOUND_MEMORY};
    p->budget_bytes = UINT64_MAX;
    p->wishes.budget_kind = BT_BUDGET_AUTO;
    find_in_text("Requested RAM        auto\n");
    find_in_text("  budget                     none                   asked\n");
    find_in_text("Verdict: fits: all weights stay in memory, 8.1 MiB; no budget is kept, because what is available is "
                 "not known, "
                 "about 34.3 tokens/s, bound by memory bandwidth\n");
    p->verdict = BT_VERDICT_UNKNOWN;
    fixture.facts.arch = "new\x1b[2J";
    (void)snprintf(fixture.facts.kv_reason, sizeof fixture.facts.kv_reason, "its state is not known");
    find_in_text(
        "Verdict: unknown: the KV cache of architecture \"new\\x1b[2J\" cannot be priced by formula (its state is "
        "not known); the weights are exact, 18.1 MiB\n");
    find_in_text("Estimated KV         unknown\n");
    fixture_refuse(&fixture);
    p->refusal.n_changes = 0;
    (void)snprintf(p->refusal.code, sizeof p->refusal.code, "ctx");
    find_in_text("RAM budget impossible\n");
    (void)snprintf(p->refusal.code, sizeof p->refusal.code, "arch_unknown");
    find_in_text("Plan refused\n");
    find_in_text("No single change would fit.\n");
}

static void test_rates(void **state) {
    (void)state;
    static const struct {
        uint64_t micro;
        const char *text;
    } cases[] = {{0, "0.00"},        {4999, "0.00"},     {5000, "0.01"},     {4832027, "4.83"},
                 {9994999, "9.99"},  {10000000, "10.0"}, {34333778, "34.3"}, {99949999, "99.9"},
                 {100000000, "100"}, {192400000, "192"}, {192500000, "193"}, {UINT64_C(5000000000), "5000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(BT_RATE(cases[i].micro), cases[i].text);
    }
}

static void test_lines(void **state) {
    (void)state;
    bt_measured m = {.peak_rss_bytes = 12582912, .residual_bytes = 262144, .elastic_peak_bytes = 1048576};
    bt_line_use *use = m.lines;
    use[BT_LINE_KV] = (bt_line_use){.planned_bytes = 4194304,
                                    .reserved_bytes = 8388608,
                                    .committed_bytes = 4194304,
                                    .peak_committed_bytes = 4194304,
                                    .resident_bytes = 1,
                                    .peak_resident_bytes = 4000000};
    use[BT_LINE_BASE] = (bt_line_use){.planned_bytes = 8388608, .peak_resident_bytes = 7340032};
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_report_lines_text(&m, &text);
    assert_string_equal(bt_text_str(&text),
                        "  line                    planned     reserved    committed         peak\n"
                        "  base                    8.0 MiB          0 B          0 B      7.0 MiB\n"
                        "  kv                      4.0 MiB      8.0 MiB      4.0 MiB      3.8 MiB\n"
                        "  total                  12.0 MiB      8.0 MiB      4.0 MiB     10.8 MiB\n"
                        "  elastic pins                                                   1.0 MiB\n"
                        "  process peak                                                  12.0 MiB\n"
                        "  residual                                                     256.0 KiB\n");
    bt_text_done(&text);
}

static void test_stats(void **state) {
    (void)state;
    bt_measured m = {.peak_rss_bytes = 60000000,
                     .residual_bytes = 123,
                     .prompt_tokens = 5,
                     .generated_tokens = 2,
                     .load_s = 0.25,
                     .decode_tokens_per_s = 12.5,
                     .passes = 3,
                     .schedules_built = 2,
                     .loop_heap_growth_bytes = {true, 4096}};
    m.lines[BT_LINE_KV] = (bt_line_use){.planned_bytes = 10, .committed_bytes = 8, .peak_resident_bytes = 7};
    const int32_t tokens[] = {1, -1, 65535};
    char *json = NULL;
    bt_error err = {0};
    assert_int_equal(
        bt_report_stats_json(&fixture.plan, &fixture.facts, &fixture.machine, &m, "a\0\xFF", 3, tokens, 3, &json, &err),
        BT_OK);
    json_t *root = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    assert_int_equal(json_string_length(json_object_get(root, "text")), 5); /* a, NUL, U+FFFD */
    assert_int_equal(json_integer_value(json_array_get(json_object_get(root, "tokens"), 1)), -1);
    json_t *measured = json_object_get(root, "measured");
    json_int_t built = 0, peak = 0, grown = 0;
    double rate = 0;
    assert_int_equal(json_unpack(measured, "{s:n, s:{s:I}, s:F, s:n, s:I}", "cgroup_peak_bytes", "schedules", "built",
                                 &built, "decode_tokens_per_s", &rate, "loop_heap_allocations",
                                 "loop_heap_growth_bytes", &grown),
                     0);
    assert_int_equal(grown, 4096);
    assert_int_equal(built, 2);
    assert_true(rate > 12.4 && rate < 12.6);
    json_t *kv = json_array_get(json_object_get(measured, "lines"), BT_LINE_KV);
    assert_int_equal(json_unpack(kv, "{s:I}", "peak_bytes", &peak), 0);
    assert_int_equal(peak, 7);
    char *plan = to_json(&fixture.plan);
    json_t *alone = json_loads(plan, 0, NULL);
    assert_true(json_equal(alone, json_object_get(root, "plan")));
    json_decref(alone);
    json_decref(root);
    bt_heap_free(plan);
    bt_heap_free(json);
}

int main(void) {
    bt_report_init("b9");
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_identity),
        TEST(test_identity_of_extremes),
        TEST(test_identity_of_devices),
        TEST(test_wrong_devices),
        TEST(test_pools_of_devices),
        TEST(test_rates_survive),
        TEST(test_open_types),
        TEST(test_members),
        TEST(test_no_layouts),
        TEST(test_bytes_that_are_no_utf8),
        TEST(test_units_that_differ),
        TEST(test_strict),
        TEST(test_unknown_members_are_ignored),
        TEST(test_bounds_of_text),
        TEST(test_fingerprint),
        TEST(test_text_streams),
        TEST(test_text_impossible),
        TEST(test_text_of_other_verdicts),
        TEST(test_rates),
        TEST(test_companions),
        TEST(test_lines),
        TEST(test_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
