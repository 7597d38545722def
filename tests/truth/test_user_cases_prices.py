# SPDX-License-Identifier: MIT
"""Cases of people whose planner told them a wrong price, by number (research notes, user cases), with their figures: what
the formula says without libllama, and where it counts, what llama.cpp says."""

import json
import pathlib
import subprocess
import tempfile

import harness
import shapes

harness.require()
checks = harness.Checks()
MIB, GIB = harness.MIB, 1 << 30
FIT = harness.LLAMA_BIN / "llama-fit-params"
folder = tempfile.TemporaryDirectory()


def shape(name, file, **changes):
    return shapes.write(pathlib.Path(folder.name), name, file=file, **changes)


def run(*args):
    return harness.burthen(*args)


def plan(path, *options, exact=False):
    result = run("plan", path, "--json", "-t", 2, "--ram-budget", 0, *options, *(["--exact"] if exact else []))
    if result.returncode != 0:
        raise AssertionError(f"{path.name} {options}: {result.stderr.decode(errors='replace')[-300:]}")
    return json.loads(result.stdout)


def line(document, name):
    return next(x["planned_bytes"] for x in document["pools"][0]["lines"] if x["name"] == f"host/{name}")


def kv(path, *options):
    """KV alone, without what is kept of a sequence however long it is."""
    document = plan(path, *options)
    return line(document, "kv") - document["kv"]["state_bytes_per_sequence"] * document["parallel"]


def equal(case, what, found, expected):
    checks.check(found == expected, f"case {case}, {what}: {found} is not {expected}")


def case_7():
    """A hybrid pays KV for the blocks that attend: 16 of 64, 1024 wide."""
    hybrid = shape("qwen35", "case-7", ctx_train=262144)
    equal(7, "KV at f16", kv(hybrid, "-c", 262144), 16 * GIB)
    equal(7, "KV at q8_0", kv(hybrid, "-c", 262144, "-ctk", "q8_0", "-ctv", "q8_0"), 8704 * MIB)
    plain = shape("qwen3", "case-7-plain", ctx_train=262144)  # no interval, no list: every block attends
    equal(7, "KV of a plain model", kv(plain, "-c", 4096), 36 * 4096 * 2 * 1024 * 2)


