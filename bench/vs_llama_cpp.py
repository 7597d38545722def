#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model larger than its memory cgroup: burthen run against llama-completion, both in a cgroup of the same size.

The peer is llama.cpp's best setting there: mmap, without repacking (with it, it is killed). Runs are interleaved in
pairs, the model's page cache is dropped before each, and the medians of the decode speeds and of the ratios of the pairs
are printed, with their spread. burthen's budget is the limit less 16 MiB, as docs/design.md C1 says.

usage: vs_llama_cpp.py [--pairs N] [--tokens N] [--limits M,M,M] [--model FILE]
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "tests/support"))
import cgroup_box  # noqa: E402
import harness  # noqa: E402

PROMPT = "Once upon a time there was"
CTX = 512


def ours(model, limit, n):
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        budget = limit - 16 * harness.MIB
        result = cgroup_box.run([SOURCE / "build/release/burthen", "run", model, "-p", PROMPT, "-n", n, "-c", CTX,
                                 "--ignore-eos", "--greedy", "-q", "--ram-budget", budget, "--stats", stats.name],
                                limit_bytes=limit, allow_swap=False, env=harness.environment(), timeout_s=600)
        if result.status != 0:
            raise SystemExit(f"burthen failed: {result.stderr.decode(errors='replace')[-800:]}")
        measured = json.loads(pathlib.Path(stats.name).read_text())["measured"]
        return measured["decode_tokens_per_s"], result


def theirs(model, limit, n):
    result = cgroup_box.run([harness.LLAMA_BIN / "llama-completion", "-m", model, "-p", PROMPT, "-n", n, "-c", CTX,
                             "-no-cnv", "--no-display-prompt", "--no-repack", "--ignore-eos", "--temp", "0", "-fit",
                             "off"], limit_bytes=limit, allow_swap=False, env=harness.environment(), timeout_s=600)
    found = re.search(rb" eval time =.*?([0-9.]+) tokens per second", result.stderr.replace(b"prompt eval time", b""))
    if result.status != 0 or not found:
        return 0.0, result
    return float(found.group(1)), result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--limits", default="320,480,640")
    parser.add_argument("--model", type=pathlib.Path, default=harness.MODELS / "random-1.1b-q4_k_m.gguf")
    options = parser.parse_args()
    if not options.model.exists():
        subprocess.run([sys.executable, SOURCE / "tests/support/make_models.py", "random-1.1b"], check=True)
    cgroup_box.require()
    size = options.model.stat().st_size / harness.MIB
    print(f"{options.model.name}, {size:.0f} MiB; {options.pairs} pairs of {options.tokens} tokens, cold file each time")
    print(f"{'limit':>8} {'llama.cpp tok/s':>22} {'burthen tok/s':>22} {'ratio (median)':>16} {'ratios':>16} {'VmHWM':>8}")
    for limit in (int(word) * harness.MIB for word in options.limits.split(",")):
        pairs, peak = [], 0
        for _ in range(options.pairs):
            cgroup_box.drop_cache(options.model)
            peer, _ = theirs(options.model, limit, options.tokens)
            cgroup_box.drop_cache(options.model)
            own, result = ours(options.model, limit, options.tokens)
            peak = max(peak, result.vm_hwm_bytes or 0)
            pairs.append((peer, own))
        peers, owns = zip(*pairs)
        ratios = [own / peer if peer else float("inf") for peer, own in pairs]
        print(f"{limit // harness.MIB:>4} MiB {statistics.median(peers):>8.2f} ({min(peers):.2f}-{max(peers):.2f})".ljust(32)
              + f"{statistics.median(owns):>10.2f} ({min(owns):.2f}-{max(owns):.2f})".ljust(24)
              + f"{statistics.median(ratios):>10.2f}x      {min(ratios):>6.2f}-{max(ratios):.2f} {peak / harness.MIB:>8.0f}",
              flush=True)


if __name__ == "__main__":
    main()
