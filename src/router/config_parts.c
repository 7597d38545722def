/* SPDX-License-Identifier: MIT
 * config_parts.c: rows of the table that are no plain value, of the top and of the small mappings in it.
 *
 * Each takes what one key holds; macros have been read before. Maxima: lists of keys, hosts and origins
 * LIST_MAX, devices BT_POOL_MAX less the host. */
#include "base/error.h"
#include "router/config_read.h"

#include <string.h>

#define LIST_MAX      256u
#define SIZE_MAX_PIB  (UINT64_C(1) << 50) /* beyond any machine */
#define DAY_MS        UINT64_C(86400000)
#define SWAP_LEAST_MS 15000u /* llama-swap's least healthCheckTimeout */

static bool is_word(const bt_yaml_node *node, const char *a, const char *b) {
    return node->kind == BT_YAML_SCALAR && (strcmp(node->text, a) == 0 || (b && strcmp(node->text, b) == 0));
}

bt_status bt_read_listen(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    const char *colon = strrchr(text, ':');
    size_t n = colon ? strspn(colon + 1, "0123456789") : 0;
    uint32_t port = 0;
    for (size_t i = 0; i < n && i < 6; i++)
        port = port * 10 + (uint32_t)(colon[1 + i] - '0');
    if (n == 0 || n > 5 || colon[1 + n] != '\0' || port > 65535) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.80s\" is not HOST:PORT, as 127.0.0.1:8080", text);
    }
    r->c.listen = text;
    return BT_OK;
}

bt_status bt_read_api_keys(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    BT_TRY(bt_read_texts(r, node, LIST_MAX, false, &r->c.api_keys, &r->c.n_api_keys));
    for (uint32_t i = 0; i < r->c.n_api_keys; i++) {
        if (strpbrk(r->c.api_keys[i], " \t\r\n")) {
            return bt_read_fail(r, BT_E_FORMAT, node->line, "key %u of the list has a blank in it", i + 1);
        }
    }
    return BT_OK;
}

bt_status bt_read_hosts(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    return bt_read_texts(r, node, LIST_MAX, false, &r->c.allowed_hosts, &r->c.n_allowed_hosts);
}

bt_status bt_read_origins(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    return bt_read_texts(r, node, LIST_MAX, false, &r->c.cors_origins, &r->c.n_cors_origins);
}

bt_status bt_read_ram_budget(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    if (is_word(node, "auto", NULL)) return BT_OK;
    r->c.ram_budget_given = true;
    return bt_read_size(r, node, 1, SIZE_MAX_PIB, &r->c.ram_budget_bytes);
}

/* Where off, and 0, are below 0: no floor. */
static bt_status read_fraction(bt_config_reader *r, const bt_yaml_node *node, double *ret) {
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    if (strcmp(text, "off") == 0) {
        *ret = -1;
        return BT_OK;
    }
    /* 0, 1, or a decimal between them; read by hand, as strtod follows the locale. */
    size_t n = strspn(text, "0123456789.");
    double value = 0;
    double place = 1;
    bool point = false;
    bool bad = n == 0 || n > 12 || text[n] != '\0';
    for (size_t i = 0; i < n && !bad; i++) {
        if (text[i] == '.') {
            bad = point || n == 1;
            point = true;
        } else if (point) {
            place /= 10;
            value += place * (text[i] - '0');
        } else {
            value = value * 10 + (text[i] - '0');
        }
    }
    if (bad || value > 1) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.40s\" is no part from 0 to 1, and not off", text);
    }
    *ret = value > 0 ? value : -1;
    return BT_OK;
}

bt_status bt_read_fraction(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    return read_fraction(r, node, &r->c.min_gpu_fraction);
}

bt_status bt_read_model_fraction(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return read_fraction(r, node, &((bt_config_model *)target)->min_gpu_fraction);
}

