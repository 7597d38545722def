/* SPDX-License-Identifier: MIT
 *
 * tokenize.c: a text's tokens, a window of the text at a time.
 *
 * llama.cpp tokenizes a text whole, with lists that take 13 to 102 bytes for each of its bytes (docs/decisions/032): a
 * book would pass any small budget before it is even known that it does not fit in the context. So the text is handed
 * over in windows that overlap:
 *
 *     window A  [--------------------|=seam=]
 *     window B                       [=seam=|--------------------]
 *
 * Near its ends a window is wrong: it was cut in the middle of a word. But what a tokenizer does at a place depends on
 * what is near, so the two come to agree, token by token, somewhere in the seam. Where they have agreed over
 * AGREE_BYTES, A ends and B goes on. Where a token stands in the text is known by its own text: for A counted back from
 * its end, for B forward from its start, so that only the seam must be readable that way.
 *
 * Some tokenizers change the text (lower case, joined blanks), some texts have a stretch where the two never agree:
 * then A is made twice as long, in the end as long as the text. That is the one case without a bound of its own, and is
 * held to the room that the caller has: BT_E_LIMIT. */
#include "engine/tokenize.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"

#include "llama.h"

#include <malloc.h>
#include <string.h>

#define WINDOW_BYTES 4096u /* 50 to 400 KiB of lists: a part of a chunk is tokenized while a context is in memory */
#define SEAM_BYTES   1024u /* some hundred tokens; a quarter of the work is done twice */
#define AGREE_BYTES  256u  /* of the seam: longer than words are */
#define LISTS_BYTES  110u  /* a byte of text: the most that was seen, 102, and a little (docs/decisions/032) */
#define PIECE_BYTES  512u  /* a longer token is not looked at: there is no seam at it */
#define TOKENS_STEP  4096u
#define TRIM_BYTES   1024u /* of text: less leaves less than what trimming would be worth */

typedef struct window {
    size_t start, end; /* of the text */
    int32_t *tokens;
    uint32_t n, n_room;
} window;

/* Tokens that lie wholly in a seam, in order, and where each begins. */
typedef struct seam {
    uint32_t first; /* the window's token that [0] is */
    uint32_t n;
    size_t starts[SEAM_BYTES + 1]; /* [n]: where the last one ends */
} seam;

struct bt_token_stream {
    bt_tokenize_ask ask;
    window now, next;  /* next: made when now's end was looked for; n_room 0: not yet */
    uint32_t at, stop; /* of now: handed over, and up to where it is right */
    uint32_t next_at;  /* of next: where it goes on */
    bool has_next;
    bool adds_blank; /* before each window */
    seam before, after;
};

static bt_status no_memory(uint64_t n, bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for %llu tokens",
                   (unsigned long long)n);
}

/* A byte of a character that began before it. */
static bool goes_on(char c) {
    return ((unsigned char)c & 0xc0u) == 0x80u;
}

/* ---- a window ---- */

static int32_t call(const bt_tokenize_ask *ask, window *w) {
    return llama_tokenize(ask->vocab, ask->text + w->start, (int32_t)(w->end - w->start), w->tokens, (int32_t)w->n_room,
                          ask->add_special, ask->parse_special);
}

static bt_status make_room(window *w, uint32_t n, bt_error *err) {
    if (n <= w->n_room) return BT_OK;
    int32_t *more = bt_heap_resize(w->tokens, (size_t)n * sizeof *more);
    if (!more) return no_memory(n, err);
    w->tokens = more;
    w->n_room = n;
    return BT_OK;
}

static bt_status fill(const bt_token_stream *s, window *w, size_t start, size_t end, bt_error *err) {
    w->start = start;
    w->end = end;
    BT_TRY(make_room(w, (uint32_t)((end - start) / 2) + 16, err)); /* two bytes a token, and what is added */
    int32_t n = call(&s->ask, w);
    if (n < 0 && n > INT32_MIN) {
        BT_TRY(make_room(w, (uint32_t)-n, err));
        n = call(&s->ask, w);
    }
    if (n < 0)
        return bt_fail(err, BT_E_FORMAT, "tokenize", BT_MEASURE_BYTES, s->ask.n_bytes, 0,
                       "the text cannot be tokenized");
    w->n = (uint32_t)n;
    return BT_OK;
}

/* ---- the seam of two windows ---- */

