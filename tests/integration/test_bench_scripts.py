# SPDX-License-Identifier: MIT
"""The scripts of bench/: each says what it does; medians and ratios are of the rounds that ran; runners that are not ours
are found, started in the limit and read (two that are made up here print what the real ones print)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import cgroup_box
import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
BENCH = harness.SOURCE / "bench"
sys.path.insert(0, str(BENCH))
from support import kit  # noqa: E402

OLLAMA = """#!/bin/sh
case $1 in
serve) exec sleep 60 ;;
create) mkdir -p "$OLLAMA_MODELS/blobs" && cp "$(sed -n 's/^FROM //p' "$4")" "$OLLAMA_MODELS/blobs/sha256-1" ;;
run) printf 'total duration: 1s\\nprompt eval rate:     12.50 tokens/s\\neval rate:            3.25 tokens/s\\n' >&2 ;;
esac
"""
LLAMA_CPP = """
import sys
class Llama:
    def __init__(self, model_path, n_ctx, **_):
        assert n_ctx == 256
    def token_eos(self):
        return 2
    def __call__(self, prompt, max_tokens, **_):
        assert max_tokens == 4 and len(prompt.split()) == 6
        print("prompt eval time = 100.00 ms / 9 tokens ( 11.11 ms per token, 90.00 tokens per second)", file=sys.stderr)
        print("       eval time = 400.00 ms / 4 runs   (100.00 ms per token, 10.00 tokens per second)", file=sys.stderr)
"""


def script(name, *args, env=None):
    return subprocess.run([sys.executable, BENCH / name, *map(str, args)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **(env or {})})


# what is common to all
for path in sorted(BENCH.glob("*.py")):
    result = script(path.name, "-h")
    checks.check(result.returncode == 0 and "--rounds" in result.stdout and "--json" in result.stdout, f"{path.name} -h")
    checks.check(f"bench/{path.name}" in (harness.SOURCE / "docs/measurements.md").read_text(), f"{path.name} is in no table")
checks.check(kit.spread([3, None, 1, 8]) == {"median": 3, "min": 1, "max": 8, "n": 3}, "spread")
checks.check(kit.spread([None]) is None and kit.cell(None) == "-", "nothing is known")
checks.check(kit.ratios([6, None, 3], [2, 5, None]) == {"median": 3, "min": 3, "max": 3, "n": 1}, "pairs of a round")
checks.check(kit.cell(kit.spread([1, 2, 6])) == "2.00 (1.00-6.00)" and kit.cell(kit.spread([4]), 0) == "4", "cells")

# runners, two of them made up
cgroup_box.require()
with tempfile.TemporaryDirectory() as folder:
    fake = pathlib.Path(folder, "ollama")
    fake.write_text(OLLAMA)
    fake.chmod(0o755)
    pathlib.Path(folder, "llama_cpp.py").write_text(LLAMA_CPP)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    plot = pathlib.Path(folder, "plot.svg")
    common = ["--model", harness.SMOLLM2, "--rounds", 2, "--tokens", 4, "--words", 6, "-c", 256, "-t", 1]
    result = script("runners.py", *common, "--limits", "112,144", "--json", "--plot", plot, "--only",
                    "burthen,llama_cpp,ollama", env=env)
    checks.check(result.returncode == 0, result.stderr[-500:])
    found = json.loads(result.stdout)
    checks.check(found["absent"] == [] and found["facts"]["rounds"] == 2 and found["facts"]["kernel"], f"{found['facts']}")
    for at in found["limits"]:
        ours, binding, ollama = at["rows"]
        checks.check(ours["decode_tokens_per_s"]["n"] == 2 and not ours["failed"], f"{ours}")
        checks.check(0 < ours["peak_bytes"] <= at["limit_bytes"] - kit.CGROUP_EXTRA, f"{ours['peak_bytes']}")
        checks.check([binding[f"{part}_tokens_per_s"]["median"] for part in ("decode", "prefill")] == [10, 90], f"{binding}")
        checks.check([ollama[f"{part}_tokens_per_s"]["median"] for part in ("decode", "prefill")] == [3.25, 12.5], f"{ollama}")
        speed = ours["decode_tokens_per_s"]
        checks.check(abs(binding["decode_ratio"]["median"] - speed["median"] / 10) < 1e-9, f"{binding['decode_ratio']}")
    root = xml.etree.ElementTree.parse(plot).getroot()
    checks.check(len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 3, "a line for each")

    # too little for a peer is a row that says so; what is not there is named
    result = script("runners.py", *common, "--limits", "8", "--rounds", "1", "--only", "llama.cpp-mmap,ollama")
    checks.check("absent: ollama" in result.stdout and result.returncode == 0, result.stdout + result.stderr)
    checks.check("killed (1 of 1)" in result.stdout, result.stdout)

checks.end()
