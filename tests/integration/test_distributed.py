# SPDX-License-Identifier: MIT
"""A model over workers and the host: burthen run with burthen worker, over ggml's RPC on this machine. The text is the
host's own for 0, 1, half and all blocks on a worker; what a worker gave is what was planned; a model that is larger than
a worker goes over two of them and the host; a worker that dies ends the run with a name, and serves again when it is
back; one that is not there, or busy, is said before anything is loaded."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import harness
from ports import free_port

harness.require(harness.SMOLLM2)
if not list(harness.LLAMA_BIN.glob("libggml-rpc*")):
    harness.skip("llama.cpp was built without RPC")
checks = harness.Checks()
N_BLOCKS = 30  # of SmolLM2
PROMPT = "The capital of France is"


@contextlib.contextmanager
def worker(memory, port=None):
    """(process, endpoint) of a worker that listens."""
    endpoint = f"127.0.0.1:{port or free_port()}"
    process = subprocess.Popen([harness.BIN, "worker", "--listen", endpoint, "--memory", memory, "-t", "1"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=harness.environment())
    try:
        os.set_blocking(process.stderr.fileno(), False)
        log, end = b"", time.monotonic() + 60
        while b"listening at" not in log and process.poll() is None and time.monotonic() < end:
            log += process.stderr.read() or b""
            time.sleep(0.01)
        checks.check(b"listening at" in log, f"a worker does not listen: {log}")
        yield process, endpoint
    finally:
        process.kill()
        process.wait()


def run(*args, budget="150M", n=24):
    return harness.run(harness.SMOLLM2, budget, "-t", 1, *args, n=n, prompt=PROMPT)


def held(stats):
    return {pool["name"]: pool["pool_bytes"] for pool in stats["measured"]["pools"] if pool["name"] != "host"}


def check_bytes(stats, where):
    for device in stats["plan"]["offload"]["devices"]:
        planned = sum(device[line] for line in ("weights_bytes", "kv_bytes", "compute_bytes", "context_bytes"))
        taken = held(stats)[device["name"]]
        checks.check(taken <= planned <= taken * 1.02 + harness.MIB, f"{where}: {device['name']} gave {taken} of {planned}")


expected, _, _ = run("--device", "none")
checks.check(len(expected) > 20, f"no text: {expected!r}")

with worker("200M") as (_, endpoint):
    for n in (0, 1, N_BLOCKS // 2, "all"):
        text, stats, _ = run("--rpc", endpoint, "-ngl", n)
        checks.check(text == expected, f"{n} blocks on a worker: {text!r}, not {expected!r}")
        offload = stats["plan"]["offload"]
        blocks = sum(device["blocks"] for device in offload["devices"]) if offload else 0
        checks.check(blocks == (N_BLOCKS if n == "all" else n), f"{n} blocks: {offload}")
        if offload:
            checks.check(offload["head"] == (n == "all"), f"{n} blocks: the head: {offload}")
            check_bytes(stats, f"{n} blocks")
    text, stats, _ = run("--rpc", endpoint, "-ngl", 10, "--speculate", "off", budget="56M")
    checks.check(text == expected, f"10 blocks on a worker, the others stream: {text!r}")
    checks.check(stats["plan"]["verdict"] == "streams", f"it does not stream: {stats['plan']['verdict']}")

with worker("60M") as (_, small), worker("80M") as (dying, large):
    both = ("--rpc", small, "--rpc", large)
    text, stats, _ = run(*both)
    devices = {device["name"]: device["blocks"] for device in stats["plan"]["offload"]["devices"]}
    checks.check(text == expected, f"two workers: {text!r}")
    checks.check(len(devices) == 2 and N_BLOCKS > sum(devices.values()) > 20, f"two workers and the host: {devices}")
    check_bytes(stats, "two workers")
    refused = harness.burthen("run", harness.SMOLLM2, "-p", PROMPT, "-c", 512, *both, "-ngl", "all")
    checks.check(refused.returncode == 3 and b"--gpu-layers" in refused.stdout + refused.stderr,
                 f"more than both give: {refused.returncode}: {refused.stderr.decode()[-300:]}")

    command = [harness.BIN, "run", harness.SMOLLM2, "-p", PROMPT, "-n", "400", "--ignore-eos", "--greedy", "-c", "512",
               "-t", "1", *both]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=harness.environment())
    process.stdout.read(len(PROMPT))  # it generates
    dying.send_signal(signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    last = stderr.decode().strip().splitlines()[-1]
    checks.check(process.returncode == 1 and large in last and "worker" in last,
                 f"a worker died: {process.returncode}: {last}")
    gone = harness.burthen("run", harness.SMOLLM2, "-p", PROMPT, "--rpc", large)
    checks.check(gone.returncode == 1 and large in gone.stderr.decode(), f"gone: {gone.returncode}: {gone.stderr.decode()}")
    with worker("80M", port=int(large.rsplit(":", 1)[1])):
        text, _, _ = run(*both)
        checks.check(text == expected, f"after a restart: {text!r}")

with worker("200M") as (_, endpoint), socket.create_connection(endpoint.rsplit(":", 1)) as held_open:
    # HELLO, as ggml's client says it: from now on the worker serves this connection and no other
    held_open.sendall(bytes([14]) + (24).to_bytes(8, "little") + bytes(24))
    held_open.recv(1)
    busy = harness.burthen("devices", "--rpc", endpoint)
    checks.check(busy.returncode == 1 and "busy" in busy.stderr.decode().lower() or "answer" in busy.stderr.decode(),
                 f"busy: {busy.returncode}: {busy.stderr.decode()}")

for bad in ("localhost", "localhost:0", "localhost:99999", ":80", "a:b"):
    wrong = harness.burthen("plan", harness.SMOLLM2, "--rpc", bad)
    checks.check(wrong.returncode == 2 and re.search(r"HOST:PORT", wrong.stderr.decode()), f"{bad}: {wrong.stderr.decode()}")
checks.end()
