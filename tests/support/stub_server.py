#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""User-case kit K3: a program that looks like llama-server from outside and holds no model.

    python3 stub_server.py --port 8081 --mem 64M --load-seconds 1.5 --token-ms 20 -m any.gguf -c 4096 -np 2

Options of its own:

    --mem SIZE             memory that is touched while it loads (64M, 1G)
    --load-seconds S       so long /health and everything else answer 503, as while a model is loaded
    --until FILE           until that is there, too: a test says when it is loaded, or when it ends (--die-with)
    --tokens N             of an answer where the request does not say max_tokens (16)
    --token-ms MS          between two tokens (0); --prompt-ms MS: before the first (0)
    --abort-after N        abort() after N tokens of all answers together
    --cut-after N          the connection is closed after N tokens of an answer
    --hang                 a request is taken and never answered; /health is
    --die-with LINE        say LINE on stderr and end, with --die-code N (1; below 0: by that signal), after
                           --die-after S (0)
    --hold-after-exit S    when it ends, a copy of it holds the memory for so long
    --stubborn             SIGTERM is ignored

"hold": true in a request keeps its answer from its last token until somebody asks for /stub/go, which lets all answers go
on whose requests have come by then: a test need not guess how long something takes. A client that leaves is seen meanwhile.

Of llama-server's it knows --host, --port, --alias, -c, -np, --metrics, --api-key and -m; all others are read over. /stub
says what it was started with and asked for. Text is "one two three ..."; a client that leaves ends its answer."""

import argparse
import contextlib
import http.server
import json
import mmap
import os
import re
import signal
import sys
import threading
import time

WORDS = "one two three four five six seven eight nine ten".split()
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_bytes(text):
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:iB|B)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size")
    return int(float(match[1]) * UNITS[match[2]])


def options(argv):
    p = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080)
    p.add_argument("-m", "--model", default="stub.gguf")
    p.add_argument("-a", "--alias", default="")
    p.add_argument("-c", "--ctx-size", type=int, default=4096)
    p.add_argument("-np", "--parallel", type=int, default=4)
    p.add_argument("--metrics", action="store_true")
    p.add_argument("--api-key", default="")
    p.add_argument("--mem", type=size_bytes, default=0)
    p.add_argument("--load-seconds", type=float, default=0)
    p.add_argument("--until")
    p.add_argument("--tokens", type=int, default=16)
    p.add_argument("--token-ms", type=float, default=0)
    p.add_argument("--prompt-ms", type=float, default=0)
    p.add_argument("--abort-after", type=int, default=0)
    p.add_argument("--cut-after", type=int, default=0)
    p.add_argument("--hang", action="store_true")
    p.add_argument("--die-with")
    p.add_argument("--die-code", type=int, default=1)
    p.add_argument("--die-after", type=float, default=0)
    p.add_argument("--hold-after-exit", type=float, default=0)
    p.add_argument("--stubborn", action="store_true")
    return p.parse_known_args(argv)[0]


def say(line):
    print(line, file=sys.stderr, flush=True)


def wait_until(file):
    while file and not os.path.exists(file):
        time.sleep(0.02)


class State:
    """What all requests share."""

    def __init__(self, opt):
        self.opt = opt
        self.memory = None
        self.loaded = threading.Event()
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(max(1, opt.parallel))
        self.n_requests = self.n_running = self.n_waiting = self.n_gone = self.n_go = 0
        self.prompt_tokens = self.output_tokens = 0
        self.output_seconds = 0.0
        self.last = {}

    def load(self):
        end = time.monotonic() + self.opt.load_seconds
        if self.opt.mem:
            self.memory = mmap.mmap(-1, self.opt.mem, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, self.opt.mem, mmap.PAGESIZE):
                self.memory[at] = 1
        time.sleep(max(0.0, end - time.monotonic()))
        wait_until(self.opt.until)
        say("main: model loaded")
        self.loaded.set()

    def count_token(self):
        with self.lock:
            self.output_tokens += 1
            if self.opt.abort_after and self.output_tokens >= self.opt.abort_after:
                say("stub_server: aborted, as it was told")
                os.abort()

    @contextlib.contextmanager
    def slot(self):
        with self.lock:
            self.n_waiting += 1
        self.slots.acquire()
        with self.lock:
            self.n_waiting -= 1
            self.n_running += 1
        try:
            yield
        finally:
            with self.lock:
                self.n_running -= 1
            self.slots.release()

    def metrics(self):
        rows = [("prompt_tokens_total", "counter", "Number of prompt tokens processed.", self.prompt_tokens),
                ("tokens_predicted_total", "counter", "Number of generation tokens processed.", self.output_tokens),
                ("tokens_predicted_seconds_total", "counter", "Predict process time", round(self.output_seconds, 3)),
                ("requests_processing", "gauge", "Number of requests processing.", self.n_running),
                ("requests_deferred", "gauge", "Number of requests deferred.", self.n_waiting)]
        return "".join(f"# HELP llamacpp:{name} {about}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
                       for name, kind, about, value in rows)


class Gone(Exception):
    """The client has left."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None
    number = 0  # of its request

    def log_message(self, fmt, *args):
        pass

    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message, kind):
        self.answer(status, {"error": {"code": status, "message": message, "type": kind}})

    def read_body(self):
        n = int(self.headers.get("Content-Length") or 0)
        try:
            return json.loads(self.rfile.read(n) or b"{}")
        except ValueError:
            return None

    def name(self):
        return self.state.opt.alias or os.path.basename(self.state.opt.model)

    def do_GET(self):
        self.handle_one({"/health": self.health, "/v1/health": self.health, "/metrics": self.metrics,
                         "/slots": self.slots, "/props": self.props, "/v1/models": self.models, "/models": self.models,
                         "/stub": self.stub, "/stub/go": self.go})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "15")
        self.end_headers()

    def do_POST(self):
        """Who leaves here is counted; a connection that is closed after its answer, as a look at /health is, is not."""
        try:
            self.work()
        except (Gone, ConnectionError):
            with self.state.lock:
                self.state.n_gone += 1
            raise

    def work(self):
        self.handle_one({"/v1/chat/completions": self.chat, "/chat/completions": self.chat,
                         "/v1/completions": self.chat, "/completion": self.chat, "/v1/embeddings": self.embed,
                         "/embeddings": self.embed, "/tokenize": self.tokenize})

    def handle_one(self, paths):
        path = self.path.partition("?")[0]
        body = self.read_body() if self.command == "POST" else {}
        if self.command == "POST":
            with self.state.lock:
                self.state.n_requests += 1
                self.number = self.state.n_requests
                self.state.last = {"path": self.path, "headers": dict(self.headers.items()), "body": body}
        key = self.state.opt.api_key
        call = paths.get(path)
        if call is None:
            self.fail(404, "File Not Found", "not_found_error")
        elif path in ("/stub", "/stub/go"):
            call(body)
        elif not self.state.loaded.is_set():
            self.fail(503, "Loading model", "unavailable_error")
        elif key and path != "/health" and self.headers.get("Authorization") != f"Bearer {key}":
            self.fail(401, "Invalid API Key", "authentication_error")
        elif body is None:
            self.fail(400, "not JSON", "invalid_request_error")
        else:
            call(body)

    def health(self, _):
        self.answer(200, {"status": "ok"})

    def metrics(self, _):
        if not self.state.opt.metrics:
            self.fail(501, "This server does not support metrics endpoint. Start it with `--metrics`",
                      "not_supported_error")
            return
        self.answer(200, self.state.metrics(), "text/plain; version=0.0.4")

    def slots(self, _):
        opt = self.state.opt
        self.answer(200, [{"id": i, "n_ctx": opt.ctx_size // max(1, opt.parallel), "speculative": False,
                           "is_processing": i < self.state.n_running} for i in range(max(1, opt.parallel))])

    def props(self, _):
        opt = self.state.opt
        self.answer(200, {"default_generation_settings": {"n_ctx": opt.ctx_size // max(1, opt.parallel)},
                          "total_slots": opt.parallel, "model_path": opt.model, "chat_template": "stub"})

    def models(self, _):
        self.answer(200, {"object": "list", "data": [{"id": self.name(), "object": "model", "owned_by": "llamacpp"}]})

    def stub(self, _):
        state = self.state
        self.answer(200, {"pid": os.getpid(), "argv": sys.argv[1:], "environment": dict(os.environ),
                          "loaded": state.loaded.is_set(), "n_requests": state.n_requests,
                          "n_running": state.n_running, "n_waiting": state.n_waiting, "n_gone": state.n_gone,
                          "last": state.last})

    def go(self, _):
        """Answered first: what goes on may be all that kept this server from being ended."""
        with self.state.lock:
            n_go = self.state.n_requests
        self.answer(200, {"n_go": n_go})
        self.state.n_go = n_go

    def tokenize(self, body):
        self.answer(200, {"tokens": list(range(len(str(body.get("content", "")).split())))})

    def embed(self, body):
        texts = body.get("input", "")
        texts = texts if isinstance(texts, list) else [texts]
        self.answer(200, {"object": "list", "model": self.name(),
                          "data": [{"object": "embedding", "index": i, "embedding": [float(len(str(t))), 1.0, 0.5]}
                                   for i, t in enumerate(texts)],
                          "usage": {"prompt_tokens": len(texts), "total_tokens": len(texts)}})

    # ---- answers, a token at a time ----

    def look_for_client(self):
        """A client that has left is seen between two tokens, also where nothing is written to it."""
        self.connection.setblocking(False)
        try:
            if self.connection.recv(1, 2) == b"":  # MSG_PEEK
                raise Gone
        except BlockingIOError:
            pass
        except ConnectionError as e:
            raise Gone from e
        finally:
            self.connection.setblocking(True)

    def tokens(self, n, hold):
        opt = self.state.opt
        for i in range(n):
            time.sleep((opt.token_ms if i else opt.prompt_ms) / 1000)
            while hold and i + 1 == n and self.number > self.state.n_go:
                time.sleep(0.02)
                self.look_for_client()
            self.look_for_client()
            self.state.count_token()
            yield (" " if i else "") + WORDS[i % len(WORDS)]

    def chat(self, body):
        state = self.state
        while state.opt.hang:
            time.sleep(0.05)
            self.look_for_client()
        text = json.dumps(body.get("messages", body.get("prompt", "")))
        n = next((body[k] for k in ("max_completion_tokens", "max_tokens", "n_predict") if k in body), state.opt.tokens)
        begun = time.monotonic()
        try:
            with state.slot():
                n_prompt = len(text.split())
                n_ctx = state.opt.ctx_size // max(1, state.opt.parallel)
                if n_prompt >= n_ctx:
                    self.refuse_prompt(n_prompt, n_ctx)
                    return
                with state.lock:
                    state.prompt_tokens += n_prompt
                (self.stream if body.get("stream") else self.whole)(body, max(0, int(n)), n_prompt, begun)
        finally:
            with state.lock:
                state.output_seconds += time.monotonic() - begun

    def refuse_prompt(self, n_prompt, n_ctx):
        """As llama-server does; a token is a word here."""
        message = f"request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        self.answer(400, {"error": {"code": 400, "message": message, "type": "exceed_context_size_error",
                                    "n_prompt_tokens": n_prompt, "n_ctx": n_ctx}})

    def numbers(self, n, n_prompt, begun):
        ms = max(0.001, (time.monotonic() - begun) * 1000)
        return ({"completion_tokens": n, "prompt_tokens": n_prompt, "total_tokens": n + n_prompt,
                 "prompt_tokens_details": {"cached_tokens": 0}},
                {"cache_n": 0, "prompt_n": n_prompt, "prompt_ms": 1.0, "prompt_per_second": n_prompt * 1000.0,
                 "predicted_n": n, "predicted_ms": ms, "predicted_per_second": n * 1000 / ms})

    def whole(self, body, n, n_prompt, begun):
        text = "".join(self.tokens(n, body.get("hold")))
        if self.state.opt.cut_after and n >= self.state.opt.cut_after:
            raise Gone
        usage, timings = self.numbers(n, n_prompt, begun)
        choice = {"index": 0, "finish_reason": "length"}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        self.answer(200, {"id": f"chatcmpl-{self.state.n_requests}", "created": int(time.time()), "model": self.name(),
                          "object": "chat.completion" if "messages" in body else "text_completion",
                          "choices": [choice], "usage": usage, "timings": timings})

    def chunk(self, data):
        data = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def stream(self, body, n, n_prompt, begun):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {"id": f"chatcmpl-{self.state.n_requests}", "created": int(time.time()), "model": self.name(),
                "object": "chat.completion.chunk"}

        def event(delta, reason=None, **more):
            chat = {"delta": delta} if "messages" in body else {"text": delta.get("content", "")}
            self.chunk({**head, "choices": [{"index": 0, "finish_reason": reason, **chat}], **more})

        event({"role": "assistant", "content": None})
        for i, word in enumerate(self.tokens(n, body.get("hold"))):
            event({"content": word})
            if i + 1 == self.state.opt.cut_after:
                raise Gone
        usage, timings = self.numbers(n, n_prompt, begun)
        event({}, "length", timings=timings)
        if (body.get("stream_options") or {}).get("include_usage"):
            self.chunk({**head, "choices": [], "usage": usage, "timings": timings})
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def handle(self):
        try:
            super().handle()
        except (Gone, ConnectionError):
            pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def end(opt, server):
    """Memory that comes back late: a copy has it, and nothing else."""
    server.socket.close()
    if opt.hold_after_exit and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        time.sleep(opt.hold_after_exit)
    os._exit(0)


def main():
    opt = options(sys.argv[1:])
    if opt.die_with is not None:
        time.sleep(opt.die_after)
        wait_until(opt.until)
        say(opt.die_with)
        if opt.die_code < 0:
            os.kill(os.getpid(), -opt.die_code)
        sys.exit(opt.die_code)
    Handler.state = State(opt)
    try:
        server = Server((opt.host, opt.port), Handler)
    except OSError as e:
        say(f"main: couldn't bind HTTP server socket, hostname: {opt.host}, port: {opt.port}: {e.strerror}")
        sys.exit(1)
    signal.signal(signal.SIGINT, lambda *_: end(opt, server))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if opt.stubborn else lambda *_: end(opt, server))
    say(f"main: server is listening on http://{opt.host}:{server.server_port} - starting the main loop")
    threading.Thread(target=Handler.state.load, daemon=True).start()
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
