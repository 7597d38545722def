# SPDX-License-Identifier: MIT
"""Prices by formula, held to the dry run and to llama.cpp, for every shape of tests/support/shapes.py.

For each architecture, `plan` against `plan --exact`: KV and recurrent state equal to the byte, logits equal, compute from
1.0 to 1.1 times the dry run's (512 tokens at 4096 of context), to 1.25 times (other micro-batches, contexts, types, and
attention without flash) or to 1.3 times (several sequences). The second oracle is llama-fit-params, which prints in whole MiB what
llama.cpp's own measuring finds: weights and cache must be that. BT_TRUTH_FULL=1 takes every combination; otherwise the
main point of each shape and a fixed choice of the others is taken."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import tempfile

import harness
import shapes

harness.require()
checks = harness.Checks()
FULL = bool(os.environ.get("BT_TRUTH_FULL"))
FIT = harness.LLAMA_BIN / "llama-fit-params"

MAIN = ("-c", "4096", "--ubatch-size", "512")
# name: (options, highest ratio of compute)
OTHERS = {
    "short": (("-c", "512", "--ubatch-size", "512"), 1.25),
    "long": (("-c", "32768", "--ubatch-size", "512"), 1.25),
    "small micro-batch": (("-c", "4096", "--ubatch-size", "64"), 1.25),
    "q8_0": (("-c", "4096", "--ubatch-size", "512", "-ctk", "q8_0", "-ctv", "q8_0"), 1.25),
    "four sequences": (("-c", "16384", "--ubatch-size", "512", "-np", "4"), 1.3),
    "no flash": (("-c", "4096", "--ubatch-size", "512", "-fa", "off"), 1.25),
    "no flash, long": (("-c", "32768", "--ubatch-size", "512", "-fa", "off"), 1.25),
    # absorbed latent attention finds room for short scores in its own holes, which no affine form says
    "no flash, short": (("-c", "512", "--ubatch-size", "512", "-fa", "off"), 1.45),
}
# What is taken without BT_TRUTH_FULL: each family's odd one out at the point where it is odd.
CHOSEN = {
    "short": ("llama", "qwen3moe", "mamba"),
    "long": ("gemma3", "gpt-oss", "qwen35", "deepseek32"),
    "small micro-batch": ("llama", "falcon-h1", "nemotron_h", "rwkv7", "qwen3next"),
    "q8_0": ("llama", "gemma2", "gemma4", "mistral4", "granitehybrid"),
    "four sequences": ("gemma3", "qwen35moe", "rwkv6", "mamba2", "lfm2"),
    "no flash": ("llama", "gemma3n", "gemma4", "qwen2moe", "deepseek2", "minicpm3", "jamba", "nomic-bert"),
    "no flash, long": ("cohere2",),
    "no flash, short": ("command-r",),
}
# Weights and cache of these are compared with llama-fit-params, each a family of its own.
FIT_SHAPES = ("llama", "qwen3moe", "gemma3", "gpt-oss", "glm4moe", "deepseek2", "deepseek2-expanded", "deepseek32", "mamba", "mamba2",
              "falcon-h1", "granitehybrid", "jamba", "lfm2", "kimi-linear", "qwen3next", "qwen35", "rwkv7", "bert")


def plan(path, *options):
    """The plan of a shape, without a budget; an AssertionError with the message when there is none."""
    result = harness.burthen("plan", path, "--json", "-t", 2, "--ram-budget", 0, *options)
    if result.returncode != 0:
        raise AssertionError(result.stderr.decode(errors="replace")[-300:])
    return json.loads(result.stdout)


def lines(document):
    return {line["name"].split("/")[1]: line["planned_bytes"] for line in document["pools"][0]["lines"]}


def allowed(name, options):
    """Contexts of the encoders end at 8192 tokens."""
    trained = shapes.SHAPES[name][2].get("ctx_train", shapes.CTX_TRAIN)
    return int(options[1]) <= trained


def compare(path, name, what, options, highest):
    """What was checked, as (ok, message), and the ratio of the compute lines."""
    try:
        formula, exact = plan(path, *options), plan(path, "--exact", *options)
    except AssertionError as error:
        return [(False, f"{name}, {what}: {error}")], 0.0
    ours, theirs = lines(formula), lines(exact)
    ratio = ours["compute"] / theirs["compute"]
    return [
        (formula["verdict"] == "fits" and formula["priced_by"] == "formula", f"{name}: not priced by formula"),
        (exact["priced_by"] == "dry-run", f"{name}: no dry run"),
        (ours["kv"] == theirs["kv"], f"{name}, {what}: KV {ours['kv']} is not {theirs['kv']}"),
        (theirs["metadata"] <= ours["metadata"] + harness.MIB, f"{name}, {what}: metadata {ours['metadata']} of "
                                                               f"{theirs['metadata']}"),
        (ours["logits"] == theirs["logits"], f"{name}, {what}: logits {ours['logits']} are not {theirs['logits']}"),
        (1.0 <= ratio <= highest, f"{name}, {what}: compute {ours['compute'] / harness.MIB:.2f} MiB is {ratio:.3f} of "
                                  f"{theirs['compute'] / harness.MIB:.2f} MiB, not from 1.0 to {highest}"),
    ], ratio


def fit(path, name):
    """llama-fit-params against weights and cache, in whole MiB."""
    command = [FIT, "-m", path, "-c", "4096", "-np", "1", "-fitp", "on", "-nr"]
    result = subprocess.run(command, capture_output=True, timeout=120, env=harness.environment(), check=False)
    words = result.stdout.decode(errors="replace").split("\n")
    host = next((line.split() for line in words if line.startswith("Host ")), None)
    if result.returncode != 0 or not host:
        return [(False, f"{name}: llama-fit-params failed: {result.stderr.decode(errors='replace')[-300:]}")]
    document = plan(path, *MAIN)
    weights, cache = document["model"]["weight_bytes"] // harness.MIB, lines(document)["kv"] // harness.MIB
    return [(abs(weights - int(host[1])) <= 1, f"{name}: weights {weights} MiB, llama.cpp has {host[1]}"),
            (cache == int(host[2]), f"{name}: cache {cache} MiB, llama.cpp has {host[2]}")]


def work(directory):
    """All that is to be done, as (function, arguments)."""
    paths = {name: shapes.write(directory, name) for name in shapes.SHAPES}
    jobs = [(compare, (paths[name], name, "main", MAIN, 1.1)) for name in paths]
    for what, (options, highest) in OTHERS.items():
        jobs += [(compare, (paths[name], name, what, options, highest)) for name in paths
                 if (FULL or name in CHOSEN[what]) and allowed(name, options)]
    if FIT.exists():
        jobs += [(fit, (paths[name], name)) for name in FIT_SHAPES]
    else:
        print("llama-fit-params is not built: its figures are not compared")
    return jobs


with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
    todo = work(pathlib.Path(folder))
    ratios = {}
    for (function, arguments), found in zip(todo, pool.map(lambda job: job[0](*job[1]), todo)):
        if isinstance(found, tuple):
            found, value = found
            ratios.setdefault(arguments[2], []).append((value, arguments[1]))
        for good, message in found:
            checks.check(good, message)
    for case, values in ratios.items():
        low, high = min(values), max(values)
        print(f"{case:18} {len(values):3} shapes, compute {low[0]:.3f} ({low[1]}) to {high[0]:.3f} ({high[1]})")
checks.end()
