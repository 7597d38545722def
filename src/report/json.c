/* SPDX-License-Identifier: MIT
 * json.c: the JSON library behind two sticky handles.
 *
 * Writing: every value is handed to its parent at once, so that releasing the root releases all. Reading: a member is
 * asked for by name, type and range in one call; the first that is wrong is reported with its path.
 *
 * Bounds. A text is scanned before it is parsed, since the parser makes a value of about 100 bytes of two characters:
 * at most BT_JSON_IN_MAX_BYTES, VALUE_MAX values, DEPTH_MAX levels and TOKEN_MAX bytes a token. What is written is
 * bounded by what it describes (facts have limits of their own) and by BT_JSON_OUT_MAX_BYTES. Numbers are 64-bit
 * signed, as in the JSON library; sizes above are written as null. Left out: streaming; a plan is small. */
#include "report/json.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/text.h"
#include "report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A plan of BT_TENSOR_MAX units has 4 values a unit, a set of facts 7; both with room. */
#define VALUE_MAX (1u << 20)
#define DEPTH_MAX 32 /* our own files have 6 levels; unknown members may have some more */
/* Digits of a double that survive decimal and back; so 4.8 is written as 4.8. */
#define REAL_DIGITS 15
#define MICRO       1e6

static const char *engine_version;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The JSON library's lexer does not look whether its token buffer could grow: a refused allocation there is an
 * assertion, or a token without its end (jansson 2.14, load.c: lex_save). So the buffer is made to grow before anything
 * is at stake: a text is read as the second item of a list whose first item is a string of TOKEN_MAX letters, and what
 * the library allocates until that string is over comes from a block taken beforehand (warm-up). Tokens are shorter
 * than that string, so the buffer never grows again, and every other refusal the library does report. */
#define TOKEN_MAX (32u << 10) /* a path of PATH_MAX bytes, each of them escaped as \u00xx, is 24 KiB */
/* 16 to 64 KiB of buffer in powers of two, the string, and what a list takes; measured: 163,984 bytes. */
#define WARM_BYTES (192u << 10)
#define WARM_ALIGN 16u

typedef struct warm_up {
    char *base; /* NULL: nothing is read */
    size_t used;
    bool over;    /* the first item was read: back to the heap */
    bool refused; /* the parser calls some refused allocations a syntax error: here they keep their name */
} warm_up;
static _Thread_local warm_up warm;

static void *alloc_warm(size_t bytes) {
    size_t at = (warm.used + WARM_ALIGN - 1) / WARM_ALIGN * WARM_ALIGN;
    if (warm.base && !warm.over && bytes <= WARM_BYTES && at <= WARM_BYTES - bytes) {
        warm.used = at + bytes;
        return warm.base + at;
    }
    void *p = bt_heap_alloc(bytes);
    if (!p) warm.refused = true;
    return p;
}

static void free_warm(void *p) {
    uintptr_t base = (uintptr_t)warm.base;
    if (base && (uintptr_t)p >= base && (uintptr_t)p < base + WARM_BYTES) return; /* goes with the block */
    bt_heap_free(p);
}

void bt_report_init(const char *version) {
    json_set_alloc_funcs(alloc_warm, free_warm);
    engine_version = version;
}

const char *bt_engine_version(void) {
    return engine_version;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

void bt_json_put(bt_json_out *out, json_t *parent, const char *key, json_t *value) {
    if (json_object_set_new_nocheck(parent, key, value) != 0) out->failed = true; /* takes value in any case */
}

void bt_json_put_u64(bt_json_out *out, json_t *parent, const char *key, uint64_t value) {
    bt_json_put(out, parent, key, value > INT64_MAX ? json_null() : json_integer((json_int_t)value));
}

void bt_json_put_known(bt_json_out *out, json_t *parent, const char *key, bt_known value) {
    bt_json_put_u64(out, parent, key, value.known ? value.value : UINT64_MAX);
}

void bt_json_put_bool(bt_json_out *out, json_t *parent, const char *key, bool value) {
    bt_json_put(out, parent, key, json_boolean(value));
}

void bt_json_put_real(bt_json_out *out, json_t *parent, const char *key, double value) {
    bt_json_put(out, parent, key, isfinite(value) ? json_real(value) : json_null());
}

void bt_json_put_null(bt_json_out *out, json_t *parent, const char *key) {
    bt_json_put(out, parent, key, json_null());
}

/* A string of what is UTF-8 in text, and U+FFFD for each other byte. NULL when memory is refused. */
static json_t *string_new(const char *text, size_t n) {
    size_t good = 0;
    while (good < n) {
        size_t length = bt_utf8_length(text + good, n - good);
        if (length == 0) break;
        good += length;
    }
    if (good == n) return json_stringn_nocheck(text, n);
    bt_text clean;
    bt_text_init(&clean, BT_JSON_OUT_MAX_BYTES);
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(text + i, n - i);
        bt_text_add_n(&clean, length ? text + i : "\xEF\xBF\xBD", length ? length : 3);
        i += length ? length : 1;
    }
    json_t *value = clean.failed ? NULL : json_stringn_nocheck(bt_text_str(&clean), clean.n_bytes);
    bt_text_done(&clean);
    return value;
}

