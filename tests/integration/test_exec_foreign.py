# SPDX-License-Identifier: MIT
"""burthen exec with a llama-server that others have built, on a Vulkan device in software: kept, trimmed, offloaded,
refused. What it says of its own buffers is held against what they were priced at. Its processor code may want
instructions that this processor lacks; then it ends by that signal without burthen too, and where blocks run on the
processor only what it said until then is looked at."""

import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import harness

FOREIGN = harness.SOURCE / "build/foreign-server/bin"
SERVER = FOREIGN / "llama-server"
harness.require(harness.SMOLLM2, SERVER)
ENVIRONMENT = harness.environment() | {"GGML_VK_VISIBLE_DEVICES": "0",
                                       "MESA_SHADER_CACHE_DIR": str(FOREIGN.parent / "shaders")}
MIB = 1 << 20
CARD_MIB = 2048
PROMPT = "The capital of France is"
START_S = 240  # shaders are compiled for the processor, once
checks = harness.Checks()


def list_devices():
    try:
        result = subprocess.run([str(SERVER), "--list-devices"], capture_output=True, timeout=START_S,
                                env=ENVIRONMENT | {"LD_LIBRARY_PATH": str(FOREIGN)})
    except OSError as error:
        harness.skip(f"the server cannot be started here: {error}")
    found = re.search(rb"Vulkan0:.*\((\d+) MiB, ", result.stdout + result.stderr)
    if not found:
        harness.skip("there is no Vulkan device, not even in software")
    return int(found[1])


CARD_MIB = min(CARD_MIB, list_devices())


def words(ctx, port):
    return [str(word) for word in ("env", f"LD_LIBRARY_PATH={FOREIGN}", SERVER, "-m", harness.SMOLLM2, "-ngl", 99,
                                   "-c", ctx, "-np", 1, "-t", 1, "-v", "--host", "127.0.0.1", "--port", port)]


def guard(*options):
    return [str(word) for word in (harness.BIN, "exec", "--no-wait", "--device", f"Vulkan0={CARD_MIB}M", *options, "--")]


def decide(ctx):
    """What is priced, in MiB by pool and line, and the decision."""
    result = subprocess.run([*guard("--dry-run", "--json"), *words(ctx, 1)], capture_output=True, timeout=60,
                            env=ENVIRONMENT)
    decision = json.loads(result.stdout)
    lines = {}
    for pool in (decision["plan"] or {"pools": []})["pools"]:
        for line in pool["lines"]:
            lines[line["name"]] = line["planned_bytes"] / MIB
    return decision, lines


class Server:
    def __init__(self, ctx, log):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen([*guard(), *words(ctx, self.port)], stdout=file, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        self.works = self.wait()

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=START_S) as answer:
            return json.loads(answer.read())

    def wait(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.ask("/health").get("status") == "ok":
                    return True
            except OSError:
                time.sleep(0.2)
        return False

    def stop(self):
        """(exit status, buffers of the device as the server printed them: {kind: largest MiB})"""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        text = self.log.read_text(errors="replace")
        buffers = {}
        for kind, mib in re.findall(r"Vulkan0 (model|KV|compute) buffer size =\s*([\d.]+) MiB", text):
            buffers[kind] = max(buffers.get(kind, 0.0), float(mib))
        return status, buffers, text


def check_prices(name, buffers, lines):
    for kind, line, most in (("model", "weights", 1.01), ("KV", "kv", 1.0001), ("compute", "compute", 1.25)):
        said, priced = buffers.get(kind, 0.0), lines.get(f"Vulkan0/{line}", 0.0)
        if kind == "compute" and name == "offloaded":
            most = 100  # where flash attention is cut in two, Vulkan keeps more of it on the host than is priced there
        checks.check(said > 0 and said <= priced + 0.01 and priced <= said * most + 4,
                     f"{name}: {kind} {said} MiB, priced at {priced:.2f}")


def try_runs(scratch):
    first = None  # other kernels, other sums: texts of the device are compared with one another
    kinds = {"unchanged": 2048, "trimmed": 48 * CARD_MIB, "offloaded": 150000 * CARD_MIB // 2048}
    for kind, ctx in kinds.items():
        decision, lines = decide(ctx)
        if not checks.check(decision["decision"] == kind, f"{ctx}: {decision['decision']}: {decision['reason']}"):
            continue
        total = sum(mib for name, mib in lines.items() if name.startswith("Vulkan0/"))
        checks.check(0 < total <= CARD_MIB, f"{kind}: {total} MiB on a card of {CARD_MIB}")
        server = Server(ctx, scratch / f"{kind}.log")
        if server.works:
            body = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "cache_prompt": False}
            text = server.ask("/completion", body)["content"]
            checks.check(text.startswith(" Paris") and text == (first or text), f"{kind}: {text!r}, not {first!r}")
            first = first or text
        works = server.works
        status, buffers, log = server.stop()
        checks.check(works or (kind == "offloaded" and status == -signal.SIGILL), f"{kind}: ended with {status}:\n{log[-800:]}")
        checks.check(f"burthen: {kind}: " in log, f"{kind}: not said")
        check_prices(kind, buffers, lines)
        print(f"{kind}: {decision['reason']}; the server's own figures, MiB: {buffers}"
              + ("" if works else "; its processor code does not run here"))


def try_refusal():
    result = subprocess.run([*guard(), *words(120 * CARD_MIB, 1)], capture_output=True, timeout=60, env=ENVIRONMENT)
    checks.check(result.returncode == 3 and not result.stdout and b"insufficient VRAM" in result.stderr,
                 f"{result.returncode}: {result.stderr[-600:]}")


with tempfile.TemporaryDirectory() as folder:
    try_runs(pathlib.Path(folder))
    try_refusal()
checks.end()
