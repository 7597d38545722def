/* SPDX-License-Identifier: MIT
 *
 * nearby.c: GGUF files nearby, when there is none of the name that was asked for: the one that is spelled most like it
 * first, then the others in order.
 *
 * A hint and no search: at most SCAN_MAX names of the folder that was named are looked at, of the current one where
 * there are none, and nothing below. Names of a folder are whoever's, and are escaped. Nothing of it is an error: what
 * cannot be looked at says nothing. */
#include "cli/nearby.h"

#include "base/heap.h"
#include "base/log.h"
#include "base/option.h"
#include "base/text.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>

#define NEARBY_MAX     5    /* names shown */
#define SCAN_MAX       4096 /* directory entries looked at */
#define HINT_MAX_BYTES 4096
#define DIR_NAME_MAX   1024

/* The files that a person would name: no later shards of a set ("-00002-of-00003.gguf"). */
static bool is_model(const char *name) {
    if (name[0] == '.' || !bt_ends_with(name, ".gguf")) return false;
    const char *of = strstr(name, "-of-");
    return !of || of - name < 6 || strncmp(of - 6, "-00001", 6) == 0;
}

typedef struct nearby {
    const char *wanted; /* the file that was asked for */
    char *nearest;      /* by spelling, or NULL; names stand behind n_prefix bytes of directory */
    size_t n_prefix;
    char *names[NEARBY_MAX]; /* sorted; the first of all in order */
    size_t n;
} nearby;

static void keep_nearest(nearby *found, const char *name) {
    const char *both[] = {name + found->n_prefix, found->nearest ? found->nearest + found->n_prefix : NULL};
    if (bt_nearest(found->wanted, both, found->nearest ? 2 : 1) != both[0]) return;
    char *copy = bt_heap_strdup(name);
    if (!copy) return; /* a worse hint */
    bt_heap_free(found->nearest);
    found->nearest = copy;
}

/* Takes name, or releases it. */
static void keep(nearby *found, char *name) {
    size_t at = 0;
    while (at < found->n && strcmp(found->names[at], name) < 0) {
        at++;
    }
    bool known = at < found->n && strcmp(found->names[at], name) == 0;
    if (known || at == NEARBY_MAX) {
        bt_heap_free(name);
        return;
    }
    if (found->n == NEARBY_MAX) bt_heap_free(found->names[--found->n]);
    memmove(&found->names[at + 1], &found->names[at], (found->n - at) * sizeof *found->names);
    found->names[at] = name;
    found->n++;
}

/* prefix: how the directory is written before its names, "" for the current one. */
static void look(nearby *found, const char *directory, const char *prefix) {
    DIR *dir = opendir(directory);
    if (!dir) return; /* the hint is not worth an error of its own */
    struct dirent *entry = NULL;
    for (size_t i = 0; i < SCAN_MAX && (entry = readdir(dir)) != NULL; i++) {
        if (!is_model(entry->d_name) || entry->d_type == DT_DIR) continue;
        bt_text name;
        bt_text_init(&name, HINT_MAX_BYTES);
        bt_text_add_escaped(&name, prefix, strlen(prefix));
        found->n_prefix = name.n_bytes;
        bt_text_add_escaped(&name, entry->d_name, strlen(entry->d_name));
        if (name.failed) {
            bt_text_done(&name);
        } else {
            keep_nearest(found, name.data);
            keep(found, name.data);
        }
    }
    (void)closedir(dir);
}

static void print(nearby *found) {
    size_t n_shown = 0;
    bt_text text;
    bt_text_init(&text, (size_t)HINT_MAX_BYTES * (NEARBY_MAX + 1));
    bt_text_add(&text, "GGUF files nearby:");
    if (found->nearest) {
        bt_text_addf(&text, " %s", found->nearest);
        n_shown = 1;
    }
    for (size_t i = 0; i < found->n; i++) {
        bool known = found->nearest && strcmp(found->nearest, found->names[i]) == 0;
        if (!known && n_shown < NEARBY_MAX) bt_text_addf(&text, "%s %s", n_shown++ ? "," : "", found->names[i]);
        bt_heap_free(found->names[i]);
    }
    bt_heap_free(found->nearest);
    const bt_log_entry entry = {.level = BT_LOG_ERROR, .plain = true, .message = bt_text_str(&text)};
    bt_log_send(&entry, text.n_bytes); /* belongs to the error before it */
    bt_text_done(&text);
}

void bt_cli_say_nearby(const char *path) {
    const char *slash = strrchr(path, '/');
    nearby found = {.wanted = slash ? slash + 1 : path};
    char directory[DIR_NAME_MAX];
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n > 0 && n < sizeof directory) {
        memcpy(directory, path, n);
        directory[n] = '\0';
        look(&found, directory, directory);
    }
    if (found.n == 0) look(&found, ".", "");
    if (found.n > 0) print(&found);
}
