/* SPDX-License-Identifier: MIT
 *
 * readings.c: ggml's memory query, checked.
 *
 * The query returns nothing: a backend that cannot answer gives 0 of 0 and says why in ggml's log alone. So the log is
 * listened to while one device is asked. What is heard goes on to whoever listened before, and only lines of the asking
 * thread are taken: others log at any time. There is one log for the process, hence one question at a time.
 *
 * A card that two backends see (CUDA0 and Vulkan0) is one device, the first one's, as for libllama: told by its place,
 * which stands in the properties with the memory. */

#include "device/readings.h"

#include "base/text.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINE_TEXT 128

typedef struct listener {
    pthread_t asking;
    ggml_log_callback before;
    void *before_user;
    enum ggml_log_level level; /* of line: the first of the worst that were heard */
    char line[LINE_TEXT];
} listener;

/* Both for all questions: a thread may still be inside heard() when the question is over. */
static pthread_mutex_t one_question = PTHREAD_MUTEX_INITIALIZER;
static listener the_listener;

/* One line, cut to fit, nothing in it that moves a terminal. */
static void copy_line(char *line, size_t size, const char *text) {
    size_t n = 0, left = strlen(text);
    while (left > 0) {
        size_t length = bt_utf8_length(text, left);
        bool shown = length > 0 && !bt_utf8_is_control(text, length);
        size_t step = length > 0 ? length : 1;
        if (n + step >= size) break;
        if (shown) {
            memcpy(line + n, text, length);
            n += length;
        } else if (*text != '\n') {
            line[n++] = '?';
        }
        text += step;
        left -= step;
    }
    line[n] = '\0';
}

static void heard(enum ggml_log_level level, const char *text, void *user) {
    listener *l = user;
    bool is_bad = level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
    if (is_bad && pthread_equal(pthread_self(), l->asking) && level > l->level) {
        l->level = level;
        copy_line(l->line, sizeof l->line, text);
    }
    if (l->before) l->before(level, text, l->before_user);
}

/* line: what the backend logged, "" if nothing bad. */
static void ask(ggml_backend_dev_t dev, struct ggml_backend_dev_props *ret_props, char line[LINE_TEXT]) {
    ggml_log_callback now = NULL;
    void *now_user = NULL;
    pthread_mutex_lock(&one_question);
    listener *l = &the_listener;
    ggml_log_get(&l->before, &l->before_user);
    l->asking = pthread_self();
    l->level = GGML_LOG_LEVEL_NONE;
    l->line[0] = '\0';
    ggml_log_set(heard, l);
    ggml_backend_dev_get_props(dev, ret_props);
    ggml_log_get(&now, &now_user);
    if (now == heard) ggml_log_set(l->before, l->before_user); /* unless somebody else set it meanwhile */
    memcpy(line, l->line, LINE_TEXT);
    pthread_mutex_unlock(&one_question);
}

static const char *registry_of(ggml_backend_dev_t dev) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
    return reg ? ggml_backend_reg_name(reg) : "";
}

/* A device behind RPC calls itself a GPU, whatever its server computes with; libllama too knows it by its registry. */
static bt_pool_kind kind_of(ggml_backend_dev_t dev) {
    switch (ggml_backend_dev_type(dev)) {
    case GGML_BACKEND_DEVICE_TYPE_CPU:
        return BT_POOL_HOST;
    case GGML_BACKEND_DEVICE_TYPE_IGPU:
        return BT_POOL_IGPU;
    case GGML_BACKEND_DEVICE_TYPE_ACCEL:
        return BT_POOL_ACCEL;
    case GGML_BACKEND_DEVICE_TYPE_GPU:
    case GGML_BACKEND_DEVICE_TYPE_META:
        break;
    }
    return strcmp(registry_of(dev), "RPC") == 0 ? BT_POOL_RPC : BT_POOL_GPU;
}

static void judge(bt_pool *pool, uint64_t free_bytes, uint64_t total_bytes, const char *line) {
    pool->state = BT_READING_FAILED;
    if (total_bytes == 0 && free_bytes > 0) {
        (void)snprintf(pool->reason, sizeof pool->reason, "%llu bytes reported free, of a device of none",
                       (unsigned long long)free_bytes);
    } else if (total_bytes == 0) {
        (void)snprintf(pool->reason, sizeof pool->reason, "no memory reported%s%s",
                       *line ? ": " : ", and no error logged", line);
    } else {
        pool->state = BT_READING_REPORTED;
        pool->clamped = free_bytes > total_bytes;
        pool->free_bytes = pool->clamped ? total_bytes : free_bytes;
        pool->total_bytes = total_bytes;
    }
}

void bt_device_reading(struct ggml_backend_device *dev, bt_pool *ret_pool) {
    *ret_pool = (bt_pool){.state = BT_READING_ABSENT};
    if (!dev) return;
    copy_line(ret_pool->name, sizeof ret_pool->name, ggml_backend_dev_name(dev));
    ret_pool->kind = kind_of(dev);
    ret_pool->shares_host = ret_pool->kind == BT_POOL_IGPU;
    if (ret_pool->kind == BT_POOL_HOST) return;
    struct ggml_backend_dev_props props;
    char line[LINE_TEXT];
    ask(dev, &props, line);
    if (props.device_id) copy_line(ret_pool->pci, sizeof ret_pool->pci, props.device_id);
    if (props.description) copy_line(ret_pool->device, sizeof ret_pool->device, props.description);
    judge(ret_pool, props.memory_free, props.memory_total, line);
}

static bool holds_weights(ggml_backend_dev_t dev) {
    enum ggml_backend_dev_type type = ggml_backend_dev_type(dev);
    bool is_card = type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
    return is_card && strcmp(registry_of(dev), "Burthen") != 0;
}

/* Whether the device behind n others is one of them, seen by another backend. */
static bool is_among(const bt_pool *pools, uint32_t n) {
    for (uint32_t i = 0; pools[n].pci[0] && i < n; i++)
        if (strcmp(pools[i].pci, pools[n].pci) == 0) return true;
    return false;
}

uint32_t bt_device_readings(bt_pool *ret, uint32_t max, uint32_t *ret_n) {
    uint32_t n = 0, n_left = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (!holds_weights(dev)) continue;
        if (n == max) {
            n_left++;
            continue;
        }
        bt_device_reading(dev, &ret[n]);
        if (!is_among(ret, n)) n++;
    }
    *ret_n = n;
    return n_left;
}
