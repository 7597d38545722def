/* SPDX-License-Identifier: MIT
 *
 * template.c: asking the template worker: a socket pair, one request, one reply, and a process that ends.
 *
 * posix_spawn does not copy the page tables of a process that holds gigabytes, and the worker is small: a rendering
 * costs milliseconds. The bounds: BT_TEMPLATE_WIRE_MAX of text each way, REPLY_WAIT_NS of time; the worker bounds its
 * own memory, time and stack (template.cpp). */
#include "engine/template.h"

#include "base/beside.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "base/text.h"
#include "engine/counted.h"
#include "engine/template_reply.h"
#include "engine/template_wire.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER_NAME   BT_TEMPLATE_WORKER
#define REPLY_WAIT_NS UINT64_C(60000000000) /* the worker stops itself after 10 s of computing */
/* The conversation that prices a template: turns of this many tokens, of this many bytes (English: about four). */
#define PRICE_TURN_TOKENS 32u
#define PRICE_TOKEN_BYTES 5u
#define PRICE_TURNS_MAX   256u
#define PRICE_LIMIT_BYTES (256u << 20)

const char bt_template_chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* ---- the request ---- */

static bt_status write_request(const bt_template *t, const bt_message *messages, uint32_t n, bt_text *out,
                               bt_error *err) {
    size_t n_source = strlen(t->source);
    if (n_source > BT_TEMPLATE_TEXT_MAX)
        return bt_fail(err, BT_E_FORMAT, "chat_template", BT_MEASURE_BYTES, n_source, BT_TEMPLATE_TEXT_MAX,
                       "the chat template has %zu bytes; the most is %u", n_source, BT_TEMPLATE_TEXT_MAX);
    bt_counted_put_u32(out, BT_TEMPLATE_REQUEST);
    bt_counted_put_u32(out, BT_TEMPLATE_ADD_GENERATION | (t->add_bos ? BT_TEMPLATE_ADD_BOS : 0) |
                                (t->add_eos ? BT_TEMPLATE_ADD_EOS : 0));
    bt_counted_put_string(out, t->source, n_source);
    bt_counted_put_string(out, t->bos, strlen(t->bos));
    bt_counted_put_string(out, t->eos, strlen(t->eos));
    bt_counted_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        bt_counted_put_string(out, messages[i].role, strlen(messages[i].role));
        bt_counted_put_string(out, messages[i].content, messages[i].n_bytes);
    }
    BT_TRY(bt_text_memory(out, err));
    if (out->failed)
        return bt_fail(err, BT_E_LIMIT, "chat_bytes", BT_MEASURE_BYTES, 0, BT_TEMPLATE_WIRE_MAX,
                       "the conversation has more text than can be rendered at once");
    return BT_OK;
}

/* ---- the worker ---- */

/* Its own process group: Ctrl-C at the terminal is for us. */
static int spawn(const char *path, uint64_t limit_bytes, int fd, pid_t *ret_pid) {
    char limit[24];
    (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)limit_bytes);
    char *argv[] = {(char[]){WORKER_NAME}, limit, NULL};
    char *envp[] = {(char[]){"LC_ALL=C"}, NULL, NULL};
    char zone[PATH_MAX]; /* templates may print today's date */
    const char *tz = getenv("TZ");
    if (tz && snprintf(zone, sizeof zone, "TZ=%s", tz) < (int)sizeof zone) envp[1] = zone;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    sigset_t none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return failed;
    }
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    failed = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
    if (!failed) failed = posix_spawn(ret_pid, path, &actions, &attributes, argv, envp);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return failed;
}

/* Send all, then read to the end. false: no more was said in time, or no memory for it. A worker that is gone ends the
 * reply; why, its exit says. */
static bool exchange(int fd, const bt_text *request, bt_text *reply) {
    uint64_t start_ns = bt_os_now_ns();
    size_t sent = 0;
    char buffer[4096];
    while (!reply->failed) {
        uint64_t waited_ns = bt_os_now_ns() - start_ns;
        if (waited_ns >= REPLY_WAIT_NS) return false;
        bool sending = sent < request->n_bytes;
        struct pollfd poller = {.fd = fd, .events = (short)(sending ? POLLIN | POLLOUT : POLLIN)};
        int ready = poll(&poller, 1, (int)((REPLY_WAIT_NS - waited_ns) / 1000000) + 1);
        if (ready < 0 && errno != EINTR) return false;
        if (ready <= 0) continue;
        if (sending && (poller.revents & POLLOUT)) {
            ssize_t n = send(fd, request->data + sent, request->n_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0) sent += (size_t)n;
            if (n < 0 && errno != EAGAIN && errno != EINTR) sent = request->n_bytes; /* gone: read what it said */
            continue;
        }
        ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
        if (n > 0) bt_text_add_n(reply, buffer, (size_t)n);
    }
    return false;
}

