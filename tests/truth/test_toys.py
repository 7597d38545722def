# SPDX-License-Identifier: MIT
"""Acceptance A6.2: random toys. 200 models of random architecture, shape, types and vocabulary, each run at two random
budgets with a random context, micro-batch, KV type, number of sequences and threads, the context filled to its end:

  - the peak of the process <= planned <= budget, and >= 60 % of planned where the model is over 8 MiB;
  - the rest of the contract too (contract.py): no line over its plan, nothing killed, the cgroup's peak;
  - where the minimum is one of the budgets, one byte less is refused;
  - both budgets give the same text, drawn by the sampler and not greedy, so that every token depends on all logits.

`make check` runs the first tenth, `make truth-full` (BT_TRUTH_FULL=1) all. A failure prints the toy's seed; with seeds
as arguments only those are run, and their models stay in build/truth/toys with the commands to run them:

    python3 tests/truth/test_toys.py 20017
"""

import json
import os
import pathlib
import random
import shlex
import sys
import tempfile
import time

import cgroup_box
import contract
import harness
import random_model

N_TOYS = 200 if os.environ.get("BT_TRUTH_FULL") else 20
FIRST_SEED = int(os.environ.get("BT_TRUTH_SEED", "20000"))
# Toys that once broke what the first ones did not: several sequences, priced for a part of the context.
ONCE_WRONG = (20036, 20064)
RATIO_LOW = 0.6
SMALL_BYTES = 8 * harness.MIB
TYPES = ("f32", "f16", "q8_0", "q4_0")
CTX_ALIGN = 256  # libllama rounds each sequence's share up to it


class Toy:
    """What a seed stands for."""

    def __init__(self, seed):
        self.seed = seed
        draw = random.Random(seed)
        self.family = draw.choice(sorted(random_model.FAMILIES))
        self.threads = draw.choice((1, 2))
        self.parallel = draw.choice((1, 1, 1, 2, 3))
        share = draw.choice((256, 256, 512, 768, 1024))
        # Between two multiples now and then: the rounded context is priced, shown and filled.
        self.asked_ctx = self.parallel * share - draw.choice((0, 0, draw.randrange(200)))
        self.share = share
        self.n_ubatch = draw.choice((16, 32, 64, 128, 256, 512))
        self.type_k = draw.choice(("f16", "f16", "q8_0", "q4_0"))
        self.type_v = draw.choice(("f16", self.type_k))
        # A quantised V needs flash attention.
        self.flash = draw.choice(("auto", "on") if self.type_v != "f16" else ("auto", "on", "off"))
        self.pairs = draw.random() < 0.4
        self.n_vocab = draw.randrange(300, draw.choice((600, 3000, 9000)))
        self.shape = self.draw_shape(draw)
        self.answer = draw.randrange(8, 24)
        # Where between the minimum (0) and all pinned (1) the budgets lie; the minimum itself half of the time.
        self.places = (draw.choice((0.0, draw.random())), draw.uniform(0.0, 1.1))
        self.sampler_seed = draw.randrange(1 << 31)
        self.text = self.draw_text(draw)

    def draw_shape(self, draw):
        family = random_model.FAMILIES[self.family]
        # Quantised keys of a head are whole blocks of 32.
        head_dim = draw.choice((32, 64, 128) if self.type_k != "f16" else (16, 32, 48, 64, 80, 128))
        blocks = draw.randrange(1, 9)
        kv_heads = draw.choice((1, 2, 3, 4))
        heads = kv_heads * draw.choice((1, 2, 3))
        while heads * head_dim > 640 or heads * head_dim % 32:
            kv_heads, heads = draw.choice(((1, 2), (2, 2), (1, 4), (2, 4), (4, 4)))
        if not family.own_kv_heads:
            kv_heads = heads
        ff = [32 * draw.randrange(2, 40) for _ in range(blocks)]
        shape = random_model.Shape(
            self.family, blocks=blocks, embd=heads * head_dim, ff=ff[0], heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            ctx=draw.choice((self.share * self.parallel, 4096)), tied=draw.random() < 0.5)
        if family.free_heads:
            shape.embd = 32 * draw.randrange(2, 20)
        if family.per_block:
            shape.ff = ff
            shape.heads = [heads] + [draw.choice((0, heads, kv_heads)) for _ in range(blocks - 1)]
            shape.kv_heads = [kv_heads if n else 0 for n in shape.heads]
        if family.windows:
            shape.window = draw.choice((32, 100, 512))
            # Of fewer blocks than a period none would be full, or none would have a window: that is no such model.
            shape.blocks = max(blocks, 2)
        if family.experts:
            shape.experts = draw.choice((2, 4, 7, 16))
            shape.experts_used = draw.randrange(1, min(shape.experts, 4) + 1)
            shape.ff = 32 * draw.randrange(2, 9)
        kinds = draw.sample(TYPES, draw.choice((1, 1, 2, 3)))
        salt = draw.random()
        shape.kind_of = lambda name: random.Random(f"{salt} {name}").choice(kinds)
        return shape

    def draw_text(self, draw):
        """Small letters and single spaces: one token each; SentencePiece adds a beginning and a space."""
        n = self.share - self.answer - (0 if self.pairs else 2)
        words = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz   ") for _ in range(2 * n)).split()
        return " ".join(words)[: n - 1] + "x"

    def write(self, path):
        vocabulary = random_model.byte_pairs if self.pairs else random_model.sentencepiece
        random_model.write(path, self.shape, vocabulary(self.n_vocab), self.n_vocab, self.seed, f"toy {self.seed}")

    def plan_args(self):
        return ["-c", self.asked_ctx, "-np", self.parallel, "-ub", self.n_ubatch, "-ctk", self.type_k, "-ctv", self.type_v,
                "-fa", self.flash, "-t", self.threads]

    def run_args(self):
        # `-n -1` would go on into the other sequences' share.
        return [*self.plan_args(), "-n", self.answer + 1, "--temp", 1, "--seed", self.sampler_seed]

    def __str__(self):
        shape = self.shape
        return (f"toy {self.seed} {self.family:10} {shape.blocks} x {shape.embd:3} vocab {self.n_vocab:4} "
                f"ctx {self.parallel} x {self.share} ub {self.n_ubatch} kv {self.type_k}/{self.type_v} fa {self.flash}")


