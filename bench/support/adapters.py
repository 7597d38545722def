# SPDX-License-Identifier: MIT
"""Runners that a model can be given to, and how each is started, limited and read.

A runner is a row of RUNNERS: its name, what of it is found here (None: absent), the command that answers a prompt, and
how its speeds are read from what it printed. All run in a cgroup of the same limit, without swap, with the same prompt,
context, threads and number of tokens, greedily. To add one, add a row."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from support import kit


@dataclasses.dataclass
class Ask:
    model: pathlib.Path
    limit: int  # bytes
    prompt: str
    n_tokens: int
    n_ctx: int
    threads: int
    cold: bool
    folder: pathlib.Path  # for files of the run
    temp: float = 0.0  # 0: greedy; else of the whole vocabulary


@dataclasses.dataclass
class Speeds:
    prefill: float | None = None  # tokens a second
    decode: float | None = None
    peak: int = 0
    failed: str = ""


@dataclasses.dataclass
class Runner:
    name: str
    find: callable  # () -> what command wants, or None
    command: callable  # (found, ask) -> argv
    read: callable  # (result, ask) -> (prefill, decode)
    prepare: callable = None  # (found, ask): before each run, outside of the limit
    is_alone: bool = True  # one process, whose VmHWM is the runner's


def sampling(ask, greedy):
    """Of all tokens, by their probabilities, at a temperature; with one seed for all, though they draw on their own."""
    if not ask.temp:
        return greedy.split()
    return ["--temp", ask.temp, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", 5]


# ---- burthen ----


def burthen_find():
    return kit.BURTHEN if kit.BURTHEN.exists() else None


def burthen_command(found, ask):
    return [found, "run", ask.model, "-p", ask.prompt, "-n", ask.n_tokens, "-c", ask.n_ctx, "-t", ask.threads,
            "--ignore-eos", *sampling(ask, "--greedy"), "-q", "--ram-budget", ask.limit - kit.CGROUP_EXTRA, "--stats",
            ask.folder / "stats.json"]


def burthen_read(result, ask):
    measured = json.loads((ask.folder / "stats.json").read_text())["measured"]
    return measured["prefill_tokens_per_s"], measured["decode_tokens_per_s"]


# ---- llama.cpp ----


def llama_find():
    path = kit.harness.LLAMA_BIN / "llama-completion"
    return path if path.exists() else None


def llama_command(*more):
    return lambda found, ask: [found, "-m", ask.model, "-p", ask.prompt, "-n", ask.n_tokens, "-c", ask.n_ctx, "-t",
                               ask.threads, "-no-cnv", "--no-display-prompt", "--ignore-eos", "-fit", "off",
                               *sampling(ask, "--temp 0"), *more]


def random_find():
    """llama-completion, and the library that makes its mapping read no more than what is touched."""
    library = kit.SOURCE / "build/bench/mmap_random.so"
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not llama_find() or not compiler:
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(__file__).with_name("mmap_random.c")
    made = subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=False)
    return library if made.returncode == 0 else None


def random_command(found, ask):
    return ["env", f"LD_PRELOAD={found}", *llama_command("--no-repack")(llama_find(), ask)]


def perf_read(result, ask):
    """Of libllama's own timings, which llama_cpp prints, too."""
    rate = r"{} time = .*?([0-9.]+) tokens per second"
    text = result.stderr.decode(errors="replace")
    found = [re.search(rate.format(name), text) for name in ("prompt eval", " {2,}eval")]
    return tuple(float(match.group(1)) if match else None for match in found)


# ---- llama_cpp, the binding for Python ----

LLAMA_CPP = """
import sys, llama_cpp
model, prompt, n, ctx, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
llm = llama_cpp.Llama(model_path=model, n_ctx=ctx, n_threads=threads, n_threads_batch=threads, verbose=True)
llm(prompt, max_tokens=n, temperature=0, logit_bias={llm.token_eos(): float("-inf")})
"""


def binding_find():
    return sys.executable if importlib.util.find_spec("llama_cpp") else None


def binding_command(found, ask):
    return [found, "-c", LLAMA_CPP, ask.model, ask.prompt, ask.n_tokens, ask.n_ctx, ask.threads]