void bt_json_put_bytes(bt_json_out *out, json_t *parent, const char *key, const char *text, size_t n) {
    bt_json_put(out, parent, key, string_new(text, n));
}

void bt_json_put_text(bt_json_out *out, json_t *parent, const char *key, const char *text) {
    bt_json_put(out, parent, key, text ? string_new(text, strlen(text)) : json_null());
}

void bt_json_put_text_or_null(bt_json_out *out, json_t *parent, const char *key, const char *text) {
    bt_json_put_text(out, parent, key, text && text[0] ? text : NULL);
}

json_t *bt_json_put_object(bt_json_out *out, json_t *parent, const char *key) {
    bt_json_put(out, parent, key, json_object());
    return json_object_get(parent, key);
}

json_t *bt_json_put_array(bt_json_out *out, json_t *parent, const char *key) {
    bt_json_put(out, parent, key, json_array());
    return json_object_get(parent, key);
}

json_t *bt_json_add_object(bt_json_out *out, json_t *array) {
    json_t *item = json_object();
    if (json_array_append_new(array, item) != 0) {
        out->failed = true;
        return NULL;
    }
    return item;
}

void bt_json_add_text(bt_json_out *out, json_t *array, const char *text, size_t n) {
    if (json_array_append_new(array, string_new(text, n)) != 0) out->failed = true;
}

static int append(const char *buffer, size_t n, void *user) {
    bt_text *text = user;
    bt_text_add_n(text, buffer, n);
    return text->failed ? -1 : 0;
}

bt_status bt_json_finish(bt_json_out *out, json_t *root, char **ret_json, bt_error *err) {
    bt_text text;
    bt_text_init(&text, BT_JSON_OUT_MAX_BYTES);
    if (!root) out->failed = true;
    if (!out->failed) {
        int rc = json_dump_callback(root, append, &text, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS));
        bt_text_add(&text, "\n");
        if (rc != 0 || text.failed) out->failed = true;
    }
    json_decref(root);
    if (!out->failed) {
        *ret_json = text.data;
        return BT_OK;
    }
    bool full = text.n_bytes >= BT_JSON_OUT_MAX_BYTES;
    bt_text_done(&text);
    if (full) {
        return bt_fail(err, BT_E_LIMIT, "json", BT_MEASURE_BYTES, UINT64_MAX, BT_JSON_OUT_MAX_BYTES,
                       "the report is larger than %u MiB of JSON", BT_JSON_OUT_MAX_BYTES >> 20);
    }
    return bt_fail(err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory to write JSON");
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void fail_in(bt_json_in *in, bt_status status, const char *text) {
    if (in->status != BT_OK) return;
    in->status = bt_fail(in->err, status, "json", BT_MEASURE_NONE, 0, 0, "%s", text);
}

/* Values, levels and tokens of a text that need not be JSON: commas and brackets outside of strings, and what stands
 * between them. */
static bool is_within_bounds(const char *json, size_t n_bytes) {
    size_t n_values = 0;
    size_t depth = 0;
    size_t token = 0; /* where the one begins that is read now */
    bool in_string = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = json[i];
        if (i - token + 8 > TOKEN_MAX) return false; /* 8: quotes, the escape of one character */
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        bool opens = c == '[' || c == '{';
        bool closes = c == ']' || c == '}';
        in_string = c == '"';
        n_values += opens || c == ',';
        depth += opens;
        depth -= closes && depth > 0;
        if (opens || closes || in_string || strchr(" \t\r\n,:", c)) token = i; /* strchr finds NUL too: not JSON */
        if (n_values > VALUE_MAX || depth > DEPTH_MAX) return false;
    }
    return true;
}

/* What the parser is given: ["aaa...",\n TEXT] */
typedef struct feed {
    const char *json;
    size_t n_bytes, at; /* of the warm-up, then of the text, then of the end */
    size_t part;
} feed;

static const char before[] = "[\"";
static const char between[] = "\",\n";
static const char after[] = "]";

