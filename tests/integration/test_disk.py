# SPDX-License-Identifier: MIT
"""Disk or page cache (docs/decisions/020): where the system has room, both are tried and the text stays the same; where a
cgroup limits it, or --io says so, nothing goes through the cache. And what is measured of a disk is remembered."""

import json
import os
import pathlib
import subprocess
import tempfile

import cgroup_box
import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
MIB = harness.MIB
MODEL = harness.SMOLLM2
ARGS = ["-p", harness.PROMPT, "-n", 24, "-c", 512, "--greedy", "--ignore-eos", "-t", 1, "--ram-budget", "80M",
        "--speculate", "off"]


def run(*args, box=None, state=None):
    with tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder) / "stats.json"
        env = harness.environment()
        if state:
            env["BURTHEN_STATE_DIR"] = str(state)
        command = [harness.BIN, "run", MODEL, *ARGS, *args, "--stats", stats]
        result = subprocess.run([str(word) for word in command], capture_output=True, check=False, env=env, timeout=300,
                                stdin=subprocess.DEVNULL, preexec_fn=box.join if box else None)
        if not checks.check(result.returncode == 0, f"{args}: {result.returncode}: {result.stderr.decode()[-400:]}"):
            return None, None, None
        return result.stdout, json.loads(stats.read_text()), result.stderr.decode()


def is_limited():
    machine = json.loads(subprocess.run([str(harness.BIN), "devices", "--json"], capture_output=True, check=True,
                                        env=harness.environment()).stdout)
    cgroup = machine["cgroup"]
    return bool(cgroup["reason"]) or any(level["limit_bytes"] is not None for level in cgroup["levels"])


def try_ways():
    direct, stats, _ = run("--io", "direct")
    if stats is None:
        return
    streamed = stats["measured"]["streamed_bytes"]
    checks.check(stats["measured"]["tier"] == {"from": "disk", "page_cache_bytes": 0, "disk_ns_per_mib": None,
                                               "page_cache_ns_per_mib": None}, f"direct: {stats['measured']['tier']}")
    checks.check(not stats["plan"]["stream"]["page_cache"], "direct: the plan names the page cache")
    checks.check(stats["plan"]["stream"]["disk"]["depth"], "the disk was not measured")
    if is_limited():
        print("this cgroup is limited: the page cache cannot be tried")
        return
    cgroup_box.drop_cache(MODEL)
    text, stats, stderr = run("--io", "auto")
    tier = stats["measured"]["tier"]
    checks.check(text == direct, "auto: another text than from the disk")
    checks.check(stats["plan"]["stream"]["page_cache"], "auto: the plan does not name the page cache")
    checks.check("page cache where that is faster" in stderr, "auto: the text of the plan does not say so")
    checks.check(tier["disk_ns_per_mib"] and tier["page_cache_ns_per_mib"], f"auto: not both were tried: {tier}")
    faster = "page cache" if tier["page_cache_ns_per_mib"] * 110 // 100 < tier["disk_ns_per_mib"] else "disk"
    checks.check(tier["from"] == faster or tier["from"] == "disk", f"auto: {tier}")
    checks.check(tier["page_cache_bytes"] > streamed / 24, f"auto: no pass was filled: {tier}")
    checks.check(stats["measured"]["peak_rss_bytes"] <= stats["plan"]["pools"][0]["planned_bytes"], "auto: over the plan")
    print(f"auto: {tier}")
    text, stats, _ = run("--io", "buffered")
    tier = stats["measured"]["tier"]
    checks.check(text == direct, "buffered: another text than from the disk")
    passes = stats["measured"]["streamed_bytes"] - stats["plan"]["pools"][0]["planned_bytes"]  # the pins came before
    checks.check(tier["from"] == "page cache" and tier["page_cache_bytes"] >= passes,
                 f"buffered: {tier}")


