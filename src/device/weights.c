/* SPDX-License-Identifier: MIT
 *
 * weights.c: which tensor of the file a ggml tensor is, and where its bytes are.
 *
 * libllama's weight buffers are only address space. A weight is matched once, when libllama hands it over: by name,
 * size and type, and by the tag that the virtual model file put where its bytes would be; from then on it is known by
 * its tensor (the pointer) and is an index into the facts. Its bytes are in one of four places:
 *
 *   small    packed in one mapping on the line output_norm: norms, biases, everything under 64 KiB
 *   pinned   the unit's image, in one mapping (or a copy of it, elastic.c); head panels in a second one that mirrors
 * the file, so that a head whose panels are all pinned is one contiguous table ring     the unit's image in a slot,
 * while it is held rows     read from the file one by one (rows.c) */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"

#include <string.h>

#define SMALL_ALIGN 64u
static const char tag_magic[8] = {'B', 'T', 'H', 'N', 'T', 'A', 'G', '1'};

/* Pinned units by the line that pays for them. */
typedef enum area { AREA_PINNED, AREA_HEAD, AREA_TABLES, AREA_COUNT } area;
static const bt_line area_lines[AREA_COUNT] = {BT_LINE_PINNED, BT_LINE_HEAD, BT_LINE_EMBEDDINGS};

typedef struct pointer_entry {
    const struct ggml_tensor *tensor;
    const struct ggml_backend_buffer *buffer; /* with which the record goes */
    uint32_t weight;
} pointer_entry;

struct bt_weights {
    bt_device *device;
    const bt_facts *facts;
    uint32_t *by_name;         /* [n_tensors] indices sorted by name */
    uint64_t *small_offset;    /* [n_tensors] */
    bool *seen;                /* [n_tensors] handed over */
    uint64_t *unit_offset;     /* [n_units] in pinned (or head) memory; UINT64_MAX: streams */
    pointer_entry *by_pointer; /* open addressing */
    uint32_t n_pointer_slots, n_pointers;
    bt_mapping *small;
    bt_mapping *areas[AREA_COUNT];
    uint64_t head_file_offset; /* page-aligned start of the head's table in its file */
};

static area area_of(const bt_unit_facts *unit) {
    if (unit->kind == BT_KIND_HEAD) return AREA_HEAD;
    return unit->kind == BT_KIND_TABLE ? AREA_TABLES : AREA_PINNED;
}

void bt_device_tag_write(uint32_t tensor, uint8_t tag[BT_TAG_BYTES]) {
    uint32_t inverse = ~tensor;
    memcpy(tag, tag_magic, sizeof tag_magic);
    memcpy(tag + 8, &tensor, sizeof tensor);
    memcpy(tag + 12, &inverse, sizeof inverse);
}

static bool is_streamable(const bt_tensor *tensor) {
    return tensor->role != BT_ROLE_SMALL && tensor->role != BT_ROLE_UNUSED && tensor->role != BT_ROLE_AWAY;
}

/* ---- names ---- */

static void sort_names(bt_weights *weights) {
    /* Heap sort: no recursion, no allocation, and the comparison needs the facts. */
    uint32_t n = weights->facts->n_tensors;
    uint32_t *a = weights->by_name;
    const bt_tensor *tensors = weights->facts->tensors;
    for (uint32_t i = 0; i < n; i++)
        a[i] = i;
    for (uint32_t start = n / 2, end = n; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            end--;
            uint32_t top = a[end];
            a[end] = a[0];
            a[0] = top;
        }
        uint32_t root = start;
        for (uint32_t child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && strcmp(tensors[a[child]].name, tensors[a[child + 1]].name) < 0) child++;
            if (strcmp(tensors[a[root]].name, tensors[a[child]].name) >= 0) break;
            uint32_t swap = a[root];
            a[root] = a[child];
            a[child] = swap;
        }
    }
}

/* Tensor of the file with this name and size, or BT_NO_WEIGHT. */
static uint32_t find(const bt_weights *weights, const char *name, uint64_t bytes, uint32_t type) {
    uint32_t low = 0, high = weights->facts->n_tensors;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const bt_tensor *tensor = &weights->facts->tensors[weights->by_name[mid]];
        int order = strcmp(name, tensor->name);
        if (order == 0) return tensor->bytes == bytes && tensor->type == type ? weights->by_name[mid] : BT_NO_WEIGHT;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return BT_NO_WEIGHT;
}

/* ---- pointers ---- */

