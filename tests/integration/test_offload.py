# SPDX-License-Identifier: MIT
"""Blocks on devices beside the host, on the fake card of tests/support: the text is that of the host alone, wherever the
blocks stand and whatever streams; a card holds what was planned, to the byte of its allocator; what it does not say, and
what it fails at, has a sentence and an exit code, or the host goes on alone; nothing is left on it.

The peak of the process holds the card's memory too, since it is this process that plays the card."""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import harness
import random_model
import schema

CARD = pathlib.Path(os.environ.get("BT_FAKE_DEVICE", harness.SOURCE / "build/release/tests/libggml-fake.so"))
harness.require(harness.SMOLLM2, CARD)
checks = harness.Checks()
# Shadow memory breaks every bound of the host; the rest holds with a sanitizer too, and it sees what is left behind.
SANITIZED = re.search(rb"__(asan|tsan)_init", CARD.read_bytes()) is not None
PROMPT = "The capital of France is"
MIB = harness.MIB
SIZES = ("-c", 256, "-ub", 64, "-t", 1)
N_BLOCKS = 30  # of SmolLM2


def burthen(*args, card=True, **variables):
    """(result, counts of each card)"""
    with tempfile.NamedTemporaryFile() as report:
        env = harness.environment() | {"FAKE_REPORT": report.name} | variables
        if card:
            env["GGML_BACKEND_PATH"] = str(CARD)
        result = subprocess.run([harness.BIN, *map(str, args)], capture_output=True, env=env, timeout=300, input=b"")
        counts = {}
        for line in report.read().decode().splitlines():
            device, *pairs = line.split()
            counts[device] = {key: int(value) for key, value in (pair.split("=") for pair in pairs)}
    for device, count in counts.items():
        checks.check(count["live"] == count["buffers"] == count["backends"] == 0, f"{args} {variables}: {device} has {count}")
    return result, counts


def said(result):
    return result.stderr.decode(errors="replace")


