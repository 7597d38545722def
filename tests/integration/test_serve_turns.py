# SPDX-License-Identifier: MIT
"""Whose turn it is: models that are always asked for and lone requests, holds, priorities, groups, limits of queues and of
concurrency, with stub servers in a budget that holds one of them."""

import threading
import time

import harness
import stubs

checks = harness.Checks()
FOR_MODELS = 100 * harness.MIB
SIZE = "60M"


class Stream:
    """Requests for one model without an end, two at a time."""

    def __init__(self, serve, name, n):
        self.serve, self.name, self.n, self.ends, self.bad = serve, name, n, [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.go) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def go(self):
        while not self.over.is_set():
            asked = stubs.Asked(self.serve, self.name, n=self.n).wait()
            self.ends.append(asked.ended_at)
            if asked.status != 200:
                self.bad.append(str(asked))

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def check_lone_request():
    """A is always busy; B is served within its patience, a request of A, and two changes of place."""
    models = {"a": stubs.model("--token-ms 20", host=SIZE), "b": stubs.model(host=SIZE)}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="2s", hold="1s")) as serve:
        serve.chat("a", "Hello", 1)
        stream = Stream(serve, "a", 20)

        def drains():
            return [one["decision"] for one in serve.happened("decision")].count("drain")

        for _ in range(5):  # where this test did not run for a second, a was idle for its hold: that is no turn
            asked = stubs.Asked(serve, "b").wait()
            checks.check(asked.status == 200 and asked.seconds < 30, f"b is served: {asked}")
            n_before = len(stream.ends)
            checks.check(serve.wait_for(lambda n=n_before: len(stream.ends) > n + 2), "then a is again")
            if drains():
                break
        stream.stop()
        checks.check(not stream.bad, f"all of a's requests are answered: {stream.bad[:2]}")
        checks.check(drains() > 0 and asked.seconds > 1.8, f"a was drained for b, and not before its patience was over: {asked}")


def check_round():
    """Three that are always asked for, in a place for one, take turns."""
    models = {name: stubs.model("--token-ms 10", host=SIZE) for name in "abc"}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="500ms", hold="300ms")) as serve:
        streams = [Stream(serve, name, 10) for name in "abc"]

        def turns():
            return "".join(one["model"] for one in serve.happened("decision") if one["decision"] == "admit")

        checks.check(serve.wait_for(lambda: len(turns()) > 9, 600), f"they take turns: {turns()}")
        told = turns()
        for stream in streams:
            stream.stop()
            checks.check(not stream.bad and stream.ends, f"{stream.name}: {len(stream.ends)} answers, {stream.bad[:2]}")
        least = [min(told[i : i + 5].count(name) for i in range(len(told) - 4)) for name in "abc"]
        checks.check(min(least) > 0, f"nobody waits for more than four turns of others: {told}")


def check_hold():
    """One that has just become idle stays for its hold; who has waited for its patience does not care."""
    models = {"a": stubs.model(host=SIZE), "b": stubs.model(host=SIZE)}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="60s", hold="2s")) as serve:
        serve.chat("a", "Hello", 1)
        begun = time.monotonic()  # before the hold begins
        serve.chat("a", "Hello", 1)
        asked = stubs.Asked(serve, "b").wait()
        checks.check(asked.status == 200 and 2 < asked.ended_at - begun < 30, f"after a's hold: {asked}")
        checks.check(serve.reload(stubs.config(models, for_models=FOR_MODELS, patience="1s", hold="60s")), "another configuration")
        asked = stubs.Asked(serve, "a").wait()
        checks.check(asked.status == 200 and 0.9 < asked.seconds < 30, f"after its own patience: {asked}")


def check_persistent():
    """A persistent model is never evicted, idle or not, however long somebody waits."""
    models = {"keeps": stubs.model(host=SIZE, persistent=True), "b": stubs.model(host=SIZE), "c": stubs.model(host="20M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="0s")) as serve:
        serve.chat("keeps", "Hello", 1)
        asked = stubs.Asked(serve, "b").wait()
        checks.check(asked.status == 503 and asked.error.get("code") == "insufficient_memory", f"b has no place: {asked}")
        checks.check(serve.chat("c", "Hello", 1)["choices"], "c has")
        checks.check(set(serve.states()) == {"keeps", "c"}, f"{serve.states()}")


def check_priority():
    """Of two that wait for a busy third, the one with the higher priority is first, though it came later."""
    models = {"a": stubs.model(host=SIZE), "low": stubs.model(host=SIZE), "high": stubs.model(host=SIZE, priority=5)}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="60s")) as serve:
        serve.chat("a", "Hello", 1)
        busy = stubs.Asked(serve, "a", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "the third is busy")
        asked = {}
        for name in ("low", "high"):
            asked[name] = stubs.Asked(serve, name)
            checks.check(serve.wait_for(lambda one=name: stubs.waits(serve, one) == 1), f"{name} waits")
        stubs.go(serve, "a")
        checks.check(all(one.wait().status == 200 for one in (busy, *asked.values())), f"{busy}, {[str(one) for one in asked.values()]}")
        order = [row["model"] for row in serve.ask("/api/metrics/activity")["rows"]]
        checks.check(order == ["low", "high", "a", "a"], f"the last one first: {order}")


