# SPDX-License-Identifier: MIT
"""A model made taller: the same text to the bit, more bytes to read.

    write(path, model, extra=30)

Behind the model's blocks stand `extra` copies of them whose output projections (of attention and of the feed-forward
part) are all zero: they are read and computed like the others and add nothing to what passes through. So the model
itself is a draft of it that is always right. The types must hold zero as zero bytes, as F32, F16, Q4_1, Q8_0 do.
Needs nothing but the standard library.

usage: taller.py MODEL OUT [EXTRA]
"""

import pathlib
import re
import struct
import sys

import make_models
import mkgguf

ZEROED = ("attn_output.weight", "ffn_down.weight")
NAMES = {number: name for name, (number, _, _) in mkgguf.TYPES.items()}


def tensors_of(model, metadata):
    """[(name, type, shape, offset in the file)] of what stands behind the key-values."""
    (count,) = struct.unpack_from("<8xQ", metadata.data)
    found = []
    for _ in range(count):
        name = metadata._string()
        (n_dims,) = metadata._take("<I")
        shape = metadata._take(f"<{n_dims}Q")
        kind, offset = metadata._take("<IQ")
        found.append((name, NAMES[kind], shape, offset))
    start = mkgguf.align(metadata.at)
    return [(name, kind, shape, start + offset) for name, kind, shape, offset in found]


def write(path, model, extra=30):
    model = pathlib.Path(model)
    metadata = make_models.Metadata(model)
    blocks_key = next(key for key in metadata.pairs if key.endswith(".block_count"))
    (blocks,) = struct.unpack("<I", metadata.pairs[blocks_key][-4:])
    keys = [(key, mkgguf.U32, blocks + extra) if key == blocks_key else pair for key, pair in metadata.pairs.items()]
    tensors = tensors_of(model, metadata)
    sources = {name: offset for name, _, _, offset in tensors}
    listed = [(name, kind, shape) for name, kind, shape, _ in tensors]
    for block in range(blocks, blocks + extra):
        for name, kind, shape, offset in tensors:
            if not name.startswith(f"blk.{block % blocks}."):
                continue
            copy = re.sub(r"^blk\.\d+\.", f"blk.{block}.", name)
            sources[copy] = None if name.endswith(ZEROED) else offset
            listed.append((copy, kind, shape))

    def fill(out, name, kind, shape, n_bytes):
        at = sources[name]
        if at is None:
            out.seek(n_bytes, 1)  # a hole reads as zero
        else:
            out.write(metadata.data[at : at + n_bytes])

    mkgguf.write(path, keys, listed, fill)
    return path


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    write(sys.argv[2], sys.argv[1], *map(int, sys.argv[3:4]))
