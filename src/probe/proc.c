/* SPDX-License-Identifier: MIT
 * proc.c: small text files, read whole and taken apart.
 *
 * The kernel's files are made at the moment they are read, so each is opened, read once and closed, and nothing is
 * kept. What is longer than the buffer is cut at the end of a line: half a number would be a wrong number. The
 * scanners work on spans of the buffer and copy nothing; they take any bytes, since a container's emulated files and a
 * recorded tree are input like any other. A NUL byte ends the text. Left out: stdio, which would allocate while memory
 * is being looked at, and strtoull, which reads "-1" as a number. */
#include "probe/proc.h"
#include "base/os.h"
#include "base/size.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void keep_whole_lines(bt_proc_text *text, size_t n_bytes) {
    while (n_bytes > 0 && text->data[n_bytes - 1] != '\n')
        n_bytes--;
    text->data[n_bytes] = '\0';
    text->n_bytes = n_bytes;
    text->cut = true;
}

int bt_proc_read(const char *root, const char *path, uint64_t offset, bt_proc_text *text) {
    text->data[0] = '\0';
    text->n_bytes = 0;
    text->cut = false;
    char full[BT_PROC_PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof full) return -ENAMETOOLONG;
    int fd = bt_os_open(full, false);
    if (fd < 0) return fd;
    /* One byte more than is kept tells a full buffer from a longer file. */
    int64_t got = bt_os_pread(fd, text->data, sizeof text->data, offset);
    bt_os_close(fd);
    if (got < 0) {
        text->data[0] = '\0';
        return (int)got;
    }
    if ((uint64_t)got > BT_PROC_TEXT_MAX) {
        keep_whole_lines(text, BT_PROC_TEXT_MAX);
        return text->n_bytes == 0 ? -E2BIG : 0;
    }
    text->data[got] = '\0';
    text->n_bytes = (size_t)got;
    return 0;
}

bool bt_proc_is_absent(int rc) {
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ENODEV;
}

bt_span bt_span_of(const char *text) {
    return (bt_span){text, strlen(text)};
}

bool bt_span_is(bt_span span, const char *text) {
    return span.n_bytes == strlen(text) && memcmp(span.at, text, span.n_bytes) == 0;
}

bool bt_span_starts(bt_span span, const char *prefix) {
    size_t n = strlen(prefix);
    return span.n_bytes >= n && memcmp(span.at, prefix, n) == 0;
}

static bt_span skip(bt_span span, size_t n) {
    return (bt_span){span.at + n, span.n_bytes - n};
}

bool bt_span_part(bt_span *rest, char at, bt_span *ret_part) {
    if (rest->n_bytes == 0) return false;
    const char *end = memchr(rest->at, at, rest->n_bytes);
    size_t n = end ? (size_t)(end - rest->at) : rest->n_bytes;
    *ret_part = (bt_span){rest->at, n};
    *rest = skip(*rest, end ? n + 1 : n);
    return true;
}

bool bt_span_line(bt_span *rest, bt_span *ret_line) {
    bt_span line;
    if (!bt_span_part(rest, '\n', &line)) return false;
    if (line.n_bytes > 0 && line.at[line.n_bytes - 1] == '\r') line.n_bytes--;
    *ret_line = line;
    return true;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

bool bt_span_word(bt_span *rest, bt_span *ret_word) {
    size_t first = 0;
    while (first < rest->n_bytes && is_blank(rest->at[first]))
        first++;
    size_t end = first;
    while (end < rest->n_bytes && !is_blank(rest->at[end]))
        end++;
    if (end == first) return false;
    *ret_word = (bt_span){rest->at + first, end - first};
    *rest = skip(*rest, end);
    return true;
}

bool bt_span_number(bt_span span, uint64_t *ret) {
    if (span.n_bytes == 0) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < span.n_bytes; i++) {
        char c = span.at[i];
        if (c < '0' || c > '9') return false;
        if (!bt_mul_u64(value, 10, &value) || !bt_add_u64(value, (uint64_t)(c - '0'), &value)) return false;
    }
    *ret = value;
    return true;
}

bool bt_span_only_word(const char *text, bt_span *ret_word) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    bt_span word;
    bt_span more;
    if (!bt_span_line(&rest, &line) || rest.n_bytes > 0) return false;
    if (!bt_span_word(&line, &word) || bt_span_word(&line, &more)) return false;
    *ret_word = word;
    return true;
}

bool bt_span_find_line(const char *text, const char *prefix, bt_span *ret_rest) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    while (bt_span_line(&rest, &line)) {
        if (!bt_span_starts(line, prefix)) continue;
        *ret_rest = skip(line, strlen(prefix));
        return true;
    }
    return false;
}
