/* SPDX-License-Identifier: MIT
 * gpu_check.h: what must hold of the devices' parsers whatever text they are given; for the replay of a corpus and for
 * libFuzzer. GPU_CHECK(condition) is the caller's. */
#pragma once

#include "probe/gpu_clients.h"
#include "probe/gpu_drm.h"

#include <string.h>

static inline void gpu_check_words(const char *text, size_t capacity, const char *of) {
    GPU_CHECK(memchr(text, '\0', capacity) != NULL);
    for (const char *p = text; *p; p++)
        GPU_CHECK(*p != '\n' && *p != '/'); /* it becomes part of a path or of a line */
    GPU_CHECK(of == NULL || strstr(of, text) != NULL);
}

/* text ends in NUL, at text[n]. */
static inline void gpu_check_text(const char *text, size_t n) {
    bt_drm_device device;
    bt_drm_client client;
    bt_drm_uevent_parse(text, &device);
    gpu_check_words(device.driver, sizeof device.driver, text);
    gpu_check_words(device.pci, sizeof device.pci, NULL);
    gpu_check_words(device.id, sizeof device.id, NULL);
    bool found = bt_drm_fdinfo_parse(text, &client);
    GPU_CHECK(found == (client.driver[0] != '\0'));
    GPU_CHECK(memchr(client.driver, '\0', sizeof client.driver) && memchr(client.pci, '\0', sizeof client.pci));
    GPU_CHECK(client.bytes.known || client.bytes.value == 0);
    GPU_CHECK(client.host_bytes.known || client.host_bytes.value == 0);
    GPU_CHECK(!client.bytes.known || strstr(text, "vram") || strstr(text, "local"));
    bt_drm_form form = bt_drm_metrics_form(text, n);
    GPU_CHECK(form == BT_DRM_FORM_UNKNOWN || n >= 4);
    char plain[96];
    bt_gpu_text_set(plain, sizeof plain, text);
    GPU_CHECK(memchr(plain, '\0', sizeof plain) != NULL);
    for (const char *p = plain; *p; p++)
        GPU_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f); /* nothing drives a terminal */
}
