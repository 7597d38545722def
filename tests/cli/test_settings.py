#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The settings file as the programs read it: which layer wins, what is wrong with it and when that is said, and that what
`burthen serve` starts does not read it."""

import json
import pathlib
import signal
import subprocess
import tempfile
import time

import mkgguf
import schema
from harness import BIN, Checks, bare_environment, burthen_at, require

WAIT_S = 60


def plan(folder, *words, **variables):
    return json.loads(burthen_at(folder, "plan", "small.gguf", "--json", *words, **variables).stdout)


def check_layers(checks, folder):
    mine = folder / "mine.yaml"
    mine.write_text("ram-budget: 640M\nthreads: 3\nplan:\n  ctx-size: 256\n  threads: 1\n")
    made = plan(folder, BURTHEN_CONFIG=str(mine))
    checks.check(made["pools"][0]["budget_bytes"] == 640 << 20, "the budget of all commands")
    checks.check(made["ctx"]["requested"] == 256 and made["threads"] == 1, "what is plan's alone")
    made = plan(folder, "-t", "2", BURTHEN_CONFIG=str(mine), BURTHEN_CTX_SIZE="512")
    checks.check(made["ctx"]["requested"] == 512 and made["threads"] == 2, "a flag and a variable win")
    kept = folder / ".config/burthen/config.yaml"
    kept.parent.mkdir(parents=True)
    kept.write_text("threads: 5\n")
    checks.check(plan(folder)["threads"] == 5, "the file at home")
    checks.check(plan(folder, BURTHEN_CONFIG=str(mine))["threads"] == 1, "another in its place")
    checks.check(plan(folder, BURTHEN_CONFIG="")["threads"] != 5, "none is asked for")
    checks.check(plan(folder, XDG_CONFIG_HOME=str(folder / "nowhere"))["threads"] != 5, "XDG_CONFIG_HOME")


def check_wrong(checks, folder):
    kept = folder / ".config/burthen/config.yaml"
    kept.write_text("plan: {threads: 1}\nthreds: 3\n")
    for words in (("plan", "small.gguf"), ("devices",), ("serve", "small.gguf", "--check-config"), ("inspect", "small.gguf")):
        bad = burthen_at(folder, *words)
        checks.check(bad.returncode == 2 and not bad.stdout, f"{words}: {bad}")
        checks.check(f"{kept}:2: threds is not an option; the nearest is threads" in bad.stderr, bad.stderr)
    for words in (("plan", "--help"), ("help", "plan"), ("version",), ("cache",), ("completion", "bash")):
        checks.check(burthen_at(folder, *words).returncode == 0, f"{words} under settings that are wrong")
    kept.write_text("threads: many\n")
    bad = burthen_at(folder, "plan", "small.gguf")
    checks.check(bad.returncode == 2 and f"{kept}:1: --threads wants" in bad.stderr, bad.stderr)
    checks.check(burthen_at(folder, "plan", "small.gguf", "-t", "1").returncode == 0, "a bad value that a flag replaces")
    checks.check(burthen_at(folder, "inspect", "small.gguf").returncode == 0, "a bad value of no option of the command")
    kept.unlink()
    missing = burthen_at(folder, "plan", "small.gguf", BURTHEN_CONFIG="not-there.yaml")
    checks.check(missing.returncode == 1 and "not-there.yaml" in missing.stderr, missing.stderr)


def check_serve(checks, folder):
    """The router has them where it has no configuration; what it starts does not, through whatever it is started."""
    kept = folder / ".config/burthen/config.yaml"
    kept.write_text("serve: {listen: 127.0.0.1:9123}\nram-budget: 1G\nexec: {min-gpu-fraction: wrong}\nthreads: 2\n")
    seen = folder / "seen"
    script = folder / "server.sh"
    script.write_text(f"#!/bin/sh\nprintf 'config=%s' \"${{BURTHEN_CONFIG-unset}}\" >'{seen}.part'\nmv '{seen}.part' '{seen}'\n"
                      "exec sleep 60\n")
    script.chmod(0o755)
    config = folder / "serve.yaml"
    config.write_text(f"listen: 127.0.0.1:0\nmodels:\n  one: {{cmd: '{script} ${{PORT}}', memory: {{host: 1M}}}}\n"
                      "hooks: {on_startup: {preload: [one]}}\n")
    shown = burthen_at(folder, "serve", "small.gguf", "--check-config").stdout
    checks.check("listen 127.0.0.1:9123" in shown and "host: 1.00 GiB" in shown, f"settings of serve: {shown}")
    shown = burthen_at(folder, "serve", config, "--check-config").stdout
    checks.check("listen 127.0.0.1:0" in shown and "1.00 GiB\n" not in shown, f"a configuration in their place: {shown}")
    with open(folder / "log", "w") as log:
        router = subprocess.Popen([BIN, "serve", config], cwd=folder, env=bare_environment(folder), stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL)
    end = time.monotonic() + WAIT_S
    while not seen.exists() and router.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    router.send_signal(signal.SIGTERM)
    router.wait(WAIT_S)
    text = seen.read_text() if seen.exists() else (folder / "log").read_text()
    checks.check(text == "config=", f"what a server is given: {text}")


def main():
    require()
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        mkgguf.write_model(folder / "small.gguf")
        check_layers(checks, folder)
        check_wrong(checks, folder)
        check_serve(checks, folder)
        version = json.loads(burthen_at(folder, "version", "--json").stdout)
        checks.check(not schema.check("version", version) and version["llama_cpp"].startswith("ggml "), f"{version}")
    checks.end()


if __name__ == "__main__":
    main()
