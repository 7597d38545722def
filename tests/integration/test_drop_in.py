# SPDX-License-Identifier: MIT
"""An unmodified llama-server under a RAM budget: the text of the plain server, memory under the budget (VmHWM from outside,
and a cgroup of 32 MiB more in which nothing is killed), the very process that was started; or a refusal that names what
would do, before anything is started. Requests of all kinds: test_drop_in_requests.py; what goes wrong:
test_drop_in_failures.py; other programs: test_drop_in_programs.py.

Each server is asked for N_PROMPTS texts (BT_TRUTH_FULL=1: 200), no two prompts alike, short ones and ones of several
micro-batches; with four slots in arrays of four, which are one batch each time, then by four clients at once, whose
batches, and so last digits, are the moment's: of those the texts are held to the plain server's in their first words."""

import contextlib
import json
import os

import drop_in
import harness
import llama_server
import schema

drop_in.require(harness.GEMMA3)
checks = harness.Checks()
FULL = bool(os.environ.get("BT_TRUTH_FULL"))
MIB = harness.MIB
N_PROMPTS = 200 if FULL else 8
N_TOKENS = 8
N_SLOTS, CTX_OF_SLOT = 4, 512
SHORT, LONG = 5, 220  # words; the long ones are more tokens than two micro-batches
# what a plan may set, and a text depends on
CHOSEN = ("--ctx-size", "--parallel", "--batch-size", "--ubatch-size", "--cache-type-k", "--cache-type-v")
CHOSEN_ALONE = ("--kv-unified", "--no-kv-unified")
BEYOND_BYTES = 32 * MIB
SERVER_SAYS = ("srv ", "llama_", "system_info")
AGREE_WORDS, AGREE_OF_FOUR = 4, 3  # of four texts whose batches are the moment's (two plain servers differ as much)


def label(model):
    return model.name.split("-")[0]


def arguments(model, n_slots):
    return ("-m", model, "-c", CTX_OF_SLOT * n_slots, "-np", n_slots, "-t", 1, "-ub", drop_in.N_UBATCH)


def prompts():
    """Every fourth is long."""
    return [drop_in.prompt(i, LONG if i % 4 == 1 else SHORT) for i in range(N_PROMPTS)]


def check_at_once(server, n_slots, alone, asked):
    """Clients at once get whole answers, each that of its own prompt."""
    found = server.at_once([lambda prompt=prompt: server.complete(prompt, N_TOKENS) for prompt in asked])
    n_tokens = [answer["tokens_predicted"] for answer in found]
    checks.check(n_tokens == [N_TOKENS] * n_slots, f"clients at once: {n_tokens} tokens, not {N_TOKENS}")
    agree = sum(answer["content"].split()[:AGREE_WORDS] == text.split()[:AGREE_WORDS] for answer, text in zip(found, alone))
    checks.check(agree >= AGREE_OF_FOUR, f"clients at once: {[answer['content'] for answer in found]}, alone {alone}")


def answers(server, model, n_slots):
    """The texts of one server, and what its clients at once got."""
    asked = prompts()
    if n_slots == 1:
        return {"texts": [server.complete(prompt, N_TOKENS)["content"] for prompt in asked]}
    groups = [asked[i : i + n_slots] for i in range(0, len(asked), n_slots)]
    texts = [[answer["content"] for answer in server.complete(group, N_TOKENS)] for group in groups]
    short = [drop_in.prompt(1000 + i, SHORT) for i in range(n_slots)]
    alone = [server.complete(prompt, N_TOKENS)["content"] for prompt in short]
    if model == harness.SMOLLM2:  # the other one's choices are so close that two plain servers agree in less
        check_at_once(server, n_slots, alone, short)
    return {"texts": texts, "alone": alone}


def check_process(server, what):
    checks.check(server.program() == llama_server.PROGRAM.resolve(), f"{what}: the process runs {server.program()}")
    checks.check(any(path.name == drop_in.LIBRARY for path in server.mapped()), f"{what}: {drop_in.LIBRARY} is not mapped")


def check_memory(server, group, budget, what):
    peak = server.hwm_bytes()
    checks.check(0 < peak <= budget, f"{what}: VmHWM {peak / MIB:.2f} MiB of {budget / MIB:.2f}")
    killed, hits = (group.oom_kills(), group.limit_hits()) if group else (0, 0)
    checks.check(killed == 0, f"{what}: {killed} killed in a group of {(budget + BEYOND_BYTES) / MIB:.1f} MiB")
    return f"VmHWM {peak / MIB:7.1f} of {budget / MIB:7.1f} MiB, limit met {hits} times"


