# SPDX-License-Identifier: MIT
"""The token loop asks the heap for nothing of its own, and the process's heap does not grow with the tokens.

libllama itself allocates small transients with each token and frees them. How many is counted by a preloaded library, as
the difference of a short and a long run, and printed: docs/decisions/007-companions.md records it."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()
N_TOKENS = 200
GROWTH_MAX_BYTES = 64 << 10
FEW_TOKENS, MORE_TOKENS = 10, 50
COUNTER = harness.SOURCE / "tests/support/preload/malloc_count.c"


def loop_of(model, *args, n=N_TOKENS):
    _, stats, _ = harness.run(model, "512M", "--ignore-eos", *args, n=n, ctx=512, prompt="Once upon a time")
    measured = stats["measured"]
    checks.check(measured["generated_tokens"] == n, f"{model.name}: {measured['generated_tokens']} tokens")
    return measured["loop_heap_allocations"], measured["loop_heap_growth_bytes"]


def check_loop(model, *args, n=N_TOKENS):
    allocations, growth = loop_of(model, *args, n=n)
    what = f"{model.name} {' '.join(map(str, args))}"
    checks.check(allocations == 0, f"{what}: {allocations} allocations of ours in the token loop")
    checks.check(growth is not None and growth < GROWTH_MAX_BYTES, f"{what}: the heap grew by {growth} bytes")
    print(f"{what:60} {allocations} allocations of ours, the heap grew by {growth} bytes", flush=True)


def counts(library, model, n, folder):
    """Allocations, frees, and bytes left, of a whole run."""
    file = folder / f"count-{n}"
    environment = harness.environment() | {"LD_PRELOAD": str(library), "MALLOC_COUNT": str(file)}
    command = [harness.BIN, "run", model, "-p", "Once upon a time", "-n", n, "--ignore-eos", "--greedy", "-c", 512,
               "--ram-budget", "512M", "-q"]
    process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, text = process.communicate(timeout=300)
    if process.returncode != 0:
        raise AssertionError(text.decode(errors="replace"))
    lines = [line.split() for line in file.read_text().splitlines()]
    return next([int(word) for word in line[1:]] for line in lines if int(line[0]) == process.pid)


def check_counts(folder):
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    library = folder / "malloc_count.so"
    if not compiler or subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, COUNTER]).returncode != 0:
        print("not counted: no compiler for the library to preload")
        return
    for model in (harness.SMOLLM2, harness.GEMMA3):
        short, long = counts(library, model, FEW_TOKENS, folder), counts(library, model, MORE_TOKENS, folder)
        each = [(b - a) / (MORE_TOKENS - FEW_TOKENS) for a, b in zip(short, long)]
        print(f"{model.name:36} a token: {each[0]:.1f} allocations, {each[1]:.1f} frees, {each[2]:.1f} bytes left", flush=True)
        checks.check(each[0] < 1000 and abs(each[0] - each[1]) < 1, f"{model.name}: {each} a token")


for model in (harness.SMOLLM2, harness.GEMMA3):
    check_loop(model)
checks.check(loop_of(harness.SMOLLM2, n=2) == (None, None), "two tokens are no loop")
check_loop(harness.SMOLLM2, "--ram-budget", "96M", n=24)  # weights stream
check_loop(harness.SMOLLM2, "--temp", "0.8", "--seed", "1", n=24)
with tempfile.TemporaryDirectory() as scratch:
    check_counts(pathlib.Path(scratch))
checks.end()
