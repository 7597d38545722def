/* SPDX-License-Identifier: MIT
 *
 * schedule.c: a graph walked once, so that computing it again is only binding and waiting.
 *
 * libllama's tensors are shared by several contexts and are never written. A schedule owns copies (clones) of a graph's
 * nodes, and of the weights and views of weights they read; sources inside the graph point to clones, all others (KV,
 * inputs) to the originals. The walk cuts the nodes into segments, each a run that needs the same streamed units:
 *
 *     | norm | q k v rope attn o norm | up | gate mul | down add norm | ...
 *              blk.0.attn               blk.0.ffn_up ...                      units of each segment
 *
 * A row lookup in a table and the product with the head are segments of their own (rows.c, panels.c). Weights that stay
 * in memory are bound here, once; streamed ones by compute.c, each time.
 *
 * A graph is known again by its uid, which ggml's scheduler keeps while it reuses a graph and never gives twice. When
 * what is in memory has changed since (elastic.c, another number of threads) it is built again in its place. There
 * are at most BT_SCHEDULE_MAX schedules; the one longest unused is built over, in its memory if that is large enough.
 */

#include "device/internal.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

/* ---- memory: one mapping, filled from the front ---- */

typedef struct bump {
    uint8_t *base;
    uint64_t used, size;
} bump;

static void *take(bump *memory, uint64_t n, uint64_t item_bytes) {
    uint64_t start = (memory->used + 63) / 64 * 64;
    memory->used = start + n * item_bytes;
    return memory->base ? memory->base + start : NULL;
}

/* Pointers from originals to their clones, while a schedule is built. */
typedef struct clone_map {
    const struct ggml_tensor **keys;
    struct ggml_tensor **values;
    uint32_t n_slots;
} clone_map;

static uint32_t clone_slot(const clone_map *map, const struct ggml_tensor *tensor) {
    uint64_t hash = ((uint64_t)(uintptr_t)tensor >> 4) * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    uint32_t slot = (uint32_t)(hash >> 32) % map->n_slots;
    while (map->keys[slot] && map->keys[slot] != tensor)
        slot = (slot + 1) % map->n_slots;
    return slot;
}

static struct ggml_tensor *clone_find(const clone_map *map, const struct ggml_tensor *tensor) {
    return map->values[clone_slot(map, tensor)];
}

static void clone_put(clone_map *map, const struct ggml_tensor *tensor, struct ggml_tensor *clone) {
    uint32_t slot = clone_slot(map, tensor);
    map->keys[slot] = tensor;
    map->values[slot] = clone;
}

typedef struct builder {
    bt_device *device;
    const struct ggml_cgraph *source;
    bt_schedule *schedule;
    clone_map map;
    uint32_t *node_units; /* [n_nodes][BT_SEGMENT_UNITS], BT_NO_UNIT where unused */
    bt_error *err;
} builder;

/* Upper bounds before the walk: every source could be another weight. */
static uint32_t count_weight_sources(const bt_device *device, const struct ggml_cgraph *graph) {
    uint32_t n = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            const struct ggml_tensor *src = graph->nodes[i]->src[k];
            if (!src) continue;
            const struct ggml_tensor *base = src->view_src ? src->view_src : src;
            n += bt_buffer_is_ours(device, base->buffer) && bt_weights_of(device->weights, base) != BT_NO_WEIGHT;
        }
    for (int i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->op == GGML_OP_MUL_MAT_ID; /* slot numbers (moe.c) */
    return n;
}

static bt_status get_memory(builder *b, uint64_t bytes) {
    bt_schedule *schedule = b->schedule;
    bt_account *account = b->device->account;
    b->device->stats.schedule_bytes = bt_max_u64(b->device->stats.schedule_bytes, bytes);
    if (schedule->memory && schedule->memory->bytes >= bytes) return BT_OK;
    bt_account_unmap(account, schedule->memory);
    schedule->memory = NULL;
    BT_TRY(bt_account_map(account, bt_device_line(b->device, BT_LINE_METADATA), bytes, &schedule->memory, b->err));
    bt_status status = bt_account_commit(account, schedule->memory, bytes, b->err);
    if (status != BT_OK) {
        bt_account_unmap(account, schedule->memory);
        schedule->memory = NULL;
    }
    return status;
}

