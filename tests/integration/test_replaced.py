# SPDX-License-Identifier: MIT
"""Weights that are repacked in place of their plain layout (docs/decisions/019): results are llama.cpp's with its
repacking, to the digit, at any micro-batch; no byte more is taken; and the plan says what was done.

The models are SmolLM2 in the types that gain by it; its K and V are small weights, under 64 KiB."""

import json
import pathlib
import re
import subprocess
import tempfile

import harness
import prose

MODEL = harness.SMOLLM2
harness.require(MODEL, harness.LLAMA_BIN / "llama-quantize", harness.GEMMA3)
checks = harness.Checks()
if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
    harness.skip("this processor has no AVX2: nothing is repacked")

scratch = tempfile.TemporaryDirectory(prefix="burthen-replaced-")
folder = pathlib.Path(scratch.name)
text = folder / "text"
text.write_text(prose.words(2400))
N_WEIGHTS = 30 * 7  # matrices of SmolLM2's blocks
ALL = "900M"


def make(name, *args):
    path = folder / f"{name}.gguf"
    subprocess.run([harness.LLAMA_BIN / "llama-quantize", "--allow-requantize", *args[:-1], MODEL, path, args[-1], "2"],
                   capture_output=True, check=True, timeout=900)
    return path


def final(output):
    found = re.search(rb"Final estimate: PPL = ([0-9.]+)", output)
    return found.group(1).decode() if found else output.decode(errors="replace")[-300:]


def theirs(model, n_ubatch, *args):
    result = subprocess.run([harness.LLAMA_BIN / "llama-perplexity", "-m", model, "-f", text, "-c", "128", "-b", "128",
                             "-ub", str(n_ubatch), "-t", "2", "--chunks", "1", "-fit", "off", *args],
                            capture_output=True, env=harness.environment(), timeout=600)
    return final(result.stdout + result.stderr)


def ours(model, n_ubatch, *args, ctx=128, chunks=1):
    result = harness.burthen("perplexity", model, "-f", text, "-c", ctx, "-b", ctx, "-ub", n_ubatch, "-t", 2,
                             "--chunks", chunks, "--ram-budget", ALL, *args, timeout=900)
    checks.check(result.returncode == 0, f"perplexity {model.name} {args}: {result.stderr[-300:]}")
    return final(result.stdout + result.stderr)


def line(stats, name):
    return next(item for item in stats["measured"]["lines"] if item["name"] == name)


def layouts(stats, what="replaced"):
    """Of a run's plan; what was measured must be the same."""
    planned = stats["plan"]["layouts"]
    checks.check(planned == stats["measured"]["layouts"], f"done as planned: {planned}, {stats['measured']['layouts']}")
    return planned[what]


def digits(model):
    repacked = theirs(model, 4)
    checks.check(repacked != theirs(model, 4, "--no-repack"), f"{model.name}: the layouts differ in the last digits")
    for n_ubatch in 4, 64:
        number, peer = ours(model, n_ubatch), theirs(model, n_ubatch)
        checks.check(number == peer, f"{model.name} in batches of {n_ubatch}: {number}, llama.cpp {peer}")
        number, peer = ours(model, n_ubatch, "--repack", "off"), theirs(model, n_ubatch, "--no-repack")
        checks.check(number == peer, f"{model.name} off, in batches of {n_ubatch}: {number}, llama.cpp {peer}")


def quality(model):
    replaced, plain = (float(ours(model, 512, "--repack", how, ctx=512, chunks=5)) for how in ("auto", "off"))
    checks.check(replaced != plain and abs(replaced - plain) <= 0.005 * plain,
                 f"{model.name}: perplexity {replaced} within 0.5 % of {plain}")
    print(model.name, replaced, plain)


def same_text(model):
    """At equal micro-batches greedy text is llama-completion's with its own repacking."""
    command = [str(word) for word in harness.peer_command(model, "-t", 2) if word != "--no-repack"]
    result = subprocess.run(command, capture_output=True, timeout=300, stdin=subprocess.DEVNULL,
                            env=harness.environment())
    mine, _, _ = harness.run(model, ALL, "-t", 2)
    checks.check(harness.same_text(mine, result.stdout), f"{model.name}: text {mine}, llama.cpp {result.stdout}")


