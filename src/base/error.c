/* SPDX-License-Identifier: MIT
 * error.c: filling a bt_error, and the tables of its statuses.
 *
 * The texts are built on the stack and copied last, so that a caller may wrap an error in itself ("%s", err->text)
 * and so that reporting that memory is out needs no memory. What leaves here is always valid UTF-8 without control
 * bytes, whatever file or argument it quotes: it goes to terminals and into JSON as it is. A sentence that is too long
 * is cut between characters. */
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(BT_STATUS_COUNT > 0, "the tables below have rows");

static const char *const status_texts[] = {
#define X(name, text, exit_code) text,
    BT_STATUS_MAP(X)
#undef X
};

static const int status_exit_codes[] = {
#define X(name, text, exit_code) exit_code,
    BT_STATUS_MAP(X)
#undef X
};

static bool in_table(bt_status status) {
    return (unsigned)status < (unsigned)BT_STATUS_COUNT;
}

const char *bt_status_text(bt_status status) {
    return in_table(status) ? status_texts[status] : "unknown status";
}

int bt_status_exit_code(bt_status status) {
    return in_table(status) ? status_exit_codes[status] : 1;
}

/* Control bytes and bytes that are no UTF-8 become '?'. */
static void make_plain(char *text) {
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(text + i, n - i);
        if (length == 0 || bt_utf8_is_control(text + i, length)) {
            text[i++] = '?';
            if (length == 2) text[i++] = '?'; /* a C1 control: both of its bytes */
        } else {
            i += length;
        }
    }
}

static void put(char *dest, size_t capacity, const char *source) {
    size_t n = strnlen(source, capacity);
    if (n >= capacity) n = bt_utf8_fit(source, capacity - 1);
    memcpy(dest, source, n);
    dest[n] = '\0';
    make_plain(dest);
}

/* vsnprintf that cuts between characters and never returns an unset text. */
static void format(char *text, size_t capacity, const char *fmt, va_list args) BT_PRINTF(3, 0);
static void format(char *text, size_t capacity, const char *fmt, va_list args) {
    int n = vsnprintf(text, capacity, fmt, args);
    if (n < 0) text[0] = '\0';
    if (n >= 0 && (size_t)n >= capacity) text[bt_utf8_fit(text, capacity - 1)] = '\0';
}

bt_status bt_fail(bt_error *err, bt_status status, const char *code, bt_measure measure, uint64_t need, uint64_t have,
                  const char *fmt, ...) {
    if (!err) return status;
    bt_error made = {.status = status, .measure = measure};
    if (measure != BT_MEASURE_NONE) {
        made.need = need;
        made.have = have;
    }
    put(made.code, sizeof made.code, code);
    va_list args;
    va_start(args, fmt);
    format(made.text, sizeof made.text, fmt, args);
    va_end(args);
    make_plain(made.text);
    *err = made;
    return status;
}

static const char *sys_text(int sys, char *buffer, size_t capacity) {
    if (sys == ESPIPE)
        return "it is a pipe, a terminal or a device, not a file"; /* the C library's "Illegal seek" says less */
#if defined(__GLIBC__)
    return strerror_r(sys, buffer, capacity); /* the GNU form: may return a string of its own */
#else
    return strerror_r(sys, buffer, capacity) == 0 ? buffer : "unknown error";
#endif
}

bt_status bt_fail_sys(bt_error *err, int sys, const char *code, const char *fmt, ...) {
    bt_status status = sys == ENOMEM ? BT_E_NOMEM : BT_E_IO;
    if (!err) return status;
    bt_error made = {.status = status, .sys = sys};
    put(made.code, sizeof made.code, code);
    /* The reason is the part that must survive: the sentence is cut to leave room for it. */
    char buffer[128];
    const char *reason = sys_text(sys, buffer, sizeof buffer);
    size_t reserved = strnlen(reason, sizeof buffer) + 2; /* ": " */
    va_list args;
    va_start(args, fmt);
    format(made.text, sizeof made.text - reserved, fmt, args);
    va_end(args);
    size_t n = strlen(made.text);
    (void)snprintf(made.text + n, sizeof made.text - n, ": %.*s", (int)(reserved - 2), reason);
    make_plain(made.text);
    *err = made;
    return status;
}
