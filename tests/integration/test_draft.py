# SPDX-License-Identifier: MIT
"""A draft model (--draft, --speculate draft, docs/decisions/018): SmolLM2 guesses what SmolLM2 with more blocks says, whose
blocks add nothing (support/taller.py), so that it is right but for the draws of a sampler.

The text must be the text without a draft, greedy and drawn. That draws come from the same distribution needs no
statistics here: the sampler draws once for each token and in the same order, from logits that are equal to the bit
(integration.verify), so for each seed the very text is the same; twenty of them are compared.

Whether a guess pays depends on the machine's pace: where passes are counted guesses are made whatever they cost."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import contract
import harness
import schema
import taller

harness.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()
MIB = harness.MIB
EXTRA = 40  # blocks: twice the bytes, about
EXTRA_TALL = 120
CTX = 256
BUDGET = "224M"
ONE = ("-t", "1")
DRAFTING = ("--speculate", "draft", "--guess-always")


def run(model, *args, budget=BUDGET, n=48, ctx=CTX, prompt=harness.PROMPT):
    text, stats, result = harness.run(model, budget, *ONE, "--ignore-eos", *args, n=n, ctx=ctx, prompt=prompt)
    measured, plan = stats["measured"], stats["plan"]
    pool = plan["pools"][0]
    checks.check(measured["peak_rss_bytes"] <= pool["planned_bytes"] <= pool["budget_bytes"],
                 f"{args}: peak {measured['peak_rss_bytes']} within the plan of {pool['planned_bytes']}")
    checks.check(measured["residual_bytes"] < 4 * MIB, f"{args}: no line explains {measured['residual_bytes']}")
    checks.check(measured["loop_heap_allocations"] in (0, None), f"{args}: the token loop allocates nothing")
    over = [line for line in measured["lines"] if line["peak_bytes"] > line["planned_bytes"] + 8192]
    checks.check(not over, f"{args}: lines over their plan: {over}")
    return text, stats, result


def refused(code, words, model, *args):
    result = harness.burthen("run", model, "-p", "One", "-n", 2, "-c", CTX, *ONE, *args)
    text = (result.stderr + result.stdout).decode()
    checks.check(result.returncode == code and all(word in text for word in words),
                 f"run {args}: exit {result.returncode}, {text[-300:]!r}, expected {code} with {words}")
    return result


def check_greedy(tall, draft):
    plain_text, plain, _ = run(tall, "--speculate", "off")
    text, stats, _ = run(tall, *draft, *DRAFTING)
    measured, before = stats["measured"], plain["measured"]
    drafted, accepted = measured["drafted_tokens"], measured["accepted_tokens"]
    checks.check(text == plain_text, f"greedy: the same text: {text!r}, {plain_text!r}")
    checks.check(stats["plan"]["batch"]["n_draft"] == 6 and stats["plan"]["draft"]["file"] == harness.SMOLLM2.name,
                 "the plan has the draft")
    checks.check(stats["plan"]["draft"]["header_sha256"] != stats["plan"]["fingerprint"]["model"]["header_sha256"],
                 "which is another file")
    checks.check(drafted >= 24 and accepted > 0.8 * drafted, f"greedy: {accepted} of {drafted} guesses are right")
    checks.check(2 * measured["passes"] < before["passes"], f"greedy: {measured['passes']} passes, not {before['passes']}")
    errors = schema.check("stats", stats)
    checks.check(not errors, f"the statistics as docs/schema has them: {errors[:5]}")
    lines = {line["name"]: line for line in measured["lines"]}
    weights = lines["host/draft.weights"]
    checks.check(0.95 * weights["planned_bytes"] < weights["peak_bytes"] <= weights["planned_bytes"],
                 f"its weights are held: {weights}")
    checks.check(lines["host/draft.vocab"]["peak_bytes"] > 8 * MIB, "its vocabulary is on its line")
    print(f"greedy: {before['passes']} passes, {measured['passes']} with the draft; {accepted} of {drafted} guesses right",
          flush=True)
    return stats


def check_bytes(tall, draft):
    """With no more pins to lose: at the minimum with the draft, both read all but the same few bytes a pass."""
    low = harness.ladder(tall, *draft, "--speculate", "draft", "-c", CTX, *ONE)["minimum"]
    _, stats, _ = run(tall, *draft, *DRAFTING, "--elastic", "off", budget=low)
    plain = harness.ladder(tall, "--speculate", "off", "-c", CTX, *ONE)["minimum"]
    _, before, _ = run(tall, "--speculate", "off", "--elastic", "off", budget=plain)
    checks.check(stats["plan"]["pools"][0]["planned_bytes"] <= low, "the printed minimum holds the draft")
    read, read_before = stats["measured"]["streamed_bytes"], before["measured"]["streamed_bytes"]
    checks.check(2 * read < read_before, f"{read} bytes read, without the draft {read_before}")


def check_drawn(tall, draft):
    n_accepted = 0
    for seed in range(20):
        args = ("--temp", "0.8", "--seed", seed)
        options = {"n": 16, "prompt": harness.PROMPT[:90]}
        text = {}
        for how, extra in (("off", ()), ("draft", (*draft, "--guess-always"))):
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                result = harness.burthen("run", tall, "-p", options["prompt"], "-n", 16, "-c", CTX, *ONE, *args, *extra,
                                         "--ignore-eos", "--ram-budget", BUDGET, "--speculate", how, "--stats", file.name)
                checks.check(result.returncode == 0, f"seed {seed}, {how}: {result.stderr[-200:]!r}")
                text[how] = result.stdout
                n_accepted += json.loads(pathlib.Path(file.name).read_text())["measured"]["accepted_tokens"]
        checks.check(text["off"] == text["draft"] and text["off"], f"seed {seed}: {text}")
    checks.check(n_accepted > 0, "some guesses of drawn tokens are right")
    print(f"drawn: 20 seeds, the same text; {n_accepted} guesses right", flush=True)


def check_auto(tall, draft, folder):
    # what repeats is looked up, what does not is drafted
    repeats = f"A text:\n\n{harness.PROMPT}\n\nThe same text once more:\n\n{harness.PROMPT[:40]}"
    taller_one = taller.write(folder / "taller.gguf", harness.SMOLLM2, EXTRA_TALL)
    plain_text, _, _ = run(taller_one, "--speculate", "off", budget="256M", prompt=repeats, ctx=512)
    text, stats, _ = run(taller_one, *draft, budget="256M", prompt=repeats, ctx=512)
    checks.check(text == plain_text and stats["measured"]["accepted_tokens"] > 0, "auto: the same text, guessed")
    checks.check(stats["plan"]["draft"] is not None, "auto: with the draft where weights stream")
    taller_one.unlink()
    # of a model that is nearly held without it, it would make more stream
    _, stats, result = run(tall, *draft, budget="236M", n=4)
    checks.check(stats["plan"]["verdict"] == "streams" and stats["plan"]["draft"] is None and
                 b"is worth more to weights" in result.stderr, "auto: no draft where weights need its memory")
    _, stats, result = run(tall, *draft, budget="400M", n=4)
    checks.check(stats["plan"]["verdict"] == "fits" and stats["plan"]["draft"] is None and
                 stats["measured"]["drafted_tokens"] == 0 and b"is left out: nothing streams" in result.stderr,
                 "auto: no draft where all is pinned, and that is said")
    _, stats, _ = run(tall, *draft, "--speculate", "draft:3", "--guess-always", budget="512M", n=24)
    checks.check(stats["plan"]["verdict"] == "fits" and stats["plan"]["batch"]["n_draft"] == 3 and
                 stats["measured"]["accepted_tokens"] > 0, "but where it is asked for by name")
    for how in ("off", "ngram"):
        _, stats, result = run(tall, *draft, "--speculate", how, n=4)
        checks.check(stats["plan"]["draft"] is None and f"is left out: --speculate {how}".encode() in result.stderr,
                     f"--speculate {how} leaves it out, and says so")


def check_wrong_guesses(tall, folder):
    """A draft that is never right: the same text, few trials, and its memory is given to weights."""
    wrong = folder / "wrong.gguf"
    shutil.copy(harness.SMOLLM2, wrong)
    with open(wrong, "r+b") as file:  # the same vocabulary, other weights
        file.seek(harness.SMOLLM2.stat().st_size // 2)
        file.write(bytes(range(256)) * 4096)
    plain_text, _, _ = run(tall, "--speculate", "off", n=100)
    text, stats, result = run(tall, "--draft", wrong, "--speculate", "draft", "--io", "direct", "-v", n=100)
    measured = stats["measured"]
    checks.check(text == plain_text, "wrong guesses: the same text")
    # (unjudged there would be six before nearly each of the 100)
    checks.check(12 <= measured["drafted_tokens"] <= 300, f"wrong guesses: {measured['drafted_tokens']} drafted")
    given_up = b"does not pay" in result.stderr  # it is where the disk was waited for, which no test can be sure of
    used = measured["elastic"]["peak_bytes"] > 60 * MIB
    checks.check(used == given_up, f"wrong guesses: given up {given_up}, its memory used {measured['elastic']}")
    print(f"wrong guesses: {measured['drafted_tokens']} made, the draft is {'given up' if given_up else 'kept'}", flush=True)


def check_contract(tall, draft, folder):
    """A run that saturates the plan: the context filled, nothing lent (design.md C4)."""
    prompt = contract.filled_prompt(harness.SMOLLM2, 512, folder)
    args = (*draft, "--speculate", "draft", "-c", 512, *ONE)
    low = harness.ladder(tall, *args)["minimum"]
    stats = folder / "filled.json"
    result = harness.burthen("run", tall, "--guess-always", "-f", prompt, "-n", -1, "--ignore-eos", "--greedy", "--elastic", "off",
                             "--ram-budget", low, "--stats", stats, *args)
    checks.check(result.returncode == 0, f"a full context at the minimum: {result.stderr[-300:]!r}")
    filled = json.loads(stats.read_text())
    ratio = filled["measured"]["peak_rss_bytes"] / filled["plan"]["pools"][0]["planned_bytes"]
    checks.check(contract.RATIO_LOW <= ratio <= 1, f"a full context at the minimum: measured / planned is {ratio:.3f}")
    checks.check(filled["measured"]["accepted_tokens"] > 0, "and guesses are right there")
    print(f"a full context at the minimum of {low / MIB:.1f} MiB: measured / planned {ratio:.3f}", flush=True)


def check_lost_draft(tall, folder):
    """The draft's file is written to while it guesses: no more guesses, one sentence, and the same text."""
    file = folder / "lost.gguf"
    shutil.copy(harness.SMOLLM2, file)
    plain_text, _, _ = run(tall, "--speculate", "off", n=100)
    command = [harness.BIN, "run", tall, "-p", harness.PROMPT, "-n", 100, "-c", CTX, "--greedy", "--ignore-eos", *ONE,
               "--ram-budget", BUDGET, "--draft", file, *DRAFTING]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=harness.environment())
    first = os.read(process.stdout.fileno(), 1)
    with open(file, "ab") as changed:
        changed.write(b"\n")
    rest, said = process.communicate(timeout=300)
    checks.check(process.returncode == 0 and first + rest == plain_text, f"a lost draft: {process.returncode}, {rest!r}")
    checks.check(said.count(b"guesses no more") == 1, f"a lost draft is said once: {said!r}")


