# SPDX-License-Identifier: MIT
"""The router's own pages: who may read them, what they say, and what is never in them, with stub servers."""

import http.client
import json
import pathlib
import re
import socket
import tempfile
import time

import harness
import schema
import stubs

checks = harness.Checks()
SECRET = "xyzzy-plugh"
PAGES = ("/v1/models", "/models", "/running", "/metrics", "/api/memory", "/api/requests", "/api/metrics/activity", "/api/machine", "/logs", "/logs/a",
         "/logs/proxy", "/upstream/a/props", "/props?model=a")
STREAMS = ("/api/events", "/logs/stream", "/logs/stream/a")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\[\\n\"])*\",?)*\})? (NaN|[-+]?Inf|[-+0-9.e]+)")


def raw(serve, text):
    """The answer to bytes as they are."""
    with socket.create_connection((serve.host, serve.port), timeout=60) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        connection.settimeout(20)
        data = b""
        try:
            while piece := connection.recv(65536):
                data += piece
        except TimeoutError:
            pass
    return data


def check_keys():
    """Without a key nothing but /health; with one all; Bearer, x-api-key and Basic."""
    with stubs.start(stubs.config({"a": stubs.model(host="20M")}, apiKeys=["k1", "k2"])) as serve:
        for path in PAGES + STREAMS + ("/unload", "/nothing"):
            for headers in ({}, {"Authorization": "Bearer k"}, {"Authorization": "Bearer k11"}, {"x-api-key": ""}):
                status, data = serve.request(path, headers=headers)
                checks.check(status == 401 and stubs.error_of(data).get("type") == "authentication_error", f"{path} {headers}: {status}")
        asked = stubs.Asked(serve, "a").wait()
        checks.check(asked.status == 401 and serve.request("/health")[0] == 200, f"and requests: {asked}")
        for headers in ({"Authorization": "Bearer k1"}, {"x-api-key": "k2"}, {"Authorization": "Basic eDprMQ=="}):
            checks.check(serve.request("/v1/models", headers=headers)[0] == 200, f"with {headers}")
        serve.headers = {"Authorization": "Bearer k1"}
        serve.chat("a", "Hello", 1)
        told = stubs.behind(serve, "a").ask("/stub")["last"]
        checks.check("k1" not in json.dumps(told), f"the key does not go on: {told}")
        for path in PAGES:
            status, data = serve.request(path)
            checks.check(status == 200 and b"k1" not in data, f"{path} with it: {status}: {data[:200]}")


