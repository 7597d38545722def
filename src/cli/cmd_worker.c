/* SPDX-License-Identifier: MIT
 *
 * cmd_worker.c: `burthen worker --memory SIZE`: this machine's memory and processor as a device of other machines.
 *
 *   address -> may it be listened at -> ggml started, base measured -> does the machine leave base + SIZE
 *   -> promised (probe/reservations.h) -> device -> ggml's RPC server, until a signal
 *
 * What is promised is the process before its first client, and the device's cap. The server's messages come on top
 * (device/worker.h). Every end after the server was started is _exit: its thread cannot be stopped, and what it uses
 * must not be torn down under it. All that is said goes to stderr, a line each. */
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/commands.h"
#include "device/worker.h"
#include "engine/rpc.h"
#include "engine/rpc_server.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "probe/reservations.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROMISE_TRIES_MAX 8u /* as running.c: tries bound a crowd */
#define UNSAFE            "ggml's RPC is neither authenticated nor memory-safe: whoever reaches the port has this process"

typedef struct working {
    const bt_cli_options *options;
    char host[INET_ADDRSTRLEN]; /* in numbers */
    uint16_t port;
    uint32_t n_threads;
    uint64_t base_bytes;
    bt_worker *worker;
    char peer[32]; /* of the client that there is */
    bool peer_said;
    uint64_t n_asked; /* requests for buffers, before it came */
} working;

/* ---- signals: a byte for the one who waits ---- */

static int signal_fd[2] = {-1, -1};

static void on_signal(int number) {
    int sys = errno;
    unsigned char byte = (unsigned char)number;
    (void)!write(signal_fd[1], &byte, 1);
    (void)signal(number, SIG_DFL); /* the second one kills */
    errno = sys;
}

static bt_status catch_signals(bt_error *err) {
    if (pipe2(signal_fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return bt_fail_sys(err, errno, "worker_ended", "cannot wait for signals");
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART; /* on a thread that computes it breaks nothing */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* ggml's server writes to clients that are gone */
    return BT_OK;
}

/* ---- where ---- */

static bt_status find_host(const char *host, char *ret_numbers, bool *ret_is_loopback, bt_error *err) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0)
        return bt_fail(err, BT_E_ARG, "worker_listen", BT_MEASURE_NONE, 0, 0, "--listen: %s is no IPv4 address (%s)",
                       host, gai_strerror(rc));
    struct sockaddr_in address;
    memcpy(&address, found->ai_addr, sizeof address);
    freeaddrinfo(found);
    (void)inet_ntop(AF_INET, &address.sin_addr, ret_numbers, INET_ADDRSTRLEN); /* an IPv4 address, and room for it */
    *ret_is_loopback = ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return BT_OK;
}

static bt_status find_address(working *w, bt_error *err) {
    char host[64];
    bool is_loopback = false;
    if (!bt_rpc_endpoint_parse(w->options->listen, host, &w->port))
        return bt_fail(err, BT_E_ARG, "worker_listen", BT_MEASURE_NONE, 0, 0,
                       "--listen wants HOST:PORT, HOST a name or an IPv4 address (ggml's RPC knows no IPv6), not "
                       "\"%.80s\"",
                       w->options->listen);
    BT_TRY(find_host(host, w->host, &is_loopback, err));
    if (is_loopback) return BT_OK;
    if (!w->options->insecure)
        return bt_fail(err, BT_E_ARG, "worker_insecure", BT_MEASURE_NONE, 0, 0,
                       "%s can be reached from elsewhere, and needs --insecure: " UNSAFE, w->options->listen);
    bt_log(BT_LOG_WARN, UNSAFE);
    return BT_OK;
}

/* ---- how much ---- */

static bt_status check_memory(const working *w, const bt_machine *machine, bt_error *err) {
    const bt_wishes wishes = {.budget_kind = BT_BUDGET_AUTO};
    const bt_budget left = bt_budget_resolve(machine, &wishes);
    uint64_t asked_bytes = w->options->worker_memory_bytes;
    uint64_t needed_bytes = bt_sat_add_u64(asked_bytes, w->base_bytes);
    if (needed_bytes <= left.bytes || w->options->wishes.force) return BT_OK;
    return bt_fail(err, BT_E_BUDGET, "worker_memory", BT_MEASURE_BYTES, needed_bytes, left.bytes,
                   "a worker with %s, and %s of its own, is more than this machine leaves: %s (%s)",
                   BT_SIZE(asked_bytes), BT_SIZE(w->base_bytes), BT_SIZE(left.bytes), left.source);
}

