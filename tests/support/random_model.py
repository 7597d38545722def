# SPDX-License-Identifier: MIT
"""GGUF files of random weights, of any shape, in any of a dozen and more architectures.

    shape = Shape("qwen3", blocks=4, embd=256, ff=704, heads=4, kv_heads=2, ...)
    write(path, shape, vocabulary(...), seed)

What is tested on such a file is memory, reading and equality of two runs, so its text may be noise; but nothing in it
may overflow. Matrices have deviation 1/sqrt(inputs), which keeps activations near 1 from block to block; norms are
one. Quantised types are not made by quantising: a block of random bits with fitting scales is a block of random
weights, so a gigabyte costs what writing it costs. Data comes from a pool for each type, drawn with a seed; a tensor is
a run of it from a place of its own. The pool's length is a prime number of blocks, and no less than the tensor has
rows, so that no two rows are equal: equal rows of a head are equal logits, and which of them is the largest is then
anybody's choice.

Names, shapes and keys are those that llama.cpp loads (src/models/<architecture>.cpp). Left out: recurrent
architectures, latent attention, encoders, whose KV the planner does not price by formula. Needs nothing but the
standard library."""

import dataclasses
import functools
import math
import random
import struct

import mkgguf
from mkgguf import ARRAY, BOOL, F32, I32, STRING, U32

POOL_BYTES = 1 << 20  # of each type, or more for a tensor of many rows; larger tensors repeat it
NORM_EPSILON = 1e-5

# ---- data -----------------------------------------------------------------------------------------------------------

# Root mean square of a uniform signed byte, and of a number of 4 to 6 bits less its middle.
INT8 = ((256**2 - 1) / 12) ** 0.5
BITS4, BITS5, BITS6 = (((1 << bits) ** 2 - 1) / 12 for bits in (4, 5, 6))
# K-quants: scale times number less minimum times minimum's scale, all uniform; the scales have 6 bits. With the second
# factor the mean number, the mean is 0 and the variance is the sum of both products' variances.
SCALE6, SCALE6_MEAN = (63 * 127) / 6, 63 / 2


def k_quant_deviation(bits):
    top = (1 << bits) - 1
    mean, square = top / 2, top * (2 * top + 1) / 6
    return (SCALE6 * square - (SCALE6_MEAN * mean) ** 2 + mean**2 * (SCALE6 - SCALE6_MEAN**2)) ** 0.5


MXFP4 = (sum(n * n for n in (0, 1, 2, 3, 4, 6, 8, 12)) / 8) ** 0.5
# type: (fields before the bits, bytes of bits, fields after); a field is the half-precision number by which the wished
# deviation is multiplied (ggml/src/ggml-common.h has the layouts).
K4, K5, K6 = 1 / k_quant_deviation(4), 1 / k_quant_deviation(5), 1 / (INT8 * BITS6**0.5)
LAYOUT = {
    "q8_0": ((1 / INT8,), 32, ()),
    "q4_0": ((BITS4**-0.5,), 16, ()),
    "q4_1": ((BITS4**-0.5, -7.5 * BITS4**-0.5), 16, ()),
    "q5_0": ((BITS5**-0.5,), 20, ()),
    "q4_K": ((K4, 7.5 * K4), 140, ()),
    "q5_K": ((K5, 15.5 * K5), 172, ()),
    "q6_K": ((), 208, (K6,)),
}


def prime_from(n):
    return next(p for p in range(n, 2 * n) if all(p % d for d in range(2, int(p**0.5) + 1)))


@functools.lru_cache(maxsize=None)
def pool(kind, deviation, seed, n_blocks):
    """A prime number of blocks of a type, n_blocks or some more, as bytes."""
    n = prime_from(n_blocks)
    draw = random.Random(f"{seed} {kind} {deviation}")
    if kind in ("f32", "f16"):
        values = [draw.gauss(0.0, deviation) for _ in range(n)]
        return struct.pack(f"<{n}{'f' if kind == 'f32' else 'e'}", *values)
    if kind == "mxfp4":  # a power of two, and numbers with 4 bits whose root mean square is MXFP4
        scale = bytes([128 + round(math.log2(deviation / MXFP4))])
        bits = draw.randbytes(16 * n)
        return b"".join(scale + bits[i : i + 16] for i in range(0, 16 * n, 16))
    before, n_bits, after = LAYOUT[kind]
    head = struct.pack(f"<{len(before)}e", *(deviation * factor for factor in before))
    tail = struct.pack(f"<{len(after)}e", *(deviation * factor for factor in after))
    bits = draw.randbytes(n * n_bits)
    return b"".join(head + bits[i : i + n_bits] + tail for i in range(0, n * n_bits, n_bits))


