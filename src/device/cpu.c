/* SPDX-License-Identifier: MIT
 *
 * cpu.c: how nodes are computed: ggml's CPU backend, with our thread pool and our work area.
 *
 * The CPU backend is reached through ggml's registry, so that builds with loadable backends work. Its graph calls,
 * which the registry does not have, are looked for in the library that the registry's functions are in, and used
 * directly: then the work area is a mapping on the compute line, charged before it grows, and what a run of nodes needs
 * is found once per schedule. Where they cannot be found, the backend computes with a work area of its own, which no
 * line explains: the residual shows it.
 *
 * A second device (a draft's) computes with the threads of the first: workers of two pools would spin against each
 * other. */

#include "device/internal.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include "ggml-cpu.h"

#include <dlfcn.h>

typedef struct ggml_cplan (*graph_plan_fn)(const struct ggml_cgraph *, int, struct ggml_threadpool *);
typedef enum ggml_status (*graph_compute_fn)(struct ggml_cgraph *, struct ggml_cplan *);
typedef struct ggml_threadpool *(*threadpool_new_fn)(struct ggml_threadpool_params *);
typedef void (*threadpool_free_fn)(struct ggml_threadpool *);
typedef void (*set_threadpool_fn)(ggml_backend_t, struct ggml_threadpool *);

struct bt_cpu {
    bt_account *account;
    ggml_backend_dev_t dev;
    ggml_backend_t backend; /* only without direct calls */
    graph_plan_fn graph_plan;
    graph_compute_fn graph_compute;
    threadpool_new_fn threadpool_new;
    threadpool_free_fn threadpool_free;
    struct ggml_threadpool *pool;
    uint32_t n_threads, n_pool_threads;
    bool measuring;
    bool borrows; /* the pool is another device's */
    bt_line line; /* of the work area */
    bt_mapping *work;
    uint64_t work_bytes;
    ggml_abort_callback abort_callback;
    void *abort_user;
};

/* ISO C has no conversion from an object pointer to a function pointer; POSIX guarantees this one. */
static void find_function(void *symbol, void *target, size_t size) {
    memcpy(target, &symbol, size);
}

/* The library that an address is in, as dlsym wants it. A loaded backend's names are in no table but its own. */
static void *library_of(const void *address) {
    Dl_info info;
    if (!address || dladdr(address, &info) == 0 || !info.dli_fname) return NULL;
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

static void find_calls(bt_cpu *cpu) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu->dev);
    void *symbol = ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_new");
    find_function(symbol, &cpu->threadpool_new, sizeof cpu->threadpool_new);
    void *library = library_of(symbol);
    symbol = ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_free");
    find_function(symbol, &cpu->threadpool_free, sizeof cpu->threadpool_free);
    void *place = library ? library : RTLD_DEFAULT;
    symbol = dlsym(place, "ggml_graph_plan");
    find_function(symbol, &cpu->graph_plan, sizeof cpu->graph_plan);
    symbol = dlsym(place, "ggml_graph_compute");
    find_function(symbol, &cpu->graph_compute, sizeof cpu->graph_compute);
    if (library) (void)dlclose(library); /* ggml holds it */
}

static bool calls_directly(const bt_cpu *cpu) {
    return cpu->graph_plan && cpu->graph_compute;
}

/* One pool for all graphs. Its workers spin for a while between graphs and then sleep (ggml's "poll"); the segments of
 * one token follow each other within that while. */
static bt_status make_pool(bt_cpu *cpu, uint32_t n_threads, bt_error *err) {
    if (!cpu->threadpool_new || !cpu->threadpool_free || cpu->measuring || cpu->borrows) return BT_OK;
    struct ggml_threadpool_params params;
    ggml_threadpool_params_init(&params, (int)n_threads);
    struct ggml_threadpool *pool = cpu->threadpool_new(&params);
    if (!pool)
        return bt_fail(err, BT_E_NOMEM, "threads", BT_MEASURE_ITEMS, n_threads, 0, "cannot start %u compute threads",
                       n_threads);
    if (cpu->pool) cpu->threadpool_free(cpu->pool);
    cpu->pool = pool;
    cpu->n_pool_threads = n_threads;
    if (cpu->backend) {
        set_threadpool_fn set_threadpool;
        find_function(ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu->dev),
                                                        "ggml_backend_cpu_set_threadpool"),
                      &set_threadpool, sizeof set_threadpool);
        if (set_threadpool) set_threadpool(cpu->backend, pool);
    }
    return BT_OK;
}

static void borrow_pool(bt_cpu *cpu, const bt_cpu *lender) {
    cpu->borrows = true;
    cpu->pool = lender->pool;
    cpu->n_pool_threads = lender->n_pool_threads;
    cpu->n_threads = (uint32_t)bt_min_u64(cpu->n_threads, lender->n_pool_threads);
}

