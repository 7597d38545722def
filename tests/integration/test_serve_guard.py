# SPDX-License-Identifier: MIT
"""When others take memory: the router's live ceiling and its watchdog. Cards are a stand-in (cards.py);
the host's memory is really taken, by another process in a group that it shares with the router. User cases 39, 44, 47, 54."""

import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import time

import cgroup_box
import harness
import stubs
from cards import GIB, Cards, of, pool, refusal, takes

checks = harness.Checks()
MIB = 1 << 20
GRACE_S = 5  # long enough for this test to look at what is over before anybody goes
GUARD = f"oom_guard: {{reserve: 1G, grace: {GRACE_S}s}}"
STALL_PERCENT = 15  # src/router/watchdog.h
LOOK_S = 5  # at rest; 1 while something moves


def shed(serve):
    return [one for one in serve.happened("decision") if one["decision"] == "shed"]


def settled(serve, name, **expected):
    """Whether a pool comes to say so: ceiling=15 * GIB."""
    def says():
        one = pool(serve, name)
        return all(one.get(key) == value for key, value in expected.items())
    return checks.check(serve.wait_for(says), f"{name} {expected}: {pool(serve, name)}")


def two(cards, serve, more=()):
    """a with 10 GiB and b with 6 of a card on which a desktop has 576 MiB."""
    settled(serve, "CUDA0", foreign_bytes=576 * MIB, ceiling_bytes=22 * GIB, trusted=True)
    serve.chat("a", "x", 1)
    serve.chat("b", "x", 1)
    pids = serve.children()
    users = {pids["a"]: 10240, pids["b"]: 6144}
    cards.shows((24576, 24000 - 16384, users, *more))
    settled(serve, "CUDA0", foreign_bytes=576 * MIB, excess_bytes=0, ceiling_bytes=22 * GIB, trusted=True, watchdog="quiet")
    return users


def try_game(cards):
    """A game takes 7 GiB: admission goes by what it leaves, the largest idle model goes after the grace; then it ends."""
    cards.shows((24576, 24000, {}))
    models = {"a": takes(CUDA0="10G"), "b": takes(CUDA0="6G"), "c": takes(CUDA0="15G")}
    with cards.serve(models, more=GUARD) as serve:
        users = two(cards, serve)
        begun = time.monotonic()
        cards.shows((24576, 24000 - 16384 - 7168, users))
        settled(serve, "CUDA0", foreign_bytes=(576 + 7168) * MIB, floor_bytes=576 * MIB, excess_bytes=7 * GIB,
                ceiling_bytes=14 * GIB, limit_bytes=22 * GIB)
        checks.check(serve.wait_for(lambda: set(serve.states()) == {"b"}) or serve.states().get("a") == "stopping",
                     f"the largest goes: {serve.states()}")
        took = time.monotonic() - begun
        checks.check(GRACE_S - 0.2 < took < GRACE_S + LOOK_S + 30, f"after the grace: {took:.1f} s")
        one = shed(serve)
        checks.check(len(one) == 1 and one[0]["victims"] == ["a"] and one[0]["pool"] == "CUDA0", f"{one}")
        checks.check(one[0]["over_bytes"] == 2 * GIB and one[0]["reason"] == "memory is needed by others", f"{one}")
        checks.check("a: stopping: memory is needed by others (CUDA0)" in serve.log(), serve.log()[-800:])
        cards.shows((24576, 24000 - 6144 - 7168, {k: v for k, v in users.items() if v == 6144}))
        checks.check(serve.wait_for(lambda: set(serve.states()) == {"b"}), f"it has gone: {serve.states()}")
        status, error = refusal(serve, "c")  # 15 of the 14 that the game leaves
        checks.check(status == 503 and error.get("code") == "insufficient_vram" and error.get("have_bytes") == 14 * GIB, f"{status} {error}")
        checks.check(set(serve.states()) == {"b"}, f"nobody goes for it: {serve.states()}")
        memory = serve.ask("/api/memory")
        checks.check(memory["devices"]["excess_bytes"] == 7 * GIB and memory["devices"]["trusted"], f"all devices: {memory['devices']}")
        sample = serve.happened("memory")[-1]["pools"]
        card = next(one for one in sample if one["name"] == "CUDA0")
        checks.check(card["ceiling_bytes"] == 14 * GIB and card["measured_bytes"] == 6 * GIB and card["foreign_bytes"] == 7744 * MIB, f"{card}")
        cards.shows((24576, 24000 - 6144, {k: v for k, v in users.items() if v == 6144}))
        settled(serve, "CUDA0", ceiling_bytes=22 * GIB, excess_bytes=0)
        serve.chat("c", "x", 1)  # 15 + 6 of 22
        checks.check(set(serve.states()) == {"b", "c"}, f"the budget is whole again: {serve.states()}")
        told = [one for one in serve.happened("decision") if one["decision"] == "ceiling"]
        checks.check(told and told[0]["ceiling_bytes"] == 14 * GIB and told[0]["trusted"], f"{told}")