static bt_status lay_out(builder *b) {
    bt_schedule *s = b->schedule;
    uint32_t n = (uint32_t)b->source->n_nodes;
    uint32_t n_sources = count_weight_sources(b->device, b->source);
    uint64_t n_hash = ggml_hash_size(n);
    uint32_t n_map = 2 * (n + n_sources) + 1;
    /* A bind may be needed by each segment a leaf is used in: once per source, and once per node that is a view. */
    uint64_t n_binds = (uint64_t)n_sources + n;
    uint64_t bytes = 0;
    bump memory = {NULL, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        s->clones = take(&memory, n, sizeof *s->clones);
        s->leafs = take(&memory, n_sources, sizeof *s->leafs);
        s->nodes = take(&memory, n, sizeof *s->nodes);
        s->segments = take(&memory, n, sizeof *s->segments);
        s->binds = take(&memory, n_binds, sizeof *s->binds);
        s->order = take(&memory, (uint64_t)n * BT_SEGMENT_UNITS + b->device->facts->n_units, sizeof *s->order);
        b->node_units = take(&memory, (uint64_t)n * BT_SEGMENT_UNITS, sizeof *b->node_units);
        b->map.keys = take(&memory, n_map, sizeof(void *));
        b->map.values = take(&memory, n_map, sizeof(void *));
        s->graph.use_counts = take(&memory, n_hash, sizeof *s->graph.use_counts);
        s->graph.visited_hash_set.keys = take(&memory, n_hash, sizeof(void *));
        s->graph.visited_hash_set.used = take(&memory, ggml_bitset_size(n_hash), sizeof(ggml_bitset_t));
        bytes = memory.used;
        if (pass == 0) {
            BT_TRY(get_memory(b, bytes));
            memory = (bump){s->memory->base, 0, bytes};
        }
    }
    memset(s->memory->base, 0, bytes);
    b->map.n_slots = n_map;
    s->graph.visited_hash_set.size = n_hash;
    s->n_nodes = n;
    s->n_leafs = s->n_segments = s->n_binds = s->n_order = 0;
    return BT_OK;
}

/* ---- cloning ---- */

static const struct ggml_tensor *base_of(const struct ggml_tensor *tensor) {
    return tensor->view_src ? tensor->view_src : tensor;
}

static uint32_t weight_of(const bt_device *device, const struct ggml_tensor *tensor) {
    const struct ggml_tensor *base = base_of(tensor);
    if (!bt_buffer_is_ours(device, base->buffer)) return BT_NO_WEIGHT;
    return bt_weights_of(device->weights, base);
}

static uint64_t view_offset(const struct ggml_tensor *tensor) {
    return tensor->view_src ? tensor->view_offs : 0;
}

/* Bind now what stays in memory. */
static void bind_resident(builder *b, struct ggml_tensor *clone, uint32_t weight) {
    uint8_t *resident = bt_weights_resident(b->device->weights, weight);
    if (resident) clone->data = resident + view_offset(clone);
}

/* In memory for good: also an expert tensor of which all experts are. */
static bool is_resident(const builder *b, uint32_t weight) {
    if (b->device->facts->tensors[weight].role == BT_ROLE_EXPERTS) return b->device->moe.all_there;
    return bt_weights_resident(b->device->weights, weight) != NULL;
}

static struct ggml_tensor *clone_source(builder *b, struct ggml_tensor *src) {
    struct ggml_tensor *clone = clone_find(&b->map, src);
    if (clone) return clone;
    uint32_t weight = weight_of(b->device, src);
    if (weight == BT_NO_WEIGHT) return src;
    clone = &b->schedule->leafs[b->schedule->n_leafs++];
    *clone = *src;
    bind_resident(b, clone, weight);
    bt_moe_bind(b->device, weight, clone);
    clone_put(&b->map, src, clone);
    return clone;
}

/* A weight that this product reads repacked: a clone for it alone. NULL: it does not. */
static struct ggml_tensor *clone_repacked(builder *b, const struct ggml_tensor *node) {
    const struct ggml_tensor *src = node->src[0];
    uint32_t weight = node->op == GGML_OP_MUL_MAT ? weight_of(b->device, src) : BT_NO_WEIGHT;
    if (weight == BT_NO_WEIGHT || !bt_repack_serves(b->device, node, weight)) return NULL;
    struct ggml_tensor *clone = &b->schedule->leafs[b->schedule->n_leafs++];
    *clone = *src;
    bt_repack_bind(b->device, weight, clone);
    return clone;
}

