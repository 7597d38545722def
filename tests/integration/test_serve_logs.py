#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the router logs: levels, JSON, the file and its turning over, the journal, what anybody may cause, and what no one
may put into it. Its models are stubs."""

import http.client
import json
import os
import pathlib
import pty
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

import harness
import log_lines
import stubs

checks = harness.Checks()
EVIL = "\x1b[31m\x1b]0;title\x07\u202eburthen: error: \u2028"


def raw(serve, data):
    with socket.create_connection((serve.host, serve.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def one_model(**top):
    return stubs.config({"a": stubs.model(host="20M")}, **top)


def check_variable():
    """A variable that is misspelt is said once, and by nothing that is started: its children do not have it."""
    env = {"BURTHEN_RAM_BUGET": "1G", "BURTHEN_SERVICE_HOST": "10.0.0.1"}
    with stubs.start(one_model(), env=env) as serve:
        serve.chat("a", "Hello", 1)
        log = serve.log()
        checks.check(log.count("BURTHEN_RAM_BUGET") == 1 and "the nearest is BURTHEN_RAM_BUDGET" in log, f"once: {log[:600]}")
        checks.check("BURTHEN_SERVICE_HOST" not in log, "what is not near is not ours")
        there = pathlib.Path(f"/proc/{serve.children()['a']}/environ").read_bytes()
        checks.check(b"BURTHEN_SERVICE_HOST=" in there and b"BUGET" not in there, f"the child's: {there}")


def check_levels():
    """--log-level, its twin, -q and -v."""
    for args, env, wants in (([], {}, {"listening": True, "POST": True}), (["--log-level", "warn"], {}, {"listening": False, "POST": False}),
                             ([], {"BURTHEN_LOG_LEVEL": "warn"}, {"listening": False}), (["-q"], {}, {"listening": False}),
                             (["-q", "--log-level", "info"], {}, {"listening": True}), (["--log-level", "error"], {}, {"nothing at": False, " 404 ": False})):
        with stubs.start(one_model(), *args, env=env) as serve:
            serve.chat("a", "Hello", 1)
            serve.request("/nothing")
            log = serve.log()
        for word, there in wants.items():
            checks.check((word in log) == there, f"{args} {env}: {word}: {log}")
    with stubs.start(one_model(), "--log-level", "warn") as serve:
        raw(serve, b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        checks.check(serve.wait_for(lambda: "burthen: warning: 127.0.0.1 GET / 403 " in serve.log()), f"a refusal is a warning: {serve.log()}")
        said = serve.request("/logs")[1].decode()
        checks.check("warning: 127.0.0.1 GET / 403" in said and "listening on" in said, f"/logs has all: {said}")


def check_json():
    """An object a line, with what it says in members; nothing of queries, keys and prompts."""
    with stubs.start(one_model(api_keys=["the-key"], log_children=True), "--log-json") as serve:
        headers = {"Authorization": "Bearer the-key", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(serve.host, serve.port, timeout=60)
        connection.request("POST", "/v1/chat/completions?secret=in-query", json.dumps(stubs.body("a", "the-prompt", n=3)), headers)
        checks.check(connection.getresponse().read(), "an answer")
        connection.request("GET", "/v1/models", headers={"Authorization": "Bearer a-wrong-key"})
        checks.check(connection.getresponse().read(), "a refusal")
        connection.close()
        checks.check(serve.wait_for(lambda: '"status":401' in serve.log()), "the refusal is logged")
        log = serve.log()
    found = log_lines.objects(checks, log, "requests")
    for secret in ("the-key", "a-wrong-key", "in-query", "the-prompt"):
        checks.check(secret not in log, f"{secret} is in the log")
    done = [one for one in found if one.get("status") == 200 and one.get("path") == "/v1/chat/completions"]
    checks.check(len(done) == 1 and done[0]["method"] == "POST" and done[0]["to"] == "a" and done[0]["bytes"] > 0 and done[0]["level"] == "info",
                 f"the request: {done}")
    refused = [one for one in found if one.get("status") == 401]
    checks.check(len(refused) == 1 and refused[0]["level"] == "warn" and refused[0]["path"] == "/v1/models", f"{refused}")
    checks.check(any(one.get("model") == "a" and "model loaded" in one["message"] for one in found), "a server's own line has its model")
    checks.check(all(one["component"] == "serve" and one["pid"] == found[0]["pid"] for one in found), f"{found[:2]}")


def check_file():
    """--log-file: 0600, appended to, opened anew on SIGHUP, dated; a full disk is an error at the start."""
    with tempfile.TemporaryDirectory() as name:
        log = pathlib.Path(name) / "log"
        with stubs.start(one_model(), "--log-file", log) as serve:
            checks.check(log.stat().st_mode & 0o777 == 0o600, oct(log.stat().st_mode))
            serve.chat("a", "Hello", 1)
            log.rename(log.with_suffix(".1"))
            os.kill(serve.pid, signal.SIGHUP)
            checks.check(serve.wait_for(log.exists), "it is opened anew")
            serve.request("/v1/models")
            checks.check(serve.wait_for(lambda: "GET /v1/models 200" in log.read_text()), log.read_text())
            checks.check("POST /v1/chat" in log.with_suffix(".1").read_text() and "POST" not in log.read_text(), "each has its lines")
            checks.check(serve.log() == "", f"nothing on standard error: {serve.log()}")
            # it cannot be opened: said in the old one, and nothing ends
            log.rename(log.with_suffix(".2"))
            log.mkdir()
            os.kill(serve.pid, signal.SIGHUP)
            checks.check(serve.wait_for(lambda: "cannot open the log file" in log.with_suffix(".2").read_text()), "why not")
            checks.check(serve.request("/health")[0] == 200, "it lives")
        dated = log.with_suffix(".1").read_text().splitlines()
        checks.check(all(line[:4].isdigit() and line[23] == "Z" and f" {serve.pid} " in line for line in dated), f"{dated[:3]}")
        text = one_model()
        config = pathlib.Path(name) / "serve.yaml"
        config.write_text(text)
        for file, code in (("/dev/full", 1), (name, 1), (f"{name}/no/log", 1)):
            done = subprocess.run([harness.BIN, "serve", config, "--listen", "127.0.0.1:0", "--log-file", file], capture_output=True, text=True,
                                  env=harness.environment(), check=False)
            checks.check(done.returncode == code and "log file" in done.stderr and done.stdout == "", f"{file}: {done}")


def check_full_later():
    """The disk is full while it runs: requests are served, and lines are written again when there is room."""
    with tempfile.TemporaryDirectory() as name:
        log = pathlib.Path(name) / "log"
        with stubs.start(one_model(), "--log-file", log) as serve:
            size = log.stat().st_size
            resource.prlimit(serve.pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
            for _ in range(3):
                checks.check(serve.request("/v1/models")[0] == 200, "served with a full disk")
            resource.prlimit(serve.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            serve.request("/v1/models")
            checks.check(serve.wait_for(lambda: "of the log lost" in log.read_text()), log.read_text())
            checks.check(log.read_text().endswith("\n"), "whole lines")


def check_bound():
    """Who is refused again and again does not fill a disk: a bounded number of lines a second, and how many were left out."""
    with stubs.start(one_model(api_keys=["k"])) as serve:
        begin = time.monotonic()
        connection = http.client.HTTPConnection(serve.host, serve.port, timeout=60)
        for n in range(400):
            connection.request("GET", "/v1/models" if n % 2 else "/x" + "y" * 3000)
            connection.getresponse().read()
        connection.close()
        seconds = time.monotonic() - begin

        def counted():
            log = serve.log().splitlines()
            return len([1 for line in log if " 401 " in line]), sum(int(line.split()[2]) for line in log if "more requests were refused" in line)

        serve.wait_for(lambda: sum(counted()) == 400)  # the last count comes when its second is over
        log = serve.log()
        n_lines, left = counted()
    slow = seconds > 15  # on a machine that does not come to 20 a second there is nothing to leave out
    checks.check(n_lines <= 20 * (int(seconds) + 2) and (left > 0 or slow), f"{n_lines} lines in {seconds:.1f} s")
    checks.check(n_lines + left == 400, f"{n_lines} lines and {left} left out are not all")
    checks.check(max(len(line) for line in log.splitlines()) < 400, "and short ones")


def check_injection():
    """Nothing that a client or a server sends ends a line of ours or drives a terminal."""
    with tempfile.TemporaryDirectory() as name:
        program = pathlib.Path(name) / "evil.py"
        program.write_text("import sys\nsys.stdout.buffer.write(b'say \\x1b[2J\\xff\\xe2\\x80\\xae\\rburthen: error: no\\n')\nsys.stdout.flush()\n"
                           "sys.stderr.buffer.write(b'{\"level\":\"error\"}\\x00\\n' + b'z' * 20000 + b'\\n')\n")
        text = stubs.config({"a": stubs.model(host="20M"), "e" + EVIL[6:10] + "\u202e": {"cmd": f"{sys.executable} {program} ${{PORT}}", "memory": {"host": "5M"}}},
                            log_children=True)
        for args in ([], ["--log-json"]):
            with stubs.start(text, *args) as serve:
                for path in (b"/%1b[31m", b"/\x1b[31m", b"/a%0aburthen:%20error", b"/\xff\xfe", "/\u202e".encode(), b"/%e2%80%a8burthen:"):
                    raw(serve, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                raw(serve, b"G\x1b[31mT /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                serve.request("/v1/chat/completions", stubs.body(EVIL))
                models = [one["id"] for one in serve.ask("/v1/models")["data"]]
                stubs.Asked(serve, models[-1]).wait()
                log = serve.log()
                served = serve.request("/logs")[1].decode()
            log_lines.check_clean(checks, log, f"{args}")
            log_lines.check_clean(checks, served, "/logs")
            checks.check("burthen: error: no" not in [line[:19] for line in log.splitlines()], "a line that looks like ours")
            checks.check(max(len(line.encode()) for line in log.splitlines()) <= 4096, "lines are bounded")
            if args:
                log_lines.objects(checks, log, f"{args}")


def check_journal():
    """Standard error is the journal's socket: levels as sd-daemon has them, no times. It is not, though the variable says so: none."""
    with tempfile.TemporaryFile() as journal:
        found = os.fstat(journal.fileno())
        for stream, prefixed in ((f"{found.st_dev}:{found.st_ino}", True), (f"{found.st_dev}:{found.st_ino + 1}", False)):
            journal.seek(0)
            journal.truncate()
            with tempfile.TemporaryDirectory() as name:
                config = pathlib.Path(name) / "serve.yaml"
                config.write_text(one_model(api_keys=["k"]))
                with subprocess.Popen([harness.BIN, "serve", config, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=journal,
                                      env=harness.environment() | {"JOURNAL_STREAM": stream}) as process:
                    port = int(process.stdout.readline().rpartition(b":")[2])
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    connection.request("GET", "/v1/models")
                    connection.getresponse().read()
                    connection.close()
                    process.terminate()
                    process.wait(60)
            journal.seek(0)
            lines = journal.read().decode().splitlines()
            checks.check(any(line.startswith("<6>burthen: listening on") for line in lines) == prefixed, f"{stream}: {lines}")
            checks.check(any(line.startswith("<4>burthen: 127.0.0.1 GET /v1/models 401") for line in lines) == prefixed, f"{stream}: {lines}")


def check_address():
    """On a terminal the address is said once; in a pipe it is the first line."""
    with tempfile.TemporaryDirectory() as name:
        config = pathlib.Path(name) / "serve.yaml"
        config.write_text(one_model())
        for args, wanted in (([], 1), (["-q"], 1), (["--log-level", "warn"], 1)):
            master, slave = pty.openpty()
            with subprocess.Popen([harness.BIN, "serve", config, "--listen", "127.0.0.1:0", *args], stdout=slave, stderr=slave, stdin=slave,
                                  env=harness.environment()) as process:
                os.close(slave)
                said, end = b"", time.monotonic() + 60
                while b"http://" not in said and time.monotonic() < end:
                    said += os.read(master, 4096)
                time.sleep(0.3)
                process.terminate()
                try:
                    while piece := os.read(master, 4096):
                        said += piece
                except OSError:
                    pass
                process.wait(60)
            os.close(master)
            checks.check(said.count(b"http://") == wanted, f"{args}: {said}")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_variable, check_levels, check_file, check_full_later, check_address), (check_json, check_bound, check_injection, check_journal)])
    checks.end()


main()
