/* SPDX-License-Identifier: MIT
 * terminal.c: the difference between a terminal and a file.
 *
 * A model's text and a file's strings may hold escape sequences; on a terminal they are shown instead of obeyed. Tokens
 * may end inside a character, so up to three bytes wait for the next write. Colour and bar are for terminals that want
 * them (NO_COLOR, TERM=dumb). Left out: terminfo (every terminal of today knows the four sequences used here), line
 * editing, and the width of wide characters (a bar label is ours, and plain). */
#include "cli/terminal.h"
#include "base/option.h"
#include "base/os.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 80u /* POSIX names no default; 80 is what terminals start with */
#define MIN_COLUMNS     20u
#define MAX_COLUMNS     400u
#define BAR_COLUMNS     30u
#define BAR_MIN_COLUMNS 5u
#define BAR_PERIOD_NS   UINT64_C(100000000) /* ten a second: smooth, and nothing beside the work */
#define LINE_MAX_BYTES  1024u
#define WRITE_MAX_BYTES (64u << 20) /* of one write: more than any report */

static uint32_t columns_of(FILE *stream, const char *(*environ_get)(const char *)) {
    struct winsize size = {0};
    uint32_t n = 0;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0) n = size.ws_col;
    const char *text = environ_get("COLUMNS");
    if (n == 0 && text) n = (uint32_t)strtoul(text, NULL, 10);
    if (n == 0) return DEFAULT_COLUMNS;
    return n < MIN_COLUMNS ? MIN_COLUMNS : n > MAX_COLUMNS ? MAX_COLUMNS : n;
}

void bt_terminal_open(bt_terminal *terminal, FILE *stream, const char *(*environ_get)(const char *)) {
    if (!environ_get) environ_get = bt_environ;
    *terminal = (bt_terminal){.stream = stream, .is_terminal = isatty(fileno(stream)) == 1};
    const char *term = environ_get("TERM");
    const char *no_colour = environ_get("NO_COLOR");
    bool moves = terminal->is_terminal && term && term[0] && strcmp(term, "dumb") != 0;
    terminal->has_bar = moves;
    terminal->has_colour = moves && !(no_colour && no_colour[0]); /* no-color.org: set and not empty */
    terminal->n_columns = columns_of(stream, environ_get);
}

const char *bt_terminal_colour(const bt_terminal *terminal, bt_colour colour) {
    if (!terminal->has_colour) return "";
    switch (colour) {
    case BT_COLOUR_RED:
        return "\033[1;31m";
    case BT_COLOUR_YELLOW:
        return "\033[33m";
    case BT_COLOUR_BOLD:
        return "\033[1m";
    case BT_COLOUR_NONE:
        break;
    }
    return "\033[0m";
}

/* Whether the n bytes at s could still become a character. */
static bool is_cut(const char *s, size_t n) {
    return n > 0 && bt_utf8_fit(s, n) == 0;
}

static void escape_run(const char *s, size_t n, bt_text *out) {
    size_t plain = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\n' && s[i] != '\t') continue;
        bt_text_add_escaped(out, s + plain, i - plain);
        bt_text_add_n(out, s + i, 1);
        plain = i + 1;
    }
    bt_text_add_escaped(out, s + plain, n - plain);
}

void bt_terminal_escape(bt_terminal *terminal, const char *s, size_t n, bt_text *out) {
    /* Finish the character that waits, byte by byte: at most three of them. */
    size_t used = 0;
    while (terminal->n_pending > 0 && used < n) {
        terminal->pending[terminal->n_pending++] = s[used++];
        bool whole = bt_utf8_length(terminal->pending, terminal->n_pending) > 0;
        if (!whole && is_cut(terminal->pending, terminal->n_pending) && terminal->n_pending < 4) continue;
        if (!whole) { /* the new byte is none of it: it starts afresh */
            used--;
            terminal->n_pending--;
        }
        escape_run(terminal->pending, terminal->n_pending, out);
        terminal->n_pending = 0;
    }
    if (terminal->n_pending > 0) return;
    size_t fit = bt_utf8_fit(s + used, n - used);
    escape_run(s + used, fit, out);
    terminal->n_pending = n - used - fit;
    memcpy(terminal->pending, s + used + fit, terminal->n_pending);
}

void bt_terminal_write(bt_terminal *terminal, const char *s, size_t n) {
    if (!terminal->is_terminal) {
        (void)fwrite(s, 1, n, terminal->stream); /* bt_terminal_flush asks how it went */
        return;
    }
    bt_text text;
    bt_text_init(&text, WRITE_MAX_BYTES);
    bt_terminal_escape(terminal, s, n, &text);
    (void)fwrite(bt_text_str(&text), 1, text.n_bytes, terminal->stream);
    bt_text_done(&text);
}

