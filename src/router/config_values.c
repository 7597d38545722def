/* SPDX-License-Identifier: MIT
 * config_values.c: one value of YAML as what a key wants, macros replaced; and how a wrong one is reported.
 *
 * What a value is, its key decides, not YAML: "8080", 8080 and ${env.PORT} are the same number, and a text that looks
 * like one stays a text. Every error begins with FILE:LINE and the way of keys to its place, a long path cut to its
 * last part and long keys to KEY_SHOWN bytes. Notes that find no room are counted. All texts lie in the configuration's
 * arena. */
#include "base/error.h"
#include "base/size.h"
#include "router/config_read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FILE_SHOWN 160u /* bytes of a path in a message, which has 400 (bt_error) */
#define KEY_SHOWN  60u  /* of one key: an id of a model may have 128 */
#define WAY_SHOWN  160u /* of all of them */

void bt_read_enter(bt_config_reader *r, const char *key) {
    if (r->n_steps < BT_CONFIG_STEPS_MAX) r->steps[r->n_steps] = (bt_config_step){.key = key};
    r->n_steps++;
}

void bt_read_enter_item(bt_config_reader *r, uint32_t item) {
    if (r->n_steps < BT_CONFIG_STEPS_MAX) r->steps[r->n_steps] = (bt_config_step){.item = item};
    r->n_steps++;
}

void bt_read_leave(bt_config_reader *r) {
    r->n_steps--;
}

/* "models.a.env[1]: ", or nothing at the top. */
static void way(const bt_config_reader *r, char ret[WAY_SHOWN]) {
    size_t n = 0;
    ret[0] = '\0';
    for (uint32_t i = 0; i < r->n_steps && i < BT_CONFIG_STEPS_MAX; i++) {
        const bt_config_step *step = &r->steps[i];
        char text[KEY_SHOWN + 3];
        size_t n_key = step->key ? strlen(step->key) : 0;
        if (step->key) {
            size_t n_shown = bt_utf8_fit(step->key, n_key < KEY_SHOWN ? n_key : KEY_SHOWN);
            (void)snprintf(text, sizeof text, "%s%.*s", i > 0 ? "." : "", (int)n_shown, step->key);
        } else {
            (void)snprintf(text, sizeof text, "[%" PRIu32 "]", step->item);
        }
        if (n + strlen(text) + sizeof ": " > WAY_SHOWN) break;
        n += (size_t)snprintf(ret + n, WAY_SHOWN - n, "%s", text);
    }
    if (n > 0) (void)snprintf(ret + n, WAY_SHOWN - n, ": ");
}

bt_status bt_read_fail(const bt_config_reader *r, bt_status status, uint32_t line, const char *fmt, ...) {
    char text[400];
    char at[WAY_SHOWN];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) text[0] = '\0';
    const char *file = strlen(r->file) > FILE_SHOWN ? bt_path_file(r->file) : r->file;
    way(r, at);
    (void)bt_fail(r->err, status, "config", BT_MEASURE_NONE, 0, 0, "%.160s:%" PRIu32 ": %s%s", file, line, at, text);
    return status;
}

