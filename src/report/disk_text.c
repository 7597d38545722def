/* SPDX-License-Identifier: MIT
 *
 * disk_text.c: what streamed weights are read from, in words.
 *
 * A plan may be right to the byte and still be no use: a model that streams from a disk that rotates, or over a
 * network, answers in minutes. Forecasts say it in numbers; here it is said by name. */
#include "base/size.h"
#include "report/json.h"
#include "report/report.h"
#include "report/text.h"

#include <inttypes.h>
#include <string.h>

#define MEGA UINT64_C(1000000)
/* Under what any SATA solid-state disk reads in a row (500 MB/s and more), with room for a busy one: cards, USB 2 and
 * storage that is rented by the operation. */
#define SLOW_BYTES_PER_S UINT64_C(250000000)

static void add_name(const bt_disk *disk, bt_text *out) {
    if (disk->name[0])
        bt_text_add_escaped(out, disk->name, strnlen(disk->name, sizeof disk->name));
    else
        bt_text_add(out, "a disk");
}

static const char *kind_of(const bt_disk *disk) {
    if (bt_disk_rotates(disk)) return "it rotates";
    if (disk->kind == BT_DISK_NETWORK) return "a network";
    return disk->kind == BT_DISK_MEMORY ? "in memory" : NULL;
}

void bt_report_disk_row(const bt_plan *plan, bt_text *out) {
    const bt_disk *disk = &plan->disk;
    bt_text value;
    bt_text_init(&value, 4096);
    bt_text_add(&value, bt_io_names[plan->wishes.io]);
    if (disk->name[0]) {
        bt_text_add(&value, ", ");
        add_name(disk, &value);
    }
    if (kind_of(disk)) bt_text_addf(&value, " (%s)", kind_of(disk));
    if (disk->depth > 0) bt_text_addf(&value, ", %u reads of %s at once", disk->depth, BT_SIZE(disk->request_bytes));
    if (plan->page_cache) bt_text_add(&value, "; the page cache where that is faster");
    bt_row(out, "Disk input", "%s", bt_text_str(&value));
    out->failed = out->failed || value.failed;
    bt_text_done(&value);
}

bool bt_report_disk_warning(const bt_plan *plan, bt_text *out) {
    const bt_disk *disk = &plan->disk;
    uint64_t bytes_per_s = plan->disk_bytes_per_s.known ? plan->disk_bytes_per_s.value : 0;
    bool rotates = bt_disk_rotates(disk);
    bool is_slow = bytes_per_s > 0 && bytes_per_s < SLOW_BYTES_PER_S;
    bool warns = rotates || disk->kind == BT_DISK_NETWORK || is_slow;
    if (plan->read_bytes_per_pass == 0 || plan->verdict == BT_REFUSED || !warns) return false;
    bt_text_add(out, "weights stream from ");
    add_name(disk, out);
    if (rotates) bt_text_add(out, ", which rotates");
    if (disk->kind == BT_DISK_NETWORK) bt_text_add(out, ", over a network");
    bt_text_addf(out, ": a token reads %s", BT_SIZE(plan->read_bytes_per_pass));
    if (bytes_per_s > 0) {
        uint64_t ms = bt_mul_div_u64(plan->read_bytes_per_pass, 1000, bytes_per_s);
        bt_text_addf(out, " at %" PRIu64 " MB/s, %" PRIu64 ".%" PRIu64 " s", bytes_per_s / MEGA, ms / 1000,
                     ms % 1000 / 100);
    }
    if (plan->page_cache) bt_text_add(out, " the first time");
    return true;
}
