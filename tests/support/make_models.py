#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the models that no package holds: real dimensions, random weights.

  random-1.1b   TinyLlama-1.1B's shape (22 blocks, 2048 wide, 32 heads of which 4 hold keys and values, 32000 tokens,
                output not tied), Q4_K_M, 636 MiB: what streaming and its limits are measured on. Its text is noise,
                but memory, reading and arithmetic are those of the real model, and so is equality of two runs.
  random-mix    no two blocks alike: the deci architecture with heads and widths for each block, one block without
                attention, seven types from Q4_0 to F16 side by side in a block, a head that is not tied; 330 MiB.
                What takes "a block" to have one size is wrong on it.
  random-128k   Llama 3's 128,256 byte pairs over twelve blocks, tied: the vocabulary and the head are most of what a
                small budget holds; 295 MiB.
  random-moe    a mixture of experts, 16 blocks of 64 of which a token uses 4, Q4_K, 1.0 GiB. Attention adds nothing, so
                that the router sees each token for itself and uses the experts nearly evenly: the harsh case for a cache.
  random-moe-collapsed
                the same with attention, which makes tokens alike: the router comes back to the same experts.

random-1.1b: weights are normal with deviation 0.02, as models are initialised, norms are one: activations stay finite.
One block of BLOCK_VALUES values is drawn with a fixed seed, and every tensor is a run of it from a place of its own;
the length is a prime, so that no two rows of a matrix are equal. The F16 file is written piece by piece and then
quantized by llama-quantize. The others are written as they are, by random_model.py: seconds, and no tool of llama.cpp.
Needs nothing but the standard library.

usage: make_models.py [NAME]...      no name: all; one that is there is left alone
"""

import array
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

import random_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "build" / "models"
LLAMA_BIN = pathlib.Path(os.environ.get("BT_LLAMA_BIN", ROOT / "build" / "llama.cpp" / "build" / "bin"))
VOCABS = ROOT / "build" / "llama.cpp" / "source" / "models"
VOCAB = VOCABS / "ggml-vocab-llama-spm.gguf"
VOCAB_128K = VOCABS / "ggml-vocab-llama-bpe.gguf"

SEED = 20260
BLOCK_VALUES = 2097143  # the largest prime under 2^21: 4 MiB as F16
DEVIATION = 0.02
ALIGNMENT = 32  # GGUF's default

# GGUF's value types (the format's specification, ggml/docs/gguf.md) and their fixed sizes.
TYPE_UINT32, TYPE_FLOAT32, TYPE_STRING, TYPE_ARRAY = 4, 6, 8, 9
TYPE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
GGML_F32, GGML_F16 = 0, 1
FILE_TYPE_F16 = 1


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


class Metadata:
    """The key-value pairs of a GGUF file, each as the bytes that stand in the file."""

    def __init__(self, path):
        self.data = path.read_bytes()
        magic, version, _, count = struct.unpack_from("<4sIQQ", self.data)
        if magic != b"GGUF" or version != 3:
            raise SystemExit(f"make_models: {path} is not GGUF version 3")
        self.at = struct.calcsize("<4sIQQ")
        self.pairs = {}
        for _ in range(count):
            start = self.at
            key = self._string()
            (kind,) = self._take("<I")
            self._skip(kind)
            self.pairs[key] = self.data[start : self.at]

    def _take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def _string(self):
        (length,) = self._take("<Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def _skip(self, kind):
        if kind == TYPE_STRING:
            self._string()
        elif kind == TYPE_ARRAY:
            item, count = self._take("<IQ")
            if item in TYPE_BYTES:
                self.at += TYPE_BYTES[item] * count
            else:
                for _ in range(count):
                    self._skip(item)
        else:
            self.at += TYPE_BYTES[kind]


def pair(key, kind, value):
    layout = {TYPE_UINT32: "<I", TYPE_FLOAT32: "<f"}.get(kind)
    body = struct.pack(layout, value) if layout else gguf_string(value)
    return gguf_string(key) + struct.pack("<I", kind) + body


def random_block():
    """BLOCK_VALUES halves, twice over, so that a run may start anywhere."""
    draw = random.Random(SEED)
    values = [draw.gauss(0.0, DEVIATION) for _ in range(BLOCK_VALUES)]
    block = struct.pack(f"<{BLOCK_VALUES}e", *values)
    return block + block


def write_random(out, block, start, count):
    """`count` halves, from the place `start` of the endless repetition of the block."""
    at = start % BLOCK_VALUES
    while count > 0:
        now = min(count, BLOCK_VALUES)
        out.write(block[2 * at : 2 * (at + now)])
        at = (at + now) % BLOCK_VALUES
        count -= now


def write_f16(path, metadata, tensors):
    """A GGUF file: tensors is a list of (name, dimensions), one dimension meaning a norm."""
    block = random_block()
    infos, offset, sizes = [], 0, []
    for name, dimensions in tensors:
        norm = len(dimensions) == 1
        values = 1
        for dimension in dimensions:
            values *= dimension
        infos.append(gguf_string(name) + struct.pack("<I", len(dimensions)) +
                     struct.pack(f"<{len(dimensions)}Q", *dimensions) +
                     struct.pack("<IQ", GGML_F32 if norm else GGML_F16, offset))
        size = values * (4 if norm else 2)
        padding = -size % ALIGNMENT
        sizes.append((norm, values, padding))
        offset += size + padding
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + b"".join(metadata) + b"".join(infos)
    with open(path, "wb") as out:
        out.write(header + bytes(-len(header) % ALIGNMENT))
        places = random.Random(SEED + 1)
        for norm, values, padding in sizes:
            if norm:
                out.write(array.array("f", [1.0]) * values)
            else:
                write_random(out, block, places.randrange(BLOCK_VALUES), values)
            out.write(bytes(padding))


def vocabulary(path):
    """The tokenizer's pairs of a file that llama.cpp carries, and how many tokens it has."""
    pairs = Metadata(path).pairs
    kept = [text for key, text in pairs.items() if key.startswith("tokenizer.")]
    (tokens,) = struct.unpack_from("<Q", pairs["tokenizer.ggml.tokens"], len(gguf_string("tokenizer.ggml.tokens")) + 8)
    return kept, tokens


