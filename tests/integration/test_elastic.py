# SPDX-License-Identifier: MIT
"""Elastic pins (docs/design.md S5): memory that the context does not use yet holds weights; they go before it grows.
The text is that without them, the peak stays under the plan, and the whole context can be reached."""

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()


def both(model, budget, *args, **options):
    """The same run without and with elastic pins: (stats without, stats with)."""
    text_off, off, _ = harness.run(model, budget, "--elastic", "off", "--ignore-eos", *args, **options)
    text_on, on, _ = harness.run(model, budget, "--ignore-eos", *args, **options)
    what = f"{model.name} at {budget / harness.MIB:.1f} MiB {args} {options}"
    checks.check(text_off == text_on, f"{what}: text differs\n  off {text_off!r}\n  on  {text_on!r}")
    checks.check(off["measured"]["elastic"]["taken"] == 0, f"{what}: pins although they are off")
    planned = sum(line["planned_bytes"] for line in on["plan"]["pools"][0]["lines"])
    peak = on["measured"]["peak_rss_bytes"]
    checks.check(peak <= planned, f"{what}: peak {peak} is over the plan {planned}")
    over = [line for line in on["measured"]["lines"] if line["peak_bytes"] > line["planned_bytes"]]
    checks.check(not over, f"{what}: lines over their plan: {over}")
    elastic = on["measured"]["elastic"]
    print(f"{what}: taken {elastic['taken']}, released {elastic['released']}, at most "
          f"{elastic['peak_bytes'] / harness.MIB:.1f} MiB; streamed {off['measured']['streamed_bytes'] / harness.MIB:.0f} "
          f"-> {on['measured']['streamed_bytes'] / harness.MIB:.0f} MiB; peak / plan {peak / planned:.3f}", flush=True)
    return off["measured"], on["measured"]


def middle(model, ctx):
    rungs = harness.ladder(model, "-c", ctx)
    return (2 * rungs["minimum"] + rungs["all-pinned"]) // 3


# A short answer in a large context: most of the cache's bytes hold weights, and that many fewer are read.
for model in (harness.SMOLLM2, harness.GEMMA3):
    off, on = both(model, middle(model, 2048), ctx=2048, n=16)
    checks.check(on["elastic"]["taken"] > 0, f"{model.name}: no memory of a short chat was used")
    checks.check(on["streamed_bytes"] < off["streamed_bytes"], f"{model.name}: as much was read as without")

# To the end of the context from a short prompt: what was taken is given back, more than one view of the cache is used.
SHORT = "One day"
model = harness.SMOLLM2
rungs = harness.ladder(model, "-c", 512)
off, on = both(model, (rungs["minimum"] + 3 * rungs["all-pinned"]) // 4, n=-1, prompt=SHORT)
checks.check(on["elastic"]["released"] > 0, "nothing was given back on the way to the end of the context")
checks.check(on["prompt_tokens"] + on["generated_tokens"] >= 512, "the end of the context was not reached")
checks.check(on["schedules"]["built"] >= 3, "only one view of the cache was used")

# Without flash attention the cache of values is transposed: the first token touches all of it.
both(model, middle(model, 512), "-fa", "off", n=12)
both(model, middle(model, 512), "-ctk", "q8_0", "-ctv", "q8_0", n=12)

# Nothing to take when nothing streams, and nothing when it was asked for no budget.
_, on = both(model, rungs["all-pinned"], n=12)
checks.check(on["elastic"]["taken"] == 0, "units were taken although none streams")
checks.end()
