/* SPDX-License-Identifier: MIT
 * usage.c: the tokens of an answer, by what the answer itself says.
 *
 * Three dialects say it: OpenAI's `usage`, Anthropic's `usage` (spread over the events message_start and message_delta)
 * and llama.cpp's `timings` with the tokens_... members of its own endpoint. All are numbers at known paths, so
 * members.c finds them while the answer passes; what stands at one path in a later event replaces what stood there
 * before. The objects of an outermost list (llama.cpp's answer to several prompts) are added up. An object that was
 * broken off says nothing.
 *
 * Event streams (HTML standard, 9.2.6: lines end in LF, CR or CRLF, a blank line ends an event) are cut into the data
 * of their events here. `[DONE]` needs no case of its own: it is a list without objects.
 *
 * At the end the dialects are put together: the counts of `usage` before those of `timings`. Anthropic's input_tokens
 * are those that were not cached, so what was read from the cache or written to it comes on top. llama.cpp's
 * tokens_cached is not read: it is what the slot holds after the answer, not what was spared before it.
 *
 * Bound: one block for the reader. Counts that are negative, fractions, or over COUNT_MAX are not believed. */
#include "router/usage.h"
#include "base/heap.h"
#include "base/text.h"
#include "router/members.h"

#include <limits.h>

/* llama.cpp counts the tokens of a task in int32_t (tools/server/server-task.h). */
#define COUNT_MAX INT32_MAX
/* Tokens per second; beyond, it was a division by nearly nothing: a clock of nanoseconds cannot tell more. */
#define RATE_MAX 1e9
/* A double holds 17 decimal digits; powers of ten up to these are far outside RATE_MAX, or 0. */
#define DIGITS_MAX 17
#define POWER_MAX  40

enum field {
    PROMPT,  /* with what was cached */
    INPUT,   /* with it or, where READ or WRITTEN are said, without */
    READ,    /* from the cache */
    WRITTEN, /* to it */
    CACHED,
    OUTPUT,
    EVALUATED, /* llama.cpp's name of PROMPT */
    PREDICTED, /* and of OUTPUT */
    TIMED_CACHED,
    TIMED_PROMPT, /* without what was cached */
    TIMED_OUTPUT,
    DRAFT,
    ACCEPTED,
    N_COUNTS,
    PROMPT_RATE = N_COUNTS,
    OUTPUT_RATE,
};

#define USAGE_PATHS(at)                                                                                                \
    at "usage.prompt_tokens", at "usage.input_tokens", at "usage.cache_read_input_tokens",                             \
        at "usage.cache_creation_input_tokens", at "usage.prompt_tokens_details.cached_tokens",                        \
        at "usage.input_tokens_details.cached_tokens", at "usage.completion_tokens", at "usage.output_tokens"
#define USAGE_FIELDS PROMPT, INPUT, READ, WRITTEN, CACHED, CACHED, OUTPUT, OUTPUT

/* message: Anthropic's message_start; response: the events of OpenAI's responses. */
static const char *const paths[] = {
    USAGE_PATHS(""),    USAGE_PATHS("message."),    USAGE_PATHS("response."),    "tokens_evaluated",
    "tokens_predicted", "timings.cache_n",          "timings.prompt_n",          "timings.predicted_n",
    "timings.draft_n",  "timings.draft_n_accepted", "timings.prompt_per_second", "timings.predicted_per_second"};
static const uint8_t fields[] = {USAGE_FIELDS, USAGE_FIELDS, USAGE_FIELDS, EVALUATED, PREDICTED,   TIMED_CACHED,
                                 TIMED_PROMPT, TIMED_OUTPUT, DRAFT,        ACCEPTED,  PROMPT_RATE, OUTPUT_RATE};
enum { N_PATHS = sizeof paths / sizeof *paths };
_Static_assert(N_PATHS == sizeof fields, "each path has a field");

typedef struct said {
    bt_known counts[N_COUNTS];
    double rates[2]; /* 0: not said */
} said;

struct bt_usage_reader {
    bt_members members;
    said object, all; /* of the object that is read, and of those that were */
    bool event_stream, after_cr;
    uint64_t n_pieces;
    uint8_t n_name;                       /* bytes of the line's name so far */
    enum { NAME, SPACE, DATA, OTHER } at; /* of an event stream: in a line's name, after "data:", in data, elsewhere */
};
_Static_assert(sizeof(struct bt_usage_reader) <= BT_USAGE_READER_BYTES, "as usage.h says");

/* Of digits alone. */
static bt_known count_of(const char *text) {
    uint64_t value = 0;
    const char *c = text;
    for (; bt_is_digit(*c) && value <= COUNT_MAX; c++)
        value = value * 10 + (uint64_t)(*c - '0');
    bool good = c > text && *c == '\0' && value <= COUNT_MAX;
    return (bt_known){good, good ? value : 0};
}

/* The digits at *text as a number, the point among them; *power: of ten that it is to be multiplied by. */
static double digits_of(const char **text, int *power) {
    uint64_t value = 0;
    int n_kept = 0;
    bool point = false;
    const char *c = *text;
    for (; bt_is_digit(*c) || (*c == '.' && !point); c++) {
        if (*c == '.') {
            point = true;
        } else if (n_kept < DIGITS_MAX) {
            value = value * 10 + (uint64_t)(*c - '0');
            if (value > 0) n_kept++;
            if (point) (*power)--;
        } else if (!point) {
            (*power)++;
        }
    }
    *text = c;
    return (double)value;
}

