# SPDX-License-Identifier: MIT
"""The router on a machine with cards: who starts, who goes, what is waited for, what is learned. The cards are a library
with NVML's calls, which shows what stands in a file; the servers are a program that holds no model."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import harness
import router
from cards import GIB, STUB, Cards, of, pool, refusal, takes

checks = harness.Checks()
LATE_S = 1.0
PATIENCE_S = 4.2  # of a start, for memory that is not there (src/router/model_end.c)


def try_admission(cards):
    """A card's budget holds two of three; who holds nothing of it stays."""
    cards.shows((24576, 24000, {}), (8192, 8000, {}))
    models = {name: takes(CUDA0="10G") for name in "abc"}
    models |= {"cpu": takes(host="1M"), "second": takes(CUDA1="5G"), "both": takes(CUDA0="2G", CUDA1="4G"),
               "huge": takes(CUDA1="9G"), "wide": takes(CUDA0="22600M")}
    with cards.serve(models) as serve:
        for name in ("cpu", "second", "a", "b"):
            serve.chat(name, "x", 1)
        checks.check(set(serve.states()) == {"cpu", "second", "a", "b"}, f"all four run: {serve.states()}")
        serve.chat("c", "x", 1)
        checks.check(set(serve.states()) == {"cpu", "second", "b", "c"}, f"one of the card goes, the least used: {serve.states()}")
        serve.chat("both", "x", 1)  # 20 of 22 GiB are taken there, 5 of 8 here
        checks.check(set(serve.states()) == {"cpu", "b", "c", "both"}, f"the other card's: {serve.states()}")
        status, error = refusal(serve, "huge")
        checks.check(status == 503 and error.get("code") == "insufficient_vram" and error.get("pool") == "CUDA1", f"{status} {error}")
        checks.check(error.get("need_bytes") == 9 * GIB and error.get("have_bytes") == 8000 << 20, f"its numbers: {error}")
        status, error = refusal(serve, "wide")
        checks.check(status == 503 and error.get("have_bytes") == 22 * GIB, f"the budget is the limit: {status} {error}")
        checks.check(set(serve.states()) == {"cpu", "b", "c", "both"}, f"nobody goes for what cannot fit: {serve.states()}")
        checks.check(pool(serve, "CUDA0")["limit_bytes"] == 22 * GIB and pool(serve, "CUDA1")["limit_bytes"] == 8 * GIB,
                     f"limits: {serve.ask('/api/memory')['pools']}")
        try_measured(cards, serve)


def try_measured(cards, serve):
    """What the driver says of a child's processes is its own; more than was reserved is charged."""
    children = serve.children()
    cards.shows((24576, 24576 - 14 * 1024 - 9000, {children["b"]: 14 * 1024, children["c"]: 9000, 1: 100}), (8192, 8000, {}))
    seen = serve.wait_for(lambda: of(serve, "b").get("measured_bytes", {}).get("CUDA0") == 14 * GIB)
    checks.check(seen, f"measured: {of(serve, 'b')}")
    checks.check(of(serve, "c")["measured_bytes"].get("CUDA0") == 9000 << 20, f"of the other: {of(serve, 'c')}")
    checks.check(of(serve, "both")["measured_bytes"].get("CUDA0") == 0, f"of one that has none: {of(serve, 'both')}")
    checks.check("b: takes 14.00 GiB of CUDA0, 10.00 GiB were reserved" in serve.log(), "it is said")
    cards.shows((24576, 24000, {children["c"]: 9000}), (8192, 8000, {}))
    checks.check(serve.wait_for(lambda: of(serve, "b")["measured_bytes"].get("CUDA0") == 0), "it gives some back")
    checks.check(of(serve, "b")["peak_bytes"]["CUDA0"] == 14 * GIB, f"the peak stands: {of(serve, 'b')}")
    cards.shows((24576, 1000, {children["b"]: 14 * 1024, children["c"]: 9000}), (8192, 8000, {}))
    checks.check(serve.wait_for(lambda: of(serve, "b")["measured_bytes"].get("CUDA0") == 14 * GIB), "and takes it again")
    asking = threading.Thread(target=serve.chat, args=("a", "x", 1))
    asking.start()
    checks.check(serve.wait_for(lambda: serve.states().get("b") != "ready"), f"b has to go: {serve.states()}")
    cards.shows((24576, 24000, {}), (8192, 8000, {}))
    asking.join()
    decision = [one for one in serve.happened("decision") if "pools" in one][-1]  # of a ceiling there are others
    held = next(one for one in decision["pools"] if one["name"] == "CUDA0")["held"]
    checks.check(held.get("b") == 14 * GIB and held.get("c") == 10 * GIB, f"charged with the more: {held}")


