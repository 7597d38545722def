# SPDX-License-Identifier: MIT
"""What a configuration says of a model, with a real start each: names, filters, commands, times, loading, peers."""

import json
import pathlib
import tempfile
import time

import client
import harness
import stubs

checks = harness.Checks()


def last(serve, name):
    """What the server of a model was asked last."""
    return stubs.behind(serve, name).ask("/stub")["last"]


def check_names():
    """Aliases, useModelName, an id with slashes; a name that nobody has; a request that names none."""
    models = {"a": stubs.model(host="20M", aliases=["gpt-4", "other/name"], useModelName="inner"),
              "org/b": stubs.model(host="20M", unlisted=True, name="Bee", description="a b"),
              "c": stubs.model(host="20M", metadata={"x": [1, 2.5]})}
    with stubs.start(stubs.config(models)) as serve:
        for name in ("a", "gpt-4", "other/name"):
            checks.check(serve.chat(name, "Hello", 1)["choices"], f"{name} answers")
            checks.check(last(serve, "a")["body"]["model"] == "inner", f"asked as inner: {last(serve, 'a')}")
        checks.check(serve.chat("org/b", "Hello", 1)["choices"] and last(serve, "org/b")["body"]["model"] == "org/b", "as it is")
        asked = stubs.Asked(serve, "nobody").wait()
        checks.check(asked.status == 404 and asked.error.get("code") == "model_not_found" and asked.error["param"] == "model", f"{asked}")
        checks.check(asked.error["message"] == "no model is called nobody; /v1/models lists all 2", f"how many there are: {asked.error}")
        for name, meant in (("gtp-4", "gpt-4"), ("other_nam", "other/name")):
            asked = stubs.Asked(serve, name).wait()
            checks.check(f'did you mean "{meant}"?' in asked.error["message"], f"the nearest one: {asked.error}")
        asked = stubs.Asked(serve, "org/bb").wait()
        checks.check("did you mean" not in asked.error["message"], f"what is unlisted is told to nobody: {asked.error}")
        for path, name in (("/logs/stream/gpt-5", "gpt-4"), ("/upstream/gpt-3/props", "gpt-4"), ("/upstream/other/nme/props?x=/", "other/name")):
            status, data = serve.request(path)
            checks.check(status == 404 and f'did you mean "{name}"?' in stubs.error_of(data)["message"], f"{path}: {status}: {data}")
        status, data = serve.request("/v1/chat/completions", {"messages": []})
        checks.check(status == 400 and stubs.error_of(data).get("code") == "model_missing", f"{status}: {data}")
        row = serve.ask("/api/activity")["rows"][0]
        checks.check(row["code"] == "model_missing", f"the log of activity says why: {row}")
        for bad in (b"{", b"[1]", b"\xff\xfe"):
            status, data = serve.request("/v1/chat/completions", bad)
            checks.check(status == 400 and stubs.error_of(data).get("code") == "body", f"{bad}: {status}: {data}")
        listed = {one["id"]: one for one in serve.ask("/v1/models")["data"]}
        checks.check(set(listed) == {"a", "c"}, f"what is listed: {set(listed)}")
        checks.check(set(listed["a"]["aliases"]) == {"gpt-4", "other/name"} and listed["c"]["metadata"] == {"x": [1, 2.5]}, f"{listed}")
        checks.check(listed["a"]["status"] == {"value": "loaded"} and listed["c"]["status"] == {"value": "unloaded"}, f"{listed}")


