# SPDX-License-Identifier: MIT
"""Clients that leave, and a router that is told to end, at every stage of a request: what is left of it is undone."""

import contextlib
import http.client
import signal
import subprocess
import time

import harness
import stubs

checks = harness.Checks()


def check_leave_queue():
    """Who waits and leaves is out of the queue; a start that only it waited for is given up, its process killed."""
    models = {"slow": stubs.model("--load-seconds 300", host="20M"), "busy": stubs.model(host="20M", concurrency=1)}
    with stubs.start(stubs.config(models)) as serve:
        one, two = stubs.Leaver(serve, "slow"), stubs.Leaver(serve, "slow")
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "slow").get("waiting") == 2 and "slow" in serve.children()), "two wait")
        pid = serve.children()["slow"]
        one.leave()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "slow")["waiting"] == 1), "one has left")
        time.sleep(0.3)
        checks.check(stubs.lives(pid), "the other still waits for it")
        two.leave()
        checks.check(serve.wait_for(lambda: not stubs.lives(pid)), "nobody does: it is ended")
        checks.check(serve.wait_for(lambda: "slow" not in serve.states()), f"and gone: {serve.states()}")
        serve.chat("busy", "Hello", 1)
        running = stubs.Asked(serve, "busy", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["running"] == 1), "one runs")
        leavers = [stubs.Leaver(serve, "busy") for _ in range(3)]
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["waiting"] == 3), "three wait behind it")
        for leaver in leavers:
            leaver.leave()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["waiting"] == 0), "they have left")
        stubs.go(serve, "busy")
        checks.check(running.wait().status == 200, f"{running}")
        told = stubs.behind(serve, "busy").ask("/stub")
        checks.check(told["n_requests"] == 2, f"none of theirs came to the server: {told['n_requests']}")

        def outcomes():
            return sorted(row["outcome"] for row in serve.ask("/api/metrics/activity")["rows"])

        checks.check(serve.wait_for(lambda: outcomes() == ["cancelled"] * 5 + ["ok"] * 2), f"a row each: {outcomes()}")


def check_leave_evicter():
    """Who leaves while another model drains for it: the other takes requests again."""
    models = {"a": stubs.model(host="60M"), "b": stubs.model(host="60M")}
    with stubs.start(stubs.config(models, for_models=100 * harness.MIB, patience="0s")) as serve:
        serve.chat("a", "Hello", 1)
        running = stubs.Asked(serve, "a", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a").get("running") == 1), "one runs")
        leaver = stubs.Leaver(serve, "b")
        checks.check(serve.wait_for(lambda: serve.states().get("a") == "draining"), f"a drains: {serve.states()}")
        leaver.leave()
        checks.check(serve.wait_for(lambda: serve.states().get("a") == "ready"), f"and need not any more: {serve.states()}")
        checks.check(stubs.Asked(serve, "a", n=1).wait().status == 200 and running.is_alive(), "it takes requests beside the long one")
        stubs.go(serve, "a")
        checks.check(running.wait().status == 200, f"{running}")


def leave_answer(serve, stub, stream):
    """Seconds from a client's leaving until the server has seen that; it would go on for hours."""
    told = stub.ask("/stub")
    leaver = stubs.Leaver(serve, "a", n=500000, stream=stream)
    checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_requests"] == told["n_requests"] + 1), "it is asked")
    if stream:
        leaver.connection.getresponse().read(50)
    begun = time.monotonic()
    leaver.leave()
    checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_gone"] == told["n_gone"] + 1), f"seen (stream: {stream})")
    took = time.monotonic() - begun
    checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 0), "its turn is over")
    return took


