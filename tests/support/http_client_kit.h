/* SPDX-License-Identifier: MIT
 * http_client_kit.h: a client of raw sockets, for tests of servers: it sends what it is told, right or wrong, and reads
 * answers as they come: by length, in chunks, or to the end of the connection. */
#pragma once

#include "base/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static inline uint64_t kit_now_ms(void) {
    return bt_os_now_ns() / 1000000;
}

static inline int kit_connect_to(uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) abort();
    return fd;
}

/* Bytes that went out before the other side closed. */
static inline size_t kit_send(int fd, const void *data, size_t n) {
    size_t sent = 0;
    while (sent < n) {
        ssize_t step = send(fd, (const char *)data + sent, n - sent, MSG_NOSIGNAL);
        if (step <= 0) break;
        sent += (size_t)step;
    }
    return sent;
}

static inline size_t kit_say(int fd, const char *text) {
    return kit_send(fd, text, strlen(text));
}

/* Long enough for a machine that stands still for a while: who waits for what must come waits so long. */
#define KIT_WAIT_MS 20000

/* What comes within so many milliseconds, until capacity; -1: reset. *ret_end: the other side closed. */
static inline ssize_t kit_read(int fd, char *dest, size_t capacity, int ms, bool *ret_end) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (ret_end) *ret_end = false;
    if (poll(&wait, 1, ms) <= 0) return 0;
    ssize_t n = recv(fd, dest, capacity, 0);
    if (n == 0 && ret_end) *ret_end = true;
    return n;
}

typedef struct kit_answer {
    uint32_t status; /* 0: none came */
    char head[8192];
    char *body; /* heap, NUL at the end */
    size_t n_body;
    bool whole; /* as long as was said, or with its last chunk */
    bool reset;
} kit_answer;

static inline void kit_answer_done(kit_answer *answer) {
    free(answer->body);
    *answer = (kit_answer){0};
}

/* What is there of an answer, more being read when it is needed. */
typedef struct kit_reading {
    int fd, ms;
    char *data;
    size_t n, at, capacity;
    bool end, reset;
} kit_reading;

static inline bool kit_more(kit_reading *from) {
    if (from->n == from->capacity) {
        from->capacity = from->capacity ? from->capacity * 2 : 65536;
        from->data = realloc(from->data, from->capacity);
        if (!from->data) abort();
    }
    ssize_t n = kit_read(from->fd, from->data + from->n, from->capacity - from->n, from->ms, &from->end);
    from->reset |= n < 0;
    if (n <= 0) return false;
    from->n += (size_t)n;
    return true;
}

static inline size_t kit_line(kit_reading *from) { /* its length; SIZE_MAX: no whole one comes */
    for (;;) {
        char *end = from->n > from->at ? memchr(from->data + from->at, '\n', from->n - from->at) : NULL;
        if (end) return (size_t)(end - (from->data + from->at)) + 1;
        if (!kit_more(from)) return SIZE_MAX;
    }
}

static inline bool kit_copy(kit_reading *from, size_t n, kit_answer *answer) {
    while (from->n - from->at < n && kit_more(from))
        continue;
    size_t got = from->n - from->at < n ? from->n - from->at : n;
    answer->body = realloc(answer->body, answer->n_body + got + 1);
    if (!answer->body) abort();
    if (got) memcpy(answer->body + answer->n_body, from->data + from->at, got);
    answer->n_body += got;
    answer->body[answer->n_body] = 0;
    from->at += got;
    return got == n;
}

static inline const char *kit_header(const kit_answer *answer, const char *name) { /* its value; NULL: none */
    static char value[1024];
    size_t n = strlen(name);
    for (const char *line = strchr(answer->head, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            const char *from = line + n + 1;
            from += strspn(from, " ");
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r\n"), from);
            return value;
        }
    }
    return NULL;
}

static inline bool kit_read_chunks(kit_reading *from, kit_answer *answer) {
    for (;;) {
        size_t n = kit_line(from);
        if (n == SIZE_MAX) return false;
        size_t size = strtoull(from->data + from->at, NULL, 16);
        from->at += n;
        if (size && !kit_copy(from, size, answer)) return false;
        n = kit_line(from);
        if (n == SIZE_MAX) return false;
        from->at += n;
        if (!size) return true;
    }
}

static inline void kit_read_answer_from(kit_reading *from, bool is_head, kit_answer *answer) {
    *answer = (kit_answer){0};
    size_t used = 0, n = 0;
    while ((n = kit_line(from)) != SIZE_MAX) {
        if (used + n >= sizeof answer->head) break;
        memcpy(answer->head + used, from->data + from->at, n);
        used += n;
        from->at += n;
        if (n <= 2) break;
    }
    if (n == SIZE_MAX || strncmp(answer->head, "HTTP/1.", 7) != 0) {
        answer->reset = from->reset;
        return;
    }
    answer->status = (uint32_t)strtoul(answer->head + 9, NULL, 10);
    if (answer->status == 100) {
        kit_read_answer_from(from, is_head, answer);
        return;
    }
    const char *length = kit_header(answer, "Content-Length");
    const char *encoding = kit_header(answer, "Transfer-Encoding");
    (void)kit_copy(from, 0, answer);
    if (is_head || answer->status == 204)
        answer->whole = true;
    else if (encoding)
        answer->whole = kit_read_chunks(from, answer);
    else if ((length = kit_header(answer, "Content-Length")))
        answer->whole = kit_copy(from, strtoull(length, NULL, 10), answer);
    else
        answer->whole = !kit_copy(from, SIZE_MAX / 2, answer) && from->end;
    answer->reset = from->reset;
}

static inline void kit_read_answer(int fd, bool is_head, kit_answer *answer) {
    kit_reading from = {.fd = fd, .ms = KIT_WAIT_MS};
    kit_read_answer_from(&from, is_head, answer);
    free(from.data);
}
