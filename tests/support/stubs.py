# SPDX-License-Identifier: MIT
"""Routers of stub servers (stub_server.py): configurations, requests in threads, and looks behind the router.

    config = stubs.config({"a": stubs.model("--mem 50M", host="80M")}, ram_budget="200M")
    with stubs.router(config) as serve:
        asked = stubs.Asked(serve, "a", "Hello", n=20)     in a thread; .join() -> status, body, seconds
        stubs.behind(serve, "a").ask("/stub")              the stub itself, past the router"""

import http.client
import json
import os
import sys
import threading
import time
import traceback

import client
import harness
import router

# What the router keeps of a budget for itself: 48 MiB (src/router/pools.c), and the bodies that it may hold.
OWN_BYTES = (48 + 16) * harness.MIB
STREAM = {"Accept": "text/event-stream"}  # else /api/events answers once
PROGRAM = harness.SOURCE / "tests/support/stub_server.py"


def model(args="", host=None, **keys):
    """A model of a configuration; host: what is declared of the host's memory. keys: more of its keys."""
    one = {"cmd": f"{sys.executable} {PROGRAM} --port ${{PORT}} {args}"} | keys
    if host:
        one["memory"] = {"host": host}
    return one


def config(models, for_models=None, **top):
    """YAML: a JSON object is one. for_models: bytes that a budget has for them."""
    limits = {"bodies": "16M"} | top.pop("limits", {})
    if for_models:
        top["ram_budget"] = for_models + OWN_BYTES
    return json.dumps({"start_port": 0, "hold": 0, "patience": "5s", "health_timeout": "600s", "limits": limits} | top | {"models": models}, indent=1) + "\n"


class Router(router.Router):
    """One that must end in good order, without a word of a sanitizer."""

    def __exit__(self, kind, *rest):
        status, log = self.stop()
        super().__exit__(kind, *rest)
        wrong = [line for line in log.splitlines() if "Sanitizer" in line or "runtime error" in line]
        if kind is None and (status != 0 or wrong):
            raise AssertionError(f"the router ended with {status}: {wrong or log[-800:]}")


def start(text, *args, **options):
    """A router that listens, or the end of the test."""
    serve = Router(text, *args, **options)
    if not serve.works:
        _, log = serve.stop()
        raise AssertionError(f"the router did not start: {log[-1500:]}")
    return serve


def body(name, text="Hello", n=4, **more):
    return {"model": name, "messages": [{"role": "user", "content": text}], "max_tokens": n} | more


def behind(serve, name):
    """A client of the server that runs for a model."""
    for one in serve.ask("/running")["running"]:
        if one["model"] == name:
            direct = client.Client()
            direct.port = int(one["proxy"].rpartition(":")[2])
            return direct
    raise AssertionError(f"{name} does not run")


def error_of(data):
    """The error of an answer; {} where it is none in JSON."""
    try:
        return json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        return {}


class Asked(threading.Thread):
    """One request in a thread: what became of it."""

    def __init__(self, serve, name, text="Hello", n=4, path="/v1/chat/completions", timeout_s=180, headers=None, **more):
        super().__init__(daemon=True)
        self.serve, self.path, self.body = serve, path, body(name, text, n, **more)
        self.timeout_s, self.headers = timeout_s, headers
        self.status, self.data, self.reply, self.why, self.seconds = 0, b"", {}, None, 0.0
        self.begun = time.monotonic()
        self.ended_at = None
        self.start()

    def run(self):
        try:
            connection, response = self.serve.open(self.path, self.body, self.timeout_s, headers=self.headers)
            self.status, self.reply = response.status, dict(response.getheaders())
            self.data = response.read()
            connection.close()
        except (OSError, http.client.HTTPException) as why:
            self.why = why
        self.ended_at = time.monotonic()
        self.seconds = self.ended_at - self.begun

    def wait(self):
        self.join()
        return self

    @property
    def error(self):
        return error_of(self.data)

    def __str__(self):
        return f"{self.status} {self.why or ''} after {self.seconds:.1f} s: {self.data[:300]!r}"


class Leaver:
    """A client that can leave at any moment: its request is sent, and its answer not waited for."""

    def __init__(self, serve, name, n=4, **more):
        data = json.dumps(body(name, n=n, **more)).encode()
        self.connection = http.client.HTTPConnection(serve.host, serve.port, timeout=180)
        self.connection.request("POST", "/v1/chat/completions", data, {"Content-Type": "application/json"} | serve.headers)

    def leave(self):
        self.connection.close()


def lives(pid):
    try:
        os.kill(pid, 0)
        return True
    except OSError:
        return False


def row_of(serve, name):
    """What /running says of one model; {}: it does not run."""
    return next((one for one in serve.ask("/running")["running"] if one["model"] == name), {})


def waits(serve, name):
    """How many wait for a model; also for one that does not run."""
    return next((one["waiting"] for one in serve.ask("/api/memory")["models"] if one["model"] == name), 0)


def go(serve, name):
    """The answers that wait for that ("hold": true) may end."""
    behind(serve, name).ask("/stub/go")


def events_of(serve):
    """(type, data) of all events that are kept."""
    return [(event["type"], event["data"]) for event in serve.ask("/api/events")]


def run_beside(checks, parts):
    """Lists of checks, each list in a thread: they mostly wait. What one raises is its failure."""

    def run(part):
        for check in part:
            begun = time.monotonic()
            try:
                check()
            except Exception:  # pylint: disable=broad-except
                checks.check(False, f"{check.__name__}: {traceback.format_exc()}")
            print(f"{check.__name__}: {time.monotonic() - begun:.1f} s")

    threads = [threading.Thread(target=run, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
