# SPDX-License-Identifier: MIT
"""Everything at once: stub servers that are slow, die, cut answers and fail to start, in a budget that holds some of them,
clients that ask, stream and leave, a configuration that changes, children that are killed.

Each request ends in exactly one of: its server's answer, its client's leaving, an error in JSON, a broken-off answer where its
server died in the middle; each is one row; the sum of memory is within the budget; nothing is left."""

import collections
import http.client
import json
import math
import os
import random
import signal
import threading
import time

import cgroup_box
import harness
import stubs

checks = harness.Checks()
STORM_S = float(os.environ.get("BT_STUB_STORM_S", "12"))
SEED = int(os.environ.get("BT_STUB_STORM_SEED", "1"))
FOR_MODELS = 200 * harness.MIB
N_CLIENTS = 12
LEAST = 20  # answers; a machine that needs long for a start comes to them when the storm is over


def models(version):
    some = {"plain": stubs.model("--mem 20M", host="60M"), "slow": stubs.model("--mem 20M --token-ms 10", host="60M", concurrency=2),
            "dies": stubs.model("--abort-after 40 --token-ms 2", host="60M"), "cuts": stubs.model("--cut-after 6", host="60M"),
            "bad": stubs.model("--die-with nothing", host="60M"), "big": stubs.model("--mem 100M", host="150M"),
            "huge": stubs.model(host="500M"), "turns": stubs.model(f"--alias v{version} --load-seconds 0.2", host="60M")}
    if version % 2:
        some["odd"] = stubs.model(host="40M", ttl="1s")
    return some


def config(version):
    return stubs.config(models(version), for_models=FOR_MODELS, patience="300ms", cooldown="1s", limits={"queued_model": 8})


class Storm:
    def __init__(self, serve):
        self.serve, self.over = serve, threading.Event()
        self.lock, self.outcomes, self.odd = threading.Lock(), collections.Counter(), []
        self.kills = []  # (model, when)
        self.threads = [threading.Thread(target=self.client, args=(SEED * 1000 + i,)) for i in range(N_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def note(self, outcome, odd=None):
        with self.lock:
            self.outcomes[outcome] += 1
            if odd:
                self.odd.append(odd)

    def client(self, seed):
        chance = random.Random(seed)
        names = [*models(1), "nobody"]
        while not self.over.is_set():
            body = stubs.body(chance.choice(names), n=chance.randint(0, 30), stream=chance.random() < 0.5)
            try:
                self.one(body, chance)
            except TimeoutError:
                self.note("timeout", f"no end: {body}")

    def one(self, body, chance):
        if chance.random() < 0.2:
            leaver = stubs.Leaver(self.serve, body["model"], n=2000, stream=body["stream"])
            time.sleep(chance.random() ** 2)
            leaver.leave()
            self.note("left")
            return
        begun = time.monotonic()
        try:
            connection, response = self.serve.open("/v1/chat/completions", body, timeout_s=120)
        except (ConnectionError, http.client.HTTPException) as why:
            self.note("unanswered", f"{body}: {why!r}")
            return
        try:
            data = response.read()
        except (ConnectionError, http.client.HTTPException):
            killed = any(model == body["model"] and when > begun for model, when in self.kills)
            fine = response.status == 200 and (killed or body["model"] in ("dies", "cuts"))
            self.note("broken", None if fine else f"broken off: {body}")
            return
        finally:
            connection.close()
        self.read(body, response, data)

    def read(self, body, response, data):
        if response.status == 200:
            whole = data.endswith(b"data: [DONE]\n\n") if body["stream"] else "choices" in json.loads(data)
            self.note("answered", None if whole else f"not whole: {body}: {data[-100:]}")
            return
        code = stubs.error_of(data).get("code")
        if response.status == 500:  # the router's own: what it was stands in the test's output
            print(f"{body}: {data[:300]}")
        self.note(f"{response.status} {code}", None if code else f"no JSON: {body}: {response.status}: {data[:200]}")

    def kill_one(self, chance):
        children = self.serve.children()
        if children:
            model = chance.choice(sorted(children))
            kill = [model, math.inf]  # before it is: a client may see it sooner than we go on
            self.kills.append(kill)
            try:
                os.kill(children[model], signal.SIGKILL)
            except OSError:
                pass
            kill[1] = time.monotonic()


def run(serve):
    storm, chance = Storm(serve), random.Random(SEED)
    end, version = time.monotonic() + STORM_S, 0
    while time.monotonic() < end:
        time.sleep(STORM_S / 12)
        deed = chance.random()
        if deed < 0.4:
            version += 1
            serve.rewrite(config(version))
            serve.process.send_signal(signal.SIGHUP)
        elif deed < 0.7:
            storm.kill_one(chance)
        elif deed < 0.85:
            serve.request("/unload")
        serve.request("/metrics")
    harness.wait_for(lambda: storm.outcomes["answered"] > LEAST, 600)
    storm.over.set()
    for thread in storm.threads:
        thread.join()
    return storm


def row_count(serve):
    """Ids go up by one for each request; activity keeps the last ones."""
    rows = serve.ask("/api/metrics/activity?limit=1000")["rows"]
    return len(rows), collections.Counter(row["outcome"] for row in rows)


def main():
    harness.require()
    with stubs.start(config(0)) as serve:
        storm = run(serve)
        print(dict(storm.outcomes))
        checks.check(not storm.odd, f"{len(storm.odd)}: {storm.odd[:4]}")
        checks.check(storm.outcomes["answered"] > LEAST, f"many are answered: {storm.outcomes}")
        idle = serve.wait_for(lambda: not any(one["running"] or one["waiting"] for one in serve.ask("/running")["running"]))
        checks.check(idle, f"nothing is left running or waiting: {serve.ask('/running')}")
        asked = sum(storm.outcomes.values())
        serve.wait_for(lambda: row_count(serve)[0] in (asked, 1000))
        n_rows, outcomes = row_count(serve)
        checks.check(n_rows in (asked, 1000), f"{asked} asked, {n_rows} rows: {outcomes}")
        for name in ("plain", "big", "slow", "turns"):  # one that was killed has a pause
            answers = serve.wait_for(lambda one=name: stubs.Asked(serve, one).wait().status == 200, 30)
            checks.check(answers, f"{name} answers afterwards: {stubs.row_of(serve, name)}")
        own = cgroup_box.status_bytes(serve.pid, "VmRSS")[0]
        print(f"router {own >> 20} MiB, peak of all {serve.peak_tree_bytes >> 20} MiB")
        checks.check(own > stubs.OWN_BYTES or serve.peak_tree_bytes <= FOR_MODELS + stubs.OWN_BYTES, f"{serve.peak_tree_bytes >> 20} MiB: {serve.peak_of}")

        def fds():
            return len(os.listdir(f"/proc/{serve.pid}/fd"))

        checks.check(serve.wait_for(lambda: fds() < 60, 20), f"{fds()} descriptors are open")
        mark = serve.mark()
        status, log = serve.stop()
        checks.check(status == 0 and "no end: looked at again" not in log, f"{status}: {log[-500:]}")
        checks.check(mark and not stubs.router.marked(mark), "nothing is left")
    checks.end()


main()
