/* SPDX-License-Identifier: MIT
 * exposition.c: the text format in which Prometheus reads metrics, a line at a time.
 *
 * The format (prometheus.io, "Exposition formats", text format 0.0.4): `# HELP name text`, `# TYPE name type`, and
 * samples `name{label="value",...} value [milliseconds]`, tokens apart by blanks and tabs. One bad line makes
 * Prometheus refuse the whole answer, ours with it, so what a server says is read more strictly than Prometheus would:
 * names of the classic alphabet, the three escapes of the format and no others, decimal numbers, UTF-8, no control
 * bytes.
 *
 * A line is read in place: pieces point into it, nothing is copied, and there is no memory that could be refused. */
#include "router/exposition.h"

#include "base/text.h"

#include <string.h>

#define NO_CHARACTER "\xEF\xBF\xBD" /* U+FFFD */

static const char *const type_names[] = {"untyped", "counter", "gauge", "histogram", "summary"};

const char *bt_metric_type_name(bt_metric_type type) {
    return type_names[type];
}

bool bt_piece_is(bt_piece piece, const char *text) {
    return strlen(text) == piece.n_bytes && memcmp(piece.at, text, piece.n_bytes) == 0;
}

/* ---- tokens: each takes what it can from the front of *rest ------------------------------------------------------ */

static bt_piece take(bt_piece *rest, uint32_t n) {
    bt_piece piece = {rest->at, n};
    rest->at += n;
    rest->n_bytes -= n;
    return piece;
}

static bool take_byte(bt_piece *rest, char c) {
    if (rest->n_bytes == 0 || *rest->at != c) return false;
    (void)take(rest, 1);
    return true;
}

/* How many bytes there are. */
static uint32_t take_blanks(bt_piece *rest) {
    uint32_t n = 0;
    while (n < rest->n_bytes && (rest->at[n] == ' ' || rest->at[n] == '\t'))
        n++;
    (void)take(rest, n);
    return n;
}

static bool is_name_byte(char c, bool first, bool colon) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (colon && c == ':') || (!first && bt_is_digit(c));
}

/* Empty: there is none. colon: of a metric, not of a label. */
static bt_piece take_name(bt_piece *rest, bool colon) {
    uint32_t n = 0;
    while (n < rest->n_bytes && is_name_byte(rest->at[n], n == 0, colon))
        n++;
    return take(rest, n);
}

/* Up to a blank or the end. */
static bt_piece take_word(bt_piece *rest) {
    uint32_t n = 0;
    while (n < rest->n_bytes && rest->at[n] != ' ' && rest->at[n] != '\t')
        n++;
    return take(rest, n);
}

static uint32_t take_digits(bt_piece *rest) {
    uint32_t n = 0;
    while (n < rest->n_bytes && bt_is_digit(rest->at[n]))
        n++;
    (void)take(rest, n);
    return n;
}

static bool is_number(bt_piece word) {
    if (bt_piece_is(word, "NaN")) return true;
    if (!take_byte(&word, '-')) (void)take_byte(&word, '+');
    if (bt_piece_is(word, "Inf")) return true;
    uint32_t n_digits = take_digits(&word);
    if (take_byte(&word, '.')) n_digits += take_digits(&word);
    if (n_digits == 0) return false;
    if (take_byte(&word, 'e') || take_byte(&word, 'E')) {
        if (!take_byte(&word, '-')) (void)take_byte(&word, '+');
        if (take_digits(&word) == 0) return false;
    }
    return word.n_bytes == 0;
}

/* Of milliseconds, in 64 bits: 18 digits always fit. */
static bool is_time(bt_piece word) {
    (void)take_byte(&word, '-');
    uint32_t n = take_digits(&word);
    return n > 0 && n <= 18 && word.n_bytes == 0;
}

static bool take_quoted(bt_piece *rest, bt_piece *ret) {
    if (!take_byte(rest, '"')) return false;
    uint32_t n = 0;
    while (n < rest->n_bytes && rest->at[n] != '"') {
        if (rest->at[n] == '\\') {
            n++;
            if (n >= rest->n_bytes || !strchr("\\\"n", rest->at[n])) return false;
        }
        n++;
    }
    *ret = take(rest, n);
    return take_byte(rest, '"');
}

