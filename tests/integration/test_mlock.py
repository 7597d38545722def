# SPDX-License-Identifier: MIT
"""--mlock (docs/decisions/015, user-case 37): what is reported as locked is what the kernel counts, under every limit;
text, budget and exit code are those without it. And a run inside its budget has next to no major faults (user-case 33)."""

import json
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time

import harness
import limits
import schema
import toys

harness.require(harness.SMOLLM2)
checks = harness.Checks()
MIB = harness.MIB
MODEL = harness.SMOLLM2
LOCKED_ROW = re.compile(r"^  locked +(.+)$", re.M)
# CAP_IPC_LOCK passes the limit: it is taken from the program, never from the test.
UNPRIVILEGED = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]


def has_capability():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"^CapEff:\s*(\w+)", status, re.M).group(1), 16) >> 14 & 1  # CAP_IPC_LOCK


def locks_bytes(pid):
    try:
        found = re.search(r"^VmLck:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


class Run:
    """A run and what the kernel counted as locked meanwhile; plan and statistics as the program writes them."""

    def __init__(self, what, *args, model=MODEL, prompt=harness.PROMPT, prefix=(), limit=None, n=24):
        self.what = what
        with tempfile.TemporaryDirectory() as folder:
            stats = pathlib.Path(folder) / "stats.json"
            argv = [*prefix, harness.BIN, "run", model, "-p", prompt, "-n", n, "--greedy", "--ignore-eos", "-t", 1,
                    "--stats", stats, *args]
            process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=harness.environment(), preexec_fn=limit)
            self.seen, self.ended = 0, False
            looker = threading.Thread(target=self._look, args=(process.pid,))
            looker.start()
            self.text, stderr = process.communicate(timeout=300)
            self.ended = True
            looker.join()
            self.stderr = stderr.decode(errors="replace")
            self.status = process.returncode
            self.stats = json.loads(stats.read_text()) if self.status == 0 else None
        if not checks.check(self.status == 0, f"{what}: exit {self.status}: {self.stderr[-600:]}"):
            checks.end()
        self.measured = self.stats["measured"]
        self.locked = self.measured["locked"]
        errors = schema.check("stats", self.stats)
        checks.check(not errors, f"{what}: {errors[:3]}")
        row = LOCKED_ROW.search(self.stderr)
        self.row = row.group(1) if row else None
        self.warnings = [line for line in self.stderr.splitlines() if "(--mlock)" in line]
        print(f"{what}: locked {self.row}; the kernel counted {self.seen / MIB:.1f} MiB; peak "
              f"{self.measured['peak_rss_bytes'] / MIB:.1f}", flush=True)

    def _look(self, pid):
        while not self.ended:
            self.seen = max(self.seen, locks_bytes(pid))
            time.sleep(0.005)

    def line(self, name):
        return next(line for line in self.measured["lines"] if line["name"] == f"host/{name}")

    def holds_the_budget(self):
        planned = self.stats["plan"]["pools"][0]["planned_bytes"]
        peak = self.measured["peak_rss_bytes"]
        budget = self.stats["plan"]["pools"][0]["budget_bytes"]
        checks.check(peak <= planned <= budget, f"{self.what}: peak {peak}, planned {planned}, budget {budget}")

    def says_the_truth(self):
        """What is reported is what was counted, and no more than was planned."""
        locked = self.locked["locked_bytes"]
        checks.check(locked <= self.seen, f"{self.what}: {locked} bytes are reported, the kernel counted {self.seen}")
        checks.check(locked <= self.locked["asked_bytes"] <= self.stats["plan"]["pools"][0]["planned_bytes"],
                     f"{self.what}: locked {locked} of {self.locked['asked_bytes']} is more than planned")
        checks.check(self.row and " of " in self.row, f"{self.what}: no row of what is locked")


def all_is_locked(run):
    run.says_the_truth()
    checks.check(run.locked["locked_bytes"] == run.locked["asked_bytes"] and run.locked["reason"] is None,
                 f"{run.what}: not all was locked: {run.locked}")
    checks.check(run.locked["locked_bytes"] >= run.line("pinned")["peak_bytes"], f"{run.what}: less than the pins")
    checks.check(not run.warnings, f"{run.what}: {run.warnings}")


# --- all of it, where the limit allows it ---

TIGHT = ["-c", 512, "--ram-budget", "96M"]
plain = Run("without", *TIGHT)
checks.check(plain.locked is None and plain.row is None and plain.seen == 0, f"something was locked unasked: {plain.locked}")
checks.check(plain.measured["elastic"]["taken"] > 0, "no elastic pins: they are not tested")
faults = plain.measured["major_faults_per_token"]
checks.check(faults is not None and faults < 50, f"a plain run has {faults} major faults a token")
checks.check("major faults a token," not in plain.stderr and "major faults a token" in plain.stderr, plain.stderr[-600:])

