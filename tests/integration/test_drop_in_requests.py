# SPDX-License-Identifier: MIT
"""What a llama-server can be asked for, under a RAM budget half way between the minimum and all pinned: each answer equals
the plain server's, bit by bit where it is numbers, and VmHWM stays under the budget; or the command is refused (exit 2 or
3) with a reason. Options that take memory away from the device are held to the same.

A case is a server's arguments and the questions that it is asked: a function of the server that returns plain data. The
questions are put to both servers; those whose answer would show nothing (a draft without tokens, an adapter without an
effect) check that by themselves."""

import base64
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import time
import zlib

import drop_in
import harness
import mkgguf

SPLIT = harness.LLAMA_BIN / "llama-gguf-split"
drop_in.require(harness.GEMMA3, SPLIT)
checks = harness.Checks()
MIB = harness.MIB
COMMON = ("-t", 1, "-ub", drop_in.N_UBATCH)
ALONE = (*COMMON, "-c", 512, "-np", 1)
ANSWER = 'root ::= "The answer is " ("yes" | "no") ": " [a-z ]+ "."'
LORA_RANK, LORA_SEED, LORA_DEVIATION = 8, 7, 0.05
N_KV_HEADS = 3  # SmolLM2-135M
N_EMBD = 576
PICTURES = ((64, 64, 3), (336, 336, 5), (500, 300, 7))  # width, height, seed
IDLE_S = 1
SLEEPS = "server is entering sleeping state"  # llama-server says, and then unloads its model
MARGIN_TOKENS = 60  # that a shifted context lets go and takes again


# ---- questions ------------------------------------------------------------------------------------------------------


