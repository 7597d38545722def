/* SPDX-License-Identifier: MIT
 *
 * moe.c: products of a mixture of experts (MUL_MAT_ID), over slots that hold some of the experts.
 *
 *     router -> ids -> [acquire] -> slot numbers -> MUL_MAT_ID(slots, x, slot numbers) -> ...
 *                \-> weights of the sum, biases, scales: with the router's own ids
 *
 * A schedule is cut before each such product. At the first one of a block its experts are asked for, all together; the
 * product then runs over the block's slots as over a smaller tensor of experts, with the slots' numbers in place of the
 * experts'. The kernels skip what no row names, and what they compute for a row does not depend on how many experts
 * there are, so the results are those of the whole tensor, to the bit.
 *
 * A prompt may use more experts of a block than it has slots. They then come in turn: the rows of one expert are
 * gathered, multiplied as a mixture of one expert, and scattered, while the next ones are read. Rows are never split by
 * token: from 8 rows of an expert on ggml's kernels are others, and round otherwise.
 *
 * Where there is a slot for each expert all are read at the start, and nothing is cut.
 *
 * Bounds: the work area of bt_facts_expert_work, the slots of store/experts.h. A router that names an expert that does
 * not exist, as one with NaN weights does, is an error. Left out: products of expert tensors in any other operation. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

/* Between two waits for reads a block computes for about as long as one or two experts take to be read: with 2 a 934
 * MiB mixture decoded 8 to 12 % faster than without, with 4 no faster, for what was read in vain (docs/decisions/021).
 */
#define GUESSES 2u

/* Routers whose numbers can be read as they stand. */
static void find_routers(bt_device *device) {
    const bt_facts *facts = device->facts;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", facts->expert_blocks[b].block);
        device->moe.routers[b] = BT_NO_WEIGHT;
        for (uint32_t i = 0; i < facts->n_tensors; i++) {
            const bt_tensor *t = &facts->tensors[i];
            bool fits = t->role == BT_ROLE_SMALL && t->type == GGML_TYPE_F32 && t->ne[1] == facts->n_expert;
            if (fits && strcmp(t->name, name) == 0) device->moe.routers[b] = i;
        }
    }
}

/* In eight sums, as the compiler has registers for. */
static float dot(const float *a, const float *b, uint64_t n) {
    float sums[8] = {0};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint64_t k = 0; k < 8; k++)
            sums[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sums[0] += a[i] * b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* What the next block's router would say of what goes into this block's experts: a block changes little of it. Of the
 * experts that it would choose, the likeliest first. Wrong ones cost a read that nobody waits for. */
static void guess_next(bt_device *device, uint32_t block, const struct ggml_tensor *x) {
    bt_moe *moe = &device->moe;
    uint32_t n = device->facts->n_expert;
    moe->n_guesses = 0;
    if (block + 1 >= device->facts->n_expert_blocks || ggml_nelements(x) != x->ne[0] || x->type != GGML_TYPE_F32)
        return;
    uint32_t router = moe->routers[block + 1];
    if (router == BT_NO_WEIGHT || device->facts->tensors[router].ne[0] != (uint64_t)x->ne[0]) return;
    const float *rows = bt_weights_resident(device->weights, router);
    for (uint32_t e = 0; e < n; e++)
        moe->scores[e] = dot(rows + (uint64_t)e * (uint64_t)x->ne[0], x->data, (uint64_t)x->ne[0]);
    uint32_t n_most = (uint32_t)bt_min_u64(bt_min_u64(device->facts->n_expert_used, GUESSES), n);
    for (; moe->n_guesses < n_most; moe->n_guesses++) {
        uint32_t best = 0;
        for (uint32_t e = 1; e < n; e++)
            if (moe->scores[e] > moe->scores[best]) best = e;
        moe->guesses[moe->n_guesses] = best;
        moe->scores[best] = -INFINITY;
    }
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static bt_status open_slots(bt_device *device, bt_error *err) {
    const bt_facts *facts = device->facts;
    bt_moe *moe = &device->moe;
    moe->all_there = !device->params.experts_shared;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++) {
        moe->n_slots[b] = device->params.n_expert_slots + (b < device->params.n_expert_extra);
        moe->all_there = moe->all_there && moe->n_slots[b] >= facts->n_expert;
    }
    return bt_experts_open(device->account, device->params.reader, facts, moe->n_slots, device->params.experts_shared,
                           &moe->experts, err);
}

static bt_status open_work(bt_device *device, bt_error *err) {
    bt_moe *moe = &device->moe;
    moe->work = bt_facts_expert_work(device->facts, device->params.n_ubatch);
    BT_TRY(bt_account_map(device->account, BT_LINE_EXPERTS, moe->work.bytes, &moe->memory, err));
    BT_TRY(bt_account_commit(device->account, moe->memory, moe->work.bytes, err));
    uint32_t n = device->facts->n_expert;
    moe->wanted = bt_heap_array(n, sizeof *moe->wanted);
    moe->order = bt_heap_array(n, sizeof *moe->order);
    moe->is_wanted = bt_heap_array(n, sizeof *moe->is_wanted);
    moe->places = bt_heap_array(device->params.n_ubatch, sizeof *moe->places);
    moe->scores = bt_heap_array(n, sizeof *moe->scores);
    find_routers(device);
    if (!moe->wanted || !moe->order || !moe->is_wanted || !moe->places || !moe->scores)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n, 0, "no memory for the numbers of %u experts", n);
    return BT_OK;
}