def try_budget(model, n_slots, name, budget, expected):
    what = f"{label(model)} -np {n_slots} {name}"
    group = drop_in.box(budget, BEYOND_BYTES)
    with group or contextlib.nullcontext():
        with drop_in.held(*arguments(model, n_slots), budget=budget, box=group) as server:
            if not server.check_works(checks, what):
                return
            check_process(server, what)
            with server.answering(checks, what):
                found = drop_in.differences(answers(server, model, n_slots), expected)
                checks.check(not found, f"{what}: {len(found)} texts differ: {found[:3]}")
                print(f"{what:24} {len(found)} of {N_PROMPTS} texts differ", end=", ")
            print(check_memory(server, group, budget, what), flush=True)
            status, log = server.stop()
            checks.check(status == 0, f"{what}: SIGTERM ends it with {status}: {log[-600:]}")
            checks.check(drop_in.sentences(log), f"{what}: nothing is said of the plan")


def try_texts(model, n_slots, names):
    with drop_in.plain(*arguments(model, n_slots)) as server:
        if not server.check_works(checks, f"{label(model)} -np {n_slots} plain"):
            return
        expected = answers(server, model, n_slots)
        print(f"{label(model)} -np {n_slots} plain: VmHWM {server.hwm_bytes() / MIB:.1f} MiB", flush=True)
    budgets = drop_in.rungs(*arguments(model, n_slots))
    for name in names:
        try_budget(model, n_slots, name, budgets[name], expected)


def try_refusal(model):
    """Nothing is started under the minimum, which is printed, and runs."""
    args = arguments(model, 1)
    least = drop_in.ladder(*args)["minimum"]
    result = drop_in.execute(*args, budget=least - 1)
    text = result.stderr.decode(errors="replace")
    checks.check(result.returncode == 3 and not result.stdout, f"one byte less: {result.returncode}: {text[-600:]}")
    checks.check(not any(word in text for word in SERVER_SAYS), f"something was started: {text[:600]}")
    printed = drop_in.printed_minimum(text)
    if not checks.check(printed, f"the minimum is not printed: {text}"):
        return
    with drop_in.held(*args, budget=printed) as server:
        if server.check_works(checks, f"the printed minimum {printed}"):
            with server.answering(checks, f"the printed minimum {printed}"):
                checks.check(server.complete(harness.PROMPT, 2)["content"], f"the printed minimum {printed}: no text")
            print(f"{label(model)}: refused under {least / MIB:.2f} MiB, runs in {printed}", flush=True)


def is_within(words, argv):
    """Each of the words, in their order, among those of argv."""
    rest = iter(argv)
    return all(word in rest for word in words)


def try_dry_run():
    words = ("-m", harness.SMOLLM2, "-c", 512, "-np", 1, "-t", "1", "--alias", "a b", "--api-key", "", "--ctx_size", "512")
    typed = [str(word) for word in (llama_server.PROGRAM, *words)]
    budget = drop_in.rungs(*words)["half"]
    result = drop_in.execute(*words, budget=budget, options=("--dry-run",))
    argv = result.stdout.decode().splitlines()
    checks.check(result.returncode == 0 and argv[0] == typed[0] and is_within(typed, argv), f"{result.returncode}: {argv}")
    pairs = list(zip(argv, argv[1:]))
    for added in (("--device", "Burthen0"), ("--fit", "off"), ("--load-mode", "none"), ("--cache-ram", "0"),
                  ("--ctx-checkpoints", "0"), ("--override-tensor", ".*=Burthen")):
        checks.check(added in pairs, f"{' '.join(added)} is not added: {argv}")

    status, decision, text = drop_in.decide(*words, budget=budget)
    if checks.check(status == 0 and decision, f"--json: {status}: {text[-600:]}"):
        checks.check(decision["argv"] == argv, f"--json: another command: {decision['argv']}, not {argv}")
        found = schema.check("exec", decision)
        checks.check(not found, f"--json: {found[:5]}")
        checks.check({"GGML_BACKEND_PATH", "BURTHEN_PLAN"} <= decision["env"].keys(), f"--json: env {decision['env']}")
        checks.check(drop_in.library().name == drop_in.LIBRARY and drop_in.library().is_file(), f"no {drop_in.library()}")
        checks.check(decision["plan"] and isinstance(decision["decision"], str), f"--json: {decision}")
    status, decision, _ = drop_in.decide(*words, budget="1M")
    found = schema.check("exec", decision)
    checks.check(status == 3 and decision["decision"] == "refused" and not found, f"a refusal: {status}: {found[:5]}")


