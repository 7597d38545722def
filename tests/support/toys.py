# SPDX-License-Identifier: MIT
"""Models that exist to be awkward: a shape and a vocabulary, made in a second.

Their weights are holes in the file (mkgguf), so all of them are zero: the text is noise, but what is read, computed and
held is what a model of that shape would have. Their vocabularies are whole: libllama loads them and tokenizes with them.

    sentencepiece(n)        n tokens with scores, the 256 bytes among them
    byte_pairs(n, merges)   n tokens over GPT-2's byte alphabet, and that many merges
    write(path, vocabulary, blocks=[...])
"""

import mkgguf
from mkgguf import ARRAY, BOOL, F32, I32, STRING, U32

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types of llama.h


def sentencepiece(n):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581"]
    tokens += [chr(code) for code in range(0x21, 0x7F)]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
    words = (f"\u2581w{i}" for i in range(n))
    while len(tokens) < n:
        tokens.append(next(words))
        kinds.append(NORMAL)
    return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens[:n])),
            ("tokenizer.ggml.scores", ARRAY, (F32, [-float(i) for i in range(n)])),
            ("tokenizer.ggml.token_type", ARRAY, (I32, kinds[:n])),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.add_bos_token", BOOL, True)]


def byte_alphabet():
    """The printable character that stands for each byte in GPT-2's vocabularies."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [letters[byte] for byte in range(256)]


def byte_pairs(n, n_merges):
    """Tokens are the letters, then pairs, then triples of them; merges make pairs, then triples in both ways."""
    letters = byte_alphabet()
    pairs = [a + b for a in letters for b in letters]
    triples = (a + b + c for a in letters for b in letters for c in letters)
    tokens = letters + pairs[: n - 256 - 1]
    while len(tokens) < n - 1:
        tokens.append(next(triples))
    tokens.append("<|end|>")
    merges = [f"{pair[0]} {pair[1]}" for pair in pairs]
    both = (merge for a in letters for b in letters for c in letters for merge in (f"{a}{b} {c}", f"{a} {b}{c}"))
    while len(merges) < n_merges:
        merges.append(next(both))
    kinds = [NORMAL] * (n - 1) + [CONTROL]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, kinds)),
            ("tokenizer.ggml.merges", ARRAY, (STRING, merges[:n_merges])),
            ("tokenizer.ggml.bos_token_id", U32, n - 1), ("tokenizer.ggml.eos_token_id", U32, n - 1)]


def write(path, vocabulary, embd, heads, kv_heads, blocks, ctx=4096, kind="q8_0"):
    """blocks: the hidden width of each; one entry a block. Where they differ it is a model of the deci architecture."""
    arch = "llama" if len(set(blocks)) == 1 else "deci"
    n_vocab = len(next(value for key, _, value in vocabulary if key == "tokenizer.ggml.tokens")[1])
    kv = embd // heads * kv_heads
    keys = [(key, item, value) for key, item, value in
            mkgguf.model_keys(arch, "a toy", len(blocks), embd, max(blocks), heads, kv_heads, 1, ctx)
            if not key.startswith("tokenizer.") and not key.endswith("feed_forward_length")]
    keys += [(f"{arch}.feed_forward_length", ARRAY, (I32, blocks)), (f"{arch}.rope.dimension_count", U32, embd // heads),
             (f"{arch}.vocab_size", U32, n_vocab)] + vocabulary
    tensors = [("token_embd.weight", kind, (embd, n_vocab)), ("output_norm.weight", "f32", (embd,)),
               ("output.weight", kind, (embd, n_vocab))]
    for i, ff in enumerate(blocks):
        tensors += [(f"blk.{i}.{name}.weight", "f32" if "norm" in name else kind, shape) for name, shape in (
            ("attn_norm", (embd,)), ("attn_q", (embd, embd)), ("attn_k", (embd, kv)), ("attn_v", (embd, kv)),
            ("attn_output", (embd, embd)), ("ffn_norm", (embd,)), ("ffn_gate", (embd, ff)), ("ffn_up", (embd, ff)),
            ("ffn_down", (ff, embd)))]
    mkgguf.write(path, keys, tensors)
