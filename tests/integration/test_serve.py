# SPDX-License-Identifier: MIT
"""The router with real llama-servers and real models: SmolLM2 and Gemma in a host budget that holds one of them.

Swaps, streams, clients that leave, a child that is killed, a configuration that changes, the router killed: each request
ends in exactly one of an answer, its client's leaving, or a JSON error; the sum of resident memory over the router and all
below it is within the budget at every look, ten times a second; nothing with the router's mark is left behind."""

import collections
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

import cgroup_box
import harness
import llama_server
import router

BUDGET_MIB = 400
CTX = 1024
ARGS = f"-c {CTX} -np 2 -t 1"
STORM_S = float(os.environ.get("BT_SERVE_STORM_S", "25"))
N_CLIENTS = 6

checks = harness.Checks()


def config(**changes):
    """Two models, and what a test changes."""
    smol_args = changes.get("smol_args", ARGS)
    return f"""
ram_budget: {BUDGET_MIB}M
hold: 0
patience: 5s
models:
  smol: {{model: {harness.SMOLLM2}, args: "{smol_args}", aliases: [gpt-4o-mini]}}
  gemma: {{model: {harness.GEMMA3}, args: "{ARGS}"}}
{changes.get("more", "")}
"""


def direct_text(model, prompt, n):
    with llama_server.Server("-m", model, *ARGS.split()) as server:
        return server.complete(prompt, n)["content"]


def check_swaps(serve):
    """One model, the other, the first again: the texts are those of llama-server alone."""
    prompts = {"smol": harness.PROMPT, "gemma": "Once upon a time"}
    files = {"smol": harness.SMOLLM2, "gemma": harness.GEMMA3}
    expected = {name: direct_text(files[name], prompts[name], 12) for name in files}
    for name in ("smol", "gemma", "smol", "gemma"):
        text = serve.complete(name, prompts[name], 12)["content"]
        checks.check(text == expected[name], f"{name}: {text!r}, and alone {expected[name]!r}")
    running = serve.states()
    checks.check(running.get("gemma") == "ready", f"gemma runs: {running}")
    answer = serve.chat("gpt-4o-mini", "Hello")
    checks.check(answer["choices"][0]["message"]["content"], f"an alias answers: {answer}")


def check_maps(serve):
    """Nothing of llama.cpp is mapped into the router, and its models are not its own."""
    maps = pathlib.Path(f"/proc/{serve.pid}/maps").read_text()
    checks.check("libllama" not in maps and "libggml" not in maps, "libllama or ggml is mapped into the router")


class Storm:
    """Clients that ask for one model or the other, whole or streamed, and now and then leave in the middle."""

    def __init__(self, serve, seed):
        self.serve, self.random = serve, random.Random(seed)
        self.outcomes, self.errors, self.odd = collections.Counter(), collections.Counter(), []
        self.lock = threading.Lock()

    def note(self, outcome, detail=None):
        with self.lock:
            self.outcomes[outcome] += 1
            if detail:
                self.errors[detail] += 1

    def leave(self, body):
        connection, response = self.serve.open("/v1/chat/completions", body, timeout_s=60)
        if response.status == 200:
            response.read(20)
        connection.close()
        self.note("left")

    def one(self, chance):
        model = "smol" if chance.random() < 0.5 else "gemma"
        body = {"model": model, "messages": [{"role": "user", "content": "Tell me a word."}],
                "max_tokens": chance.randint(1, 12), "stream": chance.random() < 0.5}
        if chance.random() < 0.15:
            try:
                self.leave(body | {"stream": True, "max_tokens": 200})
            except (OSError, http.client.HTTPException):
                self.note("left")
            return
        try:
            connection, response = self.serve.open("/v1/chat/completions", body, timeout_s=300)
        except (OSError, http.client.HTTPException) as why:
            self.note("no answer", repr(why))
            return
        try:
            self.read(body, response)
        finally:
            connection.close()

    def read(self, body, response):
        try:
            data = response.read()
        except (OSError, http.client.HTTPException):
            self.note("broken")
            return
        if response.status == 200:
            whole = b"[DONE]" in data if body["stream"] else "choices" in json.loads(data)
            self.note("ok" if whole else "broken")
            return
        try:
            self.note("error", f"{response.status} {json.loads(data)['error']['code']}")
        except (ValueError, KeyError):
            self.note("odd", data[:200].decode(errors="replace"))

    def run(self, seconds):
        end = time.monotonic() + seconds
        seeds = [self.random.random() for _ in range(N_CLIENTS)]

        def client(seed):
            chance = random.Random(seed)
            while time.monotonic() < end:
                self.one(chance)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in seeds]
        for thread in threads:
            thread.start()
        return threads