/* Bytes of the text that a token is, if it stands there; 0: something else does, or nothing that can be told. */
static size_t piece_at(const bt_token_stream *s, int32_t token, size_t start, size_t end, bool from_end) {
    char piece[PIECE_BYTES];
    int32_t n = llama_token_to_piece(s->ask.vocab, token, piece, sizeof piece, 0, true);
    if (n <= 0 || (size_t)n > end - start) return 0;
    const char *text = s->ask.text + (from_end ? end - (size_t)n : start);
    return memcmp(text, piece, (size_t)n) == 0 ? (size_t)n : 0;
}

/* Added by the tokenizer, and nowhere in the text. */
static bool is_added(const bt_token_stream *s, int32_t token) {
    return s->ask.add_special && llama_vocab_is_control(s->ask.vocab, token);
}

/* From the window's end back to low. */
static void look_back(const bt_token_stream *s, const window *w, size_t low, seam *ret) {
    uint32_t k = w->n;
    size_t at = w->end;
    while (k > 0 && is_added(s, w->tokens[k - 1]) && piece_at(s, w->tokens[k - 1], low, at, true) == 0)
        k--;
    uint32_t n = 0;
    size_t backwards[SEAM_BYTES + 1];
    backwards[0] = at;
    for (; k > 0 && n < SEAM_BYTES; k--, n++) {
        size_t bytes = piece_at(s, w->tokens[k - 1], low, at, true);
        if (bytes == 0) break;
        at -= bytes;
        backwards[n + 1] = at;
    }
    ret->first = k;
    ret->n = n;
    for (uint32_t i = 0; i <= n; i++)
        ret->starts[i] = backwards[n - i];
}

/* From the window's start up to high. A blank that the tokenizer put before the text is no part of it. */
static void look_ahead(const bt_token_stream *s, const window *w, size_t high, seam *ret) {
    uint32_t k = 0;
    size_t at = w->start;
    while (k < w->n && is_added(s, w->tokens[k]) && piece_at(s, w->tokens[k], at, high, false) == 0)
        k++;
    if (s->adds_blank && k < w->n) {
        char piece[PIECE_BYTES];
        int32_t n = llama_token_to_piece(s->ask.vocab, w->tokens[k], piece, sizeof piece, 0, true);
        size_t bytes = n > 0 ? (size_t)n - 1 : 0;
        if (n > 0 && piece[0] == ' ' && bytes <= high - at && memcmp(s->ask.text + at, piece + 1, bytes) == 0) {
            at += bytes;
            k++;
        }
    }
    ret->first = k;
    ret->starts[0] = at;
    for (ret->n = 0; k < w->n && ret->n < SEAM_BYTES; k++) {
        size_t bytes = piece_at(s, w->tokens[k], at, high, false);
        if (bytes == 0) break;
        at += bytes;
        ret->starts[++ret->n] = at;
    }
}

/* Whether the tokenizer puts a blank before a text: one alone becomes two then. */
static bool adds_blank(const struct llama_vocab *vocab) {
    int32_t tokens[8];
    char piece[PIECE_BYTES];
    int32_t bytes = 0;
    int32_t n = llama_tokenize(vocab, " ", 1, tokens, sizeof tokens / sizeof *tokens, false, false);
    for (int32_t i = 0; i < n; i++)
        bytes += llama_token_to_piece(vocab, tokens[i], piece, sizeof piece, 0, true);
    return bytes > 1;
}

/* Where both have agreed over AGREE_BYTES: in the middle of that, the tokens of each. */
static bool agree(const window *a, const seam *before, const window *b, const seam *after, uint32_t *ret_a,
                  uint32_t *ret_b) {
    size_t begun = SIZE_MAX; /* where they began to agree; SIZE_MAX: they do not */
    bool is_half = false;
    uint32_t i = 0;
    uint32_t j = 0;
    while (i < before->n && j < after->n) {
        size_t at = before->starts[i];
        size_t at_b = after->starts[j];
        if (at != at_b || before->starts[i + 1] != after->starts[j + 1] ||
            a->tokens[before->first + i] != b->tokens[after->first + j]) {
            i += at <= at_b;
            j += at_b <= at;
            begun = SIZE_MAX;
            is_half = false;
            continue;
        }
        if (begun == SIZE_MAX) begun = at;
        if (!is_half && at - begun >= AGREE_BYTES / 2) {
            is_half = true;
            *ret_a = before->first + i;
            *ret_b = after->first + j;
        }
        i++;
        j++;
        if (is_half && before->starts[i] - begun >= AGREE_BYTES) return true;
    }
    return false;
}