/* Look at the machine and promise; again while others are faster. */
static bt_status promise(working *w, bt_machine *machine, bt_error *err) {
    uint64_t bytes = bt_sat_add_u64(w->options->worker_memory_bytes, w->base_bytes);
    for (uint32_t i = 0; i < PROMISE_TRIES_MAX; i++) {
        bool promised = false;
        bt_error why = {0};
        BT_TRY(bt_machine_probe(w->options->root, machine, err));
        BT_TRY(check_memory(w, machine, err));
        w->n_threads = w->options->wishes.n_threads;
        if (w->n_threads == 0) w->n_threads = machine->n_threads ? machine->n_threads : 1;
        if (bt_reservation_make("worker", bytes, machine->promised_bytes, &promised, &why) != BT_OK) {
            bt_log(BT_LOG_INFO, "other runs on this host cannot see this one: %s", why.text);
            return BT_OK;
        }
        if (promised) return BT_OK;
    }
    return bt_fail(err, BT_E_BUDGET, "reservations", BT_MEASURE_BYTES, bytes, 0,
                   "other runs that start now take the memory each time before this one; try again");
}

static bt_status reserve(working *w, bt_error *err) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    w->base_bytes = memory.rss_bytes.value;
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* too large for the stack */
    if (!machine) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to look at the machine");
    bt_status status = promise(w, machine, err);
    bt_heap_free(machine);
    return status;
}

/* ---- what is said ---- */

static void say_listens(const working *w) {
    bt_log_say("listening at %s:%u: %s of memory, %u thread%s; %s of its own", w->host, w->port,
               BT_SIZE(w->options->worker_memory_bytes), w->n_threads, w->n_threads == 1 ? "" : "s",
               BT_SIZE(w->base_bytes));
}

static void say_left(const working *w, const bt_worker_use *use) {
    char refused[64] = "", beside[80] = "";
    if (use->n_refused > 0)
        (void)snprintf(refused, sizeof refused, ", %llu requests refused", (unsigned long long)use->n_refused);
    if (use->over_peak_bytes > 0)
        (void)snprintf(beside, sizeof beside, ", %s beside them for computing", BT_SIZE(use->over_peak_bytes));
    bt_log_say("the client %s left; so far at most %s of %s were held%s%s", w->peer, BT_SIZE(use->peak_bytes),
               BT_SIZE(w->options->worker_memory_bytes), refused, beside);
    bt_log(BT_LOG_INFO, "computing needed %s at most", BT_SIZE(use->work_peak_bytes));
}

/* Clients come a dozen times to ask one thing each; one that wants memory, or stays, is worth a line. This is told
 * after it happened: buffers that there are when a client has left are the next one's. */
static void on_event(bt_rpc_event event, const char *peer, void *user) {
    working *w = user;
    bool asked = false;
    bt_worker_use use;
    bt_worker_use_read(w->worker, &use);
    switch (event) {
    case BT_RPC_LISTENS:
        say_listens(w);
        break;
    case BT_RPC_CLIENT_CAME:
        (void)snprintf(w->peer, sizeof w->peer, "%s", peer);
        w->peer_said = false;
        bt_log(BT_LOG_INFO, "a client came: %s", peer);
        break;
    case BT_RPC_CLIENT_STAYS:
        w->peer_said = true;
        bt_log_say("serving the client %s", w->peer);
        break;
    case BT_RPC_CLIENT_LEFT:
        asked = use.n_buffers == 0 && use.n_given + use.n_refused != w->n_asked;
        if (w->peer_said || asked) say_left(w, &use);
        if (asked) w->n_asked = use.n_given + use.n_refused;
        break;
    }
}

/* ---- the command ---- */

/* The server was started: nothing is closed. */
static int end(bt_status status, const bt_error *err) {
    unsigned char number = 0;
    bt_reservation_drop();
    int code = 0;
    if (status == BT_E_CANCELLED && read(signal_fd[0], &number, 1) == 1) {
        bt_log_say("stopped");
        code = 128 + number;
    } else {
        code = bt_cli_fail(err);
    }
    (void)fflush(NULL);
    _exit(code);
}

static int work(working *w) {
    bt_error err = {0};
    bt_status status = bt_worker_open(w->options->worker_memory_bytes, w->n_threads, &w->worker, &err);
    if (status == BT_OK) {
        const bt_rpc_server_params params = {
            .host = w->host,
            .port = w->port,
            .device = bt_worker_device(w->worker),
            .n_threads = w->n_threads,
            .stop_fd = signal_fd[0],
            .on_event = on_event,
            .user = w,
        };
        status = bt_rpc_serve(&params, &err);
    }
    return end(status, &err);
}

int bt_cmd_worker(const bt_cli_options *options, bt_option_result *args) {
    (void)args;
    bt_error err = {0};
    working w = {.options = options};
    if (!options->worker_memory_given) {
        (void)bt_fail(&err, BT_E_ARG, "worker_memory", BT_MEASURE_NONE, 0, 0,
                      "worker needs --memory SIZE: what clients may use of this machine");
        return bt_cli_fail(&err);
    }
    bt_status status = find_address(&w, &err);
    if (status == BT_OK) status = catch_signals(&err);
    if (status == BT_OK) status = bt_cli_engine_init(&err);
    if (status == BT_OK) status = reserve(&w, &err);
    if (status != BT_OK) return bt_cli_fail(&err);
    return work(&w);
}
