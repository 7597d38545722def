# SPDX-License-Identifier: MIT
"""burthen worker, used by llama.cpp's own llama-completion over ggml's RPC on this machine: the text is that of the CPU,
what is held stays under the cap, a client that wants too much is refused and the next one served, a worker that is
killed ends its client, and every end has its exit code."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

import harness
from ports import free_port

LLAMA = harness.LLAMA_BIN / "llama-completion"
harness.require(harness.SMOLLM2, LLAMA)
if not list(harness.LLAMA_BIN.glob("libggml-rpc*")):
    harness.skip("llama.cpp was built without RPC")
checks = harness.Checks()
scratch = pathlib.Path(tempfile.mkdtemp())
MESSAGE = 2 * harness.MIB  # what is not a tensor written for the first time: graphs, inputs, logits
GREETING = b"\x0e\x18" + bytes(31)
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def status_bytes(pid, key):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M)[1]) << 10


class Worker:
    def __init__(self, memory, *args, port=None, host="127.0.0.1"):
        self.port = port or free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.path = scratch / f"worker-{self.port}-{time.monotonic_ns()}.log"
        with open(self.path, "wb") as log:
            command = [harness.BIN, "worker", "--listen", f"{host}:{self.port}", "--memory", memory, "-t", "1", *args]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            env=harness.environment())
        self.pid = self.process.pid
        checks.check(self.wait_for("listening at"), f"the worker does not listen: {self.log()}")
        found = re.search(r"; ([\d.]+) ([KMG]iB) of its own", self.log())
        self.base = int(float(found[1]) * SIZES[found[2]]) if found else 0

    def log(self):
        return self.path.read_text(errors="replace")

    def wait_for(self, words, count=1, seconds=30):
        """Whether the log has the words so often, soon."""
        end = time.monotonic() + seconds
        while self.log().count(words) < count:
            if time.monotonic() > end or self.process.poll() is not None:
                return self.log().count(words) >= count
            time.sleep(0.01)
        return True

    def stop(self, number=signal.SIGTERM):
        """Its exit status, and what it wrote to standard output."""
        self.process.send_signal(number)
        try:
            stdout, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, _ = self.process.communicate()
            checks.check(False, f"the worker did not end on signal {number}")
        return self.process.returncode, stdout


@contextlib.contextmanager
def worker(memory, *args, **options):
    w = Worker(memory, *args, **options)
    try:
        yield w
    finally:
        if w.process.poll() is None:
            code, stdout = w.stop()
            checks.check(code == 143 and stdout == b"", f"ended with {code}, {stdout!r}: {w.log()}")


def client(endpoints, layers, *args, n=16):
    return [str(word) for word in harness.peer_command(harness.SMOLLM2, "-t", 1, "-ub", 64, "--rpc", endpoints, "-ngl",
                                                       layers, *args, n=n)]


def complete(endpoints, layers, *args, n=16):
    result = subprocess.run(client(endpoints, layers, *args, n=n), capture_output=True, timeout=120,
                            stdin=subprocess.DEVNULL, env=harness.environment())
    return result.returncode, result.stdout, result.stderr.decode(errors="replace")[-800:]


def served(endpoints, layers, expected, what):
    code, text, log = complete(endpoints, layers)
    checks.check(code == 0 and text == expected, f"{what}: {code}, {text!r}, not {expected!r}\n{log}")


def rests(w):
    """Whether a worker without a client has given everything back, soon."""
    end = time.monotonic() + 20
    while status_bytes(w.pid, "VmRSS") > w.base + 4 * harness.MIB and time.monotonic() < end:
        time.sleep(0.02)
    return status_bytes(w.pid, "VmRSS")


def reservations():
    return json.loads(harness.burthen("devices", "--json").stdout)["reservations"]


def held_texts_and_memory():
    expected = harness.peer_text(harness.SMOLLM2, "-t", 1, "-ub", 64, n=16)
    cap = 160 * harness.MIB
    with worker("160M") as w:
        own = [r for r in reservations() if r["pid"] == w.pid]
        checks.check(len(own) == 1 and own[0]["command"] == "worker"
                     and abs(own[0]["promised_bytes"] - cap - w.base) < harness.MIB, f"promised {own}, base {w.base}")
        for layers in (99, 10):
            served(w.endpoint, layers, expected, f"-ngl {layers}")
            checks.check(rests(w) <= w.base + 4 * harness.MIB, f"-ngl {layers}: {rests(w)} is left, base {w.base}")
        checks.check(status_bytes(w.pid, "VmHWM") <= cap + w.base + MESSAGE, f"held {status_bytes(w.pid, 'VmHWM')}")
        checks.check(status_bytes(w.pid, "VmHWM") >= 80 * harness.MIB, "the weights were not there")
        checks.check(w.wait_for("left; so far at most", 2), f"no client left: {w.log()}")
        checks.check("refused" not in w.log() and "over the cap" not in w.log(), w.log())
    checks.check(not [r for r in reservations() if r["pid"] == w.pid], "the promise outlived the worker")

    # More than the cap: refused, and the next one is served.
    with worker("90M") as w:
        code, _, log = complete(w.endpoint, 99)
        checks.check(code == 1, f"over the cap: {code}, {log}")  # its last lines may be lost: its log is a thread
        checks.check(w.wait_for("a client is refused a buffer of"), f"nothing was refused: {w.log()}")
        served(w.endpoint, 10, expected, "after a refusal")
        checks.check(status_bytes(w.pid, "VmHWM") <= 90 * harness.MIB + w.base + MESSAGE, f"{status_bytes(w.pid, 'VmHWM')}")

    with worker("120M") as one, worker("120M") as two:
        served(f"{one.endpoint},{two.endpoint}", 99, expected, "two workers")
        for w in (one, two):
            held = status_bytes(w.pid, "VmHWM")
            checks.check(w.base + 20 * harness.MIB < held <= 120 * harness.MIB + w.base + MESSAGE, f"of two one held {held}")
    return expected


def start_client(w):
    """One that generates for a while; returns when its first byte is out."""
    process = subprocess.Popen(client(w.endpoint, 99, "--ignore-eos", n=400), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=harness.environment())
    checks.check(process.stdout.read(1) != b"", "no text came")
    return process


def sockets(port, state):
    """What the kernel knows of the sockets at a port of this machine."""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line for line in lines if line[1] == f"0100007F:{port:04X}" and line[3] == state]


def is_listening(port):
    return bool(sockets(port, "0A"))


def is_looked_after(port):
    """Whether the kernel has a keep-alive timer on the worker's connection, when nothing else is timed."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if any(line[5].startswith("02:") for line in sockets(port, "01")):
            return True
        time.sleep(0.005)
    return False