typedef struct filling {
    bt_device_progress progress;
    void *user;
    uint64_t before_bytes, all_bytes;
} filling;

static bool show(uint64_t done_bytes, void *user) {
    const filling *f = user;
    return !f->progress || f->progress(f->before_bytes + done_bytes, f->all_bytes, f->user);
}

static bt_status fill(bt_device *device, bt_device_progress progress, void *user, bt_error *err) {
    const bt_facts *facts = device->facts;
    filling f = {.progress = progress, .user = user};
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        if (facts->tensors[i].role == BT_ROLE_EXPERTS) f.all_bytes += facts->tensors[i].bytes;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++) {
        BT_TRY(bt_experts_read_all(device->moe.experts, b, show, &f, err));
        f.before_bytes += facts->expert_blocks[b].expert_bytes * facts->n_expert;
    }
    return BT_OK;
}

bt_status bt_moe_open(bt_device *device, bt_device_progress progress, void *user, bt_error *err) {
    if (device->facts->n_expert_blocks == 0) return BT_OK;
    BT_TRY(open_slots(device, err));
    BT_TRY(open_work(device, err));
    return device->moe.all_there ? fill(device, progress, user, err) : BT_OK;
}

void bt_moe_close(bt_device *device) {
    bt_moe *moe = &device->moe;
    bt_experts_close(moe->experts);
    bt_account_unmap(device->account, moe->memory);
    bt_heap_free(moe->wanted);
    bt_heap_free(moe->order);
    bt_heap_free(moe->is_wanted);
    bt_heap_free(moe->places);
    bt_heap_free(moe->scores);
    *moe = (bt_moe){0};
}

/* ---- schedules -------------------------------------------------------------------------------------------------- */

bool bt_moe_find(const bt_facts *facts, uint32_t weight, uint32_t *ret_block, uint32_t *ret_part) {
    if (facts->tensors[weight].role != BT_ROLE_EXPERTS) return false;
    for (uint32_t b = 0; b < facts->n_expert_blocks; b++)
        for (uint32_t p = 0; p < facts->expert_blocks[b].n_parts; p++) {
            if (facts->expert_blocks[b].parts[p].tensor != weight) continue;
            *ret_block = b;
            *ret_part = p;
            return true;
        }
    return false;
}

void bt_moe_bind(const bt_device *device, uint32_t weight, struct ggml_tensor *clone) {
    uint32_t block = 0, part = 0;
    if (!device->moe.experts || !bt_moe_find(device->facts, weight, &block, &part)) return;
    const bt_expert_block *facts = &device->facts->expert_blocks[block];
    clone->ne[2] = device->moe.n_slots[block];
    clone->nb[2] = facts->slot_bytes;
    clone->nb[3] = facts->slot_bytes * device->moe.n_slots[block];
    clone->data =
        bt_experts_base(device->moe.experts, block) + facts->parts[part].slot_offset + facts->parts[part].shift;
}

void bt_moe_number(const bt_device *device, struct ggml_tensor *node, struct ggml_tensor *leaf) {
    *leaf = *node->src[2];
    leaf->op = GGML_OP_NONE;
    memset(leaf->src, 0, sizeof leaf->src);
    leaf->view_src = NULL;
    leaf->view_offs = 0;
    leaf->nb[0] = sizeof(int32_t);
    leaf->nb[1] = leaf->nb[0] * (size_t)leaf->ne[0];
    leaf->nb[2] = leaf->nb[3] = leaf->nb[1] * (size_t)leaf->ne[1];
    leaf->data = device->moe.memory ? device->moe.memory->base : NULL;
    node->src[2] = leaf;
}

/* ---- acquiring -------------------------------------------------------------------------------------------------- */

static int32_t id_at(const struct ggml_tensor *ids, int64_t k, int64_t token) {
    int32_t id;
    memcpy(&id, (const uint8_t *)ids->data + (uint64_t)k * ids->nb[0] + (uint64_t)token * ids->nb[1], sizeof id);
    return id;
}

