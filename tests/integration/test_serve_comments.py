#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""loading_comments: a streaming request that waits for a model gets comments, and then the answer as it would have been; what
fails after they began is an error event. Without the key, and for what does not stream, nothing is different. With OpenAI's own
client, where it is there."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import sys
import tempfile
import time

import harness
import stubs

checks = harness.Checks()
CLIENT = harness.SOURCE / "build/openai-client"


def stream(serve, name, timeout_s=60, path="/v1/chat/completions", on_line=None, **more):
    """(status, headers, [(seconds, line)]) of a streaming request; the lines until its end."""
    connection = http.client.HTTPConnection(serve.host, serve.port, timeout=timeout_s)
    begin = time.monotonic()
    connection.request("POST", path, json.dumps(stubs.body(name, n=3, stream=True) | more), {"Content-Type": "application/json"})
    response = connection.getresponse()
    lines = []
    while line := response.readline():
        lines.append((time.monotonic() - begin, line.decode()))
        if on_line:
            on_line(lines)
    connection.close()
    return response.status, dict(response.getheaders()), lines


def raw(serve, name):
    """The bytes of an answer, to see whether they end as chunks do."""
    body = json.dumps(stubs.body(name, n=9, stream=True)).encode()
    with socket.create_connection((serve.host, serve.port), timeout=60) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while piece := connection.recv(65536):
            data += piece
        return data


def text_of(lines):
    return "".join(line for _, line in lines if not line.startswith(": "))


def config(models=None, **top):
    models = models or {"slow": stubs.model("--load-seconds 2.5", host="20M"), "fast": stubs.model(host="20M")}
    return stubs.config(models, **top)


def comments_of(lines):
    """When they came."""
    return [when for when, line in lines if line.startswith(": loading")]


