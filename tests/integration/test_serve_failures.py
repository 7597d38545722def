# SPDX-License-Identifier: MIT
"""Servers that do not start, do not stop, or die: what requests are told, and what is tried again, with stub servers."""

import math
import os
import pathlib
import re
import signal
import socket
import tempfile
import time

import harness
import stubs

checks = harness.Checks()
CUDA = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3142.00 MiB on device 0: cudaMalloc failed: out of memory"


def starts(serve, name):
    return serve.log().count(f"{name}: starting")


def told_again(serve, name, first):
    """Who asks in the pause behind a failure is told the same, without a start. The pause is a second: of a few tries."""
    for _ in range(6):
        before = starts(serve, name)
        asked = stubs.Asked(serve, name).wait()
        if starts(serve, name) == before:
            break
    checks.check(starts(serve, name) == before, f"told without a start: {starts(serve, name)} starts")
    checks.check(asked.status == first.status and asked.error == first.error, f"the same again: {asked}, and not {first}")


def is_free(serve, name):
    """Its failure is over: it may be tried again."""
    return next(one["state"] for one in serve.ask("/api/memory")["models"] if one["model"] == name) == "stopped"


def refused(asked, status, code, *words):
    error = asked.error
    good = asked.status == status and error.get("code") == code and all(word in error.get("message", "") for word in words)
    checks.check(good, f"{status} {code} with {words}: {asked}")
    return error


def check_device_memory():
    """Case 13: no memory on the device at the start: tried once more, then told, and remembered."""
    models = {"gpu": stubs.model(f"--die-with '{CUDA}' --die-code -6", host="30M")}
    with stubs.start(stubs.config(models)) as serve:
        first = stubs.Asked(serve, "gpu").wait()
        error = refused(first, 503, "out_of_device_memory", "cudaMalloc failed")
        checks.check(error.get("device") == "CUDA0" and error.get("need_bytes") == 3142 * harness.MIB, f"its numbers: {error}")
        checks.check(int(first.reply.get("Retry-After", 0)) >= 1, f"when to come again: {first.reply}")
        checks.check(starts(serve, "gpu") == 2, f"tried twice: {serve.log()}")
        told_again(serve, "gpu", first)


def check_last_words():
    """A bad command, a crash at the start, a file that is none: each is told in its own words."""
    models = {"none": {"cmd": "/no/such/server --port ${PORT}", "memory": {"host": "10M"}},
              "crash": stubs.model("--die-with 'the wheel has come off' --die-code 7", host="30M"),
              "killed": stubs.model("--die-with 'and then' --die-code -9", host="30M")}
    with stubs.start(stubs.config(models)) as serve:
        refused(stubs.Asked(serve, "none").wait(), 503, "not_started", "/no/such/server")
        refused(stubs.Asked(serve, "crash").wait(), 503, "crashed", "the wheel has come off")
        refused(stubs.Asked(serve, "killed").wait(), 503, "crashed", "signal 9")
        begun, before = time.monotonic(), starts(serve, "crash")
        many = [stubs.Asked(serve, "crash") for _ in range(20)]
        for one in many:
            refused(one.wait(), 503, "crashed", "the wheel has come off")
        most = 1 + int(math.log2(time.monotonic() - begun + 1))  # behind the first there are pauses of 2, 4, 8 seconds
        checks.check(starts(serve, "crash") - before <= most, f"one start at most for all of them: {starts(serve, 'crash')}")
        checks.check(serve.wait_for(lambda: serve.states() == {}), f"nothing runs: {serve.states()}")


