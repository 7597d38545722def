# SPDX-License-Identifier: MIT
"""Tables and picture of the contract's matrix (tests/truth/test_contract.py), ready for docs/measurements.md.

    summary.md    a row for each model, context and KV type
    rows.md       every run
    ratio.svg     measured / planned of each run against its budget; elastic pins are the hollow marks

Written without any library; the picture's numbers are those of rows.md."""

import math
import xml.sax.saxutils

import contract
import harness

MIB = harness.MIB
# Wong's palette, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 440, 64, 200, 28, 52
Y_LOW, Y_HIGH = 0.85, 1.01


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def one(n_bytes):
    return f"{n_bytes / MIB:.1f}"


def span(values, layout):
    low, high = layout.format(min(values)), layout.format(max(values))
    return low if low == high else f"{low} to {high}"


def same_text(same, setting):
    found = [equal for (name, _), equal in same.items() if name == str(setting)]
    return "not compared" if not found else "equal" if all(found) else "DIFFERS"


def summary_rows(shown, same):
    groups = {}
    for setting, _, elastic, row in shown:
        groups.setdefault((str(setting), elastic), (setting, []))[1].append(row)
    for (_, elastic), (setting, rows) in groups.items():
        done = [row for row in rows if row["status"] == 0]
        beyond = [row["cgroup_peak_bytes"] - row["budget_bytes"] for row in done if row["cgroup_peak_bytes"] is not None]
        yield (setting.name, setting.ctx, setting.kv, elastic, len(rows), sum(bool(row["wrong"]) for row in rows),
               span([row["budget_bytes"] / MIB for row in rows], "{:.1f}"),
               span([contract.ratio(row) for row in done], "{:.3f}"),
               span([row["residual_bytes"] / MIB for row in done], "{:.1f}"),
               span([n / MIB for n in beyond], "{:+.1f}") if beyond else "not counted",
               sum(row["oom_kills"] for row in rows),
               span([row["n_ubatch"] for row in done], "{}"), same_text(same, setting))


def all_rows(shown):
    for setting, index, elastic, row in shown:
        if row["status"] == 0:
            yield (setting.name, setting.ctx, setting.kv, index, elastic, one(row["budget_bytes"]),
                   "+ 16" if row["limit_bytes"] else "none", one(row["planned_bytes"]), one(row["vm_hwm_bytes"]),
                   f"{contract.ratio(row):.3f}", one(row["cgroup_peak_bytes"] or 0), row["limit_hits"],
                   f"{row['residual_bytes'] / MIB:.2f}", row["n_ubatch"], f"{row['pinned']}/{row['streamed']}",
                   f"{row['prefill_tokens_per_s']:.0f}", f"{row['decode_tokens_per_s']:.1f}", row["text"][:8],
                   "; ".join(row["wrong"]) or "kept")


class Picture:
    """An SVG scatter: budgets on a logarithmic axis, ratios on a plain one."""

    def __init__(self, budgets):
        self.low, self.high = math.log2(min(budgets) * 0.9), math.log2(max(budgets) * 1.1)
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                      f'font-size="13">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']

    def x(self, n_bytes):
        return LEFT + (math.log2(n_bytes) - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, ratio):
        ratio = min(max(ratio, Y_LOW), Y_HIGH)
        return TOP + (Y_HIGH - ratio) / (Y_HIGH - Y_LOW) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, words, anchor="middle"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
                          f"{xml.sax.saxutils.escape(words)}</text>")

    def line(self, x1, y1, x2, y2, colour="#ddd", dash=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-dasharray="{dash}"/>')

    def axes(self):
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for percent in range(85, 102, 5):
            y = self.y(percent / 100)
            bound = percent in (90, 100)
            self.line(LEFT, y, right, y, "#555" if bound else "#ddd", "4 3" if bound else "")
            self.text(LEFT - 8, y + 4, f"{percent / 100:.2f}", "end")
        power = math.ceil(self.low)
        while power <= self.high:
            x = self.x(2**power)
            self.line(x, TOP, x, bottom)
            self.text(x, bottom + 18, str(2**power // MIB))
            power += 1
        self.text((LEFT + right) / 2, HEIGHT - 10, "budget, MiB")
        self.text(LEFT, TOP - 10, "measured peak / planned", "start")

    def mark(self, x, y, colour, is_large, is_hollow):
        style = f'stroke="{colour}" fill="{"white" if is_hollow else colour}" fill-opacity="0.75"'
        if is_large:
            self.parts.append(f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" {style}/>')
        else:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {style}/>')

    def legend(self, colours):
        x, y = WIDTH - RIGHT + 24, TOP + 12
        for name, colour in colours.items():
            self.mark(x, y - 4, colour, False, False)
            self.text(x + 12, y, name, "start")
            y += 22
        for words, is_large in (("context 512", False), ("the large context", True)):
            self.mark(x, y + 8, "#555", is_large, False)
            self.text(x + 12, y + 12, words, "start")
            y += 22

    def svg(self):
        return "\n".join(self.parts + ["</svg>", ""])


def picture(shown):
    done = [entry for entry in shown if entry[3]["status"] == 0]
    drawn = Picture([row["budget_bytes"] for _, _, _, row in done])
    drawn.axes()
    names = dict.fromkeys(setting.name for setting, _, _, _ in done)
    colours = dict(zip(names, COLOURS))
    for setting, _, elastic, row in done:
        drawn.mark(drawn.x(row["budget_bytes"]), drawn.y(contract.ratio(row)), colours[setting.name], setting.ctx > 512,
                   elastic == "on")
    drawn.legend(colours)
    return drawn.svg()


def write(folder, build, shown, same):
    rows = list(all_rows(shown))
    ratios = [contract.ratio(row) for _, _, elastic, row in shown if row["status"] == 0 and elastic == "off"]
    kept = sum(not row["wrong"] for _, _, _, row in shown)
    closing = f"{kept} of {len(shown)} runs kept the contract (build {build})"
    if ratios:
        closing += f"; measured / planned {min(ratios):.3f} to {max(ratios):.3f}, median {sorted(ratios)[len(ratios) // 2]:.3f}"
    head = ("model", "context", "KV", "elastic", "runs", "broken", "budgets, MiB", "measured / planned", "no line, MiB",
            "cgroup - budget, MiB", "killed", "micro-batch", "llama.cpp's text")
    (folder / "summary.md").write_text(table(head, summary_rows(shown, same)) + f"\n{closing}.\n")
    head = ("model", "context", "KV", "budget", "elastic", "MiB", "limit", "planned", "VmHWM", "ratio", "cgroup", "limit met",
            "no line", "micro-batch", "pinned/streamed", "prompt tok/s", "tok/s", "text", "contract")
    (folder / "rows.md").write_text(table(head, rows))
    if rows:
        (folder / "ratio.svg").write_text(picture(shown))
