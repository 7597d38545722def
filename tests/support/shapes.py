#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shapes: GGUF files of real architectures and real dimensions, whose data is a hole in the file.

    path = shapes.write(directory, "llama")          one of SHAPES, as it is there
    shapes.write(directory, "llama", blocks=2, ff=8) ... or with other dimensions

libllama loads such a file and builds its graphs: keys, names and dimensions are what its loader asks of the architecture
(llama.cpp src/models/<arch>.cpp, load_arch_tensors), which refuses a file where one is missing, left over or of another
size. So a shape prices a model of any size for a few KiB of disk. The vocabulary is small, because it is not what the
shapes are for, and of the kind "test", which llama.cpp keeps for its own tests of architectures.

Dimensions are those of published models, blocks fewer where that changes nothing but the time a test takes. Matrices are
Q4_K where 256 divides their rows, as in most files that people run; norms, biases and routers are F32.

As a program: shapes.py DIRECTORY [NAME]... writes them and prints the paths.
"""

import pathlib
import sys

import mkgguf

VOCAB = 512
CTX_TRAIN = 131072


def key(name, value):
    """A key with the GGUF type that its Python value calls for."""
    if isinstance(value, bool):
        return name, mkgguf.BOOL, value
    if isinstance(value, int):
        return name, mkgguf.U32, value
    if isinstance(value, float):
        return name, mkgguf.F32, value
    if isinstance(value, str):
        return name, mkgguf.STRING, value
    kind = mkgguf.BOOL if isinstance(value[0], bool) else mkgguf.U32
    return name, mkgguf.ARRAY, (kind, value)


class Model:
    """Keys and tensors of one file, while they are put together."""

    def __init__(self, arch, d):
        self.arch, self.d, self.keys, self.tensors = arch, d, [], []
        self.keys += [("general.architecture", mkgguf.STRING, arch), ("general.name", mkgguf.STRING, "test shape"),
                      ("tokenizer.ggml.model", mkgguf.STRING, "test"),
                      ("tokenizer.ggml.tokens", mkgguf.ARRAY, (mkgguf.STRING, [f"t{i}" for i in range(d.vocab)])),
                      ("tokenizer.ggml.scores", mkgguf.ARRAY, (mkgguf.F32, [0.0] * d.vocab))]
        self.set(vocab_size=d.vocab, context_length=d.ctx_train, embedding_length=d.embd,
                 block_count=d.blocks + d.get("mtp", 0))
        if d.get("mtp", 0):
            self.set(nextn_predict_layers=d.mtp)

    def set(self, **values):
        """Keys of the architecture; a double underscore stands for the point."""
        self.keys += [key(f"{self.arch}.{name.replace('__', '.')}", value) for name, value in values.items()]

    def weight(self, name, *shape, suffix=".weight"):
        """A matrix, in the type it would have in a published file."""
        row = shape[0]
        self.tensors.append((name + suffix, "q4_K" if row % 256 == 0 else "q8_0" if row % 32 == 0 else "f16", shape))

    def small(self, name, *shape, suffix=".weight"):
        self.tensors.append((name + suffix, "f32", shape))

    def bias(self, name, *shape):
        self.small(name, *shape, suffix=".bias")

    def norm(self, name, *shape, bias=False):
        self.small(name, *shape)
        if bias:
            self.bias(name, *shape)

    # ---- parts that many architectures share ----

    def outer(self, tied=False, bias=False, norm="output_norm"):
        d = self.d
        self.weight("token_embd", d.embd, d.vocab)
        self.norm(norm, d.embd, bias=bias)
        if not tied:
            self.weight("output", d.embd, d.vocab)

    def attention_keys(self, rms=True, **more):
        d = self.d
        self.set(attention__head_count=d.heads, attention__head_count_kv=d.kv_heads)
        self.set(**{"attention__layer_norm_rms_epsilon" if rms else "attention__layer_norm_epsilon": 1e-5})
        if d.get("head"):
            self.set(attention__key_length=d.head, attention__value_length=d.head)
        self.set(**more)

    def head(self):
        return self.d.get("head") or self.d.embd // self.d.heads

    def qkv(self, b, bias=False, fused=False, heads=None, kv_heads=None, head=None, q_times=1, v=True, kv=True):
        """Projections of block b; q_times 2 where the query carries a gate beside it."""
        d, p = self.d, f"blk.{b}."
        heads, kv_heads, head = heads or d.heads, kv_heads or d.kv_heads, head or self.head()
        if fused:
            self.weight(p + "attn_qkv", d.embd, head * (heads + 2 * kv_heads))
            if bias:
                self.bias(p + "attn_qkv", head * (heads + 2 * kv_heads))
        else:
            parts = [("attn_q", heads * q_times)] + ([("attn_k", kv_heads)] if kv else []) + ([("attn_v", kv_heads)] if kv and v else [])
            for name, n in parts:
                self.weight(p + name, d.embd, head * n)
                if bias:
                    self.bias(p + name, head * n)
        self.weight(p + "attn_output", head * heads, d.embd)

    def qk_norm(self, b, q=None, k=None):
        self.norm(f"blk.{b}.attn_q_norm", q or self.head())
        self.norm(f"blk.{b}.attn_k_norm", k or self.head())

    def ffn(self, b, ff=None, gate=True, wide=False, bias=False):
        """Dense feed-forward; wide: gate and up in one matrix."""
        d, p, ff = self.d, f"blk.{b}.", ff or self.d.ff
        if gate and not wide:
            self.weight(p + "ffn_gate", d.embd, ff)
        self.weight(p + "ffn_up", d.embd, ff * (2 if wide else 1))
        self.weight(p + "ffn_down", ff, d.embd)
        if bias:
            self.bias(p + "ffn_up", ff)
            self.bias(p + "ffn_down", d.embd)

    def expert_keys(self, **more):
        d = self.d
        self.set(expert_count=d.experts, expert_used_count=d.used)
        self.set(**more)

    def experts(self, b, ff=None, gate=True, probs_bias=False, bias=False, shared=0, shared_gate=False):
        d, p, ff = self.d, f"blk.{b}.", ff or d_expert_ff(self.d)
        self.small(p + "ffn_gate_inp", d.embd, d.experts)
        if probs_bias:
            self.bias(p + "exp_probs_b", d.experts)
        for name, shape in (("gate", (d.embd, ff)), ("up", (d.embd, ff)), ("down", (ff, d.embd))):
            if name == "gate" and not gate:
                continue
            self.weight(p + f"ffn_{name}_exps", *shape, d.experts)
            if bias:
                self.bias(p + f"ffn_{name}_exps", shape[1], d.experts)
        if bias:
            self.bias(p + "ffn_gate_inp", d.experts)
        if shared:
            if gate:
                self.weight(p + "ffn_gate_shexp", d.embd, shared)
            self.weight(p + "ffn_up_shexp", d.embd, shared)
            self.weight(p + "ffn_down_shexp", shared, d.embd)
        if shared_gate:
            self.small(p + "ffn_gate_inp_shexp", d.embd)

    def ssm_keys(self, groups=True):
        d = self.d
        self.set(ssm__conv_kernel=d.conv, ssm__inner_size=d.inner, ssm__state_size=d.state, ssm__time_step_rank=d.dt)
        if groups:
            self.set(ssm__group_count=d.groups)

    def mamba(self, b, norms=False):
        """Mamba 1 mixer."""
        d, p = self.d, f"blk.{b}."
        self.weight(p + "ssm_in", d.embd, 2 * d.inner)
        self.small(p + "ssm_conv1d", d.conv, d.inner)
        self.bias(p + "ssm_conv1d", d.inner)
        self.weight(p + "ssm_x", d.inner, d.dt + 2 * d.state)
        self.weight(p + "ssm_dt", d.dt, d.inner)
        self.bias(p + "ssm_dt", d.inner)
        self.small(p + "ssm_a", d.state, d.inner, suffix="")
        self.small(p + "ssm_d", d.inner, suffix="")
        self.weight(p + "ssm_out", d.inner, d.embd)
        if norms:
            self.norm(p + "ssm_dt_norm", d.dt)
            self.norm(p + "ssm_b_norm", d.state)
            self.norm(p + "ssm_c_norm", d.state)

    def mamba2(self, b):
        d, p = self.d, f"blk.{b}."
        conv = d.inner + 2 * d.groups * d.state
        self.weight(p + "ssm_in", d.embd, d.inner + conv + d.dt)
        self.small(p + "ssm_conv1d", d.conv, conv)
        self.bias(p + "ssm_conv1d", conv)
        self.bias(p + "ssm_dt", d.dt)
        self.small(p + "ssm_a", 1, d.dt, suffix="")
        self.small(p + "ssm_d", 1, d.dt, suffix="")
        self.norm(p + "ssm_norm", d.inner // d.groups, d.groups)
        self.weight(p + "ssm_out", d.inner, d.embd)

    def delta_net(self, b, split):
        """Gated delta net; split: alpha and beta apart (Qwen3.5), else together (Qwen3-Next)."""
        d, p = self.d, f"blk.{b}."
        k_width, v_width = d.state * d.groups, d.state * d.dt
        self.weight(p + "attn_qkv", d.embd, 2 * k_width + v_width)
        self.weight(p + "attn_gate", d.embd, v_width)
        self.small(p + "ssm_conv1d", d.conv, 2 * k_width + v_width)
        self.bias(p + "ssm_dt", d.dt)
        self.small(p + "ssm_a", d.dt, suffix="")
        if split:
            self.weight(p + "ssm_beta", d.embd, d.dt)
            self.weight(p + "ssm_alpha", d.embd, d.dt)
        else:
            self.weight(p + "ssm_ba", d.embd, 2 * d.dt)
        self.norm(p + "ssm_norm", d.state)
        self.weight(p + "ssm_out", v_width, d.embd)

    def short_conv(self, b):
        d, p = self.d, f"blk.{b}.shortconv."
        self.small(p + "conv", d.conv, d.embd)
        self.weight(p + "in_proj", d.embd, 3 * d.embd)
        self.weight(p + "out_proj", d.embd, d.embd)

    def nextn(self, b):
        d, p = self.d, f"blk.{b}.nextn."
        self.weight(p + "eh_proj", 2 * d.embd, d.embd)
        self.norm(p + "enorm", d.embd)
        self.norm(p + "hnorm", d.embd)


class Dimensions(dict):
    __getattr__ = dict.__getitem__


def d_expert_ff(d):
    return d.get("expert_ff") or d.ff


# ---- dense ----

def llama(m, arch_bias=False, qk=False, tied=False, **keys):
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, **keys)
    m.outer(tied=tied)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.qkv(b, bias=arch_bias)
        if qk:
            m.qk_norm(b)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.ffn(b)


def gemma(m, qk=False, **keys):
    """Norms before and after both branches."""
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, attention__sliding_window=d.window, **keys)
    m.outer(tied=True)
    for b in range(d.blocks):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.norm(f"blk.{b}.{name}", d.embd)
        m.qkv(b)
        if qk:
            m.qk_norm(b)
        m.ffn(b)


def gemma3n(m):
    d = m.d
    altup, rank, ple = 4, 64, 256  # llama_hparams: n_altup, laurel_rank, n_embd_altup
    m.attention_keys(feed_forward_length=d.ff, attention__sliding_window=d.window)
    m.outer(tied=True)
    m.weight("altup_proj", d.embd, d.embd, altup - 1)
    m.weight("altup_unembd_proj", d.embd, d.embd, altup - 1)
    m.weight("per_layer_token_embd", ple * d.blocks, d.vocab)
    m.weight("per_layer_model_proj", d.embd, ple * d.blocks)
    m.norm("per_layer_proj_norm", ple)
    for b in range(d.blocks):
        p = f"blk.{b}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm", "laurel_post_norm",
                     "altup_correct_scale", "altup_router_norm"):
            m.norm(p + name, d.embd)
        m.qkv(b)
        m.qk_norm(b)
        m.ffn(b)
        m.weight(p + "inp_gate", d.embd, ple)
        m.weight(p + "proj", ple, d.embd)
        m.small(p + "altup_correct_coef", altup, altup)
        m.small(p + "altup_predict_coef", altup, altup * altup)
        m.small(p + "altup_router", d.embd, altup)
        m.weight(p + "laurel_l", d.embd, rank)
        m.weight(p + "laurel_r", rank, d.embd)


def gemma4(m):
    """Full blocks have wider heads; the last ones use the KV of earlier ones."""
    d = m.d
    swa = [(b + 1) % 6 != 0 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=d.kv_heads,
          attention__layer_norm_rms_epsilon=1e-6, attention__key_length=d.head_full, attention__value_length=d.head_full,
          attention__key_length_swa=d.head, attention__value_length_swa=d.head,
          rope__dimension_count=d.head_full, rope__dimension_count_swa=d.head,
          attention__sliding_window=d.window, attention__sliding_window_pattern=swa,
          attention__shared_kv_layers=d.shared, feed_forward_length=d.ff,
          embedding_length_per_layer_input=d.ple, final_logit_softcapping=30.0)
    m.outer(tied=True)
    m.small("rope_freqs", d.head_full // 2)
    if d.ple:
        m.weight("per_layer_token_embd", d.ple * d.blocks, d.vocab)
        m.weight("per_layer_model_proj", d.embd, d.ple * d.blocks)
        m.norm("per_layer_proj_norm", d.ple)
    for b in range(d.blocks):
        p, head = f"blk.{b}.", d.head if swa[b] else d.head_full
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.norm(p + name, d.embd)
        m.qkv(b, head=head)
        m.qk_norm(b, head, head)
        m.ffn(b)
        if d.ple:
            m.weight(p + "inp_gate", d.embd, d.ple)
            m.weight(p + "proj", d.ple, d.embd)
            m.norm(p + "post_norm", d.embd)


def phi3(m):
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, rope__dimension_count=d.embd // d.heads)
    m.outer()
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.qkv(b, fused=True)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.ffn(b, wide=True)


def glm4(m):
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, rope__dimension_count=64)
    m.outer()
    for b in range(d.blocks):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.norm(f"blk.{b}.{name}", d.embd)
        m.qkv(b, bias=True)
        m.ffn(b, wide=True)


def olmo2(m):
    """Norms after the branches only, and over all heads at once."""
    d = m.d
    m.attention_keys(feed_forward_length=d.ff)
    m.outer()
    for b in range(d.blocks):
        m.qkv(b)
        m.qk_norm(b, d.embd, d.embd // d.heads * d.kv_heads)
        m.norm(f"blk.{b}.post_attention_norm", d.embd)
        m.ffn(b)
        m.norm(f"blk.{b}.post_ffw_norm", d.embd)


def parallel(m, **keys):
    """Command R: attention and feed-forward from the same norm."""
    d = m.d
    m.attention_keys(rms=False, feed_forward_length=d.ff, logit_scale=0.0625, **keys)
    m.outer(tied=True)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.qkv(b)
        m.ffn(b)


def cohere2(m):
    parallel(m, attention__sliding_window=m.d.window)


def starcoder2(m):
    d = m.d
    m.attention_keys(rms=False, feed_forward_length=d.ff)
    m.outer(bias=True)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd, bias=True)
        m.qkv(b, bias=True)
        m.bias(f"blk.{b}.attn_output", d.embd)
        m.norm(f"blk.{b}.ffn_norm", d.embd, bias=True)
        m.ffn(b, gate=False, bias=True)


def gpt2(m):
    d = m.d
    m.set(attention__head_count=d.heads, attention__layer_norm_epsilon=1e-5, feed_forward_length=d.ff)
    m.outer(tied=True, bias=True)
    m.weight("position_embd", d.embd, d.ctx_train)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd, bias=True)
        m.qkv(b, fused=True, bias=True)
        m.bias(f"blk.{b}.attn_output", d.embd)
        m.norm(f"blk.{b}.ffn_norm", d.embd, bias=True)
        m.ffn(b, gate=False, bias=True)


# ---- mixtures of experts ----

def moe(m, bias=False, qk=False, shared=0, shared_gate=False, **keys):
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, **keys)
    m.expert_keys(expert_feed_forward_length=d_expert_ff(d))
    m.outer()
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.qkv(b, bias=bias)
        if qk:
            m.qk_norm(b)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.experts(b, shared=shared, shared_gate=shared_gate)


def qwen2moe(m):
    moe(m, bias=True, shared=m.d.shared_ff, shared_gate=True, expert_shared_feed_forward_length=m.d.shared_ff)


def gpt_oss(m):
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, attention__sliding_window=d.window, rope__dimension_count=d.head)
    m.expert_keys(expert_feed_forward_length=d.ff)
    m.outer()
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.norm(f"blk.{b}.post_attention_norm", d.embd)
        m.qkv(b, bias=True)
        m.bias(f"blk.{b}.attn_output", d.embd)
        m.small(f"blk.{b}.attn_sinks", d.heads)
        m.experts(b, bias=True)


def glm4moe(m):
    """The last block predicts tokens and is not loaded."""
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, rope__dimension_count=64, leading_dense_block_count=1)
    m.expert_keys(expert_feed_forward_length=d.expert_ff, expert_shared_count=1, expert_gating_func=2,
                  expert_weights_norm=True, expert_weights_scale=1.0)
    m.outer()
    for b in range(d.blocks + d.mtp):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.norm(f"blk.{b}.post_attention_norm", d.embd)
        m.qkv(b, bias=True)
        if b == 0:
            m.ffn(b)
        else:
            m.experts(b, probs_bias=True, shared=d.expert_ff)
        if b >= d.blocks:
            m.nextn(b)


# ---- latent attention ----

def latent(m, expanded=False, indexer=False):
    """DeepSeek: one row of kv_rank + rope for all heads; expanded: the old files, keys and values of each head; indexer: a
    second row, by which each query chooses the cells that it attends to."""
    d = m.d
    if indexer:
        m.set(attention__indexer__head_count=d.index_heads, attention__indexer__key_length=d.index,
              attention__indexer__top_k=2048)
    m.set(attention__head_count=d.heads, attention__head_count_kv=d.heads if expanded else 1,
          attention__layer_norm_rms_epsilon=1e-6, feed_forward_length=d.ff, attention__q_lora_rank=d.q_rank,
          attention__kv_lora_rank=d.kv_rank, rope__dimension_count=d.rope, leading_dense_block_count=1)
    if expanded:
        m.set(attention__key_length=d.head + d.rope, attention__value_length=d.head)
    else:
        m.set(attention__key_length=d.kv_rank + d.rope, attention__value_length=d.kv_rank,
              attention__key_length_mla=d.head + d.rope, attention__value_length_mla=d.head)
    m.expert_keys(expert_feed_forward_length=d.expert_ff, expert_shared_count=1, expert_weights_scale=2.5,
                  expert_weights_norm=True, expert_gating_func=2)
    m.outer()
    for b in range(d.blocks):
        p = f"blk.{b}."
        m.norm(p + "attn_norm", d.embd)
        latent_attention(m, b, expanded)
        if indexer:
            m.norm(p + "indexer.k_norm", d.index, bias=True)
            m.weight(p + "indexer.proj", d.embd, d.index_heads)
            m.weight(p + "indexer.attn_k", d.embd, d.index)
            m.weight(p + "indexer.attn_q_b", d.q_rank, d.index_heads * d.index)
        m.norm(p + "ffn_norm", d.embd)
        if b == 0:
            m.ffn(b)
        else:
            m.experts(b, probs_bias=True, shared=d.expert_ff)


def latent_attention(m, b, expanded):
    d, p = m.d, f"blk.{b}."
    m.weight(p + "attn_q_a", d.embd, d.q_rank)
    m.norm(p + "attn_q_a_norm", d.q_rank)
    m.weight(p + "attn_q_b", d.q_rank, d.heads * (d.head + d.rope))
    m.weight(p + "attn_kv_a_mqa", d.embd, d.kv_rank + d.rope)
    m.norm(p + "attn_kv_a_norm", d.kv_rank)
    if expanded:
        m.weight(p + "attn_kv_b", d.kv_rank, d.heads * 2 * d.head)
    else:
        m.weight(p + "attn_k_b", d.head, d.kv_rank, d.heads)
        m.weight(p + "attn_v_b", d.kv_rank, d.head, d.heads)
    m.weight(p + "attn_output", d.heads * d.head, d.embd)


def latent_expanded(m):
    latent(m, expanded=True)


def latent_indexed(m):
    latent(m, indexer=True)


def minicpm3(m):
    d = m.d
    m.set(attention__head_count=d.heads, attention__head_count_kv=d.heads, attention__layer_norm_rms_epsilon=1e-5,
          feed_forward_length=d.ff, attention__q_lora_rank=d.q_rank, attention__kv_lora_rank=d.kv_rank,
          rope__dimension_count=d.rope, attention__key_length=d.head + d.rope, attention__value_length=d.head)
    m.outer(tied=True)
    m.small("rope_factors_long", d.rope // 2)
    m.small("rope_factors_short", d.rope // 2)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        latent_attention(m, b, True)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.ffn(b)


# ---- recurrent and hybrid ----

def mamba(m):
    d = m.d
    m.set(attention__layer_norm_rms_epsilon=1e-5)
    m.ssm_keys(groups=False)
    m.outer(tied=True)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.mamba(b)


def mamba2(m):
    d = m.d
    m.set(attention__layer_norm_rms_epsilon=1e-5)
    m.ssm_keys()
    m.outer(tied=True)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.mamba2(b)


def falcon_h1(m):
    """Attention beside Mamba 2 in every block."""
    d = m.d
    m.attention_keys(feed_forward_length=d.ff)
    m.ssm_keys()
    m.outer()
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.qkv(b)
        m.mamba2(b)
        m.small(f"blk.{b}.ffn_norm", d.embd, suffix="")
        m.ffn(b)


def granite_hybrid(m):
    d = m.d
    attends = [b % 10 == 5 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=[d.kv_heads if a else 0 for a in attends],
          attention__layer_norm_rms_epsilon=1e-5, feed_forward_length=d.ff,
          expert_shared_feed_forward_length=d.shared_ff)
    m.expert_keys()
    m.ssm_keys()
    m.outer(tied=True)
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        if attends[b]:
            m.qkv(b)
        else:
            m.mamba2(b)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.experts(b, shared=d.shared_ff)


def nemotron_h(m):
    """One mixer a block: Mamba 2, feed-forward or attention."""
    d = m.d
    kinds = ["attention" if b % 9 == 7 else "ffn" if b % 2 else "mamba" for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__key_length=d.head, attention__value_length=d.head,
          attention__head_count_kv=[d.kv_heads if k == "attention" else 0 for k in kinds],
          attention__layer_norm_epsilon=1e-5, attention__layer_norm_rms_epsilon=1e-5,
          feed_forward_length=[d.ff if k == "ffn" else 0 for k in kinds])
    m.ssm_keys()
    m.outer()
    for b, kind in enumerate(kinds):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        if kind == "mamba":
            m.mamba2(b)
        elif kind == "attention":
            m.qkv(b)
        else:
            m.ffn(b, gate=False)


def jamba(m):
    d = m.d
    attends = [b % 8 == 4 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=[d.kv_heads if a else 0 for a in attends],
          attention__layer_norm_rms_epsilon=1e-6, feed_forward_length=d.ff)
    m.expert_keys()
    m.ssm_keys(groups=False)
    m.outer()
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        if attends[b]:
            m.qkv(b)
        else:
            m.mamba(b, norms=True)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        if b % 2:
            m.experts(b)
        else:
            m.ffn(b)


def lfm2(m):
    d = m.d
    attends = [b % 3 == 2 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=[d.kv_heads if a else 0 for a in attends],
          attention__layer_norm_rms_epsilon=1e-5, feed_forward_length=d.ff, shortconv__l_cache=d.conv)
    m.outer(tied=True, norm="token_embd_norm")
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        if attends[b]:
            m.qkv(b)
            m.qk_norm(b)
        else:
            m.short_conv(b)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        m.ffn(b)


def delta_hybrid(m, split, expert):
    """Every fourth block attends, the others are delta nets; prediction blocks attend and are not loaded."""
    d = m.d
    m.attention_keys(feed_forward_length=d.ff, rope__dimension_count=64, full_attention_interval=d.interval)
    if split:
        m.set(rope__dimension_sections=[11, 11, 10, 0])
    m.ssm_keys()
    if expert:
        m.expert_keys(expert_feed_forward_length=d.expert_ff, expert_shared_feed_forward_length=d.expert_ff)
    m.outer()
    for b in range(d.blocks + d.get("mtp", 0)):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        m.norm(f"blk.{b}.post_attention_norm", d.embd)
        if (b + 1) % d.interval == 0 or b >= d.blocks:
            m.qkv(b, q_times=2)
            m.qk_norm(b)
        else:
            m.delta_net(b, split)
        if expert:
            m.experts(b, shared=d.expert_ff, shared_gate=True)
        else:
            m.ffn(b)
        if b >= d.blocks:
            m.nextn(b)


def qwen3next(m):
    delta_hybrid(m, split=False, expert=True)


def qwen35(m):
    delta_hybrid(m, split=True, expert=False)


def qwen35moe(m):
    delta_hybrid(m, split=True, expert=True)


def lfm2moe(m):
    d = m.d
    attends = [b % 3 == 2 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=[d.kv_heads if a else 0 for a in attends],
          attention__layer_norm_rms_epsilon=1e-5, feed_forward_length=d.ff, shortconv__l_cache=d.conv,
          leading_dense_block_count=2)
    m.expert_keys(expert_feed_forward_length=d.expert_ff, expert_gating_func=2)
    m.outer(tied=True, norm="token_embd_norm")
    for b in range(d.blocks):
        m.norm(f"blk.{b}.attn_norm", d.embd)
        if attends[b]:
            m.qkv(b)
            m.qk_norm(b)
        else:
            m.short_conv(b)
        m.norm(f"blk.{b}.ffn_norm", d.embd)
        if b < 2:
            m.ffn(b)
        else:
            m.experts(b, probs_bias=True)


def kimi_linear(m):
    """Three delta-attention blocks, then one of latent attention."""
    d = m.d
    attends = [b % 4 == 3 for b in range(d.blocks)]
    m.set(attention__head_count=d.heads, attention__head_count_kv=[1 if a else 0 for a in attends],
          attention__layer_norm_rms_epsilon=1e-5, feed_forward_length=d.ff, leading_dense_block_count=1,
          attention__kv_lora_rank=d.kv_rank, rope__dimension_count=d.rope, attention__key_length=d.kv_rank + d.rope,
          attention__value_length=d.kv_rank, attention__key_length_mla=d.head + d.rope,
          attention__value_length_mla=d.head, kda__head_dim=d.kda, ssm__conv_kernel=d.conv)
    m.expert_keys(expert_feed_forward_length=d.expert_ff, expert_shared_count=1, expert_weights_scale=2.4,
                  expert_gating_func=2)
    m.outer()
    for b in range(d.blocks):
        p, inner = f"blk.{b}.", d.kda * d.heads
        m.norm(p + "attn_norm", d.embd)
        if attends[b]:
            m.weight(p + "attn_q", d.embd, d.heads * (d.head + d.rope))
            m.weight(p + "attn_kv_a_mqa", d.embd, d.kv_rank + d.rope)
            m.norm(p + "attn_kv_a_norm", d.kv_rank)
            m.weight(p + "attn_k_b", d.head, d.kv_rank, d.heads)
            m.weight(p + "attn_v_b", d.kv_rank, d.head, d.heads)
            m.weight(p + "attn_output", d.heads * d.head, d.embd)
        else:
            m.qkv(b, kv_heads=d.heads, head=d.kda)
            for letter in "qkv":
                m.small(p + f"ssm_conv1d_{letter}", d.conv, 1, inner, 1)
            for letter in "fg":
                m.weight(p + f"ssm_{letter}_a", d.embd, d.kda)
                m.weight(p + f"ssm_{letter}_b", d.kda, inner)
            m.weight(p + "ssm_beta", d.embd, d.heads)
            m.small(p + "ssm_a", 1, d.heads, suffix="")
            m.bias(p + "ssm_dt", inner)
            m.norm(p + "ssm_norm", d.kda)
        m.norm(p + "ffn_norm", d.embd)
        if b == 0:
            m.ffn(b)
        else:
            m.experts(b, probs_bias=True, shared=d.expert_ff)


def rwkv6(m):
    d = m.d
    m.set(attention__layer_norm_epsilon=1e-5, attention__head_count=0, feed_forward_length=d.ff, wkv__head_size=d.wkv,
          time_mix_extra_dim=d.mix, time_decay_extra_dim=d.decay, rescale_every_n_layers=6)
    rwkv_outer(m)
    for b in range(d.blocks):
        p = f"blk.{b}."
        rwkv_norms(m, p)
        m.weight(p + "time_mix_w1", d.embd, d.mix * 5)
        m.weight(p + "time_mix_w2", d.mix, d.embd, 5)
        m.small(p + "time_mix_lerp_x", d.embd, 1, 1)
        m.small(p + "time_mix_lerp_fused", d.embd, 1, 1, 5)
        m.small(p + "time_mix_first", d.wkv, d.embd // d.wkv)
        m.small(p + "time_mix_decay", d.embd)
        m.weight(p + "time_mix_decay_w1", d.embd, d.decay)
        m.weight(p + "time_mix_decay_w2", d.decay, d.embd)
        m.weight(p + "time_mix_gate", d.embd, d.embd)
        m.small(p + "channel_mix_lerp_r", d.embd, 1, 1)
        m.weight(p + "channel_mix_receptance", d.embd, d.embd)


def rwkv7(m):
    d = m.d
    m.set(attention__layer_norm_epsilon=1e-5, attention__head_count=0, feed_forward_length=d.ff, wkv__head_size=d.wkv,
          attention__decay_lora_rank=d.decay, attention__iclr_lora_rank=d.iclr,
          attention__value_residual_mix_lora_rank=d.value, attention__gate_lora_rank=d.gate)
    rwkv_outer(m)
    for b in range(d.blocks):
        p = f"blk.{b}."
        rwkv_norms(m, p)
        for letter, rank in (("w", d.decay), ("a", d.iclr), ("v", d.value if b else d.iclr)):
            m.small(p + f"time_mix_{letter}0", d.embd)
            m.weight(p + f"time_mix_{letter}1", d.embd, rank)
            m.weight(p + f"time_mix_{letter}2", rank, d.embd)
        m.weight(p + "time_mix_g1", d.embd, d.gate)
        m.weight(p + "time_mix_g2", d.gate, d.embd)
        m.small(p + "time_mix_lerp_fused", d.embd, 1, 1, 6)
        for name in ("k_k", "k_a", "r_k"):
            m.small(p + f"time_mix_{name}", d.embd)


def rwkv_outer(m):
    m.outer(bias=True)
    m.norm("token_embd_norm", m.d.embd, bias=True)


def rwkv_norms(m, p):
    d = m.d
    for name in ("attn_norm", "attn_norm_2", "time_mix_ln"):
        m.norm(p + name, d.embd, bias=True)
    for name in ("key", "value", "receptance", "output"):
        m.weight(p + f"time_mix_{name}", d.embd, d.embd)
    m.small(p + "channel_mix_lerp_k", d.embd, 1, 1)
    m.weight(p + "channel_mix_key", d.embd, d.ff)
    m.weight(p + "channel_mix_value", d.ff, d.embd)


# ---- encoders ----

def bert(m, gate=False, positions=True):
    d = m.d
    m.set(attention__head_count=d.heads, attention__layer_norm_epsilon=1e-12, feed_forward_length=d.ff,
          attention__causal=False, pooling_type=1)
    m.keys.append(key("tokenizer.ggml.token_type_count", 2))
    m.weight("token_embd", d.embd, d.vocab)
    m.weight("token_types", d.embd, 2)
    if positions:
        m.weight("position_embd", d.embd, d.ctx_train)
    m.norm("token_embd_norm", d.embd, bias=True)
    for b in range(d.blocks):
        p = f"blk.{b}."
        m.qkv(b, bias=positions, fused=not positions, kv_heads=d.heads)
        m.norm(p + "attn_output_norm", d.embd, bias=True)
        m.ffn(b, gate=gate, bias=positions)
        m.norm(p + "layer_output_norm", d.embd, bias=True)
        if positions:
            m.bias(p + "attn_output", d.embd)


def nomic_bert(m):
    bert(m, gate=True, positions=False)


# name: (architecture, builder, dimensions); the published model it has the dimensions of
SHAPES = {
    # Llama 3.1 8B
    "llama": ("llama", llama, dict(blocks=32, embd=4096, ff=14336, heads=32, kv_heads=8)),
    # Qwen2.5 7B
    "qwen2": ("qwen2", lambda m: llama(m, arch_bias=True), dict(blocks=28, embd=3584, ff=18944, heads=28, kv_heads=4)),
    # Qwen3 4B
    "qwen3": ("qwen3", lambda m: llama(m, qk=True, tied=True),
              dict(blocks=36, embd=2560, ff=9728, heads=32, kv_heads=8, head=128)),
    # Qwen3 30B A3B
    "qwen3moe": ("qwen3moe", lambda m: moe(m, qk=True),
                 dict(blocks=48, embd=2048, ff=6144, heads=32, kv_heads=4, head=128, experts=128, used=8, expert_ff=768)),
    # Qwen1.5 MoE A2.7B
    "qwen2moe": ("qwen2moe", qwen2moe, dict(blocks=24, embd=2048, ff=5632, heads=16, kv_heads=16, experts=60, used=4,
                                            expert_ff=1408, shared_ff=5632)),
    # Mixtral 8x7B
    "mixtral": ("llama", moe, dict(blocks=32, embd=4096, ff=14336, heads=32, kv_heads=8, experts=8, used=2)),
    # Gemma 2 9B
    "gemma2": ("gemma2", lambda m: gemma(m, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
               dict(blocks=42, embd=3584, ff=14336, heads=16, kv_heads=8, head=256, window=4096)),
    # Gemma 3 27B
    "gemma3": ("gemma3", lambda m: gemma(m, qk=True),
               dict(blocks=62, embd=5376, ff=21504, heads=32, kv_heads=16, head=128, window=1024)),
    # Gemma 3n E2B
    "gemma3n": ("gemma3n", gemma3n, dict(blocks=30, embd=2048, ff=8192, heads=8, kv_heads=2, head=256, window=512)),
    # Gemma 4 E2B
    "gemma4": ("gemma4", gemma4, dict(blocks=36, embd=1536, ff=6144, heads=8, kv_heads=1, head=256, head_full=512,
                                      window=512, shared=18, ple=256)),
    # Phi 4
    "phi3": ("phi3", phi3, dict(blocks=40, embd=5120, ff=17920, heads=40, kv_heads=10)),
    # gpt-oss 20B
    "gpt-oss": ("gpt-oss", gpt_oss, dict(blocks=24, embd=2880, ff=2880, heads=64, kv_heads=8, head=64, experts=32, used=4,
                                         window=128)),
    # Granite 3.3 8B
    "granite": ("granite", lambda m: llama(m, tied=True, logit_scale=16.0, residual_scale=0.22, embedding_scale=12.0,
                                           attention__scale=0.0078125),
                dict(blocks=40, embd=4096, ff=12800, heads=32, kv_heads=8)),
    # Granite 3.1 3B A800M
    "granitemoe": ("granitemoe", lambda m: moe(m, logit_scale=6.0, residual_scale=0.22, embedding_scale=12.0,
                                               attention__scale=0.015625),
                   dict(blocks=32, embd=1536, ff=512, heads=24, kv_heads=8, experts=40, used=8)),
    # GLM 4 9B
    "glm4": ("glm4", glm4, dict(blocks=40, embd=4096, ff=13696, heads=32, kv_heads=2)),
    # GLM 4.5 Air
    "glm4moe": ("glm4moe", glm4moe, dict(blocks=46, embd=4096, ff=10944, heads=96, kv_heads=8, head=128, experts=128,
                                         used=8, expert_ff=1408, mtp=1)),
    # OLMo 2 7B
    "olmo2": ("olmo2", olmo2, dict(blocks=32, embd=4096, ff=11008, heads=32, kv_heads=32)),
    # Command R
    "command-r": ("command-r", parallel, dict(blocks=40, embd=8192, ff=22528, heads=64, kv_heads=64)),
    # Command R7B
    "cohere2": ("cohere2", cohere2, dict(blocks=32, embd=4096, ff=14336, heads=32, kv_heads=8, window=4096)),
    # StarCoder2 7B
    "starcoder2": ("starcoder2", starcoder2, dict(blocks=32, embd=4608, ff=18432, heads=36, kv_heads=4)),
    # GPT-2 XL, positions for a longer context
    "gpt2": ("gpt2", gpt2, dict(blocks=48, embd=1600, ff=6400, heads=25, kv_heads=25, ctx_train=32768)),
    # DeepSeek V3, fewer blocks
    "deepseek2": ("deepseek2", latent, dict(blocks=20, embd=7168, ff=18432, heads=128, kv_heads=1, head=128, rope=64,
                                            q_rank=1536, kv_rank=512, experts=256, used=8, expert_ff=2048)),
    # the same before llama.cpp split attn_kv_b; smaller, because its cache is not
    "deepseek2-expanded": ("deepseek2", latent_expanded,
                           dict(blocks=12, embd=5120, ff=12288, heads=32, kv_heads=32, head=128, rope=64, q_rank=1536,
                                kv_rank=512, experts=64, used=6, expert_ff=1536)),
    # DeepSeek V3.2, fewer blocks
    "deepseek32": ("deepseek32", latent_indexed,
                   dict(blocks=16, embd=7168, ff=18432, heads=128, kv_heads=1, head=128, rope=64, q_rank=1536, kv_rank=512,
                        experts=256, used=8, expert_ff=2048, index=128, index_heads=64)),
    # MiniCPM3 4B
    "minicpm3": ("minicpm3", minicpm3, dict(blocks=62, embd=2560, ff=6400, heads=40, kv_heads=40, head=64, rope=32,
                                            q_rank=768, kv_rank=256)),
    # Mistral Small 4, fewer blocks
    "mistral4": ("mistral4", latent, dict(blocks=18, embd=4096, ff=12288, heads=32, kv_heads=1, head=128, rope=64,
                                          q_rank=1024, kv_rank=256, experts=128, used=4, expert_ff=2048)),
    # Mamba 2.8B
    "mamba": ("mamba", mamba, dict(blocks=64, embd=2560, conv=4, inner=5120, state=16, dt=160)),
    # Mamba2 2.7B
    "mamba2": ("mamba2", mamba2, dict(blocks=64, embd=2560, conv=4, inner=5120, state=128, dt=80, groups=1)),
    # Falcon H1 3B
    "falcon-h1": ("falcon-h1", falcon_h1, dict(blocks=32, embd=2560, ff=10240, heads=10, kv_heads=2, head=128, conv=4,
                                               inner=4096, state=256, dt=32, groups=1)),
    # Granite 4.0 H Tiny
    "granitehybrid": ("granitehybrid", granite_hybrid,
                      dict(blocks=40, embd=1536, ff=512, heads=12, kv_heads=4, experts=64, used=6, shared_ff=1024,
                           conv=4, inner=3072, state=128, dt=48, groups=1)),
    # Nemotron H 8B
    "nemotron_h": ("nemotron_h", nemotron_h, dict(blocks=52, embd=4096, ff=21504, heads=32, kv_heads=8, head=128, conv=4,
                                                  inner=8192, state=128, dt=128, groups=8)),
    # Jamba Mini, fewer blocks
    "jamba": ("jamba", jamba, dict(blocks=16, embd=4096, ff=14336, heads=32, kv_heads=8, experts=16, used=2, conv=4,
                                   inner=8192, state=16, dt=256)),
    # LFM2 1.2B
    "lfm2": ("lfm2", lfm2, dict(blocks=16, embd=2048, ff=8192, heads=32, kv_heads=8, conv=3)),
    # LFM2 8B A1B
    "lfm2moe": ("lfm2moe", lfm2moe, dict(blocks=24, embd=2048, ff=7168, heads=32, kv_heads=8, conv=3, experts=32, used=4,
                                         expert_ff=1792)),
    # Kimi Linear 48B A3B
    "kimi-linear": ("kimi-linear", kimi_linear, dict(blocks=27, embd=2304, ff=9216, heads=32, head=128, rope=64,
                                                     kv_rank=512, kda=128, conv=4, experts=256, used=8, expert_ff=1024)),
    # Qwen3-Next 80B A3B
    "qwen3next": ("qwen3next", qwen3next, dict(blocks=48, embd=2048, ff=5120, heads=16, kv_heads=2, head=256, conv=4,
                                               inner=4096, state=128, dt=32, groups=16, interval=4, experts=512, used=10,
                                               expert_ff=512)),
    # Qwen3.5 27B
    "qwen35": ("qwen35", qwen35, dict(blocks=64, embd=5120, ff=17408, heads=24, kv_heads=4, head=256, conv=4, inner=6144,
                                      state=128, dt=48, groups=16, interval=4, mtp=1)),
    # Qwen3.5 35B A3B
    "qwen35moe": ("qwen35moe", qwen35moe, dict(blocks=40, embd=2048, ff=5120, heads=16, kv_heads=2, head=256, conv=4,
                                               inner=4096, state=128, dt=32, groups=16, interval=4, experts=256, used=8,
                                               expert_ff=512)),
    # RWKV-6 World 3B
    "rwkv6": ("rwkv6", rwkv6, dict(blocks=32, embd=2560, ff=8960, wkv=64, mix=32, decay=64)),
    # RWKV-7 World 2.9B
    "rwkv7": ("rwkv7", rwkv7, dict(blocks=32, embd=2560, ff=10240, wkv=64, decay=96, iclr=96, value=64, gate=320)),
    # BGE large
    "bert": ("bert", bert, dict(blocks=24, embd=1024, ff=4096, heads=16, ctx_train=8192)),
    # Nomic Embed
    "nomic-bert": ("nomic-bert", nomic_bert, dict(blocks=12, embd=768, ff=3072, heads=12, ctx_train=8192)),
}


def write(directory, name, file=None, **changes):
    """Writes a shape, with some dimensions changed, and returns its path."""
    arch, build, dimensions = SHAPES[name]
    d = Dimensions(vocab=VOCAB, ctx_train=CTX_TRAIN)
    d.update(dimensions)
    d.update(changes)
    m = Model(arch, d)
    build(m)
    path = pathlib.Path(directory) / f"{file or name}.gguf"
    mkgguf.write(path, m.keys, m.tensors)
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for each in sys.argv[2:] or SHAPES:
        print(write(sys.argv[1], each))
