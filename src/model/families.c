/* SPDX-License-Identifier: MIT
 *
 * families.c: what each architecture keeps between tokens.
 *
 * llama.cpp has about 150 graphs and a handful of memories under them: keys and values of each block; the same within a
 * window; one latent row for all heads; a state of fixed size for each sequence; nothing at all. Which architecture has
 * which is read from its source, not guessed: llama_model::create_memory, and load_arch_hparams in
 * src/models/<arch>.cpp, which says where windows and recurrent blocks are. An architecture without a row here is
 * unknown, and said to be (docs/design.md section 6). Left out, because their memory is of a kind of its own
 * (compressed, indexed, shared with another model, or without an order): deepseek4, glm-dsa, dots3note,
 * hy_v4, minimax-01, minimax-m3, glm5-next, kimi-k3, qwen4exp, t5, diffusion models.
 */
#include "model/families.h"

#include <stddef.h>
#include <string.h>

#define PLAIN(arch) {.name = (arch)}
#define WINDOWS(arch, rule_, window_, period_, flags_)                                                                 \
    {.name = (arch), .rule = (rule_), .window = (window_), .period = (period_), .flags = (flags_)}
#define LATENT(arch)                {.name = (arch), .flags = BT_LATENT}
#define ENCODER(arch)               {.name = (arch), .flags = BT_ENCODER}
#define STATE(arch, where_, state_) {.name = (arch), .where = (where_), .state = (state_)}

