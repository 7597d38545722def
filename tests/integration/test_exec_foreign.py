# SPDX-License-Identifier: MIT
"""burthen exec with a llama-server that others have built, on a Vulkan device in software: kept, trimmed, offloaded,
refused; and refused a RAM budget, which llama.cpp of Burthen's own version alone can be given. What it says of its own
buffers is held against what they were priced at. Its processor code may want instructions that this processor lacks;
then it ends by that signal without burthen too, and where blocks run on the processor only what it said until then is
looked at."""

import json
import re
import signal
import subprocess

import harness
import llama_server

FOREIGN = harness.SOURCE / "build/foreign-server/bin"
SERVER = FOREIGN / "llama-server"
harness.require(harness.SMOLLM2, SERVER)
ENVIRONMENT = harness.environment() | {"GGML_VK_VISIBLE_DEVICES": "0",
                                       "MESA_SHADER_CACHE_DIR": str(FOREIGN.parent / "shaders")}
PROGRAM = ("env", f"LD_LIBRARY_PATH={FOREIGN}", SERVER)
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


def words(ctx):
    """The server's arguments."""
    return ("-m", harness.SMOLLM2, "-ngl", 99, "-c", ctx, "-np", 1, "-t", 1, "-v")


def guard(*options):
    return (harness.BIN, "exec", "--no-wait", "--device", f"Vulkan0={CARD_MIB}M", *options, "--")


def execute(ctx, *options):
    return subprocess.run([str(word) for word in (*guard(*options), *PROGRAM, *words(ctx))], capture_output=True, timeout=300,
                          env=ENVIRONMENT)


def decide(ctx):
    """What is priced, in MiB by pool and line, and the decision."""
    decision = json.loads(execute(ctx, "--dry-run", "--json").stdout)
    lines = {}
    for pool in (decision["plan"] or {"pools": []})["pools"]:
        for line in pool["lines"]:
            lines[line["name"]] = line["planned_bytes"] / MIB
    return decision, lines


def said_buffers(log):
    """Buffers of the device as the server printed them: {kind: largest MiB}"""
    buffers = {}
    for kind, mib in re.findall(r"Vulkan0 (model|KV|compute) buffer size =\s*([\d.]+) MiB", log):
        buffers[kind] = max(buffers.get(kind, 0.0), float(mib))
    return buffers


def check_prices(name, buffers, lines):
    for kind, line, most in (("model", "weights", 1.01), ("KV", "kv", 1.0001), ("compute", "compute", 1.25)):
        said, priced = buffers.get(kind, 0.0), lines.get(f"Vulkan0/{line}", 0.0)
        if kind == "compute" and name == "offloaded":
            most = 100  # where flash attention is cut in two, Vulkan keeps more of it on the host than is priced there
        checks.check(said > 0 and said <= priced + 0.01 and priced <= said * most + 4,
                     f"{name}: {kind} {said} MiB, priced at {priced:.2f}")


def answer(ctx):
    """(text, or None where it did not start; exit status; log)"""
    with llama_server.Server(*words(ctx), prefix=guard(), program=PROGRAM, env=ENVIRONMENT, start_s=START_S) as server:
        text = server.complete(PROMPT, n=8, ignore_eos=False)["content"] if server.works else None
        return text, *server.stop()


def try_runs():
    first = None  # other kernels, other sums: texts of the device are compared with one another
    kinds = {"unchanged": 2048, "trimmed": 48 * CARD_MIB, "offloaded": 150000 * CARD_MIB // 2048}
    for kind, ctx in kinds.items():
        decision, lines = decide(ctx)
        if not checks.check(decision["decision"] == kind, f"{ctx}: {decision['decision']}: {decision['reason']}"):
            continue
        total = sum(mib for name, mib in lines.items() if name.startswith("Vulkan0/"))
        checks.check(0 < total <= CARD_MIB, f"{kind}: {total} MiB on a card of {CARD_MIB}")
        text, status, log = answer(ctx)
        if text is not None:
            checks.check(text.startswith(" Paris") and text == (first or text), f"{kind}: {text!r}, not {first!r}")
            first = first or text
        stands = text is not None or (kind == "offloaded" and status == -signal.SIGILL)
        checks.check(stands, f"{kind}: ended with {status}:\n{log[-800:]}")
        checks.check(f"burthen: {kind}: " in log, f"{kind}: not said")
        buffers = said_buffers(log)
        check_prices(kind, buffers, lines)
        print(f"{kind}: {decision['reason']}; the server's own figures, MiB: {buffers}"
              + ("" if text is not None else "; its processor code does not run here"))


def try_refusal():
    result = execute(120 * CARD_MIB)
    checks.check(result.returncode == 3 and not result.stdout and b"insufficient VRAM" in result.stderr,
                 f"{result.returncode}: {result.stderr[-600:]}")


def try_budget():
    """A RAM budget needs the ggml that the device was built for: another is refused before it starts, both named."""
    command = (harness.BIN, "exec", "--ram-budget", "1G", "--", *PROGRAM, *words(2048))
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    said = result.stderr.splitlines()[-1]
    versions = set(re.findall(r"\b0\.\d+\.\d+\b", said))
    checks.check(result.returncode == 3 and not result.stdout, f"{result.returncode}: {result.stderr[-600:]}")
    checks.check(len(versions) == 2 and str(SERVER) in said, f"versions of ggml in {said!r}: {versions}")


try_runs()
try_refusal()
try_budget()
checks.end()