def try_blip(cards):
    """A moment of a film, with a grace of eight seconds: nobody goes. What is busy, or persistent, does not go at all."""
    cards.shows((24576, 24000, {}))
    models = {"a": takes("", CUDA0="10G"), "b": takes("", CUDA0="6G")}
    models["b"] = (models["b"][0], models["b"][1] + ", persistent: true")
    with cards.serve(models, more="oom_guard: {reserve: 1G, grace: 8s}") as serve:
        users = two(cards, serve)
        for _ in range(2):
            cards.shows((24576, 24000 - 16384 - 7168, users))
            settled(serve, "CUDA0", watchdog="pressed")
            time.sleep(0.5)
            cards.shows((24576, 24000 - 16384, users))
            settled(serve, "CUDA0", watchdog="quiet")
        checks.check(set(serve.states()) == {"a", "b"} and not shed(serve), f"{serve.states()} {shed(serve)}")
        asked = stubs.Asked(serve, "a", "x", hold=True)
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "a is busy")
        cards.shows((24576, 24000 - 16384 - 7168, users))
        checks.check(serve.wait_for(lambda: shed(serve)), "it is said that nobody may go")
        checks.check(shed(serve)[0]["victims"] == [] and set(serve.states()) == {"a", "b"}, f"{shed(serve)} {serve.states()}")
        stubs.go(serve, "a")
        asked.join()
        checks.check(asked.status == 200, f"what runs is answered: {asked}")
        checks.check(serve.wait_for(lambda: set(serve.states()) == {"b"}), f"idle, it goes: {serve.states()}")
        checks.check([one["victims"] for one in shed(serve)] == [[], ["a"]], f"{shed(serve)}")


def try_lost(cards):
    """User case 44: the driver stops answering in the middle of a game. Nobody is ended for what nobody knows; what was
    learned of the desktop holds when it answers again."""
    cards.shows((24576, 24000, {}))
    with cards.serve({"a": takes(CUDA0="10G"), "b": takes(CUDA0="6G")}, more="oom_guard: {reserve: 1G, grace: 6s}") as serve:
        users = two(cards, serve)
        cards.shows((24576, 24000 - 16384 - 7168, users, "memory 3"))
        settled(serve, "CUDA0", trusted=False, ceiling_bytes=None, excess_bytes=None, watchdog="off")
        checks.check(pool(serve, "CUDA0")["ceiling_reason"] == "there is no reading", f"{pool(serve, 'CUDA0')}")
        time.sleep(7)
        checks.check(set(serve.states()) == {"a", "b"}, f"{serve.states()}")
        cards.shows((24576, 24000 - 16384 - 7168, users))
        settled(serve, "CUDA0", trusted=True, ceiling_bytes=14 * GIB, floor_bytes=576 * MIB)
        cards.shows((24576, 24000 - 16384, users))
        settled(serve, "CUDA0", ceiling_bytes=22 * GIB)
        checks.check(not shed(serve), f"{shed(serve)}")


