#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Guessed tokens against none, where weights stream: tokens a second, and how many guesses were right.

  edit      a text, and the request to write it once more: what a lookup in the context is for
  summary   the same text, and the beginning of a summary: little repeats
  draft     SmolLM2 with blocks that add nothing (the same text, more bytes), with SmolLM2 as its draft; and looked up

In each round both ways run once, one after the other; a ratio is the speed with guesses by that without. Text is the
same by construction; the script checks it."""

import json
import pathlib
import subprocess
import tempfile

from support import kit

import taller  # noqa: E402  tests/support, whose path kit adds

TEXT = ("The lighthouse keeper climbed the one hundred and twelve steps each evening at dusk. He carried a can of oil, a "
        "cloth, and a small brass lamp. At the top he wiped the glass, trimmed the wick, filled the reservoir, and lit the "
        "flame. The beam swept over the dark water every nine seconds.")
EDIT = f"Here is a text:\n\n{TEXT}\n\nHere is the same text once more:\n\n{TEXT[:60]}"
SUMMARY = f"Here is a text:\n\n{TEXT}\n\nIn one sentence, the text says that"


def run(options, model, budget, prompt, *args):
    with tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder, "stats.json")
        command = [kit.BURTHEN, "run", model, "-p", prompt, "-n", options.tokens, "-c", 512, "-t", options.threads,
                   "--ignore-eos", "--greedy", "--io", options.io, "-q", "--ram-budget", budget, "--stats", stats, *args]
        result = subprocess.run([str(word) for word in command], capture_output=True, env=kit.harness.environment())
        if result.returncode != 0:
            raise SystemExit(f"burthen failed: {result.stderr.decode(errors='replace')[-400:]}")
        return result.stdout, json.loads(stats.read_text())["measured"]


def compare(options, name, model, budget, prompt, *args):
    without, guessing = [], []
    for i in range(options.rounds):
        kit.note(options, f"{name}, round {i + 1} of {options.rounds}")
        ways = [(without, ("--speculate", "off")), (guessing, args)]
        for found, more in ways if i % 2 == 0 else ways[::-1]:
            found.append(run(options, model, budget, prompt, *more))
    kit.note_end(options)
    texts = {text for text, _ in without + guessing}
    if len(texts) != 1:
        raise SystemExit(f"{name}: {len(texts)} texts")
    speeds = [[measured["decode_tokens_per_s"] for _, measured in found] for found in (without, guessing)]
    last = guessing[-1][1]
    return {"name": name, "off": kit.spread(speeds[0]), "guessing": kit.spread(speeds[1]),
            "ratio": kit.ratios(speeds[1], speeds[0]), "passes": [without[-1][1]["passes"], last["passes"]],
            "drafted": last["drafted_tokens"], "accepted": last["accepted_tokens"]}


def main():
    parser = kit.parser(__doc__, model=None)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--io", default="direct", choices=("direct", "auto", "buffered"))
    options = parser.parse_args()
    small, gemma = kit.harness.SMOLLM2, kit.harness.GEMMA3
    for model in (small, gemma):
        kit.require_model(model)
    found = kit.begin(options, small)
    with tempfile.TemporaryDirectory(dir=kit.SOURCE / "build") as folder:
        tall = pathlib.Path(folder) / "tall.gguf"
        taller.write(tall, small, 120)
        rows = [compare(options, "SmolLM2, 96 MiB, edit", small, "96M", EDIT),
                compare(options, "SmolLM2, 96 MiB, summary", small, "96M", SUMMARY),
                compare(options, "Gemma-3, 160 MiB, edit", gemma, "160M", EDIT),
                compare(options, "Gemma-3, 160 MiB, summary", gemma, "160M", SUMMARY),
                compare(options, "tall SmolLM2, 256 MiB, draft, summary", tall, "256M", SUMMARY, "--draft", small,
                        "--speculate", "draft"),
                compare(options, "tall SmolLM2, 256 MiB, looked up, summary", tall, "256M", SUMMARY)]
    found["rows"] = rows
    if not options.json:
        print()
        kit.table(["", "off, tok/s", "guessing, tok/s", "ratio", "passes", "right"],
                  [[row["name"], kit.cell(row["off"], 1), kit.cell(row["guessing"], 1), kit.cell(row["ratio"]),
                    f"{row['passes'][0]} -> {row['passes'][1]}", f"{row['accepted']} of {row['drafted']}"] for row in rows])
    kit.end(options, found)


if __name__ == "__main__":
    main()