def check_queues():
    """More than may wait: 429 for one model, 503 over all; each at once, and what waits is served."""
    models = {name: stubs.model(host="20M", concurrency=1) for name in "ab"}
    text = stubs.config(models, for_models=FOR_MODELS, limits={"queued_model": 2, "queued": 3})
    with stubs.start(text) as serve:
        for name in "ab":
            serve.chat(name, "Hello", 1)
        running = [stubs.Asked(serve, name, hold=True) for name in "ab"]
        checks.check(serve.wait_for(lambda: all(one["running"] for one in serve.ask("/running")["running"])), "both are busy")
        waiting = [stubs.Asked(serve, "a", n=1) for _ in range(2)]
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["waiting"] == 2), "two wait")
        third = stubs.Asked(serve, "a").wait()
        checks.check(third.status == 429 and third.error.get("code") == "model_queue_full", f"a's queue is full: {third}")
        checks.check(int(third.reply.get("Retry-After", 0)) > 0, f"when to come again: {third.reply}")
        waiting.append(stubs.Asked(serve, "b", n=1))
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "b")["waiting"] == 1), "and one")
        fourth = stubs.Asked(serve, "b").wait()
        checks.check(fourth.status == 503 and fourth.error.get("code") == "queue_full", f"all queues are: {fourth}")
        checks.check(all(one.is_alive() for one in running + waiting), "each was told while all the others went on")
        for name in "ab":
            stubs.go(serve, name)
        checks.check(all(one.wait().status == 200 for one in running + waiting), f"{[str(one) for one in running + waiting]}")


def check_concurrency():
    """No more requests at a time than the model's limit."""
    models = {"a": stubs.model("-np 8", host="20M", concurrency=3)}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        serve.chat("a", "Hello", 1)
        stub = stubs.behind(serve, "a")
        asked = [stubs.Asked(serve, "a", hold=True) for _ in range(12)]
        for n_left in (9, 6, 3, 0):
            checks.check(serve.wait_for(lambda n=n_left: [stubs.row_of(serve, "a")[key] for key in ("running", "waiting")] == [3, n]),
                         f"three run, {n_left} wait: {stubs.row_of(serve, 'a')}")
            checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_running"] == 3), "the server has three")
            time.sleep(0.1)
            told = stub.ask("/stub")
            checks.check((told["n_running"], told["n_requests"]) == (3, 13 - n_left), f"and no more: {told}")
            stub.ask("/stub/go")
        checks.check(all(one.wait().status == 200 for one in asked), f"{[str(one) for one in asked][:2]}")


def check_groups():
    """swap: one of a group at a time; exclusive: others go; a persistent group stays; without swap they run together."""
    models = {name: stubs.model(host="10M") for name in ("s1", "s2", "t1", "t2", "k1", "free")}
    groups = {"swaps": {"swap": True, "exclusive": True, "members": ["s1", "s2"]},
              "together": {"swap": False, "exclusive": False, "members": ["t1", "t2"]},
              "keeps": {"swap": False, "exclusive": False, "persistent": True, "members": ["k1"]}}
    # room for all, whatever the stubs themselves are seen to take: it is the groups that unload
    with stubs.start(stubs.config(models, for_models=10 * FOR_MODELS, groups=groups)) as serve:
        for name, expected in (("k1", {"k1"}), ("t1", {"k1", "t1"}), ("t2", {"k1", "t1", "t2"}), ("free", {"k1", "t1", "t2", "free"}),
                               ("s1", {"k1", "s1", "free"}), ("s2", {"k1", "s2", "free"}), ("s1", {"k1", "s1", "free"})):
            serve.chat(name, "Hello", 1)
            checks.check(set(serve.states()) == expected, f"with {name}: {serve.states()}, and not {expected}")


def main():
    harness.require()
    parts = [(check_lone_request, check_queues), (check_hold, check_persistent, check_priority), (check_concurrency, check_groups, check_round)]
    stubs.run_beside(checks, parts)
    checks.end()


main()