def try_unseen(cards):
    """A driver that does not say who has memory: what more is used when a model is ready is its own, if it came alone."""
    cards.shows((24576, 24000, {}, "users 3"))
    loaded = {name: cards.folder / f"loaded-{name}" for name in "abc"}
    models = {name: takes(f"--until {loaded[name]}", CUDA0=size) for name, size in (("a", "10G"), ("b", "6G"), ("c", "2G"))}
    with cards.serve(models, more=GUARD) as serve:
        settled(serve, "CUDA0", trusted=True, foreign_bytes=576 * MIB)
        with concurrent.futures.ThreadPoolExecutor() as pool_of:
            asked = pool_of.submit(serve.chat, "a", "x", 1)
            checks.check(serve.wait_for(lambda: serve.states().get("a") == "starting"), f"{serve.states()}")
            cards.shows((24576, 24000 - 9000, {}, "users 3"))
            loaded["a"].touch()
            asked.result()
            checks.check(serve.wait_for(lambda: of(serve, "a")["measured_bytes"].get("CUDA0") == 9000 * MIB), f"{of(serve, 'a')}")
            settled(serve, "CUDA0", trusted=True, foreign_bytes=576 * MIB, ceiling_bytes=22 * GIB)
            both = [pool_of.submit(serve.chat, name, "x", 1) for name in "bc"]
            checks.check(serve.wait_for(lambda: [serve.states().get(name) for name in "bc"] == ["starting"] * 2), f"{serve.states()}")
            cards.shows((24576, 24000 - 17000, {}, "users 3"))
            for name in "bc":
                loaded[name].touch()
            for one in both:
                one.result()
        settled(serve, "CUDA0", trusted=False, ceiling_bytes=None)
        checks.check("nobody says what it holds" in pool(serve, "CUDA0")["ceiling_reason"], f"{pool(serve, 'CUDA0')}")
        cards.shows((24576, 100, {}, "users 3"))
        time.sleep(GRACE_S + 2)
        checks.check(set(serve.states()) == {"a", "b", "c"}, f"nobody goes for a guess: {serve.states()}")
        for name in "bc":
            serve.ask(f"/api/models/unload/{name}", {})
        cards.shows((24576, 24000 - 9000, {}, "users 3"))
        checks.check(serve.wait_for(lambda: set(serve.states()) == {"a"}), f"{serve.states()}")
        settled(serve, "CUDA0", trusted=True, foreign_bytes=576 * MIB)
        cards.shows((24576, 24000 - 9000 - 14500, {}, "users 3"))  # 22 - 14.2 - 1 GiB are left for 8.8
        checks.check(serve.wait_for(lambda: "a" not in serve.states() or serve.states()["a"] == "stopping"), f"{serve.states()}")
        checks.check([one["victims"] for one in shed(serve)] == [["a"]], f"{shed(serve)}")


def try_growth(cards):
    """User case 47: a server whose driver keeps more with each token. It is said, with when the card is full."""
    cards.shows((24576, 20000, {}))
    with cards.serve({"a": takes("", CUDA0="10G")}, more=GUARD) as serve:
        serve.chat("a", "x", 1)
        pid, held = serve.children()["a"], 4000
        asked = stubs.Asked(serve, "a", "x", hold=True)  # a look each second
        checks.check(serve.wait_for(lambda: stubs.row_of(serve, "a")["running"] == 1), "a is busy")

        def grown():
            nonlocal held
            held += 16
            cards.shows((24576, 20000 - held, {pid: held}))
            serve.chat("a", "x", 300)
            return [one for one in serve.happened("decision") if one["decision"] == "growth"]

        checks.check(serve.wait_for(grown), f"it is said: {serve.log()[-800:]}")
        said = grown()
        one = said[0] if said else {}
        checks.check(one.get("model") == "a" and one.get("pool") == "CUDA0" and one.get("tokens", 0) >= 8 * 256, f"{one}")
        checks.check(one.get("grown_bytes", 0) >= 8 * 16 * MIB and one.get("left_tokens", 0) > 0, f"{one}")
        checks.check("a: holds " in serve.log() and "at this pace CUDA0 is full after" in serve.log(), serve.log()[-800:])
        stubs.go(serve, "a")
        asked.join()
        checks.check(asked.status == 200 and serve.states().get("a") == "ready", f"nothing is stopped for it: {asked} {serve.states()}")


