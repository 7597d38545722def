/* SPDX-License-Identifier: MIT
 *
 * program.c: may this library work in the program that has loaded it?
 *
 * A backend and ggml write to each other's structures, and ggml changes them as it likes. ggml itself compares a number
 * that has changed twice in its life. So three things are looked at before anything is handed over:
 *
 *   one ggml     a program that holds ggml in itself would get a second one with us, with registries of its own. The
 *                loader lists what it has loaded in the order in which it was asked to: of a program whose ggml is
 *                outside of it libggml-base comes before us, else after
 *   its version  as it says it
 *   its layout   tensors and buffers that it makes are read with our declarations (a patched ggml of the same version)
 */

#include "plugin/program.h"

#include "base/error.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <link.h>
#include <string.h>

/* ---- one ggml ---- */

typedef struct places {
    uintptr_t ours, ggml; /* addresses of code */
    int n, at_ours, at_ggml;
} places;

static bool holds(const struct dl_phdr_info *info, uintptr_t address) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && address >= start && address - start < part->p_memsz) return true;
    }
    return false;
}

static int look(struct dl_phdr_info *info, size_t bytes, void *user) {
    (void)bytes;
    places *p = user;
    if (holds(info, p->ours)) p->at_ours = p->n;
    if (holds(info, p->ggml)) p->at_ggml = p->n;
    p->n++;
    return 0;
}

static bool has_ggml_outside(void) {
    const char *(*version)(void) = ggml_version;
    bt_status (*ours)(bt_error *) = bt_program_check;
    places p = {.at_ours = -1, .at_ggml = -1};
    memcpy(&p.ggml, &version, sizeof p.ggml); /* ISO C cannot convert a function pointer */
    memcpy(&p.ours, &ours, sizeof p.ours);
    (void)dl_iterate_phdr(look, &p);
    return p.at_ggml >= 0 && p.at_ggml < p.at_ours;
}

/* ---- the same ggml ---- */

static bool tensors_agree(void) {
    const int64_t ne[] = {96, 7, 5, 3};
    struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    if (!context) return false;
    const struct ggml_tensor *tensor = ggml_set_name(ggml_new_tensor(context, GGML_TYPE_F16, 4, ne), "layout");
    bool agree = tensor->type == GGML_TYPE_F16 && memcmp(tensor->ne, ne, sizeof ne) == 0 && tensor->nb[0] == 2 &&
                 tensor->nb[3] == (size_t)2 * 96 * 7 * 5 && tensor->op == GGML_OP_NONE && !tensor->src[0] &&
                 !tensor->view_src && !tensor->data && strcmp(tensor->name, "layout") == 0 && !tensor->extra;
    ggml_free(context);
    return agree;
}

static bool buffers_agree(void) {
    const size_t bytes = 4096;
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu) return false;
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(cpu);
    ggml_backend_buffer_t buffer = type ? ggml_backend_buft_alloc_buffer(type, bytes) : NULL;
    if (!buffer) return false;
    bool agree = buffer->buft == type && buffer->size == bytes && buffer->usage == GGML_BACKEND_BUFFER_USAGE_ANY &&
                 cpu->iface.get_buffer_type(cpu) == type && cpu->reg->api_version == GGML_BACKEND_API_VERSION;
    ggml_backend_buffer_free(buffer);
    return agree;
}

bt_status bt_program_check(bt_error *err) {
    if (!has_ggml_outside())
        return bt_fail(err, BT_E_UNSUPPORTED, "ggml_static", BT_MEASURE_NONE, 0, 0,
                       "this program holds ggml in itself: only one that was built with shared libraries "
                       "(BUILD_SHARED_LIBS=ON) can use another backend");
    if (strcmp(ggml_version(), BT_GGML_VERSION) != 0)
        return bt_fail(err, BT_E_UNSUPPORTED, "ggml_version", BT_MEASURE_NONE, 0, 0,
                       "this program has ggml %s, libggml-burthen.so was built for %s", ggml_version(),
                       BT_GGML_VERSION);
    if (!tensors_agree() || !buffers_agree())
        return bt_fail(err, BT_E_UNSUPPORTED, "ggml_version", BT_MEASURE_NONE, 0, 0,
                       "this program's ggml %s lays out tensors or buffers otherwise than the %s that "
                       "libggml-burthen.so was built for",
                       ggml_version(), BT_GGML_VERSION);
    return BT_OK;
}