def llama(blocks, width, ff, heads, kv_heads, context):
    """Metadata and tensors of a dense model of the llama architecture, on the vocabulary that llama.cpp carries."""
    kept, tokens = vocabulary(VOCAB)
    head = width // heads
    metadata = [
        pair("general.architecture", TYPE_STRING, "llama"),
        pair("general.name", TYPE_STRING, "random weights"),
        pair("general.file_type", TYPE_UINT32, FILE_TYPE_F16),
        pair("llama.block_count", TYPE_UINT32, blocks),
        pair("llama.context_length", TYPE_UINT32, context),
        pair("llama.embedding_length", TYPE_UINT32, width),
        pair("llama.feed_forward_length", TYPE_UINT32, ff),
        pair("llama.attention.head_count", TYPE_UINT32, heads),
        pair("llama.attention.head_count_kv", TYPE_UINT32, kv_heads),
        pair("llama.rope.dimension_count", TYPE_UINT32, head),
        pair("llama.rope.freq_base", TYPE_FLOAT32, 10000.0),
        pair("llama.attention.layer_norm_rms_epsilon", TYPE_FLOAT32, 1e-5),
        pair("llama.vocab_size", TYPE_UINT32, tokens),
    ] + kept
    tensors = [("token_embd.weight", (width, tokens))]
    for index in range(blocks):
        tensors += [
            (f"blk.{index}.attn_norm.weight", (width,)),
            (f"blk.{index}.attn_q.weight", (width, width)),
            (f"blk.{index}.attn_k.weight", (width, head * kv_heads)),
            (f"blk.{index}.attn_v.weight", (width, head * kv_heads)),
            (f"blk.{index}.attn_output.weight", (width, width)),
            (f"blk.{index}.ffn_norm.weight", (width,)),
            (f"blk.{index}.ffn_gate.weight", (width, ff)),
            (f"blk.{index}.ffn_up.weight", (width, ff)),
            (f"blk.{index}.ffn_down.weight", (ff, width)),
        ]
    tensors += [("output_norm.weight", (width,)), ("output.weight", (width, tokens))]
    return metadata, tensors


