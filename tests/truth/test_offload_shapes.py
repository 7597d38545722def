# SPDX-License-Identifier: MIT
"""Blocks on a device, for shapes of tests/support/shapes.py: caches of the host and of the device together are those of
the whole model, to the byte, by formula and by a dry run; the graph by formula is no less than the dry run's and at most
half above it. A real card is not needed: the fake one says that it has room. BT_TRUTH_FULL=1 takes every shape."""

import json
import os
import pathlib
import subprocess
import tempfile

import harness
import shapes

CARD = pathlib.Path(os.environ.get("BT_FAKE_DEVICE", harness.SOURCE / "build/release/tests/libggml-fake.so"))
harness.require(CARD)
checks = harness.Checks()
# Attention, windows, experts, latent rows, states alone, states beside attention, delta nets.
CHOSEN = ("gemma3", "gpt-oss", "deepseek2-expanded", "mamba", "jamba", "qwen35moe", "rwkv7")
# Its scan leaves more behind with the head on the same device than the form for the host says; the dry run finds it.
UNDER = {"mamba2": 0.9}


def plan(path, *args):
    env = harness.environment() | {"GGML_BACKEND_PATH": str(CARD), "FAKE_DEVICES": "FAKE0=4096G"}
    result = subprocess.run([harness.BIN, "plan", path, "--json", "-t", "1", "--ram-budget", "0", "-c", "2048", "-ub",
                             "256", *args], capture_output=True, env=env, timeout=300)
    if not checks.check(result.returncode == 0, f"{path.name} {args}: {result.stderr.decode(errors='replace')[-300:]}"):
        return None
    return json.loads(result.stdout)


def host_kv(document):
    return next(line["planned_bytes"] for line in document["pools"][0]["lines"] if line["name"] == "host/kv")


def try_shape(name, path):
    whole = plan(path, "--exact", "--device", "none")
    if not whole:
        return
    if whole["model"]["encoder"]:
        checks.check(plan(path, "-ngl", "all")["offload"] is None, f"{name}: an encoder on a device")
        return
    for layers in (max(1, whole["model"]["blocks"] // 2), "all"):
        exact, formula = (plan(path, "-ngl", str(layers), *args) for args in (("--exact",), ()))
        if not exact or not formula:
            continue
        there, by_formula = exact["offload"]["devices"][0], formula["offload"]["devices"][0]
        checks.check(there["kv_bytes"] + host_kv(exact) == host_kv(whole),
                     f"{name} {layers}: {there['kv_bytes']} and {host_kv(exact)}, not {host_kv(whole)}")
        checks.check(by_formula["kv_bytes"] == there["kv_bytes"] and host_kv(formula) == host_kv(exact),
                     f"{name} {layers}: by formula {by_formula['kv_bytes']} and {host_kv(formula)}")
        checks.check(by_formula["weights_bytes"] == there["weights_bytes"], f"{name} {layers}: weights")
        ratio = by_formula["compute_bytes"] / there["compute_bytes"]
        checks.check(UNDER.get(name, 1) <= ratio <= 1.5, f"{name} {layers}: graph by formula {ratio:.3f} of the dry run's")


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    for name in shapes.SHAPES if os.environ.get("BT_TRUTH_FULL") else CHOSEN:
        path = pathlib.Path(shapes.write(folder, name))
        try_shape(name, path)
        path.unlink()
checks.end()