bt_status bt_read_llama_server(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    BT_TRY(bt_read_text(r, node, 0, &r->c.llama_server));
    if (r->c.llama_server[0] == '\0') return bt_read_fail(r, BT_E_FORMAT, node->line, "an empty name of a program");
    return strchr(r->c.llama_server, '/') ? bt_read_path(r, node, &r->c.llama_server) : BT_OK;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static bt_status read_known(bt_config_reader *r, const bt_yaml_node *node, bt_known *ret) {
    ret->known = true;
    return bt_read_size(r, node, 1, SIZE_MAX_PIB, &ret->value);
}

bt_status bt_read_device_budget(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return read_known(r, node, &((bt_config_device *)target)->budget_bytes);
}

bt_status bt_read_device_target(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return read_known(r, node, &((bt_config_device *)target)->target_bytes);
}

static bt_status read_device(bt_config_reader *r, const bt_yaml_entry *entry, bt_config_device *device) {
    if (entry->key[0] == '\0' || strlen(entry->key) >= sizeof((bt_pool *)NULL)->name) {
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "\"%.80s\" is no name of a device, as CUDA0", entry->key);
    }
    if (strcmp(entry->key, "host") == 0) {
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "the host is no device: its budget is ram_budget");
    }
    device->name = bt_arena_strdup(r->arena, entry->key);
    if (!device->name) return bt_read_no_memory(r);
    if (bt_read_is_null(entry->value)) return BT_OK;
    if (entry->value->kind != BT_YAML_MAP) return read_known(r, entry->value, &device->budget_bytes);
    BT_TRY(bt_read_keys(r, BT_PLACE_DEVICE, entry->value, device));
    if (!device->budget_bytes.known || device->target_bytes.value <= device->budget_bytes.value) return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, entry->line, "its target is over its budget");
}

bt_status bt_read_devices(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    BT_TRY(bt_read_map(r, node));
    if (node->n > BT_POOL_MAX - 1) {
        return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u devices", BT_POOL_MAX - 1u);
    }
    r->c.devices = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *r->c.devices);
    if (!r->c.devices) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(read_device(r, &node->entries[i], &r->c.devices[r->c.n_devices++]));
        bt_read_leave(r);
    }
    return BT_OK;
}

/* ---- the watchdog, times, logs ---------------------------------------------------------------------------------- */

bt_status bt_read_oom_guard(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    if (is_word(node, "off", "false")) {
        r->c.oom_reserve_off = true;
        r->c.oom_evict = false;
        return BT_OK;
    }
    return bt_read_keys(r, BT_PLACE_OOM_GUARD, node, target);
}

bt_status bt_read_oom_reserve(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    r->c.oom_reserve_off = is_word(node, "off", "false");
    if (r->c.oom_reserve_off) return BT_OK;
    return bt_read_size(r, node, 0, SIZE_MAX_PIB, &r->c.oom_reserve_bytes);
}

bt_status bt_read_health_swap(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    BT_TRY(bt_read_time(r, node, 0, 365 * DAY_MS, &r->c.defaults.health_timeout_ms));
    if (r->c.defaults.health_timeout_ms < SWAP_LEAST_MS) {
        r->c.defaults.health_timeout_ms = SWAP_LEAST_MS;
        bt_read_note(r, node->line, "healthCheckTimeout is at least 15 s; health_timeout takes less");
    }
    return BT_OK;
}

static bt_status read_stop(bt_config_reader *r, const bt_yaml_node *node, uint64_t *ret) {
    uint64_t ms = 0;
    BT_TRY(bt_read_time(r, node, 0, DAY_MS, &ms));
    if (ms > 0) *ret = ms; /* llama-swap: 0 is the default */
    return BT_OK;
}

bt_status bt_read_unload(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    return read_stop(r, node, &r->c.defaults.stop_timeout_ms);
}

bt_status bt_read_model_unload(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    return read_stop(r, node, &((bt_config_model *)target)->stop_timeout_ms);
}

bt_status bt_read_log_to(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    const char *text = NULL;
    BT_TRY(bt_read_text(r, node, 0, &text));
    bool both = strcmp(text, "both") == 0 || strcmp(text, "upstream") == 0;
    if (!both && strcmp(text, "proxy") != 0 && strcmp(text, "none") != 0) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.40s\" is not proxy, upstream, both or none", text);
    }
    if (strcmp(text, "none") == 0 || strcmp(text, "upstream") == 0) {
        bt_read_note(r, node->line, "the router's own lines are always logged; -q of burthen serve leaves errors");
    }
    r->c.log_children = both;
    return BT_OK;
}

bt_status bt_read_router_use(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    if (is_word(node, "group", NULL)) return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, node->line,
                        "only group: memory admission decides what runs together (ram_budget, devices, groups)");
}

bt_status bt_read_scheduler_use(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    (void)target;
    return is_word(node, "fifo", NULL) ? BT_OK : bt_read_fail(r, BT_E_FORMAT, node->line, "only fifo");
}
