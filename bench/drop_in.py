#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An unmodified llama-server under a RAM budget: how fast it answers, and how fast it is there.

  decode   tokens a second of llama-server under `burthen exec --ram-budget`, of `burthen run` with the same budget, and
           of llama-server alone (mmap, no repacking), each in a cgroup of the budget and 32 MiB, cold
  loading  seconds from the start of the command to the first /health that is well, of llama-server under the largest
           budget and of llama-server alone with --load-mode none, cold and warm; what planning and asking the program
           for its devices take is part of it

In each round all that is compared runs once, one after the other; figures are medians with the least and the most, and
ratios are of the runs of one round."""

import http.client
import re
import subprocess
import time

from support import kit

import cgroup_box
import drop_in
import harness
import llama_server

BEYOND = 32 * kit.MIB
PROMPT = "The capital of France is"


def arguments(options):
    return ("-m", options.model, "-c", options.ctx, "-np", 1, "-t", options.threads)


def answer(server, options):
    """Tokens a second of an answer, after one that brought everything in."""
    server.complete("Hello", 2)
    return server.complete(PROMPT, options.tokens, ignore_eos=True)["timings"]["predicted_per_second"]


def boxed(options, budget, measure):
    cgroup_box.drop_cache(options.model)
    with cgroup_box.Box(budget + BEYOND, allow_swap=False) as box:
        return measure(box)


def held(options, budget):
    def measure(box):
        with drop_in.held(*arguments(options), budget=budget, box=box) as server:
            return (answer(server, options), server.hwm_bytes()) if server.works else (None, 0)
    return boxed(options, budget, measure)


def alone(options, budget):
    def measure(box):
        with llama_server.Server(*arguments(options), "--no-repack", "--fit", "off", "--cache-ram", 0, box=box) as server:
            return answer(server, options) if server.works else None
    return boxed(options, budget, measure)


def own(options, budget):
    def measure(box):
        result = box.run([kit.BURTHEN, "run", options.model, "--ram-budget", budget, "-c", options.ctx, "-t",
                          options.threads, "-n", options.tokens, "--greedy", "--ignore-eos", "--speculate", "off",
                          "-p", PROMPT], timeout_s=600)
        found = re.search(rb"generated \d+ at ([\d.]+)/s", result.stderr)
        return float(found[1]) if found else None
    return boxed(options, budget, measure)


def decode(options, found):
    rows = []
    for budget in (int(word) * kit.MIB for word in options.budgets.split(",")):
        rounds = [(held(options, budget), own(options, budget), alone(options, budget)) for _ in range(options.rounds)]
        ours, runs, others = ([r[0][0] for r in rounds], [r[1] for r in rounds], [r[2] for r in rounds])
        row = {"budget_bytes": budget, "server": kit.spread(ours), "run": kit.spread(runs), "alone": kit.spread(others),
               "by_run": kit.ratios(ours, runs), "by_alone": kit.ratios(ours, others),
               "peak_bytes": max(r[0][1] for r in rounds)}
        rows.append(row)
    found["decode"] = rows
    if not options.json:
        kit.table(["budget MiB", "server tok/s", "run tok/s", "alone tok/s", "server / run", "server / alone", "VmHWM MiB"],
                  [[row["budget_bytes"] // kit.MIB, *[kit.cell(row[name]) for name in
                    ("server", "run", "alone", "by_run", "by_alone")], row["peak_bytes"] // kit.MIB] for row in rows])


def started_s(command):
    """Seconds until it answers."""
    port = llama_server.free_port()
    start = time.monotonic()
    process = subprocess.Popen([str(word) for word in (*command, "--host", "127.0.0.1", "--port", port)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=harness.environment())
    try:
        while process.poll() is None and time.monotonic() - start < llama_server.START_S:
            if is_well(port):
                return time.monotonic() - start
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    return None


def is_well(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def loading(options, found):
    budget = int(options.budgets.split(",")[-1]) * kit.MIB
    args = (llama_server.PROGRAM, *arguments(options))
    commands = {"held": (*drop_in.prefix(budget), *args),
                "alone": (*args, "--no-repack", "--fit", "off", "--load-mode", "none", "--cache-ram", 0)}
    rows = []
    for cold in (True, False):
        seconds = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                if cold:
                    cgroup_box.drop_cache(options.model)
                seconds[name].append(started_s(command))
        rows.append({"cold": cold, **{f"{name}_s": kit.spread(values) for name, values in seconds.items()},
                     "ratio": kit.ratios(seconds["held"], seconds["alone"])})
    found["loading"] = rows
    if not options.json:
        kit.table(["loading", "held s", "alone s", "held / alone"],
                  [["cold" if row["cold"] else "warm", *[kit.cell(row[name]) for name in ("held_s", "alone_s", "ratio")]]
                   for row in rows])


def main():
    parser = kit.parser(__doc__, rounds=3)
    parser.add_argument("--budgets", default="212,320,900", help="MiB, with commas between")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("-c", "--ctx", type=int, default=512)
    options = parser.parse_args()
    cgroup_box.require()
    kit.require_model(options.model)
    drop_in.require(options.model)
    found = kit.begin(options, options.model)
    found["model"] = options.model.name
    if not options.json:
        print(f"{options.model.name}, {options.model.stat().st_size // kit.MIB} MiB, context {options.ctx}\n")
    decode(options, found)
    loading(options, found)
    kit.end(options, found)


if __name__ == "__main__":
    main()
