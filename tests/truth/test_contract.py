# SPDX-License-Identifier: MIT
"""Contract C1 and C4: the budget is kept, and most of what is planned is used.

Five models (two real, three of random weights: a large dense one, one without two blocks alike, one with 128,256
tokens), eight budgets from the printed minimum to all pinned, a small and a large context, KV in F16 and Q8_0. In each
run a prompt nearly fills the context and generation fills it, in a memory cgroup limited to budget + 16 MiB, direct
reads, the file cold, no swap. Held:

  - one byte under the printed minimum is refused, the minimum runs, the last budget pins everything;
  - VmHWM <= planned <= budget; measured / planned >= 0.9; no line over its plan, under 4 MiB without a line;
  - nothing killed or swapped, the cgroup's peak <= budget + 16 MiB. Where the kernel says that the limit was never met
    (limit_hits 0), that is also the peak without a limit; where it was met, the run is repeated without one;
  - one text for one setting (context, micro-batch, KV types, threads) at every budget, and llama-completion's.

`make check` runs TENTH; `make truth-full` (BT_TRUTH_FULL=1) the whole matrix, and with elastic pins on besides, where the
bound of 0.9 does not hold. What is finished lies in build/truth/rows.jsonl and is not run again while the program and
llama.cpp are the same; what failed is. Its tables and its picture lie beside it (truth_report.py)."""

import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import cgroup_box
import contract
import harness
import make_models
import truth_report

FULL = bool(os.environ.get("BT_TRUTH_FULL"))
FOLDER = harness.SOURCE / "build/truth"
N_BUDGETS = 8
LARGE_CTX = 4096  # or what the model was trained for, if that is less: more is refused
TIMEOUT_S = 3600 if FULL else 600  # a large model at its minimum reads gigabytes

SMOLLM2, GEMMA3, DENSE, MIX, VOCAB = "smollm2", "gemma3", "random-1.1b", "random-mix", "random-128k"
REAL = {SMOLLM2: harness.SMOLLM2, GEMMA3: harness.GEMMA3}
MODELS = (SMOLLM2, GEMMA3, MIX, VOCAB, DENSE)

# (model, context, KV type, budget): every model that is made in seconds, both KV types, the minimum, the last rung; no
# large context, whose prompt alone takes as long as three of these. LIMITLESS rows are run without a limit too.
TENTH = (
    (SMOLLM2, 512, "f16", 0), (SMOLLM2, 512, "f16", 2), (SMOLLM2, 512, "f16", 7), (SMOLLM2, 512, "q8_0", 1),
    (SMOLLM2, 512, "q8_0", 7), (GEMMA3, 512, "f16", 0), (GEMMA3, 512, "f16", 3), (GEMMA3, 512, "f16", 7),
    (GEMMA3, 512, "q8_0", 5), (MIX, 512, "f16", 1), (MIX, 512, "q8_0", 0), (MIX, 512, "q8_0", 7), (VOCAB, 512, "f16", 0),
    (VOCAB, 512, "f16", 4), (VOCAB, 512, "q8_0", 7), (VOCAB, 512, "q8_0", 2),
)
LIMITLESS = ((SMOLLM2, 512, "f16", 2), (GEMMA3, 512, "f16", 3))
ELASTIC = (0, 3, 6)  # budgets of the pass with elastic pins


def all_rows():
    return itertools.product(MODELS, (512, LARGE_CTX), ("f16", "q8_0"), range(N_BUDGETS))


def digest(paths):
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


class Results:
    """Finished rows by key, kept in a file of one JSON object a line; without a path, in memory only."""

    def __init__(self, path):
        self.path = path
        self.rows = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            try:
                key, row = json.loads(line)
            except ValueError:
                continue  # the line that was being written when the run was stopped
            self.rows[key] = row

    def get(self, key, make, good=lambda row: True):
        """The row of a key, made if there is none or it was not good."""
        if key in self.rows and good(self.rows[key]):
            return self.rows[key]
        row = make()
        self.rows[key] = row
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps([key, row]) + "\n")
        return row