def try_release(cards):
    """A card shows memory free a second after its process is gone: who waits for it starts then, and not before."""
    cards.shows((24576, 24000, {}))
    with cards.serve({"a": takes(CUDA0="20G"), "b": takes(CUDA0="20G")}) as serve:
        serve.chat("a", "x", 1)
        pid = serve.children()["a"]
        cards.shows((24576, 4000, {pid: 20000}))
        checks.check(serve.wait_for(lambda: of(serve, "a")["measured_bytes"].get("CUDA0") == 20000 << 20), "measured")
        before, back = [], []

        def come_back():
            while os.path.exists(f"/proc/{pid}"):
                time.sleep(0.01)
            cards.shows((24576, 4000, {}))  # the driver has forgotten whose it is
            gone = time.monotonic()
            while time.monotonic() < gone + LATE_S:
                before.append(serve.states())
                time.sleep(0.1)
            back.append(time.monotonic())
            cards.shows((24576, 24000, {}))

        looker = threading.Thread(target=come_back)
        looker.start()
        serve.chat("b", "x", 1)
        answered = time.monotonic()
        looker.join()
        checks.check(before and all(one == {"a": "stopping", "b": "admitted"} for one in before), f"while it comes back: {before}")
        checks.check(answered > back[0], f"b is there {answered - back[0]:.2f} s after the memory")
        checks.check("a: stopped: its memory is free again" in serve.log(), serve.log()[-800:])
        # the rest never comes back: somebody else has it
        pid = serve.children()["b"]
        cards.shows((24576, 4000, {pid: 20000}))
        checks.check(serve.wait_for(lambda: of(serve, "b")["measured_bytes"].get("CUDA0") == 20000 << 20), "measured")
        begun = time.monotonic()
        serve.ask("/api/models/unload/b", {})
        checks.check(serve.wait_for(lambda: "b" not in serve.states()), f"{serve.states()}")
        took = time.monotonic() - begun
        checks.check(PATIENCE_S - 0.1 < took < PATIENCE_S + 30, f"it is waited for, and not for ever: {took:.1f} s")
        checks.check("b: stopped: its memory is not all free again" in serve.log(), serve.log()[-800:])
        # and at the end nobody waits for it
        cards.shows((24576, 24000, {}))
        serve.chat("a", "x", 1)
        cards.shows((24576, 4000, {serve.children()["a"]: 20000}))
        checks.check(serve.wait_for(lambda: of(serve, "a")["measured_bytes"].get("CUDA0") == 20000 << 20), "measured")
        status, log = serve.stop()
        checks.check(status == 0 and "a: stopped" not in log[log.rindex("a: ready") :], f"{status}: {log[-500:]}")


def try_nobody_says(cards):
    """A driver that does not say whose its memory is (WSL), and one that counts processes otherwise (a container)."""
    for users, more in (({}, "users 3"), ({4000000: 10240}, "")):
        cards.shows((24576, 24000, {}, more))
        with cards.serve({"a": takes(CUDA0="10G"), "b": takes(CUDA0="10G")}) as serve:
            serve.chat("a", "x", 1)
            cards.shows((24576, 13000, users, more))
            checks.check(serve.wait_for(lambda: pool(serve, "CUDA0").get("free_bytes") == 13000 << 20), "read")
            checks.check("CUDA0" not in of(serve, "a")["measured_bytes"], f"not known, not 0: {of(serve, 'a')}")
            serve.chat("b", "x", 1)
            checks.check(set(serve.states()) == {"a", "b"}, f"what is free shows what a has already: {serve.states()}")


