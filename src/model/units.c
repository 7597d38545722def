/* SPDX-License-Identifier: MIT
 *
 * units.c: cuts a model into the pieces that are pinned or streamed, and says what to read for each.
 *
 *   block 7:  [attn_q attn_k attn_v attn_output]      -> "blk.7.attn"       one unit, if its image is small enough
 *             [ffn_gate] [ffn_up] [ffn_down]          -> "blk.7.ffn_gate"   else one for each tensor, in order of use
 *   head:     [rows 0..] [rows ..] [rest]             -> "head.0" "head.1"  panels of whole rows
 *   table:    [token_embd]                            -> "token_embd"       looked up by rows, or pinned as a whole
 *
 * A unit's image is what its slot holds: its extents one after another. An extent is a run of one file, widened to
 * pages so that it can be read directly; ranges closer than BT_EXTENT_GAP_BYTES are one. Tensors keep their place
 * within a page, so a tensor lies at image_offset + (its file_offset - the extent's). The order of units is the order
 * of use: blocks, what lies outside them, the head; tables, which are no part of a pass, come last. Panels are as large
 * as the largest unit of a block, or one read request when that is more: a head never decides the size of the ring.
 */
#include "model/units.h"

#include "base/error.h"
#include "base/size.h"
#include "model/gguf.h"
#include "model/layouts.h"
#include "model/roles.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    bt_facts *facts;
    const char *name;
    uint32_t *order; /* BT_ROLE_UNIT tensors: block, half, use */
    uint32_t n_order;
    uint64_t head_rows, panel_rows;
    const bt_tensor *head;
} builder;

/* ---- extents ------------------------------------------------------------------------------------------------------
 */

static uint64_t page_down(uint64_t x) {
    return x / BT_PAGE_BYTES * BT_PAGE_BYTES;
}

/* Ends of tensors lie within files, whose sizes are below 2^63: this cannot wrap. */
static uint64_t page_up(uint64_t x) {
    return page_down(x + BT_PAGE_BYTES - 1);
}

static int compare_extents(const void *a, const void *b) {
    const bt_extent *left = a, *right = b;
    if (left->shard != right->shard) return left->shard < right->shard ? -1 : 1;
    if (left->file_offset != right->file_offset) return left->file_offset < right->file_offset ? -1 : 1;
    return 0;
}

/* Sorts the n ranges, joins those that are near, and lays the rest out; returns how many are left. */
static uint32_t merge_extents(bt_extent *extents, uint32_t n, uint64_t *ret_image_bytes) {
    qsort(extents, n, sizeof *extents, compare_extents);
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        bt_extent *last = n_kept > 0 ? &extents[n_kept - 1] : NULL;
        uint64_t end = extents[i].file_offset + extents[i].bytes;
        if (last && last->shard == extents[i].shard &&
            extents[i].file_offset < last->file_offset + last->bytes + BT_EXTENT_GAP_BYTES) {
            last->bytes = bt_max_u64(last->file_offset + last->bytes, end) - last->file_offset;
        } else {
            extents[n_kept++] = extents[i];
        }
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < n_kept; i++) {
        extents[i].image_offset = at;
        at += extents[i].bytes;
    }
    *ret_image_bytes = at;
    return n_kept;
}

static bt_extent extent_of(const bt_tensor *t, uint64_t first_byte, uint64_t n_bytes) {
    uint64_t start = page_down(t->file_offset + first_byte);
    uint64_t end = page_up(t->file_offset + first_byte + n_bytes);
    return (bt_extent){.shard = t->shard, .file_offset = start, .bytes = end - start};
}

/* ---- units --------------------------------------------------------------------------------------------------------
 */

/* "blk.7.ffn_up" of "blk.7.ffn_up.weight"; a bias keeps its ending. */
static void set_tensor_name(char *dest, size_t n_dest, const char *tensor) {
    size_t n = strlen(tensor);
    static const char suffix[] = ".weight";
    if (n > sizeof suffix - 1 && strcmp(tensor + n - (sizeof suffix - 1), suffix) == 0) n -= sizeof suffix - 1;
    snprintf(dest, n_dest, "%.*s", (int)bt_min_u64(n, n_dest - 1), tensor);
}

