/* SPDX-License-Identifier: MIT
 * discover.c: the models of a folder.
 *
 * Folder after folder, DEPTH_MAX deep, without names that begin with a dot; each folder once, by device and inode, so
 * that links which lead back end. Links to files are followed: the caches of downloaders are made of them. What ends in
 * .gguf is a model, but
 *   - a later part of a set (its first part stands for it; a set that is not whole is a note and no model),
 *   - a projector ("mmproj" in its name), which is given to the model beside it: to the only one of the folder, or to
 *     those whose name begins with the projector's, without mmproj and without its type ("x-mmproj-f16" to "x-Q4_K_M"),
 *   - what is no GGUF file by its first 8 bytes, which is a note.
 * Models come in the order of their paths, so that ids and their "-2" do not depend on the disk. Bounded: FOLDERS_MAX
 * folders, FILES_MAX GGUF files; what is beyond is left out with a note. */
#include "base/error.h"
#include "base/os.h"
#include "model/shards.h"
#include "router/found.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEPTH_MAX   4u
#define FOLDERS_MAX 1024u
#define FILES_MAX   2048u
#define ARENA_MAX   (UINT64_C(16) << 20)
#define STEM_MIN    3u /* letters of a projector's name that say anything */
#define MARK        "mmproj"

typedef struct folder {
    const char *path;
    uint32_t depth;
    dev_t device;
    ino_t inode;
} folder;

typedef struct search {
    bt_config *config;
    char *const *args; /* for each model, or NULL */
    bt_config_notes *notes;
    bt_error *err;
    bt_arena *arena;
    folder folders[FOLDERS_MAX];
    const char *files[FILES_MAX];
    uint32_t n_folders, n_files;
    bool cut;
} search;

static bt_status no_memory(const search *s) {
    return bt_fail(s->err, BT_E_NOMEM, "models_dir", BT_MEASURE_NONE, 0, 0, "no memory to look through %s",
                   s->config->models_dir);
}

static void note(const search *s, const char *fmt, ...) BT_PRINTF(2, 3);
static void note(const search *s, const char *fmt, ...) {
    if (!s->notes) return;
    if (s->notes->n == BT_CONFIG_NOTES_MAX) {
        s->notes->n_left_out++;
        return;
    }
    bt_config_note *item = &s->notes->items[s->notes->n++];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(item->text, sizeof item->text, fmt, args);
    va_end(args);
    if (n < 0) item->text[0] = '\0';
    item->text[bt_utf8_fit(item->text, strlen(item->text))] = '\0';
    item->line = 0;
}

/* ---- looking ---------------------------------------------------------------------------------------------------- */

static bool ends_in_gguf(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
}

static bt_status add_folder(search *s, const char *path, uint32_t depth, const struct stat *is) {
    for (uint32_t i = 0; i < s->n_folders; i++) {
        if (s->folders[i].device == is->st_dev && s->folders[i].inode == is->st_ino) return BT_OK;
    }
    if (s->n_folders == FOLDERS_MAX) {
        s->cut = true;
        return BT_OK;
    }
    s->folders[s->n_folders++] = (folder){path, depth, is->st_dev, is->st_ino};
    return BT_OK;
}

static bt_status look_at(search *s, const folder *in, const char *name) {
    struct stat is;
    size_t n_folder = strlen(in->path);
    size_t n_name = strlen(name);
    if (name[0] == '.') return BT_OK;
    char *path = bt_arena_alloc(s->arena, n_folder + n_name + 2);
    if (!path) return no_memory(s);
    memcpy(path, in->path, n_folder);
    if (n_folder > 0 && path[n_folder - 1] != '/') path[n_folder++] = '/';
    memcpy(path + n_folder, name, n_name);
    if (stat(path, &is) != 0) { /* a link to nowhere */
        if (ends_in_gguf(name)) note(s, "%.120s: %s", name, strerror(errno));
        return BT_OK;
    }
    if (S_ISDIR(is.st_mode)) return in->depth < DEPTH_MAX ? add_folder(s, path, in->depth + 1, &is) : BT_OK;
    if (!ends_in_gguf(name)) return BT_OK;
    if (s->n_files == FILES_MAX) {
        s->cut = true;
    } else {
        s->files[s->n_files++] = path;
    }
    return BT_OK;
}

