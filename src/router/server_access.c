/* SPDX-License-Identifier: MIT
 * server_access.c: who may ask.
 *
 * Keys. `Authorization: Bearer KEY`, `Authorization: Basic` with the key as password (what a browser asks for), and
 * `x-api-key: KEY` (what Anthropic's clients send). What was given and every configured key are hashed, and all digests
 * are compared over their whole length, so that the time says neither how much of a key was right nor how long one is.
 *
 * Host. A page of another site can be made to reach this router under that site's own name, when the name's owner lets
 * it resolve to 127.0.0.1 (DNS rebinding); to the browser the answers are then that site's. Such a request bears the
 * name in Host. So a name must be known: localhost and what ends in .localhost, the name that is listened on, or an
 * entry of allowed_hosts ("box.lan", "box.lan:8080", "*.example.org" for all below it, "*" for any). An address
 * ("192.168.1.5", "[fe80::1]") is no name that somebody else could let point here: it always passes. So does a request
 * without Host (HTTP/1.0): no browser sends one. Names are checked also where keys are configured: paths that need no
 * key are worth it.
 *
 * Origin. Browsers name the page that asks. One whose host is that of Host is ours; others are looked for in
 * cors_origins. Everything else is foreign: server.c then refuses what changes something and gives the rest no CORS
 * header, so that the page cannot read it. */
#include "router/server_access.h"

#include "base/text.h"
#include "model/sha256.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define HOST_MAX       256u  /* RFC 1035: a name has at most 253 characters */
#define CREDENTIAL_MAX 4096u /* of a Basic header; longer keys come by the others */

static void digest(const char *data, size_t n, char ret_hex[65]) {
    bt_sha256 hash;
    bt_sha256_init(&hash);
    bt_sha256_add(&hash, data, n);
    bt_sha256_hex(&hash, ret_hex);
}

static bool key_matches(const bt_config *config, const char *key, size_t n_key) {
    char given[65];
    digest(key, n_key, given);
    uint32_t found = 0;
    for (uint32_t i = 0; i < config->n_api_keys; i++) {
        char hex[65];
        digest(config->api_keys[i], strlen(config->api_keys[i]), hex);
        uint32_t differs = 0;
        for (size_t j = 0; j < 64; j++)
            differs |= (uint32_t)((unsigned char)hex[j] ^ (unsigned char)given[j]);
        found |= (differs - 1u) >> 31; /* 1 only where nothing differed */
    }
    return found != 0 && n_key > 0;
}

static int sextet(char c) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(alphabet, c) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

/* Bytes written; 0: not base64, or too long. */
static size_t base64_decode(const char *text, char *dest, size_t capacity) {
    uint32_t bits = 0, held = 0;
    size_t n = 0;
    for (; *text && *text != '='; text++) {
        int value = sextet(*text);
        if (value < 0 || n == capacity) return 0;
        bits = (bits << 6 | (uint32_t)value) & 0xffffffu;
        held += 6;
        if (held >= 8) {
            held -= 8;
            dest[n++] = (char)(unsigned char)(bits >> held & 0xffu);
        }
    }
    return text[strspn(text, "=")] ? 0 : n;
}

/* What follows "Scheme " of an Authorization header; NULL: another scheme. */
static const char *after_scheme(const char *header, const char *scheme) {
    size_t n = strlen(scheme);
    if (strncasecmp(header, scheme, n) != 0 || header[n] != ' ') return NULL;
    return header + n + strspn(header + n, " ");
}

static bool basic_matches(const bt_config *config, const char *encoded) {
    char decoded[CREDENTIAL_MAX];
    size_t n = base64_decode(encoded, decoded, sizeof decoded);
    const char *colon = n ? memchr(decoded, ':', n) : NULL;
    if (!colon) return false;
    colon++;
    return key_matches(config, colon, n - (size_t)(colon - decoded));
}

bool bt_access_key(const bt_config *config, const char *authorization, const char *x_api_key) {
    if (!config->n_api_keys) return true;
    bool matches = x_api_key && key_matches(config, x_api_key, strlen(x_api_key));
    if (!authorization) return matches;
    const char *bearer = after_scheme(authorization, "Bearer");
    const char *basic = after_scheme(authorization, "Basic");
    if (bearer) matches |= key_matches(config, bearer, strlen(bearer));
    if (basic) matches |= basic_matches(config, basic);
    return matches;
}

