/* SPDX-License-Identifier: MIT
 * exposition_check.h: a whole answer of /metrics, read as strictly as the text format 0.0.4 can be, and its samples.
 *
 * Written without a look at src/router: every line ends in a line feed; a family has its lines together and once, TYPE
 * before its samples; a sample belongs to the family before it; no series twice; of a histogram the buckets grow, the
 * last is +Inf and equals _count, and _sum is there. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPO_SAMPLES_MAX  70000
#define EXPO_FAMILIES_MAX 2000

typedef struct expo_sample {
    char *series; /* name{labels}, as it stands there */
    double value;
} expo_sample;

typedef struct expo {
    expo_sample samples[EXPO_SAMPLES_MAX];
    size_t n_samples;
    char *families[EXPO_FAMILIES_MAX];
    size_t n_families;
    char wrong[512]; /* the first thing that is; empty: none */
    /* the family that is read */
    const char *name, *type;
    bool typed;
    /* of its histogram: the series without le, and what was seen of it */
    char group[1u << 15];
    double last_bucket, last_le;
    bool has_inf, has_sum, has_count;
} expo;

static inline void expo_wrong(expo *e, const char *why, const char *line) {
    if (e->wrong[0] == '\0') (void)snprintf(e->wrong, sizeof e->wrong, "%s: %.300s", why, line);
}

static inline size_t expo_name(const char *s, bool colon) {
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_' || (colon && s[n] == ':') ||
           (n > 0 && s[n] >= '0' && s[n] <= '9'))
        n++;
    return n;
}

/* A histogram's series has ended. */
static inline void expo_end_group(expo *e) {
    if (e->group[0] != '\0' && !(e->has_inf && e->has_sum && e->has_count))
        expo_wrong(e, "a part is missing", e->group);
    e->group[0] = '\0';
    e->has_inf = e->has_sum = e->has_count = false;
    e->last_bucket = 0;
    e->last_le = -HUGE_VAL;
}

static inline void expo_begin_family(expo *e, const char *name, size_t n, const char *line) {
    expo_end_group(e);
    for (size_t i = 0; i < e->n_families; i++) {
        if (strlen(e->families[i]) == n && strncmp(e->families[i], name, n) == 0) expo_wrong(e, "a family twice", line);
    }
    if (e->n_families == EXPO_FAMILIES_MAX) abort();
    e->name = e->families[e->n_families++] = strndup(name, n);
    e->typed = false;
}

static inline void expo_comment(expo *e, const char *line) {
    bool help = strncmp(line, "# HELP ", 7) == 0;
    if (!help && strncmp(line, "# TYPE ", 7) != 0) return;
    size_t n = expo_name(line + 7, true);
    const char *rest = line + 7 + n;
    if (n == 0 || *rest != ' ') {
        expo_wrong(e, "no family's name", line);
        return;
    }
    if (!e->name || strlen(e->name) != n || strncmp(e->name, line + 7, n) != 0) expo_begin_family(e, line + 7, n, line);
    if (help) {
        if (e->typed) expo_wrong(e, "HELP after TYPE", line);
        for (const char *c = strchr(rest, '\\'); c; c = strchr(c + 2, '\\')) {
            if (c[1] != '\\' && c[1] != 'n') {
                expo_wrong(e, "an escape in HELP", line);
                return;
            }
        }
        return;
    }
    static const char *const types[] = {"counter", "gauge", "histogram", "summary", "untyped"};
    e->type = NULL;
    for (size_t i = 0; i < 5; i++) {
        if (strcmp(rest + 1, types[i]) == 0) e->type = types[i];
    }
    if (!e->type || e->typed) expo_wrong(e, "TYPE", line);
    e->typed = true;
}

/* Labels from after "{" to after "}"; those but le go to group. NULL: not of the format. */
static inline const char *expo_labels(const char *s, char *group, size_t n_group, char *le, bool *quantile) {
    const char *names[64];
    size_t n_name[64];
    size_t n_names = 0;
    while (*s != '}') {
        size_t n = expo_name(s, false);
        if (n == 0 || n_names == 64 || s[n] != '=' || s[n + 1] != '"') return NULL;
        names[n_names] = s;
        n_name[n_names] = n;
        for (size_t i = 0; i < n_names; i++) {
            if (n_name[i] == n && strncmp(names[i], s, n) == 0) return NULL; /* twice */
        }
        const char *start = s;
        const char *value = s + n + 2;
        for (s = value; *s != '"'; s++) {
            if (*s == '\0') return NULL;
            if (*s == '\\' && (*++s == '\0' || !strchr("\\\"n", *s))) return NULL;
        }
        if (n == 2 && strncmp(start, "le", 2) == 0) {
            (void)snprintf(le, 64, "%.*s", (int)(s - value), value);
        } else {
            size_t used = strlen(group);
            (void)snprintf(group + used, n_group - used, "%.*s,", (int)(s + 1 - start), start);
        }
        *quantile = *quantile || (n == 8 && strncmp(start, "quantile", 8) == 0);
        n_names++;
        s++;
        if (*s == ',')
            s++;
        else if (*s != '}')
            return NULL;
    }
    return s + 1;
}

static inline bool expo_number(const char *s, double *ret) {
    if (strcmp(s, "NaN") == 0 || strcmp(s, "+Inf") == 0 || strcmp(s, "-Inf") == 0 || strcmp(s, "Inf") == 0) {
        *ret = strtod(s, NULL);
        return true;
    }
    char *end = NULL;
    *ret = strtod(s, &end);
    return s[0] != '\0' && strspn(s, "0123456789.eE+-") == strlen(s) && *end == '\0';
}