/* As JSON writes numbers, whatever the locale. 0: not a rate. */
static double rate_of(const char *text) {
    int power = 0;
    double value = digits_of(&text, &power);
    if (*text == 'e' || *text == 'E') {
        text++;
        bool down = *text == '-';
        if (*text == '-' || *text == '+') text++;
        if (!bt_is_digit(*text)) return 0;
        int exponent = 0;
        for (; bt_is_digit(*text) && exponent < INT_MAX / 20; text++)
            exponent = exponent * 10 + (*text - '0');
        power += down ? -exponent : exponent;
    }
    if (*text != '\0' || value <= 0 || power > POWER_MAX || power < -POWER_MAX - DIGITS_MAX) return 0;
    double scale = 1;
    for (int i = power < 0 ? -power : power; i > 0; i--)
        scale *= 10;
    value = power < 0 ? value / scale : value * scale;
    return value <= RATE_MAX ? value : 0;
}

static void on_number(void *user, uint32_t path, const char *text) {
    bt_usage_reader *reader = user;
    uint8_t field = fields[path];
    if (field < N_COUNTS) {
        bt_known count = count_of(text);
        if (count.known) reader->object.counts[field] = count;
    } else {
        double rate = rate_of(text);
        if (rate > 0) reader->object.rates[field - PROMPT_RATE] = rate;
    }
}

static void on_object(void *user, bool in_list) {
    bt_usage_reader *reader = user;
    for (uint32_t i = 0; i < N_COUNTS; i++) {
        bt_known now = reader->object.counts[i];
        bt_known *all = &reader->all.counts[i];
        if (!now.known) continue;
        if (in_list && all->known) now.value += all->value; /* a list of 2^33 such objects would be needed to wrap */
        *all = now;
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (reader->object.rates[i] > 0) reader->all.rates[i] = reader->object.rates[i];
    }
    reader->object = (said){0};
}

bt_usage_reader *bt_usage_open(bool event_stream) {
    bt_usage_reader *reader = bt_heap_alloc(sizeof *reader);
    if (!reader) return NULL;
    reader->event_stream = event_stream;
    reader->members = (bt_members){
        .paths = paths, .n_paths = N_PATHS, .on_number = on_number, .on_object = on_object, .user = reader};
    return reader;
}

/* A line has ended; a blank one ends the event. */
static void end_line(bt_usage_reader *reader) {
    if (reader->at == NAME && reader->n_name == 0) {
        bt_members_reset(&reader->members);
        reader->object = (said){0};
    } else if (reader->at == DATA || reader->at == SPACE) {
        bt_members_add(&reader->members, "\n", 1); /* data of several lines is joined by these */
        reader->n_pieces++;
    }
    reader->at = NAME;
    reader->n_name = 0;
}

/* One byte outside data. */
static void line_byte(bt_usage_reader *reader, char c) {
    static const char name[] = "data:";
    if (reader->at == SPACE) {
        reader->at = DATA;
        if (c != ' ') bt_members_add(&reader->members, &c, 1);
    } else if (reader->at == NAME && c == name[reader->n_name]) {
        reader->n_name++;
        if (name[reader->n_name] == '\0') reader->at = SPACE;
    } else {
        reader->at = OTHER;
    }
}

static void add_events(bt_usage_reader *reader, const char *data, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        char c = data[i];
        bool lf_of_crlf = c == '\n' && reader->after_cr;
        reader->after_cr = c == '\r';
        if (lf_of_crlf) continue;
        if (c == '\n' || c == '\r') {
            end_line(reader);
        } else if (reader->at != DATA) {
            line_byte(reader, c);
        } else {
            size_t n = 1;
            while (i + n < n_bytes && data[i + n] != '\n' && data[i + n] != '\r')
                n++;
            bt_members_add(&reader->members, data + i, n);
            i += n - 1;
        }
    }
}

void bt_usage_add(bt_usage_reader *reader, const char *data, size_t n_bytes) {
    if (!reader) return;
    if (reader->event_stream) {
        add_events(reader, data, n_bytes);
    } else {
        bt_members_add(&reader->members, data, n_bytes);
    }
}

uint64_t bt_usage_pieces(const bt_usage_reader *reader) {
    return reader ? reader->n_pieces : 0;
}

static bt_known either(bt_known first, bt_known second) {
    return first.known ? first : second;
}

/* first, and what else is known of others. */
static bt_known with(bt_known first, bt_known second, bt_known third) {
    if (first.known) first.value += second.value + third.value; /* each is 0 where it is not known */
    return first;
}

void bt_usage_finish(bt_usage_reader *reader, bt_usage *ret) {
    *ret = (bt_usage){0};
    if (!reader) return;
    const bt_known *c = reader->all.counts;
    bt_known timed = with(c[TIMED_PROMPT], c[TIMED_CACHED], (bt_known){0});
    bt_known prompt = either(c[PROMPT], with(c[INPUT], c[READ], c[WRITTEN]));
    ret->prompt_tokens = either(either(prompt, c[EVALUATED]), timed);
    ret->cached_tokens = either(either(c[CACHED], c[READ]), c[TIMED_CACHED]);
    ret->output_tokens = either(either(c[OUTPUT], c[PREDICTED]), c[TIMED_OUTPUT]);
    ret->draft_tokens = c[DRAFT];
    ret->accepted_tokens = c[ACCEPTED];
    ret->prompt_per_s = reader->all.rates[0];
    ret->output_per_s = reader->all.rates[1];
    bt_heap_free(reader);
}