static size_t feed_some(void *buffer, size_t capacity, void *user) {
    feed *f = user;
    for (;;) {
        const size_t sizes[] = {sizeof before - 1, TOKEN_MAX, sizeof between - 1, f->n_bytes, sizeof after - 1};
        const char *const texts[] = {before, NULL, between, f->json, after};
        if (f->part >= 5) return 0;
        warm.over = f->part > 2;
        size_t n = sizes[f->part] - f->at;
        if (n == 0) {
            f->part++;
            f->at = 0;
            continue;
        }
        n = n < capacity ? n : capacity;
        if (texts[f->part]) {
            memcpy(buffer, texts[f->part] + f->at, n);
        } else {
            memset(buffer, 'a', n);
        }
        f->at += n;
        return n;
    }
}

/* The value of a text, or NULL with the reason in *why or in warm.refused. */
static json_t *load(const char *json, size_t n_bytes, json_error_t *why) {
    warm = (warm_up){.base = bt_heap_alloc(WARM_BYTES)};
    if (!warm.base) {
        warm.refused = true;
        return NULL;
    }
    feed f = {.json = json, .n_bytes = n_bytes};
    json_t *list = json_load_callback(feed_some, &f, JSON_REJECT_DUPLICATES, why);
    json_t *value = NULL;
    if (json_array_size(list) == 2) {
        value = json_incref(json_array_get(list, 1));
    } else if (list) {
        why->line = 2;
        why->column = 1;
        (void)snprintf(why->text, JSON_ERROR_TEXT_LENGTH, "one value is wanted");
    }
    json_decref(list);
    bt_heap_free(warm.base);
    warm.base = NULL;
    return value;
}

json_t *bt_json_parse(bt_json_in *in, const char *json, size_t n_bytes) {
    if (n_bytes > BT_JSON_IN_MAX_BYTES) {
        in->status = bt_fail(in->err, BT_E_LIMIT, "json", BT_MEASURE_BYTES, n_bytes, BT_JSON_IN_MAX_BYTES,
                             "JSON text of %zu bytes; at most %u MiB are read", n_bytes, BT_JSON_IN_MAX_BYTES >> 20);
        return NULL;
    }
    if (!is_within_bounds(json, n_bytes)) {
        fail_in(in, BT_E_LIMIT, "JSON text with too many values or levels, or too long a text in it");
        return NULL;
    }
    json_error_t why = {0};
    json_t *root = load(json, n_bytes, &why);
    if (!root && warm.refused) {
        in->status = bt_fail(in->err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory to read JSON");
    } else if (!root) {
        in->status = bt_fail(in->err, BT_E_FORMAT, "json", BT_MEASURE_NONE, 0, 0, "not JSON: line %d, column %d: %s",
                             why.line - 1, why.column, why.text);
    } else if (!json_is_object(root)) {
        json_decref(root);
        root = NULL;
        fail_in(in, BT_E_FORMAT, "not a JSON object");
    }
    return root;
}

void bt_json_at(bt_json_in *in, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(in->path, sizeof in->path, fmt, args);
    va_end(args);
}

void bt_json_wrong(bt_json_in *in, const char *key, const char *wanted) {
    char text[288];
    size_t n = strlen(in->path);
    if (key[0] == '\0' && n > 0) n--; /* the object itself: without its dot */
    (void)snprintf(text, sizeof text, "member \"%.*s%s\": %s", (int)n, in->path, key, wanted);
    fail_in(in, BT_E_FORMAT, text);
}

bool bt_json_is_null(const json_t *object, const char *key) {
    return json_is_null(json_object_get(object, key));
}

/* NULL: failed before, no parent, or not there (a failure where all are required). */
static const json_t *member(bt_json_in *in, const json_t *object, const char *key) {
    if (in->status != BT_OK || !object) return NULL;
    const json_t *value = json_object_get(object, key);
    if (!value && in->all_required) bt_json_wrong(in, key, "missing");
    return value;
}

const json_t *bt_json_object(bt_json_in *in, const json_t *parent, const char *key) {
    const json_t *value = member(in, parent, key);
    if (!value || json_is_null(value)) return NULL;
    if (!json_is_object(value)) {
        bt_json_wrong(in, key, "an object is wanted");
        return NULL;
    }
    return value;
}

const json_t *bt_json_array(bt_json_in *in, const json_t *parent, const char *key, size_t n_max) {
    const json_t *value = member(in, parent, key);
    if (!value) return NULL;
    if (!json_is_array(value) || json_array_size(value) > n_max) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "a list of at most %zu is wanted", n_max);
        bt_json_wrong(in, key, wanted);
        return NULL;
    }
    return value;
}

