# SPDX-License-Identifier: MIT
"""What tests that drive the program share: where things are, how a run and its peer are started, budgets to try."""

import atexit
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77
MIB = 1 << 20
SOURCE = pathlib.Path(os.environ.get("BT_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BIN = os.environ.get("BT_BIN", "")
LLAMA_BIN = pathlib.Path(os.environ.get("BT_LLAMA_BIN", SOURCE / "build/llama.cpp/build/bin"))
MODELS = SOURCE / "build/models"
SMOLLM2 = MODELS / "smollm2-135m-instruct-q4_1.gguf"
GEMMA3 = MODELS / "gemma-3-270m-q4_k_m.gguf"

# About 90 tokens; plain enough that a small model goes on in words.
PROMPT = (
    "The lighthouse keeper had lived on the island for thirty years. Every evening he climbed the stairs, lit the lamp, "
    "and wrote a line in his book about the weather and the ships. One night in autumn a ship came that he had never "
    "seen before. It carried no flag, and nobody stood on its deck. He put down his pen, took his coat, and"
)


def skip(reason):
    print(f"skipped: {reason}")
    raise SystemExit(SKIP)


def require(*paths):
    """End the test as skipped when the program or a file it needs is not there."""
    if not BIN:
        skip("the program was not built")
    for path in paths:
        if not pathlib.Path(path).exists():
            skip(f"{pathlib.Path(path).name} is not there")


def state_dir():
    """Of this test's programs; removed when it ends."""
    return pathlib.Path(tempfile.gettempdir()) / f"burthen-test-{os.getpid()}"


shutil.rmtree(state_dir(), ignore_errors=True)  # of a test of this number that was killed
atexit.register(lambda: shutil.rmtree(state_dir(), ignore_errors=True))


def environment():
    """The caller's, without settings that would change what is tested."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BURTHEN_", "LLAMA_", "GGML_"))}
    kept["BURTHEN_CONFIG"] = ""  # no settings of whoever runs the tests
    kept["BURTHEN_STATE_DIR"] = str(state_dir())
    return kept


def burthen(*args, timeout=300, stdin=b""):
    return subprocess.run([BIN, *map(str, args)], capture_output=True, timeout=timeout, input=stdin, env=environment())


def bare_environment(home, **variables):
    """Nothing of the caller's but what starting a program takes, and a home of its own."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb"}
    kept.update({name: os.environ[name] for name in ("ASAN_OPTIONS", "LSAN_OPTIONS") if name in os.environ})
    return kept | variables


def burthen_at(home, *args, **variables):
    """In that folder, with that environment; output and errors as text."""
    return subprocess.run([BIN, *map(str, args)], env=bare_environment(home, **variables), cwd=home, capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


def plan(model, *args, budget="1M"):
    """plan --json of a model; by default under a budget that nothing fits, for its ladder."""
    result = burthen("plan", model, "--exact", "--json", "--ram-budget", budget, *args)
    if result.returncode not in (0, 3):
        raise AssertionError(f"plan failed ({result.returncode}): {result.stderr.decode()}")
    return json.loads(result.stdout)


def ladder(model, *args):
    """Rung name -> budget in bytes."""
    return {rung["what"]: rung["budget_bytes"] for rung in plan(model, *args)["ladder"]}


def budgets(model, count, *args):
    """The printed minimum, then evenly up to all pinned: count budgets in bytes."""
    rungs = ladder(model, *args)
    low, high = rungs["minimum"], rungs["all-pinned"]
    return [low + (high - low) * i // (count - 1) for i in range(count)]


def run(model, budget, *args, n=64, ctx=512, prompt=PROMPT, **options):
    """burthen run, greedy; returns (text, stats, result)."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        result = burthen("run", model, "-p", prompt, "-n", n, "-c", ctx, "--greedy", "--ram-budget", budget, "--stats",
                         stats.name, *args, **options)
        if result.returncode != 0:
            raise AssertionError(f"run failed ({result.returncode}): {result.stderr.decode(errors='replace')}")
        return result.stdout, json.loads(pathlib.Path(stats.name).read_text()), result


def peer_command(model, *args, n=64, ctx=512, prompt=PROMPT):
    """llama-completion under the conditions of docs/interfaces.md, "Identity"."""
    return [LLAMA_BIN / "llama-completion", "-m", model, "-p", prompt, "-n", n, "-c", ctx, "-no-cnv",
            "--no-display-prompt", "--no-repack", "--temp", "0", "-fit", "off", *args]


class PeerText(bytes):
    """What llama-completion printed; again() asks once more."""

    again = None


def peer_text(model, *args, **options):
    command = [str(word) for word in peer_command(model, *args, **options)]
    for _ in range(3):  # on a loaded machine it now and then ends, in good order, before what it generated was written
        result = subprocess.run(command, capture_output=True, timeout=300, stdin=subprocess.DEVNULL, env=environment())
        if result.returncode != 0 or result.stdout.strip():
            break
    if result.returncode != 0:
        raise AssertionError(f"llama-completion failed: {result.stderr.decode(errors='replace')[-500:]}")
    text = PeerText(result.stdout)
    text.again = lambda: peer_text(model, *args, **options)
    return text


def _without_end(text):
    """llama-completion ends its output with line breaks of its own, and says so at the end of generation."""
    return re.sub(rb"( \[end of text\])?\n+$", b"", text).rstrip(b"\n")


def same_text(ours, theirs):
    """Our text equals llama-completion's. Where that is the beginning of ours it may have been cut (peer_text): it is asked
    again."""
    ours = ours.rstrip(b"\n")
    for _ in range(3):
        if ours == _without_end(theirs):
            return True
        if not getattr(theirs, "again", None) or not ours.startswith(_without_end(theirs)):
            return False
        theirs = theirs.again()
    return False


def wait_for(what, seconds=60):
    """Whether what() becomes true. The time is how long a failure takes, and bounds nothing that is tested: a machine that is
    busy may let seconds pass between any two lines of a test, so what() is asked once more after it."""
    end = time.monotonic() + seconds
    while True:
        over = time.monotonic() > end
        if what():
            return True
        if over:
            return False
        time.sleep(0.05)


def quickest(seconds_of, enough_s, tries=5):
    """The least of what some tries take; no more of them once one is quick enough. What is slow by itself always is, and a busy
    machine only sometimes."""
    best = seconds_of()
    for _ in range(tries - 1):
        if best < enough_s:
            break
        best = min(best, seconds_of())
    return best


class Checks:
    """Counts what was checked; the closing line is read by those who run the tests."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, condition, what):
        if condition:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}", file=sys.stderr)
        return condition

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        raise SystemExit(1 if self.failed or not self.passed else 0)