static inline void expo_histogram(expo *e, const char *part, const char *group, const char *le, double value,
                                  const char *line) {
    if (strcmp(e->group, group) != 0) {
        expo_end_group(e);
        (void)snprintf(e->group, sizeof e->group, "%s", group);
    }
    if (strcmp(part, "_bucket") == 0) {
        double bound = 0;
        if (!expo_number(le, &bound) || bound <= e->last_le || value < e->last_bucket || e->has_sum || e->has_count)
            expo_wrong(e, "a bucket out of order", line);
        e->last_le = bound;
        e->last_bucket = value;
        e->has_inf = e->has_inf || isinf(bound);
    } else if (strcmp(part, "_sum") == 0 && le[0] == '\0') {
        e->has_sum = true;
    } else if (strcmp(part, "_count") == 0 && le[0] == '\0') {
        e->has_count = true;
        if (value != e->last_bucket) expo_wrong(e, "_count is not the last bucket", line);
    } else {
        expo_wrong(e, "no part of a histogram", line);
    }
}

static inline void expo_sample_line(expo *e, const char *line, bool histograms) {
    size_t n = expo_name(line, true);
    size_t n_family = e->name ? strlen(e->name) : 0;
    const char *part = line + n_family;
    if (n < n_family || n == 0 || !e->typed || !e->type || strncmp(line, e->name, n_family) != 0) {
        expo_wrong(e, "a sample of no family", line);
        return;
    }
    char end[16] = "";
    (void)snprintf(end, sizeof end, "%.*s", (int)(n - n_family), part);
    static char group[1u << 15];
    (void)snprintf(group, sizeof group, "{");
    char le[64] = "";
    bool quantile = false;
    const char *rest = line + n;
    if (*rest == '{') rest = expo_labels(rest + 1, group, sizeof group, le, &quantile);
    if (!rest || *rest != ' ') {
        expo_wrong(e, "labels", line);
        return;
    }
    size_t n_value = strcspn(rest + 1, " ");
    char *value_text = strndup(rest + 1, n_value);
    const char *time = rest + 1 + n_value;
    double value = 0;
    bool timed = *time == '\0' || (time[1] != '\0' && strspn(time + 1, "-0123456789") == strlen(time + 1));
    if (!value_text || !timed || !expo_number(value_text, &value)) expo_wrong(e, "a value", line);
    free(value_text);
    if (strcmp(e->type, "histogram") == 0) {
        if (histograms) expo_histogram(e, end, group, le, value, line);
    } else if (strcmp(e->type, "summary") == 0) {
        if ((end[0] == '\0') != quantile || (end[0] && strcmp(end, "_sum") != 0 && strcmp(end, "_count") != 0))
            expo_wrong(e, "no part of a summary", line);
    } else if (end[0] != '\0') {
        expo_wrong(e, "a sample of another family", line);
    }
    if (e->n_samples < EXPO_SAMPLES_MAX)
        e->samples[e->n_samples++] = (expo_sample){strndup(line, (size_t)(rest - line)), value};
}

static inline int expo_compare(const void *a, const void *b) {
    return strcmp(((const expo_sample *)a)->series, ((const expo_sample *)b)->series);
}

static inline void expo_close(expo *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_samples; i++)
        free(e->samples[i].series);
    for (size_t i = 0; i < e->n_families; i++)
        free(e->families[i]);
    free(e);
}

/* strict: also that no series is twice and histograms add up, which is in the hands of who made the samples. */
static inline expo *expo_read(const char *text, size_t n, bool strict) {
    expo *e = calloc(1, sizeof *e);
    char *line = malloc(n + 1);
    if (!e || !line) abort();
    if (n > 0 && text[n - 1] != '\n') expo_wrong(e, "no line feed at the end", "");
    if (memchr(text, '\0', n)) expo_wrong(e, "a NUL byte", "");
    for (size_t at = 0; at < n && e->wrong[0] == '\0';) {
        const char *feed = memchr(text + at, '\n', n - at);
        size_t length = feed ? (size_t)(feed - text) - at : n - at;
        memcpy(line, text + at, length);
        line[length] = '\0';
        at += length + 1;
        if (length == 0) continue;
        if (line[0] == '#') expo_comment(e, line);
        if (line[0] != '#') expo_sample_line(e, line, strict);
    }
    if (strict) expo_end_group(e);
    free(line);
    qsort(e->samples, e->n_samples, sizeof *e->samples, expo_compare);
    for (size_t i = 1; strict && i < e->n_samples; i++) {
        if (strcmp(e->samples[i - 1].series, e->samples[i].series) == 0)
            expo_wrong(e, "a series twice", e->samples[i].series);
    }
    return e;
}

/* NULL: there is no such series. */
static inline const double *expo_value(const expo *e, const char *series) {
    expo_sample key = {.series = strdup(series)};
    const expo_sample *found = bsearch(&key, e->samples, e->n_samples, sizeof *e->samples, expo_compare);
    free(key.series);
    return found ? &found->value : NULL;
}

static inline bool expo_has_family(const expo *e, const char *name) {
    for (size_t i = 0; i < e->n_families; i++) {
        if (strcmp(e->families[i], name) == 0) return true;
    }
    return false;
}