/* A Host header in two: what it names, without brackets, in small letters, and its port. */
typedef struct host_parts {
    char name[HOST_MAX];
    char port[6]; /* empty: none */
    bool bracketed;
} host_parts;

static bool port_parse(const char *text, char ret_port[6]) {
    size_t n = strspn(text, "0123456789");
    if (n > 5 || text[n]) return false;
    memcpy(ret_port, text, n + 1);
    return true;
}

static bool host_parse(const char *text, host_parts *ret) {
    static const char name_set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    static const char address_set[] = "0123456789abcdefABCDEF:.";
    *ret = (host_parts){.bracketed = *text == '['};
    if (ret->bracketed) text++;
    size_t n = strspn(text, ret->bracketed ? address_set : name_set);
    if (n == 0 || n >= sizeof ret->name) return false;
    for (size_t i = 0; i < n; i++)
        ret->name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    text += n;
    if (ret->bracketed && *text++ != ']') return false;
    if (!ret->bracketed && n > 1 && ret->name[n - 1] == '.') ret->name[n - 1] = 0; /* "localhost." is the same name */
    if (*text == 0) return true;
    return *text == ':' && port_parse(text + 1, ret->port);
}

static bool entry_matches(const char *entry, const host_parts *host) {
    if (strcmp(entry, "*") == 0) return true;
    host_parts want;
    bool below = entry[0] == '*' && entry[1] == '.';
    if (!host_parse(below ? entry + 2 : entry, &want)) return false;
    if (want.port[0] && strcmp(want.port, host->port) != 0) return false;
    if (!below) return strcmp(want.name, host->name) == 0;
    size_t n = strlen(host->name), n_want = strlen(want.name);
    return n > n_want && host->name[n - n_want - 1] == '.' && strcmp(host->name + n - n_want, want.name) == 0;
}

bool bt_access_host(const bt_config *config, const char *host, const char *listen_host) {
    for (uint32_t i = 0; i < config->n_allowed_hosts; i++)
        if (strcmp(config->allowed_hosts[i], "*") == 0) return true;
    if (!host) return true;
    host_parts parts;
    if (!host_parse(host, &parts)) return false;
    unsigned char address[sizeof(struct in6_addr)];
    if (parts.bracketed) return inet_pton(AF_INET6, parts.name, address) == 1;
    if (inet_pton(AF_INET, parts.name, address) == 1) return true;
    if (strcmp(parts.name, "localhost") == 0 || bt_ends_with(parts.name, ".localhost")) return true;
    if (listen_host && *listen_host && strcasecmp(parts.name, listen_host) == 0) return true;
    for (uint32_t i = 0; i < config->n_allowed_hosts; i++)
        if (entry_matches(config->allowed_hosts[i], &parts)) return true;
    return false;
}

static bool same_host(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    host_parts page, ours;
    if (!authority || !host || !host_parse(authority + 3, &page) || !host_parse(host, &ours)) return false;
    /* The port that is not written is the scheme's; ours may be another than the page's behind a TLS proxy, where both
     * leave it out. */
    const char *implied = strncasecmp(origin, "https:", 6) == 0 ? "443" : "80";
    const char *page_port = page.port[0] ? page.port : implied;
    const char *our_port = ours.port[0] ? ours.port : implied;
    return page.bracketed == ours.bracketed && strcmp(page.name, ours.name) == 0 && strcmp(page_port, our_port) == 0;
}

bt_access_origin bt_access_origin_find(const bt_config *config, const char *origin, const char *host) {
    if (!origin) return BT_ORIGIN_NONE;
    if (same_host(origin, host)) return BT_ORIGIN_SAME;
    bool any = false;
    for (uint32_t i = 0; i < config->n_cors_origins; i++) {
        const char *entry = config->cors_origins[i];
        size_t n = strlen(entry);
        if (n > 1 && entry[n - 1] == '/') n--; /* as it is copied from an address line */
        if (strlen(origin) == n && strncasecmp(origin, entry, n) == 0) return BT_ORIGIN_LISTED;
        any |= strcmp(entry, "*") == 0;
    }
    return any ? BT_ORIGIN_ANY : BT_ORIGIN_FOREIGN;
}