bt_status bt_cpu_open(const bt_cpu_params *params, bt_cpu **ret_cpu, bt_error *err) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!dev) return bt_fail(err, BT_E_DEVICE, "cpu_backend", BT_MEASURE_NONE, 0, 0, "ggml has no CPU backend");
    bt_cpu *cpu = bt_heap_alloc(sizeof *cpu);
    if (!cpu)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *cpu, 0, "no memory for the compute threads");
    cpu->account = params->account;
    cpu->dev = dev;
    cpu->measuring = params->measuring;
    cpu->n_threads = params->n_threads;
    cpu->line = params->line;
    find_calls(cpu);
    if (!calls_directly(cpu)) {
        cpu->backend = ggml_backend_dev_init(dev, NULL);
        if (!cpu->backend) {
            bt_cpu_close(cpu);
            return bt_fail(err, BT_E_DEVICE, "cpu_backend", BT_MEASURE_NONE, 0, 0, "ggml's CPU backend does not start");
        }
    }
    const bt_cpu *lender = params->lender;
    if (lender && lender->pool && !cpu->backend) borrow_pool(cpu, lender);
    bt_status status = make_pool(cpu, cpu->n_threads, err);
    if (status != BT_OK) {
        bt_cpu_close(cpu);
        return status;
    }
    *ret_cpu = cpu;
    return BT_OK;
}

void bt_cpu_close(bt_cpu *cpu) {
    if (!cpu) return;
    if (cpu->backend) ggml_backend_free(cpu->backend);
    if (cpu->pool && !cpu->borrows) cpu->threadpool_free(cpu->pool);
    bt_account_unmap(cpu->account, cpu->work);
    bt_heap_free(cpu);
}

ggml_backend_dev_t bt_cpu_device(const bt_cpu *cpu) {
    return cpu->dev;
}

void bt_cpu_set_threads(bt_cpu *cpu, uint32_t n_threads) {
    /* A failure keeps the pool there is: fewer threads, same results. */
    if (cpu->borrows) n_threads = (uint32_t)bt_min_u64(n_threads, cpu->n_pool_threads);
    if (n_threads > cpu->n_pool_threads && make_pool(cpu, n_threads, NULL) != BT_OK) n_threads = cpu->n_pool_threads;
    cpu->n_threads = n_threads;
}

void bt_cpu_set_abort(bt_cpu *cpu, ggml_abort_callback callback, void *user) {
    cpu->abort_callback = callback;
    cpu->abort_user = user;
}

bt_cpu_plan bt_cpu_plan_make(bt_cpu *cpu, const struct ggml_cgraph *graph) {
    bt_cpu_plan plan = {0, (int)cpu->n_threads};
    if (!calls_directly(cpu)) return plan;
    struct ggml_cplan found = cpu->graph_plan(graph, (int)cpu->n_threads, cpu->pool);
    plan.work_bytes = found.work_size;
    plan.n_threads = found.n_threads;
    return plan;
}

bt_status bt_cpu_reserve(bt_cpu *cpu, uint64_t work_bytes, bt_error *err) {
    if (work_bytes <= cpu->work_bytes || cpu->measuring) return BT_OK;
    bt_mapping *work;
    /* The old area goes first: both together would be more than was planned. */
    bt_account_unmap(cpu->account, cpu->work);
    cpu->work = NULL;
    cpu->work_bytes = 0;
    BT_TRY(bt_account_map(cpu->account, cpu->line, work_bytes, &work, err));
    bt_status status = bt_account_commit(cpu->account, work, work_bytes, err);
    if (status != BT_OK) {
        bt_account_unmap(cpu->account, work);
        return status;
    }
    cpu->work = work;
    cpu->work_bytes = work_bytes;
    return BT_OK;
}

void bt_cpu_trim(bt_cpu *cpu, uint64_t work_bytes) {
    if (cpu->work_bytes <= work_bytes) return;
    bt_account_unmap(cpu->account, cpu->work);
    cpu->work = NULL;
    cpu->work_bytes = 0;
}

enum ggml_status bt_cpu_compute(bt_cpu *cpu, struct ggml_cgraph *graph, const bt_cpu_plan *plan) {
    return bt_cpu_compute_in(cpu, graph, plan, cpu->work ? cpu->work->base : NULL);
}

enum ggml_status bt_cpu_compute_in(bt_cpu *cpu, struct ggml_cgraph *graph, const bt_cpu_plan *plan, void *work) {
    if (!calls_directly(cpu)) return ggml_backend_graph_compute(cpu->backend, graph);
    struct ggml_cplan cplan = {
        .work_size = plan->work_bytes,
        .work_data = work,
        .n_threads = plan->n_threads,
        .threadpool = cpu->pool,
        .abort_callback = cpu->abort_callback,
        .abort_callback_data = cpu->abort_user,
    };
    return cpu->graph_compute(graph, &cplan);
}