def at_no_byte(model):
    """Where all is pinned and nothing is left, the weights are replaced: the memory is that of the plain ones."""
    args = ("-c", 256, "-ub", 64, "-t", 2)
    full = harness.ladder(model, *args)["all-pinned"]
    peaks = {}
    for how in "auto", "off":
        _, stats, result = harness.run(model, full, "-ub", 64, "-t", 2, "--repack", how, n=4, ctx=256)
        plan, n = stats["plan"], layouts(stats)["weights"]
        checks.check(plan["verdict"] == "fits", f"{how}: {plan['verdict']} in {full}")
        checks.check(n == (N_WEIGHTS if how == "auto" else 0), f"{how}: {n} weights replaced")
        checks.check(plan["exact"] is (how == "off"), f"{how}: exact {plan['exact']}")
        checks.check(line(stats, "host/derived")["peak_bytes"] == 0, f"{how}: nothing beside the weights")
        checks.check(stats["measured"]["peak_rss_bytes"] <= plan["pools"][0]["planned_bytes"], f"{how}: within the plan")
        said = f"Repacked in place    {N_WEIGHTS} weights".encode() in result.stderr
        checks.check(said is (how == "auto"), f"{how}: the plan says so: {result.stderr[:900]}")
        peaks[how] = plan["pools"][0]["planned_bytes"]
    checks.check(peaks["auto"] == peaks["off"], f"no byte more: {peaks}")
    _, stats, _ = harness.run(model, "0", "-ub", 64, n=2, ctx=256)
    checks.check(layouts(stats)["weights"] == N_WEIGHTS, "without a budget too")


def beside_streams(model):
    """Only on request, and then what is in memory for good; guesses, which must be exact, are off with it."""
    rungs = harness.ladder(model, "-c", 256, "-ub", 64)
    middle = (rungs["minimum"] + rungs["all-pinned"]) // 2
    _, stats, _ = harness.run(model, middle, "-ub", 64, n=8, ctx=256)
    checks.check(stats["plan"]["verdict"] == "streams", "it streams")
    checks.check(layouts(stats)["weights"] == 0, "streaming: only on request")
    checks.check(stats["plan"]["batch"]["n_draft"] > 0, "and with guesses")
    _, stats, _ = harness.run(model, middle, "-ub", 64, "--repack", "on", n=8, ctx=256)
    small = 30 * 2  # K and V of each block
    n = layouts(stats)["weights"]
    checks.check(small < n < N_WEIGHTS, f"on: those that are pinned: {n}")
    checks.check(stats["plan"]["batch"]["n_draft"] == 0, "and no guesses")
    checks.check(stats["measured"]["peak_rss_bytes"] <= middle, "within the budget")


def by_plan(model):
    """A plan that was written down is carried out as it stands, and locked if that is asked."""
    file = folder / "plan.json"
    result = harness.burthen("plan", model, "--exact", "--json", "-c", 256, "-ub", 64, "--ram-budget", ALL)
    file.write_bytes(result.stdout)
    plain = json.loads(result.stdout)
    texts = []
    for args in ((), ("--mlock",)):
        mine, stats, _ = harness.run(model, ALL, "--plan", file, *args, n=8, ctx=256)
        checks.check(layouts(stats)["weights"] == N_WEIGHTS, f"by plan {args}")
        texts.append(mine)
    checks.check(texts[0] == texts[1], f"locked: {texts}")
    del plain["layouts"]  # of a version that did not replace
    file.write_text(json.dumps(plain))
    _, stats, _ = harness.run(model, ALL, "--plan", file, n=8, ctx=256)
    checks.check(layouts(stats)["weights"] == 0, "a plan of before weights were replaced")


models = [make("q4_0", "Q4_0"), make("iq4_nl", "--pure", "--token-embedding-type", "q8_0", "IQ4_NL"),
          make("mxfp4", "--tensor-type", "attn=mxfp4", "--tensor-type", "ffn=mxfp4", "Q4_0")]
for one in models:
    digits(one)
    quality(one)
same_text(models[0])
same_text(models[2])
at_no_byte(models[0])
beside_streams(models[0])
by_plan(models[0])

# K-quants keep their plain layout, as they did.
_, stats, _ = harness.run(harness.GEMMA3, ALL, "-ub", 64, n=2, ctx=256)
checks.check(layouts(stats)["weights"] == 0 and layouts(stats, "second")["weights"] > 0, "K-quants: a second layout")
second = layouts(stats, "second")["bytes"]
checks.check(second == line(stats, "host/derived")["planned_bytes"], f"on its line: {second}")

checks.end()
