/* SPDX-License-Identifier: MIT
 * add_file.c: a GGUF file as a model of the configuration.
 *
 * Its id is the file's name without .gguf and without the number of a part; a second file of that name is "name-2". The
 * same file under two names, by device and inode, is one model: what the configuration already names, in model: or as a
 * word of a command that ends in .gguf, is not there a second time. Only the first 8 bytes are looked at here; whether
 * the header is sound is found when the model is priced. Bounded by BT_CONFIG_MODELS_MAX and BT_CONFIG_NAMES_MAX. */
#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "model/shards.h"
#include "router/found.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SUFFIX       ".gguf"
#define SUFFIX_BYTES (sizeof SUFFIX - 1)
#define ROOM_FIRST   8u
#define VERSION_MAX  16u /* of the format; 3 is today's. In the other byte order it is far above */

static bt_status no_memory(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "config", BT_MEASURE_NONE, 0, 0, "no memory for a model");
}

const char *bt_found_why_not(const char *path, struct stat *ret) {
    unsigned char head[8] = {0};
    if (stat(path, ret) != 0) return strerror(errno);
    if (!S_ISREG(ret->st_mode)) return "it is no file";
    int fd = bt_os_open(path, false);
    if (fd < 0) return strerror(-fd);
    int64_t got = bt_os_pread(fd, head, sizeof head, 0);
    (void)bt_os_close(fd);
    if (got < 0) return strerror((int)-got);
    if (got < (int64_t)sizeof head) return "it is cut";
    if (memcmp(head, "GGUF", 4) != 0) return "it is no GGUF file";
    uint32_t version = head[4] | (uint32_t)head[5] << 8 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 24;
    return version >= 1 && version <= VERSION_MAX ? NULL : "its GGUF version or byte order is not known";
}

bool bt_found_missing(const char *path, char *ret, size_t capacity) {
    size_t n_prefix = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    ret[0] = '\0';
    if (!bt_shard_name_parse(path, &n_prefix, &index, &count)) return true;
    for (uint32_t i = 0; i < count; i++) {
        struct stat file;
        int n = snprintf(ret, capacity, "%.*s-%05" PRIu32 "-of-%05" PRIu32 SUFFIX, (int)n_prefix, path, i + 1, count);
        if (n < 0 || (size_t)n >= capacity) return false;
        if (stat(ret, &file) != 0) return true;
    }
    ret[0] = '\0';
    return true;
}

/* ---- what is there already -------------------------------------------------------------------------------------- */

static bool same_file(const char *path, const struct stat *file) {
    struct stat other;
    return stat(path, &other) == 0 && other.st_dev == file->st_dev && other.st_ino == file->st_ino;
}

static bool names_file(char *const *words, const struct stat *file) {
    for (; words && *words; words++) {
        const char *path = strchr(*words, '='); /* --model=FILE */
        if (!bt_ends_with(*words, SUFFIX)) continue;
        if (same_file(*words, file) || (path && same_file(path + 1, file))) return true;
    }
    return false;
}

static bool is_there(const bt_config *config, const struct stat *file) {
    for (uint32_t i = 0; i < config->n_models; i++) {
        const bt_config_model *m = &config->models[i];
        if (m->model ? same_file(m->model, file) : names_file(m->cmd, file)) return true;
    }
    return false;
}

/* ---- its id ----------------------------------------------------------------------------------------------------- */

static void plain_name(const char *path, char name[BT_CONFIG_ID_MAX + 1]) {
    const char *file = bt_path_file(path);
    size_t n = strlen(file);
    size_t n_prefix = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    if (n > SUFFIX_BYTES && strcasecmp(file + n - SUFFIX_BYTES, SUFFIX) == 0) n -= SUFFIX_BYTES;
    if (bt_shard_name_parse(file, &n_prefix, &index, &count) && n_prefix > 0) n = n_prefix;
    size_t room = BT_CONFIG_ID_MAX - 8; /* for "-2" and the like */
    if (n > room) n = bt_utf8_fit(file, room);
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        size_t length = bt_utf8_length(file + i, n - i);
        bool bad = length == 0 || bt_utf8_is_control(file + i, length);
        if (length == 0) length = 1;
        if (bad) {
            name[to++] = '_';
        } else {
            memcpy(name + to, file + i, length);
            to += length;
        }
        i += length;
    }
    while (to > 0 && name[to - 1] == ' ')
        to--;
    if (to == 0) name[to++] = '_';
    if (name[0] == ' ') name[0] = '_';
    name[to] = '\0';
}

