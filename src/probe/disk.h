/* SPDX-License-Identifier: MIT
 * disk.h: what a model's file lies on, and what is remembered of it. */
#pragma once

#include "burthen.h"

/* What holds the file: kind, name and id of machine->disk; unknown where the system does not say, never an error.
 * root: prefix of /sys and /proc, as in bt_machine_probe. */
void bt_disk_find(const char *root, const char *path, bt_disk *ret);

/* Its parts: a block device by number; false: there is none of it. The source of a mount in the text of a mountinfo;
 * false: there is no such mount, or it is no device. */
bool bt_disk_of_device(const char *root, uint32_t device_major, uint32_t device_minor, bt_disk *ret);
bool bt_disk_mount_source(const char *mountinfo, uint64_t mount_id, char *ret_path, size_t capacity);

/* What was measured of this disk before: depth, request_bytes and bytes_per_s. false: nothing is known of it. */
bool bt_disk_recall(bt_disk *disk);
/* Remember it for the next runs. Silent: where nothing can be kept it is measured again. */
void bt_disk_keep(const bt_disk *disk);
/* It was measured now: for this plan, and for the next runs. */
void bt_disk_learn(bt_machine *machine, uint32_t depth, uint32_t request_bytes, uint64_t bytes_per_s);
/* Forecasts stand on what was measured, unless the machine's file or the user gave a speed. */
void bt_disk_apply(bt_machine *machine);
