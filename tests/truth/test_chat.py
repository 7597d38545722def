# SPDX-License-Identifier: MIT
"""Contract C1 for conversations, on both real models: several turns, each longer than the one before, to the end of the
context, with a session saved at the end: the peak of the process, and of the template worker beside it, stays under
what was planned, in a cgroup with 16 MiB more; and the next start from the session reads less than the prompt did."""

import json
import pathlib
import re
import tempfile

import cgroup_box
import harness

harness.require(harness.SMOLLM2, harness.GEMMA3, pathlib.Path(harness.BIN).parent / "burthen-template")
cgroup_box.require()
checks = harness.Checks()
CTX, N = 512, 8
MARGIN = 16 * harness.MIB
TURNS = ["Say hello.", harness.PROMPT]


def command(model, budget, stats, session):
    return [harness.BIN, "run", model, "--chat", "--greedy", "-t", "1", "-c", CTX, "-n", N, "--ignore-eos", "--io", "direct", "-v",
            "--ram-budget", budget, "--stats", stats, "--session", session]


def tokens(errors):
    return [int(found) for found in re.findall(rb"burthen: (\d+) tokens, \d+ of them reused", errors)]


def converse(model, budget, lines, folder, limit=None):
    stats, session = folder / "stats.json", folder / "session"
    cgroup_box.drop_cache(model)
    result = cgroup_box.run(command(model, budget, stats, session), limit_bytes=limit, allow_swap=False,
                            env=harness.environment(), timeout_s=600, stdin="".join(line + "\n" for line in lines).encode())
    return result, json.loads(stats.read_text()) if stats.exists() else None


def last_turn(model, budget):
    """Words that leave no room for all of the last answer."""
    with tempfile.TemporaryDirectory() as folder:
        result, _ = converse(model, budget, [*TURNS, "word"], pathlib.Path(folder))
        used = tokens(result.stderr)[-1]
    return "word" + " word" * (CTX - used - N // 2)


def check(model, budget, last):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result, stats = converse(model, budget, [*TURNS, last], folder, limit=budget + MARGIN)
        what = f"{model.name} at {budget / harness.MIB:.1f} MiB"
        if not checks.check(result.status == 0 and stats, f"{what}: {result.status}: {result.stderr.decode(errors='replace')[-800:]}"):
            return
        planned = sum(line["planned_bytes"] for line in stats["plan"]["pools"][0]["lines"])
        over = [line for line in stats["measured"]["lines"] if line["peak_bytes"] > line["planned_bytes"]]
        checks.check(not over, f"{what}: lines over their plan: {over}")
        checks.check(planned <= budget, f"{what}: planned {planned} is over the budget")
        checks.check(result.vm_hwm_bytes <= planned, f"{what}: VmHWM {result.vm_hwm_bytes} is over the plan {planned}")
        checks.check(result.oom_kills == 0 and result.swap_peak_bytes == 0, f"{what}: killed or swapped")
        checks.check(result.cgroup_peak_bytes <= budget + MARGIN, f"{what}: cgroup peak {result.cgroup_peak_bytes}")
        checks.check(b"context of 512 tokens is full" in result.stderr, f"{what}: the end of the context was not reached")
        again, resumed = converse(model, budget, ["/undo", "And now?"], folder)
        checks.check(again.status == 0 and again.vm_hwm_bytes <= planned, f"{what}: taken up: {again.status} {again.stderr[-500:]}")
        if again.status == 0:
            measured = resumed["measured"]
            checks.check(measured["prompt_tokens"] < 60, f"{what}: {measured['prompt_tokens']} tokens decoded after taking up")
        print(f"{model.name:36} budget {budget / harness.MIB:7.1f} planned {planned / harness.MIB:7.1f} VmHWM "
              f"{result.vm_hwm_bytes / harness.MIB:7.1f} ({result.vm_hwm_bytes / planned:.3f}) cgroup "
              f"{result.cgroup_peak_bytes / harness.MIB:7.1f}, taken up {again.vm_hwm_bytes / harness.MIB:7.1f}", flush=True)


for model in (harness.GEMMA3, harness.SMOLLM2):
    ladder = {rung["what"]: rung["budget_bytes"] for rung in harness.plan(model, "--chat", "-t", 1, "-c", CTX)["ladder"]}
    last = last_turn(model, ladder["all-pinned"])
    for budget in (ladder["minimum"], (ladder["minimum"] + ladder["all-pinned"]) // 2, ladder["all-pinned"]):
        check(model, budget, last)
checks.end()