def check_plan_file(tall, draft, folder):
    saved = folder / "plan.json"
    plan = harness.plan(tall, *draft, "--speculate", "draft", "-c", CTX, *ONE, budget=BUDGET)
    saved.write_text(json.dumps(plan))
    text, stats, _ = run(tall, *draft, "--speculate", "draft", "--plan", saved, n=16)
    checks.check(stats["measured"]["accepted_tokens"] > 0 and text, "a plan with a draft runs")
    refused(2, ["--draft", harness.SMOLLM2.name], tall, "--plan", saved)
    refused(3, ["not the one that was planned for"], tall, "--plan", saved, "--draft", tall)


def check_conversation(tall, draft, folder):
    texts = []
    for how, extra in (("off", ()), ("draft", draft)):
        session = folder / f"{how}.session"
        args = ("run", tall, "--chat", "-c", 512, *ONE, "--greedy", "-n", 20, "--ram-budget", "256M", "--speculate", how,
                "--session", session, *extra)
        result = harness.burthen(*args, stdin=b"Name a colour.\nAnd another one.\n/undo\nName a fish.\n")
        more = harness.burthen(*args, stdin=b"And a bird.\n")
        checks.check(result.returncode == 0 and more.returncode == 0, f"chat, {how}: {(result.stderr + more.stderr)[-300:]!r}")
        texts.append((result.stdout, more.stdout))
    checks.check(texts[0] == texts[1] and texts[0][0], f"a conversation and its session: {texts}")