def case_8():
    """Gemma 3 27B: ten blocks see everything, the others the last 1024 tokens."""
    gemma = shape("gemma3", "case-8")
    equal(8, "KV at 32768", kv(gemma, "-c", 32768), 3184 * MIB)
    equal(8, "KV at 128000", kv(gemma, "-c", 128000, "-ctk", "q8_0", "-ctv", "f16") // MIB, 8134)
    equal(8, "without windows", kv(shape("gemma3", "case-8-full", window=0), "-c", 32768), 15872 * MIB)
    smaller = shape("gemma3", "case-8-12b", blocks=48, embd=3840, ff=15360, heads=16, kv_heads=8, head=256)
    checks.check(kv(smaller, "-c", 32768) < kv(gemma, "-c", 32768), "case 8: the smaller of a family needs more")


def case_9():
    """An encoder has no cache; computing grows with the micro-batch, and is priced for both."""
    encoder = shape("nomic-bert", "case-9")
    equal(9, "cache at 512", line(plan(encoder, "-c", 512), "kv"), 0)
    equal(9, "cache at 8192", line(plan(encoder, "-c", 8192), "kv"), 0)
    sizes = {}
    for n_ubatch in (512, 8192):
        options = ("-c", 8192, "--ubatch-size", n_ubatch)
        ours, theirs = plan(encoder, *options), plan(encoder, *options, exact=True)
        sizes[n_ubatch] = line(ours, "compute")
        ratio = sizes[n_ubatch] / line(theirs, "compute")
        checks.check(1.0 <= ratio <= 1.1, f"case 9: compute at {n_ubatch} is {ratio:.3f} of the dry run's")
        equal(9, f"vectors at {n_ubatch}", line(ours, "logits"), line(theirs, "logits"))
    checks.check(sizes[8192] > 8 * sizes[512], f"case 9: computing does not grow with the micro-batch: {sizes}")
    text = run("inspect", encoder).stdout.decode()
    checks.check("none: an encoder" in text, "case 9: inspect does not say that it is an encoder")
    checks.check("encoder" in run("plan", encoder, "-c", 512).stdout.decode(), "case 9: plan does not say it")


def case_10():
    """All experts are resident; the working set is another number, and is not what has to fit."""
    experts = shape("qwen35moe", "case-10")
    document = plan(experts, "-c", 4096)
    weights, working = document["model"]["weight_bytes"], document["model"]["working_bytes_per_token"]
    tensor = 144 // 2 * 2048 * 512 * 256 // 128  # Q4_K: 144 bytes for 256 elements
    in_experts = 40 * 3 * tensor
    checks.check(weights > in_experts, "case 10: not all experts are counted")
    table = next(x["bytes"] for x in document["placement"] if x["unit"] == "token_embd")
    equal(10, "working set", working, weights - table - in_experts + in_experts * 8 // 256)
    held = sum(line(document, name) for name in ("pinned", "experts", "head", "output_norm", "embeddings"))
    checks.check(held >= weights, f"case 10: {held} bytes held of {weights}")
    checks.check("8 of 256 used" in run("plan", experts, "-c", 4096).stdout.decode(), "case 10: the text does not say it")


def case_11():
    """Trained for a million tokens: that is no default. RWKV has a price."""
    nemo = shape("llama", "case-11", blocks=40, embd=5120, ff=14336, heads=40, kv_heads=8, ctx_train=1024000)
    document = plan(nemo)
    equal(11, "default context", document["ctx"]["effective"], 4096)
    equal(11, "trained context", document["ctx"]["trained"], 1024000)
    equal(11, "KV at 8192", kv(nemo, "-c", 8192), 1280 * MIB)
    rwkv = plan(shape("rwkv7", "case-11-rwkv"), "-c", 4096)
    state = 32 * (2 * 2560 + 64 * 2560) * 4
    equal(11, "state of RWKV", line(rwkv, "kv"), state)
    equal(11, "verdict for RWKV", rwkv["verdict"], "fits")


def case_14():
    small = shape("qwen3", "case-14", ctx_train=262144)
    equal(14, "36x8x128 at 262144", kv(small, "-c", 262144), 36864 * MIB)
    equal(14, "36x8x128 at 32768", kv(small, "-c", 32768), 4608 * MIB)
    large = shape("llama", "case-14-24b", blocks=40, embd=4096, ff=14336, heads=32, kv_heads=8)
    equal(14, "40x8x128 at 131072", kv(large, "-c", 131072), 20 * GIB)
    equal(14, "40x8x128 at 16384", kv(large, "-c", 16384), 5 * GIB // 2)


def case_17():
    """Slots: what each request is guaranteed, and what that makes in all."""
    model = shape("llama", "case-17", blocks=2)
    for asked, each in ((8192, 2048), (32768, 8192)):
        document = plan(model, "-c", asked, "-np", 4)
        equal(17, "in all", document["ctx"]["effective"], asked)
        equal(17, "each", document["ctx"]["per_request"], each)
        text = run("plan", model, "-c", asked, "-np", 4, "--ram-budget", 0).stdout.decode()
        checks.check(f"{each} guaranteed, of {asked} in all" in text, f"case 17: the text does not say {each}")


def fit_compute(path, *options):
    result = subprocess.run([FIT, "-m", path, "-np", "1", "-fitp", "on", "-nr", *map(str, options)], capture_output=True,
                            timeout=120, env=harness.environment(), check=False)
    return next(int(text.split()[3]) for text in result.stdout.decode().split("\n") if text.startswith("Host "))


def case_18():
    """Llama 3.2 1B at its full context without flash attention: 8849.72 MiB in llama.cpp's line at that time."""
    model = shape("llama", "case-18", blocks=16, embd=2048, ff=8192, heads=32, kv_heads=8)
    off = ("-c", 131072, "--ubatch-size", 512, "-fa", "off")
    ours = line(plan(model, *off), "compute")
    scores_as_f16 = 2 * 131072 * 512 * 32  # in the CPU's work area, which that line does not count
    ratio = (ours - scores_as_f16) / MIB / 8849.72
    checks.check(0.9 <= ratio <= 1.1, f"case 18: {ratio:.3f} of the reported line")
    if FIT.exists():
        theirs = fit_compute(model, "-c", 131072, "-ub", 512, "-fa", "off")
        ratio = (ours - scores_as_f16) / MIB / theirs
        checks.check(0.9 <= ratio <= 1.1, f"case 18: {ratio:.3f} of llama.cpp's {theirs} MiB")
    picked = line(plan(model, "-c", 131072, "--ubatch-size", 512), "compute")
    checks.check(picked < ours // 20, f"case 18: auto does not use flash attention: {picked}")


def case_61():
    """Quantised values need flash attention: refused before anything is loaded, and auto turns it on."""
    model = shape("llama", "case-61", blocks=2)
    for exact in ((), ("--exact",)):
        result = run("plan", model, "-c", 4096, "-ctv", "q4_0", "-fa", "off", *exact)
        checks.check(result.returncode == 2 and b"flash" in result.stderr,
                     f"case 61: exit {result.returncode}: {result.stderr[-200:]}")
    equal(61, "values at q4_0", kv(model, "-c", 4096, "-ctv", "q4_0"), 2 * 4096 * (1024 * 2 + 1024 // 32 * 18))
    narrow = shape("llama", "case-61-narrow", blocks=2, embd=1280, heads=16, kv_heads=16, ff=2560)  # heads of 80
    result = run("plan", narrow, "-c", 4096, "-ctk", "q8_0")
    checks.check(result.returncode == 2 and b"no whole number of blocks of q8_0" in result.stderr, f"case 61: {result.stderr[-200:]}")
    latent = shape("mistral4", "case-61-latent", blocks=2)
    result = run("plan", latent, "-c", 4096, "-ctk", "q8_0")
    checks.check(result.returncode == 2 and b"latent" in result.stderr, f"case 61: {result.stderr[-200:]}")


with folder:
    for case in (case_7, case_8, case_9, case_10, case_11, case_14, case_17, case_18, case_61):
        try:
            case()
        except (AssertionError, StopIteration) as error:
            checks.check(False, f"{case.__name__}: {error}")
checks.end()