def write_random(out, kind, n_bytes, n_rows, deviation, seed, place):
    """n_bytes of the endless repetition of a pool, from the block that `place` falls on."""
    _, _, size = mkgguf.TYPES[kind]
    data = pool(kind, deviation, seed, max(POOL_BYTES // size, n_rows))
    at = place % (len(data) // size) * size
    while n_bytes > 0:
        now = min(n_bytes, len(data) - at)
        out.write(memoryview(data)[at : at + now])
        n_bytes -= now
        at = 0


# ---- vocabularies ---------------------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def fillers(n):
    """n different words of capital letters, shortest first: a text of small letters never meets one."""
    found, last = [], [""]
    while len(found) < n:
        last = [word + letter.upper() for word in last for letter in LETTERS]
        found += last
    return found[:n]


def sentencepiece(n):
    """A vocabulary of n >= 300 pieces in which each small letter, and each space, is one token."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581"] + list(LETTERS)
    types = [2, 3, 3] + [6] * 256 + [1] * 27  # unknown, control, byte, normal: llama.h, llama_token_type
    tokens += fillers(n - len(tokens))
    types += [1] * (n - len(types))
    return [("tokenizer.ggml.model", STRING, "llama"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.scores", ARRAY, (F32, [-float(i) for i in range(n)])),
            ("tokenizer.ggml.token_type", ARRAY, (I32, types)),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.unknown_token_id", U32, 0)]


def byte_characters():
    """The printable character that stands for each byte in GPT-2's vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


def byte_pairs(n):
    """A vocabulary of n >= 300 tokens made by merges, in which each small letter, and each space, is one token."""
    words = fillers(26 + n - 257)[26:]
    tokens = byte_characters() + words + ["<|end|>"]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * (n - 1) + [3])),
            ("tokenizer.ggml.merges", ARRAY, (STRING, [f"{word[:-1]} {word[-1]}" for word in words])),
            ("tokenizer.ggml.bos_token_id", U32, n - 1), ("tokenizer.ggml.eos_token_id", U32, n - 1)]


# ---- architectures --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Family:
    """How the blocks of an architecture differ from llama's."""

    layer_norm: bool = False  # with a bias, not RMS norm
    pre_norms: bool = True
    post_norms: bool = False
    ffn_norm: bool = True
    qk_norm: str = ""  # "head": one for each element of a head; "all": of all heads
    fused_qkv: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    ffn: str = "gated"  # "plain": up and down; "fused": gate and up are one matrix
    ffn_bias: bool = False
    free_heads: bool = False  # heads times their length need not be the width of the model
    own_kv_heads: bool = True  # fewer key heads than query heads
    per_block: bool = False  # heads and feed-forward width may differ from block to block
    position_table: bool = False
    windows: bool = False
    experts: bool = False
    expert_bias: bool = False  # of the router and of each expert
    fused_experts: bool = False  # gate and up of an expert are one matrix; beside them an expert that is always used,
    # a bias that only chooses, and a first block without any (hy_v3)
    sinks: bool = False  # a number for each head that attention may go to instead
    tied: bool | None = None  # None: either


