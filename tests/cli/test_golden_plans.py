#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden plans (user-case 23 of the research notes): shape x machine x wish, by formula.

tests/cli/golden_plans.txt holds a block for each of CASES: the command, the verdict, what was decided, and the ledger
in bytes. Nobody gets other layers or another context by an update without saying so: a plan that differs fails, and the
lines that differ are shown. UPDATE=1 records again. usage: test_golden_plans.py [WORD]... (cases that hold all words)

The shapes are those of real models, as header and hole (mkgguf.py); the machines stand in tests/data/machines.
"""

import difflib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden_plans.txt"
MACHINES = HERE.parent / "data" / "machines"
sys.path.insert(0, str(HERE.parent / "support"))
import mkgguf  # noqa: E402

TIMEOUT_S = 60


def mixed(tensors):
    """The types of a Q4_K_M file: a half of the value and down projections in Q6_K, and the head."""
    for name, kind, shape in tensors:
        block = int(name.split(".")[1]) if name.startswith("blk.") else -1
        if kind == "q4_K" and (name == "output.weight" or
                               (("attn_v" in name or "ffn_down" in name) and block % 2 == 0)):
            kind = "q6_K"
        yield name, kind, shape


def llama_8b(path):
    """Llama-3.1-8B: 32 blocks, 8 KV heads, a vocabulary of 128,256 that is not tied."""
    keys = mkgguf.model_keys("llama", "8B", 32, 4096, 14336, 32, 8, 128256, 131072)
    mkgguf.write(path, keys, list(mixed(mkgguf.model_tensors(32, 4096, 14336, 32, 8, 128256, 0, "q4_K"))))


def gemma3_27b(path):
    """Gemma-3-27B: 62 blocks, heads of 128 beside a width of 5376, five blocks of six with a window of 1024."""
    blocks, embd, ff, heads, kv_heads, head, vocab = 62, 5376, 21504, 32, 16, 128, 262144
    keys = mkgguf.model_keys("gemma3", "27B", blocks, embd, ff, heads, kv_heads, vocab, 131072)
    keys += [("gemma3.attention.key_length", mkgguf.U32, head), ("gemma3.attention.value_length", mkgguf.U32, head),
             ("gemma3.attention.sliding_window", mkgguf.U32, 1024)]
    tensors = [("token_embd.weight", "q6_K", (embd, vocab)), ("output_norm.weight", "f32", (embd,))]
    for i in range(blocks):
        tensors += [(f"blk.{i}.{name}.weight", "f32" if "norm" in name else "q4_K", shape) for name, shape in (
            ("attn_norm", (embd,)), ("attn_q", (embd, heads * head)), ("attn_k", (embd, kv_heads * head)),
            ("attn_v", (embd, kv_heads * head)), ("attn_output", (heads * head, embd)), ("attn_q_norm", (head,)),
            ("attn_k_norm", (head,)), ("post_attention_norm", (embd,)), ("ffn_norm", (embd,)), ("ffn_gate", (embd, ff)),
            ("ffn_up", (embd, ff)), ("ffn_down", (ff, embd)), ("post_ffw_norm", (embd,)))]
    mkgguf.write(path, keys, tensors)


def moe_30b(path):
    """Qwen3-30B-A3B: 48 blocks of 128 experts, 8 used."""
    blocks, embd, ff, heads, kv_heads, head, vocab, experts = 48, 2048, 768, 32, 4, 128, 151936, 128
    keys = mkgguf.model_keys("qwen3moe", "30B-A3B", blocks, embd, 6144, heads, kv_heads, vocab, 40960)
    keys += [("qwen3moe.expert_count", mkgguf.U32, experts), ("qwen3moe.expert_used_count", mkgguf.U32, 8),
             ("qwen3moe.expert_feed_forward_length", mkgguf.U32, ff),
             ("qwen3moe.attention.key_length", mkgguf.U32, head), ("qwen3moe.attention.value_length", mkgguf.U32, head)]
    tensors = [("token_embd.weight", "q4_K", (embd, vocab)), ("output_norm.weight", "f32", (embd,)),
               ("output.weight", "q6_K", (embd, vocab))]
    for i in range(blocks):
        tensors += [(f"blk.{i}.{name}.weight", "f32" if "norm" in name or "inp" in name else "q4_K", shape)
                    for name, shape in (
            ("attn_norm", (embd,)), ("attn_q", (embd, heads * head)), ("attn_k", (embd, kv_heads * head)),
            ("attn_v", (embd, kv_heads * head)), ("attn_output", (heads * head, embd)), ("attn_q_norm", (head,)),
            ("attn_k_norm", (head,)), ("ffn_norm", (embd,)), ("ffn_gate_inp", (embd, experts)),
            ("ffn_gate_exps", (embd, ff, experts)), ("ffn_up_exps", (embd, ff, experts)),
            ("ffn_down_exps", (ff, embd, experts)))]
    mkgguf.write(path, keys, tensors)


def small(path):
    """SmolLM2-360M: tied, a model that fits anywhere."""
    mkgguf.write_model(path, name="360M", blocks=32, embd=960, ff=2560, heads=15, kv_heads=5, vocab=49152, ctx=8192,
                       tied=1)


def tied(path):
    """A vocabulary of 262,144, tied, on a body of 18 blocks: the table is the larger part (Gemma-3-270M)."""
    mkgguf.write_model(path, name="tied", blocks=18, embd=640, ff=2048, heads=4, kv_heads=1, vocab=262144, ctx=32768,
                       tied=1)


def shards(path):
    """Llama-2-13B in two files."""
    mkgguf.write_model(path, name="13B", blocks=40, embd=5120, ff=13824, heads=40, kv_heads=40, vocab=32000, ctx=4096,
                       type="q4_K", shards=2)


SHAPES = {"small": small, "llama-8b": llama_8b, "gemma3-27b": gemma3_27b, "moe-30b": moe_30b, "tied": tied,
          "shards": shards}
FILES = {"shards": "shards-00001-of-00002.gguf"}

# shape, machine, wishes
CASES = [
    ("small", "laptop", ""),
    ("small", "board", "--ram-budget 256M"),
    ("small", "board", "--ram-budget 160M -c 1024"),
    ("small", "unknown", ""),
    ("small", "container", "-c 8192 -np 4"),
    ("llama-8b", "laptop", ""),
    ("llama-8b", "laptop", "--ram-budget 2G"),
    ("llama-8b", "laptop", "--ram-budget 2G -c 32768"),
    ("llama-8b", "laptop", "--ram-budget 4G --policy speed"),
    ("llama-8b", "board", ""),
    ("llama-8b", "container", ""),
    ("llama-8b", "container", "-c 16384 -ctk q8_0 -ctv q8_0"),
    ("llama-8b", "desktop", "-c 131072"),
    ("llama-8b", "server", "--ram-budget 0"),
    ("llama-8b", "unknown", "--ram-budget 1G"),
    ("llama-8b", "laptop", "--ram-budget 600M"),
    ("gemma3-27b", "laptop", ""),
    ("gemma3-27b", "laptop", "--ram-budget 3G"),
    ("gemma3-27b", "desktop", "-c 65536"),
    ("gemma3-27b", "board", "--ram-budget 1500M --allow-ctx-reduction -c 8192"),
    ("gemma3-27b", "server", ""),
    ("moe-30b", "laptop", ""),
    ("moe-30b", "desktop", ""),
    ("moe-30b", "container", "-ub 128"),
    ("tied", "board", "--ram-budget 200M"),
    ("tied", "laptop", "--ram-budget 320M --stream-head on"),
    ("tied", "container", ""),
    ("shards", "laptop", "--ram-budget 4G"),
    ("shards", "desktop", "--buffers 1 --ram-budget 2G"),
    ("shards", "board", "--ram-budget 512M --force"),
]


def rate(value):
    return "?" if value is None else f"{value:.3g}"


def block(case, plan, code):
    """A plan in lines: what a user sees changes in the first ones, where bytes moved in the rest."""
    shape, machine, wishes = case
    host = plan["pools"][0]
    ctx, units, blocks, ring = plan["ctx"], plan["units"], plan["blocks"], plan["ring"]
    lines = [f"{shape} | {machine} | {wishes}".rstrip(),
             f"  verdict  {plan['verdict']}{' forced' if plan['forced'] else ''}, exit {code}; "
             f"{rate(plan['forecast']['tokens_per_s'])} tokens/s, {plan['forecast']['bound']}",
             f"  context  {ctx['effective']} of {ctx['trained']}{': ' + ctx['reason'] if ctx['reason'] else ''}; "
             f"micro-batch {plan['batch']['n_ubatch']}, exact {str(plan['exact']).lower()}",
             f"  units    {units['pinned']} pinned, {units['streamed']} streamed of {units['total']}; blocks "
             f"{blocks['pinned']} + {blocks['partial']} + {blocks['streamed']}; head {plan['head']}; "
             f"ring {ring['slots']} x {ring['slot_bytes']}",
             f"  budget   {host['budget_bytes']} from {host['source']}"]
    lines += [f"  {line['name'].removeprefix('host/'):<12}{line['planned_bytes']:>14}" for line in host["lines"]
              if line["planned_bytes"]]
    lines.append(f"  {'total':<12}{host['planned_bytes']:>14}")
    lines += [f"  ladder   {rung['what']:<12}{rung['budget_bytes']:>14} at {rung['ctx']}, {rate(rung['tokens_per_s'])}"
              for rung in plan["ladder"]]
    if plan["refusal"]:
        lines.append(f"  refused  {plan['refusal']['code']}: needs {plan['refusal']['need_bytes']}, "
                     f"has {plan['refusal']['have_bytes']}")
        lines += [f"  change   {change['flag']} {change['value']}: {change['need_bytes']}"
                  for change in plan["refusal"]["changes"]]
    return lines


def make(case, models):
    shape, machine, wishes = case
    command = [os.environ["BT_BIN"], "plan", models / FILES.get(shape, f"{shape}.gguf"), "--json", "--machine",
               MACHINES / f"{machine}.json", *wishes.split()]
    environment = {"PATH": os.environ["PATH"], "HOME": str(models)}
    if "ASAN_OPTIONS" in os.environ:
        environment["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, timeout=TIMEOUT_S,
                          check=False)
    if done.returncode not in (0, 3):
        return [f"{shape} | {machine} | {wishes}".rstrip(), f"  failed, exit {done.returncode}: {done.stderr.decode()}"]
    return block(case, json.loads(done.stdout), done.returncode)


def recorded():
    """First line of a block -> its lines."""
    blocks = {}
    for text in (GOLDEN.read_text() if GOLDEN.exists() else "").split("\n\n"):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        if lines:
            blocks[lines[0]] = lines
    return blocks


def main():
    if not os.environ.get("BT_BIN"):
        print("skipped: BT_BIN names no program")
        return 77
    update = os.environ.get("UPDATE") == "1"
    cases = [case for case in CASES if all(word in " ".join(case).split() for word in sys.argv[1:])]
    golden = recorded()
    n_failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = pathlib.Path(scratch)
        for shape in {case[0] for case in cases}:
            SHAPES[shape](models / f"{shape}.gguf")
        for case in cases:
            got = make(case, models)
            want = golden.get(got[0], [])
            if got == want:
                continue
            n_failed += 1
            print("\n".join(["FAILED " + got[0], *difflib.unified_diff(want, got, "recorded", "now", n=0, lineterm="")]))
            golden[got[0]] = got
    names = [f"{shape} | {machine} | {wishes}".rstrip() for shape, machine, wishes in CASES]
    if update:
        GOLDEN.write_text("# Recorded by test_golden_plans.py with UPDATE=1; bytes.\n\n" +
                          "\n\n".join("\n".join(golden[name]) for name in names if name in golden) + "\n")
    stale = [name for name in golden if name not in names]
    for name in stale if not update else ():
        print(f"FAILED {name} is recorded and no case")
    print(f"{len(cases) - n_failed} of {len(cases)} plans as recorded{', recorded anew' if update else ''}")
    return 0 if cases and not (n_failed or stale) or update else 1


if __name__ == "__main__":
    sys.exit(main())
