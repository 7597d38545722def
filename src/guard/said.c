/* SPDX-License-Identifier: MIT
 *
 * said.c: what was decided about a command line, in words and in JSON.
 *
 * A line a remedy: what stood there, what stands there now; then one sentence with the numbers. A refusal also has the
 * ledger of each pool, so that what is missing can be read line by line, and the single changes that would fit. */
#include "guard/said.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "report/json.h"

#include <stdio.h>
#include <string.h>

/* ---- for a person ---- */

static void add_edit(bt_text *out, const bt_rewrite *rewrite, const bt_edit *edit) {
    const char *option = rewrite->argv[edit->at];
    if (edit->appended) {
        bt_text_add(out, "added ");
        bt_text_add_escaped(out, option, strlen(option));
        if (edit->new_text) {
            bt_text_add(out, " ");
            bt_text_add_escaped(out, edit->new_text, strlen(edit->new_text));
        }
    } else {
        size_t n = 0;
        const char *name = bt_flag_canonical(edit->flag, &n);
        bt_text_addf(out, "%.*s ", (int)n, name);
        bt_text_add_escaped(out, edit->old_text, strlen(edit->old_text));
        bt_text_add(out, " -> ");
        bt_text_add_escaped(out, edit->new_text, strlen(edit->new_text));
    }
    bt_text_add(out, "\n");
}

void bt_guard_said_text(const bt_guard_decision *decision, const bt_rewrite *rewrite, bt_text *out) {
    for (uint32_t i = 0; i < rewrite->n_edits; i++) {
        bt_text_addf(out, "burthen: %s: ", bt_guard_kind_name(decision->kind));
        add_edit(out, rewrite, &rewrite->edits[i]);
    }
    bt_text_addf(out, "burthen: %s: ", bt_guard_kind_name(decision->kind));
    bt_text_add_escaped(out, decision->reason, strnlen(decision->reason, sizeof decision->reason));
    bt_text_add(out, "\n");
    if (decision->pins_much)
        bt_text_addf(out,
                     "burthen: note: a device's driver is to pin %s, over half of this machine's memory, which some "
                     "limit (amdgpu): --no-host leaves the weights in ordinary memory\n",
                     BT_SIZE(decision->price_after.pinned_bytes));
    for (uint32_t i = 0; i < decision->n_notes; i++) {
        bt_text_add(out, "burthen: note: ");
        bt_text_add_escaped(out, decision->notes[i], strlen(decision->notes[i]));
        bt_text_add(out, "\n");
    }
}

static void add_pool(bt_text *out, const bt_guard_pool_price *pool) {
    for (uint32_t line = 0; line < BT_GUARD_LINE_COUNT; line++) {
        char name[64];
        if (pool->bytes[line] == 0) continue;
        (void)snprintf(name, sizeof name, "%.31s/%s", pool->name, bt_guard_line_name((bt_guard_line)line));
        bt_text_addf(out, "  %-28s %12s\n", name, BT_SIZE(pool->bytes[line]));
    }
    bt_text_addf(out, "  %-28s %12s\n", "total", BT_SIZE(pool->total_bytes));
}

void bt_guard_ledger_text(const bt_guard_decision *decision, bt_text *out) {
    if (!decision->priced) return;
    const bt_guard_price *price = &decision->price_after;
    for (uint32_t i = 0; i < price->n_devices; i++)
        add_pool(out, &price->devices[i]);
    add_pool(out, &price->host);
    if (price->pinned_bytes > 0) bt_text_addf(out, "  %-28s %12s\n", "of it pinned", BT_SIZE(price->pinned_bytes));
    if (decision->n_changes == 0) return;
    bt_text_add(out, "What would fit (one of)\n");
    for (uint32_t i = 0; i < decision->n_changes; i++) {
        const bt_change *change = &decision->changes[i];
        bt_text_addf(out, "  %s %-16s needs %12s\n", change->flag, change->value, BT_SIZE(change->need_bytes));
    }
}

/* ---- for scripts ---- */

static void put_pool(bt_json_out *out, json_t *pools, const bt_guard_pool_price *pool) {
    json_t *o = bt_json_add_object(out, pools);
    bt_json_put_text(out, o, "name", pool->name);
    bt_json_put_u64(out, o, "planned_bytes", pool->total_bytes);
    json_t *lines = bt_json_put_array(out, o, "lines");
    for (uint32_t line = 0; line < BT_GUARD_LINE_COUNT; line++) {
        char name[64];
        if (pool->bytes[line] == 0) continue;
        (void)snprintf(name, sizeof name, "%.31s/%s", pool->name, bt_guard_line_name((bt_guard_line)line));
        json_t *item = bt_json_add_object(out, lines);
        bt_json_put_text(out, item, "name", name);
        bt_json_put_u64(out, item, "planned_bytes", pool->bytes[line]);
    }
}