FAMILIES = {
    "llama": Family(free_heads=True),
    "llama-moe": Family(free_heads=True, experts=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(free_heads=True, qk_norm="head"),
    "qwen3moe": Family(free_heads=True, qk_norm="head", experts=True),
    "hy_v3": Family(free_heads=True, qk_norm="head", experts=True, fused_experts=True),
    "olmoe": Family(qk_norm="all", experts=True, own_kv_heads=False, tied=False),
    "gpt-oss": Family(free_heads=True, qkv_bias=True, out_bias=True, windows=True, experts=True, expert_bias=True,
                      sinks=True, ffn_norm=False, tied=False),
    "gemma2": Family(free_heads=True, post_norms=True, windows=True, tied=True),
    "gemma3": Family(free_heads=True, post_norms=True, qk_norm="head", windows=True),
    "olmo2": Family(pre_norms=False, post_norms=True, qk_norm="all", tied=False),
    "phi3": Family(fused_qkv=True, ffn="fused"),
    "deci": Family(free_heads=True, per_block=True),
    "gpt2": Family(layer_norm=True, fused_qkv=True, qkv_bias=True, out_bias=True, ffn="plain", ffn_bias=True,
                   own_kv_heads=False, position_table=True),
    "gptneox": Family(layer_norm=True, fused_qkv=True, qkv_bias=True, out_bias=True, ffn="plain", ffn_bias=True,
                      own_kv_heads=False, tied=False),
    "falcon": Family(layer_norm=True, fused_qkv=True, ffn="plain", ffn_norm=False),
    "stablelm": Family(layer_norm=True, tied=False),
    "starcoder2": Family(layer_norm=True, qkv_bias=True, out_bias=True, ffn="plain", ffn_bias=True),
}


@dataclasses.dataclass
class Shape:
    """Numbers of a model. heads, kv_heads and ff are a number, or (family.per_block) a list with one for each block."""

    family: str
    blocks: int
    embd: int
    ff: int | list
    heads: int | list
    kv_heads: int | list
    head_dim: int
    ctx: int
    tied: bool = True
    window: int = 0
    experts: int = 0
    experts_used: int = 0
    rope_base: float = 10000.0
    # tensor name -> whether it is all zeros
    is_zero: object = lambda name: False
    # tensor name -> type; called for matrices only
    kind_of: object = lambda name: "q8_0"

    def at(self, what, block):
        value = getattr(self, what)
        return value[block] if isinstance(value, list) else value


def count(value):
    """A key's kind and value: one for all blocks, or one for each."""
    return (ARRAY, (U32, value)) if isinstance(value, list) else (U32, value)


def keys_of(shape, name):
    family = FAMILIES[shape.family]
    arch = shape.family.removesuffix("-moe")
    epsilon = "layer_norm_epsilon" if family.layer_norm else "layer_norm_rms_epsilon"
    keys = [("general.architecture", STRING, arch), ("general.name", STRING, name),
            (f"{arch}.block_count", U32, shape.blocks), (f"{arch}.context_length", U32, shape.ctx),
            (f"{arch}.embedding_length", U32, shape.embd), (f"{arch}.feed_forward_length", *count(shape.ff)),
            (f"{arch}.attention.head_count", *count(shape.heads)),
            (f"{arch}.attention.head_count_kv", *count(shape.kv_heads)),
            (f"{arch}.attention.{epsilon}", F32, NORM_EPSILON)]
    if not family.position_table:
        keys.append((f"{arch}.rope.freq_base", F32, shape.rope_base))
    if family.free_heads:
        keys += [(f"{arch}.attention.key_length", U32, shape.head_dim),
                 (f"{arch}.attention.value_length", U32, shape.head_dim),
                 (f"{arch}.rope.dimension_count", U32, shape.head_dim)]
    if family.windows:
        keys.append((f"{arch}.attention.sliding_window", U32, shape.window))
    if family.experts:
        keys += [(f"{arch}.expert_count", U32, shape.experts), (f"{arch}.expert_used_count", U32, shape.experts_used),
                 (f"{arch}.expert_feed_forward_length", U32, shape.ff)]
    if arch == "gptneox":
        keys.append((f"{arch}.use_parallel_residual", BOOL, True))
    return keys


def attention(shape, family, block):
    heads, kv_heads = shape.at("heads", block), shape.at("kv_heads", block)
    if heads == 0:
        return []
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    matrices = [("attn_qkv", shape.embd, q + 2 * kv)] if family.fused_qkv else [
        ("attn_q", shape.embd, q), ("attn_k", shape.embd, kv), ("attn_v", shape.embd, kv)]
    parts = [("attn_norm.weight", (shape.embd,))] if family.pre_norms else []
    if family.pre_norms and family.layer_norm:
        parts.append(("attn_norm.bias", (shape.embd,)))
    for name, inputs, outputs in matrices:
        parts.append((f"{name}.weight", (inputs, outputs)))
        if family.qkv_bias:
            parts.append((f"{name}.bias", (outputs,)))
    if family.qk_norm:
        whole = family.qk_norm == "all"
        parts += [("attn_q_norm.weight", (q if whole else shape.head_dim,)),
                  ("attn_k_norm.weight", (kv if whole else shape.head_dim,))]
    parts.append(("attn_output.weight", (q, shape.embd)))
    if family.out_bias:
        parts.append(("attn_output.bias", (shape.embd,)))
    if family.sinks:
        parts.append(("attn_sinks.weight", (heads,)))
    if family.post_norms or family.sinks:
        parts.append(("post_attention_norm.weight", (shape.embd,)))
    return parts


def feed_forward(shape, family, block):
    ff = shape.at("ff", block)
    parts = []
    if family.pre_norms and family.ffn_norm:
        parts.append(("ffn_norm.weight", (shape.embd,)))
        if family.layer_norm:
            parts.append(("ffn_norm.bias", (shape.embd,)))
    if family.fused_experts and block > 0:
        n = shape.experts
        return parts + [("ffn_gate_inp.weight", (shape.embd, n)), ("exp_probs_b", (n,)),
                        ("ffn_gate_up_exps.weight", (shape.embd, 2 * ff, n)), ("ffn_down_exps.weight", (ff, shape.embd, n)),
                        ("ffn_gate_shexp.weight", (shape.embd, ff)), ("ffn_up_shexp.weight", (shape.embd, ff)),
                        ("ffn_down_shexp.weight", (ff, shape.embd))]
    if family.experts and not family.fused_experts:
        n = shape.experts
        parts += [("ffn_gate_inp.weight", (shape.embd, n)), ("ffn_gate_exps.weight", (shape.embd, ff, n)),
                  ("ffn_up_exps.weight", (shape.embd, ff, n)), ("ffn_down_exps.weight", (ff, shape.embd, n))]
        if family.expert_bias:
            parts += [("ffn_gate_inp.bias", (n,)), ("ffn_gate_exps.bias", (ff, n)), ("ffn_up_exps.bias", (ff, n)),
                      ("ffn_down_exps.bias", (shape.embd, n))]
        return parts
    up = 2 * ff if family.ffn == "fused" else ff
    matrices = [("ffn_gate", shape.embd, ff)] if family.ffn == "gated" else []
    for name, inputs, outputs in [*matrices, ("ffn_up", shape.embd, up), ("ffn_down", ff, shape.embd)]:
        parts.append((f"{name}.weight", (inputs, outputs)))
        if family.ffn_bias:
            parts.append((f"{name}.bias", (outputs,)))
    if family.post_norms:
        parts.append(("post_ffw_norm.weight", (shape.embd,)))
    return parts


def tensors_of(shape, n_vocab):
    family = FAMILIES[shape.family]
    tied = shape.tied if family.tied is None else family.tied
    parts = [("token_embd.weight", (shape.embd, n_vocab))]
    if family.position_table:
        parts.append(("position_embd.weight", (shape.embd, shape.ctx)))
    for block in range(shape.blocks):
        inside = attention(shape, family, block) + feed_forward(shape, family, block)
        parts += [(f"blk.{block}.{name}", dimensions) for name, dimensions in inside]
    parts.append(("output_norm.weight", (shape.embd,)))
    if family.layer_norm:
        parts.append(("output_norm.bias", (shape.embd,)))
    if not tied:
        parts.append(("output.weight", (shape.embd, n_vocab)))
    return [(name, kind_of(shape, name, dimensions), dimensions) for name, dimensions in parts]


def kind_of(shape, name, dimensions):
    if len(dimensions) == 1 or "ffn_gate_inp" in name or name.endswith(".bias") or name == "position_embd.weight":
        return "f32"
    return shape.kind_of(name)


def deviation_of(name, dimensions):
    """A power of two, so that few pools serve all tensors."""
    if name.endswith((".bias", "_probs_b")):
        return 1 / 64
    if "_embd" in name:
        return 1 / 64  # little beside what blocks add, or a tied head would find the token that went in
    power = 0
    while 4 ** (power + 1) <= dimensions[0]:
        power += 1
    return 0.5**power


def write(path, shape, vocabulary, n_vocab, seed, name="random weights"):
    """The file of a shape. vocabulary: keys as mkgguf takes them, for n_vocab tokens."""
    places = random.Random(seed)

    def fill(out, tensor, kind, dimensions, n_bytes):
        if shape.is_zero(tensor):
            out.write(bytes(n_bytes))
        elif tensor.endswith("norm.weight"):
            out.write(struct.pack("<f", 1.0) * dimensions[0])
        else:
            n_rows = math.prod(dimensions[1:])
            write_random(out, kind, n_bytes, n_rows, deviation_of(tensor, dimensions), 0, places.getrandbits(32))

    mkgguf.write(path, keys_of(shape, name) + vocabulary, tensors_of(shape, n_vocab), fill)
