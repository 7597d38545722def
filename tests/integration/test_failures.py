# SPDX-License-Identifier: MIT
"""What goes wrong in the middle is an error with a name: a model truncated or written to while text is generated, a
signal, a reader of the output that goes away. No signal kills the program, and the exit code says what it was."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()


def start(model, n=800, budget="80M"):
    """A run that streams and goes on for a while; returns when its first token is out."""
    command = [harness.BIN, "run", model, "-p", harness.PROMPT, "-n", str(n), "--ignore-eos", "-c", "1024", "--greedy",
               "--ram-budget", budget, "--quiet"]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=harness.environment())
    checks.check(process.stdout.read(1) != b"", "no text came")
    return process


def finish(process, timeout=60):
    try:
        _, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, "it went on"
    return process.returncode, stderr.decode(errors="replace")[-600:]


with tempfile.TemporaryDirectory(dir=harness.MODELS) as folder:
    model = pathlib.Path(folder) / "copy.gguf"

    shutil.copy(harness.SMOLLM2, model)
    process = start(model)
    os.truncate(model, model.stat().st_size // 2)
    code, stderr = finish(process)
    checks.check(code == 1, f"truncated: exit {code}: {stderr}")
    checks.check("copy.gguf" in stderr, f"truncated: the file is not named: {stderr}")

    shutil.copy(harness.SMOLLM2, model)
    process = start(model)
    with open(model, "r+b") as file:
        file.seek(model.stat().st_size // 2)
        file.write(b"\0" * 4096)
    code, stderr = finish(process)
    checks.check(code == 1 and "copy.gguf has changed" in stderr, f"written to: exit {code}: {stderr}")

    # Replaced by another file of its name: the one that was opened is still there for us, whole.
    shutil.copy(harness.SMOLLM2, model)
    process = start(model, n=40)
    other = pathlib.Path(folder) / "other"
    other.write_bytes(b"not a model")
    os.replace(other, model)
    code, stderr = finish(process)
    checks.check(code == 0, f"replaced: exit {code}: {stderr}")

for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    process = start(harness.SMOLLM2)
    time.sleep(0.2)
    process.send_signal(number)
    code, stderr = finish(process)
    checks.check(code == expected, f"signal {number}: exit {code}: {stderr}")

process = start(harness.SMOLLM2)
process.stdout.close()
process.stdout = None
code, stderr = finish(process)
checks.check(code == 1 and "standard output" in stderr, f"output closed: exit {code}: {stderr}")

# What cannot be written at the end is said at the start, before text is made that would be lost.
for option in ("--session", "--stats"):
    result = harness.burthen("run", harness.SMOLLM2, "-p", "hi", "-n", 2, "-c", 256, "-q", option, "/nowhere/file")
    checks.check(result.returncode == 1 and not result.stdout and b"/nowhere/file" in result.stderr,
                 f"{option} in a folder that is not there: {result.returncode} {result.stdout} {result.stderr}")

# A named pipe is neither waited for nor replaced, and a device is never replaced.
with tempfile.TemporaryDirectory() as folder:
    pipe = pathlib.Path(folder) / "pipe"
    os.mkfifo(pipe)
    words = ("-p", "hi", "-n", 2, "-c", 256, "-q")
    for command in (("run", harness.SMOLLM2, *words, "--session", pipe), ("run", harness.SMOLLM2, *words, "--stats", pipe),
                    ("run", harness.SMOLLM2, *words, "--session", "/dev/null"),
                    ("bench", harness.SMOLLM2, "-p", 8, "-n", 2, "--vs-budget", "50%,100%", "--plot", pipe)):
        result = harness.burthen(*command, timeout=60)
        checks.check(result.returncode == 1 and not result.stdout and b"it is a pipe, a terminal or a device" in result.stderr,
                     f"{command[3:]}: {result.returncode} {result.stderr}")
    result = harness.burthen("run", harness.SMOLLM2, "--chat", "-c", 256, "-q", stdin=f"/load {pipe}\n/save {pipe}\n".encode(), timeout=120)
    checks.check(result.stderr.count(b"it is a pipe, a terminal or a device") == 2 and pipe.is_fifo(), f"/load, /save: {result.stderr}")
    for sink in ("/dev/null", "/dev/stdout"):
        result = harness.burthen("run", harness.SMOLLM2, *words, "--stats", sink)
        checks.check(result.returncode == 0 and (b'"measured"' in result.stdout) == (sink == "/dev/stdout"), f"{sink}: {result.stderr}")
checks.end()