static const char *make_id(bt_config *config, const char *path) {
    char plain[BT_CONFIG_ID_MAX + 1];
    char id[BT_CONFIG_ID_MAX + 1];
    plain_name(path, plain);
    memcpy(id, plain, sizeof id);
    for (uint32_t i = 2; bt_config_find(config, id); i++)
        (void)snprintf(id, sizeof id, "%.120s-%" PRIu32, plain, i); /* ends: at most BT_CONFIG_NAMES_MAX are taken */
    return bt_arena_strdup(config->arena, id);
}

/* ---- adding ----------------------------------------------------------------------------------------------------- */

static bt_status make_room(bt_config *config, bt_error *err) {
    uint32_t n_names = config->n_models;
    for (uint32_t i = 0; i < config->n_models; i++)
        n_names += config->models[i].n_aliases;
    if (config->n_models == BT_CONFIG_MODELS_MAX || n_names >= BT_CONFIG_NAMES_MAX) {
        return bt_fail(err, BT_E_LIMIT, "config", BT_MEASURE_ITEMS, (uint64_t)config->n_models + 1, config->n_models,
                       "more than %u models, or %u names of them", BT_CONFIG_MODELS_MAX, BT_CONFIG_NAMES_MAX);
    }
    if (config->n_models < config->n_models_room) return BT_OK;
    uint32_t room = config->n_models < ROOM_FIRST ? ROOM_FIRST : 2 * config->n_models;
    bt_config_model *models = bt_arena_array(config->arena, room, sizeof *models);
    if (!models) return no_memory(err);
    if (config->n_models > 0) memcpy(models, config->models, config->n_models * sizeof *models);
    config->models = models; /* what was before stays in the arena: less than what is now */
    config->n_models_room = room;
    return BT_OK;
}

static bt_status copy_words(bt_config *config, char *const *words, char *const **ret, bt_error *err) {
    uint32_t n = 0;
    while (words[n])
        n++;
    if (n > BT_CONFIG_WORDS_MAX) {
        return bt_fail(err, BT_E_LIMIT, "config", BT_MEASURE_ITEMS, n, BT_CONFIG_WORDS_MAX,
                       "too many words for a command");
    }
    char **copy = bt_arena_array(config->arena, (uint64_t)n + 1, sizeof *copy);
    if (!copy) return no_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = bt_arena_strdup(config->arena, words[i]);
        if (!copy[i]) return no_memory(err);
    }
    *ret = copy;
    return BT_OK;
}

bt_status bt_found_add(bt_config *config, const char *path, const struct stat *file, char *const *args, bool *ret_added,
                       bt_error *err) {
    *ret_added = false;
    if (is_there(config, file)) return BT_OK;
    BT_TRY(make_room(config, err));
    bt_config_model model = config->defaults;
    if (args) BT_TRY(copy_words(config, args, &model.args, err));
    model.model = bt_arena_strdup(config->arena, path);
    model.id = make_id(config, path);
    model.proxy = "http://127.0.0.1:${PORT}";
    model.uses_port = true;
    if (!model.model || !model.id) return no_memory(err);
    config->models[config->n_models++] = model;
    *ret_added = true;
    return BT_OK;
}

bt_status bt_config_add_file(bt_config *config, const char *path, char *const *args, bool *ret_added, bt_error *err) {
    struct stat file;
    char missing[1024];
    size_t n_prefix = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    *ret_added = false;
    const char *why = bt_found_why_not(path, &file);
    if (!why && bt_shard_name_parse(path, &n_prefix, &index, &count) && index > 0)
        why = "it is not the first of its parts";
    if (why) return bt_fail(err, BT_E_ARG, "model_file", BT_MEASURE_NONE, 0, 0, "%s: %s", path, why);
    if (!bt_found_missing(path, missing, sizeof missing) || missing[0] != '\0') {
        return bt_fail(err, BT_E_ARG, "model_file", BT_MEASURE_NONE, 0, 0, "%s: %s is missing", path,
                       missing[0] ? bt_path_file(missing) : "a part");
    }
    return bt_found_add(config, path, &file, args, ret_added, err);
}
