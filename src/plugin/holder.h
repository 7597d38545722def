/* SPDX-License-Identifier: MIT
 * holder.h: a plan carried out in a program that is not ours: its files, its account and its device. */
#pragma once

#include "burthen.h"
#include "device/device.h"
#include "report/report.h"

typedef struct bt_holder bt_holder;

/* What is told of it. */
typedef struct bt_holder_calls {
    void (*heard)(const bt_error *err, void *user); /* as bt_device_params */
    void (*ran)(void *user);
    void *user;
} bt_holder_calls;

/* plan_path: a plan.json made for such a program (bt_wishes.guest). BT_E_IO, BT_E_FORMAT;
 * BT_E_STALE, code "plan_stale": it is for another model, build, or kind of program; BT_E_BUDGET: it was refused. */
BT_MUST_CHECK bt_status bt_holder_open(const char *plan_path, const bt_holder_calls *calls, bt_holder **ret_holder,
                                       bt_error *err);
/* NULL is fine. false: something of the device's was still on the account. */
bool bt_holder_close(bt_holder *holder);
bt_device *bt_holder_device(bt_holder *holder);
const bt_plan *bt_holder_plan(const bt_holder *holder);
/* What it holds now and held at most, by line, with what the process holds beside it. */
void bt_holder_measure(bt_holder *holder, bt_measured *ret);
const bt_facts *bt_holder_facts(const bt_holder *holder);