static uint32_t home_slot(const bt_weights *weights, const struct ggml_tensor *tensor) {
    uint64_t hash = ((uint64_t)(uintptr_t)tensor >> 4) * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    return (uint32_t)(hash >> 32) % weights->n_pointer_slots;
}

static uint32_t pointer_slot(const bt_weights *weights, const struct ggml_tensor *tensor) {
    uint32_t slot = home_slot(weights, tensor);
    while (weights->by_pointer[slot].tensor && weights->by_pointer[slot].tensor != tensor)
        slot = (slot + 1) % weights->n_pointer_slots;
    return slot;
}

uint32_t bt_weights_of(const bt_weights *weights, const struct ggml_tensor *tensor) {
    const pointer_entry *entry = &weights->by_pointer[pointer_slot(weights, tensor)];
    return entry->tensor ? entry->weight : BT_NO_WEIGHT;
}

static bool remember(bt_weights *weights, const struct ggml_tensor *tensor, uint32_t weight) {
    pointer_entry *entry = &weights->by_pointer[pointer_slot(weights, tensor)];
    if (!entry->tensor) {
        /* Half full at most: a weight may be loaded twice (a tied table on two devices), not more often. */
        if (weights->n_pointers >= weights->n_pointer_slots / 2) return false;
        weights->n_pointers++;
        entry->tensor = tensor;
    }
    entry->buffer = tensor->buffer;
    entry->weight = weight;
    weights->seen[weight] = true;
    return true;
}

/* What follows an erased entry moves up, unless it would come to stand before its home. */
static void erase(bt_weights *weights, uint32_t slot) {
    pointer_entry *entries = weights->by_pointer;
    uint32_t n = weights->n_pointer_slots, hole = slot;
    for (uint32_t at = (hole + 1) % n; entries[at].tensor; at = (at + 1) % n) {
        uint32_t home = home_slot(weights, entries[at].tensor);
        bool stays = hole <= at ? hole < home && home <= at : hole < home || home <= at;
        if (stays) continue;
        entries[hole] = entries[at];
        hole = at;
    }
    entries[hole] = (pointer_entry){0};
    weights->n_pointers--;
}

void bt_weights_forget(bt_weights *weights, const struct ggml_backend_buffer *buffer) {
    memset(weights->seen, 0, weights->facts->n_tensors * sizeof *weights->seen);
    for (uint32_t slot = 0; slot < weights->n_pointer_slots; slot++)
        while (weights->by_pointer[slot].tensor && weights->by_pointer[slot].buffer == buffer)
            erase(weights, slot);
    for (uint32_t slot = 0; slot < weights->n_pointer_slots; slot++)
        if (weights->by_pointer[slot].tensor) weights->seen[weights->by_pointer[slot].weight] = true;
    if (weights->n_pointers == 0) bt_guest_forget(weights->device);
}

/* ---- layout ---- */

static uint64_t lay_out_small(bt_weights *weights) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < weights->facts->n_tensors; i++) {
        if (weights->facts->tensors[i].role != BT_ROLE_SMALL) continue;
        weights->small_offset[i] = total;
        total += (weights->facts->tensors[i].bytes + SMALL_ALIGN - 1) / SMALL_ALIGN * SMALL_ALIGN;
    }
    return total;
}

/* Head panels keep the file's order and distances; the others stand one after another. */
static void lay_out_units(bt_weights *weights, uint64_t ret_bytes[AREA_COUNT]) {
    const bt_facts *facts = weights->facts;
    const bt_place *place = weights->device->params.place;
    bool head_known = false;
    for (uint32_t u = 0; u < facts->n_units; u++) {
        const bt_unit_facts *unit = &facts->units[u];
        area where = area_of(unit);
        const bt_extent *extent = &facts->extents[unit->first_extent];
        if (where == AREA_HEAD && !head_known) {
            weights->head_file_offset = extent->file_offset;
            head_known = true;
        }
        weights->unit_offset[u] = UINT64_MAX;
        if (!place || place[u] != BT_PLACE_PINNED) continue;
        if (where == AREA_HEAD)
            weights->unit_offset[u] = extent->file_offset - weights->head_file_offset;
        else
            weights->unit_offset[u] = ret_bytes[where];
        ret_bytes[where] = bt_max_u64(ret_bytes[where], weights->unit_offset[u] + unit->image_bytes);
    }
}