/* Which experts the router chose, each once. */
static bt_status collect(bt_device *device, const struct ggml_tensor *ids, bt_error *err) {
    bt_moe *moe = &device->moe;
    uint32_t n_expert = device->facts->n_expert;
    memset(moe->is_wanted, 0, n_expert * sizeof *moe->is_wanted);
    moe->n_wanted = 0;
    uint64_t n_bytes = (uint64_t)(ids->ne[0] * ids->ne[1]) * sizeof(int32_t);
    if (n_bytes > moe->work.numbers_bytes)
        return bt_fail(err, BT_E_LIMIT, "expert_ids", BT_MEASURE_BYTES, n_bytes, moe->work.numbers_bytes,
                       "a graph chooses %lld experts for each of %lld tokens, more than were planned for",
                       (long long)ids->ne[0], (long long)ids->ne[1]);
    for (int64_t t = 0; t < ids->ne[1]; t++)
        for (int64_t k = 0; k < ids->ne[0]; k++) {
            int32_t id = id_at(ids, k, t);
            if (id < 0 || (uint32_t)id >= n_expert)
                return bt_fail(err, BT_E_DEVICE, "expert_ids", BT_MEASURE_ITEMS, (uint64_t)(int64_t)id, n_expert,
                               "the router chose expert %d of %u", id, n_expert);
            if (moe->is_wanted[id]) continue;
            moe->is_wanted[id] = true;
            moe->wanted[moe->n_wanted++] = (uint32_t)id;
        }
    return BT_OK;
}

static void write_numbers(bt_device *device, uint32_t block, const struct ggml_tensor *ids) {
    int32_t *numbers = device->moe.memory->base;
    for (int64_t t = 0; t < ids->ne[1]; t++)
        for (int64_t k = 0; k < ids->ne[0]; k++)
            *numbers++ = (int32_t)bt_experts_slot(device->moe.experts, block, (uint32_t)id_at(ids, k, t));
}

static bt_status acquire(bt_device *device, const bt_schedule *schedule, const bt_segment *segment, bt_error *err) {
    bt_moe *moe = &device->moe;
    if (moe->ids == segment->ids && moe->block == segment->expert_block) return BT_OK;
    moe->ids = NULL;
    BT_TRY(collect(device, segment->ids, err));
    moe->in_turn = moe->n_wanted > moe->n_slots[segment->expert_block];
    if (moe->in_turn) {
        BT_TRY(bt_experts_request_in_turn(moe->experts, segment->expert_block, moe->wanted, moe->n_wanted, moe->order,
                                          err));
    } else {
        BT_TRY(bt_experts_request(moe->experts, segment->expert_block, moe->wanted, moe->n_wanted, segment->expert_part,
                                  err));
        write_numbers(device, segment->expert_block, segment->ids);
    }
    guess_next(device, segment->expert_block, schedule->nodes[segment->first]->src[1]);
    moe->ids = segment->ids;
    moe->block = segment->expert_block;
    return BT_OK;
}

/* ---- in turn ---------------------------------------------------------------------------------------------------- */

/* Rows of one expert: gathered from x, and where their results go. */
typedef struct rows {
    struct ggml_tensor x, ids, out, weight;
    int64_t first; /* place in ids (token by token) that is looked at next */
    int64_t n;
} rows;

/* The next rows of an expert, at most as many as there is room for: more than tokens only when a token names an expert
 * twice. */
static bool gather(const bt_device *device, const struct ggml_tensor *node, const struct ggml_tensor *ids,
                   uint32_t expert, rows *r, int64_t *places) {
    const struct ggml_tensor *x = node->src[1];
    int64_t room = device->params.n_ubatch, n_used = ids->ne[0], end = n_used * ids->ne[1];
    uint8_t *at = (uint8_t *)device->moe.memory->base + device->moe.work.rows_offset;
    uint64_t row_bytes = (uint64_t)x->ne[0] * sizeof(float);
    r->n = 0;
    for (; r->first < end && r->n < room; r->first++) {
        int64_t k = r->first % n_used, t = r->first / n_used;
        if (id_at(ids, k, t) != (int32_t)expert) continue;
        const uint8_t *row = (const uint8_t *)x->data + (uint64_t)(k % x->ne[1]) * x->nb[1] + (uint64_t)t * x->nb[2];
        memcpy(at + (uint64_t)r->n * row_bytes, row, row_bytes);
        places[r->n++] = r->first;
    }
    return r->n > 0;
}

static void scatter(const bt_device *device, const struct ggml_tensor *node, int64_t n_used, const rows *r,
                    const int64_t *places) {
    uint64_t row_bytes = (uint64_t)node->ne[0] * sizeof(float);
    const uint8_t *from = (const uint8_t *)device->moe.memory->base + device->moe.work.results_offset;
    for (int64_t i = 0; i < r->n; i++) {
        uint64_t k = (uint64_t)(places[i] % n_used), t = (uint64_t)(places[i] / n_used);
        memcpy((uint8_t *)node->data + k * node->nb[1] + t * node->nb[2], from + (uint64_t)i * row_bytes, row_bytes);
    }
}

