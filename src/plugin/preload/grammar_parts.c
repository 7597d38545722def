/* SPDX-License-Identifier: MIT
 *
 * grammar_parts.c: a library to preload into llama.cpp's programs: a grammar looks at a part of the vocabulary at a
 * time.
 *
 * llama.cpp's grammar sampler spells out every candidate that it is given before it looks at the first: some 400 bytes
 * each, so 19 MiB for a vocabulary of 49,152 tokens and 99 for one of 262,144, and any request of a server may bring a
 * grammar. Whether one token is allowed does not depend on the others (engine/grammar.c does the same in our own
 * programs). This stands in the place of llama_sampler_apply, hands a grammar's candidates on in parts, and all else as
 * it comes.
 *
 * It needs nothing but the C library, so that it brings no other ggml into the program. Where it is not loaded the
 * text is the same, and a grammar takes the memory. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PART_MAX 1024u /* candidates: 400 KiB */

/* As in llama.h of the version that the device is built for (plugin/program.c sees to that). */
struct llama_sampler;
typedef struct llama_token_data {
    int32_t id;
    float logit, p;
} llama_token_data;
typedef struct llama_token_data_array {
    llama_token_data *data;
    size_t size;
    int64_t selected;
    bool sorted;
} llama_token_data_array;

typedef void (*apply_call)(struct llama_sampler *, llama_token_data_array *);
typedef const char *(*name_call)(const struct llama_sampler *);

/* ISO C cannot convert an object pointer to a function's. */
static void find(const char *name, void *ret_call, size_t bytes) {
    void *address = dlsym(RTLD_NEXT, name);
    memcpy(ret_call, &address, bytes);
}

__attribute__((visibility("default"))) void llama_sampler_apply(struct llama_sampler *sampler,
                                                                llama_token_data_array *candidates);

void llama_sampler_apply(struct llama_sampler *sampler, llama_token_data_array *candidates) {
    static apply_call apply; /* the same each time, whoever writes it */
    static name_call name;
    if (!apply) find("llama_sampler_apply", &apply, sizeof apply);
    if (!name) find("llama_sampler_name", &name, sizeof name);
    if (!apply) return; /* without libllama nobody has a sampler */
    /* no sampler is none to apply, and some have no name */
    const char *of = sampler && name && candidates->size > PART_MAX ? name(sampler) : NULL;
    if (!of || strcmp(of, "grammar") != 0) {
        apply(sampler, candidates);
        return;
    }
    for (size_t first = 0; first < candidates->size; first += PART_MAX) {
        size_t left = candidates->size - first;
        llama_token_data_array part = {candidates->data + first, left < PART_MAX ? left : PART_MAX, -1, false};
        apply(sampler, &part); /* marks those that are not allowed, and moves none */
    }
}
