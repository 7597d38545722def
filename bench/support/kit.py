# SPDX-License-Identifier: MIT
"""What the scripts of bench/ share: where things are, what machine this is, a median with its spread, tables, JSON, and
how burthen bench is asked.

A measurement is rounds: in each, everything that is compared runs once, one after the other, so that what else the
machine does falls on all of it. Ratios are made of the two runs of one round; their median is what counts."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import cgroup_box  # noqa: E402
import harness  # noqa: E402
import prose  # noqa: E402

MIB = harness.MIB
SKIP = harness.SKIP
MODELS = harness.MODELS
BURTHEN = pathlib.Path(os.environ.get("BT_BIN") or SOURCE / "build/release/burthen")
# A budget leaves this much of a cgroup to page cache and kernel (docs/design.md C1).
CGROUP_EXTRA = 16 * MIB


def parser(doc, rounds=5, model="random-1.1b-q4_k_m.gguf"):
    """Options that every script has."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    made.add_argument("--json", action="store_true", help="print JSON instead of tables")
    if model:
        made.add_argument("--model", type=pathlib.Path, default=MODELS / model)
    return made


def skip(reason):
    print(f"skipped: {reason}")
    raise SystemExit(SKIP)


# ---- what this machine is ----


def _first(path, start=""):
    """The first line of a file that begins so, what stands behind its colon; or nothing."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[-1].strip() for line in lines if line.startswith(start)), "")


def _disk_of(path):
    number = os.stat(path).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[2] == name:
            kind, device = words[words.index("-") + 1 : words.index("-") + 3]
            return f"{kind} on {device}"
    return "unknown"


def facts(options, path):
    """The first lines of every table; a member of every JSON. path: what lies on the disk that counts."""
    memory = int(_first("/proc/meminfo", "MemTotal").split()[0]) // 1024
    return {
        "command": "python3 bench/" + shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "rounds": options.rounds,
        "threads": options.threads,
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_mib": memory,
        "kernel": platform.release(),
        "disk": _disk_of(path),
        "load": round(os.getloadavg()[0], 1),
    }


def show_facts(f):
    print(f"{f['command']}\n{f['date']}; rounds {f['rounds']}, threads {f['threads']}; {f['cores']} cores of "
          f"{f['processor']}, {f['memory_mib']} MiB, Linux {f['kernel']}, {f['disk']}; load at the start {f['load']}")


def begin(options, path):
    f = facts(options, path)
    if not options.json:
        show_facts(f)
    return {"facts": f}


def end(options, found):
    if options.json:
        print(json.dumps(found, indent=1))


# ---- numbers ----


def spread(values):
    """{"median","min","max","n"} of those that are known, or None."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known), "n": len(known)}


def ratios(ours, theirs):
    """Of the pairs of each round in which both are known."""
    return spread([a / b for a, b in zip(ours, theirs) if a is not None and b])


def cell(s, decimals=2, unit=1.0):
    if s is None:
        return "-"
    low, middle, high = (f"{s[key] / unit:.{decimals}f}" for key in ("min", "median", "max"))
    return middle if s["n"] == 1 else f"{middle} ({low}-{high})"


def table(head, rows):
    """Columns as wide as what stands in them; the first to the left."""
    lines = [head, *[[str(word) for word in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print("  ".join([line[0].ljust(widths[0]), *[line[i].rjust(widths[i]) for i in range(1, len(head))]]).rstrip())
    print(flush=True)


def note(options, text):
    """How far we are, where somebody looks."""
    if sys.stderr.isatty() and not options.json:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def note_end(options):
    note(options, "")


# ---- what is measured ----


def require_model(path):
    if path.exists():
        return
    if path.name.startswith("random-") and path.parent == MODELS:
        name = path.name.removesuffix(".gguf").removesuffix("-q4_k_m")
        subprocess.run([sys.executable, SOURCE / "tests/support/make_models.py", name], check=True,
                       stdout=subprocess.DEVNULL)
    if not path.exists():
        skip(f"{path} is not there")


def drop(path):
    """Cold: no page of the model in memory."""
    left = cgroup_box.drop_cache(path)
    if left:
        print(f"{left} bytes of {path.name} stay in the page cache: not cold", file=sys.stderr)


def warm(path):
    with open(path, "rb") as file:
        while file.read(MIB):
            pass


def text_of(n_words):
    """A prompt of so many words: no two sentences alike, so that nothing in it can be guessed from what came before."""
    return prose.words(n_words)


def burthen_bench(model, *args):
    """The answer of `burthen bench --json`. A refusal ends the script: nothing can be measured."""
    argv = [BURTHEN, "bench", model, "--json", "-q", *args]
    result = subprocess.run([str(word) for word in argv], capture_output=True, env=harness.environment())
    if result.returncode == 3:  # refused: the answer is a plan
        raise SystemExit(f"{shlex.join(map(str, argv))}: {json.loads(result.stdout)['refusal']['message']}")
    if result.returncode != 0:
        raise SystemExit(f"{shlex.join(map(str, argv))} failed: {result.stderr.decode(errors='replace')[-800:]}")
    return json.loads(result.stdout)


def median_of(row, figure):
    return row[figure]["median"] if row[figure] else None
