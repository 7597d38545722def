# SPDX-License-Identifier: MIT
"""One run of the program held to the contract (docs/design.md C1 and C4).

    prompt = filled_prompt(model, ctx, folder)          a text that nearly fills a context
    row = measure(model, prompt, budget, limit, args)   the run, in a memory cgroup; plain data
    violations(row)                                     what it broke, in sentences; empty if nothing

What is measured is what the kernel says of the process and of its group (cgroup_box.py). The program's own account is
taken for one thing: to say which line is over its plan, and how much no line explains."""

import functools
import hashlib
import json
import os
import pathlib
import re
import tempfile

import cgroup_box
import harness
import prose

MARGIN_BYTES = 16 * harness.MIB  # C1: what a cgroup may use beyond the budget: page cache, kernel memory, the dry run
RESIDUAL_BYTES = 4 * harness.MIB  # C4: what no line explains
RATIO_LOW = 0.9  # C4
# Tokens left for generation, about: enough that the text says something, few enough that streaming it takes no minutes.
ANSWER_LOW, ANSWER_HIGH = 16, 48
THREADS = len(os.sched_getaffinity(0))
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@functools.lru_cache(maxsize=None)
def elastic(state):
    """The option that sets elastic pins (design.md S5), if this build has it: C4's lower bound holds with them off."""
    known = b"--elastic" in harness.burthen("run", "--help").stdout
    return ("--elastic", state) if known else ()


# ---- prompts --------------------------------------------------------------------------------------------------------


def count_tokens(model, text):
    """Tokens of a text of more than 256: the program says so when it refuses it for the smallest context."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        result = harness.burthen("run", model, "-f", file.name, "-c", 256, "-n", 1, "--ram-budget", "1M", "--force", "-q")
    found = re.search(rb"the prompt has (\d+) tokens", result.stderr)
    if not found:
        raise AssertionError(f"{model.name}: tokens cannot be counted: {result.stderr[-300:]!r}")
    return int(found.group(1))


def filled_prompt(model, ctx, folder):
    """A file in `folder` with a prompt of ctx - ANSWER_HIGH to ctx - ANSWER_LOW tokens of this model."""
    path = pathlib.Path(folder) / f"prompt-{model.stem}-{ctx}.txt"
    if path.exists():
        return path
    low, high = ctx - ANSWER_HIGH, ctx - ANSWER_LOW
    n_words = ctx * 3 // 4
    for _ in range(12):
        text = prose.words(n_words)
        n_tokens = count_tokens(model, text)
        if low <= n_tokens <= high:
            part = path.with_suffix(f".part-{os.getpid()}")
            part.write_text(text)
            part.replace(path)
            return path
        n_words = max(1, n_words * ((low + high) // 2) // n_tokens)
    raise AssertionError(f"{model.name}: no text of {low} to {high} tokens found")


# ---- budgets --------------------------------------------------------------------------------------------------------


def is_refused(model, budget, *args):
    result = harness.burthen("plan", model, "--exact", "--json", "--ram-budget", budget, *args)
    if result.returncode not in (0, 3):
        raise AssertionError(f"plan failed ({result.returncode}): {result.stderr.decode(errors='replace')[-300:]}")
    return result.returncode == 3


def exact_ladder(model, *args):
    """The ladder, its minimum tried: that budget is planned, one byte less is refused.

    Prices of dry runs are kept (docs/decisions/013), so each answer is the first one's."""
    rungs = harness.ladder(model, *args)
    low = rungs["minimum"]
    if not is_refused(model, low - 1, *args) or is_refused(model, low, *args):
        raise AssertionError(f"{model.name}: the printed minimum {low} is not exact")
    return rungs


# ---- one run --------------------------------------------------------------------------------------------------------


