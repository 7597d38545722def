/* SPDX-License-Identifier: MIT
 *
 * psi.c: how long work has stood still for memory (Documentation/accounting/psi.rst).
 *
 *     some avg10=1.53 avg60=0.80 avg300=0.20 total=153116132
 *     full avg10=0.90 avg60=0.41 avg300=0.10 total=109919016
 *
 * Free memory says how much is left, this says whether that hurts. Two places are asked: the machine, and the group
 * that this process is in where the hierarchy is v2: a group at its limit stalls alone. v1 counts nothing a group. */
#include "probe/psi.h"

#include "base/heap.h"
#include "probe/cgroup.h"

#include <string.h>

/* "1.53": two digits behind the point, as the kernel writes them; at most 100.00. */
static bool read_percent(bt_span span, bt_known *ret) {
    bt_span whole;
    uint64_t percent = 0, hundredths = 0;
    if (!bt_span_part(&span, '.', &whole) || span.n_bytes != 2) return false;
    if (!bt_span_number(whole, &percent) || !bt_span_number(span, &hundredths)) return false;
    if (percent > 100 || (percent == 100 && hundredths > 0)) return false;
    *ret = (bt_known){true, percent * 100 + hundredths};
    return true;
}

static bt_known find(const char *text, const char *prefix) {
    bt_known ret = {0};
    bt_span rest, word;
    if (bt_span_find_line(text, prefix, &rest) && bt_span_word(&rest, &word)) (void)read_percent(word, &ret);
    return ret;
}

bt_psi bt_psi_parse(const char *text) {
    return (bt_psi){.some_avg10 = find(text, "some avg10="), .full_avg10 = find(text, "full avg10=")};
}

static void raise(bt_known *ret, bt_known other) {
    if (other.known && (!ret->known || other.value > ret->value)) *ret = other;
}

static void add(const char *text, bt_psi *ret) {
    bt_psi one = bt_psi_parse(text);
    raise(&ret->some_avg10, one.some_avg10);
    raise(&ret->full_avg10, one.full_avg10);
}

void bt_psi_probe(const char *root, bt_psi *ret) {
    bt_cgroup_walk *walk = bt_heap_alloc(sizeof *walk); /* too large for the stack */
    bt_error why = {0};
    *ret = (bt_psi){0};
    if (!walk) return;
    if (bt_proc_read(root, "/proc/pressure/memory", 0, &walk->text) == 0) add(walk->text.data, ret);
    bool in_group = bt_cgroup_find(root, "memory", walk, &why) == BT_OK && walk->version == 2;
    if (in_group && bt_cgroup_read(walk, "memory.pressure") == 0) add(walk->text.data, ret);
    bt_heap_free(walk);
}
