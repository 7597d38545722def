# SPDX-License-Identifier: MIT
"""Two burthen on one host: what one has promised and not touched yet the other does not plan with; a killed one leaves no
claim; and in a cgroup that the kernel limits, an asked budget is cut by what others there were promised."""

import json
import pathlib
import signal
import subprocess

import cgroup_box
import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
MIB = harness.MIB
GIB = 1 << 30


def devices(*args):
    return json.loads(harness.burthen("devices", "--json", *args).stdout)


def start(model, *args, before=None):
    """A run that has its first token out, so that it has promised, and is held there until it is ended."""
    command = [harness.BIN, "run", model, "-p", "Once", "-n", "-1", "--ignore-eos", "--greedy", "--quiet", *args]
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=harness.environment(), preexec_fn=before)
    checks.check(process.stdout.read(1) != b"", f"no text came: {process.stderr.read1(500) if process.poll() else ''}")
    process.send_signal(signal.SIGSTOP)
    return process


def end(process, number=signal.SIGTERM):
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)


def plan(*args):
    result = harness.burthen("plan", harness.SMOLLM2, "--json", *args)
    return json.loads(result.stdout)["pools"][0]


checks.check(devices()["reservations"] == [], "somebody is there before anybody was started")

# KV of 8192 tokens is 180 MiB, of which the first tokens touch next to nothing: promised, and not in memory.
first = start(harness.SMOLLM2, "-c", "8192", "--ram-budget", "400M")
machine = devices()
checks.check(len(machine["reservations"]) == 1, f"the run is not seen: {machine['reservations']}")
other = machine["reservations"][0]
checks.check(other["pid"] == first.pid and other["command"] == "run", f"another process is shown: {other}")
checks.check(250 * MIB < other["promised_bytes"] <= 400 * MIB, f"promised {other['promised_bytes']}")
checks.check(machine["untouched_bytes"] == other["promised_bytes"] - other["resident_bytes"] > 0, f"untouched: {machine}")
text = harness.burthen("devices").stdout.decode()
checks.check("Other budgets: promised" in text and str(first.pid) in text, f"devices says nothing of it: {text}")

# Auto plans with what is left, and says so; asked for more than that it says what is left.
for _ in range(5):  # what is free moves with what others do meanwhile
    pool = plan()
    free = devices()["pools"][0]["free_bytes"]
    if pool["budget_bytes"] <= free - 512 * MIB:
        break
checks.check("beside other budgets" in pool["source"] or "cgroup" in pool["source"], f"source: {pool['source']}")
checks.check(pool["budget_bytes"] <= free - 512 * MIB, f"auto {pool['budget_bytes']} of {free} free")
pool = plan("--ram-budget", str(free + GIB))
if "cgroup" not in pool["source"]:
    checks.check("other budgets leave only" in pool["source"], f"an asked budget: {pool['source']}")
    checks.check(pool["budget_bytes"] == free + GIB, "an asked budget is cut on the open host")

# Killed: no lasting claim. Ended: none at all.
end(first, signal.SIGKILL)
checks.check(devices()["reservations"] == [], "a killed run is still counted")
checks.check(plan()["source"].find("other budgets") < 0, "a killed run still takes memory")

# Several at once, with room for all: each is seen by the others, none is lost, and the file is whole.
runs = [start(harness.SMOLLM2, "-c", "256", "-ub", "32", "--ram-budget", "200M") for _ in range(2)]
machine = devices()
checks.check(sorted(other["pid"] for other in machine["reservations"]) == sorted(run.pid for run in runs),
             f"two runs: {machine['reservations']}")
for run in runs:
    end(run)
checks.check(devices()["promised_bytes"] == 0, "ended runs are still counted")

# A file that is torn or somebody else's is begun anew; a folder that others can write is not used.
state = pathlib.Path(harness.environment()["BURTHEN_STATE_DIR"])
(state / "reservations").write_bytes(b"\0\xff not ours")
checks.check(devices()["reservations"] == [], "noise is read as a promise")
one = start(harness.SMOLLM2, "-c", "256", "-ub", "32", "--ram-budget", "200M")
checks.check([other["pid"] for other in devices()["reservations"]] == [one.pid], "noise is not replaced")
end(one)
state.chmod(0o777)
machine = devices()
checks.check(machine["reservations"] == [] and "nothing can be kept" in machine["reservations_reason"], f"{machine}")
state.chmod(0o700)

# In one limited cgroup: asked budgets that both fit alone, and not together. The limit is enforced, so the second is cut
# to what the first leaves of it, and a plan outside the group is not.
try:
    box = cgroup_box.Box(limit_bytes=700 * MIB)
    with box:
        inside = start(harness.SMOLLM2, "-c", "8192", "--ram-budget", "400M", before=box.join)
        command = [harness.BIN, "plan", harness.SMOLLM2, "--json", "--ram-budget", "600M"]
        second = subprocess.run([str(word) for word in command], capture_output=True, env=harness.environment(),
                                preexec_fn=box.join, check=False)
        pool = json.loads(second.stdout)["pools"][0]
        outside = plan("--ram-budget", "600M")
        end(inside)
        name = box.folder.name
    checks.check(pool["budget_bytes"] < 450 * MIB, f"inside: {pool['budget_bytes']} of 700 MiB beside 400")
    checks.check(name in pool["source"] and "(asked 600.0 MiB)" in pool["source"], f"inside: {pool['source']}")
    checks.check(outside["budget_bytes"] == 600 * MIB, f"outside: {outside['budget_bytes']}: {outside['source']}")
    # Three that start at the same moment and each read the same free memory: who comes later plans again beside those who
    # have promised, with less, or is refused. Together they stay within the limit, and nobody is killed.
    with cgroup_box.Box(limit_bytes=420 * MIB, allow_swap=False) as box:
        command = [harness.BIN, "run", harness.SMOLLM2, "-p", "Once", "-n", "-1", "--ignore-eos", "-v", "--ram-budget",
                   "400M"]
        runs = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=harness.environment(), preexec_fn=box.join)
                for _ in range(3)]
        begun = [run.stdout.read(1) != b"" for run in runs]  # each has its first token out, or has ended
        alive = [run for run in runs if run.poll() is None]
        machine = devices()
        for run in alive:
            run.send_signal(signal.SIGTERM)
        said = [run.communicate(timeout=60)[1].decode(errors="replace") for run in runs]
        codes = [run.returncode for run in runs]
        checks.check(any(begun) and set(codes) <= {143, 3}, f"three at once: exits {codes}: {said[-1][-400:]}")
        checks.check(begun == [code == 143 for code in codes], f"three at once: begun {begun}, exits {codes}")
        checks.check(sum(begun) == len(machine["reservations"]), f"three at once: {begun}: {machine['reservations']}")
        # A promise holds the program's own pages, too, which the kernel charges to the group that read them first.
        promised = machine["promised_bytes"]
        checks.check(promised <= (420 + 16) * MIB, f"three at once: promised {promised}")
        print(f"three at once: {sum('planning again' in text for text in said)} planned again")
        checks.check(box.oom_kills() == 0, "three at once: the kernel killed one")
except cgroup_box.Unavailable as why:
    print(f"in a cgroup: not tried: {why}")

checks.end()