static bt_status map_all(bt_weights *weights, bt_error *err) {
    bt_account *account = weights->device->account;
    uint64_t small = lay_out_small(weights), bytes[AREA_COUNT] = {0};
    lay_out_units(weights, bytes);
    if (small > 0) {
        BT_TRY(
            bt_account_map(account, bt_device_line(weights->device, BT_LINE_OUTPUT_NORM), small, &weights->small, err));
        BT_TRY(bt_account_commit(account, weights->small, small, err));
    }
    for (size_t i = 0; i < AREA_COUNT; i++)
        if (bytes[i] > 0)
            BT_TRY(bt_account_map(account, bt_device_line(weights->device, area_lines[i]), bytes[i], &weights->areas[i],
                                  err));
    if (weights->areas[AREA_HEAD]) weights->areas[AREA_HEAD]->scattered = true; /* between pinned panels are others */
    return BT_OK;
}

bt_status bt_weights_open(bt_device *device, bt_weights **ret_weights, bt_error *err) {
    const bt_facts *facts = device->facts;
    bt_weights *weights = bt_heap_alloc(sizeof *weights);
    if (!weights)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *weights, 0,
                       "no memory for the table of weights");
    weights->device = device;
    weights->facts = facts;
    weights->n_pointer_slots = facts->n_tensors * 4 + 8;
    weights->by_name = bt_heap_array(facts->n_tensors, sizeof *weights->by_name);
    weights->small_offset = bt_heap_array(facts->n_tensors, sizeof *weights->small_offset);
    weights->seen = bt_heap_array(facts->n_tensors, sizeof *weights->seen);
    weights->unit_offset = bt_heap_array(facts->n_units, sizeof *weights->unit_offset);
    weights->by_pointer = bt_heap_array(weights->n_pointer_slots, sizeof *weights->by_pointer);
    if (!weights->by_name || !weights->small_offset || !weights->seen || !weights->unit_offset ||
        !weights->by_pointer) {
        bt_weights_close(weights);
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, facts->n_tensors, 0,
                       "no memory for the table of %u weights", facts->n_tensors);
    }
    sort_names(weights);
    bt_status status = device->params.stands_in > 0 ? BT_OK : map_all(weights, err);
    if (status != BT_OK) {
        bt_weights_close(weights);
        return status;
    }
    *ret_weights = weights;
    return BT_OK;
}

void bt_weights_close(bt_weights *weights) {
    if (!weights) return;
    bt_account *account = weights->device->account;
    bt_account_unmap(account, weights->small);
    for (size_t i = 0; i < AREA_COUNT; i++)
        bt_account_unmap(account, weights->areas[i]);
    bt_heap_free(weights->by_name);
    bt_heap_free(weights->small_offset);
    bt_heap_free(weights->seen);
    bt_heap_free(weights->unit_offset);
    bt_heap_free(weights->by_pointer);
    bt_heap_free(weights);
}

/* ---- bytes in and out ---- */

static bool tag_matches(uint32_t weight, const void *data, uint64_t bytes) {
    uint8_t tag[BT_TAG_BYTES];
    bt_device_tag_write(weight, tag);
    return bytes >= sizeof tag && memcmp(data, tag, sizeof tag) == 0;
}

/* Of another file there may be a tensor of the same name. */
static bool is_of_file(bt_weights *weights, uint32_t weight, const void *data, uint64_t bytes) {
    if (weights->device->guest) return bt_guest_is_weight(weights->device, weight, data, 0, bytes);
    return !is_streamable(&weights->facts->tensors[weight]) || tag_matches(weight, data, bytes);
}

static void fill(bt_weights *weights, uint32_t weight, const void *data, uint64_t offset, uint64_t bytes) {
    bt_error err;
    if (weights->device->guest && bt_guest_fill(weights->device, weight, data, offset, bytes, &err) != BT_OK)
        bt_device_fail(weights->device, &err);
}

/* A tensor of the file by its first piece, or BT_NO_WEIGHT: ordinary memory. */
static uint32_t match(bt_weights *weights, const struct ggml_tensor *tensor, const void *data, uint64_t offset,
                      uint64_t bytes) {
    uint32_t weight = find(weights, tensor->name, ggml_nbytes(tensor), (uint32_t)tensor->type);
    if (weight == BT_NO_WEIGHT || offset != 0) return BT_NO_WEIGHT;
    if (weights->facts->tensors[weight].role == BT_ROLE_AWAY) return BT_NO_WEIGHT; /* it was to be elsewhere */
    return is_of_file(weights, weight, data, bytes) && remember(weights, tensor, weight) ? weight : BT_NO_WEIGHT;
}

