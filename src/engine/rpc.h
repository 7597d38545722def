/* SPDX-License-Identifier: MIT
 * rpc.h: workers on other machines (`burthen worker`, llama.cpp's rpc-server), made devices of this process.
 *
 * ggml's RPC client ends the process where it cannot connect or is not answered as it expects, and waits without end
 * for a server that is busy. So a worker is asked here first. */
#pragma once

#include "burthen.h"

#define BT_RPC_WORKER_MAX 16u   /* GGML_RPC_MAX_SERVERS */
#define BT_RPC_WAIT_MS    5000u /* for an answer that a server on the same network gives in some ms */

/* Is there a server at "HOST:PORT" that ggml's client of this build can talk to, and is it free now? It is greeted and
 * left again. timeout_ms bounds connecting and the answer together; resolving a name takes what the system's resolver
 * takes. HOST is a name or an address of IPv4: ggml's client knows no other, and so nothing else is let through.
 *
 * returns BT_E_ARG, code "rpc_endpoint", for what is no such address; BT_E_IO, codes "rpc_host" (the name has no
 *         address) and "rpc_connect" (nobody listens, or nothing comes back); BT_E_DEVICE, codes "rpc_busy" (it does
 * not answer: a server serves one client at a time) and "rpc_protocol" (it answers something else); BT_E_UNSUPPORTED,
 * code "rpc_version", with both versions. */
BT_MUST_CHECK bt_status bt_rpc_check(const char *endpoint, uint32_t timeout_ms, bt_error *err);

/* Check, then make its devices known to ggml: RPC0, RPC1, ... in the order in which they are added. Adding the same
 * address again changes nothing. From then on a worker that dies is named where ggml gives up (bt_engine_on_abort,
 * which must have been called before), and a closed connection is no signal (SIGPIPE).
 *
 * From one thread. No connection is held in between: another client may take the worker, and ggml then waits until it
 * is free.
 *
 * returns as bt_rpc_check; BT_E_UNSUPPORTED, code "rpc_missing", in a build without RPC; BT_E_DEVICE, code
 *         "rpc_devices", for a server without devices; BT_E_LIMIT, code "rpc_workers", beyond BT_RPC_WORKER_MAX. */
BT_MUST_CHECK bt_status bt_rpc_add(const char *endpoint, bt_error *err);

/* "HOST:PORT" in two; false for what bt_rpc_check does not let through. host: of 64 bytes. */
bool bt_rpc_endpoint_parse(const char *endpoint, char *host, uint16_t *ret_port);
