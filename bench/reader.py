#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the disk gives at best, by fio, beside what the reader takes when nothing is computed.

fio reads the model's file directly, one process, with 256 KiB, 1 MiB and 4 MiB a request and 1 to 32 of them in
flight; the reader's bare bandwidth is that of `burthen bench` at the least budget, where nearly all of the model
streams. In each round the two take turns, so that both see the same minute of a disk that others use. The ratio is the
median of the bare bandwidths of a round by what the best form of fio gave in the same round; the best form is the one
with the largest median over the rounds. Beside it stands the ratio to the best of all forms in each round, which is the
luckiest of many."""

import json
import shutil
import statistics
import subprocess

from support import kit

BLOCKS_KIB = (256, 1024, 4096)
DEPTHS = (1, 2, 4, 8, 16, 32)
MB = 1e6


def fio(path, engine, block_kib, depth, seconds):
    """Bytes a second."""
    argv = ["fio", "--name=bench", f"--filename={path}", "--readonly", "--rw=read", "--direct=1",
            f"--ioengine={engine}", f"--bs={block_kib}k", f"--iodepth={depth}",
            f"--runtime={round(seconds * 1000)}ms", "--time_based", "--output-format=json"]
    result = subprocess.run(argv, capture_output=True, cwd="/tmp")
    if result.returncode != 0:
        raise SystemExit(f"fio failed: {result.stderr.decode(errors='replace')[-500:]}")
    return json.loads(result.stdout)["jobs"][0]["read"]["bw_bytes"]


def burthen_bench(options, *more):
    return kit.burthen_bench(options.model, "-p", 1, "-n", 1, "-r", 1, "-t", options.threads, "--io", "direct",
                             "--elastic", "off", *more)


def bare(options, budget):
    return kit.median_of(burthen_bench(options, "--ram-budget", budget)["rows"][0], "bare_bytes_per_s")


def one_round(options, budget, forms):
    """Bare bandwidths between groups of fio's forms, one group for each depth."""
    bares, given = [], {}
    for depth in options.depths:
        bares.append(bare(options, budget))
        for block in BLOCKS_KIB:
            kit.note(options, f"fio {block} KiB, {depth} in flight")
            given[block, depth] = fio(options.model, options.engine, block, depth, options.seconds)
            forms.setdefault((block, depth), []).append(given[block, depth])
    bares.append(bare(options, budget))
    kit.note_end(options)
    return statistics.median(bares), max(given.values())


def show(options, found, forms):
    if options.json:
        return
    kit.table(["fio MB/s, in flight", *(f"{block} KiB" for block in BLOCKS_KIB)],
              [[depth, *(kit.cell(kit.spread(forms[block, depth]), 0, MB) for block in BLOCKS_KIB)]
               for depth in options.depths])
    best = found["best_form"]
    kit.table(["", "median (least-most)"],
              [["reader alone, MB/s", kit.cell(found["bare_bytes_per_s"], 0, MB)],
               [f"fio's best form ({best['block_kib']} KiB, {best['depth']} in flight), MB/s",
                kit.cell(best["bytes_per_s"], 0, MB)],
               ["reader / that form, same round", kit.cell(found["ratio"])],
               ["reader / best of all forms of the round", kit.cell(found["ratio_to_luckiest"])]])


def main():
    parser = kit.parser(__doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each run of fio")
    parser.add_argument("--engine", default="io_uring", choices=("io_uring", "libaio"))
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)), help="requests in flight, with commas between")
    options = parser.parse_args()
    options.depths = [int(word) for word in options.depths.split(",")]
    if not shutil.which("fio"):
        kit.skip("fio is not installed (apt-get install fio; `make bench` does it)")
    kit.require_model(options.model)
    found = kit.begin(options, options.model)
    budget = burthen_bench(options)["ladder"]["minimum_bytes"]
    if not options.json:
        print(f"{options.model.name}, {options.engine}, direct; the reader at a budget of {budget // kit.MIB} MiB\n")
    kit.drop(options.model)
    forms = {}
    bares, luckiest = zip(*(one_round(options, budget, forms) for _ in range(options.rounds)))
    block, depth = max(forms, key=lambda form: statistics.median(forms[form]))
    found.update(
        model=options.model.name, engine=options.engine, bare_bytes_per_s=kit.spread(bares),
        best_form={"block_kib": block, "depth": depth, "bytes_per_s": kit.spread(forms[block, depth])},
        ratio=kit.ratios(bares, forms[block, depth]), ratio_to_luckiest=kit.ratios(bares, luckiest),
        forms=[{"block_kib": b, "depth": d, "bytes_per_s": kit.spread(values)} for (b, d), values in forms.items()])
    show(options, found, forms)
    kit.end(options, found)


if __name__ == "__main__":
    main()
