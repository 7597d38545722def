/* SPDX-License-Identifier: MIT
 *
 * decide_tell.c: each decision of the policy with its numbers: as an event, as a line of the log, as the answer of a
 * request that is refused. Every number that it was decided from is in it, so that "why was my model evicted" has an
 * answer that can be checked. */
#include "router/json_tree.h"
#include "router/models.h"

#include "base/heap.h"
#include "base/size.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* What each pool has, and who holds it. */
static json_t *pools_json(const bt_models *models) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    json_t *array = json_array();
    for (uint32_t i = 0; i < pools->n; i++) {
        const bt_pools_one *pool = &pools->items[i];
        json_t *one = json_pack("{s:s}", "name", pool->name);
        json_t *held = json_object();
        bt_known limit = bt_models_limit(models, i);
        if (limit.known) bt_json_tree_set(&one, "limit_bytes", json_integer((json_int_t)limit.value));
        if (pool->free_bytes.known)
            bt_json_tree_set(&one, "free_bytes", json_integer((json_int_t)pool->free_bytes.value));
        for (uint32_t k = 0; k < models->n; k++) {
            uint64_t bytes = models->view[k].held_bytes[i];
            if (bytes == 0 || bytes > INT64_MAX) continue;
            bt_json_tree_set(&held, models->view[k].id, json_integer((json_int_t)bytes));
        }
        bt_json_tree_set(&one, "held", held);
        bt_json_tree_add(&array, one);
    }
    return array;
}

/* At most n_max bytes: where too many hold something they are left out (/api/memory has them all). NULL: it cannot be.
 */
static char *dump(json_t *root, size_t n_max) {
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text && strlen(text) > n_max) {
        bt_heap_free(text);
        (void)json_object_del(root, "pools");
        text = json_dumps(root, JSON_COMPACT);
    }
    if (!text || strlen(text) <= n_max) return text;
    bt_heap_free(text);
    return NULL;
}

static const char *kind_name(bt_policy_kind kind) {
    static const char *const names[] = {"wait", "run", "admit", "drain", "resume", "refuse"};
    return names[kind];
}

static void say_step(bt_models *models, const bt_policy_step *step) {
    char names[400];
    bt_model_names(models->items, step->victims, step->n_victims, names, sizeof names);
    const char *id = models->items[step->model]->id;
    if (step->kind == BT_POLICY_REFUSE)
        bt_models_tell(models, BT_LOG_WARN, "decision: refuse %s: needs %s, could have %s", id,
                       BT_SIZE(step->need_bytes), BT_SIZE(step->have_bytes));
    else
        bt_models_say(models, "decision: %s %s%s%s", kind_name(step->kind), id, step->n_victims > 0 ? ": " : "", names);
}

void bt_models_tell_step(bt_models *models, const bt_policy_step *step) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    const bt_model *model = models->items[step->model];
    json_t *victims = json_array();
    for (uint32_t i = 0; i < step->n_victims; i++)
        bt_json_tree_add(&victims, bt_json_tree_text(models->items[step->victims[i]]->id));
    json_t *root =
        json_pack("{s:s, s:s, s:o, s:b, s:s, s:o, s:o, s:o, s:I}", "decision", kind_name(step->kind), "model",
                  model->id, "victims", victims, "shrunk", step->shrunk, "how", bt_need_how_name(model->need.how),
                  "need_bytes", bt_json_tree_pool_bytes(pools, model->need.bytes), "reserved_bytes",
                  bt_json_tree_pool_bytes(pools, step->bytes), "pools", pools_json(models), "waited_ms",
                  (json_int_t)models->view[step->model].waiting_ms);
    char *text = dump(root, BT_EVENT_BYTES_MAX);
    if (text) bt_events_add(models->ask.events, "decision", text);
    bt_heap_free(text);
    json_decref(root);
    say_step(models, step);
}

static const char *pool_words(const char *pool) {
    return strcmp(pool, "host") == 0 ? "memory of the host" : pool;
}

void bt_models_refusal_of(const bt_models *models, const bt_policy_step *step, bt_model_refusal *ret) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    const bt_model *model = models->items[step->model];
    const char *pool = pools->items[step->pool].name;
    *ret = (bt_model_refusal){.status = 503, .retry_after_s = 30};
    (void)snprintf(ret->code, sizeof ret->code, "%s", step->pool == 0 ? "insufficient_memory" : "insufficient_vram");
    bool by_guard = strcmp(model->need.decision, "refused") == 0; /* else its words are of what it would do */
    const char *more = model->need.how == BT_NEED_LEARNED ? model->need.reason : by_guard ? model->need.words : "";
    (void)snprintf(ret->text, sizeof ret->text, "%s needs %s of %s, and %s can be had, whatever is unloaded%s%s",
                   model->id, BT_SIZE(step->need_bytes), pool_words(pool), BT_SIZE(step->have_bytes),
                   more[0] ? ": " : "", more);
    json_t *root = json_pack("{s:s, s:I, s:I, s:o}", "pool", pool, "need_bytes", (json_int_t)step->need_bytes,
                             "have_bytes", (json_int_t)step->have_bytes, "pools", pools_json(models));
    char *text = dump(root, sizeof ret->detail_json - 1);
    if (text) (void)snprintf(ret->detail_json, sizeof ret->detail_json, "%s", text);
    bt_heap_free(text);
    json_decref(root);
}
