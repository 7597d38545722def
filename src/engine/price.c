/* SPDX-License-Identifier: MIT
 *
 * price.c: the dry run, in two generations of processes:
 *
 *   parent --fork--> child: loads the model in measuring mode --fork--> grandchild: one point: makes the context,
 *                           measures what loading keeps                  decodes until the context is full
 *
 * Every grandchild starts from the same loaded model, so that no point's heap disturbs the next one's. Results come
 * back through a pipe as plain data. The children never return: they leave by _exit, so nothing of the parent's
 * (buffers, files) is done twice. The bound: the children hold a process base, the vocabulary and graph arenas, no
 * weights.
 *
 * Left out: work that depends on the numbers themselves (none in the supported graphs). */

#include "engine/price.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "plan/price.h"

#include "llama.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A context larger than this is not filled token by token: its graphs were sized at creation for all cells, and the
 * mask of a huge context alone would take seconds to write. */
#define FILL_TOKENS_MAX 8192u
/* llama_token_data is 12 bytes (llama.h); a sampler holds one per vocabulary entry. */
#define SAMPLER_BYTES_PER_TOKEN 12u

uint64_t bt_price_sampler_bytes(const bt_facts *facts) {
    return (uint64_t)facts->n_vocab * SAMPLER_BYTES_PER_TOKEN;
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t bytes) {
    uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- grandchild: one point ---- */

/* Any token will do: nothing is computed. One call, as a long prompt is one call: libllama's own lists grow with it. */
static bt_status fill_context(bt_session *session, uint32_t n_ubatch, uint32_t n_outputs_max, bt_error *err) {
    uint32_t n_ctx = bt_session_n_ctx(session);
    uint32_t n = (uint32_t)bt_min_u64(n_ctx <= FILL_TOKENS_MAX ? n_ctx : n_ubatch, n_ctx) - 1;
    int32_t *tokens = bt_heap_array((size_t)n + 1, sizeof *tokens);
    uint8_t *wants = bt_heap_array((size_t)n + 1, sizeof *wants);
    if (!tokens || !wants)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for %u tokens", n);
    for (uint32_t i = 0; i < n; i++)
        wants[i] = i + n_outputs_max >= n;
    BT_TRY(bt_session_decode(session, tokens, n, wants, err));
    return bt_session_decode(session, tokens, 1, NULL, err); /* what was taken goes with the process */
}

static bt_status price_point(bt_engine *engine, const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                             const bt_price_point *point, bt_price *price, bt_error *err) {
    /* What is not a multiple is planned and run as the next one; libllama's lists grow with what it is asked for. */
    uint64_t align = (uint64_t)BT_CTX_ALIGN * bt_max_u64(wishes->n_parallel, 1);
    uint64_t n_ctx = (point->n_ctx + align - 1) / align * align;
    bt_session_params params = {
        .n_ctx = (uint32_t)bt_min_u64(n_ctx, UINT32_MAX / align * align),
        .n_batch = (uint32_t)bt_max_u64(wishes->n_batch ? wishes->n_batch : 2048, point->n_ubatch),
        .n_ubatch = point->n_ubatch,
        .n_parallel = wishes->n_parallel ? wishes->n_parallel : 1,
        .n_threads = n_threads,
        .n_outputs_max = point->n_outputs_max,
        .type_k = wishes->type_k,
        .type_v = wishes->type_v,
        .flash_attn = wishes->flash_attn,
    };
    uint64_t heap_before = bt_engine_heap_bytes(engine);
    bt_session *session;
    BT_TRY(bt_session_open(engine, &params, &session, err));
    bt_status status = fill_context(session, point->n_ubatch, point->n_outputs_max, err);
    if (status != BT_OK) return status; /* the process ends here anyway */
    uint64_t heap_bytes = bt_sat_sub_u64(bt_engine_heap_bytes(engine), heap_before);
    bt_device *device = bt_engine_device(engine);
    bt_device_stats stats;
    bt_device_stats_read(device, &stats);
    uint64_t page = bt_os_page_bytes();
    uint64_t work_bytes = stats.work_bytes + (uint64_t)params.n_threads * sizeof(float) * point->n_ctx;
    price->n_ctx = llama_n_ctx(bt_session_context(session));
    price->kv_bytes = bt_device_line_asked_bytes(device, BT_LINE_KV);
    price->compute_bytes =
        bt_device_line_asked_bytes(device, BT_LINE_COMPUTE) + (work_bytes + page - 1) / page * page + heap_bytes;
    uint64_t logits_bytes = bt_device_line_asked_bytes(device, BT_LINE_LOGITS);
    price->logits_bytes = (logits_bytes + page - 1) / page * page + bt_price_sampler_bytes(facts);
    bt_line_use use;
    bt_account_use(bt_engine_account(engine), BT_LINE_METADATA, &use);
    price->metadata_bytes += use.peak_committed_bytes;
    return BT_OK;
}

/* ---- child: the loaded model ---- */

typedef struct request {
    const bt_facts *facts;
    const bt_wishes *wishes;
    uint32_t n_threads;
    const bt_price_point *points;
    uint32_t n_points;
    int out;
} request;

static bt_status load(const request *r, bt_engine **ret_engine, bt_price *price, bt_error *err) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    uint64_t anon_before = memory.anon_bytes.value;
    bt_engine_params params = {.facts = r->facts, .n_threads = r->n_threads, .measuring = true};
    BT_TRY(bt_engine_open(&params, ret_engine, err));
    const bt_engine_load *measured = bt_engine_load_read(*ret_engine);
    bt_line_use use;
    bt_account_use(bt_engine_account(*ret_engine), BT_LINE_STAGING, &use);
    price->staging_bytes = use.peak_committed_bytes;
    bt_account_use(bt_engine_account(*ret_engine), BT_LINE_OUTPUT_NORM, &use);
    uint64_t page = bt_os_page_bytes();
    price->small_bytes = (use.committed_bytes + page - 1) / page * page;
    price->vocab_bytes = measured->vocab_bytes;
    price->load_peak_bytes = bt_sat_sub_u64(measured->peak_rss_bytes, measured->start_rss_bytes);
    /* tables of the device and the files: what opening added beside the vocabulary */
    price->metadata_bytes =
        bt_sat_sub_u64(bt_sat_sub_u64(bt_engine_heap_bytes(*ret_engine), anon_before), measured->vocab_bytes);
    return BT_OK;
}

