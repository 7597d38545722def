/* SPDX-License-Identifier: MIT
 *
 * perplexity.c: the correctness check under any budget.
 *
 * The text is cut into chunks of one context; in each, the tokens of the second half are scored given all before them
 * (llama-perplexity's method, so that its printed digits are the reference). One micro-batch is decoded at a time: the
 * rows of logits then take n_ubatch x n_vocab floats at most, whatever the context. */

#include "engine/perplexity.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include "llama.h"

#include <math.h>
#include <string.h>

#define CHUNK_MIN 3u /* below it the second half of a chunk predicts nothing */

uint32_t bt_perplexity_outputs(uint32_t n_ctx, uint32_t n_ubatch) {
    return (uint32_t)bt_min_u64(n_ctx - n_ctx / 2, n_ubatch);
}

/* -log softmax(logits)[token] */
static double negative_log_likelihood(const float *logits, int32_t n_vocab, int32_t token) {
    float max_logit = logits[0];
    for (int32_t i = 1; i < n_vocab; i++)
        max_logit = logits[i] > max_logit ? logits[i] : max_logit;
    double sum = 0.0;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += (double)expf(logits[i] - max_logit);
    return -((double)(logits[token] - max_logit) - log(sum));
}

typedef struct scorer {
    bt_session *session;
    const struct llama_vocab *vocab;
    bt_token_stream *tokens;
    int32_t *chunk; /* [2 * n_ctx]: the present one, whose first token may become the beginning-of-text token, and the
                       next: a text of one chunk is refused before that is scored */
    uint8_t *wants; /* [n_ctx] */
    uint32_t n_ctx, n_ubatch;
    uint32_t n_ahead; /* tokens of the next one */
    double sum, sum_of_squares;
    uint64_t n_scored;
    uint32_t n_chunks;
} scorer;

/* The token after position i is what logits of i predict; the last position of a chunk predicts nothing in it. */
static bt_status score_chunk(scorer *s, bt_error *err) {
    struct llama_context *context = bt_session_context(s->session);
    int32_t n_vocab = llama_vocab_n_tokens(s->vocab);
    bt_session_clear(s->session);
    for (uint32_t start = 0; start < s->n_ctx; start += s->n_ubatch) {
        uint32_t n = (uint32_t)bt_min_u64(s->n_ubatch, s->n_ctx - start);
        BT_TRY(bt_session_decode(s->session, s->chunk + start, n, s->wants + start, err));
        for (uint32_t i = 0; i < n; i++) {
            if (!s->wants[start + i] || start + i + 1 >= s->n_ctx) continue;
            const float *logits = llama_get_logits_ith(context, (int32_t)i);
            if (!logits) return bt_fail(err, BT_E_DEVICE, "logits", BT_MEASURE_NONE, 0, 0, "llama.cpp gave no logits");
            double value = negative_log_likelihood(logits, n_vocab, s->chunk[start + i + 1]);
            s->sum += value;
            s->sum_of_squares += value * value;
            s->n_scored++;
        }
    }
    return BT_OK;
}

static bt_status read_first(scorer *s, bt_error *err) {
    uint32_t n = 0;
    BT_TRY(bt_token_stream_next(s->tokens, s->chunk, 2 * s->n_ctx, &n, err));
    if (n / 2 < s->n_ctx)
        return bt_fail(err, BT_E_ARG, "text_short", BT_MEASURE_TOKENS, 2 * (uint64_t)s->n_ctx, n,
                       "the text has %u tokens; with a context of %u at least %u are needed", n, s->n_ctx,
                       2 * s->n_ctx);
    s->n_ahead = s->n_ctx;
    return BT_OK;
}

static bt_status go_on(scorer *s, bt_error *err) {
    memcpy(s->chunk, s->chunk + s->n_ctx, s->n_ctx * sizeof *s->chunk);
    return bt_token_stream_next(s->tokens, s->chunk + s->n_ctx, s->n_ctx, &s->n_ahead, err);
}

static bt_status score_all(scorer *s, uint32_t max_chunks, bool (*on_chunk)(uint32_t, double, void *), void *user,
                           bt_error *err) {
    for (uint32_t i = 0; i < s->n_ctx; i++)
        s->wants[i] = i >= s->n_ctx / 2;
    BT_TRY(read_first(s, err));
    for (bool more = true; more;) {
        if (llama_vocab_get_add_bos(s->vocab)) s->chunk[0] = llama_vocab_bos(s->vocab);
        BT_TRY(score_chunk(s, err));
        if (on_chunk && !on_chunk(s->n_chunks, exp(s->sum / (double)s->n_scored), user))
            return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "scoring was stopped");
        more = ++s->n_chunks < max_chunks && s->n_ahead == s->n_ctx;
        if (more) BT_TRY(go_on(s, err));
    }
    return BT_OK;
}

bt_status bt_perplexity_compute(bt_session *session, bt_token_stream *tokens, uint32_t n_chunk, uint32_t n_ubatch,
                                uint32_t max_chunks, bool (*on_chunk)(uint32_t, double, void *), void *user,
                                bt_perplexity *ret, bt_error *err) {
    uint32_t n_ctx = (uint32_t)bt_min_u64(n_chunk, bt_session_n_ctx(session));
    if (n_ctx < CHUNK_MIN)
        return bt_fail(err, BT_E_ARG, "text_short", BT_MEASURE_TOKENS, CHUNK_MIN, n_ctx,
                       "a context of %u tokens scores nothing; at least %u are needed", n_ctx, CHUNK_MIN);
    scorer s = {.session = session, .tokens = tokens, .n_ctx = n_ctx, .n_ubatch = n_ubatch};
    s.vocab = llama_model_get_vocab(llama_get_model(bt_session_context(session)));
    s.chunk = bt_heap_array(n_ctx, 2 * sizeof *s.chunk);
    s.wants = bt_heap_array(n_ctx, sizeof *s.wants);
    bt_status status;
    if (!s.chunk || !s.wants)
        status =
            bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n_ctx, 0, "no memory for a chunk of %u tokens", n_ctx);
    else
        status = score_all(&s, max_chunks, on_chunk, user, err);
    bt_heap_free(s.chunk);
    bt_heap_free(s.wants);
    if (status != BT_OK) return status;
    double mean = s.sum / (double)s.n_scored;
    double variance = s.sum_of_squares / (double)s.n_scored - mean * mean;
    ret->n_chunks = s.n_chunks;
    ret->n_scored = s.n_scored;
    ret->value = exp(mean);
    ret->error = variance > 0.0 ? sqrt(variance / (double)(s.n_scored - 1)) * ret->value : 0.0;
    return BT_OK;
}
