/* SPDX-License-Identifier: MIT
 *
 * lender.c: which pages of a buffer are touched, and which of them a graph will touch before it runs.
 *
 * A buffer that lends (elastic.c) is charged for the pages that were written, and for no others. Its pages have a bit
 * each. libllama writes to such a buffer only through us, so the bits can be set before the pages exist:
 *
 *   SET_ROWS    the rows that its indices name. They are an input: known before the graph runs
 *   other nodes the range of their result
 *   set_tensor  the range that is set (a restored state)
 *   reading     nothing: a page that was never written is the system's zero page
 *
 * ggml's allocator keeps the places of the largest graph for every smaller one, so what a token uses of a compute
 * buffer is scattered over it. Compute buffers hold nothing between two passes: pages that no graph of a whole window
 * of passes used are dropped, and lend again. A pass may be several graphs (splits); it is told by a graph that comes
 * back. Each buffer has a window of its own, of the graphs whose results it holds: another context, which computes
 * meanwhile, says nothing of inputs that were set and results that were not read yet.
 *
 * Bound: two bits a page. */

#include "device/internal.h"

#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <string.h>

/* Rows shorter than this are a transposed cache, where each token touches every page. */
#define ROW_MIN_BYTES 64u

struct bt_lender {
    uint64_t *touched; /* one bit a page */
    uint64_t *used;    /* compute buffers: one bit a page that a graph of this window uses */
    uint64_t n_pages;
    uint64_t n_fresh; /* marked for what is about to run, not yet charged */
    bool keeps;       /* its content outlives a graph: a cache */
    bool runs;        /* holds results of the graph that is about to run */
    bt_lend_window window;
};

/* Set bits [first, end); the number that were not set before. */
static uint64_t bits_set(uint64_t *bits, uint64_t first, uint64_t end) {
    uint64_t n = 0;
    for (uint64_t i = first; i < end;) {
        uint64_t width = bt_min_u64(64 - i % 64, end - i);
        uint64_t mask = (width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1) << i % 64;
        n += (uint64_t)__builtin_popcountll(mask & ~bits[i / 64]);
        bits[i / 64] |= mask;
        i += width;
    }
    return n;
}

void bt_lender_mark(bt_lender *lender, uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return;
    uint64_t page = bt_os_page_bytes();
    uint64_t first = offset / page;
    uint64_t end = bt_min_u64((offset + bytes - 1) / page + 1, lender->n_pages);
    lender->n_fresh += bits_set(lender->touched, first, end);
    if (lender->used) (void)bits_set(lender->used, first, end);
}

void bt_lender_free(bt_lender *lender) {
    bt_heap_free(lender->touched);
    bt_heap_free(lender->used);
    bt_heap_free(lender);
}

static uint64_t n_words(const bt_lender *lender) {
    return lender->n_pages / 64 + 1;
}

bt_lender *bt_lender_make(uint64_t bytes, bool keeps) {
    bt_lender *lender = bt_heap_alloc(sizeof *lender);
    if (!lender) return NULL;
    lender->n_pages = bytes / bt_os_page_bytes();
    lender->keeps = keeps;
    lender->touched = bt_heap_array(n_words(lender), sizeof *lender->touched);
    if (!keeps) lender->used = bt_heap_array(n_words(lender), sizeof *lender->used);
    if (lender->touched && (keeps || lender->used)) return lender;
    bt_lender_free(lender);
    return NULL;
}

/* ---- what a graph will touch ---- */

static bt_buffer *lending_buffer(const bt_device *device, const struct ggml_tensor *tensor) {
    const struct ggml_tensor *base = tensor->view_src ? tensor->view_src : tensor;
    if (!bt_buffer_is_ours(device, base->buffer)) return NULL;
    bt_buffer *buffer = base->buffer->context;
    return buffer->lender ? buffer : NULL;
}

static uint64_t offset_in(const bt_buffer *buffer, const struct ggml_tensor *tensor) {
    return (uint64_t)((const uint8_t *)tensor->data - (const uint8_t *)buffer->memory->mapping->base);
}

/* Rows that are written, when they can be told before the graph runs: indices are an input, rows are long. */
static bool mark_rows(const bt_buffer *buffer, const struct ggml_tensor *node) {
    const struct ggml_tensor *ids = node->src[1];
    uint64_t row_bytes = ggml_row_size(node->type, node->ne[0]);
    bool plain = ids && ids->op == GGML_OP_NONE && ids->data && ggml_is_contiguous(ids) && node->ne[2] == 1 &&
                 node->ne[3] == 1 && row_bytes >= ROW_MIN_BYTES;
    if (!plain || (ids->type != GGML_TYPE_I64 && ids->type != GGML_TYPE_I32)) return false;
    uint64_t start = offset_in(buffer, node);
    int64_t n = ggml_nelements(ids);
    for (int64_t i = 0; i < n; i++) {
        int64_t row =
            ids->type == GGML_TYPE_I64 ? ((const int64_t *)ids->data)[i] : (int64_t)((const int32_t *)ids->data)[i];
        if (row < 0 || row >= node->ne[1]) continue; /* ggml refuses it */
        bt_lender_mark(buffer->lender, start + (uint64_t)row * node->nb[1], row_bytes);
    }
    return true;
}

