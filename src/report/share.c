/* SPDX-License-Identifier: MIT
 *
 * share.c: report.json, one file to attach to a bug report, and what is kept of a run for it.
 *
 *   versions, machine, facts, plan, last_run
 *
 * Its reader needs every number and no name: paths are shortened to file names, cgroups are numbered from the leaf, and
 * there is no host name, no user, no environment, no prompt and no text. What a person named (the model's file, its
 * general.name) stays: a report without it is of no use. The names are taken out before the plan is made, so that no
 * sentence of the plan can hold them. Bounds: those of the parts. */
#include "base/error.h"
#include "base/heap.h"
#include "probe/cgroup.h"
#include "report/json.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* ---- a run that is kept ----------------------------------------------------------------------------------------- */

static void put_fingerprint(bt_json_out *out, json_t *root, const bt_facts *facts, const bt_machine *machine) {
    bt_fingerprint print;
    bt_fingerprint_make(facts, machine, &print);
    bt_json_put_text(out, root, "header_sha256", print.header_sha256);
    bt_json_put_u64(out, root, "model_bytes", print.model_bytes);
    bt_json_put_text_or_null(out, root, "machine", print.machine);
    bt_json_put_text(out, root, "build", print.build);
}

bt_status bt_report_kept_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine,
                              const bt_measured *measured, uint64_t ended_s, char **ret_json, bt_error *err) {
    bt_json_out out = {0};
    json_t *root = json_object();
    bt_json_put_u64(&out, root, "schema", BT_JSON_SCHEMA);
    bt_json_put_u64(&out, root, "ended_unix_s", ended_s);
    put_fingerprint(&out, root, facts, machine);
    bt_json_put_u64(&out, root, "budget_bytes", plan->budget_bytes);
    bt_json_put_u64(&out, root, "planned_bytes", plan->planned_bytes);
    bt_json_put_u64(&out, root, "ctx", plan->n_ctx);
    bt_json_put_u64(&out, root, "n_ubatch", plan->n_ubatch);
    bt_json_put_u64(&out, root, "threads", plan->n_threads);
    bt_measured_to_json(&out, root, plan, measured);
    return bt_json_finish(&out, root, ret_json, err);
}

/* The kept run; null for none, and for what is no run of this model. */
static json_t *last_run(bt_json_out *out, const char *kept, const bt_facts *facts) {
    bt_json_in in = {0};
    json_t *root = kept ? bt_json_parse(&in, kept, strlen(kept)) : NULL;
    uint32_t schema = 0;
    char header_sha256[sizeof facts->header_sha256] = "";
    (void)bt_json_u32(&in, root, "schema", UINT32_MAX, &schema);
    (void)bt_json_text(&in, root, "header_sha256", header_sha256, sizeof header_sha256);
    bool is_ours = root && in.status == BT_OK && schema == BT_JSON_SCHEMA &&
                   strcmp(header_sha256, facts->header_sha256) == 0 && bt_json_object(&in, root, "measured");
    if (is_ours) return root;
    if (in.status == BT_E_NOMEM) out->failed = true;
    json_decref(root);
    return json_null();
}

/* ---- without names ---------------------------------------------------------------------------------------------- */

void bt_report_machine_anonymize(bt_machine *machine) {
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++) {
        (void)snprintf(machine->cgroup[i].path, sizeof machine->cgroup[i].path, "level %u", i);
    }
    char source[BT_CGROUP_SOURCE_TEXT];
    bt_pool *host = &machine->pools[0];
    bool of_cgroup = machine->n_pools > 0 && strncmp(host->limit_source, "cgroup", 6) == 0;
    if (of_cgroup && bt_cgroup_limit(machine, source).known)
        (void)snprintf(host->limit_source, sizeof host->limit_source, "%s", source);
    static const char unread[] = "cannot be read";
    if (machine->cgroup_reason[0]) memcpy(machine->cgroup_reason, unread, sizeof unread);
    if (machine->reservations_reason[0]) memcpy(machine->reservations_reason, unread, sizeof unread);
}

static bt_status shorten(const bt_facts *facts, bt_facts *ret_short, bt_error *err) {
    *ret_short = *facts;
    ret_short->path = bt_path_file(facts->path);
    ret_short->shards = bt_heap_array(facts->n_shards, sizeof *facts->shards);
    if (!ret_short->shards) return bt_fail(err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory for a report");
    for (uint32_t i = 0; i < facts->n_shards; i++) {
        ret_short->shards[i] = facts->shards[i];
        ret_short->shards[i].path = bt_path_file(facts->shards[i].path);
    }
    return BT_OK;
}

/* ---- the report ------------------------------------------------------------------------------------------------- */

static void put_versions(bt_json_out *out, json_t *root) {
    json_t *versions = bt_json_put_object(out, root, "versions");
    struct utsname name;
    bool known = uname(&name) == 0;
    bt_json_put_text(out, versions, "burthen", BT_VERSION);
    bt_json_put_text(out, versions, "llama_cpp", bt_engine_version());
    bt_json_put_text(out, versions, "system", known ? name.sysname : NULL);
    bt_json_put_text(out, versions, "kernel", known ? name.release : NULL);
    bt_json_put_text(out, versions, "processor", known ? name.machine : NULL);
}

bt_status bt_report_share_json(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine, const char *kept,
                               char **ret_json, bt_error *err) {
    bt_facts brief;
    BT_TRY(shorten(facts, &brief, err));
    bt_json_out out = {0};
    json_t *root = json_object();
    bt_json_put_text(&out, root, "burthen", BT_VERSION);
    bt_json_put_u64(&out, root, "schema", BT_JSON_SCHEMA);
    put_versions(&out, root);
    bt_json_put(&out, root, "machine", bt_machine_to_json(&out, machine));
    bt_json_put(&out, root, "facts", bt_facts_to_json(&out, &brief));
    bt_json_put(&out, root, "plan", bt_plan_to_json(&out, plan, &brief, machine));
    bt_json_put(&out, root, "last_run", last_run(&out, kept, facts));
    bt_heap_free(brief.shards);
    return bt_json_finish(&out, root, ret_json, err);
}