def row_of(result, stats, budget, limit):
    """What is kept of a run: plain data, some 3 KB as JSON."""
    row = {"status": result.status, "budget_bytes": budget, "limit_bytes": limit, "vm_hwm_bytes": result.vm_hwm_bytes or 0,
           "cgroup_peak_bytes": result.cgroup_peak_bytes, "limit_hits": result.limit_hits, "oom_kills": result.oom_kills,
           "swap_peak_bytes": result.swap_peak_bytes, "wall_s": result.wall_s}
    if stats is None:
        row["timed_out"] = result.timed_out
        row["stderr"] = result.stderr.decode(errors="replace")[-600:]
        return row
    plan, measured = stats["plan"], stats["measured"]
    # The last look from outside may have come before the last growth: the process saw it.
    row["vm_hwm_bytes"] = max(row["vm_hwm_bytes"], measured["peak_rss_bytes"])
    row |= {"planned_bytes": plan["pools"][0]["planned_bytes"], "verdict": plan["verdict"],
            "ctx": plan["ctx"]["effective"], "parallel": plan["parallel"], "n_ubatch": plan["batch"]["n_ubatch"],
            "head": plan["head"], "slots": plan["ring"]["slots"], "pinned": plan["units"]["pinned"],
            "streamed": plan["units"]["streamed"], "residual_bytes": measured["residual_bytes"],
            "lines": [[line["name"], line["planned_bytes"], line["peak_bytes"]] for line in measured["lines"]],
            "prompt_tokens": measured["prompt_tokens"], "generated_tokens": measured["generated_tokens"],
            "text": hashlib.sha256(result.stdout + repr(stats["tokens"]).encode()).hexdigest()[:16],
            "bytes": result.stdout.hex(), "prefill_tokens_per_s": measured["prefill_tokens_per_s"],
            "decode_tokens_per_s": measured["decode_tokens_per_s"], "streamed_bytes": measured["streamed_bytes"]}
    return row


def command(model, prompt, budget, *args):
    return [harness.BIN, "run", model, "-f", prompt, "-n", "-1", "--ignore-eos", "--io", "direct", "--ram-budget", budget,
            *args]


def measure(model, prompt, budget, limit, *args, timeout_s=600):
    """The row of a run in a group of that limit (None: none), its file cold, no swap."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        cgroup_box.drop_cache(model)
        result = cgroup_box.run(command(model, prompt, budget, "--stats", stats.name, *args), limit_bytes=limit,
                                allow_swap=False, env=harness.environment(), timeout_s=timeout_s)
        text = pathlib.Path(stats.name).read_text()
    return row_of(result, json.loads(text) if text and result.status == 0 else None, budget, limit)


def ratio(row):
    return row["vm_hwm_bytes"] / row["planned_bytes"]


def mib(n_bytes):
    return f"{n_bytes / harness.MIB:.2f}"


def violations(row, low=RATIO_LOW, fills=True):
    """Everything that a run broke. low: the least of measured / planned; fills: the context was to be filled."""
    if row["status"] != 0:
        if row["timed_out"]:
            return [f"not done in {row['wall_s']:.0f} s"]
        return [f"exit {row['status']} (killed: {row['oom_kills']}): {row.get('stderr', '')}"]
    budget, planned, peak = row["budget_bytes"], row["planned_bytes"], row["vm_hwm_bytes"]
    found = []
    if peak > budget:
        found.append(f"VmHWM {mib(peak)} is over the budget {mib(budget)}")
    if planned > budget:
        found.append(f"planned {mib(planned)} is over the budget {mib(budget)}")
    if not low * planned <= peak <= planned:
        found.append(f"measured {mib(peak)} / planned {mib(planned)} = {ratio(row):.3f}, not within {low} and 1")
    # What is mapped is counted in whole pages; a cache with sliding windows is two mappings (toy 20188).
    found += [f"{name} took {used} of {line}" for name, line, used in row["lines"] if used > line + 2 * (PAGE_BYTES - 1)]
    if row["residual_bytes"] >= RESIDUAL_BYTES:
        found.append(f"no line explains {mib(row['residual_bytes'])}")
    if row["oom_kills"] or row["swap_peak_bytes"]:
        found.append(f"{row['oom_kills']} killed, {row['swap_peak_bytes']} bytes swapped")
    if row["cgroup_peak_bytes"] is not None and row["cgroup_peak_bytes"] > budget + MARGIN_BYTES:
        found.append(f"cgroup peak {mib(row['cgroup_peak_bytes'])} is over the budget {mib(budget)} + 16 MiB")
    # The last token is sampled from a full context and takes no cell.
    if fills and row["prompt_tokens"] + row["generated_tokens"] - 1 != row["ctx"]:
        found.append(f"{row['prompt_tokens']} + {row['generated_tokens']} tokens do not fill {row['ctx']}")
    return found


def slack(row, n=3):
    """The lines whose plan is most above what they took: where to look when a ratio is low."""
    unused = sorted(((line - used, name) for name, line, used in row["lines"]), reverse=True)
    return ", ".join(f"{name} {mib(bytes_)}" for bytes_, name in unused[:n])
