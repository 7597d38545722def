/* SPDX-License-Identifier: MIT
 * log.c: formatting a message and handing it to the one sink.
 *
 * The sink and its level are the only mutable globals of the library besides the counters of heap.c and fault.c. One
 * lock orders messages, and guarantees that after bt_log_set returns the former sink is not called any more. A message
 * is built on the stack before the lock is taken; one that is too long is cut and ends in "...". */
#include "base/log.h"
#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* PIPE_BUF of Linux: a line up to this long reaches a pipe in one piece. */
#define MESSAGE_BYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bt_log_sink current_sink;
static void *current_user;
/* One more than the highest level that is wanted; 0 without a sink. Read without the lock. */
static atomic_int wanted_levels;
/* A sink must not log; if one does, its message is dropped instead of waiting for itself. */
static _Thread_local bool in_sink;

void bt_log_set(bt_log_sink sink, void *user, bt_log_level max_level) {
    pthread_mutex_lock(&lock);
    current_sink = sink;
    current_user = user;
    atomic_store(&wanted_levels, sink ? (int)max_level + 1 : 0);
    pthread_mutex_unlock(&lock);
}

bool bt_log_wanted(bt_log_level level) {
    return (int)level < atomic_load_explicit(&wanted_levels, memory_order_relaxed);
}

void bt_log(bt_log_level level, const char *fmt, ...) {
    if (!bt_log_wanted(level) || in_sink) return;
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (n < 0) return;
    if ((size_t)n >= sizeof message) {
        static const char mark[] = "...";
        memcpy(message + bt_utf8_fit(message, sizeof message - sizeof mark), mark, sizeof mark);
    }
    for (size_t end = strlen(message); end > 0 && message[end - 1] == '\n'; end--) {
        message[end - 1] = '\0'; /* messages of ggml come with their newline */
    }
    pthread_mutex_lock(&lock);
    if (current_sink && bt_log_wanted(level)) { /* may have changed since */
        in_sink = true;
        current_sink(level, message, current_user);
        in_sink = false;
    }
    pthread_mutex_unlock(&lock);
}
