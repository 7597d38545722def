#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden tests of the command line.

tests/cli/cases/NAME/ holds cmd (one command, as a shell would split it; VARIABLE=value before it sets the environment),
exit (0 where the file is missing), stdout and stderr (empty where missing). {models} is a scratch folder with the
models of make_models below, also the current one; {data} is tests/data. In stdout and stderr a line's `*` stands for
anything, and a line of `...` for any lines: numbers that change when prices are measured anew stand behind them.

Run with UPDATE=1 to record again what differs; lines with `*` that still match stay. usage: test_cli.py [NAME]...
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
sys.path.insert(0, str(HERE.parent / "support"))
import harness  # noqa: E402
import mkgguf  # noqa: E402

TIMEOUT_S = 60


def make_models(folder):
    mkgguf.write_model(folder / "small.gguf")
    mkgguf.write_model(folder / "big.gguf", name="big \x1b[31m model", blocks=22, embd=2048, ff=5632, heads=32,
                       vocab=32000, type="q4_K")
    mkgguf.write_model(folder / "tied.gguf", tied=1)
    mkgguf.write_model(folder / "strange.gguf", arch="strange")
    mkgguf.write_model(folder / "split.gguf", shards=3)
    mkgguf.write_model(folder / "hole.gguf", shards=3)
    (folder / "hole-00003-of-00003.gguf").unlink()
    whole = (folder / "small.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[:1000])
    (folder / "short.gguf").write_bytes(whole[:-100])
    (folder / "empty.gguf").write_bytes(b"")
    (folder / "text.gguf").write_text("This is no model.\n")
    (folder / "folder.gguf").mkdir()


def matches(line, pattern):
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), line) is not None


def same(lines, patterns):
    """Whether all lines match all patterns, in order."""
    if not patterns:
        return not lines
    if patterns[0] == "...":
        return any(same(lines[i:], patterns[1:]) for i in range(len(lines) + 1))
    return bool(lines) and matches(lines[0], patterns[0]) and same(lines[1:], patterns[1:])


def recorded(lines, patterns):
    """The lines, with what still matches kept as a pattern."""
    kept = [pattern for pattern in patterns if "*" in pattern]
    return [next((pattern for pattern in kept if matches(line, pattern)), line) for line in lines]


def read(path):
    return path.read_text() if path.exists() else ""


def run(case, models):
    words = shlex.split((case / "cmd").read_text().replace("{models}", str(models)).replace("{data}", str(DATA)))
    environment = harness.bare_environment(models)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words[0] = os.environ["BT_BIN"]
    done = subprocess.run(words, cwd=models, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=TIMEOUT_S, check=False)
    texts = [stream.decode("utf-8", "backslashreplace").replace(str(models), "{models}").replace(str(DATA), "{data}")
             for stream in (done.stdout, done.stderr)]
    return done.returncode, *texts


def check(case, models):
    """Run a case; what differs, as text."""
    code, out, err = run(case, models)
    update = os.environ.get("UPDATE") == "1"
    wrong = []
    for name, got in (("stdout", out), ("stderr", err)):
        lines, patterns = got.splitlines(), read(case / name).splitlines()
        if same(lines, patterns):
            continue
        wrong.append(f"--- {name}\n{got}--- expected\n{read(case / name)}")
        if update:
            (case / name).write_text("".join(line + "\n" for line in recorded(lines, patterns)))
    if code != int(read(case / "exit") or 0):
        wrong.append(f"--- exit {code}, expected {read(case / 'exit').strip() or 0}\n")
        if update:
            (case / "exit").write_text(f"{code}\n")
    return "".join(wrong)


def main():
    if not os.environ.get("BT_BIN"):
        print("skipped: BT_BIN names no program")
        return 77
    names = sys.argv[1:] or sorted(path.name for path in (HERE / "cases").iterdir())
    n_failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = pathlib.Path(scratch)
        make_models(models)
        for name in names:
            wrong = check(HERE / "cases" / name, models)
            if wrong:
                n_failed += 1
                print(f"FAILED {name}\n{wrong}")
    print(f"{len(names) - n_failed} of {len(names)} cases passed")
    return 1 if n_failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
