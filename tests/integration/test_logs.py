#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What commands log: JSON of every command, errors with their numbers, levels, files, the journal; llama.cpp's own lines
among them; and a model file, a file's name, a machine file that try to write lines of their own."""

import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import tempfile

import harness
import log_lines
import toys

harness.require(harness.SMOLLM2)
checks = harness.Checks()
EVIL = b"\x1b[7m\x07\n<3>burthen: error: \xff\xc2\x9b"
RUN = ("run", harness.SMOLLM2, "-p", "Hello", "-n", "2", "-c", "256", "--greedy")


def burthen(*args, code=0, env=None, **more):
    done = subprocess.run([harness.BIN, *args], env=harness.environment() | (env or {}), capture_output=True, timeout=300, check=False,
                          stdin=subprocess.DEVNULL, **more)
    checks.check(done.returncode == code, f"{args}: {done.returncode}: {done.stderr[-500:]}")
    return done


def objects(data, what):
    return log_lines.objects(checks, data.decode(), what)  # valid UTF-8, or this test ends


def check_clean(data, what):
    log_lines.check_clean(checks, data.decode(), what)


def check_json():
    """Standard error is JSON, line by line; standard output is what it was."""
    plain = burthen(*RUN, "-q")
    done = burthen(*RUN, "--log-json", "--log-level", "debug")
    found = objects(done.stderr, "run")
    checks.check(done.stdout == plain.stdout, f"the text: {done.stdout} {plain.stdout}")
    checks.check({one["component"] for one in found} == {"run"} and len({one["pid"] for one in found}) >= 1, f"{found[:3]}")
    llama = [one for one in found if one["message"].startswith("llama.cpp: ")]
    checks.check(len(llama) > 20 and all("llama_level" in one for one in llama), f"llama.cpp's lines: {len(llama)}")
    checks.check({one["llama_level"]: one["level"] for one in llama}.get("info") == "debug", "its information is for debugging")
    dots = [one["message"] for one in llama if re.fullmatch(r"llama.cpp: \.+", one["message"])]
    checks.check(all(len(one) > len("llama.cpp: ...") for one in dots), f"pieces are joined: {dots}")
    checks.check(any("host/pinned" in one["message"] for one in found), "the table, line by line")
    checks.check(not burthen(*RUN, "--log-json", "-q").stderr, "-q: nothing but errors")


def check_errors():
    """An error is an object with its code and numbers, and in a file too."""
    refused = objects(burthen("run", harness.SMOLLM2, "-p", "x", "-c", "256", "--ram-budget", "1M", "--log-json", code=3).stderr, "refused")
    checks.check(refused and {one["level"] for one in refused} == {"error"}, f"{refused[-2:]}")
    missing = objects(burthen("plan", "/nowhere.gguf", "--log-json", code=4).stderr, "missing")
    checks.check(missing[0]["code"] == "model_open" and missing[0]["level"] == "error", f"{missing}")
    asked = objects(burthen("worker", "--memory", "1000T", "--log-json", code=3).stderr, "worker")
    checks.check(asked[-1]["code"] == "worker_memory" and asked[-1]["need"] >= 1000 << 40 and asked[-1]["unit"] == "bytes", f"{asked}")
    with tempfile.TemporaryDirectory() as name:
        log = pathlib.Path(name) / "log"
        done = burthen("plan", "/nowhere.gguf", "--log-file", log, code=4)
        checks.check(b"burthen: cannot open /nowhere.gguf" in done.stderr and " error burthen: cannot open /nowhere.gguf" in log.read_text(),
                     f"{done.stderr} {log.read_text()}")
        done = burthen("plan", harness.SMOLLM2, "--log-file", log, "--log-json", env={"BURTHEN_LOG_LEVEL": "debug"})
        lines = log.read_text().splitlines()
        objects("\n".join(lines[3:]).encode(), "a file")
        checks.check(not done.stderr, f"{done.stderr} {lines}")
        checks.check(objects(burthen("version", env={"BURTHEN_LOG_JSON": "1", "BURTHEN_LOG_FILE": str(log)}).stderr, "twins") == [], "twins")
        checks.check('"component":"version"' in log.read_text().splitlines()[-1], "twins of the environment")
    done = burthen("version", "--log-file", "/dev/full", code=1)
    checks.check(b"cannot write the log file /dev/full: No space left" in done.stderr and not done.stdout, f"{done}")


def check_levels():
    for args, wanted in (([], False), (["-v"], True), (["--log-level", "info"], True), (["--log-level", "info", "-q"], True), (["-v", "--log-level", "warn"], False)):
        done = burthen(*RUN, *args)
        checks.check((b"burthen: info: reading with" in done.stderr) == wanted, f"{args}: {done.stderr[-400:]}")
    checks.check(not burthen(*RUN, "-q").stderr, "-q")
    checks.check(b"llama.cpp: " not in burthen(*RUN).stderr, "llama.cpp is quiet")


