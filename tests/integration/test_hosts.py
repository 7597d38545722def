# SPDX-License-Identifier: MIT
"""Hosts as they are: memory that may not be locked (user-case 37), io_uring refused, rlimits too low, no /proc, no home,
standard descriptors closed. Where a run can be had the text is the same; where not, one sentence says why and no signal
ends it."""

import errno
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile

import harness
import limits

harness.require(harness.SMOLLM2)
checks = harness.Checks()
MIB = harness.MIB
ASKED = ["-c", "256", "-ub", "32", "--ram-budget", "90M"]
RUN = ["run", harness.SMOLLM2, "-p", "Once upon a time", "-n", "4", "--greedy"]


def burthen(*args, limit=None, env=None, stdin=subprocess.DEVNULL):
    done = subprocess.run([str(word) for word in (harness.BIN, *args)], capture_output=True, timeout=120,
                          preexec_fn=limit, env=env if env is not None else harness.environment(), stdin=stdin)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def own_lines(stderr):
    return [line for line in stderr.splitlines() if line.startswith("burthen:") and "llama.cpp: " not in line]


scratch = tempfile.TemporaryDirectory()
# Most runs carry out one plan, which spares each its dry run.
PLAN = pathlib.Path(scratch.name) / "plan.json"
PLANNED = [*RUN, "--plan", PLAN]
PLAN.write_bytes(burthen("plan", harness.SMOLLM2, "--exact", "--json", *ASKED)[1])
code, TEXT, stderr = burthen(*RUN, *ASKED, "-v")
checks.check(code == 0 and TEXT, f"plain: exit {code}: {stderr[-500:]}")


def same(what, *args, **options):
    code, text, stderr = burthen(*PLANNED, *args, **options)
    checks.check(code == 0 and text == TEXT, f"{what}: exit {code}, {text!r}: {stderr[-500:]}")
    return stderr


# --- memory that may not be locked (user-case 37): without --mlock nothing is, and nothing says so ---

for kib in (64, 0):
    limit = limits.soft(resource.RLIMIT_MEMLOCK, kib << 10)
    stderr = same(f"ulimit -l {kib}", "-v", limit=limit)
    checks.check("locked" not in stderr, f"ulimit -l {kib}: claims to lock: {stderr}")
    _, report, _ = burthen("devices", "--json", limit=limit)
    checks.check(json.loads(report)["memory"]["memlock_bytes"] == kib << 10, f"ulimit -l {kib} is not in the report")
    _, report, _ = burthen("devices", limit=limit)
    shown = "64.0 KiB" if kib else "0 B"
    checks.check(f"Lockable memory      {shown} (RLIMIT_MEMLOCK; used by --mlock)" in report.decode(), report.decode())

# --- io_uring refused: pread, the same text, and said which reader and why ---

if limits.can_filter():
    for number in (errno.EPERM, errno.ENOSYS):
        limit = limits.refuse_io_uring(number)
        reason = os.strerror(number)
        with tempfile.NamedTemporaryFile(suffix=".json") as stats:
            stderr = same(f"io_uring: {reason}", "-v", "--stats", stats.name, limit=limit)
            measured = json.loads(pathlib.Path(stats.name).read_text())["measured"]
        said = [line for line in own_lines(stderr) if "reading with" in line]
        checks.check(len(said) == 1 and "with pread" in said[0] and reason in said[0], f"{reason}: said {said}")
        checks.check(measured["reader"] == "pread" and reason in measured["reader_reason"], f"{reason}: {measured}")
        stderr = same(f"quiet, io_uring: {reason}", limit=limit)
        checks.check("reading with" not in stderr, "a fallback that costs nothing is said without -v")
    code, _, stderr = burthen(*PLANNED, "--reader", "uring", limit=limits.refuse_io_uring())
    checks.check(code == 1 and "Operation not permitted" in stderr, f"io_uring asked for: exit {code}: {stderr[-300:]}")
with tempfile.NamedTemporaryFile(suffix=".json") as stats:
    same("pread asked for", "--reader", "pread", "--stats", stats.name)
    measured = json.loads(pathlib.Path(stats.name).read_text())["measured"]
    checks.check((measured["reader"], measured["reader_reason"]) == ("pread", None), f"pread asked for: {measured}")

# --- too low limits of the address space: the text or one clear sentence, never a signal ---

for name, kind in (("-v", resource.RLIMIT_AS), ("-d", resource.RLIMIT_DATA)):
    seen = set()
    for mib in (8, 50, 120, 150, 1024):
        code, text, stderr = burthen(*RUN, *ASKED, limit=limits.soft(kind, mib * MIB))
        seen.add(code)
        good = text == TEXT if code == 0 else code in (1, 3, 127) and stderr.strip()
        checks.check(good, f"ulimit {name} {mib} MiB: exit {code}: {stderr[-400:]}")
    checks.check(0 in seen and 1 in seen, f"ulimit {name}: exits {seen}: nothing was refused, or nothing ran")