@contextlib.contextmanager
def gate():
    """(a file, a function): what waits for the file goes on when so many comments have come."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "go"
        yield file, lambda n: lambda lines: len(comments_of(lines)) >= n and file.touch()


def has_none(serve, name):
    """An answer without comments: of a few, since a second may pass anywhere on a busy machine."""
    for _ in range(5):
        _, _, lines = stream(serve, name)
        if not comments_of(lines):
            break
    return lines


def check_comments():
    with gate() as (file, after), stubs.start(config({"slow": stubs.model(f"--until {file}", host="20M")}, loading_comments="1s")) as serve:
        status, headers, lines = stream(serve, "slow", on_line=after(2))
        comments = comments_of(lines)
        checks.check(status == 200 and headers["Content-Type"] == "text/event-stream", f"{status} {headers}")
        checks.check(len(comments) >= 2 and all(when > 0.9 * (n + 1) for n, when in enumerate(comments)) and comments[1] < 15, f"comments at {comments}")
        rest = text_of(lines).lstrip("\n")
        checks.check(rest.startswith("data: {") and rest.rstrip().endswith("data: [DONE]"), rest)
        row = serve.ask("/api/activity")["rows"][0]
        checks.check(row["status"] == 200 and row["outcome"] == "ok" and row["output_tokens"] == 3 and row["first_byte_ms"] > 2000, f"its row: {row}")
        again = has_none(serve, "slow")
        checks.check(not comments_of(again), "a model that is there needs none")
        words = [json.loads(line[6:])["choices"][0]["delta"].get("content") for line in rest.splitlines() if line.startswith("data: {")]
        same = [json.loads(line[6:])["choices"][0]["delta"].get("content") for _, line in again if line.startswith("data: {")]
        checks.check(words == same, f"the same events: {words} {same}")
        # a long answer that is not read at once goes through the same flows
        serve.request("/api/models/unload/slow", b"")
        checks.check(serve.wait_for(lambda: "slow" not in serve.states()), "unloaded")
        _, _, lines = stream(serve, "slow", max_tokens=3000)
        checks.check(text_of(lines).count("data: {") >= 3000, f"{text_of(lines).count('data: {')} events")


def check_others():
    """No key in the configuration, and requests that do not stream: the status waits."""
    with stubs.start(config()) as serve:
        _, _, lines = stream(serve, "slow")
        checks.check(lines[0][0] > 2 and not [1 for _, line in lines if line.startswith(":")], f"{lines[:2]}")
    with stubs.start(config(loading_comments="1s")) as serve:
        answer = serve.chat("slow", "Hello", 2)
        checks.check(answer["choices"], f"JSON: {answer}")
        status, _, lines = stream(serve, "nobody")
        checks.check(status == 404, f"an error at once has its status: {status} {lines}")


def check_errors():
    with gate() as (file, after):
        errors(file, after(1))


def errors(file, on_line):
    models = {"dies": stubs.model(f"--die-with 'no such luck' --until {file}", host="20M"), "hangs": stubs.model("--hang", host="20M", timeouts={"response_header": 3}),
              "large": stubs.model(host="9G"), "breaks": stubs.model("--load-seconds 1.5 --cut-after 2", host="20M")}
    with stubs.start(config(models, loading_comments="1s", cooldown="1s")) as serve:
        for name, code, status in (("dies", "crashed", 503), ("hangs", "model_timeout", 504)):
            begun, _, lines = stream(serve, name, on_line=on_line)
            said = text_of(lines)
            checks.check(begun == 200 and lines[0][1].startswith(": loading") and "event: error\ndata: {" in said, f"{name}: {begun} {lines}")
            data = json.loads(said.partition("event: error\ndata: ")[2])
            checks.check(data["type"] == "error" and data["error"]["code"] == code, f"{name}: {data}")
            row = serve.ask("/api/activity")["rows"][0]
            checks.check(row["outcome"] == "error" and row["code"] == code, f"{name}: its row: {row} {status}")
        data = raw(serve, "breaks")
        checks.check(b": loading" in data and b"data: {" in data and not data.endswith(b"0\r\n\r\n"), f"a stream that breaks off is broken off: {data[-200:]}")
        checks.check(serve.ask("/api/activity")["rows"][0]["code"] == "model_broken", "and its row says so")
        checks.check(serve.request("/health")[0] == 200, "it lives")


def check_not_a_stream():
    """A server that answers with an error after the comments: its status in an event, and not its body as events."""
    models = {"slow": stubs.model("--load-seconds 1.5", host="20M")}
    with stubs.start(config(models, loading_comments="1s")) as serve:
        begun, _, lines = stream(serve, "slow", path="/v1/embeddings")
        said = text_of(lines)
        checks.check(begun == 200 and '"code":"model_error"' in said and "event: error" in said, f"{begun} {lines}")
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "slow")["running"] == 0), "its turn is over")


def check_leavers():
    """Clients that leave while comments come, and afterwards: nothing is left of them."""
    with stubs.start(config(loading_comments="1s")) as serve:
        for wait_s in (0.2, 1.5, 3.2):
            leaver = stubs.Leaver(serve, "slow", n=100000, stream=True)
            time.sleep(wait_s)
            leaver.leave()
            checks.check(serve.wait_for(lambda: serve.ask("/api/requests")["n"] == 0), f"one that left after {wait_s} s is gone")
        checks.check(serve.chat("fast", "Hello", 1)["choices"], "and others are served")


def check_openai():
    """The library that most people use takes comments for nothing, and the event for an error."""
    if not CLIENT.exists():
        print("without openai's client: it is not there")
        return
    sys.path.insert(0, str(CLIENT))
    import openai  # pylint: disable=import-error,import-outside-toplevel
    models = {"slow": stubs.model("--load-seconds 2.5", host="20M"), "dies": stubs.model("--die-with no --die-after 1.6", host="20M")}
    with stubs.start(config(models, loading_comments="1s")) as serve:
        client = openai.OpenAI(base_url=f"http://{serve.host}:{serve.port}/v1", api_key="x", max_retries=0)
        parts = client.chat.completions.create(model="slow", messages=[{"role": "user", "content": "Hello"}], max_tokens=3, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        checks.check(text.split() == ["one", "two", "three"], f"{text!r}")
        try:
            for _ in client.chat.completions.create(model="dies", messages=[{"role": "user", "content": "Hello"}], max_tokens=3, stream=True):
                pass
            checks.check(False, "an error event is no error")
        except openai.APIError as why:
            checks.check(why.code == "crashed" and "no" in why.message, f"{why!r} {why.code}")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_comments, check_openai), (check_errors, check_others), (check_not_a_stream, check_leavers)])
    checks.end()


os.environ.setdefault("NO_PROXY", "*")
main()
