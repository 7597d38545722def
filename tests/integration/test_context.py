# SPDX-License-Identifier: MIT
"""Context, KV types and micro-batch: what was asked for is kept or refused, what was left open is lowered in the order
of the ranking and reported, and a prompt that does not fit is an error with both numbers (user cases 15 and 16)."""

import pathlib
import tempfile

import harness

harness.require(harness.SMOLLM2, harness.LLAMA_BIN / "llama-completion")
checks = harness.Checks()
MODEL = harness.SMOLLM2
AUTO = ("-ctk", "auto", "-ctv", "auto")


def shape(plan):
    return (plan["ctx"]["effective"], plan["kv"]["type_k"], plan["kv"]["type_v"], plan["batch"]["n_ubatch"],
            plan["ring"]["slots"] != 1, plan["head"])


def ways_down():
    """From all pinned to the minimum: what the plan gives up, in order."""
    rungs = harness.ladder(MODEL, "-c", 2048, *AUTO)
    last = None
    step = 4 << 20
    for budget in range(rungs["all-pinned"], rungs["minimum"] - 1, -step):
        plan = harness.plan(MODEL, "-c", 2048, *AUTO, budget=budget)
        now = shape(plan)
        if now != last:
            yield budget, now, plan
        last = now


def check_order():
    """Each loss comes after those that cost less: pins, head, overlap, micro-batch, KV types, small micro-batches."""
    last = None
    for budget, now, plan in ways_down():
        print(f"  {budget / harness.MIB:7.1f} MiB {now}", flush=True)
        n_ctx, type_k, type_v, n_ubatch, overlaps, head = now
        rank = (n_ubatch >= 128, n_ctx, type_k == "f16", n_ubatch, overlaps, head == "resident")
        checks.check(type_k == type_v, f"{budget}: {type_k} and {type_v}")
        checks.check(plan["exact"] == (type_k == "f16" and n_ubatch == 512), f"{budget}: exact is {plan['exact']}")
        checks.check(plan["wishes"]["cache_type_k"] == "auto", "the wish is no longer auto")
        if last:
            checks.check(rank < last, f"{budget}: {rank} is not below {last}")
        last = rank
    checks.check(last is not None and not last[2], "q8_0 was never chosen")


def check_text():
    """A run whose types were lowered is llama.cpp's with those types, and keeps its budget."""
    rungs = harness.ladder(MODEL, "-c", 2048)
    budget = rungs["minimum"] - harness.MIB  # f16 does not fit
    refused = harness.plan(MODEL, "-c", 2048, budget=budget)
    checks.check(refused["verdict"] == "refused", f"f16 fits {budget}")
    ours, stats, _ = harness.run(MODEL, budget, *AUTO, ctx=2048, n=16)
    plan, measured = stats["plan"], stats["measured"]
    n_ubatch = plan["batch"]["n_ubatch"]
    checks.check(plan["kv"]["type_k"] == plan["kv"]["type_v"] == "q8_0", f"types are {plan['kv']}")
    checks.check(measured["peak_rss_bytes"] <= budget, f"peak {measured['peak_rss_bytes']} over {budget}")
    theirs = harness.peer_text(MODEL, "-ctk", "q8_0", "-ctv", "q8_0", "-ub", n_ubatch, "-t", plan["threads"], ctx=2048, n=16)
    checks.check(harness.same_text(ours, theirs), f"text differs at q8_0, micro-batch {n_ubatch}: {ours!r} {theirs!r}")