bool bt_terminal_flush(bt_terminal *terminal) {
    if (terminal->n_pending > 0) { /* the rest will not come: \xNN */
        bt_text text;
        bt_text_init(&text, LINE_MAX_BYTES);
        bt_text_add_escaped(&text, terminal->pending, terminal->n_pending);
        terminal->n_pending = 0;
        (void)fwrite(bt_text_str(&text), 1, text.n_bytes, terminal->stream);
        bt_text_done(&text);
    }
    return fflush(terminal->stream) == 0 && ferror(terminal->stream) == 0;
}

/* ---- prose ------------------------------------------------------------------------------------------------------ */

static size_t characters(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

static size_t span_spaces(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] == ' ')
        i++;
    return i;
}

/* One line, without its end. */
static void fold_line(uint32_t n_columns, const char *s, size_t n, bt_text *out) {
    size_t indent = span_spaces(s, n);
    bool is_row = memmem(s + indent, n - indent, "  ", 2) != NULL;
    if (is_row || characters(s, n) <= n_columns) {
        bt_text_add_n(out, s, n);
        return;
    }
    bt_text_add_n(out, s, indent);
    size_t at = indent;
    for (size_t i = indent; i < n;) {
        const char *space = memchr(s + i, ' ', n - i);
        size_t length = space ? (size_t)(space - (s + i)) : n - i;
        size_t width = characters(s + i, length);
        if (i > indent && at + 1 + width > n_columns) {
            bt_text_addf(out, "\n%*s", (int)indent + 2, "");
            at = indent + 2;
        } else if (i > indent) {
            bt_text_add(out, " ");
            at++;
        }
        bt_text_add_n(out, s + i, length);
        at += width;
        i += length + 1;
    }
}

void bt_terminal_fold(const bt_terminal *terminal, const char *s, bt_text *out) {
    if (!terminal->is_terminal) {
        bt_text_add(out, s);
        return;
    }
    while (*s) {
        size_t n = strcspn(s, "\n");
        fold_line(terminal->n_columns, s, n, out);
        s += n;
        if (*s) bt_text_add_n(out, s++, 1);
    }
}

/* ---- the bar ---------------------------------------------------------------------------------------------------- */

void bt_terminal_bar_format(uint32_t n_columns, const char *label, uint64_t done, uint64_t total, bt_text *out) {
    if (done > total) done = total;
    uint32_t percent = total ? (uint32_t)bt_mul_div_u64(done, 100, total) : 100;
    uint32_t room = n_columns > 1 ? n_columns - 1 : 0; /* the last column would wrap the line */
    uint32_t n_label = (uint32_t)bt_min_u64(strlen(label), room);
    bt_text_addf(out, "%.*s", (int)n_label, label);
    room -= n_label;
    const uint32_t beside = 2 + 1 + 6; /* " [", "]", " 100 %" */
    uint32_t n_bar = room > beside ? (uint32_t)bt_min_u64(room - beside, BAR_COLUMNS) : 0;
    if (n_bar >= BAR_MIN_COLUMNS) {
        uint32_t n_full = total ? (uint32_t)bt_mul_div_u64(done, n_bar, total) : n_bar;
        bt_text_add(out, " [");
        for (uint32_t i = 0; i < n_bar; i++) {
            bt_text_add(out, i < n_full ? "#" : ".");
        }
        bt_text_add(out, "]");
        room -= 3 + n_bar;
    }
    if (room >= 6) bt_text_addf(out, " %3u %%", percent);
}

void bt_terminal_bar(bt_terminal *terminal, const char *label, uint64_t done, uint64_t total) {
    if (!terminal->has_bar) return;
    uint64_t now_ns = bt_os_now_ns();
    bool due = !terminal->bar_drawn || now_ns - terminal->bar_drawn_ns >= BAR_PERIOD_NS;
    if (!due && done < total) return;
    terminal->bar_drawn = true;
    terminal->bar_drawn_ns = now_ns;
    bt_text line;
    bt_text_init(&line, LINE_MAX_BYTES);
    bt_terminal_bar_format(terminal->n_columns, label, done, total, &line);
    (void)fprintf(terminal->stream, "\r%s\033[K", bt_text_str(&line)); /* a lost bar is no loss */
    (void)fflush(terminal->stream);
    bt_text_done(&line);
}

void bt_terminal_bar_end(bt_terminal *terminal) {
    if (!terminal->bar_drawn) return;
    terminal->bar_drawn = false;
    (void)fputs("\r\033[K", terminal->stream);
    (void)fflush(terminal->stream);
}