# ---- ollama: a server of its own, whose store holds a copy of the model ----

OLLAMA = """
folder=$1 ollama=$2 what=$3 prompt=$4
export OLLAMA_MODELS="$folder/store" OLLAMA_HOST=127.0.0.1:11535 HOME="$folder"
"$ollama" serve >"$folder/serve.log" 2>&1 &
server=$!
trap 'kill $server; wait $server' EXIT
n=0
until "$ollama" list >/dev/null 2>&1 || [ $n = 100 ]; do sleep 0.1; n=$((n + 1)); done
if [ "$what" = create ]; then "$ollama" create bench -f "$folder/Modelfile"; else
    "$ollama" run --verbose bench "$prompt"; fi
"""


def ollama_prepare(found, ask):
    if (ask.folder / "store").exists():
        return
    (ask.folder / "Modelfile").write_text(
        f"FROM {ask.model}\nPARAMETER num_ctx {ask.n_ctx}\nPARAMETER num_predict {ask.n_tokens}\nPARAMETER num_thread "
        f"{ask.threads}\nPARAMETER temperature 0\nTEMPLATE {{{{ .Prompt }}}}\n")
    result = kit.cgroup_box.run(["sh", "-c", OLLAMA, "sh", ask.folder, found, "create", ""], timeout_s=600)
    if result.status != 0:
        raise SystemExit(f"ollama create failed: {result.stderr.decode(errors='replace')[-500:]}")


def ollama_command(found, ask):
    for path in (ask.folder / "store").rglob("sha256-*"):
        kit.drop(path) if ask.cold else kit.warm(path)
    return ["sh", "-c", OLLAMA, "sh", ask.folder, found, "run", ask.prompt]


def ollama_read(result, ask):
    text = result.stderr.decode(errors="replace")
    found = [re.search(rf"^{name} rate: +([0-9.]+)", text, re.MULTILINE) for name in ("prompt eval", "eval")]
    return tuple(float(match.group(1)) if match else None for match in found)


RUNNERS = (
    Runner("burthen", burthen_find, burthen_command, burthen_read),
    Runner("llama.cpp", llama_find, llama_command(), perf_read),
    Runner("llama.cpp-mmap", llama_find, llama_command("--no-repack"), perf_read),  # its best in a limit
    Runner("llama.cpp-mmap-random", random_find, random_command, perf_read),  # and of a mixture of experts
    Runner("llama_cpp", binding_find, binding_command, perf_read),
    Runner("ollama", lambda: shutil.which("ollama"), ollama_command, ollama_read, ollama_prepare, is_alone=False),
)


def run(runner, found, ask):
    """One run in a cgroup of its own."""
    if runner.prepare:
        runner.prepare(found, ask)
    kit.drop(ask.model) if ask.cold else kit.warm(ask.model)
    result = kit.cgroup_box.run(runner.command(found, ask), limit_bytes=ask.limit, allow_swap=False,
                                env=kit.harness.environment(), timeout_s=900)
    if result.oom_kills > 0 or result.status == -9:
        return Speeds(failed="timed out" if result.timed_out else "killed")
    if result.status != 0:
        return Speeds(failed=f"exit {result.status}")
    prefill, decode = runner.read(result, ask)
    peak = result.vm_hwm_bytes if runner.is_alone else result.cgroup_peak_bytes  # page cache included in the latter
    return Speeds(prefill, decode, peak or 0, "" if decode else "no speed printed")


def rounds(runners, ask_of, n_rounds):
    """Name -> list of Speeds, one for each round, in which all run. runners: (Runner, found). ask_of: folder -> Ask."""
    speeds = {runner.name: [] for runner, _ in runners}
    with tempfile.TemporaryDirectory() as base:
        for i in range(n_rounds):
            for runner, found in runners if i % 2 == 0 else runners[::-1]:
                folder = pathlib.Path(base, runner.name)
                folder.mkdir(exist_ok=True)
                speeds[runner.name].append(run(runner, found, ask_of(folder)))
    return speeds


def installed(only=()):
    """(Runner, found) of those that are here, and the names of those that are absent."""
    known = [(runner, runner.find()) for runner in RUNNERS if not only or runner.name in only]
    return [(r, found) for r, found in known if found], [r.name for r, found in known if not found]