def check_hosts():
    """Names that are not ours (DNS rebinding), and pages of others. --allowed-host adds to those of the file."""
    text = stubs.config({"a": stubs.model(host="20M")}, allowed_hosts=["box.example"], cors_origins=["https://page.example"])
    with stubs.start(text, "--allowed-host", "*.lan", "--allowed-host=proxy.example:443") as serve:
        for host, status in (("127.0.0.1", 200), ("localhost:99", 200), ("box.example", 200), ("evil.example", 403), ("", 400),
                             ("box.lan", 200), ("lan", 403), ("proxy.example:443", 200), ("proxy.example", 403)):
            answer = raw(serve, f"GET /v1/models HTTP/1.1\nHost: {host}\nConnection: close\n\n")
            good = answer.startswith(f"HTTP/1.1 {status} ".encode()) or (status == 400 and answer.startswith(b"HTTP/1.1 403 "))
            checks.check(good, f"Host {host!r}: {answer[:100]}")
        own = f"http://127.0.0.1:{serve.port}"
        for origin, may in (("https://page.example", True), ("https://evil.example", False), (own, True)):
            connection, response = serve.open("/v1/models", headers={"Origin": origin})
            allowed = response.getheader("Access-Control-Allow-Origin")
            checks.check(response.status == 200 and allowed == (origin if may else None), f"{origin} may read: {allowed}")
            connection.close()
            for path, body in (("/v1/chat/completions", stubs.body("a")), ("/unload", None), ("/upstream/a/props", None),
                               ("/props?model=a", None), ("/api/models/unload", {})):
                status, data = serve.request(path, body, headers={"Origin": origin})
                good = status == 200 if may else status == 403 and stubs.error_of(data).get("code") == "origin"
                checks.check(good, f"{origin} asks for {path}: {status}: {data[:100]}")
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            got = serve.request("/unload", headers={"Sec-Fetch-Site": site})[0]
            checks.check(got == status, f"a picture of a page that is {site}: {got}")
        checks.check(serve.request("/v1/models", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200, "links to what changes nothing")


def exposition(text):
    """Families of a page of Prometheus, each once and whole; a list of what is wrong."""
    wrong, families, samples = [], {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            if name in families:
                wrong.append(f"{name} twice")
            families[name] = line.split()[3]
        elif line and not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            if not match:
                wrong.append(line)
            elif line.rpartition(" ")[0] in samples:
                wrong.append(f"twice: {line}")
            elif not any(match[1] == name or match[1] in (name + "_sum", name + "_count", name + "_bucket") for name in families):
                wrong.append(f"no TYPE: {line}")
            samples.add(line.rpartition(" ")[0])
    return families, wrong


def check_metrics():
    """/metrics can be read, has the router's counts, and the servers' own with their model's name."""
    models = {"a": stubs.model("--metrics", host="20M"), 'q"uo\\te': stubs.model("--metrics", host="20M"), "plain": stubs.model(host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        for name in models:
            serve.chat(name, "Hello", 3)
        wanted = [f'llamacpp:tokens_predicted_total{{model="{model}"}} 3' for model in ("a", 'q\\"uo\\\\te')]
        for _ in range(5):  # a server that does not say its own within a second is left out
            status, data = serve.request("/metrics")
            text = data.decode()
            if all(line in text.splitlines() for line in wanted):
                break
        families, wrong = exposition(text)
        checks.check(status == 200 and not wrong, f"it parses: {wrong[:5]}")
        checks.check(sum(name.startswith("burthen_") for name in families) > 10, f"families: {sorted(families)}")
        for line in wanted:
            checks.check(line in text.splitlines(), f"{line}: {[x for x in text.splitlines() if 'tokens_predicted_total' in x]}")
        ok = [x for x in text.splitlines() if x.startswith("burthen_") and 'model="a"' in x and 'outcome="ok"' in x]
        checks.check(ok and ok[0].endswith(" 1"), f"requests of a: {ok}")


def check_secrecy():
    """What people say to models, and what those say, is in no page, no log, no row."""
    models = {"a": stubs.model("--metrics --token-ms 5", host="20M"), "bad": stubs.model("--cut-after 2", host="20M")}
    with stubs.start(stubs.config(models, log_children=True)) as serve:
        stubs.Asked(serve, "a", f"say {SECRET}", user=SECRET).wait()
        serve.stream("/v1/chat/completions", stubs.body("a", f"say {SECRET}"))
        stubs.Asked(serve, "bad", f"say {SECRET}").wait()
        serve.request("/v1/chat/completions", f'{{"model": "a", "x": {SECRET}'.encode())
        serve.request(f"/upstream/a/props?prompt={SECRET}")
        leaver = stubs.Leaver(serve, "a", n=100000, user=SECRET)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "it runs")
        leaver.leave()
        for path in PAGES:
            checks.check(SECRET.encode() not in serve.request(path)[1], f"{path} has it")
        events = stubs.events_of(serve)
        checks.check(SECRET not in json.dumps(events) and SECRET not in serve.log(), "events or the log have it")
        checks.check({kind for kind, _ in events} >= {"model", "decision", "request"}, f"kinds: {[kind for kind, _ in events]}")


def check_rows():
    """/api/metrics/activity: a row a request, newest first, with the server's own counts."""
    models = {"a": stubs.model("--token-ms 10", host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "one two three", 5)
        serve.stream("/v1/chat/completions", stubs.body("a", "one two three", n=7, stream_options={"include_usage": True}))
        serve.stream("/v1/chat/completions", stubs.body("a", "one two three", n=6))
        stubs.Asked(serve, "nobody").wait()
        rows = serve.ask("/api/metrics/activity")["rows"]
        checks.check([row["output_tokens"] for row in rows] == [None, 6, 7, 5], f"tokens: {rows}")
        checks.check([(row["status"], row["outcome"]) for row in rows] == [(404, "error")] + 3 * [(200, "ok")], f"outcomes: {rows}")
        checks.check(rows[0]["code"] == "model_not_found" and rows[3]["model"] == "a", f"{rows}")
        checks.check(rows[2]["prompt_tokens"] and rows[2]["first_byte_ms"] <= rows[2]["total_ms"], f"{rows[2]}")
        last = rows[1]["id"]
        checks.check(len(serve.ask(f"/api/metrics/activity?min_id={last}")["rows"]) in (1, 2), "what came after one")
        checks.check(len(serve.ask("/api/metrics/activity?limit=2")["rows"]) == 2, "not more than asked")
        checks.check(serve.ask("/api/metrics/activity?model=b")["rows"] == [], "of one model")
        wrong = schema.check("activity", serve.ask("/api/metrics/activity"))
        checks.check(not wrong, f"its schema: {wrong}")


def ids_of(serve, last, headers=None):
    """Of the events that are sent to who begins to listen, up to the one that was the last before; and what is sent within a
    moment behind it."""
    connection, response = serve.open("/api/events", headers=stubs.STREAM | (headers or {}))
    ids = []
    try:
        for line in response:
            if line.startswith(b"id: "):
                ids.append(int(line[4:]))
            if ids and ids[-1] >= last:
                connection.sock.settimeout(0.3)
    except TimeoutError:
        pass
    connection.close()
    return ids


def check_events():
    """Events go on where a client lost them; logs can be followed, from the beginning or from now."""
    with stubs.start(stubs.config({"a": stubs.model(host="20M")})) as serve:
        serve.chat("a", "Hello", 1)
        n = len(serve.ask("/api/events"))
        ids = ids_of(serve, n)
        checks.check(n > 4 and ids == list(range(1, n + 1)), f"all of {n}, one more each: {ids}")
        checks.check(ids_of(serve, n, {"Last-Event-ID": str(ids[2])}) == ids[3:], "those behind the last that was seen")
        checks.check(ids_of(serve, n, {"Last-Event-ID": "99999"}) == ids, "one of another life: all")
        connection, response = serve.open("/logs/stream?no-history", timeout_s=60)
        serve.chat("a", "Hello", 1)
        lines = []
        while not lines or lines[-1] and b"POST" not in lines[-1]:  # who listened before may be seen to leave only now
            lines.append(response.readline())
        checks.check(b"POST /v1/chat/completions 200" in lines[-1], f"the log goes on: {lines}")
        connection.close()
        text = serve.request("/logs/a")[1]
        checks.check(b"main: model loaded" in text and b"POST" not in text, f"what a itself said: {text}")
        checks.check(b"listening on" in serve.request("/logs")[1], "what the router said")
        status, data = serve.request("/logs/nobody")
        checks.check(status == 404 and stubs.error_of(data), f"{status}: {data}")
        status, data = serve.request("/logs", {})
        checks.check(status == 405, f"{status}: {data}")


def check_log_file():
    """--log-file has what standard error had, notes with it; a folder's are of no line."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "models").mkdir()
        (folder / "models/no.gguf").write_text("hi")
        text = stubs.config({"a": stubs.model(host="20M"), "b": stubs.model()}, models_dir=str(folder / "models"), logLevel="info")
        with stubs.start(text, "--log-file", folder / "log", env={"BURTHEN_STATE_DIR": str(folder / "state")}) as serve:
            serve.chat("b", "Hello", 1)
            said = serve.log()
            lines = (folder / "log").read_text().splitlines()
        checks.check(said == "", f"nothing on standard error: {said}")
        checks.check(any(" info burthen: note: no.gguf: " in line for line in lines), f"a note of a folder: {lines}")
        checks.check(any("serve.yaml:" in line and "logLevel" in line for line in lines), f"a note of a line: {lines}")
        checks.check(any(line.endswith(", 2 models") for line in lines), f"what it listens on: {lines}")
        checks.check(any(" info burthen: b: it is not known what it takes" in line for line in lines), f"no bytes of what is not known: {lines}")
        checks.check(any(" info burthen: b: admitted: nothing is reserved, as" in line for line in lines), f"nor then: {lines}")


def check_machine():
    """/api/machine, /api/plan, /api/memory, /running: JSON with what is asked for; the loop goes on meanwhile."""
    text = stubs.config({"a": stubs.model(host="20M"), "file": {"model": str(harness.SMOLLM2), "args": "-c 512"}}, for_models=200 * harness.MIB)
    with stubs.start(text) as serve:
        serve.chat("a", "Hello", 1)
        machine = serve.ask("/api/machine")
        checks.check(machine, f"{str(machine)[:200]}")
        if harness.SMOLLM2.exists():
            plan = serve.ask("/api/plan?model=file&n_ctx=256&ram_budget=150M")
            checks.check(plan and "150" not in "" and isinstance(plan, dict), f"{str(plan)[:200]}")
            status, data = serve.request("/api/plan?model=file&n_ctx=256&ctx_size=4096")
            error = stubs.error_of(data)
            checks.check(status == 400 and error.get("param") == "ctx_size" and "n_ctx" in error["message"], f"an unknown wish: {status}: {data}")
            for bad in ("n_ctx=-1", "n_ctx=1%20--help", "ram_budget=%24(id)"):
                status, data = serve.request(f"/api/plan?model=file&{bad}")
                checks.check(status == 400 and stubs.error_of(data).get("code") == "plan", f"{bad}: {status}: {data[:200]}")
        status, data = serve.request("/api/plan?model=a")
        checks.check(status == 400 and stubs.error_of(data).get("code") == "plan", f"{status}: {data}")
        checks.check(serve.request("/api/plan")[0] == 400 and serve.request("/api/plan?model=x")[0] == 404, "no model, no plan")
        memory = serve.ask("/api/memory")
        host = memory["pools"][0]
        checks.check(host["name"] == "host" and host["limit_bytes"] == 200 * harness.MIB, f"{host}")
        checks.check({one["model"]: one["state"] for one in memory["models"]} == {"a": "ready", "file": "stopped"}, f"{memory}")
        row = stubs.row_of(serve, "a")
        checks.check(row["reserved_bytes"] == {"host": 20 * harness.MIB} and row["need_from"] == "declared", f"{row}")
        checks.check(row["idle_ms"] >= 0 and row["pid"] == serve.children()["a"], f"{row}")


def check_odd_requests():
    """What is no good request gets an answer in JSON, or its connection closed; and the next is served."""
    with stubs.start(stubs.config({"a": stubs.model(host="20M")}, limits={"request": "2K", "n_probs": 5})) as serve:
        asked = stubs.Asked(serve, "a", "x" * 3000).wait()
        checks.check(asked.status == 413 and asked.error, f"too large: {asked}")
        asked = stubs.Asked(serve, "a", top_logprobs=6, logprobs=True).wait()
        checks.check(asked.status == 400 and asked.error.get("code") == "n_probs", f"too many probabilities: {asked}")
        for path in ("/v1/../etc/passwd", "/%2e%2e/x", "/v1/models/%00", "/" + "a" * 5000, "/nothing"):
            status, data = serve.request(path)
            checks.check(400 <= status < 500 and stubs.error_of(data), f"{path[:40]}: {status}: {data[:100]}")
        for head, status in (("GET / HTTP/1.1\nno header\n\n", b"400"), ("GET / HTTP/1.1\nHost: localhost\nX: " + "secret" * 20000 + "\n\n", b"431"),
                             ("POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: secret\n\n", b"400")):
            answer = raw(serve, head)  # the library's own, and fixed (docs/serve.md)
            checks.check(answer.startswith(b"HTTP/1.1 " + status) and b"secret" not in answer, f"{head[:60]}: {answer[:200]}")
        data = json.dumps(stubs.body("a", n=1))
        ask = "POST /v1/chat/completions HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
        for more, status, code in (("".join(f"X-{i}: y\n" for i in range(70)), b"431", b'"headers"'), ("X(Y): z\n", b"400", b'"request"'),
                                   ("".join(f"X-{i}: y\n" for i in range(50)), b"200", b"choices")):
            answer = raw(serve, f"{ask}{more}Connection: close\nContent-Length: {len(data)}\n\n{data}")
            checks.check(answer.startswith(b"HTTP/1.1 " + status) and code in answer, f"{more[:20]}: {answer[:300]}")
        answer = raw(serve, "GET / HTTP/9.9\n\n")
        checks.check(not answer or answer.startswith(b"HTTP/1."), f"{answer[:80]}")
        connection = http.client.HTTPConnection(serve.host, serve.port, timeout=60)
        for n in range(3):  # keep-alive
            connection.request("POST", "/v1/chat/completions", json.dumps(stubs.body("a", n=n + 1)), {"Content-Type": "application/json"})
            checks.check(json.loads(connection.getresponse().read())["usage"]["completion_tokens"] == n + 1, "over one connection")
        connection.close()
        time.sleep(0.1)
        checks.check(serve.request("/health")[0] == 200, "it lives")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_keys, check_hosts, check_metrics), (check_secrecy, check_rows, check_events),
                              (check_machine, check_log_file, check_odd_requests)])
    checks.end()


main()
