# SPDX-License-Identifier: MIT
"""User-case 25, live: a file of 512 MB read in a memory cgroup is clean cache, and what is available stays what it was; in
v1 and in v2, where the machine has them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cgroup_box
import harness
import mkgguf

harness.require()
checks = harness.Checks()
MIB = harness.MIB
FILE_BYTES = 512_000_000
LIMIT_BYTES = 1200 * MIB
READ = "import sys; f = open(sys.argv[1], 'rb', 0)\nwhile f.read(1 << 20): pass"


def in_box(box, *command):
    return subprocess.run([str(word) for word in command], capture_output=True, check=True, preexec_fn=box.join,
                          env=harness.environment()).stdout


def look(box, model):
    """The group's own level as the program sees it, and what auto takes, with its reserve of 512 MiB put back."""
    level = json.loads(in_box(box, harness.BIN, "devices", "--json"))["cgroup"]["levels"][0]
    pool = json.loads(in_box(box, harness.BIN, "plan", model, "--json"))["pools"][0]
    return level, pool["budget_bytes"] + 512 * MIB, pool["source"]


def try_version(version, path, model):
    with cgroup_box.Box(limit_bytes=LIMIT_BYTES, only_version=version) as box:
        before, available, source = look(box, model)
        checks.check(available <= LIMIT_BYTES, f"v{version}: {available} of {LIMIT_BYTES}")
        file = "memory.limit_in_bytes" if version == 1 else "memory.max"
        checks.check(f"cgroup v{version} " in source and box.folder.name in source and file in source,
                     f"v{version}: source {source}")
        if cgroup_box.drop_cache(path) != 0:
            raise cgroup_box.Unavailable("this file system keeps its pages (tmpfs)")
        in_box(box, sys.executable, "-c", READ, path)
        after, available_after, _ = look(box, model)
    grown = after["usage_bytes"] - before["usage_bytes"]
    checks.check(grown > 0.9 * FILE_BYTES, f"v{version}: the file was not charged: {grown}")
    checks.check(after["reclaimable_bytes"] > 0.9 * FILE_BYTES, f"v{version}: reclaimable {after}")
    change = abs(available_after - available) / available
    checks.check(change < 0.02, f"v{version}: available {available} before, {available_after} after: {change:.1%}")
    print(f"v{version}: available {available / MIB:.1f} MiB before, {available_after / MIB:.1f} after {grown / MIB:.0f} MiB read")


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    path = pathlib.Path(folder) / "file"
    block = os.urandom(MIB)
    with open(path, "wb") as file:
        for at in range(0, FILE_BYTES, MIB):
            file.write(block[: min(MIB, FILE_BYTES - at)])
        file.flush()
        os.fsync(file.fileno())
    model = pathlib.Path(folder) / "model.gguf"
    mkgguf.write_model(model)
    tried = 0
    for version in (1, 2):
        try:
            try_version(version, path, model)
            tried += 1
        except cgroup_box.Unavailable as why:
            print(f"v{version}: not tried: {why}")
if not tried:
    harness.skip("no memory cgroup can be made")
checks.end()
