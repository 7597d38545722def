/* SPDX-License-Identifier: MIT
 * raw_server.h: an HTTP server for tests that answers as it is told by the path, also in ways that no good server does.
 * A thread of its own for each connection; raw sockets. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct raw_server {
    int fd;
    uint16_t port;
    unsigned long thread;
    atomic_uint n_connections, n_requests, n_open; /* open: connections that are served now */
    atomic_uint n_eofs;                            /* the client closed an idle connection */
    atomic_ullong sent_bytes;                      /* of /big */
    atomic_bool stop;
    char url[64]; /* "http://127.0.0.1:1234" */
} raw_server;

/* Paths:
 *   /whole         200, "hello" by its length          /chunked       "hello world" in three chunks, a trailer
 *   /eof           "hello" until the connection's end  /echo          the request itself, head and body
 *   /events        5 events, 60 ms between them        /big?N         N bytes, counted in sent_bytes
 *   /status?N      an empty answer of that status      /head          4321 bytes are said
 *   /hop           headers of the connection           /interim       100 and 103 before 200
 *   /stale         200, then closes without a word     /gzip          says gzip, is none
 *   /cut           broken off after 1234 of 5000       /cut-chunk     in a chunk; after 6 bytes
 *   /cut-head      in the head                         /nothing       closed without an answer
 *   /reset         reset in the body                   /huge-head     70000 bytes in 1000 headers
 *   /huge-line     one header of 200000 bytes          /lengths       two lengths
 *   /noise         no HTTP                             /silent        no answer, until the client goes
 *   /drip          a piece each 20 ms until it goes    /redirect      302 to /whole
 *   /switch        101                                 /fold          a header on two lines
 *   /early         413 before the body was read
 *   /once          200, "fresh"; a connection that has served before is reset instead, before the body was read
 *   /control       a control byte in a header          /names         Connection names a header, which stands before
 */
void raw_server_open(raw_server *server);
void raw_server_close(raw_server *server);