const json_t *bt_json_item(bt_json_in *in, const json_t *array, size_t i) {
    if (in->status != BT_OK) return NULL;
    const json_t *item = json_array_get(array, i);
    if (json_is_object(item)) return item;
    bt_json_wrong(in, "", "an object is wanted");
    return NULL;
}

static bool whole(bt_json_in *in, const json_t *value, const char *key, uint64_t max, uint64_t *ret) {
    if (json_is_integer(value) && json_integer_value(value) >= 0 && (uint64_t)json_integer_value(value) <= max) {
        *ret = (uint64_t)json_integer_value(value);
        return true;
    }
    char wanted[80];
    (void)snprintf(wanted, sizeof wanted, "a whole number from 0 to %llu is wanted", (unsigned long long)max);
    bt_json_wrong(in, key, wanted);
    return false;
}

bool bt_json_u64(bt_json_in *in, const json_t *object, const char *key, uint64_t *ret) {
    const json_t *value = member(in, object, key);
    return value && whole(in, value, key, INT64_MAX, ret);
}

bool bt_json_limit(bt_json_in *in, const json_t *object, const char *key, uint64_t *ret) {
    const json_t *value = member(in, object, key);
    if (value && json_is_null(value)) *ret = UINT64_MAX;
    return value && (json_is_null(value) || whole(in, value, key, INT64_MAX, ret));
}

bool bt_json_known(bt_json_in *in, const json_t *object, const char *key, bt_known *ret) {
    const json_t *value = member(in, object, key);
    if (value && json_is_null(value)) *ret = (bt_known){0};
    uint64_t number = 0;
    if (!value || json_is_null(value) || !whole(in, value, key, INT64_MAX, &number)) return false;
    *ret = (bt_known){true, number};
    return true;
}

bool bt_json_u32(bt_json_in *in, const json_t *object, const char *key, uint32_t max, uint32_t *ret) {
    const json_t *value = member(in, object, key);
    uint64_t number = 0;
    if (!value || !whole(in, value, key, max, &number)) return false;
    *ret = (uint32_t)number;
    return true;
}

bool bt_json_u32_or_0(bt_json_in *in, const json_t *object, const char *key, uint32_t max, uint32_t *ret) {
    if (object && bt_json_is_null(object, key)) {
        *ret = 0;
        return false;
    }
    return bt_json_u32(in, object, key, max, ret);
}

bool bt_json_bool(bt_json_in *in, const json_t *object, const char *key, bool *ret) {
    const json_t *value = member(in, object, key);
    if (!value) return false;
    if (!json_is_boolean(value)) {
        bt_json_wrong(in, key, "true or false is wanted");
        return false;
    }
    *ret = json_is_true(value);
    return true;
}

bool bt_json_micro(bt_json_in *in, const json_t *object, const char *key, bt_known *ret) {
    const json_t *value = member(in, object, key);
    if (value && json_is_null(value)) *ret = (bt_known){0};
    if (!value || json_is_null(value)) return false;
    double number = json_number_value(value);
    /* 2^53 micro-units: beyond it a double no longer holds every one of them */
    if (!json_is_number(value) || !(number >= 0 && number * MICRO <= 9007199254740992.0)) {
        bt_json_wrong(in, key, "a number from 0 to 9e9 is wanted");
        return false;
    }
    *ret = (bt_known){true, (uint64_t)llround(number * MICRO)};
    return true;
}

bool bt_json_text(bt_json_in *in, const json_t *object, const char *key, char *ret, size_t capacity) {
    const json_t *value = member(in, object, key);
    if (!value) return false;
    if (json_is_null(value)) {
        ret[0] = '\0';
        return false;
    }
    if (!json_is_string(value) || json_string_length(value) >= capacity) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "a text of at most %zu bytes is wanted", capacity - 1);
        bt_json_wrong(in, key, wanted);
        return false;
    }
    memcpy(ret, json_string_value(value), json_string_length(value) + 1);
    return true;
}

bool bt_json_choice(bt_json_in *in, const json_t *object, const char *key, const char *const *names, size_t n,
                    uint32_t *ret) {
    const json_t *value = member(in, object, key);
    if (!value) return false;
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < n; i++) {
        if (names[i] && strcmp(names[i], text) == 0) {
            *ret = (uint32_t)i;
            return true;
        }
    }
    char wanted[160] = "one of";
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(wanted);
        if (names[i]) (void)snprintf(wanted + used, sizeof wanted - used, " %s", names[i]);
    }
    bt_json_wrong(in, key, wanted);
    return false;
}
