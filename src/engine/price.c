/* SPDX-License-Identifier: MIT
 *
 * price.c: the dry run, in two generations of processes:
 *
 *   parent --fork--> child: loads the model in measuring mode --fork--> grandchild: one point: makes the context,
 *          <-socket-        measures what loading keeps,                decodes until the context is full
 *                           then waits for points
 *
 * Every grandchild starts from the same loaded model, so that no point's heap disturbs the next one's, and the model is
 * loaded once however many points are asked for. Points and results are plain data on a socket pair; the end of it is
 * the child's end. The children never return: they leave by _exit, so nothing of the parent's (buffers, files) is done
 * twice. The bound: the children hold a process base, the vocabulary and graph arenas, no weights.
 *
 * Left out: work that depends on the numbers themselves (none in the supported graphs). */

#include "engine/price.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "engine/conversation.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "engine/session_file.h"
#include "plan/price.h"

#include "llama.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* No more tokens than these are put into a context: its graphs were sized at creation for all cells, and the mask of a
 * huge context alone would take seconds to write. What grows with the rest is counted: of the work area the scores of
 * attention without flash (scores_work_bytes), of the heap the cells in use (empty_cells_bytes). */
#define FILL_TOKENS_MAX 8192u
/* A cell in use is a node in two trees of libllama's, the cells that are used and the positions that they hold: 48
 * bytes each from glibc. Measured between 8192 and 32768 tokens: 94. */
#define USED_CELL_BYTES 96u
/* llama_token_data is 12 bytes (llama.h); a sampler holds one per vocabulary entry. */
#define SAMPLER_BYTES_PER_TOKEN 12u

/* Of a conversation, for each token of the context: itself, twice (in the context, rendered), and about 5 bytes of text
 * in its message, in the request, in the reply and in what is tokenized. */
#define CHAT_BYTES_PER_TOKEN 32u
/* The same model gives the same plan: what is measured in pages is planned in steps (exact.c). */
#define STEP_BYTES (256u << 10)

