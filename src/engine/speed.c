/* SPDX-License-Identifier: MIT
 *
 * speed.c: two short measurements, in a child process so that nothing of them stays in ours.
 *
 *   disk     how the file is read fastest (store/disk_speed.h), unless that is remembered of this disk
 *   compute  a matrix of the most common weight type times one column, as decoding does, on the CPU backend
 *
 * Both are short and the machine is shared, so they are estimates: a forecast says "about". The bound is the child's
 * memory, which a limited cgroup counts beside the parent's: the read buffer, then the matrix, never more than 10 MiB.
 * With the parent's base that is under the 16 MiB beyond the budget that docs/design.md C1 allows. */

#include "engine/speed.h"

#include "base/fault.h"
#include "base/os.h"
#include "base/size.h"
#include "engine/engine.h"
#include "probe/disk.h"
#include "store/disk_speed.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MATRIX_COLS  4096                 /* a hidden size of a common model; a multiple of every block */
#define MATRIX_BYTES (UINT64_C(19) << 19) /* 9.5 MiB: 4096 rows of a type of 4 bits, fewer of the larger */
#define COMPUTE_NS   UINT64_C(30000000)   /* repeat the product for 30 ms: some tens of times */

typedef struct speeds {
    bt_disk_speed disk;           /* bytes_per_s 0: not measured */
    uint64_t compute_bytes_per_s; /* 0: not measured */
} speeds;

/* ---- compute ---- */

static enum ggml_type common_type(const bt_facts *facts) {
    uint64_t bytes[GGML_TYPE_COUNT] = {0};
    uint32_t best = GGML_TYPE_F16;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[i];
        if (tensor->role != BT_ROLE_UNIT || tensor->type >= GGML_TYPE_COUNT) continue;
        bytes[tensor->type] += tensor->bytes;
        if (bytes[tensor->type] > bytes[best]) best = tensor->type;
    }
    return (enum ggml_type)best;
}

/* Zero weights: the kernels' time does not depend on the numbers. */
static uint64_t time_product(ggml_backend_t backend, struct ggml_cgraph *graph, uint64_t weight_bytes) {
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) return 0; /* first touch */
    uint64_t start_ns = bt_os_now_ns();
    uint64_t ns = 0;
    uint64_t n = 0;
    while (ns < COMPUTE_NS) {
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) return 0;
        n++;
        ns = bt_os_now_ns() - start_ns;
    }
    return bt_mul_div_u64(bt_sat_mul_u64(n, weight_bytes), UINT64_C(1000000000), ns);
}

static uint64_t measure_compute(const bt_facts *facts, uint32_t n_threads) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_t backend = dev ? ggml_backend_dev_init(dev, NULL) : NULL;
    if (!backend) return 0;
    ggml_backend_set_n_threads_t set_threads;
    void *symbol = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads");
    memcpy(&set_threads, &symbol, sizeof set_threads); /* POSIX: data and function pointers convert */
    if (set_threads) set_threads(backend, (int)n_threads);
    struct ggml_init_params params = {ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true};
    struct ggml_context *context = ggml_init(params);
    if (!context) return 0;
    enum ggml_type type = common_type(facts);
    int64_t n_rows = (int64_t)(MATRIX_BYTES / ggml_row_size(type, MATRIX_COLS));
    struct ggml_tensor *weights = ggml_new_tensor_2d(context, type, MATRIX_COLS, n_rows);
    struct ggml_tensor *column = ggml_new_tensor_2d(context, GGML_TYPE_F32, MATRIX_COLS, 1);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, ggml_mul_mat(context, weights, column));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    if (!buffer) return 0;
    ggml_backend_buffer_clear(buffer, 0);
    return time_product(backend, graph, ggml_nbytes(weights)); /* the process ends soon */
}

/* ---- parent ---- */

/* What is asked for; the rest is known. */
typedef struct wanted {
    bool disk, compute;
    uint32_t n_threads;
} wanted;

_Noreturn static void child(const bt_facts *facts, const wanted *want, int out) {
    speeds found = {0};
    if (want->disk && bt_disk_speed_of(facts, &found.disk, NULL) != BT_OK) found.disk = (bt_disk_speed){0};
    if (want->compute) found.compute_bytes_per_s = measure_compute(facts, want->n_threads);
    _exit(write(out, &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
}

static bool ask_child(const bt_facts *facts, const wanted *want, speeds *ret) {
    int pipe_fds[2];
    if (bt_fault_hit() || pipe2(pipe_fds, O_CLOEXEC) != 0) return false;
    pid_t pid = bt_fault_hit() ? -1 : fork();
    if (pid == 0) child(facts, want, pipe_fds[1]);
    (void)close(pipe_fds[1]);
    bool ok = pid > 0 && read(pipe_fds[0], ret, sizeof *ret) == (ssize_t)sizeof *ret;
    (void)close(pipe_fds[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return ok;
}

void bt_speed_measure(const bt_facts *facts, uint32_t n_threads, bt_machine *machine) {
    speeds found = {0};
    const wanted want = {machine->disk.depth == 0, !machine->memory_bytes_per_s.known, n_threads};
    if ((!want.disk && !want.compute) || !ask_child(facts, &want, &found)) return;
    if (found.disk.bytes_per_s > 0)
        bt_disk_learn(machine, found.disk.depth, found.disk.request_bytes, found.disk.bytes_per_s);
    if (want.compute && found.compute_bytes_per_s > 0)
        machine->memory_bytes_per_s = (bt_known){true, found.compute_bytes_per_s};
}
