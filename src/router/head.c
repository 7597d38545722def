/* SPDX-License-Identifier: MIT
 *
 * head.c: the head of an answer.
 *
 * libcurl hands over one line at a time; they are kept as name and value one after another in a text that ends at
 * BT_HEAD_BYTES_MAX, and become an array when the empty line comes. What belongs to the connection is left out there,
 * with what the Connection header names, and the length, which is a number of its own. Strict where a lie could pass to
 * the client: control bytes, two different lengths and lines that are no header make the head bad. Lenient where old
 * servers are: a continued line is joined with a space. Trailers are not read here at all. */
#include "router/head.h"

#include "base/heap.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

static bool is_token(unsigned char c) {
    return c > 0x20 && c < 0x7F && !strchr("()<>@,;:\\\"/[]?={}", c);
}

bool bt_header_is_valid(const char *name, size_t n_name, const char *value, size_t n_value) {
    if (n_name == 0) return false;
    for (size_t i = 0; i < n_name; i++) {
        if (!is_token((unsigned char)name[i])) return false;
    }
    for (size_t i = 0; i < n_value; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F) return false;
    }
    return true;
}

bool bt_header_is_hop(const char *name) {
    static const char *const hops[] = {"connection", "proxy-connection", "keep-alive",         "te",
                                       "trailer",    "upgrade",          "proxy-authenticate", "proxy-authorization",
                                       "expect",     "transfer-encoding"};
    for (size_t i = 0; i < sizeof hops / sizeof *hops; i++) {
        if (strcasecmp(hops[i], name) == 0) return true;
    }
    return false;
}

/* Whether a comma-separated list has the word. */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t length = strcspn(list, " \t,");
        if (length == n && strncasecmp(list, word, n) == 0) return true;
        list += length;
    }
    return false;
}

bool bt_header_is_named(const bt_header *headers, uint32_t n_headers, const char *name) {
    for (uint32_t i = 0; i < n_headers; i++) {
        if (strcasecmp(headers[i].name, "connection") == 0 && has_word(headers[i].value, name)) return true;
    }
    return false;
}

void bt_head_done(bt_head *head) {
    bt_text_done(&head->lines);
    bt_heap_free(head->headers);
    head->headers = NULL;
}

static bt_head_got status_line(bt_head *head, const char *line, size_t n) {
    bool good = n >= 12 && memcmp(line, "HTTP/1.", 7) == 0 && bt_is_digit(line[7]) && line[8] == ' ';
    for (size_t i = 9; good && i < 12; i++)
        good = bt_is_digit(line[i]);
    if (!good || (n > 12 && line[12] != ' ')) return BT_HEAD_BAD;
    head->status = (uint32_t)((line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0'));
    bt_text_done(&head->lines);
    bt_text_init(&head->lines, BT_HEAD_BYTES_MAX);
    head->n_headers = 0;
    return head->status < 100 || head->status == 101 ? BT_HEAD_BAD : BT_HEAD_MORE;
}

static bt_head_got added(const bt_head *head) {
    return head->lines.failed ? BT_HEAD_REFUSED : BT_HEAD_MORE;
}

static bt_head_got header_line(bt_head *head, const char *line, size_t n) {
    bool continued = line[0] == ' ' || line[0] == '\t';
    const char *colon = continued ? NULL : memchr(line, ':', n);
    const char *value = continued ? line : colon ? colon + 1 : NULL;
    if (!value || (continued && head->n_headers == 0)) return BT_HEAD_BAD;
    size_t n_value = n - (size_t)(value - line);
    while (n_value > 0 && (*value == ' ' || *value == '\t')) {
        value++;
        n_value--;
    }
    if (continued) {
        if (!bt_header_is_valid("x", 1, value, n_value)) return BT_HEAD_BAD;
        head->lines.n_bytes--; /* the end of the value before */
        bt_text_add_n(&head->lines, " ", 1);
    } else {
        size_t n_name = (size_t)(colon - line);
        if (!bt_header_is_valid(line, n_name, value, n_value)) return BT_HEAD_BAD;
        if (++head->n_headers > BT_HEAD_HEADERS_MAX) return BT_HEAD_LONG;
        bt_text_add_n(&head->lines, line, n_name);
        bt_text_add_n(&head->lines, "", 1);
    }
    bt_text_add_n(&head->lines, value, n_value);
    bt_text_add_n(&head->lines, "", 1);
    return added(head);
}

bt_head_got bt_head_line(bt_head *head, const char *line, size_t n) {
    head->n_seen += n;
    if (head->n_seen > BT_HEAD_BYTES_MAX) return BT_HEAD_LONG;
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r' || line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    if (head->status == 0) return status_line(head, line, n);
    if (n > 0) return header_line(head, line, n);
    if (head->status >= 200) return BT_HEAD_DONE;
    head->status = 0; /* interim: the real one follows */
    return BT_HEAD_MORE;
}

/* Digits only; false: no number that can be counted in. */
static bool length_of(const char *value, uint64_t *ret) {
    uint64_t sum = 0;
    if (!*value) return false;
    for (const char *p = value; *p; p++) {
        if (!bt_is_digit(*p) || sum > (UINT64_MAX - 9) / 10) return false;
        sum = sum * 10 + (uint64_t)(*p - '0');
    }
    *ret = sum;
    return true;
}

/* What the head says of the body's length. Chunks have none; nor can anybody say what two that differ mean: libcurl
 * decides where such a body ends. */
static bt_known length_said(const bt_head *head) {
    bt_known ret = {0};
    bool contradicted = false;
    if (head->status == 204 || head->status == 304) return (bt_known){.known = true};
    for (uint32_t i = 0; i < head->n_headers; i++) {
        const bt_header *h = &head->headers[i];
        uint64_t bytes = 0;
        if (strcasecmp(h->name, "transfer-encoding") == 0) contradicted = true;
        if (strcasecmp(h->name, "content-length") != 0) continue;
        if (!length_of(h->value, &bytes) || (ret.known && ret.value != bytes)) contradicted = true;
        ret = (bt_known){.known = true, .value = bytes};
    }
    return contradicted ? (bt_known){0} : ret;
}

bool bt_head_make(bt_head *head, bt_exchange_head *ret) {
    head->headers = bt_heap_array(head->n_headers, sizeof *head->headers);
    if (!head->headers) return false;
    const char *p = head->lines.data;
    for (uint32_t i = 0; i < head->n_headers; i++) {
        head->headers[i].name = p;
        p += strlen(p) + 1;
        head->headers[i].value = p;
        p += strlen(p) + 1;
    }
    *ret = (bt_exchange_head){.status = head->status, .headers = head->headers, .n_bytes = length_said(head)};
    /* Marked first, moved after: the names that Connection gives may stand anywhere. */
    for (uint32_t i = 0; i < head->n_headers; i++) {
        bt_header *h = &head->headers[i];
        bool stays = !bt_header_is_hop(h->name) && strcasecmp(h->name, "content-length") != 0 &&
                     !bt_header_is_named(head->headers, head->n_headers, h->name);
        if (!stays && strcasecmp(h->name, "connection") != 0) h->name = "";
    }
    for (uint32_t i = 0; i < head->n_headers; i++) {
        bt_header h = head->headers[i];
        if (h.name[0] != '\0' && strcasecmp(h.name, "connection") != 0) head->headers[ret->n_headers++] = h;
    }
    return true;
}
