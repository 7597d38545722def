#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`burthen cache`: what is kept is listed by kind, what can be made again is removed, and nothing else is touched."""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import schema
from harness import BIN, SOURCE, Checks, bare_environment, burthen_at, require

HASH = "0123456789abcdef" * 4
# A file of each kind, as docs/interfaces.md names them.
FILES = {"prices-" + HASH: "prices", "disk-8:1": "disks", f"stats-{HASH}.json": "runs", "refused-" + HASH: "refusals",
         "learned-" + HASH: "learned", "footprint-" + HASH: "footprints", "reservations": "reservations",
         "serve-4194000": "routers", "reservations.lock": "other", "learned.lock": "other", "notes.txt": "other"}
CLEARED = {"prices", "disks", "runs", "refusals", "learned", "footprints"}


def kinds_of(checks, result):
    found = json.loads(result.stdout)
    errors = schema.check("cache", found)
    checks.check(not errors, f"cache --json: {errors}")
    return found, {kind["kind"]: kind for kind in found["kinds"]}


def fill(state):
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for i, name in enumerate(FILES):
        (state / name).write_bytes(b"x" * (100 + i))
        os.utime(state / name, (1_700_000_000 + i, 1_700_000_000 + i))
    (state / "prices-folder").mkdir(exist_ok=True)


def check_listing(checks, folder):
    nothing = burthen_at(folder, "cache")
    checks.check(nothing.returncode == 0 and nothing.stdout == "nothing is kept yet\n", nothing.stdout)
    checks.check(not (folder / ".local").exists(), "looking makes no folder")
    state = folder / ".local/state/burthen"
    fill(state)
    found, kinds = kinds_of(checks, burthen_at(folder, "cache", "--json"))
    checks.check(found["folder"] == str(state) and not found["cut"], found["folder"])
    for i, (name, kind) in enumerate(FILES.items()):
        if kind != "other":
            checks.check(kinds[kind]["files"] == 1 and kinds[kind]["bytes"] == 100 + i, f"{name}: {kinds[kind]}")
            checks.check(kinds[kind]["newest_s"] == kinds[kind]["oldest_s"] == 1_700_000_000 + i, f"{name}: its time")
        checks.check(kinds[kind]["clearable"] == (kind in CLEARED), f"{kind}: clearable")
    other = kinds["other"]
    checks.check(other["files"] == 3 and other["newest_s"] - other["oldest_s"] == 2, f"other: {other}")
    table = burthen_at(folder, "cache")
    lines = table.stdout.splitlines()
    checks.check(lines[0] == str(state) and len(lines) == len(kinds) + 3, table.stdout)
    checks.check(len({line.index(kind["kind"]) for line, kind in zip(lines[2:], found["kinds"])}) == 1, "a column")
    whats = {line.index(line.split("  ")[-1].strip()) for line in lines[1:-1]}
    checks.check(len(whats) == 1, f"the last column stands at {whats}")
    checks.check(re.fullmatch(r"  total +11 +1\.1 KiB", lines[-1]), lines[-1])
    some = burthen_at(folder, "cache", "disks", "prices").stdout
    checks.check("disks" in some and "learned" not in some, some)


