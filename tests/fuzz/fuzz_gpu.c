/* SPDX-License-Identifier: MIT
 * fuzz_gpu.c: what the kernel and others write of graphics devices: uevent, fdinfo, gpu_metrics. */
#include "fuzz.h"

#define GPU_CHECK FUZZ_CHECK
#include "gpu_check.h"

static bool one(char *text, size_t n) {
    gpu_check_text(text, n);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"drm-driver:\t",
                                        "drm-client-id:",
                                        "drm-pdev:",
                                        "drm-resident-vram",
                                        "drm-memory-vram:",
                                        "drm-total-local0:",
                                        "drm-memory-local0: 7\n",
                                        "drm-shared-",
                                        "drm-memory-gtt",
                                        "drm-resident-system0",
                                        " KiB",
                                        " MiB",
                                        "PCI_SLOT_NAME=",
                                        "PCI_ID=",
                                        "PCI_CLASS=30000\n",
                                        "DRIVER=",
                                        "amdgpu",
                                        "i915",
                                        "xe",
                                        "nouveau",
                                        "0000:03:00.0",
                                        "/..",
                                        "\r\n",
                                        "\t"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"gpus/amdgpu-card/sys/class/drm/card0/device/uevent",
                                   "gpus/amdgpu-card/sys/class/drm/card0/device/mem_info_vram_total",
                                   "gpus/amdgpu-card/sys/class/drm/card0/device/gpu_metrics",
                                   "gpus/amdgpu-card/proc/1201/fdinfo/12",
                                   "gpus/amdgpu-card/proc/1300/fdinfo/5",
                                   "gpus/amdgpu-card/sys/class/kfd/kfd/topology/nodes/2/properties",
                                   "gpus/amdgpu-card/sys/class/kfd/kfd/proc/1400/vram_33977",
                                   NULL};

const fuzz_target fuzz_here = {
    .name = "gpu", .one = one, .word = word, .more = more, .n_rounds = 20000, .takes_all = true};
