# SPDX-License-Identifier: MIT
"""Text under any budget equals llama.cpp's: both real models, six budgets from the printed minimum to all pinned, and
combinations of ring slots, direct or buffered reads, and reader."""

import itertools
import os

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3, harness.LLAMA_BIN / "llama-completion")
checks = harness.Checks()


EVERY = list(itertools.product((1, 2, 3), ("direct", "buffered"), ("uring", "pread")))
# Each pair of values once with the smaller model, each value with the larger; all of them when BT_TRUTH_FULL is set.
PAIRS = [(1, "direct", "uring"), (1, "buffered", "pread"), (2, "direct", "pread"), (2, "buffered", "uring"),
         (3, "direct", "uring"), (3, "buffered", "pread")]
SOME = [PAIRS[0], PAIRS[3], (3, "direct", "pread")]
FULL = bool(os.environ.get("BT_TRUTH_FULL"))
COMBINATIONS = {harness.SMOLLM2: EVERY if FULL else PAIRS, harness.GEMMA3: EVERY if FULL else SOME}


def label(path):
    return path.name.split("-")[0]


def check(model, budget, expected, *args):
    text, stats, _ = harness.run(model, budget, *args)
    plan = stats["plan"]
    n_ubatch = plan["batch"]["n_ubatch"]
    if n_ubatch not in expected:
        expected[n_ubatch] = harness.peer_text(model, "-ub", n_ubatch)
    same = checks.check(harness.same_text(text, expected[n_ubatch]),
                        f"{label(model)} at {budget} {args}: text differs\n  ours   {text!r}\n  theirs {expected[n_ubatch]!r}")
    print(f"{label(model):8} {budget / harness.MIB:7.1f} MiB {' '.join(map(str, args)):44} {plan['verdict']:8} "
          f"pinned {plan['units']['pinned']:3} streamed {plan['units']['streamed']:3} "
          f"{stats['measured']['decode_tokens_per_s']:7.1f} tok/s {'same' if same else 'DIFFERS'}", flush=True)
    return plan


for model in (harness.SMOLLM2, harness.GEMMA3):
    expected = {}
    budgets = harness.budgets(model, 6, "-c", 512)
    plans = [check(model, budget, expected) for budget in budgets]
    checks.check(plans[0]["verdict"] == "streams", f"{label(model)}: the minimum does not stream")
    checks.check(plans[-1]["verdict"] == "fits", f"{label(model)}: the last rung does not fit")
    # Three slots need more than the minimum: the second budget has room for every combination.
    for slots, io, reader in COMBINATIONS[model]:
        check(model, budgets[1], expected, "--buffers", slots, "--io", io, "--reader", reader)
checks.end()
