/* SPDX-License-Identifier: MIT
 *
 * backends.c: backends in files of their own (llama.cpp built with GGML_BACKEND_DL), as a package has them: one program
 * for all processors, and of the CPU backend a file for each kind of them.
 *
 *   libggml.so.0 is mapped from DIR -> DIR/libggml-cpu-*.so -> ggml takes the one with the best score -> the registry
 *
 * ggml's own search goes through the folder of the program and the working directory: a program must not run code
 * because of where it was started. So the folder is said to it, and it is the one that libggml itself was mapped from:
 * whoever could write there could have changed libggml. GGML_BACKEND_PATH, which ggml would read too, is devices.c's:
 * it wants an absolute path.
 *
 * Before the process base is measured, since each kind is mapped for a moment to be asked. Left out: unloading; ggml
 * cannot take a backend back that was used. */
#include "engine/backends.h"

#include "base/error.h"
#include "base/heap.h"
#include "engine/engine.h"

#include "ggml-backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "GGML_BACKEND_PATH"

static bool has_cpu(void) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != NULL;
}

/* The folder that libggml was mapped from, links followed. */
static bool find_folder(char ret_folder[PATH_MAX]) {
    void (*call)(const char *) = ggml_backend_load_all_from_path;
    void *address = NULL;
    Dl_info info;
    memcpy(&address, &call, sizeof address); /* ISO C cannot convert a function pointer */
    if (dladdr(address, &info) == 0 || !info.dli_fname || !realpath(info.dli_fname, ret_folder)) return false;
    char *slash = strrchr(ret_folder, '/');
    if (!slash) return false;
    *slash = '\0';
    return true;
}

/* ggml reads the variable at the end of every search: it is hidden for as long. */
static bt_status load_from(const char *folder, bt_error *err) {
    const char *value = getenv(VARIABLE);
    char *kept = value ? bt_heap_strdup(value) : NULL;
    if (value && !kept) return bt_fail_sys(err, ENOMEM, "cpu_backend", "no memory to look for backends");
    (void)unsetenv(VARIABLE);
    ggml_backend_load_all_from_path(folder);
    bool restored = !kept || setenv(VARIABLE, kept, 1) == 0;
    bt_heap_free(kept);
    return restored ? BT_OK : bt_fail_sys(err, ENOMEM, "cpu_backend", "no memory to look for backends");
}

bt_status bt_backends_load(bt_error *err) {
    char folder[PATH_MAX] = "";
    if (has_cpu()) return BT_OK;
    bt_engine_log_init();
    if (find_folder(folder)) BT_TRY(load_from(folder, err));
    if (has_cpu()) return BT_OK;
    return bt_fail(err, BT_E_DEVICE, "cpu_backend", BT_MEASURE_NONE, 0, 0,
                   "ggml has no CPU backend for this processor: none is in it, nor beside it in %.200s", folder);
}

const char *bt_backends_cpu_file(void) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    Dl_info info;
    if (!cpu) return NULL;
    void *call = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_set_n_threads");
    return call && dladdr(call, &info) != 0 ? info.dli_fname : NULL;
}
