#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model that streams from disk: how near to what the disk and the cores allow.

  budgets    burthen bench at 25, 50, 75 and 100 % of the model's size: time of a token by the larger of reading and
             computing it alone (T ratio), and whether more memory is ever slower
  sequences  at half of the model: four sequences in a pass against one, tokens a second of all of them
  prompt     at half of the model: a prompt of some 512 tokens against llama.cpp (mmap, no repacking) in a cgroup of the
             budget and 16 MiB, cold
  loading    at 75 %: seconds to load what is pinned by what the reader alone would take to read it, cold

Reads are direct unless --io says otherwise: what the page cache gives is not the disk.

In each round all that is compared runs once, one after the other; figures are medians with the least and the most."""

import json
import pathlib
import tempfile

from support import adapters, kit

PERCENT = (25, 50, 75, 100)
MB = 1e6


def common(options):
    return ["-p", options.prompt, "-n", options.tokens, "-t", options.threads, "--io", options.io]


def budget_at(options, percent):
    return options.model.stat().st_size * percent // 100


# ---- budgets ----


def budgets(options):
    sizes = [budget_at(options, percent) for percent in PERCENT]
    got = kit.burthen_bench(options.model, *common(options), "-r", options.rounds, "--vs-budget",
                            ",".join(map(str, sizes)))
    speeds = [kit.median_of(row, "decode_tokens_per_s") or 0 for row in got["rows"]]
    slower = [f"{PERCENT[i + 1]} %" for i in range(len(speeds) - 1) if speeds[i + 1] < speeds[i]]
    return {"rows": got["rows"], "slower_than_with_less": slower}


def row_cell(row, figure, decimals=2, unit=1.0):
    known = [r for r in row["repetitions"] if row[figure]]
    return kit.cell({**row[figure], "n": len(known)} if known else None, decimals, unit)


def show_budgets(found):
    kit.table(["budget", "MiB", "verdict", "decode tok/s", "T ratio", "bound", "MB/token", "bare MB/s",
               "prefill tok/s"],
              [[f"{percent} %", row["budget_bytes"] // kit.MIB, row["verdict"], row_cell(row, "decode_tokens_per_s"),
                row_cell(row, "roofline_ratio"), row["bound"] or "-", row_cell(row, "read_bytes_per_token", 1, MB),
                row_cell(row, "bare_bytes_per_s", 0, MB), row_cell(row, "prefill_tokens_per_s", 1)]
               for percent, row in zip(PERCENT, found["rows"])])
    slower = found["slower_than_with_less"]
    print(f"slower than with less memory: {', '.join(slower) or 'none'}\n")


# ---- sequences ----


def sequences(options):
    figures = {1: [], options.parallel: []}
    for i in range(options.rounds):
        for n in sorted(figures, reverse=i % 2 == 1):
            kit.note(options, f"{n} sequences, round {i + 1} of {options.rounds}")
            got = kit.burthen_bench(options.model, *common(options), "-r", 1, "-np", n, "--ram-budget",
                                    budget_at(options, 50))
            figures[n].append(got["rows"][0])
    kit.note_end(options)

    def of(n, figure):
        return [kit.median_of(row, figure) for row in figures[n]]

    names = ("decode_tokens_per_s", "read_bytes_per_token", "prefill_tokens_per_s", "roofline_ratio")
    rows = [{"n_parallel": n, **{name: kit.spread(of(n, name)) for name in names},
             "decode_ratio": kit.ratios(of(n, names[0]), of(1, names[0]))} for n in figures]
    return {"budget_bytes": budget_at(options, 50), "rows": rows}


def show_sequences(found):
    kit.table([f"sequences at {found['budget_bytes'] // kit.MIB} MiB", "decode tok/s, all", "by one alone", "MB/token",
               "T ratio", "prefill tok/s, all"],
              [[row["n_parallel"], kit.cell(row["decode_tokens_per_s"]), kit.cell(row["decode_ratio"]),
                kit.cell(row["read_bytes_per_token"], 1, MB), kit.cell(row["roofline_ratio"]),
                kit.cell(row["prefill_tokens_per_s"], 1)] for row in found["rows"]])


# ---- prompt ----


def prompt(options):
    kit.cgroup_box.require()
    limit = budget_at(options, 50) + kit.CGROUP_EXTRA
    runners, _ = adapters.installed(("burthen", "llama.cpp-mmap"))

    def ask_of(folder):
        # A word is up to two tokens; generation is not what is measured, but some runners print no speed without any.
        return adapters.Ask(options.model, limit, kit.text_of(options.words), 2, 2 * options.words + 16,
                            options.threads, True, folder)

    speeds = adapters.rounds(runners, ask_of, options.rounds)
    own = [s.prefill for s in speeds["burthen"]]
    rows = [{"runner": name, "prefill_tokens_per_s": kit.spread([s.prefill for s in of]),
             "ratio": kit.ratios(own, [s.prefill for s in of]), "failed": [s.failed for s in of if s.failed]}
            for name, of in speeds.items()]
    return {"limit_bytes": limit, "words": options.words, "rows": rows}


def show_prompt(found):
    kit.table([f"a prompt of {found['words']} words in {found['limit_bytes'] // kit.MIB} MiB", "prefill tok/s",
               "burthen / it", "failed"],
              [[row["runner"], kit.cell(row["prefill_tokens_per_s"]),
                kit.cell(row["ratio"]) if row["runner"] != "burthen" else "", ", ".join(row["failed"])]
               for row in found["rows"]])


# ---- loading ----


def load_once(options, stats):
    """Seconds, pinned bytes, and the reader's bandwidth a moment later."""
    kit.drop(options.model)
    got = kit.burthen_bench(options.model, *common(options), "-r", 1, "--ram-budget", budget_at(options, 75),
                            "--stats", stats)
    row = got["rows"][0]
    load_s = json.loads(stats.read_text())["measured"]["load_s"]
    return load_s, row["pinned_bytes"], kit.median_of(row, "bare_bytes_per_s")


