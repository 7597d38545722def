#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a router costs: added latency, memory at rest, memory with many streams. Against llama-server asked directly, and
against llama-server as a router of its own (--models-dir).

  latency   POST /tokenize, which llama-server answers in a fraction of a millisecond, one request after the other on kept
            connections, both routers and a server in turn, so that a slow moment of the machine meets all; medians, in ms
  idle      resident and anonymous memory of each router with 10 models listed, after a while without a request
  streams   so many streamed answers at once through the router: its memory at the peak, and that all of them end

The model's server runs with one thread; nothing but the router is measured."""

import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from support import kit

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
    parser = kit.parser(__doc__, rounds=3, model=harness.SMOLLM2.name)
    parser.add_argument("--requests", type=int, default=1000, help="a round")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--idle", type=float, default=60, help="seconds")
    options = parser.parse_args()
    harness.require(options.model, llama_server.PROGRAM)
    found = kit.begin(options, options.model)
    with tempfile.TemporaryDirectory() as folder, Peer(options.model, pathlib.Path(folder)) as peer, \
            router.Router(config(options.model, N_MODELS, 4)) as serve:
        if not serve.works:
            raise SystemExit(serve.log())
        time.sleep(options.idle)
        found["idle_mib"] = {name: dict(zip(("anon", "rss"), anon_mib(one.pid)))
                             for name, one in (("burthen serve", serve), ("llama-server", peer))}
        serve.chat("m0", "Hello", 1)
        peer.ask("/tokenize", {"model": "m0", "content": "Hello"})
        rounds = [latency(serve, peer, options.requests) for _ in range(options.rounds)]
        found["latency_ms"] = {name: {"median": kit.spread([one[name][0] for one in rounds]),
                                      "p99": kit.spread([one[name][1] for one in rounds])} for name in rounds[0]}
        found["added_ms"] = {name: kit.spread([one[name][0] - one["direct"][0] for one in rounds])
                             for name in ("burthen serve", "llama-server")}
        peak, ended = streams(serve, options.streams)
        found["streams"] = {"n": len(ended), "whole": sum(one is True for one in ended), "peak_anon_mib": peak}
    if not options.json:
        for name, one in found["idle_mib"].items():
            print(f"idle, {N_MODELS} models, {options.idle:.0f} s: {name}: RssAnon {one['anon']:.1f} MiB, VmRSS {one['rss']:.1f} MiB")
        for name, one in found["latency_ms"].items():
            added = f", added {kit.cell(found['added_ms'][name], 3)}" if name in found["added_ms"] else ""
            print(f"latency in ms, {name}: median {kit.cell(one['median'], 3)}, p99 {kit.cell(one['p99'], 3)}{added}")
        print(f"streams, {options.streams} at once: {found['streams']['whole']} ended well, RssAnon at most {peak:.1f} MiB")
    kit.end(options, found)


if __name__ == "__main__":
    main()
