#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The router among enemies: servers that break the protocol, clients that do, configurations that change under them, and
kill -9 at any moment.

Its models are processes that sleep; what answers for them is a server of this test that does what the path says. After
each enemy the router must answer an ordinary request at once, and in the end nothing of it may be left. No model files.

BT_ATTACK_KILLS: how often the router is killed (4)."""

import contextlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

import client
import harness
import router

checks = harness.Checks()
N_KILLS = int(os.environ.get("BT_ATTACK_KILLS", "4"))
LEAST = 10  # answers among them; on a slow machine it takes more
N_RELOADS = int(os.environ.get("BT_ATTACK_RELOADS", "30"))
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


# ---- servers ----

def endless_head(s):
    s.sendall(b"HTTP/1.1 200 OK\r\n")
    for i in range(1 << 20):
        s.sendall(b"X-%d: y\r\n" % i)


def endless_line(s):
    s.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(1 << 12):
        s.sendall(b"y" * 4096)


EVIL = {
    "garbage": lambda s: s.sendall(os.urandom(70000)),
    "nothing": lambda s: None,
    "endless_head": endless_head,
    "endless_line": endless_line,
    "no_status": lambda s: s.sendall(b"HTTP/1.1 \r\n\r\n"),
    "status_0": lambda s: s.sendall(b"HTTP/1.1 000 X\r\nContent-Length: 2\r\n\r\nab"),
    "status_999": lambda s: s.sendall(b"HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\nab"),
    "http_2": lambda s: s.sendall(b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nab"),
    "short": lambda s: s.sendall(JSON_HEAD + b"Content-Length: 100\r\n\r\n{}"),
    "long": lambda s: s.sendall(JSON_HEAD + b"Content-Length: 2\r\n\r\n{}" + JSON_HEAD + b"Content-Length: 6\r\n\r\nsecret"),
    "two_lengths": lambda s: s.sendall(JSON_HEAD + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}"),
    "negative": lambda s: s.sendall(JSON_HEAD + b"Content-Length: -1\r\n\r\n{}"),
    "huge_length": lambda s: s.sendall(JSON_HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}"),
    "both": lambda s: s.sendall(JSON_HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    "bad_chunk": lambda s: s.sendall(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    "huge_chunk": lambda s: s.sendall(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n"),
    "continue": lambda s: s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + JSON_HEAD + b"Content-Length: 2\r\n\r\n{}"),
    "only_continue": lambda s: s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "switch": lambda s: s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nraw"),
    "no_content": lambda s: s.sendall(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nabcde"),
    "not_modified": lambda s: s.sendall(b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nabcde"),
    "inject": lambda s: s.sendall(JSON_HEAD + b"X-A: b\x0bSet-Cookie: c=d\r\nX-B: a\rSet-Cookie: e=f\r\nContent-Length: 2\r\n\r\n{}"),
    "folded": lambda s: s.sendall(JSON_HEAD + b"X-A: b\r\n Set-Cookie: c=d\r\nContent-Length: 2\r\n\r\n{}"),
    "nul": lambda s: s.sendall(JSON_HEAD + b"X-A: b\0c\r\nContent-Length: 2\r\n\r\n{}"),
    "ours": lambda s: s.sendall(JSON_HEAD + b"Connection: close, X-Gone\r\nX-Gone: 1\r\nAccess-Control-Allow-Origin: *\r\n"
                                b"Content-Length: 2\r\n\r\n{}"),
    "forged_events": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + b"[" * 200000 + b"\n\n"),
    "endless_line_of_events": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {" + b'"a":' * 500000),
    "reset": lambda s: (s.sendall(JSON_HEAD + b"Content-Length: 100\r\n\r\n{"),
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")),
}


class Evil(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.settimeout(60)
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = self.request.recv(65536)
                if not more:
                    return
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            n_left = next((int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")), 0) - len(body)
            while n_left > 0:
                n_left -= len(self.request.recv(1 << 20)) or n_left
            target = data.split(b" ")[1].decode()
            name = target.strip("/").partition("?")[0]
            if name == "metrics":  # begins, and never ends
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nllamacpp:x 1\n")
                self.request.recv(1)
            elif name == "health":  # longer than anybody would read
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 1000000)
            elif target == "/?x=1":
                self.request.sendall(JSON_HEAD + b"Content-Length: 14\r\n\r\n{\"query\":true}")
            elif name in EVIL:
                EVIL[name](self.request)
            else:
                self.request.sendall(JSON_HEAD + b"Content-Length: 11\r\n\r\n{\"ok\":true}")
        except OSError:
            pass


class EvilServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


def config(port, *, ids=("m",), more=""):
    lines = ["hold: 0", "limits: {request: 32M, bodies: 128M, connections: 400}", "models:"]
    for i in ids:
        lines.append(f"  {json.dumps(i)}: {{cmd: sleep 1000, proxy: 'http://127.0.0.1:{port}', memory: {{host: 1M}}}}")
    return "\n".join(lines) + "\n" + more


def is_well(serve, model="m"):
    try:
        status, body = serve.request("/v1/chat/completions", {"model": model}, timeout_s=60)
        return (status, body) == (200, b'{"ok":true}') or f"{status} {body[:300]}"
    except (OSError, http.client.HTTPException) as why:
        return repr(why)


def check_servers(serve):
    for name in EVIL:
        begun = time.monotonic()
        try:
            connection, response = serve.open(f"/upstream/m/{name}", timeout_s=50)
            status, headers = response.status, response.getheaders()
            body = response.read()
            connection.close()
        except (OSError, http.client.HTTPException) as why:
            status, headers, body = 0, [], repr(why).encode()
        took = time.monotonic() - begun
        checks.check(took < 30, f"{name}: {took:.1f} s")  # and not as long as the enemy would, or its client
        checks.check(status in (0, 200, 204, 304, 502), f"{name}: {status} {body[:100]}")
        names = {key.lower() for key, _ in headers}
        checks.check(not names & {"set-cookie", "x-gone"} and b"secret" not in body, f"{name}: {headers} {body[:100]}")
        checks.check(not any("Set-Cookie" in value and key == "Set-Cookie" for key, value in headers), f"{name}: {headers}")
        well = is_well(serve)
        checks.check(well is True, f"after {name}: {well}")
    text = serve.request("/metrics", timeout_s=50)[1].decode()
    checks.check("burthen_" in text, "metrics of a server that never ends its own")


# ---- clients ----

def raw(serve, data, wait_s=1.0, half=False, enough=lambda got: False):
    """What comes back of bytes, until it is enough or nothing comes for a while."""
    with socket.create_connection((serve.host, serve.port), timeout=60) as s:
        got = b""
        try:
            s.sendall(data)
            if half:
                s.shutdown(socket.SHUT_WR)
            s.settimeout(wait_s)
            while len(got) < 1 << 20 and not enough(got):
                more = s.recv(65536)
                if not more:
                    break
                got += more
        except OSError:
            pass
        return got


def post(body, path="/v1/chat/completions", head=""):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def resident_mib(serve):
    with open(f"/proc/{serve.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) / 1024


def check_bodies(serve):
    n = 30 << 20
    before = resident_mib(serve)
    bombs = {"brackets": b"[" * n, "lists": b'{"model":"m","x":[' + b"[]," * (n // 3) + b"1]}",
             "objects": b'{"model":"m","x":[' + b"{}," * (n // 3) + b"1]}", "keys": b"{" + b'"a":1,' * (n // 6) + b'"model":"m"}',
             "deep": b'{"a":' * 600 + b"1" + b"}" * 600}
    for name, body in bombs.items():
        begun = time.monotonic()
        status, _ = serve.request("/v1/chat/completions", body, timeout_s=120)
        took = time.monotonic() - begun
        checks.check(status == (400 if name in ("brackets", "deep") else 200), f"{name}: {status}")
        checks.check(took < 30, f"{name}: {took:.1f} s")
    # three times the largest body: what came, what is sent on, and room for neither being exact
    grown = resident_mib(serve) - before
    checks.check(grown < 100 or "asan" in str(harness.BIN), f"bodies of 30 MiB grew the router by {grown:.0f} MiB")
    odd = {b'{"model":"m","model":"no"}': 404, b'{"model":"no","model":"m"}': 200, b'{"m\\u006fdel":"\\u006d"}': 200,
           b'{"model":"m\\u0000"}': 400, b'{"model":"' + b"x" * 129 + b'"}': 400, b'{"model":"a\\nb\\u001b[2J"}': 404,
           b'{"model":7}': 200, b"null": 400, b"": 200, b"{": 400, b'{"model":"m"}x': 400, b'{"model":"\xff"}': 404,
           b'{"model":"m","n_probs":1e9}': 400, b'{"model":"m","n_probs":1000000}': 400, b'{"model":"m","n_probs":null}': 200}
    for body, expected in odd.items():
        status, data = serve.request("/v1/chat/completions", body)
        checks.check(status == expected, f"{body[:60]}: {status}, not {expected}: {data[:200]}")
        if status >= 400:
            json.loads(data.decode())
    checks.check(serve.request("/v1/chat/completions", b"x" * (33 << 20))[0] == 413, "33 MiB are too much")


def check_clients(serve):
    chat = b'{"model":"m"}'
    line = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    for name, data in {
        "huge header": line + b"X: " + b"y" * 100000 + b"\r\n\r\n",
        "many headers": line + b"".join(b"X-%d: y\r\n" % i for i in range(9000)) + b"\r\n",
        "no end": line,
        "garbage": os.urandom(5000),
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
        "forged path": b"GET /x%0a127.0.0.1%20GET%20/forged HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "forged path, escapes": b"GET /x%1b%5b2J HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "bad chunk": b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "both": b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    }.items():
        answer = raw(serve, data, 0.3)
        checks.check(b"HTTP/1.1 200" not in answer.split(b"\r\n")[0] or name in ("no end",), f"{name}: {answer[:100]}")
    n_answers = raw(serve, post(chat) * 20, 30, enough=lambda got: got.count(b'{"ok":true}') >= 20).count(b'{"ok":true}')
    checks.check(n_answers == 20, f"20 pipelined requests had {n_answers} answers")
    raw(serve, post(chat)[:-3], 0.2, half=True)
    raw(serve, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1000, 0.2)
    slow = []
    try:
        for i in range(380):  # of 400: who begins and never goes on
            s = socket.create_connection((serve.host, serve.port), timeout=60)
            slow.append(s)
            s.sendall((line, post(chat)[:-3], b"G", b"")[i % 4])
        well = is_well(serve)
        checks.check(well is True, f"among 380 slow clients: {well}")
    finally:
        for s in slow:
            s.close()
    log = serve.request("/logs")[1].decode()
    checks.check(not any(line.startswith("127.0.0.1 GET /forged") or "\x1b" in line for line in log.splitlines()), "a forged line")
    well = is_well(serve)
    checks.check(well is True, f"after odd clients: {well}")


# ---- names ----

def check_names(port):
    ids = ["a/b", "a/b/c", "ä ö", 'quo"te', "per%cent", "a b?c#d", "{x}", "x" * 128]
    with router.Router(config(port, ids=ids)) as serve:
        listed = [one["id"] for one in serve.ask("/v1/models")["data"]]
        checks.check(sorted(listed) == sorted(ids), f"listed {listed}")
        for name in ids:
            well = is_well(serve, name)
            checks.check(well is True, f"{name!r}: {well}")
            quoted = "".join(c if c.isalnum() and c.isascii() or c == "/" else "".join(f"%{b:02X}" for b in c.encode()) for c in name)
            status, body = serve.request(f"/upstream/{quoted}/anything?x=1")
            checks.check((status, body) == (200, b'{"ok":true}'), f"/upstream/{quoted}: {status} {body[:100]}")
            status, body = serve.request(f"/upstream/{quoted}?x=1")
            checks.check((status, body) == (200, b'{"query":true}'), f"/upstream/{quoted}?x=1: {status} {body[:100]}")
            status, _ = serve.request(f"/api/models/unload/{quoted}", b"")
            checks.check(status == 200, f"unload {quoted}: {status}")
        checks.check(serve.request("/metrics")[0] == 200, "metrics of odd names")
        checks.check(serve.stop()[0] == 0, "it ends")


# ---- changes ----

def check_reloads(serve, port):
    """Configurations that take models away, give their names to others and change how they are started, under load."""
    over, odd, n_answers = threading.Event(), [], [0]

    def client(seed):
        pick = random.Random(seed)
        while not over.is_set():
            try:
                name = pick.choice(["m", "n", "alias", "o"])
                if pick.random() < 0.2:
                    raw(serve, post(json.dumps({"model": name}).encode()), pick.random() * 0.01)
                    continue
                status, body = serve.request("/v1/chat/completions", {"model": name}, timeout_s=120)
                if status not in (200, 404, 503, 502):
                    odd.append((status, body))
                n_answers[0] += status == 200
            except (OSError, http.client.HTTPException) as why:
                odd.append(repr(why))

    clients = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for one in clients:
        one.start()
    proxy = f"proxy: 'http://127.0.0.1:{port}', memory: {{host: 1M}}"
    versions = [f"hold: 0\nmodels:\n  m: {{cmd: sleep 1000, {proxy}, aliases: [alias], preload: true}}\n",
                f"hold: 0\nmodels:\n  n: {{cmd: sleep 1000, {proxy}, aliases: [alias, m]}}\n  o: {{cmd: sleep 5, {proxy}}}\n",
                f"hold: 0\nmodels:\n  m: {{cmd: sleep 1001, {proxy}}}\n  n: {{cmd: sleep 1000, {proxy}, cmdStop: 'kill ${{PID}}', "
                "filters: {strip_params: x}}\n", "models: [this is wrong\n"]
    pick = random.Random(4)
    begun, i = time.monotonic(), 0
    while i < N_RELOADS or (n_answers[0] <= LEAST and time.monotonic() < begun + 300):
        i += 1
        serve.rewrite(versions[pick.randrange(len(versions))])
        serve.process.send_signal(signal.SIGHUP)
        children = list(serve.children().values()) if i % 3 == 0 else []
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(pick.random() * 0.2)
    # Twice 200 models that share no name: more than there can be at a time, and none of the first runs.
    for prefix in "pq":
        serve.rewrite(config(port, ids=[f"{prefix}{i}" for i in range(200)] + ["fresh"]))
        serve.process.send_signal(signal.SIGHUP)
        there = serve.wait_for(lambda: f"{prefix}199" in [one["id"] for one in serve.ask("/v1/models")["data"]])
        checks.check(there, f"200 models {prefix}: {serve.log()[-300:]}")
    over.set()
    for one in clients:
        one.join()
    checks.check(not odd and n_answers[0] > LEAST, f"{n_answers} answers, {odd[:3]}")
    well = is_well(serve, "fresh")  # m was killed, and may have to wait for its next try
    checks.check(well is True, f"after reloads: {well}")


# ---- ends ----

STUBBORN = "sh -c 'trap \"\" TERM HUP INT; setsid sh -c \"trap \\\"\\\" TERM; sleep 999\" & yes | head -c 3000000; sleep 998'"


def check_kills(port):
    pick = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        env = {"BURTHEN_STATE_DIR": folder}
        text = config(port) + f"  wild: {{cmd: {json.dumps(STUBBORN)}, proxy: 'http://127.0.0.1:{port}', memory: {{host: 1M}}, preload: true}}\n"
        for i in range(N_KILLS):
            serve = router.Router(text, env=env)
            if i == N_KILLS - 1:
                checks.check(is_well(serve) is True, "a router on the folder of routers that were killed")
                checks.check(is_well(serve, "wild") is True, "a model that heeds nothing")
            time.sleep(pick.random() * 0.7)
            mark = serve.mark()
            if i % 3 == 2:
                serve.process.send_signal(signal.SIGTERM)
                time.sleep(pick.random() * 0.1)
            serve.stop(signal.SIGKILL)
            gone = not mark or serve.wait_for(lambda: not router.marked(mark))
            checks.check(gone, f"kill {i}: {router.marked(mark) if mark else ''} live on")


def check_deaf_log(port):
    """Nobody reads standard error: requests do not wait for that."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config(port))
        file.flush()
        read_end, write_end = os.pipe()
        with subprocess.Popen([harness.BIN, "serve", file.name, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=write_end,
                              env=harness.environment()) as process:
            os.close(write_end)
            asked = client.Client()
            asked.port = int(process.stdout.readline().rpartition(b":")[2])
            try:
                for _ in range(1500):  # of some 50 bytes each, where a pipe holds 64 KiB
                    asked.request("/v1/models", timeout_s=60)
                checks.check(is_well(asked) is True, "with a full log")
                full = len(os.read(read_end, 1 << 20)) >= 30000
                os.set_blocking(read_end, False)
                said = b""

                def is_told():  # in front of the first line that can be written again
                    nonlocal said
                    asked.request("/again", timeout_s=60)
                    with contextlib.suppress(BlockingIOError):
                        said += os.read(read_end, 1 << 20)
                    return b"lines of the log lost" in said

                checks.check(full and harness.wait_for(is_told), "the log says that lines are lost")
            except OSError as why:
                checks.check(False, f"with a full log: {why!r}")
            process.kill()
        os.close(read_end)


def check_samples(serve):
    """Memory is looked at also while one short request follows the other."""
    is_well(serve)
    first = serve.ask("/api/memory")["pools"][0]["free_bytes"]

    def changed():
        for _ in range(20):  # without a pause in which a sample could come
            is_well(serve)
        return serve.ask("/api/memory")["pools"][0]["free_bytes"] != first

    checks.check(serve.wait_for(changed), "no new sample of memory while requests come")


def check_few_descriptors(port):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        serve = router.Router(config(port))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with serve:
        held = []
        try:
            for _ in range(120):
                held.append(socket.create_connection((serve.host, serve.port), timeout=2))
        except OSError:
            pass
        time.sleep(0.5)
        ticks = sum(map(int, open(f"/proc/{serve.pid}/stat").read().rpartition(")")[2].split()[11:13]))
        time.sleep(1.5)
        spent = sum(map(int, open(f"/proc/{serve.pid}/stat").read().rpartition(")")[2].split()[11:13])) - ticks
        checks.check(spent < 75, f"without descriptors it spends {spent} ticks in 1.5 s")
        for s in held:
            s.close()
        well = is_well(serve)
        checks.check(well is True, f"after it had no descriptors: {well}")
        checks.check(serve.stop()[0] == 0, f"it ends: {serve.log()[-300:]}")


def main():
    evil = EvilServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    port = evil.server_address[1]
    only = sys.argv[1:]
    with router.Router(config(port)) as serve:
        if not serve.works:
            raise SystemExit(serve.log())
        for check in (check_samples, check_servers, check_bodies, check_clients, check_reloads):
            begun = time.monotonic()
            if not only or check.__name__ in only:
                check(*((serve, port) if check is check_reloads else (serve,)))
            print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        mark = serve.mark()
        status, log = serve.stop()
        checks.check(status == 0 and "runtime error" not in log and "Sanitizer" not in log, f"it ends with {status}: {log[-2000:]}")
        checks.check(not mark or not router.marked(mark), "something is left of it")
    for check in (check_names, check_deaf_log, check_few_descriptors, check_kills):
        begun = time.monotonic()
        if not only or check.__name__ in only:
            check(port)
        print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    checks.end()


main()
