# SPDX-License-Identifier: MIT
"""Who is let into a memory budget, and who has to go for it: the router with stub servers of declared sizes.

What the stubs really hold is looked at from outside, ten times a second: the sum is never over the budget."""

import harness
import stubs

checks = harness.Checks()
FOR_MODELS = 260 * harness.MIB


def decisions(serve, kind):
    return [data for name, data in stubs.events_of(serve) if name == "decision" and data["decision"] == kind]


def check_swap():
    """Case 12: A is resident and idle, B fits only without it. One after the other, and never both."""
    models = {"a": stubs.model("--mem 100M", host="150M"), "b": stubs.model("--mem 100M", host="150M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        for name in "abab":
            answer = serve.chat(name, "Hello", 3)
            checks.check(answer["choices"][0]["message"]["content"] == "one two three", f"{name} answers: {answer}")
            checks.check(serve.states() == {name: "ready"}, f"only {name} is there: {serve.states()}")
        made = decisions(serve, "admit")
        checks.check([(one["model"], one["victims"]) for one in made] == [("a", []), ("b", ["a"]), ("a", ["b"]), ("b", ["a"])],
                     f"who goes for whom: {made}")
        host = next(pool for pool in made[1]["pools"] if pool["name"] == "host")
        checks.check(host["held"] == {"a": 150 * harness.MIB} and host["limit_bytes"] <= FOR_MODELS + stubs.OWN_BYTES,
                     f"the event has the numbers: {host}")
        checks.check(made[1]["need_bytes"] == {"host": 150 * harness.MIB}, f"and the need: {made[1]}")
        both = [stubs.Asked(serve, name, n=3) for name in "abab"]
        checks.check(all(one.wait().status == 200 for one in both), f"asked at once: {[str(one) for one in both]}")
        checks.check(serve.peak_tree_bytes <= FOR_MODELS + stubs.OWN_BYTES, f"{serve.peak_tree_bytes >> 20} MiB: {serve.peak_of}")
        checks.check(serve.peak_tree_bytes > 100 * harness.MIB, "the looks saw the stubs")


def check_small_stay():
    """Cases 24 and 50: where the large one has to go anyway, small ones stay, though they were used before it."""
    models = {"small1": stubs.model(host="30M"), "small2": stubs.model(host="30M"), "big": stubs.model(host="130M"),
              "next": stubs.model(host="195M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        for name in ("small1", "small2", "big", "next"):
            serve.chat(name, "Hello", 1)
        checks.check(set(serve.states()) == {"small1", "small2", "next"}, f"only big went: {serve.states()}")
        before = serve.children()
        serve.chat("small1", "Hello", 1)
        checks.check(serve.children() == before, "what is resident is used as it is")
        for name in ("big", "small1", "small2", "big"):
            serve.chat(name, "Hello", 1)
        after = serve.children()
        checks.check(after.get("small1") == before["small1"] and after.get("small2") == before["small2"],
                     f"their processes are the same: {before}, {after}")


def check_refuse():
    """What can never fit is refused with the ledger, and nobody is ended for it."""
    models = {"a": stubs.model(host="60M"), "keeps": stubs.model(host="100M", persistent=True), "huge": stubs.model(host="300M"),
              "large": stubs.model(host="170M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, patience="60s")) as serve:
        serve.chat("a", "Hello", 1)
        serve.chat("keeps", "Hello", 1)
        before = serve.children()
        for name in ("huge", "large"):
            asked = stubs.Asked(serve, name).wait()
            error = asked.error
            checks.check(asked.status == 503 and error.get("code") == "insufficient_memory", f"{name}: {asked}")
            checks.check(error.get("pool") == "host" and error.get("need_bytes") == (300 if name == "huge" else 170) * harness.MIB,
                         f"pool and need: {error}")
            at_most = FOR_MODELS - (100 * harness.MIB if before.get("keeps") else 0)
            checks.check(0 < error.get("have_bytes", 0) <= at_most, f"what could be had: {error}")
            held = next(pool["held"] for pool in error.get("pools", []) if pool["name"] == "host")
            checks.check(held == {"a": 60 * harness.MIB, "keeps": 100 * harness.MIB}, f"who holds it: {held}")
            checks.check(int(asked.reply.get("Retry-After", 0)) > 0, f"when to come again: {asked.reply}")
            checks.check(asked.seconds < 30, f"at once, and not after its patience: {asked.seconds}")
        checks.check(serve.children() == before, "nobody was ended for what cannot fit")


def check_refuse_among_many():
    """However many hold something, a refusal has its numbers."""
    sleeper = {"cmd": ["sh", "-c", "exec sleep 1000 # ${PORT}"], "checkEndpoint": "none", "memory": {"host": "1M"}, "preload": True}
    models = {f"{i:03}-{'x' * 110}": sleeper for i in range(70)}
    with stubs.start(stubs.config(models | {"huge": stubs.model(host="300M")}, for_models=FOR_MODELS)) as serve:
        checks.check(serve.wait_for(lambda: len(serve.states()) == 70, 600), f"all are there: {len(serve.states())}")
        asked = stubs.Asked(serve, "huge").wait()
        error = asked.error
        checks.check(asked.status == 503 and error.get("need_bytes") == 300 * harness.MIB and error.get("pool") == "host", f"{asked}")
        checks.check([one["model"] for one in decisions(serve, "refuse")] == ["huge"], "and so has its event")


def check_one_process():
    """Case 52: twenty first requests at once are one process."""
    models = {"a": stubs.model("--load-seconds 0.5 -np 20", host="60M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        asked = [stubs.Asked(serve, "a", n=2) for _ in range(20)]
        checks.check(all(one.wait().status == 200 for one in asked), f"all are answered: {[str(one) for one in asked][:3]}")
        started = serve.log().count("a: starting")
        checks.check(started == 1, f"one start: {started}")
        told = stubs.behind(serve, "a").ask("/stub")
        checks.check(told["n_requests"] == 20, f"each request once: {told['n_requests']}")


def check_no_demand():
    """Case 53: budgets that are full are no reason to end anything while nobody asks."""
    models = {name: stubs.model(host="80M") for name in "abc"}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS, hold=0)) as serve:
        for name in "abc":
            serve.chat(name, "Hello", 1)
        before = serve.children()
        serve.wait_for(lambda: False, 3)
        checks.check(len(before) == 3 and serve.children() == before, f"all stay: {before}, {serve.children()}")
        checks.check(not any(one["victims"] for one in decisions(serve, "admit")), "nobody was evicted")


def check_holds_on():
    """Case 51: memory that a child's copy still holds after its exit is not given away before it is free."""
    models = {"a": stubs.model("--mem 100M --hold-after-exit 20", host="150M"), "b": stubs.model("--mem 100M", host="150M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        serve.chat("a", "Hello", 1)
        mark = serve.mark()
        asked = stubs.Asked(serve, "b").wait()
        checks.check(asked.status == 200, f"b comes: {asked}")
        checks.check(serve.peak_tree_bytes <= FOR_MODELS + stubs.OWN_BYTES, f"{serve.peak_tree_bytes >> 20} MiB: {serve.peak_of}")
        live = stubs.router.marked(mark)
        checks.check(live == [serve.children()["b"]] or not mark, f"the copy of a is gone: {live}")


def check_overrun():
    """A child that takes more than it declared is charged with what it takes."""
    models = {"liar": stubs.model("--mem 180M", host="20M"), "b": stubs.model("--mem 20M", host="100M")}
    with stubs.start(stubs.config(models, for_models=FOR_MODELS)) as serve:
        serve.chat("liar", "Hello", 1)
        seen = serve.wait_for(lambda: stubs.row_of(serve, "liar").get("measured_bytes", {}).get("host", 0) > 180 * harness.MIB)
        checks.check(seen, f"what it takes is measured: {stubs.row_of(serve, 'liar')}")
        serve.chat("b", "Hello", 1)
        checks.check(set(serve.states()) == {"b"}, f"beside it there was no room: {serve.states()}")
        checks.check("were reserved: charged with it" in serve.log(), "and it was said")


def check_learned():
    """A program of nobody knows what size runs alone, and beside others once it was seen."""
    text = stubs.config({"x": stubs.model("--mem 40M"), "b": stubs.model(host="60M")}, for_models=FOR_MODELS)
    with stubs.start(text) as serve:
        serve.chat("b", "Hello", 1)
        serve.chat("x", "Hello", 1)
        checks.check(set(serve.states()) == {"x"}, f"alone at first: {serve.states()}")
        seen = serve.wait_for(lambda: stubs.row_of(serve, "x").get("peak_bytes", {}).get("host", 0) > 40 * harness.MIB)
        checks.check(seen, f"what it takes is seen: {stubs.row_of(serve, 'x')}")
        serve.request("/api/models/unload/x", {})
        checks.check(serve.wait_for(lambda: not serve.states()), "unloaded")
        serve.chat("b", "Hello", 1)
        checks.check(serve.wait_for(lambda: "learned" in serve.log()), "what was seen is what it needs")
        serve.chat("x", "Hello", 1)
        checks.check(set(serve.states()) == {"b", "x"}, f"then beside others: {serve.states()}: {serve.log()[-1500:]}")


def main():
    harness.require()
    stubs.run_beside(checks, [(check_swap, check_small_stay, check_refuse, check_refuse_among_many, check_one_process),
                              (check_no_demand, check_holds_on, check_overrun, check_learned)])
    checks.end()


main()