def check_filters():
    filters = {"stripParams": "temperature, top_p", "setParams": {"top_k": 7, "seed": 1},
               "setParamsByID": {"a:low": {"seed": 5, "extra": {"x": True}}}}
    with stubs.start(stubs.config({"a": stubs.model(host="20M", filters=filters)})) as serve:
        serve.chat("a", "Hello", 1, top_p=0.5, top_k=1)
        body = last(serve, "a")["body"]
        checks.check("temperature" not in body and "top_p" not in body and body["top_k"] == 7 and body["seed"] == 1, f"{body}")
        serve.chat("a:low", "Hello", 1)
        body = last(serve, "a")["body"]
        checks.check(body["seed"] == 5 and body["top_k"] == 7 and body["extra"] == {"x": True}, f"by the name that was used: {body}")
        sent = b'{"model":"a","messages":[],"big":12345678901234567890.5,"max_tokens":1}'
        serve.request("/v1/chat/completions", sent)
        checks.check(last(serve, "a")["body"]["big"] == json.loads(sent)["big"], f"numbers are as they were: {last(serve, 'a')}")


def check_upstream():
    """/upstream/MODEL/...: any method, with its query, and a body of any kind."""
    with stubs.start(stubs.config({"org/a": stubs.model(host="20M"), "b": stubs.model(host="20M", aliases=['a "name"%'])})) as serve:
        checks.check(serve.ask("/upstream/org/a/props?x=%20y&x=2")["model_path"] == "stub.gguf", "GET")
        answer = serve.ask("/upstream/org/a/tokenize", {"content": "one two three"})
        checks.check(answer["tokens"] == [0, 1, 2], f"POST: {answer}")
        serve.request("/upstream/org/a/tokenize?a=%2Fb&c=d%20e", {"content": "x"})
        checks.check(last(serve, "org/a")["path"] == "/tokenize?a=%2Fb&c=d%20e", f"the target as it was sent: {last(serve, 'org/a')}")
        for method in ("DELETE", "PUT", "PATCH", "OPTIONS"):
            status, data = serve.request("/upstream/org/a/props", method=method)
            known = method == "OPTIONS" and status == 204  # a browser's question, answered by the router
            checks.check(known or (status == 501 and b"nsupported method" in data),
                         f"{method} goes to the server, which does not know it: {status}: {data[:100]}")
        connection = client.http.client.HTTPConnection(serve.host, serve.port, timeout=60)
        for _ in range(2):  # twice over one connection
            connection.request("HEAD", "/upstream/org/a/props")
            response = connection.getresponse()
            checks.check(response.status == 200 and response.read() == b"", f"HEAD: {response.status}")
        connection.request("GET", "/upstream/org/a/props")
        checks.check(b"total_slots" in connection.getresponse().read(), "and GET after it")
        connection.close()
        row = serve.ask("/api/metrics/activity")["rows"][1]
        checks.check(row["outcome"] == "ok", f"the row of a HEAD: {row}")
        serve.request("/upstream/org/a?x=1", {})
        checks.check(last(serve, "org/a")["path"] == "/?x=1", f"a query behind the name: {last(serve, 'org/a')['path']}")
        for path in ("/upstream/org%2Fa/props", "/upstream/a%20%22name%22%25/props"):
            checks.check(serve.request(path)[0] == 200, f"{path}: a name that is encoded")
        status, data = serve.request("/upstream/nobody/props")
        checks.check(status == 404 and stubs.error_of(data).get("code") == "model_not_found", f"{status}: {data}")
        status, _ = serve.request("/upstream/org/a/nothing/there")
        checks.check(status == 404, f"the server's own 404: {status}")
        status, data = serve.request("/props?model=b")
        checks.check(status == 200 and json.loads(data)["total_slots"] == 4, f"/props?model=: {status}: {data}")
        status, data = serve.request("/v1/chat/completions")
        checks.check(status == 405 and stubs.error_of(data).get("code") == "method", f"GET of a POST page: {status}: {data}")


