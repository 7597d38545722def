/* SPDX-License-Identifier: MIT
 *
 * engines.c: two programs beside llama.cpp's. A segment-anything server reads .ggml files and knows one switch that
 * keeps it off devices (G26); sd-server has --max-vram, a size in GiB that it is told and never checks, which is
 * lowered to what is free less one (G27). Neither is ever refused, nothing is ever raised. */
#include "guard/engines.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GIB        1073741824.0
#define SD_RESERVE 1.0 /* GiB that are left free */
#define SD_LEAST   0.5 /* GiB: it loads nothing with less */

static bool has_ggml(const bt_argv *argv) {
    for (uint32_t i = argv->first; i < argv->n_argv; i++) {
        size_t n = strlen(argv->argv[i]);
        if (n >= 5 && strcasecmp(argv->argv[i] + n - 5, ".ggml") == 0) return true;
    }
    return false;
}

static bt_status decide_sam(const bt_engine_ask *ask, bt_rewrite *rewrite, bt_engine_decision *ret, bt_error *err) {
    ret->known = true;
    if (!ask->sam_on_cpu || !has_ggml(ask->argv)) {
        (void)snprintf(ret->reason, sizeof ret->reason, "it stays as it is");
        return BT_OK;
    }
    if (bt_argv_last(ask->argv, BT_FLAG_SAM_NO_GPU)) {
        (void)snprintf(ret->reason, sizeof ret->reason, "--no-gpu keeps it off devices already");
        return BT_OK;
    }
    BT_TRY(bt_rewrite_append(rewrite, BT_FLAG_SAM_NO_GPU, NULL, NULL, err));
    ret->changed = true;
    (void)snprintf(ret->reason, sizeof ret->reason, "a .ggml model is kept off devices: --no-gpu");
    return BT_OK;
}

static bt_status decide_sd(const bt_engine_ask *ask, bt_rewrite *rewrite, bt_engine_decision *ret, bt_error *err) {
    double baked = 0;
    ret->known = true;
    if (bt_argv_real(ask->argv, BT_FLAG_SD_MAX_VRAM, &baked) != BT_VALUE_GIVEN || !ask->free_bytes.known) {
        (void)snprintf(ret->reason, sizeof ret->reason, "%s",
                       ask->free_bytes.known ? "no number of --max-vram is there to be lowered"
                                             : "no device says how much memory it has");
        return BT_OK;
    }
    double left = (double)ask->free_bytes.value / GIB - SD_RESERVE;
    double lowered = floor((left > SD_LEAST ? left : SD_LEAST) * 10 + 1e-6) / 10;
    if (left >= baked || lowered >= baked) {
        (void)snprintf(ret->reason, sizeof ret->reason, "--max-vram %.1f stays as it is", baked);
        return BT_OK;
    }
    char text[32];
    (void)snprintf(text, sizeof text, "%.1f", lowered);
    BT_TRY(bt_rewrite_set(rewrite, BT_FLAG_SD_MAX_VRAM, text, err));
    ret->changed = true;
    (void)snprintf(ret->reason, sizeof ret->reason, "--max-vram %s instead of %.1f", text, baked);
    return BT_OK;
}

bt_status bt_guard_engine(const bt_engine_ask *ask, bt_rewrite *rewrite, bt_engine_decision *ret, bt_error *err) {
    *ret = (bt_engine_decision){0};
    if (ask->argv->program == BT_PROGRAM_SAM) return decide_sam(ask, rewrite, ret, err);
    if (ask->argv->program == BT_PROGRAM_SD_SERVER) return decide_sd(ask, rewrite, ret, err);
    return BT_OK;
}