def run(model, *args, n=12, prompt=PROMPT, code=0, **variables):
    """(text, stats, log, counts) of a greedy run."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        result, counts = burthen("run", model, "-p", prompt, "-n", n, "--greedy", "--ignore-eos", *SIZES, "--stats",
                                 stats.name, *args, **variables)
        checks.check(result.returncode == code, f"{args} {variables}: exit {result.returncode}, not {code}: {said(result)[-600:]}")
        written = json.loads(pathlib.Path(stats.name).read_text() or "null")
        errors = schema.check("stats", written) if written else []
        checks.check(not errors, f"{args} {variables}: {errors}")
        return result.stdout, written, said(result), counts


def plan(model, *args, code=0, **variables):
    result, _ = burthen("plan", model, "--exact", "--json", *SIZES, *args, **variables)
    checks.check(result.returncode == code, f"plan {args} {variables}: exit {result.returncode}: {said(result)[-600:]}")
    return json.loads(result.stdout)


def blocks_of(plan):
    return [(device["name"], device["blocks"]) for device in plan["offload"]["devices"]] if plan["offload"] else []


def check_held(where, stats, counts):
    """What a card held is what its allocator counted; what was planned is no less, and hardly more."""
    pools = {pool["name"]: pool for pool in stats["measured"]["pools"]}
    planned = {pool["name"]: pool for pool in stats["plan"]["pools"]}
    for name, _ in blocks_of(stats["plan"]):
        held, expected = pools[name]["pool_bytes"], counts[name]["peak"]
        checks.check(held == expected, f"{where}: {name} held {held}, by its allocator {expected}")
        plan_bytes = planned[name]["planned_bytes"]
        most = max(held * 1.02, held + 1024 * stats["plan"]["model"]["tensors"])  # what a device may pad
        checks.check(held <= plan_bytes <= most, f"{where}: {name} held {held}, planned {plan_bytes}")
        checks.check(plan_bytes <= planned[name]["budget_bytes"], f"{where}: {name} is over its budget: {planned[name]}")
        lines = sum(line["planned_bytes"] for line in planned[name]["lines"])
        checks.check(lines == plan_bytes, f"{where}: the lines of {name} are {lines} of {plan_bytes}")


def try_text(expected):
    for layers, blocks in ((0, []), (1, [("FAKE0", 1)]), (15, [("FAKE0", 15)]), ("all", [("FAKE0", N_BLOCKS)])):
        text, stats, _, counts = run(harness.SMOLLM2, "-ngl", layers)
        checks.check(text == expected, f"-ngl {layers}: {text!r}, not {expected!r}")
        checks.check(blocks_of(stats["plan"]) == blocks, f"-ngl {layers}: {blocks_of(stats['plan'])}")
        checks.check((counts["FAKE0"]["compute"] > 0) == bool(blocks), f"-ngl {layers}: {counts}")
        check_held(f"-ngl {layers}", stats, counts)
        if layers == "all":  # nothing is left to pin but the tied table, which is the head as well
            host = stats["plan"]["pools"][0]
            checks.check(SANITIZED or host["planned_bytes"] < 70 * MIB, f"all: {host}")
            checks.check(stats["plan"]["offload"]["head"] and stats["plan"]["head"] == "device",
                         "the card has no copy of the tied head")
    text, stats, _, counts = run(harness.SMOLLM2, "-ngl", 20, "-ts", "3,1", FAKE_DEVICES="FAKE0=64M,FAKE1=64M")
    checks.check(text == expected, f"-ts 3,1: {text!r}")
    checks.check(blocks_of(stats["plan"]) == [("FAKE0", 15), ("FAKE1", 5)], f"-ts 3,1: {blocks_of(stats['plan'])}")
    checks.check(counts["FAKE0"]["compute"] > 0 and counts["FAKE1"]["compute"] > 0, f"-ts 3,1: {counts}")
    check_held("-ts 3,1", stats, counts)


def try_stream(expected):
    """Half of the blocks on a card; the host streams what does not fit its own budget."""
    refused = plan(harness.SMOLLM2, "-ngl", 15, "--ram-budget", "1M", code=3)
    ladder = {rung["what"]: rung["budget_bytes"] for rung in refused["ladder"]}
    for budget in (ladder["minimum"], (ladder["minimum"] + ladder["all-pinned"]) // 2):
        text, stats, _, counts = run(harness.SMOLLM2, "-ngl", 15, "--ram-budget", budget)
        checks.check(text == expected, f"{budget}: {text!r}")
        checks.check(stats["plan"]["verdict"] == "streams" and stats["measured"]["streamed_bytes"] > 0, f"{budget}: nothing streams")
        check_held(f"{budget}", stats, counts)
        peak, planned = stats["measured"]["peak_rss_bytes"], stats["plan"]["pools"][0]["planned_bytes"]
        checks.check(peak - counts["FAKE0"]["peak"] <= planned <= budget, f"{budget}: {peak} and {counts}, planned {planned}")
    less = plan(harness.SMOLLM2, "-ngl", 15, "--ram-budget", ladder["minimum"] - 1, code=3)
    checks.check(less["refusal"]["code"] == "ram_budget", f"a byte less: {less['refusal']}")


def try_formula(toy):
    """What is planned without a dry run is no less than with one, and no more than a quarter of the graph above it."""
    for model, args in ((harness.SMOLLM2, ()), (harness.SMOLLM2, ("-c", 2048, "-ub", 512)), (toy, ()), (toy, ("-np", 2))):
        exact = plan(model, "-ngl", "all", *args)["offload"]["devices"][0]
        result, _ = burthen("plan", model, "--json", *SIZES, "-ngl", "all", *args)
        formula = json.loads(result.stdout)["offload"]["devices"][0]
        where = f"{model.name} {args}: {formula}, measured {exact}"
        checks.check(formula["priced_by"] == "formula" and exact["priced_by"] == "dry-run", where)
        checks.check(formula["weights_bytes"] == exact["weights_bytes"] and formula["kv_bytes"] == exact["kv_bytes"], where)
        checks.check(exact["compute_bytes"] <= formula["compute_bytes"] <= exact["compute_bytes"] * 1.25, where)


def try_auto(expected):
    for args, variables, budget in (([], {"FAKE_DEVICES": "FAKE0=40M"}, 30 * MIB),
                                    (["--device", "FAKE0=20M"], {}, 20 * MIB),
                                    ([], {"BURTHEN_GPU_MEM": "25"}, 25 * MIB)):
        text, stats, _, counts = run(harness.SMOLLM2, *args, **variables)
        where = f"auto {args} {variables}"
        device = stats["plan"]["offload"]["devices"][0]
        checks.check(text == expected, f"{where}: {text!r}")
        checks.check(device["budget_bytes"] == budget and counts["FAKE0"]["peak"] <= budget, f"{where}: {device}, {counts}")
        check_held(where, stats, counts)
        n = device["blocks"]
        one = (device["weights_bytes"] + device["kv_bytes"]) / n  # blocks of SmolLM2 are alike
        used = stats["plan"]["pools"][1]["planned_bytes"]
        checks.check(0 < n < N_BLOCKS and used + one > budget, f"{where}: {n} blocks, {used} of {budget}, {one} each")
        more = plan(harness.SMOLLM2, "-ngl", n + 1, *args, code=3, **variables)
        checks.check(more["refusal"]["code"] == "device_memory", f"{where}: one more: {more['refusal']}")
        change = more["refusal"]["changes"][0]
        checks.check(change["value"] == str(n), f"{where}: suggests {change}, {n} fit")


def try_shared(expected):
    """A card in the processor takes what it holds from the host's budget: the two together are within it."""
    variables, budget = {"FAKE_DEVICES": "FAKE0=64M:igpu"}, 150 * MIB
    text, stats, _, counts = run(harness.SMOLLM2, "-ngl", 10, "--ram-budget", "150M", **variables)
    host, card = stats["plan"]["pools"]
    checks.check(text == expected and blocks_of(stats["plan"]) == [("FAKE0", 10)], f"igpu: {text!r}, {blocks_of(stats['plan'])}")
    left = budget - card["planned_bytes"]  # less by what the formula says above the dry run, by which the host was planned
    checks.check(left - MIB < host["budget_bytes"] <= left, f"igpu: {host['budget_bytes']} and {card['planned_bytes']}")
    checks.check("of devices that share it" in host["source"], f"igpu: {host['source']}")
    checks.check(SANITIZED or stats["measured"]["peak_rss_bytes"] <= budget, f"igpu: {stats['measured']['peak_rss_bytes']}")
    check_held("igpu", stats, counts)
    both = {"FAKE_DEVICES": "SHARED=64M:igpu,FAKE1=64M"}  # beside a card of its own it is left out
    checks.check([name for name, _ in blocks_of(plan(harness.SMOLLM2, **both))] == ["FAKE1"], "igpu beside a card")


