# SPDX-License-Identifier: MIT
"""--plan FILE: a plan is carried out as it stands, or refused with both sides named: another model file (size, time,
header), another build, another machine that it does not fit, a budget it does not keep, a file that is no plan."""

import json
import os
import pathlib
import shutil
import tempfile

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
RUN = ["-p", "Once upon a time", "-n", "8", "--greedy", "--quiet"]


def run(model, plan, *args):
    result = harness.burthen("run", model, *RUN, "--plan", plan, *args)
    return result.returncode, result.stderr.decode(errors="replace"), result.stdout


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    folder = pathlib.Path(folder)
    model = folder / "model.gguf"
    shutil.copy(harness.SMOLLM2, model)
    file = folder / "plan.json"

    def write(change=None):
        plan = json.loads(good)
        if change:
            change(plan)
        file.write_text(json.dumps(plan))
        return plan

    good = json.dumps(harness.plan(model, "-c", "512", budget="160M"))
    plain = harness.burthen("run", model, *RUN, "-c", "512", "--ram-budget", "160M")

    # As it stands: the same text, within the same bytes.
    write()
    code, stderr, text = run(model, file)
    checks.check(code == 0, f"as it stands: exit {code}: {stderr}")
    checks.check(text == plain.stdout and text, f"as it stands: {text} is not {plain.stdout}")

    # Numbers and types at which llama.cpp would stop or fall.
    for section, key, value in (("batch", "n_batch", 0), ("batch", "n_ubatch", 0), ("ctx", "effective", 0), ("kv", "type_k", "i8")):
        write(lambda plan: plan[section].update({key: value}))
        code, stderr, _ = run(model, file)
        checks.check(code == 2 and f"{section}.{key}" in stderr, f"{section}.{key} of {value}: exit {code}: {stderr}")

    # Each member of the fingerprint.
    def refused(what, change, *named):
        write(change)
        code, stderr, _ = run(model, file)
        checks.check(code == 3, f"{what}: exit {code}: {stderr}")
        for name in named:
            checks.check(str(name) in stderr, f"{what}: {name} is not named: {stderr}")

    now = json.loads(good)["fingerprint"]

    def changed(value, *path):
        def change(plan):
            at = plan["fingerprint"]
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
        return change

    other_hash = "0123456789abcdef" * 4
    refused("header", changed(other_hash, "model", "header_sha256"), other_hash[:16], now["model"]["header_sha256"][:16])
    refused("size", changed(77, "model", "size"), "77", now["model"]["size"])
    refused("time", changed(88, "model", "mtime_ns"), "88", now["model"]["mtime_ns"])
    refused("build", changed("0.0.1 other", "build"), "0.0.1 other", now["build"])

    # Another machine: runs where it fits, and where it does not the fingerprints are named.
    write(changed("fedcba9876543210", "machine"))
    code, stderr, text = run(model, file)
    checks.check(code == 0 and text == plain.stdout, f"another machine, fits: exit {code}: {stderr}")
    machine = json.loads(harness.burthen("devices", "--json").stdout)
    machine["pools"][0].update(limit={"bytes": 40 << 20, "source": "a small machine"})
    small = folder / "small.json"
    small.write_text(json.dumps(machine))
    code, stderr, _ = run(model, file, "--machine", small)
    checks.check(code == 3 and "fedcba9876543210" in stderr and now["machine"] in stderr and "40.0 MiB" in stderr,
                 f"another machine, does not fit: exit {code}: {stderr}")
    # This machine, with less to give now, and a smaller budget asked for beside the plan.
    write()
    code, stderr, _ = run(model, file, "--machine", small)
    checks.check(code == 3 and "40.0 MiB" in stderr and "now" in stderr, f"less to give: exit {code}: {stderr}")
    code, stderr, _ = run(model, file, "--ram-budget", "50M")
    checks.check(code == 3 and "50.0 MiB" in stderr, f"a smaller budget: exit {code}: {stderr}")

    # The file itself changes under the plan.
    write()
    os.utime(model, ns=(0, 1_600_000_000_000_000_000))
    code, stderr, _ = run(model, file)
    checks.check(code == 3 and "1600000000000000000" in stderr, f"touched: exit {code}: {stderr}")
    with open(model, "ab") as more:
        more.write(bytes(4096))
    os.utime(model, ns=(0, now["model"]["mtime_ns"]))
    code, stderr, _ = run(model, file)
    checks.check(code == 3 and str(model.stat().st_size) in stderr, f"grown: exit {code}: {stderr}")

    # What is no plan: exit 2, the file named, and the line or the member.
    def malformed(what, text, *named):
        file.write_text(text)
        code, stderr, _ = run(harness.SMOLLM2, file)
        checks.check(code == 2, f"{what}: exit {code}: {stderr}")
        for name in (str(file), *named):
            checks.check(name in stderr, f"{what}: {name} is not named: {stderr}")

    lines = json.dumps(json.loads(good), indent=1).splitlines()
    malformed("empty", "", "line 1")
    malformed("text", "This is no plan.\n", "line 1")
    malformed("cut", "\n".join(lines[:20]), "line 20")
    malformed("a line spoilt", "\n".join(lines[:9] + ["}{"] + lines[10:]), "line 10")
    malformed("no fingerprint", "{}", '"fingerprint"')
    for key in ("schema", "verdict", "wishes", "ctx", "ring", "pools", "ladder", "placement"):
        plan = json.loads(good)
        del plan[key]
        malformed(f"without {key}", json.dumps(plan), f'"{key}')
    plan = json.loads(good)
    plan["pools"][0]["lines"][3]["planned_bytes"] += 1
    malformed("a wrong sum", json.dumps(plan), '"pools[0].planned_bytes"')
    malformed("another schema", json.dumps(dict(json.loads(good), schema=2)), '"schema"')
    code, stderr, _ = run(harness.SMOLLM2, folder / "none.json")
    checks.check(code == 2 and "none.json" in stderr, f"missing: exit {code}: {stderr}")

checks.end()