def try_defaults(model):
    """Context and slots are chosen where none were given: the plain server of that choice says the same."""
    typed = ("-m", model, "-t", 1)
    budget = drop_in.rungs(*typed)["half"]
    status, decision, text = drop_in.decide(*typed, budget=budget)
    if not checks.check(status == 0, f"without -c: {status}: {text[-600:]}"):
        return
    pairs = list(zip(decision["argv"], decision["argv"][1:]))
    chosen = [word for pair in pairs if pair[0] in CHOSEN for word in pair]
    chosen += [word for word in decision["argv"] if word in CHOSEN_ALONE]
    checks.check({"--ctx-size", "--parallel"} <= set(chosen), f"without -c and -np none are added: {decision['argv']}")
    texts = []
    for server in (drop_in.plain(*typed, *chosen), drop_in.held(*typed, budget=budget)):
        with server:
            if server.check_works(checks, "without -c"):
                with server.answering(checks, "without -c"):
                    texts.append(server.complete(drop_in.prompt(3, LONG), N_TOKENS)["content"])
                peak = server.hwm_bytes()
    checks.check(len(set(texts)) == 1 and len(texts) == 2, f"without -c: {texts}")
    checks.check(peak <= budget, f"without -c: VmHWM {peak / MIB:.2f} MiB of {budget / MIB:.2f}")
    print(f"{label(model)} chosen: {' '.join(chosen)}, VmHWM {peak / MIB:.1f} of {budget / MIB:.1f} MiB", flush=True)


def promised():
    """Process id -> bytes, of those that have promised memory on this host."""
    return {entry["pid"]: entry["promised_bytes"] for entry in json.loads(harness.burthen("devices", "--json").stdout)["reservations"]}


def try_two(model):
    """Two servers of one file, each with a budget of its own that the other sees; what both read is the same file."""
    args = arguments(model, 1)
    budgets = drop_in.rungs(*args)
    with drop_in.held(*args, budget=budgets["minimum"]) as one, drop_in.held(*args, budget=budgets["half"]) as two:
        if not (one.check_works(checks, "one of two") and two.check_works(checks, "the other of two")):
            return
        asked = [drop_in.prompt(i, SHORT) for i in range(4)]
        found = [[server.complete(prompt, N_TOKENS)["content"] for prompt in asked] for server in (one, two)]
        checks.check(found[0] == found[1], f"two servers: {found}")
        for server, name in ((one, "minimum"), (two, "half")):
            check_memory(server, None, budgets[name], f"two servers, {name}")
        entries = promised()
        for server, name in ((one, "minimum"), (two, "half")):
            bytes_ = entries.get(server.pid, 0)
            checks.check(0 < bytes_ <= budgets[name], f"two servers: {server.pid} has promised {bytes_}, of {entries}")
        pids = {one.pid, two.pid}
    checks.check(not pids & promised().keys(), "a promise outlives its server")


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}


def ask_ruled(server):
    """A grammar, and one that is made of a schema, for which llama.cpp would spell out all of its vocabulary at once."""
    chat = {"messages": [{"role": "user", "content": "Give me a person."}], "max_tokens": 40, "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}
    said = server.ask("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    return [server.complete("The sea", 12, grammar="root ::= [a-z ]+")["content"], said]


def try_grammar(model):
    args = arguments(model, 1)
    budget = drop_in.rungs(*args)["minimum"]
    found = []
    for server in (drop_in.plain(*args), drop_in.held(*args, budget=budget)):
        with server:
            if not server.check_works(checks, "grammar"):
                return
            found.append(ask_ruled(server))
            peak = server.hwm_bytes()
    checks.check(found[0] == found[1], f"{label(model)} with a grammar: {found[1]}, plain {found[0]}")
    checks.check(peak <= budget, f"{label(model)} with a grammar: VmHWM {peak / MIB:.2f} of {budget / MIB:.2f} MiB")
    print(f"{label(model)} grammar at the minimum: VmHWM {peak / MIB:.1f} of {budget / MIB:.1f} MiB", flush=True)


try_dry_run()
try_grammar(harness.SMOLLM2)
try_grammar(harness.GEMMA3)
try_two(harness.SMOLLM2)
try_refusal(harness.SMOLLM2)
try_defaults(harness.SMOLLM2)
try_texts(harness.SMOLLM2, 1, ("minimum", "half", "all"))
try_texts(harness.SMOLLM2, N_SLOTS, ("minimum", "half", "all"))
try_texts(harness.GEMMA3, 1, ("minimum", "half", "all"))
try_texts(harness.GEMMA3, N_SLOTS, ("minimum", "half", "all") if FULL else ("half",))
checks.end()