def check_refusals(tall, draft):
    refused(2, ["does not speak the tokens", harness.GEMMA3.name, tall.name], tall, "--draft", harness.GEMMA3)
    refused(1, ["cannot open", "nothing.gguf"], tall, "--draft", "nothing.gguf")
    refused(2, ["--speculate draft needs"], tall, "--speculate", "draft")
    result = refused(3, ["draft.weights", "--speculate off"], tall, *draft, "--ram-budget", "96M")
    checks.check(b"refused" in result.stderr, "a draft as large as the budget is refused")
    result = harness.burthen("run", tall, *draft, "--speculate", "off", "-p", "One", "-n", 2, "-c", CTX, *ONE,
                             "--ram-budget", "96M")
    checks.check(result.returncode == 0, f"and without it that budget is enough: {result.stderr[-200:]!r}")
    text, stats, result = run(tall, *draft, "--speculate", "draft", "-fa", "off", n=4)
    checks.check(stats["measured"]["drafted_tokens"] == 0 and b"flash attention" in result.stderr,
                 "no guesses without flash attention, and that is said")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    tall = taller.write(folder / "tall.gguf", harness.SMOLLM2, EXTRA)
    draft = ("--draft", harness.SMOLLM2)
    check_greedy(tall, draft)
    check_bytes(tall, draft)
    check_drawn(tall, draft)
    check_auto(tall, draft, folder)
    check_wrong_guesses(tall, folder)
    check_contract(tall, draft, folder)
    check_lost_draft(tall, folder)
    check_plan_file(tall, draft, folder)
    check_conversation(tall, draft, folder)
    check_refusals(tall, draft)
checks.end()
