# SPDX-License-Identifier: MIT
"""A router for tests: `burthen serve` started, asked, watched from outside, ended in any way.

    with router.Router(config_text, "--ram-budget", "400M") as serve:
        serve.chat("smol", "Hello")
        serve.peak_tree_bytes      the largest sum of VmRSS over the router and everything below it, looked at ten times a second
        serve.stop()               SIGTERM; (exit status, log)

Its processes are found by the mark that it puts into their environment, so that what has left the tree is found too."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading

import background
import cgroup_box
import client
import harness

SAMPLE_S = 0.1
MARK = b"BURTHEN_SERVE_MARK="


def _environ(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def marked(mark):
    """Live processes that carry a mark (b"BURTHEN_SERVE_MARK=...")."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and mark in _environ(entry):
            try:
                if pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append(int(entry))
            except OSError:
                pass
    return found


def descendants(pid):
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        try:
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                queue += children
        except OSError:
            pass
    return found


class Router(background.Background, client.Client):
    def __init__(self, config, *args, env=None, folder=None, model_args=()):
        """config: text of a YAML file, or a list of files and folders of models."""
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder or self._folder.name)
        self.config = None
        words = [str(word) for word in config] if isinstance(config, (list, tuple)) else []
        if not words:
            self.config = self.folder / "serve.yaml"
            self.config.write_text(config)
            words = [str(self.config)]
        self.command = [harness.BIN, "serve", *words, "--listen", "127.0.0.1:0", *map(str, args)]
        if model_args:
            self.command += ["--", *map(str, model_args)]
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log,
                                        env=harness.environment() | (env or {}))
        self.pid = self.process.pid
        self.peak_tree_bytes, self.samples, self.peak_of = 0, 0, {}
        self._over = threading.Event()
        line = self.process.stdout.readline().decode().strip()  # the address, or nothing: it has ended
        self.works = line.startswith("http")
        self.port = int(line.rpartition(":")[2]) if self.works else 0
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self._folder.cleanup()

    # ---- from outside ----

    def _look(self):
        while not self._over.wait(SAMPLE_S):
            sizes = {}
            for pid in [self.pid, *descendants(self.pid)]:
                reading = cgroup_box.status_bytes(pid, "VmRSS")
                if reading:
                    sizes[pid] = reading[0]
            total = sum(sizes.values())
            self.samples += 1
            if total > self.peak_tree_bytes:
                self.peak_tree_bytes, self.peak_of = total, self._names(sizes)

    def _names(self, sizes):
        names = {}
        for pid, size in sizes.items():
            try:
                name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
            except OSError:
                name = "?"
            names[pid] = (size >> 20, name)
        return names

    def mark(self):
        """The mark that a child of it carries; None: it has none now."""
        for pid in descendants(self.pid):
            for word in _environ(pid):
                if word.startswith(MARK):
                    return word
        return None

    def children(self):
        """pid of each running model, by its id."""
        return {one["model"]: one["pid"] for one in self.ask("/running")["running"] if "pid" in one}

    # ---- questions ----

    def states(self):
        return {one["model"]: one["state"] for one in self.ask("/running")["running"]}

    def wait_for(self, what, seconds=60):
        return harness.wait_for(what, seconds)

    def rewrite(self, text):
        """Another configuration in the file's place, at once: nobody reads half of it."""
        aside = self.config.with_suffix(".new")
        aside.write_text(text)
        aside.replace(self.config)

    def reload(self, text, said="configuration read anew"):
        """Another configuration, and a signal to read it; whether the log says that it was."""
        before = self.log().count(said)
        self.rewrite(text)
        self.process.send_signal(signal.SIGHUP)
        return self.wait_for(lambda: self.log().count(said) > before)

    def chat(self, model, text, n=8, **more):
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": n, "temperature": 0}
        return self.ask("/v1/chat/completions", body | more)

    def complete(self, model, prompt, n=16, **more):
        """Greedy, each prompt for itself; the text of llama-server's own endpoint."""
        body = {"model": model, "prompt": prompt, "n_predict": n, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        return self.ask("/completion", body | more)

    def happened(self, kind):
        """The data of the last events of a type ("decision", "model", "request"), oldest first."""
        return [event["data"] for event in self.ask(f"/api/events?type={kind}")]
