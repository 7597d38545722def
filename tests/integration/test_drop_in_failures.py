# SPDX-License-Identifier: MIT
"""What goes wrong under an unmodified llama-server that streams its weights is one request's error (HTTP 500), with a
reason in the log, and the server lives: a disk that fails for a while, a model that is cut short or written to under it.
A model that is removed is still there for who has it open. The library without a plan holds nothing, and says so; with
a plan that is not its program's it does no harm.

A disk fails as a preloaded library says (tests/support/preload/fail_reads.c), which sees no io_uring: that is refused to
the server as containers refuse it."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import drop_in
import harness
import limits
import llama_server

drop_in.require()
checks = harness.Checks()
FAILING = harness.SOURCE / "tests/support/preload/fail_reads.c"
SETTINGS = ("-c", 512, "-np", 1, "-t", 1, "-ub", drop_in.N_UBATCH)
N_TOKENS = 6
N_STREAMED = 400  # more than are made before the first of them has come
ERROR = 500
HOLDS_NOTHING = ("nothing is held", "holds nothing", "hold nothing")


def question(n=N_TOKENS):
    return {"prompt": harness.PROMPT, "n_predict": n, "temperature": 0, "cache_prompt": False, "ignore_eos": True}


def ask(server):
    """(HTTP status, body as text); 0 where no answer came."""
    try:
        status, body = server.request("/completion", question(), timeout_s=60)
        return status, body.decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)


def expected():
    with drop_in.plain("-m", harness.SMOLLM2, *SETTINGS) as server:
        server.check_works(checks, "the plain server")
        return server.complete(harness.PROMPT, N_TOKENS)["content"]


def check_good(server, text, what):
    status, body = ask(server)
    checks.check(status == 200 and text == json.loads(body)["content"], f"{what}: {status}: {body[:400]}")


def check_failed(server, what, n_before):
    """A request fails with 500, the server lives and says why, in a sentence that was not there before."""
    status, body = ask(server)
    checks.check(status == ERROR, f"{what}: HTTP {status}: {body[:400]}")
    checks.check('"error"' in body, f"{what}: no error in {body[:400]}")
    checks.check(server.is_alive() and server.is_healthy(), f"{what}: the server is gone: {server.log()[-900:]}")
    said = drop_in.sentences(server.log())[n_before:]
    checks.check(any("copy.gguf" in sentence for sentence in said), f"{what}: no reason with the file: {said[-5:]}")
    print(f"{what:14} HTTP {status}; {said[-1:]}", flush=True)


@contextlib.contextmanager
def serving(model, what, text, **more):
    """A server at its least budget that has answered once."""
    args = ("-m", model, *SETTINGS)
    with drop_in.held(*args, budget=drop_in.rungs(*args)["minimum"], **more) as server:
        works = server.check_works(checks, what)
        if works:
            check_good(server, text, f"{what}, before")
        yield server if works else None
        status, log = server.stop()
        checks.check(not works or status == 0, f"{what}: SIGTERM ends it with {status}: {log[-600:]}")


def try_disk(model, folder, text):
    """Reads fail, then work again."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    library, flag = folder / "fail_reads.so", folder / "failing"
    if not compiler or subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, FAILING]).returncode != 0:
        print("a failing disk: not tried, no compiler for the library to preload")
        return
    env = harness.environment() | {"LD_PRELOAD": str(library), "FAIL_READS_OF": str(model.resolve()),
                                   "FAIL_READS_WHILE": str(flag)}
    with serving(model, "a failing disk", text, env=env, limit=limits.refuse_io_uring()) as server:
        if server is None:
            return
        for again in ("", " again"):
            n_before = len(drop_in.sentences(server.log()))
            flag.touch()
            check_failed(server, f"a failing disk{again}", n_before)
            flag.unlink()
            check_good(server, text, f"a disk that works again{again}")
        events = []
        with server.answering(checks, "a disk that fails under a stream"):
            for event in server.events("/completion", question(N_STREAMED)):
                events.append(event)
                if len(events) == 2:
                    flag.touch()
            ended = events and "error" in events[-1] and len(events) < N_STREAMED
            checks.check(ended, f"a stream over a disk that fails: {len(events)} events, the last {events[-1:]}")
        flag.unlink()
        check_good(server, text, "after a stream that failed")