/* like, as [ne0, 1, n] of F32 or I32 at data */
static void shape(struct ggml_tensor *ret, const struct ggml_tensor *like, int64_t ne0, int64_t ne1, int64_t ne2,
                  void *data) {
    *ret = *like;
    ret->ne[0] = ne0;
    ret->ne[1] = ne1;
    ret->ne[2] = ne2;
    ret->ne[3] = 1;
    ret->nb[0] = 4;
    for (int d = 1; d < GGML_MAX_DIMS; d++)
        ret->nb[d] = ret->nb[d - 1] * (size_t)ret->ne[d - 1];
    ret->view_src = NULL;
    ret->data = data;
}

static enum ggml_status multiply(bt_device *device, const struct ggml_cgraph *like, const bt_segment *segment,
                                 const struct ggml_tensor *node, void *slice, rows *r) {
    uint8_t *base = device->moe.memory->base;
    const bt_expert_work *work = &device->moe.work;
    shape(&r->x, node->src[1], node->src[1]->ne[0], 1, r->n, base + work->rows_offset);
    shape(&r->out, node, node->ne[0], 1, r->n, base + work->results_offset);
    shape(&r->ids, node->src[2], 1, r->n, 1, base + work->zeros_offset);
    r->weight = *node->src[0];
    r->weight.ne[2] = 1;
    r->weight.data = slice;
    r->out.src[0] = &r->weight;
    r->out.src[1] = &r->x;
    r->out.src[2] = &r->ids;
    struct ggml_tensor *nodes[1] = {&r->out};
    struct ggml_cgraph graph = *like;
    graph.nodes = nodes;
    graph.n_nodes = 1;
    graph.uid = 0;
    return bt_cpu_compute(device->cpu, &graph, &segment->plan);
}

static enum ggml_status compute_turn(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                     uint32_t expert, void *slice) {
    const struct ggml_tensor *node = schedule->nodes[segment->first];
    enum ggml_status status = GGML_STATUS_SUCCESS;
    rows r = {.first = 0};
    int64_t *places = device->moe.places;
    while (status == GGML_STATUS_SUCCESS && gather(device, node, segment->ids, expert, &r, places)) {
        status = multiply(device, &schedule->graph, segment, node, slice, &r);
        scatter(device, node, segment->ids->ne[0], &r, places);
    }
    return status;
}

static enum ggml_status compute_in_turn(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                        bt_error *err) {
    bt_moe *moe = &device->moe;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (uint32_t i = 0; i < moe->n_wanted && status == GGML_STATUS_SUCCESS; i++) {
        void *slice = NULL;
        uint64_t start_ns = bt_os_now_ns();
        if (bt_device_stop_asked(device)) return GGML_STATUS_ABORTED;
        if (bt_experts_turn(moe->experts, segment->expert_part, i, &slice, err) != BT_OK) return GGML_STATUS_FAILED;
        uint64_t ready_ns = bt_os_now_ns();
        status = compute_turn(device, schedule, segment, moe->order[i], slice);
        device->stats.wait_ns += ready_ns - start_ns;
        device->stats.compute_ns += bt_os_now_ns() - ready_ns;
    }
    return status;
}

/* ---- a segment --------------------------------------------------------------------------------------------------- */

void bt_moe_begin(bt_device *device) {
    device->moe.ids = NULL;
}

enum ggml_status bt_moe_prepare(bt_device *device, const bt_schedule *schedule, const bt_segment *segment,
                                bool *ret_done, bt_error *err) {
    bt_moe *moe = &device->moe;
    uint64_t start_ns = bt_os_now_ns();
    bt_status status = acquire(device, schedule, segment, err);
    if (status == BT_OK && !moe->in_turn) status = bt_experts_wait(moe->experts, segment->expert_part, err);
    bool is_last = segment->expert_part + 1 == device->facts->expert_blocks[segment->expert_block].n_parts;
    if (status == BT_OK && is_last && moe->n_guesses > 0) { /* nothing is being read now */
        bt_experts_guess(moe->experts, segment->expert_block + 1, moe->guesses, moe->n_guesses);
        moe->n_guesses = 0;
    }
    device->stats.wait_ns += bt_os_now_ns() - start_ns;
    *ret_done = moe->in_turn;
    if (status != BT_OK) {
        moe->ids = NULL;
        return GGML_STATUS_FAILED;
    }
    return moe->in_turn ? compute_in_turn(device, schedule, segment, err) : GGML_STATUS_SUCCESS;
}