bt_status bt_weights_fetch(const bt_weights *weights, const struct ggml_tensor *tensor, void *dest, bt_error *err) {
    uint32_t weight = find(weights, tensor->name, ggml_nbytes(tensor), (uint32_t)tensor->type);
    if (weight == BT_NO_WEIGHT) return BT_OK; /* it has another name by now: nothing of it came as a weight */
    const bt_tensor *facts = &weights->facts->tensors[weight];
    return bt_store_read(weights->device->params.store, facts->shard, facts->file_offset, dest, facts->bytes, err);
}

bt_whose bt_weights_set(bt_weights *weights, const struct ggml_tensor *tensor, const void *data, uint64_t offset,
                        uint64_t bytes) {
    bt_device *device = weights->device;
    if (device->params.stands_in > 0) return BT_WHOSE_FILE;
    uint32_t weight = bt_weights_of(weights, tensor);
    if (weight == BT_NO_WEIGHT) {
        weight = match(weights, tensor, data, offset, bytes);
        if (weight == BT_NO_WEIGHT) return BT_WHOSE_OTHER;
    } else if (device->guest && !bt_guest_is_weight(device, weight, data, offset, bytes)) {
        if (bt_guest_refuses(device, weight)) return BT_WHOSE_FILE;
        erase(weights, pointer_slot(weights, tensor));
        return BT_WHOSE_NO_MORE;
    }
    fill(weights, weight, data, offset, bytes);
    if (weights->facts->tensors[weight].role == BT_ROLE_SMALL) {
        /* ggml has checked offset + bytes against the tensor */
        uint8_t *base = weights->small->base;
        memcpy(base + weights->small_offset[weight] + offset, data, bytes);
    }
    return BT_WHOSE_FILE;
}

bool bt_weights_get(bt_weights *weights, const struct ggml_tensor *tensor, void *data, uint64_t offset,
                    uint64_t bytes) {
    const struct ggml_tensor *base = tensor->view_src ? tensor->view_src : tensor;
    uint32_t weight = bt_weights_of(weights, base);
    if (weight == BT_NO_WEIGHT) return false;
    uint64_t start = offset + (tensor->view_src ? tensor->view_offs : 0);
    const uint8_t *resident = bt_weights_resident(weights, weight);
    if (resident && !bt_replace_hides(weights->device, weight)) {
        memcpy(data, resident + start, bytes);
        return true;
    }
    const bt_tensor *facts = &weights->facts->tensors[weight];
    bt_error err;
    if (!weights->device->params.store) {
        memset(data, 0, bytes);
    } else if (bt_store_read(weights->device->params.store, facts->shard, facts->file_offset + start, data, bytes,
                             &err) != BT_OK) {
        memset(data, 0, bytes);
        bt_device_fail(weights->device, &err);
    }
    return true;
}

bool bt_weights_unit_is_pinned(const bt_weights *weights, uint32_t unit) {
    return weights->unit_offset[unit] != UINT64_MAX;
}

bool bt_weights_unit_streams(const bt_weights *weights, uint32_t unit) {
    return !bt_weights_unit_is_pinned(weights, unit) && !bt_elastic_image(weights->device, unit);
}

bt_mapping *bt_weights_unit_mapping(const bt_weights *weights, uint32_t unit) {
    if (!bt_weights_unit_is_pinned(weights, unit)) return NULL;
    return weights->areas[area_of(&weights->facts->units[unit])];
}

bool bt_weights_any(const bt_weights *weights) {
    return weights->n_pointers > 0;
}

uint8_t *bt_weights_unit_image(const bt_weights *weights, uint32_t unit) {
    if (!bt_weights_unit_is_pinned(weights, unit)) return bt_elastic_image(weights->device, unit);
    const bt_mapping *mapping = weights->areas[area_of(&weights->facts->units[unit])];
    return (uint8_t *)mapping->base + weights->unit_offset[unit];
}

uint64_t bt_weights_image_offset(const bt_facts *facts, uint32_t unit, uint32_t weight, uint64_t byte) {
    const bt_unit_facts *u = &facts->units[unit];
    const bt_tensor *tensor = &facts->tensors[weight];
    uint64_t position = tensor->file_offset + byte;
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *extent = &facts->extents[u->first_extent + i];
        if (extent->shard == tensor->shard && position >= extent->file_offset &&
            position < extent->file_offset + extent->bytes)
            return extent->image_offset + (position - extent->file_offset);
    }
    return UINT64_MAX;
}

/* A head is in memory as a whole when each of its panels is pinned: elastic ones do not follow each other. */
static bool all_pinned(const bt_weights *weights, const bt_tensor *tensor) {
    const bt_facts *facts = weights->facts;
    for (uint32_t u = tensor->unit; u < facts->n_units && facts->units[u].kind == BT_KIND_HEAD; u++)
        if (!bt_weights_unit_is_pinned(weights, u)) return false;
    return true;
}

