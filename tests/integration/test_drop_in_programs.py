# SPDX-License-Identifier: MIT
"""Other programs of llama.cpp under a RAM budget (the server: test_drop_in.py): what llama-completion, llama-cli,
llama-perplexity and llama-embedding print equals what they print without, from the minimum on, and VmHWM of the process
stays under the budget. A command may be refused instead, with a reason, where that is said of it here. llama-bench measures on
the device whatever it is asked for, test after test, under one budget."""

import json
import os
import re
import subprocess
import tempfile

import drop_in
import harness
import prose
import watch

COMPLETION, CLI, PERPLEXITY, EMBEDDING, BENCH = (harness.LLAMA_BIN / f"llama-{name}" for name in (
    "completion", "cli", "perplexity", "embedding", "bench"))
drop_in.require(harness.GEMMA3, COMPLETION, PERPLEXITY)
checks = harness.Checks()
FULL = bool(os.environ.get("BT_TRUTH_FULL"))
MIB = harness.MIB
TRIES = 3  # harness.peer_text: on a loaded machine llama-completion's output is now and then lost at its end
FOREIGN = harness.SOURCE / "build/foreign-server/bin"
COMMON = ("-t", 1, "-ub", drop_in.N_UBATCH)


# ---- what of the output counts --------------------------------------------------------------------------------------


def whole(seen):
    return seen.stdout.strip()


def answer(seen):
    """Of llama-cli: from the prompt that it repeats, behind a picture, a wheel that turns and the model's name."""
    return seen.stdout[seen.stdout.index(b"\n> ") :].strip() if b"\n> " in seen.stdout else b""


def estimate(seen):
    found = re.search(rb"Final estimate: PPL = [0-9.]+ \+/- [0-9.]+", seen.stdout + seen.stderr)
    return found[0] if found else b""


# ---- runs -----------------------------------------------------------------------------------------------------------


def run(command, counts):
    """The run, and what of its output counts."""
    for _ in range(TRIES):
        seen = watch.run(command, env=harness.environment())
        if seen.status != 0 or counts(seen):
            break
    return seen, counts(seen)


def try_budget(what, program, args, counts, budget, expected):
    seen, found = run([*drop_in.prefix(budget), program, *args], counts)
    log = seen.stderr.decode(errors="replace")
    if not checks.check(seen.status == 0, f"{what}: exit {seen.status}: {log[-1500:]}"):
        return
    checks.check(found == expected, f"{what}: {found[:300]!r}, plain {expected[:300]!r}")
    checks.check(0 < seen.vm_hwm_bytes <= budget, f"{what}: VmHWM {seen.vm_hwm_bytes / MIB:.2f} MiB of {budget / MIB:.2f}")
    checks.check(any(path.endswith(drop_in.LIBRARY) for path in seen.mapped), f"{what}: {drop_in.LIBRARY} was not mapped")
    checks.check(drop_in.sentences(log), f"{what}: nothing is said of the plan")
    print(f"{what:36} {'equal' if found == expected else 'DIFFERS'}, VmHWM {seen.vm_hwm_bytes / MIB:6.1f} of "
          f"{budget / MIB:6.1f} MiB", flush=True)


def try_program(model, program, args, counts, names, note="", may_refuse=False):
    what = f"{program.name} {model.name.split('-')[0]} {note}".strip()
    args = ("-m", model, *COMMON, *args)
    if not program.exists():
        print(f"{what}: not tried, it was not built", flush=True)
        return
    seen, expected = run([program, *args, *drop_in.PLAIN], counts)
    if not checks.check(seen.status == 0 and expected, f"{what} plain: {seen.status}: {seen.stderr[-600:]}"):
        return
    if may_refuse:
        result = drop_in.execute(*args, budget="2G", options=("--dry-run",), program=program)
        log = result.stderr.decode(errors="replace")
        if result.returncode != 0:
            checks.check(drop_in.is_refusal(result.returncode, log), f"{what}: {result.returncode}: {log[-600:]}")
            print(f"{what:36} refused: {drop_in.sentences(log)[:1]}", flush=True)
            return
    budgets = drop_in.rungs(*args, program=program)
    for name in names:
        try_budget(f"{what} {name}", program, args, counts, budgets[name], expected)


def try_completion(model):
    args = ("-c", 512, "-n", 16, "-no-cnv", "--no-display-prompt", "--temp", 0, "-p")
    try_program(model, COMPLETION, (*args, harness.PROMPT), whole, ("minimum", "half", "all"))
    try_program(model, COMPLETION, (*args, drop_in.prompt(7, 200)), whole, ("half",), note="long")


def try_cli(model):
    try_program(model, CLI, ("-c", 512, "-n", 12, "--temp", 0, "-st", "--simple-io", "--no-show-timings", "-p",
                             "Name a colour."), answer, ("minimum", "half"))


