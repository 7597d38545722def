# SPDX-License-Identifier: MIT
"""burthen bench: what it prints is what was planned, counted and measured from outside, at the least budget that runs and
with all in memory; a list of budgets, with one that is refused; several sequences; the plot; how it stops."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
MODEL = harness.SMOLLM2
SHORT = ("-q", "-p", "16", "-n", "4", "-r", "1", "-t", "1", "--elastic", "off")
SVG = "{http://www.w3.org/2000/svg}"


def bench(*args, code=0):
    result = harness.burthen("bench", MODEL, *args)
    checks.check(result.returncode == code, f"{args}: exit {result.returncode}: {result.stderr.decode()[:300]}")
    return result


def figure(row, name):
    return row[name]["median"] if row[name] else None


def near(a, b, part=0.001):
    return abs(a - b) <= part * max(abs(a), abs(b))


def check_row(row, what, repetitions=1, sequences=1):
    """A row agrees with itself: every figure with what was counted, the peak with the plan."""
    checks.check(row["peak_bytes"] <= row["planned_bytes"] <= row["budget_bytes"], f"{what}: over: {row}")
    checks.check(row["peak_bytes"] > 0.5 * row["planned_bytes"], f"{what}: no peak: {row['peak_bytes']}")
    checks.check(row["prompt_tokens"] == 16 and row["generated_tokens"] == 4 and row["threads"] == 1, what)
    checks.check(row["n_parallel"] == sequences, f"{what}: {row['n_parallel']} sequences")
    checks.check(all(one["passes"] == 4 for one in row["repetitions"]), f"{what}: not a pass for each token of a sequence")
    checks.check(row["ctx"] == 256 * sequences, f"{what}: a context of {row['ctx']} for 20 tokens")
    checks.check(len(row["repetitions"]) == repetitions, f"{what}: {len(row['repetitions'])} repetitions")
    for name in ("prefill_tokens_per_s", "decode_tokens_per_s", "roofline_ratio", "compute_s_per_token"):
        spread = row[name]
        checks.check(0 < spread["min"] <= spread["median"] <= spread["max"], f"{what}: {name} {spread}")
    one = row["repetitions"][0]
    if repetitions == 1:
        checks.check(near(figure(row, "decode_tokens_per_s"), 4e9 * sequences / one["decode_ns"]), f"{what}: decode")
        checks.check(near(figure(row, "prefill_tokens_per_s"), 16e9 * sequences / one["prompt_ns"]), f"{what}: prefill")
    # Waiting and computing are parts of the time; under a load of its own the machine may add any amount to it.
    checks.check(one["wait_ns"] + one["compute_ns"] <= one["decode_ns"], f"{what}: more than the time: {one}")
    least = max(one["read_bytes"] * one["bare_ns"] / max(one["bare_bytes"], 1), one["compute_ns"])
    if repetitions == 1:
        checks.check(near(figure(row, "roofline_ratio"), one["decode_ns"] / least), f"{what}: ratio {row}")


def check_streamed(row, what):
    """A disk that others use gives more at one moment than at another: only the better of some is held to the bound."""
    tries = 0
    ratio = row["roofline_ratio"]["max"]
    while ratio < 0.9 and tries < 3:
        tries += 1
        again = json.loads(bench(*SHORT, "-np", row["n_parallel"], "--json", "--ram-budget", row["budget_bytes"]).stdout)
        ratio = again["rows"][0]["roofline_ratio"]["max"]
    checks.check(ratio >= 0.9, f"{what}: faster than it can be: {row}")
    checks.check(row["verdict"] == "streams" and row["streamed_bytes"] > 0, what)
    planned = row["planned_read_bytes_per_token"]
    checks.check(near(figure(row, "read_bytes_per_token"), planned, 0.01), f"{what}: read {row['read_bytes_per_token']}, planned {planned}")
    one = row["repetitions"][0]
    a_pass = planned * row["n_parallel"]
    passes = round(one["bare_bytes"] / a_pass)
    checks.check(passes >= 2 and near(one["bare_bytes"], passes * a_pass, 0.01), f"{what}: the bare passes read {one['bare_bytes']}")
    checks.check(row["bare_bytes_per_s"]["median"] > 0 and row["read_bytes_per_s"]["median"] > 0, what)
    disk_s = planned / figure(row, "bare_bytes_per_s")
    compute_s = figure(row, "compute_s_per_token")
    if not near(disk_s, compute_s, 0.05):
        checks.check(row["bound"] == ("disk" if disk_s > compute_s else "compute"), f"{what}: bound {row['bound']}")


def check_resident(row, what):
    checks.check(row["verdict"] == "fits" and row["streamed_bytes"] == 0 and row["pinned_bytes"] > 0, what)
    checks.check(row["read_bytes_per_s"] is None or figure(row, "read_bytes_per_token") < 1e5, f"{what}: reads {row}")
    checks.check(row["roofline_ratio"]["min"] >= 1, f"{what}: faster than it can be: {row}")
    checks.check(row["bare_bytes_per_s"] is None and row["bound"] == "compute", f"{what}: {row}")


# one budget, in this process: the least that runs, with the plan's own numbers
plan = harness.plan(MODEL, "-c", "20", "-t", "1", "--elastic", "off")
rungs = {rung["what"]: rung["budget_bytes"] for rung in plan["ladder"]}
got = json.loads(bench(*SHORT, "--json", "--ram-budget", rungs["minimum"]).stdout)
checks.check(got["ladder"] == {"minimum_bytes": rungs["minimum"], "all_pinned_bytes": rungs["all-pinned"]}, f"{got['ladder']}")
checks.check(got["settings"] == {"n_prompt": 16, "n_gen": 4, "repetitions": 1, "elastic": "off", "io": "auto"}, got["settings"])
checks.check(len(got["rows"]) == 1 and got["rows"][0]["asked"] is None, "one row that nobody asked for by name")
checks.check(got["rows"][0]["budget_bytes"] == rungs["minimum"], f"{got['rows'][0]['budget_bytes']}")
check_row(got["rows"][0], "minimum")
check_streamed(got["rows"][0], "minimum")

# several sequences share a pass, and with it what is read; the peak is held to the plan of all their contexts and rows
half = (rungs["minimum"] + rungs["all-pinned"]) // 2
alone = json.loads(bench(*SHORT, "--json", "--ram-budget", half).stdout)["rows"][0]
check_row(alone, "alone")
got = json.loads(bench(*SHORT, "-np", "4", "-r", "2", "--json", "--vs-budget", half).stdout)
four = got["rows"][0]
check_row(four, "four", 2, sequences=4)
check_streamed(four, "four")
# a little over a quarter: contexts of four leave less room for pins
part = figure(four, "read_bytes_per_token") / figure(alone, "read_bytes_per_token")
checks.check(0.25 <= part < 0.45, f"four sequences read {part:.2f} of what one does for a token")
text = bench(*SHORT, "-np", "4", "--ram-budget", half).stdout.decode()
checks.check(": 4 sequences at once, of each 16 pseudo-random tokens of prompt, 4 more one by one" in text, text)
text = bench("-q", "-n", "4", "-r", "1", "-t", "1", "-np", "2", "-c", "512", "--ram-budget", "1G").stdout.decode()
checks.check("cut to 252 tokens, which is what the context of 256 holds" in text, text)

with tempfile.TemporaryDirectory() as folder:
    # several: shares, a size, one that is refused; the plot beside it
    plot, stats = pathlib.Path(folder, "plot.svg"), pathlib.Path(folder, "stats.json")
    got = json.loads(bench(*SHORT, "-r", "2", "--json", "--vs-budget", "0%,100%,1M", "--plot", plot).stdout)
    low, high, none = got["rows"]
    checks.check([row["asked"] for row in got["rows"]] == ["0%", "100%", "1M"], "rows in the order of the list")
    checks.check(low["budget_bytes"] == rungs["minimum"] and high["budget_bytes"] == rungs["all-pinned"],
                 f"{low['budget_bytes']} to {high['budget_bytes']}, not {rungs}")
    check_row(low, "0%", 2)
    check_streamed(low, "0%")
    check_row(high, "100%", 2)
    check_resident(high, "100%")
    checks.check(high["peak_bytes"] > low["peak_bytes"] + 40 * harness.MIB, "each budget has a peak of its own")
    checks.check(none["verdict"] == "refused" and none["refusal"]["code"] == "ram_budget" and not none["repetitions"], f"{none}")
    checks.check(none["refusal"]["need_bytes"] == rungs["minimum"] and none["budget_bytes"] == harness.MIB, f"{none}")
    root = xml.etree.ElementTree.parse(plot).getroot()
    checks.check(root.tag == SVG + "svg", root.tag)
    checks.check(len(root.findall(SVG + "polyline")) == 2 and len(root.findall(SVG + "circle")) == 4 + 2, "two curves of two")
    checks.check([path.name for path in pathlib.Path(folder).iterdir()] == ["plot.svg"], "something is left beside the plot")

    # the table, a prompt that is cut, and the file of --stats
    result = bench("-q", "-n", "4", "-r", "1", "-t", "1", "-c", "256", "--ram-budget", "1G", "--stats", stats)
    text = result.stdout.decode()
    checks.check("prompt was cut to 252 tokens" in text and "Decoding is bound by computing" in text, text)
    checks.check(not result.stderr, result.stderr)
    measured = json.loads(stats.read_text())["measured"]
    checks.check(measured["prompt_tokens"] == 252 and measured["generated_tokens"] == 4, f"{measured['prompt_tokens']}")
    checks.check(measured["decode_tokens_per_s"] > 0 and measured["roofline_ratio"] >= 0.9, f"{measured['roofline_ratio']}")

# what cannot be measured
refused = bench(*SHORT, "--json", "--ram-budget", "1M", code=3)
checks.check(json.loads(refused.stdout)["refusal"]["code"] == "ram_budget", "a refusal is a plan")
for args in (["-p", "300", "-c", "256"], ["-n", "256", "-c", "256"], ["-p", "8192"]):
    result = bench("-q", *args, code=2)
    checks.check(b"do not fit in a context of" in result.stderr and not result.stdout, result.stderr)
    result = bench("-q", *args, "--vs-budget", "0%", code=2)
    checks.check(result.stderr.count(b"burthen:") == 1 and not result.stdout, result.stderr)  # said once


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


# a signal to the process that only starts others: it ends, and they do
for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    with subprocess.Popen([harness.BIN, "bench", str(MODEL), "-q", "-t", "1", "-n", "2000", "--vs-budget", "0%"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment()) as process:
        started, begun = [], time.monotonic()
        # It starts one process after the other: some time later, and when there is one.
        while (not started or time.monotonic() < begun + 1) and time.monotonic() < begun + 30:
            time.sleep(0.05)
            started = children(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        checks.check(started, "no process was started")
        checks.check(process.returncode == code and not out and not err, f"{number}: {process.returncode} {err}")
        checks.check(not any(os.path.exists(f"/proc/{pid}") for pid in started), f"{number}: {started} are left")

checks.end()