bt_status bt_read_no_memory(const bt_config_reader *r) {
    /* No single piece is larger than JSON of a whole file: what is that close to the maximum has met it. */
    if (bt_arena_bytes(r->arena) + 2 * (uint64_t)BT_CONFIG_FILE_MAX > BT_CONFIG_ARENA_MAX) {
        (void)bt_fail(r->err, BT_E_LIMIT, "config", BT_MEASURE_NONE, 0, 0, "%s comes to more than %s with its macros",
                      r->file, BT_SIZE(BT_CONFIG_ARENA_MAX));
        return BT_E_LIMIT;
    }
    (void)bt_fail(r->err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for the configuration");
    return BT_E_NOMEM;
}

void bt_read_note(const bt_config_reader *r, uint32_t line, const char *fmt, ...) {
    bt_config_notes *notes = r->notes;
    if (!notes) return;
    if (notes->n == BT_CONFIG_NOTES_MAX) {
        notes->n_left_out++;
        return;
    }
    bt_config_note *note = &notes->items[notes->n++];
    note->line = line;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(note->text, sizeof note->text, fmt, args);
    va_end(args);
    if (n < 0) note->text[0] = '\0';
    note->text[bt_utf8_fit(note->text, strlen(note->text))] = '\0';
}

bool bt_read_is_null(const bt_yaml_node *node) {
    return node->kind == BT_YAML_SCALAR && node->type == BT_YAML_NULL;
}

/* An error of macros or sizes, which knows no place, at its place. */
static bt_status at_line(const bt_config_reader *r, bt_status status, uint32_t line, const bt_error *inner) {
    if (status == BT_E_NOMEM) return bt_read_no_memory(r);
    return bt_read_fail(r, status, line, "%s", inner->text);
}

static bt_status expand(bt_config_reader *r, const bt_yaml_node *node, uint32_t keep, const char **ret,
                        bt_yaml_type *ret_type) {
    bt_error inner = {0};
    bt_status status = bt_macros_expand(&r->macros, node, keep, r->arena, ret, ret_type, &inner);
    return status == BT_OK ? BT_OK : at_line(r, status, node->line, &inner);
}

bt_status bt_read_text(bt_config_reader *r, const bt_yaml_node *node, uint32_t keep, const char **ret) {
    bt_yaml_type type;
    if (node->kind != BT_YAML_SCALAR) return bt_read_fail(r, BT_E_FORMAT, node->line, "a text belongs here");
    return expand(r, node, keep, ret, &type);
}

bt_status bt_read_map(const bt_config_reader *r, const bt_yaml_node *node) {
    if (node->kind == BT_YAML_MAP) return BT_OK;
    return bt_read_fail(r, BT_E_FORMAT, node->line, "%sa mapping (key: value) belongs here",
                        r->n_steps == 0 ? "the file: " : "");
}

bt_status bt_read_path(bt_config_reader *r, const bt_yaml_node *node, const char **ret) {
    const char *text = "";
    BT_TRY(bt_read_text(r, node, 0, &text));
    if (text[0] == '\0') return bt_read_fail(r, BT_E_FORMAT, node->line, "an empty path");
    const char *base = r->home;
    if (text[0] == '~' && (text[1] == '/' || text[1] == '\0')) {
        base = r->macros.env_get("HOME");
        if (!base) return bt_read_fail(r, BT_E_FORMAT, node->line, "~ has no meaning: HOME is not set");
        text += text[1] == '/' ? 2 : 1;
    } else if (text[0] == '/') {
        base = NULL;
    }
    *ret = base ? bt_read_join(r, base, text[0] != '\0' ? "/" : "", text) : text;
    return *ret ? BT_OK : bt_read_no_memory(r);
}

const char *bt_read_join(const bt_config_reader *r, const char *a, const char *between, const char *b) {
    size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = bt_arena_alloc(r->arena, n);
    if (text) (void)snprintf(text, n, "%s%s%s", a, between, b);
    return text;
}

bt_status bt_read_bool(bt_config_reader *r, const bt_yaml_node *node, bool *ret) {
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "on"};
    static const char *const no[] = {"false", "False", "FALSE", "no", "off"};
    const char *text = "";
    BT_TRY(bt_read_text(r, node, 0, &text));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcmp(text, yes[i]) != 0 && strcmp(text, no[i]) != 0) continue;
        *ret = strcmp(text, yes[i]) == 0;
        return BT_OK;
    }
    return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.40s\" is neither true nor false", text);
}

bt_status bt_read_integer(bt_config_reader *r, const bt_yaml_node *node, int64_t min, int64_t max, int64_t *ret) {
    const char *text = "";
    BT_TRY(bt_read_text(r, node, 0, &text));
    bool negative = text[0] == '-';
    const char *digits = text + (negative || text[0] == '+');
    size_t n = strspn(digits, "0123456789");
    int64_t value = 0;
    for (size_t i = 0; i < n && i < 18; i++)
        value = value * 10 + (digits[i] - '0');
    if (negative) value = -value;
    if (n == 0 || n > 18 || digits[n] != '\0' || value < min || value > max) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.40s\" is not a whole number from %" PRId64 " to %" PRId64,
                            text, min, max);
    }
    *ret = value;
    return BT_OK;
}

bt_status bt_read_size(bt_config_reader *r, const bt_yaml_node *node, uint64_t min, uint64_t max, uint64_t *ret) {
    const char *text = "";
    bt_error inner = {0};
    BT_TRY(bt_read_text(r, node, 0, &text));
    bt_status status = bt_size_parse(text, "size", ret, &inner);
    if (status != BT_OK) return at_line(r, BT_E_FORMAT, node->line, &inner);
    if (*ret < min || *ret > max) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "%s is not from %s to %s", BT_SIZE(*ret), BT_SIZE(min),
                            BT_SIZE(max));
    }
    return BT_OK;
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

static uint64_t unit_ms(const char *p, size_t *ret_n) {
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        *ret_n = strlen(units[i].name);
        if (strncmp(p, units[i].name, *ret_n) == 0) return units[i].ms;
    }
    return 0;
}

/* One "1.5h"; the number of bytes it takes, 0: it is none. */
static size_t time_part(const char *text, uint64_t *ret_ms) {
    const char *p = text;
    uint64_t whole = 0;
    uint64_t thousandths = 0;
    size_t n = strspn(p, "0123456789");
    if (n == 0 || n > 12) return 0;
    for (size_t i = 0; i < n; i++)
        whole = whole * 10 + (uint64_t)(*p++ - '0');
    if (*p == '.') {
        size_t n_fraction = strspn(++p, "0123456789");
        if (n_fraction == 0 || n_fraction > 3) return 0;
        for (size_t i = 0; i < 3; i++)
            thousandths = thousandths * 10 + (i < n_fraction ? (uint64_t)(p[i] - '0') : 0);
        p += n_fraction;
    }
    size_t n_unit = 0;
    uint64_t unit = unit_ms(p, &n_unit);
    if (unit == 0 && *p == '\0' && thousandths == 0) { /* a plain number: seconds */
        unit = 1000;
        n_unit = 0;
    }
    if (unit == 0) return 0;
    *ret_ms = whole * unit + thousandths * unit / 1000; /* 10^12 days in ms is under 2^64 by far */
    return (size_t)(p + n_unit - text);
}