/* A new unit of the n tensors members[]; its image is made of their whole ranges. */
static bt_unit_facts *add_unit(builder *b, bt_unit_kind kind, const uint32_t *members, uint32_t n) {
    bt_facts *f = b->facts;
    uint32_t index = f->n_units++;
    bt_unit_facts *u = &f->units[index];
    *u = (bt_unit_facts){.kind = kind, .block = f->tensors[members[0]].block};
    u->first_tensor = f->n_unit_tensors;
    u->n_tensors = n;
    u->first_extent = f->n_extents;
    for (uint32_t i = 0; i < n; i++) {
        bt_tensor *t = &f->tensors[members[i]];
        if (t->unit == BT_NO_UNIT) t->unit = index;
        f->unit_tensors[f->n_unit_tensors++] = members[i];
        f->extents[u->first_extent + i] = extent_of(t, 0, t->bytes);
        u->bytes += t->bytes;
    }
    u->n_extents = merge_extents(&f->extents[u->first_extent], n, &u->image_bytes);
    f->n_extents += u->n_extents;
    set_tensor_name(u->name, sizeof u->name, f->tensors[members[0]].name);
    return u;
}

static void drop_last_unit(bt_facts *f) {
    const bt_unit_facts *u = &f->units[--f->n_units];
    for (uint32_t i = 0; i < u->n_tensors; i++)
        f->tensors[f->unit_tensors[u->first_tensor + i]].unit = BT_NO_UNIT;
    f->n_unit_tensors = u->first_tensor;
    f->n_extents = u->first_extent;
}

/* One half of a block: whole if its image is small enough to be read as one. */
static void add_group(builder *b, const uint32_t *members, uint32_t n) {
    bt_unit_kind kind = bt_role_kind(&b->facts->tensors[members[0]]);
    bt_unit_facts *u = add_unit(b, kind, members, n);
    if (u->image_bytes <= BT_UNIT_SPLIT_BYTES) {
        snprintf(u->name, sizeof u->name, "blk.%" PRId32 ".%s", u->block, kind == BT_KIND_ATTENTION ? "attn" : "ffn");
        return;
    }
    drop_last_unit(b->facts);
    for (uint32_t i = 0; i < n; i++)
        add_unit(b, kind, &members[i], 1);
}

static bool same_group(const bt_tensor *a, const bt_tensor *b) {
    return a->block == b->block && a->block >= 0 && bt_role_kind(a) == bt_role_kind(b);
}

static void add_groups(builder *b) {
    const bt_tensor *tensors = b->facts->tensors;
    for (uint32_t i = 0; i < b->n_order;) {
        uint32_t n = 1;
        while (i + n < b->n_order && same_group(&tensors[b->order[i]], &tensors[b->order[i + n]]))
            n++;
        if (tensors[b->order[i]].block < 0)
            add_unit(b, BT_KIND_OTHER, &b->order[i], 1);
        else
            add_group(b, &b->order[i], n);
        i += n;
    }
}

static void add_panels(builder *b) {
    bt_facts *f = b->facts;
    if (!b->head) return;
    uint32_t tensor = (uint32_t)(b->head - f->tensors);
    uint32_t n = 0;
    for (uint64_t row = 0; row < b->head_rows; row += b->panel_rows) {
        bt_unit_facts *u = add_unit(b, BT_KIND_HEAD, &tensor, 1);
        u->row_first = row;
        u->n_rows = bt_min_u64(b->panel_rows, b->head_rows - row);
        u->bytes = u->n_rows * b->head->row_bytes;
        bt_extent *extent = &f->extents[u->first_extent];
        *extent = extent_of(b->head, row * b->head->row_bytes, u->bytes);
        u->image_bytes = extent->bytes;
        u->block = -1;
        snprintf(u->name, sizeof u->name, "head.%" PRIu32, n++);
    }
}

static void add_tables(builder *b) {
    for (uint32_t i = 0; i < b->facts->n_tensors; i++) {
        if (b->facts->tensors[i].role == BT_ROLE_TABLE) add_unit(b, BT_KIND_TABLE, &i, 1);
    }
}

/* ---- sizes, then everything
 * ------------------------------------------------------------------------------------------ */

/* The largest image of a block's unit; only those and OTHER units exist by now. */
static uint64_t largest_unit_bytes(const bt_facts *f) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < f->n_units; i++) {
        if (f->units[i].block >= 0) largest = bt_max_u64(largest, f->units[i].image_bytes);
    }
    return largest;
}