def losses(expected):
    with worker("160M") as w:
        process = start_client(w)
        w.process.kill()
        w.process.communicate()
        process.communicate(timeout=60)
        checks.check(process.returncode not in (0, None), f"its client ended with {process.returncode}")
        with worker("160M", port=w.port) as again:
            served(again.endpoint, 99, expected, "restarted at the same port")

    # A client that is killed, and strangers: the worker goes on.
    with worker("160M") as w:
        process = start_client(w)
        checks.check(w.wait_for("serving the client 127.0.0.1:"), f"nobody is served: {w.log()}")
        checks.check(is_looked_after(w.port), "a client that vanished would be served for ever")
        with socket.create_connection(("127.0.0.1", w.port)) as s:  # asked by bt_rpc_check, which gives up
            s.sendall(GREETING)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        waiting = subprocess.Popen(client(w.endpoint, 99), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=harness.environment())
        time.sleep(0.2)
        checks.check(waiting.poll() is None, "a second client was served beside the first")
        process.kill()
        process.communicate()
        text, _ = waiting.communicate(timeout=60)
        checks.check(waiting.returncode == 0 and text == expected, f"the second client: {waiting.returncode}, {text!r}")
        for greeting, is_reset in ((b"GET / HTTP/1.1\r\n\r\n", False), (b"\x0e\x18", False), (b"", True),
                                   (GREETING, True), (GREETING, False)):
            with socket.create_connection(("127.0.0.1", w.port)) as s:
                s.sendall(greeting)
                if is_reset:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        served(w.endpoint, 10, expected, "after strangers")


def refused(status, words, *args):
    result = harness.burthen("worker", *args, timeout=60)
    stderr = result.stderr.decode(errors="replace")
    checks.check(result.returncode == status and words in stderr and not result.stdout,
                 f"worker {args}: {result.returncode}, {stderr}, {result.stdout}")


def refusals():
    refused(2, "needs --memory SIZE")
    refused(2, "too little", "--memory", "1K")
    refused(2, "needs --insecure", "--memory", "64M", "--listen", "0.0.0.0:1")
    refused(2, "HOST:PORT", "--memory", "64M", "--listen", "127.0.0.1")
    refused(2, "IPv6", "--memory", "64M", "--listen", "[::1]:50052")
    refused(2, "no IPv4 address", "--memory", "64M", "--listen", "256.1.1.1:50052")
    refused(3, "more than this machine leaves", "--memory", "1000T")
    refused(1, "cannot listen at 192.0.2.1:50052", "--memory", "64M", "--listen", "192.0.2.1:50052", "--insecure")
    with worker("64M") as w:
        refused(1, f"cannot listen at {w.endpoint}", "--memory", "64M", "--listen", w.endpoint)
        code, _ = w.stop(signal.SIGINT)
        checks.check(code == 130, f"SIGINT: {code}")
    with worker("64M", "--insecure", host="0.0.0.0") as w:
        checks.check("neither authenticated nor memory-safe" in w.log(), w.log())
    with worker("1000T", "--force") as w:
        pass
    with tempfile.TemporaryFile() as log:
        port = free_port()
        process = subprocess.Popen([harness.BIN, "worker", "-q", "--memory", "64M", "--listen", f"localhost:{port}"],
                                   stdout=subprocess.PIPE, stderr=log, env=harness.environment())
        end = time.monotonic() + 30
        while not is_listening(port) and time.monotonic() < end:
            time.sleep(0.02)
        process.terminate()
        stdout, _ = process.communicate(timeout=60)
        log.seek(0)
        said = log.read()
        checks.check(process.returncode == 143 and not stdout and not said, f"-q: {process.returncode}, {said}")


try:
    losses(held_texts_and_memory())
    refusals()
finally:
    for path in scratch.iterdir():
        path.unlink()
    os.rmdir(scratch)
checks.end()
