# SPDX-License-Identifier: MIT
"""burthen exec on a card that another program has just left: it waits for the memory, takes what comes, and does not wait
again for what it has just refused. The card is a library with NVML's calls; what it has free stands in a file."""

import os
import pathlib
import subprocess
import tempfile
import threading
import time

import harness

NVML = pathlib.Path(os.environ.get("BT_FAKE_NVML", ""))
harness.require(harness.SMOLLM2)
if not NVML.is_file():
    harness.skip("the stand-in for NVML was not built")
if b"__asan_init" in NVML.read_bytes():
    harness.skip("the stand-in for NVML was built with a sanitizer, which must be loaded first")
checks = harness.Checks()
PROBES_S = 6 * 0.7  # src/guard/reclaim.h


class Card:
    def __init__(self, folder):
        self.file, self.state = folder / "card", folder / "state"
        (folder / "libnvidia-ml.so.1").symlink_to(NVML)
        self.program = folder / "llama-server"
        self.program.write_text('#!/bin/sh\nprintf "started %s" "$*"\n')
        self.program.chmod(0o755)
        self.environment = harness.environment() | {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_FILE": str(self.file),
                                                    "BURTHEN_STATE_DIR": str(self.state)}

    def has(self, free_mib):
        aside = self.file.with_suffix(".new")
        aside.write_text(f"8192 {free_mib}\n")
        aside.replace(self.file)

    def execute(self, *options, ctx=4096, later=None, env=None):
        """(exit, stdout, stderr, seconds); later: (seconds, free MiB) of a program that ends."""
        timer = threading.Timer(later[0], self.has, (later[1],)) if later else None
        if timer:
            timer.start()
        begin = time.monotonic()
        command = [harness.BIN, "exec", *options, "--", self.program, "-m", harness.SMOLLM2, "-ngl", 99, "-c", ctx, "-np", 1]
        result = subprocess.run([str(word) for word in command], capture_output=True, timeout=120,
                                stdin=subprocess.DEVNULL, env=self.environment | (env or {}))
        took = time.monotonic() - begin
        if timer:
            timer.join()
        return result.returncode, result.stdout.decode(), result.stderr.decode(), took

    def remembered(self):
        return sorted(self.state.glob("refused-*"))


def try_waiting(card):
    card.has(8000)
    code, out, err, took = card.execute()
    checks.check(code == 0 and "-c 4096" in out and "unchanged" in err and took < PROBES_S, f"room: {code} {took}: {err}")
    card.has(10)
    code, out, err, took = card.execute(later=(1.0, 8000))
    checks.check(code == 0 and "-c 4096" in out and "unchanged" in err, f"memory that comes back: {code}: {err}")
    checks.check(took >= 0.7, f"it was not waited for: {took}")
    checks.check(not card.remembered(), "a start leaves a refusal behind")
    card.has(10)
    code, out, err, took = card.execute("--no-wait")
    checks.check(code == 3 and not out and took < PROBES_S and not card.remembered(), f"--no-wait: {code} {took}: {err}")


def try_memory(card):
    card.has(10)
    code, out, err, took = card.execute()
    checks.check(code == 3 and not out and took >= PROBES_S, f"refused: {code} {took}: {err}")
    checks.check(len(card.remembered()) == 1, f"not remembered: {card.remembered()}")
    file = card.remembered()[0]
    code, out, err, took = card.execute()
    checks.check(code == 3 and took < PROBES_S and "not waited again" in err, f"again: {code} {took}: {err}")
    checks.check("burthen: refused: insufficient VRAM" in err, f"the reason is lost: {err}")

    # another command, another setting and another environment are other refusals
    code, out, err, took = card.execute(ctx=8192)
    checks.check(code == 3 and "not waited" not in err and took >= PROBES_S, f"another command: {code} {took}: {err}")
    code, out, err, took = card.execute(env={"LLAMA_ARG_UBATCH": "256"})
    checks.check(code == 3 and "not waited" not in err and took >= PROBES_S, f"another setting: {code} {took}: {err}")

    # what was written by somebody else is no reason to do anything
    for text in ("", "burthen-refused 1\n", "burthen-refused 1\n99999999999999 0\n", "burthen-refused 2\n1 1\n", "x" * 4000,
                 "burthen-refused 1\n-1 5\n", f"burthen-refused 1\n{int(time.time() * 1000) - 31000} 0\n"):
        file.write_text(text)
        card.has(10)
        code, out, err, took = card.execute(later=(0.5, 8000))
        checks.check(code == 0 and "unchanged" in err and took >= 0.5, f"{text[:40]!r}: {code} {took}: {err}")
    file.write_text(f"burthen-refused 1\n{int(time.time() * 1000) - 20000} 10485760\n")
    card.has(10)
    code, out, err, took = card.execute()
    checks.check(code == 3 and took < PROBES_S and "refused 20 s ago" in err, f"what is good: {code} {took}: {err}")

    # more is free than then: the refusal is no answer, and goes
    card.has(10)
    card.execute()
    card.has(2000)
    code, out, err, took = card.execute()
    checks.check(code == 0 and "unchanged" in err and took < PROBES_S, f"more free: {code} {took}: {err}")
    checks.check(not file.exists(), "it is kept")


def try_dry_run(card):
    kept = card.remembered()
    card.has(10)
    code, out, err, took = card.execute("--dry-run")
    checks.check(code == 3 and card.remembered() == kept, f"a dry run: {code}: {err}")
    code, out, err, took = card.execute("--device", "CUDA0=10M", "--no-wait")
    checks.check(code == 3, f"a size that was given: {code}: {err}")


with tempfile.TemporaryDirectory() as folder:
    card = Card(pathlib.Path(folder))
    try_waiting(card)
    try_memory(card)
    try_dry_run(card)
checks.end()
