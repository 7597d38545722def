/* SPDX-License-Identifier: MIT
 * words.c: splitting a command into words.
 *
 * The rules are those of sh for what needs no expansion: blanks and newlines part words; '...' takes everything as it
 * is; "..." keeps a backslash but before " \ $ ` and newline; outside of quotes a backslash takes the next byte as it
 * is; a backslash at the end of a line, blanks behind it or not, goes with the newline. As llama-swap does, lines whose
 * first mark is # are dropped, wherever they stand, so that one option can be commented out in a command of many lines.
 *
 * Who writes "a | b" or "> log" expects a shell. There is none, the program would get these words as arguments and
 * perhaps ignore them, so they are refused with what to write instead. In quotes they are ordinary words.
 *
 * Bounded: words by n_max, bytes by the text. */
#include "router/words.h"
#include "base/error.h"

#include <string.h>

typedef struct splitter {
    const char *p;
    char *out; /* all words, each with its end; as long as the text and one */
    char *at;
    bool quoted; /* something of this word was in quotes or behind a backslash */
    uint32_t line;
    bt_error *err;
} splitter;

static bt_status wrong(const splitter *s, const char *what) {
    return bt_fail(s->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0, "%s", what);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* After a backslash: the length of the rest of a continued line, 0 if it is none. */
static size_t continuation(const char *p) {
    size_t n = strspn(p, " \t\r");
    return p[n] == '\n' ? n + 1 : 0;
}

char *bt_words_strip_comments(const char *text, bt_arena *arena) {
    size_t n = strlen(text);
    char *copy = bt_arena_alloc(arena, n + 1);
    if (!copy) return NULL;
    char *to = copy;
    for (const char *p = text; *p;) {
        size_t length = strcspn(p, "\n");
        if (p[strspn(p, " \t\r")] != '#') {
            memcpy(to, p, length);
            to += length;
        }
        p += length;
        if (*p == '\n') *to++ = *p++;
    }
    *to = '\0';
    return copy;
}

static bt_status read_quoted(splitter *s) {
    char quote = *s->p++;
    uint32_t line = s->line;
    s->quoted = true;
    for (; *s->p != quote; s->p++) {
        if (*s->p == '\0') {
            s->line = line;
            return wrong(s, quote == '"' ? "a \" without its end" : "a ' without its end");
        }
        if (*s->p == '\n') s->line++;
        if (quote == '"' && *s->p == '\\' && s->p[1] != '\0' && strchr("\"\\$`\n", s->p[1])) {
            s->p++;
            if (*s->p == '\n') {
                s->line++;
                continue;
            }
        }
        *s->at++ = *s->p;
    }
    s->p++;
    return BT_OK;
}

/* One word, which begins here. */
static bt_status read_word(splitter *s) {
    s->quoted = false;
    while (*s->p != '\0' && !is_blank(*s->p)) {
        if (*s->p == '\'' || *s->p == '"') {
            BT_TRY(read_quoted(s));
        } else if (*s->p != '\\') {
            *s->at++ = *s->p++;
        } else if (continuation(s->p + 1) > 0) {
            break; /* the line goes on, this word does not: as if a blank stood here */
        } else if (s->p[1] == '\0') {
            return wrong(s, "a \\ with nothing behind it");
        } else {
            s->quoted = true;
            *s->at++ = s->p[1];
            s->p += 2;
        }
    }
    *s->at++ = '\0';
    return BT_OK;
}

static void skip_blanks(splitter *s) {
    for (;;) {
        size_t n = *s->p == '\\' ? continuation(s->p + 1) : 0;
        if (n > 0) {
            s->p += 1 + n;
            s->line++;
        } else if (is_blank(*s->p)) {
            s->line += *s->p == '\n';
            s->p++;
        } else {
            return;
        }
    }
}

static bool is_assignment(const char *word) {
    size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
    return n > 0 && word[n] == '=' && !(word[0] >= '0' && word[0] <= '9');
}

/* A word of a shell's grammar, not of a command. */
static bt_status check_word(const splitter *s, const char *word, bool first) {
    static const char *const whole[] = {"|", "||", "|&", "&", "&&", ";"};
    if (s->quoted) return BT_OK;
    bool shell = word[0] == '<' || word[0] == '>' || word[0] == '`' || strncmp(word, "$(", 2) == 0 ||
                 strncmp(word, "&>", 2) == 0 || strncmp(word, "1>", 2) == 0 || strncmp(word, "2>", 2) == 0;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        shell = shell || strcmp(word, whole[i]) == 0;
    if (shell) {
        return bt_fail(
            s->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0,
            "no shell reads this command, so \"%.40s\" would go to the program: write sh -c '...' if a shell "
            "shall, or '%.40s' in quotes if it is meant so",
            word, word);
    }
    if (first && is_assignment(word)) {
        return bt_fail(s->err, BT_E_FORMAT, "config", BT_MEASURE_NONE, 0, 0,
                       "no shell reads this command: \"%.40s\" belongs under env: of the model", word);
    }
    return BT_OK;
}

bt_status bt_words_split(const char *text, uint32_t n_max, bt_arena *arena, char ***ret, uint32_t *ret_n,
                         uint32_t *ret_line, bt_error *err) {
    splitter s = {.p = bt_words_strip_comments(text, arena), .err = err};
    *ret_line = 0;
    *ret_n = 0;
    s.out = bt_arena_alloc(arena, strlen(text) + 2);
    if (!s.p || !s.out) return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for a command");
    s.at = s.out;
    uint32_t n = 0;
    for (skip_blanks(&s); *s.p != '\0'; skip_blanks(&s)) {
        const char *word = s.at;
        *ret_line = s.line;
        if (n == n_max) {
            return bt_fail(err, BT_E_LIMIT, "config", BT_MEASURE_NONE, 0, 0, "a command of more than %u words", n_max);
        }
        bt_status status = read_word(&s);
        if (status == BT_OK) status = check_word(&s, word, n == 0);
        if (status != BT_OK) return status;
        n++;
    }
    char **words = bt_arena_array(arena, (uint64_t)n + 1, sizeof *words);
    if (!words) return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for a command");
    char *at = s.out;
    for (uint32_t i = 0; i < n; i++, at += strlen(at) + 1)
        words[i] = at;
    *ret = words;
    *ret_n = n;
    return BT_OK;
}