static const bt_family families[] = {
    /* keys and values of every block */
    PLAIN("apertus"),
    PLAIN("arcee"),
    PLAIN("arctic"),
    PLAIN("baichuan"),
    PLAIN("bailingmoe"),
    PLAIN("bailingmoe2"),
    PLAIN("bitnet"),
    PLAIN("bloom"),
    PLAIN("chameleon"),
    PLAIN("chatglm"),
    PLAIN("codeshell"),
    PLAIN("command-r"),
    PLAIN("dbrx"),
    PLAIN("deci"),
    PLAIN("deepseek"),
    PLAIN("deepseek2-ocr"),
    PLAIN("dots1"),
    PLAIN("ernie4_5"),
    PLAIN("ernie4_5-moe"),
    PLAIN("exaone"),
    PLAIN("falcon"),
    PLAIN("gemma"),
    PLAIN("glm4"),
    PLAIN("glm4moe"),
    PLAIN("gpt2"),
    PLAIN("gptneox"),
    PLAIN("granite"),
    PLAIN("granitemoe"),
    PLAIN("grok"),
    PLAIN("grovemoe"),
    PLAIN("hunyuan-dense"),
    PLAIN("hunyuan-moe"),
    PLAIN("hy_v3"),
    PLAIN("internlm2"),
    PLAIN("jais"),
    PLAIN("jais2"),
    PLAIN("llama"),
    PLAIN("maincoder"),
    PLAIN("minicpm"),
    PLAIN("minicpm3"), /* its latent rows are expanded before they are kept, */
    PLAIN("minimax-m2"),
    PLAIN("mistral3"),
    PLAIN("mpt"),
    PLAIN("nemotron"),
    PLAIN("olmo"),
    PLAIN("olmoe"),
    PLAIN("openelm"),
    PLAIN("orion"),
    PLAIN("paddleocr"),
    PLAIN("pangu-embedded"),
    PLAIN("phi2"),
    PLAIN("phi3"), /* has window keys; llama.cpp ignores them */
    PLAIN("phimoe"),
    PLAIN("plamo"),
    PLAIN("plm"), /* as are these */
    PLAIN("qwen"),
    PLAIN("qwen2"),
    PLAIN("qwen2moe"),
    PLAIN("qwen2vl"),
    PLAIN("qwen3"),
    PLAIN("qwen3moe"),
    PLAIN("qwen3vl"),
    PLAIN("qwen3vlmoe"),
    PLAIN("refact"),
    PLAIN("seed_oss"),
    PLAIN("smollm3"),
    PLAIN("stablelm"),
    PLAIN("starcoder"),
    PLAIN("starcoder2"),
    PLAIN("xverse"),
    /* windows */
    WINDOWS("afmoe", BT_WINDOW_IF_SET, 0, 4, 0),
    WINDOWS("cohere2", BT_WINDOW_ALWAYS, 0, 4, 0),
    WINDOWS("cohere2moe", BT_WINDOW_ALWAYS, 0, 4, BT_DENSE_FIRST),
    WINDOWS("exaone-moe", BT_WINDOW_ALWAYS, 0, 4, 0),
    WINDOWS("exaone4", BT_WINDOW_ALWAYS, 4096, 4, BT_ONLY_64),
    WINDOWS("gemma2", BT_WINDOW_ALWAYS, 4096, 2, 0),
    WINDOWS("gemma3", BT_WINDOW_IF_SET, 0, 6, 0),
    WINDOWS("gemma3n", BT_WINDOW_ALWAYS, 0, 5, BT_SHARES_20),
    WINDOWS("gemma4", BT_WINDOW_ALWAYS, 0, 0, BT_NEEDS_PATTERN | BT_SHARES_KEY),
    WINDOWS("gpt-oss", BT_WINDOW_ALWAYS, 0, 2, 0),
    WINDOWS("granite_swa", BT_WINDOW_ALWAYS, 0, 0, BT_NEEDS_PATTERN),
    WINDOWS("llama4", BT_WINDOW_UNLESS_0, 8192, 4, 0), /* chunks, not windows; the cache has as many cells */
    WINDOWS("mellum", BT_WINDOW_IF_SET, 0, 4, 0),
    WINDOWS("olmo2", BT_WINDOW_IF_SET, 0, 4, 0),
    WINDOWS("smallthinker", BT_WINDOW_IF_SET, 4096, 4, BT_DENSE_FIRST),
    /* latent attention; a file from before attn_kv_b was split lacks the keys, and keeps keys and values of each head
     */
    LATENT("deepseek2"),
    LATENT("mistral4"),
    {.name = "deepseek32", .flags = BT_LATENT | BT_INDEXED},
    /* nothing but a state */
    STATE("mamba", BT_RECURRENT_ALL, BT_STATE_SSM),
    STATE("mamba2", BT_RECURRENT_ALL, BT_STATE_SSM),
    STATE("rwkv6", BT_RECURRENT_ALL, BT_STATE_WKV),
    STATE("rwkv7", BT_RECURRENT_ALL, BT_STATE_WKV),
    STATE("arwkv7", BT_RECURRENT_ALL, BT_STATE_WKV),
    STATE("rwkv6qwen2", BT_RECURRENT_ALL, BT_STATE_WKV),
    /* a state in some blocks, keys and values in the others */
    STATE("falcon-h1", BT_RECURRENT_BESIDE, BT_STATE_SSM),
    STATE("granitehybrid", BT_RECURRENT_NO_KV, BT_STATE_SSM),
    STATE("jamba", BT_RECURRENT_NO_KV, BT_STATE_SSM),
    STATE("plamo2", BT_RECURRENT_NO_KV, BT_STATE_SSM),
    STATE("nemotron_h", BT_RECURRENT_NO_KV_NO_FF, BT_STATE_SSM),
    STATE("nemotron_h_moe", BT_RECURRENT_NO_KV_NO_FF, BT_STATE_SSM),
    STATE("qwen3next", BT_RECURRENT_INTERVAL, BT_STATE_SSM),
    STATE("qwen35", BT_RECURRENT_INTERVAL, BT_STATE_SSM),
    STATE("qwen35moe", BT_RECURRENT_INTERVAL, BT_STATE_SSM),
    {.name = "lfm2", .rule = BT_WINDOW_IF_SET, .where = BT_RECURRENT_NO_KV, .state = BT_STATE_SHORT_CONV},
    STATE("lfm2moe", BT_RECURRENT_NO_KV, BT_STATE_SHORT_CONV),
    {.name = "kimi-linear", .where = BT_RECURRENT_NO_KV, .state = BT_STATE_KDA, .flags = BT_LATENT},
    {.name = "bailingmoe3", .where = BT_RECURRENT_NO_KV, .state = BT_STATE_KDA, .flags = BT_LATENT},
    /* nothing */
    ENCODER("bert"),
    ENCODER("eurobert"),
    ENCODER("gemma-embedding"),
    ENCODER("jina-bert-v2"),
    ENCODER("jina-bert-v3"),
    ENCODER("modern-bert"),
    ENCODER("neo-bert"),
    ENCODER("nomic-bert"),
    ENCODER("nomic-bert-moe"),
};

const bt_family *bt_family_find(const char *arch) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, arch) == 0) return &families[i];
    }
    return NULL;
}
