/* SPDX-License-Identifier: MIT
 *
 * llama_log.c: what llama.cpp and ggml log, led into our log, and what is remembered of it.
 *
 * Levels are one lower than theirs: an error of theirs is repeated by the call that fails, in our words; their warnings
 * are of files and settings that work. What they say of a load is for debugging. Their own level goes with a line as a
 * field, so that nothing is lost for who filters.
 *
 * A message may come in pieces (GGML_LOG_LEVEL_CONT; the dots of a load): they are joined until one ends its line, or
 * another message comes; bounded by LINE_BYTES. The text may come from a model file, and is escaped by bt_log_send.
 *
 * Two things are looked for in it, since libllama says them nowhere else: that the system refused memory, and which
 * device it could not use. */
#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/engine.h"

#include "llama.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 1024u
#define PREFIX     "llama.cpp: "

/* Without this a full machine looks like a broken file. */
static _Atomic bool was_refused_memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of the errors since they were forgotten the first, which is nearest to the cause, for a sentence of ours. */
static char first_error[160];
/* The line that has not ended yet. */
static char line[LINE_BYTES];
static size_t n_line;
static enum ggml_log_level line_level;

/* ---- what is remembered ---- */

bool bt_engine_was_refused_memory(void) {
    return was_refused_memory;
}

static void keep_error(const char *text, size_t n) {
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n > 0 && !first_error[0])
        (void)snprintf(first_error, sizeof first_error, "%.*s", (int)bt_min_u64(n, sizeof first_error - 1), text);
}

void bt_engine_forget_errors(void) {
    pthread_mutex_lock(&lock);
    first_error[0] = '\0';
    pthread_mutex_unlock(&lock);
}

bt_status bt_engine_device_failure(const char *what, bt_error *err) {
    char said[sizeof first_error];
    pthread_mutex_lock(&lock);
    memcpy(said, first_error, sizeof said);
    pthread_mutex_unlock(&lock);
    return bt_fail(err, BT_E_DEVICE, "device_failed", BT_MEASURE_NONE, 0, 0, "a device %s; llama.cpp says: %s", what,
                   said[0] ? said : "nothing");
}

/* ---- lines ---- */

static bt_log_level level_of(enum ggml_log_level level) {
    return level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN ? BT_LOG_INFO : BT_LOG_DEBUG;
}

static const char *name_of(enum ggml_log_level level) {
    if (level == GGML_LOG_LEVEL_ERROR) return "error";
    if (level == GGML_LOG_LEVEL_WARN) return "warn";
    return level == GGML_LOG_LEVEL_INFO ? "info" : "debug";
}

/* Under the lock. */
static void send_line(void) {
    char message[sizeof PREFIX + LINE_BYTES];
    const bt_log_field field = {.name = "llama_level", .text = name_of(line_level)};
    const bt_log_entry entry = {.level = level_of(line_level), .message = message, .fields = &field, .n_fields = 1};
    if (n_line == 0) return;
    int n = snprintf(message, sizeof message, PREFIX "%.*s", (int)n_line, line);
    n_line = 0;
    if (n > 0) bt_log_send(&entry, (size_t)n);
}

/* Under the lock. What is over the bound is dropped to the end of its line. */
static void add_text(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            send_line();
        else if (n_line < LINE_BYTES)
            line[n_line++] = text[i];
    }
}

static void on_llama(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    size_t n = strlen(text);
    if (strstr(text, "insufficient memory") || strstr(text, "bad_alloc")) was_refused_memory = true;
    pthread_mutex_lock(&lock);
    if (level == GGML_LOG_LEVEL_ERROR) keep_error(text, n);
    if (level != GGML_LOG_LEVEL_CONT) {
        send_line(); /* whoever began it goes on no more */
        line_level = level;
    }
    if (bt_log_wanted(level_of(line_level))) add_text(text, n);
    pthread_mutex_unlock(&lock);
}

void bt_engine_log_init(void) {
    llama_log_set(on_llama, NULL); /* sets ggml's too */
}

void bt_engine_log_end(void) {
    pthread_mutex_lock(&lock);
    send_line();
    pthread_mutex_unlock(&lock);
}
