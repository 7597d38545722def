# SPDX-License-Identifier: MIT
"""What dry runs measured is kept (docs/decisions/013): plans repeat, a printed minimum runs, and a file that is not
exactly right is taken as none."""

import pathlib
import shutil
import subprocess
import tempfile

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
folder = pathlib.Path(tempfile.mkdtemp(prefix="burthen-prices-"))


def plan(state, *args, budget="1M"):
    environment = harness.environment() | {"BURTHEN_STATE_DIR": str(state)}
    result = subprocess.run([harness.BIN, "plan", harness.SMOLLM2, "--exact", "--json", "-c", "512", "--ram-budget",
                             str(budget), *args], capture_output=True, env=environment, timeout=120)
    return result.returncode, result.stdout


def stable(text):
    """Without what is measured anew each time: speeds and what follows from them."""
    words = (b'"bandwidth_bytes_per_s"', b'"tokens_per_s"', b'"bound"')
    return [line for line in text.splitlines() if not line.strip().startswith(words)]


state = folder / "state"
code, first = plan(state)
checks.check(code == 3 and first, f"the first plan: exit {code}")
files = list(state.glob("prices-*"))
checks.check(len(files) == 1, f"one file of prices: {files}")
kept = files[0].read_text()
checks.check(kept.startswith("burthen-prices 1\nbase ") and "/" not in kept, "the file holds numbers alone")
checks.check(oct(files[0].stat().st_mode & 0o777) == "0o600", "it is ours alone")
for _ in range(5):
    checks.check(stable(plan(state)[1]) == stable(first), "the same question has the same answer")
checks.check(files[0].read_text() == kept, "and nothing is written when nothing is new")

# Other wishes are other prices; they do not mix.
plan(state, "-fa", "off")
plan(state, "-t", "1")
checks.check(len(list(state.glob("prices-*"))) == 3, "flash attention and threads have files of their own")
checks.check(stable(plan(state)[1]) == stable(first), "the first answer still stands")

# Whatever else stands in the file, the plan is made anew and the file put right.
lines = kept.splitlines(keepends=True)
for what in ("", "junk", kept[:-3], kept + "1 2 3\n", kept.replace("base ", "base -"), "burthen-prices 2\n" + kept,
             lines[0] + lines[1] + lines[2].replace(" ", " 99999999999999999999999 ", 1), "\x00" * 100,
             kept * 200, lines[0] + lines[1] + lines[2].rstrip() + " 7\n"):
    files[0].write_text(what)
    code, text = plan(state)
    checks.check(code == 3 and text, f"with {what[:40]!r}...: exit {code}")
    checks.check(files[0].read_text().startswith("burthen-prices 1\nbase 1"), f"{what[:40]!r}... was put right")
    checks.check(all(len(line.split()) == 15 for line in files[0].read_text().splitlines()[2:]), "every line is whole")

# What loading takes is one number for a model, as first measured: points that come later take it over.
rows = [line.split() for line in kept.splitlines()[2:]]
for row in rows:
    row[13] = str(int(row[13]) + (1 << 20))
files[0].write_text("".join(lines[:2]) + "".join(" ".join(row) + "\n" for row in rows))
plan(state, "-c", "1024", budget="300M")
later = [line.split() for line in files[0].read_text().splitlines()[2:]]
checks.check(len(later) > len(rows), f"another context is another point: {len(later)} after {len(rows)}")
checks.check({row[13] for row in later} == {rows[0][13]}, "one peak of loading for all points")
files[0].write_text(kept)

# Where nothing can be kept, plans are made all the same.
blocked = folder / "blocked"
blocked.write_text("no folder")
code, text = plan(blocked)
checks.check(code == 3 and text, f"without a folder: exit {code}")

# A printed minimum runs, one byte less is refused: from the same file.
minimum = harness.ladder(harness.SMOLLM2, "-c", "512")["minimum"]
text, stats, _ = harness.run(harness.SMOLLM2, minimum, n=2, prompt="One")
checks.check(stats["measured"]["peak_rss_bytes"] <= minimum, "the minimum holds")
result = harness.burthen("run", harness.SMOLLM2, "-p", "One", "-n", 1, "-c", 512, "--ram-budget", minimum - 1)
checks.check(result.returncode == 3, f"one byte less is refused: exit {result.returncode}")

shutil.rmtree(folder)
checks.end()
