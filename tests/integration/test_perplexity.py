# SPDX-License-Identifier: MIT
"""Perplexity under a budget equals llama-perplexity's printed digits, at the minimum and half way to all pinned."""

import re
import subprocess
import tempfile

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3, harness.LLAMA_BIN / "llama-perplexity")
checks = harness.Checks()

# Text that is in the tree: the design, without its tables' rules.
text = (harness.SOURCE / "docs/design.md").read_text()[:16000].encode()


def estimate(output):
    found = re.search(rb"Final estimate: PPL = ([0-9.]+) \+/- ([0-9.]+)", output)
    if not found:
        raise AssertionError(f"no estimate in {output[-500:]!r}")
    return found.groups()


# 300: what llama.cpp makes a context of 512 of; the chunks are those that were asked for
for model, CTX in ((harness.SMOLLM2, 512), (harness.GEMMA3, 512), (harness.SMOLLM2, 300)):
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(text)
        file.flush()
        peer = subprocess.run([str(harness.LLAMA_BIN / "llama-perplexity"), "-m", str(model), "-f", file.name, "-c", str(CTX),
                               "-b", str(CTX), "-ub", str(CTX), "--no-repack", "-fit", "off", "--chunks", "3"],
                              capture_output=True, timeout=600, env=harness.environment())
        theirs = estimate(peer.stdout + peer.stderr)
        common = ("perplexity", model, "-f", file.name, "-c", CTX, "-ub", CTX, "--chunks", 3)
        refused = harness.burthen(*common, "--json", "--ram-budget", "1M", "-q")
        checks.check(refused.returncode == 3, f"{model.name}: 1M is not refused but {refused.returncode}")
        rungs = {rung["what"]: rung["budget_bytes"] for rung in harness.json.loads(refused.stdout)["ladder"]}
        low, high = rungs["minimum"], rungs["all-pinned"]
        for budget in (low, low + (high - low) // 2):
            ours = harness.burthen(*common, "--ram-budget", budget, timeout=600)
            if checks.check(ours.returncode == 0, f"{model.name} at {budget}: {ours.stderr.decode(errors='replace')}"):
                found = estimate(ours.stdout)
                print(f"{model.name:36} {budget / harness.MIB:7.1f} MiB ours {found} theirs {theirs}", flush=True)
                checks.check(found == theirs, f"{model.name} at {budget}: {found} is not {theirs}")
            kept = harness.json.loads(harness.burthen("report", model, "--json").stdout)["last_run"]["measured"]
            peak = kept["peak_rss_bytes"]
            checks.check(peak <= budget, f"{model.name}: a peak of {peak} in a budget of {budget}")
            for line in kept["lines"]:  # rows of logits once hid the heap from the dry run
                over = line["peak_bytes"] - line["planned_bytes"]
                checks.check(over <= 0, f"{model.name} at {budget}: {line['name']} is {over} over its plan")
none = harness.burthen("perplexity", harness.SMOLLM2, "-f", "-", "-c", 128, "--chunks", 0, stdin=text)
checks.check(none.returncode == 2 and b"--chunks" in none.stderr, f"no chunks: {none.returncode} {none.stderr[-300:]}")
for command in (("run", harness.SMOLLM2, "-p", "hi", "-n", 4), ("perplexity", harness.SMOLLM2, "-f", "-", "--chunks", 1)):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([harness.BIN, *map(str, command), "-c", "128", "-q"], input=text, stdout=full,
                              stderr=subprocess.PIPE, timeout=120, env=harness.environment(), check=False)
    checks.check(done.returncode == 1 and b"No space left" in done.stderr, f"a full disk: {done.returncode} {done.stderr}")
checks.end()