def try_failures(cards):
    """What cannot be read is neither nothing nor all (user case 44): the books bound it, and the reason is shown."""
    cards.shows((24576, 24000, {}, "memory 999"), (8192, 8000, {}, "memory 15"))
    models = {"a": takes(CUDA0="12G"), "b": takes(CUDA0="12G"), "c": takes(CUDA1="100G"), "d": takes(CUDA1="6G")}
    with cards.serve(models) as serve:
        first, second = pool(serve, "CUDA0"), pool(serve, "CUDA1")
        checks.check(first["state"] == "failed" and "999" in first["reason"] and first["free_bytes"] is None, f"{first}")
        checks.check(first["limit_bytes"] == 22 * GIB and first["total_bytes"] is None, f"its budget stands: {first}")
        checks.check(second["state"] == "failed" and second["limit_bytes"] is None and "GPU_IS_LOST" in second["reason"], f"{second}")
        for name in ("a", "c"):  # of the second card nobody knows anything: the guard looks before the start
            serve.chat(name, "x", 1)
        serve.chat("b", "x", 1)
        checks.check(set(serve.states()) == {"b", "c"}, f"the budget is kept without a reading: {serve.states()}")
        # it can be read, and then no more: what it has is known from then on
        cards.shows((24576, 24000, {}), (8192, 8000, {}))
        checks.check(serve.wait_for(lambda: pool(serve, "CUDA1").get("state") == "reported"), "read")
        pid = serve.children()["b"]
        cards.shows((24576, 12000, {pid: 12000}), (8192, 8000, {}))
        checks.check(serve.wait_for(lambda: of(serve, "b")["measured_bytes"].get("CUDA0") == 12000 << 20), "measured")
        cards.shows((24576, 24000, {}), first="init 999")
        checks.check(serve.wait_for(lambda: pool(serve, "CUDA1").get("state") == "failed"), f"{serve.ask('/api/memory')['pools']}")
        names = [one["name"] for one in serve.ask("/api/memory")["pools"]]
        checks.check(names[:3] == ["host", "CUDA0", "CUDA1"], f"all keep their places: {names}")
        second = pool(serve, "CUDA1")
        checks.check(second["free_bytes"] is None and second["limit_bytes"] == 8 * GIB and second["reason"], f"{second}")
        checks.check(of(serve, "b")["measured_bytes"].get("CUDA0") == 12000 << 20, f"what was seen last stands: {of(serve, 'b')}")
        checks.check(of(serve, "b")["reserved_bytes"] == {"CUDA0": 12 * GIB}, f"reserved: {of(serve, 'b')}")
        status, error = refusal(serve, "c") if "c" not in serve.states() else (0, {})
        serve.chat("d", "x", 1)
        checks.check("d" in serve.states() and "c" not in serve.states(), f"{serve.states()} {status} {error}")
        cards.shows((24576, 24000, {}))
        checks.check(serve.wait_for(lambda: pool(serve, "CUDA0").get("state") == "reported"), "the first is back")
        names = [one["name"] for one in serve.ask("/api/memory")["pools"]]
        checks.check(names == ["host", "CUDA0", "CUDA1"], f"nothing is left of a failure: {names}")
        checks.check("does not show it any more" in pool(serve, "CUDA1")["reason"], f"{pool(serve, 'CUDA1')}")