def loading(options):
    with tempfile.TemporaryDirectory() as folder:
        loads = [load_once(options, pathlib.Path(folder, "stats.json")) for _ in range(options.rounds)]
    least = [pinned / speed if speed else None for _, pinned, speed in loads]
    seconds = [s for s, _, _ in loads]
    return {"budget_bytes": budget_at(options, 75), "pinned_bytes": loads[-1][1], "load_s": kit.spread(seconds),
            "read_s": kit.spread(least), "ratio": kit.ratios(seconds, least)}


def show_loading(found):
    kit.table([f"loading in {found['budget_bytes'] // kit.MIB} MiB", "pinned MiB", "seconds", "reading alone", "ratio"],
              [["", found["pinned_bytes"] // kit.MIB, kit.cell(found["load_s"]), kit.cell(found["read_s"]),
                kit.cell(found["ratio"])]])


PARTS = {"budgets": (budgets, show_budgets), "sequences": (sequences, show_sequences), "prompt": (prompt, show_prompt),
         "loading": (loading, show_loading)}


def main():
    parser = kit.parser(__doc__)
    parser.add_argument("--io", default="direct", choices=("direct", "auto", "buffered"), help="of burthen")
    parser.add_argument("--prompt", type=int, default=64, help="tokens before those that are timed")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--words", type=int, default=400, help="of the long prompt")
    parser.add_argument("-np", "--parallel", type=int, default=4)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    options = parser.parse_args()
    kit.require_model(options.model)
    found = kit.begin(options, options.model)
    found.update(model=options.model.name, model_bytes=options.model.stat().st_size)
    if not options.json:
        print(f"{options.model.name}, {found['model_bytes'] // kit.MIB} MiB; {options.prompt} tokens of prompt, then "
              f"{options.tokens}\n")
    for part in options.only.split(","):
        measure, show = PARTS[part]
        found[part] = measure(options)
        if not options.json:
            show(found[part])
    kit.end(options, found)


if __name__ == "__main__":
    main()