def try_cut(model, text):
    with serving(model, "cut short", text) as server:
        if server:
            n_before = len(drop_in.sentences(server.log()))
            os.truncate(model, model.stat().st_size // 2)
            check_failed(server, "cut short", n_before)


def try_written(model, text):
    """Whole pages of zeros over half of it, at once: whatever is read, it is not what was planned."""
    with serving(model, "written to", text) as server:
        if server:
            n_before = len(drop_in.sentences(server.log()))
            with open(model, "r+b") as file:
                file.seek(model.stat().st_size // 2)
                file.write(bytes(1 << 20))
            check_failed(server, "written to", n_before)
            checks.check("has changed" in server.log(), f"written to: not said: {drop_in.sentences(server.log())[-3:]}")


def try_removed(model, text):
    """Another file takes its name: the one that was opened is whole."""
    with serving(model, "removed", text) as server:
        if server:
            other = model.with_suffix(".other")
            other.write_bytes(b"not a model")
            os.replace(other, model)
            status, body = ask(server)
            if status == 200:
                checks.check(json.loads(body)["content"] == text, f"removed: {body[:300]}, not {text!r}")
            else:
                said = "".join(drop_in.sentences(server.log()))
                checks.check(status == ERROR and "copy.gguf" in said, f"removed: HTTP {status}: {body[:300]}, {said}")
            checks.check(server.is_healthy(), "removed: the server is gone")
            print(f"removed        HTTP {status}", flush=True)


def try_library_alone():
    """GGML_BACKEND_PATH without a plan: the program runs as ever, one line says that nothing is held."""
    env = harness.environment() | {"GGML_BACKEND_PATH": str(drop_in.library())}
    texts, logs = [], []
    for environment in (harness.environment(), env):
        # without an option that names devices or buffers this program loads no library at all
        with llama_server.Server("-m", harness.SMOLLM2, *SETTINGS, "-ot", "no_such_tensor=CPU", env=environment) as server:
            server.check_works(checks, "the library alone")
            texts.append(server.complete(harness.PROMPT, N_TOKENS)["content"])
            mapped = any(path.name == drop_in.LIBRARY for path in server.mapped())
            logs.append(server.stop()[1])
    checks.check(texts[0] == texts[1], f"the library alone: {texts[1]!r}, without it {texts[0]!r}")
    checks.check(mapped, "the library alone is not loaded: this test shows nothing")
    said = drop_in.sentences(logs[1])
    checks.check(len(said) == 1 and any(word in said[0] for word in HOLDS_NOTHING), f"the library alone: {said}")


def check_foreign_plan(what, model, plan, good):
    """The library with a plan that is not for this program: it works as ever or ends, and says something either way."""
    env = harness.environment() | {"GGML_BACKEND_PATH": str(drop_in.library()), "BURTHEN_PLAN": str(plan)}
    with llama_server.Server("-m", model, *SETTINGS, "-ot", "no_such_tensor=CPU", *drop_in.PLAIN_SERVER, env=env) as server:
        if server.works:
            check_good(server, good, what)
        status, log = server.stop()
        checks.check(status >= 0, f"{what}: it was killed by signal {-status}: {log[-900:]}")
        checks.check(server.works or status > 0, f"{what}: it neither works nor fails: {status}")
        checks.check(drop_in.sentences(log), f"{what}: nothing is said: {log[-600:]}")
        print(f"{what:28} {'works' if server.works else 'refused'}: {drop_in.sentences(log)[:1]}", flush=True)


def try_foreign_plans(folder, text):
    """No file, no plan, and the plan of a server that runs, for another model."""
    check_foreign_plan("no plan at its place", harness.SMOLLM2, folder / "nothing", text)
    (folder / "noise").write_text('{"schema": 1, "pools": ')
    check_foreign_plan("a plan that is none", harness.SMOLLM2, folder / "noise", text)
    other = folder / "other.gguf"
    shutil.copy(harness.SMOLLM2, other)
    with drop_in.held("-m", other, *SETTINGS, budget="1G") as server:
        if server.check_works(checks, "a server that runs"):
            words = pathlib.Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
            found = [word.partition(b"=")[2].decode() for word in words if word.startswith(b"BURTHEN_PLAN=")]
            if checks.check(len(found) == 1, f"the plan is not named in its environment: {found}"):
                own = found[0].replace("self", str(server.pid))
                check_foreign_plan("the plan of another model", harness.SMOLLM2, own, text)


text = expected()
with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as folder:
    model = pathlib.Path(folder) / "copy.gguf"
    for attempt in (lambda: try_disk(model, pathlib.Path(folder), text), lambda: try_cut(model, text),
                    lambda: try_written(model, text), lambda: try_removed(model, text)):
        shutil.copy(harness.SMOLLM2, model)
        attempt()
    try_foreign_plans(pathlib.Path(folder), text)
try_library_alone()
checks.end()
