/* SPDX-License-Identifier: MIT
 * config_peers.c: servers that run already, of a configuration.
 *
 * A peer's name is what stands before the first "/" of a model's name, so it has none itself. */
#include "base/error.h"
#include "router/config_read.h"

#include <string.h>

#define PEER_MODELS_MAX 256u
#define PEER_HEADER_MS  60000u /* llama-swap's */

bt_status bt_read_peer_proxy(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_model as_model = {0};
    if (node->kind == BT_YAML_SCALAR && strstr(node->text, "${PORT}")) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "a peer is not started here, and has no ${PORT}");
    }
    BT_TRY(bt_read_model_proxy(r, node, &as_model));
    ((bt_config_peer *)target)->proxy = as_model.proxy;
    return BT_OK;
}

bt_status bt_read_peer_models(bt_config_reader *r, const bt_yaml_node *node, void *target) {
    bt_config_peer *peer = target;
    BT_TRY(bt_read_texts(r, node, PEER_MODELS_MAX, false, &peer->models, &peer->n_models));
    for (uint32_t i = 0; i < peer->n_models; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(peer->models[i], peer->models[k]) != 0) continue;
            return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.80s\" stands there twice", peer->models[i]);
        }
    }
    return BT_OK;
}

static bt_status read_peer(bt_config_reader *r, const bt_yaml_entry *entry) {
    bt_config_peer *peer = &r->c.peers[r->c.n_peers++];
    peer->header_timeout_ms = PEER_HEADER_MS;
    peer->name = bt_arena_strdup(r->arena, entry->key);
    if (!peer->name) return bt_read_no_memory(r);
    if (peer->name[0] == '\0' || strlen(peer->name) > BT_CONFIG_ID_MAX || strchr(peer->name, '/')) {
        return bt_read_fail(r, BT_E_FORMAT, entry->line, "\"%.80s\" is no name of a peer: 1 to %u bytes, no slash",
                            entry->key, BT_CONFIG_ID_MAX);
    }
    BT_TRY(bt_read_keys(r, BT_PLACE_PEER, entry->value, peer));
    if (!peer->proxy) return bt_read_fail(r, BT_E_FORMAT, entry->line, "it has no proxy, its address");
    if (peer->n_models == 0) return bt_read_fail(r, BT_E_FORMAT, entry->line, "it has no models, the names it has");
    return BT_OK;
}

bt_status bt_read_peers(bt_config_reader *r) {
    const bt_yaml_node *node = r->later.peers;
    if (!node) return BT_OK;
    bt_read_enter(r, "peers");
    BT_TRY(bt_read_map(r, node));
    if (node->n > BT_CONFIG_PEERS_MAX) {
        return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %u peers", BT_CONFIG_PEERS_MAX);
    }
    r->c.peers = bt_arena_array(r->arena, node->n ? node->n : 1, sizeof *r->c.peers);
    if (!r->c.peers) return bt_read_no_memory(r);
    for (uint32_t i = 0; i < node->n; i++) {
        bt_read_enter(r, node->entries[i].key);
        BT_TRY(read_peer(r, &node->entries[i]));
        bt_read_leave(r);
    }
    bt_read_leave(r);
    return BT_OK;
}
