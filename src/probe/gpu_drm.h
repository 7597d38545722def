/* SPDX-License-Identifier: MIT
 * gpu_drm.h: graphics cards as the kernel describes them in /sys. */
#pragma once

#include "probe/gpu.h"
#include "probe/proc.h"

/* Add the cards below root that models can be computed on, as card0, card1 ... */
void bt_drm_cards_probe(const char *root, bt_proc_text *scratch, bt_gpus *gpus);

/* All of its memory is the host's: what the system has, and what of it could be had. */
void bt_drm_share_host(const char *root, bt_proc_text *scratch, bt_gpu *gpu);

/* The lowest PCI id of an NVIDIA graphics device that no other driver than NVIDIA's holds and that is not in the list.
 */
bool bt_drm_find_nvidia(const char *root, bt_proc_text *scratch, bt_gpus *gpus, char ret_pci[24]);

/* ---- pure parsers ---- */

/* A device's uevent. Empty: the text does not say, or not in a form that can be right. */
typedef struct bt_drm_device {
    char driver[24]; /* "amdgpu" */
    char pci[24];    /* "0000:03:00.0" */
    char id[16];     /* "1002:744c": vendor and device */
    bool is_display; /* PCI class 03 */
} bt_drm_device;
void bt_drm_uevent_parse(const char *text, bt_drm_device *ret);

typedef enum bt_drm_form { BT_DRM_FORM_UNKNOWN, BT_DRM_FORM_CARD, BT_DRM_FORM_INTEGRATED } bt_drm_form;
/* The head of amdgpu's gpu_metrics: tables of cards and of processors with graphics have formats of their own. */
bt_drm_form bt_drm_metrics_form(const void *bytes, size_t n_bytes);