static bt_status death(int state, uint64_t limit_bytes, bt_error *err) {
    if (WIFSIGNALED(state) && (WTERMSIG(state) == SIGXCPU || WTERMSIG(state) == SIGKILL))
        return bt_fail(err, BT_E_FORMAT, "chat_template", BT_MEASURE_NONE, 0, 0,
                       "the chat template does not come to an end");
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGSEGV)
        return bt_fail(err, BT_E_FORMAT, "chat_template", BT_MEASURE_NONE, 0, 0, "the chat template nests too deeply");
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT) /* no memory even to say so */
        return bt_fail(err, BT_E_NOMEM, "chat_memory", BT_MEASURE_BYTES, 0, limit_bytes,
                       "the chat template needs more than the %s it may have", BT_SIZE(limit_bytes));
    return bt_fail(err, BT_E_IO, "chat_worker", BT_MEASURE_NONE, 0, 0, "%s ended without an answer (%s %d)",
                   WORKER_NAME, WIFSIGNALED(state) ? "signal" : "exit",
                   WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
}

static bt_status ask(const bt_template *t, const bt_text *request, bt_text *reply, bt_error *err) {
    char path[PATH_MAX];
    if (!t->worker && !bt_beside_find(WORKER_NAME, X_OK, path, sizeof path))
        return bt_fail(err, BT_E_IO, "chat_worker", BT_MEASURE_NONE, 0, 0, "%s is not beside this program",
                       WORKER_NAME);
    int pair[2];
    errno = EMFILE; /* of a test */
    if (bt_fault_hit() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return bt_fail_sys(err, errno, "chat_worker", "cannot start %s", WORKER_NAME);
    pid_t pid = 0;
    int failed = bt_fault_hit() ? EAGAIN : spawn(t->worker ? t->worker : path, t->limit_bytes, pair[1], &pid);
    (void)close(pair[1]);
    if (failed) {
        (void)close(pair[0]);
        return bt_fail_sys(err, failed, "chat_worker", "cannot start %s", t->worker ? t->worker : path);
    }
    bool complete = exchange(pair[0], request, reply);
    if (!complete) (void)kill(pid, SIGKILL);
    (void)close(pair[0]);
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        continue;
    BT_TRY(bt_text_memory(reply, err));
    if (reply->failed)
        return bt_fail(err, BT_E_LIMIT, "chat_bytes", BT_MEASURE_BYTES, 0, reply->max_bytes,
                       "the chat template makes more text than can be taken");
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) return death(state, t->limit_bytes, err);
    return BT_OK;
}

/* ---- both ---- */

bt_status bt_template_render(const bt_template *t, const bt_message *messages, uint32_t n_messages, bt_rendered *ret,
                             bt_error *err) {
    bt_text request;
    bt_text reply;
    bt_text_init(&request, BT_TEMPLATE_WIRE_MAX);
    bt_text_init(&reply, BT_TEMPLATE_WIRE_MAX);
    bt_status status = write_request(t, messages, n_messages, &request, err);
    if (status == BT_OK) status = ask(t, &request, &reply, err);
    bt_text_done(&request);
    if (status == BT_OK) status = bt_template_reply_read(reply.data, reply.n_bytes, t->limit_bytes, ret, err);
    if (status == BT_OK)
        ret->reply = reply.data; /* the parts point into it */
    else
        bt_text_done(&reply);
    return status;
}

void bt_rendered_done(bt_rendered *rendered) {
    bt_heap_free(rendered->parts);
    bt_heap_free(rendered->reply);
    memset(rendered, 0, sizeof *rendered);
}

/* ---- the price ---- */

bt_status bt_template_price(const bt_template *t, uint32_t n_ctx, uint64_t *ret_peak_bytes, bt_error *err) {
    static const char *const roles[] = {"user", "assistant"};
    uint32_t n = (uint32_t)bt_min_u64(n_ctx / PRICE_TURN_TOKENS + 1, PRICE_TURNS_MAX) | 1u; /* the last one asks */
    size_t n_bytes = (size_t)n_ctx * PRICE_TOKEN_BYTES / n + 1;
    bt_message *messages = bt_heap_array(n, sizeof *messages);
    char *content = bt_heap_alloc(n_bytes + 1);
    bt_status status = BT_E_NOMEM;
    if (!messages || !content) {
        (void)bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, n_bytes, 0, "no memory for a conversation");
    } else {
        for (size_t i = 0; i < n_bytes; i++)
            content[i] = i % PRICE_TOKEN_BYTES ? 'a' : ' ';
        for (uint32_t i = 0; i < n; i++)
            messages[i] = (bt_message){roles[i % 2], content, n_bytes};
        bt_template generous = *t;
        generous.limit_bytes = PRICE_LIMIT_BYTES;
        bt_rendered rendered = {0};
        status = bt_template_render(&generous, messages, n, &rendered, err);
        if (status == BT_OK) {
            *ret_peak_bytes = bt_sat_add_u64(rendered.peak_bytes,
                                             (rendered.peak_bytes - BT_TEMPLATE_CODE_BYTES) / 2); /* other texts */
            bt_rendered_done(&rendered);
        }
    }
    bt_heap_free(messages);
    bt_heap_free(content);
    return status;
}