def try_readings(expected):
    for word, reported in (("error", False), ("silent", False), ("no-total", False), ("over", True), ("full", True)):
        variables = {"FAKE_DEVICES": f"FAKE0=64M:{word}"}
        answer = plan(harness.SMOLLM2, **variables)
        checks.check((answer["offload"] is not None) == (word == "over"), f"{word}: by default {answer['offload']}")
        answer = plan(harness.SMOLLM2, "-ngl", "auto", code=0 if reported else 3, **variables)
        if not reported:
            refusal = answer["refusal"]
            checks.check(refusal["code"] == "device_query" and "FAKE0" in refusal["message"], f"{word}: {refusal}")
            checks.check("0 MiB" not in refusal["message"] and "0 B" not in refusal["message"], f"{word}: {refusal}")
            if word == "error":
                checks.check("cudaErrorIllegalAddress" in refusal["message"], f"{word}: {refusal}")
            text, stats, _, _ = run(harness.SMOLLM2, "-ngl", 4, **variables)
            device = stats["plan"]["offload"]["devices"][0]
            checks.check(text == expected and device["blocks"] == 4, f"{word}: {text!r}, {device}")
            checks.check(device["state"] == "failed" and device["budget_bytes"] is None, f"{word}: {device}")
            held = stats["measured"]["pools"][1]
            checks.check(held["pool_bytes"] is None and held["headroom_bytes"] is None, f"{word}: {held}")
    answer = plan(harness.SMOLLM2, "-ngl", 1, code=3, FAKE_DEVICES="FAKE0=64M:full")
    checks.check(answer["refusal"]["code"] == "device_memory" and answer["refusal"]["have_bytes"] == 0, f"full: {answer['refusal']}")
    answer = plan(harness.SMOLLM2, "-ngl", "all", FAKE_DEVICES="FAKE0=256M:over")
    checks.check(answer["offload"]["devices"][0]["budget_bytes"] == 192 * MIB, f"over: {answer['offload']}")
    result, _ = burthen("plan", harness.SMOLLM2, "--device", "FAKE7")
    checks.check(result.returncode == 2 and "there is no device FAKE7; there are: FAKE0" in said(result), f"FAKE7: {said(result)}")


