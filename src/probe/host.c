/* SPDX-License-Identifier: MIT
 * host.c: what the system says of its memory, this process's rlimits and its cores.
 *
 * Available is what the kernel estimates a new allocation can get without swapping: MemAvailable, which counts clean
 * cache. MemFree does not and is never used in its place: a machine that has read a model once would look full. A
 * figure that cannot be read is a failed reading with its reason, never 0 and never a guess from another field. Swap
 * is reported and never counted. The parsers are pure. Bound: one pass over at most BT_PROC_TEXT_MAX bytes per file.
 * Left out: NUMA nodes, huge pages, and every system whose memory meminfo does not describe: its host pool is failed.
 */
#include "probe/host.h"
#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "probe/probe.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Linux can be built for at most this many (CONFIG_NR_CPUS with MAXSMP) */
#define N_CPU_MAX 8192u

static const bt_known unknown = {false, 0};

/* ---- meminfo ---------------------------------------------------------------------------------------------------- */

bt_known bt_meminfo_field(const char *text, const char *field) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    while (bt_span_line(&rest, &line)) {
        bt_span name;
        if (!bt_span_part(&line, ':', &name) || !bt_span_is(name, field)) continue;
        bt_span digits;
        bt_span unit;
        uint64_t bytes = 0;
        if (!bt_span_word(&line, &digits) || !bt_span_number(digits, &bytes)) return unknown;
        if (bt_span_word(&line, &unit) && !bt_span_is(unit, "kB")) return unknown;
        if (!bt_mul_u64(bytes, 1024, &bytes)) return unknown;
        return (bt_known){true, bytes};
    }
    return unknown;
}

bt_known bt_meminfo_available(const char *text) {
    return bt_meminfo_field(text, "MemAvailable");
}

/* ---- the host pool ---------------------------------------------------------------------------------------------- */

static void fail_pool(bt_pool *pool, const char *reason) {
    pool->state = BT_READING_FAILED;
    pool->free_bytes = 0;
    pool->total_bytes = 0;
    (void)snprintf(pool->reason, sizeof pool->reason, "%.*s", (int)(sizeof pool->reason - 1), reason);
}

static void name_pool(bt_pool *pool) {
    memset(pool, 0, sizeof *pool);
    (void)snprintf(pool->name, sizeof pool->name, "host");
    pool->kind = BT_POOL_HOST;
}

void bt_host_pool_parse(const char *meminfo, bt_pool *ret_pool) {
    name_pool(ret_pool);
    bt_known total = bt_meminfo_field(meminfo, "MemTotal");
    bt_known available = bt_meminfo_available(meminfo);
    /* A total of 0 is no machine: whatever made this text does not know. */
    if (!total.known || total.value == 0) {
        fail_pool(ret_pool, "/proc/meminfo has no usable MemTotal");
        return;
    }
    if (!available.known) {
        fail_pool(ret_pool, "/proc/meminfo has no usable MemAvailable");
        return;
    }
    ret_pool->state = BT_READING_REPORTED;
    ret_pool->total_bytes = total.value;
    ret_pool->clamped = available.value > total.value;
    ret_pool->free_bytes = bt_min_u64(available.value, total.value);
}

void bt_host_pool_probe(const char *root, bt_proc_text *scratch, bt_machine *machine) {
    bt_pool *pool = &machine->pools[0];
    int rc = bt_proc_read(root, "/proc/meminfo", 0, scratch);
    if (rc < 0) {
        name_pool(pool);
        bt_error err = {0};
        (void)bt_fail_sys(&err, -rc, "probe", "cannot read /proc/meminfo");
        fail_pool(pool, err.text);
        return;
    }
    bt_host_pool_parse(scratch->data, pool);
    machine->swap_free_bytes = bt_meminfo_field(scratch->data, "SwapFree");
}

/* ---- rlimits ---------------------------------------------------------------------------------------------------- */

bt_known bt_host_limit_parse(const char *limits, const char *name) {
    bt_span line;
    bt_span soft;
    uint64_t value = 0;
    /* A blank must follow the name, or "Max data" would find "Max data size". */
    if (!bt_span_find_line(limits, name, &line) || !bt_span_starts(line, " ")) return unknown;
    if (!bt_span_word(&line, &soft) || !bt_span_number(soft, &value)) return unknown;
    return (bt_known){true, value};
}

static bt_known soft_limit(int resource) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return unknown;
    return (bt_known){true, limit.rlim_cur};
}

void bt_host_limits_probe(const char *root, bt_proc_text *scratch, bt_host_limits *ret_limits) {
    *ret_limits = (bt_host_limits){0};
    if (root[0] == '\0') {
        ret_limits->address_space_bytes = soft_limit(RLIMIT_AS);
        ret_limits->data_bytes = soft_limit(RLIMIT_DATA);
        ret_limits->locked_bytes = soft_limit(RLIMIT_MEMLOCK);
        return;
    }
    if (bt_proc_read(root, "/proc/self/limits", 0, scratch) < 0) return;
    ret_limits->address_space_bytes = bt_host_limit_parse(scratch->data, "Max address space");
    ret_limits->data_bytes = bt_host_limit_parse(scratch->data, "Max data size");
    ret_limits->locked_bytes = bt_host_limit_parse(scratch->data, "Max locked memory");
}

/* ---- cores ------------------------------------------------------------------------------------------------------ */

/* "7" or "4-7": how many; 0 when malformed, or when it does not lie above *next, which moves past it. */
static uint32_t count_range(bt_span range, uint64_t *next) {
    bt_span first_text;
    uint64_t first = 0;
    if (!bt_span_part(&range, '-', &first_text) || !bt_span_number(first_text, &first)) return 0;
    uint64_t last = first;
    if (range.n_bytes > 0 && !bt_span_number(range, &last)) return 0;
    if (first < *next || last < first || last >= N_CPU_MAX) return 0;
    *next = last + 1;
    return (uint32_t)(last - first + 1);
}

uint32_t bt_host_cores_parse(const char *status) {
    bt_span line;
    bt_span list;
    bt_span range;
    if (!bt_span_find_line(status, "Cpus_allowed_list:", &line) || !bt_span_word(&line, &list)) return 0;
    uint32_t n_cores = 0;
    uint64_t next = 0;
    while (bt_span_part(&list, ',', &range)) {
        uint32_t n = count_range(range, &next);
        if (n == 0) return 0;
        n_cores += n;
    }
    return n_cores;
}

uint32_t bt_host_cores_probe(const char *root, bt_proc_text *scratch) {
    if (root[0] == '\0') return bt_os_n_cores();
    return bt_proc_read(root, "/proc/self/status", 0, scratch) < 0 ? 0 : bt_host_cores_parse(scratch->data);
}
