#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write GGUF files for tests: a real header, and data that is a hole in the file, or what the caller writes.

    write_model(path, blocks=4, embd=256, ...)      a llama-shaped model, one file or shards
    write_projector(path, embd=1024, ...)           a multimodal projector of pixtral's shape
    write(path, keys, tensors)                      any keys, any tensors
    write(path, keys, tensors, fill)                the same, with data (random_model.py)

A planner reads nothing but the header, so a model of any size costs a few blocks of disk. Needs nothing but the
standard library. As a program: mkgguf.py FILE [NAME=NUMBER or NAME=TEXT of write_model]...
"""

import pathlib
import struct
import sys

ALIGNMENT = 32  # GGUF's default
# value types of the format's specification
U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
U16 = 2
# ggml types: number, elements of a block, bytes of a block
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
         "q8_0": (8, 32, 34), "q4_K": (12, 256, 144), "q5_K": (13, 256, 176), "q6_K": (14, 256, 210), "mxfp4": (39, 32, 17)}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, what):
    if kind == STRING:
        return string(what)
    if kind == ARRAY:
        item, items = what
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, i) for i in items)
    return struct.pack({U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}[kind], what)


def align(n, to=ALIGNMENT):
    return (n + to - 1) // to * to


def tensor_bytes(kind, shape):
    _, elements, size = TYPES[kind]
    n = 1
    for dimension in shape:
        n *= dimension
    return n // elements * size


def write(path, keys, tensors, fill=None):
    """keys: [(name, kind, value)], or the bytes of a pair as they stand in another file; tensors: [(name, type, shape)],
    the fastest dimension first; fill(out, name, type, shape, n_bytes) writes a tensor's data."""
    header = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))]
    for key in keys:
        if isinstance(key, bytes):
            header.append(key)
            continue
        name, kind, what = key
        header += [string(name), struct.pack("<I", kind), value(kind, what)]
    offset = 0
    for name, kind, shape in tensors:
        header += [string(name), struct.pack("<I", len(shape)), struct.pack(f"<{len(shape)}Q", *shape)]
        header += [struct.pack("<IQ", TYPES[kind][0], offset)]
        offset += align(tensor_bytes(kind, shape))
    data = b"".join(header)
    with open(path, "wb") as file:
        file.write(data)
        file.truncate(align(len(data)) + offset)
        for name, kind, shape in tensors if fill else ():
            file.seek(align(file.tell()))
            fill(file, name, kind, shape, tensor_bytes(kind, shape))


def model_tensors(blocks, embd, ff, heads, kv_heads, vocab, tied, kind):
    kv = embd // heads * kv_heads
    tensors = [("token_embd.weight", kind, (embd, vocab)), ("output_norm.weight", "f32", (embd,))]
    if not tied:
        tensors.append(("output.weight", kind, (embd, vocab)))
    for i in range(blocks):
        tensors += [(f"blk.{i}.{name}.weight", "f32" if "norm" in name else kind, shape) for name, shape in (
            ("attn_norm", (embd,)), ("attn_q", (embd, embd)), ("attn_k", (embd, kv)), ("attn_v", (embd, kv)),
            ("attn_output", (embd, embd)), ("ffn_norm", (embd,)), ("ffn_gate", (embd, ff)), ("ffn_up", (embd, ff)),
            ("ffn_down", (ff, embd)))]
    return tensors


def model_keys(arch, name, blocks, embd, ff, heads, kv_heads, vocab, ctx):
    return [
        ("general.architecture", STRING, arch), ("general.name", STRING, name),
        (f"{arch}.block_count", U32, blocks), (f"{arch}.context_length", U32, ctx),
        (f"{arch}.embedding_length", U32, embd), (f"{arch}.feed_forward_length", U32, ff),
        (f"{arch}.attention.head_count", U32, heads), (f"{arch}.attention.head_count_kv", U32, kv_heads),
        (f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, [f"t{i}" for i in range(vocab)])),
        ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * vocab)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * vocab)),
    ]


def write_model(path, arch="llama", name="test model", blocks=4, embd=256, ff=768, heads=8, kv_heads=4, vocab=1024,
                ctx=2048, tied=0, type="q8_0", shards=1):
    """One file, or shards named as llama.cpp names them: NAME-00001-of-00003.gguf."""
    keys = model_keys(arch, name, blocks, embd, ff, heads, kv_heads, vocab, ctx)
    tensors = model_tensors(blocks, embd, ff, heads, kv_heads, vocab, tied, type)
    if shards == 1:
        return write(path, keys, tensors)
    stem = str(path).removesuffix(".gguf")
    each = (len(tensors) + shards - 1) // shards
    for i in range(shards):
        split = [("split.no", U16, i), ("split.count", U16, shards), ("split.tensors.count", I32, len(tensors))]
        write(f"{stem}-{i + 1:05}-of-{shards:05}.gguf", (keys if i == 0 else []) + split,
              tensors[i * each:(i + 1) * each])
    return None


def write_projector(path, kind="pixtral", image=1540, patch=14, merge=2, embd=1024, ff=4096, blocks=24, heads=16, out=5120):
    """A vision encoder with gated blocks, a patch merger and a projection of two matrices. The defaults are the shape
    of Mistral Small 3.1's: 837 MiB."""
    keys = [
        ("general.architecture", STRING, "clip"), ("clip.has_vision_encoder", BOOL, True),
        ("clip.projector_type", STRING, kind), ("clip.use_silu", BOOL, True),
        ("clip.vision.image_size", U32, image), ("clip.vision.patch_size", U32, patch),
        ("clip.vision.spatial_merge_size", U32, merge), ("clip.vision.embedding_length", U32, embd),
        ("clip.vision.feed_forward_length", U32, ff), ("clip.vision.block_count", U32, blocks),
        ("clip.vision.attention.head_count", U32, heads), ("clip.vision.projection_dim", U32, out),
        ("clip.vision.attention.layer_norm_epsilon", F32, 1e-5),
        ("clip.vision.image_mean", ARRAY, (F32, [0.5] * 3)), ("clip.vision.image_std", ARRAY, (F32, [0.5] * 3)),
    ]
    tensors = [("v.patch_embd.weight", "f16", (patch, patch, 3, embd)), ("v.pre_ln.weight", "f32", (embd,))]
    for i in range(blocks):
        tensors += [(f"v.blk.{i}.{name}.weight", "f32" if name.startswith("ln") else "f16", shape) for name, shape in (
            ("ln1", (embd,)), ("attn_q", (embd, embd)), ("attn_k", (embd, embd)), ("attn_v", (embd, embd)),
            ("attn_out", (embd, embd)), ("ln2", (embd,)), ("ffn_gate", (embd, ff)), ("ffn_up", (embd, ff)),
            ("ffn_down", (ff, embd)))]
    tensors += [("mm.input_norm.weight", "f32", (embd,)), ("mm.patch_merger.weight", "f16", (embd * merge**2, embd)),
                ("mm.1.weight", "f16", (embd, out)), ("mm.2.weight", "f16", (out, out)),
                ("v.token_embd.img_break", "f32", (out,))]
    write(path, keys, tensors)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    options = dict(argument.split("=", 1) for argument in sys.argv[2:])
    write_model(pathlib.Path(sys.argv[1]), **{k: int(v) if v.isdigit() else v for k, v in options.items()})
