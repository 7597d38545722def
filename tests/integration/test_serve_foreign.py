# SPDX-License-Identifier: MIT
"""The router with a llama-server that others have built, on a Vulkan device in software that only the configuration names:
kept, made smaller beside one that stays, evicted, refused; and the text is that of the model each time. Nothing of it runs on
the processor, whose code may want instructions that are not there (test_exec_foreign.py)."""

import json
import re
import subprocess
import time

import harness
import router

FOREIGN = harness.SOURCE / "build/foreign-server/bin"
SERVER = FOREIGN / "llama-server"
harness.require(harness.SMOLLM2, SERVER)
ENVIRONMENT = {"GGML_VK_VISIBLE_DEVICES": "0", "MESA_SHADER_CACHE_DIR": str(FOREIGN.parent / "shaders")}
PROMPT = "The capital of France is"
CTX = {"stays": 2048, "wide": 24576, "next": 8192, "huge": 400000}
checks = harness.Checks()


def words(ctx):
    return f"-m {harness.SMOLLM2} -ngl 99 -c {ctx} -np 1 -t 1 --cache-ram 0"


def require_device():
    try:
        result = subprocess.run([str(SERVER), "--list-devices"], capture_output=True, timeout=240,
                                env=harness.environment() | ENVIRONMENT | {"LD_LIBRARY_PATH": str(FOREIGN)})
    except OSError as error:
        harness.skip(f"the server cannot be started here: {error}")
    if b"Vulkan0:" not in result.stdout + result.stderr:
        harness.skip("there is no Vulkan device, not even in software")


def price_bytes(ctx):
    """Of the device, as it is typed."""
    command = [harness.BIN, "exec", "--no-wait", "--dry-run", "--json", "--device", "Vulkan0=64G", "--", str(SERVER),
               *words(ctx).split()]
    plan = json.loads(subprocess.run(command, capture_output=True, timeout=300).stdout)["plan"]
    return sum(line["planned_bytes"] for pool in plan["pools"] if pool["name"] == "Vulkan0" for line in pool["lines"])


def of(serve, model):
    return next(one for one in serve.ask("/api/memory")["models"] if one["model"] == model)


def answer(serve, model):
    begun = time.monotonic()
    text = serve.complete(model, PROMPT, 2, ignore_eos=False)["content"]
    print(f"{model}: {text!r} in {time.monotonic() - begun:.1f} s")
    checks.check(text.startswith(" Paris"), f"{model}: {text!r}")


def try_all(serve, budget, prices):
    answer(serve, "stays")
    one = of(serve, "stays")
    checks.check(one["need_from"] == "priced" and one["reserved_bytes"]["Vulkan0"] == prices["stays"] and not one["shrunk"], f"{one}")
    checks.check("Vulkan0" not in one["measured_bytes"], f"no driver says what it has: {one}")
    pool = next(one for one in serve.ask("/api/memory")["pools"] if one["name"] == "Vulkan0")
    checks.check(pool["state"] == "absent" and pool["limit_bytes"] == budget, f"{pool}")

    answer(serve, "wide")
    one = of(serve, "wide")
    left = budget - prices["stays"]
    checks.check(one["shrunk"] and one["reserved_bytes"]["Vulkan0"] == left < one["need_bytes"]["Vulkan0"], f"{one} {left}")
    log = serve.request("/logs/wide")[1].decode()
    found = re.search(r"burthen: trimmed: --ctx-size (\d+) -> (\d+)", log)
    if checks.check(found and int(found[1]) == CTX["wide"], f"the context is trimmed:\n{log[:800]}"):
        fits, more = price_bytes(int(found[2])), price_bytes(int(found[2]) + 4096)
        checks.check(fits <= left < more, f"as little as it must: {found[0]}: {fits} {left} {more}")
    checks.check(serve.states() == {"stays": "ready", "wide": "ready"}, f"{serve.states()}")

    answer(serve, "next")
    checks.check(serve.states() == {"stays": "ready", "next": "ready"}, f"the other goes, who stays stays: {serve.states()}")
    checks.check(not of(serve, "next")["shrunk"], f"{of(serve, 'next')}")

    status, data = serve.request("/v1/completions", {"model": "huge", "prompt": PROMPT})
    error = json.loads(data).get("error", {})
    checks.check(status == 503 and error.get("code") == "insufficient_vram" and error.get("pool") == "Vulkan0", f"{status} {error}")
    checks.check(error.get("have_bytes") == left < error.get("need_bytes", 0), f"{error}")
    checks.check(serve.states() == {"stays": "ready", "next": "ready"}, f"nobody goes for it: {serve.states()}")
    answer(serve, "stays")


def main():
    require_device()
    prices = {name: price_bytes(ctx) for name, ctx in CTX.items()}
    budget = prices["stays"] + prices["wide"] * 4 // 5
    rows = "\n".join(f"  {name}: {{cmd: 'env LD_LIBRARY_PATH={FOREIGN} {SERVER} {words(ctx)} --port ${{PORT}}', health_timeout: 240s"
                     f"{', persistent: true' if name == 'stays' else ''}}}" for name, ctx in CTX.items())
    config = f"start_port: 0\nhold: 0\ndevices: {{Vulkan0: {{budget: {budget}}}}}\nmodels:\n{rows}\n"
    with router.Router(config, env=ENVIRONMENT) as serve:
        if checks.check(serve.works, f"it starts: {serve.log()[-800:]}"):
            try_all(serve, budget, prices)
        mark = serve.mark()
        status, log = serve.stop()
        checks.check(status == 0 and (not mark or not router.marked(mark)), f"{status}: {log[-600:]}")
    checks.end()


main()
