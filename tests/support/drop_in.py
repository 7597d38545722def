# SPDX-License-Identifier: MIT
"""Programs of llama.cpp under a budget, `burthen exec --ram-budget SIZE -- PROGRAM ARGS...`, and the same without.

    require(files...)                end the test as skipped where this cannot be tried
    budgets = rungs("-m", ...)       minimum (a little above it), half way, all pinned, in bytes, by name
    held("-m", ..., budget=N)        a llama_server.Server under a budget
    plain("-m", ...)                 the same server without, under the conditions of equal text
    differences(ours, theirs)        what is not equal in two values of plain data, in sentences

Nothing is written down here of what the program adds to a command: only what the program it starts then does."""

import functools
import json
import pathlib
import re
import subprocess

import cgroup_box
import harness
import llama_server
import prose

# What the memory device does anyway: weights in their plain layout, nothing shrunk, no memory besides the context.
PLAIN = ("--no-repack", "--fit", "off")
PLAIN_SERVER = (*PLAIN, "--cache-ram", 0, "-ctxcp", 0)
LIBRARY = "libggml-burthen.so"
A_LITTLE_BYTES = 2 * harness.MIB
N_UBATCH = 128  # of these tests: a prompt of some hundred tokens takes several
REFUSALS = (2, 3)  # usage; policy
SENTENCE = re.compile(r"\bburthen: (\S.*)$", re.MULTILINE | re.IGNORECASE)  # behind the time where a program logs it
SANITIZED = (b"__asan_init", b"__tsan_init")
_WORDS = prose.words(24000).split()


def prefix(budget, *options):
    return (harness.BIN, "exec", "--ram-budget", budget, *options, "--")


def execute(*args, budget, options=(), program=llama_server.PROGRAM, env=None, timeout_s=300):
    """The command under a budget, until it ends."""
    command = [str(word) for word in (*prefix(budget, *options), program, *args)]
    return subprocess.run(command, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL,
                          env=harness.environment() if env is None else env)


def decide(*args, budget, program=llama_server.PROGRAM):
    """(exit status, decision as JSON or None, stderr) of a dry run."""
    result = execute(*args, budget=budget, options=("--dry-run", "--json"), program=program)
    return result.returncode, json.loads(result.stdout) if result.stdout else None, result.stderr.decode(errors="replace")


def ladder(*args, program=llama_server.PROGRAM):
    """Rung name -> budget in bytes, of a command."""
    status, decision, text = decide(*args, budget="1M", program=program)
    if status != 3:
        raise AssertionError(f"a budget of 1M is not refused but {status}: {text[-600:]}")
    return {rung["what"]: rung["budget_bytes"] for rung in decision["plan"]["ladder"]}


def rungs(*args, program=llama_server.PROGRAM):
    found = ladder(*args, program=program)
    low, high = found["minimum"], found["all-pinned"]
    return {"minimum": low + A_LITTLE_BYTES, "half": low + (high - low) // 2, "all": high}


def printed_minimum(text):
    """The minimum that a refusal names, as it would be typed after --ram-budget; None where it names none."""
    found = re.search(r"^\s+--ram-budget (\S+) +needs", text, re.MULTILINE)
    return found and found[1]


@functools.lru_cache(maxsize=None)
def library():
    """The memory device as programs load it."""
    _, decision, text = decide("-m", harness.SMOLLM2, "-c", 256, "-np", 1, budget="2G")
    path = ((decision or {}).get("env") or {}).get("GGML_BACKEND_PATH")
    if not path:
        raise AssertionError(f"the environment of the command names no library: {decision}: {text[-600:]}")
    return pathlib.Path(path)


def require(*paths):
    """End the test as skipped where a file is not there, or where no program of llama.cpp can load the memory device."""
    harness.require(harness.SMOLLM2, llama_server.PROGRAM, *paths)
    if not re.search(rb"^  .*--ram-budget SIZE", harness.burthen("exec", "--help").stdout, re.MULTILINE):
        harness.skip("exec has no --ram-budget in this build")
    if any(word in library().read_bytes() for word in SANITIZED):
        harness.skip("the library was built with a sanitizer, llama.cpp's programs were not")


def held(*args, budget, options=(), **more):
    return llama_server.Server(*args, prefix=prefix(budget, *options), **more)


def plain(*args, **more):
    return llama_server.Server(*args, *PLAIN_SERVER, **more)


def sentences(log):
    """What burthen, or its library in the program, said."""
    return SENTENCE.findall(log)


def is_refusal(status, log):
    """Ended before anything was started, with a reason."""
    return status in REFUSALS and bool(sentences(log))


def box(budget, beyond_bytes):
    """A memory cgroup of a budget and something beyond it, or None, with the reason printed, where none can be made."""
    try:
        with cgroup_box.Box():
            pass
    except cgroup_box.Unavailable as reason:
        print(f"without a cgroup: {reason}", flush=True)
        return None
    return cgroup_box.Box(budget + beyond_bytes, allow_swap=False)


def prompt(index, n_words):
    """Prompts of which no two begin alike: a place of the endless text, counted in front of it."""
    start = index * 53 % (len(_WORDS) - n_words)
    return f"{index}: " + " ".join(_WORDS[start : start + n_words])


def differences(ours, theirs, where="answer"):
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [text for key in ours for text in differences(ours[key], theirs[key], f"{where}.{key}")]
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        return [text for i, pair in enumerate(zip(ours, theirs)) for text in differences(*pair, f"{where}[{i}]")]
    return [] if ours == theirs else [f"{where}: {str(ours)[:200]!r}, plain {str(theirs)[:200]!r}"]
