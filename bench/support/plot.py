# SPDX-License-Identifier: MIT
"""Lines over sizes, as an SVG document of its own: for each name its medians, with a bar from the least to the most.
Written without any library."""

import xml.sax.saxutils

from support import kit

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # Wong's, which the colour-blind can tell apart
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 60, 180, 24, 44
TICKS = 4


def text(x, y, what, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{xml.sax.saxutils.escape(str(what))}</text>'


def lines(path, title, points):
    """points: name -> [(bytes, spread)]; what has no spread is left out."""
    known = {name: [(size // kit.MIB, s) for size, s in line if s] for name, line in points.items()}
    sizes = sorted({size // kit.MIB for line in points.values() for size, _ in line})
    top = max([s["max"] for line in known.values() for _, s in line], default=1) * 1.05
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(size):
        return LEFT + (size - sizes[0]) / max(sizes[-1] - sizes[0], 1) * width

    def y_of(value):
        return HEIGHT - BOTTOM - value / top * height

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', text(LEFT, 16, title)]
    for value in (top * i / TICKS for i in range(TICKS + 1)):
        out += [f'<path d="M{LEFT} {y_of(value):.1f}h{width}" stroke="#d0d7de"/>',
                text(LEFT - 6, y_of(value) + 4, f"{value:.1f}", ' text-anchor="end"')]
    out += [text(x_of(size), HEIGHT - BOTTOM + 18, size, ' text-anchor="middle"') for size in sizes]
    for i, (name, line) in enumerate(known.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = " ".join(f"{x_of(size):.1f},{y_of(s['median']):.1f}" for size, s in line)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{places}"/>')
        for size, s in line:
            x, low, high = x_of(size), y_of(s["min"]), y_of(s["max"])
            out += [f'<circle cx="{x:.1f}" cy="{y_of(s["median"]):.1f}" r="3" fill="{colour}"/>',
                    f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>']
        out.append(text(WIDTH - RIGHT + 12, TOP + 16 * (i + 1), name, f' fill="{colour}"'))
    path.write_text("\n".join([*out, "</svg>\n"]))
