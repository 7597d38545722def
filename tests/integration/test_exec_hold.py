#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""burthen exec --hold: the command runs in a memory cgroup of its own with that limit, below the group that it was
started from; what it may not have it does not get; what is left behind is swept by the next one; where no group can be
made it starts all the same, and that is said."""

import signal
import subprocess
import sys

import cgroup_box
import harness
import llama_server

harness.require(harness.SMOLLM2, llama_server.PROGRAM)
MIB = harness.MIB
checks = harness.Checks()
TOUCH = "import sys; held = bytearray(int(sys.argv[1]) << 20); print(len(held) >> 20)"
# In which group it is, and which limit that has.
WHERE = "grep -E '(memory|^0:):?' /proc/self/cgroup; exec cat \"$1/burthen-$$/$2\""


def execute(box, *args, **more):
    """In the box, so that its leaves are made there."""
    return subprocess.run([str(word) for word in (harness.BIN, "exec", *args)], capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL, env=harness.environment(), preexec_fn=box.join, **more)


def leaves(folder):
    return sorted(path.name for path in folder.glob("burthen-[0-9]*"))


def try_limit(box):
    done = execute(box, "--hold", "64M", "--", "sh", "-c", WHERE, "sh", box.folder, "memory.limit_in_bytes")
    text = done.stdout.decode()
    checks.check(done.returncode == 0 and f"{box.folder.name}/burthen-" in text, f"where: {text} {done.stderr.decode()}")
    checks.check(text.splitlines()[-1:] == [str(64 * MIB)], f"its limit: {text}")
    checks.check(b"burthen: held: the kernel holds it to 64.0 MiB as a whole, in /" in done.stderr, f"not said: {done.stderr}")
    small = execute(box, "--hold", "64M", "-q", "--", sys.executable, "-c", TOUCH, 24)
    checks.check(small.stdout == b"24\n" and not small.stderr, f"24 MiB: {small.returncode} {small.stderr.decode()}")
    large = execute(box, "--hold", "64M", "--", sys.executable, "-c", TOUCH, 200)
    checks.check(large.returncode == -signal.SIGKILL, f"200 MiB in 64: {large.returncode} {large.stdout.decode()}")
    plain = execute(box, "--", sys.executable, "-c", TOUCH, 200)
    checks.check(plain.stdout == b"200\n", f"without: {plain.returncode} {plain.stderr.decode()}")


def try_leaves(box):
    """Two beside each other; each has its own, and what is left of both goes with the next command."""
    wait = (harness.BIN, "exec", "-q", "--hold", "64M", "--", "cat")
    two = [subprocess.Popen(list(map(str, wait)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=harness.environment(),
                            preexec_fn=box.join) for _ in range(2)]
    for one in two:  # it answers: it is there
        one.stdin.write(b"x\n")
        one.stdin.flush()
        checks.check(one.stdout.readline() == b"x\n", "the command does not answer")
    names = sorted(f"burthen-{one.pid}" for one in two)
    checks.check(leaves(box.folder) == names, f"leaves: {leaves(box.folder)}, not {names}")
    two[0].communicate()
    execute(box, "-q", "--hold", "64M", "--", "true")
    checks.check(f"burthen-{two[0].pid}" not in leaves(box.folder), "the leaf of what has ended is still there")
    checks.check(f"burthen-{two[1].pid}" in leaves(box.folder), "the leaf of what runs is gone")
    two[1].communicate()
    checks.check([one.returncode for one in two] == [0, 0], "a command failed")
    missing = execute(box, "--hold", "64M", "--", "no-such-program-at-all")
    checks.check(missing.returncode == 127, f"a missing program: {missing.returncode}")
    checks.check(leaves(box.folder) == [], f"left of a program that was not started: {leaves(box.folder)}")


def try_inside(box):
    """In a leaf: a leaf in it; both limits hold, and both are swept from outside."""
    inner = (harness.BIN, "exec", "-q", "--hold", "64M", "--", sys.executable, "-c", TOUCH)
    outer = ("-q", "--hold", "256M", "--")
    checks.check(execute(box, *outer, *inner, 24).stdout == b"24\n", "24 MiB in a leaf of a leaf")
    checks.check(execute(box, *outer, *inner, 200).returncode == -signal.SIGKILL, "the inner limit does not hold")
    wide = [*inner[:4], "900M", *inner[5:], 400]
    checks.check(execute(box, *outer, *wide).returncode == -signal.SIGKILL, "the outer limit does not hold")
    execute(box, "-q", "--hold", "64M", "--", "true")
    left = leaves(box.folder)
    checks.check(len(left) <= 1, f"left behind: {left}")


def try_nowhere():
    """Below a group that takes no groups: started, and said."""
    with cgroup_box.Box() as box:
        limit = box.folder / "cgroup.max.descendants"
        if not limit.exists():
            return  # v1
        limit.write_text("0")
        done = execute(box, "--hold", "64M", "--", "echo", "started")
        checks.check(done.stdout == b"started\n" and b"burthen: not held: " in done.stderr, f"nowhere: {done.stderr.decode()}")


def try_server(box):
    guard = (harness.BIN, "exec", "--no-wait", "--hold", "260M", "--")
    with llama_server.Server("-m", harness.SMOLLM2, "-c", 2048, "-np", 2, "-t", 1, "--cache-ram", 0, prefix=guard,
                             env=harness.environment(), box=box) as server:
        if server.check_works(checks, "held to 260 MiB"):
            server.complete(harness.PROMPT)
            checks.check(leaves(box.folder) == [f"burthen-{server.process.pid}"], f"its leaf: {leaves(box.folder)}")
        status, log = server.stop()
    checks.check("burthen: held: the kernel holds it to 260.0 MiB" in log, f"not said: {log[:400]}")


cgroup_box.require()
try:
    with cgroup_box.Box(only_version=1) as group:
        try_limit(group)
        try_leaves(group)
        try_inside(group)
        try_server(group)
except cgroup_box.Unavailable as reason:
    print(f"only on v2: {reason}")
try_nowhere()
checks.end()
