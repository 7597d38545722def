/* SPDX-License-Identifier: MIT
 * scrape.c: the metrics of many servers in one text.
 *
 * Every server exports the same families, and the format wants each family once, with all its samples together. So the
 * texts are read once into an index: families by name, and for each a list of its samples, which stay where they are,
 * in the servers' texts. Writing walks the index.
 *
 * To whom a sample belongs is said by its own server: a family of its name, else the histogram or summary that the name
 * is of without _bucket, _sum or _count, else an untyped family of its own. Two servers that type a name differently
 * cannot be told apart by a reader, so such a family is left out, whichever came first. So is what calls itself
 * burthen_: those names are ours. A label "model" of the server's own becomes "exported_model", as Prometheus does it.
 *
 * Bounds: those of scrape.h. The index is two arrays that grow by doubling, 48 bytes a sample and 80 a family at most;
 * memory that is refused leaves out the sample that asked. Whatever is left out is counted for its server. Left out:
 * whether a histogram's buckets add up; who reads it sees what the server said. */
#include "router/scrape.h"
#include "base/heap.h"
#include "router/exposition.h"

#include <string.h>

#define NONE       UINT32_MAX
#define FIRST_SIZE 64u
/* Twice the families, so that a search meets a free place soon; a power of two. */
#define TABLE_SIZE (BT_SCRAPE_FAMILIES_MAX * 2)
#define OURS       "burthen_"
#define RENAMED    "exported_"

typedef struct sample {
    const char *line; /* its name, where the rest follows */
    uint32_t n_name, n_labels, labels_at, n_value, value_at, n_time, time_at;
    uint32_t server, next;
} sample;

typedef struct family {
    bt_piece name, help;
    bt_metric_type type;
    bool typed, conflict;
    uint32_t typed_by, helped_by; /* the last server that said so; NONE */
    uint32_t first, last, n_samples;
    uint64_t n_bytes; /* of its samples as they will be written, at most */
} family;

typedef struct server {
    const char *model;
    uint64_t n_escaped, n_left_out;
    uint32_t n_samples;
} server;

struct bt_scrape {
    family *families;
    sample *samples;
    server *servers;
    uint32_t n_families, n_families_room, n_samples, n_samples_room, n_servers;
    uint16_t table[TABLE_SIZE]; /* index + 1 */
};

bt_scrape *bt_scrape_open(uint32_t n_servers) {
    bt_scrape *scrape = bt_heap_alloc(sizeof *scrape);
    if (!scrape) return NULL;
    scrape->servers = bt_heap_array(n_servers, sizeof *scrape->servers);
    scrape->n_servers = n_servers;
    if (scrape->servers) return scrape;
    bt_heap_free(scrape);
    return NULL;
}

void bt_scrape_close(bt_scrape *scrape) {
    if (!scrape) return;
    bt_heap_free(scrape->families);
    bt_heap_free(scrape->samples);
    bt_heap_free(scrape->servers);
    bt_heap_free(scrape);
}

/* ---- the index -------------------------------------------------------------------------------------------------- */

/* Room for one more item of an array of n, at most n_max; false: there is none. */
static bool grow(void **items, uint32_t n, uint32_t *room, uint32_t n_max, size_t item_bytes) {
    if (n < *room) return true;
    if (n == n_max) return false;
    uint32_t more = *room == 0 ? FIRST_SIZE : *room > n_max / 2 ? n_max : *room * 2;
    void *grown = bt_heap_resize(*items, more * item_bytes);
    if (!grown) return false;
    *items = grown;
    *room = more;
    return true;
}

/* FNV-1a, 32 bits (Fowler, Noll, Vo): the place where a name's search begins. */
static uint32_t hash(bt_piece name) {
    uint32_t h = UINT32_C(2166136261);
    for (uint32_t i = 0; i < name.n_bytes; i++)
        h = (h ^ (unsigned char)name.at[i]) * UINT32_C(16777619);
    return h;
}

/* The place of a family in the table: 0 stands there when there is none. */
static uint16_t *find(bt_scrape *scrape, bt_piece name) {
    for (uint32_t at = hash(name) % TABLE_SIZE;; at = (at + 1) % TABLE_SIZE) {
        uint16_t index = scrape->table[at];
        if (index == 0) return &scrape->table[at];
        bt_piece other = scrape->families[index - 1].name;
        if (other.n_bytes == name.n_bytes && memcmp(other.at, name.at, name.n_bytes) == 0) return &scrape->table[at];
    }
}

static family *family_of(bt_scrape *scrape, bt_piece name) {
    uint16_t *index = find(scrape, name);
    if (*index > 0) return &scrape->families[*index - 1];
    void *families = scrape->families;
    if (!grow(&families, scrape->n_families, &scrape->n_families_room, BT_SCRAPE_FAMILIES_MAX, sizeof(family)))
        return NULL;
    scrape->families = families;
    family *f = &scrape->families[scrape->n_families++];
    *f = (family){.name = name, .typed_by = NONE, .helped_by = NONE, .first = NONE, .last = NONE};
    *index = (uint16_t)scrape->n_families;
    return f;
}

