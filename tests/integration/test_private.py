#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What others on the machine must not see or change: files that are kept, whatever the umask; keys, in any output; and what
of our environment a server gets."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

import harness
import stubs

harness.require(harness.SMOLLM2)
checks = harness.Checks()
KEY = "sk-a-key-that-nobody-may-see"


def files_below(folder):
    return [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]


def check_modes(root):
    """Folders 0700, files 0600, with a umask that would let everybody write."""
    state, session, stats, log = root / "home/state", root / "session", root / "stats.json", root / "log"
    environment = harness.environment() | {"BURTHEN_STATE_DIR": str(state)}
    args = ("-c", "256", "--ram-budget", "150M", "--log-file", log)
    for command in (("run", harness.SMOLLM2, "-p", "Hello", "-n", "2", *args, "--session", session, "--stats", stats),
                    ("plan", harness.SMOLLM2, "--exact", *args), ("devices", "--disk", harness.MODELS),
                    ("exec", "--", "/bin/true"),
                    ("exec", "--no-wait", "--device", "Vulkan0=10M", "--", "llama-server", "-m", harness.SMOLLM2, "-ngl", "99")):
        done = subprocess.run([harness.BIN, *map(str, command)], env=environment, capture_output=True, check=False, umask=0, timeout=300,
                              stdin=subprocess.DEVNULL)
        checks.check(done.returncode in (0, 3), f"{command}: {done.returncode}: {done.stderr[-300:]}")
    text = stubs.config({"a": stubs.model(host="20M")})
    before = os.umask(0)
    try:
        with stubs.start(text, env={"BURTHEN_STATE_DIR": str(state)}) as serve:
            serve.chat("a", "Hello", 1)
            kept = {path.name.partition("-")[0] for path in files_below(state)}
            checks.check({"prices", "disk", "stats", "serve", "reservations"} <= kept, f"what is kept: {kept}")
            for path in [state, *files_below(state)]:
                mode = stat.S_IMODE(path.stat().st_mode)
                checks.check(mode == (0o700 if path.is_dir() else 0o600), f"{path.name}: {mode:o}")
    finally:
        os.umask(before)
    for path in (session, stats, log):
        checks.check(stat.S_IMODE(path.stat().st_mode) == 0o600, f"{path.name}: {path.stat().st_mode:o}")


def check_links(root):
    """A link in the place of what is kept is not followed."""
    state, victim = root / "linked", root / "victim"
    state.mkdir(mode=0o700)
    victim.write_text("mine")
    first = root / "first"
    environment = harness.environment() | {"BURTHEN_STATE_DIR": str(first)}
    command = [harness.BIN, "plan", harness.SMOLLM2, "--exact", "-c", "256"]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    for path in files_below(first):
        (state / path.name).symlink_to(victim)
    done = subprocess.run(command, env=environment | {"BURTHEN_STATE_DIR": str(state)}, capture_output=True, check=False)
    checks.check(done.returncode == 0 and victim.read_text() == "mine", f"{done.returncode}: {victim.read_text()!r}")
    link = root / "link"
    link.symlink_to(root / "elsewhere")
    (root / "elsewhere").mkdir(mode=0o700)
    subprocess.run(command, env=environment | {"BURTHEN_STATE_DIR": str(link)}, capture_output=True, check=True)
    checks.check(not list((root / "elsewhere").iterdir()), "a folder that is a link is not used")


def check_keys(root):
    """A key of the configuration, the command line, the environment: in no output, no answer, no server's environment."""
    config = root / "keys.yaml"
    peers = {"far": {"proxy": "http://127.0.0.1:9", "apiKey": KEY + "-peer", "models": ["x"]}}
    models = {"a": {"cmd": f"{sys.executable} {stubs.PROGRAM} --port ${{PORT}}", "memory": {"host": "20M"}, "env": [f"OWN={KEY}-own"]}}
    text = stubs.config(models, api_keys=[KEY], peers=peers)
    config.write_text(text)
    for args in (("--check-config",), ("--check-config", "--api-key", KEY), ("--check-config", "-v")):
        done = subprocess.run([harness.BIN, "serve", config, *args], env=harness.environment() | {"BURTHEN_API_KEY": KEY}, capture_output=True, check=False)
        checks.check(done.returncode == 0 and KEY.encode() not in done.stdout + done.stderr, f"{args}: {done.stdout} {done.stderr}")
    for wrong in ({"api_keys": {"k": KEY}}, {"api_keys": [KEY + " x"]}, {"api_keys": [[KEY]]}, {"api_key": KEY}, {"api_keys": KEY, "listn": 1}):
        config.write_text(json.dumps({"models": models} | wrong, indent=1))
        done = subprocess.run([harness.BIN, "serve", config, "--check-config"], env=harness.environment(), capture_output=True, check=False)
        checks.check(KEY.encode() not in done.stdout + done.stderr, f"{wrong}: {done.returncode}: {done.stderr}")
    for place in ({"env": {"BURTHEN_API_KEY": KEY}}, {}):
        config_text = stubs.config(models, peers=peers) if place else text
        with stubs.start(config_text, "--log-level", "debug", "-v", **place) as serve:
            serve.headers = {"Authorization": f"Bearer {KEY}"}
            serve.chat("a", "Hello", 1)
            serve.request("/v1/chat/completions", stubs.body("far/x"))
            for path in ("/", "/props?model=a", "/running", "/v1/models", "/api/memory", "/api/requests", "/api/activity", "/api/events", "/logs", "/logs/a",
                         "/metrics", "/api/machine"):
                checks.check(KEY.encode() not in serve.request(path)[1], f"{path} has a key")
            checks.check(KEY not in serve.log(), "the log has a key")
            child = serve.children()["a"]
            inherited = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            checks.check(f"OWN={KEY}-own".encode() in inherited, "what the configuration gives a server, it gets")
            checks.check(not [word for word in inherited if KEY.encode() in word and not word.startswith(b"OWN=")], f"and none of ours: {inherited}")
            for pid in [serve.pid, *serve.children().values()]:
                checks.check(KEY.encode() not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes(), f"process {pid} shows a key")


def main():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        check_modes(root)
        check_links(root)
        check_keys(root)
    checks.end()


main()
