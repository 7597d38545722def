# SPDX-License-Identifier: MIT
"""Clients that leave, and a router that is told to end, at every stage of a request: what is left of it is undone."""

import http.client
import signal
import subprocess
import time

import harness
import stubs

checks = harness.Checks()


def check_leave_queue():
    """Who waits and leaves is out of the queue; a start that only it waited for is given up, its process killed."""
    models = {"slow": stubs.model("--load-seconds 30", host="20M"), "busy": stubs.model("--token-ms 50", host="20M", concurrency=1)}
    with stubs.start(stubs.config(models)) as serve:
        one, two = stubs.Leaver(serve, "slow"), stubs.Leaver(serve, "slow")
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "slow").get("waiting") == 2 and "slow" in serve.children(), 8), "two wait")
        pid = serve.children()["slow"]
        one.leave()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "slow")["waiting"] == 1, 2), "one has left")
        time.sleep(0.3)
        checks.check(stubs.lives(pid), "the other still waits for it")
        two.leave()
        checks.check(serve.wait_for(lambda: not stubs.lives(pid), 3), "nobody does: it is ended")
        checks.check(serve.wait_for(lambda: "slow" not in serve.states(), 3), f"and gone: {serve.states()}")
        serve.chat("busy", "Hello", 1)
        running = stubs.Asked(serve, "busy", n=30)
        serve.wait_for(lambda: stubs.row_of(serve, "busy")["running"] == 1, 5)
        leavers = [stubs.Leaver(serve, "busy") for _ in range(3)]
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["waiting"] == 3, 3), "three wait behind it")
        for leaver in leavers:
            leaver.leave()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "busy")["waiting"] == 0, 2), "they have left")
        checks.check(running.wait().status == 200, f"{running}")
        told = stubs.behind(serve, "busy").ask("/stub")
        checks.check(told["n_requests"] == 2, f"none of theirs came to the server: {told['n_requests']}")
        rows = serve.ask("/api/metrics/activity")["rows"]
        gone = [row for row in rows if row["outcome"] == "cancelled"]
        checks.check(len(gone) == 5 and len(rows) == 7, f"a row each: {[row['outcome'] for row in rows]}")


def check_leave_evicter():
    """Who leaves while another model drains for it: the other takes requests again."""
    models = {"a": stubs.model("--token-ms 50", host="60M"), "b": stubs.model(host="60M")}
    with stubs.start(stubs.config(models, for_models=100 * harness.MIB, patience="0s")) as serve:
        serve.chat("a", "Hello", 1)
        running = stubs.Asked(serve, "a", n=60)
        serve.wait_for(lambda: stubs.row_of(serve, "a").get("running") == 1, 5)
        leaver = stubs.Leaver(serve, "b")
        checks.check(serve.wait_for(lambda: serve.states().get("a") == "draining", 3), f"a drains: {serve.states()}")
        leaver.leave()
        checks.check(serve.wait_for(lambda: serve.states().get("a") == "ready", 2), f"and need not any more: {serve.states()}")
        checks.check(stubs.Asked(serve, "a", n=1).wait().status == 200 and running.is_alive(), "it takes requests beside the long one")
        checks.check(running.wait().status == 200, f"{running}")


def check_leave_answer():
    """Who leaves before the head, or in the middle of a stream: the server sees its connection close within a second."""
    models = {"a": stubs.model("--token-ms 20", host="20M"), "hangs": stubs.model("--hang", host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        stub = stubs.behind(serve, "a")
        for stream in (True, False):
            before = stub.ask("/stub")["n_gone"]
            n_before = stub.ask("/stub")["n_requests"]
            leaver = stubs.Leaver(serve, "a", n=500, stream=stream)
            serve.wait_for(lambda n=n_before: stub.ask("/stub")["n_requests"] == n + 1, 5)
            if stream:
                leaver.connection.getresponse().read(50)
            leaver.leave()
            begun = time.monotonic()
            checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_gone"] == before + 1, 2), f"seen (stream: {stream})")
            checks.check(time.monotonic() - begun < 1, f"within a second: {time.monotonic() - begun}")
            checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 0, 1), "its turn is over")
        leaver = stubs.Leaver(serve, "hangs")
        serve.wait_for(lambda: serve.states().get("hangs") == "ready", 8)
        stub = stubs.behind(serve, "hangs")
        checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_requests"] == 1, 3), "the other's is taken")
        leaver.leave()
        checks.check(serve.wait_for(lambda: stub.ask("/stub")["n_gone"] == 1, 1), "and seen to go")


