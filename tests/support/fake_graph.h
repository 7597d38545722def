/* SPDX-License-Identifier: MIT
 * fake_graph.h: a graph on clones whose data stand elsewhere. */
#pragma once

#include "ggml-impl.h"

#include <stdint.h>

typedef struct fake_graph {
    struct ggml_cgraph ggml;                    /* to compute */
    void *(*reach)(const struct ggml_tensor *); /* where a tensor's data can be reached */
    struct ggml_hash_set known;                 /* originals */
    struct ggml_tensor **clones;                /* [known.size] */
    struct ggml_tensor *all;
    uint32_t n_all;
} fake_graph;

void fake_graph_open(fake_graph *graph, struct ggml_cgraph *source, void *(*reach)(const struct ggml_tensor *));
void fake_graph_close(fake_graph *graph);
