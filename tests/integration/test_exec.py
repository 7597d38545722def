# SPDX-License-Identifier: MIT
"""burthen exec with llama.cpp's own server and completion, on the fake card: what would not load by itself is started with
fewer layers and answers as on the CPU; what fits is started as it was typed, in this very process; what cannot be is
refused; what is not known is passed on. Decisions: tests/unit/test_guard_*.c, tests/cli/cases/exec-*."""

import os
import pathlib
import subprocess

import harness
import llama_server

CARD = pathlib.Path(os.environ.get("BT_FAKE_DEVICE", harness.SOURCE / "build/release/tests/libggml-fake.so"))
SERVER, COMPLETION = llama_server.PROGRAM, harness.LLAMA_BIN / "llama-completion"
harness.require(harness.SMOLLM2, SERVER, COMPLETION, CARD)
if b"__asan_init" in CARD.read_bytes():
    harness.skip("the fake device was built with a sanitizer, llama.cpp's tools were not")
checks = harness.Checks()
PROMPT = "The capital of France is"


def environment(memory):
    return harness.environment() | {"GGML_BACKEND_PATH": str(CARD), "FAKE_DEVICES": f"FAKE0={memory}"}


def serve(memory, *guard):
    return llama_server.Server("-m", harness.SMOLLM2, "-ngl", 99, "-c", 2048, "-np", 1, "-t", 1, "-dev", "FAKE0", prefix=guard,
                               env=environment(memory))


def try_server():
    with serve("90M") as alone:
        checks.check(not alone.works and alone.stop()[0] != 0, "a card of 90 MiB holds all of it: this test shows nothing")
    guard = (harness.BIN, "exec", "--degrade", "--no-wait", "--device", "FAKE0=90M", "--")
    with serve("90M", *guard) as server:
        if server.check_works(checks, "with fewer layers"):
            checks.check(server.program() == SERVER.resolve(), f"the command is another process: {server.program()}")
            text = server.complete(PROMPT, ignore_eos=False)["content"]
            expected = harness.peer_text(harness.SMOLLM2, "-t", 1, "-ngl", 0, n=16, ctx=2048, prompt=PROMPT)
            checks.check(harness.same_text(text.encode(), expected), f"{text!r}, not {expected!r}")
        output = server.stop()[1]
    checks.check("burthen: offloaded: --n-gpu-layers 99 -> " in output, f"not said: {output[:600]}")


def execute(*args, memory="400M"):
    return subprocess.run([str(word) for word in (harness.BIN, "exec", *args)], capture_output=True, timeout=300,
                          stdin=subprocess.DEVNULL, env=environment(memory))


def complete(layers):
    return (COMPLETION, "-m", harness.SMOLLM2, "-ngl", layers, "-c", 512, "-np", 1, "-n", 8, "-p", PROMPT, "-no-cnv",
            "--no-display-prompt", "--temp", 0, "-t", 1, "-dev", "FAKE0", "-fit", "off")


def try_ends():
    kept = execute("--device", "FAKE0=400M", "--", *complete(99))
    checks.check(kept.returncode == 0 and kept.stdout.strip() and b"burthen: unchanged" in kept.stderr,
                 f"kept: {kept.returncode}: {kept.stderr.decode(errors='replace')[-400:]}")
    refused = execute("--no-wait", "--device", "FAKE0=20M", "--", *complete(99), memory="20M")
    checks.check(refused.returncode == 3 and not refused.stdout and b"insufficient VRAM" in refused.stderr,
                 f"refused: {refused.returncode}: {refused.stderr.decode(errors='replace')}")
    passed = execute("--", *complete("auto"))
    checks.check(passed.returncode == 0 and b"burthen: passed" in passed.stderr, f"passed: {passed.stderr[-300:]}")
    status = execute("--", "sh", "-c", "exit 7")
    checks.check(status.returncode == 7, f"the command's own status: {status.returncode}")
    checks.check(execute("--", "/").returncode == 126, "a folder was started")
    checks.check(execute("--", "no-such-program-at-all").returncode == 127, "a missing program was started")


def try_argv():
    """Every argument comes through as it was typed, whatever it is."""
    odd = ["", "a b", "--", "-", "\\", "'\"", "ä", "--ctx_size", "-ngl", "x\ty"]
    result = execute("--", "printf", "%s|", *odd)
    checks.check(result.stdout.decode() == "".join(word + "|" for word in odd), f"{result.stdout}")
    dry = execute("--dry-run", "--", *complete(99))
    checks.check(dry.stdout.decode().splitlines() == [str(word) for word in complete(99)], f"{dry.stdout}")


try_server()
try_ends()
try_argv()
checks.end()