def check_leave_answer():
    """Who leaves before the head, or in the middle of a stream: the server sees its connection close within a second. (The
    quickest of some tries: this machine may do something else meanwhile.)"""
    models = {"a": stubs.model("--token-ms 20", host="20M"), "hangs": stubs.model("--hang", host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        stub = stubs.behind(serve, "a")
        for stream in (True, False):
            took = harness.quickest(lambda stream=stream: leave_answer(serve, stub, stream), 1)
            checks.check(took < 1, f"within a second: {took}")
        leaver = stubs.Leaver(serve, "hangs")
        checks.check(serve.wait_for(lambda: serve.states().get("hangs") == "ready"), f"it is there: {serve.states()}")
        stub = stubs.behind(serve, "hangs")
        checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_requests"] == 1), "the other's is taken")
        leaver.leave()
        checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_gone"] == 1), "and seen to go")


def check_slow_reader():
    """One that does not read: what the router holds of its answer is bounded, and others are served."""
    models = {"a": stubs.model("-np 4", host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        connection, response = serve.open("/v1/chat/completions", stubs.body("a", n=60000, stream=True))
        response.read(100)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "it runs")
        time.sleep(1)
        checks.check(serve.chat("a", "Hello", 2)["choices"], "others are served beside it")
        flow = next(line for line in serve.request("/metrics")[1].decode().splitlines() if line.startswith("burthen_flow_bytes"))
        checks.check(float(flow.split()[-1]) <= 70000, f"what is held: {flow}")
        connection.close()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 0), "and it has left")


def ended(serve, begun, what, at_most_s=9):
    """It was told to end, and did before it would have broken off what ran."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        serve.process.wait(60)
    status, log = serve.stop()
    seconds = time.monotonic() - begun
    checks.check(status == 0 and seconds < at_most_s, f"{what}: status {status}, {seconds:.1f} s: {log[-600:]}")


def check_shutdown():
    """SIGTERM: what runs may finish, what waits is told, nothing new is taken, all children go."""
    models = {"a": stubs.model(host="20M", concurrency=1), "b": stubs.model("--load-seconds 300", host="20M")}
    serve = stubs.start(stubs.config(models))
    serve.chat("a", "Hello", 1)
    mark = serve.mark()
    stub = stubs.behind(serve, "a")
    stream = stubs.Asked(serve, "a", stream=True, hold=True)
    checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "one runs")
    waiting, starting = stubs.Asked(serve, "a"), stubs.Asked(serve, "b")
    serve.wait_for(lambda: stubs.row_of(serve, "a")["waiting"] == 1 and serve.states().get("b") == "starting")
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    for one in (waiting, starting):
        checks.check(one.wait().status == 503 and one.error.get("code") == "shutting_down", f"who waits is told: {one}")
    checks.check(stream.is_alive(), "what runs goes on")
    stub.ask("/stub/go")
    checks.check(stream.wait().status == 200 and b"[DONE]" in stream.data, f"the stream finishes: {stream}")
    ended(serve, begun, "it ends after the stream")
    checks.check(not stubs.router.marked(mark), "no child is left")


def check_second_signal():
    """A second signal does not wait for anything."""
    serve = stubs.start(stubs.config({"a": stubs.model("--token-ms 50 --stubborn", host="20M")}))
    serve.chat("a", "Hello", 1)
    mark = serve.mark()
    stream = stubs.Asked(serve, "a", n=1000, stream=True)
    checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "one runs")
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    checks.check(serve.wait_for(lambda: "shutting down" in serve.log()), "the first is heard: two at once are one")
    time.sleep(0.5)
    checks.check(serve.is_alive(), "and waits for the stream")
    serve.process.send_signal(signal.SIGTERM)
    ended(serve, begun, "a second signal")
    checks.check(not stubs.router.marked(mark), "no child is left")
    checks.check(stream.wait().why is not None, "the stream is broken off")


def check_listeners():
    """Who listens to events and logs does not keep the router from ending."""
    serve = stubs.start(stubs.config({"a": stubs.model(host="20M")}))
    serve.chat("a", "Hello", 1)
    opened = [serve.open(path, headers=stubs.STREAM) for path in ("/api/events", "/logs/stream", "/logs/stream/a")]
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    ended(serve, begun, "with listeners")
    for connection, response in opened:
        try:
            text = response.read()
        except http.client.HTTPException as why:
            text = repr(why).encode()
        checks.check(b"Incomplete" not in text and (b"ready" in text or b"model loaded" in text),
                     f"a whole answer: {text[-300:]}")
        connection.close()


def check_too_long():
    """A stream that does not end is broken off after ten seconds."""
    serve = stubs.start(stubs.config({"a": stubs.model("--token-ms 50", host="20M")}))
    serve.chat("a", "Hello", 1)
    stream = stubs.Asked(serve, "a", n=100000, stream=True)
    checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "one runs")
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    ended(serve, begun, "a stream without an end", 30)
    checks.check(time.monotonic() - begun > 9, f"not before ten seconds: {time.monotonic() - begun}")
    checks.check(stream.wait().why is not None, "it sees that its answer is not whole")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_leave_queue, check_leave_evicter, check_leave_answer), (check_too_long,),
                              (check_slow_reader, check_shutdown, check_second_signal, check_listeners)])
    checks.end()


main()