class Setting:
    """A model, a context and a KV type: what has one ladder."""

    def __init__(self, name, ctx, kv):
        self.name = name
        self.model = REAL.get(name) or make_models.make(name)
        trained = json.loads(harness.burthen("inspect", self.model, "--json").stdout)["ctx_train"]
        self.ctx = min(ctx, trained)
        self.kv = kv
        # A model that was made again is another model.
        self.stamp = f"{name}@{self.model.stat().st_mtime_ns // 10**9} {self.ctx} {kv}"
        self.args = ("-c", self.ctx, "-ctk", kv, "-ctv", kv, "-t", contract.THREADS)

    def __str__(self):
        return f"{self.name} {self.ctx} {self.kv}"


class Matrix:
    def __init__(self, results, folder):
        self.results = results
        self.folder = folder
        libraries = sorted({path.resolve() for path in harness.LLAMA_BIN.glob("lib*.so")})
        self.peer = digest([harness.LLAMA_BIN / "llama-completion", *libraries])
        self.build = digest([pathlib.Path(harness.BIN)]) + "-" + self.peer
        self.checks = harness.Checks()
        self.shown = []  # (setting, budget's index, elastic, row)
        self.texts = {}  # (setting, micro-batch) -> {text's hash: row}
        self.made_s = 0.0
        self.n_made = 0

    def ladder(self, setting):
        return self.results.get(f"{self.build} {setting.stamp} ladder",
                                lambda: contract.exact_ladder(setting.model, *setting.args))

    def budget(self, setting, index):
        rungs = self.ladder(setting)
        low, high = rungs["minimum"], rungs["all-pinned"]
        return low + (high - low) * index // (N_BUDGETS - 1)

    def measure(self, setting, index, elastic, limited=True):
        """A row, from the results if it is there."""
        budget = self.budget(setting, index)
        low = contract.RATIO_LOW if elastic == "off" or not contract.elastic("on") else 0.0
        limit = budget + contract.MARGIN_BYTES if limited else None

        def make():
            prompt = contract.filled_prompt(setting.model, setting.ctx, self.folder)
            # The text of all budgets is one: where nothing streams, weights would be held in another layout.
            args = (*setting.args, "--greedy", "--repack", "off", *contract.elastic(elastic))
            started = time.monotonic()
            row = contract.measure(setting.model, prompt, budget, limit, *args, timeout_s=TIMEOUT_S)
            self.made_s += time.monotonic() - started
            self.n_made += 1
            return row | {"wrong": contract.violations(row, low)}

        key = f"{self.build} {setting.stamp} {index} of {N_BUDGETS} {elastic} {'limited' if limited else 'free'}"
        return self.results.get(key, make, good=lambda row: not row["wrong"])

    def check(self, setting, index, elastic="off", limited=True):
        row = self.measure(setting, index, elastic, limited)
        where = f"{setting} budget {index} ({contract.mib(row['budget_bytes'])}), elastic {elastic}"
        if not self.checks.check(not row["wrong"], f"{where}: {'; '.join(row['wrong'])}") and row["status"] != 0:
            return
        self.checks.check(index < N_BUDGETS - 1 or row["verdict"] == "fits", f"{where}: the last rung does not fit")
        self.shown.append((setting, index, elastic, row))
        self.texts.setdefault((str(setting), row["n_ubatch"]), {})[row["text"]] = row
        self.say(setting, index, elastic, row)
        if limited and row["limit_hits"] > 0 and not row["wrong"]:
            self.check(setting, index, elastic, limited=False)

    def say(self, setting, index, elastic, row):
        print(f"{str(setting):22} {index} {'elastic' if elastic == 'on' else '':7} budget "
              f"{contract.mib(row['budget_bytes']):>7} limit {'+ 16' if row['limit_bytes'] else 'none'} planned "
              f"{contract.mib(row['planned_bytes']):>7} VmHWM {contract.mib(row['vm_hwm_bytes']):>7} "
              f"({contract.ratio(row):.3f}) cgroup {contract.mib(row['cgroup_peak_bytes'] or 0):>7} residual "
              f"{contract.mib(row['residual_bytes'])} ub {row['n_ubatch']:3} {row['decode_tokens_per_s']:6.1f} tok/s "
              f"{row['wall_s']:6.1f} s{'; slack ' + contract.slack(row) if row['wrong'] else ''}", flush=True)

    # ---- text ----

    def peer_bytes(self, setting, n_ubatch, row):
        """What llama-completion says; it stops some tokens before the context is full."""
        def make():
            prompt = contract.filled_prompt(setting.model, setting.ctx, self.folder)
            command = [harness.LLAMA_BIN / "llama-completion", "-m", setting.model, "-f", prompt, "-n",
                       row["generated_tokens"] - 8, "--ignore-eos", "-no-cnv", "--no-display-prompt", "--no-repack",
                       "--temp", 0, "-fit", "off", "-ub", n_ubatch, *setting.args]
            result = subprocess.run([str(word) for word in command], capture_output=True, timeout=TIMEOUT_S, check=False,
                                    stdin=subprocess.DEVNULL, env=harness.environment())
            return {"status": result.returncode, "bytes": result.stdout.rstrip(b"\n").hex()}

        return self.results.get(f"{self.peer} {setting.stamp} {n_ubatch} {row['generated_tokens']} peer", make,
                                good=lambda found: found["status"] == 0)

    def check_texts(self, settings, with_peer):
        same = {}
        for (name, n_ubatch), rows in sorted(self.texts.items()):
            setting = settings[name]
            where = f"{name}, micro-batch {n_ubatch}"
            texts = [bytes.fromhex(row["bytes"]) for row in rows.values()]
            self.checks.check(len(rows) == 1, f"{where}: {len(rows)} texts:\n" + "\n".join(map(repr, texts)))
            if with_peer(setting):
                peer = self.peer_bytes(setting, n_ubatch, next(iter(rows.values())))
                theirs = bytes.fromhex(peer["bytes"])
                equal = peer["status"] == 0 and theirs and all(text.startswith(theirs) for text in texts)
                self.checks.check(equal, f"{where}: llama-completion ({peer['status']}) has {theirs!r}, not {texts[0]!r}")
                same[(name, n_ubatch)] = equal
        return same


