/* SPDX-License-Identifier: MIT
 *
 * input.c: lines, edited with libedit where it was built in and both ends are a terminal, else as the system gives
 * them.
 *
 * A message is one line, or several that a backslash joins. Lines that were pasted arrive together, faster than anyone
 * types: what is there when a line ends belongs to the same message. The history lives in memory and dies with the
 * process: what a user says is never written to disk unasked (docs/interfaces.md). The bound of a message is the
 * caller's text. */
#include "cli/input.h"

#include "base/heap.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef BT_HAVE_LIBEDIT
#define BT_HAVE_LIBEDIT 0
#endif
#if BT_HAVE_LIBEDIT
#include <histedit.h>
#endif

#define PROMPT_BYTES  64u
#define INVISIBLE     '\1'
#define HISTORY_LINES 200
#define PASTE_WAIT_MS 15 /* between two lines of a paste; between two keys there are 30 and more */

struct bt_input {
    char prompt[PROMPT_BYTES]; /* with INVISIBLE around what moves no cursor */
    bool is_terminal;
    char *line; /* getline's */
    size_t capacity;
#if BT_HAVE_LIBEDIT
    EditLine *editor;
    History *history;
#endif
};

#if BT_HAVE_LIBEDIT
static char *prompt_of(EditLine *editor) {
    bt_input *input = NULL;
    (void)el_get(editor, EL_CLIENTDATA, (void **)&input);
    return input ? input->prompt : (char *)(uintptr_t)"";
}

/* libedit takes bytes for characters of the locale, and drops those that are none: in the "C" locale of a program that
 * sets none, or of a user that has none, every letter beyond ASCII. Only characters are touched: numbers stay. */
static void set_characters(void) {
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "ANSI_X3.4-1968") == 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8"); /* not there: as before */
}

static void open_editor(bt_input *input) {
    HistEvent event;
    if (isatty(STDERR_FILENO) != 1) return;
    set_characters();
    input->editor = el_init("burthen", stdin, stderr, stderr);
    input->history = input->editor ? history_init() : NULL;
    if (!input->history) return;
    (void)history(input->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)history(input->history, &event, H_SETUNIQUE, 1);
    (void)el_set(input->editor, EL_CLIENTDATA, (void *)input);
    (void)el_set(input->editor, EL_PROMPT_ESC, prompt_of, INVISIBLE);
    (void)el_set(input->editor, EL_EDITOR, "emacs");
    (void)el_set(input->editor, EL_SIGNAL, 0); /* signals are ours */
    (void)el_set(input->editor, EL_HIST, history, input->history);
}

static void close_editor(bt_input *input) {
    if (input->history) history_end(input->history);
    if (input->editor) el_end(input->editor);
}

/* The line, or NULL. */
static const char *edit_line(bt_input *input, size_t *ret_n) {
    int n = 0;
    errno = 0;
    const char *line = el_gets(input->editor, &n);
    if (!line || n <= 0) {
        int sys = errno;
        el_reset(input->editor);
        errno = sys;
        return NULL;
    }
    HistEvent event;
    if (input->history && line[0] != '\n') (void)history(input->history, &event, H_ENTER, line);
    *ret_n = (size_t)n;
    return line;
}

static bool has_editor(const bt_input *input) {
    return input->editor != NULL;
}
#else
static void open_editor(bt_input *input) {
    (void)input;
}

static void close_editor(bt_input *input) {
    (void)input;
}

static const char *edit_line(bt_input *input, size_t *ret_n) {
    (void)input;
    (void)ret_n;
    return NULL;
}

static bool has_editor(const bt_input *input) {
    (void)input;
    return false;
}
#endif

bt_input *bt_input_open(const char *prompt) {
    bt_input *input = bt_heap_alloc(sizeof *input);
    if (!input) return NULL;
    bt_terminal terminal;
    bt_terminal_open(&terminal, stderr, NULL);
    const char *mark = terminal.has_colour ? (char[]){INVISIBLE, '\0'} : "";
    /* libedit keeps what moves no cursor with the letter behind it, and drops what has none: the colour ends before the
     * prompt's last letter, a space. */
    size_t n = strlen(prompt);
    size_t n_bold = n > 0 ? n - 1 : 0;
    (void)snprintf(input->prompt, sizeof input->prompt, "%s%s%s%.*s%s%s%s%s", mark,
                   bt_terminal_colour(&terminal, BT_COLOUR_BOLD), mark, (int)n_bold, prompt, mark,
                   bt_terminal_colour(&terminal, BT_COLOUR_NONE), mark, prompt + n_bold);
    input->is_terminal = isatty(STDIN_FILENO) == 1;
    if (input->is_terminal) open_editor(input);
    return input;
}

void bt_input_close(bt_input *input) {
    if (!input) return;
    close_editor(input);
    free(input->line); /* getline's memory is the C library's */
    bt_heap_free(input);
}

static const char *plain_line(bt_input *input, size_t *ret_n) {
    if (input->is_terminal) {
        for (const char *c = input->prompt; *c; c++)
            if (*c != INVISIBLE) (void)fputc(*c, stderr);
        (void)fflush(stderr);
    }
    errno = 0;
    ssize_t n = getline(&input->line, &input->capacity, stdin);
    if (n < 0) {
        if (errno == EINTR) clearerr(stdin);
        return NULL;
    }
    *ret_n = (size_t)n;
    return input->line;
}

/* More of a paste is there already. */
static bool is_pasted(const bt_input *input) {
    struct pollfd poller = {.fd = STDIN_FILENO, .events = POLLIN};
    return input->is_terminal && poll(&poller, 1, PASTE_WAIT_MS) == 1 && (poller.revents & POLLIN);
}

bt_input_result bt_input_read(bt_input *input, bt_text *text) {
    bt_text_clear(text);
    bool has_any = false;
    for (;;) {
        size_t n = 0;
        const char *line = has_editor(input) ? edit_line(input, &n) : plain_line(input, &n);
        if (!line && errno == EINTR) return BT_INPUT_INTERRUPTED;
        if (!line && errno != 0 && !has_any) return BT_INPUT_FAILED;
        if (!line) return has_any ? BT_INPUT_TEXT : BT_INPUT_END;
        bool whole = n > 0 && line[n - 1] == '\n';
        if (whole) n--;
        if (n > 0 && line[n - 1] == '\r') n--;
        bool goes_on = n > 0 && line[n - 1] == '\\';
        if (goes_on) n--;
        bt_text_add_n(text, line, n);
        if (text->failed) {
            errno = E2BIG;
            return BT_INPUT_FAILED;
        }
        has_any = true;
        if (!goes_on && !is_pasted(input)) return BT_INPUT_TEXT;
        bt_text_add(text, "\n");
    }
}