def make_dense(part):
    """random-1.1b: F16 first, then llama-quantize's choice of types for Q4_K_M."""
    f16 = part.with_suffix(f".f16-{os.getpid()}")
    try:
        write_f16(f16, *llama(blocks=22, width=2048, ff=5632, heads=32, kv_heads=4, context=2048))
        done = subprocess.run([LLAMA_BIN / "llama-quantize", f16, part, "Q4_K_M", str(os.cpu_count())],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise SystemExit(f"make_models: llama-quantize failed:\n{done.stdout.decode(errors='replace')[-2000:]}")
    finally:
        f16.unlink(missing_ok=True)


MIX_BLOCKS = 24
MIX_WIDTHS = (2048, 4096, 2816, 8192, 1024)
MIX_HEADS = (16, 8, 16, 12)
MIX_KV_HEADS = (4, 8, 2, 4)
MIX_TYPES = ("q8_0", "q4_K", "f16", "q6_K", "q4_0", "q5_K", "q5_0")
MIX_WITHOUT_ATTENTION = 10


def mix_type(name):
    """The type of a matrix: neighbours in a block differ, and so does a matrix from itself in the next block."""
    if not name.startswith("blk."):
        return "q6_K" if name == "output.weight" else "q4_K"
    _, block, part = name.split(".", 2)
    place = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down").index(part.split(".")[0])
    return MIX_TYPES[(int(block) + 3 * place) % len(MIX_TYPES)]


def make_mix(part):
    def cycle(values, empty=()):
        return [0 if block in empty else values[block % len(values)] for block in range(MIX_BLOCKS)]

    kept, tokens = vocabulary(VOCAB)
    shape = random_model.Shape("deci", blocks=MIX_BLOCKS, embd=1024, ff=cycle(MIX_WIDTHS),
                               heads=cycle(MIX_HEADS, (MIX_WITHOUT_ATTENTION,)),
                               kv_heads=cycle(MIX_KV_HEADS, (MIX_WITHOUT_ATTENTION,)), head_dim=64, ctx=8192, tied=False,
                               kind_of=mix_type)
    random_model.write(part, shape, kept, tokens, SEED)


def make_128k(part):
    kept, tokens = vocabulary(VOCAB_128K)
    shape = random_model.Shape("llama", blocks=12, embd=1024, ff=4096, heads=16, kv_heads=4, head_dim=64, ctx=8192,
                               rope_base=500000.0, kind_of=lambda name: "q6_K" if "embd" in name else "q8_0")
    random_model.write(part, shape, kept, tokens, SEED)


def moe_shape(is_zero):
    return random_model.Shape("qwen3moe", blocks=16, embd=1024, ff=512, heads=16, kv_heads=4, head_dim=64, ctx=4096,
                              tied=False, experts=64, experts_used=4, is_zero=is_zero,
                              kind_of=lambda name: "q6_K" if name == "output.weight" else "q4_K")


def make_moe(part):
    kept, tokens = vocabulary(VOCAB)
    random_model.write(part, moe_shape(lambda name: "attn_output" in name), kept, tokens, SEED)


def make_moe_collapsed(part):
    kept, tokens = vocabulary(VOCAB)
    random_model.write(part, moe_shape(lambda name: False), kept, tokens, SEED)


# name: (file, bytes of disk while it is made, what writes it)
KNOWN = {
    "random-1.1b": ("random-1.1b-q4_k_m.gguf", 3 << 30, make_dense),
    "random-mix": ("random-mix.gguf", 1 << 30, make_mix),
    "random-128k": ("random-128k.gguf", 1 << 30, make_128k),
    "random-moe": ("random-moe.gguf", 2 << 30, make_moe),
    "random-moe-collapsed": ("random-moe-collapsed.gguf", 2 << 30, make_moe_collapsed),
}


def make(name):
    """Path of the model, made now if it is not there."""
    file, disk_bytes, write = KNOWN[name]
    path = MODELS / file
    if path.exists():
        return path
    MODELS.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(MODELS).free
    if free < disk_bytes:
        raise SystemExit(f"make_models: {name} needs {disk_bytes >> 20} MiB of disk while it is made, {free >> 20} are free")
    started = time.monotonic()
    part = path.with_suffix(f".part-{os.getpid()}")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print(f"{path.name}: {path.stat().st_size / (1 << 20):.1f} MiB, made in {time.monotonic() - started:.0f} s",
          file=sys.stderr)
    return path


def main():
    names = sys.argv[1:] or list(KNOWN)
    for name in names:
        if name not in KNOWN:
            raise SystemExit(f"make_models: {name} is not known; these are: {', '.join(KNOWN)}")
    for name in names:
        print(make(name))


if __name__ == "__main__":
    main()