static void clone_nodes(builder *b) {
    bt_schedule *s = b->schedule;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct ggml_tensor *node = b->source->nodes[i];
        s->clones[i] = *node;
        s->nodes[i] = &s->clones[i];
        clone_put(&b->map, node, &s->clones[i]);
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct ggml_tensor *clone = &s->clones[i];
        struct ggml_tensor *repacked = clone_repacked(b, b->source->nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC; k++)
            if (clone->src[k]) clone->src[k] = k == 0 && repacked ? repacked : clone_source(b, clone->src[k]);
        if (clone->view_src) {
            uint32_t weight = weight_of(b->device, clone);
            struct ggml_tensor *view = clone_find(&b->map, clone->view_src);
            if (weight != BT_NO_WEIGHT) bind_resident(b, clone, weight);
            if (view) clone->view_src = view;
        }
    }
}

/* ggml fuses neighbours by counting how often a node is read: the clones need the same counts. */
static void copy_use_counts(builder *b) {
    struct ggml_cgraph *graph = &b->schedule->graph;
    graph->nodes = b->schedule->nodes;
    graph->n_nodes = (int)b->schedule->n_nodes;
    graph->order = b->source->order;
    for (uint32_t i = 0; i < b->schedule->n_nodes; i++) {
        size_t from = ggml_hash_find(&b->source->visited_hash_set, b->source->nodes[i]);
        size_t to = ggml_hash_insert(&graph->visited_hash_set, b->schedule->nodes[i]);
        bool known = from != GGML_HASHSET_FULL && ggml_bitset_get(b->source->visited_hash_set.used, from);
        /* an unknown count must not look like "read once" */
        graph->use_counts[to] = known ? b->source->use_counts[from] : INT32_MAX;
    }
}

/* ---- segments ---- */

static bool does_work(const struct ggml_tensor *node) {
    return !ggml_op_is_empty(node->op) && !ggml_is_empty(node) && (node->flags & GGML_TENSOR_FLAG_COMPUTE);
}

static bool is_table_role(bt_tensor_role role) {
    return role == BT_ROLE_TABLE || role == BT_ROLE_TIED;
}

static bool is_head_role(bt_tensor_role role) {
    return role == BT_ROLE_HEAD || role == BT_ROLE_TIED;
}

/* Which kind of segment a node is, and the weight that makes it special. */
static bt_segment_kind kind_of(const builder *b, uint32_t i, uint32_t *ret_weight) {
    const struct ggml_tensor *node = b->source->nodes[i];
    if (!does_work(node) || !node->src[0]) return BT_SEGMENT_PLAIN;
    uint32_t weight = weight_of(b->device, node->src[0]);
    if (weight == BT_NO_WEIGHT || is_resident(b, weight)) return BT_SEGMENT_PLAIN;
    bt_tensor_role role = b->device->facts->tensors[weight].role;
    *ret_weight = weight;
    if (node->op == GGML_OP_GET_ROWS && is_table_role(role)) return BT_SEGMENT_ROWS;
    if (node->op == GGML_OP_MUL_MAT && is_head_role(role) && !node->src[0]->view_src) return BT_SEGMENT_HEAD;
    if (node->op == GGML_OP_MUL_MAT_ID && role == BT_ROLE_EXPERTS && !node->src[0]->view_src) return BT_SEGMENT_EXPERTS;
    return BT_SEGMENT_PLAIN;
}

