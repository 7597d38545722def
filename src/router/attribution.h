/* SPDX-License-Identifier: MIT
 * attribution.h: what a child holds of a device whose driver does not say: by what more is used. Pure. */
#pragma once

#include "burthen.h"

/* One child on one device. Starts as {0}. */
typedef struct bt_attribution {
    bool began, spoiled, done;
    bt_known used_before_bytes;
    bt_known bytes; /* from its readiness to its end; unknown: cannot be told */
} bt_attribution;

/* It is being started. used: of the device, read before. alone: nobody else of ours is on the way there. */
void bt_attribution_begin(bt_attribution *attribution, bt_known used_bytes, bool alone);
/* Another of ours has started there, or has begun to end. */
void bt_attribution_disturb(bt_attribution *attribution);
/* It is ready; used: read after that. Again: nothing changes. */
void bt_attribution_ready(bt_attribution *attribution, bt_known used_bytes);
