#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""From a model's header to a verdict: `burthen plan`, by formula and with --exact by a dry run, as a whole process.

Nothing is kept from one run to the next, so every dry run is made anew; the header is in the page cache. Most of a plan
by formula is the hash of the header, which a vocabulary makes large."""

import pathlib
import subprocess
import tempfile
import time

from support import kit

FORMS = {"by formula": [], "by dry run": ["--exact"]}


def milliseconds(path, more, threads):
    with tempfile.TemporaryDirectory() as state:
        env = {**kit.harness.environment(), "BURTHEN_STATE_DIR": state}
        argv = [kit.BURTHEN, "plan", path, "-q", "--json", "-t", threads, *more]
        start = time.monotonic()
        result = subprocess.run([str(word) for word in argv], capture_output=True, env=env)
        took = time.monotonic() - start
    if result.returncode not in (0, 3):
        raise SystemExit(f"plan failed: {result.stderr.decode(errors='replace')[-500:]}")
    return took * 1e3


def main():
    parser = kit.parser(__doc__, rounds=7, model=None)
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="by default the test models that are there")
    options = parser.parse_args()
    models = options.models or [p for p in sorted(kit.MODELS.glob("*.gguf")) if "-q4_0" not in p.name]
    if not models:
        kit.skip("no model is there")
    found = kit.begin(options, models[0])
    took = {(path.name, form): [] for path in models for form in FORMS}
    for _ in range(options.rounds):
        for path in models:
            for form, more in FORMS.items():
                took[path.name, form].append(milliseconds(path, more, options.threads))
    found["milliseconds"] = [{"model": name, "form": form, **kit.spread(values)}
                             for (name, form), values in took.items()]
    if not options.json:
        kit.table(["ms", *FORMS], [[path.name, *(kit.cell(kit.spread(took[path.name, form]), 0) for form in FORMS)]
                                   for path in models])
    kit.end(options, found)


if __name__ == "__main__":
    main()
