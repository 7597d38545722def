/* SPDX-License-Identifier: MIT
 * test_cgroup.c: the memory cgroup chain on recorded trees (tests/data/roots) and its parsers.
 *
 * The trees' numbers are whole MiB, so that what each level leaves can be checked by hand. */
#include "chain_kit.h"
#include "probe/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROOT(name) BT_TEST_DATA "/roots/" name
#define MIB        (UINT64_C(1) << 20)

static bt_machine machine;

static void probe(const char *root) {
    memset(&machine, 0xA5, sizeof machine);
    bt_cgroup_probe(root, &machine);
}

static void expect_available(uint64_t mib, const char *source) {
    char got[CHAIN_SOURCE_BYTES];
    bt_known available = chain_left(&machine, got);
    assert_true(available.known);
    assert_int_equal(available.value, mib * MIB);
    assert_string_equal(got, source);
}

static void expect_level(uint32_t i, const char *path, uint64_t limit_mib, uint64_t usage_mib, uint64_t clean_mib) {
    const bt_cgroup_level *level = &machine.cgroup[i];
    assert_string_equal(level->path, path);
    assert_int_equal(level->limit.known, limit_mib != 0);
    assert_int_equal(level->limit.value, limit_mib * MIB);
    assert_int_equal(level->usage_bytes, usage_mib * MIB);
    assert_int_equal(level->reclaimable_bytes, clean_mib * MIB);
}

static void expect_chain(uint32_t version, uint32_t n_levels) {
    assert_string_equal(machine.cgroup_reason, "");
    assert_int_equal(machine.cgroup_version, version);
    assert_int_equal(machine.n_cgroup_levels, n_levels);
}

static void expect_no_limit(void) {
    char source[CHAIN_SOURCE_BYTES] = "x";
    bt_known got = chain_left(&machine, source);
    assert_false(got.known);
    assert_int_equal(got.value, 0);
    assert_string_equal(source, "");
    assert_false(bt_cgroup_limit(&machine, source).known);
}

/* ---- recorded trees --------------------------------------------------------------------------------------------- */

static void v2_ancestor_is_tighter_than_the_leaf(void **state) {
    (void)state;
    char source[CHAIN_SOURCE_BYTES];
    probe(ROOT("v2-nested"));
    expect_chain(2, 5);
#define USER "/user.slice/user-1000.slice"
    expect_level(0, USER "/user@1000.service/app.slice/llm.scope", 8192, 1024, 512);
    expect_level(1, USER "/user@1000.service/app.slice", 0, 3072, 1024);
    expect_level(2, USER "/user@1000.service", 6656, 5120, 1536);
    /* 96 MiB dirty and 32 MiB being written are not clean */
    expect_level(3, USER, 7168, 6144, 1408);
    expect_level(4, "/user.slice", 0, 9216, 4096);
    assert_string_equal(machine.cgroup[2].limit_file, "memory.high");
    assert_string_equal(machine.cgroup[3].limit_file, "memory.max");
    assert_string_equal(machine.cgroup[1].limit_file, "");
    expect_available(2432, "cgroup v2 " USER " memory.max");
    /* the lowest limit is not where least is left */
    assert_int_equal(bt_cgroup_limit(&machine, source).value, 6656 * MIB);
    assert_string_equal(source, "cgroup v2 " USER "/user@1000.service memory.high");
#undef USER
}

static void v2_container_strips_the_mounts_root(void **state) {
    (void)state;
    probe(ROOT("v2-container"));
    expect_chain(2, 2);
    expect_level(0, "/worker", 0, 512, 192);
    expect_level(1, "/", 4096, 1024, 384);
    expect_available(3456, "cgroup v2 / memory.max");
}

static void v2_namespace_reads_the_mount_point(void **state) {
    (void)state;
    probe(ROOT("v2-namespace"));
    expect_chain(2, 1);
    expect_level(0, "/", 2048, 300, 80);
    expect_available(1828, "cgroup v2 / memory.max");
}

