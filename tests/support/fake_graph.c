/* SPDX-License-Identifier: MIT
 *
 * fake_graph.c: the graph that a fake device computes: clones of the nodes and of what they read, with data where the
 * CPU can reach them. The originals, which several contexts may share, are left alone. */

#include "fake_graph.h"

#include <stdlib.h>

static void *zeroed(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);
    GGML_ASSERT(memory && "no memory for a test");
    return memory;
}

static struct ggml_hash_set set_new(size_t size) {
    return (struct ggml_hash_set){.size = size,
                                  .used = zeroed(ggml_bitset_size(size), sizeof(ggml_bitset_t)),
                                  .keys = zeroed(size, sizeof(struct ggml_tensor *))};
}

static struct ggml_tensor *clone_of(fake_graph *graph, struct ggml_tensor *tensor) {
    size_t slot = ggml_hash_find_or_insert(&graph->known, tensor);
    if (!graph->clones[slot]) {
        struct ggml_tensor *clone = &graph->all[graph->n_all++];
        *clone = *tensor;
        clone->data = graph->reach(tensor);
        graph->clones[slot] = clone;
    }
    return graph->clones[slot];
}

static void find_views(fake_graph *graph) {
    for (uint32_t i = 0; i < graph->n_all; i++) {
        if (!graph->all[i].view_src) continue;
        size_t slot = ggml_hash_find(&graph->known, graph->all[i].view_src);
        bool known = slot != GGML_HASHSET_FULL && ggml_bitset_get(graph->known.used, slot);
        if (known) graph->all[i].view_src = graph->clones[slot];
    }
}

/* What the CPU backend asks before it fuses operations. */
static void count_uses(fake_graph *graph, const struct ggml_cgraph *source) {
    for (int i = 0; i < source->n_nodes; i++) {
        size_t from = ggml_hash_find(&source->visited_hash_set, source->nodes[i]);
        size_t to = ggml_hash_insert(&graph->ggml.visited_hash_set, graph->ggml.nodes[i]);
        bool known = from != GGML_HASHSET_FULL && ggml_bitset_get(source->visited_hash_set.used, from);
        graph->ggml.use_counts[to] = known ? source->use_counts[from] : INT32_MAX;
    }
}

void fake_graph_open(fake_graph *graph, struct ggml_cgraph *source, void *(*reach)(const struct ggml_tensor *)) {
    size_t n_tensors = (size_t)source->n_nodes;
    for (int i = 0; i < source->n_nodes; i++)
        for (int s = 0; s < GGML_MAX_SRC; s++)
            n_tensors += source->nodes[i]->src[s] != NULL;
    size_t n_slots = n_tensors * 2 + 1;
    *graph = (fake_graph){.known = set_new(n_slots), .reach = reach};
    graph->clones = zeroed(n_slots, sizeof(struct ggml_tensor *));
    graph->all = zeroed(n_tensors + 1, sizeof(struct ggml_tensor));
    graph->ggml = (struct ggml_cgraph){.size = source->n_nodes, .n_nodes = source->n_nodes, .order = source->order};
    graph->ggml.nodes = zeroed((size_t)source->n_nodes + 1, sizeof(struct ggml_tensor *));
    graph->ggml.visited_hash_set = set_new((size_t)source->n_nodes * 2 + 1);
    graph->ggml.use_counts = zeroed((size_t)source->n_nodes * 2 + 1, sizeof(int32_t));
    for (int i = 0; i < source->n_nodes; i++) {
        struct ggml_tensor *clone = graph->ggml.nodes[i] = clone_of(graph, source->nodes[i]);
        for (int s = 0; s < GGML_MAX_SRC; s++)
            if (clone->src[s]) clone->src[s] = clone_of(graph, clone->src[s]);
    }
    find_views(graph);
    if (source->use_counts) count_uses(graph, source);
}

static void set_free(struct ggml_hash_set *set) {
    free(set->used);
    free(set->keys);
}

void fake_graph_close(fake_graph *graph) {
    set_free(&graph->known);
    set_free(&graph->ggml.visited_hash_set);
    free(graph->ggml.use_counts);
    free(graph->ggml.nodes);
    free(graph->clones);
    free(graph->all);
}
