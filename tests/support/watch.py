# SPDX-License-Identifier: MIT
"""Run a command and look at it from outside until it ends: what the kernel says it held, and what it mapped.

For tests that need no memory cgroup. VmHWM only grows, so what is missed is the growth since the last look, SAMPLE_S
earlier. Children (a dry run is one) are looked at too, apart from the process itself."""

import dataclasses
import fcntl
import os
import pathlib
import subprocess
import tempfile
import threading
import time

SAMPLE_S = 0.005
MAPS_EVERY = 8  # looks; a mapping lives as long as the model
LOOKS_ASLEEP = 3  # then it waits, for its output or for something else: the plug has done its work


@dataclasses.dataclass
class Watched:
    status: int
    stdout: bytes
    stderr: bytes
    vm_hwm_bytes: int  # of the process itself
    child_hwm_bytes: int  # the largest of its children
    mapped: set  # files that it or a child had mapped at any look
    n_looks: int


def _hwm_bytes(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def mapped(pid):
    """Names of what a process has mapped; nothing where it is no more."""
    try:
        text = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    return {words[5] for words in (line.split(maxsplit=5) for line in text.splitlines()) if len(words) == 6}


def _children(pid):
    """Of the process and of its children: a dry run is a grandchild."""
    found = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += (task / "children").read_text().split()
    except OSError:
        pass
    return [int(child) for child in found] + [grand for child in found for grand in _children(int(child))]


def _asleep(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


class _Plug:
    """A full pipe as somebody's standard output. It stands until it is pulled: what would end in a millisecond can be
    looked at when all is done but the printing."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        self.n_plug = fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(self.writer, bytes(self.n_plug))
        self.data = b""
        self.thread = None

    def pull(self):
        if self.thread is None:
            self.thread = threading.Thread(target=self._drain)
            self.thread.start()

    def _drain(self):
        while chunk := os.read(self.reader, 65536):
            self.data += chunk

    def text(self):
        self.pull()
        self.thread.join()
        os.close(self.reader)
        return self.data[self.n_plug :]


def run(argv, env=None, timeout_s=300):
    plug = _Plug()
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=plug.writer, stderr=err,
                                   env=env)
        os.close(plug.writer)
        seen = Watched(0, b"", b"", 0, 0, set(), 0)
        deadline = time.monotonic() + timeout_s
        n_asleep = 0
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            children = _children(process.pid)
            seen.vm_hwm_bytes = max(seen.vm_hwm_bytes, _hwm_bytes(process.pid))
            seen.child_hwm_bytes = max([seen.child_hwm_bytes, *map(_hwm_bytes, children)])
            if seen.n_looks % MAPS_EVERY == 0:
                seen.mapped |= mapped(process.pid).union(*map(mapped, children))
            seen.n_looks += 1
            n_asleep += _asleep(process.pid)
            if n_asleep >= LOOKS_ASLEEP:
                plug.pull()
            time.sleep(SAMPLE_S)
        err.seek(0)
        seen.status, seen.stdout, seen.stderr = process.returncode, plug.text(), err.read()
        if time.monotonic() > deadline:
            raise AssertionError(f"{argv[1]} took more than {timeout_s} s")
        return seen