/* What this server says of the family's type, once. false: it has said so already. */
static bool settle_type(family *f, uint32_t by, bt_metric_type type) {
    if (f->typed_by == by) return false;
    if (f->typed && f->type != type) f->conflict = true;
    f->typed = true;
    f->type = type;
    f->typed_by = by;
    return true;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* A histogram or summary of this server that the sample is a part of; NULL: none. */
static family *owner_of(bt_scrape *scrape, uint32_t by, bt_piece name) {
    static const char *const ends[] = {"_bucket", "_sum", "_count"};
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        uint32_t n_end = (uint32_t)strlen(ends[i]);
        if (name.n_bytes <= n_end || memcmp(name.at + name.n_bytes - n_end, ends[i], n_end) != 0) continue;
        uint16_t index = *find(scrape, (bt_piece){name.at, name.n_bytes - n_end});
        family *f = index > 0 ? &scrape->families[index - 1] : NULL;
        if (!f || f->typed_by != by) return NULL;
        bool part = f->type == BT_METRIC_HISTOGRAM || (f->type == BT_METRIC_SUMMARY && i > 0);
        return part ? f : NULL;
    }
    return NULL;
}

/* Labels are few, each of them once, and of a histogram and a summary those that their samples must have. */
static bool labels_fit(const family *f, const bt_exposition_line *line) {
    bt_piece names[BT_SCRAPE_LABELS_MAX];
    uint32_t n = 0;
    bt_piece labels = line->labels;
    bt_piece value;
    bool le = false;
    bool quantile = false;
    bool model = false;
    bool renamed = false;
    while (labels.n_bytes > 0) {
        if (n == BT_SCRAPE_LABELS_MAX || !bt_exposition_label(&labels, &names[n], &value)) return false;
        for (uint32_t i = 0; i < n; i++) {
            if (names[i].n_bytes == names[n].n_bytes && memcmp(names[i].at, names[n].at, names[n].n_bytes) == 0)
                return false;
        }
        le = le || bt_piece_is(names[n], "le");
        quantile = quantile || bt_piece_is(names[n], "quantile");
        model = model || bt_piece_is(names[n], "model");
        renamed = renamed || bt_piece_is(names[n], RENAMED "model");
        n++;
    }
    bool whole = line->name.n_bytes == f->name.n_bytes;                /* no part of it */
    bool bucket = !whole && line->name.at[f->name.n_bytes + 1] == 'b'; /* _bucket, _sum or _count */
    if (f->type == BT_METRIC_HISTOGRAM && (whole || bucket != le)) return false;
    if (f->type == BT_METRIC_SUMMARY && whole != quantile) return false;
    return !(model && renamed);
}

static bool add_sample(bt_scrape *scrape, uint32_t by, const bt_exposition_line *line) {
    server *s = &scrape->servers[by];
    family *f = owner_of(scrape, by, line->name);
    if (!f) f = family_of(scrape, line->name);
    if (!f || s->n_samples == BT_SCRAPE_SAMPLES_MAX) return false;
    (void)settle_type(f, by, BT_METRIC_UNTYPED); /* where no line has */
    if (!labels_fit(f, line)) return false;
    void *samples = scrape->samples;
    if (!grow(&samples, scrape->n_samples, &scrape->n_samples_room, BT_SCRAPE_TOTAL_MAX, sizeof(sample))) return false;
    scrape->samples = samples;
    uint32_t index = scrape->n_samples++;
    const char *at = line->name.at;
    scrape->samples[index] = (sample){.line = at,
                                      .n_name = line->name.n_bytes,
                                      .n_labels = line->labels.n_bytes,
                                      .labels_at = line->labels.at ? (uint32_t)(line->labels.at - at) : 0,
                                      .n_value = line->value.n_bytes,
                                      .value_at = (uint32_t)(line->value.at - at),
                                      .n_time = line->time.n_bytes,
                                      .time_at = (uint32_t)(line->time.at - at),
                                      .server = by,
                                      .next = NONE};
    if (f->last != NONE) scrape->samples[f->last].next = index;
    if (f->first == NONE) f->first = index;
    f->last = index;
    f->n_samples++;
    s->n_samples++;
    /* {model="..."}, a comma, the longer name of a label, blanks and the line feed */
    f->n_bytes +=
        line->name.n_bytes + line->labels.n_bytes + line->value.n_bytes + line->time.n_bytes + s->n_escaped + 32;
    return true;
}

static bool is_ours(bt_piece name) {
    return name.n_bytes >= strlen(OURS) && memcmp(name.at, OURS, strlen(OURS)) == 0;
}