/* Streamed units the node reads; a table or head used in any other way cannot be served in pieces. */
static bt_status find_units(builder *b, uint32_t i) {
    const struct ggml_tensor *node = b->source->nodes[i];
    uint32_t *units = &b->node_units[(size_t)i * BT_SEGMENT_UNITS], n = 0;
    for (uint32_t k = 0; k < BT_SEGMENT_UNITS; k++)
        units[k] = BT_NO_UNIT;
    if (!does_work(node)) return BT_OK;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        uint32_t weight = node->src[k] ? weight_of(b->device, node->src[k]) : BT_NO_WEIGHT;
        if (weight == BT_NO_WEIGHT || is_resident(b, weight)) continue;
        const bt_tensor *tensor = &b->device->facts->tensors[weight];
        if (tensor->role != BT_ROLE_UNIT)
            return bt_fail(b->err, BT_E_UNSUPPORTED, "weight_use", BT_MEASURE_NONE, 0, 0,
                           "tensor %s is used by %s, which cannot be computed from pieces of it", tensor->name,
                           ggml_op_name(node->op));
        uint32_t at = 0;
        while (at < n && units[at] != tensor->unit)
            at++;
        if (at == n && n == BT_SEGMENT_UNITS)
            return bt_fail(b->err, BT_E_UNSUPPORTED, "weight_use", BT_MEASURE_ITEMS, n + 1, BT_SEGMENT_UNITS,
                           "%s reads more streamed weights at once than the ring can hold", ggml_op_name(node->op));
        if (at == n) units[n++] = tensor->unit;
    }
    return BT_OK;
}

static bool segment_has(const bt_segment *segment, uint32_t unit) {
    for (uint32_t k = 0; k < segment->n_units; k++)
        if (segment->units[k] == unit) return true;
    return false;
}

static bt_segment *open_segment(builder *b, uint32_t first, bt_segment_kind kind) {
    bt_segment *segment = &b->schedule->segments[b->schedule->n_segments++];
    *segment = (bt_segment){.kind = kind, .first = first, .weight = BT_NO_WEIGHT, .first_bind = b->schedule->n_binds};
    return segment;
}

/* Bind every streamed source of a node when its segment starts. */
static bt_status add_binds(builder *b, bt_segment *segment, uint32_t i) {
    struct ggml_tensor *clone = b->schedule->nodes[i];
    const struct ggml_tensor *node = b->source->nodes[i];
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        uint32_t weight = node->src[k] ? weight_of(b->device, node->src[k]) : BT_NO_WEIGHT;
        if (weight == BT_NO_WEIGHT || is_resident(b, weight)) continue;
        uint32_t unit = b->device->facts->tensors[weight].unit;
        uint64_t offset = bt_weights_image_offset(b->device->facts, unit, weight, view_offset(node->src[k]));
        if (offset == UINT64_MAX)
            return bt_fail(b->err, BT_E_LIMIT, "weight_extent", BT_MEASURE_NONE, 0, 0,
                           "tensor %s lies outside its unit", node->src[k]->name);
        b->schedule->binds[b->schedule->n_binds++] = (bt_bind){clone->src[k], unit, offset};
        segment->n_binds++;
    }
    return BT_OK;
}

static void add_experts(builder *b, uint32_t i, bt_segment *segment) {
    struct ggml_tensor *node = b->schedule->nodes[i];
    (void)bt_moe_find(b->device->facts, segment->weight, &segment->expert_block, &segment->expert_part);
    segment->ids = node->src[2];
    bt_moe_number(b->device, node, &b->schedule->leafs[b->schedule->n_leafs++]);
}

static bt_status add_special(builder *b, uint32_t i, bt_segment_kind kind, uint32_t weight) {
    bt_segment *segment = open_segment(b, i, kind);
    segment->n = 1;
    segment->weight = weight;
    if (kind == BT_SEGMENT_EXPERTS) add_experts(b, i, segment);
    if (kind == BT_SEGMENT_HEAD) {
        const bt_facts *facts = b->device->facts;
        for (uint32_t u = facts->tensors[weight].unit; u < facts->n_units && facts->units[u].kind == BT_KIND_HEAD; u++)
            if (bt_weights_unit_streams(b->device->weights, u)) b->schedule->order[b->schedule->n_order++] = u;
    }
    return BT_OK;
}

/* Add a node to the open plain segment, or open another when it needs a unit that the open one does not hold. */
static bt_status add_plain(builder *b, bt_segment **open, uint32_t i) {
    const uint32_t *units = &b->node_units[(size_t)i * BT_SEGMENT_UNITS];
    bool fits = *open != NULL;
    for (uint32_t k = 0; k < BT_SEGMENT_UNITS && units[k] != BT_NO_UNIT && fits; k++)
        fits = segment_has(*open, units[k]);
    if (!fits) {
        *open = open_segment(b, i, BT_SEGMENT_PLAIN);
        for (uint32_t k = 0; k < BT_SEGMENT_UNITS && units[k] != BT_NO_UNIT; k++) {
            (*open)->units[(*open)->n_units++] = units[k];
            b->schedule->order[b->schedule->n_order++] = units[k];
        }
    }
    (*open)->n++;
    return does_work(b->source->nodes[i]) ? add_binds(b, *open, i) : BT_OK;
}