for n in (4, 5, 6, 8, 16):
    code, text, stderr = burthen(*PLANNED, limit=limits.soft(resource.RLIMIT_NOFILE, n))
    good = text == TEXT if code == 0 else code in (1, 4) and "Too many open files" in stderr
    checks.check(good, f"ulimit -n {n}: exit {code}: {stderr[-400:]}")
checks.check(code == 0, "16 descriptors are not enough")

# --- files that may not grow: what cannot be kept is said at -v, what was asked for is an error ---

limit = limits.soft(resource.RLIMIT_FSIZE, 0)
stderr = same("ulimit -f 0", "-v", limit=limit)
checks.check(len([line for line in own_lines(stderr) if "File too large" in line]) == 2, f"ulimit -f 0: {stderr}")
with tempfile.TemporaryDirectory() as folder:
    code, text, stderr = burthen(*PLANNED, "--stats", pathlib.Path(folder) / "s.json", limit=limit)
    checks.check(code == 1 and text == TEXT and "File too large" in stderr, f"--stats, ulimit -f 0: exit {code}: {stderr}")

# --- nowhere to keep anything, nothing set ---

bare = {"PATH": os.environ["PATH"]}
nowhere = {**bare, "BURTHEN_STATE_DIR": "/proc/none"}
stderr = same("nowhere to keep", "-v", env=nowhere)
kept = [line for line in own_lines(stderr) if "/proc/none" in line]
checks.check(len(kept) == 2 and all("info" in line for line in kept), f"nowhere to keep: said {kept}")
stderr = same("nowhere to keep, without -v", env=nowhere)
checks.check("/proc/none" not in stderr, f"nowhere to keep: said without -v: {stderr}")
code, report, stderr = burthen("devices", "--json", env=nowhere)
checks.check(code == 0 and json.loads(report)["reservations"] == [], f"devices, nowhere: exit {code}: {stderr}")
code, report, stderr = burthen("report", harness.SMOLLM2, env=nowhere)
checks.check(code == 0 and json.loads(report)["last_run"] is None, f"report, nowhere: exit {code}: {stderr}")
with tempfile.TemporaryDirectory() as folder:
    runtime = pathlib.Path(folder)
    for what, env in (("HOME that cannot be written", {"HOME": "/proc/1/fd/none"}),
                      ("XDG_STATE_HOME that cannot be written", {"HOME": folder, "XDG_STATE_HOME": "/proc/none"}),
                      ("HOME unset", {}), ("HOME relative", {"HOME": "home"}),
                      ("TMPDIR absent", {"TMPDIR": "/none"})):
        same(what, env={**bare, "XDG_RUNTIME_DIR": folder, **env})
        checks.check((runtime / "burthen/reservations").is_file(), f"{what}: nothing in XDG_RUNTIME_DIR")
        shutil.rmtree(runtime / "burthen")

# --- no /proc: memory is unknown, which is a state; a budget is kept all the same ---

without_proc = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
probe = subprocess.run([*without_proc, "true"], capture_output=True, check=False)
if probe.returncode == 0:
    def hidden(*args):
        done = subprocess.run([str(word) for word in (*without_proc, harness.BIN, *args)], capture_output=True, timeout=120,
                              env=harness.environment(), stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    code, report, stderr = hidden("devices", "--json")
    machine = json.loads(report)
    checks.check(code == 0 and machine["pools"][0]["state"] == "failed", f"no /proc: devices: exit {code}: {report}")
    checks.check(machine["pools"][0]["free_bytes"] is None and "/proc/meminfo" in machine["pools"][0]["reason"],
                 f"no /proc: unknown is not zero: {machine['pools'][0]}")
    code, plan, stderr = hidden("plan", harness.SMOLLM2, "--json")
    plan = json.loads(plan)
    checks.check(code == 0 and plan["verdict"] == "fits" and "unknown" in plan["pools"][0]["source"], f"no /proc: {plan}")
    code, text, stderr = hidden(*RUN, *ASKED)
    checks.check(code == 0 and text == TEXT, f"no /proc: run: exit {code}, {text!r}: {stderr[-500:]}")
else:
    print(f"without /proc: not tried: {probe.stderr.decode().strip()}")

# --- standard descriptors that are closed: none of our files takes their numbers ---

same("standard input closed", limit=limits.close(0))
code, text, _ = burthen(*PLANNED, "-v", limit=limits.close(2))
checks.check(code == 0 and text == TEXT, f"standard error closed: exit {code}")
code, _, stderr = burthen(*PLANNED, limit=limits.close(1))
checks.check(code == 1 and "standard output" in stderr, f"standard output closed: exit {code}: {stderr[-300:]}")
code, _, stderr = burthen("plan", harness.SMOLLM2, limit=limits.close(1))
checks.check(code == 1 and "standard output" in stderr, f"plan, standard output closed: exit {code}: {stderr[-300:]}")
code, _, stderr = burthen("run", harness.SMOLLM2, "-n", "1", limit=limits.close(0))
checks.check(code not in (0, -signal.SIGSEGV) and stderr.strip(), f"a prompt from nowhere: exit {code}: {stderr}")

checks.end()