/* false: it is left out. */
static bool add_line(bt_scrape *scrape, uint32_t by, const bt_exposition_line *line) {
    if (line->kind == BT_EXPOSITION_NOTHING) return true;
    if (line->kind == BT_EXPOSITION_WRONG || is_ours(line->name)) return false;
    if (line->kind == BT_EXPOSITION_SAMPLE) return add_sample(scrape, by, line);
    family *f = family_of(scrape, line->name);
    if (!f) return false;
    if (line->kind == BT_EXPOSITION_TYPE) return settle_type(f, by, line->type);
    if (f->helped_by == by) return false;
    if (f->helped_by == NONE) f->help = line->value; /* the first server's stays */
    f->helped_by = by;
    return true;
}

static uint64_t escaped_length(const char *text) {
    uint64_t n = 0;
    for (const char *c = text; *c != '\0'; c++)
        n += 3; /* at most: U+FFFD for a byte */
    return n;
}

void bt_scrape_add(bt_scrape *scrape, uint32_t number, const char *model, const char *text, size_t n_bytes) {
    server *s = &scrape->servers[number];
    s->model = model;
    s->n_escaped = escaped_length(model);
    size_t n = n_bytes > BT_SCRAPE_TEXT_MAX ? BT_SCRAPE_TEXT_MAX : n_bytes;
    for (size_t at = 0; at < n;) {
        size_t begin = at;
        const char *feed = memchr(text + at, '\n', n - at);
        size_t end = feed ? (size_t)(feed - text) : n;
        at = end + 1;
        if (!feed && n < n_bytes) break; /* cut: counted below */
        bt_exposition_line line;
        bt_exposition_read(text + begin, end - begin, &line);
        if (!add_line(scrape, number, &line)) s->n_left_out++;
    }
    for (size_t i = n; i < n_bytes; i++)
        s->n_left_out += text[i] == '\n' || i == n_bytes - 1;
}

void bt_scrape_settle(bt_scrape *scrape) {
    for (uint32_t i = 0; i < scrape->n_families; i++) {
        if (!scrape->families[i].conflict) continue;
        for (uint32_t k = scrape->families[i].first; k != NONE; k = scrape->samples[k].next)
            scrape->servers[scrape->samples[k].server].n_left_out++;
    }
}

uint64_t bt_scrape_left_out(const bt_scrape *scrape, uint32_t number) {
    return scrape->servers[number].n_left_out;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static void write_sample(bt_text *out, const sample *s, const char *model) {
    bt_text_add_n(out, s->line, s->n_name);
    bt_text_add(out, "{model=\"");
    bt_exposition_escape(out, model);
    bt_text_add(out, "\"");
    bt_piece labels = {s->line + s->labels_at, s->n_labels};
    bt_piece name;
    bt_piece value;
    while (labels.n_bytes > 0 && bt_exposition_label(&labels, &name, &value)) {
        bt_text_add(out, bt_piece_is(name, "model") ? "," RENAMED : ",");
        bt_text_add_n(out, name.at, name.n_bytes);
        bt_text_add(out, "=\"");
        bt_text_add_n(out, value.at, value.n_bytes);
        bt_text_add(out, "\"");
    }
    bt_text_add(out, "} ");
    bt_text_add_n(out, s->line + s->value_at, s->n_value);
    if (s->n_time > 0) bt_text_add(out, " ");
    bt_text_add_n(out, s->line + s->time_at, s->n_time);
    bt_text_add(out, "\n");
}

static void write_family(const bt_scrape *scrape, const family *f, bt_text *out) {
    if (f->helped_by != NONE) {
        bt_text_add(out, "# HELP ");
        bt_text_add_n(out, f->name.at, f->name.n_bytes);
        bt_text_add(out, " ");
        bt_text_add_n(out, f->help.at, f->help.n_bytes);
        bt_text_add(out, "\n");
    }
    bt_text_add(out, "# TYPE ");
    bt_text_add_n(out, f->name.at, f->name.n_bytes);
    bt_text_addf(out, " %s\n", bt_metric_type_name(f->type));
    for (uint32_t k = f->first; k != NONE && !out->failed; k = scrape->samples[k].next)
        write_sample(out, &scrape->samples[k], scrape->servers[scrape->samples[k].server].model);
}

/* Why a family is not there; where not even that fits, nothing is said. */
static void write_why_not(const family *f, const char *why, bt_text *out) {
    if (out->max_bytes - out->n_bytes < f->name.n_bytes + strlen(why) + 32) return;
    bt_text_add(out, "# burthen: left out: ");
    bt_text_add_n(out, f->name.at, f->name.n_bytes);
    bt_text_addf(out, ": %s\n", why);
}

void bt_scrape_text(const bt_scrape *scrape, bt_text *out) {
    for (uint32_t i = 0; i < scrape->n_families && !out->failed; i++) {
        const family *f = &scrape->families[i];
        uint64_t left = out->max_bytes - out->n_bytes;
        if (f->n_samples == 0) continue;
        if (f->conflict) {
            write_why_not(f, "its type differs between servers", out);
        } else if (f->n_bytes + 3 * (uint64_t)f->name.n_bytes + f->help.n_bytes + 64 > left) {
            write_why_not(f, "no room", out);
        } else {
            write_family(scrape, f, out);
        }
    }
}
