# SPDX-License-Identifier: MIT
"""docs/schema holds what the program prints: every member, its type and where it may be null; and an unknown member, a
missing one or a wrong type would be noticed."""

import copy
import json
import pathlib
import tempfile

import harness
import mkgguf
import schema

harness.require(harness.SMOLLM2)
checks = harness.Checks()
DATA = harness.SOURCE / "tests" / "data"


def hold(name, value, what):
    errors = schema.check(name, value)
    checks.check(not errors, f"{what}: {errors[:5]}")


def objects(value, path=()):
    """The path of every object in a value; of a list's items the first."""
    if isinstance(value, dict):
        yield path
        for key, each in value.items():
            yield from objects(each, (*path, key))
    elif isinstance(value, list) and value:
        yield from objects(value[0], (*path, 0))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def spoil(name, value):
    """Every object gets a member too many, loses each of its own, and gets one of another type."""
    for path in objects(value):
        spoilt = copy.deepcopy(value)
        at(spoilt, path)["not_a_member"] = 1
        checks.check(schema.check(name, spoilt), f"{name}{path}: an unknown member is not noticed")
        for key in at(value, path):
            spoilt = copy.deepcopy(value)
            del at(spoilt, path)[key]
            checks.check(schema.check(name, spoilt), f"{name}{path}: {key} may be missing")
            spoilt = copy.deepcopy(value)
            at(spoilt, path)[key] = [[]] if not isinstance(at(value, path)[key], list) else 1.5
            checks.check(schema.check(name, spoilt), f"{name}{path}: {key} may be anything")


def printed(*args, codes=(0,)):
    result = harness.burthen(*args)
    checks.check(result.returncode in codes, f"{args}: exit {result.returncode}: {result.stderr.decode()[:300]}")
    return json.loads(result.stdout)


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    folder = pathlib.Path(folder)
    mkgguf.write_model(folder / "strange.gguf", arch="strange")
    mkgguf.write_model(folder / "split.gguf", shards=3)

    # machines: this one, every recorded one, and what cannot be read
    machine = printed("devices", "--json")
    hold("machine", machine, "devices")
    for root in sorted((DATA / "roots").iterdir()):
        machine = printed("devices", "--json", "--root", root)
        hold("machine", machine, root.name)
    hold("machine", printed("devices", "--json", "--machine", DATA / "machines/unknown.json"), "unknown")
    full = printed("devices", "--json", "--root", DATA / "roots/v2-nested")
    full["reservations"] = [{"pid": 7, "command": "run", "promised_bytes": 5, "resident_bytes": 3}]
    spoil("machine", full)

    facts = None
    for name in (harness.SMOLLM2, folder / "strange.gguf", folder / "split-00001-of-00003.gguf"):
        facts = printed("inspect", name, "--json")
        hold("facts", facts, f"inspect {name.name}")
    spoil("facts", facts)

    # plans: fits, streams, refused, forced, unknown memory, unknown architecture, no budget, by dry run
    laptop = DATA / "machines/laptop.json"
    plan = None
    for args in (["--machine", laptop], ["--machine", laptop, "--ram-budget", "100M"],
                 ["--machine", laptop, "--ram-budget", "1M", "--force"], ["--machine", DATA / "machines/unknown.json"],
                 ["--ram-budget", "0"], ["--exact", "--ram-budget", "200M", "-c", "512"],
                 ["-c", "2048", "-np", "2", "-b", "512", "-ub", "128", "-t", "3", "--buffers", "3", "--ram-budget", "1G"],
                 ["--machine", laptop, "--ram-budget", "10M"]):
        plan = printed("plan", harness.SMOLLM2, "--json", *args, codes=(0, 3))
        hold("plan", plan, f"plan {args}")
    checks.check(plan["refusal"] and plan["refusal"]["changes"], "the last plan is to be a refusal with changes")
    plan["placement"] = [{"unit": "blk.0.attn", "where": "pinned", "bytes": 1}]  # a refusal places nothing
    spoil("plan", plan)

    # blocks on devices: everything that can be asked of them, and the members of an answer
    cards = folder / "cards.json"
    cards.write_text(json.dumps(full | {"reservations": [], "pools": full["pools"] + [
        full["pools"][0] | {"name": f"GPU{i}", "kind": "gpu", "free_bytes": 64 << 20, "total_bytes": 64 << 20}
        for i in range(2)]}))
    hold("machine", printed("devices", "--json", "--machine", cards), "two cards")
    for args in ([], ["-ngl", "auto", "-ncmoe", "auto"], ["-ngl", "all", "-ncmoe", "all", "-ts", "3,1"],
                 ["-ngl", "7", "-ncmoe", "2", "-mg", "1", "--require-device"], ["--device", "none"],
                 ["--device", "GPU1=20M,GPU0", "--exact", "-t", "1"], ["--device", "GPU1=1M", "-ngl", "20"]):
        offloaded = printed("plan", harness.SMOLLM2, "--json", "-c", "512", "--machine", cards, *args, codes=(0, 3))
        hold("plan", offloaded, f"plan {args}")
        checks.check((offloaded["offload"] is None) == (args == ["--device", "none"]), f"{args}: {offloaded['offload']}")
        if offloaded["offload"]:
            spoil("plan", plan | {"offload": offloaded["offload"], "pools": [offloaded["pools"][-1]]})

    hold("plan", printed("plan", folder / "strange.gguf", "--json", "--machine", laptop, codes=(0, 3)), "unknown arch")
    hold("plan", printed("plan", folder / "split-00002-of-00003.gguf", "--json", "--machine", laptop), "shards")

    _, stats, _ = harness.run(harness.SMOLLM2, "110M", n=4)
    hold("stats", stats, "stats")
    stats["plan"]["placement"] = stats["plan"]["placement"][:2]
    spoil("stats", stats)

    bench = printed("bench", harness.SMOLLM2, "-q", "--json", "-p", "8", "-n", "2", "-r", "1", "--vs-budget", "100%,1M,0%")
    hold("bench", bench, "bench")
    bench["rows"] = [bench["rows"][2], bench["rows"][1]]  # with every figure; refused
    spoil("bench", bench)
    checks.check(schema.check("bench", {**bench, "rows": []}), "bench without rows holds")

    # command lines: as it stands, less context, fewer layers, refused, not known, not priced
    command = ["llama-server", "-m", harness.SMOLLM2, "-np", "1", "-ngl", "99"]
    decisions = set()
    for size, args in (("2G", [*command, "-c", "2048"]), ("2G", [*command, "-c", "98304"]), ("2G", [*command, "-c", "150000"]),
                       ("2G", [*command, "-c", "240000"]), ("2G", ["true"]), ("10M", [*command, "-c", "512"]),
                       ("2G", [*command[:-2], "-c", "512"])):
        decided = printed("exec", "--dry-run", "--json", "--no-wait", "--device", f"Vulkan0={size}", "--", *args, codes=(0, 3))
        hold("exec", decided, f"exec {args}")
        decisions.add(decided["decision"])
        if decided["plan"] and decided["plan"]["changes"]:
            spoil("exec", decided)
    checks.check(decisions == {"unchanged", "trimmed", "offloaded", "refused", "passed"}, f"decided: {decisions}")

    report = printed("report", harness.SMOLLM2)
    hold("report", report, "report after a run")
    checks.check(report["last_run"], "the run before is not in the report")
    spoil("report", {**report, "plan": plan, "machine": full})
    hold("report", printed("report", folder / "split-00001-of-00003.gguf"), "report without a run")

checks.end()