static bt_status cut(builder *b) {
    bt_segment *open = NULL;
    for (uint32_t i = 0; i < b->schedule->n_nodes; i++) {
        uint32_t weight = BT_NO_WEIGHT;
        bt_segment_kind kind = kind_of(b, i, &weight);
        if (kind != BT_SEGMENT_PLAIN) {
            BT_TRY(add_special(b, i, kind, weight));
            /* what follows a product over experts without streamed weights is computed with it */
            open = kind == BT_SEGMENT_EXPERTS ? &b->schedule->segments[b->schedule->n_segments - 1] : NULL;
            continue;
        }
        BT_TRY(find_units(b, i));
        BT_TRY(add_plain(b, &open, i));
    }
    return BT_OK;
}

static uint32_t count_columns(const builder *b) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < b->schedule->n_nodes; i++) {
        const struct ggml_tensor *node = b->source->nodes[i];
        if (does_work(node) && node->op == GGML_OP_MUL_MAT && weight_of(b->device, node->src[0]) != BT_NO_WEIGHT)
            most = bt_max_u64(most, (uint64_t)node->src[1]->ne[1]);
    }
    return (uint32_t)bt_min_u64(most, UINT32_MAX);
}

/* What the CPU backend needs for each segment, and the work area for the largest. */
static bt_status plan_segments(builder *b) {
    uint64_t work_bytes = 0;
    for (uint32_t i = 0; i < b->schedule->n_segments; i++) {
        bt_segment *segment = &b->schedule->segments[i];
        struct ggml_cgraph view =
            ggml_graph_view(&b->schedule->graph, (int)segment->first, (int)(segment->first + segment->n));
        segment->plan = bt_cpu_plan_make(b->device->cpu, &view);
        work_bytes = bt_max_u64(work_bytes, segment->plan.work_bytes);
    }
    b->device->stats.work_bytes = bt_max_u64(b->device->stats.work_bytes, work_bytes);
    return bt_cpu_reserve(b->device->cpu, work_bytes, b->err);
}

static bt_status build(bt_device *device, const struct ggml_cgraph *graph, bt_schedule *schedule, bt_error *err) {
    builder b = {.device = device, .source = graph, .schedule = schedule, .err = err};
    schedule->uid = 0;
    BT_TRY(bt_replace_prepare(device, graph, err));
    BT_TRY(lay_out(&b));
    clone_nodes(&b);
    copy_use_counts(&b);
    BT_TRY(cut(&b));
    BT_TRY(plan_segments(&b));
    schedule->n_columns = count_columns(&b);
    schedule->uid = graph->uid;
    schedule->generation = device->generation;
    device->stats.schedules_built++;
    return BT_OK;
}

bt_status bt_schedule_get(bt_device *device, const struct ggml_cgraph *graph, bt_schedule **ret_schedule,
                          bt_error *err) {
    bt_schedule *oldest = &device->schedules[0];
    bt_schedule *found = NULL;
    for (size_t i = 0; i < BT_SCHEDULE_MAX; i++) {
        bt_schedule *schedule = &device->schedules[i];
        if (graph->uid != 0 && schedule->uid == graph->uid) found = schedule;
        if (schedule->last_use < oldest->last_use) oldest = schedule;
    }
    if (found && found->generation == device->generation)
        device->stats.schedules_reused++;
    else /* one that went out of date is built in its own place: it needs no more memory than before */
        BT_TRY(build(device, graph, found = found ? found : oldest, err));
    found->last_use = ++device->clock;
    *ret_schedule = found;
    return BT_OK;
}

void bt_schedules_close(bt_device *device) {
    for (size_t i = 0; i < BT_SCHEDULE_MAX; i++) {
        bt_account_unmap(device->account, device->schedules[i].memory);
        device->schedules[i].memory = NULL;
        device->schedules[i].uid = 0;
    }
}