static void v2_path_outside_the_mount_uses_the_mount_point(void **state) {
    (void)state;
    probe(ROOT("v2-outside"));
    expect_chain(2, 1);
    expect_level(0, "/", 3072, 1024, 0);
    expect_available(2048, "cgroup v2 / memory.max");
}

static void user_case_25_clean_page_cache_is_not_use(void **state) {
    (void)state;
    probe(ROOT("v2-page-cache"));
    expect_chain(2, 1);
    expect_level(0, "/", 4096, 3072 + 35, 3072);
    expect_available(4096 - 35, "cgroup v2 / memory.max");
}

static void v1_chain_counts_children(void **state) {
    (void)state;
    char source[CHAIN_SOURCE_BYTES];
    probe(ROOT("v1-plain"));
    expect_chain(1, 3);
    expect_level(0, "/system.slice/llm.service", 4096, 1024, 96);
    expect_level(1, "/system.slice", 3072, 2048, 756);
    expect_level(2, "/", 0, 5120, 2048);
    expect_available(1780, "cgroup v1 /system.slice memory.limit_in_bytes");
    assert_int_equal(bt_cgroup_limit(&machine, source).value, 3072 * MIB);
}

static void user_case_26_v1_sentinel_is_no_limit(void **state) {
    (void)state;
    probe(ROOT("v1-nolimit"));
    expect_chain(1, 2);
    expect_level(0, "/user.slice", 0, 2048, 768);
    expect_no_limit();
}

static void v1_container_knows_the_limit_above_it(void **state) {
    (void)state;
    probe(ROOT("v1-container"));
    expect_chain(1, 1);
    expect_level(0, "/", 5120, 1024, 256);
    expect_available(4352, "cgroup v1 / memory.stat hierarchical_memory_limit");
}

static void hybrid_reads_v1_where_the_controller_is(void **state) {
    (void)state;
    probe(ROOT("hybrid"));
    expect_chain(1, 3);
    expect_level(0, "/jobs/6fcc", 1024, 250, 219);
    expect_level(1, "/jobs", 20480, 390, 350);
    expect_level(2, "/", 0, 400, 370);
    expect_available(993, "cgroup v1 /jobs/6fcc memory.limit_in_bytes");
}

static void no_cgroup_is_version_0_without_a_reason(void **state) {
    (void)state;
    probe(ROOT("no-cgroup"));
    expect_chain(0, 0);
    expect_no_limit();
}

static void v2_root_alone_has_no_level(void **state) {
    (void)state;
    probe(ROOT("swap"));
    expect_chain(2, 1);
    expect_level(0, "/init.scope", 0, 20, 8);
    expect_no_limit();
}

