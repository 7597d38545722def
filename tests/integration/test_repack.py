# SPDX-License-Identifier: MIT
"""A second layout of pinned weights (docs/decisions/016): its results are llama.cpp's in that layout, to the digit, and
its memory is what the plan says.

A batch of 4 tokens goes through the second layout, one of 64 through the first. So perplexity at a micro-batch of 4
must be that of llama-perplexity with its repacking on, at 64 that of --no-repack; and those two differ."""

import pathlib
import re
import subprocess
import tempfile

import harness

MODEL = harness.GEMMA3
harness.require(MODEL)
checks = harness.Checks()
if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
    harness.skip("this processor has no AVX2: nothing is repacked")

folder = pathlib.Path(tempfile.mkdtemp(prefix="burthen-repack-"))
text = folder / "text"
text.write_bytes((harness.SOURCE / "docs/design.md").read_bytes()[:2500])
ALL = "900M"  # holds everything, and the second layout


def final(output):
    found = re.search(rb"Final estimate: PPL = ([0-9.]+)", output)
    return found.group(1).decode() if found else output.decode(errors="replace")[-300:]


def theirs(n_ubatch, *args):
    result = subprocess.run([harness.LLAMA_BIN / "llama-perplexity", "-m", MODEL, "-f", text, "-c", "128", "-b", "128",
                             "-ub", str(n_ubatch), "-t", "2", "--chunks", "1", "-fit", "off", *args],
                            capture_output=True, env=harness.environment(), timeout=600)
    return final(result.stdout + result.stderr)


def ours(n_ubatch, *args, budget=ALL):
    result = harness.burthen("perplexity", MODEL, "-f", text, "-c", 128, "-b", 128, "-ub", n_ubatch, "-t", 2, "--chunks",
                             1, "--ram-budget", budget, *args)
    checks.check(result.returncode == 0, f"perplexity -ub {n_ubatch} {args}: {result.stderr[-300:]}")
    return final(result.stdout + result.stderr)


def stats_of(budget, *args):
    _, stats, _ = harness.run(MODEL, budget, "-ub", 4, *args, n=4, ctx=256, prompt="One")
    return stats


def line(stats, name):
    return next(item for item in stats["measured"]["lines"] if item["name"] == name)


plain, repacked = theirs(4, "--no-repack"), theirs(4)
checks.check(plain != repacked, f"the layouts differ in the last digits: {plain}, {repacked}")

number = ours(4)
checks.check(number == repacked, f"a batch of 4 by the second layout: {number}, llama.cpp {repacked}")
number = ours(4, "--repack", "off")
checks.check(number == plain, f"--repack off: {number}, llama.cpp --no-repack {plain}")
number = ours(64)
checks.check(number == theirs(64, "--no-repack"), f"a batch of 64 stays with the first layout: {number}")

stats = stats_of(ALL)
derived = line(stats, "host/derived")
checks.check(derived["planned_bytes"] > 0, "there is a second layout")
checks.check(derived["planned_bytes"] == derived["committed_bytes"] == derived["peak_bytes"],
             f"all of it is used: {derived}")
checks.check(stats["plan"]["exact"] is False, "and the plan says that results may differ")
checks.check(stats["measured"]["peak_rss_bytes"] <= stats["plan"]["pools"][0]["planned_bytes"], "within the plan")
checks.check(line(stats_of(ALL, "--repack", "off"), "host/derived")["planned_bytes"] == 0, "off: no memory for it")

# Beside weights that stream only on request, and then for those that are pinned.
ladder = harness.ladder(MODEL, "-c", 256, "-ub", 4)
middle = (ladder["minimum"] + 3 * ladder["all-pinned"]) // 4
stats = stats_of(middle)
checks.check(stats["plan"]["verdict"] == "streams", "it streams")
checks.check(line(stats, "host/derived")["planned_bytes"] == 0, "streaming: only on request")
stats = stats_of(middle, "--repack", "on")
checks.check(line(stats, "host/derived")["peak_bytes"] <= line(stats, "host/derived")["planned_bytes"], "kept")
checks.check(stats["measured"]["peak_rss_bytes"] <= middle, "within the budget")

checks.end()
