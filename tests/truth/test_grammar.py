# SPDX-License-Identifier: MIT
"""A grammar costs no memory that grows with the vocabulary: with one, the least budget is kept (VmHWM, from outside), and
the text is llama-completion's with the same grammar. llama.cpp's own sampler would take some 400 bytes for each token."""

import tempfile

import cgroup_box
import harness

harness.require(harness.SMOLLM2, harness.GEMMA3, harness.LLAMA_BIN / "llama-completion")
checks = harness.Checks()
RULES = "root ::= sentence+\nsentence ::= [a-z ,]+ \".\"\n"
N_TOKENS, CTX, PROMPT = 16, 512, "The sea"


def try_model(model, rules):
    budget = harness.ladder(model, "-c", CTX, "-t", 1)["minimum"]
    with cgroup_box.Box() as box:
        result = box.run([harness.BIN, "run", model, "--ram-budget", budget, "-c", CTX, "-t", 1, "-n", N_TOKENS,
                          "--greedy", "-p", PROMPT, "--grammar", rules, "-q"], env=harness.environment())
    expected = harness.peer_text(model, "-t", 1, "--grammar-file", rules, n=N_TOKENS, ctx=CTX, prompt=PROMPT)
    checks.check(result.status == 0, f"{model.name}: exit {result.status}: {result.stderr[-600:]}")
    checks.check(harness.same_text(result.stdout, expected), f"{model.name}: {result.stdout!r}, not {expected!r}")
    checks.check(result.vm_hwm_bytes <= budget, f"{model.name}: {result.vm_hwm_bytes} of {budget} bytes")
    print(f"{model.name}: VmHWM {result.vm_hwm_bytes / harness.MIB:.1f} of {budget / harness.MIB:.1f} MiB", flush=True)


cgroup_box.require()
with tempfile.NamedTemporaryFile(suffix=".gbnf") as file:
    file.write(RULES.encode())
    file.flush()
    for model in (harness.SMOLLM2, harness.GEMMA3):
        try_model(model, file.name)
checks.end()