def check_command():
    """env, macros, cmdStop, proxy, checkEndpoint: as the child sees them."""
    with tempfile.TemporaryDirectory() as folder:
        mark = pathlib.Path(folder) / "stopped"
        models = {"a": stubs.model("-c ${size} --alias ${MODEL_ID}", host="20M", env=["STUB_X=${word} z", "STUB_P=${PORT}"],
                                   macros={"size": 512}, cmdStop=["sh", "-c", f"echo ${{PID}} ${{PORT}} > {mark}; kill -9 ${{PID}}"]),
                  "b": stubs.model("--load-seconds 30", host="20M", checkEndpoint="none")}
        with stubs.start(stubs.config(models, macros={"word": "${inner}!", "inner": "hello", "size": 64})) as serve:
            serve.chat("a", "Hello", 1)
            told = stubs.behind(serve, "a").ask("/stub")
            env = told["environment"]
            checks.check(env["STUB_X"] == "hello! z" and env["STUB_P"] == str(stubs.behind(serve, "a").port), f"env: {env.get('STUB_X')}, {env.get('STUB_P')}")
            checks.check(told["argv"][2:] == ["-c", "512", "--alias", "a"], f"argv: {told['argv']}")
            pid, port = serve.children()["a"], stubs.behind(serve, "a").port
            checks.check(pid == told["pid"], "the pid that is told is the server's")
            serve.request("/api/models/unload/a", {})
            checks.check(serve.wait_for(lambda: not stubs.lives(pid)), "it ends")
            checks.check(mark.exists() and mark.read_text().split() == [str(pid), str(port)], "by its own command")
            asked = stubs.Asked(serve, "b").wait()
            checks.check(asked.status == 503 and asked.error.get("message") == "Loading model" or asked.status == 502,
                         f"not asked whether it is ready: the server's own answer: {asked}")