def check_storm(serve):
    """While clients ask, a child is killed and the configuration changes."""
    storm = Storm(serve, 7)
    before = serve.ask("/api/metrics/activity?limit=1000")["rows"]
    threads = storm.run(STORM_S)
    time.sleep(STORM_S / 3)
    killed = kill_a_child(serve)
    time.sleep(STORM_S / 4)
    serve.rewrite(config(smol_args=f"-c {CTX} -np 1 -t 1", more="  third: {model: "
                                   f"{harness.SMOLLM2}, args: \"-c 256 -np 1 -t 1\"}}\n"))
    serve.process.send_signal(signal.SIGHUP)
    for thread in threads:
        thread.join()
    counts = storm.outcomes
    print(f"storm: {dict(counts)}, errors {dict(storm.errors)}, a child killed: {killed}")
    checks.check(counts["ok"] > 0, f"some are answered: {counts}")
    checks.check(counts["odd"] == 0, f"every error is JSON: {storm.errors}")
    checks.check(counts["no answer"] == 0, f"every request is answered: {storm.errors}")
    checks.check(counts["broken"] <= 4, f"only the killed child's streams are broken off: {counts}")
    checks.check(serve.wait_for(lambda: not any(one["running"] or one["waiting"]
                                                for one in serve.ask("/running")["running"])), "nothing is left running")
    names = {one["id"] for one in serve.ask("/v1/models")["data"]}
    checks.check(names == {"smol", "gemma", "third"}, f"the configuration was read anew: {names}")
    asked = sum(counts.values())

    def ended():
        after = len(serve.ask("/api/metrics/activity?limit=1000")["rows"])
        return asked if after == 1000 else after - len(before)

    checks.check(serve.wait_for(lambda: ended() == asked), f"{asked} began, {ended()} ended")


def kill_a_child(serve):
    for _ in range(100):
        children = serve.children()
        if children:
            try:
                os.kill(next(iter(children.values())), signal.SIGKILL)
                return True
            except OSError:
                pass
        time.sleep(0.05)
    return False


def check_reload_keeps(serve):
    """A change of one model leaves the process of another as it is."""
    serve.chat("gemma", "Hello", 2)
    before = serve.children()
    serve.rewrite(config(smol_args=f"-c {CTX // 2} -np 1 -t 1"))
    serve.process.send_signal(signal.SIGHUP)
    gone = serve.wait_for(lambda: {one["id"] for one in serve.ask("/v1/models")["data"]} == {"smol", "gemma"})
    checks.check(gone, "a model that is configured no more is gone")
    checks.check(serve.children().get("gemma") == before.get("gemma"), "gemma's process was not disturbed")


def check_kill_router(serve):
    """After kill -9 of the router nothing that carries its mark lives."""
    serve.chat("smol", "Hello", 2)
    mark = serve.mark()
    checks.check(mark is not None, "children carry the mark")
    status, _ = serve.stop(signal.SIGKILL)
    checks.check(status == -signal.SIGKILL, f"the router was killed: {status}")
    checks.check(serve.wait_for(lambda: not mark or not router.marked(mark)), f"left behind: {mark and router.marked(mark)}")