def run(matrix, rows, elastic_rows=()):
    settings, started = {}, time.monotonic()
    rows = list(rows)
    todo = [(*row, "off") for row in rows] + [(*row, "on") for row in elastic_rows]
    for done, (name, ctx, kv, index, elastic) in enumerate(todo):
        key = (name, ctx, kv)
        try:
            if key not in settings:
                settings[key] = Setting(*key)
            matrix.check(settings[key], index, elastic)
            if (name, ctx, kv, index) in LIMITLESS and elastic == "off":
                matrix.check(settings[key], index, elastic, limited=False)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            matrix.checks.check(False, f"{key} budget {index}: {error}")
        if FULL and matrix.n_made:
            left = (len(todo) - done - 1) * matrix.made_s / matrix.n_made
            print(f"[{done + 1}/{len(todo)}] {time.monotonic() - started:.0f} s, at most {left / 60:.0f} min to go",
                  file=sys.stderr, flush=True)
    return {str(setting): setting for setting in settings.values()}


def main():
    harness.require(harness.SMOLLM2, harness.GEMMA3, harness.LLAMA_BIN / "llama-completion")
    cgroup_box.require()
    only = [word for word in sys.argv[1:] if word in MODELS]
    contexts = [int(word) for word in sys.argv[1:] if word.isdigit()]
    chosen = [row for row in (all_rows() if FULL else TENTH)
              if (not only or row[0] in only) and (not contexts or row[1] in contexts)]
    with tempfile.TemporaryDirectory() as folder:
        if FULL:
            FOLDER.mkdir(parents=True, exist_ok=True)
        matrix = Matrix(Results(FOLDER / "rows.jsonl" if FULL else None), FOLDER if FULL else folder)
        elastic_rows = [row for row in chosen if row[3] in ELASTIC] if FULL and contract.elastic("on") else ()
        settings = run(matrix, chosen, elastic_rows)
        # In `make check` integration.identity compares with llama.cpp in F16; here is the other type.
        same = matrix.check_texts(settings, lambda setting: FULL or (setting.kv != "f16" and setting.ctx <= 512))
    if FULL:
        truth_report.write(FOLDER, matrix.build, matrix.shown, same)
        print((FOLDER / "summary.md").read_text())
    matrix.checks.end()


if __name__ == "__main__":
    main()