def try_perplexity(model, text):
    args = ("-f", text, "-c", 256, "--chunks", 2)
    try_program(model, PERPLEXITY, (*args, "-b", 256), estimate, ("minimum", "half"))
    # Left to itself it takes as many chunks at once as a batch of 2048 holds, each with a context of its own.
    try_program(model, PERPLEXITY, args, estimate, ("half",), note="-b 2048", may_refuse=True)


def try_embedding(model):
    # A batch of this program must hold its text, and be one micro-batch.
    args = ("-c", 512, "-b", drop_in.N_UBATCH, "--pooling", "mean", "--embd-output-format", "json", "-p", "A cat sat.")
    try_program(model, EMBEDDING, args, whole, ("minimum", "half"))


def rows(seen):
    """What llama-bench measured: (prompt, answer, depth) -> where it ran and how fast."""
    found = [json.loads(line) for line in seen.stdout.decode(errors="replace").splitlines() if line.startswith("{")]
    return {(row["n_prompt"], row["n_gen"], row["n_depth"]): row for row in found}


def try_bench(model, args, tests, names, n_runs=1):
    """Each of these tests, in so many runs of it, with no more memory than the budget; the model may be loaded again."""
    args = ("-m", model, "-t", 1, "-r", 2, "-o", "jsonl", *args)
    budgets = drop_in.rungs(*args, program=BENCH)
    for name in names:
        what = f"{BENCH.name} {model.name.split('-')[0]} {' '.join(map(str, args[8:]))} {name}"
        seen = watch.run([*drop_in.prefix(budgets[name]), BENCH, *args], env=harness.environment())
        log = seen.stderr.decode(errors="replace")
        if not checks.check(seen.status == 0, f"{what}: exit {seen.status}: {log[-1500:]}"):
            continue
        found = rows(seen)
        checks.check(found.keys() == set(tests), f"{what}: measured {sorted(found)}, not {sorted(tests)}")
        checks.check(seen.stdout.count(b'"n_prompt"') == len(tests) * n_runs, f"{what}: {seen.stdout[-600:]!r}")
        for row in found.values():
            where = (row["devices"], row["tensor_buft_overrides"], row["load_mode"])
            checks.check(where == ("Burthen0", ".*=Burthen", "none"), f"{what}: ran on {where}")
            checks.check(row["avg_ts"] > 0 and len(row["samples_ts"]) == 2, f"{what}: {row}")
        checks.check(0 < seen.vm_hwm_bytes <= budgets[name],
                     f"{what}: VmHWM {seen.vm_hwm_bytes / MIB:.2f} MiB of {budgets[name] / MIB:.2f}")
        checks.check(drop_in.sentences(log), f"{what}: nothing is said of the plan")
        print(f"{what:36} {len(found)} tests, VmHWM {seen.vm_hwm_bytes / MIB:6.1f} of {budgets[name] / MIB:6.1f} MiB",
              flush=True)


def try_bench_options():
    """Every option that llama-bench says it has is known, and those whose meaning is a place are refused."""
    text = subprocess.run([BENCH, "--help"], capture_output=True, timeout=60, env=harness.environment()).stdout.decode()
    options = {word.strip() for line in text.splitlines() for word in re.findall(r"(?<=[ ,])--?[a-z][a-z-]*(?=[ ,\n])",
                                                                                  line[:48] + "\n")}
    checks.check({"-p", "--n-prompt", "-pg", "-ot", "--repack", "--progress", "-fitc"} <= options, f"help: {options}")
    for option in sorted(options):
        held = drop_in.execute(option, "0", budget="2G", program=BENCH)
        log = held.stderr.decode(errors="replace")
        checks.check(held.returncode == 3 and f"{option} is no option" not in log, f"{option}: {held.returncode}: {log}")
    held = drop_in.execute("-m", harness.SMOLLM2, "-ngl", "99,0", budget="2G", program=BENCH)
    log = held.stderr.decode(errors="replace")
    checks.check(drop_in.is_refusal(held.returncode, log) and "--n-gpu-layers" in log, f"-ngl 99,0: {held.returncode}: {log}")


def try_bench_untouched():
    """Without a budget it is started as it was typed, on the CPU."""
    command = [harness.BIN, "exec", "--", BENCH, "-m", harness.SMOLLM2, "-p", 8, "-n", 0, "-r", 1, "-t", 1, "-o", "jsonl"]
    seen = watch.run(command, env=harness.environment())
    devices = [row["devices"] for row in rows(seen).values()]
    checks.check(seen.status == 0 and devices == ["auto"], f"without a budget: {seen.status}, {devices}")


