# SPDX-License-Identifier: MIT
"""`burthen report`: everything that a bug report needs and nothing of who and where: no path, no user, no host, no
environment, no prompt and no text; the last run of this model, and of no other; what was kept and is spoilt is left out."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import harness
import mkgguf

harness.require(harness.SMOLLM2)
checks = harness.Checks()
SECRETS = {"folder": "hidden-folder-7c1d", "user": "some-user-55f0", "value": "a-secret-value-90ab", "prompt": "Zanzibar"}

with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as base:
    home = pathlib.Path(base) / SECRETS["folder"]
    home.mkdir()
    model = home / "model.gguf"
    shutil.copy(harness.SMOLLM2, model)
    mkgguf.write_model(home / "other.gguf", shards=2)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "USER": SECRETS["user"], "LOGNAME": SECRETS["user"],
                   "BURTHEN_UNRELATED": SECRETS["value"]}
    state = home / ".local/state/burthen"

    def burthen(*args, code=0):
        done = subprocess.run([str(word) for word in (harness.BIN, *args)], capture_output=True, timeout=120, cwd=home,
                              env=environment, stdin=subprocess.DEVNULL)
        checks.check(done.returncode == code, f"{args}: exit {done.returncode}: {done.stderr.decode()[-300:]}")
        return done.stdout.decode()

    checks.check(json.loads(burthen("report", model))["last_run"] is None, "a run that never was")
    stats_file = home / "stats.json"
    text = burthen("run", model, "-p", f"The road to {SECRETS['prompt']} is", "-n", "8", "--greedy", "-c", "256", "-ub", "32",
                   "--ram-budget", "150M", "--stats", stats_file)
    stats = json.loads(stats_file.read_text())
    words = burthen("report", model, "-c", "256", "--ram-budget", "150M")
    report = json.loads(words)

    for what, secret in SECRETS.items():
        checks.check(secret not in words, f"the {what} is in the report")
    kept = [path for path in state.iterdir() if path.name.startswith("stats-")]
    checks.check(len(kept) == 1, f"kept: {kept}")
    for what, secret in SECRETS.items():
        checks.check(secret not in kept[0].read_text(), f"the {what} is in what is kept")
    checks.check(text.strip() and text.strip() not in words, "the text is in the report")
    for name in (str(home), socket.gethostname(), str(harness.SOURCE)):
        checks.check(f'{name}' not in words, f"{name} is in the report")
    checks.check('"/' not in words, "a path is in the report")
    checks.check((state.stat().st_mode & 0o777, kept[0].stat().st_mode & 0o777) == (0o700, 0o600), "others may read it")

    checks.check(report["facts"]["path"] == report["plan"]["model"]["path"] == "model.gguf", "the file's name is missing")
    checks.check(report["last_run"]["measured"] == stats["measured"], "not what was measured")
    checks.check(report["last_run"]["planned_bytes"] == stats["plan"]["pools"][0]["planned_bytes"], "not what was planned")
    plan = json.loads(burthen("plan", model, "--json", "-c", "256", "--ram-budget", "150M"))
    checks.check(report["plan"]["pools"] == plan["pools"] or "cgroup" in plan["pools"][0]["source"], "not the plan of plan")
    levels = report["machine"]["cgroup"]["levels"]
    checks.check([level["path"] for level in levels] == [f"level {i}" for i in range(len(levels))], f"cgroups: {levels}")

    # Recorded machines with names in their cgroup paths: the names are gone, the numbers stay.
    root = harness.SOURCE / "tests/data/roots/v2-nested"
    nested = burthen("report", model, "--root", root)
    checks.check("user" not in nested.replace('"user_', ""), "a cgroup's name is in the report")
    checks.check("cgroup v2 level 3 memory.max" in nested and "cgroup v2 level 2 memory.high" in nested, "no source")

    # Another model has no last run; its shards are named without their folder.
    other = json.loads(burthen("report", home / "other-00001-of-00002.gguf"))
    checks.check(other["last_run"] is None, "the run of another model is shown")
    checks.check([shard["path"] for shard in other["facts"]["shards"]] ==
                 ["other-00001-of-00002.gguf", "other-00002-of-00002.gguf"], f"shards: {other['facts']['shards']}")

    # What is torn, foreign, of another schema or too large is left out.
    good = json.loads(kept[0].read_text())
    for what, spoilt in (("torn", kept[0].read_text()[:700]), ("foreign", "no JSON"), ("empty", ""), ("a list", "[]"),
                         ("another schema", json.dumps({**good, "schema": 2})),
                         ("another model's", json.dumps({**good, "header_sha256": "0" * 64})),
                         ("without numbers", json.dumps({**good, "measured": None})),
                         ("too large", json.dumps({**good, "x": "x" * 70000}))):
        kept[0].write_text(spoilt)
        checks.check(json.loads(burthen("report", model))["last_run"] is None, f"what was kept is {what}, and is shown")

    # At most 64 are kept: the oldest go.
    for i in range(80):
        path = state / f"stats-{i:064}.json"
        path.write_text("{}")
        os.utime(path, (1000 + i, 1000 + i))
    burthen("run", model, "-p", "x", "-n", "1", "-c", "256", "-ub", "32", "--ram-budget", "150M", "-q")
    names = sorted(path.name for path in state.iterdir() if path.name.startswith("stats-"))
    checks.check(len(names) == 64 and kept[0].name in names, f"{len(names)} are kept")
    checks.check(f"stats-{16:064}.json" not in names and f"stats-{17:064}.json" in names, f"not the oldest went: {names[:2]}")

    # A refusal is an answer, a missing model is none.
    refused = json.loads(burthen("report", model, "--ram-budget", "1M"))
    checks.check(refused["plan"]["verdict"] == "refused", "a refusal has no report")
    burthen("report", home / "none.gguf", code=4)

checks.end()
