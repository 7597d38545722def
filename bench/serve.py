#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a router costs: added latency, memory at rest, memory with many streams. Against llama-server asked directly.

usage: bench/serve.py [--model FILE] [--requests N] [--streams N] [--idle SECONDS]

  latency   POST /tokenize, which llama-server answers in a fraction of a millisecond, one request after the other on kept
            connections, router and server in turn, so that a slow moment of the machine meets both; medians, in ms
  idle      resident and anonymous memory of the router with 10 models listed, after a while without a request
  streams   so many streamed answers at once through the router: its memory at the peak, and that all of them end

The model's server runs with one thread; nothing but the router is measured."""

import argparse
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))

import cgroup_box
import harness
import router


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


def latency(serve, n):
    direct_port = int(serve.ask("/running")["running"][0]["proxy"].rpartition(":")[2])
    body = json.dumps({"model": "m0", "content": "one two three"}).encode()
    direct = http.client.HTTPConnection("127.0.0.1", direct_port)
    routed = http.client.HTTPConnection("127.0.0.1", serve.port)
    times = {"direct": [], "routed": []}
    for i in range(n + 50):
        for name, connection in (("direct", direct), ("routed", routed)):
            spent = ask(connection, body)
            if i >= 50:
                times[name].append(spent)
    return {name: statistics.median(values) for name, values in times.items()} | {
        name + "_p99": statistics.quantiles(values, n=100)[98] for name, values in times.items()}


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
    harness.require(options.model)
    with router.Router(config(options.model, 10, 4)) as serve:
        if not serve.works:
            raise SystemExit(serve.log())
        time.sleep(options.idle)
        anon, rss = anon_mib(serve.pid)
        print(f"idle, 10 models, {options.idle:.0f} s: RssAnon {anon:.1f} MiB, VmRSS {rss:.1f} MiB")
        serve.chat("m0", "Hello", 1)
        found = latency(serve, options.requests)
        print(f"latency, medians of {options.requests}: direct {found['direct']:.3f} ms, through the router "
              f"{found['routed']:.3f} ms, added {found['routed'] - found['direct']:.3f} ms (p99 {found['direct_p99']:.2f}, "
              f"{found['routed_p99']:.2f})")
        peak, ended = streams(serve, options.streams)
        bad = [why for why in ended if why is not True]
        print(f"streams, {options.streams} at once: {len(ended) - len(bad)} ended well, RssAnon at most {peak:.1f} MiB")
        for why in bad[:3]:
            print(why)


main()
