/* SPDX-License-Identifier: MIT
 *
 * resolve.c: names of hosts.
 *
 * libcurl as Debian builds it asks for a name in a thread of its own, and this program has one thread. So names are
 * asked for by the system's getaddrinfo in a copy of the router (aside.h), and what comes of it is handed to libcurl as
 * a list of addresses. Servers of this machine have numeric addresses and never come here; a router has few peers, so
 * the table is small and looked through. A name is kept for a minute; a failure is not kept, since who asks again wants
 * to know whether it has ended. "localhost" is what RFC 6761 says it is, without being asked for. */
#include "router/resolve.h"

#include "base/error.h"
#include "base/heap.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

typedef struct name {
    char host[BT_RESOLVE_HOST_BYTES];
    char addresses[BT_RESOLVE_ADDRESSES_BYTES]; /* empty: not known */
    uint64_t at_ms;
    bt_resolver *resolver;
    bt_aside *aside; /* it is asked for */
    bt_resolve_wait *waits;
} name;

struct bt_resolver {
    bt_loop *loop;
    name names[BT_RESOLVE_NAMES_MAX];
};

bt_status bt_resolver_open(bt_loop *loop, bt_resolver **ret, bt_error *err) {
    bt_resolver *r = bt_heap_alloc(sizeof *r);
    if (!r) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *r, 0, "no memory for names of hosts");
    r->loop = loop;
    for (uint32_t i = 0; i < BT_RESOLVE_NAMES_MAX; i++)
        r->names[i].resolver = r;
    *ret = r;
    return BT_OK;
}

void bt_resolver_close(bt_resolver *resolver) {
    if (!resolver) return;
    for (uint32_t i = 0; i < BT_RESOLVE_NAMES_MAX; i++) {
        name *n = &resolver->names[i];
        bt_aside_cancel(n->aside);
        while (n->waits)
            bt_resolve_leave(n->waits);
    }
    bt_heap_free(resolver);
}

static name *named(bt_resolver *r, const char *host) {
    for (uint32_t i = 0; i < BT_RESOLVE_NAMES_MAX; i++) {
        if (strcasecmp(r->names[i].host, host) == 0) return &r->names[i];
    }
    return NULL;
}

/* One that nobody waits for: free, or the oldest. */
static name *spare(bt_resolver *r) {
    name *best = NULL;
    for (uint32_t i = 0; i < BT_RESOLVE_NAMES_MAX; i++) {
        name *n = &r->names[i];
        if (!n->aside && (!best || n->host[0] == '\0' || n->at_ms < best->at_ms)) best = n;
        if (best == n && n->host[0] == '\0') break;
    }
    return best;
}

const char *bt_resolver_find(bt_resolver *resolver, const char *host) {
    if (strcasecmp(host, "localhost") == 0) return "127.0.0.1,[::1]";
    const name *n = named(resolver, host);
    if (!n || n->addresses[0] == '\0') return NULL;
    return bt_loop_now_ms(resolver->loop) - n->at_ms <= BT_RESOLVE_KEEP_MS ? n->addresses : NULL;
}

/* ---- in the copy ---- */

static void add_address(const struct addrinfo *a, bt_text *answer) {
    char numeric[INET6_ADDRSTRLEN];
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    const void *bytes = NULL;
    if (a->ai_family == AF_INET && a->ai_addrlen >= sizeof four) {
        memcpy(&four, a->ai_addr, sizeof four);
        bytes = &four.sin_addr;
    } else if (a->ai_family == AF_INET6 && a->ai_addrlen >= sizeof six) {
        memcpy(&six, a->ai_addr, sizeof six);
        if (six.sin6_scope_id == 0) bytes = &six.sin6_addr; /* a link's own address cannot be handed over */
    }
    if (!bytes || !inet_ntop(a->ai_family, bytes, numeric, sizeof numeric)) return;
    if (answer->n_bytes + strlen(numeric) + 4 > BT_RESOLVE_ADDRESSES_BYTES) return;
    bt_text_addf(answer, a->ai_family == AF_INET6 ? "%s[%s]" : "%s%s", answer->n_bytes ? "," : "", numeric);
}

static bt_status ask(void *arg, bt_text *answer, bt_error *err) {
    const name *n = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(n->host, NULL, &hints, &found);
    if (rc != 0) {
        return bt_fail(err, BT_E_IO, "resolve", BT_MEASURE_NONE, 0, 0, "the host '%s' is not known: %s", n->host,
                       gai_strerror(rc));
    }
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        add_address(a, answer);
    freeaddrinfo(found);
    if (answer->n_bytes > 0) return BT_OK;
    return bt_fail(err, BT_E_IO, "resolve", BT_MEASURE_NONE, 0, 0, "the host '%s' has no address", n->host);
}

/* ---- in the router ---- */

static void on_done(void *user, const bt_text *answer, const bt_error *err) {
    name *n = user;
    n->aside = NULL;
    n->at_ms = bt_loop_now_ms(n->resolver->loop);
    /* What a copy of ourselves wrote; looked at all the same, since it is put into a list for libcurl. */
    const char *said = err ? "" : bt_text_str(answer);
    bool good = *said && strlen(said) < sizeof n->addresses && said[strspn(said, "0123456789abcdef.:,[]")] == '\0';
    (void)snprintf(n->addresses, sizeof n->addresses, "%s", good ? said : "");
    char addresses[sizeof n->addresses];
    (void)snprintf(addresses, sizeof addresses, "%s", n->addresses);
    if (!good) n->host[0] = '\0';
    bt_error lost;
    if (!good && !err) {
        (void)bt_fail(&lost, BT_E_IO, "resolve", BT_MEASURE_NONE, 0, 0, "the host's addresses cannot be read");
        err = &lost;
    }
    /* Taken off first: who is told may ask for another name, and this place may be given away. */
    bt_resolve_wait *waits = n->waits;
    n->waits = NULL;
    for (bt_resolve_wait *w = waits; w; w = w->next)
        w->head = &waits;
    while (waits) {
        bt_resolve_wait *w = waits;
        bt_resolve_leave(w);
        w->on_done(w->user, good ? addresses : NULL, err);
    }
}

bt_status bt_resolver_wait(bt_resolver *resolver, const char *host, bt_resolve_wait *wait, bt_error *err) {
    name *n = named(resolver, host);
    if (!n) n = spare(resolver);
    if (!n || strlen(host) >= sizeof n->host) {
        return bt_fail(err, BT_E_LIMIT, "resolve", BT_MEASURE_ITEMS, 0, BT_RESOLVE_NAMES_MAX,
                       "the host '%.100s' cannot be looked for: too long a name, or too many at once", host);
    }
    if (!n->aside) {
        (void)snprintf(n->host, sizeof n->host, "%s", host);
        n->addresses[0] = '\0';
        bt_status status = bt_aside_start(resolver->loop, ask, n, BT_RESOLVE_MAX_MS, on_done, n, &n->aside, err);
        if (status != BT_OK) {
            n->host[0] = '\0';
            return status;
        }
    }
    wait->head = &n->waits;
    wait->next = n->waits;
    n->waits = wait;
    return BT_OK;
}

void bt_resolve_leave(bt_resolve_wait *wait) {
    if (!wait->head) return;
    for (bt_resolve_wait **p = wait->head; *p; p = &(*p)->next) {
        if (*p == wait) {
            *p = wait->next;
            break;
        }
    }
    wait->head = NULL;
    wait->next = NULL;
}
