/* SPDX-License-Identifier: MIT
 * yaml_json.c: what a plain scalar of YAML means, and a tree of YAML as JSON.
 *
 * Types are those of YAML's core schema, which is what Go's yaml gives a value that nothing else has asked for: null,
 * ~; true, false; decimal, 0x and 0o integers; decimal fractions. A number with leading zeros stays a text, as JSON has
 * none; "yes" and "on" are texts too. Numbers go into JSON as they are written, so that none loses digits.
 *
 * Bounded by the tree, which is bounded with its aliases written out (yaml.h), and by the text's own maximum. */
#include "base/error.h"
#include "yaml/yaml.h"

#include <stdlib.h>
#include <string.h>

static bool one_of(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) return true;
    }
    return false;
}

static bool is_number(const char *text, bool *ret_real) {
    const char *p = text + (*text == '-' || *text == '+');
    const char *digits = p;
    size_t n = strspn(p, "0123456789");
    p += n;
    bool real = *p == '.';
    size_t n_fraction = 0;
    if (real) {
        n_fraction = strspn(p + 1, "0123456789");
        p += 1 + n_fraction;
    }
    if (n + n_fraction == 0 || (n > 1 && *digits == '0')) return false;
    if (*p == 'e' || *p == 'E') {
        real = true;
        p += 1 + (p[1] == '-' || p[1] == '+');
        size_t n_exponent = strspn(p, "0123456789");
        if (n_exponent == 0) return false;
        p += n_exponent;
    }
    *ret_real = real;
    return *p == '\0';
}

static bool is_based(const char *text) {
    const char *digits = strncmp(text, "0x", 2) == 0   ? "0123456789abcdefABCDEF"
                         : strncmp(text, "0o", 2) == 0 ? "01234567"
                                                       : "";
    size_t n = *digits ? strspn(text + 2, digits) : 0;
    return n > 0 && n <= (text[1] == 'x' ? 15u : 20u) && text[2 + n] == '\0';
}

static bool is_odd_real(const char *text) { /* the numbers that JSON has no words for */
    static const char *const words[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf", "+.INF",
                                        "-.inf", "-.Inf", "-.INF", ".nan",  ".NaN",  ".NAN"};
    return one_of(text, words, sizeof words / sizeof *words);
}

bt_yaml_type bt_yaml_type_of(const char *text) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    bool real = false;
    if (one_of(text, nulls, sizeof nulls / sizeof *nulls)) return BT_YAML_NULL;
    if (one_of(text, bools, sizeof bools / sizeof *bools)) return BT_YAML_BOOL;
    if (is_based(text)) return BT_YAML_INT;
    if (is_odd_real(text)) return BT_YAML_REAL;
    if (is_number(text, &real)) return real ? BT_YAML_REAL : BT_YAML_INT;
    return BT_YAML_TEXT;
}

void bt_yaml_json_text(const char *text, bt_text *out) {
    bt_text_add_n(out, "\"", 1);
    for (const char *p = text; *p;) {
        size_t n = 0;
        while (p[n] != '\0' && p[n] != '"' && p[n] != '\\' && (unsigned char)p[n] >= 0x20)
            n++;
        bt_text_add_n(out, p, n);
        p += n;
        if (*p == '\0') break;
        if (*p == '"' || *p == '\\') {
            bt_text_addf(out, "\\%c", *p);
        } else if (*p == '\n') {
            bt_text_add(out, "\\n");
        } else {
            bt_text_addf(out, "\\u%04x", (unsigned)(unsigned char)*p);
        }
        p++;
    }
    bt_text_add_n(out, "\"", 1);
}

/* "+.5e3" is 0.5e3, "5." is 5.0. */
static void add_number(const char *text, bt_text *out) {
    if (is_based(text)) {
        bt_text_addf(out, "%llu", strtoull(text + 2, NULL, text[1] == 'x' ? 16 : 8));
        return;
    }
    const char *p = text;
    if (*p == '-') bt_text_add_n(out, "-", 1);
    p += *p == '-' || *p == '+';
    if (*p == '.') bt_text_add_n(out, "0", 1);
    const char *point = strchr(p, '.');
    if (!point) {
        bt_text_add(out, p);
        return;
    }
    bt_text_add_n(out, p, (size_t)(point + 1 - p));
    if (point[1] < '0' || point[1] > '9') bt_text_add_n(out, "0", 1);
    bt_text_add(out, point + 1);
}

bool bt_yaml_json_scalar(bt_yaml_type type, const char *text, bt_text *out) {
    switch (type) {
    case BT_YAML_NULL:
        bt_text_add(out, "null");
        return true;
    case BT_YAML_BOOL:
        bt_text_add(out, text[0] == 't' || text[0] == 'T' ? "true" : "false");
        return true;
    case BT_YAML_INT:
        add_number(text, out);
        return true;
    case BT_YAML_REAL:
        if (is_odd_real(text)) return false;
        add_number(text, out);
        return true;
    case BT_YAML_TEXT:
    default:
        bt_yaml_json_text(text, out);
        return true;
    }
}

bt_status bt_yaml_json(const bt_yaml_node *node, bt_yaml_write *write, void *user, bt_text *out) {
    struct {
        const bt_yaml_node *node;
        uint32_t at;
    } stack[BT_YAML_DEPTH_MAX];
    uint32_t depth = 0;
    if (node->kind == BT_YAML_SCALAR) return write(user, node, out);
    for (;;) {
        if (node && node->kind != BT_YAML_SCALAR) { /* a collection begins; its height is within the maximum */
            bt_text_add_n(out, node->kind == BT_YAML_MAP ? "{" : "[", 1);
            stack[depth].node = node;
            stack[depth++].at = 0;
        } else if (node) {
            BT_TRY(write(user, node, out));
        }
        const bt_yaml_node *in = stack[depth - 1].node;
        uint32_t i = stack[depth - 1].at++;
        if (i == in->n) { /* it ends */
            bt_text_add_n(out, in->kind == BT_YAML_MAP ? "}" : "]", 1);
            if (--depth == 0) return BT_OK;
            node = NULL;
            continue;
        }
        if (i > 0) bt_text_add_n(out, ",", 1);
        if (in->kind == BT_YAML_MAP) {
            bt_yaml_json_text(in->entries[i].key, out);
            bt_text_add_n(out, ":", 1);
        }
        node = in->kind == BT_YAML_MAP ? in->entries[i].value : in->items[i];
    }
}