def try_faults(toy):
    """Every call on the card that a run makes fails once: the host goes on alone, or the run ends with one sentence."""
    expected, _, _, _ = run(toy, "--device", "none", n=3)
    text, _, _, counts = run(toy, "-ngl", 3, n=3)
    checks.check(text == expected, f"toy: {text!r}, not {expected!r}")
    made = counts["FAKE0"]
    for call in ("alloc", "init"):
        for k in [*range(1, made[call] + 1), "1+"]:
            where = f"{call}:{k}"
            text, stats, log, _ = run(toy, "-ngl", 3, n=3, FAKE_FAIL=where)
            checks.check(text == expected, f"{where}: {text!r}")
            checks.check(stats["plan"]["offload"] is None, f"{where}: {stats['plan']['offload']}")
            checks.check("llama.cpp says: " in log and log.count("going on with the host alone") == 1, f"{where}: {log}")
            _, _, log, _ = run(toy, "-ngl", 3, "--require-device", n=3, code=1, FAKE_FAIL=where)
            lines = [line for line in log.splitlines() if line.startswith("burthen: ")]
            checks.check(len(lines) == 1 and "a device " in lines[0], f"{where}, required: {log}")
    for k in range(1, made["query"] + 1):
        text, _, _, counts = run(toy, "-ngl", 3, n=3, FAKE_FAIL=f"query:{k}")
        checks.check(text == expected and counts["FAKE0"]["compute"] == made["compute"], f"query:{k}: {text!r}, {counts}")
    for k in [*range(1, made["compute"] + 1), "1+"]:
        text, _, log, _ = run(toy, "-ngl", 3, n=3, code=1, FAKE_FAIL=f"compute:{k}")
        lines = [line for line in log.splitlines() if line.startswith("burthen: ")]
        checks.check(len(lines) == 1 and "failed while it computed" in lines[0], f"compute:{k}: {log}")
        checks.check(expected.startswith(text.rstrip(b"\n")), f"compute:{k}: text after a failure: {text!r}")
    # The driver's context takes what was promised to blocks: what the card holds is over what may be used of it.
    variables = {"FAKE_DEVICES": "FAKE0=64M", "FAKE_OVERHEAD": "61M"}
    text, stats, log, _ = run(toy, "-ngl", 3, "--device", "FAKE0=4M", n=3, **variables)
    checks.check(text == expected and stats["plan"]["offload"] is None, f"overhead: {text!r}")
    checks.check("its budget is 4.0 MiB" in log and "going on with the host alone" in log, f"overhead: {log}")
    _, _, log, _ = run(toy, "-ngl", 3, "--device", "FAKE0=4M", "--require-device", n=3, code=1, **variables)
    checks.check("its budget is 4.0 MiB" in log, f"overhead, required: {log}")


