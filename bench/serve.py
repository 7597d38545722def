#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a router costs: added latency, memory at rest, memory with many streams. Against llama-server asked directly, and
against llama-server as a router of its own (--models-dir).

usage: bench/serve.py [--model FILE] [--requests N] [--streams N] [--idle SECONDS]

  latency   POST /tokenize, which llama-server answers in a fraction of a millisecond, one request after the other on kept
            connections, both routers and a server in turn, so that a slow moment of the machine meets all; medians, in ms
  idle      resident and anonymous memory of each router with 10 models listed, after a while without a request
  streams   so many streamed answers at once through the router: its memory at the peak, and that all of them end

The model's server runs with one thread; nothing but the router is measured."""

import argparse
import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))

import cgroup_box
import client
import harness
import llama_server
import router

N_MODELS = 10


def config(model, n_models, concurrency):
    lines = ["hold: 0", "models:"]
    for i in range(n_models):
        lines.append(f'  m{i}: {{model: {model}, args: "-c 2048 -np {concurrency} -t 1", concurrency: {concurrency}}}')
    return "\n".join(lines) + "\n"


def ask(connection, body):
    begin = time.perf_counter()
    connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        raise SystemExit(f"no answer: {response.status} {data[:200]}")
    return (time.perf_counter() - begin) * 1000


class Peer(client.Client):
    """llama-server as a router."""

    def __init__(self, model, folder):
        for i in range(N_MODELS):
            (folder / f"m{i}.gguf").symlink_to(pathlib.Path(model).resolve())
        self.port = llama_server.free_port()
        command = [llama_server.PROGRAM, "--models-dir", folder, "--port", self.port, "--no-webui", "-c", 2048, "-np", 4, "-t", 1]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True, env=harness.environment())
        self.pid = self.process.pid
        while True:
            try:
                self.ask("/health", timeout_s=5)
                return
            except (OSError, http.client.HTTPException, client.Refused):
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def latency(serve, peer, n):
    direct_port = int(serve.ask("/running")["running"][0]["proxy"].rpartition(":")[2])
    body = json.dumps({"model": "m0", "content": "one two three"}).encode()
    ports = {"direct": direct_port, "burthen serve": serve.port, "llama-server": peer.port}
    connections = {name: http.client.HTTPConnection("127.0.0.1", port) for name, port in ports.items()}
    times = {name: [] for name in ports}
    for i in range(n + 50):
        for name, connection in connections.items():
            spent = ask(connection, body)
            if i >= 50:
                times[name].append(spent)
    return {name: (statistics.median(values), statistics.quantiles(values, n=100)[98]) for name, values in times.items()}


def anon_mib(pid):
    return cgroup_box.status_bytes(pid, "RssAnon")[0] / harness.MIB, cgroup_box.status_bytes(pid, "VmRSS")[0] / harness.MIB


def streams(serve, n):
    ended, lock = [], threading.Lock()

    def one():
        body = {"model": "m0", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 24, "ignore_eos": True}
        try:
            whole = len(serve.stream("/v1/chat/completions", body, timeout_s=600)) > 0
        except (AssertionError, OSError, http.client.HTTPException) as why:
            whole = repr(why)
        with lock:
            ended.append(whole)

    threads = [threading.Thread(target=one) for _ in range(n)]
    peak = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, anon_mib(serve.pid)[0])
        time.sleep(0.02)
    return peak, ended


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(harness.SMOLLM2))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--idle", type=float, default=60)
    options = parser.parse_args()
    harness.require(options.model, llama_server.PROGRAM)
    with tempfile.TemporaryDirectory() as folder, Peer(options.model, pathlib.Path(folder)) as peer, \
            router.Router(config(options.model, N_MODELS, 4)) as serve:
        if not serve.works:
            raise SystemExit(serve.log())
        time.sleep(options.idle)
        for name, one in (("burthen serve", serve), ("llama-server", peer)):
            anon, rss = anon_mib(one.pid)
            print(f"idle, {N_MODELS} models, {options.idle:.0f} s: {name}: RssAnon {anon:.1f} MiB, VmRSS {rss:.1f} MiB")
        serve.chat("m0", "Hello", 1)
        peer.ask("/tokenize", {"model": "m0", "content": "Hello"})
        found = latency(serve, peer, options.requests)
        print(f"latency, medians of {options.requests} (p99): direct {found['direct'][0]:.3f} ms ({found['direct'][1]:.2f})")
        for name in ("burthen serve", "llama-server"):
            print(f"  through {name}: {found[name][0]:.3f} ms ({found[name][1]:.2f}), added {found[name][0] - found['direct'][0]:.3f} ms")
        peak, ended = streams(serve, options.streams)
        bad = [why for why in ended if why is not True]
        print(f"streams, {options.streams} at once: {len(ended) - len(bad)} ended well, RssAnon of burthen serve at most {peak:.1f} MiB")
        for why in bad[:3]:
            print(why)


main()
