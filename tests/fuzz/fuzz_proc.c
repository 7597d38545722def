/* SPDX-License-Identifier: MIT
 * fuzz_proc.c: the small texts of /proc and /sys: meminfo, limits, status, cgroup, mountinfo, memory.*, cpu.max,
 * pressure, oom counters. Each parser is given each text: what it answers is sound or unknown. */
#include "fuzz.h"

#include "probe/cgroup.h"
#include "probe/disk.h"
#include "probe/host.h"
#include "probe/probe.h"
#include "probe/psi.h"

#include <stdio.h>
#include <string.h>

static void check_host(const char *text) {
    bt_pool pool;
    bt_host_pool_parse(text, &pool);
    bt_known available = bt_meminfo_available(text);
    if (pool.state == BT_READING_REPORTED) {
        FUZZ_CHECK(available.known && pool.reason[0] == '\0');
        FUZZ_CHECK(pool.total_bytes > 0 && pool.free_bytes <= pool.total_bytes);
        FUZZ_CHECK(pool.clamped == (available.value > pool.total_bytes));
    } else {
        FUZZ_CHECK(pool.state == BT_READING_FAILED && pool.reason[0] != '\0');
        FUZZ_CHECK((pool.free_bytes | pool.total_bytes) == 0);
    }
    FUZZ_CHECK(available.value % 1024 == 0);
    if (available.known) { /* a number the text could say: its digits stand there */
        char digits[32];
        (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)(available.value / 1024));
        FUZZ_CHECK(strstr(text, digits) != NULL);
    }
    FUZZ_CHECK(bt_host_cores_parse(text) <= 8192);
    bt_known limit = bt_host_limit_parse(text, "Max address space");
    FUZZ_CHECK(limit.known || limit.value == 0);
}

static void check_places(const char *text) {
    static char path[BT_PROC_PATH_MAX];
    static bt_cgroup_mount mount;
    static const char *const controllers[] = {"memory", "cpu", NULL};
    static const char group[] = "/user.slice/a";
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        memset(path, 'p', sizeof path);
        if (bt_cgroup_path_parse(text, controllers[i], path)) {
            FUZZ_CHECK(path[0] == '/' && memchr(path, '\0', sizeof path) != NULL);
            FUZZ_CHECK(!strchr(path, '\n') && strstr(text, path) != NULL);
        }
        memset(&mount, 0, sizeof mount);
        bt_cgroup_mount_parse(text, controllers[i], group, &mount);
        if (!mount.found) continue;
        FUZZ_CHECK(mount.root[0] == '/' && mount.point[0] == '/');
        FUZZ_CHECK(memchr(mount.root, '\0', sizeof mount.root) && memchr(mount.point, '\0', sizeof mount.point));
        if (mount.holds_group && mount.root[1]) FUZZ_CHECK(memcmp(mount.root, group, strlen(mount.root)) == 0);
    }
    char source[32];
    if (bt_disk_mount_source(text, 36, source, sizeof source))
        FUZZ_CHECK(memchr(source, '\0', sizeof source) && source[0] == '/');
}

static void check_group(const char *text) {
    bt_known limit = {0};
    if (bt_cgroup_limit_parse(text, &limit)) FUZZ_CHECK(limit.value < UINT64_C(1) << 62);
    bt_known cores = {0};
    if (bt_cgroup_cpu_max_parse(text, &cores)) FUZZ_CHECK(!cores.known || cores.value >= 1);
    for (uint32_t version = 1; version <= 2; version++) {
        bt_cgroup_stat stat = bt_cgroup_stat_parse(text, version);
        FUZZ_CHECK(!stat.hierarchical_limit.known || version == 1);
        FUZZ_CHECK(stat.hierarchical_limit.value < UINT64_C(1) << 62);
    }
    bt_psi psi = bt_psi_parse(text);
    FUZZ_CHECK(psi.some_avg10.value <= 10000 && psi.full_avg10.value <= 10000);
}

static bool one(char *text, size_t n) {
    (void)n;
    check_host(text);
    check_places(text);
    check_group(text);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"MemTotal:",
                                        "MemAvailable:",
                                        "MemFree:",
                                        " kB\n",
                                        "Max address space",
                                        "unlimited",
                                        "Cpus_allowed_list:",
                                        "0::/",
                                        "memory",
                                        "cpu,cpuacct",
                                        "cgroup2",
                                        " - ",
                                        "/..",
                                        "\\040",
                                        "max",
                                        "9223372036854771712",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "hierarchical_memory_limit ",
                                        "inactive_file ",
                                        "total_inactive_file ",
                                        "some avg10=",
                                        "full avg10=",
                                        "avg60=",
                                        "total=",
                                        "36 35 8:1 / /",
                                        "100.00",
                                        "\xff\xfe",
                                        ","};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

static const char *const more[] = {"roots/v2-nested/proc/meminfo",
                                   "roots/v2-nested/proc/self/mountinfo",
                                   "roots/v2-nested/proc/self/cgroup",
                                   "roots/v2-nested/sys/fs/cgroup/user.slice/memory.stat",
                                   "roots/hybrid/proc/self/mountinfo",
                                   "roots/hybrid/proc/self/cgroup",
                                   "roots/v2-nested/proc/self/limits",
                                   "roots/v1-plain/sys/fs/cgroup/memory/memory.stat",
                                   "roots/v2-container/proc/self/status",
                                   "roots/v2-container/sys/fs/cgroup/cpu.max",
                                   "roots/v2-container/sys/fs/cgroup/memory.max",
                                   NULL};

const fuzz_target fuzz_here = {
    .name = "proc", .one = one, .word = word, .more = more, .n_rounds = 8000, .takes_all = true};