def check_clearing(checks, folder):
    state = folder / ".local/state/burthen"
    for words in (("cache", "--clear", "reservations"), ("cache", "--clear", "prices", "routers"), ("cache", "price")):
        refused = burthen_at(folder, *words)
        checks.check(refused.returncode == 2 and len(list(state.iterdir())) == len(FILES) + 1, f"{words}: {refused.stderr}")
    some = burthen_at(folder, "cache", "--clear", "disks", "--json")
    _, kinds = kinds_of(checks, some)
    checks.check(list(kinds) == ["disks"] and kinds["disks"]["removed"] == 1, some.stdout)
    checks.check(not (state / "disk-8:1").exists() and (state / ("prices-" + HASH)).exists(), "only what was named")
    all_of_it = burthen_at(folder, "cache", "--clear")
    checks.check(all_of_it.returncode == 0 and "removed" in all_of_it.stdout, all_of_it.stdout)
    left = {path.name for path in state.iterdir()}
    checks.check(left == {name for name, kind in FILES.items() if kind not in CLEARED} | {"prices-folder"}, f"left: {left}")
    # A link is neither followed nor counted, and a folder that others may write to is not used.
    (folder / "mine").write_text("keep")
    (state / ("prices-" + HASH)).symlink_to(folder / "mine")
    _, kinds = kinds_of(checks, burthen_at(folder, "cache", "--clear", "--json"))
    checks.check(kinds["prices"]["files"] == 0 and (folder / "mine").exists(), "a link")
    state.chmod(0o777)
    bad = burthen_at(folder, "cache", "--clear", BURTHEN_STATE_DIR=str(state))
    checks.check(bad.returncode == 1 and "nothing can be kept" in bad.stderr, f"a folder of all: {bad}")
    state.chmod(0o700)


def check_what_stays(checks, folder):
    """A file that cannot be removed is said, after the table of what was."""
    state = folder / ".local/state/burthen"
    kept = state / "stats-kept.json"
    for path in (kept, state / "prices-gone"):
        path.write_text("x")
    try:
        fixed = subprocess.run(["chattr", "+i", kept], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        fixed = False
    try:
        result = burthen_at(folder, "cache", "--clear", "--json")
    finally:
        if fixed:
            subprocess.run(["chattr", "-i", kept], check=True)
    _, kinds = kinds_of(checks, result)
    checks.check(kinds["prices"]["removed"] == 1 and kinds["runs"]["removed"] == (0 if fixed else 1), result.stdout)
    checks.check(result.returncode == (1 if fixed else 0), f"{result}")
    checks.check(("1 file in " in result.stderr and "cannot be removed" in result.stderr) == fixed, result.stderr)


def check_read_only(checks):
    """A folder that cannot be written is listed; what cannot be removed from it is said, with the reason."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()  # nobody: root may write everywhere
    if subprocess.run(["test", "-x", BIN], user=user, check=False).returncode != 0:
        print("the program lies where nobody but root may start it: no folder is read-only for root")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        state = folder / "state"
        fill(state)
        for path in (folder, state, *state.iterdir()):
            os.chown(path, user, -1)
        state.chmod(0o500)
        for words, code in ((("cache", "--json"), 0), (("cache", "--clear", "--json"), 1)):
            result = subprocess.run([BIN, *words], env=bare_environment(name, BURTHEN_STATE_DIR=str(state)), cwd="/", capture_output=True,
                                    text=True, check=False, user=user)
            checks.check(result.returncode == code, f"{words}: {result}")
            found, kinds = kinds_of(checks, result)
            checks.check(found["folder"] == str(state) and kinds["prices"]["files"] == 1 and kinds["prices"]["removed"] == 0, result.stdout)
        wanted = f"{len(CLEARED)} files in {state} cannot be removed: Permission denied"
        checks.check(wanted in result.stderr and len(list(state.iterdir())) == len(FILES) + 1, result.stderr)
        state.chmod(0o700)


def check_against_document(checks):
    """Each file of "Files we keep" has a kind of its own."""
    text = (SOURCE / "docs/interfaces.md").read_text().split("## Files we keep")[1].split("\n## ")[0]
    named = re.findall(r"^- `([a-z]+)", text, flags=re.M)
    ours = {re.match(r"[a-z]+", name)[0] for name, kind in FILES.items() if kind != "other"}
    checks.check(set(named) == ours, f"kinds and docs/interfaces.md: {set(named) ^ ours}")


def main():
    require()
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_listing(checks, folder)
        check_clearing(checks, folder)
        check_what_stays(checks, folder)
    check_read_only(checks)
    check_against_document(checks)
    checks.end()


if __name__ == "__main__":
    main()