def check_context():
    """Requested, effective and why, in the plan and in the statistics of a run (user case 15)."""
    low, high = (harness.ladder(MODEL)[rung] for rung in ("minimum", "all-pinned"))
    default = harness.plan(MODEL, budget=low + (high - low) // 4)["ctx"]
    checks.check(default["requested"] is None and 256 < default["effective"] < 4096, f"default context {default}")
    checks.check("4096 by default" in (default["reason"] or ""), f"reason {default}")
    budget = low + (high - low) // 4
    asked = harness.plan(MODEL, "-c", 4096, budget=budget)
    checks.check(asked["verdict"] == "refused" and asked["ctx"]["effective"] == 4096, f"not refused: {asked['ctx']}")
    _, stats, result = harness.run(MODEL, budget, "--allow-ctx-reduction", ctx=4096, n=1)
    ctx = stats["plan"]["ctx"]
    checks.check(ctx["requested"] == 4096 and ctx["effective"] == default["effective"], f"reduced to {ctx}")
    checks.check("4096 asked for" in ctx["reason"] and b"4096 asked for" in result.stderr, f"reason {ctx}")


def check_prompts():
    """More tokens than the context holds: exit 2, both numbers, nothing generated, from wherever it comes (case 16)."""
    long = "word " * 600  # a token each, and one for the space at the end
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(long)
        file.flush()
        for args, stdin in ((("-p", long), b""), (("-f", file.name), b""), ((), long.encode())):
            result = harness.burthen("run", MODEL, *args, "-c", 512, "-q", stdin=stdin)
            where = args[0] if args else "stdin"
            checks.check(result.returncode == 2, f"{where}: exit {result.returncode}")
            checks.check(result.stdout == b"", f"{where}: wrote {result.stdout!r}")
            checks.check(b"601 tokens" in result.stderr and b"holds 512" in result.stderr, f"{where}: {result.stderr!r}")
        shared = harness.burthen("run", MODEL, "-f", file.name, "-c", 1024, "-np", 2, "-q")
        checks.check(shared.returncode == 2 and b"512 for each sequence" in shared.stderr, f"-np 2: {shared.stderr!r}")
        fits = harness.burthen("run", MODEL, "-f", file.name, "-c", 768, "-n", 1, "-q", "--greedy")
        checks.check(fits.returncode == 0 and fits.stdout, f"-c 768: {fits.returncode} {fits.stderr!r}")


def check_room():
    """An answer that cannot be whole is said before it begins; what there is room for is generated."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        result = harness.burthen("run", MODEL, "-p", "word " * 240, "-c", 256, "-n", 30, "--greedy", "--ignore-eos",
                                 "--stats", stats.name)
        measured = harness.json.loads(pathlib.Path(stats.name).read_text())["measured"]
    room = 256 - measured["prompt_tokens"] + 1
    checks.check(f"room for {room} of the 30 tokens".encode() in result.stderr, f"not said: {result.stderr[-400:]!r}")
    checks.check(measured["generated_tokens"] == room, f"generated {measured['generated_tokens']} of {room}")
    enough = harness.burthen("run", MODEL, "-p", "A ship", "-c", 256, "-n", 2, "--greedy")
    checks.check(b"room for" not in enough.stderr, f"said without need: {enough.stderr!r}")


def check_stretched():
    """A context above the trained one is an error without a factor that reaches it; with one, positions are llama.cpp's."""
    above = harness.burthen("plan", MODEL, "-c", 16384)
    checks.check(above.returncode == 2 and b"--rope-scaling" in above.stderr, f"above: {above.returncode} {above.stderr!r}")
    stretch = ("--rope-scaling", "yarn", "--rope-scale", "2")
    plan = harness.plan(MODEL, "-c", 16384, *stretch, budget="2G")
    checks.check(plan["verdict"] == "fits" and plan["ctx"]["effective"] == 16384, f"stretched: {plan['ctx']}")
    plain = harness.peer_text(MODEL, n=16)
    for scaling in (stretch, ("--rope-scaling", "linear", "--rope-scale", "4"),
                    (*stretch, "--yarn-orig-ctx", "2048")):
        ours, stats, _ = harness.run(MODEL, "1G", *scaling, n=16)
        theirs = harness.peer_text(MODEL, *scaling, "-t", stats["plan"]["threads"], n=16)
        checks.check(harness.same_text(ours, theirs), f"{scaling}: {ours!r} is not {theirs!r}")
        if "linear" in scaling:
            checks.check(not harness.same_text(ours, plain), f"{scaling} changes nothing")


for part in (check_order, check_text, check_context, check_prompts, check_room, check_stretched):
    print(part.__name__, flush=True)
    part()
checks.end()
