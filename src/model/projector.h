/* SPDX-License-Identifier: MIT
 * projector.h: what a multimodal projector file (general.architecture "clip") says of its encoders. */
#pragma once

#include "burthen.h"

#define BT_PROJECTOR_SIDE_MAX 32 /* distinct sides; the measured types have up to 4 */

/* How llama.cpp makes a picture fit an encoder. */
typedef enum bt_image_rule {
    BT_IMAGE_TILE,   /* resized, or cut into tiles, of image_size x image_size */
    BT_IMAGE_TOKENS, /* any shape, up to a number of tokens */
    BT_IMAGE_PIXELS, /* any shape, up to a number of pixels that the file gives */
    BT_IMAGE_EDGE,   /* any shape, up to a longest edge that the file gives */
    BT_SOUND,        /* 30 seconds of a mel spectrogram at a time */
} bt_image_rule;

/* One encoder: a vision or an audio tower and the projection behind it. */
typedef struct bt_encoder {
    bool exists;
    char type[32]; /* projector type: "gemma3", "qwen2vl_merger" ... */
    bool known;    /* its graph is one that the prices know; else only the weights are */
    bt_image_rule rule;
    uint32_t n_embd, n_ff, n_block, n_head;
    uint32_t patch_px, image_px; /* edge of a patch; of a tile, or 0 */
    uint32_t merge;              /* merge x merge patches become a token; sound: frames that become one */
    uint32_t n_tokens_max;       /* BT_IMAGE_TOKENS: of the largest picture */
    uint64_t pixels_max;         /* BT_IMAGE_PIXELS, BT_IMAGE_EDGE: of the largest picture */
    uint32_t n_tiles_max;        /* pieces of one picture that are kept until all are encoded */
    uint32_t n_queries;          /* tokens that come out whatever the picture; 0: as many as merged patches */
    uint32_t n_deepstack;        /* blocks whose output joins the projection */
    bool gated;                  /* the feed-forward part has a gate */
    bool reuses;                 /* the gated product takes the place of queries, keys and values, when it fits */
    bool windows;                /* some blocks attend through a mask of all patches by all patches */
    bool batches;                /* pictures and tiles of one size are encoded together, up to 1024 tokens */
    /* What lives at once for a patch (for a token, in the projection), measured (docs/decisions/007-companions.md): */
    uint32_t n_attention_embd;             /* rows of n_embd in the attention part, with flash attention */
    uint32_t n_forward_embd;               /* rows of n_embd in the feed-forward part, beside its own */
    uint32_t n_hidden_live;                /* rows of the projection's widest matrix */
    uint32_t n_hidden;                     /* widest side of the projection's matrices */
    uint32_t sides[BT_PROJECTOR_SIDE_MAX]; /* all sides of its matrices: the model's width is one of them */
    uint32_t n_sides;
} bt_encoder;

/* Owned by its arena; bt_projector_close frees it. */
typedef struct bt_projector {
    const char *path; /* as given */
    bt_encoder vision, audio;
    uint32_t n_tensors;
    uint64_t weight_bytes; /* of all tensors */
    uint64_t tensor_bytes; /* of the largest: what loading holds twice */
    uint64_t file_bytes;
    char header_sha256[65];
    struct bt_arena *arena;
} bt_projector;

/* Read the header of a projector file.
 * returns BT_OK; BT_E_ARG code "mmproj_kind": a GGUF file, but no projector; else as bt_facts_open. An encoder of an
 *         unknown type is no failure: known is false. Reads the header only. */
BT_MUST_CHECK bt_status bt_projector_open(const char *path, bt_projector **ret_projector, bt_error *err);
void bt_projector_close(bt_projector *projector); /* NULL is fine */