/* The next window begins at a token of this one, a seam before its end. 0: there is none. */
static size_t next_start(const bt_token_stream *s) {
    for (uint32_t i = 0; i < s->before.n; i++)
        if (s->before.starts[i] > s->now.start && !goes_on(s->ask.text[s->before.starts[i]]))
            return s->before.starts[i];
    return 0;
}

static size_t text_end(const bt_token_stream *s, size_t start, size_t bytes) {
    if (s->ask.n_bytes - start <= bytes) return s->ask.n_bytes;
    size_t end = start + bytes;
    while (end < s->ask.n_bytes && goes_on(s->ask.text[end]))
        end++;
    return end;
}

/* Find out up to where the present window is right; the next one is made. is_found: false where they do not agree. */
static bt_status find_seam(bt_token_stream *s, bool *is_found, bt_error *err) {
    *is_found = false;
    look_back(s, &s->now, s->now.end - SEAM_BYTES, &s->before);
    size_t start = next_start(s);
    if (start == 0) return BT_OK;
    BT_TRY(fill(s, &s->next, start, text_end(s, start, WINDOW_BYTES), err));
    look_ahead(s, &s->next, s->now.end, &s->after);
    uint32_t stop = 0;
    *is_found = agree(&s->now, &s->before, &s->next, &s->after, &stop, &s->next_at) && stop > s->at;
    if (*is_found) s->stop = stop;
    return BT_OK;
}

/* The present window again, longer. What was handed over of it is right already, and must stay. */
static bt_status lengthen(bt_token_stream *s, bt_error *err) {
    size_t bytes = 2 * (s->now.end - s->now.start);
    size_t end = text_end(s, s->now.start, bytes);
    uint64_t need = bt_sat_mul_u64(LISTS_BYTES, end - s->now.start);
    if (need > s->ask.room_bytes)
        return bt_fail(
            err, BT_E_LIMIT, "tokenize_room", BT_MEASURE_BYTES, need, s->ask.room_bytes,
            "the text has more than %llu bytes in a row that only as a whole can be tokenized: that may take "
            "%s, the budget has %s left",
            (unsigned long long)bytes / 2, BT_SIZE(need), BT_SIZE(s->ask.room_bytes));
    return fill(s, &s->now, s->now.start, end, err);
}

static bt_status certify(bt_token_stream *s, bt_error *err) {
    for (;;) {
        if (s->now.end == s->ask.n_bytes) {
            s->stop = s->now.n;
            return BT_OK;
        }
        BT_TRY(find_seam(s, &s->has_next, err));
        if (s->has_next) return BT_OK;
        BT_TRY(lengthen(s, err));
    }
}

static bt_status go_on(bt_token_stream *s, bt_error *err) {
    window done = s->now;
    s->now = s->next;
    s->next = done; /* its room is used again */
    s->at = s->next_at;
    s->has_next = false;
    return certify(s, err);
}

/* ---- the stream ---- */

bt_tokenize_ask bt_tokenize_ask_of(bt_engine *engine, const char *text, size_t n_bytes, bool add_special,
                                   bool parse_special) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    return (bt_tokenize_ask){
        .vocab = llama_model_get_vocab(bt_engine_model(engine)),
        .text = text,
        .n_bytes = n_bytes,
        .add_special = add_special,
        .parse_special = parse_special,
        .room_bytes = bt_sat_sub_u64(bt_account_budget_bytes(bt_engine_account(engine)), memory.rss_bytes.value),
    };
}

/* Four bytes in the manner of UTF-8 for a number that is none of Unicode's: llama.cpp throws what nobody catches. Of
 * all else that is no UTF-8 it makes U+FFFD. */
static bool is_beyond(const char *text, size_t n) {
    const unsigned char first = (unsigned char)text[0];
    if (n < 4 || first < 0xf4 || first > 0xf7) return false;
    if (!goes_on(text[1]) || !goes_on(text[2]) || !goes_on(text[3])) return false;
    return first > 0xf4 || (unsigned char)text[1] >= 0x90;
}

static bt_status check_text(const char *text, size_t n, bt_error *err) {
    for (size_t i = 0; i < n; i++)
        if (is_beyond(text + i, n - i))
            return bt_fail(err, BT_E_FORMAT, "text_utf8", BT_MEASURE_BYTES, i, 0,
                           "the text is not UTF-8: its bytes from %zu on are no character", i);
    return BT_OK;
}

