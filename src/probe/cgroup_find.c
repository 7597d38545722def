/* SPDX-License-Identifier: MIT
 * cgroup_find.c: where the groups of this process are.
 *
 * /proc/self/cgroup gives the path of a group within its hierarchy, /proc/self/mountinfo which part of the hierarchy
 * is mounted where. The two meet in the mount's root field:
 *
 *   cgroup line    0::/kubepods/pod7/web
 *   mount          root /kubepods/pod7  at /sys/fs/cgroup   ->  the leaf is /sys/fs/cgroup/web
 *
 * In a container the path may lie outside of every mount ("/../web", or the host's path beside a mount of its own);
 * then only the mount point can be read, which is the container's own group. Of several mounts that show the group the
 * one that shows most ancestors wins, and among equals the later, which covers the earlier. A controller that is
 * mounted as v1 is read there even when a unified hierarchy exists beside it (hybrid hosts): its limits are there.
 * Bound: mountinfo is read in at most N_WINDOW_MAX windows. Left out: named v1 hierarchies, which hold no controller.
 */
#include "base/error.h"
#include "probe/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* 64 windows of 64 KiB: twice what fs.mount-max lets one namespace mount (100,000) takes at 20 bytes a line */
#define N_WINDOW_MAX 64

static bool lists(bt_span list, const char *name) {
    bt_span item;
    while (bt_span_part(&list, ',', &item)) {
        if (bt_span_is(item, name)) return true;
    }
    return false;
}

/* "4:memory:/a/b", "0::/a/b": the path may hold colons itself. */
bool bt_cgroup_path_parse(const char *text, const char *controller, char ret_path[BT_PROC_PATH_MAX]) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    while (bt_span_line(&rest, &line)) {
        bt_span id;
        bt_span controllers;
        if (!bt_span_part(&line, ':', &id) || !bt_span_part(&line, ':', &controllers)) continue;
        bool wanted = controller ? lists(controllers, controller) : bt_span_is(id, "0") && controllers.n_bytes == 0;
        if (!wanted || !bt_span_starts(line, "/") || line.n_bytes >= BT_PROC_PATH_MAX) continue;
        memcpy(ret_path, line.at, line.n_bytes);
        ret_path[line.n_bytes] = '\0';
        return true;
    }
    return false;
}

/* mountinfo writes space, tab, newline and backslash as \040 \011 \012 \134 (proc(5)). false: too long. */
static bool unescape(bt_span span, char dest[BT_PROC_PATH_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < span.n_bytes; i++) {
        char c = span.at[i];
        if (c == '\\' && span.n_bytes - i > 3) {
            unsigned value = 0;
            size_t k = 1;
            for (; k <= 3 && span.at[i + k] >= '0' && span.at[i + k] <= '7'; k++)
                value = value * 8 + (unsigned)(span.at[i + k] - '0');
            if (k == 4 && value > 0 && value < 256) {
                c = (char)(unsigned char)value;
                i += 3;
            }
        }
        if (n + 1 >= BT_PROC_PATH_MAX) return false;
        dest[n++] = c;
    }
    dest[n] = '\0';
    return true;
}

static bool has_dots(const char *path) {
    bt_span rest = bt_span_of(path);
    bt_span part;
    while (bt_span_part(&rest, '/', &part)) {
        if (bt_span_is(part, "..")) return true;
    }
    return false;
}

/* Whether group is root or lies below it. Paths that leave their namespace ("/../x") lie nowhere we can see. */
static bool holds(const char *root, const char *group) {
    if (has_dots(root) || has_dots(group)) return false;
    if (strcmp(root, "/") == 0) return true;
    size_t n = strlen(root);
    return strncmp(group, root, n) == 0 && (group[n] == '/' || group[n] == '\0');
}

/* The fields of a mountinfo line that matter: "36 35 98:0 ROOT POINT rw [optional...] - TYPE SOURCE OPTIONS". */
static bool split_mount(bt_span line, bt_span *root, bt_span *point, bt_span *type, bt_span *options) {
    bt_span word;
    for (int i = 0; i < 3; i++) {
        if (!bt_span_word(&line, &word)) return false;
    }
    if (!bt_span_word(&line, root) || !bt_span_word(&line, point)) return false;
    if (root->at[0] != '/' || point->at[0] != '/') return false;
    do {
        if (!bt_span_word(&line, &word)) return false;
    } while (!bt_span_is(word, "-"));
    return bt_span_word(&line, type) && bt_span_word(&line, &word) && bt_span_word(&line, options);
}