def try_limited():
    try:
        with cgroup_box.Box(limit_bytes=400 * MIB) as box:
            cgroup_box.drop_cache(MODEL)
            _, stats, _ = run("--io", "auto", box=box)
    except cgroup_box.Unavailable as why:
        print(f"in a limited cgroup: not tried: {why}")
        return
    if stats:
        checks.check(not stats["plan"]["stream"]["page_cache"], "limited: the plan names the page cache")
        checks.check(stats["measured"]["tier"]["page_cache_bytes"] == 0, f"limited: {stats['measured']['tier']}")


def try_memory():
    """A plan without a dry run knows the disk that a run measured; so does the next run, which measures nothing."""
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        env = {**harness.environment(), "BURTHEN_STATE_DIR": str(state)}

        def plan():
            out = subprocess.run([str(harness.BIN), "plan", str(MODEL), "--ram-budget", "80M", "-c", "512", "--json"],
                                 capture_output=True, check=False, env=env).stdout
            return json.loads(out)["stream"]

        before = plan()
        checks.check(before["bandwidth_bytes_per_s"] is None and before["disk"]["depth"] is None, f"before: {before}")
        run("-n", 2, state=state)
        kept = [name for name in os.listdir(state) if name.startswith("disk-")]
        checks.check(len(kept) == 1, f"kept: {kept}")
        words = (state / kept[0]).read_text().split()
        checks.check(words[:2] == ["burthen-disk", "1"] and len(words) == 5, f"kept: {words}")
        after = plan()
        checks.check(after["bandwidth_bytes_per_s"] == int(words[4]) and after["disk"]["depth"] == int(words[2])
                     and after["disk"]["request_bytes"] == int(words[3]), f"after: {after}, {words}")
        (state / kept[0]).write_text(f"burthen-disk 1\n7 8192 {words[4]}\n")
        _, stats, _ = run("-n", 2, state=state)
        disk = stats["plan"]["stream"]["disk"]
        checks.check(disk["depth"] == 7 and disk["request_bytes"] == 8192, f"not what was remembered: {disk}")
        (state / kept[0]).write_text("rubbish")
        _, stats, _ = run("-n", 2, state=state)
        checks.check(stats["plan"]["stream"]["disk"]["depth"] not in (None, 7), "rubbish was not measured anew")
        (state / kept[0]).write_text("burthen-disk 1\n32 1048576 90000000\n")
        _, _, stderr = run("-n", 2, state=state)
        checks.check("weights stream from" in stderr and "at 90 MB/s" in stderr, f"a slow disk is not named: {stderr[-500:]}")


def try_learning():
    """A speed that was measured at a bad moment gives way to what a long run reads."""
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        run("-n", 2, "--io", "direct", state=state)
        kept = next(state.glob("disk-*"))
        kept.write_text("burthen-disk 1\n16 524288 1000000\n")
        run("--io", "direct", state=state)
        words = kept.read_text().split()
        checks.check(words[2:4] == ["16", "524288"] and int(words[4]) > 10_000_000, f"learned: {words}")
        kept.write_text("burthen-disk 1\n16 524288 999000000000\n")
        run("--io", "direct", state=state)
        checks.check(kept.read_text().split()[4] == "999000000000", "a slower run is taken for the disk")


def try_refusals():
    """What cannot be measured says why, and ends with 1."""
    with tempfile.TemporaryDirectory() as folder:
        small = pathlib.Path(folder) / "small"
        small.write_bytes(bytes(4096))
        empty = pathlib.Path(folder) / "empty"
        empty.mkdir()
        for path, words in ((small, "16 MiB"), (empty, "no file in it"), (empty / "gone", "cannot look at")):
            result = harness.burthen("devices", "--disk", path)
            checks.check(result.returncode == 1 and words in result.stderr.decode(),
                         f"{path.name}: {result.returncode}: {result.stderr.decode()}")


try_ways()
try_learning()
try_refusals()
try_limited()
try_memory()
checks.end()