def try_plan_file(folder, toy):
    path = folder / "plan.json"
    expected, _, _, _ = run(toy, "--device", "none", n=3)
    made = plan(toy, "-ngl", 3)
    path.write_text(json.dumps(made))
    text, stats, _, counts = run(toy, "--plan", path, n=3)
    checks.check(text == expected and blocks_of(stats["plan"]) == [("FAKE0", 3)], f"--plan: {text!r}, {blocks_of(stats['plan'])}")
    checks.check(stats["plan"]["offload"] == made["offload"], f"--plan: {stats['plan']['offload']}, not {made['offload']}")
    checks.check(counts["FAKE0"]["compute"] > 0, f"--plan: {counts}")
    every = folder / "every.json"
    every.write_text(json.dumps(plan(toy, "-ngl", "all", "-ncmoe", "all")))
    text, stats, _, _ = run(toy, "--plan", every, n=3)
    checks.check(text == expected and stats["plan"]["head"] == "device", f"--plan, all: {text!r}, {stats['plan']['head']}")
    _, _, log, _ = run(toy, "--plan", path, n=3, code=1, card=False)
    checks.check("the plan has blocks on FAKE0, and there is no such device now" in log, f"--plan without the card: {log}")
    _, _, log, _ = run(toy, "--plan", path, n=3, code=1, FAKE_FAIL="alloc:1")
    checks.check("a device cannot hold its blocks" in log and "going on" not in log, f"--plan that fails: {log}")
    for size, code in ((2, 3), (64, 0)):  # a card with less than there was, and with enough
        _, _, log, _ = run(toy, "--plan", path, n=3, code=code, FAKE_DEVICES=f"FAKE0={size}M")
        checks.check(("of FAKE0, which leaves 1.5 MiB now" in log) == (code == 3), f"--plan on a card of {size}: {log}")
    for change in ({"blocks": 7}, {"blocks": 0}):
        wrong = json.loads(json.dumps(made))
        wrong["offload"]["devices"][0].update(change)
        path.write_text(json.dumps(wrong))
        result, _ = burthen("run", toy, "-p", PROMPT, "-n", 3, "--plan", path)
        checks.check(result.returncode in (2, 3) and said(result).startswith("burthen: "), f"{change}: {result.returncode}: {said(result)}")


def try_no_device(toy):
    expected, _, _, _ = run(toy, "--device", "none", n=3)
    for args, warns in ((("-ngl", 99), 1), (("-ngl", "all"), 1), (("-ngl", "auto"), 0), (("-ngl", 0), 0), ((), 0)):
        text, stats, log, _ = run(toy, *args, n=3, card=False)
        checks.check(text == expected and stats["plan"]["offload"] is None, f"no device, {args}: {text!r}")
        checks.check(log.count("there is no device beside the host") == warns, f"no device, {args}: {log}")
    for args in (("--require-device",), ("--require-device", "-ngl", 2)):
        _, _, log, _ = run(toy, *args, n=3, code=1, card=False)
        checks.check("burthen: --require-device, but there is no device" in log, f"no device, {args}: {log}")
    answer = plan(toy, "--require-device", "--device", "FAKE0=64K", code=3)
    checks.check(answer["refusal"]["code"] == "device_memory" and answer["refusal"]["have_bytes"] == 65536, f"{answer['refusal']}")
    result, _ = burthen("plan", toy, card=False, GGML_BACKEND_PATH="libggml-fake.so")
    checks.check(result.returncode == 1 and "wants an absolute path" in said(result), f"a path of here: {said(result)}")
    result, _ = burthen("plan", toy, card=False, GGML_BACKEND_PATH=str(toy))
    checks.check(result.returncode == 1 and "no backend" in said(result), f"a path of no backend: {said(result)}")


