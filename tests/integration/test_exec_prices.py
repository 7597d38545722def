#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What llama-server is priced at on the host against what it took: a router admits servers by these prices, so that what
all of them hold stays under a budget (docs/prices.md). VmHWM is never over the price, weights in the page cache counted
on both sides, and the price not far over it, without what a server may keep of former prompts (--cache-ram, -ctxcp).
What brings it near is every slot full, and a grammar, which spells out the whole vocabulary."""

import json
import subprocess

import harness
import llama_server

harness.require(harness.SMOLLM2, harness.GEMMA3, llama_server.PROGRAM)
checks = harness.Checks()
MOST = 1.2  # price / measured: a fixed 40 MiB of the process, of which a quiet server uses half
CASES = ((512, 1), (2048, 2), (4096, 4))  # context over all slots, which have their own


def priced(*command):
    done = subprocess.run([str(word) for word in (harness.BIN, "exec", "--dry-run", "--json", "-q", "--", *command)],
                          capture_output=True, timeout=300, env=harness.environment())
    host = json.loads(done.stdout)["plan"]["pools"][0]
    checks.check(host["name"] == "host", f"the first pool: {host['name']}")
    return host["planned_bytes"]


def taken(n_tokens, n_slots, *args):
    """A short and a middle prompt, then all slots full at once, and grammars."""
    with llama_server.Server(*args, env=harness.environment()) as server:
        if not server.check_works(checks, str(args)):
            return None
        for n_words in (8, 120):
            server.complete("word " * n_words, n=16)
        server.at_once([lambda: server.complete([7] * n_tokens, n=8)] * n_slots)
        server.at_once([lambda: server.complete(harness.PROMPT, n=16, grammar="root ::= [a-z ]*", n_probs=5)] * n_slots)
        server.stop()
        return server.peak_bytes


for model in (harness.SMOLLM2, harness.GEMMA3):
    for n_ctx, n_slots in CASES:
        line = ("-m", model, "-ngl", 0, "-t", 1, "-c", n_ctx, "-np", n_slots, "--no-kv-unified", "--cache-ram", 0,
                "-ctxcp", 0)
        price, peak = priced(llama_server.PROGRAM, *line), taken(n_ctx // n_slots - 40, n_slots, *line)
        if peak is None:
            continue
        said = f"{model.name} -c {n_ctx} -np {n_slots}: {price / harness.MIB:.1f} MiB priced, {peak / harness.MIB:.1f} taken"
        print(f"{said}, {price / peak:.3f}")
        checks.check(peak <= price <= MOST * peak, said)
with_defaults = priced(llama_server.PROGRAM, "-m", harness.SMOLLM2, "-ngl", 0, "-c", 512, "-np", 1)
without = priced(llama_server.PROGRAM, "-m", harness.SMOLLM2, "-ngl", 0, "-c", 512, "-np", 1, "--cache-ram", 0)
checks.check(with_defaults - without == 8192 * harness.MIB, f"the default prompt cache: {with_defaults - without}")
checks.end()