def try_benches():
    if not BENCH.exists():
        print("llama-bench: not tried, it was not built", flush=True)
        return
    several = [(32, 0, 0), (64, 0, 0), (0, 8, 0), (0, 16, 0)]
    try_bench(harness.SMOLLM2, ("-p", "32,64", "-n", "8,16"), several, ("minimum", "half", "all"))
    # Restored from a state that it keeps; the second depth is made while the first one's is there.
    deep = [(p, n, d) for d in (0, 200, 300) for p, n in ((300, 0), (0, 8), (64, 8))]
    try_bench(harness.SMOLLM2, ("-p", 300, "-n", 8, "-pg", "64,8", "-d", "0,200,300"), deep, ("minimum", "half"))
    # Loaded again, since two numbers of layers are two ways to load it.
    try_bench(harness.SMOLLM2, ("-p", 32, "-n", 8, "-ngl", "99,999"), [(32, 0, 0), (0, 8, 0)], ("minimum",), n_runs=2)
    try_bench(harness.GEMMA3, ("-p", 64, "-n", 8), [(64, 0, 0), (0, 8, 0)], ("minimum", "half"))
    try_bench_options()
    try_bench_untouched()


def try_status():
    """The command's exit status is the program's own."""
    args = ("-m", harness.SMOLLM2, *COMMON, "-c", 512, "-no-cnv", "-f", "/nowhere/text")
    plain = subprocess.run([str(word) for word in (COMPLETION, *args)], capture_output=True, timeout=120,
                           stdin=subprocess.DEVNULL, env=harness.environment())
    held = drop_in.execute(*args, budget="2G", program=COMPLETION)
    checks.check(plain.returncode == held.returncode != 0, f"without a text: {held.returncode}, plain {plain.returncode}")


def refuse(what, command, *said, env=None):
    """Exit 3 with a sentence in which all of that stands, and nothing is started."""
    seen = subprocess.run([str(word) for word in command], capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                          env=harness.environment() | (env or {}))
    log = seen.stderr.decode(errors="replace")
    good = any(all(word in sentence for word in said) for sentence in drop_in.sentences(log))
    checks.check(seen.returncode == 3 and good and not seen.stdout, f"{what}: exit {seen.returncode}: {log[-600:]}")


def try_wrappers():
    """Those that become the program are kept; under one that stays beside it the program would be without its device."""
    args = ("-m", harness.SMOLLM2, *COMMON, "-c", 256, "-n", 4, "--temp", 0, "-no-cnv", "-p", "One two")
    texts = {drop_in.execute(*wrapper, COMPLETION, *args, budget="90M", program=name).stdout
             for name, *wrapper in (("nice", "-n", 1), ("env", "A=b"), ("nohup",))}
    checks.check(len(texts) == 1 and all(texts), f"wrapped: {texts}")
    for name, *wrapper in (("timeout", 60), ("setsid", "-w"), ("nice", "timeout", 60)):
        stays = name if name != "nice" else "timeout"
        refuse(name, [*drop_in.prefix("90M"), name, *wrapper, COMPLETION, *args], f"{stays} starts the program")
    seen = drop_in.execute(*args, budget="90M", program="/nowhere/llama-completion")
    checks.check(seen.returncode == 127 and b"cannot start /nowhere/" in seen.stderr, f"not there: {seen}")


def try_environments():
    """What a program under a budget starts in turn inherits the plan's name, and has nothing of the plan. A program of
    another version is refused, also where its libraries stand before all others: ours are not taken from there."""
    args = ("run", harness.SMOLLM2, "-p", "One two", "-n", 4, "--greedy", "-c", 256, "-t", 1, "--ram-budget", "90M", "-q")
    env = harness.environment() | {"GGML_BACKEND_PATH": str(drop_in.library()), "BURTHEN_PLAN": "/proc/self/fd/3"}
    texts = [subprocess.run([harness.BIN, *map(str, args)], capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                            env=each) for each in (harness.environment(), env)]
    checks.check(texts[0].stdout == texts[1].stdout != b"" and texts[1].returncode == 0, f"run under a plan: {texts}")
    if (FOREIGN / "llama-server").exists():
        refuse("another version", [*drop_in.prefix("90M"), FOREIGN / "llama-server", "-m", harness.SMOLLM2, "-c", 256],
               "this program has ggml ", " was built for ", env={"LD_LIBRARY_PATH": str(FOREIGN)})


for model in (harness.SMOLLM2, harness.GEMMA3):
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(prose.words(1600).encode())
        file.flush()
        try_completion(model)
        try_cli(model)
        if model == harness.SMOLLM2 or FULL:
            try_embedding(model)
            try_perplexity(model, file.name)
try_benches()
try_status()
try_wrappers()
try_environments()
checks.end()
