/* SPDX-License-Identifier: MIT
 * rpc_server.h: ggml's RPC server, run for one device until it is told to stop. */
#pragma once

#include "burthen.h"

struct ggml_backend_device;

typedef enum bt_rpc_event {
    BT_RPC_LISTENS,
    BT_RPC_CLIENT_CAME,  /* peer: its address, "" if not known */
    BT_RPC_CLIENT_STAYS, /* for a second now: one that only asks how much memory there is comes and leaves at once */
    BT_RPC_CLIENT_LEFT,
} bt_rpc_event;

typedef struct bt_rpc_server_params {
    const char *host; /* an IPv4 address of this machine, in numbers */
    uint16_t port;
    struct ggml_backend_device *device;
    uint32_t n_threads;
    int stop_fd; /* the server is left when this can be read */
    void (*on_event)(bt_rpc_event event, const char *peer, void *user);
    void *user;
} bt_rpc_server_params;

/* Serve clients, one after the other. Standard output is taken from the process for good, since ggml's server prints to
 * it. Once per process: when this returns, the server's thread may still be serving, so that all the caller can do
 * with the device is to end the process (_exit).
 *
 * returns BT_E_CANCELLED when stop_fd told it to; BT_E_UNSUPPORTED, code "rpc_missing"; BT_E_IO, code "worker_listen",
 *         when nobody can listen there (taken, or no address of this machine); BT_E_DEVICE, code "worker_ended", when
 *         the server gave up. */
BT_MUST_CHECK bt_status bt_rpc_serve(const bt_rpc_server_params *params, bt_error *err);