def check_load():
    """Preload, /api/models/load and unload, /unload, ttl."""
    models = {"pre": stubs.model(host="20M"), "marked": stubs.model(host="20M", preload=True), "short": stubs.model(host="20M", ttl="4s"),
              "slow": stubs.model("--load-seconds 300", host="20M"), "bad": stubs.model("--die-with oh", host="20M"),
              "busy": stubs.model(host="20M", concurrency=1)}
    text = stubs.config(models, hooks={"on_startup": {"preload": ["pre"]}})
    with stubs.start(text) as serve:
        checks.check(serve.wait_for(lambda: serve.states() == {"pre": "ready", "marked": "ready"}), f"preloaded: {serve.states()}")
        checks.check(serve.ask("/api/models/load/short", {})["status"] == "loaded" and serve.states().get("short") == "ready", "loaded")
        checks.check(serve.wait_for(lambda: "short" not in serve.states()), "and gone after its ttl")
        status, data = serve.request("/api/models/load/bad", {})
        checks.check(status == 503 and stubs.error_of(data).get("code") == "crashed", f"one that does not start: {status}: {data}")
        for path in ("/api/models/load/nobody", "/api/models/unload/nobody"):
            status, data = serve.request(path, {})
            checks.check(status == 404 and stubs.error_of(data).get("code") == "model_not_found", f"{path}: {status}: {data}")
        serve.ask("/api/models/unload/pre", {})
        checks.check(serve.wait_for(lambda: "pre" not in serve.states()), "unloaded")
        connection = client.http.client.HTTPConnection(serve.host, serve.port)
        connection.request("POST", "/api/models/load/slow", b"{}")
        checks.check(serve.wait_for(lambda: "slow" in serve.children()), "it starts")
        connection.close()
        checks.check(serve.wait_for(lambda: "slow" not in serve.states()), "who asked has left: given up")
        running = stubs.Asked(serve, "busy", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy").get("running") == 1), "one runs")
        checks.check(serve.ask("/api/models/load/busy", {})["status"] == "loaded" and running.is_alive(), "busy, and loaded")
        checks.check(serve.ask("/unload")["status"] == "ok", "/unload")
        checks.check(stubs.row_of(serve, "busy")["state"] == "draining", "what is asked finishes first")
        stubs.go(serve, "busy")
        checks.check(running.wait().status == 200, f"{running}")
        checks.check(serve.wait_for(lambda: serve.states() == {}), f"all are gone: {serve.states()}")
        checks.check(serve.chat("pre", "Hello", 1)["choices"], "and come again")


def check_ttl_in_use():
    """Idle is counted from the end of the last request: the whole ttl is left behind one that was longer than that."""
    models = {"a": stubs.model("--token-ms 50", host="20M", ttl="4s")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        pid = serve.children()["a"]
        asked = stubs.Asked(serve, "a", n=101).wait()
        checks.check(asked.status == 200 and serve.children().get("a") == pid, f"a request longer than its ttl: {asked}")
        checks.check(serve.wait_for(lambda: not stubs.lives(pid)), "and then it goes")
        took = time.monotonic() - asked.begun
        checks.check(took > 5 + 4, f"no sooner than that: {took}")


def check_peers():
    """Another router as a peer: by "peer/model" and by its bare name; keys, filters, errors."""
    models = {"far": stubs.model("--token-ms 5", host="20M"), "both": stubs.model(host="20M")}
    with stubs.start(stubs.config(models, apiKeys=["their-secret"])) as other:
        other.headers = {"Authorization": "Bearer their-secret"}
        peers = {"there": {"proxy": f"http://127.0.0.1:{other.port}", "apiKey": "their-secret", "models": ["far", "both", "none"],
                           "filters": {"setParams": {"seed": 9}, "stripParams": "temperature"}},
                 "nowhere": {"proxy": "http://127.0.0.1:1", "models": ["lost"]}}
        with stubs.start(stubs.config({"both": stubs.model(host="20M")}, peers=peers, apiKeys=["my-secret"])) as serve:
            serve.headers = {"Authorization": "Bearer my-secret"}
            for name in ("there/far", "far", "there/both"):
                checks.check(serve.chat(name, "Hello", 1)["choices"], f"{name} answers")
            got = last(other, "far")
            checks.check(got["body"]["model"] == "far" and got["body"]["seed"] == 9 and "temperature" not in got["body"], f"{got}")
            checks.check("my-secret" not in json.dumps(got), "our key goes to nobody")
            checks.check(serve.states() == {}, f"both is not started for there/both: {serve.states()}")
            serve.chat("both", "Hello", 1)
            checks.check(serve.states() == {"both": "ready"}, "the own one is before the peer's")
            events = serve.stream("/v1/chat/completions", stubs.body("far", n=3))
            checks.check(sum("content" in event["choices"][0]["delta"] for event in events) >= 3, f"a stream: {events}")
            leaver = stubs.Leaver(serve, "far", n=300000, stream=True)
            checks.check(other.wait_for(lambda: stubs.row_of(other, "far")["running"] == 1), "it runs there")
            leaver.leave()
            checks.check(other.wait_for(lambda: stubs.row_of(other, "far")["running"] == 0), "who leaves, leaves there too")
            asked = stubs.Asked(serve, "lost").wait()
            checks.check(asked.status == 502 and asked.error.get("code") == "model_unreachable", f"a peer that is not there: {asked}")
            asked = stubs.Asked(serve, "none").wait()
            checks.check(asked.status == 404 and asked.error.get("code") == "model_not_found", f"the peer's own error: {asked}")
            ids = {one["id"] for one in serve.ask("/v1/models")["data"]}
            checks.check(ids == {"both", "there/far", "there/both", "there/none", "nowhere/lost"}, f"{ids}")
            rows = serve.ask("/api/metrics/activity")["rows"]
            checks.check(rows[-1]["model"] == "there/far" and rows[-1]["output_tokens"] == 1, f"rows: {rows[-1]}")
            pages = serve.request("/logs")[1] + serve.request("/api/memory")[1] + serve.log().encode()
            checks.check(b"secret" not in pages, "keys are in no log")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_names, check_filters, check_upstream), (check_load, check_ttl_in_use), (check_command, check_peers)])
    checks.end()


main()