def check_end(serve):
    name = harness.SMOLLM2.stem
    checks.check(serve.chat(name, "Hello", 2)["choices"], "its name is the file's")
    checks.check(serve.complete("", harness.PROMPT, 2)["content"], "the only model needs no name")
    mark = serve.mark()
    status, log = serve.stop()
    checks.check(status == 0, f"SIGTERM ends it in order: {status}: {log[-600:]}")
    checks.check(not mark or not router.marked(mark), "nothing is left")


def check_streams():
    """A model with a RAM budget of its own runs with the memory device, and writes what it writes alone."""
    text = (f"models:\n  tight: {{model: {harness.SMOLLM2}, args: \"-c 512 -np 1 -t 1\", ram_budget: 110M}}\n")
    with llama_server.Server("-m", harness.SMOLLM2, "-c", 512, "-np", 1, "-t", 1, "--no-repack") as server:
        expected = server.complete(harness.PROMPT, 12)["content"]
    with router.Router(text) as serve:
        found = serve.complete("tight", harness.PROMPT, 12)["content"]
        one = serve.ask("/running")["running"][0]
        checks.check(found == expected, f"streamed: {found!r}, and alone {expected!r}")
        checks.check(one["streams"] and one["need_from"] == "budget", f"it streams: {one}")
        checks.check(one["reserved_bytes"]["host"] == 110 << 20, f"its budget is what is reserved: {one}")
        checks.check(one["peak_bytes"]["host"] <= 110 << 20, f"and kept: {one}")


def check_mapped():
    """Without a budget of its own: the system calls a mapped model's pages free, the router does not."""
    with router.Router([harness.SMOLLM2], model_args=("-c", 512, "-np", 1, "-t", 1)) as serve:
        def host():
            return serve.ask("/api/memory")["pools"][0]

        checks.check(serve.wait_for(lambda: host()["limit_bytes"]), "its first look")
        first = host()
        serve.complete("", "Hello", 2)
        pid = next(iter(serve.children().values()))
        anon, mapped = cgroup_box.status_bytes(pid, "RssAnon", "RssFile")
        checks.check(mapped > 80 * harness.MIB, f"the model is mapped: {mapped}")

        def is_near(pool):
            return abs(pool["limit_bytes"] - pool["free_bytes"] - anon) < 16 * harness.MIB

        checks.check(serve.wait_for(lambda: is_near(host())), f"the limit is what is free and what cannot be taken back: {host()} {anon}")
        pool = host()
        checks.check(abs(pool["limit_bytes"] - first["limit_bytes"]) < 1 << 30, f"it is as before: {first} {pool}")
        one = serve.ask("/running")["running"][0]
        checks.check(one["reserved_bytes"]["host"] > anon + mapped // 2, f"of it the model holds the mapped pages too: {one}")


def main():
    harness.require(harness.SMOLLM2, harness.GEMMA3, llama_server.PROGRAM)
    with router.Router(config()) as serve:
        if not checks.check(serve.works, f"it starts: {serve.log()[-800:]}"):
            checks.end()
        check_maps(serve)
        check_swaps(serve)
        check_storm(serve)
        check_reload_keeps(serve)
        check_kill_router(serve)
        peak = serve.peak_tree_bytes / harness.MIB
        print(f"peak of the tree {peak:.1f} MiB of {BUDGET_MIB}, {serve.samples} looks: {serve.peak_of}")
        checks.check(serve.peak_tree_bytes <= BUDGET_MIB * harness.MIB, f"{peak:.1f} MiB: {serve.peak_of}\n{serve.log()[-3000:]}")
    with router.Router([harness.SMOLLM2], model_args=ARGS.split()) as serve:
        checks.check(serve.works, f"a model file alone is enough: {serve.log()[-500:]}")
        check_end(serve)
    check_streams()
    check_mapped()
    checks.end()


main()
