# SPDX-License-Identifier: MIT
"""The stand-in for llama-server (stub_server.py) does what tests of the router rely on."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import llama_server

STUB = pathlib.Path(__file__).resolve().parents[1] / "support" / "stub_server.py"


class Stub:
    def __init__(self, *args):
        self.port = llama_server.free_port()
        words = [sys.executable, str(STUB), "--port", str(self.port), "-m", "x/model.gguf", "--no-webui", "-ngl", "99"]
        self.process = subprocess.Popen([*words, *map(str, args)], stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.process.stderr.close()

    def ask(self, path, body=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST" if body is not None else "GET", path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait(self, status=200):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                if self.ask("/health")[0] == status:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"no {status} from /health")

    def wait_for_stub(self, **wanted):
        """Until what it counts is so."""
        end = time.monotonic() + 30
        seen = {}
        while time.monotonic() < end:
            seen = json.loads(self.ask("/stub")[1])
            if wanted.items() <= seen.items():
                return
            time.sleep(0.02)
        raise AssertionError(f"{seen}, not {wanted}")

    def rss_bytes(self, pid=None):
        text = pathlib.Path(f"/proc/{pid or self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) * 1024


CHAT = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 4}


class StubServer(unittest.TestCase):
    def test_loading(self):
        with Stub("--load-seconds", 4, "--mem", "64M") as stub:
            stub.wait(503)
            self.assertEqual(stub.ask("/v1/models")[0], 503)
            stub.wait()
            self.assertGreater(stub.rss_bytes(), 64 << 20)
            self.assertEqual(json.loads(stub.ask("/v1/models")[1])["data"][0]["id"], "model.gguf")

    def test_answers(self):
        with Stub("--metrics", "-np", 2, "-c", 1024) as stub:
            stub.wait()
            status, text = stub.ask("/v1/chat/completions", CHAT)
            answer = json.loads(text)
            self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, "one two three four"))
            self.assertEqual(answer["usage"]["completion_tokens"], 4)
            _, text = stub.ask("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": 1}})
            events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(json.loads(events[-2])["usage"]["completion_tokens"], 4)
            words = [json.loads(e)["choices"][0]["delta"].get("content") or "" for e in events[:-2]]
            self.assertEqual("".join(words), "one two three four")
            self.assertIn("llamacpp:tokens_predicted_total 8\n", stub.ask("/metrics")[1])
            self.assertEqual([s["n_ctx"] for s in json.loads(stub.ask("/slots")[1])], [512, 512])
            self.assertEqual(json.loads(stub.ask("/stub")[1])["n_requests"], 2)

    def test_time_and_slots(self):
        with Stub("--token-ms", 50, "-np", 1) as stub:
            stub.wait()
            begun = time.monotonic()
            stub.ask("/v1/chat/completions", CHAT)
            self.assertGreaterEqual(time.monotonic() - begun, 0.15)
            with self.assertRaises(TimeoutError):
                stub.ask("/v1/chat/completions", {**CHAT, "max_tokens": 1000}, timeout=0.2)
            stub.wait_for_stub(n_gone=1, n_running=0)

    def test_bad_manners(self):
        with Stub("--abort-after", 3) as stub:
            stub.wait()
            with self.assertRaises((OSError, http.client.HTTPException)):
                stub.ask("/v1/chat/completions", CHAT)
            self.assertEqual(stub.process.wait(30), -signal.SIGABRT)
        with Stub("--cut-after", 2) as stub:
            stub.wait()
            with self.assertRaises(http.client.IncompleteRead):
                stub.ask("/v1/chat/completions", {**CHAT, "stream": True})
            self.assertIsNone(stub.process.poll())
        with Stub("--hang") as stub:
            stub.wait()
            with self.assertRaises(TimeoutError):
                stub.ask("/v1/chat/completions", CHAT, timeout=0.2)
            stub.wait()

    def test_ends(self):
        with Stub() as stub:
            stub.wait()
            stub.process.send_signal(signal.SIGTERM)
            self.assertEqual(stub.process.wait(30), 0)
        with Stub("--stubborn") as stub:
            stub.wait()
            stub.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            self.assertIsNone(stub.process.poll())
        with Stub("--die-with", "error: cudaMalloc failed: out of memory", "--die-code", 3) as stub:
            self.assertEqual(stub.process.wait(30), 3)
            self.assertEqual(stub.process.stderr.read(), "error: cudaMalloc failed: out of memory\n")
        with Stub("--die-with", "killed", "--die-code", -9) as stub:
            self.assertEqual(stub.process.wait(30), -9)

    def test_memory_that_comes_back_late(self):
        with Stub("--mem", "32M", "--hold-after-exit", 5) as stub:
            stub.wait()
            stub.process.send_signal(signal.SIGTERM)
            self.assertEqual(stub.process.wait(30), 0)
            # Its copies carry the command line of the program, and no port.
            held = [p for p in os.listdir("/proc") if p.isdigit() and self.is_copy(p, stub.port)]
            self.assertEqual(len(held), 1)
            self.assertGreater(stub.rss_bytes(held[0]), 32 << 20)
            with self.assertRaises(ConnectionRefusedError):
                stub.ask("/health")
            end = time.monotonic() + 30
            while pathlib.Path(f"/proc/{held[0]}/exe").exists() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertFalse(pathlib.Path(f"/proc/{held[0]}/exe").exists())

    @staticmethod
    def is_copy(pid, port):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(STUB).encode() in words and str(port).encode() in words


if __name__ == "__main__":
    unittest.main(verbosity=2)