/* Whole kernel tiles of rows, so many that a panel's image is at most target_bytes, one tile at least. */
static bt_status size_panels(builder *b, uint64_t target_bytes, bt_error *err) {
    b->head_rows = b->head->bytes / b->head->row_bytes;
    uint64_t tile_bytes = bt_sat_mul_u64(b->head->row_bytes, BT_PANEL_ROW_ALIGN);
    uint64_t n_tiles = bt_max_u64(1, (target_bytes - (uint64_t)2 * BT_PAGE_BYTES) / tile_bytes);
    b->panel_rows = n_tiles * BT_PANEL_ROW_ALIGN;
    uint64_t n = (b->head_rows + b->panel_rows - 1) / b->panel_rows;
    if (n <= BT_PANEL_MAX) return BT_OK;
    return bt_fail(err, BT_E_LIMIT, "model_units", BT_MEASURE_ITEMS, n, BT_PANEL_MAX,
                   "%s: an output projection of %" PRIu64 " panels; the limit is %d", b->name, n, BT_PANEL_MAX);
}

static const bt_tensor *find_head(const bt_facts *f) {
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        if (f->tensors[i].role == BT_ROLE_HEAD || f->tensors[i].role == BT_ROLE_TIED) return &f->tensors[i];
    }
    return NULL;
}

typedef struct sort_row {
    uint32_t block, kind, rank, index;
} sort_row;

static int compare_rows(const void *a, const void *b) {
    const sort_row *left = a, *right = b;
    if (left->block != right->block) return left->block < right->block ? -1 : 1;
    if (left->kind != right->kind) return left->kind < right->kind ? -1 : 1;
    if (left->rank != right->rank) return left->rank < right->rank ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Block -1 becomes UINT32_MAX: after all blocks. */
static bt_status sort_tensors(builder *b, bt_arena *arena, bt_error *err) {
    const bt_facts *f = b->facts;
    sort_row *rows = bt_arena_array(arena, f->n_tensors, sizeof *rows);
    b->order = bt_arena_array(arena, f->n_tensors, sizeof *b->order);
    if (!rows || !b->order) return bt_model_no_room(b->name, err);
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const bt_tensor *t = &f->tensors[i];
        if (t->role != BT_ROLE_UNIT) continue;
        rows[b->n_order++] = (sort_row){
            .block = (uint32_t)t->block, .kind = (uint32_t)bt_role_kind(t), .rank = bt_role_rank(t), .index = i};
    }
    qsort(rows, b->n_order, sizeof *rows, compare_rows);
    for (uint32_t i = 0; i < b->n_order; i++)
        b->order[i] = rows[i].index;
    return BT_OK;
}

/* Room for every unit there can be: each tensor on its own, and the panels at their smallest. */
static bt_status reserve(builder *b, bt_arena *arena, bt_error *err) {
    bt_facts *f = b->facts;
    uint64_t n = b->n_order;
    for (uint32_t i = 0; i < f->n_tensors; i++)
        n += f->tensors[i].role == BT_ROLE_TABLE;
    if (b->head) {
        BT_TRY(size_panels(b, BT_PANEL_MIN_BYTES, err));
        n += (b->head_rows + b->panel_rows - 1) / b->panel_rows;
    }
    n = bt_max_u64(n, 1);
    f->units = bt_arena_array(arena, n, sizeof *f->units);
    f->unit_tensors = bt_arena_array(arena, n, sizeof *f->unit_tensors);
    f->extents = bt_arena_array(arena, n, sizeof *f->extents);
    return f->units && f->unit_tensors && f->extents ? BT_OK : bt_model_no_room(b->name, err);
}

bt_status bt_units_fill(bt_facts *facts, bt_arena *arena, bt_arena *scratch, const char *name, bt_error *err) {
    builder b = {.facts = facts, .name = name, .head = find_head(facts)};
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        facts->tensors[i].unit = BT_NO_UNIT;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        facts->tensors[i].layout = bt_layout_of(&facts->tensors[i]);
    BT_TRY(sort_tensors(&b, scratch, err));
    BT_TRY(reserve(&b, arena, err));
    add_groups(&b);
    if (b.head) BT_TRY(size_panels(&b, bt_max_u64(BT_PANEL_MIN_BYTES, largest_unit_bytes(facts)), err));
    add_panels(&b);
    add_tables(&b);
    return BT_OK;
}