def try_named(cards):
    """A device that only the configuration knows, before and after it is named; those that drivers show keep their places."""
    cards.shows((24576, 24000, {}))
    with cards.serve({"a": takes(Vulkan0="1G"), "b": takes(Vulkan0="1500M"), "c": takes(CUDA0="9G")},
                     devices="{Vulkan0: 2G, CUDA0: 30G}") as serve:
        one = pool(serve, "Vulkan0")
        checks.check(one["state"] == "absent" and one["free_bytes"] is None and one["limit_bytes"] == 2 * GIB, f"{one}")
        checks.check(pool(serve, "CUDA0")["limit_bytes"] == 24 * GIB, f"no budget is more than there is: {pool(serve, 'CUDA0')}")
        for name in ("a", "c", "b"):
            serve.chat(name, "x", 1)
        checks.check(set(serve.states()) == {"b", "c"}, f"its budget holds one: {serve.states()}")
        text = serve.config.read_text()
        serve.rewrite(text.replace("Vulkan0: 2G, CUDA0: 30G", "Vulkan0: 3G, Vulkan1: 1G, CUDA0: 20G"))
        checks.check(serve.wait_for(lambda: pool(serve, "Vulkan1")), "a change is seen")
        limits = {one["name"]: one["limit_bytes"] for one in serve.ask("/api/memory")["pools"][1:]}
        checks.check(limits == {"CUDA0": 20 * GIB, "Vulkan0": 3 * GIB, "Vulkan1": GIB}, f"{limits}")
        serve.chat("a", "x", 1)
        checks.check(set(serve.states()) == {"a", "b", "c"}, f"both are held by the new budget: {serve.states()}")


def try_unknown(cards):
    """A name without a size is a device that is there, or the router does not begin; a size is the user's word."""
    cards.shows((24576, 24000, {}), (8192, 8000, {}))
    config = cards.folder / "serve.yaml"

    def begins(devices, *args):
        config.write_text(f"devices: {devices}\nmodels: {{a: {{cmd: 'x --port ${{PORT}}'}}}}\n")
        with router.Router([config], *args, env=cards.env) as serve:
            if not serve.works:
                serve.process.wait(20)
            return serve.works, serve.process.returncode, serve.log()

    for devices, args in (("{CUDA9: }", ()), ("{CUDA0: 1G, CUDA9: {target: 1G}}", ()), ("{CUDA0: 1G}", ("--device", "CUDA0,CUDA9"))):
        works, code, log = begins(devices, *args)
        checks.check(not works and code == 2 and "there is no device CUDA9; there are: CUDA0, CUDA1" in log, f"{devices} {args}: {code} {log}")
    for devices, args in (("{CUDA1: }", ()), ("{CUDA9: 2G}", ()), ("{CUDA0: 1G}", ("--device", "CUDA1", "--device", "CUDA9=2G"))):
        works, _, log = begins(devices, *args)
        checks.check(works, f"{devices} {args}: {log}")
    cards.shows(first="init 999")
    works, _, log = begins("{CUDA9: }")
    checks.check(works, f"who cannot be asked knows nothing: {log}")