bt_status bt_read_time(bt_config_reader *r, const bt_yaml_node *node, uint64_t min_ms, uint64_t max_ms,
                       uint64_t *ret_ms) {
    const char *text = "";
    BT_TRY(bt_read_text(r, node, 0, &text));
    uint64_t ms = 0;
    const char *p = text;
    bool bad = *p == '\0';
    for (uint32_t i = 0; *p != '\0' && !bad; i++) {
        uint64_t part = 0;
        size_t n = time_part(p, &part);
        bad = n == 0 || i == 5 || (i > 0 && p[n - 1] >= '0' && p[n - 1] <= '9');
        ms = bt_sat_add_u64(ms, part);
        p += n;
    }
    if (bad) {
        return bt_read_fail(r, BT_E_FORMAT, node->line,
                            "\"%.40s\" is no time: 10m, 30s, 250ms, 1h30m; a plain number "
                            "is seconds",
                            text);
    }
    if (ms < min_ms || ms > max_ms) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "\"%.40s\" is not from %" PRIu64 " ms to %" PRIu64 " s", text,
                            min_ms, max_ms / 1000);
    }
    *ret_ms = ms;
    return BT_OK;
}

/* ---- lists and JSON --------------------------------------------------------------------------------------------- */

static bt_status split_commas(const bt_config_reader *r, const char *text, uint32_t n_max, uint32_t line,
                              const char **items, uint32_t *ret_n) {
    for (const char *p = text; *p;) {
        p += strspn(p, " \t\n,");
        size_t n = strcspn(p, ",");
        const char *next = p + n;
        while (n > 0 && strchr(" \t\n", p[n - 1]))
            n--;
        if (n > 0) {
            if (*ret_n == n_max) return bt_read_fail(r, BT_E_LIMIT, line, "more than %" PRIu32 " items", n_max);
            items[*ret_n] = bt_arena_strndup(r->arena, p, n);
            if (!items[(*ret_n)++]) return bt_read_no_memory(r);
        }
        p = next;
    }
    return BT_OK;
}

bt_status bt_read_texts(bt_config_reader *r, const bt_yaml_node *node, uint32_t n_max, bool split,
                        const char *const **ret, uint32_t *ret_n) {
    if (node->kind == BT_YAML_MAP) return bt_read_fail(r, BT_E_FORMAT, node->line, "a list belongs here");
    bool list = node->kind == BT_YAML_LIST;
    uint32_t n = list ? node->n : 1;
    if (n > n_max) return bt_read_fail(r, BT_E_LIMIT, node->line, "more than %" PRIu32 " items", n_max);
    const char **items = bt_arena_array(r->arena, (uint64_t)(split ? n_max : n) + 1, sizeof *items);
    if (!items) return bt_read_no_memory(r);
    uint32_t got = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *text = "";
        const bt_yaml_node *item = list ? node->items[i] : node;
        if (list) bt_read_enter_item(r, i);
        BT_TRY(bt_read_text(r, item, 0, &text));
        if (split) {
            BT_TRY(split_commas(r, text, n_max, item->line, items, &got));
        } else if (text[0] == '\0') {
            return bt_read_fail(r, BT_E_FORMAT, item->line, "an empty text in a list");
        } else {
            items[got++] = text;
        }
        if (list) bt_read_leave(r);
    }
    *ret = items;
    *ret_n = got;
    return BT_OK;
}

static bt_status write_scalar(void *user, const bt_yaml_node *node, bt_text *out) {
    bt_config_reader *r = user;
    const char *text = "";
    bt_yaml_type type;
    BT_TRY(expand(r, node, BT_MACRO_KEEP_PORT, &text, &type));
    if (strstr(text, "${PORT}")) bt_read_note(r, node->line, "${PORT} is not known here and stays as it is");
    if (!bt_yaml_json_scalar(type, text, out)) {
        return bt_read_fail(r, BT_E_FORMAT, node->line, "JSON has no number for %.20s", text);
    }
    return BT_OK;
}

bt_status bt_read_json(bt_config_reader *r, const bt_yaml_node *node, const char **ret) {
    bt_text out;
    bt_text_init(&out, BT_CONFIG_FILE_MAX);
    bt_status status = bt_yaml_json(node, write_scalar, r, &out);
    if (status == BT_OK && out.failed) {
        status = out.refused
                     ? bt_read_no_memory(r)
                     : bt_read_fail(r, BT_E_LIMIT, node->line, "more than %s of JSON", BT_SIZE(BT_CONFIG_FILE_MAX));
    }
    if (status == BT_OK) {
        *ret = bt_arena_strdup(r->arena, bt_text_str(&out));
        if (!*ret) status = bt_read_no_memory(r);
    }
    bt_text_done(&out);
    return status;
}
