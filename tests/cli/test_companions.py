# SPDX-License-Identifier: MIT
"""`plan --draft` and `plan --mmproj` on shapes of files: user cases 4, 5, 6 and 60, and the price of encoding held to
llama.cpp's own compute buffers."""

import json
import pathlib
import tempfile

import harness
import mkgguf
from mkgguf import ARRAY, BOOL, F32, STRING, U32

harness.require()
checks = harness.Checks()
MIB = harness.MIB
BUDGET = "2G"


def run(*args):
    return harness.burthen(*args, timeout=60)


def plan(model, *args, budget=BUDGET):
    result = run("plan", model, "--json", "--ram-budget", budget, *args)
    if result.returncode not in (0, 3):
        raise AssertionError(f"plan {args}: {result.returncode} {result.stderr.decode()}")
    return json.loads(result.stdout)


def lines(a_plan):
    return {line["name"].removeprefix("host/"): line["planned_bytes"] for line in a_plan["pools"][0]["lines"]}


def refused(code, words, *args):
    result = run("plan", *args)
    text = result.stderr.decode()
    checks.check(result.returncode == code and text.count("\n") == 1 and all(word in text for word in words),
                 f"plan {args}: exit {result.returncode}, \"{text}\", expected {code} with {words}")


# ---- the draft (user cases 6 and 60) ----


def vocabulary(path, model, pre, tokens):
    """A small model with tokens of its own."""
    keys = [(key, kind, value) for key, kind, value in mkgguf.model_keys("llama", "x", 2, 256, 512, 8, 8, 8, 2048)
            if not key.startswith("tokenizer.")]
    keys += [("tokenizer.ggml.model", STRING, model), ("tokenizer.ggml.pre", STRING, pre),
             ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))]
    mkgguf.write(path, keys, mkgguf.model_tensors(2, 256, 512, 8, 8, len(tokens), False, "q8_0"))