def check_port_taken():
    """A port of its own that somebody else has."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        fixed = stubs.model(host="30M", proxy=f"http://127.0.0.1:{port}")
        fixed["cmd"] = fixed["cmd"].replace("${PORT}", str(port))
        models = {"fixed": fixed, "free": stubs.model(host="30M")}
        with stubs.start(stubs.config(models, start_port=port)) as serve:
            refused(stubs.Asked(serve, "fixed").wait(), 503, "port_in_use")
            checks.check(serve.chat("free", "Hello", 1)["choices"], "ports that are given pass over what is taken")
            checks.check(stubs.behind(serve, "free").port != port, "another port")
            other.close()
            checks.check(serve.wait_for(lambda: stubs.Asked(serve, "fixed").wait().status == 200), "free again: it comes")


def check_port_lost():
    """Between the router's look for a free port and the server's own somebody was quicker: another port is tried."""
    with tempfile.TemporaryDirectory() as folder:
        flag = pathlib.Path(folder) / "flag"
        script = (f"if test -e {flag}; then exec python3 {stubs.PROGRAM} --port ${{PORT}}; fi; touch {flag}; "
                  "echo couldn\\'t bind HTTP server socket; exit 1")
        models = {"a": {"cmd": ["sh", "-c", script], "memory": {"host": "30M"}}}
        with stubs.start(stubs.config(models)) as serve:
            asked = stubs.Asked(serve, "a").wait()
            checks.check(asked.status == 200 and starts(serve, "a") == 2, f"the second start is good: {asked}: {serve.log()}")


def check_hang():
    """A server that never becomes ready is ended after its time, also where it does not listen to SIGTERM."""
    models = {"hangs": stubs.model("--load-seconds 600 --stubborn", host="30M", health_timeout="1s", stop_timeout="1s")}
    with stubs.start(stubs.config(models)) as serve:
        asked = stubs.Asked(serve, "hangs").wait()
        refused(asked, 503, "start_timeout")
        checks.check(1 <= asked.seconds < 30, f"after its second: {asked.seconds}")
        pid = int(re.search(r"hangs: starting: process (\d+)", serve.log())[1])
        checks.check(serve.wait_for(lambda: not stubs.lives(pid)), "and its process is gone")


def check_stubborn():
    """One that runs and ignores SIGTERM is killed after stop_timeout."""
    models = {"a": stubs.model("--stubborn", host="30M", stop_timeout="1s")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        begun = time.monotonic()
        serve.request("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"it ends: {serve.states()}")
        took = time.monotonic() - begun
        checks.check(0.9 < took < 9, f"after a second, and not after the ten that others have: {took}")


def check_crash_in_answer():
    """A server that dies in the middle: what was begun is broken off, what had no head yet is told why; the next is served."""
    models = {"a": stubs.model("--abort-after 5 --token-ms 20", host="30M"), "b": stubs.model("--cut-after 3", host="30M")}
    with stubs.start(stubs.config(models, cooldown="1s")) as serve:
        stream = stubs.Asked(serve, "a", n=9, stream=True).wait()
        checks.check(stream.why is not None and b"[DONE]" not in stream.data, f"a stream is broken off: {stream}")
        row = serve.ask("/api/metrics/activity?model=a")["rows"][0]
        checks.check(row["outcome"] == "error" and row["code"] == "model_broken", f"its row: {row}")
        for _ in range(2):
            checks.check(serve.wait_for(lambda: is_free(serve, "a")), "its pause is over")
            whole = stubs.Asked(serve, "a", n=9).wait()
            refused(whole, 502, "crashed", "stub_server: aborted, as it was told")
        checks.check(serve.wait_for(lambda: is_free(serve, "a")), "its pause is over")
        checks.check(serve.chat("a", "Hello", 2)["choices"], "a short one is answered")
        cut = stubs.Asked(serve, "b", n=9).wait()
        refused(cut, 502, "model_unreachable")
        checks.check(serve.states().get("b") == "ready", "a server that closes a connection goes on")


def check_kill():
    """A child that somebody kills is told of, and started anew."""
    models = {"a": stubs.model(host="30M")}
    with stubs.start(stubs.config(models)) as serve:
        serve.chat("a", "Hello", 1)
        asked = stubs.Asked(serve, "a", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a").get("running") == 1), "it runs")
        os.kill(serve.children()["a"], signal.SIGKILL)
        refused(asked.wait(), 502, "crashed", "signal 9")
        again = stubs.Asked(serve, "a", n=1).wait()
        checks.check(again.status == 200, f"again: {again}")


def check_back_off():
    """Starts that fail are further and further apart, and the first that works ends that."""
    folder = tempfile.TemporaryDirectory()
    flag = pathlib.Path(folder.name) / "flag"
    script = f"if test -e {flag}; then exec python3 {stubs.PROGRAM} --port ${{PORT}}; else echo no flag; exit 1; fi"
    models = {"a": {"cmd": ["sh", "-c", script], "memory": {"host": "30M"}}}
    with stubs.start(stubs.config(models)) as serve:
        begun, first, n_told = time.monotonic(), {}, 0
        while starts(serve, "a") < 3:
            before = starts(serve, "a")
            asked = stubs.Asked(serve, "a").wait()
            refused(asked, 503, "crashed", "no flag")
            n = starts(serve, "a")
            n_told += n == before
            first.setdefault(n, time.monotonic())
            checks.check(int(asked.reply.get("Retry-After", 0)) == 2 ** (n - 1), f"the pause doubles: {n} starts: {asked.reply}")
            time.sleep(0.1)
        checks.check(sorted(first) == [1, 2, 3] and first[3] - begun > 3, f"one start after another, in 1 and 2 seconds: {first}")
        for _ in range(3):  # in a pause of 4 seconds, or of 8
            if n_told == 0:
                before = starts(serve, "a")
                stubs.Asked(serve, "a").wait()
                n_told += starts(serve, "a") == before
        checks.check(n_told > 0, "in a pause it is told without a start")
        flag.touch()
        checks.check(serve.wait_for(lambda: stubs.Asked(serve, "a").wait().status == 200), "it comes back")
        flag.unlink()
        serve.request("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"it is ended: {serve.states()}")
        asked = stubs.Asked(serve, "a").wait()
        checks.check(asked.status == 503 and asked.reply.get("Retry-After") == "1", f"the pause begins anew: {asked.reply}")


def check_crash_loop():
    """A model that dies soon after each start is started less and less often."""
    models = {"a": stubs.model("--abort-after 1", host="30M")}
    with stubs.start(stubs.config(models, cooldown="60s")) as serve:
        refused(stubs.Asked(serve, "a", n=2).wait(), 502, "crashed")
        second = stubs.Asked(serve, "a", n=2).wait()
        refused(second, 502, "crashed")  # the first time who asks waits for the next start, and is not told 503
        checks.check(starts(serve, "a") == 2, f"{starts(serve, 'a')} starts")
        for _ in range(4):  # in pauses of 2, 4, 8 seconds
            before = starts(serve, "a")
            third = stubs.Asked(serve, "a", n=2).wait()
            if starts(serve, "a") == before:
                break
        refused(third, 503, "crashed", "aborted, as it was told")
        checks.check(third.reply.get("Retry-After") == str(2 ** (before - 1)), f"then it is told: {before} starts: {third.reply}")


def check_cooldown():
    """cooldown: no pause is longer."""
    models = {"a": stubs.model("--die-with oh --die-code 1", host="30M")}
    with stubs.start(stubs.config(models, cooldown="1s")) as serve:
        for _ in range(3):
            asked = stubs.Asked(serve, "a").wait()
            checks.check(asked.reply.get("Retry-After") == "1", f"never longer than cooldown: {asked.reply}")
            time.sleep(1.1)
        checks.check(starts(serve, "a") == 3, f"each was tried: {starts(serve, 'a')}")


def check_timeout():
    """A server that takes a request and does not answer, where the configuration has a limit; one that cannot be reached."""
    models = {"hangs": stubs.model("--hang", host="30M", timeouts={"responseHeader": "500ms"}),
              "slow": stubs.model("--token-ms 100", host="30M", timeouts={"responseHeader": "4s"}),
              "away": stubs.model(host="30M", proxy="http://127.0.0.1:1", checkEndpoint="none")}
    peers = {"there": {"proxy": "http://127.0.0.1:1", "models": ["x"]}}
    with stubs.start(stubs.config(models, peers=peers)) as serve:
        asked = stubs.Asked(serve, "hangs").wait()
        refused(asked, 504, "model_timeout")
        checks.check(serve.wait_for(lambda: stubs.behind(serve, "hangs").ask("/stub")["n_gone"] == 1), "the server is left")
        checks.check(serve.states()["hangs"] == "ready", "and not blamed")
        events = serve.stream("/v1/chat/completions", stubs.body("slow", n=45))
        checks.check(len(events) >= 45, f"the limit is the head's, not the answer's: {len(events)}")
        refused(stubs.Asked(serve, "away").wait(), 502, "model_unreachable")
        refused(stubs.Asked(serve, "x").wait(), 502, "model_unreachable")
        rows = serve.ask("/api/metrics/activity")["rows"]
        codes = [(row["model"], row["status"], row["outcome"], row["code"]) for row in rows]
        checks.check(codes == [("there/x", 502, "error", "model_unreachable"), ("away", 502, "error", "model_unreachable"),
                               ("slow", 200, "ok", None), ("hangs", 504, "error", "model_timeout")], f"rows: {codes}")


def check_overflow():
    """Case 16: what the server itself refuses goes through as it is."""
    models = {"a": stubs.model("-c 64 -np 2", host="30M")}
    with stubs.start(stubs.config(models)) as serve:
        asked = stubs.Asked(serve, "a", "word " * 100).wait()
        direct = stubs.Asked(stubs.behind(serve, "a"), "a", "word " * 100).wait()
        checks.check(asked.status == 400 and asked.error.get("type") == "exceed_context_size_error", f"a 400 of the server: {asked}")
        checks.check(asked.data == direct.data, f"byte by byte: {asked}, {direct}")
        row = serve.ask("/api/metrics/activity")["rows"][0]
        checks.check(row["status"] == 400 and row["outcome"] == "error", f"its row: {row}")


def main():
    harness.require()
    parts = [(check_device_memory, check_last_words, check_port_taken, check_port_lost, check_hang), (check_back_off, check_stubborn, check_timeout, check_overflow),
             (check_crash_in_answer, check_kill, check_crash_loop, check_cooldown)]
    stubs.run_beside(checks, parts)
    checks.end()


main()