def check_journal():
    with tempfile.TemporaryFile() as journal:
        found = os.fstat(journal.fileno())
        environment = harness.environment() | {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        subprocess.run([harness.BIN, *RUN, "-v"], env=environment, stdout=subprocess.DEVNULL, stderr=journal, check=True)
        subprocess.run([harness.BIN, "plan", "/nowhere.gguf"], env=environment, stderr=journal, check=False)
        subprocess.run([harness.BIN, "plan", "--no-such"], env=environment, stderr=journal, check=False)
        journal.seek(0)
        said = journal.read().decode()
        checks.check("<6>burthen: reading with" in said and "<3>burthen: cannot open /nowhere.gguf" in said, said)
        checks.check("<3>burthen: unknown option --no-such" in said, f"before options are understood: {said[-300:]}")


def check_colour():
    """On a terminal that wants it, and nowhere else."""
    for env, coloured in (({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        master, slave = pty.openpty()
        environment = {key: value for key, value in harness.environment().items() if key != "NO_COLOR"} | env
        subprocess.run([harness.BIN, "plan", "/nowhere.gguf"], env=environment, stderr=slave, stdin=slave, check=False)
        os.close(slave)
        said = os.read(master, 65536)
        os.close(master)
        checks.check((b"\x1b[" in said) == coloured, f"{env}: {said}")
    checks.check(b"\x1b" not in burthen("plan", "/nowhere.gguf", code=4).stderr, "a pipe")


def check_worker():
    with tempfile.TemporaryFile() as log, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        with subprocess.Popen([harness.BIN, "worker", "--memory", "64M", "--listen", f"127.0.0.1:{port}", "--log-json"], env=harness.environment(),
                              stdout=subprocess.DEVNULL, stderr=log) as process:
            for _ in range(200):
                if os.fstat(log.fileno()).st_size:
                    break
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    pass
            process.send_signal(signal.SIGTERM)
            checks.check(process.wait(20) == 143, "it ends")
        log.seek(0)
        said = [one["message"] for one in objects(log.read(), "worker")]
        checks.check(said and said[0].startswith("listening at") and said[-1] == "stopped", f"{said}")


def check_injection():
    """Names and strings of others: one line each, without a control character."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "evil.gguf"
        toys.write(model, toys.sentencepiece(512), 256, 4, 4, [512, 512])
        data = model.read_bytes()
        checks.check(data.count(b"a toy") == 1, "its name is there once")
        model.write_bytes(data.replace(b"a toy", b"\x1b[7\n\xff"))
        done = burthen("run", model, "-p", "x", "-n", "1", "-c", "256", "--log-json", "--log-level", "debug")
        said = [one["message"] for one in objects(done.stderr, "a model's strings")]
        checks.check(any("\\x1b[7" in one for one in said), "its name was logged, escaped")
        done = burthen("run", model, "-p", "x", "-n", "1", "-c", "256", "--log-level", "debug")
        check_clean(done.stderr, "and as text")
        bad = os.fsencode(folder) + b"/" + EVIL.replace(b"/", b"") + b".gguf"
        with open(bad, "wb") as file:
            file.write(b"GGUF")
        machine = folder / "machine.json"
        machine.write_bytes(b'{"schema":1,"pools":[{"name":"\\u001b[7m\\u000a","kind":"host"}]}')
        for args, code in ((("plan", bad), 4), (("inspect", bad), 4), (("run", bad, "-p", "x"), 4), (("plan", os.fsencode(folder) + b"/evil\x1b.ggu"), 4),
                           (("plan", harness.SMOLLM2, "--machine", machine), None), (("exec", "--", b"/no/\x1b[7m\n\xff"), 127),
                           (("exec", "--dry-run", "--no-wait", "--device", "Vulkan0=10M", "--", b"llama-server", b"-m", bad, b"-ngl", b"9\x1b[7m"), None),
                           (("plan", harness.SMOLLM2, b"--\x1b[7m\xff"), 2), ((b"pl\x1b[7m\nan",), 2), (("plan", harness.SMOLLM2, "--ram-budget", b"\x1b\n5"), 2)):
            done = subprocess.run([harness.BIN, *args], env=harness.environment(), capture_output=True, timeout=60, check=False, cwd=folder)
            checks.check(code is None or done.returncode == code, f"{args}: {done.returncode}: {done.stderr}")
            check_clean(done.stderr, args)
            checks.check(b"\n<3>" not in done.stderr, f"{args}: {done.stderr}")
            done = subprocess.run([harness.BIN, *args, *(() if args[0] == "exec" else ("--log-json",))], env=harness.environment() | {"BURTHEN_LOG_JSON": "1"},
                                  capture_output=True, timeout=60, check=False, cwd=folder)
            if code != 2:  # what is wrong with the options is said before they are known
                objects(done.stderr, args)


def main():
    check_json()
    check_errors()
    check_levels()
    check_journal()
    check_colour()
    check_worker()
    check_injection()
    checks.end()


main()