def ask_kinds(server):
    """Streams, grammars, probabilities, chat: what one server does on the way from tokens to text."""
    body = {"prompt": harness.PROMPT, "n_predict": 12, "temperature": 0, "cache_prompt": False}
    events = server.stream("/completion", body)
    streamed = "".join(event["content"] for event in events)
    whole = server.ask("/completion", body)["content"]
    checks.check(streamed == whole and len(events) > 6, f"a stream of {len(events)} events: {streamed!r}, at once {whole!r}")
    ruled = server.complete("Is the sea deep?", 24, grammar=ANSWER, ignore_eos=False)["content"]
    checks.check(ruled.startswith("The answer is "), f"grammar: {ruled!r}")
    likely = server.complete("One two three", 4, n_probs=3)["completion_probabilities"]
    group = [answer["content"] for answer in server.complete([drop_in.prompt(i, 30) for i in range(4)], 8)]
    chat = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12, "temperature": 0}
    said = server.ask("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    drawn = server.complete("Once upon a time", 12, temperature=0.8, seed=42)["content"]
    return {"streamed": streamed, "grammar": ruled, "probabilities": likely, "array": group, "chat": said, "drawn": drawn}


def picture(width, height, seed):
    """A PNG of stripes, as a data URL."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * seed + y * 7 + c * 50) % 256 for x in range(width) for c in range(3))
                    for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def ask_pictures(server):
    """A projector of random weights sees nothing, but its tokens move the text."""
    found = []
    for shape in PICTURES:
        content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture(*shape)}}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0}
        answer = server.ask("/v1/chat/completions", body)
        found.append([answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]])
    checks.check(found[1][1] > found[0][1], f"a larger picture is not more tokens: {found}")
    return {"pictures": found}


def ask_after_sleep(server):
    """The model is unloaded when nobody asks, and loaded again."""
    texts = []
    for n in range(1, 4):
        texts.append(server.complete(drop_in.prompt(2, 60), 8)["content"])
        end = time.monotonic() + 30
        while server.log().count(SLEEPS) < n and time.monotonic() < end:
            time.sleep(0.05)
        checks.check(server.log().count(SLEEPS) == n, f"it did not sleep after {n} answers")
    time.sleep(1)  # it holds a lock meanwhile that its handler of SIGTERM takes (llama_server.py)
    return {"texts": texts}


def ask_cached(server):
    """A conversation that grows: what the context holds is used again."""
    found, text = [], harness.PROMPT
    for more in (" he said:", " Then the captain", " In the end"):
        answer = server.complete(text + more, 12, cache_prompt=True)
        text += more + answer["content"]
        found.append([answer["content"], answer["timings"]["prompt_n"]])
    checks.check(found[1][1] < 20, f"nothing was used again: {found}")
    return {"turns": found}


def ask_embeddings(server):
    body = {"input": [harness.PROMPT, "A cat.", drop_in.prompt(3, 60)]}
    vectors = [item["embedding"] for item in server.ask("/v1/embeddings", body)["data"]]
    checks.check(len(vectors) == 3 and any(vectors[0]) and vectors[0] != vectors[1], f"no vectors: {str(vectors)[:200]}")
    return {"vectors": vectors}


def ask_adapter(server):
    """With the adapter, and with its scale set to nothing."""
    on = server.complete(harness.PROMPT, 12)["content"]
    server.ask("/lora-adapters", [{"id": 0, "scale": 0.0}])
    off = server.complete(harness.PROMPT, 12)["content"]
    checks.check(on != off, f"the adapter changes nothing: {on!r}")
    return {"on": on, "off": off}


def ask_slots(server):
    first = server.complete(harness.PROMPT, 8, cache_prompt=True, id_slot=0)["content"]
    saved = server.ask("/slots/0?action=save", {"filename": "slot.bin"})["n_saved"]
    other = server.complete("Something else, of no use:", 8, cache_prompt=True, id_slot=0)["content"]
    restored = server.ask("/slots/0?action=restore", {"filename": "slot.bin"})["n_restored"]
    again = server.complete(harness.PROMPT + first, 8, cache_prompt=True, id_slot=0)
    checks.check(saved == restored > 50 and again["timings"]["prompt_n"] < 10,
                 f"{saved} saved, {restored} restored, {again['timings']['prompt_n']} computed again")
    return {"first": first, "other": other, "again": again["content"], "tokens": [saved, restored]}


def ask_beyond(server):
    """More tokens than the context holds."""
    answer = server.complete(harness.PROMPT, 256 + MARGIN_TOKENS)
    n = answer["tokens_predicted"]
    checks.check(n == 256 + MARGIN_TOKENS and answer["truncated"], f"the context was not shifted: {n} tokens")
    return {"text": answer["content"]}


def ask_guessed(server):
    """Text that repeats itself, so that something is guessed."""
    lines = "\n".join(f"Day {i}: the keeper climbed the stairs, lit the lamp and wrote in his book." for i in range(5))
    answer = server.complete(lines + "\nDay 5:", 40)
    checks.check(answer["timings"].get("draft_n", 0) > 0, f"nothing was guessed: {answer['timings']}")
    return {"text": answer["content"], "drafted": answer["timings"].get("draft_n"),
            "accepted": answer["timings"].get("draft_n_accepted")}


def ask_text(server):
    return {"texts": [server.complete(harness.PROMPT, 12)["content"], server.complete(drop_in.prompt(5, 160), 8)["content"]]}


# ---- files ----------------------------------------------------------------------------------------------------------


def write_adapter(path):
    """A LoRA of random weights on queries, values and the way down of every other block of SmolLM2."""
    facts = json.loads(harness.burthen("inspect", harness.SMOLLM2, "--json").stdout)
    width, ff, kv = facts["embd"], facts["ff"], facts["embd"] // facts["heads"] * N_KV_HEADS
    draw = random.Random(LORA_SEED)
    tensors = []
    for block in range(0, facts["blocks"], 2):
        for part, n_in, n_out in (("attn_q", width, width), ("attn_v", width, kv), ("ffn_down", ff, width)):
            name = f"blk.{block}.{part}.weight"
            tensors += [(f"{name}.lora_a", "f32", (n_in, LORA_RANK)), (f"{name}.lora_b", "f32", (LORA_RANK, n_out))]

    def fill(out, _name, _kind, _shape, n_bytes):
        n = n_bytes // 4
        out.write(struct.pack(f"<{n}f", *(draw.gauss(0.0, LORA_DEVIATION) for _ in range(n))))

    keys = [("general.type", mkgguf.STRING, "adapter"), ("general.architecture", mkgguf.STRING, "llama"),
            ("adapter.type", mkgguf.STRING, "lora"), ("adapter.lora.alpha", mkgguf.F32, float(LORA_RANK))]
    mkgguf.write(path, keys, tensors, fill)
    return path


def split_model(folder):
    command = [SPLIT, "--split", "--split-max-tensors", "100", harness.SMOLLM2, folder / "part"]
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=120, env=harness.environment())
    if done.returncode != 0:
        raise AssertionError(f"llama-gguf-split failed: {done.stderr.decode(errors='replace')[-500:]}")
    return sorted(folder.glob("part-*.gguf"))[0]


# ---- cases ----------------------------------------------------------------------------------------------------------


def try_held(what, questions, args, expected):
    try:
        budget = drop_in.rungs(*args)["half"]
    except (AssertionError, KeyError, TypeError) as why:
        # Refused at any budget: then the reason is that of the command itself.
        result = drop_in.execute(*args, budget="1G", options=("--dry-run",))
        text = result.stderr.decode(errors="replace")
        checks.check(drop_in.is_refusal(result.returncode, text), f"{what}: {why}: {result.returncode}: {text[-600:]}")
        print(f"{what:18} refused: {drop_in.sentences(text)[:1]}", flush=True)
        return
    with drop_in.held(*args, budget=budget) as server:
        if not server.works:
            status, log = server.stop()
            checks.check(drop_in.is_refusal(status, log), f"{what}: neither starts nor is refused: {status}: {log[-1500:]}")
            print(f"{what:18} refused: {drop_in.sentences(log)[:1]}", flush=True)
            return
        found = None
        with server.answering(checks, what):
            found = drop_in.differences(questions(server), expected)
            checks.check(not found, f"{what}: {len(found)} differ: {found[:3]}")
        peak = server.hwm_bytes()
        status, log = server.stop()
    checks.check(0 < peak <= budget, f"{what}: VmHWM {peak / MIB:.2f} MiB of {budget / MIB:.2f}")
    checks.check(status == 0, f"{what}: SIGTERM ends it with {status}: {log[-600:]}")
    print(f"{what:18} {'equal' if found == [] else 'DIFFERS'}, VmHWM {peak / MIB:.1f} of {budget / MIB:.1f} MiB", flush=True)


def try_case(what, questions, *args):
    with drop_in.plain(*args) as server:
        if not server.check_works(checks, f"{what}: the plain server"):
            return
        expected = questions(server)
    try_held(what, questions, args, expected)


def try_requests(folder):
    smollm2, gemma3 = ("-m", harness.SMOLLM2), ("-m", harness.GEMMA3)
    slots = folder / "slots"
    slots.mkdir()
    try_case("kinds", ask_kinds, *smollm2, *COMMON, "-c", 2048, "-np", 4)
    try_case("cached", ask_cached, *smollm2, *ALONE)
    try_case("embeddings", ask_embeddings, *smollm2, *ALONE, "--embedding", "--pooling", "mean")
    try_case("embeddings gemma3", ask_embeddings, *gemma3, *ALONE, "--embedding", "--pooling", "last")
    try_case("adapter", ask_adapter, *smollm2, *ALONE, "--lora", write_adapter(folder / "lora.gguf"))
    try_case("slots", ask_slots, *smollm2, *ALONE, "--slot-save-path", slots)
    try_case("shift", ask_beyond, *smollm2, *COMMON, "-c", 256, "-np", 1, "--context-shift")
    try_case("n-grams", ask_guessed, *smollm2, *ALONE, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 4)
    try_case("draft", ask_guessed, *smollm2, *ALONE, "-md", harness.SMOLLM2, "--spec-type", "draft-simple")
    try_case("two drafts", ask_guessed, *smollm2, *COMMON, "-c", 1024, "-np", 2, "-md", harness.SMOLLM2, "--spec-type",
             "draft-simple")
    projector = folder / "mmproj.gguf"
    mkgguf.write_projector(projector, image=336, embd=192, ff=384, blocks=4, heads=4, out=N_EMBD)
    try_case("pictures", ask_pictures, *smollm2, *COMMON, "-c", 1024, "-np", 1, "--mmproj", projector)
    try_case("sleeps", ask_after_sleep, *smollm2, *ALONE, "--sleep-idle-seconds", IDLE_S)
    try_case("-kvu", ask_text, *smollm2, *COMMON, "-c", 1024, "-np", 3, "-kvu")
    try_case("-fa off", ask_text, *smollm2, *ALONE, "-fa", "off")
    try_case("-ctk q8_0", ask_text, *smollm2, *ALONE, "-ctk", "q8_0", "-ctv", "q8_0")
    try_case("sliding windows", ask_text, *gemma3, *ALONE, "-fa", "off")
    try_case("split", ask_text, "-m", split_model(folder), *ALONE)


def try_moved():
    """Options that keep weights or the context from the device, or load them in another way."""
    for words in (("-nkvo",), ("-ot", "blk.0.*=CPU"), ("-ngl", 4), ("--load-mode", "mlock"), ("--check-tensors",)):
        try_case(" ".join(map(str, words)), ask_text, "-m", harness.SMOLLM2, *ALONE, *words)


with tempfile.TemporaryDirectory(dir=harness.SOURCE / "build") as scratch:
    try_requests(pathlib.Path(scratch))
try_moved()
checks.end()