bool bt_exposition_label(bt_piece *labels, bt_piece *ret_name, bt_piece *ret_value) {
    (void)take_blanks(labels);
    *ret_name = take_name(labels, false);
    if (ret_name->n_bytes == 0) return false;
    (void)take_blanks(labels);
    if (!take_byte(labels, '=')) return false;
    (void)take_blanks(labels);
    if (!take_quoted(labels, ret_value)) return false;
    (void)take_blanks(labels);
    (void)take_byte(labels, ',');
    return true;
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* Everything between braces, labels apart by commas, one more comma allowed at the end. */
static bool take_labels(bt_piece *rest, bt_piece *ret) {
    bt_piece start = *rest;
    bt_piece name;
    bt_piece value;
    bool comma = true;
    while (!take_byte(rest, '}')) {
        if (!comma || !bt_exposition_label(rest, &name, &value)) return false;
        comma = rest->at[-1] == ',';
        (void)take_blanks(rest);
    }
    *ret = (bt_piece){start.at, (uint32_t)(rest->at - start.at) - 1};
    return true;
}

static void read_sample(bt_piece rest, bt_exposition_line *ret) {
    ret->name = take_name(&rest, true);
    if (ret->name.n_bytes == 0) return;
    uint32_t n_blanks = take_blanks(&rest);
    if (take_byte(&rest, '{')) {
        (void)take_blanks(&rest);
        if (!take_labels(&rest, &ret->labels)) return;
        n_blanks = 1; /* none is needed after a brace */
        (void)take_blanks(&rest);
    }
    ret->value = take_word(&rest);
    if (n_blanks == 0 || !is_number(ret->value)) return;
    (void)take_blanks(&rest);
    ret->time = take_word(&rest);
    if (ret->time.n_bytes > 0 && !is_time(ret->time)) return;
    (void)take_blanks(&rest);
    if (rest.n_bytes > 0) return;
    ret->kind = BT_EXPOSITION_SAMPLE;
}

static bool read_type(bt_piece word, bt_metric_type *ret) {
    for (uint32_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        *ret = (bt_metric_type)i;
        if (bt_piece_is(word, type_names[i])) return true;
    }
    return false;
}

/* Backslashes of a HELP text come as \\ or \n. */
static bool is_help(bt_piece text) {
    for (uint32_t i = 0; i < text.n_bytes; i++) {
        if (text.at[i] != '\\') continue;
        i++;
        if (i == text.n_bytes || (text.at[i] != '\\' && text.at[i] != 'n')) return false;
    }
    return true;
}

/* After "#": HELP and TYPE are of the format when a blank stands before them, all else is a comment. */
static void read_comment(bt_piece rest, bt_exposition_line *ret) {
    ret->kind = BT_EXPOSITION_NOTHING;
    if (take_blanks(&rest) == 0) return;
    bt_piece word = take_word(&rest);
    bool help = bt_piece_is(word, "HELP");
    if (!help && !bt_piece_is(word, "TYPE")) return;
    ret->kind = BT_EXPOSITION_WRONG;
    (void)take_blanks(&rest);
    ret->name = take_name(&rest, true);
    if (ret->name.n_bytes == 0) return;
    bool apart = take_blanks(&rest) > 0;
    if (help) {
        ret->value = rest;
        if ((apart || rest.n_bytes == 0) && is_help(rest)) ret->kind = BT_EXPOSITION_HELP;
        return;
    }
    word = take_word(&rest);
    (void)take_blanks(&rest);
    if (apart && rest.n_bytes == 0 && read_type(word, &ret->type)) ret->kind = BT_EXPOSITION_TYPE;
}

static bool is_clean(const char *line, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        size_t length = bt_utf8_length(line + i, n_bytes - i);
        if (length == 0 || (line[i] != '\t' && bt_utf8_is_control(line + i, length))) return false;
        i += length;
    }
    return true;
}

void bt_exposition_read(const char *line, size_t n_bytes, bt_exposition_line *ret) {
    *ret = (bt_exposition_line){.kind = BT_EXPOSITION_WRONG};
    if (n_bytes > UINT32_MAX || !is_clean(line, n_bytes)) return;
    bt_piece rest = {line, (uint32_t)n_bytes};
    (void)take_blanks(&rest);
    if (rest.n_bytes == 0) {
        ret->kind = BT_EXPOSITION_NOTHING;
    } else if (take_byte(&rest, '#')) {
        read_comment(rest, ret);
    } else {
        read_sample(rest, ret);
    }
}

void bt_exposition_escape(bt_text *out, const char *value) {
    size_t n = strlen(value);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(value + i, n - i);
        char c = value[i];
        if (length == 0) {
            bt_text_add(out, NO_CHARACTER);
        } else if (c == '\n') {
            bt_text_add(out, "\\n");
        } else {
            if (c == '"' || c == '\\') bt_text_add(out, "\\");
            bt_text_add_n(out, value + i, length);
        }
        i += length ? length : 1;
    }
}
