# SPDX-License-Identifier: MIT
"""Contract C1 and C4 on both real models: the peak stays under the budget, in a cgroup with 16 MiB more and in one without
a limit, and no line is over its plan; a saturating run uses most of what was planned."""

import json
import os
import pathlib
import tempfile

import cgroup_box
import harness

harness.require(harness.SMOLLM2, harness.GEMMA3)
cgroup_box.require()
checks = harness.Checks()
CTX = 512
# Enough to fill nine tenths of the context; all of it takes minutes a run on a slow disk.
N_TOKENS = "-1" if os.environ.get("BT_TRUTH_FULL") else "24"
MARGIN = 16 * harness.MIB


def run_in_box(model, budget, limit, *args):
    # The prompt fills most of the context, generation (nearly) the rest: a full micro-batch and a full cache.
    prompt = harness.PROMPT * 6
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        command = [harness.BIN, "run", model, "-p", prompt, "-n", N_TOKENS, "--ignore-eos", "-c", CTX, "--greedy", "--io",
                   "direct", "--ram-budget", budget, "--stats", stats.name, *args]
        cgroup_box.drop_cache(model)
        result = cgroup_box.run(command, limit_bytes=limit, allow_swap=False, env=harness.environment(), timeout_s=600)
        text = pathlib.Path(stats.name).read_text()
        return result, json.loads(text) if text else None


def check(model, budget, limit):
    result, stats = run_in_box(model, budget, limit)
    what = f"{model.name} at {budget / harness.MIB:.1f} MiB, limit {limit and limit / harness.MIB}"
    if not checks.check(result.status == 0, f"{what}: exit {result.status}: {result.stderr.decode(errors='replace')[-600:]}"):
        return
    measured, plan = stats["measured"], stats["plan"]
    planned = sum(line["planned_bytes"] for line in plan["pools"][0]["lines"])
    checks.check(result.oom_kills == 0 and result.swap_peak_bytes == 0, f"{what}: killed or swapped")
    checks.check(result.vm_hwm_bytes <= budget, f"{what}: VmHWM {result.vm_hwm_bytes} is over the budget {budget}")
    checks.check(planned <= budget, f"{what}: planned {planned} is over the budget")
    over = [line for line in measured["lines"] if line["peak_bytes"] > line["planned_bytes"]]
    checks.check(not over, f"{what}: lines over their plan: {over}")
    checks.check(result.cgroup_peak_bytes <= budget + MARGIN,
                 f"{what}: cgroup peak {result.cgroup_peak_bytes} is over budget + 16 MiB")
    ratio = result.vm_hwm_bytes / planned
    checks.check(0.85 <= ratio <= 1.0, f"{what}: measured / planned = {ratio:.3f}")
    checks.check(measured["residual_bytes"] < 4 * harness.MIB, f"{what}: residual {measured['residual_bytes']}")
    print(f"{model.name:36} budget {budget / harness.MIB:7.1f} limit {(limit or 0) / harness.MIB:7.1f} planned "
          f"{planned / harness.MIB:7.1f} VmHWM {result.vm_hwm_bytes / harness.MIB:7.1f} ({ratio:.3f}) cgroup "
          f"{result.cgroup_peak_bytes / harness.MIB:7.1f} residual {measured['residual_bytes'] / harness.MIB:5.2f} "
          f"{measured['decode_tokens_per_s']:7.1f} tok/s", flush=True)


for model in (harness.GEMMA3, harness.SMOLLM2):
    for budget in harness.budgets(model, 6, "-c", CTX):
        check(model, budget, budget + MARGIN)
        check(model, budget, None)
checks.end()
