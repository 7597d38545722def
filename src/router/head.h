/* SPDX-License-Identifier: MIT
 * head.h: the head of an answer, a line at a time, and which headers go on to the other side. */
#pragma once

#include "base/text.h"
#include "router/exchange.h"

#define BT_HEAD_BYTES_MAX   65536u
#define BT_HEAD_HEADERS_MAX 256u

typedef enum bt_head_got {
    BT_HEAD_MORE,
    BT_HEAD_DONE,
    BT_HEAD_BAD,     /* not the head of an HTTP/1 answer, or an upgrade that nobody asked for */
    BT_HEAD_LONG,    /* over one of the maxima */
    BT_HEAD_REFUSED, /* memory */
} bt_head_got;

/* Zero-initialised; bt_head_done frees. */
typedef struct bt_head {
    bt_text lines;      /* "name\0value\0", of the head that is read */
    uint64_t n_seen;    /* bytes, interim answers too */
    uint32_t n_headers; /* in lines */
    uint32_t status;
    bt_header *headers;
} bt_head;

/* One line, as libcurl gives it (with its end). Interim answers (1xx) are read and forgotten. */
bt_head_got bt_head_line(bt_head *head, const char *line, size_t n);
/* After BT_HEAD_DONE: what goes on. Good until bt_head_done. false: memory was refused. */
BT_MUST_CHECK bool bt_head_make(bt_head *head, bt_exchange_head *ret);
void bt_head_done(bt_head *head);

/* Belongs to one connection, not to the message (RFC 9110, section 7.6.1). */
bool bt_header_is_hop(const char *name);
/* Whether one of the Connection headers names it. */
bool bt_header_is_named(const bt_header *headers, uint32_t n_headers, const char *name);
/* A name is a token, a value has no control bytes but tabs (RFC 9110, sections 5.1 and 5.5). */
bool bt_header_is_valid(const char *name, size_t n_name, const char *value, size_t n_value);