static uint64_t in_steps(uint64_t bytes) {
    return bt_sat_add_u64(bytes, STEP_BYTES / 4 + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
}

bool bt_price_point_equal(const bt_price_point *a, const bt_price_point *b) {
    return a->n_ctx == b->n_ctx && a->n_ubatch == b->n_ubatch && a->n_parallel == b->n_parallel &&
           a->n_outputs_max == b->n_outputs_max && a->type_k == b->type_k && a->type_v == b->type_v;
}

uint64_t bt_price_sampler_bytes(const bt_facts *facts) {
    return (uint64_t)facts->n_vocab * SAMPLER_BYTES_PER_TOKEN;
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL); /* a child that died is an error, no signal */
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

/* A token of each sequence in one pass, beside what one sequence alone takes: other graphs, with a row for each. */
static bt_status fill_each(bt_session *session, const int32_t *tokens, uint32_t n, bt_error *err) {
    bt_session_clear(session);
    if (n > 1) BT_TRY(bt_session_decode_each(session, tokens, 0, n - 1, err));
    return bt_session_decode_each(session, tokens, 0, 1, err);
}

/* Any token will do: nothing is computed. One call, as a long prompt is one call: libllama's own lists grow with it.
 * All tokens are of one sequence, which has its share of the context, before those of several are. An encoder takes one
 * micro-batch, and forgets. */
static bt_status fill_context(bt_session *session, const bt_facts *facts, const bt_session_params *params,
                              bt_error *err) {
    uint32_t n_ubatch = params->n_ubatch, n_outputs_max = params->n_outputs_max;
    uint32_t n_ctx = bt_session_n_ctx(session);
    uint32_t n = (uint32_t)bt_min_u64(facts->encoder ? n_ubatch : FILL_TOKENS_MAX, n_ctx) - (facts->encoder ? 0 : 1);
    int32_t *tokens = bt_heap_array((size_t)n + 1, sizeof *tokens);
    uint8_t *wants = bt_heap_array((size_t)n + 1, sizeof *wants);
    if (!tokens || !wants)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for %u tokens", n);
    for (uint32_t i = 0; i < n; i++)
        wants[i] = params->embeddings || i + n_outputs_max >= n;
    BT_TRY(bt_session_decode(session, tokens, n, wants, err));
    if (facts->encoder) return BT_OK;
    BT_TRY(bt_session_decode(session, tokens, 1, NULL, err));
    if (params->n_parallel == 1) return BT_OK;
    /* what was taken goes with the process */
    uint32_t n_share = params->kv_unified ? n_ctx / params->n_parallel : n_ctx;
    uint64_t n_each = bt_max_u64(FILL_TOKENS_MAX / params->n_parallel, n_ubatch);
    return fill_each(session, tokens, (uint32_t)bt_min_u64(bt_min_u64(n_each, n_share), (uint64_t)n + 1), err);
}

/* Of what stays empty in caches that are as long as the context. Windows are full after FILL_TOKENS_MAX, or nearly. */
static uint64_t empty_cells_bytes(const bt_facts *facts, const bt_session_params *params) {
    if (!bt_kv_has_full(facts)) return 0;
    return bt_sat_mul_u64(USED_CELL_BYTES, bt_sat_sub_u64(params->n_ctx, FILL_TOKENS_MAX));
}

/* The work area in which ggml turns the scores of a full context into the values' F16, where that was not computed. */
static uint64_t scores_work_bytes(const bt_facts *facts, const bt_wishes *wishes, const bt_session_params *params) {
    uint64_t cells = params->n_ctx / (params->kv_unified ? 1 : params->n_parallel);
    if (wishes->flash_attn != BT_OFF || cells <= FILL_TOKENS_MAX) return 0;
    return bt_sat_mul_u64(UINT64_C(2) * params->n_ubatch * facts->n_head, cells);
}

/* What was asked of the devices that stand in for others. Rows of logits and the CPU's own graph buffer stand in host
 * memory that belongs to the last, and to the first device: they are the host's lines. What goes from the host to a
 * device goes through a copy in ggml's heap. */
static void price_devices(bt_engine *engine, const bt_facts *facts, const bt_session_params *params, bt_price *price,
                          uint64_t *logits_bytes) {
    uint32_t n = facts->split.n_devices;
    for (uint32_t i = 0; i < n; i++) {
        bt_device *device = bt_engine_stand_in(engine, i);
        uint64_t host_bytes = bt_device_host_asked_bytes(device, BT_LINE_COMPUTE);
        price->device_kv_bytes[i] = bt_device_line_asked_bytes(device, BT_LINE_KV);
        price->device_compute_bytes[i] =
            bt_sat_sub_u64(bt_device_line_asked_bytes(device, BT_LINE_COMPUTE), host_bytes);
        price->compute_bytes = bt_sat_add_u64(price->compute_bytes, host_bytes);
        *logits_bytes = bt_sat_add_u64(*logits_bytes, bt_device_host_asked_bytes(device, BT_LINE_LOGITS));
    }
    if (n > 0) price->compute_bytes += UINT64_C(4) * params->n_ubatch * facts->n_embd;
}

/* Adapters are not loaded for a dry run. A product with one is five nodes in the place of one (llm_graph_context::
 * build_lora_mm: two products, a scale, a sum), beside about as many others; each result is as wide as the widest. */
static void price_adapters(const bt_facts *facts, const bt_session_params *params, uint64_t schedule_bytes,
                           bt_price *price) {
    uint64_t widest = facts->n_embd;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        if (facts->tensors[i].block >= 0 && facts->tensors[i].n_dims == 2)
            widest = bt_max_u64(widest, facts->tensors[i].ne[1]);
    price->metadata_bytes = bt_sat_add_u64(price->metadata_bytes, UINT64_C(2) * BT_SCHEDULE_MAX * schedule_bytes);
    price->compute_bytes =
        bt_sat_add_u64(price->compute_bytes, bt_sat_mul_u64(UINT64_C(3) * sizeof(float) * params->n_ubatch, widest));
}

static bt_status price_point(bt_engine *engine, const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                             const bt_price_point *point, bt_price *price, bt_error *err) {
    /* What is not a multiple is planned and run as the next one; libllama's lists grow with what it is asked for. */
    uint64_t align = (uint64_t)BT_CTX_ALIGN * (wishes->kv_unified ? 1 : bt_max_u64(point->n_parallel, 1));
    uint64_t n_ctx = (point->n_ctx + align - 1) / align * align;
    bt_session_params params = {
        .n_ctx = (uint32_t)bt_min_u64(n_ctx, UINT32_MAX / align * align),
        .n_batch = (uint32_t)bt_max_u64(wishes->n_batch ? wishes->n_batch : 2048, point->n_ubatch),
        .n_ubatch = point->n_ubatch,
        .n_parallel = point->n_parallel ? point->n_parallel : 1,
        .n_threads = n_threads,
        .n_outputs_max = point->n_outputs_max,
        .type_k = point->type_k,
        .type_v = point->type_v,
        .flash_attn = wishes->flash_attn,
        .kv_unified = wishes->kv_unified,
        .swa_full = wishes->swa_full,
        .embeddings = facts->encoder || wishes->embeddings,
        .pooling = wishes->pooling,
        .rope_scaling = wishes->rope_scaling,
        .rope_scale_micro = wishes->rope_scale_micro,
        .yarn_orig_ctx = wishes->yarn_orig_ctx,
    };
    if (facts->encoder) params.n_batch = point->n_ubatch;
    uint64_t heap_before = bt_engine_heap_bytes(engine);
    bt_session *session;
    BT_TRY(bt_session_open(engine, &params, &session, err));
    bt_status status = fill_context(session, facts, &params, err);
    if (status != BT_OK) return status; /* the process ends here anyway */
    uint64_t heap_bytes = bt_sat_sub_u64(bt_engine_heap_bytes(engine), heap_before);
    heap_bytes = bt_sat_add_u64(heap_bytes, empty_cells_bytes(facts, &params));
    bt_device *device = bt_engine_device(engine);
    bt_device_stats stats;
    bt_device_stats_read(device, &stats);
    uint64_t page = bt_os_page_bytes();
    uint64_t planned_bytes = bt_max_u64(stats.work_bytes, scores_work_bytes(facts, wishes, &params));
    uint64_t work_bytes = planned_bytes + (uint64_t)params.n_threads * sizeof(float) * point->n_ctx;
    price->n_ctx = llama_n_ctx(bt_session_context(session));
    price->kv_bytes = bt_device_line_asked_bytes(device, BT_LINE_KV);
    price->compute_bytes =
        bt_device_line_asked_bytes(device, BT_LINE_COMPUTE) + (work_bytes + page - 1) / page * page + heap_bytes;
    uint64_t logits_bytes = bt_device_line_asked_bytes(device, BT_LINE_LOGITS);
    price_devices(engine, facts, &params, price, &logits_bytes);
    price->logits_bytes = bt_sat_add_u64((logits_bytes + page - 1) / page * page, bt_sampling_bytes(facts, wishes));
    price->metadata_bytes += (stats.schedule_bytes + page - 1) / page * page * BT_SCHEDULE_MAX;
    if (wishes->adapter_bytes > 0) price_adapters(facts, &params, stats.schedule_bytes, price);
    return BT_OK;
}

/* ---- child: the loaded model ---- */

typedef struct request {
    const bt_facts *facts;
    const bt_wishes *wishes;
    uint32_t n_threads;
    int socket;
} request;

/* A conversation renders its template in a worker, and keeps texts and tokens; a session is copied a tensor at a time.
 * None of it is there while the loader's buffers are, nor at the same time as another of them. */
static bt_status price_staging(const request *r, bt_engine *engine, const bt_price_point *point, bt_price *price,
                               bt_error *err) {
    uint32_t n_ctx = point->n_ctx;
    uint64_t chat_bytes = 0;
    uint64_t session_bytes = 0;
    bt_wishes wishes = *r->wishes;
    wishes.type_k = point->type_k;
    wishes.type_v = point->type_v;
    if (r->wishes->chat) {
        BT_TRY(bt_conversation_price(bt_engine_model(engine), r->wishes->chat_template, n_ctx, &chat_bytes, err));
        chat_bytes = bt_sat_add_u64(chat_bytes, (uint64_t)n_ctx * CHAT_BYTES_PER_TOKEN);
    }
    if (r->wishes->session) session_bytes = bt_session_file_heap_bytes(r->facts, &wishes, n_ctx);
    price->staging_bytes = bt_max_u64(price->staging_bytes, in_steps(bt_max_u64(chat_bytes, session_bytes)));
    if (r->wishes->guest) price->staging_bytes = bt_max_u64(price->staging_bytes, BT_GUEST_STAGING_BYTES);
    return BT_OK;
}

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
    price->load_peak_bytes = bt_sat_add_u64(price->load_peak_bytes, bt_facts_upload_bytes(r->facts));
    /* tables of the device and the files: what opening added beside the vocabulary */
    price->metadata_bytes =
        bt_sat_sub_u64(bt_sat_sub_u64(bt_engine_heap_bytes(*ret_engine), anon_before), measured->vocab_bytes);
    return BT_OK;
}

