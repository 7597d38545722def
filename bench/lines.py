#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Planned against taken, line by line: how wrong each line of the ledger is.

Runs that saturate their plan (the context filled, elastic pins off, direct reads, cold file) at budgets from the printed
minimum to all pinned, each in a cgroup of the budget and 16 MiB. Of each line that is over 256 KiB: what it took at most
by what was planned, the least and the most of all runs. A line of computed bounds (pagetables) is not measured; what no
line explains is shown beside them. --mixtures: the small random mixtures of tests/support/mixtures.py, whose plan is so
small that the process may take less than nine tenths of it."""

import pathlib
import tempfile

from support import kit

import contract
import mixtures

SHARES = (0, 0.5, 1)
SHOWN_BYTES = 256 << 10
MIXTURES_LOW = 0.85  # taken / planned of the process


def rows_of(options, model, folder):
    args = ("-c", options.ctx, "-ctk", "f16", "-ctv", "f16", "-t", options.threads)
    prompt = contract.filled_prompt(model, options.ctx, folder)
    rungs = contract.exact_ladder(model, *args)
    low, high = rungs["minimum"], rungs["all-pinned"]
    for share in SHARES:
        kit.note(options, f"{model.name}, {share:.0%} of the way to all pinned")
        budget = low + int((high - low) * share)
        row = contract.measure(model, prompt, budget, budget + contract.MARGIN_BYTES, *args, "--greedy", "--repack", "off",
                               *contract.elastic("off"), timeout_s=900)
        wrong = contract.violations(row, low=options.low)
        if wrong:
            raise SystemExit(f"{model.name} in {contract.mib(budget)} MiB: {'; '.join(wrong)}")
        yield row
    kit.note_end(options)


def written(folder):
    for name in mixtures.SHAPES:
        path = pathlib.Path(folder) / f"{name}.gguf"
        mixtures.write(path, name)
        yield path


def of_lines(rows):
    found = {}
    for row in rows:
        for name, planned, peak in row["lines"]:
            if planned >= SHOWN_BYTES and peak > 0:
                found.setdefault(name, []).append((planned, peak))
    return {name: {"n": len(pairs), "planned_bytes": [min(p for p, _ in pairs), max(p for p, _ in pairs)],
                   "ratio": [min(q / p for p, q in pairs), max(q / p for p, q in pairs)]} for name, pairs in found.items()}


def main():
    parser = kit.parser(__doc__, rounds=1, model="smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--ctx", type=int, default=512, help="tokens of context (512)")
    parser.add_argument("--more", action="append", default=[], type=pathlib.Path, metavar="FILE",
                        help="another model; repeatable")
    parser.add_argument("--mixtures", action="store_true", help="small mixtures of experts, in the place of --model")
    options = parser.parse_args()
    options.low = MIXTURES_LOW if options.mixtures else contract.RATIO_LOW
    kit.harness.BIN = str(kit.BURTHEN)  # also where nobody has set BT_BIN
    found = kit.begin(options, options.model)
    contract.cgroup_box.require()
    with tempfile.TemporaryDirectory() as folder:
        models = [*written(folder), *options.more] if options.mixtures else [options.model, *options.more]
        rows = [row for _ in range(options.rounds) for model in models for row in rows_of(options, model, folder)]
    residual = [row["residual_bytes"] for row in rows]
    total = [contract.ratio(row) for row in rows]
    found.update(runs=len(rows), lines=of_lines(rows), total=[min(total), max(total)],
                 residual_bytes=[min(residual), max(residual)])
    if not options.json:
        lines = found["lines"]
        kit.table(["line", "runs", "planned MiB", "taken / planned"],
                  [[name, lines[name]["n"], " to ".join(contract.mib(b) for b in lines[name]["planned_bytes"]),
                    " to ".join(f"{r:.2f}" for r in lines[name]["ratio"])] for name in sorted(lines)])
        print(f"process, taken / planned {found['total'][0]:.3f} to {found['total'][1]:.3f}; on no line "
              f"{' to '.join(contract.mib(b) for b in found['residual_bytes'])} MiB")
    kit.end(options, found)


if __name__ == "__main__":
    main()
