/* SPDX-License-Identifier: MIT
 *
 * disk_kept.c: what was measured of a disk, kept between runs.
 *
 *     disk-ID:  burthen-disk 1
 *               DEPTH REQUEST_BYTES BYTES_PER_S
 *
 * One small file a file system, so that the next run neither waits for a measurement nor plans from another one: a
 * plan is the same tomorrow. `burthen devices --disk` measures again. A file that is not exactly so, or with numbers
 * that no measurement gives, is taken as none. Bound: N_FILES_MAX files of one line; the oldest go. */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/state.h"
#include "probe/disk.h"
#include "probe/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_LINE  "burthen-disk 1"
#define PREFIX      "disk-"
#define N_FILES_MAX 64u
#define FILE_BYTES  256u
/* store/reader.c takes no more, and what is read here is somebody's file. */
#define DEPTH_MAX   256u
#define REQUEST_MAX (64u << 20)

static void name_of(const bt_disk *disk, char name[sizeof PREFIX + sizeof disk->id]) {
    (void)snprintf(name, sizeof PREFIX + sizeof disk->id, PREFIX "%s", disk->id);
}

static bool parse(const char *text, bt_disk *disk) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    uint64_t numbers[3] = {0};
    if (!bt_span_line(&rest, &line) || !bt_span_is(line, FIRST_LINE) || !bt_span_line(&rest, &line)) return false;
    for (uint32_t i = 0; i < 3; i++) {
        bt_span word;
        if (!bt_span_word(&line, &word) || !bt_span_number(word, &numbers[i]) || numbers[i] == 0) return false;
    }
    bool good = numbers[0] <= DEPTH_MAX && numbers[1] <= REQUEST_MAX && numbers[1] % BT_PAGE_BYTES == 0;
    if (!good || line.n_bytes > 0) return false;
    disk->depth = (uint32_t)numbers[0];
    disk->request_bytes = (uint32_t)numbers[1];
    disk->bytes_per_s = numbers[2];
    return true;
}

bool bt_disk_recall(bt_disk *disk) {
    char name[sizeof PREFIX + sizeof disk->id];
    int dir = -1;
    if (!disk->id[0] || bt_state_open(false, &dir, NULL) != BT_OK) return false;
    bt_text text;
    bt_error err = {0};
    bt_text_init(&text, FILE_BYTES);
    name_of(disk, name);
    bt_status status = bt_state_read(dir, name, &text, &err);
    (void)bt_os_close(dir);
    bool good = status == BT_OK && parse(bt_text_str(&text), disk);
    if (!good && err.sys != ENOENT) bt_log(BT_LOG_INFO, "what is kept of the disk cannot be read: %s", err.text);
    bt_text_done(&text);
    return good;
}

static bt_status write_file(const bt_disk *disk, bt_error *err) {
    char name[sizeof PREFIX + sizeof disk->id];
    char text[FILE_BYTES];
    int n = snprintf(text, sizeof text, FIRST_LINE "\n%" PRIu32 " %" PRIu32 " %" PRIu64 "\n", disk->depth,
                     disk->request_bytes, disk->bytes_per_s);
    name_of(disk, name);
    return bt_state_keep(name, text, (size_t)n, PREFIX, N_FILES_MAX, err);
}

void bt_disk_keep(const bt_disk *disk) {
    bt_error err = {0};
    if (!disk->id[0]) return;
    if (write_file(disk, &err) != BT_OK) bt_log(BT_LOG_INFO, "the disk's speed is not kept: %s", err.text);
}
