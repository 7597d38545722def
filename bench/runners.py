#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model larger than its memory: burthen and other runners, each in a cgroup of the same limit.

In each round every runner answers the same prompt once; the page cache of the model is dropped before each run, or with
--warm filled. burthen's budget is the limit less 16 MiB (docs/design.md C1). A ratio is burthen's speed by the other's
in the same round. Runners that are not installed are named; bench/support/adapters.py says how each is found."""

import pathlib
import xml.sax.saxutils

from support import adapters, kit

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # Wong's, which the colour-blind can tell apart
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 60, 180, 24, 44


def row_of(name, speeds, ours):
    return {
        "runner": name,
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
        failed = f"{len(row['failed'])} times {row['failed'][0]}" if row["failed"] else ""
        is_ours = row["runner"] == "burthen"
        lines.append([row["runner"], kit.cell(row["decode_tokens_per_s"]), "" if is_ours else kit.cell(row["decode_ratio"]),
                      kit.cell(row["prefill_tokens_per_s"]), "" if is_ours else kit.cell(row["prefill_ratio"]),
                      f"{row['peak_bytes'] // kit.MIB}", failed])
    kit.table([f"limit {limit // kit.MIB} MiB", "decode tok/s", "burthen / it", "prefill tok/s", "burthen / it", "VmHWM MiB",
               "failed"], lines)


def plot(found, path):
    """Decoding over the limit, a line for each runner: the median, and a bar from the least to the most."""
    limits = [at["limit_bytes"] // kit.MIB for at in found["limits"]]
    points = {}
    for at in found["limits"]:
        for row in at["rows"]:
            if row["decode_tokens_per_s"]:
                points.setdefault(row["runner"], []).append((at["limit_bytes"] // kit.MIB, row["decode_tokens_per_s"]))
    top = max([s["max"] for line in points.values() for _, s in line], default=1) * 1.05
    low, high = min(limits), max(max(limits), min(limits) + 1)

    def at(limit, value):
        return (LEFT + (limit - low) / (high - low) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="16">{xml.sax.saxutils.escape(found["model"])}: tokens a second over the limit in MiB</text>']
    for i in range(5):
        _, y = at(low, top * i / 4)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d0d7de"/><text x="{LEFT - 6}" y="{y + 4:.1f}" '
                   f'text-anchor="end">{top * i / 4:.1f}</text>')
    out += [f'<text x="{at(limit, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{limit}</text>' for limit in limits]
    for i, (name, line) in enumerate(points.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [at(limit, s["median"]) for limit, s in line]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>')
        for limit, s in line:
            x, y = at(limit, s["median"])
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/><path d="M{x:.1f} {at(limit, s["min"])[1]:.1f}'
                       f'V{at(limit, s["max"])[1]:.1f}" stroke="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 16 * (i + 1)}" fill="{colour}">{xml.sax.saxutils.escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>\n"]))


def main():
    parser = kit.parser(__doc__)
    parser.add_argument("--limits", default="320,480,640", help="MiB, with commas between")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--words", type=int, default=64, help="of the prompt")
    parser.add_argument("-c", "--ctx", type=int, default=512)
    parser.add_argument("--warm", action="store_true", help="with the model in the page cache, where the limit holds it")
    parser.add_argument("--only", default="", help="names of runners, with commas between")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg")
    options = parser.parse_args()
    kit.cgroup_box.require()
    kit.require_model(options.model)
    runners, absent = adapters.installed([name for name in options.only.split(",") if name])
    found = kit.begin(options, options.model)
    found.update(model=options.model.name, model_bytes=options.model.stat().st_size, cold=not options.warm, tokens=options.tokens,
                 absent=absent, limits=[])
    if not options.json:
        print(f"{options.model.name}, {found['model_bytes'] // kit.MIB} MiB; {options.words} words, then {options.tokens} tokens, "
              f"{'warm' if options.warm else 'cold'} file; absent: {', '.join(absent) or 'none'}\n")
    for limit in (int(word) * kit.MIB for word in options.limits.split(",")):
        def ask_of(folder, limit=limit):
            return adapters.Ask(options.model, limit, kit.text_of(options.words), options.tokens, options.ctx,
                                options.threads, not options.warm, folder)

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