/* NULL: *ret_status says why. */
static bt_token_stream *open_stream(const bt_tokenize_ask *ask, bt_status *ret_status, bt_error *err) {
    if (ask->n_bytes > BT_TOKENIZE_TEXT_MAX) {
        *ret_status = bt_fail(err, BT_E_ARG, "prompt_bytes", BT_MEASURE_BYTES, ask->n_bytes, BT_TOKENIZE_TEXT_MAX,
                              "a text of %zu bytes is too long to tokenize", ask->n_bytes);
        return NULL;
    }
    *ret_status = check_text(ask->text, ask->n_bytes, err);
    if (*ret_status != BT_OK) return NULL;
    bt_token_stream *s = bt_heap_alloc(sizeof *s);
    if (!s) {
        *ret_status = no_memory(0, err);
        return NULL;
    }
    s->ask = *ask;
    s->adds_blank = ask->n_bytes > WINDOW_BYTES && adds_blank(ask->vocab);
    *ret_status = fill(s, &s->now, 0, text_end(s, 0, WINDOW_BYTES), err);
    if (*ret_status == BT_OK) *ret_status = certify(s, err);
    if (*ret_status == BT_OK) return s;
    bt_token_stream_close(s);
    return NULL;
}

bt_status bt_token_stream_open(const bt_tokenize_ask *ask, bt_token_stream **ret, bt_error *err) {
    bt_status status;
    bt_token_stream *s = open_stream(ask, &status, err);
    if (s) *ret = s;
    return status;
}

bt_status bt_token_stream_next(bt_token_stream *s, int32_t *tokens, uint32_t n_max, uint32_t *ret_n, bt_error *err) {
    uint32_t n = 0;
    while (n < n_max) {
        if (s->at == s->stop && !s->has_next) break;
        if (s->at == s->stop) BT_TRY(go_on(s, err));
        uint32_t n_now = (uint32_t)bt_min_u64(n_max - n, s->stop - s->at);
        memcpy(tokens + n, s->now.tokens + s->at, n_now * sizeof *tokens);
        s->at += n_now;
        n += n_now;
    }
    *ret_n = n;
    return BT_OK;
}

void bt_token_stream_close(bt_token_stream *s) {
    if (!s) return;
    bt_heap_free(s->now.tokens);
    bt_heap_free(s->next.tokens);
    bt_heap_free(s);
}

/* ---- all at once ---- */

/* What is left of llama.cpp's lists would stand beside the context's pages, which are touched later. */
static void close_and_trim(bt_token_stream *s) {
    bool is_long = s->ask.n_bytes >= TRIM_BYTES;
    bt_token_stream_close(s);
    if (is_long) (void)malloc_trim(0);
}

bt_status bt_tokenize_count(const bt_tokenize_ask *ask, uint32_t *ret_n, bt_error *err) {
    int32_t some[256];
    uint32_t n = 0;
    bt_status status;
    bt_token_stream *s = open_stream(ask, &status, err);
    *ret_n = 0;
    if (!s) return status;
    do {
        status = bt_token_stream_next(s, some, sizeof some / sizeof *some, &n, err);
        if (status == BT_OK) *ret_n += n;
    } while (status == BT_OK && n > 0);
    close_and_trim(s);
    return status;
}

bt_status bt_tokenize(const bt_tokenize_ask *ask, int32_t **ret_tokens, uint32_t *ret_n, bt_error *err) {
    int32_t *tokens = NULL;
    uint32_t n_all = 0;
    uint32_t n_room = 0;
    uint32_t n = 0;
    bt_status status;
    bt_token_stream *s = open_stream(ask, &status, err);
    if (!s) return status;
    do {
        if (n_all == n_room) {
            n_room += (uint32_t)bt_max_u64(n_room, TOKENS_STEP);
            int32_t *more = bt_heap_resize(tokens, (size_t)n_room * sizeof *more);
            if (!more) {
                status = no_memory(n_room, err);
                break;
            }
            tokens = more;
        }
        status = bt_token_stream_next(s, tokens + n_all, n_room - n_all, &n, err);
        if (status == BT_OK) n_all += n;
    } while (status == BT_OK && n > 0);
    close_and_trim(s);
    if (status == BT_OK) {
        *ret_tokens = tokens;
        *ret_n = n_all;
    } else {
        bt_heap_free(tokens);
    }
    return status;
}