def broken(toy, row, model):
    # A sequence that is not used leaves its KV untouched: the plan is not what one conversation takes.
    low = RATIO_LOW if model.stat().st_size > SMALL_BYTES and toy.parallel == 1 else 0
    found = contract.violations(row, low, fills=False)
    if row["status"] == 0 and row["prompt_tokens"] + row["generated_tokens"] - 1 != toy.share:
        found.append(f"{row['prompt_tokens']} + {row['generated_tokens']} tokens do not fill {toy.share}")
    return found


def check(checks, toy, folder):
    model, prompt = folder / f"toy-{toy.seed}.gguf", folder / f"toy-{toy.seed}.txt"
    toy.write(model)
    prompt.write_text(toy.text)
    at_minimum = 0.0 in toy.places
    rungs = contract.exact_ladder(model, *toy.plan_args()) if at_minimum else harness.ladder(model, *toy.plan_args())
    low, high = rungs["minimum"], rungs["all-pinned"]
    budgets = [low + int((high - low) * place) for place in toy.places]
    rows = []
    for budget, elastic in zip(budgets, ("off", "on")):
        # One text: where nothing streams, weights would be held in another layout (tests/integration/test_replaced.py).
        args = [*toy.run_args(), "--repack", "off", *contract.elastic(elastic)]
        row = contract.measure(model, prompt, budget, budget + contract.MARGIN_BYTES, *args, timeout_s=300)
        wrong = broken(toy, row, model)
        where = "" if not KEEPS else "\n  " + shlex.join(map(str, contract.command(model, prompt, budget, *args)))
        checks.check(not wrong, f"{toy} at {budget}: {'; '.join(wrong)}{where}")
        rows.append(row)
    if all(row["status"] == 0 for row in rows):
        checks.check(rows[0]["text"] == rows[1]["text"], f"{toy}: another text at {budgets[0]} than at {budgets[1]}")
        print(f"{toy}: {model.stat().st_size / harness.MIB:5.1f} MiB at " + ", ".join(
            f"{contract.mib(row['budget_bytes'])} ({contract.ratio(row):.3f})" for row in rows), flush=True)
    return [contract.ratio(row) for row in rows if row["status"] == 0]


KEEPS = sys.argv[1:]


def main():
    harness.require()
    cgroup_box.require()
    checks = harness.Checks()
    seeds = [int(seed) for seed in KEEPS] or list(range(FIRST_SEED, FIRST_SEED + N_TOYS))
    if not KEEPS:
        seeds += [seed for seed in ONCE_WRONG if seed not in seeds]
    ratios, started = [], time.monotonic()
    print(f"seeds {seeds[0]} to {seeds[-1]}; one again: python3 tests/truth/test_toys.py SEED")
    kept = harness.SOURCE / "build/truth/toys"
    if KEEPS:
        kept.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        # Not in a temporary file system: O_DIRECT is part of what is tested.
        with tempfile.TemporaryDirectory(dir=harness.MODELS) as folder:
            try:
                ratios += check(checks, Toy(seed), kept if KEEPS else pathlib.Path(folder))
            except (AssertionError, json.JSONDecodeError) as error:
                checks.check(False, f"{Toy(seed)}: {error}")
    if ratios:
        print(f"{len(ratios)} runs in {time.monotonic() - started:.0f} s: measured / planned {min(ratios):.3f} to "
              f"{max(ratios):.3f}, median {sorted(ratios)[len(ratios) // 2]:.3f}")
    checks.end()


if __name__ == "__main__":
    main()