HOG = "import mmap, os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nheld = []\n" \
      "for line in sys.stdin:\n    m = mmap.mmap(-1, int(line) << 20)\n    for at in range(0, len(m), 4096):\n        m[at] = 1\n" \
      "    held.append(m)\n    print('taken', flush=True)\n"


def take(hog, mib):
    hog.stdin.write(f"{mib}\n")
    hog.stdin.flush()
    hog.stdout.readline()


def try_host(_):
    """Real memory: another process fills the group that the router is in; the largest idle model goes, and comes back."""
    config = stubs.config({"a": stubs.model("--mem 200M", host="250M"), "b": stubs.model("--mem 40M", host="80M")},
                          for_models=600 * MIB, oom_guard={"reserve": "100M", "grace": "3s"})
    try:
        box = cgroup_box.Box(1000 * MIB, allow_swap=False)
        box.__enter__()
    except cgroup_box.Unavailable as why:
        print(f"try_host: skipped: {why}")
        return
    hog = None
    try:
        with stubs.Router(config) as serve:
            procs = str(box.folder / "cgroup.procs")
            pathlib.Path(procs).write_text(str(serve.pid))
            serve.chat("a", "x", 1)
            serve.chat("b", "x", 1)
            points = [int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (serve.pid, *serve.children().values())]
            checks.check(points[1:] == [min(points[0] + 500, 1000)] * 2, f"case 39: the kernel ends servers first: {points}")
            checks.check(serve.wait_for(lambda: pool(serve, "host").get("watchdog") == "quiet"), f"{pool(serve, 'host')}")
            time.sleep(LOOK_S + 1)
            checks.check(set(serve.states()) == {"a", "b"}, f"{serve.states()}")
            hog = subprocess.Popen([sys.executable, "-c", HOG, procs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            take(hog, 1)
            left = 1000 - box.usage_bytes() // MIB
            begun = time.monotonic()
            take(hog, left - 60)
            taken = time.monotonic()  # a busy machine takes its time for that
            gone = serve.wait_for(lambda: "a" not in serve.states())
            took = time.monotonic() - begun
            in_time = took > 2.8 or shed(serve)[0]["stall_percent"] >= STALL_PERCENT  # who stands still has waited already
            checks.check(gone and in_time and time.monotonic() - taken < 3 + LOOK_S + 30, f"after the grace: {took:.1f} s {serve.states()} {pool(serve, 'host')}")
            checks.check(serve.states().get("b") == "ready", f"the small one is not needed: {serve.states()}")
            checks.check([(one["pool"], one["victims"]) for one in shed(serve)] == [("host", ["a"])], f"{shed(serve)}")
            checks.check(box.oom_kills() == 0, "the kernel had to end nobody")
            take(hog, 100)
            status, error = refusal(serve, "a")
            checks.check(status == 503 and error.get("code") == "insufficient_memory", f"there is no room for it now: {status} {error}")
            checks.check(serve.states().get("b") == "ready", f"nor does b go for that: {serve.states()}")
            hog.kill()
            hog.wait()
            checks.check(serve.wait_for(lambda: pool(serve, "host")["free_bytes"] > 400 * MIB), f"{pool(serve, 'host')}")
            serve.chat("a", "x", 1)
            checks.check(set(serve.states()) == {"a", "b"}, f"it is back: {serve.states()}")
    finally:
        if hog and hog.poll() is None:
            hog.kill()
            hog.wait()
        box.__exit__()


def run(one):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        one(Cards(pathlib.Path(place)))
    print(f"{one.__name__}: {time.monotonic() - begun:.1f} s")


def main():
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        for one in [threads.submit(run, one) for one in (try_blip, try_host, try_game, try_lost, try_unseen, try_growth)]:
            one.result()
    checks.end()


if __name__ == "__main__":
    main()
