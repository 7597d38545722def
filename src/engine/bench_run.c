/* SPDX-License-Identifier: MIT
 *
 * bench_run.c: a prompt and an answer of made-up tokens, timed, of one sequence or of several at once.
 *
 *     clear | prompt | settle, bare passes | token token token ... | settle, bare passes
 *             -------                        ---------------------
 *             prompt_ns                      decode_ns, and what device and reader counted
 *
 * The tokens are fed, not sampled, as llama-bench does: the time of a sampler is not the engine's, and a model that
 * repeats itself would read the same rows and experts over and over. Reading ahead goes on behind the last token; it is
 * waited for before the reader's count is taken, as it was before the first, so that what is counted is what the tokens
 * between took. */

#include "engine/bench_run.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"

#include "llama.h"

/* Passes of the reader alone, before and after: so many or so long. Single ones of 95 MB gave 0.6 to 1.4 GB/s within
 * some minutes on the machine of docs/measurements.md; a large model's pass is long enough by itself. */
#define BARE_NS  UINT64_C(200000000)
#define BARE_MAX 16u

/* SplitMix64 (Steele, Lea, Flood 2014): any seed will do, so that it is the same each time. */
#define SEED UINT64_C(0x6275727468656e)

static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool is_plain(const struct llama_vocab *vocab, int32_t token) {
    return !llama_vocab_is_control(vocab, token) && !llama_vocab_is_eog(vocab, token);
}

/* The next token that is text, from a random one on; -1: there is none. */
static int32_t draw(const struct llama_vocab *vocab, uint32_t n_vocab, uint64_t *state) {
    uint64_t start = random_next(state) % n_vocab;
    for (uint32_t i = 0; i < n_vocab; i++) {
        int32_t token = (int32_t)((start + i) % n_vocab);
        if (is_plain(vocab, token)) return token;
    }
    return -1;
}

bt_status bt_bench_tokens(bt_engine *engine, uint32_t n_sequences, uint32_t n_each, int32_t *ret_tokens,
                          bt_error *err) {
    const struct llama_vocab *vocab = llama_model_get_vocab(bt_engine_model(engine));
    int32_t n_vocab = llama_vocab_n_tokens(vocab);
    uint64_t state = SEED;
    bool begins = llama_vocab_get_add_bos(vocab) && llama_vocab_bos(vocab) >= 0;
    for (size_t i = 0; i < (size_t)n_sequences * n_each; i++) {
        ret_tokens[i] = n_vocab > 0 ? draw(vocab, (uint32_t)n_vocab, &state) : -1;
        if (ret_tokens[i] < 0)
            return bt_fail(err, BT_E_UNSUPPORTED, "bench_vocab", BT_MEASURE_ITEMS, 1, 0,
                           "the model has no tokens of text to measure with");
        if (begins && i % n_each == 0) ret_tokens[i] = llama_vocab_bos(vocab);
    }
    return BT_OK;
}

bt_status bt_bench_warm_up(bt_session *session, const int32_t *tokens, uint32_t n_each, bt_error *err) {
    bt_session_clear(session);
    return bt_session_decode_each(session, tokens, n_each, 1, err);
}

/* ---- what is counted -------------------------------------------------------------------------------------------- */

typedef struct counters {
    bt_device_stats device;
    bt_reader_stats reader;
    uint64_t major_faults, passes;
} counters;

static void counters_read(bt_engine *engine, const bt_session *session, counters *ret) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    ret->major_faults = memory.major_faults.value;
    ret->passes = bt_session_passes(session);
    bt_device_stats_read(bt_engine_device(engine), &ret->device);
    bt_reader_stats_read(bt_engine_reader(engine), &ret->reader);
}

static bt_status bare_passes(bt_engine *engine, bt_bench_repetition *ret, bt_error *err) {
    uint64_t spent_ns = 0;
    for (uint32_t i = 0; i < BARE_MAX && spent_ns < BARE_NS; i++) {
        uint64_t bytes = 0;
        uint64_t ns = 0;
        BT_TRY(bt_device_read_pass(bt_engine_device(engine), &bytes, &ns, err));
        if (bytes == 0) break; /* nothing streams, or all that does has room in the ring */
        ret->bare_bytes = bt_sat_add_u64(ret->bare_bytes, bytes);
        ret->bare_ns = bt_sat_add_u64(ret->bare_ns, ns);
        spent_ns = bt_sat_add_u64(spent_ns, ns);
    }
    return BT_OK;
}

/* n tokens of each sequence, and until they are computed: as asking for the logits would. */
static bt_status decode(bt_session *session, const int32_t *tokens, uint32_t n_each, uint32_t n, bt_error *err) {
    BT_TRY(bt_session_decode_each(session, tokens, n_each, n, err));
    llama_synchronize(bt_session_context(session));
    return BT_OK;
}

bt_status bt_bench_repeat(bt_engine *engine, bt_session *session, const int32_t *tokens, uint32_t n_prompt,
                          uint32_t n_gen, bt_bench_repetition *ret, bt_error *err) {
    bt_bench_repetition r = {0};
    uint32_t n_each = n_prompt + n_gen;
    counters before;
    counters after;
    bt_session_clear(session);
    uint64_t start_ns = bt_os_now_ns();
    BT_TRY(decode(session, tokens, n_each, n_prompt, err));
    r.prompt_ns = bt_os_now_ns() - start_ns;
    BT_TRY(bare_passes(engine, &r, err));
    counters_read(engine, session, &before);
    start_ns = bt_os_now_ns();
    for (uint32_t i = n_prompt; i < n_each; i++)
        BT_TRY(decode(session, tokens + i, n_each, 1, err));
    r.decode_ns = bt_os_now_ns() - start_ns;
    BT_TRY(bt_device_read_settle(bt_engine_device(engine), err));
    counters_read(engine, session, &after);
    r.passes = after.passes - before.passes;
    r.read_bytes = after.reader.read_bytes - before.reader.read_bytes;
    r.busy_ns = after.reader.busy_ns - before.reader.busy_ns;
    r.wait_ns = after.device.wait_ns - before.device.wait_ns;
    r.compute_ns = after.device.compute_ns - before.device.compute_ns;
    r.major_faults = bt_sat_sub_u64(after.major_faults, before.major_faults);
    BT_TRY(bare_passes(engine, &r, err));
    *ret = r;
    return BT_OK;
}