static bt_status look_through(search *s, uint32_t i) {
    folder in = s->folders[i];
    bt_os_folder *open = bt_os_folder_open(in.path);
    if (!open) {
        int sys = errno;
        if (sys == ENOMEM) return no_memory(s);
        if (i == 0) return bt_fail_sys(s->err, sys, "models_dir", "%s", in.path);
        note(s, "%.120s: %s", bt_path_file(in.path), strerror(sys));
        return BT_OK;
    }
    bt_status status = BT_OK;
    const char *name = NULL;
    while (status == BT_OK && (name = bt_os_folder_next(open)))
        status = look_at(s, &in, name);
    bt_os_folder_close(open);
    return status;
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* ---- projectors ------------------------------------------------------------------------------------------------- */

static const char *find_mark(const char *name) {
    for (; *name; name++) {
        if (strncasecmp(name, MARK, sizeof MARK - 1) == 0) return name;
    }
    return NULL;
}

static bool same_folder(const char *a, const char *b) {
    size_t n = (size_t)(bt_path_file(a) - a);
    return n == (size_t)(bt_path_file(b) - b) && strncmp(a, b, n) == 0;
}

static bool is_later_part(const char *path) {
    size_t n_prefix = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    return bt_shard_name_parse(path, &n_prefix, &index, &count) && index > 0;
}

/* A model's file, or the first of its parts. */
static bool is_model(const char *path) {
    return !find_mark(bt_path_file(path)) && !is_later_part(path);
}

/* The projector's name without mmproj and its type, in pieces: what stands before the mark, else behind it. */
static void stem_of(const char *path, const char **ret, size_t *ret_n) {
    static const char *const types[] = {"f16", "f32", "bf16", "q8_0", "fp16", "model"};
    const char *name = bt_path_file(path);
    const char *mark = find_mark(name);
    size_t n = (size_t)(mark - name);
    if (n == 0) {
        name = mark + sizeof MARK - 1;
        n = strlen(name) - 5; /* .gguf */
        while (n > 0 && !isalnum((unsigned char)*name)) {
            name++;
            n--;
        }
    }
    for (bool again = true; again;) {
        again = false;
        while (n > 0 && !isalnum((unsigned char)name[n - 1]))
            n--;
        for (size_t i = 0; i < sizeof types / sizeof *types && !again; i++) {
            size_t n_type = strlen(types[i]);
            again = n >= n_type && strncasecmp(name + n - n_type, types[i], n_type) == 0 &&
                    (n == n_type || !isalnum((unsigned char)name[n - n_type - 1]));
            if (again) n -= n_type;
        }
    }
    *ret = name;
    *ret_n = n;
}

static bool belongs(const char *projector, const char *model) {
    const char *stem = NULL;
    size_t n = 0;
    stem_of(projector, &stem, &n);
    const char *name = bt_path_file(model);
    return n >= STEM_MIN && strncasecmp(name, stem, n) == 0 && !isalnum((unsigned char)name[n]);
}

static const char *projector_of(const search *s, const char *model) {
    const char *only = NULL;
    uint32_t n_models = 0;
    for (uint32_t i = 0; i < s->n_files; i++) {
        const char *other = s->files[i];
        if (!same_folder(other, model)) continue;
        if (is_model(other)) n_models++;
        if (!find_mark(bt_path_file(other))) continue;
        if (belongs(other, model)) return other;
        if (!only) only = other;
    }
    return n_models == 1 ? only : NULL;
}

/* ---- models ----------------------------------------------------------------------------------------------------- */

/* Its projector, and behind it, so that they win, the words for each model. */
static bt_status words_of(search *s, const char *path, char *const **ret) {
    static char mmproj[] = "--mmproj";
    const char *projector = projector_of(s, path);
    uint32_t n_args = 0, n = 0;
    *ret = s->args;
    if (!projector) return BT_OK;
    while (s->args && s->args[n_args])
        n_args++;
    char **words = bt_arena_array(s->arena, (uint64_t)n_args + 3, sizeof *words);
    if (!words) return no_memory(s);
    words[n++] = mmproj;
    words[n++] = bt_arena_strdup(s->arena, projector);
    if (!words[1]) return no_memory(s);
    for (uint32_t i = 0; i < n_args; i++)
        words[n++] = s->args[i];
    words[n] = NULL;
    *ret = words;
    return BT_OK;
}

static bt_status add_model(search *s, const char *path) {
    struct stat file;
    char missing[1024];
    bool added = false;
    const char *why = bt_found_why_not(path, &file);
    if (why) {
        note(s, "%.120s: %s", bt_path_file(path), why);
        return BT_OK;
    }
    if (!bt_found_missing(path, missing, sizeof missing) || missing[0] != '\0') {
        note(s, "%.80s: %.80s is missing", bt_path_file(path), missing[0] ? bt_path_file(missing) : "a part");
        return BT_OK;
    }
    char *const *words = NULL;
    BT_TRY(words_of(s, path, &words));
    return bt_found_add(s->config, path, &file, words, &added, s->err);
}

/* Later parts whose first part is not there. */
static void note_orphan(const search *s, uint32_t i) {
    size_t n_prefix = 0;
    size_t n_before = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    const char *path = s->files[i];
    if (!bt_shard_name_parse(path, &n_prefix, &index, &count) || index == 0) return;
    if (i > 0 && bt_shard_name_parse(s->files[i - 1], &n_before, &index, &count) && n_before == n_prefix &&
        strncmp(path, s->files[i - 1], n_prefix) == 0) {
        return; /* sorted: what comes before it is of its set, and has said it, or is the first */
    }
    note(s, "%.120s: the first part of its set is missing", bt_path_file(path));
}

static bt_status find_models(search *s) {
    struct stat is;
    const char *path = s->config->models_dir;
    if (stat(path, &is) != 0) return bt_fail_sys(s->err, errno, "models_dir", "%s", path);
    BT_TRY(add_folder(s, path, 0, &is));
    for (uint32_t i = 0; i < s->n_folders; i++)
        BT_TRY(look_through(s, i));
    qsort(s->files, s->n_files, sizeof *s->files, by_path);
    for (uint32_t i = 0; i < s->n_files; i++) {
        if (s->config->n_models == BT_CONFIG_MODELS_MAX) {
            note(s, "models_dir: more than %u models; the rest is left out", BT_CONFIG_MODELS_MAX);
            break;
        }
        if (is_model(s->files[i])) {
            BT_TRY(add_model(s, s->files[i]));
        } else {
            note_orphan(s, i);
        }
    }
    if (s->cut) note(s, "models_dir: more than %u folders or %u files; the rest is left out", FOLDERS_MAX, FILES_MAX);
    return BT_OK;
}

bt_status bt_config_discover(bt_config *config, char *const *args, bt_config_notes *notes, bt_error *err) {
    if (!config->models_dir) return BT_OK;
    bt_arena *arena = bt_arena_open(ARENA_MAX, 64u << 10);
    search *s = arena ? bt_arena_alloc(arena, sizeof *s) : NULL;
    bt_status status;
    if (s) {
        *s = (search){.config = config, .args = args, .notes = notes, .err = err, .arena = arena};
        status = find_models(s);
    } else {
        status = bt_fail(err, BT_E_NOMEM, "models_dir", BT_MEASURE_NONE, 0, 0, "no memory to look through %s",
                         config->models_dir);
    }
    bt_arena_close(arena);
    return status;
}