_Noreturn static void grandchild(const request *r, bt_engine *engine, const bt_price_point *point, bt_price price) {
    bt_error err;
    memset(&err, 0, sizeof err);
    price.error.status = BT_OK;
    bt_status status = price_point(engine, r->facts, r->wishes, r->n_threads, point, &price, &err);
    if (status == BT_OK) status = price_staging(r, engine, point, &price, &err);
    if (status != BT_OK) price.error = err;
    _exit(write_all(r->socket, &price, sizeof price) ? 0 : 1);
}

_Noreturn static void child(const request *r) {
    bt_price price;
    memset(&price, 0, sizeof price);
    bt_engine *engine = NULL;
    bool loaded = load(r, &engine, &price, &price.error) == BT_OK;
    bt_price_point point;
    while (read_all(r->socket, &point, sizeof point)) {
        if (!loaded) {
            if (!write_all(r->socket, &price, sizeof price)) _exit(1);
            continue;
        }
        pid_t pid = bt_fault_hit() ? -1 : fork();
        if (pid == 0) grandchild(r, engine, &point, price);
        int state = 0;
        if (pid < 0 || waitpid(pid, &state, 0) != pid || !WIFEXITED(state) || WEXITSTATUS(state) != 0) _exit(1);
    }
    _exit(0); /* nobody asks any more */
}

