/* SPDX-License-Identifier: MIT
 * server_listen.c: the address that a server listens on.
 *
 * The socket is made here and not by the HTTP library, so that "the port is taken" can be told from "no such address",
 * and so that what is not loopback is found from the address that was resolved, not from how it was written.
 * "localhost" is 127.0.0.1, whatever the host's file says of it first. All addresses means IPv6 and IPv4 in one socket,
 * and IPv4 alone where the system has no IPv6. Names are looked up, which may take time: before the loop runs. */
#include "router/server_listen.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bt_status bt_listen_parse(const char *text, bt_listen *ret, bt_error *err) {
    const char *colon = strrchr(text, ':');
    const char *from = text, *end = colon;
    bool bracketed = text[0] == '[';
    if (bracketed && colon && colon > text + 1 && colon[-1] == ']') {
        from++;
        end--;
    } else if (bracketed) {
        colon = NULL;
    }
    size_t n = colon ? (size_t)(end - from) : 0, n_digits = colon ? strspn(colon + 1, "0123456789") : 0;
    unsigned long port = n_digits ? strtoul(colon + 1, NULL, 10) : 0; /* the most of it when it overflows */
    bool is_port = n_digits > 0 && n_digits <= 5 && colon[1 + n_digits] == 0 && port <= UINT16_MAX;
    bool is_host = n < sizeof ret->host && (bracketed || !memchr(from, ':', n)) && !(bracketed && n == 0);
    if (!is_port || !is_host)
        return bt_fail(err, BT_E_ARG, "listen", BT_MEASURE_NONE, 0, 0,
                       "\"%.200s\" is no address to listen on: HOST:PORT, [IPV6]:PORT or :PORT.", text);
    *ret = (bt_listen){.port = (uint16_t)port};
    if (!(n == 1 && *from == '*')) memcpy(ret->host, from, n);
    return BT_OK;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, address, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

/* A descriptor, or -errno. */
static int listen_at(const struct sockaddr *address, socklen_t n_address) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    int on = 1, off = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address, n_address) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int sys = errno;
    (void)close(fd);
    return -sys;
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage got;
    socklen_t n = sizeof got;
    if (getsockname(fd, (struct sockaddr *)&got, &n) != 0) return 0;
    struct sockaddr_in in; /* the port stands at the same place in both */
    memcpy(&in, &got, sizeof in);
    return ntohs(in.sin_port);
}

static const char *resolved_name(const bt_listen *listen) {
    if (!listen->host[0]) return NULL;
    return strcmp(listen->host, "localhost") == 0 ? "127.0.0.1" : listen->host;
}

static bt_status refuse_open(const char *text, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "listen", BT_MEASURE_NONE, 0, 0,
                   "%.200s can be reached from other machines, and no API key is set: set api_keys, listen on "
                   "127.0.0.1, or say --insecure.",
                   text);
}

bt_status bt_listen_open(const char *text, bool open_to_all, bt_listen *ret, int *ret_fd, bt_error *err) {
    bt_listen listen_on = {0};
    BT_TRY(bt_listen_parse(text, &listen_on, err));
    char port[8];
    (void)snprintf(port, sizeof port, "%u", listen_on.port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!open_to_all && !listen_on.host[0]) return refuse_open(text, err);
    int failed = getaddrinfo(resolved_name(&listen_on), port, &hints, &found);
    if (failed)
        return bt_fail(err, BT_E_IO, "listen", BT_MEASURE_NONE, 0, 0, "Cannot listen on %.200s: %s.", text,
                       gai_strerror(failed));
    int fd = -EADDRNOTAVAIL;
    bool reaches_out = false;
    /* All addresses: the IPv6 one first, which takes IPv4 too. */
    for (int pass = listen_on.host[0] ? 1 : 0; pass < 2 && fd < 0; pass++) {
        for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
            if ((at->ai_family != AF_INET && at->ai_family != AF_INET6) || (!pass && at->ai_family != AF_INET6))
                continue;
            listen_on.loopback = is_loopback(at->ai_addr);
            reaches_out |= !listen_on.loopback;
            if (listen_on.loopback || open_to_all) fd = listen_at(at->ai_addr, at->ai_addrlen);
        }
    }
    freeaddrinfo(found);
    if (fd < 0 && reaches_out && !open_to_all) return refuse_open(text, err);
    if (fd < 0) return bt_fail_sys(err, -fd, "listen", "Cannot listen on %.200s", text);
    listen_on.port = port_of(fd);
    *ret = listen_on;
    *ret_fd = fd;
    return BT_OK;
}

const char *bt_listen_text(const bt_listen *listen_on, char *text, size_t n_text) {
    const char *host = listen_on->host[0] ? listen_on->host : "0.0.0.0";
    bool bracketed = strchr(host, ':') != NULL;
    (void)snprintf(text, n_text, "%s%s%s:%u", bracketed ? "[" : "", host, bracketed ? "]" : "", listen_on->port);
    return text;
}