may_lock = has_capability() or resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY
if may_lock:
    for state in ("on", "off"):
        run = Run(f"elastic {state}", *TIGHT, "--elastic", state, "--mlock")
        all_is_locked(run)
        run.holds_the_budget()
        checks.check(run.text == plain.text, f"{run.what}: text differs: {run.text!r} {plain.text!r}")
        held = sum(run.line(name)["committed_bytes"] for name in ("pinned", "ring", "kv"))
        checks.check(run.locked["locked_bytes"] >= held, f"{run.what}: {held} bytes are held")
        # What is locked was not there before it was needed: a short chat touches a part of its context.
        checks.check(run.line("kv")["peak_bytes"] < run.line("kv")["planned_bytes"], f"{run.what}: the cache was filled")
        checks.check("elastic pins are never locked" in run.row or state == "off", f"{run.what}: {run.row}")
        checks.check("the system allows it" in run.stderr, f"{run.what}: the plan does not say that it is allowed")
    # Caches are dropped and touched again, and elastic pins given back: the whole context, at the printed minimum too.
    rungs = harness.ladder(MODEL, "-c", 256)
    for name in ("minimum", "head"):
        asked = ["-c", 256, "--ram-budget", rungs[name]]
        run = Run(f"{name}, to the context's end", *asked, "--mlock", n=-1)
        all_is_locked(run)
        run.holds_the_budget()
        checks.check(run.text == Run("  without", *asked, n=-1).text, f"{run.what}: text differs")
    run = Run("all pinned, no budget", "-c", 256, "--ram-budget", 0, "--mlock")
    checks.check(run.locked["locked_bytes"] == run.locked["asked_bytes"] > 80 * MIB, f"{run.what}: {run.locked}")
    text = harness.SOURCE / "README.md"
    scored = harness.burthen("perplexity", MODEL, "-f", text, "-c", 256, "--chunks", 1, "-t", 1, "--ram-budget", "96M",
                             "--mlock")
    row = LOCKED_ROW.search(scored.stderr.decode(errors="replace"))
    checks.check(scored.returncode == 0 and row and not row.group(1).startswith("0 B"), f"perplexity: {scored.stderr[-600:]}")
    chat = harness.burthen("run", MODEL, "--chat", "-n", 4, "-c", 512, "-t", 1, "--greedy", "--mlock", stdin=b"Hello\n/exit\n")
    row = LOCKED_ROW.search(chat.stderr.decode(errors="replace"))
    checks.check(chat.returncode == 0 and row and not row.group(1).startswith("0 B"), f"chat: {chat.stderr[-600:]}")
else:
    print("not run: locking everything (RLIMIT_MEMLOCK is set, and there is no CAP_IPC_LOCK)")

# --- a limit in the way: it is said, what fits is locked, the run goes on ---

prefix = UNPRIVILEGED if has_capability() else []
can_drop = not prefix or (shutil.which("setpriv") and
                          subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0)
if can_drop:
    for kib in (1024, 64, 0):
        limit = limits.soft(resource.RLIMIT_MEMLOCK, kib << 10)
        run = Run(f"ulimit -l {kib}", *TIGHT, "--mlock", prefix=prefix, limit=limit)
        run.says_the_truth()
        run.holds_the_budget()
        reason = f"RLIMIT_MEMLOCK is {kib << 10} bytes"
        checks.check(run.text == plain.text, f"{run.what}: text differs")
        checks.check(run.locked["locked_bytes"] <= run.seen <= kib << 10, f"{run.what}: {run.locked}, counted {run.seen}")
        checks.check(run.locked["reason"] == reason, f"{run.what}: {run.locked}")
        checks.check(len(run.warnings) == 1 and reason in run.warnings[0] and "ulimit -l" in run.warnings[0] and
                     "LimitMEMLOCK=" in run.warnings[0], f"{run.what}: {run.warnings}")
        checks.check(reason in run.row, f"{run.what}: {run.row}")
        checks.check(f"RLIMIT_MEMLOCK allows {kib << 10} bytes" in run.stderr, f"{run.what}: the plan does not say it")
        # What is smaller than the pins, and fits, is locked all the same; a page is more than nothing.
        checks.check(run.locked["locked_bytes"] > 0 or kib < 1024, f"{run.what}: nothing of what would fit is locked")
    # A model that is smaller than the limits of most systems. What the warning asks for is enough, to the kibibyte.
    with tempfile.TemporaryDirectory() as folder:
        toy = pathlib.Path(folder) / "toy.gguf"
        toys.write(toy, toys.sentencepiece(512), embd=256, heads=4, kv_heads=2, blocks=[512, 512])
        asked = {"model": toy, "prompt": "a b c", "prefix": prefix, "n": 240}
        shape = ["-c", 256, "-ub", 32, "--mlock"]
        short = Run("toy, ulimit -l 64", *shape, **asked, limit=limits.soft(resource.RLIMIT_MEMLOCK, 64 << 10))
        enough = int(re.search(r"ulimit -l (\d+)", short.warnings[0]).group(1)) << 10
        for what, n_bytes in (("as the warning says", enough), ("as was asked for", short.locked["asked_bytes"])):
            run = Run(f"toy, {what}", *shape, **asked, limit=limits.soft(resource.RLIMIT_MEMLOCK, n_bytes))
            all_is_locked(run)
            checks.check(run.locked["asked_bytes"] == short.locked["asked_bytes"], f"{run.what}: {run.locked}")
        run = Run("toy, one page less", *shape, **asked, limit=limits.soft(resource.RLIMIT_MEMLOCK, n_bytes - 4096))
        run.says_the_truth()
        pins = run.line("pinned")["committed_bytes"]
        checks.check(0 < pins <= run.locked["locked_bytes"] < run.locked["asked_bytes"],
                     f"{run.what}: {run.locked}, pins of {pins}")
else:
    print("not run: limits (CAP_IPC_LOCK cannot be dropped here)")
checks.end()
