# SPDX-License-Identifier: MIT
"""Mixtures of experts of five families, under four budgets: the text is llama.cpp's, the peak is within the plan, and what
the plan says of experts is what happens. Random weights; the shapes are those of OLMoE, Qwen3-MoE, Mixtral, gpt-oss and
Hy-V3 (gate and up of an expert in one matrix, an expert that is always used, a first block without experts), smaller. Bits and the cache itself: test_mixture.c, tests/unit/test_experts.c."""

import json
import os
import pathlib
import subprocess
import tempfile

import harness
import mixtures

harness.require(harness.LLAMA_BIN / "llama-completion")
checks = harness.Checks()
PROMPT = "once there was a small fox that lived in the deep forest and ran along the river every day to see what it had brought"
N = 16


def run(model, budget, *args):
    return harness.run(model, budget, "-t", 1, "--ignore-eos", "--io", "direct", *args, n=N, prompt=PROMPT)


def check_run(name, model, budget, expected):
    text, stats, result = run(model, budget)
    plan, measured = stats["plan"], stats["measured"]
    where = f"{name} at {budget}"
    n_ubatch = plan["batch"]["n_ubatch"]
    if n_ubatch not in expected:
        expected[n_ubatch] = harness.peer_text(model, "-t", 1, "--ignore-eos", "-ub", n_ubatch, n=N, prompt=PROMPT)
    same = checks.check(harness.same_text(text, expected[n_ubatch]),
                        f"{where}: text differs\n  ours   {text!r}\n  theirs {expected[n_ubatch]!r}")
    peak, planned = measured["peak_rss_bytes"], plan["pools"][0]["planned_bytes"]
    checks.check(peak <= planned <= budget, f"{where}: {peak} of {planned} of {budget}")
    experts, slots = measured["experts"], plan["experts"]
    lines = {line["name"]: line for line in measured["lines"]}
    line = lines["host/experts"]
    checks.check(0 < line["peak_bytes"] <= line["planned_bytes"], f"{where}: line {line}")
    if slots["slots"] == slots["of_block"] and not slots["shared"]:
        checks.check(experts["hits"] == experts["misses"] == 0, f"{where}: asked for {experts}")
    else:
        checks.check(experts["misses"] > 0 and experts["bytes"] > 0, f"{where}: {experts}")
        checks.check("of experts were there" in result.stderr.decode(), f"{where}: not in the summary")
    if slots["shared"]:
        checks.check(experts["hits"] == 0, f"{where}: shared slots that keep: {experts}")
    print(f"{name:9} {budget / harness.MIB:6.1f} MiB {plan['verdict']:8} slots {slots['slots']:2} of {slots['of_block']:2}"
          f"{' shared' if slots['shared'] else '':7} peak / plan {peak / planned:.3f} hits {experts['hits']:5} misses "
          f"{experts['misses']:5} in turn {experts['in_turn']:4} {'same' if same else 'DIFFERS'}", flush=True)
    return plan, measured


def try_shape(name, folder):
    model = pathlib.Path(folder) / f"{name}.gguf"
    mixtures.write(model, name)
    rungs = harness.ladder(model, "-c", 512, "-t", 1)
    low, high = rungs["minimum"], rungs["all-pinned"]
    expected, plans = {}, []
    for budget in (low, min(high, low * 13 // 10), (low + high) // 2, high):
        plans.append(check_run(name, model, budget, expected))
    checks.check(plans[0][0]["experts"]["shared"], f"{name}: the minimum keeps experts")
    checks.check(plans[0][0]["verdict"] == "streams" and plans[-1][0]["verdict"] == "fits", f"{name}: verdicts")
    return model, high


def try_failures(model, high):
    """A file that ends too early while experts are read fails the run with the file's name, whenever it happens."""
    size = model.stat().st_size
    cut = model.with_suffix(".cut.gguf")
    cut.write_bytes(model.read_bytes())
    process = subprocess.Popen([str(word) for word in (harness.BIN, "run", cut, "-p", PROMPT, "-n", 400, "-c", 512, "-t", 1,
                                                       "--ignore-eos", "--greedy", "--io", "direct", "--ram-budget",
                                                       high * 6 // 10)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment())
    process.stdout.read(1)  # it generates
    os.truncate(cut, size // 3)
    _, stderr = process.communicate(timeout=120)
    checks.check(process.returncode == 1 and cut.name in stderr.decode(), f"cut: {process.returncode}: {stderr.decode()[-300:]}")


def try_plan_file(model, high, folder):
    """A plan that is written down runs as it is; slots that the model has not are refused."""
    path = pathlib.Path(folder) / "plan.json"
    plan = harness.plan(model, "-c", 512, "-t", 1, budget=high * 7 // 10)
    path.write_text(json.dumps(plan))
    result = harness.burthen("run", model, "-p", PROMPT, "-n", 4, "--greedy", "--plan", path)
    checks.check(result.returncode == 0, f"--plan: {result.stderr.decode()[-300:]}")
    for slots in (0, 1, plan["experts"]["of_block"] + 1):
        plan["experts"]["slots"] = slots
        path.write_text(json.dumps(plan))
        result = harness.burthen("run", model, "-p", PROMPT, "-n", 4, "--greedy", "--plan", path)
        checks.check(result.returncode not in (0, 139) and "slots" in result.stderr.decode(),
                     f"--plan with {slots} slots: {result.returncode}: {result.stderr.decode()[-300:]}")


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    for name in mixtures.SHAPES:
        model, high = try_shape(name, folder)
        if name == "qwen3moe":
            try_failures(model, high)
            try_plan_file(model, high, folder)
checks.end()
