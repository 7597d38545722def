/* SPDX-License-Identifier: MIT
 *
 * rpc.c: asking a worker before ggml's client does, and naming it when it dies.
 *
 * The greeting is that of ggml's protocol (ggml-rpc.cpp: RPC_CMD_HELLO, rpc_msg_hello_rsp), little-endian:
 *
 *     to the server    14 | size = 24, 8 bytes | what the transport can do, 24 bytes: zeros, plain TCP
 *     back             size = 28, 8 bytes | major | minor | patch | padding | 24 bytes
 *
 * and the client goes on where the major version is its own and the minor one no newer. Everything is done on a
 * descriptor that never blocks, against one deadline. A connection that ended otherwise than well is reset, not closed:
 * llama.cpp's rpc-server would, once it comes to a closed one, answer it and die of SIGPIPE; of a reset one it reads
 * nothing, and goes on.
 *
 * A server that dies later is met by ggml alone, which aborts with one fixed sentence that names nobody. That sentence
 * is led through here: each worker in use is tried, and those where nobody listens any more are named, before it goes
 * on to whoever listened before. Bound: BT_RPC_WORKER_MAX times a short wait. */

#include "engine/rpc.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "base/text.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"
#include "ggml.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_BYTES     64
#define ENDPOINT_BYTES (HOST_BYTES + 6)
#define HELLO          14
#define CAPS_BYTES     24 /* transport.h: RPC_CONN_CAPS_SIZE */
#define ANSWER_BYTES   (4 + CAPS_BYTES)
#define NS_PER_MS      UINT64_C(1000000)
#define RESOLVER_BYTES 4096
#define LAST_WAIT_MS   250u                        /* for one worker, while the process ends */
#define DIED           "Remote RPC server crashed" /* ggml-rpc.cpp: RPC_STATUS_ASSERT */

bool bt_rpc_endpoint_parse(const char *endpoint, char *host, uint16_t *ret_port) {
    const char *colon = strchr(endpoint, ':');
    size_t n = colon ? (size_t)(colon - endpoint) : 0;
    if (n == 0 || n >= HOST_BYTES || memchr(endpoint, '[', n)) return false;
    const char *digits = colon + 1;
    size_t n_digits = strspn(digits, "0123456789");
    if (n_digits == 0 || n_digits > 5 || digits[n_digits] != '\0') return false;
    unsigned long port = strtoul(digits, NULL, 10);
    if (port == 0 || port > UINT16_MAX) return false;
    memcpy(host, endpoint, n);
    host[n] = '\0';
    *ret_port = (uint16_t)port;
    return true;
}

/* The address that ggml's client takes: the first that gethostbyname gives. */
static bt_status resolve(const char *endpoint, struct sockaddr_in *ret_address, bt_error *err) {
    char host[HOST_BYTES];
    uint16_t port = 0;
    if (!bt_rpc_endpoint_parse(endpoint, host, &port))
        return bt_fail(err, BT_E_ARG, "rpc_endpoint", BT_MEASURE_NONE, 0, 0,
                       "%s is no address of a worker: HOST:PORT, HOST a name or an IPv4 address (ggml's RPC knows no "
                       "IPv6)",
                       endpoint);
    struct hostent room;
    struct hostent *found = NULL;
    char text[RESOLVER_BYTES];
    int why = 0;
    int rc = gethostbyname_r(host, &room, text, sizeof text, &found, &why);
    if (rc != 0 || !found || found->h_addrtype != AF_INET || !found->h_addr_list[0])
        return bt_fail(err, BT_E_IO, "rpc_host", BT_MEASURE_NONE, 0, 0, "the worker %s: %s has no IPv4 address (%s)",
                       endpoint, host, rc == ERANGE ? "too many names" : hstrerror(why));
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&ret_address->sin_addr, found->h_addr_list[0], sizeof ret_address->sin_addr);
    return BT_OK;
}

/* ---- a descriptor and a deadline -------------------------------------------------------------------------------- */

/* 0 when one of the events came, or minus an errno: ETIMEDOUT at the deadline. */
static int wait_for(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        uint64_t now_ns = bt_os_now_ns();
        uint64_t left_ms = (bt_sat_sub_u64(deadline_ns, now_ns) + NS_PER_MS - 1) / NS_PER_MS;
        struct pollfd one = {.fd = fd, .events = events};
        int rc = poll(&one, 1, (int)bt_min_u64(left_ms, INT32_MAX));
        if (rc > 0) return 0;
        if (rc < 0 && errno != EINTR) return -errno;
        if (rc == 0 && left_ms == 0) return -ETIMEDOUT;
    }
}