/* ---- parent ---- */

struct bt_pricer {
    pid_t pid;
    int socket; /* -1: the child is gone */
};

static int end(bt_pricer *pricer) {
    int state = 0;
    (void)shutdown(pricer->socket, SHUT_RDWR); /* the child of another pricer may hold a copy of this end */
    (void)close(pricer->socket);
    pricer->socket = -1;
    while (waitpid(pricer->pid, &state, 0) < 0 && errno == EINTR)
        continue;
    return state;
}

static bt_status child_failure(bt_pricer *pricer, bt_error *err) {
    int state = end(pricer);
    if (WIFSIGNALED(state))
        return bt_fail(err, BT_E_IO, "price_child", BT_MEASURE_NONE, 0, 0,
                       "the dry run was killed by signal %d; with --log-level debug llama.cpp says what it was doing",
                       WTERMSIG(state));
    return bt_fail(err, BT_E_IO, "price_child", BT_MEASURE_NONE, 0, 0, "the dry run ended before it was done (exit %d)",
                   WIFEXITED(state) ? WEXITSTATUS(state) : -1);
}

bt_status bt_pricer_open(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads, bt_pricer **ret_pricer,
                         bt_error *err) {
    bt_pricer *pricer = bt_heap_alloc(sizeof *pricer);
    if (!pricer)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *pricer, 0, "no memory for a dry run");
    int ends[2];
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        int sys = errno;
        bt_heap_free(pricer);
        return bt_fail_sys(err, sys, "price_child", "cannot start the dry run");
    }
    errno = EAGAIN; /* of a test */
    pid_t pid = bt_fault_hit() ? -1 : fork();
    if (pid < 0) {
        int sys = errno;
        (void)close(ends[0]);
        (void)close(ends[1]);
        bt_heap_free(pricer);
        return bt_fail_sys(err, sys, "price_child", "cannot start the dry run");
    }
    if (pid == 0) {
        (void)close(ends[0]);
        request r = {facts, wishes, n_threads, ends[1]};
        child(&r);
    }
    (void)close(ends[1]);
    *pricer = (bt_pricer){.pid = pid, .socket = ends[0]};
    *ret_pricer = pricer;
    return BT_OK;
}

bt_status bt_pricer_price(bt_pricer *pricer, const bt_price_point *point, bt_price *ret_price, bt_error *err) {
    if (pricer->socket < 0) return bt_fail(err, BT_E_IO, "price_child", BT_MEASURE_NONE, 0, 0, "the dry run has ended");
    bool answered =
        write_all(pricer->socket, point, sizeof *point) && read_all(pricer->socket, ret_price, sizeof *ret_price);
    return answered ? BT_OK : child_failure(pricer, err);
}

void bt_pricer_close(bt_pricer *pricer) {
    if (!pricer) return;
    if (pricer->socket >= 0) (void)end(pricer);
    bt_heap_free(pricer);
}
