/* SPDX-License-Identifier: MIT
 * flow.h: bytes on their way from one side of the router to the other: never more than a stated number of them.
 *
 * One producer, one consumer, one thread. A producer that finds no room waits until on_room; a consumer that finds
 * nothing waits until on_data. Either end may go: the other is told, and what comes after is dropped.
 *
 * The functions are called from within the other end's call (put, end, take, drop). They may use the flow and give
 * their own end back, but one that is running is never entered again: what would call it makes it be called once more
 * after it returns. So two ends that answer each other need no more stack than two calls. To set a function tells
 * nobody what is there already: look first. */
#pragma once

#include "burthen.h"

typedef struct bt_flow bt_flow;

/* max_bytes: the most that is held. Two references at the start: one for each end. BT_E_NOMEM, code "flow". */
BT_MUST_CHECK bt_status bt_flow_open(size_t max_bytes, bt_flow **ret, bt_error *err);
/* For the consumer: there are more bytes, or it has ended. For the producer: half of it is free again after it was
 * full, or the consumer has gone. NULL: nobody is told. */
void bt_flow_on_data(bt_flow *flow, void (*on_data)(void *user), void *user);
void bt_flow_on_room(bt_flow *flow, void (*on_room)(void *user), void *user);
/* What is put, as it is put, for somebody who only looks; it must not touch the flow. NULL: nobody. */
void bt_flow_on_put(bt_flow *flow, void (*on_put)(void *user, const void *data, size_t n_bytes), void *user);

/* ---- the producer ---- */

/* All of it or nothing: false when there is no room for all (a later on_room), or memory is refused (bt_flow_failed).
 * What is put into a flow whose consumer has gone, or that has ended, is dropped, and true. n_bytes over max_bytes is
 * put when the flow is empty all the same: somebody else's piece cannot be cut. */
BT_MUST_CHECK bool bt_flow_put(bt_flow *flow, const void *data, size_t n_bytes);
/* Memory was refused: it has ended, broken off, as the consumer sees when it has taken what was held before. */
bool bt_flow_failed(const bt_flow *flow);
void bt_flow_end(bt_flow *flow, bool whole); /* no more comes; whole false: it was broken off. The first one counts. */
bool bt_flow_is_read(const bt_flow *flow);   /* false: the consumer has gone */
void bt_flow_drop_producer(bt_flow *flow); /* gives the producer's reference back; ends it, broken off, if it was not */

/* ---- the consumer ---- */

size_t bt_flow_take(bt_flow *flow, void *dest, size_t capacity); /* 0: nothing now */
size_t bt_flow_held(const bt_flow *flow);                        /* bytes; what tests hold the bound to */
bool bt_flow_ended(const bt_flow *flow);                         /* and everything was taken */
bool bt_flow_whole(const bt_flow *flow);                         /* of an ended one */
void bt_flow_drop_consumer(bt_flow *flow);                       /* gives the consumer's reference back */

/* Memory of the buffers of all flows of this process: a bound that can be watched. */
uint64_t bt_flow_total_bytes(void);