static int connect_to(const struct sockaddr_in *address, uint64_t deadline_ns, int *ret_fd) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int rc = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS) {
        int sys = 0;
        socklen_t n = sizeof sys;
        rc = wait_for(fd, POLLOUT, deadline_ns);
        if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &n) == 0) rc = -sys;
    }
    if (rc != 0)
        (void)close(fd);
    else
        *ret_fd = fd;
    return rc;
}

static void reset(int fd) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now); /* without it: closed */
    (void)close(fd);
}

/* Bytes that came until all are there or the other side closed; minus an errno otherwise. *ret_n counts in any case. */
static int receive(int fd, uint8_t *dest, size_t bytes, uint64_t deadline_ns, size_t *ret_n) {
    while (*ret_n < bytes) {
        ssize_t n = recv(fd, dest + *ret_n, bytes - *ret_n, 0);
        if (n == 0) return 0;
        if (n > 0) *ret_n += (size_t)n;
        bool is_empty = n < 0 && errno == EAGAIN;
        if (n < 0 && !is_empty && errno != EINTR) return -errno;
        int rc = is_empty ? wait_for(fd, POLLIN, deadline_ns) : 0;
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- the greeting ----------------------------------------------------------------------------------------------- */

static uint64_t size_in(const uint8_t *bytes) {
    uint64_t size = 0;
    for (int i = 7; i >= 0; i--)
        size = size << 8 | bytes[i];
    return size;
}

static bt_status other_protocol(const char *endpoint, const char *what, bt_error *err) {
    return bt_fail(err, BT_E_DEVICE, "rpc_protocol", BT_MEASURE_NONE, 0, 0,
                   "what listens at %s %s: it is no worker, or one of another version (here: %d.%d.%d)", endpoint, what,
                   RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, RPC_PROTO_PATCH_VERSION);
}

static bt_status judge(const char *endpoint, const uint8_t *answer, bt_error *err) {
    const uint8_t *version = answer + 8;
    if (size_in(answer) != ANSWER_BYTES) return other_protocol(endpoint, "answers something else", err);
    if (version[0] == RPC_PROTO_MAJOR_VERSION && version[1] <= RPC_PROTO_MINOR_VERSION) return BT_OK;
    return bt_fail(err, BT_E_UNSUPPORTED, "rpc_version", BT_MEASURE_NONE, 0, 0,
                   "the worker %s speaks version %u.%u.%u of ggml's RPC protocol, this program %d.%d.%d: both need the "
                   "same llama.cpp",
                   endpoint, version[0], version[1], version[2], RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION,
                   RPC_PROTO_PATCH_VERSION);
}

static bt_status greet(const char *endpoint, int fd, uint64_t deadline_ns, uint32_t timeout_ms, bt_error *err) {
    const uint8_t hello[1 + 8 + CAPS_BYTES] = {HELLO, CAPS_BYTES};
    uint8_t answer[8 + ANSWER_BYTES];
    size_t n = 0;
    /* 33 bytes fit into the empty buffer of any socket. */
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return other_protocol(endpoint, "takes no greeting", err);
    int rc = receive(fd, answer, sizeof answer, deadline_ns, &n);
    if (n == sizeof answer || (n >= 8 && size_in(answer) != ANSWER_BYTES)) return judge(endpoint, answer, err);
    if (rc == -ETIMEDOUT && n == 0)
        return bt_fail(err, BT_E_DEVICE, "rpc_busy", BT_MEASURE_NONE, 0, 0,
                       "the worker %s does not answer within %u ms: it serves one client at a time, and seems to have "
                       "one",
                       endpoint, timeout_ms);
    return other_protocol(endpoint, n == 0 ? "hangs up when greeted" : "answers a part and no more", err);
}

bt_status bt_rpc_check(const char *endpoint, uint32_t timeout_ms, bt_error *err) {
    struct sockaddr_in address;
    BT_TRY(resolve(endpoint, &address, err));
    uint64_t deadline_ns = bt_os_now_ns() + timeout_ms * NS_PER_MS;
    int fd = -1;
    int rc = connect_to(&address, deadline_ns, &fd);
    if (rc != 0)
        return bt_fail_sys(err, -rc, "rpc_connect", rc == -ECONNREFUSED ? "no worker listens at %s" : "cannot reach %s",
                           endpoint);
    bt_status status = greet(endpoint, fd, deadline_ns, timeout_ms, err);
    if (status == BT_OK)
        (void)close(fd);
    else
        reset(fd);
    return status;
}

/* ---- workers in use --------------------------------------------------------------------------------------------- */

typedef struct workers {
    char endpoints[BT_RPC_WORKER_MAX][ENDPOINT_BYTES];
    atomic_uint n; /* an entry is written before it counts: ggml aborts on any thread, at any time */
    bool listens;
    ggml_abort_callback_t before;
} workers;

static workers in_use;

/* Nobody listens there any more. One that serves us still does. */
static bool is_gone(const char *endpoint) {
    struct sockaddr_in address;
    int fd = -1;
    if (resolve(endpoint, &address, NULL) != BT_OK) return true;
    int rc = connect_to(&address, bt_os_now_ns() + LAST_WAIT_MS * NS_PER_MS, &fd);
    if (rc == 0) reset(fd);
    return rc != 0 && rc != -ETIMEDOUT; /* silence: as of one whose queue is full */
}

static void append(char *text, size_t capacity, const char *word) {
    size_t n = strlen(text);
    (void)snprintf(text + n, capacity - n, "%s%s", n > 0 ? ", " : "", word);
}

static void on_abort(const char *message) {
    char gone[BT_RPC_WORKER_MAX * ENDPOINT_BYTES] = "", all[BT_RPC_WORKER_MAX * ENDPOINT_BYTES] = "";
    char text[sizeof gone + 256];
    if (strstr(message, DIED)) {
        for (unsigned i = 0; i < in_use.n; i++) {
            append(all, sizeof all, in_use.endpoints[i]);
            if (is_gone(in_use.endpoints[i])) append(gone, sizeof gone, in_use.endpoints[i]);
        }
        if (gone[0])
            (void)snprintf(text, sizeof text, "the worker %s is gone", gone);
        else
            (void)snprintf(text, sizeof text, "the connection to a worker broke; in use: %s", all);
        message = text;
    }
    if (in_use.before)
        in_use.before(message);
    else
        (void)fprintf(stderr, "%s\n", message); /* as ggml would */
}

static void listen_for_the_end(void) {
    struct sigaction action;
    if (in_use.listens) return;
    in_use.listens = true;
    in_use.before = ggml_set_abort_callback(on_abort);
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) (void)signal(SIGPIPE, SIG_IGN);
}

static bool is_known(const char *endpoint) {
    for (unsigned i = 0; i < in_use.n; i++)
        if (strcmp(in_use.endpoints[i], endpoint) == 0) return true;
    return false;
}

typedef ggml_backend_reg_t (*add_server_fn)(const char *);

static add_server_fn find_add(void) {
    add_server_fn found = NULL;
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("RPC");
    void *symbol = reg ? ggml_backend_reg_get_proc_address(reg, "ggml_backend_rpc_add_server") : NULL;
    if (symbol) memcpy(&found, &symbol, sizeof found);
    return found;
}

bt_status bt_rpc_add(const char *endpoint, bt_error *err) {
    add_server_fn add_server = find_add();
    if (is_known(endpoint)) return BT_OK;
    if (!add_server)
        return bt_fail(err, BT_E_UNSUPPORTED, "rpc_missing", BT_MEASURE_NONE, 0, 0,
                       "this llama.cpp was built without RPC: build it with -DGGML_RPC=ON");
    if (in_use.n == BT_RPC_WORKER_MAX)
        return bt_fail(err, BT_E_LIMIT, "rpc_workers", BT_MEASURE_ITEMS, BT_RPC_WORKER_MAX + 1, BT_RPC_WORKER_MAX,
                       "more than %u workers", BT_RPC_WORKER_MAX);
    BT_TRY(bt_rpc_check(endpoint, BT_RPC_WAIT_MS, err));
    (void)snprintf(in_use.endpoints[in_use.n], ENDPOINT_BYTES, "%s", endpoint);
    listen_for_the_end();
    in_use.n++;
    ggml_backend_reg_t reg = add_server(endpoint);
    if (reg) {
        ggml_backend_register(reg);
        return BT_OK;
    }
    in_use.n--;
    return bt_fail(err, BT_E_DEVICE, "rpc_devices", BT_MEASURE_NONE, 0, 0, "the worker %s offers no device", endpoint);
}