def check_draft(folder):
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    mkgguf.write_model(target, blocks=16, embd=1024, ff=2816, heads=16, kv_heads=8, vocab=8192, ctx=32768)
    mkgguf.write_model(draft, blocks=3, embd=256, ff=768, heads=4, kv_heads=2, vocab=8192, ctx=2048)
    alone = plan(target, "-c", 8192)
    at = {n_ctx: plan(target, "--draft", draft, "-c", n_ctx) for n_ctx in (8192, 16384)}
    kv = lines(at[8192])["draft.kv"]
    # blocks x context x (K and V of 2 heads of 64 elements, f16): its own trained length, 2048, plays no part
    checks.check(kv == 3 * 8192 * 2 * (2 * 64) * 2, f"6: draft.kv at 8192 is {kv}")
    checks.check(lines(at[16384])["draft.kv"] == 2 * kv, "6: doubling the context doubles draft.kv")
    pool = at[8192]["pools"][0]
    checks.check(pool["planned_bytes"] == sum(lines(at[8192]).values()), "6: the draft is part of the pool's sum")
    facts = json.loads(run("inspect", draft, "--json").stdout)
    weights = lines(at[8192])["draft.weights"] - facts["weight_bytes"]  # what is pinned has the margins of its pages
    checks.check(0 <= weights < 64 * 8192 and facts["weight_bytes"] == at[8192]["draft"]["weight_bytes"],
                 f"6: draft.weights is the draft's weights, and {weights} bytes of margins")
    checks.check(at[8192]["draft"]["file"] == "draft.gguf" and at[8192]["mmproj"] is None and alone["draft"] is None,
                 "the plan names the draft")
    checks.check(not any(name.startswith(("draft.", "mmproj.")) for name in lines(alone)), "no lines of what is not there")
    own = {name: size for name, size in lines(at[8192]).items() if not name.startswith("draft.")}
    differ = {name for name, size in lines(alone).items() if own[name] != size}
    checks.check(differ <= {"pagetables"}, f"6: the model's own lines change: {differ}")
    # left to the plan, the context shrinks with the budget, and the draft's KV with it
    ladder = {rung["what"]: rung for rung in plan(target, "--draft", draft)["ladder"]}
    least, most = ladder["minimum"], ladder["overlap"]
    checks.check(least["ctx"] == 256 and most["ctx"] == 4096, "6: the ladder goes from a small context to the default one")
    small = plan(target, "--draft", draft, budget=(least["budget_bytes"] + 2 * most["budget_bytes"]) // 3)
    n_ctx = small["ctx"]["effective"]
    checks.check(small["verdict"] in ("fits", "streams") and 256 < n_ctx < 4096, f"6: a small budget gives {n_ctx}")
    checks.check(lines(small)["draft.kv"] == kv * n_ctx // 8192, "6: draft.kv at the context that was chosen")
    exact = json.loads(run("plan", target, "--draft", draft, "-c", 8192, "--json").stdout)
    checks.check(lines(exact)["draft.kv"] == kv, "6: without a budget too")

    gemma, starcoder, padded = folder / "gemma.gguf", folder / "starcoder.gguf", folder / "padded.gguf"
    vocabulary(gemma, "llama", "default", [f"g{i}" for i in range(2000)])
    vocabulary(starcoder, "gpt2", "starcoder", [f"s{i}" for i in range(2000)])
    refused(2, ["starcoder.gguf", "gemma.gguf", "gpt2", "llama"], gemma, "--draft", starcoder)
    vocabulary(starcoder, "llama", "default", [f"g{i}" if i != 1999 else "other" for i in range(2000)])
    refused(2, ["starcoder.gguf", "gemma.gguf", "1797", "2052"], gemma, "--draft", starcoder)
    vocabulary(padded, "llama", "default", [f"g{i}" for i in range(2128)])
    checks.check(run("plan", gemma, "--draft", padded).returncode == 0, "60: a padded vocabulary is the same one")
    vocabulary(padded, "llama", "default", [f"g{i}" for i in range(2129)])
    refused(2, ["padded.gguf", "gemma.gguf", "2129", "2000"], gemma, "--draft", padded)
    refused(1, ["cannot open", "nothing.gguf"], gemma, "--draft", folder / "nothing.gguf")
    for command in ("bench", "perplexity"):
        result = run(command, gemma, "--draft", padded, *(("-f", "/dev/null") if command == "perplexity" else ()))
        checks.check(result.returncode == 1 and b"not in this version" in result.stderr, f"{command} --draft says so")
    refused(2, ["--draft FILE"], target, "--speculate", "draft")
    off = plan(target, "--draft", draft, "--speculate", "off")
    checks.check(off["draft"] is None and not any(name.startswith("draft.") for name in lines(off)),
                 "--speculate off leaves the draft out")
    text = run("plan", target, "--draft", draft, "--speculate", "off", "--ram-budget", BUDGET).stdout.decode()
    checks.check("draft.gguf is left out: --speculate off" in text, "and that is said")
    # a budget that holds the model and not the draft: to go without is one of the changes
    need = plan(target, "-c", 8192)["ladder"][0]["budget_bytes"]
    tight = plan(target, "--draft", draft, "-c", 8192, budget=need)
    change = [c for c in tight["refusal"]["changes"] if c["flag"] == "--speculate"]
    checks.check(change == [{"flag": "--speculate", "value": "off", "need_bytes": need}], f"refused: {change}")


# ---- the projector (user cases 4 and 5) ----


def check_projector(folder):
    model, mmproj = folder / "mistral.gguf", folder / "mmproj.gguf"
    mkgguf.write_model(model, blocks=40, embd=5120, ff=32768, heads=32, kv_heads=8, vocab=4096, type="q4_K", ctx=32768)
    mkgguf.write_projector(mmproj)
    checks.check(mmproj.stat().st_size >> 20 == 837, "4: the file is one of 837 MiB")
    args = ("--mmproj", mmproj, "--image-max-tokens")
    whole, half = plan(model, *args, 3025), plan(model, *args, 3025 // 2)  # 1540 px: 110 x 110 patches of 14
    checks.check(lines(whole)["mmproj.weights"] >> 20 == 837, "4: mmproj.weights")
    checks.check(lines(half)["mmproj.weights"] == lines(whole)["mmproj.weights"], "4: the picture does not change the weights")
    checks.check(lines(half)["mmproj.encode"] < 0.6 * lines(whole)["mmproj.encode"],
                 f"4: encode {lines(half)['mmproj.encode']} of half of {lines(whole)['mmproj.encode']}")
    checks.check(whole["mmproj"]["file"] == "mmproj.gguf" and len(whole["mmproj"]["header_sha256"]) == 64, "4: named")
    # 5: the need is exact, and the rest of the budget a number: no flat reserve moves a plan that fits
    need = sum(lines(whole).values())
    tight = plan(model, *args, 3025, budget=whole["ladder"][-1]["budget_bytes"])
    checks.check(tight["verdict"] == "fits" and tight["pools"][0]["headroom_bytes"] < MIB,
                 f"5: all pinned at {tight['pools'][0]['headroom_bytes']} to spare")
    roomy = whole["ladder"][-1]["budget_bytes"] + 100 * MIB
    left = plan(model, *args, 3025, "--repack", "off", budget=roomy)["pools"][0]["headroom_bytes"]
    text = run("plan", model, *args, 3025, "--repack", "off", "--ram-budget", roomy).stdout.decode()
    shown = [line.split()[-1] for line in text.splitlines() if line.split()[:1] == ["left"]]
    checks.check(left > 80 * MIB and shown == [str(left)], f"5: what is left, {left}, is shown: {shown}")
    checks.check(need == whole["pools"][0]["planned_bytes"], "5: the sum holds both lines")

    other = folder / "other.gguf"
    mkgguf.write_model(other, embd=512)
    refused(2, ["mmproj.gguf", "512"], other, "--mmproj", mmproj)
    refused(2, ["other.gguf", "llama", "clip"], model, "--mmproj", other)
    mkgguf.write_projector(other, kind="deepseekocr")
    refused(1, ["other.gguf", "deepseekocr", "837."], model, "--mmproj", other)
    mkgguf.write_projector(other, image=0)
    refused(4, ["image_size"], model, "--mmproj", other)
    result = run("run", model, "--mmproj", mmproj, "-p", "x")
    checks.check(result.returncode == 1 and b"not in this version" in result.stderr, "run --mmproj says so")
    saved = folder / "plan.json"
    saved.write_text(json.dumps(whole))
    result = run("run", model, "--plan", saved, "-p", "x")
    checks.check(result.returncode != 0 and b"mmproj.gguf" in result.stderr, "run refuses a plan that holds a projector")


# ---- prices against llama.cpp ----

# Compute buffer of llama.cpp's clip (ggml_backend_sched_reserve, CPU; the version that make fetches), in bytes, for the
# published shapes of each family at a picture of so many pixels, with flash attention and without. merge: patches a
# side that become a token. hidden: sides of the projection's matrices. keys: what else the file says.
VISION = "clip.vision."
SHAPES = [
    # type, model width, image, patch, embd, ff, heads, merge, gated, sides, keys, [(px, with flash, without)]
    ("mlp", 4096, 336, 14, 1024, 4096, 16, 1, False, [(1024, 4096), (4096, 4096)], [], [(336, 22593056, 34479712)]),
    ("gemma3", 2560, 896, 14, 1152, 4304, 16, 4, False, [(2560, 1152)], [], [(896, 127139840, 1186988032)]),
    ("pixtral", 5120, 1540, 14, 1024, 4096, 16, 2, True, [(4096, 1024), (1024, 5120), (5120, 5120)],
     [(VISION + "spatial_merge_size", U32, 2)],
     [(448, 67756032, 90824704), (896, 270368768, 1167949824), (1540, 797887232, 9647730432)]),
    ("pixtral", 5120, 1024, 16, 1024, 4096, 16, 1, True, [(1024, 5120), (5120, 5120)], [],
     [(512, 68820992, 91889664), (1024, 273973248, 1171554304)]),
    ("lightonocr", 1024, 1540, 14, 1024, 4096, 16, 2, True, [(4096, 1024), (1024, 1024)],
     [(VISION + "spatial_merge_size", U32, 2)], [(770, 199190272, 654731072), (1540, 796760832, 9646604032)]),
    ("qwen2vl_merger", 3584, 560, 14, 1280, 5120, 16, 2, False, [(5120, 5120), (5120, 3584)], [],
     [(896, 135528448, 1188298752), (1792, 542113792, 17638096896)]),
    ("qwen2.5vl_merger", 3584, 560, 14, 1280, 3420, 16, 2, True, [(5120, 5120), (5120, 3584)],
     [(VISION + "n_wa_pattern", U32, 8)], [(896, 306323456, 1255415808), (1792, 1984987136, 18711871488)]),
    ("qwen3vl_merger", 4096, 768, 16, 1152, 4304, 16, 2, False, [(4608, 4608), (4608, 4096)], [],
     [(1024, 182517760, 1275133952), (2048, 730071040, 17985437696)]),
    ("idefics3", 576, 512, 16, 768, 3072, 12, 4, False, [(12288, 576)],
     [(VISION + "projector.scale_factor", U32, 4), (VISION + "preproc_image_size", U32, 2048)],
     [(512, 22020096, 62914560)]),
    ("internvl", 896, 448, 14, 1024, 4096, 16, 2, False, [(4096, 896), (896, 896)],
     [(VISION + "projector.scale_factor", U32, 2)], [(448, 117555200, 336134400)]),  # four tiles at a time
    ("lfm2", 2048, 256, 16, 768, 3072, 12, 2, False, [(3072, 2048), (2048, 2048)],
     [(VISION + "projector.scale_factor", U32, 2)], [(512, 22020096, 62914560)]),
    ("kimivl", 2048, 896, 14, 1152, 4304, 16, 2, False, [(4608, 4608), (4608, 2048)],
     [(VISION + "projector.scale_factor", U32, 2)], [(896, 146243584, 1177780224)]),
    ("janus_pro", 2048, 384, 16, 1024, 4096, 16, 1, False, [(1024, 2048), (2048, 2048)], [], [(384, 16515072, 30670848)]),
    ("phi4", 3072, 448, 14, 1152, 4304, 16, 1, False, [(1152, 3072), (3072, 3072)],
     [(VISION + "image_max_pixels", U32, 3000 * 196)], [(756, 90512640, 597943296)]),
    ("gemma4v", 2560, 224, 16, 1152, 4304, 16, 3, True, [(1152, 2560)], [], [(1584, 671878208, 6403816640)]),
    ("resampler", 3584, 448, 14, 1152, 4304, 16, 1, False, [(1152, 3584), (3584, 3584)], [], [(448, 55901696, 88407552)]),
    ("ultravox", 4096, 0, 1, 1280, 5120, 20, 8, False, [(10240, 4096), (2048, 4096)],
     [("clip.audio.projector.stack_factor", U32, 8)], [(0, 53760000, 210720000)]),
    ("voxtral", 3072, 0, 1, 1280, 5120, 20, 4, False, [(5120, 3072), (3072, 3072)],
     [("clip.audio.projector.stack_factor", U32, 4)], [(0, 53760000, 210720000)]),
    ("qwen2a", 3584, 0, 1, 1280, 5120, 20, 2, False, [(1280, 3584)], [], [(0, 53760000, 210720000)]),
]
# A price that is never below the buffer, and, for pictures whose buffer is most of what is held, not far above it: work
# area, copies of the picture and the tokens that come out are no part of the buffer.
LARGE = 100 * MIB
AT_MOST = 2.3


def write_shape(path, kind, image, patch, embd, ff, heads, gated, sides, keys):
    tower = "audio" if image == 0 else "vision"
    prefix = f"clip.{tower}."
    base = [("general.architecture", STRING, "clip"), (f"clip.has_{tower}_encoder", BOOL, True),
            ("clip.projector_type", STRING, kind), (prefix + "embedding_length", U32, embd),
            (prefix + "feed_forward_length", U32, ff), (prefix + "block_count", U32, 24),
            (prefix + "attention.head_count", U32, heads), (prefix + "projection_dim", U32, 768),
            (prefix + "attention.layer_norm_epsilon", F32, 1e-6)]
    if image:
        base += [(prefix + "image_size", U32, image), (prefix + "patch_size", U32, patch)]
    letter = tower[0]
    tensors = [(f"{letter}.blk.0.ffn_up.weight", "f16", (embd, ff))]
    if gated:
        tensors.append((f"{letter}.blk.0.ffn_gate.weight", "f16", (embd, ff)))
    if kind == "qwen3vl_merger":
        tensors += [(f"v.deepstack.{i}.fc1.weight", "f16", (4 * embd, 4 * embd)) for i in (6, 12, 18)]
    stem = "mm.a." if letter == "a" else "resampler." if kind == "resampler" else "mm."
    tensors += [(f"{stem}{i}.weight", "f16", side) for i, side in enumerate(sides)]
    mkgguf.write(path, base + keys, tensors)


def check_prices(folder):
    mmproj, model = folder / "shape.gguf", folder / "model.gguf"
    for kind, width, image, patch, embd, ff, heads, merge, gated, sides, keys, measured in SHAPES:
        write_shape(mmproj, kind, image, patch, embd, ff, heads, gated, sides, keys)
        mkgguf.write_model(model, blocks=1, embd=width, ff=768, heads=8, kv_heads=8, vocab=256)
        for px, *buffers in measured:
            tokens = max(1, (px // patch) ** 2 // merge**2)
            for flash, buffer in zip(("on", "off"), buffers):
                price = lines(plan(model, "--mmproj", mmproj, "--image-max-tokens", tokens, "-fa", flash))["mmproj.encode"]
                what = f"{kind} at {px} px, flash {flash}: {price / MIB:.1f} MiB for a buffer of {buffer / MIB:.1f}"
                checks.check(price > buffer, what)
                checks.check(buffer < LARGE or price < AT_MOST * buffer, what)


with tempfile.TemporaryDirectory() as scratch:
    check_draft(pathlib.Path(scratch))
    check_projector(pathlib.Path(scratch))
    check_prices(pathlib.Path(scratch))
checks.end()
