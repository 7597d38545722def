# SPDX-License-Identifier: MIT
"""A model split into files is the model: whichever part is named, streamed or pinned, the text is that of the single
file; its sizes add up; a part that is missing is named."""

import json
import pathlib
import subprocess
import tempfile

import harness

SPLIT = harness.LLAMA_BIN / "llama-gguf-split"
N_TOKENS = 32
# Nearly everything streams; nearly everything is pinned.
BUDGETS = ("80M", "200M")

harness.require(harness.SMOLLM2, SPLIT)
checks = harness.Checks()


def split(folder):
    """The model in parts of at most 100 tensors; their paths in order."""
    command = [SPLIT, "--split", "--split-max-tensors", "100", harness.SMOLLM2, pathlib.Path(folder) / "part"]
    result = subprocess.run([str(word) for word in command], capture_output=True, timeout=120,
                            env=harness.environment())
    if result.returncode != 0:
        raise AssertionError(f"llama-gguf-split failed: {result.stderr.decode(errors='replace')[-500:]}")
    return sorted(pathlib.Path(folder).glob("part-*.gguf"))


def inspect(model):
    result = harness.burthen("inspect", model, "--json")
    if result.returncode != 0:
        raise AssertionError(f"inspect failed ({result.returncode}): {result.stderr.decode(errors='replace')}")
    return json.loads(result.stdout)


with tempfile.TemporaryDirectory(dir=harness.MODELS) as folder:
    parts = split(folder)
    checks.check(len(parts) == 3, f"{len(parts)} parts of 272 tensors, 100 each")

    whole = inspect(harness.SMOLLM2)
    sizes = [part.stat().st_size for part in parts]
    for part in parts:
        facts = inspect(part)
        checks.check(facts["file_bytes"] == sum(sizes), f"{part.name}: {facts['file_bytes']} of {sum(sizes)} bytes")
        for key in ("weight_bytes", "small_bytes", "n_tensors"):
            if key in whole:
                checks.check(facts[key] == whole[key], f"{part.name}: {key} {facts[key]}, alone {whole[key]}")

    for budget in BUDGETS:
        alone, stats, _ = harness.run(harness.SMOLLM2, budget, n=N_TOKENS)
        checks.check(len(alone) > N_TOKENS, f"{budget}: too short a text to compare: {alone!r}")
        for part in parts:
            text, split_stats, _ = harness.run(part, budget, n=N_TOKENS)
            checks.check(text == alone, f"{budget}, {part.name}: {text!r} instead of {alone!r}")

    for i, part in enumerate(parts):
        away = part.with_suffix(".away")
        part.rename(away)
        given = parts[(i + 1) % len(parts)]
        for command in (("inspect", given), ("run", given, "-p", "a", "-n", "1", "--ram-budget", "200M")):
            result = harness.burthen(*command)
            stderr = result.stderr.decode(errors="replace")
            checks.check(result.returncode == 4, f"{command[0]} without {part.name}: exit {result.returncode}: {stderr}")
            checks.check(part.name in stderr, f"{command[0]} without {part.name}: not named: {stderr}")
        away.rename(part)

checks.end()