static void quota_rounds_up_and_is_at_least_one_core(void **state) {
    (void)state;
    static const struct {
        const char *root;
        uint64_t n_cores; /* 0: no quota */
    } cases[] = {
        {ROOT("v2-nested"), 0},    {ROOT("v2-container"), 2}, {ROOT("v2-namespace"), 1}, {ROOT("v1-plain"), 3},
        {ROOT("v1-container"), 0}, {ROOT("hybrid"), 1},       {ROOT("no-cgroup"), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bt_known cores = bt_cgroup_cores(cases[i].root);
        assert_int_equal(cores.known, cases[i].n_cores > 0);
        assert_int_equal(cores.value, cases[i].n_cores);
    }
}

/* ---- trees made here, to be bad --------------------------------------------------------------------------------- */

#define BAD_ROOT BT_TEST_OUT "/cgroup-root"

static void make_folder(const char *path) {
    char command[2048];
    (void)snprintf(command, sizeof command, "mkdir -p '%s'", path);
    assert_int_equal(system(command), 0); /* NOLINT(bugprone-command-processor): a fixed path of the build */
}

static void put(const char *folder, const char *name, const char *text) {
    char path[1024];
    (void)snprintf(path, sizeof path, BAD_ROOT "%s", folder);
    make_folder(path);
    (void)snprintf(path, sizeof path, BAD_ROOT "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (!file) return;
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void put_v2(const char *max, const char *high, const char *current, const char *stat) {
    put("/sys/fs/cgroup/a", "memory.max", max);
    put("/sys/fs/cgroup/a", "memory.high", high);
    put("/sys/fs/cgroup/a", "memory.current", current);
    put("/sys/fs/cgroup/a", "memory.stat", stat);
}

static void start_v2(void) {
    assert_int_equal(system("rm -rf '" BAD_ROOT "'"), 0); /* NOLINT(bugprone-command-processor) */
    put("/proc/self", "cgroup", "0::/a\n");
    put("/proc/self", "mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put_v2("1073741824\n", "max\n", "104857600\n", "anon 1\ninactive_file 1048576\nactive_file 2097152\n");
}

static void expect_unreadable(const char *reason) {
    probe(BAD_ROOT);
    assert_int_equal(machine.cgroup_version, 0);
    assert_int_equal(machine.n_cgroup_levels, 0);
    assert_string_equal(machine.cgroup_reason, reason);
    expect_no_limit();
}

static void a_level_that_cannot_be_read_spoils_the_chain(void **state) {
    (void)state;
    static const struct {
        const char *file, *text;
    } bad[] = {
        {"memory.max", ""},
        {"memory.max", "-1\n"},
        {"memory.max", "many\n"},
        {"memory.max", "1 2\n"},
        {"memory.high", "\x01\xff"},
        {"memory.max", "1\n2\n"},
        {"memory.high", "0x10\n"},
        {"memory.current", "\n"},
        {"memory.current", "max"},
        {"memory.current", "-4096\n"},
        {"memory.max", "18446744073709551616\n"},
    };
    start_v2();
    probe(BAD_ROOT);
    expect_chain(2, 1);
    expect_available(1024 - 100 + 3, "cgroup v2 /a memory.max");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char reason[160];
        start_v2();
        put("/sys/fs/cgroup/a", bad[i].file, bad[i].text);
        (void)snprintf(reason, sizeof reason, "cannot read %s of cgroup /a: %s", bad[i].file, strerror(EBADMSG));
        expect_unreadable(reason);
    }
    start_v2();
    assert_int_equal(remove(BAD_ROOT "/sys/fs/cgroup/a/memory.current"), 0);
    expect_unreadable("cannot read memory.current of cgroup /a: No such file or directory");
    start_v2();
    put("/proc/self", "mountinfo", "1 0 0:1 / / rw - ext4 /dev/sda rw\n");
    expect_unreadable("cgroup v2 with this process is mounted nowhere");
    start_v2();
    assert_int_equal(remove(BAD_ROOT "/proc/self/mountinfo"), 0);
    expect_unreadable("cannot read /proc/self/mountinfo: No such file or directory");
    start_v2();
    put("/proc/self", "cgroup", "4:memory:/a\n0::/a\n");
    put("/proc/self", "mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n");
    expect_unreadable("the cgroup v1 mount at /sys/fs/cgroup holds no memory.limit_in_bytes");
}

static void odd_files_are_read_for_what_they_say(void **state) {
    (void)state;
    /* CRLF; a limit of 0; usage over the limit; more clean cache than usage */
    start_v2();
    put_v2("1073741824\r\n", "536870912\r\n", "104857600\r\n", "inactive_file 1048576\r\nactive_file 1048576\r\n");
    probe(BAD_ROOT);
    expect_available(512 - 100 + 2, "cgroup v2 /a memory.high");
    put_v2("0\n", "max\n", "0\n", "");
    probe(BAD_ROOT);
    expect_available(0, "cgroup v2 /a memory.max");
    put_v2("1048576\n", "max\n", "9223372036854775807\n", "");
    probe(BAD_ROOT);
    expect_available(0, "cgroup v2 /a memory.max");
    put_v2("1048576\n", "max\n", "4096\n", "inactive_file 18446744073709551615\nactive_file 18446744073709551615\n");
    probe(BAD_ROOT);
    expect_available(1, "cgroup v2 /a memory.max");
    /* no memory.stat, no memory.high: nothing known to be clean */
    start_v2();
    assert_int_equal(remove(BAD_ROOT "/sys/fs/cgroup/a/memory.stat"), 0);
    assert_int_equal(remove(BAD_ROOT "/sys/fs/cgroup/a/memory.high"), 0);
    probe(BAD_ROOT);
    expect_available(924, "cgroup v2 /a memory.max");
    /* a group that was removed under us: its parents still count */
    put("/proc/self", "cgroup", "0::/a/gone (deleted)\n");
    probe(BAD_ROOT);
    expect_chain(2, 1);
    expect_available(924, "cgroup v2 /a memory.max");
    /* nothing but noise in /proc/self/cgroup: no group */
    put("/proc/self", "cgroup", "\x02\xfe:\n:::\n0:x\nnoise");
    probe(BAD_ROOT);
    expect_chain(0, 0);
}

static void v1_group_that_is_not_charged_upwards_ends_the_chain(void **state) {
    (void)state;
    start_v2();
    put("/proc/self", "cgroup", "4:memory:/a/b\n");
    put("/proc/self", "mountinfo", "1 0 0:1 / /m rw - cgroup cgroup rw,memory\n");
    static const char *const folders[] = {"/m/a/b", "/m/a", "/m"};
    for (int i = 0; i < 3; i++) {
        put(folders[i], "memory.limit_in_bytes", i == 1 ? "1048576\n" : "2097152\n");
        put(folders[i], "memory.usage_in_bytes", "0\n");
        put(folders[i], "memory.use_hierarchy", "1\n");
    }
    probe(BAD_ROOT);
    expect_chain(1, 3);
    expect_available(1, "cgroup v1 /a memory.limit_in_bytes");
    put("/m/a", "memory.use_hierarchy", "0\n");
    probe(BAD_ROOT);
    expect_chain(1, 1);
    expect_available(2, "cgroup v1 /a/b memory.limit_in_bytes");
}

static void too_deep_a_chain_is_no_guess(void **state) {
    (void)state;
    char groups[256] = "";
    char text[512];
    start_v2();
    for (size_t i = 0; i < BT_CGROUP_LEVEL_MAX; i++)
        (void)snprintf(groups + 2 * i, sizeof groups - 2 * i, "/d");
    (void)snprintf(text, sizeof text, "0::%s", groups);
    put("/proc/self", "cgroup", text);
    expect_unreadable("the memory cgroup lies 33 levels deep, at most 32 are read");
    /* one less is read: the mount point is a level too */
    groups[strlen(groups) - 2] = '\0';
    (void)snprintf(text, sizeof text, "/sys/fs/cgroup%s", groups);
    put(text, "memory.max", "4096\n");
    put(text, "memory.current", "0\n");
    (void)snprintf(text, sizeof text, "0::%s", groups);
    put("/proc/self", "cgroup", text);
    probe(BAD_ROOT);
    expect_chain(2, 1);
    assert_int_equal(machine.cgroup[0].limit.value, 4096);
}

static void long_and_strange_paths_are_shown_cut_and_plain(void **state) {
    (void)state;
    char name[201] = "";
    char line[512];
    char folder[512];
    char source[CHAIN_SOURCE_BYTES];
    start_v2();
    memset(name, 'n', sizeof name - 1);
    (void)snprintf(name, sizeof name, "%s", "\xc3\xa4\x1b[31m\xff"); /* a letter, a terminal command, no UTF-8 */
    name[strlen(name)] = 'n';
    (void)snprintf(line, sizeof line, "0::/%s/leaf\n", name);
    (void)snprintf(folder, sizeof folder, "/sys/fs/cgroup/%s/leaf", name);
    put("/proc/self", "cgroup", line);
    put(folder, "memory.max", "4096\n");
    put(folder, "memory.current", "0\n");
    probe(BAD_ROOT);
    expect_chain(2, 1);
    const char *path = machine.cgroup[0].path;
    assert_int_equal(strlen(path), sizeof machine.cgroup[0].path - 1);
    assert_memory_equal(path, "/\xc3\xa4?[31m?nnn", 12);
    assert_non_null(strstr(path, "nnn...nnn"));
    assert_string_equal(path + strlen(path) - 9, "nnnn/leaf");
    assert_int_equal(chain_left(&machine, source).value, 4096);
    assert_int_equal(bt_cgroup_limit(&machine, source).value, 4096);
    assert_memory_equal(source, "cgroup v2 /\xc3\xa4?[31m?n", 20);
    assert_non_null(strstr(source, "n/leaf memory.max"));
}

/* n_before bytes of other mounts, then the one that counts. */
static void put_long_mountinfo(size_t n_before) {
    static const char other[] = "8 1 0:8 / /var/lib/layers/0123456789 rw,relatime - overlay overlay rw\n";
    FILE *file = fopen(BAD_ROOT "/proc/self/mountinfo", "wb");
    assert_non_null(file);
    if (!file) return;
    size_t n = 0;
    for (; n + strlen(other) <= n_before; n += strlen(other))
        assert_true(fputs(other, file) >= 0);
    for (; n < n_before; n++)
        assert_true(fputc(n + 1 < n_before ? 'x' : '\n', file) != EOF);
    assert_true(fputs("9 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void mountinfo_longer_than_the_buffer_is_read_on(void **state) {
    (void)state;
    /* far behind it, and where the line falls on its end */
    static const size_t n_before[] = {(size_t)5 * BT_PROC_TEXT_MAX, BT_PROC_TEXT_MAX - 20, BT_PROC_TEXT_MAX};
    start_v2();
    for (size_t i = 0; i < sizeof n_before / sizeof n_before[0]; i++) {
        put_long_mountinfo(n_before[i]);
        probe(BAD_ROOT);
        expect_chain(2, 1);
        expect_available(927, "cgroup v2 /a memory.max");
    }
}

/* ---- parsers ---------------------------------------------------------------------------------------------------- */

static void path_lines_are_told_apart(void **state) {
    (void)state;
    char path[BT_PROC_PATH_MAX];
    static const char text[] =
        "13:name=memory:/named\n12:memoryx,xmemory:/x\n5:cpu,cpuacct:/c\n4:memory:/a:b c\r\n0::/u\n";
    assert_true(bt_cgroup_path_parse(text, "memory", path));
    assert_string_equal(path, "/a:b c");
    assert_true(bt_cgroup_path_parse(text, "cpuacct", path));
    assert_string_equal(path, "/c");
    assert_true(bt_cgroup_path_parse(text, NULL, path));
    assert_string_equal(path, "/u");
    assert_false(bt_cgroup_path_parse(text, "io", path));
    assert_false(bt_cgroup_path_parse("1::/not-unified\n0:memory:relative\n", NULL, path));
    assert_false(bt_cgroup_path_parse("0:memory:relative\n", "memory", path));
    assert_false(bt_cgroup_path_parse("", "memory", path));
}

static void expect_mount(const char *text, const char *controller, const char *group, const char *point, bool holds) {
    static bt_cgroup_mount mount;
    memset(&mount, 0, sizeof mount);
    bt_cgroup_mount_parse(text, controller, group, &mount);
    assert_int_equal(mount.found, point != NULL);
    if (!point) return;
    assert_string_equal(mount.point, point);
    assert_int_equal(mount.holds_group, holds);
}

static void mounts_are_chosen_by_what_they_show(void **state) {
    (void)state;
    /* optional fields, none or many; escapes; the controller among the super options */
    expect_mount("1 2 0:3 / /a\\040b rw - cgroup cgroup rw,memory\n", "memory", "/g", "/a b", true);
    expect_mount("1 2 0:3 / /a rw shared:1 master:2 - cgroup cgroup rw,cpu,memory\n", "memory", "/g", "/a", true);
    expect_mount("1 2 0:3 / /a rw - cgroup2 none rw,memory_recursiveprot\n", NULL, "/g", "/a", true);
    expect_mount("1 2 0:3 / /a\\9\\04 rw - cgroup2 none rw\n", NULL, "/g", "/a\\9\\04", true);
    /* not it: another type, another controller, too few fields, no absolute path */
    expect_mount("1 2 0:3 / /a rw,memory - tmpfs memory rw,memory\n", "memory", "/g", NULL, false);
    expect_mount("1 2 0:3 / /a rw - cgroup cgroup rw,memoryx\n", "memory", "/g", NULL, false);
    expect_mount("1 2 0:3 / /a rw cgroup2 none rw\n", NULL, "/g", NULL, false);
    expect_mount("1 2 0:3 / /a rw - cgroup2 none\n", NULL, "/g", NULL, false);
    expect_mount("1 2 0:3 x y rw - cgroup2 none rw\n", NULL, "/g", NULL, false);
    /* the one that shows most ancestors; of equals the later; inside before outside */
    static const char several[] = "1 2 0:3 /../.. /host rw - cgroup2 none rw\n"
                                  "1 2 0:3 /g /bind rw - cgroup2 none rw\n"
                                  "1 2 0:3 / /first rw - cgroup2 none rw\n"
                                  "1 2 0:3 / /second rw - cgroup2 none rw\n"
                                  "1 2 0:3 /g/h /deep rw - cgroup2 none rw\n";
    expect_mount(several, NULL, "/g/h", "/second", true);
    expect_mount("1 2 0:3 /g /bind rw - cgroup2 none rw\n", NULL, "/gh", "/bind", false);
    expect_mount("1 2 0:3 /g /bind rw - cgroup2 none rw\n", NULL, "/g", "/bind", true);
    expect_mount("1 2 0:3 / /m rw - cgroup2 none rw\n", NULL, "/../g", "/m", false);
}

static void limits_tell_none_from_malformed(void **state) {
    (void)state;
    static const char *const none[] = {"max\n",
                                       "9223372036854771712\n",
                                       "9223372036854710272\n",
                                       "9223372036854775807",
                                       "18446744073709551615\n",
                                       "4611686018427387904\n"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        bt_known limit = {true, 1};
        assert_true(bt_cgroup_limit_parse(none[i], &limit));
        assert_false(limit.known);
    }
    bt_known limit = {0};
    assert_true(bt_cgroup_limit_parse("4611686018427387903\n", &limit));
    assert_true(limit.known && limit.value == UINT64_C(4611686018427387903));
    assert_false(bt_cgroup_limit_parse("maximum\n", &limit));
    assert_true(limit.known);
}

static void stat_counts_clean_file_cache_only(void **state) {
    (void)state;
    static const char v2[] = "file 900\nshmem 100\ninactive_anon 5\ninactive_file 300\nactive_file 200\nfile_dirty "
                             "50\nfile_writeback 25\n";
    assert_int_equal(bt_cgroup_stat_parse(v2, 2).reclaimable_bytes, 425);
    assert_int_equal(bt_cgroup_stat_parse(v2, 1).reclaimable_bytes, 0);
    static const char v1[] = "inactive_file 1\nhierarchical_memory_limit 77\ntotal_inactive_file 30\n"
                             "total_active_file 20\ntotal_dirty 60\n";
    assert_int_equal(bt_cgroup_stat_parse(v1, 1).reclaimable_bytes, 0); /* more dirty than cached */
    assert_int_equal(bt_cgroup_stat_parse(v1, 1).hierarchical_limit.value, 77);
    assert_false(bt_cgroup_stat_parse(v1, 2).hierarchical_limit.known);
    assert_false(bt_cgroup_stat_parse("hierarchical_memory_limit 9223372036854771712\n", 1).hierarchical_limit.known);
    /* a number that is none: then nothing counts, not half of it */
    assert_int_equal(bt_cgroup_stat_parse("inactive_file 300\nfile_dirty -1\n", 2).reclaimable_bytes, 0);
    assert_int_equal(bt_cgroup_stat_parse("inactive_file 300\nactive_file x\n", 2).reclaimable_bytes, 0);
    assert_int_equal(bt_cgroup_stat_parse("inactive_file 300 4\n", 2).reclaimable_bytes, 0);
}

static void cpu_max_is_whole_cores(void **state) {
    (void)state;
    bt_known cores = {0};
    assert_true(bt_cgroup_cpu_max_parse("200000 100000\n", &cores));
    assert_true(cores.known && cores.value == 2);
    assert_true(bt_cgroup_cpu_max_parse("200001 100000\n", &cores));
    assert_true(cores.known && cores.value == 3);
    assert_true(bt_cgroup_cpu_max_parse("1000 1000000\r\n", &cores));
    assert_true(cores.known && cores.value == 1);
    assert_true(bt_cgroup_cpu_max_parse("max 100000\n", &cores));
    assert_false(cores.known);
    static const char *const bad[] = {"", "max\n", "1 0\n", "-2 100000\n", "1 2 3\n", "1 2\n3", "a b\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(bt_cgroup_cpu_max_parse(bad[i], &cores));
}

static void the_lowest_quota_of_the_chain_counts(void **state) {
    (void)state;
    start_v2();
    put("/proc/self", "cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c", "cpu.max", "600000 100000\n");
    put("/sys/fs/cgroup/a/b", "cpu.max", "noise\n"); /* costs speed at most: passed over */
    put("/sys/fs/cgroup/a", "cpu.max", "300000 100000\n");
    bt_known cores = bt_cgroup_cores(BAD_ROOT);
    assert_true(cores.known && cores.value == 3);
    put("/sys/fs/cgroup/a", "cpu.max", "900000 100000\n");
    cores = bt_cgroup_cores(BAD_ROOT);
    assert_true(cores.known && cores.value == 6);
}

static void a_machine_from_a_file_names_its_file(void **state) {
    (void)state;
    memset(&machine, 0, sizeof machine);
    machine.cgroup_version = 1;
    machine.n_cgroup_levels = 2;
    for (int i = 0; i < 2; i++) {
        memcpy(machine.cgroup[i].path, i ? "/" : "/a", i ? 2 : 3);
        machine.cgroup[i].limit = (bt_known){true, 2 * MIB};
    }
    expect_available(2, "cgroup v1 /a memory.limit_in_bytes"); /* equal: the one nearer to the leaf */
    machine.cgroup[1].usage_bytes = 1;
    machine.cgroup_version = 2;
    char source[CHAIN_SOURCE_BYTES];
    assert_int_equal(chain_left(&machine, source).value, 2 * MIB - 1);
    assert_string_equal(source, "cgroup v2 / memory.max");
}

int main(void) {
    make_folder(BT_TEST_OUT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_ancestor_is_tighter_than_the_leaf),
        cmocka_unit_test(v2_container_strips_the_mounts_root),
        cmocka_unit_test(v2_namespace_reads_the_mount_point),
        cmocka_unit_test(v2_path_outside_the_mount_uses_the_mount_point),
        cmocka_unit_test(user_case_25_clean_page_cache_is_not_use),
        cmocka_unit_test(v1_chain_counts_children),
        cmocka_unit_test(user_case_26_v1_sentinel_is_no_limit),
        cmocka_unit_test(v1_container_knows_the_limit_above_it),
        cmocka_unit_test(hybrid_reads_v1_where_the_controller_is),
        cmocka_unit_test(no_cgroup_is_version_0_without_a_reason),
        cmocka_unit_test(v2_root_alone_has_no_level),
        cmocka_unit_test(quota_rounds_up_and_is_at_least_one_core),
        cmocka_unit_test(a_level_that_cannot_be_read_spoils_the_chain),
        cmocka_unit_test(odd_files_are_read_for_what_they_say),
        cmocka_unit_test(v1_group_that_is_not_charged_upwards_ends_the_chain),
        cmocka_unit_test(too_deep_a_chain_is_no_guess),
        cmocka_unit_test(long_and_strange_paths_are_shown_cut_and_plain),
        cmocka_unit_test(mountinfo_longer_than_the_buffer_is_read_on),
        cmocka_unit_test(path_lines_are_told_apart),
        cmocka_unit_test(mounts_are_chosen_by_what_they_show),
        cmocka_unit_test(limits_tell_none_from_malformed),
        cmocka_unit_test(stat_counts_clean_file_cache_only),
        cmocka_unit_test(cpu_max_is_whole_cores),
        cmocka_unit_test(the_lowest_quota_of_the_chain_counts),
        cmocka_unit_test(a_machine_from_a_file_names_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
