# SPDX-License-Identifier: MIT
"""What grows with sequences and with what a context holds, on real models: rows of logits of all sequences in one graph
(a vocabulary of 262,144 is 1 MiB a row), what batches of several leave in the heap, and cells in use beyond those that a
dry run fills. Formula and dry run are held to each other, and a llama-server whose 16 slots all answer at once to its least budget.
BT_TRUTH_FULL=1 also fills a context of 16,384 tokens."""

import json
import os
import tempfile

import drop_in
import harness

drop_in.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()
FULL = bool(os.environ.get("BT_TRUTH_FULL"))
MIB = harness.MIB
STEP = MIB // 2  # heaps are planned in steps of half as much
N_SLOTS = 16


def compute(model, *options):
    result = harness.burthen("plan", model, "--json", "-t", 1, "--ram-budget", "300G", "--force", "--rope-scaling", "yarn",
                             "--rope-scale", 32, *options)
    pool = json.loads(result.stdout)["pools"][0]
    return next(line["planned_bytes"] for line in pool["lines"] if line["name"] == "host/compute")


def check_formula():
    for model in (harness.SMOLLM2, harness.GEMMA3):
        ratios = []
        for n_ctx, n_parallel, n_ubatch in ((4096, 1, 32), (4096, 3, 32), (8192, 2, 32), (4096, 16, 32), (8192, 32, 64),
                                            (8192, 32, 512), (32768, 1, 512), (32768, 4, 64), (131072, 2, 512)):
            options = ("-c", n_ctx, "-np", n_parallel, "-ub", n_ubatch)
            formula, exact = compute(model, *options), compute(model, "--exact", *options)
            ratios.append(formula / exact)
            checks.check(1.0 <= formula / exact <= 1.6,
                         f"{model.name} {options}: {formula / MIB:.2f} MiB by formula, {exact / MIB:.2f} by dry run")
        print(f"{model.name:36} compute {min(ratios):.3f} to {max(ratios):.3f} of the dry run")


def check_cells():
    """A context that is not filled any more costs no less than one that is."""
    for model in (harness.SMOLLM2, harness.GEMMA3):
        for n_parallel in (1, 4):
            options = ("--exact", "-np", n_parallel, "-ub", 32)
            filled, larger = (compute(model, "-c", n_ctx, *options) for n_ctx in (8192, 9216))
            checks.check(larger >= filled - STEP, f"{model.name} -np {n_parallel}: {larger} at 9216 cells, {filled} at 8192")


def check_server():
    arguments = ("-m", harness.GEMMA3, "-c", 256 * N_SLOTS, "-np", N_SLOTS, "-t", 1, "-ub", 64)
    budget = drop_in.rungs(*arguments)["minimum"]
    with drop_in.held(*arguments, budget=budget) as server:
        if not server.check_works(checks, f"{N_SLOTS} slots"):
            return
        found = server.at_once([lambda i=i: server.complete(drop_in.prompt(i, 20), 24) for i in range(N_SLOTS)])
        peak = server.hwm_bytes()
        print(f"{N_SLOTS} slots at once: VmHWM {peak / MIB:.1f} MiB of {budget / MIB:.1f}")
        checks.check(all(answer["tokens_predicted"] == 24 for answer in found), f"answers: {found}")
        checks.check(0 < peak <= budget, f"VmHWM {peak} in a budget of {budget}")


def check_full():
    """Word after word of no sense, to the end of the context."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text, tempfile.NamedTemporaryFile(suffix=".json") as stats:
        text.write(" ".join(drop_in.prompt(i, 20) for i in range(600))[:56000])
        text.flush()
        done = harness.burthen("run", harness.SMOLLM2, "-f", text.name, "-c", 16384, "-n", 4, "--rope-scaling", "yarn", "--rope-scale",
                               2, "--ram-budget", "700M", "--stats", stats.name, "-q", timeout=1800)
        if not checks.check(done.returncode == 0, f"{done.stderr[-300:]}"):
            return
        measured = json.load(open(stats.name, encoding="utf-8"))["measured"]
    for line in measured["lines"]:
        over = line["committed_bytes"] - line["planned_bytes"]
        checks.check(over <= 0 or line["name"] == "host/pinned", f"{line['name']}: {over} over its plan")
    print(f"{measured['prompt_tokens']} tokens: residual {measured['residual_bytes'] / MIB:.2f} MiB")
    checks.check(measured["prompt_tokens"] > 9000, f"only {measured['prompt_tokens']} tokens")


check_formula()
check_cells()
check_server()
if FULL:
    check_full()
checks.end()
