# SPDX-License-Identifier: MIT
"""What a refusal suggests fits: each printed change is typed as it stands, and the plan is no longer refused; also at
the very bytes it says it needs (A6.5, user case 14)."""

import harness

harness.require(harness.SMOLLM2, harness.GEMMA3)
checks = harness.Checks()
# Heaps are planned in steps of this; which one a run is in may differ (docs/decisions/004).
STEP = 256 << 10

# Wishes that leave little open, so that every kind of change has something to give.
FIXED = ("-np", 4, "-ub", 512, "--buffers", 3, "--stream-head", "off")
CASES = (
    ("-c", 4096),
    ("-c", 4096, "-fa", "off"),
    ("-c", 2048, "-ctk", "auto", "-ctv", "auto"),
    ("-c", 2048, *FIXED),
    FIXED,
)


def plan(model, exact, *args):
    result = harness.burthen("plan", model, "--json", *(["--exact"] if exact else []), *args)
    if result.returncode not in (0, 3):
        raise AssertionError(f"plan {args} failed ({result.returncode}): {result.stderr.decode()}")
    return harness.json.loads(result.stdout)


def verify(model, exact, case):
    """The changes of one refusal; their flags."""
    rungs = {rung["what"]: rung["budget_bytes"] for rung in plan(model, exact, "--ram-budget", "1M", *case)["ladder"]}
    budget = rungs["minimum"] - (STEP if exact else 1)
    refused = plan(model, exact, "--ram-budget", budget, *case)
    where = f"{model.name} {'exact' if exact else 'formula'} {case} at {budget}"
    if not checks.check(refused["verdict"] == "refused", f"{where}: {refused['verdict']}"):
        return set()
    for change in refused["refusal"]["changes"]:
        typed = f"{change['flag']} {change['value']}".split()
        limit = ["--ram-budget", budget] if typed[0] != "--ram-budget" else []
        made = plan(model, exact, *limit, *case, *typed)
        checks.check(made["verdict"] != "refused", f"{where}: refused with {typed}: {made['refusal']}")
        if typed[0] == "--ram-budget":
            typed = []
        need = change["need_bytes"]
        made = plan(model, exact, *case, *typed, "--ram-budget", need)
        checks.check(made["verdict"] != "refused", f"{where}: {typed} is refused at the {need} it needs")
        checks.check(made["pools"][0]["planned_bytes"] <= need, f"{where}: {typed} plans more than {need}")
    return {change["flag"] for change in refused["refusal"]["changes"]}


for model in (harness.SMOLLM2, harness.GEMMA3):
    for exact in (False, True):
        flags = set()
        for case in CASES[::2] if exact else CASES:  # a dry run takes a while
            found = verify(model, exact, case)
            print(f"{model.name:36} {'exact' if exact else 'formula':8} {' '.join(map(str, case)):60} {sorted(found)}",
                  flush=True)
            flags |= found
        for flag in ("-c", "-ctk", "-np", "-ub", "--stream-head", "--buffers", "--ram-budget"):
            checks.check(flag in flags, f"{model.name}: {flag} is never suggested")
checks.end()
