#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything in memory: burthen bench against llama-bench, same model, threads, micro-batch and tokens.

Layout against layout: `--repack off` against `--repack 0` (weights as they lie in the file), and the defaults against
each other (llama.cpp lays weights out anew where it can; burthen adds such a layout beside the first where there is
room). A prompt of P tokens, then N tokens behind it, of both; a run is some repetitions in one process, whose median
counts. In each round both run once, the order changes from round to round; a ratio is burthen's speed by llama-bench's
in the same round. Models in forms that are not there are made once."""

import json
import statistics
import subprocess

from support import kit, quantized

FORMS = ("Q4_0", "Q4_K_M")
LAYOUTS = {"as in the file": (["--repack", "off"], ["--repack", "0"]), "default": ([], [])}


def ours(options, path, more):
    """Prefill, decode."""
    got = kit.burthen_bench(path, "-p", options.prompt, "-n", options.tokens, "-r", options.repetitions, "-t",
                            options.threads, *more)
    row = got["rows"][0]
    if row["verdict"] != "fits" or row["n_ubatch"] != 512:  # llama-bench's
        raise SystemExit(f"{path.name} does not fit here: {row['verdict']}, a micro-batch of {row['n_ubatch']}")
    return kit.median_of(row, "prefill_tokens_per_s"), kit.median_of(row, "decode_tokens_per_s")


def llama_bench(options, path, more, *test):
    argv = [kit.harness.LLAMA_BIN / "llama-bench", "-m", path, "-t", options.threads, "-r", options.repetitions, "-o",
            "json", *test, *more]
    result = subprocess.run([str(word) for word in argv], capture_output=True, env=kit.harness.environment())
    if result.returncode != 0:
        raise SystemExit(f"llama-bench failed: {result.stderr.decode(errors='replace')[-500:]}")
    return statistics.median(json.loads(result.stdout)[0]["samples_ts"])


def theirs(options, path, more):
    return (llama_bench(options, path, more, "-p", options.prompt, "-n", 0),
            llama_bench(options, path, more, "-p", 0, "-n", options.tokens, "-d", options.prompt))


def compare(options, path, layout):
    mine, its = LAYOUTS[layout]
    pairs = []
    for i in range(options.rounds):
        kit.note(options, f"{path.name}, {layout}, round {i + 1} of {options.rounds}")
        first = ours(options, path, mine) if i % 2 == 0 else None
        second = theirs(options, path, its)
        pairs.append((first or ours(options, path, mine), second))
    kit.note_end(options)
    row = {"model": path.name, "layout": layout}
    for i, part in enumerate(("prefill", "decode")):
        own, peer = [a[i] for a, _ in pairs], [b[i] for _, b in pairs]
        row[part] = {"burthen": kit.spread(own), "llama_bench": kit.spread(peer), "ratio": kit.ratios(own, peer)}
    return row


def show(rows):
    head = ["", "layout", "prefill tok/s", "llama-bench", "ratio", "decode tok/s", "llama-bench", "ratio"]
    kit.table(head, [[row["model"].removesuffix(".gguf"), row["layout"]]
                     + [kit.cell(row[part][what], 2 if what == "ratio" else 1) for part in ("prefill", "decode")
                        for what in ("burthen", "llama_bench", "ratio")] for row in rows])


def main():
    parser = kit.parser(__doc__, model=None)
    parser.add_argument("--models", default=",".join(quantized.SOURCES), help="with commas between")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="within a run; its median counts")
    options = parser.parse_args()
    if not (kit.harness.LLAMA_BIN / "llama-bench").exists():
        kit.skip("llama-bench was not built (`make bench` does it)")
    unknown = [name for name in options.models.split(",") if name not in quantized.SOURCES]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(quantized.SOURCES)}")
    found = kit.begin(options, kit.MODELS)
    found.update(prompt=options.prompt, tokens=options.tokens, rows=[])
    if not options.json:
        print(f"{options.prompt} tokens of prompt, then {options.tokens} behind it, all in memory\n")
    for name in options.models.split(","):
        for form in FORMS:
            path = quantized.path_of(name, form)
            found["rows"] += [compare(options, path, layout) for layout in LAYOUTS]
    if not options.json:
        show(found["rows"])
    kit.end(options, found)


if __name__ == "__main__":
    main()
