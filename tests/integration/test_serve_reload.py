# SPDX-License-Identifier: MIT
"""A configuration that changes while the router runs: by SIGHUP and by its file, with requests that run and wait."""

import time

import harness
import stubs

checks = harness.Checks()


def reload(serve, text):
    checks.check(serve.reload(text), f"read anew: {serve.log()[-500:]}")


def argv_of(serve, name):
    return stubs.behind(serve, name).ask("/stub")["argv"]


def check_changed():
    """A model that changed: what runs finishes in the old process, what waits and comes is served by the new one; others stay."""
    before = {"a": stubs.model("--alias old", host="20M", concurrency=1), "b": stubs.model(host="20M")}
    after = {"a": stubs.model("--alias new", host="20M"), "b": stubs.model(host="20M", ttl="100s", aliases=["bee"])}
    with stubs.start(stubs.config(before)) as serve:
        for name in "ab":
            serve.chat(name, "Hello", 1)
        pids = serve.children()
        running = stubs.Asked(serve, "a", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "one runs")
        waiting = stubs.Asked(serve, "a", n=2)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["waiting"] == 1), "one waits")
        reload(serve, stubs.config(after))
        late = stubs.Asked(serve, "a", n=2)
        checks.check(stubs.row_of(serve, "a")["state"] == "draining" and running.is_alive(), "it drains")
        stubs.go(serve, "a")
        checks.check(running.wait().status == 200 and b'"model": "old"' in running.data, f"what ran finishes: {running}")
        for one in (waiting, late):
            checks.check(one.wait().status == 200 and b'"model": "new"' in one.data, f"the others are the new one's: {one}")
        checks.check(serve.children()["b"] == pids["b"] and serve.children()["a"] != pids["a"], "one process is new, one is not")
        checks.check(serve.chat("bee", "Hello", 1)["choices"], "what needs no start holds at once")
        checks.check(stubs.row_of(serve, "b")["ttl"] == 100, "a new ttl too")
        for _ in range(3):
            reload(serve, stubs.config(after))
        serve.chat("a", "Hello", 1)
        checks.check(serve.log().count("a: starting") == 2, "the same once more changes nothing")


def check_bad():
    """One that cannot be read leaves everything as it was, and is told with its line."""
    models = {"a": stubs.model(host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        pids = serve.children()
        for text, word in (("models: {a: {cmd: [\n", "serve.yaml:"), ("models:\n  a: {modle: x.gguf}\n", "model"), ("", "")):
            told = serve.reload(text, "configuration not read anew: ")
            line = [line for line in serve.log().splitlines() if "configuration not read anew: " in line][-1]
            checks.check(told and word in line, f"it is told: {line}")
            checks.check(serve.chat("a", "Hello", 1)["choices"] and serve.children() == pids, "and everything is as it was")
        reload(serve, stubs.config(models | {"c": stubs.model(host="20M")}))
        checks.check(serve.chat("c", "Hello", 1)["choices"] and serve.children()["a"] == pids["a"], "then a good one counts")


def check_removed():
    """A model that is gone: what runs finishes, what waits gets 404 at once, be it busy, starting or stopped."""
    models = {"busy": stubs.model(host="20M", concurrency=1), "slow": stubs.model("--load-seconds 300", host="20M"),
              "stays": stubs.model(host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("busy", "Hello", 1)
        running = stubs.Asked(serve, "busy", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["running"] == 1), "one runs")
        waiting = [stubs.Asked(serve, "busy"), stubs.Asked(serve, "slow")]
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["waiting"] == 1 and "slow" in serve.children()), "two wait")
        pid = serve.children()["slow"]
        reload(serve, stubs.config({"stays": models["stays"]}))
        for one in waiting:
            checks.check(one.wait().status == 404 and one.error.get("code") == "model_not_found", f"told: {one}")
        checks.check(running.is_alive(), "what runs does not end for that")
        stubs.go(serve, "busy")
        checks.check(running.wait().status == 200, f"and finishes: {running}")
        asked = stubs.Asked(serve, "busy").wait()
        checks.check(asked.status == 404, f"nobody is called so: {asked}")
        checks.check(serve.wait_for(lambda: not stubs.lives(pid) and serve.states() == {}), f"nothing is left: {serve.states()}")
        checks.check([one["id"] for one in serve.ask("/v1/models")["data"]] == ["stays"], "nor in the list")
        checks.check({one["model"] for one in serve.ask("/api/memory")["models"]} == {"stays"}, "nor in the books")
        reload(serve, stubs.config(models))
        checks.check(serve.chat("busy", "Hello", 1)["choices"], "it can come back")


def check_starting():
    """A model that changes while it starts is not started twice for nothing, and comes up as it is now."""
    before, after = {"a": stubs.model("--load-seconds 300 --alias old", host="20M")}, {"a": stubs.model("--alias new", host="20M")}
    with stubs.start(stubs.config(before)) as serve:
        asked = stubs.Asked(serve, "a")
        checks.check(serve.wait_for(lambda: "a" in serve.children()), "it starts")
        reload(serve, stubs.config(after))
        checks.check(asked.wait().status == 200, f"served by the new one: {asked}")
        checks.check(b'"model": "new"' in asked.data, f"{asked}")


def check_mended():
    """A model that did not start is tried at once when its configuration has changed."""
    with stubs.start(stubs.config({"a": stubs.model("--die-with oh", host="20M")})) as serve:
        for _ in range(3):
            stubs.Asked(serve, "a").wait()
            time.sleep(1.1)
        checks.check(stubs.Asked(serve, "a").wait().status == 503, "it fails, and is not tried now")
        reload(serve, stubs.config({"a": stubs.model(host="20M")}))
        asked = stubs.Asked(serve, "a").wait()
        checks.check(asked.status == 200, f"mended: {asked}")


def check_file():
    """The file is looked at by itself; the budget and the keys change too."""
    models = {"a": stubs.model(host="60M"), "b": stubs.model(host="60M")}
    with stubs.start(stubs.config(models, for_models=130 * harness.MIB)) as serve:
        for name in "ab":
            serve.chat(name, "Hello", 1)
        checks.check(len(serve.states()) == 2, f"both fit: {serve.states()}")
        serve.rewrite(stubs.config(models, for_models=70 * harness.MIB, apiKeys=["k"]))
        checks.check(serve.wait_for(lambda: "configuration read anew" in serve.log()), "it is seen")
        checks.check(serve.request("/v1/models")[0] == 401, "keys hold from now on")
        serve.headers = {"Authorization": "Bearer k"}
        checks.check(len(serve.states()) == 2, "no demand, no evictions: both stay")

        def limit():
            return serve.ask("/api/memory")["pools"][0]["limit_bytes"]

        checks.check(serve.wait_for(lambda: limit() == 70 * harness.MIB), f"the new budget: {limit()}")
        serve.ask("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: "a" not in serve.states()), "it is ended")
        serve.chat("a", "Hello", 1)
        checks.check(set(serve.states()) == {"a"}, f"now one at a time: {serve.states()}")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_changed, check_bad), (check_removed, check_starting, check_mended), (check_file,)])
    checks.end()


main()
