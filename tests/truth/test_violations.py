# SPDX-License-Identifier: MIT
"""The five ways in which an earlier planner's contract broke (research notes, seed 2, section 4), tried on `run`.

  V1  a cache that grows copies itself: a prompt longer than half of the context, on a toy with a large cache
  V2  a large vocabulary that no line knows: 128,256 tokens and 280,147 merges on two blocks
  V3  a mapped file counts as memory: the model is never mapped, and one much larger than the budget runs within it
  V4  blocks of different sizes planned as if they were alike: 4.7 MB, then five of 58 MB
  V5  something large that runs before the plan: what is refused, and what only plans, stays small

Each is run at its printed minimum and half way from there to all pinned; a byte less than the minimum is refused.
The peak is the kernel's VmHWM, read from outside. The toys' weights are zeros (tests/support/toys.py)."""

import json
import pathlib
import tempfile

import harness
import toys
import watch

harness.require()
checks = harness.Checks()
MIB = harness.MIB
CTX = 512
N_TOKENS = 8
STEP = 256 << 10  # measured lines are planned in steps of this (src/engine/exact.c)
# What a process holds that loads nothing: program, libraries and their code, tables of the header. 12.5 MiB of it is the
# process base (src/guard/base_costs.h); the rest is the facts of the largest header here and the JSON.
SMALL_BYTES = 24 * MIB
# Letters of the prompt. A letter is a token of the SentencePiece toys: V1's fills five eighths of the context, so that a
# cache that doubles would have to move.
TOYS = {
    "V1": dict(vocabulary=lambda: toys.sentencepiece(2048), embd=1024, heads=16, kv_heads=16, blocks=[256] * 16,
               n_letters=CTX * 5 // 8),
    "V2": dict(vocabulary=lambda: toys.byte_pairs(128256, 280147), embd=256, heads=4, kv_heads=4, blocks=[768] * 2,
               n_letters=120),
    "V4": dict(vocabulary=lambda: toys.sentencepiece(2048), embd=1024, heads=16, kv_heads=4, blocks=[640] + [16960] * 5,
               n_letters=40),
}


def run(model, budget, prompt):
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        seen = watch.run([harness.BIN, "run", model, "-p", prompt, "-n", N_TOKENS, "--ignore-eos", "--greedy", "-c", CTX,
                          "--ram-budget", budget, "--stats", stats.name, "-q"], env=harness.environment())
        text = pathlib.Path(stats.name).read_text()
        return seen, json.loads(text) if text else None


def check_run(name, model, budget, n_letters):
    seen, stats = run(model, budget, harness.PROMPT[:n_letters])
    what = f"{name} at {budget / MIB:.1f} MiB"
    if not checks.check(seen.status == 0, f"{what}: exit {seen.status}: {seen.stderr.decode(errors='replace')[-400:]}"):
        return
    measured, pool = stats["measured"], stats["plan"]["pools"][0]
    planned = pool["planned_bytes"]
    checks.check(planned <= budget, f"{what}: planned {planned}")
    checks.check(seen.vm_hwm_bytes <= planned, f"{what}: VmHWM {seen.vm_hwm_bytes} is over the planned {planned}")
    checks.check(measured["peak_rss_bytes"] <= planned, f"{what}: own peak {measured['peak_rss_bytes']}")
    over = [line for line in measured["lines"] if line["peak_bytes"] > line["planned_bytes"]]
    checks.check(not over, f"{what}: lines over their plan: {over}")
    long_enough = measured["prompt_tokens"] > CTX // 2 or name != "V1"
    checks.check(long_enough and measured["generated_tokens"] == N_TOKENS, f"{what}: {measured['prompt_tokens']} tokens")
    # V1: the cache is there at its full size from the start, once
    kv = next(line for line in measured["lines"] if line["name"] == "host/kv")
    checks.check(kv["reserved_bytes"] == kv["planned_bytes"] >= kv["peak_bytes"], f"{what}: the cache grew: {kv}")
    # V3: neither the process nor its dry run ever mapped the model
    checks.check(seen.n_looks > 20 and str(model.resolve()) not in seen.mapped, f"{what}: {model.name} was mapped")
    checks.check(harness.BIN in seen.mapped, f"{what}: what is mapped was not seen")
    print(f"{name} budget {budget / MIB:7.1f} planned {planned / MIB:7.1f} VmHWM {seen.vm_hwm_bytes / MIB:7.1f} "
          f"({seen.vm_hwm_bytes / planned:.3f}) dry run {seen.child_hwm_bytes / MIB:6.1f} file "
          f"{model.stat().st_size / MIB:6.1f} micro-batch {stats['plan']['batch']['n_ubatch']}", flush=True)


def check_refused(name, model, minimum):
    """A byte less than the minimum is refused. Where a dry run measures its lines a step lower than the one that the
    minimum was printed by, the byte may be there: then the run says so, and keeps to it."""
    seen, stats = run(model, minimum - 1, "x")
    if seen.status == 0:
        own = next(rung["budget_bytes"] for rung in stats["plan"]["ladder"] if rung["what"] == "minimum")
        checks.check(minimum - 2 * STEP <= own < minimum, f"{name}: a minimum of {own}, after one of {minimum}")
        checks.check(seen.vm_hwm_bytes < minimum, f"{name} minimum - 1: VmHWM {seen.vm_hwm_bytes}")
        minimum = own - 2 * STEP
        seen, stats = run(model, minimum - 1, "x")
    checks.check(seen.status == 3, f"{name} at {minimum - 1}: exit {seen.status}: {seen.stderr.decode(errors='replace')[-300:]}")
    checks.check(seen.vm_hwm_bytes < SMALL_BYTES, f"V5 {name} refused: VmHWM {seen.vm_hwm_bytes}")
    checks.check(b"RAM budget impossible" in seen.stderr, f"{name}: the refusal is said")


def check_small(name, status, *args):
    seen = watch.run([harness.BIN, *args], env=harness.environment())
    checks.check(seen.status == status, f"V5 {name}: exit {seen.status}: {seen.stderr.decode(errors='replace')[-400:]}")
    checks.check(seen.vm_hwm_bytes < SMALL_BYTES, f"V5 {name}: VmHWM {seen.vm_hwm_bytes} of a command that loads nothing")
    print(f"V5 {name:20} VmHWM {seen.vm_hwm_bytes / MIB:5.1f} dry run {seen.child_hwm_bytes / MIB:6.1f}", flush=True)


with tempfile.TemporaryDirectory() as scratch:
    for name, shape in TOYS.items():
        model = pathlib.Path(scratch) / f"{name}.gguf"
        toys.write(model, shape["vocabulary"](), shape["embd"], shape["heads"], shape["kv_heads"], shape["blocks"])
        rungs = harness.ladder(model, "-c", CTX)
        minimum, most = rungs["minimum"], rungs["all-pinned"]
        for budget in (minimum, (minimum + most) // 2):
            check_run(name, model, budget, shape["n_letters"])
        if name == "V4":
            checks.check(minimum * 4 < model.stat().st_size, f"V3: {minimum} is not much less than the file")
        refused = ("run", model, "-p", "x", "-c", CTX, "--ram-budget")
        check_refused(name, model, minimum)
        check_small(f"{name} refused", 3, *refused, "1M")
        check_small(f"{name} plan", 3, "plan", model, "-c", CTX, "--ram-budget", "1M")
        check_small(f"{name} plan --exact", 3, "plan", model, "-c", CTX, "--exact", "--ram-budget", "1M")
checks.end()