def try_learned(cards):
    """What a program without a price was seen to take is what the next start needs, also of another router."""
    cards.shows((24576, 24000, {}))
    models = {"a": ("--tokens 3", ""), "b": takes(CUDA0="20G")}
    with cards.serve(models) as serve:
        serve.chat("a", "x", 1)
        checks.check(of(serve, "a")["need_from"] == "unknown", f"{of(serve, 'a')}")
        cards.shows((24576, 21000, {serve.children()["a"]: 3000}))
        checks.check(serve.wait_for(lambda: of(serve, "a").get("peak_bytes", {}).get("CUDA0") == 3000 << 20), "seen")
        cards.shows((24576, 24000, {}))
        serve.ask("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"{serve.states()}")
        serve.chat("a", "x", 1)
        one = of(serve, "a")
        checks.check(one["need_from"] == "learned" and one["need_bytes"].get("CUDA0") == 3000 << 20, f"{one}")
        checks.check(one["reserved_bytes"].get("CUDA0") == 3000 << 20 and one["reserved_bytes"]["host"] > 1 << 20, f"{one}")
    with cards.serve(models) as serve:
        serve.chat("b", "x", 1)
        serve.chat("a", "x", 1)  # 20 and 2.9 of 22 GiB
        one = of(serve, "a")
        checks.check(one["need_from"] == "learned" and one["need_bytes"].get("CUDA0") == 3000 << 20, f"another router: {one}")
        checks.check(set(serve.states()) == {"a"}, f"its place was made: {serve.states()}")


def try_exec(cards):
    """What the router has seen of a command counts in `burthen exec` too, as a line of the price."""
    if not harness.SMOLLM2.is_file():
        return
    cards.shows((24576, 24000, {}))
    program = cards.folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
    program.chmod(0o755)
    words = [str(program), "-m", str(harness.SMOLLM2), "-ngl", "99", "-c", "4096", "-np", "1", "--cache-ram", "0"]

    def decide():
        command = [harness.BIN, "exec", "--dry-run", "--json", "--no-wait", "--", *words, "--port", "7"]
        result = subprocess.run(command, capture_output=True, timeout=60, env=harness.environment() | cards.env)
        decision = json.loads(result.stdout)
        device = next(one for one in decision["plan"]["pools"] if one["name"] == "CUDA0")
        return decision, sum(one["planned_bytes"] for one in device["lines"]), result.stderr.decode()

    decision, priced, said = decide()
    checks.check(decision["decision"] == "unchanged" and 0 < priced < 1 << 30 and "former runs" not in said, f"{decision} {said}")
    config = f"hold: 0\nstart_port: 0\nmodels:\n  a: {{cmd: '{' '.join(words)} --port ${{PORT}}'}}\n"
    with router.Router(config, env=cards.env) as serve:
        serve.chat("a", "x", 1)
        one = of(serve, "a")
        checks.check(one["need_from"] == "priced" and one["need_bytes"]["CUDA0"] == priced, f"{one} {priced}")
        cards.shows((24576, 21000, {serve.children()["a"]: 3000}))
        checks.check(serve.wait_for(lambda: of(serve, "a").get("peak_bytes", {}).get("CUDA0") == 3000 << 20), "seen")
        cards.shows((24576, 24000, {}))
        serve.ask("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"{serve.states()}")
        serve.chat("a", "x", 1)
        one = of(serve, "a")
        checks.check(one["need_from"] == "priced" and one["need_bytes"]["CUDA0"] == 3000 << 20, f"{one}")
        # what the guard has made smaller is another command: its peaks are not kept under this name
        host = one["need_bytes"]["host"]
        serve.ask("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"{serve.states()}")
        cards.shows((24576, 2990, {}))
        serve.chat("a", "x", 1)
        checks.check("burthen: trimmed: " in serve.log() or "burthen: offloaded: " in serve.request("/logs/a")[1].decode(), serve.log()[-900:])
        cards.shows((24576, 10, {serve.children()["a"]: 2980 + 3000}))
        checks.check(serve.wait_for(lambda: of(serve, "a").get("peak_bytes", {}).get("CUDA0") == 5980 << 20), "seen")
        cards.shows((24576, 24000, {}))
        serve.ask("/api/models/unload/a", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"{serve.states()}")
        serve.chat("a", "x", 1)
        one = of(serve, "a")
        checks.check(one["need_bytes"] == {"host": host, "CUDA0": 3000 << 20}, f"{one}")
    decision, learned, said = decide()
    lines = {one["name"]: one["planned_bytes"] for pool in decision["plan"]["pools"] for one in pool["lines"]}
    checks.check(learned == 3000 << 20 and lines["CUDA0/learned"] == (3000 << 20) - priced, f"{lines} {priced}")
    checks.check(decision["decision"] == "unchanged" and "former runs of this command took more" in said, f"{said}")
    cards.shows((24576, 2900, {}))
    decision, learned, said = decide()
    checks.check(decision["decision"] != "unchanged" and learned <= 2900 << 20, f"{decision} {learned}")
    words[words.index("4096")] = "2048"  # another command
    decision, learned, said = decide()
    checks.check(decision["decision"] == "unchanged" and 0 < learned < 1 << 30, f"{decision} {learned}")


def try_hidden(cards):
    """A command that CUDA shows one card alone: the bytes are that one's; and what was seen of it is another command's."""
    if not harness.SMOLLM2.is_file():
        return
    cards.shows((24576, 24000, {}), (24576, 24000, {}))
    program = cards.folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
    program.chmod(0o755)
    words = f"{program} -m {harness.SMOLLM2} -ngl 99 -c 4096 -np 1 --cache-ram 0 --port ${{PORT}}"
    config = f"""start_port: 0
models:
  both: {{cmd: '{words}'}}
  first: {{cmd: '{words}', env: [CUDA_VISIBLE_DEVICES=0]}}
  second: {{cmd: '{words}', env: [CUDA_VISIBLE_DEVICES=1]}}
  wrapped: {{cmd: 'env CUDA_VISIBLE_DEVICES=1 {words}'}}
"""
    with router.Router(config, env=cards.env) as serve:
        priced = serve.wait_for(lambda: all(one["need_from"] == "priced" for one in serve.ask("/api/memory")["models"]))
        checks.check(priced, f"{serve.ask('/api/memory')['models']}")
        need = {one["model"]: {name: bytes for name, bytes in one["need_bytes"].items() if name != "host"}
                for one in serve.ask("/api/memory")["models"]}
        checks.check(set(need["both"]) == {"CUDA0", "CUDA1"}, f"{need}")
        checks.check(set(need["first"]) == {"CUDA0"} and set(need["second"]) == {"CUDA1"} == set(need["wrapped"]), f"{need}")
        checks.check(need["second"]["CUDA1"] == need["first"]["CUDA0"] > 450 << 20, f"{need}")
        serve.chat("second", "x", 1)
        cards.shows((24576, 24000, {}), (24576, 21000, {serve.children()["second"]: 3000}))
        checks.check(serve.wait_for(lambda: of(serve, "second").get("peak_bytes", {}).get("CUDA1") == 3000 << 20), "seen")
        cards.shows((24576, 24000, {}), (24576, 24000, {}))
        serve.ask("/api/models/unload/second", {})
        checks.check(serve.wait_for(lambda: not serve.states()), f"{serve.states()}")
        for model, expected in (("second", {"CUDA1": 3000 << 20}), ("first", need["first"])):
            serve.chat(model, "x", 1)
            got = {name: bytes for name, bytes in of(serve, model)["need_bytes"].items() if name != "host"}
            checks.check(got == expected, f"{model}: {got} {expected}")


def try_less(cards):
    """A start that finds no memory on the card though it was reserved is tried once more, with a tenth less."""
    cards.shows((24576, 24000, {}))
    folder = cards.folder / "bin"
    folder.mkdir()
    shutil.copy(pathlib.Path(harness.BIN).resolve().parent / "burthen-serve", folder)
    said = folder / "said"
    script = folder / "burthen"
    script.write_text(f'#!/bin/sh\nif [ "$1" = serve ]; then shift; exec "{folder}/burthen-serve" "$@"; fi\n'
                      f'echo "$*" >>"{said}"\nexec "{harness.BIN}" "$@"\n')
    script.chmod(0o755)
    whole, harness.BIN = harness.BIN, str(script)
    words = '--die-with "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory"'
    try:
        with cards.serve({"a": takes(words, CUDA0="10G"), "b": takes(CUDA0="4G")}) as serve:
            serve.chat("b", "x", 1)
            status, error = refusal(serve, "a")
            checks.check(status == 503 and error.get("code") == "out_of_device_memory", f"{status} {error}")
            checks.check(error.get("need_bytes") == 9216 << 20 and error.get("device") == "CUDA0", f"{error}")
            left = 18 * GIB
            starts = [line.partition(" --min")[0] for line in said.read_text().splitlines() if "die-with" in line]
            checks.check(starts == [f"exec --device CUDA0={left}", f"exec --device CUDA0={left * 9 // 10}"], f"{starts}")
            checks.check("once more with 10 % less" in serve.log(), serve.log()[-600:])
    finally:
        harness.BIN = whole


def run(one):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        one(Cards(pathlib.Path(place)))
    print(f"{one.__name__}: {time.monotonic() - begun:.1f} s")


def main():
    """They wait most of the time: each with its own cards, all at once; the last changes what the program is."""
    tries = [try_admission, try_release, try_nobody_says, try_failures, try_named, try_unknown, try_learned, try_exec, try_hidden,
             try_less]
    tries = [one for one in tries if one.__name__ in sys.argv] or tries
    with concurrent.futures.ThreadPoolExecutor(len(tries)) as pool_of_threads:
        for one in [pool_of_threads.submit(run, one) for one in tries if one is not try_less]:
            one.result()
    if try_less in tries:
        run(try_less)
    checks.end()


main()