void *bt_weights_resident(const bt_weights *weights, uint32_t weight) {
    const bt_tensor *tensor = &weights->facts->tensors[weight];
    if (tensor->role == BT_ROLE_SMALL)
        return weights->small ? (uint8_t *)weights->small->base + weights->small_offset[weight] : NULL;
    if (tensor->unit == BT_NO_UNIT) return NULL;
    bool is_head = tensor->role == BT_ROLE_HEAD || tensor->role == BT_ROLE_TIED;
    if (is_head && !all_pinned(weights, tensor)) return NULL;
    uint8_t *image = bt_weights_unit_image(weights, tensor->unit);
    if (!image) return NULL;
    return image + bt_weights_image_offset(weights->facts, tensor->unit, weight, 0);
}

uint32_t bt_weights_missing(const bt_weights *weights, const char **ret_name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < weights->facts->n_tensors; i++) {
        const bt_tensor *tensor = &weights->facts->tensors[i];
        if (!is_streamable(tensor) || weights->seen[i]) continue;
        if (n++ == 0) *ret_name = tensor->name;
    }
    return n;
}

/* ---- pinning ---- */

#define PIN_JOBS 8 /* units read at once: enough that the reader's queue never runs dry */

typedef struct pin_job {
    int job;
    uint64_t bytes;
} pin_job;

static bt_status pin_start(bt_weights *weights, uint32_t unit, pin_job *ret_job, bt_error *err) {
    const bt_unit_facts *u = &weights->facts->units[unit];
    uint8_t *image = bt_weights_unit_image(weights, unit);
    bt_run runs[256] = {0}; /* the reader's own limit for a job */
    if (u->n_extents > sizeof runs / sizeof *runs)
        return bt_fail(err, BT_E_LIMIT, "unit_extents", BT_MEASURE_ITEMS, u->n_extents, sizeof runs / sizeof *runs,
                       "unit %s lies in %u pieces", u->name, u->n_extents);
    for (uint32_t i = 0; i < u->n_extents; i++) {
        const bt_extent *extent = &weights->facts->extents[u->first_extent + i];
        runs[i] = (bt_run){extent->shard, extent->file_offset, extent->bytes, image + extent->image_offset};
    }
    bt_mapping *mapping = weights->areas[area_of(u)];
    /* Two head panels share the page they meet on; it is charged once. */
    uint64_t charge = u->image_bytes;
    uint64_t left = mapping->bytes - mapping->committed_bytes;
    charge = bt_min_u64(charge, left);
    BT_TRY(bt_account_commit(weights->device->account, mapping, charge, err));
    ret_job->bytes = u->image_bytes;
    return bt_reader_start(weights->device->params.reader, runs, u->n_extents, &ret_job->job, err);
}

/* Pinned, and not there yet: a guest was handed what it pins. */
static bool must_read(const bt_weights *weights, uint32_t unit) {
    return !bt_weights_unit_streams(weights, unit) && !bt_guest_has_unit(weights->device, unit);
}

static uint64_t bytes_to_pin(const bt_weights *weights) {
    uint64_t total = 0;
    for (uint32_t u = 0; u < weights->facts->n_units; u++)
        if (must_read(weights, u)) total += weights->facts->units[u].image_bytes;
    return total;
}

bt_status bt_weights_pin(bt_weights *weights, bt_device_progress progress, void *user, bt_error *err) {
    bt_reader *reader = weights->device->params.reader;
    uint64_t total = bytes_to_pin(weights), done = 0;
    pin_job queue[PIN_JOBS] = {0};
    uint32_t first = 0, n = 0, next = 0;
    bt_status status = BT_OK;
    for (;;) {
        while (status == BT_OK && n < PIN_JOBS && next < weights->facts->n_units) {
            if (must_read(weights, next)) {
                status = pin_start(weights, next, &queue[(first + n) % PIN_JOBS], err);
                n += status == BT_OK;
            }
            next++;
        }
        if (n == 0 || status != BT_OK) break;
        pin_job job = queue[first];
        first = (first + 1) % PIN_JOBS;
        n--;
        status = bt_reader_wait(reader, job.job, err);
        done += job.bytes;
        if (status == BT_OK && progress && !progress(done, total, user))
            status = bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "loading was cancelled");
    }
    for (; n > 0; n--, first = (first + 1) % PIN_JOBS)
        bt_reader_cancel(reader, queue[first].job);
    return status;
}
