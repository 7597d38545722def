#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model larger than its memory: burthen and other runners, each in a cgroup of the same limit.

In each round every runner answers the same prompt once; the page cache of the model is dropped before each run, or with
--warm filled. burthen's budget is the limit less 16 MiB (docs/design.md C1). A ratio is burthen's speed by the other's
in the same round. Runners that are not installed are named; bench/support/adapters.py says how each is found."""

import pathlib

from support import adapters, kit
from support import plot as plots


def row_of(name, speeds, ours):
    return {
        "runner": name,
        "runs": len(speeds),
        "failed": [s.failed for s in speeds if s.failed],
        "decode_tokens_per_s": kit.spread([s.decode for s in speeds]),
        "prefill_tokens_per_s": kit.spread([s.prefill for s in speeds]),
        "decode_ratio": kit.ratios([s.decode for s in ours], [s.decode for s in speeds]),
        "prefill_ratio": kit.ratios([s.prefill for s in ours], [s.prefill for s in speeds]),
        "peak_bytes": max(s.peak for s in speeds),
    }


def show(limit, rows):
    lines = []
    for row in rows:
        failed = f"{row['failed'][0]} ({len(row['failed'])} of {row['runs']})" if row["failed"] else ""
        by = [kit.cell(row[f"{part}_ratio"]) if row["runner"] != "burthen" else "" for part in ("decode", "prefill")]
        lines.append([row["runner"], kit.cell(row["decode_tokens_per_s"]), by[0],
                      kit.cell(row["prefill_tokens_per_s"]), by[1], row["peak_bytes"] // kit.MIB, failed])
    kit.table([f"limit {limit // kit.MIB} MiB", "decode tok/s", "burthen / it", "prefill tok/s", "burthen / it",
               "peak MiB", "failed"], lines)


def plot(found, path):
    points = {}
    for at in found["limits"]:
        for row in at["rows"]:
            points.setdefault(row["runner"], []).append((at["limit_bytes"], row["decode_tokens_per_s"]))
    plots.lines(path, f"{found['model']}: tokens a second over the limit in MiB", points)


def main():
    parser = kit.parser(__doc__)
    parser.add_argument("--limits", default="320,480,640", help="MiB, with commas between")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--words", type=int, default=64, help="of the prompt")
    parser.add_argument("-c", "--ctx", type=int, default=512)
    parser.add_argument("--temp", type=float, default=0.0, help="draw from all tokens; 0: greedy")
    parser.add_argument("--warm", action="store_true", help="with the model in the page cache")
    parser.add_argument("--only", default="", help="names of runners, with commas between")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg")
    options = parser.parse_args()
    kit.cgroup_box.require()
    kit.require_model(options.model)
    runners, absent = adapters.installed([name for name in options.only.split(",") if name])
    found = kit.begin(options, options.model)
    found.update(model=options.model.name, model_bytes=options.model.stat().st_size, cold=not options.warm,
                 tokens=options.tokens, absent=absent, limits=[])
    if not options.json:
        print(f"{options.model.name}, {found['model_bytes'] // kit.MIB} MiB; {options.words} words, then "
              f"{options.tokens} tokens, {'warm' if options.warm else 'cold'} file; absent: "
              f"{', '.join(absent) or 'none'}\n")
    for limit in (int(word) * kit.MIB for word in options.limits.split(",")):
        def ask_of(folder, limit=limit):
            return adapters.Ask(options.model, limit, kit.text_of(options.words), options.tokens, options.ctx,
                                options.threads, not options.warm, folder, options.temp)

        speeds = adapters.rounds(runners, ask_of, options.rounds)
        ours = speeds.get("burthen", [])
        rows = [row_of(name, of, ours) for name, of in speeds.items()]
        found["limits"].append({"limit_bytes": limit, "rows": rows})
        if not options.json:
            show(limit, rows)
    if options.plot:
        plot(found, options.plot)
    kit.end(options, found)


if __name__ == "__main__":
    main()
