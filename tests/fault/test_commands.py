# SPDX-License-Identifier: MIT
"""Whole commands, in the build with sanitizers, with the k-th of their own fallible calls failing: every allocation,
open, read, mapping, lock, ring, pipe, socket pair and process.

Whatever fails: the command ends by itself, with its result as ever or with an error in words and an exit code of
docs/interfaces.md; nothing leaks (AddressSanitizer's leak check at its end), no sanitizer has anything to say, and no
process is left. The same command works afterwards, with the state that the failed ones have left.

k goes 0 1 2 ... 7, then half as far again each time, to the first that no call reaches; FAULT_EVERY=1 in the environment
makes it every one (hours). What computes has one thread: two would wait for each other at every barrier of ggml's, where
tests run side by side. A child that is forked, for a dry run, has the number of its parent's calls: so its calls fail,
too. Then the calls on a graphics card (tests/support/fake_device_env.c) of commands that only ask it: every k of each
kind; those of a run are integration.offload's. What libllama and ggml ask of the C library cannot be made to fail
here."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()

EACH_MAX = 8
HANDING_CALLS = 48  # of exec, from its plan being written down on
SANITIZER = 99  # its exit code
CODES = {0, 1, 2, 3, 4, 126, 127}  # docs/interfaces.md; a signal is none
SPEAKS = re.compile(rb"AddressSanitizer|LeakSanitizer|runtime error:")
LLAMA_SERVER = "#!/bin/sh\necho Burthen0: started\n"  # what exec asks, and becomes: it has no calls of ours


def next_k(k):
    every = int(os.environ.get("FAULT_EVERY", 0))
    if every:
        return k + every
    return k + 1 if k < EACH_MAX else k + 1 + k // 2


class Commands:
    def __init__(self, folder):
        self.folder = folder
        self.said = folder / "said"
        self.server = folder / "llama-server"
        self.server.write_text(LLAMA_SERVER)
        self.server.chmod(0o700)
        (folder / "state").mkdir(mode=0o700)

    def run(self, words, fault=None, stdin=b"", **variables):
        """(exit code, output, errors, a call was made to fail)"""
        self.said.unlink(missing_ok=True)
        env = harness.environment() | {
            "BURTHEN_STATE_DIR": str(self.folder / "state"),
            "ASAN_OPTIONS": f"detect_leaks=1:exitcode={SANITIZER}:log_exe_name=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        env |= variables
        if fault is not None:
            env |= {"BURTHEN_FAULT": fault, "BURTHEN_FAULT_SAID": str(self.said)}
        result = subprocess.run([harness.BIN, *map(str, words)], capture_output=True, timeout=120, input=stdin, env=env)
        return result.returncode, result.stdout, result.stderr, self.said.exists()

    def look(self, name, fault, result, wanted, compare):
        code, out, err, hit = result
        where = f"{name}, call {fault}: exit {code}: {err.decode(errors='replace')[-1500:]}"
        checks.check(code in CODES and not SPEAKS.search(err), where)
        if code == 0:
            checks.check(compare(out) == compare(wanted), f"{where}: another result: {out[:300]!r}, not {wanted[:300]!r}")
        else:
            checks.check(hit, f"{where}: no call failed")
            checks.check(b"burthen: " in err, f"{where}: it does not say why")
        return hit

    def sweep(self, name, words, least, compare=lambda out: out, stdin=b""):
        """least: calls that are there at the least, or the hooks are not."""
        code, wanted, err, _ = self.run(words, stdin=stdin)
        checks.check(code == 0, f"{name} without a fault: exit {code}: {err.decode(errors='replace')[-1500:]}")
        k, n_runs, n_failed = 0, 0, 0
        while True:
            result = self.run(words, str(k), stdin)
            if not self.look(name, str(k), result, wanted, compare):
                break
            n_runs += 1
            n_failed += result[0] != 0
            k = next_k(k)
        for first in (0, k // 3, 2 * k // 3):
            self.look(name, f"{first}+", self.run(words, f"{first}+", stdin), wanted, compare)
        code, out, err, _ = self.run(words, stdin=stdin)
        checks.check(code == 0 and compare(out) == compare(wanted), f"{name} after the sweep: exit {code}: {err[-800:]!r}")
        checks.check(k >= least, f"{name}: only {k} calls were counted")
        print(f"{name}: {n_runs} runs with a fault, calls 0 to {k}; {n_failed} ended with an error", flush=True)

    def sweep_handing_over(self, name, words):
        """The last calls before exec becomes the program: what it will find is put into its environment. Memory that
        is refused there is no variable that is too long."""
        found = {"LD_PRELOAD": "libm.so.6",
                 "ASAN_OPTIONS": f"detect_leaks=1:exitcode={SANITIZER}:log_exe_name=0:verify_asan_link_order=0"}
        code, wanted, err, _ = self.run(words, **found)
        checks.check(code == 0, f"{name} without a fault: exit {code}: {err.decode(errors='replace')[-1500:]}")
        n_hit, n_none = 0, 1 << 16
        while n_none - n_hit > 1:
            middle = (n_hit + n_none) // 2
            if self.run(words, str(middle), **found)[3]:
                n_hit = middle
            else:
                n_none = middle
        said = b""
        for k in range(n_hit - HANDING_CALLS, n_hit + 1):
            result = self.run(words, str(k), **found)
            self.look(name, str(k), result, wanted, bytes)
            said += result[2]
        checks.check(b"no memory for a text" in said, f"{name}: its memory was not refused: {said[-2000:]!r}")
        checks.check(b"too long" not in said, f"{name}: {said[-2000:]!r}")
        print(f"{name}: the last {HANDING_CALLS} of {n_hit} calls", flush=True)

    def sweep_device(self, name, words):
        """Each call on the card fails, then it and all after it: the host alone is asked, or it is said why not."""
        report = self.folder / "report"
        card = {"GGML_BACKEND_PATH": os.environ["BT_FAKE_DEVICE"]}
        code, _, err, _ = self.run(words, **card, FAKE_REPORT=str(report))
        checks.check(code == 0, f"{name} with a card: exit {code}: {err[-800:]!r}")
        made = dict(re.findall(r"(\w+)=(\d+)", report.read_text()))
        n_runs = 0
        for call in ("alloc", "init", "query"):
            for k in [*range(1, int(made[call]) + 1), "1+"]:
                code, out, err, _ = self.run(words, **card, FAKE_FAIL=f"{call}:{k}")
                where = f"{name}, {call}:{k}: exit {code}: {err[-800:]!r}"
                checks.check(code in CODES and not SPEAKS.search(err), where)
                checks.check(bool(out) if code == 0 else b"burthen: " in err, where)
                n_runs += 1
        checks.check(int(made["query"]) > 0, f"{name}: the card was not asked: {made}")
        print(f"{name}: {n_runs} runs with a fault of the card", flush=True)


def ignore(out):
    """Readings of this moment: only that there are some."""
    return bool(out)


def start(out):
    """Plans of two probes differ in what was free."""
    return re.sub(rb"[0-9.]+", b"", out[:200])


with tempfile.TemporaryDirectory() as name:
    commands = Commands(pathlib.Path(name))
    model = harness.SMOLLM2
    only = sys.argv[1:]
    rows = [
        ("inspect", ["inspect", model, "--json"], 20, {}),
        ("help --json", ["help", "--json"], 1000, {}),
        ("devices", ["devices", "--json"], 20, {"compare": ignore}),
        ("plan", ["plan", model, "--json", "-c", "512", "--ram-budget", "90M"], 100, {"compare": start}),
        ("plan --exact", ["plan", model, "--json", "--exact", "-c", "512", "-t", "1", "--ram-budget", "140M"], 100,
         {"compare": start}),
        ("run", ["run", model, "-p", "A ship", "-n", "3", "-c", "512", "-t", "1", "--greedy", "--ram-budget", "140M",
                 "--quiet"],
         200, {}),
        ("chat", ["run", model, "--chat", "-n", "3", "-c", "512", "-t", "1", "--greedy", "--ram-budget", "300M",
                  "--quiet"], 200,
         {"stdin": b"Hello\n"}),
        ("exec", ["exec", "--quiet", "--", commands.server, "-m", model, "-c", "512"], 50, {}),
        ("exec --dry-run", ["exec", "--dry-run", "--json", "--", commands.server, "-m", model, "-c", "512"], 50,
         {"compare": ignore}),
        ("exec --ram-budget", ["exec", "--dry-run", "--ram-budget", "200M", "--quiet", "--",
                               harness.LLAMA_BIN / "llama-server", "-m", model, "-c", "512"], 100, {"compare": ignore}),
    ]
    config = commands.folder / "models.yaml"
    config.write_text(f"models:\n  m: {{model: {model}, aliases: [a], ttl: 5m}}\n  n: {{cmd: '{commands.server} --port ${{PORT}}'}}\n")
    rows += [
        ("serve --check-config", ["serve", config, "--check-config"], 15, {}),
        ("bench", ["bench", model, "--vs-budget", "100%", "-p", "8", "-n", "2", "-r", "1", "-c", "64", "-t", "1", "--json"], 100,
         {"compare": ignore}),
    ]
    for row, words, least, more in rows:
        if not only or row in only:
            commands.sweep(row, words, least, **more)
    if not only or "exec hands over" in only:
        commands.sweep_handing_over("exec hands over", ["exec", "--ram-budget", "200M", "--quiet", "--", commands.server, "-m",
                                                        model, "-c", "512", "-t", "1"])
    for row, words in [("plan -ngl", ["plan", model, "--json", "-c", "512", "-ngl", "auto"]),
                       ("devices, a card", ["devices", "--json"])]:
        if not only or row in only:
            commands.sweep_device(row, words)

checks.end()
