/* SPDX-License-Identifier: MIT
 * fuzz_router_head.c: the head of a server's answer, line by line: what goes on to the client are headers that can be
 * sent, and none that belongs to the connection. */
#include "fuzz.h"

#include "router/head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void check(bt_head *head) {
    bt_exchange_head made;
    FUZZ_CHECK(bt_head_make(head, &made));
    FUZZ_CHECK(made.status >= 200 && made.status <= 999 && made.n_headers <= BT_HEAD_HEADERS_MAX);
    for (uint32_t i = 0; i < made.n_headers; i++) {
        const bt_header *h = &made.headers[i];
        FUZZ_CHECK(bt_header_is_valid(h->name, strlen(h->name), h->value, strlen(h->value)));
        FUZZ_CHECK(!bt_header_is_hop(h->name) && strcasecmp(h->name, "content-length") != 0);
    }
}

static bool one(char *text, size_t n) {
    bt_head head = {0};
    bt_head_got got = BT_HEAD_MORE;
    for (size_t at = 0; at < n && got == BT_HEAD_MORE;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) + 1 - at : n - at;
        char *line = malloc(length); /* of this size, so that a read past it is seen */
        FUZZ_CHECK(line != NULL);
        memcpy(line, text + at, length);
        got = bt_head_line(&head, line, length);
        free(line);
        at += length;
    }
    FUZZ_CHECK(got != BT_HEAD_REFUSED);
    if (got == BT_HEAD_DONE) check(&head);
    bt_head_done(&head);
    return got == BT_HEAD_DONE;
}

static const char *word(size_t i) {
    static const char *const words[] = {"HTTP/1.1 200 OK\r\n",
                                        "HTTP/1.1 100 Continue\r\n\r\n",
                                        "HTTP/1.0 ",
                                        "HTTP/2 ",
                                        "Content-Length: ",
                                        "Transfer-Encoding: chunked\r\n",
                                        "Connection: ",
                                        "close",
                                        "X-Kept",
                                        ", ",
                                        "Keep-Alive: ",
                                        "Content-Type: text/event-stream\r\n",
                                        "\r\n",
                                        "\r\n\r\n",
                                        "\n",
                                        "\r\n ",
                                        "\t",
                                        ":",
                                        "101 ",
                                        "204 ",
                                        "304 ",
                                        "999 ",
                                        "18446744073709551615",
                                        "Upgrade: ",
                                        "Set-Cookie: a=b\r\n"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "router_head", .one = one, .bare = true, .word = word, .n_rounds = 20000};
