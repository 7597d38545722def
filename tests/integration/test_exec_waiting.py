# SPDX-License-Identifier: MIT
"""burthen exec on a card that another program has just left: it waits for the memory, takes what comes, and does not wait
again for what it has just refused. The card is a library with NVML's calls; what it has free stands in a file, and how often
it was read in another: one reading is no waiting, however long it takes."""

import os
import pathlib
import re
import subprocess
import tempfile
import time

import harness

NVML = pathlib.Path(os.environ.get("BT_FAKE_NVML", ""))
harness.require(harness.SMOLLM2)
if not NVML.is_file():
    harness.skip("the stand-in for NVML was not built")
if b"__asan_init" in NVML.read_bytes():
    harness.skip("the stand-in for NVML was built with a sanitizer, which must be loaded first")
checks = harness.Checks()
N_PROBES, PROBES_S = 6, 6 * 0.7  # src/guard/reclaim.h


class Card:
    def __init__(self, folder):
        self.file, self.state, self.readings = folder / "card", folder / "state", folder / "readings"
        (folder / "libnvidia-ml.so.1").symlink_to(NVML)
        self.program = folder / "llama-server"
        self.program.write_text('#!/bin/sh\nprintf "started %s" "$*"\n')
        self.program.chmod(0o755)
        self.environment = harness.environment() | {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_FILE": str(self.file),
                                                    "FAKE_NVML_READINGS": str(self.readings), "BURTHEN_STATE_DIR": str(self.state)}

    def has(self, free_mib, later=None):
        """later: (reading, MiB) of a program that ends: from that reading on."""
        self.file.write_text(f"8192 {free_mib}\n" + (f"later {later[0]} {later[1]}\n" if later else ""))

    def execute(self, *options, ctx=4096, env=None):
        """(exit, stdout, stderr, readings)"""
        self.readings.unlink(missing_ok=True)
        command = [harness.BIN, "exec", *options, "--", self.program, "-m", harness.SMOLLM2, "-ngl", 99, "-c", ctx, "-np", 1]
        result = subprocess.run([str(word) for word in command], capture_output=True, timeout=120,
                                stdin=subprocess.DEVNULL, env=self.environment | (env or {}))
        return result.returncode, result.stdout.decode(), result.stderr.decode(), self.readings.stat().st_size

    def remembered(self):
        return sorted(self.state.glob("refused-*"))


def try_waiting(card):
    card.has(8000)
    code, out, err, n = card.execute()
    checks.check(code == 0 and "-c 4096" in out and "unchanged" in err and n == 1, f"room: {code} {n}: {err}")
    card.has(10, later=(3, 8000))
    begun = time.monotonic()
    code, out, err, n = card.execute()
    took = time.monotonic() - begun
    checks.check(code == 0 and "-c 4096" in out and "unchanged" in err, f"memory that comes back: {code}: {err}")
    checks.check(n == 3 and took >= 2 * 0.7, f"it is waited for, and taken at once: {n} readings in {took:.1f} s")
    checks.check(not card.remembered(), "a start leaves a refusal behind")
    card.has(10)
    code, out, err, n = card.execute("--no-wait")
    checks.check(code == 3 and not out and n == 1 and not card.remembered(), f"--no-wait: {code} {n}: {err}")


def try_memory(card):
    card.has(10)
    begun = time.monotonic()
    code, out, err, n = card.execute()
    took = time.monotonic() - begun
    checks.check(code == 3 and not out and n == 1 + N_PROBES and took >= PROBES_S, f"refused: {code} {n} {took:.1f}: {err}")
    checks.check(len(card.remembered()) == 1, f"not remembered: {card.remembered()}")
    file = card.remembered()[0]
    code, out, err, n = card.execute()
    checks.check(code == 3 and n == 1 and "not waited again" in err, f"again: {code} {n}: {err}")
    checks.check("burthen: refused: insufficient VRAM" in err, f"the reason is lost: {err}")

    # another command, another setting and another environment are other refusals
    code, out, err, n = card.execute(ctx=8192)
    checks.check(code == 3 and "not waited" not in err and n == 1 + N_PROBES, f"another command: {code} {n}: {err}")
    code, out, err, n = card.execute(env={"LLAMA_ARG_UBATCH": "256"})
    checks.check(code == 3 and "not waited" not in err and n == 1 + N_PROBES, f"another setting: {code} {n}: {err}")

    # what was written by somebody else is no reason to do anything
    for text in ("", "burthen-refused 1\n", "burthen-refused 1\n99999999999999 0\n", "burthen-refused 2\n1 1\n", "x" * 4000,
                 "burthen-refused 1\n-1 5\n", f"burthen-refused 1\n{int(time.time() * 1000) - 31000} 0\n"):
        file.write_text(text)
        card.has(10, later=(2, 8000))
        code, out, err, n = card.execute()
        checks.check(code == 0 and "unchanged" in err and n == 2, f"{text[:40]!r}: {code} {n}: {err}")
    file.write_text(f"burthen-refused 1\n{int(time.time() * 1000) - 10000} 10485760\n")
    card.has(10)
    code, out, err, n = card.execute()
    said = re.search(r"refused (\d+) s ago", err)
    checks.check(code == 3 and n == 1 and said and 10 <= int(said[1]) < 30, f"what is good: {code} {n}: {err}")

    # more is free than then: the refusal is no answer, and goes
    card.has(10)
    card.execute()
    card.has(2000)
    code, out, err, n = card.execute()
    checks.check(code == 0 and "unchanged" in err and n == 1, f"more free: {code} {n}: {err}")
    checks.check(not file.exists(), "it is kept")


def try_dry_run(card):
    kept = card.remembered()
    card.has(10)
    code, _, err, _ = card.execute("--dry-run")
    checks.check(code == 3 and card.remembered() == kept, f"a dry run: {code}: {err}")
    code, _, err, _ = card.execute("--device", "CUDA0=10M", "--no-wait")
    checks.check(code == 3, f"a size that was given: {code}: {err}")


with tempfile.TemporaryDirectory() as folder:
    card = Card(pathlib.Path(folder))
    try_waiting(card)
    try_memory(card)
    try_dry_run(card)
checks.end()
