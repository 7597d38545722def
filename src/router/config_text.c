/* SPDX-License-Identifier: MIT
 * config_text.c: what was understood of a configuration, for a person: burthen serve --check-config.
 *
 * A line for each thing that decides about memory, one a model, and the notes. Keys are counted, never shown. What
 * comes from the file is escaped. Bounded by the maxima of config.h and by the text's own. */
#include "base/size.h"
#include "router/config.h"

#include <inttypes.h>
#include <string.h>

static void add_escaped(bt_text *out, const char *text) {
    bt_text_add_escaped(out, text, strlen(text));
}

static void add_time(bt_text *out, uint64_t ms) {
    if (ms % 1000 != 0) {
        bt_text_addf(out, "%" PRIu64 " ms", ms);
    } else if (ms % 60000 != 0 || ms == 0) {
        bt_text_addf(out, "%" PRIu64 " s", ms / 1000);
    } else {
        bt_text_addf(out, "%" PRIu64 " min", ms / 60000);
    }
}

static void add_head(const bt_config *c, bt_text *out) {
    bt_text_add(out, "listen ");
    add_escaped(out, c->listen);
    bt_text_addf(out, "%s; keys: %" PRIu32 "\n", c->tls_cert ? " (HTTPS)" : "", c->n_api_keys);
    if (c->ram_budget_given) {
        bt_text_addf(out, "host: %s\n", BT_SIZE(c->ram_budget_bytes));
    } else {
        bt_text_add(out, "host: what it leaves\n");
    }
    for (uint32_t i = 0; i < c->n_devices; i++) {
        const bt_config_device *d = &c->devices[i];
        add_escaped(out, d->name);
        bt_text_addf(out, ": %s", d->budget_bytes.known ? BT_SIZE(d->budget_bytes.value) : "what it has");
        if (d->target_bytes.known) bt_text_addf(out, ", plans under %s", BT_SIZE(d->target_bytes.value));
        bt_text_add(out, "\n");
    }
    if (c->oom_reserve_off) {
        bt_text_add(out, "watchdog: off\n");
    } else {
        bt_text_addf(out, "watchdog: reserve %s, grace ", BT_SIZE(c->oom_reserve_bytes));
        add_time(out, c->oom_grace_ms);
        bt_text_addf(out, ", evict %s\n", c->oom_evict ? "yes" : "no");
    }
}

static void add_model(const bt_config *c, const bt_config_model *m, bt_text *out) {
    bt_text_add(out, "model ");
    add_escaped(out, m->id);
    bt_text_add(out, ": ");
    add_escaped(out, m->model ? m->model : m->cmd[0]);
    for (uint32_t i = 0; i < m->n_aliases; i++) {
        bt_text_add(out, i == 0 ? "; also " : ", ");
        add_escaped(out, m->aliases[i]);
    }
    if (m->ram == BT_CONFIG_RAM_SIZE) bt_text_addf(out, "; in %s of RAM", BT_SIZE(m->ram_bytes));
    if (m->ram == BT_CONFIG_RAM_OFF) bt_text_add(out, "; without the memory device");
    for (uint32_t i = 0; i < m->n_memory; i++) {
        bt_text_add(out, i == 0 ? "; takes " : ", ");
        add_escaped(out, m->memory[i].pool);
        bt_text_addf(out, " %s", BT_SIZE(m->memory[i].bytes));
    }
    if (m->ttl_ms > 0) {
        bt_text_add(out, "; unloaded after ");
        add_time(out, m->ttl_ms);
    }
    if (m->group != UINT32_MAX) {
        bt_text_add(out, "; group ");
        add_escaped(out, c->groups[m->group].name);
    }
    if (m->priority != 0) bt_text_addf(out, "; priority %" PRId32, m->priority);
    bt_text_addf(out, "%s%s%s\n", m->persistent ? "; persistent" : "", m->preload ? "; preload" : "",
                 m->unlisted ? "; unlisted" : "");
}

static void add_notes(const bt_config *c, const bt_config_notes *notes, bt_text *out) {
    for (uint32_t i = 0; i < notes->n; i++) {
        bt_text_add(out, "note: ");
        if (notes->items[i].line > 0 && c->file) {
            add_escaped(out, c->file);
            bt_text_addf(out, ":%" PRIu32 ": ", notes->items[i].line);
        }
        add_escaped(out, notes->items[i].text);
        bt_text_add(out, "\n");
    }
    if (notes->n_left_out > 0) bt_text_addf(out, "note: and %" PRIu32 " more\n", notes->n_left_out);
}

void bt_config_text(const bt_config *config, const bt_config_notes *notes, bt_text *out) {
    add_head(config, out);
    for (uint32_t i = 0; i < config->n_models; i++)
        add_model(config, &config->models[i], out);
    for (uint32_t i = 0; i < config->n_groups; i++) {
        const bt_config_group *g = &config->groups[i];
        bt_text_add(out, "group ");
        add_escaped(out, g->name);
        bt_text_addf(out, ": %s%s%s\n", g->swap ? "one at a time" : "side by side", g->exclusive ? "; alone" : "",
                     g->persistent ? "; stays" : "");
    }
    for (uint32_t i = 0; i < config->n_peers; i++) {
        bt_text_add(out, "peer ");
        add_escaped(out, config->peers[i].name);
        bt_text_add(out, ": ");
        add_escaped(out, config->peers[i].proxy);
        bt_text_addf(out, ", %" PRIu32 " model%s\n", config->peers[i].n_models,
                     config->peers[i].n_models == 1 ? "" : "s");
    }
    if (notes) add_notes(config, notes, out);
}
