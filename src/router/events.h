/* SPDX-License-Identifier: MIT
 * events.h: what has happened, for those that listen now and for those that come a little later. */
#pragma once

#include "router/flow.h"

#define BT_EVENTS_KEPT          256u
#define BT_EVENTS_KEPT_BYTES    262144u /* of all that are kept, as they are sent */
#define BT_EVENT_BYTES_MAX      8192u
#define BT_EVENT_TYPE_MAX       16u /* with its NUL */
#define BT_EVENTS_LISTENERS_MAX 32u

typedef struct bt_events bt_events;
BT_MUST_CHECK bt_status bt_events_open(bt_events **ret, bt_error *err);
void bt_events_dismiss(bt_events *events); /* ends every listener's flow, whole */
void bt_events_close(bt_events *events);   /* the same, and all else */
/* type: "model", "decision", "request", "memory"...: letters, digits, '_'; json: an object on one line. Each gets an
 * id, one more each from 1 on, and the time. What is over BT_EVENT_BYTES_MAX, is not of this form, or finds no memory,
 * is dropped and counted; its id is used up, so that listeners are told. */
void bt_events_add(bt_events *events, const char *type, const char *json);
/* What is true for a moment: sent to those who listen now and have had all that is kept, and not kept itself, but for
 * the last one: who comes is sent it, and asks for it by its type. Its id is that of the last event that is kept. */
void bt_events_pass(bt_events *events, const char *type, const char *json);
uint64_t bt_events_dropped(const bt_events *events); /* so far, for those reasons */
/* text/event-stream into a flow (docs/interfaces.md): those after id `after` that are still kept (0, or an id that was
 * not given yet: all), then each as it happens; a comment every keep_alive (bt_events_tick). A listener that is too
 * slow is told "dropped" with how many. The producer's end of the flow is given away on success. BT_E_LIMIT, code
 * "events_full". */
BT_MUST_CHECK bt_status bt_events_listen(bt_events *events, uint64_t after, bt_flow *flow, bt_error *err);
uint32_t bt_events_listeners(const bt_events *events); /* now; what tests hold the bound to */
void bt_events_tick(bt_events *events);                /* to be called every 15 s: a comment line to each listener */
/* The last ones as a JSON array, newest last. type NULL: all. */
BT_MUST_CHECK bt_status bt_events_json(const bt_events *events, const char *type, char **ret_json, bt_error *err);