static void mark_node(const bt_device *device, const struct ggml_tensor *node) {
    bt_buffer *buffer = lending_buffer(device, node);
    if (!buffer || ggml_op_is_empty(node->op) || ggml_is_empty(node)) return;
    if (node->op == GGML_OP_SET_ROWS && buffer->lender->keeps && mark_rows(buffer, node)) return;
    bt_lender_mark(buffer->lender, offset_in(buffer, node), ggml_nbytes(node));
}

/* Inputs, and results of other graphs, that this one reads. Reading a cache touches nothing: pages that were never
 * written are the system's zero page. */
static void mark_source(const bt_device *device, const struct ggml_tensor *source) {
    bt_buffer *buffer = lending_buffer(device, source);
    if (buffer && !buffer->lender->keeps)
        bt_lender_mark(buffer->lender, offset_in(buffer, source), ggml_nbytes(source));
}

void bt_lenders_mark_graph(const bt_device *device, const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        mark_node(device, node);
        for (int k = 0; k < GGML_MAX_SRC; k++)
            if (node->src[k]) mark_source(device, node->src[k]);
    }
}

/* ---- pages that graphs have left ---- */

static bool is_left(const bt_lender *lender, uint64_t page) {
    return page < lender->n_pages && (lender->touched[page / 64] & ~lender->used[page / 64] & UINT64_C(1) << page % 64);
}

/* Pages of a compute buffer that no graph of the window used are dropped. */
static void drop_left(bt_account *account, bt_buffer *buffer) {
    bt_lender *lender = buffer->lender;
    bt_mapping *mapping = buffer->memory->mapping;
    uint64_t page_bytes = bt_os_page_bytes();
    uint64_t n_dropped = 0;
    for (uint64_t first = 0; first < lender->n_pages; first++) {
        uint64_t end = first;
        while (is_left(lender, end))
            end++;
        if (end == first) continue;
        if (n_dropped == 0) bt_account_measure(account); /* the peak of the line, before it is gone */
        if (bt_os_drop((uint8_t *)mapping->base + first * page_bytes, (end - first) * page_bytes) != 0) break;
        n_dropped += end - first;
        for (; first < end; first++)
            lender->touched[first / 64] &= ~(UINT64_C(1) << first % 64);
    }
    bt_account_release(account, mapping, n_dropped * page_bytes);
}

/* Graphs since the same one ran last: the length of a pass. 0: it is new. */
static uint32_t pass_length(const bt_lend_window *window, uint64_t uid) {
    if (uid == 0) return 0;
    for (uint32_t n = 1; n <= BT_PASS_GRAPHS && n <= window->n_graphs; n++)
        if (window->uids[(window->n_graphs - n) % BT_PASS_GRAPHS] == uid) return n;
    return 0;
}

static void follow(bt_account *account, bt_buffer *buffer, uint64_t uid) {
    bt_lender *lender = buffer->lender;
    bt_lend_window *window = &lender->window;
    uint32_t pass = pass_length(window, uid);
    uint64_t length = window->n_graphs - window->start;
    bool complete = pass > 0 && length >= bt_max_u64(UINT64_C(2) * pass, BT_CALM_GRAPHS);
    window->uids[window->n_graphs % BT_PASS_GRAPHS] = uid;
    if (complete) drop_left(account, buffer);
    if (complete || pass == 0) {
        memset(lender->used, 0, n_words(lender) * sizeof *lender->used);
        window->start = window->n_graphs;
    }
    window->n_graphs++;
}

void bt_lenders_follow(bt_device *device, const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        bt_buffer *buffer = lending_buffer(device, graph->nodes[i]);
        if (buffer) buffer->lender->runs = true;
    }
    for (bt_buffer *buffer = device->buffers; buffer; buffer = buffer->next) {
        if (!buffer->lender || !buffer->lender->runs) continue;
        buffer->lender->runs = false;
        if (!buffer->lender->keeps) follow(device->account, buffer, graph->uid);
    }
}

/* ---- its own numbers ---- */

uint64_t bt_lender_take_fresh_bytes(bt_lender *lender) {
    uint64_t bytes = lender->n_fresh * bt_os_page_bytes();
    lender->n_fresh = 0;
    return bytes;
}

bool bt_lender_keeps(const bt_lender *lender) {
    return lender->keeps;
}

void bt_lender_clear(bt_lender *lender) {
    memset(lender->touched, 0, n_words(lender) * sizeof *lender->touched);
    lender->n_fresh = 0;
}