def try_commands(toy, expected):
    # Guesses: by what repeats, the text is unchanged; a draft model guesses nothing beside devices, and that is said.
    text, stats, log, _ = run(harness.SMOLLM2, "-ngl", 15, "--speculate", "ngram")
    checks.check(text == expected, f"--speculate ngram: {text!r}")
    text, stats, log, _ = run(harness.SMOLLM2, "-ngl", 15, "--speculate", "draft", "--draft", harness.SMOLLM2)
    checks.check(text == expected and stats["plan"]["draft"] is None, f"--draft: {text!r}, {stats['plan']['draft']}")
    checks.check(re.search(r"draft.*device|device.*draft", log, re.IGNORECASE), f"--draft: {log[-1500:]}")
    answers = []
    for args in (("--device", "none"), ("-ngl", 15)):
        result, _ = burthen("run", harness.SMOLLM2, "--chat", "-p", "Name a colour.", "-n", 6, "--greedy", "-q", *SIZES, *args)
        checks.check(result.returncode == 0 and result.stdout.strip(), f"--chat {args}: {result.returncode}: {said(result)}")
        answers.append(result.stdout)
    checks.check(answers[0] == answers[1], f"--chat: {answers}")
    figures = []
    for args in (("--device", "none"), ("-ngl", 3), ("-ngl", "all")):
        with tempfile.NamedTemporaryFile(suffix=".txt") as text:
            pathlib.Path(text.name).write_text("once there was a small fox that lived in the forest " * 12)
            result, _ = burthen("perplexity", toy, "-f", text.name, "--chunks", 2, *SIZES, *args)
        checks.check(result.returncode == 0, f"perplexity {args}: {said(result)[-300:]}")
        figures.append(result.stdout)
    checks.check(figures[0] and figures[0] == figures[1] == figures[2], f"perplexity: {figures}")
    result, counts = burthen("bench", toy, "--json", "-q", "-p", 8, "-n", 2, "-r", 1, *SIZES, "-ngl", 3)
    checks.check(result.returncode == 0 and json.loads(result.stdout)["rows"], f"bench: {said(result)}")


def try_experts(folder):
    """Experts on the host beside the rest of their blocks on a card, kept or streamed."""
    def kind(name):
        return "q4_K" if "exps" in name else "q8_0"

    def shape(arch):
        return random_model.Shape(arch, blocks=4, embd=256, ff=256, heads=4, kv_heads=2, head_dim=64, ctx=1024, tied=False,
                                  experts=16, experts_used=4, kind_of=kind)

    for arch in ("qwen3moe", "hy_v3"):
        model = folder / f"{arch}.gguf"
        random_model.write(model, shape(arch), random_model.sentencepiece(1000), 1000, 7)
        prompt = "once there was a small fox that lived"
        expected, _, _, _ = run(model, "--device", "none", n=8, prompt=prompt)
        none, every = (plan(model, "-ngl", "all", "-ncmoe", n)["pools"][1]["planned_bytes"] for n in ("all", 0))
        half = f"FAKE0={(none + every) // 2}"
        for args, n_moe in ((["-ngl", "all", "-ncmoe", "0"], 0), (["-ngl", 3, "-ncmoe", "1"], 1),
                            (["-ngl", "all", "-ncmoe", "all"], 4), (["--device", half], None),
                            (["-ngl", "all", "-ncmoe", "auto", "--device", half], None)):
            text, stats, _, counts = run(model, *args, n=8, prompt=prompt)
            where, offload = f"{arch} {args}", stats["plan"]["offload"]
            checks.check(text == expected, f"{where}: {text!r}, not {expected!r}")
            check_held(where, stats, counts)
            if n_moe is None:  # everything but experts fits, and of experts some
                checks.check(0 < offload["n_cpu_moe"] < 4 and offload["devices"][0]["blocks"] == 4, f"{where}: {offload}")
                fewer = plan(model, "-ngl", "all", "-ncmoe", offload["n_cpu_moe"] - 1, "--device", half, code=3)
                checks.check(fewer["refusal"]["code"] == "device_memory", f"{where}: one less: {fewer['refusal']}")
            else:
                checks.check(offload["n_cpu_moe"] == n_moe, f"{where}: {offload}")
        if SANITIZED:
            continue
        refused = plan(model, "-ngl", "all", "-ncmoe", "all", "--ram-budget", "1M", code=3)
        low = next(rung["budget_bytes"] for rung in refused["ladder"] if rung["what"] == "minimum")
        text, stats, _, counts = run(model, "-ngl", "all", "-ncmoe", "all", "--ram-budget", low, n=8, prompt=prompt)
        checks.check(text == expected, f"{arch}, experts streamed: {text!r}, not {expected!r}")
        checks.check(stats["measured"]["experts"]["misses"] > 0, f"{arch}: {stats['measured']['experts']}")
        check_held(f"{arch}, experts streamed", stats, counts)


