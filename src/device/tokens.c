/* SPDX-License-Identifier: MIT
 *
 * tokens.c: operations of a few tokens, computed token by token where ggml would round them otherwise than alone.
 *
 * Tokens that were guessed are verified together, and each must see what it would have seen alone, to the bit
 * (docs/design.md S2). Two operations of ggml's CPU backend depend on how many tokens there are:
 *
 *   flash attention   of one token it splits 512 cells and more over the threads and sums the parts; of several each
 * goes over all cells products          some types have kernels for two columns and more (llamafile's) that add up in
 * another order; which do, same_rows.c tries
 *
 * Such a node is computed once for each token, on views of its source and of its result. That costs what single steps
 * compute; the weights are read from the disk once all the same.
 *
 *     q [DK, n_tokens, heads]     mask [cells, n_tokens]     result [DV, heads, n_tokens]
 *     columns [n, n_tokens, ..]                              result [rows, n_tokens, ..]
 */

#include "device/internal.h"

/* Of a node: how many tokens it has in the dimension that is taken apart; 1: nothing to do. */
static int64_t n_tokens_of(const bt_device *device, const struct ggml_tensor *node) {
    if (node->op == GGML_OP_FLASH_ATTN_EXT) return node->src[0]->ne[3] == 1 ? node->src[0]->ne[1] : 1;
    if (node->op == GGML_OP_MUL_MAT && !device->same_rows[node->src[0]->type]) return node->src[1]->ne[1];
    return 1;
}

bool bt_tokens_split(const bt_device *device, const struct ggml_tensor *node) {
    if (!device->token_by_token) return false;
    int64_t n = n_tokens_of(device, node);
    return n > 1 && n <= BT_TOKEN_BY_TOKEN_MAX;
}

/* The t-th of dimension d. */
static struct ggml_tensor view_of(const struct ggml_tensor *tensor, int d, int64_t t) {
    struct ggml_tensor view = *tensor;
    view.ne[d] = 1;
    view.data = (uint8_t *)tensor->data + (size_t)t * tensor->nb[d];
    return view;
}

static enum ggml_status compute_token(bt_device *device, const struct ggml_cgraph *like, const bt_cpu_plan *plan,
                                      const struct ggml_tensor *node, int64_t t) {
    bool attends = node->op == GGML_OP_FLASH_ATTN_EXT;
    struct ggml_tensor result = view_of(node, attends ? 2 : 1, t);
    struct ggml_tensor source = view_of(node->src[attends ? 0 : 1], 1, t);
    struct ggml_tensor mask;
    result.src[attends ? 0 : 1] = &source;
    if (attends && node->src[3]) {
        mask = view_of(node->src[3], 1, t);
        result.src[3] = &mask;
    }
    struct ggml_tensor *nodes[] = {&result};
    struct ggml_cgraph graph = *like;
    graph.nodes = nodes;
    graph.n_nodes = 1;
    graph.uid = 0;
    return bt_cpu_compute(device->cpu, &graph, plan);
}

enum ggml_status bt_tokens_compute(bt_device *device, const struct ggml_cgraph *like, const bt_cpu_plan *plan,
                                   const struct ggml_tensor *node) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    int64_t n = n_tokens_of(device, node);
    for (int64_t t = 0; t < n && status == GGML_STATUS_SUCCESS; t++)
        status = compute_token(device, like, plan, node, t);
    return status;
}

void bt_device_set_token_by_token(bt_device *device, bool on) {
    pthread_mutex_lock(&device->graph_lock);
    device->token_by_token = on;
    pthread_mutex_unlock(&device->graph_lock);
}
