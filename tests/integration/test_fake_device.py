# SPDX-License-Identifier: MIT
"""The fake graphics card of tests/support, in programs that do not know it: llama.cpp's own tools list it and compute on
it, the text is that of the CPU alone, its memory is bounded and given back, and what it is told to fail fails cleanly."""

import os
import pathlib
import re
import subprocess
import tempfile

import harness

CARD = pathlib.Path(os.environ.get("BT_FAKE_DEVICE", harness.SOURCE / "build/release/tests/libggml-fake.so"))
harness.require(harness.SMOLLM2, harness.LLAMA_BIN / "llama-completion", CARD)
if re.search(rb"__(asan|tsan)_init", CARD.read_bytes()):
    harness.skip("the fake device was built with a sanitizer, llama.cpp's tools were not")
checks = harness.Checks()
WEIGHTS, PROMPT = 10, "The capital of France is"


def tool(name, *args, **variables):
    """(exit status, output, log, counts of each device)"""
    with tempfile.NamedTemporaryFile() as report:
        env = harness.environment() | {"GGML_BACKEND_PATH": str(CARD), "FAKE_REPORT": report.name} | variables
        result = subprocess.run([harness.LLAMA_BIN / name, *map(str, args)], capture_output=True, env=env, timeout=300)
        counts = {}
        for line in report.read().decode().splitlines():
            device, *pairs = line.split()
            counts[device] = {key: int(value) for key, value in (pair.split("=") for pair in pairs)}
    return result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace"), counts


def complete(*args, n=24, **variables):
    return tool("llama-completion", "-m", harness.SMOLLM2, "-p", PROMPT, "-n", n, "-c", 256, "--temp", 0, "-no-cnv",
                "-t", 1, "-ub", 64, "-fit", "off", *args, **variables)


_, listed, _, _ = tool("llama-completion", "--list-devices", FAKE_DEVICES="FAKE0=256M,CARD7=64M:igpu")
checks.check("FAKE0: fake card (256 MiB, 256 MiB free)" in listed, f"FAKE0 is not listed: {listed}")
checks.check("CARD7: fake card (64 MiB, 64 MiB free)" in listed, f"CARD7 is not listed: {listed}")
for _ in range(3):  # on a loaded machine the program's output is now and then lost at its end (harness.peer_text)
    _, listed, log, _ = tool("llama-completion", "--list-devices", FAKE_DEVICES="FAKE0=256M:error")
    if "cudaErrorIllegalAddress" in listed + log:
        break
checks.check("(0 MiB, 0 MiB free)" in listed, f"a failed query answered: {listed}")
checks.check("cudaErrorIllegalAddress" in listed + log, f"a failed query was not logged: {listed} {log}")

_, expected, _, _ = complete("--device", "none")
checks.check(len(expected) > len(PROMPT) + 20, f"no text: {expected!r}")
for layers, variables in (
    (WEIGHTS, {}),
    (WEIGHTS, {"FAKE_OFFLOAD": "1"}),
    (WEIGHTS, {"FAKE_ALIGN": "512", "FAKE_PAD": "1000", "FAKE_MAX_BUFFER": "32M"}),
    (99, {}),
):
    status, text, log, counts = complete("-ngl", layers, "--device", "FAKE0", **variables)
    card = counts.get("FAKE0", {})
    checks.check(status == 0 and text == expected, f"-ngl {layers} {variables}: {status}, {text!r}, not {expected!r}\n{log}")
    checks.check(card.get("compute", 0) >= 24, f"-ngl {layers} {variables}: computed {card}")
    checks.check(card.get("peak", 0) > 20 << 20, f"-ngl {layers} {variables}: held {card}")
    checks.check(card.get("live") == 0 and card.get("buffers") == 0 and card.get("backends") == 0,
                 f"-ngl {layers} {variables}: left {card}")
status, text, log, counts = complete("-ngl", 99, "--device", "FAKE0,FAKE1", FAKE_DEVICES="FAKE0=256M,FAKE1=256M")
checks.check(status == 0 and text == expected, f"two cards: {status}, {text!r}, not {expected!r}\n{log}")
checks.check(all(card["compute"] >= 24 for card in counts.values()) and len(counts) == 2, f"two cards: {counts}")

for variables, words in (
    ({"FAKE_DEVICES": "FAKE0=20M"}, "unable to allocate FAKE0 buffer"),
    ({"FAKE_FAIL": "alloc:1"}, "unable to allocate FAKE0 buffer"),
    ({"FAKE_FAIL": "alloc:2"}, "failed to allocate buffer for kv cache"),
    ({"FAKE_FAIL": "init:1"}, "failed to initialize FAKE0 backend"),
    ({"FAKE_DEVICES": "FAKE0=64M", "FAKE_OVERHEAD": "40M"}, "failed to initialize FAKE0 backend"),
    ({"FAKE_FAIL": "compute:2"}, "failed to compute graph"),
):
    status, _, log, counts = complete("-ngl", WEIGHTS, "--device", "FAKE0", n=4, **variables)
    checks.check(words in log, f"{variables}: {status}, {log[-600:]}")
    checks.check(status >= 0 and counts["FAKE0"]["live"] == 0, f"{variables}: {status}, {counts}")
status, _, log, _ = tool("llama-completion", "--list-devices", FAKE_DEVICES="FAKE0=20Q")
checks.check(status == 2 and "20Q" in log, f"a wrong size: {status}, {log}")

status, listed, log, counts = tool("llama-bench", "-m", harness.SMOLLM2, "-p", 8, "-n", 2, "-r", 1, "-t", 1, "-ngl",
                                   WEIGHTS, "-dev", "FAKE0", "-o", "json")
checks.check(status == 0 and '"devices": "FAKE0"' in listed, f"llama-bench: {status}, {listed}\n{log}")
checks.check(counts["FAKE0"]["compute"] >= 3, f"llama-bench: {counts}")
checks.end()
