# SPDX-License-Identifier: MIT
"""Small mixtures of experts with random weights: the shapes of OLMoE, Qwen3-MoE, Mixtral, gpt-oss and Hy-V3, each with
what is its own (heads, types, a window, a first block without experts), some 20 to 40 MiB of experts."""

import random_model

N_VOCAB = 2000
SEED = 7


def q4_but(kind):
    """Experts of a type, the rest as publishers mix them."""
    return lambda name: kind if "exps" in name else "q6_K" if name == "output.weight" else "q8_0"


SHAPES = {
    "olmoe": random_model.Shape("olmoe", blocks=4, embd=512, ff=256, heads=8, kv_heads=8, head_dim=64, ctx=2048,
                                tied=False, experts=32, experts_used=8, kind_of=q4_but("q4_K")),
    "qwen3moe": random_model.Shape("qwen3moe", blocks=4, embd=512, ff=256, heads=8, kv_heads=2, head_dim=64, ctx=2048,
                                   tied=False, experts=32, experts_used=4, kind_of=q4_but("q5_K")),
    "mixtral": random_model.Shape("llama-moe", blocks=3, embd=512, ff=1024, heads=8, kv_heads=2, head_dim=64, ctx=2048,
                                  tied=False, experts=8, experts_used=2, kind_of=q4_but("q4_0")),
    "gpt-oss": random_model.Shape("gpt-oss", blocks=4, embd=576, ff=576, heads=8, kv_heads=2, head_dim=64, ctx=2048,
                                  window=128, experts=16, experts_used=4,
                                  kind_of=lambda name: "mxfp4" if "exps" in name else "q8_0"),
    "hy-v3": random_model.Shape("hy_v3", blocks=4, embd=512, ff=256, heads=8, kv_heads=2, head_dim=64, ctx=2048,
                                tied=False, experts=32, experts_used=4, kind_of=q4_but("q4_K")),
}


def write(path, name):
    random_model.write(path, SHAPES[name], random_model.sentencepiece(N_VOCAB), N_VOCAB, SEED)