_Noreturn static void grandchild(const request *r, bt_engine *engine, uint32_t i, bt_price price) {
    bt_error err;
    memset(&err, 0, sizeof err);
    price.error.status = BT_OK;
    if (price_point(engine, r->facts, r->wishes, r->n_threads, &r->points[i], &price, &err) != BT_OK) price.error = err;
    _exit(write_all(r->out, &price, sizeof price) ? 0 : 1);
}

_Noreturn static void child(const request *r) {
    bt_price price;
    memset(&price, 0, sizeof price);
    bt_engine *engine = NULL;
    if (load(r, &engine, &price, &price.error) != BT_OK) {
        for (uint32_t i = 0; i < r->n_points; i++)
            if (!write_all(r->out, &price, sizeof price)) _exit(1);
        _exit(0);
    }
    for (uint32_t i = 0; i < r->n_points; i++) {
        pid_t pid = fork();
        if (pid == 0) grandchild(r, engine, i, price);
        int state = 0;
        if (pid < 0 || waitpid(pid, &state, 0) != pid || !WIFEXITED(state) || WEXITSTATUS(state) != 0) _exit(1);
    }
    _exit(0);
}

/* ---- parent ---- */

static bt_status child_failure(pid_t pid, bt_error *err) {
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(state))
        return bt_fail(err, BT_E_IO, "price_child", BT_MEASURE_NONE, 0, 0,
                       "the dry run was killed by signal %d; with --log-level debug llama.cpp says what it was doing",
                       WTERMSIG(state));
    return bt_fail(err, BT_E_IO, "price_child", BT_MEASURE_NONE, 0, 0, "the dry run ended before it was done (exit %d)",
                   WIFEXITED(state) ? WEXITSTATUS(state) : -1);
}

bt_status bt_price_points(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                          const bt_price_point *points, uint32_t n_points, bt_price *ret_prices, bt_error *err) {
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return bt_fail_sys(err, errno, "price_child", "cannot start the dry run");
    pid_t pid = fork();
    if (pid < 0) {
        int sys = errno;
        (void)close(pipe_fds[0]);
        (void)close(pipe_fds[1]);
        return bt_fail_sys(err, sys, "price_child", "cannot start the dry run");
    }
    if (pid == 0) {
        (void)close(pipe_fds[0]);
        request r = {facts, wishes, n_threads, points, n_points, pipe_fds[1]};
        child(&r);
    }
    (void)close(pipe_fds[1]);
    bool complete = true;
    for (uint32_t i = 0; i < n_points && complete; i++)
        complete = read_all(pipe_fds[0], &ret_prices[i], sizeof *ret_prices);
    (void)close(pipe_fds[0]);
    if (!complete) return child_failure(pid, err);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return BT_OK;
}
