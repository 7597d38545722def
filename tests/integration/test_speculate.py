# SPDX-License-Identifier: MIT
"""Tokens that are guessed and verified together (--speculate, docs/decisions/017) change when a token comes, never which:
the same text as without, greedy and drawn with a seed, in fewer passes over the weights, inside the plan."""

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()
TEXT = ("The lighthouse keeper climbed the one hundred and twelve steps each evening at dusk. He carried a can of oil, a "
        "cloth, and a small brass lamp. At the top he wiped the glass, trimmed the wick, filled the reservoir, and lit the "
        "flame. The beam swept over the dark water every nine seconds.")
EDIT = f"Here is a text:\n\n{TEXT}\n\nHere is the same text once more:\n\n{TEXT[:60]}"
LONG = f"{TEXT}\n\n" * 8 + TEXT[:60]  # its attention goes over more than 512 cells


def run(model, budget, *args, prompt=EDIT, n=40, ctx=1024):
    text, stats, _ = harness.run(model, budget, "--ignore-eos", *args, n=n, ctx=ctx, prompt=prompt)
    measured = stats["measured"]
    checks.check(measured["peak_rss_bytes"] <= stats["plan"]["pools"][0]["planned_bytes"], f"within the plan: {args}")
    checks.check(measured["loop_heap_allocations"] in (0, None), f"the token loop allocates nothing: {args}")
    return text, stats


def compare(what, model, budget, *args, **options):
    """*_ : whether guesses were made, and how many were right."""
    without, plain = run(model, budget, "--speculate", "off", *args, **options)
    # whether a guess is worth its time is a measurement (test_speculation.c has the rule): here all are made
    text, stats = run(model, budget, "--guess-always", *args, **options)
    measured = stats["measured"]
    checks.check(text == without, f"{what}: the same text: {text!r}, {without!r}")
    checks.check(plain["measured"]["drafted_tokens"] == 0 and plain["plan"]["batch"]["n_draft"] == 0, f"{what}: off is off")
    checks.check(stats["plan"]["batch"]["n_draft"] == 6, f"{what}: guesses are planned where weights stream")
    checks.check(0 < measured["accepted_tokens"] <= measured["drafted_tokens"], f"{what}: {measured['accepted_tokens']}")
    checks.check(measured["passes"] == plain["measured"]["passes"] - measured["accepted_tokens"], f"{what}: a pass less for each")
    print(f"{what:40} {plain['measured']['passes']:3} passes, {measured['passes']:3} guessing; "
          f"{measured['accepted_tokens']} of {measured['drafted_tokens']} guesses right", flush=True)
    return plain, stats


plain, stats = compare("SmolLM2, a text again", harness.SMOLLM2, "96M")
checks.check(plain["measured"]["passes"] == plain["measured"]["generated_tokens"],
             f"one pass for the prompt, and none after the last token (S4): {plain['measured']['passes']}")
checks.check(stats["measured"]["accepted_tokens"] >= 12, "a text that is repeated is guessed")
checks.check(2 * stats["measured"]["passes"] < plain["measured"]["passes"], "in less than half the passes")
checks.check(stats["measured"]["streamed_bytes"] < plain["measured"]["streamed_bytes"], "reading less")
text, auto = run(harness.SMOLLM2, "96M")
checks.check(text == run(harness.SMOLLM2, "96M", "--speculate", "off")[0] and auto["measured"]["drafted_tokens"] > 0,
             "and without being asked: the first are made on trust")
compare("SmolLM2, drawn with a seed", harness.SMOLLM2, "96M", "--temp", "0.7", "--seed", "7", "-t", "1")
compare("SmolLM2, more than 512 cells", harness.SMOLLM2, "96M", prompt=LONG, n=24)
compare("SmolLM2, a cache of q8_0", harness.SMOLLM2, "104M", "-ctk", "q8_0", "-ctv", "q8_0", n=24)
compare("SmolLM2, with a penalty", harness.SMOLLM2, "96M", "--repeat-penalty", "1.3", n=24)
compare("Gemma-3, a text again", harness.GEMMA3, "160M", n=24)

# Resident: on request only; ngram:K bounds a guess.
_, stats = run(harness.SMOLLM2, "512M", n=4)
checks.check(stats["plan"]["batch"]["n_draft"] == 0, "nothing streams, nothing is guessed")
_, stats = run(harness.SMOLLM2, "512M", "--speculate", "ngram:3", n=24)
checks.check(stats["plan"]["batch"]["n_draft"] == 3 and stats["measured"]["accepted_tokens"] > 0, "but on request")

# The printed minimum has no room for it, and holds.
minimum = harness.ladder(harness.SMOLLM2, "-c", "512")["minimum"]
_, stats, _ = harness.run(harness.SMOLLM2, minimum, n=2, prompt="One")
checks.check(stats["measured"]["peak_rss_bytes"] <= minimum, "the minimum holds")

for wrong in ("ngram:0", "ngram:7", "ngram:", "ngrams", "6"):
    result = harness.burthen("run", harness.SMOLLM2, "-p", "One", "--speculate", wrong)
    checks.check(result.returncode == 2 and b"--speculate wants" in result.stderr, f"--speculate {wrong!r}: {result.stderr}")
result = harness.burthen("run", harness.SMOLLM2, "-p", "One", "--speculate", "draft")
checks.check(result.returncode == 2 and b"--draft FILE" in result.stderr, f"a draft without a model: {result.stderr}")

checks.end()