def try_families(folder):
    """Architectures that are built otherwise, over two cards and the host, and on one card alone."""
    for arch in ("gemma2", "gemma3", "gpt-oss", "olmo2", "phi3", "deci", "gpt2", "gptneox", "falcon", "starcoder2"):
        family = random_model.FAMILIES[arch]
        model = folder / "family.gguf"
        more = {"experts": 8, "experts_used": 2} if family.experts else {}
        if family.windows:
            more["window"] = 128
        random_model.write(model, random_model.Shape(arch, blocks=4, embd=256, ff=256, heads=4, head_dim=64, ctx=1024,
                                                     kv_heads=2 if family.own_kv_heads else 4, **more),
                           random_model.sentencepiece(1000), 1000, 7)
        prompt = "once there was a small fox that lived"
        expected, _, _, _ = run(model, "--device", "none", n=4, prompt=prompt)
        for args, blocks in ((("-ngl", 3, "-ts", "1,1"), [("FAKE0", 2), ("FAKE1", 1)]), (("-ngl", "all"), [("FAKE0", 4)])):
            text, stats, _, counts = run(model, *args, n=4, prompt=prompt, FAKE_DEVICES="FAKE0=64M,FAKE1=64M")
            checks.check(text == expected, f"{arch} {args}: {text!r}, not {expected!r}")
            checks.check(blocks_of(stats["plan"]) == blocks, f"{arch} {args}: {blocks_of(stats['plan'])}")
            check_held(f"{arch} {args}", stats, counts)
            host = stats["measured"]["peak_rss_bytes"] - sum(count["peak"] for count in counts.values())
            planned = stats["plan"]["pools"][0]["planned_bytes"]
            checks.check(SANITIZED or host <= planned, f"{arch} {args}: the host held {host} of {planned}")


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as name:
    folder = pathlib.Path(name)
    toy = folder / "toy.gguf"
    random_model.write(toy, random_model.Shape("llama", blocks=6, embd=256, ff=512, heads=4, kv_heads=2, head_dim=64,
                                               ctx=1024, tied=False), random_model.sentencepiece(1000), 1000, 7)
    expected, _, _, counts = run(harness.SMOLLM2, "--device", "none")
    checks.check(len(expected) > 20 and counts["FAKE0"]["alloc"] == 0, f"the host alone: {expected!r}, {counts}")
    try_text(expected)
    if not SANITIZED:
        try_stream(expected)
    try_formula(toy)
    try_auto(expected)
    try_shared(expected)
    try_readings(expected)
    try_faults(toy)
    try_plan_file(folder, toy)
    try_no_device(toy)
    try_commands(toy, expected)
    try_experts(folder)
    try_families(folder)
checks.end()