def check_slow_reader():
    """One that does not read: what the router holds of its answer is bounded, and others are served."""
    models = {"a": stubs.model("-np 4", host="20M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        connection, response = serve.open("/v1/chat/completions", stubs.body("a", n=60000, stream=True))
        response.read(100)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1, 2), "it runs")
        time.sleep(1)
        checks.check(serve.chat("a", "Hello", 2)["choices"], "others are served beside it")
        flow = next(line for line in serve.request("/metrics")[1].decode().splitlines() if line.startswith("burthen_flow_bytes"))
        checks.check(float(flow.split()[-1]) <= 70000, f"what is held: {flow}")
        connection.close()
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 0, 3), "and it has left")


def ended(serve, begun, at_most_s, what):
    try:
        serve.process.wait(at_most_s)  # it was told
    except subprocess.TimeoutExpired:
        pass
    status, log = serve.stop()
    seconds = time.monotonic() - begun
    checks.check(status == 0 and seconds < at_most_s, f"{what}: status {status}, {seconds:.1f} s: {log[-600:]}")


def check_shutdown():
    """SIGTERM: what runs may finish, what waits is told, nothing new is taken, all children go."""
    models = {"a": stubs.model("--token-ms 50", host="20M", concurrency=1), "b": stubs.model("--load-seconds 20", host="20M")}
    serve = stubs.start(stubs.config(models))
    serve.chat("a", "Hello", 1)
    mark = serve.mark()
    stream = stubs.Asked(serve, "a", n=40, stream=True)
    serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1, 5)
    waiting, starting = stubs.Asked(serve, "a"), stubs.Asked(serve, "b")
    serve.wait_for(lambda: stubs.row_of(serve, "a")["waiting"] == 1 and serve.states().get("b") == "starting", 5)
    serve.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    for one in (waiting, starting):
        checks.check(one.wait().status == 503 and one.error.get("code") == "shutting_down", f"who waits is told: {one}")
    checks.check(stream.wait().status == 200 and b"[DONE]" in stream.data, f"the stream finishes: {stream}")
    ended(serve, begun, 5, "it ends after the stream")
    checks.check(not stubs.router.marked(mark), "no child is left")


def check_second_signal():
    """A second signal does not wait for anything."""
    serve = stubs.start(stubs.config({"a": stubs.model("--token-ms 50 --stubborn", host="20M")}))
    serve.chat("a", "Hello", 1)
    mark = serve.mark()
    stream = stubs.Asked(serve, "a", n=1000, stream=True)
    serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1, 5)
    serve.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    checks.check(serve.is_alive(), "the first waits for the stream")
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    serve.process.wait(10)
    ended(serve, begun, 3, "a second signal")
    checks.check(not stubs.router.marked(mark), "no child is left")
    checks.check(stream.wait().why is not None, "the stream is broken off")


def check_listeners():
    """Who listens to events and logs does not keep the router from ending."""
    serve = stubs.start(stubs.config({"a": stubs.model(host="20M")}))
    serve.chat("a", "Hello", 1)
    opened = [serve.open(path, headers=stubs.STREAM) for path in ("/api/events", "/logs/stream", "/logs/stream/a")]
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    ended(serve, begun, 4, "with listeners")
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
    stream = stubs.Asked(serve, "a", n=1000, stream=True)
    serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1, 5)
    begun = time.monotonic()
    serve.process.send_signal(signal.SIGTERM)
    serve.process.wait(30)
    checks.check(9 < time.monotonic() - begun < 14, f"after ten seconds: {time.monotonic() - begun}")
    ended(serve, begun, 14, "a stream without an end")
    checks.check(stream.wait().why is not None, "it sees that its answer is not whole")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_leave_queue, check_leave_evicter, check_leave_answer), (check_too_long,),
                              (check_slow_reader, check_shutdown, check_second_signal, check_listeners)])
    checks.end()


main()