static bool is_better(const bt_cgroup_mount *best, bool holds_group, bt_span root) {
    if (!best->found || holds_group != best->holds_group) return !best->found || holds_group;
    return !holds_group || root.n_bytes <= strlen(best->root);
}

void bt_cgroup_mount_parse(const char *text, const char *controller, const char *group, bt_cgroup_mount *best) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    while (bt_span_line(&rest, &line)) {
        bt_span root;
        bt_span point;
        bt_span type;
        bt_span options;
        if (!split_mount(line, &root, &point, &type, &options)) continue;
        bool wanted =
            controller ? bt_span_is(type, "cgroup") && lists(options, controller) : bt_span_is(type, "cgroup2");
        char path[BT_PROC_PATH_MAX];
        if (!wanted || !unescape(root, path)) continue;
        bool holds_group = holds(path, group);
        if (!is_better(best, holds_group, bt_span_of(path))) continue;
        /* A point that is too long to use leaves what was found before in place. */
        char at[BT_PROC_PATH_MAX];
        if (!unescape(point, at)) continue;
        memcpy(best->root, path, strlen(path) + 1);
        memcpy(best->point, at, strlen(at) + 1);
        best->found = true;
        best->holds_group = holds_group;
    }
}

static bt_status find_mount(bt_cgroup_walk *walk, const char *controller, const char *group, bt_error *err) {
    uint64_t offset = 0;
    for (int i = 0; i < N_WINDOW_MAX; i++) {
        int rc = bt_proc_read(walk->root, "/proc/self/mountinfo", offset, &walk->text);
        if (rc < 0) return bt_fail_sys(err, -rc, "cgroup", "cannot read /proc/self/mountinfo");
        bt_cgroup_mount_parse(walk->text.data, controller, group, &walk->mount);
        if (!walk->text.cut) break;
        offset += walk->text.n_bytes;
    }
    if (walk->mount.found) return BT_OK;
    return bt_fail(err, BT_E_UNSUPPORTED, "cgroup", BT_MEASURE_NONE, 0, 0, "cgroup v%u with %s is mounted nowhere",
                   controller ? 1u : 2u, controller ? controller : "this process");
}

static void drop_last_slashes(char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        path[--n] = '\0';
}

bt_status bt_cgroup_find(const char *root, const char *controller, bt_cgroup_walk *walk, bt_error *err) {
    walk->root = root;
    walk->version = 0;
    walk->mount = (bt_cgroup_mount){0};
    walk->below[0] = '\0';
    int rc = bt_proc_read(root, "/proc/self/cgroup", 0, &walk->text);
    if (bt_proc_is_absent(rc)) return BT_OK;
    if (rc < 0) return bt_fail_sys(err, -rc, "cgroup", "cannot read /proc/self/cgroup");
    char *group = walk->path;
    uint32_t version = 1;
    if (!bt_cgroup_path_parse(walk->text.data, controller, group)) {
        version = 2;
        if (!bt_cgroup_path_parse(walk->text.data, NULL, group)) return BT_OK;
    }
    BT_TRY(find_mount(walk, version == 1 ? controller : NULL, group, err));
    if (walk->mount.holds_group) {
        size_t n = strcmp(walk->mount.root, "/") == 0 ? 0 : strlen(walk->mount.root);
        memcpy(walk->below, group + n, strlen(group + n) + 1);
        drop_last_slashes(walk->below);
    }
    walk->version = version;
    return BT_OK;
}

int bt_cgroup_read(bt_cgroup_walk *walk, const char *file) {
    int n = snprintf(walk->path, sizeof walk->path, "%s%s/%s", walk->mount.point, walk->below, file);
    if (n < 0 || (size_t)n >= sizeof walk->path) return -ENAMETOOLONG;
    return bt_proc_read(walk->root, walk->path, 0, &walk->text);
}

bool bt_cgroup_climb(bt_cgroup_walk *walk) {
    char *slash = strrchr(walk->below, '/');
    if (!slash) return false;
    *slash = '\0';
    drop_last_slashes(walk->below);
    return true;
}

uint32_t bt_cgroup_depth(const bt_cgroup_walk *walk) {
    uint32_t n_levels = 1;
    bt_span rest = bt_span_of(walk->below);
    bt_span part;
    while (bt_span_part(&rest, '/', &part)) {
        if (part.n_bytes > 0) n_levels++;
    }
    return n_levels;
}