static void put_plan(bt_json_out *out, json_t *root, const bt_guard_decision *d) {
    if (!d->priced) {
        bt_json_put_null(out, root, "plan");
        return;
    }
    json_t *plan = bt_json_put_object(out, root, "plan");
    bt_json_put_known(out, plan, "budget_bytes", d->budget_bytes);
    bt_json_put_known(out, plan, "free_bytes", d->free_bytes);
    bt_json_put_u64(out, plan, "need_bytes_before", d->price_before.device_bytes);
    bt_json_put_u64(out, plan, "need_bytes", d->price_after.device_bytes);
    bt_json_put_u64(out, plan, "pinned_bytes", d->price_after.pinned_bytes);
    bt_json_put_u64(out, plan, "ctx", d->after.n_ctx);
    bt_json_put_u64(out, plan, "gpu_layers", d->after.n_gpu_layers);
    bt_json_put_u64(out, plan, "n_cpu_moe", d->after.n_cpu_moe);
    bt_json_put_real(out, plan, "gpu_fraction", d->fraction_after);
    json_t *pools = bt_json_put_array(out, plan, "pools");
    put_pool(out, pools, &d->price_after.host);
    for (uint32_t i = 0; i < d->price_after.n_devices; i++)
        put_pool(out, pools, &d->price_after.devices[i]);
    json_t *changes = bt_json_put_array(out, plan, "changes");
    for (uint32_t i = 0; i < d->n_changes; i++) {
        json_t *change = bt_json_add_object(out, changes);
        bt_json_put_text(out, change, "flag", d->changes[i].flag);
        bt_json_put_text(out, change, "value", d->changes[i].value);
        bt_json_put_u64(out, change, "need_bytes", d->changes[i].need_bytes);
    }
}

static bool is_utf8(const char *text) {
    size_t n = strlen(text);
    for (size_t i = 0, length = 0; i < n; i += length) {
        length = bt_utf8_length(text + i, n - i);
        if (length == 0) return false;
    }
    return true;
}

/* Arguments are bytes; what is no UTF-8 of them cannot stand in JSON, and null stands there. */
static void put_argv(bt_json_out *out, json_t *root, const bt_rewrite *rewrite) {
    json_t *argv = bt_json_put_array(out, root, "argv");
    for (uint32_t i = 0; i < rewrite->n_argv; i++) {
        json_t *text = is_utf8(rewrite->argv[i]) ? json_string_nocheck(rewrite->argv[i]) : json_null();
        if (json_array_append_new(argv, text) != 0) out->failed = true; /* takes text in any case */
    }
}

static json_t *begin(bt_json_out *out, const bt_guard_decision *decision, const bt_rewrite *rewrite) {
    json_t *root = json_object();
    bt_json_put_text(out, root, "decision", bt_guard_kind_name(decision->kind));
    bt_json_put_text(out, root, "reason", decision->reason);
    bt_json_put_text_or_null(out, root, "code", decision->code);
    put_argv(out, root, rewrite);
    return root;
}

bt_status bt_guard_said_json(const bt_guard_decision *decision, const bt_rewrite *rewrite, char **ret_json,
                             bt_error *err) {
    bt_json_out out = {0};
    json_t *root = begin(&out, decision, rewrite);
    (void)bt_json_put_object(&out, root, "env"); /* nothing of the environment is changed */
    put_plan(&out, root, decision);
    return bt_json_finish(&out, root, ret_json, err);
}

bt_status bt_guard_budget_json(const bt_guard_decision *decision, const bt_rewrite *rewrite, const bt_guard_env *env,
                               uint32_t n_env, const char *plan_json, char **ret_json, bt_error *err) {
    bt_json_out out = {0};
    json_t *root = begin(&out, decision, rewrite);
    json_t *variables = bt_json_put_object(&out, root, "env");
    for (uint32_t i = 0; i < n_env; i++)
        bt_json_put_text(&out, variables, env[i].name, env[i].value ? env[i].value : "");
    if (plan_json)
        bt_json_put(&out, root, "plan", json_loads(plan_json, JSON_REJECT_DUPLICATES, NULL));
    else
        bt_json_put_null(&out, root, "plan");
    return bt_json_finish(&out, root, ret_json, err);
}
